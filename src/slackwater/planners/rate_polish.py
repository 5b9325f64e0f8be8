"""From rates on a grid to rates between its points."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erf

from slackwater.planners.chance import ROOT_2
from slackwater.planners.load import Bools, Floats, Ints
from slackwater.planners.segments import Segments

ROUNDS = 3
HALVINGS = 30
LEAST = 1e-100
STRIDE = 0.6
"""How far a rate may move in a round, in log(P / (1-P)): about two points of a coarse grid."""


def polished(
    segments: Segments, at: Ints, tight: Floats, level: float, least: Floats, rates: Floats, capacity: float
) -> Floats:
    """Rates near the given ones, within the capacity, and most often of greater chance for a level.

    Newton's method for every block of segments that run at one rate: at its best rate z = log(P / (1-P))
    the slope of log chance times a price is the slope of the load, and the price is the one at which the
    load is the capacity. Blocks at rate 1 or at their least rate stay, and so do those that are not at a
    peak. ``at`` is the segment of each query.
    """
    block = segments.blocks(rates)
    size = int(block.max()) + 1
    cost = _summed(block, segments.costs, size)
    floor, now = np.zeros(size), np.zeros(size)
    np.maximum.at(floor, block, least)
    now[block] = rates
    home = block[at]
    free = (now < 1) & (now > floor) & (cost > 0) & (np.bincount(home, minlength=size) > 0)
    if not free.any():
        return rates
    tight, home = tight[free[home]], home[free[home]]
    logit = np.zeros(size)
    logit[free] = np.log(now[free] / (1 - now[free]))
    room = capacity - float(cost[~free] @ now[~free])
    for _ in range(ROUNDS):
        logit = logit + _steps(logit, free, cost, room, *_derivatives(level, tight, home, logit))
    new = np.where(free, np.clip(_rate(logit), floor, 1.0), now)
    # where a block has overtaken the one above, that follows, which may cost something
    found = segments.maxima(np.maximum(new[block], least))
    before, after = float(segments.costs @ rates), float(segments.costs @ found)
    if after > capacity:
        found = rates + (found - rates) * max(capacity - before, 0.0) / max(after - before, 1e-300)
    return found


def _derivatives(level: float, tight: Floats, home: Ints, logit: Floats) -> tuple[Floats, Floats]:
    """First and second derivative of log chance by z, summed over the queries of each block."""
    x = level * tight * np.exp(logit[home] / 2)
    # with t = log x: h' and h'' = h' · (1 - x² - h'), and t moves by half of what z does
    slope = math.sqrt(2 / math.pi) * x * np.exp(-x * x / 2) / erf(x / ROOT_2)
    bend = slope * (1 - x * x - slope)
    size = len(logit)
    return _summed(home, slope / 2, size), _summed(home, bend / 4, size)


def _steps(logit: Floats, free: Bools, cost: Floats, room: float, slope: Floats, bend: Floats) -> Floats:
    """One step of Newton's method for each block, at the price at which the load takes up the room."""
    rate = _rate(logit)
    load_slope = cost * rate * (1 - rate)
    load_bend = load_slope * (1 - 2 * rate)

    def steps(price: float) -> Floats:
        first, second = price * slope - load_slope, price * bend - load_bend
        peak = free & (second < 0)
        return np.clip(np.where(peak, -first / np.where(peak, second, -1.0), 0.0), -STRIDE, STRIDE)

    # who has nothing more to gain asks for no price that could be met
    gaining = free & (slope > LEAST) & (load_slope > LEAST)
    if not gaining.any():
        return np.zeros(len(logit))
    prices = load_slope[gaining] / slope[gaining]
    low, high = float(prices.min()) / 2, float(prices.max()) * 2
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        if float((cost * _rate(logit + steps(middle)))[free].sum()) > room:
            high = middle
        else:
            low = middle
    return steps(low)


def _rate(logit: Floats) -> Floats:
    found: Floats = 1 / (1 + np.exp(-logit))
    return found


def _summed(groups: Ints, values: Floats, size: int) -> Floats:
    found = np.zeros(size)
    np.add.at(found, groups, values)
    return found
