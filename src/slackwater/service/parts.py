"""Answers of one turn as the service keeps them: found by query, time and group."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import Answer
from slackwater.runtime.board import places_by_query
from slackwater.runtime.groups import Places
from slackwater.runtime.json_values import to_micros
from slackwater.runtime.packed import Packed
from slackwater.service.keys import conditions_of, of_group
from slackwater.service.picking import answer_at, ends_of
from slackwater.service.watched import Asked

_PLACES = 200
"""Bytes that a query takes in a part of many, beside the places of its answers."""


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """Answers of one column from one turn: of one query, or of many alike ones."""

    number: int
    column: str
    _queries: str | Mapping[str, Places]
    """The query, in lower case; of several where the answers of each are."""
    _ends: array[int] | None
    """When windows end, or of what time answers speak."""
    _packed: Packed

    @classmethod
    def of(cls, number: int, batch: AnswerBatch) -> Part:
        """Part number so many; it shares no memory with the batch."""
        if isinstance(batch.query, str):
            queries: str | Mapping[str, Places] = batch.query.lower()
        else:
            queries = {n.lower(): np.asarray(p, np.int64) for n, p in places_by_query(batch)}
        ends = ends_of(batch)
        times = None if ends is None else array("q", ends.tolist())
        return cls(number, batch.column, queries, times, Packed.of(batch))

    def __len__(self) -> int:
        return len(self._packed)

    @property
    def queries(self) -> Collection[str]:
        """The names of the queries that answers are of, in lower case."""
        return (self._queries,) if isinstance(self._queries, str) else self._queries.keys()

    @property
    def nbytes(self) -> int:
        """About how many bytes it takes."""
        found = 0 if self._ends is None else self._ends.itemsize * len(self._ends)
        if isinstance(self._queries, Mapping):
            found += sum(_PLACES + len(places) * 8 for places in self._queries.values())
        return found + self._packed.nbytes

    def count(self, query: str) -> int:
        """How many of the answers are of a query, by its name in lower case."""
        return len(self._packed) if isinstance(self._queries, str) else len(self._queries[query])

    def newest(self, query: str) -> int:
        """The latest time that the answers of a query, in lower case, are for."""
        places = self._places(query)
        return 0 if self._ends is None or not len(places) else int(np.asarray(self._ends)[places].max())

    def json(self, query: str | None = None) -> bytes:
        """A JSON array of the answers, of all queries or of one."""
        places = None if query is None or len(self.queries) == 1 else self._places(query.lower()).tolist()
        return b"[" + b",".join(self._packed.lines(places)) + b"]"

    def fitting(self, query: str, asked: Asked) -> list[tuple[int, int]]:
        """The time and the place of the answers of a query, in lower case, that somebody asks for."""
        if asked.column is not None and self.column != asked.column:
            return []
        places = self._places(query)
        times = np.zeros(len(places), np.int64) if self._ends is None else np.asarray(self._ends)[places]
        if self._ends is not None:
            fits = np.ones(len(places), bool)
            if asked.since is not None:
                fits &= times >= to_micros(asked.since)
            if asked.until is not None:
                fits &= times <= to_micros(asked.until)
            times, places = times[fits], places[fits]
        if (asked.keys or asked.nulls) and len(places):
            group = self._of_group(asked, places)
            times, places = times[group], places[group]
        return list(zip(times.tolist(), places.tolist(), strict=True))

    def answers(self, query: str) -> Iterator[tuple[int, Answer]]:
        """The answers of a query, in lower case, the last first, each with the time it is for."""
        places = self._places(query)[::-1].tolist()
        for place, answer in zip(places, self.at(places), strict=True):
            yield (0 if self._ends is None else self._ends[place]), answer

    def at(self, places: Sequence[int]) -> list[Answer]:
        """The answers at some places."""
        held = self._packed.held
        if isinstance(held, AnswerBatch):
            return [answer_at(held, place) for place in places]
        return [Answer.from_json(line) for line in self._packed.lines(places)]

    def _places(self, query: str) -> Places:
        return np.arange(len(self._packed)) if isinstance(self._queries, str) else self._queries[query]

    def _of_group(self, asked: Asked, places: Places) -> np.ndarray:
        """Which of some answers are of the group that is asked for."""
        held = self._packed.held
        if isinstance(held, AnswerBatch):
            fits = np.ones(len(places), bool)
            for name, fit in conditions_of(asked).items():
                column = held.keys.get(name)
                if column is None:
                    return np.zeros(len(places), bool)
                values = column.take(pa.array(places)).to_pylist()
                fits &= np.array([fit(value) for value in values], dtype=bool)
            return fits
        return np.array([of_group(answer.group, asked) for answer in self.at(places.tolist())], dtype=bool)
