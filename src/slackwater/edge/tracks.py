"""What an agent watches of the objects that somebody asks for: how to follow them, and what they would send.

Only objects that have, or once had, a finite width and a value since then take memory here: a slot each, of
some two hundred bytes. Nothing here decides whether a value is sent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from slackwater.edge.arrays import with_room
from slackwater.edge.curves import SECONDS, ToldCurves
from slackwater.edge.following import LEAN, LEVEL, TREND, TREND_STEP, Following, leaning
from slackwater.edge.shadows import POINTS, Shadows
from slackwater.edge.widths import Bools, Floats, Ints

_FAR = 4096.0
"""Widths of the lowest rung that a value may be from its base: single precision still tells them apart."""
SHORTEST = 1_000_000
"""Microseconds of a period at least."""


class Tracks:
    """The slots of objects. ``period``: what is told of a curve is told at most so often, in seconds."""

    def __init__(self, period: float) -> None:
        self._period = round(period * 1e6)
        self._following = Following()
        self._shadows = Shadows(period)
        self._objects = 0
        self._slot: NDArray[np.int32] = np.empty(0, np.int32)
        """By object; -1: it was never watched."""
        self._used = 0
        self._base: Floats = np.empty(0)
        self._seen: Ints = np.empty(0, np.int64)
        """When the last value came."""
        self._told: Ints = np.empty(0, np.int64)
        """When the curve was last told."""

    def fit(self, period: int) -> None:
        """Go by periods of so many microseconds from here on: widths are adjusted so often."""
        period = max(period, SHORTEST)
        if period != self._period:
            self._period = period
            self._shadows.fit(period / 1e6)

    def grow(self, objects: int) -> None:
        """Make places for more objects."""
        self._slot = with_room(self._slot, self._objects, objects)
        self._slot[self._objects : objects] = -1
        self._objects = objects

    def _start(self, objects: Ints, values: Floats, widths: Floats, now: int) -> None:
        used, count = self._used, len(objects)
        self._slot[objects] = np.arange(used, used + count)
        for name, fill in (("_base", values), ("_seen", now), ("_told", 0)):
            room = with_room(getattr(self, name), used, used + count)
            room[used : used + count] = fill
            setattr(self, name, room)
        self._following.start(used, count)
        self._shadows.start(used, widths)
        self._used += count

    def offer(self, objects: Ints, before: Floats, values: Floats, widths: Floats, now: int) -> None:
        """See values of objects, each once, at the finite widths in use; ``before``: what they were."""
        slots: Ints = self._slot[objects].astype(np.int64)
        fresh = slots < 0
        if fresh.any():
            self._start(objects[fresh], values[fresh], widths[fresh], now)
            known = ~fresh
            slots, before, values, widths = slots[known], before[known], values[known], widths[known]
        if not len(slots):
            return
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            last = self._seen[slots]
            seconds = np.maximum(now - last, 0) / 1e6
            steps = np.maximum(now // TREND_STEP - last // TREND_STEP, 0)
            self._seen[slots] = now
            seen, ways = values - self._base[slots], self._following.way[slots]
            self._following.offer(slots, seen, values - before, widths, seconds, steps)
            self._rebase(slots, seen, values, ways)
            seen = values - self._base[slots]
            way = self._following.way[slots]
            shown = np.where(way == TREND, seen - self._following.line(slots), seen)
            lean = np.where(way == LEVEL, LEAN, 0.0)
            self._shadows.offer(slots, shown, widths, self._following.level(slots), lean, seconds)

    def offer_one(self, place: int, before: float, value: float, width: float, now: int) -> None:
        """`offer` of one value."""
        slot = self._slot.item(place)
        if slot < 0:
            self._start(np.array([place]), np.array([value]), np.array([width]), now)
            return
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            last = self._seen.item(slot)
            seconds = max(now - last, 0) / 1e6
            steps = max(now // TREND_STEP - last // TREND_STEP, 0)
            self._seen[slot] = now
            seen = value - self._base.item(slot)
            was = self._following.way.item(slot)
            self._following.offer_one(slot, seen, value - before, width, seconds, steps)
            way, level, line = self._following.one(slot)
            limit = _FAR * 2.0 ** self._shadows.lowest.item(slot)
            if way != was or not (abs(seen) <= limit and abs(line) <= limit):
                self._rebase(np.array([slot]), np.array([seen]), np.array([value]), np.array([was]))
                seen = value - self._base.item(slot)
                way, level, line = self._following.one(slot)
            shown = seen - line if way == TREND else seen
            lean = LEAN if way == LEVEL else 0.0
            self._shadows.offer_one(slot, shown, width, level, lean, seconds)

    def _rebase(self, slots: Ints, seen: Floats, values: Floats, ways: NDArray[np.int8]) -> None:
        """Bring bases near where values have gone too far, or where ladders begin or end to see a trend.

        ``ways`` are those by which ladders have seen values so far.
        """
        line = self._following.line(slots)
        limit = np.ldexp(_FAR, self._shadows.lowest[slots].astype(np.int64))
        turned = (ways == TREND) != (self._following.way[slots] == TREND)
        far = turned | ~((np.abs(seen) <= limit) & (np.abs(line) <= limit))
        if not far.any():
            return
        slots, seen = slots[far], seen[far]
        self._shadows.move(slots, np.where(ways[far] == TREND, seen - line[far], seen))
        self._following.rebase(slots, seen)
        self._base[slots] = values[far]

    def placed(self, objects: Ints, values: Floats, widths: Floats) -> tuple[Floats, Floats]:
        """Centres and slopes of bounds that are placed now.

        Guarantee: values are in their bounds, whatever was watched.
        """
        centre, slope = values.copy(), np.zeros(len(values))
        slots: Ints = self._slot[objects].astype(np.int64)
        watched = np.flatnonzero(slots >= 0)
        if len(watched):
            slots = slots[watched]
            slope[watched] = self._following.slope(slots)
            leans = self._following.way[slots] == LEVEL
            some, slots = watched[leans], slots[leans]
            with np.errstate(over="ignore", invalid="ignore"):
                half = widths[some] / 2
                levels = self._base[slots] + self._following.level(slots)
                there = leaning(values[some], levels, half)
                centre[some] = np.where(np.abs(values[some] - there) <= half, there, values[some])
        return centre, slope

    def curves(self, objects: Ints, since: Ints) -> ToldCurves:
        """The curves of rows, by row and column, of those that were not told for a period."""
        slots: Ints = self._slot[objects].astype(np.int64)
        watched: Bools = slots >= 0
        if not watched.any():
            return ToldCurves.none(len(objects))
        rows = np.flatnonzero((watched & (since - self._told[slots] >= self._period)).any(axis=1))
        slots, watched = slots[rows], watched[rows]
        told = np.broadcast_to(since[rows].max(axis=1)[:, None], slots.shape)[watched]
        self._told[slots[watched]] = told
        # of a column that is not watched there is nothing to tell
        curves = np.zeros((*slots.shape, POINTS + 2))
        curves[watched] = self._shadows.curves(slots[watched])
        some = np.flatnonzero((curves[:, :, SECONDS] != 0).any(axis=1))
        return ToldCurves(len(objects), rows[some], curves[some])
