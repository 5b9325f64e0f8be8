"""Items over a sliding time: the mean, the least or the largest of what intervals were, by group.

Time is cut into steps, of which a window holds a whole number. Each step keeps what it comes to by itself, so
that a window is a sum (or an extreme) of its steps, whatever has happened within them. Answers come at the
ends of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from slackwater.edge.means import step_of
from slackwater.edge.widths import Bools, Floats, Ints
from slackwater.plan.model import Move

EPSILON = float(np.finfo(np.float64).eps)
_KEPT = ("low", "high", "since", "lows", "highs", "sizes", "there", "parts")


class Over(NamedTuple):
    """Intervals of all groups over the time up to an answer's."""

    at: int
    low: Floats
    high: Floats
    whole: bool
    """Whether all of that time is known."""
    there: Floats
    """For which share of that time there was a value."""


class Sliding:
    """One item over a sliding time.

    Guarantee: if every interval that was taken holds the truth from its time to the next one's, what is told
    at a step holds the same of the truth: its mean over the time in which there was a value, its least, or
    its largest. The mean is as wide as intervals were on average, but for what sums of floats may be off.

    >>> half = Sliding(Move("avg", "a0", size=4_000_000))
    >>> half.take(0, np.array([0]), np.array([1.0]), np.array([3.0]))
    >>> told = list(half.ends(2_999_999))
    >>> half.take(3_000_000, np.array([0]), np.array([5.0]), np.array([5.0]))
    >>> [(over.at, over.low.round(9), over.high.round(9), over.whole) for over in half.ends(4_000_000)][-1]
    (4000000, array([2.]), array([3.5]), True)
    """

    def __init__(self, move: Move) -> None:
        assert move.size is not None
        self.size, self._extreme = move.size, move.extreme
        self.step = step_of(move.size)
        count = move.size // self.step
        self.begun = self._open = -1
        """Since when intervals are known, and up to which step's end answers have been told."""
        self.low: Floats = np.empty(0)
        self.high: Floats = np.empty(0)
        self.since: Ints = np.empty(0, np.int64)
        # by step and group, the open step at its end modulo their number
        self.lows: Floats = np.empty((count, 0))
        self.highs: Floats = np.empty((count, 0))
        self.sizes: Floats = np.empty((count, 0))
        """How large the numbers are that have been added."""
        self.there: Ints = np.empty((count, 0), np.int64)
        """For how many microseconds there was a value."""
        self.parts: Ints = np.empty((count, 0), np.int64)
        """How many numbers have been added."""

    def _grow(self, groups: int) -> None:
        more = groups - len(self.low)
        if more <= 0:
            return
        blank = np.full(more, np.nan)
        self.low, self.high = np.concatenate([self.low, blank]), np.concatenate([self.high, blank])
        self.since = np.concatenate([self.since, np.zeros(more, np.int64)])
        none = 0.0 if self._extreme == "avg" else np.nan
        for name, fill in (("lows", none), ("highs", none), ("sizes", 0.0), ("there", 0), ("parts", 0)):
            held = getattr(self, name)
            wider = np.full((len(held), more), fill, held.dtype)
            setattr(self, name, np.concatenate([held, wider], axis=1))

    def take(self, at: int, rows: Ints, low: Floats, high: Floats) -> None:
        """Intervals of some groups from a time on; NaN: there is no value.

        What ends before that time has been told.
        """
        if self.begun < 0:
            self.begun, self._open = at, at // self.step
        self._grow(int(rows.max(initial=-1)) + 1)
        self._stood(at, rows)
        self.low[rows], self.high[rows] = low, high
        if self._extreme != "avg":
            self._reach(rows)

    def _place(self) -> int:
        return self._open % len(self.lows)

    def _stood(self, at: int, rows: Ints | slice) -> None:
        """What stood until a time counts for as long."""
        place = self._place()
        passed = at - self.since[rows]
        self.since[rows] = at
        counts = ~np.isnan(self.low[rows]) & (passed > 0)
        self.there[place, rows] += np.where(counts, passed, 0)
        share = passed / self.size
        if self._extreme != "avg":
            return
        low, high = np.where(counts, self.low[rows], 0.0), np.where(counts, self.high[rows], 0.0)
        share = np.where(counts, share, 1.0)
        self.lows[place, rows] += low * share
        self.highs[place, rows] += high * share
        self.sizes[place, rows] += np.maximum(np.abs(low), np.abs(high)) * share
        self.parts[place, rows] += counts

    def _reach(self, rows: Ints | slice) -> None:
        place, best = self._place(), np.fmax if self._extreme == "max" else np.fmin
        self.lows[place, rows] = best(self.lows[place, rows], self.low[rows])
        self.highs[place, rows] = best(self.highs[place, rows], self.high[rows])

    def ends(self, until: int) -> Iterator[Over]:
        """What is told at the ends of steps up to a time."""
        while self.begun >= 0 and (self._open + 1) * self.step <= until:
            at = (self._open + 1) * self.step
            self._stood(at, slice(None))
            low, high = self._over()
            yield Over(at, low, high, self.begun <= at - self.size, self._there())
            self._open += 1
            place = self._place()
            none = 0.0 if self._extreme == "avg" else np.nan
            self.lows[place], self.highs[place] = none, none
            self.sizes[place], self.there[place], self.parts[place] = 0.0, 0, 0
            if self._extreme != "avg":
                self._reach(slice(None))

    def _there(self) -> Floats:
        """For which share of the window there was a value: exactly 1 where there always was."""
        found: Floats = self.there.sum(axis=0) / self.size
        return found

    def _over(self) -> tuple[Floats, Floats]:
        if self._extreme != "avg":
            best = np.fmax if self._extreme == "max" else np.fmin
            return best.reduce(self.lows, axis=0), best.reduce(self.highs, axis=0)
        there = self._there()
        # in a step its numbers are added one by one, then those of the steps, and a product and a quotient
        rounding = EPSILON * (self.parts.max(axis=0, initial=0) + len(self.lows) + 8)
        with np.errstate(divide="ignore", invalid="ignore"):
            off = rounding * self.sizes.sum(axis=0)
            off = np.where(np.isfinite(off), off, 0.0)
            low = np.where(there > 0, (self.lows.sum(axis=0) - off) / there, np.nan)
            high = np.where(there > 0, (self.highs.sum(axis=0) + off) / there, np.nan)
        return low, high

    def total(self, groups: int) -> tuple[Floats, Floats]:
        """What a mean comes to over the window up to the last end of a step; nothing counts as 0."""
        self._grow(groups)
        rounding = EPSILON * (self.parts.max(axis=0, initial=0) + len(self.lows) + 8)
        off = rounding * self.sizes.sum(axis=0)
        off = np.where(np.isfinite(off), off, 0.0)
        return (self.lows.sum(axis=0) - off)[:groups], (self.highs.sum(axis=0) + off)[:groups]

    def forget(self, groups: Ints) -> None:
        """Let groups be as if they had never been."""
        self.low[groups] = self.high[groups] = np.nan
        for held in (self.lows, self.highs, self.sizes, self.there, self.parts):
            held[:, groups] = 0

    def to_parts(self) -> tuple[dict[str, npt.NDArray[np.generic]], list[int]]:
        """All of it, to be kept."""
        return {name: getattr(self, name) for name in _KEPT}, [self.begun, self._open]

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]], noted: list[Any]) -> None:
        """Go on from what was kept."""
        for name in _KEPT:
            setattr(self, name, np.array(arrays[name]))
        self.begun, self._open = (int(n) for n in noted)


def unbounded(low: Floats, high: Floats, away: Bools) -> tuple[Floats, Floats]:
    """Bounds of which those are open that widen as time goes by: between two changes they are not still."""
    return np.where(away, -np.inf, low), np.where(away, np.inf, high)
