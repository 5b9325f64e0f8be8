"""How series move together: their correlation as a few common factors, learnt from one increment a tick.

The variance of a sum is not the sum of the variances where series move together: of nine currencies and
indices it is twice that. A full matrix would be n² numbers and too noisy to use. Here the increments are
taken to be a few common factors times loadings, plus what is each series' own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Floats = NDArray[np.float64]

RANK = 3
MEMORY = 3000.0
"""Ticks after which what was seen counts a third."""
YOUNG = 5.0
"""Ticks after which loadings count half of what they say; young ones say too much, which is safe."""
FIRST_LOADING = 0.5
OWN_LEAST = 1e-3
"""Of the variance of a series, the share that is its own whatever the factors explain."""
TINY = 1e-300
TINY_SHARE = 1e-6
LARGEST = 6.0
"""Standardised increments are cut off there: one jump of one series says little about the others."""


@dataclass
class Factors:
    """Loadings of n series on r factors, and what each series does by itself.

    Variant: the EM algorithm of factor analysis, with one tick a step and forgetting; factors are scaled to
    a variance of 1 after each step, without which loadings take very long to grow. Missing increments take
    part as what the others make of them, which is what EM does with them. Reference: Rubin and Thayer,
    Psychometrika 47 (1982); Liu, Rubin and Wu, Biometrika 85 (1998); Cappé and Moulines, JRSS B 71 (2009).
    """

    loadings: Floats
    """(n, r) averages of increments times factors."""
    squares: Floats
    """(n,) averages of squared increments."""
    heard: Floats
    """(n,) ticks learnt from each, as far as they are remembered: series may come later than others."""
    seen: float = 0.0
    """Ticks learnt from."""
    memory: float = MEMORY

    @classmethod
    def fresh(cls, series: int, rank: int = RANK, memory: float = MEMORY) -> Factors:
        """Nothing is known yet: every variance of a sum is the sum of the variances."""
        first = _first(np.arange(series), max(1, min(rank, series)))
        return cls(first, np.ones(series), np.zeros(series), memory=memory)

    @property
    def own(self) -> Floats:
        """(n,) variances of what the factors do not explain."""
        left = self.squares - np.square(self.loadings).sum(axis=1)
        return np.asarray(np.maximum(left, OWN_LEAST * self.squares))

    def observe(self, increments: Floats) -> None:
        """Learn from one increment of each series, over its standard deviation; NaN where there is none.

        Cost: O(n·r²), with r a handful.
        """
        there = np.isfinite(increments)
        if not there.any():
            return
        moves = np.where(there, increments, 0.0).clip(-LARGEST, LARGEST)
        late = there & (self.heard == 0) & (self.seen > 0)
        self.loadings[late], self.squares[late] = _first(np.flatnonzero(late), self.loadings.shape[1]), 1.0
        own = self.own
        weighed = np.where(there, 1 / own, 0.0)[:, None] * self.loadings
        spread = np.linalg.inv(np.eye(self.loadings.shape[1]) + weighed.T @ self.loadings)
        factors = spread @ (weighed.T @ moves)
        square = spread + np.outer(factors, factors)
        rates = 1 / np.minimum(self.heard + 10.0, self.memory)
        rate = float(rates[there].mean())
        # what is not seen goes along with the scale of the factors
        rates = np.where(there, rates, rate)
        learnt = moves[:, None] * factors[None, :]
        squares = np.square(moves)
        if not there.all():
            # what is not seen varies around what the factors say
            unseen = self.loadings[~there]
            learnt[~there] = unseen @ square
            squares[~there] = ((unseen @ square) * unseen).sum(axis=1) + own[~there]
        self.squares = self.squares + rates * (squares - self.squares)
        among = (1 - rate) * np.eye(len(square)) + rate * square
        # the factors that have a variance of 1 over all that is remembered
        root = np.linalg.cholesky(among)
        self.loadings = np.linalg.solve(root, (self.loadings + rates[:, None] * (learnt - self.loadings)).T).T
        self.seen = min(self.seen + 1.0, self.memory)
        self.heard = np.minimum(self.heard + there, self.memory)

    def correlations(self) -> tuple[Floats, Floats]:
        """Loadings (n, r) and own shares (n,) such that every series has a variance of 1.

        Young loadings count less: not at all before anything was seen.
        """
        trust = self.heard / (self.heard + YOUNG)
        common = np.square(self.loadings).sum(axis=1)
        loadings = self.loadings * np.sqrt(trust / np.maximum(common + self.own, TINY))[:, None]
        return loadings, 1 - np.square(loadings).sum(axis=1)

    def variance_of(self, weights: csr_array[Any], sigma: Floats) -> Floats:
        """The variance of each weighted sum (a row of weights) of series with these standard deviations.

        Guarantee: never negative; the sum of the variances where nothing is correlated. Cost: O(nonzero
        weights + series·factors + queries·factors). Reference: equation 6 of Zhu and Ravishankar, which takes
        the series to be independent.

        >>> weights = csr_array(np.array([[0.5, 0.5], [1.0, 0.0]]))
        >>> factors = Factors.fresh(2)
        >>> factors.variance_of(weights, np.array([2.0, 2.0]))
        array([2., 4.])
        >>> rng = np.random.default_rng(1)
        >>> for common in rng.normal(size=3000):
        ...     factors.observe(np.array([common, common + 0.1 * rng.normal()]))
        >>> factors.variance_of(weights, np.array([2.0, 2.0])).round(1)
        array([3.9, 4. ])
        """
        loadings, own = self.correlations()
        together = weights @ (loadings * sigma[:, None])
        alone = weights.power(2) @ (own * np.square(sigma))
        return np.asarray(np.square(together).sum(axis=1) + alone)

    def told(self, moves: Floats) -> Floats:
        """What the moves of the other series say about that of each, all over their standard deviations.

        ``moves`` are increments over one tick, NaN where nothing was heard. A series' own move has no part in
        what is said of it, so that one which is heard can be taken for one that is not.

        >>> factors = Factors(np.full((3, 1), 0.9), np.ones(3), np.full(3, 3000.0), seen=3000.0)
        >>> factors.told(np.array([1.0, 1.0, np.nan])).round(2)
        array([0.81, 0.81, 0.89])
        """
        loadings, own = self.correlations()
        there = np.isfinite(moves)
        known = np.where(there, moves, 0.0).clip(-LARGEST, LARGEST)
        weighed, doubt = self._known(there, loadings, own)
        said = loadings @ (doubt @ (weighed.T @ known))
        itself = np.minimum(((weighed @ doubt) * loadings).sum(axis=1), 1 - OWN_LEAST)
        return np.asarray((said - itself * known) / (1 - itself))

    def untold(self, there: NDArray[np.bool_], left: Floats) -> tuple[Floats, Floats]:
        """Loadings (n, 2r) and own variances (n,) of what is not known of series while others are heard.

        ``left`` is the share (n,) of what is told that does not hold. They are such that every series would
        have a variance of 1 if it alone were silent: where several are, less is told of each.

        >>> factors = Factors(np.full((4, 1), 0.9), np.ones(4), np.full(4, 3000.0), seen=3000.0)
        >>> for heard in ([True, True, True, False], [True, False, False, False]):
        ...     loadings, own = factors.untold(np.array(heard), np.zeros(4))
        ...     print((np.square(loadings).sum(axis=1) + own).round(2)[3])
        1.0
        1.38
        """
        loadings, own = self.correlations()
        _, doubt = self._known(there, loadings, own)
        unit = np.eye(len(doubt))
        roots = (np.linalg.cholesky(m + TINY_SHARE * unit) for m in (doubt, unit - doubt))
        found = np.concatenate([loadings @ next(roots), left[:, None] * (loadings @ next(roots))], axis=1)
        _, least = self._known(np.ones(len(own), bool), loadings, own)
        alone = ((loadings @ least) * loadings).sum(axis=1)
        alone = alone / np.maximum(1 - alone / np.maximum(own, OWN_LEAST), OWN_LEAST)
        common = np.square(loadings).sum(axis=1)
        total = alone + np.square(left) * np.maximum(common - alone, 0.0) + own
        return np.asarray(found / np.sqrt(total)[:, None]), own / total

    @staticmethod
    def _known(there: NDArray[np.bool_], loadings: Floats, own: Floats) -> tuple[Floats, Floats]:
        """Loadings over own variances where a series is heard, and the factors' variance given them."""
        weighed = np.where(there, 1 / np.maximum(own, OWN_LEAST), 0.0)[:, None] * loadings
        return weighed, np.asarray(np.linalg.inv(np.eye(loadings.shape[1]) + weighed.T @ loadings), float)

    def to_arrays(self) -> dict[str, Floats]:
        """All that is to be saved."""
        return {
            "loadings": self.loadings,
            "squares": self.squares,
            "heard": self.heard,
            "scalars": np.array([self.seen, self.memory]),
        }

    @classmethod
    def from_arrays(cls, saved: Mapping[str, Floats]) -> Factors:
        """What was saved.

        >>> kept = Factors.fresh(3)
        >>> kept.observe(np.array([1.0, -1.0, np.nan]))
        >>> same = Factors.from_arrays(kept.to_arrays())
        >>> all((a == b).all() for a, b in zip(kept.to_arrays().values(), same.to_arrays().values()))
        True
        """
        seen, memory = (float(number) for number in saved["scalars"])
        arrays = {n: np.array(saved[n], np.float64) for n in ("loadings", "squares", "heard")}
        return cls(**arrays, seen=seen, memory=memory)


def _first(series: NDArray[np.integer], rank: int) -> Floats:
    """Loadings to begin with: any but zero will do; these differ between series and factors."""
    angles = series[:, None] * ((1 + np.arange(rank))[None, :] * 0.7548776662466927)
    return np.asarray(FIRST_LOADING * np.cos(2 * np.pi * angles))
