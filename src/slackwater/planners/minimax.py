"""The default split: rates of least load for a chance that all queries stay below one level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from slackwater.planners import hoeffding
from slackwater.planners.chance import least_level, tightness
from slackwater.planners.load import (
    Demand,
    Floats,
    Ints,
    LoadTree,
    Split,
    fits,
    floors_of,
    load_of,
    nodes_of,
    prefix_rates,
    raised,
)
from slackwater.planners.rate_polish import polished
from slackwater.planners.rate_search import RateSearch, coarse, fine, losers_of
from slackwater.planners.segments import Segments, segments

STEPS = 24
FAR, CLOSE = 0.03, 5e-4
"""When the search for the level ends, on the coarse grid and on the fine one."""

NEARLY = (0.9, 0.98, 0.99, 0.999, 0.9999)


@dataclass(frozen=True)
class Problem:
    """All that stays the same while the level is searched for."""

    segments: Segments
    at: Ints
    """The segment of each demand."""
    floors: Floats
    tight: Floats
    weights: Floats
    """Of set-valued queries; 0 for others."""
    capacity: float
    """Without the fixed load."""
    share: float

    def least(self, level: float) -> Floats:
        """The least rate of each segment at a level."""
        with np.errstate(divide="ignore"):
            kept = np.where(self.weights > 0, 1 - level / self.weights, 0.0)
        own = np.zeros(len(self.segments.costs))
        np.maximum.at(own, self.at, np.maximum(self.floors, kept))
        return self.segments.maxima(own)

    def chance_level(self, rates: Floats) -> float:
        """The least level that the estimates keep. A query sees all that its node sees: it costs nothing."""
        return least_level(self.share, self.tight, rates[self.at])

    def missing(self, rates: Floats) -> float:
        """The least level that the set-valued queries keep."""
        return float((self.weights * (1 - rates[self.at])).max())

    def best(self, search: RateSearch, level: float, least: Floats, price: float) -> tuple[Floats, float]:
        """The best rates found for a level, and the price for a next search."""
        found, price = search.best(level, least, price)
        if search.thorough:
            losing = np.isfinite(self.tight)
            near = polished(
                self.segments, self.at[losing], self.tight[losing], level, least, found, self.capacity
            )
            if self.chance_level(near) < self.chance_level(found):
                return near, price
        return found, price


def split(tree: LoadTree, demands: Sequence[Demand], capacity: float, *, share: float = 0.5) -> Split | None:
    """The least level whose rates fit the capacity, or None if not even the least rates do.

    Guarantee: the load fits, and at the level and rates found the chance that no query loses more is at
    least ``share``. The level is within 2 % of what a general optimiser finds (measured, tests); it is not
    proven to be the least.

    Variant: ours, DESIGN 3.3. The paper (Babcock, Datar, Motwani, ICDE 2004) gives every query the same
    bound; pushing a cheap query up to the error of the rest saves little and adds to the largest. Here the
    rates for a level are those of greatest chance that fit. They in turn keep a level of their own, at most
    as high; from there it goes on until nothing more is gained (Dinkelbach's method). Set-valued queries
    bound rates from below, at every level differently: with them the level is bracketed.

    >>> tree = LoadTree((-1, -1), (1000.0, 10.0), (0.001, 0.001))
    >>> often = Demand("often", 0, "error", bound=0.1, spread=0.01)
    >>> seldom = Demand("seldom", 1, "error", bound=0.1, spread=1.0)
    >>> found = split(tree, [often, seldom], 0.51)
    >>> round(found.level, 3), found.rates.round(2).tolist()
    (0.674, [0.5, 1.0])
    """
    nodes, floors, tight = nodes_of(demands), floors_of(demands), tightness(demands)
    weights = np.array([d.weight if d.kind == "rows" else 0.0 for d in demands])
    if fits(load_of(tree, prefix_rates(tree, nodes, np.ones(len(demands)))), capacity):
        return Split(0.0, np.ones(len(demands)))
    if not fits(load_of(tree, prefix_rates(tree, nodes, floors)), capacity):
        return None
    lossless = np.where(np.isfinite(tight) | (weights > 0), 1.0, floors)
    if fits(load_of(tree, prefix_rates(tree, nodes, lossless)), capacity):
        return Split(0.0, raised(tree, nodes, lossless, capacity))
    # below this level the set-valued queries alone need too much
    lowest = 0.0
    if (weights > 0).any():
        found = hoeffding.split(tree, [replace(d, bound_constant=0.0) for d in demands], capacity)
        if found is None or not np.isfinite(tight).any():
            return found
        lowest = found.level
    parts = segments(tree, nodes)
    problem = Problem(parts, parts.of_node[nodes], floors, tight, weights, capacity - tree.fixed, share)
    own = np.zeros(len(parts.costs))
    np.maximum.at(own, problem.at, raised(tree, nodes, floors, capacity))
    rates, price = parts.maxima(own), 0.0
    losers = losers_of(parts, problem.at, tight, problem.capacity)
    floor = float(floors.min())
    rates, price = _improved(problem, coarse(losers, floor), rates, lowest, price, FAR)
    rates, _ = _improved(problem, fine(losers, floor, rates), rates, lowest, price, CLOSE)
    rates = _nearly_exact(problem, rates)
    final = raised(tree, nodes, rates[problem.at], capacity)
    missing = float((weights * (1 - final)).max())
    return Split(max(missing, least_level(share, tight, final)), final)


def _improved(
    problem: Problem, search: RateSearch, rates: Floats, lowest: float, price: float, close: float
) -> tuple[Floats, float]:
    """Better rates than the given ones, if there are any on the grid."""
    if (problem.weights > 0).any():
        return _bracketed(problem, search, rates, lowest, price, close)
    best, level = rates, problem.chance_level(rates)
    for _ in range(STEPS):
        least = problem.least(level)
        found, price = problem.best(search, level, least, price)
        kept = problem.chance_level(found)
        if kept < level:
            best = found
        if kept >= level * (1 - close) or kept == 0:
            break
        level = kept
    return best, price


def _bracketed(
    problem: Problem, search: RateSearch, rates: Floats, low: float, price: float, close: float
) -> tuple[Floats, float]:
    """The same with set-valued queries: they need more rows as the level falls, and leave less to others.

    So the level that estimates keep at a level rises as that falls; looked for is where the two are equal.
    """
    best = rates
    level = high = max(problem.chance_level(rates), problem.missing(rates))
    seen: list[tuple[float, float]] = []
    for _ in range(STEPS):
        least = problem.least(level)
        if float(problem.segments.costs @ least) > problem.capacity:
            low, level = level, _middle(level, high)
            continue
        found, price = problem.best(search, level, least, price)
        kept = problem.chance_level(found)
        reached = max(kept, problem.missing(found))
        if reached < high:
            best, high = found, reached
        low = max(low, level) if kept > level else low
        # 0 if all estimates are exact: the level is further down, but nobody knows how far
        kept = max(kept, level / 10)
        seen.append((math.log(level), math.log(kept / level)))
        if abs(seen[-1][1]) <= close or high <= low * (1 + close):
            break
        # a line through two far points may lead anywhere
        level = min(max(_crossing(seen), kept / 2) if len(seen) > 1 else kept, high)
        if level <= low * (1 + close / 4):
            level = _middle(low, high)
    return best, price


def _nearly_exact(problem: Problem, rates: Floats) -> Floats:
    """Rates with all at 1 that are near it, if that costs the others next to nothing: exact is better."""
    level = max(problem.chance_level(rates), problem.missing(rates))
    least, costs = problem.least(level), problem.segments.costs
    for limit in NEARLY:
        exact = rates >= limit
        low = np.where(exact, 1.0, least)
        high = np.where(exact, 1.0, rates)
        gap = float(costs @ (high - low))
        share = min(1.0, (problem.capacity - float(costs @ low)) / max(gap, 1e-300))
        if share < 0:
            continue
        found = low + share * (high - low)
        if max(problem.chance_level(found), problem.missing(found)) <= level * (1 + CLOSE):
            return found
    return rates


def _crossing(seen: list[tuple[float, float]]) -> float:
    """Where the line through the last two points crosses 0."""
    (x, y), (u, v) = seen[-2:]
    return math.exp(min(u - v * (u - x) / (v - y), 700.0)) if v != y else 0.0


def _middle(low: float, high: float) -> float:
    return math.sqrt(low * high) if low > 0 else high / 4
