"""Which table holds which partials: the shared plan made physical.

``extend`` keeps every step that is there already where it is, so that a live change never loses
panes, and puts new steps where existing panes can serve them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp, parse_one

from slackwater.language.contracts import Contract, Error, Exact, Subset
from slackwater.language.dialect import SparkText
from slackwater.plan.algebra import algebra
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.model import Call, Path, Step, TupleWindow
from slackwater.plan.scope import digest
from slackwater.plan.signature import (
    Constants,
    Signature,
    can_vary,
    kinds,
    matches,
    member_id,
    shape,
    signature_of,
)
from slackwater.plan.tables import CallPlan, Column, Plan, StepPlan, Table

ALIKE_ENOUGH = 8
"""From so many queries of one shape on, a join with their constants beats testing each."""
FINER_AT_MOST = 60
"""A step joins a table of narrower panes only if they are at most so many times narrower."""

_Group = tuple[tuple[object, ...], tuple[str, ...], tuple[bool, ...]]
"""A shape, the keys it is grouped by, and which of its constants are strings."""

FIRST_TIME = Column(None, None, "s.__t", "min({x})", "min")
LAST_TIME = Column(None, None, "s.__t", "max({x})", "max")
"""Tuple windows say from when to when their rows are."""


def extend(plan: Plan, catalog: Catalog) -> Plan:
    """The plan for a catalog, given the one before it.

    Guarantee: a step of both catalogs reads the same tables, columns and member as before.
    """
    builder = _Builder(catalog)
    new: list[Step] = []
    for name, step in catalog.steps.items():
        before = plan.steps.get(name)
        # what a step reads and holds decides; its contract changes nothing about its panes
        if before is not None and before.step == step and _reads_the_same(step, plan, catalog):
            builder.keep(before, plan)
        elif step.current or not step.aggregates:
            builder.steps[name] = StepPlan(step, None)
        else:
            new.append(step)
    generations = [table.generation for table in builder.tables.values() if table.tuples]
    builder.generation = max(generations, default=0) + 1
    alike = _alike(new, builder)
    for step in new:
        builder.add(step, alike.get(step.name))
    order = list(catalog.steps)
    steps = {name: builder.steps[name] for name in order}
    return builder.plan(steps)


def _reads_the_same(step: Step, plan: Plan, catalog: Catalog) -> bool:
    """Whether all that a step reads, down to the stream, is as it was in the earlier plan."""
    below = catalog.step_of(step.path.source)
    if below is None:
        return True
    before = plan.steps.get(below.name.lower())
    return before is not None and before.step == below and _reads_the_same(below, plan, catalog)


def _origin(step: Step, catalog: Catalog) -> str:
    """A name for what a step reads, down to the stream; empty where it reads the stream."""
    below = catalog.step_of(step.path.source)
    return "" if below is None else digest(below, _origin(below, catalog), length=12)


def _alike(steps: Iterable[Step], builder: _Builder) -> dict[str, tuple[Signature, Constants]]:
    """The signature that each of the new steps belongs to, existing ones first."""
    found: dict[str, tuple[Signature, Constants]] = {}
    groups: dict[_Group, list[tuple[Step, Constants]]] = defaultdict(list)
    existing = list(dict.fromkeys(t.signature for t in builder.tables.values() if t.signature is not None))
    signature: Signature | None
    for step in steps:
        if not _can_share(step, builder.functions) or not step.path.predicates or not can_vary(step.path):
            continue
        for signature in existing:
            constants = matches(signature, step.path)
            if constants is not None and kinds(constants) == builder.kinds_of(signature):
                found[step.name] = (signature, constants)
                break
        else:
            key, constants = shape(step.path)
            groups[(key, tuple(k.sql for k in step.keys), kinds(constants))].append((step, constants))
    tested = _tested_alike(builder)
    for group, members in groups.items():
        key = group[0]
        distinct = list(dict.fromkeys([c for _, c in members] + tested.get(group, [])))
        if len(distinct) < ALIKE_ENOUGH:
            continue
        signature = signature_of(key, distinct)
        if signature is not None:
            found.update({step.name: (signature, constants) for step, constants in members})
    return found


def _tested_alike(builder: _Builder) -> dict[_Group, list[Constants]]:
    """The constants of steps that stay where each is tested by itself: they count towards enough."""
    found: dict[_Group, list[Constants]] = defaultdict(list)
    for plan in builder.steps.values():
        step = plan.step
        if plan.member is None and step.path.predicates and step.aggregates and not step.current:
            key, constants = shape(step.path)
            found[(key, tuple(k.sql for k in step.keys), kinds(constants))].append(constants)
    return found


def _can_share(step: Step, functions: Functions) -> bool:
    """Whether a step can test its path in a pass shared with others."""
    return (
        not isinstance(step.window, TupleWindow)
        and not uses_python(step, functions)
        and all(algebra(call, functions).kind == "partials" for call in step.calls)
    )


def uses_python(step: Step, functions: Functions) -> bool:
    """Whether rows go through a Python function before they are aggregated."""
    texts = [*step.path.predicates, *(k.sql for k in step.keys), *(k.on for k in step.path.lookups)]
    for call in step.calls:
        texts += [*call.arguments, *([call.condition] if call.condition else [])]
    return any(calls_python(text, functions) for text in texts)


def calls_python(text: str, functions: Functions) -> bool:
    """Whether an expression calls a Python function."""
    if not functions.scalars or not any(name in text.lower() for name in functions.scalars):
        return False
    tree = parse_one(text, dialect=SparkText)
    return any(
        functions.is_scalar(str(node.this) if isinstance(node, exp.Anonymous) else node.sql_name())
        for node in tree.find_all(exp.Func)
    )


def waits_for_python(plan: Plan, table_id: str) -> bool:
    """Whether the passes that fill a table, or deliver the rows of a step by its name, call Python."""
    table, step = plan.tables.get(table_id), plan.steps.get(table_id.lower())
    if table is None and step is not None:
        texts = [*step.step.path.predicates, *(k.on for k in step.step.path.lookups)]
        texts += [output.sql for output in step.step.outputs]
        return any(calls_python(text, plan.catalog.functions) for text in texts)
    if table is None or table.path is None:
        return False
    texts = [*table.path.predicates, *(k.on for k in table.path.lookups), *table.keys, *table.values]
    for column in plan.columns[table_id]:
        texts += [text for text in (column.argument, column.condition) if text is not None]
    return any(calls_python(text, plan.catalog.functions) for text in texts)


@dataclass
class _Builder:
    catalog: Catalog
    tables: dict[str, Table] = field(default_factory=dict)
    columns: dict[str, dict[str, Column]] = field(default_factory=dict)
    members: dict[str, dict[int, Constants]] = field(default_factory=dict)
    steps: dict[str, StepPlan] = field(default_factory=dict)
    generation: int = 0
    """Tuple windows of one generation count the same rows: those that came since all of them are there."""

    @property
    def functions(self) -> Functions:
        return self.catalog.functions

    def kinds_of(self, signature: Signature) -> tuple[bool, ...]:
        """Which constants of a signature's members are strings."""
        for id_, table in self.tables.items():
            if table.signature == signature:
                return next((kinds(c) for c in self.members[id_].values()), ())
        return ()

    def plan(self, steps: dict[str, StepPlan]) -> Plan:
        columns = {id_: tuple(columns.values()) for id_, columns in self.columns.items()}
        return Plan(self.catalog, self.tables, columns, self.members, steps)

    def keep(self, before: StepPlan, plan: Plan) -> None:
        """Take a step over from the earlier plan, with just the columns that it reads."""
        self.steps[before.step.name.lower()] = before
        used: dict[str, set[str]] = defaultdict(set)
        if before.presence is not None:
            used[before.presence[0]].add(before.presence[1])
        for call in before.calls:
            used[call.table].update(call.columns.values())
        for table_id in before.tables:
            table = plan.tables[table_id]
            self._register(table)
            for column in plan.columns[table_id]:
                if column.id in used[table_id] or table.tuples:
                    self._column(table, column)
            if before.member is not None:
                self.members[table_id][before.member] = plan.members[table_id][before.member]

    def add(self, step: Step, alike: tuple[Signature, Constants] | None) -> None:
        assert step.window is not None
        signature, constants = alike if alike is not None else (None, None)
        shared = _can_share_path(step, self.functions)
        own = replace(step.path, apart=_apart(step, self.catalog, self.steps))
        path = None if shared else own
        # Columns of a flagged table test their path themselves.
        tested = own if shared and signature is None else None
        kinds = [algebra(call, self.functions) for call in step.calls]
        presence: tuple[str, str] | None = None
        member = member_id(constants) if constants is not None else None
        calls: list[CallPlan] = []
        if any(kind.kind == "partials" for kind in kinds) or not kinds:
            table = self._table(step, "partials", path, signature, apart=own.apart if signature else "")
            presence = (table.id, self._column(table, Column(tested, None, None, "count({x})", "sum")))
            if table.tuples:
                self._column(table, FIRST_TIME)
                self._column(table, LAST_TIME)
            if member is not None and constants is not None:
                self.members[table.id][member] = constants
        for call, kind in zip(step.calls, kinds, strict=True):
            if kind.kind == "partials":
                argument = call.arguments[0] if call.arguments else None
                columns = {
                    p.role: self._column(table, Column(tested, call.condition, argument, p.sql, p.merge))
                    for p in kind.partials
                }
                calls.append(CallPlan(table.id, columns))
            else:
                calls.append(self._wide(step, call, kind.kind, shared, own))
        self.steps[step.name.lower()] = StepPlan(step, presence, tuple(calls), member, own.apart)

    def _wide(self, step: Step, call: Call, kind: str, shared: bool, own: Path) -> CallPlan:
        """A call that needs the values: they are kept beside the keys."""
        if kind == "values":
            path = None if shared else own
            tested = own if shared else None
            table = self._table(step, "values", path, None, call.arguments)
            count = self._column(table, Column(tested, call.condition, None, "count({x})", "sum"))
            present = self._column(table, Column(tested, None, None, "count({x})", "sum"))
            times = self._times(table)
            return CallPlan(table.id, {"n": count, "present": present, **times})
        table = self._table(step, kind, own, None, call.arguments, call.function)
        return CallPlan(table.id, self._times(table))

    def _times(self, table: Table) -> dict[str, str]:
        if not table.tuples:
            return {}
        return {"first": self._column(table, FIRST_TIME), "last": self._column(table, LAST_TIME)}

    def _table(
        self,
        step: Step,
        kind: str,
        path: Path | None,
        signature: Signature | None,
        values: tuple[str, ...] = (),
        aggregate: str | None = None,
        apart: str = "",
    ) -> Table:
        window = step.window
        assert window is not None
        wanted = Table(
            step.path.source,
            kind,  # type: ignore[arg-type]
            window.pane,
            isinstance(window, TupleWindow),
            tuple(k.sql for k in step.keys),
            values,
            path,
            signature,
            aggregate,
            _origin(step, self.catalog),
            self.generation if isinstance(window, TupleWindow) else 0,
            apart,
        )
        for table in self.tables.values():
            if (
                replace(table, width=wanted.width) == wanted
                and wanted.width % table.width == 0
                and wanted.width // table.width <= FINER_AT_MOST
            ):
                return table
        self._register(wanted)
        return wanted

    def _column(self, table: Table, column: Column) -> str:
        self._register(table)
        self.columns[table.id].setdefault(column.id, column)
        return column.id

    def _register(self, table: Table) -> None:
        self.tables.setdefault(table.id, table)
        self.columns.setdefault(table.id, {})
        if table.signature is not None:
            self.members.setdefault(table.id, {})


def _apart(step: Step, catalog: Catalog, there: Mapping[str, StepPlan]) -> str:
    """What sets the partials of a step apart from those of others on the same path.

    Windows that are left out and samples cannot share a partial. With a query beside them that sees all rows
    they share its partials, at no cost. Steps that are ``there`` already stay where they are.
    """
    alike = [s for s in catalog.steps.values() if _same_rows(s.path, step.path)]
    kinds = {_sheds_by(s, catalog) for s in alike}
    if kinds != {Error, Subset}:
        return ""
    if _sheds_by(step, catalog) is Subset:
        return "windows"
    plain = [there[s.name.lower()] for s in alike if s.name.lower() in there]
    return "samples" if any(_sheds_by(p.step, catalog) is Subset and not p.apart for p in plain) else ""


def _sheds_by(step: Step, catalog: Catalog) -> type[Contract]:
    """The kind of contract that says what a step may give up; of a view, what all that read it may."""
    contract = catalog.contracts.get(step.name.lower())
    readers = [s for s in catalog.steps.values() if s.path.source.lower() == step.name.lower()]
    kinds = {_sheds_by(r, catalog) for r in readers} | ({type(contract)} if contract is not None else set())
    if kinds == {Subset} or (kinds == {Error} and not readers):
        return kinds.pop()
    return Exact


def _same_rows(one: Path, other: Path) -> bool:
    return (one.source.lower(), set(one.lookups), set(one.predicates)) == (
        other.source.lower(),
        set(other.lookups),
        set(other.predicates),
    )


def _can_share_path(step: Step, functions: Functions) -> bool:
    return not isinstance(step.window, TupleWindow) and not uses_python(step, functions)
