"""Prices of queries by steps: for programs too large to be solved as they are.

Given prices, what each object takes follows at once; what the objects take shows which prices are too low.
Each step raises the price of a query that is overspent and lowers that of one with width left, the more the
further off. Started from the prices of the last adjustment a few steps do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slackwater.planners.precision_constraints import Constraints, Floats, narrowed

STEPS_AT_MOST, STEPS_WARM = 60, 8
SOFT = 0.2
"""Prices about a slope between which its segment is taken in part, as a share: steps converge on slopes only
if what is taken changes steadily with the price."""
CLOSE = 0.01
"""A query whose limit is used up but for this share is settled."""
LOST = 0.3
"""Prices of the last adjustment that leave limits so far off, as a mean logarithm, are no place to start
from: where nothing was known yet they are next to nothing, and no number of steps leads away from there."""
FASTER, SLOWER, FIRST, LEAST, MOST = 1.3, 0.5, 2.0, 0.2, 4.0
AT_A_TIME = 16_384


@dataclass(frozen=True)
class Fitted:
    prices: Floats
    widths: Floats


def fitted_prices(
    constraints: Constraints,
    lengths: Floats,
    slopes: Floats,
    last: Floats | None,
    steps: int = STEPS_WARM,
) -> Fitted:
    """Prices at which the limits are about used up, and widths that go with them.

    Guarantee: the widths are feasible, without tolerance. Variant: multiplicative steps on the dual of the
    linear program, each query with a pace of its own that falls when its price has overshot.
    """
    if last is not None:
        warm = _stepped(constraints, lengths, slopes, np.where(last > 0, last, 0.0), steps)
    if last is None or warm.off > LOST:
        cold = _stepped(constraints, lengths, slopes, _begun(constraints, lengths, slopes), STEPS_AT_MOST)
    best = cold if last is None or (warm.off > LOST and cold.off < warm.off) else warm
    widths = filled(constraints, lengths, slopes, narrowed(constraints, best.widths))
    return Fitted(best.prices, widths)


@dataclass(frozen=True)
class _Reached:
    off: float
    """By how much limits are over- or underspent, as the mean logarithm of those that bind."""
    prices: Floats
    widths: Floats


def _stepped(
    constraints: Constraints, lengths: Floats, slopes: Floats, prices: Floats, steps: int
) -> _Reached:
    """The best of some steps."""
    limit = np.maximum(constraints.usable, np.finfo(np.float64).tiny)
    floor = _floor(slopes)
    prices = np.maximum(prices, floor)
    pace, before = np.full(len(prices), FIRST), np.zeros(len(prices))
    best: _Reached | None = None
    for _ in range(steps):
        widths = _taken(lengths, slopes, constraints.by_object @ prices)
        off = np.log(np.maximum(constraints.matrix @ widths, 1e-12 * limit) / limit)
        binding = (off > 0) | (prices > 2 * floor)
        error = float(np.abs(off[binding]).mean()) if binding.any() else 0.0
        if best is None or error < best.off:
            best = _Reached(error, prices, widths)
        if error < CLOSE:
            break
        pace = np.clip(pace * np.where(off * before < 0, SLOWER, FASTER), LEAST, MOST)
        before = off
        prices = np.maximum(prices * np.exp(np.clip(pace * off, -1.0, 1.0)), floor)
    assert best is not None
    return best


def _floor(slopes: Floats) -> float:
    """A price at which everything that saves something is taken."""
    some = slopes[slopes > 0]
    return float(some.min()) * 1e-3 if len(some) else np.finfo(np.float64).tiny


def _begun(constraints: Constraints, lengths: Floats, slopes: Floats) -> Floats:
    """Prices to begin with: what the mean object of a query saves at its even share of the limit."""
    weights = np.maximum(constraints.matrix.sum(axis=1), np.finfo(np.float64).tiny)
    with np.errstate(over="ignore"):
        # a query without weights leaves all the room there is
        share = constraints.usable / weights
    even = np.minimum(constraints.least_by_object(share), lengths.sum(axis=1))
    reached = np.cumsum(lengths, axis=1)
    place = np.minimum((reached <= even[:, None]).sum(axis=1), slopes.shape[1] - 1)
    marginal = slopes[np.arange(len(slopes)), place]
    degree = np.maximum(np.diff(constraints.by_object.indptr), 1)
    shared = constraints.matrix @ (marginal / degree)
    counted = constraints.matrix @ np.ones(constraints.objects)
    found: Floats = np.divide(shared, counted, out=np.zeros(len(shared)), where=counted > 0)
    return found


def _taken(lengths: Floats, slopes: Floats, price: Floats) -> Floats:
    """What objects take at their prices: segments that save more, in part those that save about as much."""
    widths = np.empty(len(price))
    # who is in no query pays nothing, and has no width to take here
    worth = np.divide(1.0, price, out=np.zeros(len(price)), where=price > 0)
    for start in range(0, len(price), AT_A_TIME):
        part = slice(start, start + AT_A_TIME)
        share = slopes[part] * worth[part, None]
        share -= 1.0 - SOFT / 2
        share /= SOFT
        np.clip(share, 0.0, 1.0, out=share)
        share *= lengths[part]
        widths[part] = share.sum(axis=1)
    return widths


def filled(constraints: Constraints, lengths: Floats, slopes: Floats, widths: Floats) -> Floats:
    """Widths grown into what the limits leave, as far as it saves something.

    Guarantee: feasible if the widths are. Variant: in rounds, each object takes its part of what the tightest
    of its queries has left, as large as what it saves among the objects of that query.
    """
    useful = np.where(slopes > 0, lengths, 0.0).sum(axis=1)
    reached = np.cumsum(lengths, axis=1)
    for _ in range(ROUNDS):
        slack = np.maximum(constraints.usable - constraints.matrix @ widths, 0.0)
        place = np.minimum((reached <= widths[:, None] * (1 + 1e-12)).sum(axis=1), slopes.shape[1] - 1)
        rows = np.arange(len(widths))
        room = np.maximum(np.minimum(useful, reached[rows, place]) - widths, 0.0)
        room[slopes[rows, place] <= 0] = 0.0
        wanted = constraints.matrix @ room
        share = np.divide(slack, wanted, out=np.ones(len(wanted)), where=wanted > slack)
        grown = room * np.where(constraints.shared, constraints.least_by_object(share), 0.0)
        widths = widths + np.minimum(grown, room)
    return narrowed(constraints, np.minimum(widths, constraints.ceiling))


ROUNDS = 3
