"""How much every query gets: priorities, admission, and the least level for those that share the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from slackwater.planners import hoeffding, minimax
from slackwater.planners.admission import suspended
from slackwater.planners.chance import least_level, tightness
from slackwater.planners.load import (
    Allocation,
    Demand,
    Floats,
    LoadTree,
    Split,
    fits,
    load_of,
    nodes_of,
    prefix_rates,
)

__all__ = ["Allocation", "Demand", "LoadTree", "SplitName", "allocate"]

SplitName = Literal["minimax", "hoeffding", "input"]


def allocate(
    tree: LoadTree,
    demands: Sequence[Demand],
    capacity: float,
    *,
    split: SplitName = "minimax",
    share: float = 0.5,
    margin: float = 0.0,
) -> Allocation:
    """The rates of all queries at the least level whose load fits the capacity.

    Guarantee: the load fits unless the fixed load alone does not; whoever must be exact has rate 1 or is
    suspended; nobody else runs below its least rate; the same input gives the same answer. ``share`` is the
    chance that all stay below the level (minimax), ``margin`` is added to the constants (hoeffding).

    Reference: Babcock, Datar, Motwani (ICDE 2004), sections 3 and 4. Priorities are lexicographic: the rest
    runs only if all above are exact, and is suspended otherwise. If even least rates do not fit, queries
    are suspended: the lowest priority first, then by load saved per unit of weight, exact ones last. The
    level speaks of those that run.

    >>> tree = LoadTree((-1, 0, 0), (100.0, 100.0, 100.0), (0.01, 0.01, 0.01))
    >>> first = Demand("first", 1, "rows", priority=1)
    >>> found = allocate(tree, [first, Demand("second", 2, "rows")], 1.0)
    >>> found.level, found.rates, found.suspended
    (0.5, (0.5, 0.5, 0.0), ('second',))
    """
    if not 0 < share < 1:
        raise ValueError(f"The share must be between 0 and 1, not {share}.")
    if len({demand.query for demand in demands}) < len(demands):
        raise ValueError("Every query has one demand.")
    if not fits(tree.fixed, capacity):
        order = sorted(demands, key=lambda d: (d.kind != "exact", _rank(d)), reverse=True)
        return _allocation(tree, demands, [], Split(0.0, np.zeros(0)), [d.query for d in order], False)
    exact = [demand for demand in demands if demand.kind == "exact"]
    held, lost = _admitted(tree, [], exact, capacity)
    rest = [demand for demand in demands if demand.kind != "exact"]
    found = Split(0.0, np.ones(len(held)))
    running = held
    ranks = sorted({_rank(demand) for demand in rest})
    for place, rank in enumerate(ranks):
        group = [demand for demand in rest if _rank(demand) == rank]
        group, gone = _admitted(tree, running, group, capacity)
        # those above are exact and stay so
        together = [replace(demand, kind="exact") for demand in running] + group
        found = _split(tree, together, capacity, split, share, margin)
        running = running + group
        if gone or (found.rates < 1).any():
            below = [d.query for r in reversed(ranks[place + 1 :]) for d in rest if _rank(d) == r]
            lost = [*below, *gone, *lost]
            break
    return _allocation(tree, demands, running, found, lost, True)


def _rank(demand: Demand) -> float:
    return float("inf") if demand.priority is None else demand.priority


def _admitted(
    tree: LoadTree, kept: list[Demand], group: list[Demand], capacity: float
) -> tuple[list[Demand], list[str]]:
    """Those of a group that can run beside the kept ones, which are exact, and those that cannot."""
    gone: list[int] = []
    left = list(range(len(group)))
    whole = [replace(demand, kind="exact") for demand in kept]
    while left:
        # exact ones have priorities too: the lowest among those left goes first
        least = max(_rank(group[i]) for i in left)
        last = [i for i in left if _rank(group[i]) == least]
        before = [i for i in left if _rank(group[i]) < least]
        out = suspended(tree, [*whole, *(group[i] for i in before)], [group[i] for i in last], capacity)
        gone += [last[i] for i in out]
        if len(out) < len(last) or not before:
            left = [i for i in left if i not in set(gone)]
            break
        left = before
    return [group[i] for i in left], [group[i].query for i in gone]


def _split(
    tree: LoadTree, demands: list[Demand], capacity: float, name: SplitName, share: float, margin: float
) -> Split:
    found: Split | None
    if name == "minimax":
        found = minimax.split(tree, demands, capacity, share=share)
    elif name == "hoeffding":
        found = hoeffding.split(tree, demands, capacity, margin=margin)
    else:
        rates = hoeffding.one_rate(tree, demands, capacity)
        found = None if rates is None else Split(_level(demands, rates, share), rates)
    if found is None:
        raise RuntimeError("After admission the least rates fit.")
    return found


def _level(demands: Sequence[Demand], rates: Floats, share: float) -> float:
    """The level that rates keep, by the measure of minimax."""
    missing: list[float] = [
        d.weight * (1 - r) for d, r in zip(demands, rates.tolist(), strict=True) if d.kind == "rows"
    ]
    return max(least_level(share, tightness(demands), rates), max(missing, default=0.0))


def _allocation(
    tree: LoadTree,
    demands: Sequence[Demand],
    running: Sequence[Demand],
    found: Split,
    lost: Sequence[str],
    fitting: bool,
) -> Allocation:
    rates = prefix_rates(tree, nodes_of(running), found.rates)
    given = dict(zip((demand.query for demand in running), found.rates.tolist(), strict=True))
    return Allocation(
        found.level,
        tuple(rates.tolist()),
        {demand.query: given.get(demand.query, 0.0) for demand in demands},
        load_of(tree, rates),
        tuple(lost),
        fitting,
    )
