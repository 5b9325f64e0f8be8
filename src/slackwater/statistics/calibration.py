"""What evaluations reveal about the model: a factor for each query, learnt from its own misses.

Each evaluation shows how far an answer has drifted since the one before, and so about how long it has been
out of bounds by then. Where that is more than the belief allows (heavy tails, moves that go on in the same
direction, a wrong variance), answers are taken to move faster; where it is less, slower.

The factor is on the variance, and its root on the drift: it is the same as a bound over the root of the
factor. A factor on the variance alone would do nothing for an answer that mostly drifts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]

GAIN = 0.1
"""How much the logarithm of a factor rises for an interval which was out of bounds all the time."""
YOUNG = 30.0
"""Evaluations after which a query goes by its own misses as much as by those of all queries."""
EAGER = 5.0
"""The gain of a query's first evaluation over that in the long run."""
LARGEST = 4.0
"""Factors are between exp(-4) and exp(4)."""
HEAVIEST = 4.0
"""An interval counts by its length, up to so many times what is usual for the query."""
NODES = (np.arange(8) + 0.5) / 8


def time_out(bound: Floats, variance: Floats, after: Floats, moved: Floats, tick: float = 0.0) -> Floats:
    """The share of an interval for which an answer was out of bounds, as far as its end tells.

    ``after`` are the seconds of the interval, ``moved`` is the increment at its end, the variance that with
    the factor which the interval was planned with. With a ``tick`` an answer is looked at once in so many
    seconds, and at the end of the interval it is right again.

    Guarantee: the expectation, if the answer moves as a Brownian motion with this variance, whatever its
    drift: between two known ends it is a bridge, which has none. Where the variance is 0 the way is straight.

    >>> one, five = np.ones(2), np.full(2, 5.0)
    >>> time_out(one, np.array([0.0, 1.0]), five, np.array([4.0, 0.0])).round(2)
    array([0.75, 0.25])
    """
    ticks = np.maximum(after / tick, 1.0) if tick > 0 else np.full(np.shape(after), np.inf)
    end = np.abs(moved)
    total = np.zeros(np.shape(after))
    with np.errstate(divide="ignore", invalid="ignore"):
        for node in NODES:
            # at ticks, where there are any
            share = (np.floor(node * (ticks - 1)) + 1) / ticks if tick > 0 else node
            spread = np.sqrt(variance * after * (share * (1 - share)))
            middle = share * end
            out = ndtr((middle - bound) / spread) + ndtr((-middle - bound) / spread)
            total += np.where(spread > 0, out, middle > bound)
    # at the last tick it is right again
    return np.asarray(np.where(after > 0, total / len(NODES) * (1 - 1 / ticks), 0.0))


@dataclass
class Calibration:
    """The logarithms of the factors, by query.

    Guarantee: in the long run the misses that evaluations of a query reveal come to what its belief allows,
    whatever the increments are like, as long as a factor within the limits can do that: their sums differ by
    no more than 2·LARGEST/GAIN usual intervals. Variant: stochastic approximation with a constant gain, which
    follows changes within some 1/GAIN evaluations; young queries go by the misses of all. Reference: Robbins
    and Monro, Annals of Mathematical Statistics 22 (1951); Gibbs and Candès, NeurIPS 2021.
    """

    log_factor: Floats
    seen: Floats
    """Evaluations learnt from."""
    usual: Floats
    """Seconds between evaluations."""
    pooled: float = 0.0
    """The logarithm for queries that are new."""
    gain: float = GAIN

    @classmethod
    def fresh(cls, queries: int, gain: float = GAIN) -> Calibration:
        return cls(np.zeros(queries), np.zeros(queries), np.zeros(queries), gain=gain)

    def factor(self, which: NDArray[np.intp] | slice = slice(None)) -> Floats:
        """What variances of queries are to be multiplied by, and drifts by its root.

        >>> Calibration.fresh(2).factor()
        array([1., 1.])
        """
        return np.asarray(np.exp(self.log_factor[which]))

    def learn(self, which: NDArray[np.intp], missed: Floats, allowed: Floats | float, after: Floats) -> None:
        """Take in the misses of queries that were evaluated, each query once at most.

        ``missed`` are the shares of the intervals that were out of bounds (`time_out`), or 1 and 0 where only
        their ends count; ``allowed`` is 1 - belief, ``after`` the lengths of the intervals.

        >>> learnt = Calibration.fresh(2)
        >>> for _ in range(100):
        ...     learnt.learn(np.array([0]), np.array([0.2]), 0.1, np.array([60.0]))
        >>> learnt.factor().round(1)
        array([16.,  1.])
        """
        if not len(which):
            return
        seen, usual = self.seen[which], self.usual[which]
        usual += (after - usual) / np.minimum(seen + 1, YOUNG)
        weight = np.minimum(after / np.maximum(usual, 1e-9), HEAVIEST)
        excess = weight * (missed - allowed)
        own = seen / (seen + YOUNG)
        gain = self.gain * (own + EAGER * (1 - own))
        step = gain * (own * excess + (1 - own) * excess.mean())
        learnt = np.clip(self.log_factor[which] + step, -LARGEST, LARGEST)
        self.log_factor[which], self.usual[which], self.seen[which] = learnt, usual, seen + 1
        part = len(which) / (len(which) + len(self.seen))
        self.pooled += part * (float(learnt.mean()) - self.pooled)

    def to_arrays(self) -> dict[str, Floats]:
        """All that is to be saved."""
        scalars = np.array([self.pooled, self.gain])
        return {"log_factor": self.log_factor, "seen": self.seen, "usual": self.usual, "scalars": scalars}

    @classmethod
    def from_arrays(cls, saved: Mapping[str, Floats]) -> Calibration:
        pooled, gain = (float(number) for number in saved["scalars"])
        log_factor, seen, usual = (np.array(saved[name]) for name in ("log_factor", "seen", "usual"))
        return cls(log_factor, seen, usual, pooled, gain)

    def extended(self, queries: int) -> Calibration:
        """The same for more queries; new ones begin with the factor of all."""
        more = np.zeros(max(0, queries - len(self.seen)))
        log_factor = np.concatenate([self.log_factor, more + self.pooled])
        seen, usual = (np.concatenate([a, more]) for a in (self.seen, self.usual))
        return Calibration(log_factor, seen, usual, self.pooled, self.gain)
