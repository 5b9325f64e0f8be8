"""The evaluator: intervals of all groups whenever a bound has changed, once for each time.

Items over a sliding time are told at the ends of its steps instead (`sliding.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import pyarrow as pa

from slackwater.edge.widths import Bools, Floats, Ints
from slackwater.plan.adjusting import Adjusting
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.bounds.belief import Belief
from slackwater.runtime.bounds.mirror import Mirror
from slackwater.runtime.bounds.queries import BoundedQuery, Intervals
from slackwater.runtime.bounds.windows import Windows

Said = dict[tuple[str, int], tuple[Floats, Floats]]
"""Of items, by query and place: both ends by group, NaN where nothing was said or that there is nothing."""


@dataclass(frozen=True)
class _Held:
    """Intervals of an item at a time."""

    at: int
    rows: Ints
    low: Floats
    high: Floats
    counted: Ints
    whole: bool | Bools = True
    """Whether all of the time is known that they are of, or all keys have told something; of all, or each."""


class Evaluator:
    """Queries, and the intervals that were last delivered of each of their groups."""

    def __init__(self, queries: list[BoundedQuery], before: Evaluator | None) -> None:
        self.queries = queries
        self.reweighed = False
        self._low: Floats = np.empty(0)
        self._high: Floats = np.empty(0)
        self._said: Said = {}
        self._parts: set[tuple[str, int]] = set()
        """Items over a sliding time of which the last that was told was not of all of it."""
        self._awaited: dict[tuple[str, int], Bools] = {}
        self._fresh = {q.step.name for q in queries}
        """Queries of which nothing was delivered as they are now."""
        self.windows: Windows = Windows(queries, None if before is None else before.windows)
        if before is not None:
            same = {q.step.name for q in queries if any(q.step == b.step for b in before.queries)}
            self._fresh -= same - before._fresh
            altered = {q.step.name for q in queries if any(_differ_in_width(q, b) for b in before.queries)}
            self._said = {k: v for k, v in before._said.items() if k[0] in same}
            self._said |= _standing({k: v for k, v in before._said.items() if k[0] in altered})
            self._low, self._high = before._low, before._high
            self._parts = {k for k in before._parts if k[0] in same}
            self._awaited = {k: v for k, v in before._awaited.items() if k[0] in same}

    def weigh(self, belief: Belief) -> None:
        """Weigh all objects anew: keys have come, or values have come or gone."""
        for query in self.queries:
            query.weigh(belief)
        belief.flipped = False
        self.reweighed = True

    def advance(
        self, mirror: Mirror, time: int, adjusting: Adjusting, emitted_at: datetime
    ) -> list[AnswerBatch]:
        """Carry the mirror on to a time of the hub; answers for every time at which something changed."""
        held: dict[tuple[int, int], list[_Held]] = {}
        for place, item, interval in self._advanced(mirror, time, adjusting):
            held.setdefault((place, item), []).append(interval)
        for place, item, interval in self._begun(mirror, adjusting):
            held.setdefault((place, item), []).append(interval)
        return [
            self._batch(self.queries[place], item, found, emitted_at)
            for (place, item), found in sorted(held.items())
        ]

    def replay(self, mirror: Mirror, time: int, adjusting: Adjusting) -> None:
        """Carry the mirror on to a time up to which all has been delivered.

        Windows take notice, and so it is known of which groups something stands: all is said again, and of
        those that have nothing any more, that.
        """
        for _ in self._advanced(mirror, time, adjusting):
            """Delivered before."""
        if mirror.queue.released > 0:
            self._refresh(mirror, mirror.queue.released, adjusting)
            for query in self.queries:
                self._changed(query, np.arange(query.matrix.size), mirror.queue.released)
        self._said = _standing(self._said)

    def _advanced(self, mirror: Mirror, time: int, adjusting: Adjusting) -> Iterator[tuple[int, int, _Held]]:
        belief = mirror.belief
        released = max(mirror.queue.released, 1)
        self._refresh(mirror, released, adjusting)
        self.windows.weighed(self.queries)
        self.windows.begin(self.queries, belief, self._low, self._high, released)
        for at, touched in mirror.advance(time):
            yield from self._slid(belief, at - 1)
            if belief.flipped:
                # what tells a row may be something else now, so that all may have changed
                self.weigh(belief)
                self.windows.weighed(self.queries)
                self._refresh(mirror, at, adjusting)
                touched = np.arange(len(self._low))
            elif len(touched) == len(self._low):
                self._refresh(mirror, at, adjusting)
            else:
                self._update(mirror, touched, at, adjusting)
            for place, query in enumerate(self.queries):
                rows = self._rows(query, touched)
                self.windows.take(query, belief, rows, self._low, self._high, at)
                for item, interval in self._changed(query, rows, at):
                    yield place, item, interval
        yield from self._slid(belief, mirror.queue.released)

    def _slid(self, belief: Belief, until: int) -> Iterator[tuple[int, int, _Held]]:
        """Items over a sliding time at the ends of its steps, where they have changed."""
        for place, item, over in self.windows.ends(self.queries, belief, self._low, self._high, until):
            query = self.queries[place]
            rows = np.arange(min(len(over.low), len(query.counted)))
            found = Intervals(rows, over.low[rows], over.high[rows], query.counted[rows])
            name = (query.step.name, item)
            # that a window is known whole is told too
            told = self._new(query, item, found, over.at, again=over.whole and name in self._parts)
            if told is not None:
                (self._parts.discard if over.whole else self._parts.add)(name)
                yield place, item, replace(told, whole=over.whole)

    def _begun(self, mirror: Mirror, adjusting: Adjusting) -> Iterator[tuple[int, int, _Held]]:
        """Queries that are new, as they are at the end of a batch: nothing may change for long."""
        at = mirror.queue.released
        if not self._fresh or at <= 0:
            return
        self._refresh(mirror, at, adjusting)
        for place, query in enumerate(self.queries):
            if query.step.name in self._fresh:
                for item, interval in self._changed(query, np.arange(query.matrix.size), at):
                    yield place, item, interval
        self._fresh.clear()

    def _refresh(self, mirror: Mirror, at: int, adjusting: Adjusting) -> None:
        low, high = mirror.belief.bounds(slice(None), at, adjusting.lag)
        pad = _pad(mirror.belief, slice(None), adjusting)
        self._low, self._high = low - pad, high + pad

    def _update(self, mirror: Mirror, objects: Ints, at: int, adjusting: Adjusting) -> None:
        low, high = mirror.belief.bounds(objects, at, adjusting.lag)
        pad = _pad(mirror.belief, objects, adjusting)
        self._low[objects], self._high[objects] = low - pad, high + pad

    def _rows(self, query: BoundedQuery, touched: Ints) -> Ints:
        rows = query.touched(touched)
        if not query.matrix.grouped and not len(rows) and len(touched):
            rows = np.zeros(1, np.int64)
        return rows

    def _changed(self, query: BoundedQuery, rows: Ints, at: int) -> list[tuple[int, _Held]]:
        found = []
        for item in range(len(query.items)):
            if query.form.items[item].move is None:
                awaited, before = query.awaited[rows] > 0, self._wanting(query, item)
                interval = query.intervals(item, rows, self._low, self._high)
                # that nobody is awaited any more is told too
                told = self._new(query, item, interval, at, again=before[rows] & ~awaited)
                before[rows] = awaited
                if told is not None:
                    found.append((item, replace(told, whole=query.awaited[told.rows] == 0)))
        return found

    def _wanting(self, query: BoundedQuery, item: int) -> Bools:
        """By group: whether some keys of it were still to tell something when it was last looked at."""
        found = self._awaited.get((query.step.name, item), np.empty(0, bool))
        if (more := query.matrix.size - len(found)) > 0:
            found = self._awaited[(query.step.name, item)] = np.concatenate([found, np.zeros(more, bool)])
        return found

    def _new(
        self, query: BoundedQuery, item: int, interval: Intervals, at: int, *, again: bool | Bools = False
    ) -> _Held | None:
        """What of intervals has not been said yet; ``again``: or was said of less."""
        rows = interval.rows
        low, high = self._last(query, item)
        new = again | ~((low[rows] == interval.low) & (high[rows] == interval.high))
        # where there is no value any more, that is said once
        new &= ~(np.isnan(low[rows]) & np.isnan(interval.low))
        # a group that has no row yet says nothing; one that has none any more says so
        new &= (interval.counted > 0) | ~np.isnan(low[rows])
        if not new.any():
            return None
        low[rows[new]], high[rows[new]] = interval.low[new], interval.high[new]
        return _Held(at, rows[new], interval.low[new], interval.high[new], interval.counted[new])

    def _last(self, query: BoundedQuery, item: int) -> tuple[Floats, Floats]:
        """What was delivered last, by group."""
        low, high = self._said.get((query.step.name, item), (np.empty(0), np.empty(0)))
        more = query.matrix.size - len(low)
        if more > 0:
            fill = np.full(more, np.nan)
            low, high = np.concatenate([low, fill]), np.concatenate([high, fill])
            self._said[(query.step.name, item)] = (low, high)
        return low, high

    def _batch(
        self, query: BoundedQuery, item: int, found: Sequence[_Held], emitted_at: datetime
    ) -> AnswerBatch:
        rows = np.concatenate([h.rows for h in found])
        low, high = np.concatenate([h.low for h in found]), np.concatenate([h.high for h in found])
        bounded: Bools = np.isfinite(low) & np.isfinite(high)
        ends = np.where(bounded, low, 0.0), np.where(bounded, high, 0.0)
        middle = ends[0] / 2 + ends[1] / 2
        whole = np.concatenate([np.broadcast_to(h.whole, len(h.rows)) for h in found])
        # a count is told as a whole number, as it is under every contract
        counts = query.form.items[item].whole and not np.mod([*ends, middle], 1).any()
        kind = pa.int64() if counts else pa.float64()
        return AnswerBatch(
            query=query.step.name,
            column=query.outputs()[item].name,
            at=np.concatenate([np.full(len(h.rows), h.at) for h in found]),
            keys=query.keys(rows),
            value=pa.array(middle, mask=~bounded).cast(kind),
            low=pa.array(low, mask=~bounded).cast(kind),
            high=pa.array(high, mask=~bounded).cast(kind),
            confidence=1.0,
            how="bounded",
            rows=np.concatenate([h.counted for h in found]),
            # that there is no value is known exactly
            met=whole & (np.isnan(low) | bounded & (ends[1] - ends[0] <= query.contract.width)),
            emitted_at=emitted_at,
        )


def _pad(belief: Belief, objects: Ints | slice, adjusting: Adjusting) -> Floats | float:
    """By how much the bounds of objects are widened on either side."""
    return adjusting.padding / 2 * belief.paces()[objects] if adjusting.padding else 0.0


def _differ_in_width(query: BoundedQuery, before: BoundedQuery) -> bool:
    """Whether a query is another one with a new precision, and nothing else."""
    return query.step != before.step and query.step == replace(before.step, contract=query.step.contract)


def _standing(said: Said) -> Said:
    """What was said of items that are all to be said again: of those without a value, that there was one."""
    ends = {name: np.where(np.isnan(low), np.nan, np.inf) for name, (low, _) in said.items()}
    return {name: (low, low.copy()) for name, low in ends.items()}
