"""What can be said of series that are silent: learnt by pretending that series which go on are.

The paper lets a silent series go on with its drift, and claims an error from its variance. How much a drift
is worth, what those that are heard say about it, and how far series really wander in a minute or an hour,
differs: prices have no drift that lasts but move together, temperatures have one. So at each tick it is
looked at what would have been said of every series some ticks ago.
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
TINY = 1e-12
CAREFUL = 0.95
"""Of the claims that may be wrong, so many are: what is learnt lags behind what happens."""
LARGEST = 3.0
STEEPEST = 30.0
"""Standard deviations that a drift adds up to at the most: what rises so steadily has hardly another spread
than how far the drift may be wrong."""


@dataclass
class Interruptions:
    """How much of a drift and of what others tell holds, by lag; and how far series wander, by both.

    Guarantee: in the long run, the spread claimed for a series at a lag held its value with the belief,
    whatever its increments are like. Reference: section 4.5 of Zhu and Ravishankar, who take drift and
    variance as they are; quantiles as in `Calibration`.
    """

    belief: float
    log_spread: Floats
    """(lags, series): the logarithm of the spread over that of a Brownian motion."""
    products: Floats
    """(lags, 3, 3): averages of the products of what the drift said, the others told, and what happened."""
    pairs: Floats
    """(lags, 2): averages of the products of what was wrong of two series, and of one with itself."""
    looks: Floats
    """(lags,)"""
    past: Floats
    """(ticks, 4, series): values, drifts, variances and paths of the latest ticks, in a ring."""
    ticks: int = 0

    @classmethod
    def fresh(cls, series: int, belief: float = 0.9) -> Interruptions:
        past, lags = np.full((LAGS[-1], 4, series), np.nan), len(LAGS)
        first = np.zeros((lags, series)), np.zeros((lags, 3, 3)), np.zeros((lags, 2)), np.zeros(lags)
        return cls(belief, *first, past)

    def observe(self, values: Floats, drift: Floats, variance: Floats, path: Floats, tick_s: float) -> None:
        """Take in a tick: values (NaN where there is none), and what is known of each series by now.

        ``path`` is how far the others say that each has gone since the beginning.
        """
        turn = self.ticks % len(LAGS)
        lag = LAGS[turn]
        then, drift_then, variance_then, path_then = self.past[(self.ticks - lag) % len(self.past)]
        seconds = lag * tick_s
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = _scale(variance_then, drift_then, seconds)
            happened, said = (values - then) / expected, drift_then * seconds / expected
            told = (path - path_then) / expected
        known = np.isfinite(happened) & np.isfinite(said) & np.isfinite(told)
        if self.ticks >= lag and known.any():
            self._learn(turn, happened[known], said[known], told[known], np.flatnonzero(known))
        self.past[self.ticks % len(self.past)] = values, drift, variance, path
        self.ticks += 1

    def _learn(self, turn: int, happened: Floats, said: Floats, told: Floats, at: NDArray[np.intp]) -> None:
        of_drift, of_others = self.trust()
        wrong = happened - of_drift[turn] * said - of_others[turn] * told
        wrong = (wrong / np.exp(self.log_spread[turn, at])).clip(-4, 4)
        beyond = np.abs(wrong) > self._claimed()
        moved = self.log_spread[turn, at] + GAIN * (beyond - CAREFUL * (1 - self.belief))
        self.log_spread[turn, at] = np.clip(moved, -LARGEST, LARGEST)
        self.looks[turn] = min(self.looks[turn] + 1, MEMORY)
        # one wild move must not decide what drifts and others are worth
        seen = np.stack([said, told, happened]).clip(-4, 4)
        squares, count = float(np.square(wrong).sum()), len(wrong)
        pairs = (float(wrong.sum()) ** 2 - squares) / max(count * (count - 1), 1)
        self.pairs[turn] += (np.array([pairs, squares / count]) - self.pairs[turn]) / self.looks[turn]
        self.products[turn] += (seen @ seen.T / len(happened) - self.products[turn]) / self.looks[turn]

    def _claimed(self) -> float:
        return float(-ndtri((1 - self.belief) / 2))

    def trust(self) -> tuple[Floats, Floats]:
        """The shares of drifts, and of what others tell, that hold: by lag, 0 to 1; young ones count less."""
        among, with_them = self.products[:, :2, :2] + TINY * np.eye(2), self.products[:, :2, 2]
        share = np.clip(np.linalg.solve(among, with_them[:, :, None])[:, :, 0], 0.0, 1.0)
        young = self.looks / (self.looks + 30)
        return share[:, 0] * young, share[:, 1] * young

    def shares(self, ticks: Floats) -> tuple[Floats, Floats]:
        """The same for series that have been silent for so many ticks each."""
        at = np.log2(np.maximum(ticks, 1.0))
        of_drift, of_others = (np.interp(at, np.log2(LAGS), share) for share in self.trust())
        return of_drift, of_others

    def together(self, ticks: Floats) -> Floats:
        """The correlation of what is wrong of series that have been silent for so many ticks, from 0 to 1."""
        share = np.clip(self.pairs[:, 0] / np.maximum(self.pairs[:, 1], TINY), 0.0, 1.0)
        return np.interp(np.log2(np.maximum(ticks, 1.0)), np.log2(LAGS), share)

    def gone(self, drift: Floats, told: Floats, ticks: Floats, tick_s: float) -> Floats:
        """How far silent series have gone since they were last heard of, so many ticks ago. Equation 13.

        ``told`` is how far the others say that each has gone.

        >>> known, nothing = Interruptions.fresh(1), np.zeros(1)
        >>> for tick in range(3000):
        ...     known.observe(np.array([0.5 * tick]), np.array([0.5]), np.array([0.01]), nothing, 1.0)
        >>> known.gone(np.array([0.5]), nothing, np.array([10.0]), 1.0).round(1)
        array([4.7])
        """
        of_drift, of_others = self.shares(ticks)
        return np.asarray(drift * of_drift * ticks * tick_s + of_others * told)

    def path_ago(self, series: NDArray[np.integer], ticks: Floats, now: Floats) -> Floats:
        """What the paths of some series were so many ticks ago, where that is known; ``now`` otherwise."""
        back = np.clip(np.round(ticks), 0, len(self.past) - 1).astype(np.intp)
        then = self.past[(self.ticks - 1 - back) % len(self.past), 3, series]
        return np.where(np.isnan(then), now, then)

    def spread(self, variance: Floats, drift: Floats, ticks: Floats, tick_s: float) -> Floats:
        """Standard deviations that claim what has been seen of interruptions of so many ticks.

        They take the place of the series' own where the variance of a sum is worked out.
        """
        place = np.interp(np.log2(np.maximum(ticks, 1.0)), np.log2(LAGS), np.arange(len(LAGS)))
        low = np.minimum(place.astype(np.intp), len(LAGS) - 2)
        part, columns = place - low, np.arange(len(place))
        spread = (1 - part) * self.log_spread[low, columns] + part * self.log_spread[low + 1, columns]
        return np.asarray(_scale(variance, drift, ticks * tick_s) * np.exp(spread))

    def to_arrays(self) -> dict[str, Floats]:
        """All that is to be saved."""
        return {
            "log_spread": self.log_spread,
            "products": self.products,
            "pairs": self.pairs,
            "looks": self.looks,
            "past": self.past,
            "scalars": np.array([self.belief, float(self.ticks)]),
        }

    @classmethod
    def from_arrays(cls, saved: Mapping[str, Floats]) -> Interruptions:
        arrays = {
            name: np.array(saved[name]) for name in ("log_spread", "products", "pairs", "looks", "past")
        }
        belief, ticks = (float(number) for number in saved["scalars"])
        return cls(belief, **arrays, ticks=int(ticks))


def _scale(variance: Floats, drift: Floats, seconds: Floats | float) -> Floats:
    """How far a series wanders by what is known of it, as a unit for what is learnt."""
    return np.asarray(np.sqrt(variance * seconds + np.square(drift * seconds / STEEPEST)))
