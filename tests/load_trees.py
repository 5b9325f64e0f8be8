"""Trees of operators and queries over them, at random, that the tests of the planners share."""

from __future__ import annotations

import numpy as np

from slackwater.planners.load import Demand, LoadTree, load_of, nodes_of, prefix_rates


def random_tree(random: np.random.Generator, size: int, roots: float = 0.15) -> LoadTree:
    parent = [-1 if n == 0 or random.random() < roots else int(random.integers(0, n)) for n in range(size)]
    rows = np.exp(random.normal(0, 1.5, size))
    return LoadTree(tuple(parent), tuple(rows.tolist()), tuple(random.uniform(0.2, 2.0, size).tolist()))


def random_queries(random: np.random.Generator, tree: LoadTree, count: int) -> list[Demand]:
    """Queries at any node; most of them hard to answer, some easy."""
    return [
        Demand(
            f"q{n}",
            int(random.integers(0, len(tree.parent))),
            "error",
            weight=float(np.exp(random.normal(0, 0.5))),
            bound=float(random.choice([0.01, 0.05, 0.1])),
            spread=float(np.exp(random.normal(-5, 2.5))),
            bound_constant=float(np.exp(random.normal(-3, 1.2))),
        )
        for n in range(count)
    ]


def full_load(tree: LoadTree, demands: list[Demand]) -> float:
    return load_of(tree, prefix_rates(tree, nodes_of(demands), np.ones(len(demands))))
