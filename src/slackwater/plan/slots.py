"""Where load can be shed: the paths whose queries tolerate it, each with a threshold of its own.

A *slot* is a path that queries end at (or one member of a signature). All queries of a slot see the same
rows, so they share its rate: the largest that any of them needs. A slot sheds nothing where one of its
queries must be exact, or is read by others: an estimate of an estimate has no interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

from slackwater.language.contracts import Error
from slackwater.plan.algebra import algebra
from slackwater.plan.functions import Functions
from slackwater.plan.layout import calls_python, uses_python
from slackwater.plan.model import Path, Step, TupleWindow
from slackwater.plan.scope import digest
from slackwater.plan.tables import Plan, StepPlan

COUNTERS_AT_MOST = 16
"""Different rates of one batch: each is counted, so that a kept row weighs arrived over kept."""

Place = tuple[tuple[str, ...], str, int | None]
"""The operators of a path in a fixed order, and for a member of a signature its table and number."""


@dataclass(frozen=True)
class Slot:
    """One threshold: the steps whose rows it decides on."""

    place: Place
    steps: tuple[str, ...]
    """Names in lower case."""
    sheddable: bool
    keys: tuple[str, ...] = ()
    """What all its steps group by, where rare groups can be kept at a rate of their own; SQL."""
    summed: str | None = None
    """What all its steps sum and nothing else, where rows may be kept in proportion to it; SQL."""
    python_last: bool = False
    """Whether rows that have passed its path go through a Python function: in keys or arguments."""

    @cached_property
    def id(self) -> str:
        return "s_" + digest(*self.place, length=10)


@dataclass(frozen=True)
class Slots:
    """The slots of one stream, in a fixed order."""

    all: tuple[Slot, ...] = ()
    unsampled: frozenset[str] = frozenset()
    """Steps that are exact whatever their contract allows."""

    @cached_property
    def sheddable(self) -> tuple[Slot, ...]:
        return tuple(slot for slot in self.all if slot.sheddable)

    @cached_property
    def places(self) -> Mapping[Place, Slot]:
        return {slot.place: slot for slot in self.all}

    @cached_property
    def by_id(self) -> Mapping[str, Slot]:
        return {slot.id: slot for slot in self.all}

    @cached_property
    def by_step(self) -> Mapping[str, Slot]:
        return {name: slot for slot in self.all for name in slot.steps}

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """By slot that sheds: its number among them."""
        return {slot.id: number for number, slot in enumerate(self.sheddable)}

    @cached_property
    def stratified(self) -> tuple[Slot, ...]:
        """Those that may have two rates."""
        return tuple(slot for slot in self.sheddable if slot.keys)

    @cached_property
    def sizable(self) -> tuple[Slot, ...]:
        """Those whose rows may be kept in proportion to what is summed of them."""
        return tuple(slot for slot in self.sheddable if slot.summed is not None)

    @property
    def counters(self) -> int:
        return min(COUNTERS_AT_MOST, len(self.sheddable) + len(self.stratified))

    def at(self, path: Path | None, table: str = "", member: int | None = None) -> Slot | None:
        """The slot of a path that sheds; None where nothing is shed."""
        if member is not None:
            slot = self.places.get(((), table, member))
        else:
            slot = self.places.get((operators(path), "", None)) if path is not None else None
        return slot if slot is not None and slot.sheddable else None


def slots_of(plan: Plan, stream: str, exactly: Set[str] = frozenset()) -> Slots:
    """The slots of a stream's own readers; steps that read other steps see only what those deliver.

    ``exactly`` names steps that are to be exact whatever their contract allows.
    """
    steps: dict[Place, list[str]] = {}
    exact: set[Place] = set()
    for step in plan.steps_on(stream):
        if not (step.step.aggregates or step.step.published or step.step.current):
            continue
        # current values need every row: the last one of a key is the one that counts
        whole = (operators(Path(step.step.path.source)), "", None)
        place = whole if step.step.current else place_of(step)
        steps.setdefault(place, []).append(step.step.name.lower())
        if step.step.current or not can_shed(plan, step) or step.step.name.lower() in exactly:
            exact.add(place)
    return Slots(
        tuple(
            Slot(
                place,
                tuple(names),
                place not in exact,
                _keys(plan, names),
                _summed(plan, names),
                any(_python_last(plan.steps[name].step, plan.catalog.functions) for name in names),
            )
            for place, names in steps.items()
        ),
        frozenset(exactly),
    )


def _python_last(step: Step, functions: Functions) -> bool:
    """Whether a step calls a Python function on rows that have passed its path."""
    delivered = () if step.aggregates else step.outputs
    return uses_python(replace(step, path=Path(step.path.source)), functions) or any(
        calls_python(output.sql, functions) for output in delivered
    )


def _keys(plan: Plan, names: Sequence[str]) -> tuple[str, ...]:
    """The keys that steps are grouped by in a pass that is shared with others; none where they differ."""
    found = {tuple(k.sql for k in plan.steps[name].step.keys) for name in names}
    tables = {plan.tables[t] for name in names for t in plan.steps[name].tables}
    plain = all(t.kind == "partials" and t.path is None and t.signature is None for t in tables)
    looked_up = any(plan.steps[name].step.path.lookups for name in names)
    return found.pop() if len(found) == 1 and plain and tables and not looked_up else ()


def _summed(plan: Plan, names: Sequence[str]) -> str | None:
    """The one expression that steps sum behind something costly; None where they do anything else.

    Only there does it pay: to know a row's size it must be read and parsed, and what is saved comes after.
    """
    steps = [plan.steps[name] for name in names]
    calls = {(c.function, c.arguments, c.condition) for s in steps for c in s.step.calls}
    if len(calls) != 1 or any(len(s.step.calls) != 1 for s in steps):
        return None
    ((function, arguments, condition),) = calls
    tables = [plan.tables[t] for s in steps for t in s.tables]
    filtered = all(t.path is not None and t.kind == "partials" and not t.tuples for t in tables)
    if function != "sum" or condition is not None or not filtered:
        return None
    return None if calls_python(arguments[0], plan.catalog.functions) else arguments[0]


def rare(slot_id: str) -> str:
    """The name under which a slot's rate for rare groups goes."""
    return f"{slot_id}/rare"


def operators(path: Path) -> tuple[str, ...]:
    """What a path is made of, whatever the order it was written in."""
    apart = [f"apart: {path.apart}"] if path.apart else []
    return (path.source.lower(), *sorted(k.alias for k in path.lookups), *sorted(path.predicates), *apart)


def place_of(step: StepPlan) -> Place:
    """Where a step's rows are decided on."""
    if step.member is None:
        return (operators(replace(step.step.path, apart=step.apart)), "", None)
    assert step.presence is not None
    return ((), step.presence[0], step.member)


def can_shed(plan: Plan, step: StepPlan) -> bool:
    """Whether a step may be answered from a sample.

    Windows over tuples number every row, and a user's aggregate has no variance that we could know: both
    are honoured exactly.
    """
    contract = plan.catalog.contracts.get(step.step.name.lower())
    functions = plan.catalog.functions
    return (
        step.step.published
        and isinstance(contract, Error)
        and not isinstance(step.step.window, TupleWindow)
        and not plan.steps_on(step.step.name)
        and all(algebra(call, functions).kind in ("partials", "values") for call in step.step.calls)
    )
