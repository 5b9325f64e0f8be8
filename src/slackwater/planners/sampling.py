"""Rates for the next batch: the plan and the statistics made a load equation, and its least level found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slackwater.language.contracts import Error
from slackwater.plan.algebra import algebra
from slackwater.plan.model import TimeWindow
from slackwater.plan.operators import OperatorNode
from slackwater.plan.passes import passes_of
from slackwater.plan.slots import Slots, operators
from slackwater.plan.tables import Plan
from slackwater.planners.level import SplitName, allocate
from slackwater.planners.load import Allocation, Demand, LoadTree
from slackwater.statistics.snapshot import QueryStatistics, StreamStatistics

FLOOR_ROWS = 1.0
"""A rate that leaves a query fewer rows in a window than this is not worth running."""
FLOOR_AT_MOST = 0.02
"""A query of few rows is run all the same: its intervals say how little is known."""
HORIZON = 60_000_000
"""A set-valued query has no window; its rows of so many microseconds count."""


@dataclass(frozen=True)
class StreamLoad:
    """A stream with what is known of it and the size of the batch to be planned."""

    plan: Plan
    nodes: tuple[OperatorNode, ...]
    slots: Slots
    statistics: StreamStatistics
    size: float
    cheap: bool
    """Every pass reads the source anew; otherwise the batch is read once and kept."""
    share: float = 1.0
    """How much of the batch is read."""


@dataclass(frozen=True)
class Rates:
    """What the planner found: rates below 1 by stream and slot."""

    allocation: Allocation
    by_stream: tuple[Mapping[str, float], ...]


def terms_of(load: StreamLoad, rates: Mapping[str, float], table: str | None = None) -> dict[str, float]:
    """How much of each cost term a batch has at given rates by slot: of one table's passes, or of all."""
    plan, size = load.plan, load.size * load.share
    root = max((rates.get(s.id, 1.0) for s in load.slots.all), default=1.0)
    found: dict[str, float] = {}

    def add(name: str, amount: float) -> None:
        if amount:
            found[name] = found.get(name, 0.0) + amount

    first = True
    stream = load.statistics.stream
    for id_, held in plan.tables_on(stream):
        passes = passes_of(plan, held)
        reads = passes if load.cheap else (1 if first else 0)
        first = False
        if table is not None and id_ != table:
            continue
        add("pass", passes)
        add("read", reads * size)
        add("row", passes * size * root)
        for slot_id, amount in _aggregates(load, id_).items():
            add("test", amount * size * rates.get(slot_id, 1.0))
        for slot_id, amount in _python(load, id_).items():
            add(f"python {slot_id}", amount * size * rates.get(slot_id, 1.0))
    return found


def _aggregates(load: StreamLoad, table_id: str) -> dict[str, float]:
    """By slot: aggregates of a table that test a row, for each row that arrives."""
    plan, table = load.plan, load.plan.tables[table_id]
    found: dict[str, float] = {}
    if table.signature is not None:
        for slot in load.slots.all:
            if slot.place[1] == table_id:
                share = _query_share(load, slot.steps)
                found[slot.id] = share * len(plan.columns[table_id])
        return found
    for column in plan.columns[table_id]:
        path = column.path or table.path
        known = load.slots.places.get((operators(path), "", None)) if path is not None else None
        if known is not None:
            found[known.id] = found.get(known.id, 0.0) + 1.0
    return found


def _query_share(load: StreamLoad, steps: Sequence[str]) -> float:
    known = [load.statistics.queries[n].share for n in steps if n in load.statistics.queries]
    return max(known, default=0.1)


def _python(load: StreamLoad, table_id: str) -> dict[str, float]:
    """By slot: rows that a Python function is called for, for each row that arrives."""
    table = load.plan.tables[table_id]
    if table.path is None:
        return {}
    known = load.slots.places.get((operators(table.path), "", None))
    if known is None:
        return {}
    return {known.id: called} if (called := python_share(load, known.id)) > 0 else {}


def python_share(load: StreamLoad, slot_id: str) -> float:
    """Rows that reach the first Python function of a slot's path, for each that arrives; 0 without one."""
    end = next((i for i, n in enumerate(load.nodes) if slot_id in n.slots), None)
    while end is not None and end >= 0:
        node = load.nodes[end]
        above = load.nodes[node.parent] if node.parent >= 0 else None
        if node.kind == "python" and (above is None or above.kind != "python"):
            return load.statistics.passed.get(node.parent, 1.0) if node.parent > 0 else 1.0
        end = node.parent
    return 0.0


def plan_rates(
    loads: Sequence[StreamLoad], capacity: float, *, split: SplitName = "minimax", margin: float = 0.0
) -> Rates:
    """The least level at which the batches of all streams fit the capacity (seconds of executor time)."""
    parent: list[int] = []
    rows: list[float] = []
    seconds: list[float] = []
    demands: list[Demand] = []
    fixed = 0.0
    places: list[dict[str, int]] = []
    for number, load in enumerate(loads):
        costs = load.statistics.costs
        everything = terms_of(load, {})
        size = load.size * load.share
        fixed += sum(costs.get(t, 0.0) * everything.get(t, 0.0) for t in ("pass", "read"))
        root = len(parent)
        parent.append(-1)
        rows.append(size)
        seconds.append(costs.get("row", 0.0) * everything.get("row", 0.0) / max(size, 1e-9))
        own: dict[str, int] = {}
        each: dict[str, float] = {}
        for id_, _ in load.plan.tables_on(load.statistics.stream):
            for slot_id, amount in _aggregates(load, id_).items():
                each[slot_id] = each.get(slot_id, 0.0) + amount * costs.get("test", 0.0)
            for slot_id, amount in _python(load, id_).items():
                each[slot_id] = each.get(slot_id, 0.0) + amount * costs.get(f"python {slot_id}", 0.0)
        for slot in load.slots.all:
            own[slot.id] = len(parent)
            parent.append(root)
            rows.append(size)
            seconds.append(each.get(slot.id, costs.get("test", 0.0)))
        places.append(own)
        demands += demands_of(load, own, str(number))
    tree = LoadTree(tuple(parent), tuple(rows), tuple(seconds), fixed)
    allocation = allocate(tree, demands, capacity, split=split, margin=margin)
    by_stream = tuple(
        {
            slot.id: allocation.rates[own[slot.id]]
            for slot in load.slots.sheddable
            if allocation.rates[own[slot.id]] < 1.0
        }
        for load, own in zip(loads, places, strict=True)
    )
    return Rates(allocation, by_stream)


def worst_loss(load: StreamLoad, rates: Mapping[str, float], alike: float) -> float:
    """The largest loss to be expected of any query: one standard error over what its contract allows.

    Where only a part of the batch is read, rows come in blocks, which scatter ``alike`` times as much.
    """
    places = {slot.id: 0 for slot in load.slots.all}
    slots = {name: slot.id for slot in load.slots.all for name in slot.steps}
    worst = 0.0
    for demand in demands_of(replace(load, share=1.0), places):
        rate = rates.get(slots[demand.query], 1.0)
        if demand.kind == "exact":
            continue
        if rate <= 0:
            return math.inf
        if demand.kind == "rows":
            worst = max(worst, demand.weight * (1 - rate * load.share))
            continue
        blocks = alike * (1 - load.share) / load.share
        within = (1 - rate) / rate / load.share
        worst = max(worst, demand.weight / demand.bound * math.sqrt(demand.spread * (blocks + within)))
    return worst


def demands_of(load: StreamLoad, places: Mapping[str, int], prefix: str = "") -> list[Demand]:
    """What the queries of a stream ask of their slots."""
    found = []
    plan = load.plan
    for slot in load.slots.all:
        for name in slot.steps:
            query = f"{prefix}/{name}" if prefix else name
            contract = plan.catalog.contracts.get(name)
            if not slot.sheddable or not isinstance(contract, Error):
                found.append(Demand(query, places[slot.id], "exact"))
                continue
            step = plan.steps[name].step
            known = load.statistics.queries.get(name, QueryStatistics(0.1))
            length = step.window.size if isinstance(step.window, TimeWindow) else HORIZON
            arriving = max(load.statistics.rate * length / 1e6 * load.share, 1.0)
            finals = [
                _final(call.function, algebra(call, plan.catalog.functions).final) for call in step.calls
            ]
            expected = max(known.share * arriving, 1e-9)
            found.append(
                Demand(
                    query,
                    places[slot.id],
                    "error" if step.aggregates else "rows",
                    weight=contract.weight,
                    priority=contract.priority,
                    bound=contract.bound,
                    spread=max((known.spread(f, arriving) for f in finals), default=1 / expected),
                    bound_constant=known.constant(arriving, contract.confidence),
                    floor=min(FLOOR_AT_MOST, max(1e-4, FLOOR_ROWS / expected)),
                )
            )
    return found


def _final(function: str, final: str) -> str:
    return "percentile" if function == "percentile" else final
