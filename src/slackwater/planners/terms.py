"""What a batch is made of, in the terms that its cost is fitted to: rows read, tested, looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from slackwater.plan.model import Path
from slackwater.plan.operators import OperatorNode
from slackwater.plan.passes import passes_of
from slackwater.plan.slots import Slots, operators, rare
from slackwater.plan.tables import Plan
from slackwater.planners.window_level import WindowDemand, gains_of, window_demands
from slackwater.planners.window_needs import points_of
from slackwater.statistics.costs import predicted
from slackwater.statistics.snapshot import StreamStatistics

PASSES = ("pass", "python pass")
"""Terms of a pass, whatever its rows: one that a Python function works for also waits for its process."""
UNSHEDDABLE = (*PASSES, "read", "block")
"""Terms of a batch that no threshold makes less: a pass, a row read, a row read in a part of the batch.

Reading scattered blocks costs more for a row than reading all, and is learnt by itself.
"""


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


def with_windows(load: StreamLoad, after: Mapping[str, float] | None = None) -> StreamLoad:
    """A stream with the window drops that its queries allow; ``after`` in seconds by drop."""
    points = points_of(load.plan, load.statistics.stream)
    gains = gains_of(load.plan, load.slots, points)
    return replace(load, windows=window_demands(load.plan, points, gains, after or {}))


LATEST = "__latest"
"""What the pass goes by that reduces a batch to the last row of each key."""


def terms_of(load: StreamLoad, rates: Mapping[str, float], table: str | None = None) -> dict[str, float]:
    """How much of each cost term a batch has at given rates by slot: of one table's passes, or of all."""
    plan, size = load.plan, load.size * load.share
    rates = {**load.parts, **rates}
    drawn = [max(both_rates(rates, s.id)) for s in load.slots.all if s.id not in load.parts]
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
        add(_pass_of(load, _slot_of(load, held.path)), passes)
        add("read" if load.share >= 1.0 else "block", reads * size)
        add("row", passes * size * root)
        for slot_id, amount in aggregates_tested(load, id_).items():
            add("test", amount * size * kept_share(load, rates, slot_id))
        for slot_id, amount in lookups_made(load, id_).items():
            add("lookup", amount * size * kept_share(load, rates, slot_id))
        for slot_id, amount in python_calls(load, id_).items():
            add(f"python {slot_id}", amount * size * rates.get(slot_id, 1.0))
    for name, slot_id in emitting(load).items():
        reads = 1 if load.cheap or first else 0
        first = False
        if table is not None and name != table:
            continue
        kept = size * rates.get(slot_id, 1.0)
        add(_pass_of(load, slot_id), 1)
        add("read" if load.share >= 1.0 else "block", reads * size)
        add("row", size * root)
        add("emit", kept * path_share(load, slot_id))
        add("lookup", kept * len(plan.steps[name.lower()].step.path.lookups))
        add(f"python {slot_id}", kept * python_share(load, slot_id))
    if any(s.step.current for s in plan.steps_on(stream)) and table in (None, LATEST):
        add("pass", 1)
        add("read" if load.share >= 1.0 else "block", size if load.cheap or first else 0)
        add("row", size)
    return found


def reading_seconds(load: StreamLoad) -> float:
    """Executor seconds of the passes over a batch and of reading it, at any rates."""
    terms, costs = terms_of(load, {}), load.statistics.costs
    return sum(costs.get(term, 0.0) * terms.get(term, 0.0) for term in UNSHEDDABLE)


def emitting(load: StreamLoad) -> dict[str, str]:
    """The set-valued queries of a stream, each a pass of its own, with their slots."""
    return {
        step.step.name: load.slots.by_step[step.step.name.lower()].id
        for step in load.plan.steps_on(load.statistics.stream)
        if not step.step.aggregates and not step.step.current and step.step.name.lower() in load.slots.by_step
    }


def path_share(load: StreamLoad, slot_id: str) -> float:
    """Rows that get to the end of a slot's path, as far along as they are counted, for each that arrives."""
    place = next((i for i, node in enumerate(load.nodes) if slot_id in node.slots), 0)
    while place > 0 and place not in load.statistics.passed:
        place = load.nodes[place].parent
    return load.statistics.passed.get(place, 0.1)


def both_rates(rates: Mapping[str, float], slot_id: str) -> tuple[float, float]:
    """The rate of a slot, and that of its rare groups."""
    own = rates.get(slot_id, 1.0)
    return own, rates.get(rare(slot_id), own)


def kept_share(load: StreamLoad, rates: Mapping[str, float], slot_id: str) -> float:
    """The share of its rows that a slot keeps, frequent and rare groups together."""
    own, rarely = both_rates(rates, slot_id)
    told = load.statistics.strata.get(slot_id)
    if told is None:
        return own
    part = told.share / max(told.share + told.rare_share, 1e-12)
    return part * own + (1 - part) * rarely


def aggregates_tested(load: StreamLoad, table_id: str) -> dict[str, float]:
    """By slot: aggregates of a table that test a row, for each row that arrives."""
    plan, table = load.plan, load.plan.tables[table_id]
    found: dict[str, float] = {}
    if table.signature is not None:
        for slot in load.slots.all:
            if slot.place[1] == table_id:
                share = query_share(load, slot.steps)
                found[slot.id] = share * len(plan.columns[table_id])
        return found
    for column in plan.columns[table_id]:
        path = column.path or table.path
        known = load.slots.places.get((operators(path), "", None)) if path is not None else None
        if known is not None:
            found[known.id] = found.get(known.id, 0.0) + 1.0
    return found


def query_share(load: StreamLoad, steps: Sequence[str]) -> float:
    known = [load.statistics.queries[n].share for n in steps if n in load.statistics.queries]
    return max(known, default=0.1)


def python_calls(load: StreamLoad, table_id: str) -> dict[str, float]:
    """By slot: rows that a Python function is called for, for each row that arrives."""
    known = _slot_of(load, load.plan.tables[table_id].path)
    if known is None:
        return {}
    return {known: called} if (called := python_share(load, known)) > 0 else {}


def _slot_of(load: StreamLoad, path: Path | None) -> str | None:
    """The slot of a table with a path of its own."""
    known = load.slots.places.get((operators(path), "", None)) if path is not None else None
    return None if known is None else known.id


def _pass_of(load: StreamLoad, slot_id: str | None) -> str:
    """The term of a pass that is made for one slot, or for several."""
    if slot_id is None:
        return "pass"
    place = next((i for i, node in enumerate(load.nodes) if slot_id in node.slots), -1)
    waits = load.slots.by_id[slot_id].python_last
    while place >= 0 and not waits:
        waits, place = load.nodes[place].kind == "python", load.nodes[place].parent
    return "python pass" if waits else "pass"


def lookups_made(load: StreamLoad, table_id: str) -> dict[str, float]:
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
    return path_share(load, slot_id) if load.slots.by_id[slot_id].python_last else 0.0


def must_take(load: StreamLoad, share: float) -> float:
    """Executor seconds that a batch takes whatever is dropped of it: its reading, and what is exact."""
    nothing = {name: 0.0 for slot in load.slots.sheddable for name in (slot.id, rare(slot.id))}
    return predicted(load.statistics.costs, terms_of(replace(load, share=share), nothing))
