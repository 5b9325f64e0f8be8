"""What is evaluated: the statements of a SQL text by name, and the rows of its streams and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.dialects.spark import Spark

from slackwater.errors import SourceError
from slackwater.language.dialect import SparkText
from slackwater.language.parse import parse
from slackwater.language.statements import (
    AnyStatement,
    CreateQuery,
    CreateStream,
    CreateTable,
    CreateView,
    Drop,
)
from slackwater.language.tokens import tokenize
from slackwater.reference.grouping import Registry
from slackwater.reference.relations import Table
from slackwater.reference.sources import Batches, Intake, Row, table_of, take_in
from slackwater.reference.ticks import Timeline, timeline_of

Step = CreateView | CreateQuery
Scope = Mapping[str, "Local"]
"""The common table expressions that a SELECT sees, by name in lower case."""


@dataclass(frozen=True)
class Local:
    """A common table expression: its SELECT, and what that sees."""

    select: exp.Expr
    scope: Scope


def scope_in(select: exp.Expr, scope: Scope) -> Scope:
    """What the clauses of a SELECT see: the scope around it, and its own common table expressions."""
    found = select.args.get("with_")
    for cte in found.expressions if found else ():
        scope = {**scope, cte.alias.lower(): Local(cte.this, scope)}
    return scope


def latest_name(node: exp.Expr) -> str | None:
    """The name, in lower case, in ``LATEST(name)``; None where a node of FROM is no such call."""
    call = node.this if isinstance(node, exp.Table) else None
    if not isinstance(call, exp.Anonymous) or call.name.lower() != "latest" or len(call.expressions) != 1:
        return None
    return str(call.expressions[0].name).lower()


class Recording:
    """One SQL text over one recording; every stream is taken in once."""

    def __init__(
        self,
        sql: str,
        batches: Mapping[str, Batches],
        tables: Mapping[str, Sequence[Row]],
        registry: Registry,
        end: bool,
    ) -> None:
        self.batches = batches
        self.registry = registry
        self.streams: dict[str, CreateStream] = {}
        self.tables: dict[str, CreateTable] = {}
        self.steps: dict[str, Step] = {}
        self._table_rows = tables
        self._end = end
        self._intakes: dict[str, Intake] = {}
        self._timelines: dict[str, Timeline] = {}
        self._selects: dict[str, exp.Expr] = {}
        for statement in parse(sql):
            self._register(statement)
        _all_declared("stream", batches, self.streams)
        _all_declared("table", tables, self.tables)

    def _register(self, statement: AnyStatement) -> None:
        if isinstance(statement, Drop):
            for named in (self.streams, self.tables, self.steps):
                named.pop(statement.name.lower(), None)
        if not isinstance(statement, CreateStream | CreateTable | CreateView | CreateQuery):
            return
        name = statement.name.lower()
        if any(name in named for named in (self.streams, self.tables, self.steps)):
            raise statement.source.error(f"{statement.name} is created twice")
        if isinstance(statement, CreateStream):
            self.streams[name] = statement
        elif isinstance(statement, CreateTable):
            self.tables[name] = statement
        else:
            self.steps[name] = statement

    def intake(self, stream: CreateStream) -> Intake:
        """The rows of a stream that are in time."""
        if stream.name not in self._intakes:
            batches = self._batches(stream)
            self._intakes[stream.name] = take_in(stream, batches, self.registry.functions, self._end)
        return self._intakes[stream.name]

    def timeline(self, stream: CreateStream) -> Timeline:
        """The rows of a stream as LATEST sees them."""
        if stream.name not in self._timelines:
            batches = self._batches(stream)
            self._timelines[stream.name] = timeline_of(stream, batches, self.registry.functions, self._end)
        return self._timelines[stream.name]

    def _batches(self, stream: CreateStream) -> Batches:
        if stream.name.lower() not in self.batches:
            raise SourceError(f"no batches are given for stream {stream.name}")
        return self.batches[stream.name.lower()]

    def table(self, statement: CreateTable) -> Table:
        """The rows of a table."""
        if statement.name.lower() not in self._table_rows:
            raise SourceError(f"no rows are given for table {statement.name}")
        return table_of(statement, self._table_rows[statement.name.lower()])

    def select_of(self, step: Step) -> exp.Expr:
        """The SELECT of a step, with the functions it calls understood as sqlglot knows Spark's."""
        if step.name not in self._selects:
            text = step.select.sql(SparkText)
            (parsed,) = Spark().parser().parse(tokenize(text), text)
            assert parsed is not None
            self._selects[step.name] = parsed
        return self._selects[step.name]

    def latest_below(self, step: Step) -> CreateStream | None:
        """The stream whose current values a step rests on, itself or through what it reads."""
        return self._below(self.select_of(step), {}, {step.name.lower()})

    def _below(self, select: exp.Expr, scope: Scope, passed: set[str]) -> CreateStream | None:
        scope = scope_in(select, scope)
        node = select.args["from_"].this if select.args.get("from_") else None
        if isinstance(node, exp.Subquery):
            return self._below(node.this, scope, passed)
        if not isinstance(node, exp.Table):
            return None
        latest, name = latest_name(node), node.name.lower()
        if latest is not None:
            return self.streams.get(latest)
        if name in scope:
            return self._below(scope[name].select, scope[name].scope, passed)
        if name in self.steps and name not in passed:
            return self._below(self.select_of(self.steps[name]), {}, {*passed, name})
        return None


def _all_declared(kind: str, given: Mapping[str, object], declared: Mapping[str, object]) -> None:
    unknown = given.keys() - declared.keys()
    if unknown:
        raise SourceError(f"rows are given for a {kind} that is not created: {', '.join(sorted(unknown))}")
