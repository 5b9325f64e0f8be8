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
from slackwater.plan.slots import rare
from slackwater.planners.level import SplitName, allocate
from slackwater.planners.load import Allocation, Demand, LoadTree, load_of, nodes_of, prefix_rates
from slackwater.planners.most_delivered import DropDemand, most_delivered
from slackwater.planners.terms import (
    StreamLoad,
    aggregates_tested,
    emitting,
    lookups_made,
    path_share,
    python_calls,
    python_share,
    reading_seconds,
    terms_of,
)
from slackwater.planners.window_level import WindowDemand
from slackwater.statistics.snapshot import QueryStatistics

FLOOR_ROWS = 1.0
"""A rate that leaves a query fewer rows in a window than this is not worth running."""
FLOOR_AT_MOST = 0.02
"""A query of few rows is run all the same: its intervals say how little is known."""
HEAVY = 2.0
"""From this mean square over squared mean on, values have a tail worth keeping."""
GAIN_OF_SIZE = 0.95
Objective = Literal["minimax", "delivered"]
"""The least largest loss, or the most answers delivered in all."""
HORIZON = 60_000_000
"""A set-valued query has no window; its rows of so many microseconds count."""


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
        # where somebody needs every row, those that windows need are among them
        all_read = any(not slot.sheddable and slot.id not in load.left_out for slot in load.slots.all)
        own: dict[str, int] = {}
        each: dict[str, float] = {}
        for id_, _ in load.plan.tables_on(load.statistics.stream):
            for slot_id, amount in aggregates_tested(load, id_).items():
                each[slot_id] = each.get(slot_id, 0.0) + amount * costs.get("test", 0.0)
            for slot_id, amount in lookups_made(load, id_).items():
                each[slot_id] = each.get(slot_id, 0.0) + amount * costs.get("lookup", 0.0)
            for slot_id, amount in python_calls(load, id_).items():
                each[slot_id] = each.get(slot_id, 0.0) + amount * costs.get(f"python {slot_id}", 0.0)
        for name, slot_id in emitting(load).items():
            each[slot_id] = each.get(slot_id, 0.0) + path_share(load, slot_id) * costs.get("emit", 0.0)
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
            took += seconds[root] if part is not None and not all_read else 0.0
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
    # priorities come first: among unequal ones the sum is not what counts
    ranks = {window.priority for load in loads for window in load.windows}
    if objective == "delivered" and drops and allocation.fits and len(ranks) == 1:
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
            known = load.statistics.queries.get(name) or QueryStatistics.unknown(path_share(load, slot.id))
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
