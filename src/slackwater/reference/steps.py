"""Steps that read one another: streams, views, queries, subqueries and lookups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp
from sqlglot.dialects.spark import Spark

from slackwater.errors import LanguageError, SourceError
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
from slackwater.reference.answers import ReferenceAnswer
from slackwater.reference.expressions import holds, interpret
from slackwater.reference.grouping import Grouping, Registry, output_name
from slackwater.reference.relations import Event, Field, Relation, look_up, place, star
from slackwater.reference.sources import Batches, Intake, Row, table_of, take_in
from slackwater.reference.values import Value, from_micros

Step = CreateView | CreateQuery
_CLAUSES = {"expressions", "from_", "joins", "where", "group", "having", "with_"}


@dataclass(frozen=True)
class Outcome:
    """What a step hands on, and what it answers if it is a query."""

    relation: Relation
    answers: tuple[ReferenceAnswer, ...]


Named = Mapping[str, Relation]


class Evaluation:
    """One SQL text over one recording; every step is computed once."""

    def __init__(
        self,
        sql: str,
        batches: Mapping[str, Batches],
        tables: Mapping[str, Sequence[Row]],
        registry: Registry,
        end: bool,
    ) -> None:
        self.batches = batches
        self.table_rows = tables
        self.registry = registry
        self.end = end
        self.streams: dict[str, CreateStream] = {}
        self.tables: dict[str, CreateTable] = {}
        self.steps: dict[str, Step] = {}
        self._intakes: dict[str, Intake] = {}
        self._outcomes: dict[str, Outcome | None] = {}
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
        if stream.name.lower() not in self.batches:
            raise SourceError(f"no batches are given for stream {stream.name}")
        if stream.name not in self._intakes:
            batches = self.batches[stream.name.lower()]
            self._intakes[stream.name] = take_in(stream, batches, self.registry.functions, self.end)
        return self._intakes[stream.name]

    def reads_latest(self, select: exp.Select) -> bool:
        """Whether a SELECT rests on LATEST, itself or through what it reads."""
        local = {cte.alias.lower() for cte in select.find_all(exp.CTE)}
        for table in select.find_all(exp.Table):
            if isinstance(table.this, exp.Anonymous) and table.this.name.lower() == "latest":
                return True
            read = None if table.name.lower() in local else self.steps.get(table.name.lower())
            if read is not None and read.select is not select and self.reads_latest(read.select):
                return True
        return False

    def step(self, step: Step) -> Outcome:
        """The outcome of a view or query."""
        name = step.name.lower()
        if name not in self._outcomes:
            self._outcomes[name] = None
            try:
                self._outcomes[name] = self._select(retyped(step.select), {})
            except LanguageError as error:
                if error.position is not None:
                    raise
                raise step.source.error(f"in {step.name}: {error.message}", hint=error.hint) from error
        outcome = self._outcomes[name]
        if outcome is None:
            raise step.source.error(f"{step.name} reads itself")
        return outcome

    def _select(self, select: exp.Expr, named: Named) -> Outcome:
        if not isinstance(select, exp.Select):
            raise LanguageError(f"expected a SELECT, got {select.sql('spark')}")
        for clause, value in select.args.items():
            if value and clause not in _CLAUSES:
                raise LanguageError(f"the reference does not know {clause.upper()} in {select.sql('spark')}")
        if select.args.get("with_"):
            for cte in select.args["with_"].expressions:
                named = {**named, cte.alias.lower(): self._select(cte.this, named).relation}
        relation = self._from(select, named)
        where = select.args.get("where")
        if where is not None:
            rows = [row for row in relation.rows if self._passes(where.this, relation.fields, row.values)]
            relation = replace(relation, rows=tuple(rows))
        if select.args.get("group"):
            return _windowed(Grouping(select, relation, self.registry))
        if select.args.get("having") or any(map(self.registry.aggregates_in, select.expressions)):
            raise LanguageError(
                f"an aggregate over a stream needs a window, got {select.sql('spark')}",
                hint="add GROUP BY window(…) or tuples(…)",
            )
        return self._projected(select, relation)

    def _from(self, select: exp.Select, named: Named) -> Relation:
        source = select.args.get("from_")
        if source is None:
            raise LanguageError(f"there is no FROM in {select.sql('spark')}")
        relation = self._source(source.this, named)
        for join in select.args.get("joins") or ():
            relation = self._join(relation, join)
        return relation

    def _source(self, node: exp.Expr, named: Named) -> Relation:
        if isinstance(node, exp.Subquery):
            return self._select(node.this, named).relation.called(node.alias)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier) or node.db:
            raise LanguageError(f"expected a stream, view, query or subquery, got {node.sql('spark')}")
        name = node.name.lower()
        if name in named:
            relation = named[name]
        elif name in self.steps:
            relation = self.step(self.steps[name]).relation
        elif name in self.streams:
            relation = self.intake(self.streams[name]).relation
        else:
            raise LanguageError(f"there is no stream, view or query {node.name}")
        return relation.called(node.alias or node.name)

    def _join(self, relation: Relation, join: exp.Join) -> Relation:
        table = join.this
        side, kind = join.side.upper(), join.kind.upper()
        using, on = join.args.get("using") or [], join.args.get("on")
        plain = side in ("", "LEFT") and kind in ("", "INNER", "OUTER") and not join.method
        if not plain or (not using and on is None):
            raise LanguageError(f"expected [INNER|LEFT] JOIN … ON or USING, got {join.sql('spark').strip()}")
        if not isinstance(table, exp.Table) or table.name.lower() not in self.tables:
            raise LanguageError(f"a stream can be joined with a table only, got {join.sql('spark').strip()}")
        statement = self.tables[table.name.lower()]
        if statement.name.lower() not in self.table_rows:
            raise SourceError(f"no rows are given for table {statement.name}")
        return look_up(
            relation,
            table_of(statement, self.table_rows[statement.name.lower()]),
            table.alias or table.name,
            [column.name for column in using],
            None if on is None else lambda fields, values: self._passes(on, fields, values),
            left=side == "LEFT",
        )

    def _passes(self, condition: exp.Expr, fields: Sequence[Field], values: Sequence[Value]) -> bool:
        return holds(condition, self.registry.row_environment(fields, values))

    def _projected(self, select: exp.Select, relation: Relation) -> Outcome:
        """A set-valued step: every row that passes, with the selected columns."""
        items: list[tuple[str, exp.Expr | int]] = []
        for item in select.expressions:
            plain = item.unalias()
            if item.is_star:
                chosen = star(relation.fields, item.table if isinstance(item, exp.Column) else "")
                items.extend((relation.fields[index].name, index) for index in chosen)
            elif isinstance(plain, exp.Column):
                items.append((output_name(item), place(relation.fields, plain)))
            else:
                items.append((output_name(item), plain))
        rows: list[tuple[Event, tuple[tuple[str, Value], ...]]] = []
        for row in relation.rows:
            env = self.registry.row_environment(relation.fields, row.values)
            values = (row.values[i] if isinstance(i, int) else interpret(i, env) for _, i in items)
            rows.append((row, tuple(zip([name for name, _ in items], values, strict=True))))
        fields = tuple(Field("", name) for name, _ in items)
        timed = (relation.time.lower(), relation.time_place) in [(name.lower(), i) for name, i in items]
        handed_on = [
            Event(row.time, tuple(v for _, v in shown) + (() if timed else (from_micros(row.time),)))
            for row, shown in rows
        ]
        return Outcome(
            Relation(
                fields if timed else (*fields, Field("", relation.time)),
                tuple(handed_on),
                relation.time,
                relation.watermark,
            ),
            tuple(_element(row, shown) for row, shown in rows),
        )


def _element(row: Event, shown: tuple[tuple[str, Value], ...]) -> ReferenceAnswer:
    """The answer that a row of a set-valued query is."""
    return ReferenceAnswer("", "*", None, None, from_micros(row.time), shown, None)


def _windowed(grouping: Grouping) -> Outcome:
    """A windowed step: one row per window and group."""
    relation = grouping.relation
    results = list(grouping.results())
    names = [output_name(item) for item in grouping.items]
    fields = tuple(Field("", name) for name in (*names, relation.time, "window_start", "window_end"))
    rows: list[Event] = []
    answers: list[ReferenceAnswer] = []
    for result in results:
        start, end = from_micros(result.window.start), from_micros(result.window.end)
        values = tuple(value for _, value in result.items)
        rows.append(Event(result.time, (*values, from_micros(result.time), start, end)))
        answers.extend(
            ReferenceAnswer("", name, start, end, None, result.keys, value) for name, value in result.columns
        )
    watermark = grouping.windows.handed_on(relation.watermark)
    return Outcome(Relation(fields, tuple(rows), relation.time, watermark), tuple(answers))


def _all_declared(kind: str, given: Mapping[str, object], declared: Mapping[str, object]) -> None:
    unknown = given.keys() - declared.keys()
    if unknown:
        raise SourceError(f"rows are given for a {kind} that is not created: {', '.join(sorted(unknown))}")


def retyped(select: exp.Select) -> exp.Expr:
    """A SELECT with the functions it calls understood, as sqlglot knows Spark's."""
    text = select.sql(SparkText)
    (parsed,) = Spark().parser().parse(tokenize(text), text)
    assert parsed is not None
    return parsed
