"""What error every query would get at a multiple of the load, on so many cores.

The same plan of rates as in a run, at sizes that are not there yet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scipy.stats import norm

from slackwater.language.contracts import Contract, Error, Subset
from slackwater.plan.slots import rare
from slackwater.plan.tables import Plan
from slackwater.planners.level import SplitName
from slackwater.planners.load import Demand
from slackwater.planners.sampling import Rates, demands_of, plan_rates, worst_loss
from slackwater.planners.terms import PASSES, UNSHEDDABLE, StreamLoad, terms_of
from slackwater.statistics.costs import predicted

CLOSE = 1e-9
READING = 0.4
"""From this share of the capacity on, reading a part of the batch is looked at, as in a run."""


@dataclass(frozen=True)
class Machine:
    """What a batch may take: ``budget`` seconds, of which ``overhead`` go whatever its rows are.

    A second of executor time takes ``executor`` seconds on ``cores`` cores. The streams in ``skipping`` can
    be read in part: one of ``shares``; parts scatter ``alike`` times as much as rows from all over a batch.
    """

    budget: float
    overhead: float
    executor: float
    cores: int
    skipping: frozenset[str] = frozenset()
    """Names in lower case."""
    shares: tuple[float, ...] = ()
    alike: float = 1.0

    def capacity(self, cores: int | None = None, fixed: float = 0.0) -> float:
        """Executor seconds that a batch may take on so many cores; ``fixed`` it takes whatever its size.

        As the governor has it: an interval too short for even an empty batch is not kept by dropping rows.

        >>> round(Machine(0.8, 0.2, 0.5, 2).capacity(), 6), round(Machine(0.8, 0.2, 0.5, 2).capacity(8), 6)
        (1.2, 4.8)
        """
        per_second = (cores or self.cores) / self.cores / max(self.executor, 1e-6)
        least = fixed + 0.5 * (fixed + max(self.overhead, 0.05) * per_second)
        return max((self.budget - self.overhead) * per_second, least)


@dataclass(frozen=True, kw_only=True)
class QueryForecast:
    """What one query would get."""

    query: str
    stream: str
    contract: Contract
    rate: float
    """The share of its rows that it would see; 0: it is suspended or, having to be exact, falls behind."""
    error: float
    """The half width of its interval over its value; of a query that delivers rows, the share missing, of one
    that may leave out windows the share of those."""
    delivers_rows: bool = False

    @property
    def allowed(self) -> float:
        if isinstance(self.contract, Subset):
            return self.contract.gap / (self.contract.gap + 1)
        return self.contract.bound if isinstance(self.contract, Error) else 0.0

    @property
    def suspended(self) -> bool:
        return self.rate <= 0

    @property
    def met(self) -> bool:
        return not self.suspended and self.error <= self.allowed + CLOSE

    @property
    def excess(self) -> float:
        """The error over what is allowed; above 1 the contract is not met."""
        if self.suspended:
            return math.inf
        if self.error == 0:
            return 0.0
        return self.error / self.allowed if self.allowed else math.inf


@dataclass(frozen=True)
class Forecast:
    """All queries at one multiple of the load on one number of cores."""

    multiple: float
    cores: int
    load: float
    """Executor seconds that a batch would take if nothing were shed."""
    capacity: float
    level: float
    queries: tuple[QueryForecast, ...]

    @property
    def unmet(self) -> tuple[QueryForecast, ...]:
        return tuple(q for q in self.queries if not q.met)

    @property
    def worst(self) -> float:
        return max((q.excess for q in self.queries), default=0.0)


def half_width(spread: float, rate: float, confidence: float) -> float:
    """z · √(r (1 - P) / P): the relative half width of an interval to be expected at a rate.

    >>> round(half_width(0.01, 0.5, 0.95), 4), half_width(0.01, 1.0, 0.95), half_width(0.01, 0.0, 0.95)
    (0.196, 0.0, inf)
    """
    if rate <= 0:
        return math.inf
    return float(norm.ppf((1 + confidence) / 2)) * math.sqrt(spread * (1 - rate) / rate)


def scaled(load: StreamLoad, multiple: float) -> StreamLoad:
    """A stream of which so many times as many rows arrive: batches grow, and so do windows."""
    statistics = replace(load.statistics, rate=load.statistics.rate * multiple)
    # nested steps read windows, of which there are as many as before
    return replace(load, size=load.size * multiple, statistics=statistics)


def forecast(
    loads: Sequence[StreamLoad],
    machine: Machine,
    multiple: float = 1.0,
    cores: int | None = None,
    *,
    split: SplitName = "minimax",
    capacity: float | None = None,
) -> Forecast:
    """What every query would get; ``loads`` are the streams as they were measured.

    ``capacity`` is what a run has found that a batch may take, in place of what the machine says.
    """
    grown = [scaled(load, multiple) for load in loads]
    if capacity is None:
        capacity = machine.capacity(cores, sum(_seconds(load, *PASSES) for load in grown))
    whole = sum(predicted(load.statistics.costs, terms_of(load, {})) for load in grown)
    whole += sum(window.after for load in grown for window in load.windows)
    found: Rates | None = None
    if whole > capacity:
        grown, found = _planned(grown, machine, capacity, split)
    level = found.allocation.level if found is not None else 0.0
    queries = tuple(q for number, load in enumerate(grown) for q in _queries(load, number, found, machine))
    return Forecast(multiple, cores or machine.cores, whole, capacity, level, queries)


def _seconds(load: StreamLoad, *names: str) -> float:
    """What some terms of a whole batch take."""
    terms, costs = terms_of(load, {}), load.statistics.costs
    return sum(costs.get(name, 0.0) * terms.get(name, 0.0) for name in names)


def _planned(
    loads: list[StreamLoad], machine: Machine, capacity: float, split: SplitName
) -> tuple[list[StreamLoad], Rates]:
    """Rates, and how much of each batch is read: less than all where reading is what takes the time."""
    found = plan_rates(loads, capacity, split=split)
    best = (_worst(loads, found, machine.alike), loads, found)
    reading = sum(_seconds(load, *UNSHEDDABLE) for load in loads)
    if reading < READING * capacity and not found.allocation.suspended:
        return loads, found
    for share in machine.shares if any(_skips(load, machine) for load in loads) else ():
        parts = [replace(load, share=share) if _skips(load, machine) else load for load in loads]
        found = plan_rates(parts, capacity, split=split)
        loss = _worst(parts, found, machine.alike)
        if loss < best[0]:
            best = (loss, parts, found)
    return best[1], best[2]


def _skips(load: StreamLoad, machine: Machine) -> bool:
    """Whether parts of a stream's batches may be left unread: not where somebody must see all of them."""
    able = load.statistics.stream.lower() in machine.skipping
    return able and len(load.slots.sheddable) == len(load.slots.all)


def _worst(loads: Sequence[StreamLoad], found: Rates, alike: float) -> float:
    return max(worst_loss(load, rates, alike) for load, rates in zip(loads, found.by_stream, strict=True))


def _queries(load: StreamLoad, number: int, found: Rates | None, machine: Machine) -> list[QueryForecast]:
    plan, stream = load.plan, load.statistics.stream
    seen = _seen(load, number, found, machine)
    queries = []
    for planned in plan.steps_of_stream(stream):
        step = planned.step
        if not step.published or step.current:
            continue
        name = step.name.lower()
        rate, error = seen.get(_base(plan, name, stream), (1.0, 0.0))
        left_out = [w.point for w in load.windows if name in w.members]
        if left_out and found is not None:
            error = found.missing[left_out[0]]
            rate = 1.0 - error
        queries.append(
            QueryForecast(
                query=step.name,
                stream=stream,
                contract=plan.catalog.contracts[name],
                rate=rate,
                error=error,
                delivers_rows=not step.aggregates,
            )
        )
    return queries


def _seen(
    load: StreamLoad, number: int, found: Rates | None, machine: Machine
) -> dict[str, tuple[float, float]]:
    """By step over the stream's own rows: the share of them that it sees, and its error. Of two kinds of
    groups the worse one counts."""
    if found is None:
        return {}
    names = [slot.id for slot in load.slots.all] + [rare(slot) for slot in load.statistics.strata]
    places = {name: place for place, name in enumerate(names)}
    heavy = frozenset(found.sizes[number]) if found.sizes else frozenset()
    lost = set(found.allocation.suspended)
    worst: dict[str, tuple[float, float]] = {}
    for demand in demands_of(replace(load, share=1.0), places, heavy=heavy):
        name = demand.query.removesuffix("/rare")
        rate = found.by_stream[number].get(names[demand.node], 1.0)
        behind = found.overrun and demand.kind == "exact"
        rate = 0.0 if behind or f"{number}/{demand.query}" in lost else rate
        error = _error(demand, load.plan.catalog.contracts.get(name), rate, load.share, machine.alike)
        before = worst.get(name, (1.0, 0.0))
        worst[name] = (min(before[0], rate * load.share), max(before[1], error))
    return worst


def _base(plan: Plan, name: str, stream: str) -> str:
    """The step over the stream's own rows that a query is made of: itself, or what it reads."""
    while (source := plan.steps[name].step.path.source.lower()) != stream.lower():
        name = source
    return name


def _error(demand: Demand, contract: Contract | None, rate: float, share: float, alike: float) -> float:
    if rate <= 0:
        return math.inf
    if demand.kind == "exact" or not isinstance(contract, Error):
        return 0.0
    if demand.kind == "rows":
        return 1.0 - rate * share
    # blocks of a batch differ more than its rows do
    blocks = half_width(alike * demand.spread, share, contract.confidence)
    return math.hypot(blocks, half_width(demand.spread / share, rate, contract.confidence))
