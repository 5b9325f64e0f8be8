"""What another query set would do to load and errors, before it is there.

Guarantee: what is known of the streams counts as it is; of queries that are new, what a trial has found, and
where there was none, that their values scatter as much as their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from slackwater.plan.operators import OperatorNode, operators_of
from slackwater.plan.slots import Slots, slots_of
from slackwater.plan.tables import Plan
from slackwater.planners.forecast import Forecast, Machine, forecast
from slackwater.planners.terms import StreamLoad, must_take, python_share, with_windows
from slackwater.statistics.costs import PYTHON_ROW, Costs
from slackwater.statistics.snapshot import StreamStatistics

Capacity = Callable[[float, int], float]
"""What a batch may take, as the governor has it: given what it must take, and of how many streams."""


def as_it_is(loads: Sequence[StreamLoad], machine: Machine, capacity: Capacity) -> Forecast:
    """The forecast of the query set that is there."""
    fixed = sum(must_take(load, 1.0) for load in loads)
    return forecast(loads, machine, capacity=capacity(fixed, max(1, len(loads))))


def previewed(
    loads: Sequence[StreamLoad],
    plan: Plan,
    tried: Mapping[str, tuple[StreamStatistics, Plan]],
    machine: Machine,
    capacity: Capacity,
) -> Forecast:
    """The forecast under another plan; ``tried`` by stream: what a trial found, and the plan it ran."""
    return as_it_is([under(load, plan, tried) for load in loads], machine, capacity)


def under(load: StreamLoad, plan: Plan, tried: Mapping[str, tuple[StreamStatistics, Plan]]) -> StreamLoad:
    """A stream as it is known, with the operators and slots of another plan."""
    stream = load.statistics.stream
    slots = slots_of(plan, stream, load.slots.unsampled)
    nodes = operators_of(plan, stream, slots)
    passed = _by_operator(load.nodes, load.statistics.passed)
    queries = dict(load.statistics.queries)
    functions = dict.fromkeys(slots.by_id, PYTHON_ROW)
    if stream.lower() in tried:
        found, trial = tried[stream.lower()]
        other = slots_of(trial, stream, frozenset())
        passed = _by_operator(operators_of(trial, stream, other), found.passed) | passed
        queries = {**found.queries, **queries}
        functions |= _functions(slots, other, found.costs)
    # of a slot that has called no function so far nothing but a default is known
    called = {id_ for id_ in load.slots.by_id if python_share(load, id_) > 0}
    own = {place: passed[_name(node)] for place, node in enumerate(nodes) if _name(node) in passed}
    ids = {slot.id for slot in slots.all}
    statistics = replace(
        load.statistics,
        passed=own,
        queries={name: known for name, known in queries.items() if name in plan.steps},
        strata={slot: known for slot, known in load.statistics.strata.items() if slot in ids},
        costs=dict(load.statistics.costs)
        | {f"python {id_}": seconds for id_, seconds in functions.items() if id_ not in called},
    )
    after = {name: w.after / len(w.members) for w in load.windows for name in w.members}
    changed = with_windows(replace(load, plan=plan, nodes=nodes, slots=slots, statistics=statistics))
    windows = tuple(
        replace(w, after=sum(after.get(name, 0.0) for name in w.members)) for w in changed.windows
    )
    return replace(changed, windows=windows)


def _by_operator(
    nodes: Sequence[OperatorNode], passed: Mapping[int, float]
) -> dict[tuple[object, ...], float]:
    return {_name(nodes[place]): share for place, share in passed.items() if place < len(nodes)}


def _functions(slots: Slots, trial: Slots, found: Costs) -> dict[str, float]:
    """By slot: seconds of its Python functions for a row, as a trial has them.

    Slots are told apart by their queries: one that shares a pass with others has another id when alone.
    """
    told: dict[str, float] = {}
    for name, slot in trial.by_step.items():
        here = slots.by_step.get(name)
        seconds = found.get(f"python {slot.id}")
        if here is not None and seconds is not None:
            told[here.id] = max(seconds, told.get(here.id, 0.0))
    return told


def _name(node: OperatorNode) -> tuple[object, ...]:
    """What an operator is, whatever its place."""
    return (node.kind, node.prefix, node.table)
