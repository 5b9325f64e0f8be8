"""The paper's objective for window drops: the most answers delivered in total, instead of the least level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from slackwater.planners.load import Demand, LoadTree


@dataclass(frozen=True)
class DropDemand:
    """A window drop in a load tree: where a share that is left out lowers the rate, and by how much."""

    point: str
    nodes: Mapping[int, float]
    """By node: the gain."""
    most: float
    queries: int = 1


def most_delivered(
    tree: LoadTree, others: Sequence[tuple[Demand, float]], drops: Sequence[DropDemand], capacity: float
) -> dict[str, float] | None:
    """The shares to leave out so that most answers are delivered, given the rates that others have.

    Guarantee: the load fits and no drop leaves out more than it may; the sum over all queries of the share
    that is delivered is the largest there is (a linear program). None where it does not fit at all.
    Reference: Tatbul, Zdonik (VLDB 2006), section 2.3: the total percent of tuples delivered.

    >>> tree = LoadTree((-1, -1), (1.0, 3.0), (1.0, 1.0))
    >>> dear, cheap = DropDemand("dear", {1: 1.0}, 0.9), DropDemand("cheap", {0: 1.0}, 0.9)
    >>> most_delivered(tree, [], [dear, cheap], 2.0)
    {'dear': 0.6667, 'cheap': 0.0}
    """
    nodes, count = len(tree.parent), len(drops)
    least = np.zeros(nodes)
    for demand, rate in others:
        least[demand.node] = max(least[demand.node], rate)
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    bounds: list[float] = []

    def add(row: Mapping[int, float], bound: float) -> None:
        for column, value in row.items():
            rows.append(len(bounds))
            columns.append(column)
            values.append(value)
        bounds.append(bound)

    for node, parent in enumerate(tree.parent):
        if parent >= 0:
            # a node sees at least what those below it see
            add({count + node: 1.0, count + parent: -1.0}, 0.0)
    for number, drop in enumerate(drops):
        for node, gain in drop.nodes.items():
            add({count + node: -1.0, number: -gain}, -1.0)
    add({count + node: float(cost) for node, cost in enumerate(tree.costs)}, capacity - tree.fixed)
    matrix: Any = coo_array((values, (rows, columns)), shape=(len(bounds), count + nodes)).tocsr()
    # a little on the rates, so that none is higher than it need be
    wanted = np.concatenate([np.array([float(d.queries) for d in drops]), np.full(nodes, 1e-9)])
    limits = [(0.0, d.most) for d in drops] + [(float(low), 1.0) for low in least]
    found = linprog(wanted, A_ub=matrix, b_ub=np.array(bounds), bounds=limits, method="highs")
    if not found.success or found.x is None:
        return None
    return {drop.point: max(0.0, round(float(found.x[number]), 4)) for number, drop in enumerate(drops)}
