"""Deferred averages, tick by tick, for all queries, bounds and beliefs at a time.

At each tick all series have a value; a query that is due is evaluated, and its next evaluation planned from
what is known then. Between evaluations its answer is the last one. The fidelity is the share of ticks at
which that is within the bound of the true value; a tick at which a query is evaluated is one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from slackwater.experiments.deferral_data import WARM_UP, Floats, Series
from slackwater.experiments.deferral_motion import estimates, together
from slackwater.planners.deferral_budget import Budget, Clock, belief_at_least
from slackwater.planners.next_evaluation import next_evaluation
from slackwater.statistics.calibration import Calibration, time_out

LONGEST = 5000
"""Ticks after which a query is evaluated whatever is known."""
PAPER_ITEMS, ITEMS = 100, 40
"""Of a buffer: the paper's, and what was best on the stretch that settings were chosen on."""
REPLANNED = 10
"""Ticks after which intervals that have not ended are planned again."""
WILD = 0.1
"""The share of ticks that are counted as wild, by how far the true value moves around them."""
WILD_TICKS = 15


@dataclass(frozen=True)
class Scheme:
    """How intervals are planned; without any extension, as the paper does."""

    covariance: bool = False
    calibration: bool = False
    average: bool = False
    """The average chance over an interval instead of that at its end."""
    budget: bool = False
    """More misses in wild times."""
    replanned: int = 0
    """Ticks after which intervals are planned again; 0: never."""
    items: int = PAPER_ITEMS

    @property
    def mode(self) -> Literal["end", "average"]:
        return "average" if self.average else "end"


PAPER = Scheme()
OURS = Scheme(True, True, True, True, REPLANNED, ITEMS)


@dataclass(frozen=True)
class Moving:
    """Queries over a stretch: their true values, and what is known of them at each tick."""

    values: Floats
    """(ticks, queries)"""
    drift: Floats
    variance: Floats
    tick_s: float
    horizon_s: float

    @classmethod
    def of(cls, series: Series, weights: csr_array[Any], scheme: Scheme) -> Moving:
        known = estimates(series, scheme.items)
        drift, variance = known.sums(weights)
        if scheme.covariance:
            variance = together(series, known, weights)
        return cls(series.values @ weights.T, drift, variance, series.tick_s, series.horizon_s)

    def wild(self) -> NDArray[np.bool_]:
        """The ticks around which each query moves most; known only afterwards."""
        moved = np.abs(np.diff(self.values, axis=0, prepend=self.values[:1]))
        total = np.cumsum(moved, axis=0)
        ticks = np.arange(len(total))
        high = total[np.minimum(ticks + WILD_TICKS, len(total) - 1)]
        around = high - total[np.maximum(ticks - WILD_TICKS, 0)]
        return np.asarray(around >= np.quantile(around[WARM_UP:], 1 - WILD, axis=0))


@dataclass(frozen=True)
class Outcome:
    """By query, bound and belief."""

    fidelity: Floats
    evaluations: Floats
    wild_fidelity: Floats
    """In the tenth of the ticks around which the true value moves most."""
    plans: Floats
    """How often an interval was worked out."""


@dataclass
class _Run:
    """All queries under all bounds and beliefs, one place for each."""

    moving: Moving
    scheme: Scheme
    query: NDArray[np.intp]
    bound: Floats
    belief: Floats
    clock: Clock = field(init=False)
    calibration: Calibration = field(init=False)
    budget: Budget = field(init=False)
    cached: Floats = field(init=False)
    evaluated: Floats = field(init=False)
    """When each was last evaluated; NaN before."""
    variance: Floats = field(init=False)
    """As it was taken to be at the last evaluation."""
    plans: Floats = field(init=False)

    def __post_init__(self) -> None:
        places = len(self.query)
        self.clock = Clock.fresh(places)
        self.calibration = Calibration.fresh(places)
        self.budget = Budget.fresh(places, horizon_s=self.moving.horizon_s)
        self.cached, self.evaluated, self.variance = (np.full(places, np.nan) for _ in range(3))
        self.plans = np.zeros(places)

    def evaluate(self, which: NDArray[np.intp], tick: int) -> None:
        now = tick * self.moving.tick_s
        values = self.moving.values[tick, self.query[which]]
        if self.scheme.calibration:
            self._learn(which, values, now)
        self.cached[which], self.evaluated[which] = values, now
        self.variance[which] = self.moving.variance[tick, self.query[which]] * self.calibration.factor(which)
        self.clock.begin(which, self.intervals(which, tick), now)

    def _learn(self, which: NDArray[np.intp], values: Floats, now: float) -> None:
        known = np.isfinite(self.evaluated[which]) & np.isfinite(self.variance[which])
        which, values = which[known], values[known]
        after, moved = now - self.evaluated[which], values - self.cached[which]
        if self.scheme.average:
            missed = time_out(self.bound[which], self.variance[which], after, moved, self.moving.tick_s)
        else:
            missed = (np.abs(moved) > self.bound[which]).astype(np.float64)
        self.calibration.learn(which, missed, 1 - self.belief[which], after)

    def intervals(self, which: NDArray[np.intp], tick: int) -> Floats:
        drift = self.moving.drift[tick, self.query[which]]
        variance = self.moving.variance[tick, self.query[which]]
        if self.scheme.calibration:
            factor = self.calibration.factor(which)
            drift, variance = drift * np.sqrt(factor), variance * factor
        self.plans[which] += 1
        bound, belief, mode = self.bound[which], self.belief[which], self.scheme.mode
        even = next_evaluation(bound, drift, variance, belief, mode=mode)
        if not self.scheme.budget:
            return even
        longest = next_evaluation(bound, drift, variance, belief_at_least(belief), mode=mode)
        chosen = self.budget.stretched(which, even, longest)
        ticks = self.scheme.replanned or LONGEST
        self.budget.note(which, even, np.minimum(chosen, ticks * self.moving.tick_s))
        return chosen

    def due(self) -> Floats:
        """The ticks at which queries must be evaluated.

        The paper takes the last items that arrive within the interval (footnote 1). Where the average over an
        interval counts, its end may come half a tick later as well as earlier.
        """
        at = np.minimum(self.clock.due(), self.evaluated + LONGEST * self.moving.tick_s)
        ticks = at / self.moving.tick_s
        return np.ceil(ticks - 1e-9) if self.scheme.average else np.floor(ticks + 1e-9)


def simulate(moving: Moving, scheme: Scheme, bounds: Sequence[float], beliefs: Sequence[float]) -> Outcome:
    """A run of all queries under all bounds and beliefs."""
    number = moving.values.shape[1]
    grid = np.meshgrid(np.arange(number), np.array(bounds), np.array(beliefs), indexing="ij")
    query, bound, belief = (axis.ravel() for axis in grid)
    run = _Run(moving, scheme, query, bound, belief)
    ticks = len(moving.values)
    inside, wild_inside, evaluations = np.zeros((3, len(query)))
    wild = moving.wild()
    due = np.full(len(query), float(WARM_UP))
    for tick in range(WARM_UP, ticks):
        which = np.flatnonzero(due <= tick)
        if len(which):
            run.evaluate(which, tick)
            evaluations[which] += 1
        if scheme.replanned and tick % scheme.replanned == 0:
            waiting = np.flatnonzero((due > tick + 1) & (run.evaluated < tick * moving.tick_s))
            run.clock.again(waiting, run.intervals(waiting, tick), tick * moving.tick_s)
            due = np.maximum(run.due(), tick + 1)
        elif len(which):
            due[which] = np.maximum(run.due()[which], tick + 1)
        right = np.abs(moving.values[tick, query] - run.cached) <= bound
        inside += right
        wild_inside += right & wild[tick, query]
    shape = (number, len(bounds), len(beliefs))
    counted = ticks - WARM_UP
    in_wild = wild[WARM_UP:].sum(axis=0)[query]
    found = (inside / counted, evaluations, wild_inside / in_wild, run.plans)
    return Outcome(*(a.reshape(shape) for a in found))


def optimum(values: Floats, bounds: Sequence[float]) -> Floats:
    """The fewest evaluations (queries, bounds) with which every tick is within the bound: as late as can be.

    >>> optimum(np.concatenate([np.zeros(WARM_UP), np.arange(6.0)])[:, None], [0.5, 1.0])
    array([[6., 3.]])
    """
    at = np.repeat(values[WARM_UP][:, None], len(bounds), axis=1)
    found = np.ones(at.shape)
    for row in values[WARM_UP + 1 :]:
        late = np.abs(row[:, None] - at) > np.asarray(bounds)
        found += late
        at = np.where(late, row[:, None], at)
    return found


@dataclass
class Results:
    """Figures by name, and what the plot is drawn from."""

    figures: dict[str, float] = field(default_factory=dict)
    series: dict[str, Any] = field(default_factory=dict)
