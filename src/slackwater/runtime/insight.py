"""What is known of a run's load at one moment, for `explain --live` and for forecasts: frozen values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from slackwater.language.contracts import Error
from slackwater.plan.operators import OperatorKind, OperatorNode, operators_of
from slackwater.plan.slots import rare
from slackwater.planners.decision import Decision
from slackwater.planners.forecast import Machine, half_width
from slackwater.planners.load import LoadTree, prefix_rates
from slackwater.planners.placement import shedders
from slackwater.planners.reading import ALIKE, SHARES
from slackwater.planners.sampling import demands_of
from slackwater.planners.terms import StreamLoad, must_take, terms_of, with_windows
from slackwater.planners.window_level import selectivities
from slackwater.planners.window_needs import points_of, tick_of
from slackwater.planners.window_rules import DropPoint
from slackwater.planners.window_schedule import Schedule
from slackwater.runtime.engine import Engine
from slackwater.runtime.governor import Governor
from slackwater.runtime.pace import Pace
from slackwater.statistics.costs import Costs, predicted
from slackwater.statistics.snapshot import QueryStatistics, StreamStatistics


@dataclass(frozen=True)
class OperatorInsight:
    """One operator of a stream's tree; rows are for each row that arrives, and None where not counted."""

    label: str
    kind: OperatorKind
    parent: int
    rows_in: float | None
    rows_out: float | None
    seconds: float | None
    """For each row that it sees; None where it has no time of its own."""
    passes: float | None = None
    """What the shedder before it lets pass of the rows that come to it; None where none stands."""
    queries: tuple[str, ...] = ()
    """Whose path ends here."""
    shared: bool = False
    """Whether its seconds are the mean of all operators of its kind: what one of them takes is not known."""

    @property
    def selectivity(self) -> float | None:
        if self.rows_in is None or self.rows_out is None or self.rows_in <= 0:
            return None
        return self.rows_out / self.rows_in


@dataclass(frozen=True)
class QueryInsight:
    """One query: what its values are like, and what it gets at present."""

    query: str
    contract: str
    share: float | None
    """Rows of the query (of its smallest group) for each row that arrives."""
    second: float | None
    """Mean square over squared mean of what is summed."""
    groups: int | None
    rate: float
    error: float | None
    """The half width to be expected at this rate over the value; None for what is not estimated."""
    suspended: bool = False


@dataclass(frozen=True)
class DropInsight:
    """One window drop: where it stands, what it leaves out, and what that leaves of the rows."""

    point: DropPoint
    share: float
    """Of its windows, how many it leaves out at present."""
    shut: bool
    needed: float | None
    """The part of the rows that its queries need at that share, counted; None for windows over rows."""
    formula: tuple[float, float] | None
    """What the paper's formulas say: rows that stay, and rows that stay only to carry a mark."""


@dataclass(frozen=True)
class StreamInsight:
    """One stream."""

    stream: str
    measured: int
    """Batches that the numbers rest on."""
    rate: float
    """Rows for each second of event time."""
    size: float
    operators: tuple[OperatorInsight, ...]
    queries: tuple[QueryInsight, ...]
    drops: tuple[DropInsight, ...]
    level: float
    share: float
    """How much of the last batch was read."""
    load: float
    """Executor seconds that the last batch would take whole."""
    kept_load: float
    """The same at the present rates."""
    costs: Costs
    ended: bool = False
    """Whether it has no batches any more."""
    idle: bool = False
    """Whether it has none at present."""


@dataclass(frozen=True)
class Insight:
    """All streams, and what a batch may take."""

    streams: tuple[StreamInsight, ...] = ()
    capacity: float | None = None
    """Executor seconds for one batch, of the streams that go on; None where nothing governs the load."""
    correction: float = 0.0
    """Seconds by which feedback plans batches longer or shorter than they are to take."""

    @property
    def going(self) -> tuple[StreamInsight, ...]:
        """The streams whose batches share the capacity; where none has any, what all were like is told."""
        return tuple(s for s in self.streams if not (s.ended or s.idle)) or self.streams

    @property
    def load(self) -> float:
        return sum(stream.load for stream in self.going)


@dataclass(frozen=True)
class Glimpse:
    """What is copied of a run under its lock, so that all else can be worked out by whoever looks."""

    loads: tuple[tuple[StreamLoad, Mapping[str, float]], ...]
    """The streams that have been measured, and by drop what comes after its windows."""
    decided: Mapping[str, Decision]
    pace: Pace
    machine: Machine
    ended: frozenset[str] = frozenset()
    """Streams that have no batches any more, in lower case."""
    quiet: frozenset[str] = frozenset()
    """These, and those that have none at present."""

    @classmethod
    def of(cls, engine: Engine) -> Glimpse | None:
        """To be called under the engine's lock; None where nothing governs the load."""
        governor = engine.load.ruler
        if not isinstance(governor, Governor):
            return None
        loads = ((load, dict(governor.leaving(load.statistics.stream).after)) for load in governor.loads())
        return cls(
            tuple(loads),
            dict(engine.decided),
            copy(governor.pace),
            machine(engine),
            governor.ended,
            governor.quiet,
        )

    def insight(self) -> Insight:
        """What it tells."""
        return _insight(self.with_windows(), self.decided, self.pace, self.ended, self.quiet)

    def with_windows(self) -> list[StreamLoad]:
        """The streams with what leaving windows out would save."""
        return [with_windows(load, after) for load, after in self.loads]


def insight(engine: Engine) -> Insight:
    """What the run knows of its load; empty where nothing has been measured."""
    governor = engine.load.ruler
    if not isinstance(governor, Governor):
        return Insight()
    with engine.lock:
        return _insight(stream_loads(engine), engine.decided, governor.pace, governor.ended, governor.quiet)


def _insight(
    loads: Sequence[StreamLoad],
    decided: Mapping[str, Decision],
    pace: Pace,
    ended: Collection[str],
    quiet: Collection[str],
) -> Insight:
    going = going_of(loads, quiet)
    fixed = sum(must_take(load, 1.0) for load in going)
    streams = []
    for load in loads:
        name = load.statistics.stream.lower()
        streams.append(replace(_stream(load, decided.get(name)), ended=name in ended, idle=name in quiet))
    among = max(1, len(going))
    # where what must be taken is too much it is taken all the same: that makes the capacity no larger
    capacity = min(pace.capacity(fixed, among), pace.fits(among))
    return Insight(tuple(streams), capacity, pace.correction)


def going_of(loads: Sequence[StreamLoad], quiet: Collection[str]) -> Sequence[StreamLoad]:
    """The streams whose batches share the capacity, as `Insight.going`."""
    return [load for load in loads if load.statistics.stream.lower() not in quiet] or loads


def stream_loads(engine: Engine) -> list[StreamLoad]:
    """The streams that have been measured, as the planner takes them.

    Those that have ended too: a file whose streams end while it is measured is asked about as a whole.
    """
    governor = engine.load.ruler
    assert isinstance(governor, Governor)
    version = engine.versions.latest
    plan = engine.versions.plan(version)
    found = []
    for statistics in governor.snapshot():
        slots = engine.load.slots(statistics.stream, version)
        nodes = operators_of(plan, statistics.stream, slots)
        cheap = governor.cheap.get(statistics.stream.lower(), True)
        load = StreamLoad(plan, nodes, slots, statistics, statistics.size, cheap)
        found.append(with_windows(load, governor.leaving(statistics.stream).after))
    return found


def machine(engine: Engine) -> Machine:
    """What a batch may take, as the run has measured it."""
    governor = engine.load.ruler
    assert isinstance(governor, Governor)
    pace = governor.pace
    skipping = frozenset(name for name, source in engine.sources.items() if source.skips)
    return Machine(governor.budget(), pace.batch, pace.executor, governor.cores, skipping, SHARES, ALIKE)


def _stream(load: StreamLoad, decision: Decision | None) -> StreamInsight:
    statistics = load.statistics
    rates = decision.thresholds if decision is not None else {}
    suspended = decision.suspended if decision is not None else ()
    share = decision.share if decision is not None else 1.0
    demands = {d.query: d for d in demands_of(load, {slot.id: 0 for slot in load.slots.all})}
    drops = _drops(load, decision)
    left_out = {name: 1.0 if d.shut else d.share for d in drops for name in d.point.members}
    queries = []
    for slot in load.slots.all:
        for name in slot.steps:
            step = load.plan.steps[name].step
            if not step.published:
                continue
            contract = load.plan.catalog.contracts[name]
            rate = rates.get(slot.id, 1.0) * share * (1 - left_out.get(name, 0.0))
            known: QueryStatistics | None = statistics.queries.get(name)
            error = None
            if isinstance(contract, Error) and slot.sheddable and step.aggregates and known is not None:
                error = half_width(demands[name].spread, rate, contract.confidence)
            queries.append(
                QueryInsight(
                    step.name,
                    str(contract),
                    known.share if known is not None else None,
                    known.second if known is not None else None,
                    known.groups if known is not None else None,
                    rate,
                    error,
                    name in suspended or rate <= 0,
                )
            )
    costs = statistics.costs
    published = _published(load)
    alike = Counter(_cost_of(node) for node in load.nodes)
    standing = _shedders(load, decision) if decision is not None and rates else {}
    return StreamInsight(
        stream=statistics.stream,
        measured=statistics.batches,
        rate=statistics.rate,
        size=statistics.size,
        operators=tuple(
            replace(
                _operator(node, i, statistics),
                passes=standing.get(i),
                queries=tuple(name for slot in node.slots for name in published.get(slot, ())),
                # one cost is fitted for all: that tells a regular expression from a comparison by nothing
                shared=_cost_of(node) in costs and alike[_cost_of(node)] > 1,
            )
            for i, node in enumerate(load.nodes)
        ),
        queries=tuple(queries),
        drops=drops,
        level=decision.level if decision is not None else 0.0,
        share=share,
        load=predicted(costs, terms_of(load, {})),
        kept_load=predicted(costs, terms_of(replace(load, share=share, parts=_parts(load, drops)), rates)),
        costs=costs,
    )


def _parts(load: StreamLoad, drops: Sequence[DropInsight]) -> dict[str, float]:
    """By slot whose windows are left out: the part of the rows that is needed at the present shares."""
    left_out = {name: 1.0 if d.shut else d.share for d in drops for name in d.point.members}
    parts: dict[str, float] = {}
    for window in load.windows:
        share = max((left_out.get(name, 0.0) for name in window.members), default=0.0)
        if share > 0:
            for slot, gain in window.gains.items():
                needed = 0.0 if share >= 1.0 else max(0.0, 1 - gain * share)
                parts[slot] = max(parts.get(slot, 0.0), needed)
    return parts


def _published(load: StreamLoad) -> dict[str, list[str]]:
    """The queries of each slot."""
    found: dict[str, list[str]] = {}
    for slot in load.slots.all:
        steps = [load.plan.steps[name].step for name in slot.steps]
        found.setdefault(slot.id, []).extend(step.name for step in steps if step.published)
    return found


def _drops(load: StreamLoad, decision: Decision | None) -> tuple[DropInsight, ...]:
    """The window drops of a stream, as the last decision has set them."""
    schedule = Schedule.from_json(decision.schedule if decision is not None else {})
    tick = tick_of(load.plan, load.statistics.stream)
    found = []
    for id_, point in points_of(load.plan, load.statistics.stream).items():
        query = schedule.queries.get(point.members[0])
        share = shut = 0.0
        if query is not None:
            share = query.thinned[-1][2] if query.thinned and query.thinned[-1][1] >= query.decided else 0.0
            shut = bool(query.shut and query.shut[-1][1] >= query.decided)
        window = next((w for w in load.windows if w.point == id_), None)
        needed = None
        if window is not None and window.gains:
            needed = max(0.0, 1 - share * min(window.gains.values()))
        drop = replace(point.drop, size=point.drop.size // tick, slide=point.drop.slide // tick)
        formula = selectivities(drop, share) if point.kind == "time" else None
        found.append(DropInsight(point, share, bool(shut), needed, formula))
    return tuple(found)


def _shedders(load: StreamLoad, decision: Decision) -> dict[int, float]:
    """Where shedders stand among a stream's operators, and what each lets pass."""
    ends = [
        (place, _rate(decision.thresholds, slot))
        for place, node in enumerate(load.nodes)
        for slot in node.slots
    ]
    ones = (1.0,) * len(load.nodes)
    tree = LoadTree(tuple(node.parent for node in load.nodes), ones, ones)
    places, rates = np.array([p for p, _ in ends], dtype=np.int64), np.array([r for _, r in ends])
    return shedders(tree, prefix_rates(tree, places, rates).tolist())


def _rate(rates: Mapping[str, float], slot: str) -> float:
    return max(rates.get(slot, 1.0), rates.get(rare(slot), 0.0))


def _cost_of(node: OperatorNode) -> str:
    """The fitted cost that an operator has in common with others; empty where it has one of its own."""
    return {"test": "test", "members": "test", "lookup": "lookup"}.get(node.kind, "")


def _operator(node: OperatorNode, place: int, statistics: StreamStatistics) -> OperatorInsight:
    passed, costs = statistics.passed, statistics.costs
    rows_in = 1.0 if node.parent <= 0 else passed.get(node.parent)
    rows_out = 1.0 if node.kind == "stream" else passed.get(place)
    seconds: float | None = None
    if node.kind == "stream":
        seconds = costs.get("read", 0.0) + costs.get("row", 0.0)
    elif node.kind == "python":
        seconds = next((costs[f"python {s}"] for s in node.slots if f"python {s}" in costs), None)
    else:
        seconds = costs.get(_cost_of(node))
    return OperatorInsight(node.label, node.kind, node.parent, rows_in, rows_out, seconds)
