"""Where the misses that a belief allows are spent: more of them while answers move fast.

A belief of 90 % lets a tenth of the time go wrong. Equation 7 spends that tenth evenly, over calm and wild
times alike. If what counts is the share of all time, that is not the cheapest way: an evaluation buys little
in wild times, when the next miss is near whatever one does, and much in calm ones. With in-bound share G(s)
after an interval of s = variance·Δ/bound², evaluations cost variance/(s·bound²) a second; the least cost for a
given average of G makes s rise with the variance, so that intervals go with a lower power of it than -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Which = NDArray[np.intp]

EVENNESS = 0.4
"""The power of the variance that intervals go with: 1 spends misses evenly, 0 evaluates at fixed intervals."""
AT_MOST = 2.0
"""No interval may have more misses than this times what the belief allows on average."""
HORIZON_S = 86_400.0
"""Seconds over which the average is kept: a day, since much has a daily course."""


def belief_at_least(belief: Floats, at_most: float = AT_MOST) -> Floats:
    """What the belief may come down to in a single interval.

    >>> belief_at_least(np.array([0.95, 0.9, 0.4])).round(2)
    array([0.9, 0.8, 0.2])
    """
    return np.maximum(1 - at_most * (1 - belief), belief / 2)


@dataclass
class Budget:
    """By query: the interval (the logarithm of its seconds) at which it would be given just its belief.

    Guarantee: in no interval is the chance of a miss above `belief_at_least`, and over the horizon the misses
    expected of the intervals that were chosen come to what the belief allows. Variant: a power of the
    interval instead of the exact optimum, which differs from it by less than what the data scatter.
    """

    level: Floats
    evenness: float = EVENNESS
    horizon_s: float = HORIZON_S

    @classmethod
    def fresh(cls, queries: int, evenness: float = EVENNESS, horizon_s: float = HORIZON_S) -> Budget:
        return cls(np.full(queries, np.nan), evenness, horizon_s)

    def choose(self, which: Which, even: Floats, longest: Floats, tick: float) -> Floats:
        """The interval for each of these queries, in whole ticks (in seconds, one tick at least).

        ``even`` are the intervals of `next_evaluation` at the beliefs, ``longest`` those at
        `belief_at_least`, both of the same mode.

        >>> budget = Budget.fresh(1)
        >>> both = [budget.choose(np.array([0]), np.array([s]), np.array([2 * s]), 1.0) for s in (100.0, 10.0)]
        >>> np.concatenate(both)
        array([100.,  20.])
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            wanted = np.log(np.clip(even, tick / 8, self.horizon_s))
            reach = np.log(np.clip(longest, tick / 8, self.horizon_s))
            level = np.where(np.isnan(self.level[which]), wanted, self.level[which])
            chosen = np.minimum(self.evenness * wanted + (1 - self.evenness) * level, reach)
            seconds = tick * np.maximum(1.0, np.ceil(np.exp(chosen) / tick - 1e-9))
            # a miss at a tick counts until the next; at the last tick of an interval there is none
            spent = np.log(seconds - tick / 2)
            # misses grow with a power of the interval, known from where they are once and AT_MOST times
            power = np.log(AT_MOST) / np.maximum(reach - wanted, 0.05)
            misses = np.exp(np.clip(power * (spent - wanted), -20.0, np.log(2 * AT_MOST)))
        misses = np.where(seconds <= tick, 0.0, misses * (1 - tick / (2 * seconds)))
        share = np.minimum(seconds / self.horizon_s, 0.2)
        self.level[which] = np.clip(level + share * (1 - misses), np.log(tick / 8), np.log(self.horizon_s))
        return seconds

    def to_arrays(self) -> dict[str, Floats]:
        """All that is to be saved."""
        return {"level": self.level, "scalars": np.array([self.evenness, self.horizon_s])}

    @classmethod
    def from_arrays(cls, saved: Mapping[str, Floats]) -> Budget:
        evenness, horizon_s = (float(number) for number in saved["scalars"])
        return cls(np.array(saved["level"]), evenness, horizon_s)
