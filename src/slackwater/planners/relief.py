"""What would bring errors down at a load that is too high: more cores, or one contract relaxed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slackwater.language.contracts import Contract, Error, Exact
from slackwater.plan.honour import Refused, honour
from slackwater.plan.slots import can_shed, slots_of
from slackwater.plan.tables import Plan
from slackwater.planners.forecast import Forecast, Machine, forecast
from slackwater.planners.level import SplitName
from slackwater.planners.sampling import StreamLoad

CORES_AT_MOST = 1024
RELAXED = Error(0.05)
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

    EXACT becomes ERROR 5%, ERROR twice its error. None where nothing is broken or nothing would help.
    """
    present = forecast(loads, machine, multiple, cores, split=split)
    best: tuple[tuple[int, float], Relief] | None = None
    for query in present.queries[:TRIED_AT_MOST] if present.unmet else ():
        after = _relaxed(query.contract)
        changed = None if after is None else _with_contract(loads, query.query, after)
        if after is None or changed is None:
            continue
        found = forecast(changed, machine, multiple, cores, split=split)
        score = (len(found.unmet), found.worst)
        if score < (len(present.unmet), present.worst) and (best is None or score < best[0]):
            best = (score, Relief(query.query, query.contract, after, found))
    return best[1] if best is not None else None


def _relaxed(contract: Contract) -> Contract | None:
    if isinstance(contract, Error):
        wider = min(1.0, 2 * contract.bound)
        return replace(contract, bound=wider) if wider > contract.bound else None
    if isinstance(contract, Exact):
        return replace(RELAXED, weight=contract.weight, priority=contract.priority)
    return None


def with_contracts(load: StreamLoad, contracts: Mapping[str, Contract]) -> StreamLoad:
    """A stream whose queries have other contracts, by name in lower case, and all else as it was."""
    catalog = load.plan.catalog
    plan = replace(load.plan, catalog=replace(catalog, contracts={**catalog.contracts, **contracts}))
    return replace(load, plan=plan, slots=slots_of(plan, load.statistics.stream, load.slots.unsampled))


def relaxable(plan: Plan) -> dict[str, Contract]:
    """The queries that must be exact and need not be: measured with an ERROR, their values are known too."""
    contracts = {n: c for n, c in plan.catalog.contracts.items() if isinstance(c, Exact)}
    found = {n: _relaxed(c) for n, c in contracts.items()}
    return {n: c for n, c in found.items() if c is not None and _honoured(plan, n, c)}


def _honoured(plan: Plan, name: str, contract: Contract) -> bool:
    """Whether a query can have a contract, and be answered from a sample under it."""
    catalog, step = plan.catalog, plan.steps[name]
    stream = catalog.streams[step.step.stream.lower()]
    try:
        honour(contract, step.step, catalog.steps, stream, catalog.functions)
    except Refused:
        return False
    changed = replace(plan, catalog=replace(catalog, contracts={**catalog.contracts, name: contract}))
    return can_shed(changed, step)


def _with_contract(loads: Sequence[StreamLoad], query: str, contract: Contract) -> list[StreamLoad] | None:
    """The streams with another contract for one query; None where it cannot be honoured by shedding."""
    name = query.lower()
    if not all(_honoured(load.plan, name, contract) for load in loads):
        return None
    return [with_contracts(load, {name: contract}) for load in loads]
