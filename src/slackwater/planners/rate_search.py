"""For one level: the rates of greatest chance that fit the capacity.

For a price of chance, load - price · log chance is a sum over the tree in which a child's rate is bounded
by its parent's: a dynamic program on a grid of rates has its minimum without any convexity. The chance has
none: a query may be worth pushing to rate 1, where it is exact, or else not beyond some lower rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from slackwater.planners.load import Floats, Ints
from slackwater.planners.rate_gap import Losers, closed, mixed, switched
from slackwater.planners.segments import Segments

SAME = 1e-9
STEPS = 40
NEAR_ONE = 1e-4
"""The grid ends so far below rate 1, which it also has: what lies between saves nothing."""
CELLS = 32_000
"""How many cells (segments by rates) a table has at most: what keeps a thousand queries quick."""
PRICED_CELLS = 160_000
"""The same for the tables of several prices at once."""


@dataclass(frozen=True)
class Table:
    """Rates, costs and log chances at one level: segments by places on the grid."""

    rates: Floats
    costs: Floats
    chances: Floats
    """Only of the segments at which queries end."""


@dataclass(frozen=True)
class Point:
    """Rates by segment that are best for a price, with their load and the logarithm of their chance."""

    rates: Floats
    load: float
    chance: float
    price: float


@dataclass(frozen=True)
class RateSearch:
    """All that stays the same while the level changes."""

    losers: Losers
    grid: Floats
    """Rising, with 1 at the end."""
    closeness: float
    """How near to the capacity, as a share of it, the search by prices goes."""
    variants: int
    """How many other prices are tried when the gap is closed."""
    thorough: bool
    """Whether the gap is closed in all ways, or only in the two simplest."""

    def best(self, level: float, least: Floats, price: float) -> tuple[Floats, float]:
        """Rates by segment, each at least ``least`` (whose load fits), and the price for a next search."""
        losers = self.losers
        rates = np.maximum(self.grid, least[:, None])
        chances = losers.chances(level, rates[losers.at])
        table = Table(rates, losers.segments.costs[:, None] * rates, chances)
        low, high = self._around(table, price)
        price = _equal_price(low, high)
        found = np.stack([switched(losers, low.rates, high.rates), mixed(losers, low.rates, high.rates)])
        if not self.thorough:
            return found[int(losers.totals(level, found).argmax())], price
        found = np.concatenate([found, np.stack([low.rates, high.rates])])
        if self.variants:
            places = self._places(table, price * np.geomspace(0.125, 8.0, self.variants))
            found = np.concatenate([found, np.take_along_axis(rates[None], places[..., None], 2)[..., 0]])
        return closed(losers, level, least, found, low.rates, high.rates), price

    def _places(self, table: Table, prices: Floats) -> Ints:
        """The best places on the grid for each price: prices by segments."""
        values = np.repeat(table.costs[None], len(prices), axis=0)
        values[:, self.losers.at] -= prices[:, None, None] * table.chances
        levels = self.losers.segments.levels
        bests: list[Floats] = []
        for level in reversed(levels):
            # the best of a child among the rates up to its parent's
            best = np.minimum.accumulate(values[:, level.start : level.stop], axis=-1)
            values[:, level.parents] += np.add.reduceat(best, level.first, axis=1)
            bests.append(best)
        roots = levels[0].start if levels else values.shape[1]
        places = np.zeros(values.shape[:2], dtype=np.int64)
        places[:, :roots] = values[:, :roots].argmin(axis=-1)
        for level, best in zip(levels, reversed(bests), strict=True):
            reached = np.take_along_axis(best, places[:, level.parent_of, None], -1)
            places[:, level.start : level.stop] = (best > reached).sum(axis=-1)
        return places

    def _point(self, table: Table, places: Ints, price: float) -> Point:
        rows = np.arange(len(places))
        load = float(table.costs[rows, places].sum())
        chance = float(table.chances[np.arange(len(self.losers.at)), places[self.losers.at]].sum())
        return Point(table.rates[rows, places], load, chance, price)

    def _around(self, table: Table, price: float) -> tuple[Point, Point]:
        """The best rates just below and just above the capacity; ``price`` is a guess, 0 if there is none.

        The next price is the one at which both are equally good: whatever is best there lies between them,
        or they are the ones. Where that closes in from one side only, prices are halved in between.
        """
        size, capacity = len(table.costs), self.losers.capacity
        low = self._point(table, np.zeros(size, dtype=np.int64), 0.0)
        high = self._point(table, np.full(size, len(self.grid) - 1, dtype=np.int64), math.inf)
        for step in range(STEPS):
            equal = _equal_price(low, high)
            if equal == 0:
                break
            known = low.price > 0 and high.price < math.inf
            if step < 3 and price > 0 and not known:
                trial = price if step == 0 else low.price * 1.2 if low.price > 0 else high.price / 1.2
            elif step % 3 == 2 and known:
                trial = math.sqrt(low.price * high.price)
            else:
                trial = equal
            found = self._point(table, self._places(table, np.array([trial]))[0], trial)
            if trial == equal:
                value = low.load - equal * low.chance
                if value - (found.load - equal * found.chance) <= SAME * max(abs(value), capacity):
                    break
            if found.load <= capacity:
                low = found
            else:
                high = found
            if high.load - low.load <= self.closeness * capacity:
                break
        return low, high


def _equal_price(low: Point, high: Point) -> float:
    """The price at which two points are equally good; 0 if more load makes for no more chance."""
    gain = high.chance - low.chance
    return (high.load - low.load) / gain if gain > 1e-30 else 0.0


def coarse(losers: Losers, floor: float) -> RateSearch:
    """A first look at all rates."""
    grid = np.append(_grid(floor, 1 - NEAR_ONE, _points(losers) // 2), 1.0)
    return RateSearch(losers, grid, closeness=1e-2, variants=0, thorough=False)


def fine(losers: Losers, floor: float, rates: Floats) -> RateSearch:
    """A closer look around rates that were found, with a few others."""
    points = _points(losers)
    inside = rates[(rates > floor) & (rates < 1 - NEAR_ONE)]
    low, high = (float(inside.min()), float(inside.max())) if len(inside) else (0.5, 0.5)
    near = _grid(_shifted(low, -1.0), _shifted(high, 1.0), points - points // 4)
    grid = np.unique(np.concatenate([_grid(floor, 1 - NEAR_ONE, points // 4), near, [1.0]]))
    variants = min(PRICED_CELLS // (len(losers.segments.costs) * len(grid)), 33)
    return RateSearch(losers, grid, closeness=1e-3, variants=variants if variants > 2 else 0, thorough=True)


def losers_of(segments: Segments, at: Ints, tight: Floats, capacity: float) -> Losers:
    """The queries with a finite tightness, by segment; ``at`` is the segment of each."""
    losing = np.flatnonzero(np.isfinite(tight))
    losing = losing[np.argsort(at[losing], kind="stable")]
    held, first = np.unique(at[losing], return_index=True)
    return Losers(segments, held, first, tight[losing], capacity)


def _points(losers: Losers) -> int:
    return min(max(CELLS // max(len(losers.segments.costs), len(losers.tight)), 24), 240)


def _grid(low: float, high: float, points: int) -> Floats:
    """Rates evenly spaced in log(P / (1-P)): resolution near 0 and near 1."""
    high = min(high, 1 - NEAR_ONE)
    found: Floats = 1 / (1 + np.exp(-np.linspace(_logit(min(low, high)), _logit(high), points)))
    return found


def _shifted(rate: float, by: float) -> float:
    return 1 / (1 + math.exp(-_logit(rate) - by))


def _logit(rate: float) -> float:
    return math.log(rate / (1 - rate))
