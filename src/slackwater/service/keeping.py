"""The newest answers of a run, for those who ask: kept as columns and numbered as they come."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import Answer
from slackwater.runtime.board import places_by_query
from slackwater.runtime.json_values import exact_text, to_micros
from slackwater.service.watched import Asked

PER_QUERY = 5_000
"""Answers that are kept of one query."""
IN_ALL = 500_000
"""Answers that are kept of all queries; the oldest go first."""
AT_A_TIME = 1_000
"""Answers in one part: what an event of the stream of answers holds."""


@dataclass(frozen=True, eq=False)
class Part:
    """Answers of one query and column, from one turn."""

    number: int
    query: str
    batch: AnswerBatch

    def __len__(self) -> int:
        return len(self.batch)

    def json(self) -> bytes:
        """A JSON array of the answers."""
        return b"[" + self.batch.json_lines().rstrip(b"\n").replace(b"\n", b",") + b"]"


@dataclass
class _Query:
    parts: deque[Part] = field(default_factory=deque)
    count: int = 0


class AnswerKeeper:
    """Takes answers while a turn delivers them, and lets them be seen once the turn is committed."""

    def __init__(self, *, per_query: int = PER_QUERY, in_all: int = IN_ALL) -> None:
        self._per_query = per_query
        self._in_all = in_all
        self._lock = threading.Lock()
        self._pending: list[tuple[str, AnswerBatch]] = []
        self._parts: deque[Part] = deque()
        self._queries: dict[str, _Query] = {}
        self._count = 0
        self.number = 0
        """Of the newest part."""

    def take(self, batch: AnswerBatch) -> None:
        """Answers of a turn that is under way."""
        for name, places in places_by_query(batch):
            if len(places):
                self._pending.append((name, _chosen(batch, places[-self._per_query :])))

    def publish(self) -> list[Part]:
        """The turn is committed: its answers can be seen."""
        pending, self._pending = self._pending, []
        fresh: list[Part] = []
        with self._lock:
            for name, batch in pending:
                for start in range(0, len(batch), AT_A_TIME):
                    self.number += 1
                    part = Part(self.number, name, batch.slice(start, start + AT_A_TIME))
                    fresh.append(part)
                    self._keep(part)
        return fresh

    def _keep(self, part: Part) -> None:
        kept = self._queries.setdefault(part.query.lower(), _Query())
        kept.parts.append(part)
        kept.count += len(part)
        self._parts.append(part)
        self._count += len(part)
        while kept.count > self._per_query and len(kept.parts) > 1:
            kept.count -= len(kept.parts.popleft())
        while self._count > self._in_all and len(self._parts) > 1:
            oldest = self._parts.popleft()
            self._count -= len(oldest)
            of = self._queries.get(oldest.query.lower())
            if of is not None and of.parts and of.parts[0] is oldest:
                of.count -= len(of.parts.popleft())

    def after(self, number: int, query: str | None = None) -> tuple[list[Part], int]:
        """Parts with higher numbers, oldest first, and how many of these are not kept any more."""
        with self._lock:
            first = self._parts[0].number if self._parts else self.number + 1
            lost = max(0, first - 1 - number)
            # from the newest on: whoever listens has seen nearly all
            found = []
            for part in reversed(self._parts):
                if part.number <= number:
                    break
                if query is None or part.query.lower() == query.lower():
                    found.append(part)
        return found[::-1], lost

    def forget(self, queries: Sequence[str]) -> None:
        """Queries that are no more, by their names."""
        with self._lock:
            for name in queries:
                self._queries.pop(name.lower(), None)

    def answers(self, query: str, asked: Asked) -> list[Answer]:
        """The newest answers that fit, oldest first."""
        found: list[Answer] = []
        for part in reversed(self._of(query)):
            if asked.column is not None and part.batch.column != asked.column:
                continue
            fitting = fitting_places(part.batch, asked)
            room = asked.limit - len(found)
            if len(fitting):
                found.extend(reversed(list(_chosen(part.batch, fitting[-room:]).answers())))
            if len(found) >= asked.limit:
                break
        return found[::-1]

    def latest(self, query: str, limit: int) -> list[Answer]:
        """The newest answer of every column and group, the newest first."""
        found: dict[tuple[object, ...], Answer] = {}
        for part in reversed(self._of(query)):
            for answer in reversed(list(part.batch.answers())):
                place = (answer.column, *((name, exact_text(value)) for name, value in answer.keys))
                if place not in found:
                    if len(found) >= limit:
                        return list(found.values())
                    found[place] = answer
        return list(found.values())

    def _of(self, query: str) -> list[Part]:
        with self._lock:
            kept = self._queries.get(query.lower())
            return list(kept.parts) if kept is not None else []


def fitting_places(batch: AnswerBatch, asked: Asked) -> Sequence[int]:
    """Where in a batch the answers are that somebody asks for."""
    mask = np.ones(len(batch), dtype=bool)
    ends = batch.window_end if batch.window_end is not None else batch.at
    if ends is not None and asked.since is not None:
        mask &= ends >= to_micros(asked.since)
    if ends is not None and asked.until is not None:
        mask &= ends <= to_micros(asked.until)
    for name, text in (asked.keys or {}).items():
        column = batch.keys.get(name)
        if column is None:
            return []
        mask &= np.array([key_text(value) == text for value in column.to_pylist()], dtype=bool)
    return list(np.flatnonzero(mask).tolist())


def key_text(value: Any) -> str:
    """A group key as it is asked for in an address; nothing for NULL.

    >>> key_text("a"), key_text(80), key_text(None)
    ('a', '80', '')
    """
    return "" if value is None else value if isinstance(value, str) else exact_text(value)


def rows_of_group(batch: AnswerBatch, keys: Mapping[str, Any]) -> Sequence[int]:
    """Where in a batch the answers of one group are, by the values of its keys."""
    mask = np.ones(len(batch), dtype=bool)
    for name, value in keys.items():
        column = batch.keys.get(name)
        if column is None:
            return []
        same = pc.is_null(column) if value is None else pc.equal(column, pa.scalar(value, column.type))
        mask &= np.asarray(pc.fill_null(same, False))
    return list(np.flatnonzero(mask).tolist())


def _chosen(batch: AnswerBatch, places: Sequence[int]) -> AnswerBatch:
    """Some answers of a batch, copied: a part must not keep a whole turn of other queries in memory."""
    if isinstance(places, range) and places.step == 1:
        return batch.slice(places.start, places.stop)
    return batch.take(places)


def parts_of(parts: Sequence[Part]) -> Iterator[Answer]:
    """The answers of some parts, one by one."""
    for part in parts:
        yield from part.batch.answers()
