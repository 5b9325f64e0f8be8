"""Rates for the next batch: the plan and the statistics made a load equation, and its least level found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from slackwater.language.contracts import Error
from slackwater.plan.algebra import algebra
from slackwater.plan.model import TimeWindow
from slackwater.plan.operators import OperatorNode
from slackwater.plan.passes import passes_of
from slackwater.plan.slots import Slots, operators, rare
from slackwater.plan.tables import Plan
from slackwater.planners.level import SplitName, allocate
from slackwater.planners.load import Allocation, Demand, LoadTree, load_of, nodes_of, prefix_rates
from slackwater.planners.most_delivered import DropDemand, most_delivered
from slackwater.planners.window_level import WindowDemand, gains_of, window_demands
from slackwater.planners.window_needs import points_of
from slackwater.statistics.snapshot import QueryStatistics, StreamStatistics

FLOOR_ROWS = 1.0
"""A rate that leaves a query fewer rows in a window than this is not worth running."""
FLOOR_AT_MOST = 0.02
"""A query of few rows is run all the same: its intervals say how little is known."""
HEAVY = 2.0
"""From this mean square over squared mean on, values have a tail worth keeping."""
GAIN_OF_SIZE = 0.95
UNSHEDDABLE = ("pass", "read", "block")
"""Terms of a batch that no threshold makes less: a pass, a row read, a row read in a part of the batch.

Reading scattered blocks costs more for a row than reading all, and is learnt by itself.
"""
Objective = Literal["minimax", "delivered"]
"""The least largest loss, or the most answers delivered in all."""
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
    windows: tuple[WindowDemand, ...] = ()
    """Window drops, where it is to be planned how much they leave out."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """By slot whose windows may be left out, where that is decided: the part of the batch that it needs."""
    shut: frozenset[str] = frozenset()
    """Window drops all of whose queries are given up."""

    @property
    def left_out(self) -> frozenset[str]:
        """Slots that window drops decide on."""
        return frozenset(slot for w in self.windows for slot in w.gains) | self.parts.keys()


@dataclass(frozen=True)
class Rates:
    """What the planner found: rates below 1 by stream and slot, and a τ for slots kept by size."""

    allocation: Allocation
    by_stream: tuple[Mapping[str, float], ...]
    sizes: tuple[Mapping[str, float], ...] = ()
    overrun: bool = False
    """Whether what must be exact takes more than there is."""
    missing: Mapping[str, float] = field(default_factory=dict)
    """By window drop: the share that it leaves out."""


def with_windows(load: StreamLoad, after: Mapping[str, float] | None = None) -> StreamLoad:
    """A stream with the window drops that its queries allow; ``after`` in seconds by drop."""
    points = points_of(load.plan, load.statistics.stream)
    gains = gains_of(load.plan, load.slots, points)
    return replace(load, windows=window_demands(load.plan, points, gains, after or {}))


def terms_of(load: StreamLoad, rates: Mapping[str, float], table: str | None = None) -> dict[str, float]:
    """How much of each cost term a batch has at given rates by slot: of one table's passes, or of all."""
    plan, size = load.plan, load.size * load.share
    rates = {**load.parts, **rates}
    drawn = [max(_both(rates, s.id)) for s in load.slots.all if s.id not in load.parts]
    # rows that a window needs are kept beside those that a sample draws
    root = (
        min(1.0, max(drawn, default=0.0) + max(load.parts.values(), default=0.0)) if load.slots.all else 1.0
    )
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
        add("read" if load.share >= 1.0 else "block", reads * size)
        add("row", passes * size * root)
        for slot_id, amount in _aggregates(load, id_).items():
            add("test", amount * size * _rate(load, rates, slot_id))
        for slot_id, amount in _lookups(load, id_).items():
            add("lookup", amount * size * _rate(load, rates, slot_id))
        for slot_id, amount in _python(load, id_).items():
            add(f"python {slot_id}", amount * size * rates.get(slot_id, 1.0))
    for name, slot_id in _emitting(load).items():
        reads = 1 if load.cheap or first else 0
        first = False
        if table is not None and name != table:
            continue
        kept = size * rates.get(slot_id, 1.0)
        add("pass", 1)
        add("read" if load.share >= 1.0 else "block", reads * size)
        add("row", size * root)
        add("emit", kept * _path_share(load, slot_id))
        add("lookup", kept * len(plan.steps[name.lower()].step.path.lookups))
        add(f"python {slot_id}", kept * python_share(load, slot_id))
    return found


def reading_seconds(load: StreamLoad) -> float:
    """Executor seconds of the passes over a batch and of reading it, at any rates."""
    terms, costs = terms_of(load, {}), load.statistics.costs
    return sum(costs.get(term, 0.0) * terms.get(term, 0.0) for term in UNSHEDDABLE)


def _emitting(load: StreamLoad) -> dict[str, str]:
    """The set-valued queries of a stream, each a pass of its own, with their slots."""
    return {
        step.step.name: load.slots.by_step[step.step.name.lower()].id
        for step in load.plan.steps_on(load.statistics.stream)
        if not step.step.aggregates and step.step.name.lower() in load.slots.by_step
    }


def _path_share(load: StreamLoad, slot_id: str) -> float:
    """Rows that get to the end of a slot's path, as far along as they are counted, for each that arrives."""
    place = next((i for i, node in enumerate(load.nodes) if slot_id in node.slots), 0)
    while place > 0 and place not in load.statistics.passed:
        place = load.nodes[place].parent
    return load.statistics.passed.get(place, 0.1)


def _both(rates: Mapping[str, float], slot_id: str) -> tuple[float, float]:
    """The rate of a slot, and that of its rare groups."""
    own = rates.get(slot_id, 1.0)
    return own, rates.get(rare(slot_id), own)


def _rate(load: StreamLoad, rates: Mapping[str, float], slot_id: str) -> float:
    """The share of its rows that a slot keeps, frequent and rare groups together."""
    own, rarely = _both(rates, slot_id)
    told = load.statistics.strata.get(slot_id)
    if told is None:
        return own
    part = told.share / max(told.share + told.rare_share, 1e-12)
    return part * own + (1 - part) * rarely


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


def _lookups(load: StreamLoad, table_id: str) -> dict[str, float]:
    """By slot: how often a row is looked up for it; a lookup that several slots need is theirs in parts."""
    plan, table = load.plan, load.plan.tables[table_id]
    wanting: dict[str, set[str]] = {}
    if table.signature is not None:
        members = {slot.id for slot in load.slots.all if slot.place[1] == table_id}
        wanting = {lookup.alias: members for lookup in table.signature.lookups}
    for column in plan.columns[table_id]:
        path = column.path or table.path
        known = load.slots.places.get((operators(path), "", None)) if path is not None else None
        for lookup in path.lookups if path is not None and known is not None else ():
            assert known is not None
            wanting.setdefault(lookup.alias, set()).add(known.id)
    found: dict[str, float] = {}
    for slots in wanting.values():
        for slot_id in slots:
            found[slot_id] = found.get(slot_id, 0.0) + 1 / len(slots)
    return found


def python_share(load: StreamLoad, slot_id: str) -> float:
    """Rows that reach the first Python function of a slot, for each that arrives; 0 without one."""
    end = next((i for i, n in enumerate(load.nodes) if slot_id in n.slots), None)
    while end is not None and end >= 0:
        node = load.nodes[end]
        above = load.nodes[node.parent] if node.parent >= 0 else None
        if node.kind == "python" and (above is None or above.kind != "python"):
            return load.statistics.passed.get(node.parent, 1.0) if node.parent > 0 else 1.0
        end = node.parent
    return _path_share(load, slot_id) if load.slots.by_id[slot_id].python_last else 0.0


def plan_rates(
    loads: Sequence[StreamLoad],
    capacity: float,
    *,
    split: SplitName = "minimax",
    margin: float = 0.0,
    objective: Objective = "minimax",
) -> Rates:
    """The least level at which the batches of all streams fit the capacity (seconds of executor time).

    What must be exact runs though it takes more than there is, and leaves the others nothing.

    Sums of values with heavy tails may keep rows in proportion to their size, where that leaves a lower
    level: then all rows must be read to know it, so nothing is saved before the tests.

    With the objective ``delivered``, window drops share what they leave out so that most answers are
    delivered in all; what others get is what the least level gives them.
    """
    plain, loads = _admitted(loads, capacity, split, margin, objective)
    # of blocks it is not known how many of the large rows lie in those that are not read
    heavy = frozenset(slot for load in loads if load.share >= 1.0 for slot in heavy_tailed(load))
    if not heavy or split != "minimax":
        return plain
    sized = _plan(loads, capacity, split, margin, heavy, objective)
    worse = sized.allocation.level > GAIN_OF_SIZE * plain.allocation.level
    sized = replace(sized, missing={**plain.missing, **sized.missing})
    return plain if worse or sized.allocation.suspended or not sized.allocation.fits else sized


def _admitted(
    loads: Sequence[StreamLoad], capacity: float, split: SplitName, margin: float, objective: Objective
) -> tuple[Rates, Sequence[StreamLoad]]:
    """The plan after window drops have been shut one by one, until no other must be; and what is left.

    A drop stands for the work of several nodes: once one of them cannot be done, none of them is.
    """
    shut: dict[str, float] = {}
    while True:
        found = _plan(loads, capacity, split, margin, frozenset(), objective)
        lost = [q.split("@")[0].partition("/")[2] for q in found.allocation.suspended]
        gone = next((q for q in lost if q in found.missing and q not in shut), None)
        if gone is None:
            return replace(found, missing={**found.missing, **shut}), loads
        shut[gone] = 1.0
        loads = [
            replace(load, shut=load.shut | {gone}) if any(w.point == gone for w in load.windows) else load
            for load in loads
        ]


def heavy_tailed(load: StreamLoad) -> dict[str, float]:
    """Slots that gain from keeping rows by size, each with the mean of what it sums."""
    found = {}
    for slot in load.slots.sizable:
        known = [load.statistics.queries.get(name) for name in slot.steps]
        if load.cheap and all(q is not None and q.second >= HEAVY and q.mean for q in known):
            found[slot.id] = max(q.mean for q in known if q is not None and q.mean)
    return found


def _plan(
    loads: Sequence[StreamLoad],
    capacity: float,
    split: SplitName,
    margin: float,
    heavy: frozenset[str],
    objective: Objective,
) -> Rates:
    parent: list[int] = []
    drops: dict[str, DropDemand] = {}
    rows: list[float] = []
    seconds: list[float] = []
    demands: list[Demand] = []
    fixed = 0.0
    places: list[dict[str, int]] = []
    for number, load in enumerate(loads):
        costs = load.statistics.costs
        everything = terms_of(load, {})
        size = load.size * load.share
        fixed += reading_seconds(load)
        root = len(parent)
        parent.append(-1)
        rows.append(size)
        seconds.append(costs.get("row", 0.0) * everything.get("row", 0.0) / max(size, 1e-9))
        own: dict[str, int] = {}
        each: dict[str, float] = {}
        for id_, _ in load.plan.tables_on(load.statistics.stream):
            for slot_id, amount in _aggregates(load, id_).items():
                each[slot_id] = each.get(slot_id, 0.0) + amount * costs.get("test", 0.0)
            for slot_id, amount in _lookups(load, id_).items():
                each[slot_id] = each.get(slot_id, 0.0) + amount * costs.get("lookup", 0.0)
            for slot_id, amount in _python(load, id_).items():
                each[slot_id] = each.get(slot_id, 0.0) + amount * costs.get(f"python {slot_id}", 0.0)
        for name, slot_id in _emitting(load).items():
            each[slot_id] = each.get(slot_id, 0.0) + _path_share(load, slot_id) * costs.get("emit", 0.0)
            each[slot_id] += python_share(load, slot_id) * costs.get(f"python {slot_id}", 0.0)
            lookups = load.plan.steps[name.lower()].step.path.lookups
            each[slot_id] += len(lookups) * costs.get("lookup", 0.0)
        for slot in load.slots.all:
            own[slot.id] = len(parent)
            part = load.parts.get(slot.id)
            # what windows need of a batch that is decided on is there whatever is drawn beside it
            parent.append(root if part is None else -1)
            rows.append(size if part is None else size * part)
            took = each.get(slot.id, costs.get("test", 0.0))
            took += seconds[root] if part is not None else 0.0
            told = load.statistics.strata.get(slot.id) if slot.sheddable else None
            if told is None:
                seconds.append(took)
                continue
            # one node for each kind of group: a row belongs to one of them
            part = told.share / max(told.share + told.rare_share, 1e-12)
            own[rare(slot.id)] = len(parent)
            parent.append(root)
            rows.append(size)
            seconds += [took * part, took * (1 - part)]
        places.append(own)
        demands += demands_of(load, own, str(number), heavy)
        if any(slot.id in heavy for slot in load.slots.all):
            demands.append(Demand(f"{number}/", root, "exact"))
        for window in load.windows:
            if window.point in load.shut:
                continue
            demands += _window_demands(window, own, str(number), len(parent))
            gains = {own[slot]: gain for slot, gain in window.gains.items()} | {len(parent): 1.0}
            drops[f"{number}/{window.point}"] = DropDemand(window.point, gains, window.most, window.queries)
            parent.append(-1)
            rows.append(1.0)
            seconds.append(window.after)
    tree = LoadTree(tuple(parent), tuple(rows), tuple(seconds), fixed)
    exact = [demand for demand in demands if demand.kind == "exact"]
    must = load_of(tree, prefix_rates(tree, nodes_of(exact), np.ones(len(exact)))) if exact else 0.0
    allocation = allocate(tree, demands, max(capacity, must), split=split, margin=margin)
    by_stream = tuple(
        {
            name: allocation.rates[place]
            for slot in load.slots.sheddable
            for name, place in _rates_of(slot.id, own)
            if allocation.rates[place] < 1.0 or rare(slot.id) in own
        }
        for load, own in zip(loads, places, strict=True)
    )
    sizes = tuple(
        {
            slot: mean / rates[slot]
            for slot, mean in heavy_tailed(load).items()
            if slot in heavy and 0 < rates.get(slot, 1.0) < 1.0
        }
        for load, rates in zip(loads, by_stream, strict=True)
    )
    missing = _missing(loads, allocation)
    if objective == "delivered" and drops and allocation.fits:
        running = {q: d for q, d in drops.items() if missing[d.point] < 1.0}
        rest = [(d, allocation.by_query[d.query]) for d in demands if d.query.split("@")[0] not in drops]
        shares = most_delivered(tree, rest, list(running.values()), max(capacity, must))
        missing |= shares or {}
    return Rates(allocation, by_stream, sizes, must > capacity, missing)


def _window_demands(window: WindowDemand, places: Mapping[str, int], prefix: str, after: int) -> list[Demand]:
    """What a window drop asks of the nodes of its slots, and of the one for what comes after them.

    At a level all of them leave out the same share: a rate of 1 - g·m has the loss of m, scaled.
    """
    name = f"{prefix}/{window.point}"

    def demand(query: str, node: int, gain: float) -> Demand:
        # where nothing is saved, nothing is asked
        weight, floor = (window.weight / gain, 1 - gain * window.most) if gain > 1e-6 else (1.0, 1.0)
        return Demand(
            query, node, "rows", weight, window.priority, floor=max(floor, 1e-9), worth=window.worth
        )

    slots = [demand(f"{name}@{slot}", places[slot], gain) for slot, gain in window.gains.items()]
    return [demand(name, after, 1.0), *slots]


def _missing(loads: Sequence[StreamLoad], allocation: Allocation) -> dict[str, float]:
    """By window drop: the share that its rates come from; all of it where it was given up."""
    found: dict[str, float] = {}
    for number, load in enumerate(loads):
        for window in load.windows:
            if window.point in load.shut:
                continue
            name = f"{number}/{window.point}"
            shares = [1 - allocation.by_query[name]]
            shares += [
                (1 - allocation.by_query[f"{name}@{slot}"]) / gain
                for slot, gain in window.gains.items()
                if gain > 1e-6
            ]
            lost = any(q == name or q.startswith(f"{name}@") for q in allocation.suspended)
            found[window.point] = 1.0 if lost else min(max(shares), window.most)
    return found


def _rates_of(slot_id: str, places: Mapping[str, int]) -> list[tuple[str, int]]:
    """Where the rates of a slot are: one, or one for each kind of its groups."""
    return [(name, places[name]) for name in (slot_id, rare(slot_id)) if name in places]


def worst_loss(load: StreamLoad, rates: Mapping[str, float], alike: float) -> float:
    """The largest loss to be expected of any query: one standard error over what its contract allows.

    Where only a part of the batch is read, rows come in blocks, which scatter ``alike`` times as much.
    """
    names = [s.id for s in load.slots.all] + [rare(s) for s in load.statistics.strata]
    places = {name: place for place, name in enumerate(names)}
    worst = 0.0
    for demand in demands_of(replace(load, share=1.0), places):
        rate = rates.get(names[demand.node], 1.0)
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


def demands_of(
    load: StreamLoad,
    places: Mapping[str, int],
    prefix: str = "",
    heavy: frozenset[str] = frozenset(),
) -> list[Demand]:
    """What the queries of a stream ask of their slots; those in ``heavy`` keep rows by size."""
    found = []
    plan, size = load.plan, load.size * load.share
    for slot in load.slots.all:
        for name in slot.steps:
            query = f"{prefix}/{name}" if prefix else name
            contract = plan.catalog.contracts.get(name)
            if any(slot.id in w.gains for w in load.windows):
                continue
            if not slot.sheddable or not isinstance(contract, Error):
                found.append(Demand(query, places[slot.id], "exact"))
                continue
            step = plan.steps[name].step
            known = load.statistics.queries.get(name) or QueryStatistics.unknown(_path_share(load, slot.id))
            length = step.window.size if isinstance(step.window, TimeWindow) else HORIZON
            arriving = max(load.statistics.rate * length / 1e6 * load.share, 1.0)
            finals = [
                _final(call.function, algebra(call, plan.catalog.functions).final) for call in step.calls
            ]
            told = load.statistics.strata.get(slot.id) if rare(slot.id) in places else None
            kinds = [("", places[slot.id], known)]
            if told is not None:
                kinds = [
                    ("", places[slot.id], replace(known, share=told.least)),
                    ("/rare", places[rare(slot.id)], replace(known, share=told.rare_least)),
                ]
            for suffix, place, kind in kinds:
                expected = max(kind.share * arriving, 1e-9)
                found.append(
                    Demand(
                        query + suffix,
                        place,
                        "error" if step.aggregates else "rows",
                        weight=contract.weight,
                        priority=contract.priority,
                        bound=contract.bound,
                        spread=(
                            kind.by_size(arriving)
                            if slot.id in heavy
                            else max((kind.spread(f, arriving, size) for f in finals), default=1 / expected)
                        ),
                        bound_constant=kind.constant(arriving, contract.confidence),
                        floor=min(FLOOR_AT_MOST, max(1e-4, FLOOR_ROWS / expected)),
                    )
                )
    return found


def _final(function: str, final: str) -> str:
    return "percentile" if function == "percentile" else final
