"""Which queries to give up when not even their least rates fit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slackwater.planners.load import (
    Bools,
    Demand,
    Floats,
    Ints,
    LoadTree,
    fits,
    floors_of,
    load_of,
    nodes_of,
    prefix_rates,
)
from slackwater.planners.segments import Segments, segments


def suspended(
    tree: LoadTree, kept: Sequence[Demand], candidates: Sequence[Demand], capacity: float
) -> tuple[int, ...]:
    """Positions of the candidates to suspend so that the rest fits at its least rates, in order.

    Guarantee: the rest fits if that is possible by suspending candidates, and none of the suspended could
    be taken back. Variant: greedy, DESIGN 3.3. The one goes first that saves most load per unit of weight;
    what it shares with others that still run is not saved, so it is worked out anew each time. Queries that
    share all they cost save nothing one by one: then the one with the most costly path goes, and whoever
    was given up in vain is taken back at the end.

    >>> tree = LoadTree((-1, -1), (1.0, 3.0), (1.0, 1.0))
    >>> suspended(tree, [], [Demand("a", 0, "exact"), Demand("b", 1, "exact")], 2.0)
    (1,)
    """
    everyone = [*kept, *candidates]
    nodes, floors = nodes_of(everyone), floors_of(everyone)
    running = np.ones(len(everyone), dtype=np.bool_)

    def fit() -> bool:
        return fits(load_of(tree, prefix_rates(tree, nodes, np.where(running, floors, 0.0))), capacity)

    if fit():
        return ()
    weights = np.array([demand.weight if demand.worth is None else demand.worth for demand in everyone])
    parts = segments(tree, nodes)
    at = parts.of_node[nodes]
    may_go = np.arange(len(everyone)) >= len(kept)
    gone: list[int] = []
    while not fit() and (running & may_go).any():
        saved, path = _savings(parts, at, np.where(running, floors, 0.0))
        there = np.flatnonzero(running & may_go)
        order = np.lexsort((there, -path[there] / weights[there], -saved[there] / weights[there]))
        gone.append(int(there[order[0]]))
        running[gone[-1]] = False
    if fit():
        for position in reversed(gone.copy()):
            running[position] = True
            if fit():
                gone.remove(position)
            else:
                running[position] = False
    return tuple(position - len(kept) for position in gone)


def _savings(parts: Segments, at: Ints, rates: Floats) -> tuple[Floats, Floats]:
    """The load that each query would save by itself, and the load of its path."""
    own = np.zeros(len(parts.costs))
    np.maximum.at(own, at, rates)
    now = parts.maxima(own)
    inner, beside = parts.beside(own, now)
    paths = parts.paths[at]
    costs = np.where(paths >= 0, parts.costs[paths], 0.0)
    needs = np.empty(paths.shape)
    needs[:, 0] = np.maximum(inner[at], _of_others(at, rates, own))
    for depth in range(1, paths.shape[1]):
        needs[:, depth] = np.maximum(needs[:, depth - 1], beside[paths[:, depth - 1]])
    return (costs * (now[paths] - needs)).sum(axis=1), costs.sum(axis=1) * rates


def _of_others(at: Ints, rates: Floats, own: Floats) -> Floats:
    """The largest rate among the other queries that end at the same segment."""
    largest: Bools = rates == own[at]
    alone = np.bincount(at[largest], minlength=len(own)) == 1
    second = np.zeros(len(own))
    np.maximum.at(second, at[~largest], rates[~largest])
    return np.where(largest & alone[at], second[at], own[at])
