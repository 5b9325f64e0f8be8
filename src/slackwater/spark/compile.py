"""The plan's tables as SQL texts: one pass over a batch gives the partials of its panes.

Where load may be shed, a text tests the threshold of each path on the row's own ``__u``; the root's has
been applied to the batch before. The plain texts are those of a stream that sheds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from slackwater.plan.current import current_plan
from slackwater.plan.layout import FIRST_TIME, LAST_TIME
from slackwater.plan.model import Path, Step
from slackwater.plan.passes import chunks, orders
from slackwater.plan.signature import Signature, probe_rows, values_listed
from slackwater.plan.slots import Slot
from slackwater.plan.tables import Column, Plan, Table
from slackwater.plan.tree import Operator
from slackwater.spark.latest import LAST, reduce_sql
from slackwater.spark.predicates import named_predicates
from slackwater.spark.statement import (
    BASE,
    EXACT,
    THRESHOLDS,
    Compiled,
    Shedding,
    Statement,
    aggregate,
    condition,
    frequent,
    has_bit,
    in_order,
    key_names,
    keys_of,
    lookups_of,
    need_of,
    pane,
    since,
)

LOOKED_AT = 16
"""Of so many rows one is looked at to count what operators let pass; a power of two."""
COUNTING = (Column(None, None, None, "count({x})", "sum"), FIRST_TIME, LAST_TIME)
"""Columns of windows over rows that count the rows and say when they were."""


def compile_source(plan: Plan, source: str, *, stream: bool, shedding: Shedding = EXACT) -> Compiled:
    """The statements for one source: a stream, or a step that others read."""
    order = orders(plan, source)
    statements: list[Statement] = []
    views: dict[str, str] = {}
    for id_, table in plan.tables_on(source):
        columns = plan.columns[id_]
        if table.signature is not None:
            found, constants = _signature(id_, table, columns, plan, shedding)
            statements += found
            views.update(constants)
        elif table.path is not None:
            statements.append(_physical(id_, table, columns, order, shedding))
        else:
            statements += _flagged(id_, table, columns, order, shedding)
    if stream:
        statements = _counting(statements, shedding)
    emits = {
        s.step.name: _emit(s.step, shedding)
        for s in plan.steps_on(source)
        if not s.step.aggregates and s.step.published and not s.step.current
    }
    current = current_plan(plan.catalog, source) if stream else None
    latest = Statement(LAST, reduce_sql(current)) if current is not None else None
    return Compiled(tuple(statements), views, emits, latest)


def _counting(statements: list[Statement], shedding: Shedding) -> list[Statement]:
    """Let the first ungrouped pass over a stream count arrivals, or add a pass that does."""
    items = ["count(*) AS __arrived", "count(s.__t) AS __readable", "max(s.__t) AS __latest"]
    if shedding.slots.counters:
        items.append(f"min(s.__t) FILTER (WHERE {since()}) AS __earliest")
    items += [
        f"count(*) FILTER (WHERE s.__u < get(s.__p, s.__i + {THRESHOLDS + i})) AS __kept_{i}"
        for i in range(shedding.slots.counters if shedding.tested else 0)
    ]
    # a condition that is costly would be evaluated once more for every row
    looked_at = f"(s.__seq & {LOOKED_AT - 1}L) = 0"
    items += [f"count(*) FILTER (WHERE {looked_at}) AS __looked"] if shedding.counted else []
    items += [
        f"count(*) FILTER (WHERE {looked_at} AND {condition(prefix)}) AS __node_{i}"
        for i, prefix in enumerate(shedding.counted)
    ]
    for index, statement in enumerate(statements):
        if "/*counts*/" in statement.sql:
            sql = statement.sql.replace("/*counts*/", ", " + ", ".join(items))
            counting = replace(statement, sql=sql, counts=True)
            rest = statements[:index] + statements[index + 1 :]
            return [counting, *(_plain(s) for s in rest)]
    late = f"{since()} IS NOT TRUE"
    items.append(f"count(CASE WHEN s.__t IS NOT NULL AND {late} THEN 1 END) AS __late")
    by = ["s.__block AS block"] if shedding.blocks else []
    group = " GROUP BY s.__block" if shedding.blocks else ""
    selected = ", ".join(["CAST(NULL AS BIGINT) AS pane", *by, *items])
    base = f"SELECT {selected} FROM {shedding.rows(())}{group}"
    return [Statement(BASE, base, (), True), *(_plain(s) for s in statements)]


def _plain(statement: Statement) -> Statement:
    return replace(statement, sql=statement.sql.replace("/*counts*/", ""))


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

    def aggregate(
        self, column: Column, *, sampled: bool, tau: str | None = None, needed: str | None = None
    ) -> str:
        tests = [self.conditions[column.condition]] if column.condition is not None else []
        test = " AND ".join([*([needed] if needed is not None else []), *tests]) or None
        argument = self.arguments[column.argument] if column.argument is not None else None
        return aggregate(column, test, argument, sampled=sampled, tau=tau)


def _flagged(
    id_: str,
    table: Table,
    columns: tuple[Column, ...],
    order: dict[Path, tuple[Operator, ...]],
    shedding: Shedding,
) -> Iterator[Statement]:
    """One pass for many paths: aggregates, each over the rows of its own path."""
    for chunk in chunks(columns):
        paths = [in_order(c.path, order) for c in chunk if c.path is not None]
        slots = [shedding.slots.at(c.path) for c in chunk]
        named = named_predicates(paths) if not lookups_of(chunk) else {}
        tests = []
        aggregates = []
        for column, path, slot in zip(chunk, paths, slots, strict=True):
            operators = tuple(named.get(p, p) if isinstance(p, str) else p for p in path)
            needed = shedding.needed(column.path)
            test = condition(operators, needed, shedding.test(slot, table.keys))
            if column.condition is not None:
                test = f"{test} AND ({column.condition})"
            tests.append(test)
            aggregates.append(aggregate(column, test, column.argument, sampled=slot is not None))
        by = [pane(table.width), *(["s.__block"] if shedding.blocks else []), *table.keys, *table.values]
        blocks = ["s.__block AS block"] if shedding.blocks else []
        selected = ", ".join([f"{by[0]} AS pane", *blocks, *keys_of(table), *aggregates])
        grouped = bool(table.keys or table.values)
        where = ""
        if grouped:
            wanted = "" if "true" in tests else f" AND ({' OR '.join(dict.fromkeys(tests))})"
            where = f" WHERE {since()}{wanted}"
        counts = "" if grouped else "/*counts*/"
        rows = shedding.rows(lookups_of(chunk), _guards(chunk, slots, shedding))
        strata = [s for s in dict.fromkeys(slots) if s is not None and s.keys and s.keys == table.keys]
        wanting = _wanting(chunk, paths, slots, shedding)
        items = [
            f"{_guarded(sql, wanting.get(sql))} AS {name.removeprefix('s.')}" for sql, name in named.items()
        ]
        items += [shedding.frequent_sql(slot) for slot in strata if shedding.tested]
        if items:
            rows = f"(SELECT s.*, {', '.join(items)} FROM {rows}) s"
        for slot in strata:
            if shedding.tested:
                selected += f", max(CASE WHEN s.{frequent(slot)} THEN 0 ELSE 1 END) AS stratum_{slot.id}"
            selected += f", xxhash64({', '.join(slot.keys)}) AS group_{slot.id}"
        sql = f"SELECT {selected}{counts} FROM {rows}{where} GROUP BY {', '.join(by)}"
        yield Statement(id_, sql, tuple(c.id for c in chunk))


def _wanting(
    columns: tuple[Column, ...],
    paths: Sequence[tuple[Operator, ...]],
    slots: Sequence[Slot | None],
    shedding: Shedding,
) -> dict[str, str]:
    """By predicate: what a row must pass for some path to test it; none where one tests it for every row."""
    found: dict[str, dict[str | None, None]] = {}
    for column, path, slot in zip(columns, paths, slots, strict=True):
        # rare groups have a threshold of their own, which is not looked at here
        drawn = None if slot is not None and slot.keys else shedding.test(slot)
        tests = [t for t in (shedding.needed(column.path), drawn) if t is not None]
        for predicate in path:
            if isinstance(predicate, str):
                found.setdefault(predicate, {})[" AND ".join(tests) or None] = None
    return {
        predicate: " OR ".join(f"({t})" for t in tests if t is not None)
        for predicate, tests in found.items()
        if None not in tests
    }


def _guarded(predicate: str, test: str | None) -> str:
    """A predicate that is not evaluated for rows which fail a test."""
    return f"({predicate})" if test is None else f"CASE WHEN {test} THEN ({predicate}) END"


def _guards(columns: tuple[Column, ...], slots: Sequence[Slot | None], shedding: Shedding) -> dict[str, str]:
    """By lookup: what a row must pass for some path to want it looked up; none where one wants all rows."""
    wanting: dict[str, dict[str | None, None]] = {}
    for column, slot in zip(columns, slots, strict=True):
        for lookup in column.path.lookups if column.path is not None else ():
            tests = [t for t in (shedding.needed(column.path), shedding.test(slot)) if t is not None]
            wanting.setdefault(lookup.alias, {})[" AND ".join(tests) or None] = None
    return {
        alias: f"({' OR '.join(t for t in tests if t is not None)})"
        for alias, tests in wanting.items()
        if None not in tests
    }


def _physical(
    id_: str,
    table: Table,
    columns: tuple[Column, ...],
    order: dict[Path, tuple[Operator, ...]],
    shedding: Shedding,
) -> Statement:
    """Rows are filtered before anything else: for Python functions and sequence numbers."""
    path = table.path
    assert path is not None
    slot = shedding.slots.at(path)
    sized = slot is not None and slot.summed is not None and shedding.tested
    thinned = shedding.sized_test(slot) if slot is not None and sized else shedding.test(slot)
    test = condition(in_order(path, order), None if table.tuples else shedding.needed(path), thinned)
    tau = shedding.tau(slot) if slot is not None and sized else None
    inputs = _Inputs.of(columns)
    blocks = ["s.__block AS block"] if shedding.blocks else []
    inner = ["s.__t", "s.__part", "s.__seq", "s.__p", "s.__i", *blocks, *keys_of(table)]
    inner += inputs.items()
    rows = f"SELECT {', '.join(inner)} FROM {shedding.rows(path.lookups)} WHERE {since()} AND {test}"
    by_time = f"s.__t - pmod(s.__t, {table.width})"
    by_number = table.tuples and shedding.leaves_out
    if table.tuples:
        rows = _numbered(rows)
        by_time = f"s.__n - pmod(s.__n, {table.width})"
    if by_number:
        need = need_of("s.__n", "s.__p", "s.__i", shedding.need_position)
        rows = f"SELECT s.*, {need} AS __need FROM ({rows}) s"
    names = ["pane", *(["block"] if shedding.blocks else []), *key_names(table)]
    if table.kind in ("rows", "states"):
        kept = ", ".join([f"{by_time} AS pane", *key_names(table), "s.__t", "s.__part", "s.__seq"])
        counting = f"SELECT count(*) AS n FROM ({rows}) s" if by_number else ""
        where = f" WHERE {has_bit(0)}" if by_number else ""
        return Statement(id_, f"SELECT {kept} FROM ({rows}) s{where}", numbering=counting)
    numbering = ""
    if by_number and table.kind == "values":
        numbering = f"SELECT count(*) AS n FROM ({rows}) s"
        rows = f"SELECT * FROM ({rows}) s WHERE {has_bit(0)}"
    needed = has_bit(0) if by_number else None
    aggregates = [
        # rows are counted, and their times known, whether or not their window is kept
        inputs.aggregate(c, sampled=slot is not None, tau=tau, needed=None if c in COUNTING else needed)
        for c in columns
    ]
    outer = ", ".join([*names, *aggregates])
    grouped = f"SELECT *, {by_time} AS pane FROM ({rows}) s"
    sql = f"SELECT {outer} FROM ({grouped}) s GROUP BY {', '.join(names)}"
    return Statement(id_, sql, tuple(c.id for c in columns), numbering=numbering)


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
    id_: str, table: Table, columns: tuple[Column, ...], plan: Plan, shedding: Shedding
) -> tuple[list[Statement], dict[str, str]]:
    """A join with the constants of all members finds the queries that a row matches."""
    signature = table.signature
    assert signature is not None
    statements, views = [], {}
    members = plan.members[id_]
    places = {m: shedding.position(shedding.slots.at(None, id_, m)) for m in members}
    sampled = any(shedding.slots.at(None, id_, m) is not None for m in members)
    tested = sampled and shedding.tested
    bits = {m: bit for m in members if (bit := shedding.bit(id_, m)) is not None}
    for number, (width, rows) in enumerate(probe_rows(signature, members).items()):
        name = f"constants_{id_}_{number}{'_shed' if tested else ''}{'_windows' if bits else ''}"
        views[name] = _constants(signature, rows, places if tested else {}, bits)
        on = [f"{p.expression} = c.c{p.constants[0]}" for p in signature.equalities]
        if signature.range is not None:
            on.append(f"CAST(floor(({signature.range.expression}) / {width!r}D) AS BIGINT) = c.cell")
        constants = {str(i): f"c.c{i}" for i in range(len(rows[0][2]))}
        # members that need every row have no bit of their own
        tests = ["(c.needed < 0 OR (s.__need & c.needed) != 0)"] if bits else []
        tests += ["s.__u < get(s.__p, s.__i + c.place)"] if tested else []
        tests += [f"{k.alias}.__hit" for k in signature.lookups if k.inner]
        tests += [f"({p})" for p in signature.common]
        residual = [_with_constants(p, constants) for p in signature.residual]
        inputs = _Inputs.of(columns)
        blocks = ["s.__block AS block"] if shedding.blocks else []
        inner = ", ".join(
            [f"{pane(table.width)} AS pane", *blocks, "c.q AS q", *keys_of(table), *inputs.items()]
        )
        source = f"{shedding.rows(signature.lookups)} JOIN `{name}` c ON {' AND '.join(on)}"
        where = " AND ".join([since(), *tests, *residual])
        names = ["pane", *(["block"] if shedding.blocks else []), "q", *key_names(table)]
        aggregates = [inputs.aggregate(c, sampled=sampled) for c in columns]
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


def _constants(
    signature: Signature,
    rows: list[tuple[int, int | None, tuple[str, ...]]],
    places: Mapping[int, int],
    bits: Mapping[int, int],
) -> str:
    """The constants as a VALUES list; an IN list gives a row for each of its values.

    ``places`` say where the threshold of each member is among the numbers of a batch, ``bits`` which rows
    those members need whose windows may be left out.
    """
    listed = {p.constants[0] for p in signature.equalities}
    lines = []
    for member, cell, constants in rows:
        expanded: list[list[str]] = [[]]
        for index, constant in enumerate(constants):
            values = values_listed(constant) if index in listed else [constant]
            expanded = [[*done, value] for done in expanded for value in values]
        lead = [f"{member}L", f"{cell}L" if cell is not None else "NULL"]
        lead += [str(places[member])] if places else []
        lead += [f"{1 << bits[member] if member in bits else -1}L"] if bits else []
        lines += [f"({', '.join([*lead, *e])})" for e in expanded]
    lead = ["q", "cell", *(["place"] if places else []), *(["needed"] if bits else [])]
    names = ", ".join([*lead, *(f"c{i}" for i in range(len(rows[0][2])))])
    return f"SELECT DISTINCT * FROM VALUES {', '.join(lines)} AS t({names})"


def _emit(step: Step, shedding: Shedding) -> str:
    slot = shedding.slots.at(step.path)
    tests = condition((*step.path.lookups, *step.path.predicates), shedding.test(slot))
    outputs = ", ".join(f"{o.sql} AS o{i}" for i, o in enumerate(step.outputs))
    return (
        f"SELECT s.__t AS at, {outputs}, s.__part, s.__seq FROM {shedding.rows(step.path.lookups)} "
        f"WHERE {since()} AND {tests}"
    )
