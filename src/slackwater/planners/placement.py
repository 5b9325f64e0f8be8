"""Where to shed: thresholds in the tree that give every query its rate at the least load.

Reference: Babcock, Datar, Motwani: Load Shedding for Aggregation Queries over Data Streams (ICDE 2004),
Algorithm 1, and section 4.3 for shedders that cost something. The details of the latter were left to the
paper's full version; this is our reading of it.

All shedders compare the same random number of a row with a threshold, so a node's sample at rate P is part
of its parent's: what the paper calls p, the share of arriving rows that passes, is P(node) / P(above).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from slackwater.planners.load import Floats, LoadTree, load_of, prefix_rates


def shedders(tree: LoadTree, rates: Sequence[float]) -> dict[int, float]:
    """Algorithm 1: the share p that each shedder lets pass, by the node it stands before.

    Guarantee: every node runs at its prefix rate, the least that the queries below it allow, so that no
    other placement has less load as long as shedders cost nothing. A branch that nobody needs has p = 0
    at its top and nothing below.

    >>> shedders(LoadTree((-1, 0, 0), (1,) * 3, (1,) * 3), (0.8, 0.8, 0.4))
    {0: 0.8, 2: 0.5}
    """
    found = {}
    for node, parent in enumerate(tree.parent):
        above = 1.0 if parent < 0 else rates[parent]
        if rates[node] < above:
            found[node] = rates[node] / above
    return found


@dataclass(frozen=True)
class Placement:
    """Which thresholds are tested, and what the batch costs with them."""

    shedders: Mapping[int, float]
    """By node: the share of arriving rows that passes."""
    own: Mapping[int, float]
    """By position of the query: the share that passes a test of its own at the end of its path."""
    rates: tuple[float, ...]
    """The rate at which each node runs: its prefix rate or, where no test is worth it, more."""
    load: float


def place(tree: LoadTree, ends: Sequence[tuple[int, float]], shedder_seconds: float) -> Placement:
    """The placement of least load when every shedder costs time for each row that reaches it.

    ``ends`` are the nodes at which queries end, with their rates. Guarantee: every query has exactly its
    rate, and no other choice of nodes to shed at has less load. A node without a shedder runs at the rate
    of the nearest one above; a query whose node runs at more than its rate is tested once more by itself.
    A branch that nobody needs is not run, which takes no test.

    Variant: dynamic program over the nearest shedder above, in O(nodes · depth). What happens below a node
    depends on the rate that arrives, and that is the prefix rate of one of its ancestors, or 1.

    >>> tree = LoadTree((-1, 0), (100.0, 100.0), (0.01, 0.01))
    >>> place(tree, [(0, 0.9), (1, 0.8)], 0.0).shedders
    {0: 0.9, 1: 0.888888888888889}
    >>> tree = LoadTree((-1, 0, 0), (1000.0, 10.0, 10.0), (0.001, 0.01, 0.01))
    >>> place(tree, [(1, 0.9), (2, 0.4)], 0.001).shedders  # one before the first would cost more
    {1: 0.9, 2: 0.4}
    """
    rates = prefix_rates(tree, np.array([n for n, _ in ends], dtype=np.int64), np.array([r for _, r in ends]))
    own = _own_rates(tree, ends)
    tests = shedder_seconds * np.array(tree.rows, dtype=np.float64)
    arriving = _arriving(tree, rates)
    # below[x][i]: the load of all children of x if x runs at the i-th rate of arriving[x] + (rates[x],)
    below: list[Floats] = [np.zeros(len(above) + 1) for above in arriving]
    passing: list[Floats] = below.copy()
    testing: list[Floats] = below.copy()
    for node in reversed(range(len(tree.parent))):
        if rates[node] == 0:
            continue
        above = arriving[node]
        run = np.append(above, rates[node])
        asking = (own[node][:, None] < run[None, :]).sum(axis=0)
        at_rate = tree.costs[node] * run + tests[node] * run * asking + below[node]
        passing[node] = at_rate[:-1]
        # a test that drops nothing is none: it could only cost
        testing[node] = np.where(rates[node] < above, tests[node] * above + at_rate[-1], np.inf)
        if tree.parent[node] >= 0:
            below[tree.parent[node]] += np.minimum(passing[node], testing[node])
    return _chosen(tree, ends, shedder_seconds, rates, arriving, passing, testing)


def _own_rates(tree: LoadTree, ends: Sequence[tuple[int, float]]) -> list[Floats]:
    found: list[list[float]] = [[] for _ in tree.parent]
    for node, rate in ends:
        if rate > 0:  # who gets nothing is suspended, and asks for no test
            found[node].append(rate)
    return [np.array(rates) for rates in found]


def _arriving(tree: LoadTree, rates: Floats) -> list[Floats]:
    """The rates that may arrive at each node: 1, or what one of its ancestors lets pass."""
    found: list[Floats] = []
    for parent in tree.parent:
        found.append(np.ones(1) if parent < 0 else np.append(found[parent], rates[parent]))
    return found


def _chosen(
    tree: LoadTree,
    ends: Sequence[tuple[int, float]],
    shedder_seconds: float,
    rates: Floats,
    arriving: list[Floats],
    passing: list[Floats],
    testing: list[Floats],
) -> Placement:
    """Follow the choices from the roots down."""
    index = [0] * len(tree.parent)
    runs = np.zeros(len(tree.parent))
    found: dict[int, float] = {}
    spent = 0.0
    for node, parent in enumerate(tree.parent):
        at = 0 if parent < 0 else index[parent]
        above = float(arriving[node][at])
        if rates[node] == 0:
            if parent < 0 or rates[parent] > 0:
                found[node] = 0.0
        elif testing[node][at] < passing[node][at]:
            index[node], runs[node] = len(arriving[node]), rates[node]
            found[node] = float(rates[node]) / above
            spent += shedder_seconds * tree.rows[node] * above
        else:
            index[node], runs[node] = at, above
    own: dict[int, float] = {}
    for position, (node, rate) in enumerate(ends):
        if 0 < rate < runs[node]:
            own[position] = rate / float(runs[node])
            spent += shedder_seconds * tree.rows[node] * float(runs[node])
    return Placement(found, own, tuple(runs.tolist()), load_of(tree, runs) + spent)
