"""Windows read from the pane log by Spark: for holistic aggregates and for very many groups."""

from __future__ import annotations

from collections.abc import Sequence

from slackwater.plan.algebra import algebra
from slackwater.plan.functions import Functions
from slackwater.plan.model import Call, Key, TupleWindow, Window
from slackwater.plan.tables import CallPlan, Column, StepPlan, Table
from slackwater.spark.statement import PARAMETERS

FIRST, LAST, CHOSEN = 0, 1, 2
"""Parameters: the first and the last window that close, then 1 or 0 for each where some are left out."""


def windows_sql(table: Table, window: Window, view: str) -> str:
    """Partials by the windows ``w`` that close, from the panes in a view."""
    parameters = f"cast(split({PARAMETERS}, ',') as array<bigint>)"
    low = f"CAST(ceil((pane + {table.width - window.size - window.offset}) / {window.slide}D) AS BIGINT)"
    high = f"CAST(floor((pane - {window.offset}) / {window.slide}D) AS BIGINT)"
    bounded = (
        f"SELECT *, greatest({low}, get(p, i)) AS lo, least({high}, get(p, i + {LAST})) AS hi "
        f"FROM (SELECT *, {parameters} AS p, coalesce(cast(pane & 0 as int), 0) AS i FROM `{view}`)"
    )
    held = f"SELECT explode(sequence(lo, hi)) AS w, * FROM ({bounded}) WHERE lo <= hi"
    chosen = f"coalesce(get(p, i + {CHOSEN} + cast(w - get(p, i) as int)), 1L) = 1L"
    return f"SELECT * EXCEPT (p, i, lo, hi) FROM ({held}) WHERE {chosen}"


def bind_windows(sql: str, first: int, last: int, chosen: Sequence[bool] = ()) -> str:
    """A statement for the windows from the first to the last, or for the chosen ones of them."""
    numbers = ",".join(map(str, (first, last, *map(int, chosen))))
    return sql.replace(PARAMETERS, f"'{numbers}'")


def merged(column: Column, name: str) -> str:
    return f"{column.merge if column.merge in ('sum', 'min', 'max') else 'sum'}({name})"


def finish_sql(
    plan: StepPlan,
    tables: dict[str, Table],
    columns: dict[str, tuple[Column, ...]],
    views: dict[str, str],
    functions: Functions,
) -> str:
    """One statement that gives a step's closed windows: window_start, window_end, k…, o…, rows.

    ``views`` names the pane view of each table, or for user aggregates the view of their results
    (w, k…, value, and first and last time for tuple windows).
    """
    step = plan.step
    window = step.window
    assert window is not None
    tuples = isinstance(window, TupleWindow)
    parts: list[tuple[str, str]] = []
    values: list[str] = []
    rows: str | None = None
    times: tuple[str, str] | None = None
    partial_table = plan.presence[0] if plan.presence is not None else None
    if partial_table is not None:
        assert plan.presence is not None
        sql = _partials(plan, tables[partial_table], columns[partial_table], views[partial_table], functions)
        parts.append(("m", sql))
        rows = "m.present"
        times = ("m.first_time", "m.last_time") if tuples else None
    for index, (call, where) in enumerate(zip(step.calls, plan.calls, strict=True)):
        table = tables[where.table]
        alias = f"h{index}"
        if table.kind == "partials":
            values.append(f"m.a{index}")
            continue
        if table.kind == "values":
            parts.append((alias, _holistic(call, where, table, window, views[where.table])))
        else:
            parts.append((alias, f"SELECT * FROM `{views[where.table]}`"))
        values.append(f"{alias}.value")
        rows = rows or f"{alias}.present"
        times = times or ((f"{alias}.first_time", f"{alias}.last_time") if tuples else None)
    return _joined(plan, parts, values, rows, times)


def _joined(
    plan: StepPlan,
    parts: list[tuple[str, str]],
    values: list[str],
    rows: str | None,
    times: tuple[str, str] | None,
) -> str:
    step = plan.step
    window = step.window
    assert window is not None
    first = parts[0][0]
    text = f"({parts[0][1]}) {first}"
    # a filtered call has no row where nothing passed its filter, so the first part leads
    for alias, sql in parts[1:]:
        on = [f"{first}.w = {alias}.w"] + [f"{first}.k{i} <=> {alias}.k{i}" for i in range(len(step.keys))]
        text += f" LEFT JOIN ({sql}) {alias} ON {' AND '.join(on)}"
    if times is not None:
        start = f"min({times[0]}) OVER (PARTITION BY {first}.w)"
        end = f"max({times[1]}) OVER (PARTITION BY {first}.w)"
    else:
        start = f"{first}.w * {window.slide} + {window.offset}"
        end = f"{first}.w * {window.slide} + {window.offset + window.size}"
    inner = [f"{start} AS ws", f"{end} AS we", f"CAST({rows or 'NULL'} AS BIGINT) AS rows"]
    inner += [f"{first}.k{i} AS k{i}" for i in range(len(step.keys))]
    inner += [f"{value} AS a{i}" for i, value in enumerate(values)]
    stamped = (
        f"SELECT *, timestamp_micros(ws) AS window_start, timestamp_micros(we) AS window_end "
        f"FROM (SELECT {', '.join(inner)} FROM {text})"
    )
    return f"SELECT {outputs_sql(plan, step.keys)} FROM ({stamped}){having_sql(plan)}"


def outputs_sql(plan: StepPlan, keys: tuple[Key, ...], *carried: str) -> str:
    """Bounds, keys and items of closed windows, over columns ws, we, rows, k…, a…."""
    names = ["ws", "we", "rows", *carried, *(f"k{i}" for i in range(len(keys)))]
    return ", ".join([*names, *(f"{o.sql} AS o{i}" for i, o in enumerate(plan.step.outputs))])


def having_sql(plan: StepPlan) -> str:
    return f" WHERE {plan.step.having}" if plan.step.having is not None else ""


def _partials(
    plan: StepPlan, table: Table, columns: tuple[Column, ...], view: str, functions: Functions
) -> str:
    step = plan.step
    assert plan.presence is not None
    assert step.window is not None
    by_id = {c.id: c for c in columns}
    names = ["w", *(f"k{i}" for i in range(len(step.keys)))]
    selected = [f"sum({plan.presence[1]}) AS present"]
    if table.tuples:
        from slackwater.plan.layout import FIRST_TIME, LAST_TIME

        selected += [f"min({FIRST_TIME.id}) AS first_time", f"max({LAST_TIME.id}) AS last_time"]
    for index, (call, where) in enumerate(zip(step.calls, plan.calls, strict=True)):
        if where.table != plan.presence[0]:
            continue
        final = algebra(call, functions).final
        selected.append(f"{_final(final, where, by_id)} AS a{index}")
    source = windows_sql(table, step.window, view)
    member = f" WHERE q = {plan.member}" if plan.member is not None else ""
    return (
        f"SELECT {', '.join([*names, *selected])} FROM ({source}){member} GROUP BY {', '.join(names)} "
        f"HAVING sum({plan.presence[1]}) > 0"
    )


def _final(final: str, where: CallPlan, columns: dict[str, Column]) -> str:
    name = where.columns
    if final == "n":
        return f"sum({name['n']})"
    if final in ("total", "least", "largest"):
        return merged(columns[name[final]], name[final])
    if final == "average":
        return f"CAST(sum({name['total']}) AS DOUBLE) / nullif(sum({name['n']}), 0)"
    # Chan's merge as a fold: a sum of squares would lose its digits where the mean is large
    item = (
        f"named_struct('n', coalesce({name['n']}, 0L), 'mean', coalesce({name['mean']}, 0D), "
        f"'m2', coalesce({name['m2']}, 0D))"
    )
    step = (
        "(a, b) -> named_struct('n', a.n + b.n, "
        "'mean', a.mean + (b.mean - a.mean) * b.n / greatest(a.n + b.n, 1), "
        "'m2', a.m2 + b.m2 + (b.mean - a.mean) * (b.mean - a.mean) * a.n * b.n / greatest(a.n + b.n, 1))"
    )
    divisor = "t.n - 1" if final.endswith("_samp") else "t.n"
    variance = f"CASE WHEN {divisor} > 0 THEN t.m2 / ({divisor}) END"
    result = f"sqrt({variance})" if final.startswith("stddev") else variance
    zero = "named_struct('n', 0L, 'mean', 0D, 'm2', 0D)"
    return f"aggregate(collect_list({item}), {zero}, {step}, t -> {result})"


def _holistic(call: Call, where: CallPlan, table: Table, window: Window, view: str) -> str:
    keys = [f"k{i}" for i in range(len(table.keys))]
    values = [f"v{i}" for i in range(len(table.values))]
    sums = [f"sum({where.columns['n']}) AS n", f"sum({where.columns['present']}) AS present"]
    if table.tuples:
        sums += [f"min({where.columns['first']}) AS first_time", f"max({where.columns['last']}) AS last_time"]
    names = ["w", *keys, *values]
    source = windows_sql(table, window, view)
    inner = f"SELECT {', '.join([*names, *sums])} FROM ({source}) GROUP BY {', '.join(names)}"
    outer = ["w", *keys, f"{_holistic_final(call, values)} AS value", "sum(present) AS present"]
    if table.tuples:
        outer += ["min(first_time) AS first_time", "max(last_time) AS last_time"]
    grouped = ", ".join(["w", *keys])
    return f"SELECT {', '.join(outer)} FROM ({inner}) GROUP BY {grouped} HAVING sum(present) > 0"


def _holistic_final(call: Call, values: list[str]) -> str:
    counted = " AND ".join(["n > 0", *(f"{v} IS NOT NULL" for v in values)])
    if call.function == "percentile":
        return f"percentile({values[0]}, {call.parameter!r}D, coalesce(n, 0L))"
    if call.function == "count_distinct":
        return f"count(CASE WHEN {counted} THEN 1 END)"
    return f"{call.function.removesuffix('_distinct')}(CASE WHEN {counted} THEN {values[0]} END)"
