"""Notes on single steps and pane tables: what a description says of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from slackwater.language.durations import format_duration
from slackwater.language.statements import CreateAlert
from slackwater.plan.alerts import described
from slackwater.plan.description import (
    CURRENT,
    EMITTED,
    FILTERED,
    JOINED,
    LOOKED_THROUGH,
    PARTIALS,
    SHARED,
    Kind,
    StepNote,
    TableNote,
)
from slackwater.plan.model import Output, Step, plain
from slackwater.plan.passes import passes_of
from slackwater.plan.tables import Plan, StepPlan, Table


class Notes:
    """Writes the notes of one plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._order = {s.step.name: place for place, s in enumerate(plan.steps.values())}
        self._by_table: dict[tuple[str, int | None], list[StepPlan]] = defaultdict(list)
        self._readers: dict[str, list[str]] = defaultdict(list)
        self._on: dict[str, list[StepPlan]] = defaultdict(list)
        self._alerts: dict[str, list[CreateAlert]] = defaultdict(list)
        for alert in plan.catalog.alerts.values():
            self._alerts[alert.query.lower()].append(alert)
        for step in plan.steps.values():
            self._on[step.step.path.source.lower()].append(step)
            for id_ in step.tables:
                self._by_table[(id_, step.member)].append(step)
                self._readers[id_].append(step.step.name)

    def step(self, planned: StepPlan) -> StepNote:
        step = planned.step
        inner = step.name.lower() not in self.plan.catalog.declared
        contract = self.plan.catalog.contracts.get(step.name.lower())
        tables = [self.plan.tables[id_] for id_ in planned.tables]
        others = self._others(planned)
        return StepNote(
            "query" if step.published else "inner step" if inner else "view",
            str(contract) if contract is not None else None,
            tuple(_output(step, o) for o in step.outputs if o.aggregated or not step.aggregates),
            str(step.window) if step.window is not None else None,
            tuple(k.name for k in step.keys),
            tuple(map(str, step.calls)),
            step.readable(step.having) if step.having is not None else None,
            planned.tables,
            tuple(map(_width, tables)),
            _reason(tables),
            tuple(s.step.name for s in others),
            self._warm(planned, others),
            tuple(s.step.name for s in self.readers(step)),
            tuple(map(described, self._alerts[step.name.lower()])) if step.published else (),
        )

    def table(self, id_: str, table: Table) -> TableNote:
        holds = {
            "partials": PARTIALS,
            "values": f"values of {', '.join(map(plain, table.values))}",
            "states": f"states of {table.aggregate}",
            "rows": f"rows for {table.aggregate}",
        }[table.kind]
        return TableNote(
            id_,
            table.source,
            holds,
            _width(table),
            tuple(map(plain, table.keys)),
            len(self.plan.columns[id_]),
            _table_how(table),
            passes_of(self.plan, table),
            tuple(self._readers[id_]),
        )

    def how(self, step: StepPlan) -> tuple[str, ...]:
        kind = kind_of(step.step)
        if step.step.current:
            return (CURRENT,)
        if kind in ("rows", "view"):
            return (EMITTED if kind == "rows" else LOOKED_THROUGH,)
        return tuple(dict.fromkeys(_table_how(self.plan.tables[id_]) for id_ in step.tables))

    def readers(self, step: Step) -> list[StepPlan]:
        return self._on.get(step.name.lower(), []) if step.aggregates else []

    def _others(self, planned: StepPlan) -> list[StepPlan]:
        """The other steps that read a table of a step (and its member's rows in it, if it is one)."""
        found = {s.step.name: s for id_ in planned.tables for s in self._by_table[(id_, planned.member)]}
        return [s for name, s in found.items() if name != planned.step.name]

    def _warm(self, planned: StepPlan, others: Iterable[StepPlan]) -> tuple[str, ...]:
        missing = set(_reads(planned))
        found = []
        for other in others:
            given = missing & set(_reads(other))
            if given and self._order[other.step.name] < self._order[planned.step.name]:
                missing -= given
                found.append(other.step.name)
        return tuple(found) if not missing else ()


def kind_of(step: Step) -> Kind:
    if step.aggregates:
        return "aggregate"
    return "rows" if step.published else "view"


def _width(table: Table) -> str:
    return f"{table.width} rows" if table.tuples else format_duration(table.width)


def _table_how(table: Table) -> str:
    if table.path is not None:
        return FILTERED
    return SHARED if table.signature is None else JOINED


def _reason(tables: Iterable[Table]) -> str | None:
    for table in tables:
        if table.path is not None:
            if table.tuples:
                return "tuple window"
            return f"user aggregate {table.aggregate}" if table.aggregate is not None else "Python function"
    return None


def _reads(planned: StepPlan) -> Iterable[tuple[str, str, int | None]]:
    yield from ((id_, "", planned.member) for id_ in planned.tables)
    if planned.presence is not None:
        yield (*planned.presence, planned.member)
    for call in planned.calls:
        yield from ((call.table, column, planned.member) for column in call.columns.values())


def _output(step: Step, output: Output) -> str:
    sql = step.readable(output.sql) if step.aggregates else plain(output.sql)
    return sql if sql == output.name else f"{sql} AS {output.name}"
