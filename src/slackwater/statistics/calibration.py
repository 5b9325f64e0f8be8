"""What evaluations reveal about the model: a factor on the variance of each query, learnt as they come in.

Each evaluation shows how far an answer has drifted since the one before. The model claimed a chance that it
would be beyond the bound by then. Where that happens more often than claimed (heavy tails, moves that go on
in the same direction, a wrong variance), the variance is raised; where it happens less often, lowered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]

RATE = 0.02
"""Of a query: the share of what an evaluation says that is believed, in the long run."""
POOLED_RATE = 0.05
"""Of all queries together: the same for a tick in which many were evaluated."""
YOUNG = 20.0
"""A query's first evaluations count one in so many; later ones less, down to the lasting rate."""
SLOPE_LEAST = 0.08
"""Claims of next to nothing would turn one surprise into a leap."""
LARGEST = 3.0
"""The factor is between exp(-3) and exp(3), a twentieth and twenty."""


def claimed_beyond(bound: Floats, drift: Floats, variance: Floats, after: Floats) -> tuple[Floats, Floats]:
    """The chance that an answer is beyond its bound after some seconds, and its change with log variance.

    >>> claimed_beyond(np.array([1.0]), np.array([0.0]), np.array([0.25]), np.array([4.0]))
    (array([0.317...]), array([0.241...]))
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        spread = np.sqrt(variance * after)
        above, below = (bound - drift * after) / spread, (bound + drift * after) / spread
        chance = ndtr(-above) + ndtr(-below)
        slope = (above * np.exp(-0.5 * above**2) + below * np.exp(-0.5 * below**2)) / np.sqrt(8 * np.pi)
    known = np.isfinite(above) & np.isfinite(below)
    certain = (np.abs(drift) * after > bound).astype(np.float64)
    return np.where(known, chance, certain), np.where(known, slope, 0.0)


def corrections(
    bound: Floats, drift: Floats, variance: Floats, after: Floats, moved: Floats
) -> Floats:
    """What each evaluation says about the logarithm of the variance: positive where it was too small.

    ``moved`` is the revealed increment, the others what its interval was planned with (the variance with its
    factor). Its expectation is 0 where claims are right, and near to the error in the logarithm elsewhere.
    """
    chance, slope = claimed_beyond(bound, drift, variance, after)
    beyond = (np.abs(moved) > bound).astype(np.float64)
    return np.where(after > 0, (beyond - chance) / np.maximum(slope, SLOPE_LEAST), 0.0)


@dataclass
class Calibration:
    """Logarithms of the factors: one for all queries, and how each differs from it.

    Guarantee: in the long run a query is beyond its bound at its evaluations as often as was claimed, however
    its increments are distributed, as long as a factor within the limits can do that. A change is followed
    within about 1/rate evaluations. Variant: stochastic approximation with steps over the slope of the claim,
    so that it is as fast for a belief of 99 % as for one of 80 %. Reference: Robbins and Monro, Annals of
    Mathematical Statistics 22 (1951); with a constant rate: Gibbs and Candès, NeurIPS 2021.
    """

    own: Floats
    """By query: how much the logarithm of its factor is above that of all."""
    seen: Floats
    """By query: evaluations learnt from."""
    pooled: float = 0.0
    rate: float = RATE
    pooled_rate: float = POOLED_RATE

    @classmethod
    def fresh(cls, queries: int, rate: float = RATE, pooled_rate: float = POOLED_RATE) -> Calibration:
        return cls(np.zeros(queries), np.zeros(queries), 0.0, rate, pooled_rate)

    def factor(self, which: NDArray[np.intp] | slice = slice(None)) -> Floats:
        """What the variance of queries is to be multiplied by.

        >>> Calibration.fresh(2).factor()
        array([1., 1.])
        """
        return np.asarray(np.exp(np.clip(self.pooled + self.own[which], -LARGEST, LARGEST)))

    def learn(self, which: NDArray[np.intp], said: Floats) -> None:
        """Take in what evaluations of these queries say (`corrections`), each query once at most.

        >>> learnt = Calibration.fresh(2)
        >>> for _ in range(100):
        ...     learnt.learn(np.array([0]), np.array([0.5]))
        >>> learnt.factor().round(1)
        array([7.3, 2.7])
        """
        if not len(which):
            return
        seen = self.seen[which]
        # a query's own rate falls from that of the young to the lasting one
        rate = np.maximum(self.rate, 1 / (YOUNG + seen))
        limit = 2 * LARGEST
        self.own[which] = np.clip(self.own[which] + rate * said, -limit, limit)
        self.seen[which] = seen + 1
        # few evaluations say less about all than many do
        weight = self.pooled_rate * len(which) / (len(which) + 10.0)
        moved = weight * float(np.mean(said))
        self.pooled = float(np.clip(self.pooled + moved, -LARGEST, LARGEST))

    def to_arrays(self) -> dict[str, Floats]:
        """All that is to be saved."""
        scalars = np.array([self.pooled, self.rate, self.pooled_rate])
        return {"own": self.own, "seen": self.seen, "scalars": scalars}

    @classmethod
    def from_arrays(cls, saved: Mapping[str, Floats]) -> Calibration:
        pooled, rate, pooled_rate = (float(number) for number in saved["scalars"])
        return cls(np.array(saved["own"]), np.array(saved["seen"]), pooled, rate, pooled_rate)

    def extended(self, queries: int) -> Calibration:
        """The same with room for so many queries; new ones begin with the factor of all."""
        more = np.zeros(max(0, queries - len(self.own)))
        own, seen = (np.concatenate([a, more]) for a in (self.own, self.seen))
        return Calibration(own, seen, self.pooled, self.rate, self.pooled_rate)
