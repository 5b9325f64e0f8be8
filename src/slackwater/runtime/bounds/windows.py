"""The items of all queries that are taken over a sliding time, fed with intervals and kept over a restart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from slackwater.edge.widths import Floats, Ints
from slackwater.runtime.bounds.belief import Belief
from slackwater.runtime.bounds.meaning import Ends, Rest
from slackwater.runtime.bounds.queries import BoundedQuery
from slackwater.runtime.bounds.sliding import Over, Sliding, unbounded

Name = tuple[str, int, str]
"""A query, the place of an item, and all that it is: another contract makes no other item."""


class Windows:
    """Each item over a sliding time, by query."""

    def __init__(self, queries: Sequence[BoundedQuery], before: Windows | None) -> None:
        held = {} if before is None else before._held
        self._held: dict[Name, Sliding] = {}
        self._names = [_names(query) for query in queries]
        for query, names in zip(queries, self._names, strict=True):
            for name in names:
                move = query.form.items[name[1]].move
                assert move is not None
                self._held[name] = held[name] if name in held else Sliding(move)
        self._of = {query.step.name: names for query, names in zip(queries, self._names, strict=True)}
        rests = {} if before is None else before._rests
        self._rests: dict[Name, Rest] = {}
        """Of queries to which agents tell means, by their first item."""
        for query, names in zip(queries, self._names, strict=True):
            if query.lenient is not None:
                moves = [item.move for item in query.form.items if item.move is not None]
                self._rests[names[0]] = rests[names[0]] if names[0] in rests else Rest(moves)

    def weighed(self, queries: Sequence[BoundedQuery]) -> None:
        """Queries have been weighed anew."""
        for query in queries:
            rest = self._rest(query)
            query.ready = rest is not None and rest.weighed(query.means)

    def _rest(self, query: BoundedQuery) -> Rest | None:
        names = self._of[query.step.name]
        return self._rests.get(names[0]) if names else None

    def begin(
        self, queries: Sequence[BoundedQuery], belief: Belief, low: Floats, high: Floats, at: int
    ) -> None:
        """Let items that are new begin with what all groups are."""
        for query in queries:
            if any(self._held[name].begun < 0 for name in self._of[query.step.name]) and belief.known.any():
                self.take(query, belief, np.arange(query.matrix.size), low, high, at)

    def take(
        self, query: BoundedQuery, belief: Belief, rows: Ints, low: Floats, high: Floats, at: int
    ) -> None:
        """Bounds have changed at a time, and some groups with them."""
        names = self._of[query.step.name]
        if not names or not len(rows):
            return
        away = np.repeat(belief.unsure > 0, belief.columns)
        if away.any():
            low, high = unbounded(low, high, away)
        for name in names:
            found = query.intervals(name[1], rows, low, high)
            # a group without a row has no value yet
            bottom = np.where(found.counted > 0, found.low, np.nan)
            self._held[name].take(at, rows, bottom, found.high)
        rest = self._rest(query)
        if rest is not None and query.means is not None:
            rest.take(query.means, low, high, at)

    def ends(
        self, queries: Sequence[BoundedQuery], belief: Belief, low: Floats, high: Floats, until: int
    ) -> Iterator[tuple[int, int, Over]]:
        """What is told at the ends of steps up to a time, by the place of the query and of the item.

        Bounds are as they have been since the last time that they changed.
        """
        for place, query in enumerate(queries):
            rest = self._rest(query)
            for name in self._of[query.step.name]:
                for over in self._held[name].ends(until):
                    if query.ready and rest is not None and query.means is not None:
                        away = np.repeat(belief.unsure > 0, belief.columns)
                        bounds = unbounded(low, high, away)
                        ends = rest.over(query.means, name[1], over.at, len(over.low), bounds)
                        young = query.means.young(belief.begun, over.at - self._held[name].size)
                        over = _narrower(over, ends, young[young < len(over.low)])
                    yield place, name[1], over

    def to_parts(self) -> tuple[dict[str, npt.NDArray[np.generic]], list[list[Any]]]:
        """All of it as arrays and JSON, to be kept."""
        arrays: dict[str, npt.NDArray[np.generic]] = {}
        noted: list[list[Any]] = []
        for number, (name, sliding) in enumerate(self._held.items()):
            own, times = sliding.to_parts()
            arrays |= {f"{number}.{field}": array for field, array in own.items()}
            noted.append([*name, *times])
            if name in self._rests:
                own, rest = self._rests[name].to_parts()
                arrays |= {f"{number}.rest.{field}": array for field, array in own.items()}
                noted[-1].append(rest)
        return arrays, noted

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]], noted: list[list[Any]]) -> None:
        """Go on from what was kept, as far as the queries are still the same."""
        for number, (query, item, what, *times) in enumerate(noted):
            sliding = self._held.get((query, item, what))
            if sliding is not None:
                prefix = f"{number}."
                own = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
                sliding.load(own, times[:2])
                if len(times) > 2 and (query, item, what) in self._rests:
                    beside = {n.removeprefix("rest."): a for n, a in own.items() if n.startswith("rest.")}
                    self._rests[(query, item, what)].load(beside, times[2])


def _narrower(over: Over, ends: Ends, young: Ints) -> Over:
    """What both what bounds have been and means say of a window.

    A mean counts what was not there as 0; where a group had no value for a part of the time, its mean is that
    of the rest. For how long it had one is known exactly, if all of the window is. ``young`` are groups with
    keys that count for a part of it only: of those, means say too much.
    """
    if not over.whole:
        return over
    low, high, constant = ends
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = low / over.there + constant, high / over.there + constant
    low[young] = high[young] = np.nan
    there = ~np.isnan(over.low)
    least = np.where(there, np.fmax(over.low, low), np.nan)
    return over._replace(low=least, high=np.where(there, np.fmin(over.high, high), np.nan))


def _names(query: BoundedQuery) -> list[Name]:
    step = query.step
    return [
        (step.name, place, repr((step.path, step.keys, step.calls, item.sql, item.move)))
        for place, item in enumerate(query.form.items)
        if item.move is not None
    ]
