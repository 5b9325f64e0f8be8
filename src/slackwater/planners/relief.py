"""What would bring errors down at a load that is too high: more cores, or one contract relaxed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slackwater.language.contracts import Contract, Error, Exact, Subset
from slackwater.plan.honour import Refused, honour
from slackwater.plan.slots import can_shed, slots_of
from slackwater.plan.tables import Plan
from slackwater.planners.forecast import Forecast, Machine, forecast
from slackwater.planners.level import SplitName
from slackwater.planners.terms import StreamLoad, with_windows
from slackwater.planners.window_needs import may_leave_out, points_of

CORES_AT_MOST = 1024
RELAXED = Error(0.05)
RELAXED_WINDOWS = Subset(10)
"""What a query that must be exact is tried with."""
TRIED_AT_MOST = 100
"""Contracts that are relaxed one by one: each takes a plan of its own."""


@dataclass(frozen=True)
class Relief:
    """What one relaxed contract would change."""

    query: str
    before: Contract
    after: Contract
    forecast: Forecast


def least_cores(
    loads: Sequence[StreamLoad], machine: Machine, multiple: float, *, split: SplitName = "minimax"
) -> int | None:
    """The least number of cores at which all contracts would be met; None where a thousand do not do.

    Capacity grows with cores and errors fall with it, so that the number is found by halving.
    """

    def enough(cores: int) -> bool:
        return not forecast(loads, machine, multiple, cores, split=split).unmet

    high = 1
    while not enough(high):
        if high >= CORES_AT_MOST:
            return None
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def best_relief(
    loads: Sequence[StreamLoad],
    machine: Machine,
    multiple: float,
    cores: int | None = None,
    *,
    split: SplitName = "minimax",
) -> Relief | None:
    """The one contract that, relaxed, would help most: fewest broken, then the least of the worst errors.

    EXACT becomes ERROR 5% or, where that cannot be, SUBSET GAP 10; ERROR twice its error, SUBSET twice its
    gap. None where nothing is broken or nothing would help.
    """
    present = forecast(loads, machine, multiple, cores, split=split)
    best: tuple[tuple[int, float], Relief] | None = None
    for query in present.queries[:TRIED_AT_MOST] if present.unmet else ():
        for after in _relaxed(query.contract):
            changed = _with_contract(loads, query.query, after)
            if changed is None:
                continue
            found = forecast(changed, machine, multiple, cores, split=split)
            score = (len(found.unmet), found.worst)
            if score < (len(present.unmet), present.worst) and (best is None or score < best[0]):
                best = (score, Relief(query.query, query.contract, after, found))
            break
    return best[1] if best is not None else None


def _relaxed(contract: Contract) -> tuple[Contract, ...]:
    """What would ask for less, the first that a query can have being the one to try."""
    if isinstance(contract, Error):
        wider = min(1.0, 2 * contract.bound)
        return (replace(contract, bound=wider),) if wider > contract.bound else ()
    if isinstance(contract, Exact):
        weight, priority = contract.weight, contract.priority
        return tuple(replace(c, weight=weight, priority=priority) for c in (RELAXED, RELAXED_WINDOWS))
    return (replace(contract, gap=2 * contract.gap),) if isinstance(contract, Subset) else ()


def with_contracts(load: StreamLoad, contracts: Mapping[str, Contract]) -> StreamLoad:
    """A stream whose queries have other contracts, by name in lower case, and all else as it was."""
    catalog = load.plan.catalog
    plan = replace(load.plan, catalog=replace(catalog, contracts={**catalog.contracts, **contracts}))
    changed = replace(load, plan=plan, slots=slots_of(plan, load.statistics.stream, load.slots.unsampled))
    after = {name: w.after / len(w.members) for w in load.windows for name in w.members}
    points = points_of(plan, load.statistics.stream)
    later = {id_: sum(after.get(name, 0.0) for name in point.members) for id_, point in points.items()}
    return with_windows(changed, later)


def relaxable(plan: Plan) -> dict[str, Contract]:
    """The queries that must be exact and need not be: measured with an ERROR, their values are known too."""
    contracts = {n: c for n, c in plan.catalog.contracts.items() if isinstance(c, Exact)}
    errors = {n: c for n, exact in contracts.items() for c in _relaxed(exact) if isinstance(c, Error)}
    return {n: c for n, c in errors.items() if _honoured(plan, n, c)}


def _honoured(plan: Plan, name: str, contract: Contract) -> bool:
    """Whether a query can have a contract, and be answered from a sample under it."""
    catalog, step = plan.catalog, plan.steps[name]
    stream = catalog.streams[step.step.stream.lower()]
    try:
        honour(contract, step.step, catalog.steps, stream, catalog.functions)
    except Refused:
        return False
    changed = replace(plan, catalog=replace(catalog, contracts={**catalog.contracts, name: contract}))
    return may_leave_out(changed, step) if isinstance(contract, Subset) else can_shed(changed, step)


def _with_contract(loads: Sequence[StreamLoad], query: str, contract: Contract) -> list[StreamLoad] | None:
    """The streams with another contract for one query; None where it cannot be honoured by shedding."""
    name = query.lower()
    if not all(_honoured(load.plan, name, contract) for load in loads):
        return None
    return [with_contracts(load, {name: contract}) for load in loads]
