"""What panes hold: tables of partial aggregates, and how each step is read from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from slackwater.plan.algebra import Kind, Merge
from slackwater.plan.catalog import Catalog
from slackwater.plan.model import Path, Step
from slackwater.plan.scope import digest
from slackwater.plan.signature import Signature


@dataclass(frozen=True)
class Column:
    """One partial: ``template`` over ``{x}``, which is the argument where path and condition hold."""

    path: Path | None
    condition: str | None
    argument: str | None
    template: str
    merge: Merge

    @property
    def id(self) -> str:
        parts: tuple[object, ...] = (self.condition, self.argument, self.template)
        if self.path is not None:
            parts += (sorted(self.path.predicates), sorted(lookup.alias for lookup in self.path.lookups))
            parts += (self.path.apart,) if self.path.apart else ()
        return "p_" + digest(parts, length=12)


@dataclass(frozen=True)
class Table:
    """Partials of one source by pane and group.

    ``path`` is set where rows are filtered before anything else is done with them (Python functions,
    tuple windows); otherwise every column tests its own path and all share one pass.
    """

    source: str
    kind: Kind
    width: int
    tuples: bool = False
    keys: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    """Values kept beside the keys: a holistic aggregate's, or the arguments of a user's."""
    path: Path | None = None
    signature: Signature | None = None
    aggregate: str | None = None
    origin: str = ""
    """What the source is, where it is a step: another step of the same name has other rows."""
    generation: int = 0
    """For tuple windows: which rows were the first to be numbered."""
    apart: str = field(default="", repr=False)
    """As of a path, for the members of a signature."""

    @property
    def id(self) -> str:
        apart = self.apart or (self.path.apart if self.path is not None else "")
        return f"{self.kind}_{digest(self, *([apart] if apart else []), length=12)}"

    @property
    def grouped(self) -> bool:
        return bool(self.keys)

    @property
    def small(self) -> bool:
        """Whether a batch's partials surely fit the driver: as many rows as panes (and queries)."""
        return self.kind == "partials" and not self.keys


@dataclass(frozen=True)
class CallPlan:
    """Where a call's partials are: the table, and the columns by role."""

    table: str
    columns: Mapping[str, str]


@dataclass(frozen=True)
class StepPlan:
    """How a step is read from tables. ``member`` picks its rows in a signature's table."""

    step: Step
    presence: tuple[str, str] | None
    """Table and column that count the step's rows: a window without rows has no answer."""
    calls: tuple[CallPlan, ...] = ()
    member: int | None = None
    apart: str = ""
    """What its path is set apart by from others that are alike."""

    @property
    def tables(self) -> tuple[str, ...]:
        used = ([self.presence[0]] if self.presence else []) + [call.table for call in self.calls]
        return tuple(dict.fromkeys(used))


@dataclass(frozen=True)
class Plan:
    """The catalog with its physical layout: every table with its columns, every step with its reading."""

    catalog: Catalog = field(default_factory=Catalog)
    tables: Mapping[str, Table] = field(default_factory=dict)
    columns: Mapping[str, tuple[Column, ...]] = field(default_factory=dict)
    """By table."""
    members: Mapping[str, Mapping[int, tuple[str, ...]]] = field(default_factory=dict)
    """By table of a signature: the constants of each member."""
    steps: Mapping[str, StepPlan] = field(default_factory=dict)

    def tables_on(self, source: str) -> list[tuple[str, Table]]:
        return [(id_, table) for id_, table in self.tables.items() if table.source.lower() == source.lower()]

    def steps_on(self, source: str) -> list[StepPlan]:
        return self._by_source.get(source.lower(), [])

    @cached_property
    def _by_source(self) -> dict[str, list[StepPlan]]:
        found: dict[str, list[StepPlan]] = {}
        for step in self.steps.values():
            found.setdefault(step.step.path.source.lower(), []).append(step)
        return found

    def readers_of(self, table: str) -> list[str]:
        """The steps that are read from a table, in lower case."""
        return [s.step.name.lower() for s in self.steps.values() if table in s.tables]

    def reader_of(self, name: str) -> str:
        """The first step that is read from a table, in lower case; for a step's own name that name."""
        return next(iter(self.readers_of(name)), name.lower())

    def steps_of_stream(self, stream: str) -> list[StepPlan]:
        """All steps over a stream, each after the one it reads."""
        return [
            s for s in self.steps.values() if s.step.stream.lower() == stream.lower() and not s.step.current
        ]
