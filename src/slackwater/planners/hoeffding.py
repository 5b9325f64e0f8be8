"""The paper's split: every query that is shed at all gets the same loss, by Hoeffding's bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slackwater.planners.load import (
    Demand,
    Floats,
    LoadTree,
    Split,
    fits,
    floors_of,
    load_of,
    must_be_exact,
    nodes_of,
    prefix_rates,
    raised,
)


def split(tree: LoadTree, demands: Sequence[Demand], capacity: float, *, margin: float = 0.0) -> Split | None:
    """The least level whose rates fit the capacity, or None if not even the least rates do.

    Guarantee: at rate P the error stays below (C + margin) / P but for the paper's small probability, so
    that no query loses more than the level; those that are shed, and above their least rate, lose the same
    (Observation 3.2). A query at rate 1 is exact and loses nothing: the paper's jump.

    Reference: Babcock, Datar, Motwani (ICDE 2004), sections 3.1, 3.2.1 and 4.1. Variant: a query's loss is
    in units of its bound, and the paper's "fudge factor" is ``margin``. A node's prefix rate at a level is
    the largest of three terms, one for each kind of demand below it: a constant, c / level and
    1 - level / w. Between the levels at which a node changes from one to another the load is
    constant + over / level - times * level, which is solved and not searched for.

    >>> tree = LoadTree((-1, -1), (100.0, 100.0), (0.01, 0.01))
    >>> one = Demand("one", 0, "error", bound=0.1, bound_constant=0.01)
    >>> two = Demand("two", 1, "error", bound=0.1, bound_constant=0.03)
    >>> found = split(tree, [one, two], 1.0)
    >>> round(found.level, 6), found.rates.round(6).tolist()
    (0.4, [0.25, 0.75])
    """
    nodes = nodes_of(demands)
    floors = floors_of(demands)
    over, weights = _terms(demands, margin)
    floor_at = prefix_rates(tree, nodes, floors)
    over_at = prefix_rates(tree, nodes, over)
    weight_at = prefix_rates(tree, nodes, weights)
    if fits(load_of(tree, (floor_at > 0).astype(np.float64)), capacity):
        return Split(0.0, np.ones(len(demands)))
    if not fits(load_of(tree, floor_at), capacity):
        return None
    lossless = np.where((over > 0) | (weights > 0), 1.0, floors)
    if fits(load_of(tree, prefix_rates(tree, nodes, lossless)), capacity):
        # the rest loses nothing at any rate, as far as can be known
        return Split(0.0, raised(tree, nodes, lossless, capacity))
    level = _least(tree, capacity, floor_at, over_at, weight_at)
    return Split(level, rates_at(level, floors, over, weights))


def one_rate(tree: LoadTree, demands: Sequence[Demand], capacity: float) -> Floats | None:
    """The largest rate for all that may be shed, as if rows were dropped at the input only.

    The baseline of the paper's experiments. Who must be exact keeps the whole of its path, and who has a
    higher least rate keeps that. None if not even the least rates fit.
    """
    alike = [
        demand
        if must_be_exact(demand)
        else replace(demand, kind="error", weight=1.0, bound=1.0, bound_constant=1.0)
        for demand in demands
    ]
    found = split(tree, alike, capacity)
    return None if found is None else found.rates


def _terms(demands: Sequence[Demand], margin: float) -> tuple[Floats, Floats]:
    """The c of each rate c / level, and the w of each rate 1 - level / w; 0 where there is none."""
    over, weights = np.zeros(len(demands)), np.zeros(len(demands))
    for position, demand in enumerate(demands):
        if must_be_exact(demand) or demand.kind == "rows":
            weights[position] = demand.weight if demand.kind == "rows" else 0.0
        else:
            constant = demand.weight * (demand.bound_constant + margin)
            # a bound of 0 with nothing to lose is met at any rate
            over[position] = constant / demand.bound if demand.bound > 0 else 0.0
    return over, weights


def rates_at(level: float, floors: Floats, over: Floats, weights: Floats) -> Floats:
    """The least rates at which nobody loses more than a level above 0."""
    with np.errstate(divide="ignore", over="ignore"):
        kept = np.where(weights > 0, 1 - level / weights, 0.0)
    return np.maximum(floors, np.maximum(np.minimum(1.0, over / level), kept))


def _least(tree: LoadTree, capacity: float, floors: Floats, over: Floats, weights: Floats) -> float:
    """The least level whose load fits; at the floors it does, near level 0 it does not."""
    changes = _changes(floors, over, weights)
    low, high = -1, len(changes) - 1  # too much load at low, not too much at high
    while high - low > 1:
        middle = (low + high) // 2
        if load_of(tree, rates_at(float(changes[middle]), floors, over, weights)) > capacity:
            low = middle
        else:
            high = middle
    top = float(changes[high])
    bottom = float(changes[low]) if low >= 0 else 0.0
    inside = (bottom + top) / 2
    at = rates_at(inside, floors, over, weights)
    curved = (at > floors) & (at < 1) & (at == over / inside)
    straight = (at > floors) & (at < 1) & ~curved
    beta = float(tree.costs[curved] @ over[curved])
    gamma = float(tree.costs[straight] @ (1 / weights[straight]))
    constant = tree.fixed + float(tree.costs[~curved] @ np.where(straight, 1.0, at)[~curved])
    return min(max(_root(constant - capacity, beta, gamma), bottom), top)


def _changes(floors: Floats, over: Floats, weights: Floats) -> Floats:
    """The levels at which some node changes the term that sets its rate, in order; the last frees all."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = [over, over / floors, weights * (1 - floors)]
        # c / level = 1 - level / w
        root = np.sqrt(np.maximum(weights * (weights - 4 * over), 0.0))
        found += [(weights + root) / 2, (weights - root) / 2]
    levels = np.unique(np.concatenate(found))
    kept: Floats = levels[np.isfinite(levels) & (levels > 0)]
    return kept


def _root(constant: float, beta: float, gamma: float) -> float:
    """The level above 0 at which constant + beta / level - gamma * level is 0; it falls everywhere."""
    if gamma == 0:
        return beta / -constant if constant < 0 else np.inf
    # gamma * level² - constant * level - beta = 0; the form without cancellation
    root = float(np.sqrt(constant * constant + 4 * gamma * beta))
    if constant >= 0:
        return (constant + root) / (2 * gamma)
    return 2 * beta / (root - constant)
