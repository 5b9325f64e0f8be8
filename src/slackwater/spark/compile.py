"""The plan's tables as SQL texts: one pass over a batch gives the partials of its panes.

What changes from batch to batch (the watermark, sequence numbers, later thresholds) goes in as one
array behind an index that Catalyst cannot fold, so that the generated code stays the same and is
compiled once. ``cast(split('…'))`` is folded to an array, which is passed by reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slackwater.plan.model import Lookup, Path, Step
from slackwater.plan.passes import chunks, orders
from slackwater.plan.scope import safe_name
from slackwater.plan.signature import Signature, probe_rows, values_listed
from slackwater.plan.tables import Column, Plan, Table
from slackwater.plan.tree import Operator
from slackwater.spark.predicates import named_predicates

PARAMETERS = "'__PARAMETERS__'"
"""Stands for the list of numbers of a batch: 0 is the watermark, 1 the first sequence number."""
BASE = "__base"
"""Name of the statement that only counts what arrived."""


@dataclass(frozen=True)
class Statement:
    """One pass over a source. ``columns`` are the partials it fills, in order."""

    table: str
    sql: str
    columns: tuple[str, ...] = ()
    counts: bool = False
    """Whether it also counts what arrived (``__arrived``, ``__readable``, ``__latest``)."""

    def bind(self, view: str, parameters: tuple[int, ...]) -> str:
        """The text for one batch."""
        numbers = "'" + ",".join(map(str, parameters)) + "'"
        return self.sql.replace(PARAMETERS, numbers).replace("__VIEW__", f"`{view}`")


@dataclass(frozen=True)
class Compiled:
    """All statements over one source, and the constants of its signatures as views to register."""

    statements: tuple[Statement, ...]
    views: Mapping[str, str]
    emits: Mapping[str, str]
    """Set-valued steps: the rows they deliver."""


def compile_source(plan: Plan, source: str, *, stream: bool) -> Compiled:
    """The statements for one source: a stream, or a step that others read."""
    order = orders(plan, source)
    statements: list[Statement] = []
    views: dict[str, str] = {}
    for id_, table in plan.tables_on(source):
        columns = plan.columns[id_]
        if table.signature is not None:
            found, constants = _signature(id_, table, columns, plan)
            statements += found
            views.update(constants)
        elif table.path is not None:
            statements.append(_physical(id_, table, columns, order))
        else:
            statements += _flagged(id_, table, columns, order)
    if stream:
        statements = _counting(statements)
    emits = {
        s.step.name: _emit(s.step)
        for s in plan.steps_on(source)
        if not s.step.aggregates and s.step.published and not s.step.current
    }
    return Compiled(tuple(statements), views, emits)


def _counting(statements: list[Statement]) -> list[Statement]:
    """Let the first ungrouped pass over a stream count arrivals, or add a pass that does."""
    for index, statement in enumerate(statements):
        if "/*counts*/" in statement.sql:
            counted = ", count(*) AS __arrived, count(s.__t) AS __readable, max(s.__t) AS __latest"
            counting = Statement(
                statement.table, statement.sql.replace("/*counts*/", counted), statement.columns, True
            )
            rest = statements[:index] + statements[index + 1 :]
            return [counting, *(_plain(s) for s in rest)]
    late = f"{_since()} IS NOT TRUE"
    base = (
        "SELECT CAST(NULL AS BIGINT) AS pane, count(*) AS __arrived, "
        "count(s.__t) AS __readable, max(s.__t) AS __latest, "
        f"count(CASE WHEN s.__t IS NOT NULL AND {late} THEN 1 END) AS __late FROM {_from(())}"
    )
    return [Statement(BASE, base, (), True), *(_plain(s) for s in statements)]


def _plain(statement: Statement) -> Statement:
    return Statement(statement.table, statement.sql.replace("/*counts*/", ""), statement.columns)


def _since() -> str:
    return "s.__t >= get(s.__p, s.__i)"


def _pane(width: int) -> str:
    return f"CASE WHEN {_since()} THEN s.__t - pmod(s.__t, {width}) END"


def _from(lookups: tuple[Lookup, ...]) -> str:
    parameters = f"cast(split({PARAMETERS}, ',') as array<bigint>)"
    text = f"(SELECT *, {parameters} AS __p, coalesce(cast(__t & 0 as int), 0) AS __i FROM __VIEW__) s"
    for lookup in lookups:
        table = safe_name(lookup.table)
        text += f" LEFT JOIN (SELECT *, true AS __hit FROM `{table}`) {lookup.alias} ON {lookup.on}"
    return text


def _test(operators: tuple[Operator, ...]) -> str:
    tests = []
    for operator in operators:
        if isinstance(operator, Lookup):
            if operator.inner:
                tests.append(f"{operator.alias}.__hit")
        else:
            tests.append(f"({operator})")
    return " AND ".join(tests) or "true"


def _lookups(columns: tuple[Column, ...]) -> tuple[Lookup, ...]:
    return tuple(dict.fromkeys(k for c in columns if c.path is not None for k in c.path.lookups))


def _keys(table: Table) -> list[str]:
    keys = [f"{sql} AS k{i}" for i, sql in enumerate(table.keys)]
    return keys + [f"{sql} AS v{i}" for i, sql in enumerate(table.values)]


def _key_names(table: Table) -> list[str]:
    return [f"k{i}" for i in range(len(table.keys))] + [f"v{i}" for i in range(len(table.values))]


def _aggregate(column: Column, test: str | None, x: str | None) -> str:
    """A partial as SQL: over the argument (or 1) of the rows that pass the test.

    FILTER is half as costly in generated code as a CASE around the argument.
    """
    where = "" if test is None or test == "true" else f" FILTER (WHERE {test})"
    calls = column.template.split(" * ")
    value = x if x is not None else "1"
    return f"{' * '.join(call.replace('{x}', value) + where for call in calls)} AS {column.id}"


@dataclass(frozen=True)
class _Inputs:
    """What aggregates read, computed once for a row below them: arguments and conditions by SQL."""

    arguments: dict[str, str]
    conditions: dict[str, str]

    @classmethod
    def of(cls, columns: tuple[Column, ...]) -> _Inputs:
        return cls(
            {c.argument: f"x{i}" for i, c in enumerate(columns) if c.argument is not None},
            {c.condition: f"g{i}" for i, c in enumerate(columns) if c.condition is not None},
        )

    def items(self) -> list[str]:
        named = [f"{sql} AS {name}" for sql, name in self.arguments.items()]
        return named + [f"({sql}) AS {name}" for sql, name in self.conditions.items()]

    def aggregate(self, column: Column) -> str:
        test = self.conditions[column.condition] if column.condition is not None else None
        return _aggregate(
            column, test, self.arguments[column.argument] if column.argument is not None else None
        )


def _flagged(
    id_: str, table: Table, columns: tuple[Column, ...], order: dict[Path, tuple[Operator, ...]]
) -> Iterator[Statement]:
    """One pass for many paths: aggregates, each over the rows of its own path."""
    for chunk in chunks(columns):
        paths = [
            order.get(c.path, (*c.path.lookups, *c.path.predicates)) for c in chunk if c.path is not None
        ]
        named = named_predicates(paths) if not _lookups(chunk) else {}
        tests = []
        aggregates = []
        for column, path in zip(chunk, paths, strict=True):
            test = _test(tuple(named.get(p, p) if isinstance(p, str) else p for p in path))
            if column.condition is not None:
                test = f"{test} AND ({column.condition})"
            tests.append(test)
            aggregates.append(_aggregate(column, test, column.argument))
        by = [_pane(table.width), *table.keys, *table.values]
        selected = ", ".join([f"{by[0]} AS pane", *_keys(table), *aggregates])
        grouped = bool(table.keys or table.values)
        where = ""
        if grouped:
            wanted = "" if "true" in tests else f" AND ({' OR '.join(dict.fromkeys(tests))})"
            where = f" WHERE {_since()}{wanted}"
        counts = "" if grouped else "/*counts*/"
        rows = _from(_lookups(chunk))
        if named:
            items = ", ".join(f"({sql}) AS {name.removeprefix('s.')}" for sql, name in named.items())
            rows = f"(SELECT s.*, {items} FROM {rows}) s"
        sql = f"SELECT {selected}{counts} FROM {rows}{where} GROUP BY {', '.join(by)}"
        yield Statement(id_, sql, tuple(c.id for c in chunk))


def _physical(
    id_: str, table: Table, columns: tuple[Column, ...], order: dict[Path, tuple[Operator, ...]]
) -> Statement:
    """Rows are filtered before anything else: for Python functions and sequence numbers."""
    path = table.path
    assert path is not None
    test = _test(order.get(path, (*path.lookups, *path.predicates)))
    inputs = _Inputs.of(columns)
    inner = ["s.__t", "s.__part", "s.__seq", "s.__p", "s.__i", *_keys(table)]
    inner += inputs.items()
    rows = f"SELECT {', '.join(inner)} FROM {_from(path.lookups)} WHERE {_since()} AND {test}"
    pane = f"s.__t - pmod(s.__t, {table.width})"
    if table.tuples:
        rows = _numbered(rows)
        pane = f"s.__n - pmod(s.__n, {table.width})"
    names = ["pane", *_key_names(table)]
    if table.kind in ("rows", "states"):
        kept = ", ".join([f"{pane} AS pane", *_key_names(table), "s.__t", "s.__part", "s.__seq"])
        return Statement(id_, f"SELECT {kept} FROM ({rows}) s")
    aggregates = [inputs.aggregate(c) for c in columns]
    outer = ", ".join([*names, *aggregates])
    sql = f"SELECT {outer} FROM (SELECT *, {pane} AS pane FROM ({rows}) s) s GROUP BY {', '.join(names)}"
    return Statement(id_, sql, tuple(c.id for c in columns))


def _numbered(rows: str) -> str:
    """Rows with their number ``__n`` in the arrival sequence (partition, then offset), from parameter 1 on.

    Numbering within partitions and adding the counts of those before keeps the batch spread out.
    """
    return (
        "SELECT f.*, __before + row_number() OVER (PARTITION BY f.__part ORDER BY f.__seq) - 1 "
        f"+ get(f.__p, f.__i + 1) AS __n FROM ({rows}) f "
        "JOIN (SELECT __part, sum(n) OVER (ORDER BY __part) - n AS __before "
        f"FROM (SELECT __part, count(*) AS n FROM ({rows}) GROUP BY __part)) o ON f.__part = o.__part"
    )


def _signature(
    id_: str, table: Table, columns: tuple[Column, ...], plan: Plan
) -> tuple[list[Statement], dict[str, str]]:
    """A join with the constants of all members finds the queries that a row matches."""
    signature = table.signature
    assert signature is not None
    statements, views = [], {}
    for number, (width, rows) in enumerate(probe_rows(signature, plan.members[id_]).items()):
        name = f"constants_{id_}_{number}"
        views[name] = _constants(signature, rows)
        on = [f"{p.expression} = c.c{p.constants[0]}" for p in signature.equalities]
        if signature.range is not None:
            on.append(f"CAST(floor(({signature.range.expression}) / {width!r}D) AS BIGINT) = c.cell")
        constants = {str(i): f"c.c{i}" for i in range(len(rows[0][2]))}
        tests = [f"{k.alias}.__hit" for k in signature.lookups if k.inner]
        tests += [f"({p})" for p in signature.common]
        residual = [_with_constants(p, constants) for p in signature.residual]
        inputs = _Inputs.of(columns)
        inner = ", ".join([f"{_pane(table.width)} AS pane", "c.q AS q", *_keys(table), *inputs.items()])
        source = f"{_from(signature.lookups)} JOIN `{name}` c ON {' AND '.join(on)}"
        where = " AND ".join([_since(), *tests, *residual])
        names = ["pane", "q", *_key_names(table)]
        aggregates = [inputs.aggregate(c) for c in columns]
        sql = (
            f"SELECT {', '.join([*names, *aggregates])} FROM "
            f"(SELECT /*+ BROADCAST(c) */ {inner} FROM {source} WHERE {where}) GROUP BY {', '.join(names)}"
        )
        statements.append(Statement(id_, sql, tuple(c.id for c in columns)))
    return statements, views


def _with_constants(predicate: str, constants: dict[str, str]) -> str:
    for index, column in constants.items():
        predicate = predicate.replace("{" + index + "}", column)
    return f"({predicate})"


def _constants(signature: Signature, rows: list[tuple[int, int | None, tuple[str, ...]]]) -> str:
    """The constants as a VALUES list; an IN list gives a row for each of its values."""
    listed = {p.constants[0] for p in signature.equalities}
    lines = []
    for member, cell, constants in rows:
        expanded: list[list[str]] = [[]]
        for index, constant in enumerate(constants):
            values = values_listed(constant) if index in listed else [constant]
            expanded = [[*done, value] for done in expanded for value in values]
        lines += [
            f"({', '.join([f'{member}L', f'{cell}L' if cell is not None else 'NULL', *e])})" for e in expanded
        ]
    names = ", ".join(["q", "cell", *(f"c{i}" for i in range(len(rows[0][2])))])
    return f"SELECT DISTINCT * FROM VALUES {', '.join(lines)} AS t({names})"


def _emit(step: Step) -> str:
    tests = _test((*step.path.lookups, *step.path.predicates))
    outputs = ", ".join(f"{o.sql} AS o{i}" for i, o in enumerate(step.outputs))
    return (
        f"SELECT s.__t AS at, {outputs}, s.__part, s.__seq FROM {_from(step.path.lookups)} "
        f"WHERE {_since()} AND {tests}"
    )
