"""What can be said of series that are silent: learnt by pretending that series which go on are.

The paper lets a silent series go on with its drift, and claims an error from its variance. How much a drift
is worth, and how far series really wander in a minute or an hour, differs: prices have no drift that lasts,
and temperatures do. So at each tick it is looked at what would have been said of every series some ticks ago.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Floats = NDArray[np.float64]

LAGS = (1, 2, 4, 8, 16, 32, 64)
"""Ticks of the interruptions that are pretended; one of them at each tick, in turn."""
MEMORY = 1000.0
"""Looks at a lag after which what was seen counts a third."""
GAIN = 0.05
"""How much the logarithm of a spread rises where a value was beyond what was claimed."""
LARGEST = 3.0
STEEPEST = 30.0
"""Standard deviations that a drift may add up to; what seems steeper is a buffer of equal values."""


@dataclass
class Interruptions:
    """How much of a drift holds, by lag; and how far series wander beside what their variance says, by both.

    Guarantee: in the long run, the spread claimed for a series at a lag held its value with the belief,
    whatever its increments are like. Reference: section 4.5 of Zhu and Ravishankar, who take drift and
    variance as they are; quantiles as in `Calibration`.
    """

    belief: float
    log_spread: Floats
    """(lags, series): the logarithm of the spread over that of a Brownian motion."""
    products: Floats
    """(lags, 2): averages of what the drift said times what happened, and times itself."""
    looks: Floats
    """(lags,)"""
    past: Floats
    """(ticks, 3, series): values, drifts and variances of the latest ticks, in a ring."""
    ticks: int = 0

    @classmethod
    def fresh(cls, series: int, belief: float = 0.9) -> Interruptions:
        past = np.full((LAGS[-1], 3, series), np.nan)
        return cls(belief, np.zeros((len(LAGS), series)), np.zeros((len(LAGS), 2)), np.zeros(len(LAGS)), past)

    def observe(self, values: Floats, drift: Floats, variance: Floats, tick_s: float) -> None:
        """Take in a tick: values (NaN where there is none), and what is known of each series by now."""
        turn = self.ticks % len(LAGS)
        lag = LAGS[turn]
        then, drift_then, variance_then = self.past[(self.ticks - lag) % len(self.past)]
        seconds = lag * tick_s
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = np.sqrt(variance_then * seconds)
            happened, said = (values - then) / expected, drift_then * seconds / expected
        known = np.isfinite(happened) & np.isfinite(said) & (np.abs(said) < STEEPEST)
        if self.ticks >= lag and known.any():
            self._learn(turn, happened, said, known)
        self.past[self.ticks % len(self.past)] = values, drift, variance
        self.ticks += 1

    def _learn(self, turn: int, happened: Floats, said: Floats, known: NDArray[np.bool_]) -> None:
        happened, said = np.where(known, happened, 0.0), np.where(known, said, 0.0)
        claimed = self._claimed() * np.exp(self.log_spread[turn])
        beyond = np.abs(happened - self.trust()[turn] * said) > claimed
        moved = GAIN * (beyond - (1 - self.belief))
        self.log_spread[turn] = np.clip(self.log_spread[turn] + np.where(known, moved, 0), -LARGEST, LARGEST)
        self.looks[turn] = min(self.looks[turn] + 1, MEMORY)
        # one wild move must not decide what drifts are worth
        real, told = happened[known].clip(-4, 4), said[known].clip(-4, 4)
        seen = np.array([np.mean(real * told), np.mean(told * told)])
        self.products[turn] += (seen - self.products[turn]) / self.looks[turn]

    def _claimed(self) -> float:
        return float(-ndtri((1 - self.belief) / 2))

    def trust(self) -> Floats:
        """The share of a drift that holds, by lag, from 0 to 1; young ones count less."""
        with np.errstate(divide="ignore", invalid="ignore"):
            share = self.products[:, 0] / self.products[:, 1]
        share = np.where(np.isfinite(share), share, 0.0)
        return np.asarray(np.clip(share, 0.0, 1.0) * self.looks / (self.looks + 30))

    def drifted(self, drift: Floats, ticks: Floats, tick_s: float) -> Floats:
        """How far silent series have gone since they were last heard of, so many ticks ago. Equation 13.

        >>> known = Interruptions.fresh(1)
        >>> for tick in range(3000):
        ...     known.observe(np.array([0.5 * tick]), np.array([0.5]), np.array([0.01]), 1.0)
        >>> known.drifted(np.array([0.5]), np.array([10.0]), 1.0).round(1)
        array([4.7])
        """
        return (
            drift * np.interp(np.log2(np.maximum(ticks, 1.0)), np.log2(LAGS), self.trust()) * ticks * tick_s
        )

    def sigma(self, variance: Floats, ticks: Floats) -> Floats:
        """Standard deviations a root second that claim what has been seen of interruptions of so many ticks.

        They take the place of the series' own where the variance of a sum is worked out.
        """
        place = np.interp(np.log2(np.maximum(ticks, 1.0)), np.log2(LAGS), np.arange(len(LAGS)))
        low = np.minimum(place.astype(np.intp), len(LAGS) - 2)
        part, columns = place - low, np.arange(len(place))
        spread = (1 - part) * self.log_spread[low, columns] + part * self.log_spread[low + 1, columns]
        return np.asarray(np.sqrt(variance) * np.exp(spread))

    def to_arrays(self) -> dict[str, Floats]:
        """All that is to be saved."""
        return {
            "log_spread": self.log_spread,
            "products": self.products,
            "looks": self.looks,
            "past": self.past,
            "scalars": np.array([self.belief, float(self.ticks)]),
        }

    @classmethod
    def from_arrays(cls, saved: Mapping[str, Floats]) -> Interruptions:
        arrays = {name: np.array(saved[name]) for name in ("log_spread", "products", "looks", "past")}
        belief, ticks = (float(number) for number in saved["scalars"])
        return cls(belief, **arrays, ticks=int(ticks))
