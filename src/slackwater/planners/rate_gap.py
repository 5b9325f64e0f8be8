"""Closing the gap that a price leaves: rates that take up the capacity, from rates just below and above it.

Where the best load for a price jumps over the capacity, no price has rates that fill it. At most one block
of segments that run at one rate need be off its best rate then, so that all blocks (or the most promising
ones) are moved, each to where the load fits, and the result of greatest chance is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slackwater.planners.chance import log_chance, root_odds
from slackwater.planners.load import ROUNDING, Floats, Ints
from slackwater.planners.segments import Segments

FILLS = 4
HALVINGS = 24
MOVED_CELLS = 24_000
"""How many cells (rates of a segment) are held at once while blocks are moved."""
FILLED_CELLS = 8_000
"""The same while one query takes up what is left."""


@dataclass(frozen=True)
class Losers:
    """The queries that may lose something by chance, by the segments at which they end."""

    segments: Segments
    at: Ints
    """The segments, in order."""
    first: Ints
    """Where the queries of each segment begin in ``tight``."""
    tight: Floats
    capacity: float
    """Without the fixed load."""

    def chances(self, level: float, rates: Floats) -> Floats:
        """Log chances by segment of ``at``; the axis before the last is over these segments."""
        sizes = np.diff(self.first, append=len(self.tight))
        odds = np.repeat(root_odds(rates), sizes, axis=-2)
        each = log_chance(level * self.tight[:, None] * odds)
        return np.add.reduceat(each, self.first, axis=-2) if len(self.at) < len(self.tight) else each

    def totals(self, level: float, rates: Floats) -> Floats:
        """Log chances of several rates by segment: the chance that all stay below the level."""
        found: Floats = self.chances(level, rates[:, self.at, None]).sum(axis=(1, 2))
        return found

    def own(self, least: Floats, rates: Floats) -> Floats:
        """What each segment needs for itself: the rates where queries end, and the least rates."""
        found = np.broadcast_to(least, rates.shape).copy()
        found[:, self.at] = rates[:, self.at]
        return found

    def loads(self, rates: Floats) -> Floats:
        found: Floats = rates @ self.segments.costs
        return found


def switched(losers: Losers, low: Floats, high: Floats) -> Floats:
    """Subtree by subtree from the lower to the higher rates, as far as the capacity goes."""
    order = losers.segments.order
    added = np.cumsum((losers.segments.costs * (high - low))[order])
    room = losers.capacity - float(low @ losers.segments.costs)
    chosen = order[: int(np.searchsorted(added, room, side="right"))]
    rates = low.copy()
    rates[chosen] = high[chosen]
    return rates


def mixed(losers: Losers, low: Floats, high: Floats) -> Floats:
    """All together from the lower to the higher rates, as far as the capacity goes."""
    least, most = losers.loads(np.stack([low, high])).tolist()
    share = (losers.capacity - least) / max(most - least, 1e-300)
    found: Floats = low + min(max(share, 0.0), 1.0) * (high - low)
    return found


def closed(losers: Losers, level: float, least: Floats, bases: Floats, low: Floats, high: Floats) -> Floats:
    """The rates of greatest chance that are found from the bases; the first of these must fit."""
    candidates = np.concatenate([bases, _moved(losers, least, bases, low, high)])
    return _filled(losers, level, least, _promising(losers, level, candidates))


def _moved(losers: Losers, least: Floats, bases: Floats, low: Floats, high: Floats) -> Floats:
    """The bases after one segment, and those below that run at its rate, have moved to where it fits.

    Queries that share something expensive have one rate, and only together can they close a gap.
    """
    parts = losers.segments
    tops = _tops(parts, low, high, max(MOVED_CELLS // bases.size, 1))
    inside = parts.below(tops)
    same = inside & (bases[:, None, :] == bases[:, tops, None])
    own = np.repeat(losers.own(least, bases)[:, None, :], len(tops), axis=1)

    def rates_at(rate: Floats) -> Floats:
        here = rate[..., None]
        moved = np.where(same, here, np.where(inside, np.minimum(own, here), own))
        return parts.maxima(np.maximum(moved, least))

    under, over = np.zeros(own.shape[:2]), np.ones(own.shape[:2])
    for _ in range(HALVINGS):
        middle = (under + over) / 2
        fitting = losers.loads(rates_at(middle)) <= losers.capacity
        under, over = np.where(fitting, middle, under), np.where(fitting, over, middle)
    found = rates_at(under).reshape(-1, len(least))
    return found[losers.loads(found) <= losers.capacity]


def _tops(parts: Segments, low: Floats, high: Floats, most: int) -> Ints:
    """The segments that are worth moving: all if they are few, or those around which the gap opens."""
    if len(parts.parent) <= most:
        return np.arange(len(parts.parent))
    differs = high > low
    top = differs & ((parts.parent < 0) | ~differs[parts.parent])
    gap = np.where(top, (high - low) * parts.totals, -1.0)
    found: Ints = np.argsort(-gap, kind="stable")[:most]
    return found


def _promising(losers: Losers, level: float, candidates: Floats) -> Floats:
    """No more candidates than can be looked at closely: those that fit, by falling chance."""
    most = max(FILLED_CELLS // (len(losers.at) * losers.segments.paths.shape[1]), 1)
    if len(candidates) <= most:
        return candidates
    too_much = losers.loads(candidates) > losers.capacity * (1 + ROUNDING)
    return candidates[np.lexsort((-losers.totals(level, candidates), too_much))[:most]]


def _filled(losers: Losers, level: float, least: Floats, candidates: Floats) -> Floats:
    """The candidate of greatest chance after one of its queries has taken up what the rest leaves.

    A query's rate may go up or down; a candidate that does not fit either way is none. If the query is at
    rate 1 before all is taken up, another goes on.
    """
    parts = losers.segments
    rates = parts.maxima(losers.own(least, candidates))
    for _ in range(FILLS):
        own = losers.own(least, rates)
        now = losers.chances(level, rates[:, losers.at, None])[..., 0]
        new = _taking_up(losers, own, rates, least)
        possible = new >= 0
        if not possible.any():
            rates = rates[losers.loads(rates).argmin()][None]
            break
        then = losers.chances(level, np.where(possible, new, 0.5)[..., None])[..., 0]
        totals = np.where(possible, now.sum(axis=-1, keepdims=True) - now + then, -np.inf)
        row, column = np.unravel_index(int(totals.argmax()), totals.shape)
        chosen = own[row]
        chosen[losers.at[column]] = new[row, column]
        rates = parts.maxima(chosen)[None]
        if losers.capacity - float(losers.loads(rates)[0]) <= 1e-6 * losers.capacity:
            break
    found: Floats = rates[0]
    return found


def _taking_up(losers: Losers, own: Floats, rates: Floats, least: Floats) -> Floats:
    """The rate of each segment of ``at`` that makes the load the capacity; -1 where there is none.

    If it has rate t, the segments u on its path run at max(m(u), t), m being what others need there. These
    grow towards the root, so the load is the largest of the straight lines in t that have the first j of
    the path at t and the rest at m.
    """
    parts = losers.segments
    inner, beside = parts.beside(own, rates)
    paths = parts.paths[losers.at]
    costs = np.where(paths >= 0, parts.costs[paths], 0.0)
    needs = np.empty((len(rates), *paths.shape))
    needs[..., 0] = np.maximum(inner, least)[:, losers.at]
    for depth in range(1, paths.shape[1]):
        needs[..., depth] = np.maximum(needs[..., depth - 1], beside[:, paths[:, depth - 1]])
    room = losers.capacity - losers.loads(rates)[:, None] + (costs * rates[:, paths]).sum(axis=-1)
    heads = np.cumsum(costs, axis=-1)
    spent = costs * needs
    tails = spent.sum(axis=-1, keepdims=True) - np.cumsum(spent, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        # who costs nothing can take any rate, but only if the others leave it room
        free = np.where(room[..., None] >= tails - ROUNDING * losers.capacity, np.inf, -np.inf)
        reach = np.where(heads > 0, (room[..., None] - tails) / heads, free)
    new = np.minimum(reach.min(axis=-1), 1.0)
    bottom = needs[..., 0]
    return np.where(new >= bottom * (1 - ROUNDING), np.maximum(new, bottom), -1.0)
