"""Where the misses that a belief allows are spent, and intervals that follow what is learnt meanwhile.

A belief of 90 % lets a tenth of the time go wrong. Equation 7 spends that tenth evenly, over calm and wild
times alike. If what counts is the share of all time, that is not the cheapest way: an evaluation buys little
in wild times, when the next miss is near whatever one does, and much in calm ones. With an in-bound share
G(s) over an interval of s = variance·Δ/bound², evaluations cost variance/(s·bound²) a second; the least cost
for a given average of G makes s rise with the variance: intervals go with a lower power of it than -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Which = NDArray[np.intp]

EVENNESS = 0.6
"""The power of the interval at the belief that is taken: 1 spends misses evenly, 0 fixes the interval."""
AT_MOST = 2.0
"""No interval may have more misses than this times what the belief allows on average."""
HORIZON_S = 86_400.0
"""Seconds over which what is usual is averaged: a day, since much has a daily course."""
SHORTEST_S = 1e-3


def belief_at_least(belief: ArrayLike) -> Floats:
    """What the belief may come down to in a single interval.

    >>> belief_at_least([0.95, 0.9, 0.4]).round(2)
    array([0.9, 0.8, 0.2])
    """
    belief = np.asarray(belief, np.float64)
    return np.asarray(np.maximum(1 - AT_MOST * (1 - belief), belief / 2))


@dataclass
class Budget:
    """By query: the logarithm of its usual interval, in seconds, at its belief; NaN before its first.

    Guarantee: in no interval is the chance of a miss above what `belief_at_least` leaves. Variant: a power of
    the interval instead of the exact optimum, which is hardly better. That misses come to what the belief
    allows on average is not seen to here, but by `Calibration`.
    """

    level: Floats
    evenness: float = EVENNESS
    horizon_s: float = HORIZON_S

    @classmethod
    def fresh(cls, queries: int, evenness: float = EVENNESS, horizon_s: float = HORIZON_S) -> Budget:
        return cls(np.full(queries, np.nan), evenness, horizon_s)

    def stretched(self, which: Which, even: Floats, longest: Floats) -> Floats:
        """The interval for each of these queries.

        ``even`` are the intervals of `next_evaluation` at the beliefs, ``longest`` those at
        `belief_at_least`, both of the same mode.

        >>> budget, first = Budget.fresh(1), np.array([0])
        >>> budget.note(first, np.array([100.0]), 1.0)
        >>> budget.stretched(first, np.array([40.0]), np.array([80.0])).round(1)
        array([57.7])
        """
        wanted = np.log(np.clip(even, SHORTEST_S, self.horizon_s))
        level = np.where(np.isnan(self.level[which]), wanted, self.level[which])
        chosen = np.exp(self.evenness * wanted + (1 - self.evenness) * level)
        return np.where(np.isfinite(even) & (even > 0), np.minimum(chosen, longest), even)

    def note(self, which: Which, even: Floats, seconds: ArrayLike) -> None:
        """Take in what the intervals of queries would be at their belief, as they are for some seconds."""
        wanted = np.log(np.clip(even, SHORTEST_S, self.horizon_s))
        level = np.where(np.isnan(self.level[which]), wanted, self.level[which])
        share = 1 - np.exp(-np.minimum(seconds, self.horizon_s) / self.horizon_s)
        self.level[which] = np.where(even > 0, level + share * (wanted - level), self.level[which])

    def to_arrays(self) -> dict[str, Floats]:
        """All that is to be saved."""
        return {"level": self.level, "scalars": np.array([self.evenness, self.horizon_s])}

    @classmethod
    def from_arrays(cls, saved: Mapping[str, Floats]) -> Budget:
        evenness, horizon_s = (float(number) for number in saved["scalars"])
        return cls(np.array(saved["level"]), evenness, horizon_s)


@dataclass
class Clock:
    """How much of its interval each query has used up, where intervals are planned again before they end.

    Each second uses up 1/interval of what a query has, with the interval as it is known at that time: without
    a drift that adds up the variance until it has come to what the belief allows. Wild times that begin
    during a long interval end it early, without a look at the answer.
    """

    used: Floats
    interval: Floats
    """Seconds."""
    since: Floats
    """The time up to which ``used`` goes."""

    @classmethod
    def fresh(cls, queries: int) -> Clock:
        """All queries are due at once."""
        return cls(np.zeros(queries), np.zeros(queries), np.full(queries, -np.inf))

    def begin(self, which: Which, interval: Floats, now: float) -> None:
        """These queries were evaluated now."""
        self.used[which], self.interval[which], self.since[which] = 0.0, interval, now

    def again(self, which: Which, interval: Floats, now: float) -> None:
        """The intervals of these queries would now be others.

        >>> clock = Clock.fresh(1)
        >>> clock.begin(np.array([0]), np.array([100.0]), 0.0)
        >>> clock.again(np.array([0]), np.array([20.0]), 50.0)
        >>> clock.due()
        array([60.])
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            used = self.used[which] + (now - self.since[which]) / self.interval[which]
        # nothing was used up of an interval without an end
        self.used[which] = np.where(np.isnan(used), 1.0, np.minimum(used, 1.0))
        self.interval[which], self.since[which] = interval, now

    def due(self, which: Which | slice = slice(None)) -> Floats:
        """When queries must be evaluated, as far as is known."""
        left = 1 - self.used[which]
        with np.errstate(invalid="ignore"):
            seconds = np.where(left > 0, left * self.interval[which], 0.0)
        return np.asarray(self.since[which] + seconds)
