"""Where a bound is put when its object sends: around the value, towards its level, or moving with its trend.

The paper centres a bound on the value (section 1.2). Nothing asks for that: any interval that holds the value
will do, if both sides know it. A value that keeps returning to a level stays longer in a bound that leans
towards it; one that climbs stays longer in a bound that climbs along. Which of the three is best is tried:
an agent runs all of them beside each other, at the width in use, and takes the one that would have sent
least.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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


class Following:
    """How the objects of an agent are followed; arrays by object."""

    def __init__(self) -> None:
        self.way: NDArray[np.int8] = np.empty(0, np.int8)
        self.level: Floats = np.empty(0)
        self.slope: Floats = np.empty(0)
        """By how much the value moves in a step of the trend, as far as is known."""
        self._held: Floats = np.empty(0)
        """The slope when the trial with a trend was last placed: a bound keeps the slope it was sent with."""
        self._line: Floats = np.empty(0)
        self._value: Floats = np.empty(0)
        self._trial: Floats = np.empty((0, 3))
        self._sent: NDArray[np.float32] = np.empty((0, 3), np.float32)

    def grow(self, size: int) -> None:
        """Make places for more objects."""
        more = size - len(self.way)
        fills = {"way": 0, "level": np.nan, "slope": 0.0, "_held": 0.0, "_line": 0.0, "_value": np.nan}
        for name, fill in fills.items():
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.full(more, fill, old.dtype)]))
        self._trial = np.concatenate([self._trial, np.full((more, 3), np.nan)])
        self._sent = np.concatenate([self._sent, np.zeros((more, 3), np.float32)])

    def offer(self, objects: Ints, values: Floats, widths: Floats, seconds: Floats) -> None:
        """See the values of some objects, ``seconds`` after those before, at the widths in use."""
        half = widths / 2
        before, level = self._value[objects], self.level[objects]
        first = np.isnan(before)
        step = np.clip(values - level, -half, half)
        self.level[objects] = level = np.where(first, values, level + LEVEL_PACE * step)
        ticks = seconds * (1e6 / TREND_STEP)
        timed = ~first & (ticks > 0)
        pace = np.divide(values - before, ticks, out=np.zeros(len(values)), where=timed)
        slope = self.slope[objects]
        self._line[objects] += np.where(timed, self._held[objects] * ticks, 0.0)
        self.slope[objects] = np.where(timed, slope + SLOPE_PACE * (pace - slope), slope)
        self._value[objects] = values
        seen = np.stack([values, values, values - self._line[objects]], axis=1)
        centre = self._trial[objects]
        left = ~(np.abs(seen - centre) <= half[:, None])
        new = seen.copy()
        new[:, LEVEL] = self.leaning(values, level, half)
        self._trial[objects] = np.where(left, new, centre)
        self._held[objects[left[:, TREND]]] = self.slope[objects[left[:, TREND]]]
        self._sent[objects] = self._sent[objects] * np.float32(FADES) + left
        self._choose(objects)

    def _choose(self, objects: Ints) -> None:
        sent = self._sent[objects]
        now = self.way[objects]
        used = sent[np.arange(len(objects)), now]
        best = sent.argmin(axis=1)
        least = sent[np.arange(len(objects)), best]
        # counts of rare events differ by chance, as much as the root of what is counted
        switch = used - least > AHEAD * np.sqrt(used + least)
        self.way[objects[switch]] = best[switch].astype(np.int8)

    @staticmethod
    def leaning(values: Floats, levels: Floats, half: Floats) -> Floats:
        """Centres that lean towards the level, with room left on the value's other side."""
        reach = LEAN * np.where(np.isfinite(half), half, 0.0)
        leaning: Floats = np.clip(levels, values - reach, values + reach)
        return leaning

    def lean(self, objects: Ints) -> Floats:
        """How far the bounds of some objects lean, as a share of half their width."""
        return np.where(self.way[objects] == LEVEL, LEAN, 0.0)

    def seen(self, objects: Ints, values: Floats) -> Floats:
        """What the ladder of an object is to see: its value, less its trend where it is followed."""
        return np.where(self.way[objects] == TREND, values - self._line[objects], values)

    def placed(self, objects: Ints, values: Floats, widths: Floats) -> tuple[Floats, Floats]:
        """Centres and slopes of bounds that are sent now."""
        way = self.way[objects]
        centre = np.where(way == LEVEL, self.leaning(values, self.level[objects], widths / 2), values)
        return centre, np.where(way == TREND, self.slope[objects], 0.0)


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
