"""The newest answers of a run, for those who ask, numbered as they come."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import Answer
from slackwater.runtime.json_values import json_text, to_micros
from slackwater.service.keys import has_words, in_order
from slackwater.service.parts import Part
from slackwater.service.picking import ends_of
from slackwater.service.watched import Asked, Newest

PER_QUERY = 5_000
"""Answers that are kept of one query."""
IN_ALL = 500_000
"""Answers that are kept of all queries; the oldest go first."""
BYTES_IN_ALL = 64 * 2**20
"""What they may take: keys may be long, and values lists."""
PARTS_IN_ALL = 20_000
"""Parts that are kept: each takes a kilobyte whatever it holds, 20 MB at most."""
TEXTS = 64
"""Parts whose JSON is kept for the next reader."""
GONE = 500
"""Parts of a query of which it is known that they were there once."""
AT_A_TIME = 1_000
"""Answers in one part: what an event of the stream of answers holds."""


@dataclass
class _Query:
    parts: deque[Part] = field(default_factory=deque)
    count: int = 0
    gone: deque[int] = field(default_factory=lambda: deque(maxlen=GONE))
    """The numbers of parts that are not kept any more, the newest of them."""
    cut: float = -math.inf
    """The latest time of answers that are not kept any more."""


class AnswerKeeper:
    """Takes answers while a turn delivers them, and lets them be seen once the turn is committed."""

    def __init__(
        self,
        *,
        number: int = 0,
        per_query: int = PER_QUERY,
        in_all: int = IN_ALL,
        parts_in_all: int = PARTS_IN_ALL,
        bytes_in_all: int = BYTES_IN_ALL,
    ) -> None:
        self._per_query = per_query
        self._in_all = in_all
        self._parts_in_all = parts_in_all
        self._bytes_in_all = bytes_in_all
        self._lock = threading.Lock()
        self._pending: list[AnswerBatch] = []
        self._parts: deque[Part] = deque()
        self._queries: dict[str, _Query] = {}
        self._count = 0
        self._bytes = 0
        self.began = number
        """The number before that of the first part."""
        self.number = number
        """Of the newest part."""
        self._texts: OrderedDict[int, bytes] = OrderedDict()
        """JSON of the parts that readers were sent last, by number."""
        self._forgotten: dict[str, int] = {}
        """By name of a query that was forgotten: the newest part that may be its own."""

    def take(self, batch: AnswerBatch) -> None:
        """Answers of a turn that is under way."""
        if isinstance(batch.query, str) and len(batch) > self._per_query:
            # copied: a few answers must not keep all of a turn in memory
            left, ends = len(batch) - self._per_query, ends_of(batch)
            with self._lock:
                of = self._queries.setdefault(batch.query.lower(), _Query())
                of.cut = max(of.cut, 0 if ends is None else int(ends[:left].max()))
            batch = batch.take(range(left, len(batch)))
        if len(batch):
            self._pending.append(batch)

    def publish(self) -> list[Part]:
        """The turn is committed: its answers can be seen."""
        pending, self._pending = self._pending, []
        fresh: list[Part] = []
        for batch in pending:
            for start in range(0, len(batch), AT_A_TIME):
                few = batch if len(batch) <= AT_A_TIME else batch.slice(start, start + AT_A_TIME)
                fresh.append(Part.of(self.number + len(fresh) + 1, few))
        with self._lock:
            for part in fresh:
                self._keep(part)
            self.number += len(fresh)
        return fresh

    def _keep(self, part: Part) -> None:
        for name in part.queries:
            kept = self._queries.setdefault(name, _Query())
            kept.parts.append(part)
            kept.count += part.count(name)
            while kept.count > self._per_query and len(kept.parts) > 1:
                oldest = kept.parts.popleft()
                kept.count -= oldest.count(name)
                kept.cut = max(kept.cut, oldest.newest(name))
        self._parts.append(part)
        self._count += len(part)
        self._bytes += part.nbytes
        while self._too_many() and len(self._parts) > 1:
            oldest = self._parts.popleft()
            self._count -= len(oldest)
            self._bytes -= oldest.nbytes
            for name in oldest.queries:
                of = self._queries.get(name)
                if of is None:
                    continue
                # what another query of that name has given is nothing that this one has lost
                if oldest.number > self._forgotten.get(name, 0):
                    of.gone.append(oldest.number)
                if of.parts and of.parts[0] is oldest:
                    of.parts.popleft()
                    of.count -= oldest.count(name)
                    of.cut = max(of.cut, oldest.newest(name))

    def _too_many(self) -> bool:
        return (
            self._count > self._in_all
            or self._bytes > self._bytes_in_all
            or len(self._parts) > self._parts_in_all
        )

    def after(self, number: int, query: str | None = None) -> tuple[list[Part], int, int]:
        """Parts with higher numbers, oldest first; how many there were that are not kept; the newest number.

        Of a query they are counted as far as they are remembered: there may have been more.
        """
        with self._lock:
            first = self._parts[0].number if self._parts else self.number + 1
            lost = max(0, first - 1 - number)
            if query is not None:
                of = self._queries.get(query.lower())
                lost = 0 if of is None else sum(gone > number for gone in of.gone)
                number = max(number, self._forgotten.get(query.lower(), number))
            # from the newest on: whoever listens has seen nearly all
            found = []
            for part in reversed(self._parts):
                if part.number <= number:
                    break
                if query is None or query.lower() in part.queries:
                    found.append(part)
            return found[::-1], lost, self.number

    def json(self, part: Part, query: str | None) -> bytes:
        """A part as readers are sent it; of all its queries it is made once."""
        if query is not None and len(part.queries) > 1:
            return part.json(query)
        with self._lock:
            known = self._texts.get(part.number)
        if known is None:
            known = part.json()
            with self._lock:
                self._texts[part.number] = known
                while len(self._texts) > TEXTS:
                    self._texts.popitem(last=False)
        return known

    def forget(self, queries: Sequence[str]) -> None:
        """Queries that are no more, by their names."""
        with self._lock:
            for name in queries:
                self._queries.pop(name.lower(), None)
                self._forgotten[name.lower()] = self.number
            oldest = self._parts[0].number if self._parts else self.number + 1
            self._forgotten = {name: number for name, number in self._forgotten.items() if number >= oldest}

    def answers(self, query: str, asked: Asked) -> list[Answer]:
        """The newest answers that fit, oldest first."""
        parts, _ = self._of(query)
        found = [
            (time, number, place)
            for number, part in enumerate(parts)
            for time, place in part.fitting(query.lower(), asked)
        ]
        # the parts of a turn are in no order of time
        found.sort()
        newest = [(number, place) for _, number, place in found[-asked.limit :]]
        wanted: dict[int, list[int]] = {}
        for number, place in newest:
            wanted.setdefault(number, []).append(place)
        made = {
            (number, place): answer
            for number, places in wanted.items()
            for place, answer in zip(places, parts[number].at(places), strict=True)
        }
        return [made[where] for where in newest]

    def latest(self, query: str, limit: int, search: str = "", until: datetime | None = None) -> Newest:
        """The newest answer of every column and group, of those that have some words."""
        found: dict[tuple[object, ...], tuple[int, Answer]] = {}
        last = math.inf if until is None else to_micros(until)
        parts, cut = self._of(query)
        for part in reversed(parts):
            for end, answer in part.answers(query.lower()):
                if end > last:
                    continue
                where = (answer.column, *((name, json_text(value)) for name, value in answer.keys))
                # the parts of a turn are in no order of time
                if where not in found or end > found[where][0]:
                    found[where] = (end, answer)
        fitting = [e for e in found.values() if has_words(e[1].column, e[1].keys, search)]
        fitting.sort(key=lambda e: (-e[0], *in_order(e[1].column, e[1].keys)))
        # what came long ago and has not come again is counted by nobody
        newest = min(last, max((end for end, _ in found.values()), default=math.inf))
        return Newest([answer for _, answer in fitting[:limit]], len(fitting), cut=cut >= newest)

    def _of(self, query: str) -> tuple[list[Part], float]:
        """The parts that are kept of a query, and up to when some are not."""
        with self._lock:
            kept = self._queries.get(query.lower())
            return (list(kept.parts), kept.cut) if kept is not None else ([], -math.inf)
