"""Where a bound is put when its object sends: around the value, towards its level, or moving with its trend.

The paper centres a bound on the value (section 1.2). Nothing asks for that: any interval that holds the value
will do, if both sides know it. A value that keeps returning to a level stays longer in a bound that leans
towards it; one that climbs stays longer in a bound that climbs along. Which of the three is best is tried:
an agent runs all of them beside each other, at the width in use, and takes the one that would have sent
least.

The trials are in single precision, with values relative to a base that is never far; what is made of them is
checked in double precision where bounds are placed.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from slackwater.edge.arrays import with_room
from slackwater.edge.widths import Bools, Floats, Ints

VALUE, LEVEL, TREND = 0, 1, 2
LEAN = 0.8
"""How far towards its level a bound may lean, as a share of half its width: the rest is room to move on."""
LEVEL_PACE, SLOPE_PACE = 0.1, 0.05
"""How much of what is new goes into the level and into the slope."""
TREND_STEP = 1_000_000
"""Microseconds after which a bound with a trend moves on: between, both sides hold it still."""
FADES = 0.9997
"""What a trial's count keeps with every value."""
AHEAD = 0.8
"""A way to follow is taken if it sends less than the one in use by so many standard deviations of chance."""

_LEVEL, _SLOPE, _HELD, _LINE = 0, 1, 2, 3
"""Columns of the state: the level; how much the value moves in a step of the trend, as far as is known; that
slope when the trial with a trend was last placed, since a bound keeps the slope it was sent with; and how far
that trial has moved since its base."""
_TRIAL, _SENT = slice(4, 7), slice(7, 10)
"""The centres of the trials, and what each would have sent, by way."""


class Following:
    """How objects are followed; arrays by slot."""

    def __init__(self) -> None:
        self.way: NDArray[np.int8] = np.empty(0, np.int8)
        self._state: NDArray[np.float32] = np.empty((0, 10), np.float32)

    def start(self, used: int, count: int) -> None:
        """Begin slots after the first ``used``, for objects that stand at their base."""
        size = used + count
        self.way = with_room(self.way, used, size)
        self._state = with_room(self._state, used, size)
        self.way[used:size] = VALUE
        self._state[used:size] = 0
        self._state[used:size, _SENT] = 1

    def offer(
        self, slots: Ints, seen: Floats, change: Floats, widths: Floats, seconds: Floats, steps: Ints
    ) -> None:
        """See values, at the widths in use; ``change`` since those before (NaN: there were none).

        Those came so many ``seconds`` before; in between, bounds with a trend have made so many ``steps``.
        """
        half = widths / 2
        # what did not change is to be seen as the same, so values are as precise as the trials
        seen = seen.astype(np.float32).astype(np.float64)
        rows = self._state[slots].astype(np.float64)
        rows[:, _LEVEL] += LEVEL_PACE * np.clip(seen - rows[:, _LEVEL], -half, half)
        ticks = seconds * (1e6 / TREND_STEP)
        timed = (ticks > 0) & ~np.isnan(change)
        pace = np.divide(change, ticks, out=rows[:, _SLOPE].copy(), where=timed)
        rows[:, _LINE] += rows[:, _HELD] * steps
        rows[:, _SLOPE] += SLOPE_PACE * (pace - rows[:, _SLOPE])
        new = np.stack([seen, leaning(seen, rows[:, _LEVEL], half), seen - rows[:, _LINE]], axis=1)
        tried = new.copy()
        tried[:, LEVEL] = seen
        left = ~(np.abs(tried - rows[:, _TRIAL]) <= half[:, None])
        rows[:, _TRIAL] = np.where(left, new, rows[:, _TRIAL])
        rows[:, _HELD] = np.where(left[:, TREND], rows[:, _SLOPE], rows[:, _HELD])
        rows[:, _SENT] = rows[:, _SENT] * FADES + left
        self._state[slots] = rows
        self._choose(slots, rows[:, _SENT])

    def _choose(self, slots: Ints, sent: Floats) -> None:
        every = np.arange(len(slots))
        used = sent[every, self.way[slots]]
        best = sent.argmin(axis=1)
        least = sent[every, best]
        # counts of rare events differ by chance, as much as the root of what is counted
        switch = used - least > AHEAD * np.sqrt(used + least)
        if switch.any():
            self.way[slots[switch]] = best[switch].astype(np.int8)

    def offer_one(
        self, slot: int, seen: float, change: float, width: float, seconds: float, steps: int
    ) -> None:
        """`offer` of one value."""
        half = width / 2
        seen = float(np.float32(seen))
        level, slope, held, line, *rest = self._state[slot].tolist()
        trials, sent = rest[:3], rest[3:]
        level += LEVEL_PACE * min(max(seen - level, -half), half)
        ticks = seconds * (1e6 / TREND_STEP)
        line += held * steps
        if ticks > 0 and change == change:
            slope += SLOPE_PACE * (change / ticks - slope)
        moved_by = seen - line
        sent = [count * FADES for count in sent]
        if not abs(seen - trials[VALUE]) <= half:
            trials[VALUE] = seen
            sent[VALUE] += 1
        if not abs(seen - trials[LEVEL]) <= half:
            trials[LEVEL] = min(max(level, seen - LEAN * half), seen + LEAN * half)
            sent[LEVEL] += 1
        if not abs(moved_by - trials[TREND]) <= half:
            trials[TREND] = moved_by
            held = slope
            sent[TREND] += 1
        self._state[slot] = (level, slope, held, line, *trials, *sent)
        used, least = sent[self.way.item(slot)], min(sent)
        if used - least > AHEAD * math.sqrt(used + least):
            self.way[slot] = sent.index(least)

    def rebase(self, slots: Ints, seen: Floats) -> None:
        """From here on values are relative to where they are now, and no trial has moved."""
        rows = self._state[slots].astype(np.float64)
        rows[:, [_LEVEL, 4 + VALUE, 4 + LEVEL]] -= seen[:, None]
        rows[:, 4 + TREND] -= seen - rows[:, _LINE]
        rows[:, _LINE] = 0
        # what is out of all proportion begins again
        self._state[slots] = np.where(np.isfinite(rows), rows, 0.0)

    def level(self, slots: Ints) -> Floats:
        found: Floats = self._state[slots, _LEVEL].astype(np.float64)
        return found

    def line(self, slots: Ints) -> Floats:
        """How far the trials with a trend have moved since their base."""
        found: Floats = self._state[slots, _LINE].astype(np.float64)
        return found

    def one(self, slot: int) -> tuple[int, float, float]:
        """Of one object the way, level and line."""
        return self.way.item(slot), self._state.item(slot, _LEVEL), self._state.item(slot, _LINE)

    def slope(self, slots: Ints) -> Floats:
        """Slopes for bounds that are placed now: 0 where no trend is followed."""
        slopes = self._state[slots, _SLOPE].astype(np.float64)
        found: Floats = np.where((self.way[slots] == TREND) & np.isfinite(slopes), slopes, 0.0)
        return found


def leaning(values: Floats, levels: Floats, half: Floats) -> Floats:
    """Centres that lean towards the level, with room left on the value's other side."""
    reach = LEAN * half
    found: Floats = np.clip(levels, values - reach, values + reach)
    return found


def moved(centre: Floats, slope: Floats, since: Ints, now: int) -> Floats:
    """Centres at a time: each has moved by its slope at every step of the trend since it was sent.

    >>> moved(np.array([5.0]), np.array([0.5]), np.array([1_500_000]), 4_000_000)
    array([6.5])
    """
    steps = now // TREND_STEP - since // TREND_STEP
    there: Floats = centre + slope * steps
    return there


def next_step(now: int) -> int:
    """The next time at which bounds with a trend move."""
    return (now // TREND_STEP + 1) * TREND_STEP


def climbing(slope: Floats) -> Bools:
    """Which bounds move at all."""
    found: Bools = slope != 0
    return found
