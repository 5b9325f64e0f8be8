"""The chance that every query stays below a loss level, and the least level for a chance.

At rate P an estimate has the relative variance r·(1-P)/P; its loss is below a level with the chance
2·Φ(x) - 1 for x = level · bound / (weight · √r) · √(P / (1-P)), taking the estimate to be normal. The chance
that all stay below is at least the product (Šidák): nested samples make errors correlate, which helps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import erf, erfinv

from slackwater.planners.load import Demand, Floats, must_be_exact

ROOT_2 = math.sqrt(2.0)
STEPS = 60
CLOSE = 1e-12


def tightness(demands: Sequence[Demand]) -> Floats:
    """bound / (weight · √r) of each demand; infinite where no rate makes it lose anything.

    >>> tightness([Demand("q", 0, "error", bound=0.1, spread=0.04)]).tolist()
    [0.5]
    """
    return np.array([_tightness(demand) for demand in demands], dtype=np.float64)


def _tightness(demand: Demand) -> float:
    if demand.kind != "error" or demand.spread == 0 or must_be_exact(demand):
        return math.inf  # rows and exact ones are asked for by their rates, not by a chance
    return demand.bound / (demand.weight * math.sqrt(demand.spread))


def root_odds(rates: Floats) -> Floats:
    """√(P / (1-P)): the precision of an estimate in units of 1/√r; infinite at rate 1."""
    with np.errstate(divide="ignore"):
        found: Floats = np.sqrt(rates / (1 - rates))
    return found


def log_chance(x: Floats) -> Floats:
    """log(2·Φ(x) - 1) for x above 0.

    >>> log_chance(np.array([0.6744897501960817, np.inf])).round(9).tolist()
    [-0.693147181, 0.0]
    """
    found: Floats = np.log(erf(x / ROOT_2))
    return found


def share_below(level: float, tight: Floats, rates: Floats) -> float:
    """The chance (at least) that all queries stay below a level at their rates."""
    scale = _scales(tight, rates)
    return math.exp(float(log_chance(level * scale).sum())) if level > 0 else float(not len(scale))


def least_level(share: float, tight: Floats, rates: Floats) -> float:
    """The least level that all queries stay below with a chance of at least ``share``.

    Newton's method in the logarithm of the level: log chance is concave in it and rises, so that steps from
    the left never jump over the root. It starts where the worst query alone has the chance.

    >>> round(least_level(0.5, np.array([1.0]), np.array([0.5])), 6)
    0.67449
    """
    scale = _scales(tight, rates)
    if not len(scale):
        return 0.0
    target = math.log(share)
    level = ROOT_2 * float(erfinv(share)) / float(scale.min())
    for _ in range(STEPS):
        x = level * scale
        chance = erf(x / ROOT_2)
        slope = float((math.sqrt(2 / math.pi) * x * np.exp(-x * x / 2) / chance).sum())
        step = (target - float(np.log(chance).sum())) / slope
        level *= math.exp(step)
        if abs(step) < CLOSE:
            break
    # so that the promise holds in floats too
    return level * (1 + 1e-10)


def _scales(tight: Floats, rates: Floats) -> Floats:
    """x at level 1, for the queries that can lose something."""
    shed = (rates < 1) & np.isfinite(tight)
    return tight[shed] * root_odds(rates[shed])
