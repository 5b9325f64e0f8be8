"""What sheds, what it costs, and what is asked of it: the terms in which load shedding is planned.

Reference: Babcock, Datar, Motwani: Load Shedding for Aggregation Queries over Data Streams (ICDE 2004),
equation 2.1. A query's *rate* is the share of its rows that it sees; a node's *prefix rate* is the largest
rate of the queries below it, since every row that one of them needs must pass. With one random number per
row, and a threshold on it at each node, the samples are nested and no row passes for nobody.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

DemandKind = Literal["error", "rows", "exact"]

ROUNDING = 1e-9
"""A load may exceed the capacity by this share of it: sums of floats differ in their last digits."""


@dataclass(frozen=True)
class LoadTree:
    """The operators of all streams with what they cost in one batch; a node comes after its parent.

    The load at prefix rates R is ``fixed + sum(rows[x] * seconds[x] * R[x])``.
    """

    parent: tuple[int, ...]
    """-1 for the root of a stream."""
    rows: tuple[float, ...]
    """Rows that would enter the node in a batch if nothing were shed."""
    seconds: tuple[float, ...]
    """Time per row that enters."""
    fixed: float = 0.0
    """What no threshold can save: the batch itself, reading its rows."""

    def __post_init__(self) -> None:
        if not len(self.parent) == len(self.rows) == len(self.seconds):
            raise ValueError("A load tree has one parent, one number of rows and one time for each node.")
        if any(not -1 <= parent < node for node, parent in enumerate(self.parent)):
            raise ValueError("A node comes after its parent.")
        numbers = (*self.rows, *self.seconds, self.fixed)
        if not all(value >= 0 and math.isfinite(value) for value in numbers):
            raise ValueError("Rows and times are finite and not negative.")

    @cached_property
    def costs(self) -> Floats:
        """Seconds that each node takes at rate 1."""
        return np.array(self.rows, dtype=np.float64) * np.array(self.seconds, dtype=np.float64)

    @cached_property
    def levels(self) -> tuple[tuple[Ints, Ints], ...]:
        """Nodes and their parents by depth, roots first: what is done for a depth at once is fast."""
        depths: list[int] = []
        for parent in self.parent:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        found: list[list[int]] = [[] for _ in range(max(depths, default=-1) + 1)]
        for node, depth in enumerate(depths):
            found[depth].append(node)
        parents = np.array(self.parent, dtype=np.int64)
        return tuple((nodes, parents[nodes]) for nodes in map(np.array, found))


@dataclass(frozen=True)
class Demand:
    """What one query asks of the node at which its path ends."""

    query: str
    node: int
    kind: DemandKind
    """An aggregate with an ERROR, a query that delivers rows, or one that is never shed."""
    weight: float = 1.0
    priority: int | None = None
    """1 is the highest, None the lowest."""
    bound: float = 0.05
    """The x of ERROR x%. With a bound of 0 the query can only be exact."""
    spread: float = 0.0
    """r: the relative variance of the estimate at rate P is r * (1 - P) / P."""
    bound_constant: float = 0.0
    """C of Proposition 3.1, without margin: the error exceeds C/P with the paper's small probability."""
    floor: float = 1e-4
    """The least rate worth running."""
    worth: float | None = None
    """What giving it up would cost, where that is not its weight."""

    def __post_init__(self) -> None:
        if not 0 < self.floor <= 1:
            raise ValueError(f"{self.query}: the least rate must be above 0 and at most 1, not {self.floor}.")
        if not 0 < self.weight < math.inf:
            raise ValueError(f"{self.query}: a weight must be finite and above 0, not {self.weight}.")
        if not all(0 <= v < math.inf for v in (self.bound, self.spread, self.bound_constant)):
            raise ValueError(f"{self.query}: bound, spread and constant are finite and not negative.")


@dataclass(frozen=True)
class Allocation:
    """How much every query sees in a batch."""

    level: float
    """The loss level of the queries that run; 0: none of them is shed. Suspended ones do not count."""
    rates: tuple[float, ...]
    """Prefix rate by node: the largest rate below it, 0 where nothing below it runs."""
    by_query: Mapping[str, float]
    """The rate of every query; 0 for a suspended one."""
    load: float
    suspended: tuple[str, ...] = ()
    """In the order in which they were given up."""
    fits: bool = True
    """False only if the fixed load alone exceeds the capacity."""


@dataclass(frozen=True)
class Split:
    """What a split function finds: the least level, and the rate of each demand in their order."""

    level: float
    rates: Floats = field(repr=False)


def prefix_maxima(tree: LoadTree, own: Floats) -> Floats:
    """The largest value at or below each node.

    >>> prefix_maxima(LoadTree((-1, 0, 0), (1,) * 3, (1,) * 3), np.array([0.0, 0.5, 0.2])).tolist()
    [0.5, 0.5, 0.2]
    """
    found = own.copy()
    for nodes, parents in reversed(tree.levels[1:]):
        np.maximum.at(found, parents, found[nodes])
    return found


def prefix_rates(tree: LoadTree, nodes: Ints, rates: Floats) -> Floats:
    """Prefix rates where queries end at nodes with rates."""
    own = np.zeros(len(tree.parent))
    np.maximum.at(own, nodes, rates)
    return prefix_maxima(tree, own)


def nodes_of(demands: Sequence[Demand]) -> Ints:
    return np.array([demand.node for demand in demands], dtype=np.int64)


def floors_of(demands: Sequence[Demand]) -> Floats:
    """The least rates at which the queries can run: 1 for those that must be exact."""
    return np.array([1.0 if must_be_exact(demand) else demand.floor for demand in demands], dtype=np.float64)


def must_be_exact(demand: Demand) -> bool:
    return demand.kind == "exact" or (demand.kind == "error" and demand.bound == 0 and demand.spread > 0)


def load_of(tree: LoadTree, rates: Floats) -> float:
    """Seconds that a batch takes at prefix rates.

    >>> load_of(LoadTree((-1, 0), (10, 5), (0.1, 0.2), fixed=1.0), np.array([0.5, 0.1]))
    1.6
    """
    return tree.fixed + float(tree.costs @ rates)


def fits(load: float, capacity: float) -> bool:
    return load <= capacity * (1 + ROUNDING)


def raised(tree: LoadTree, nodes: Ints, rates: Floats, capacity: float) -> Floats:
    """The rates after everybody has got back the same share of what is dropped, as much as fits.

    >>> tree = LoadTree((-1, -1), (1.0, 1.0), (1.0, 1.0))
    >>> raised(tree, np.array([0, 1]), np.array([0.0, 0.5]), 1.0).round(3).tolist()
    [0.333, 0.667]
    """
    least = prefix_rates(tree, nodes, rates)
    most = prefix_rates(tree, nodes, np.ones(len(nodes)))
    # prefix rates of raised rates are raised prefix rates, so the load is linear in the share
    gap = load_of(tree, most) - load_of(tree, least)
    share = (capacity - load_of(tree, least)) / gap if gap > 0 else 1.0
    share = min(max(share, 0.0), 1.0)
    return rates + share * (1 - rates)
