"""Current values in Spark: a batch reduced to the last row of each key and tick, and queries over the keys.

What comes to the driver of a batch is one row for each key and tick, whatever the number of rows that it
had; which keys a query reads, and how it weighs them, is asked once for each new key.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from slackwater.language.render import quoted_name
from slackwater.plan.catalog import Catalog
from slackwater.plan.current import CurrentPlan, CurrentStep
from slackwater.plan.linear import LinearCall
from slackwater.plan.model import Step
from slackwater.plan.scope import safe_name
from slackwater.planners.terms import LATEST
from slackwater.spark.check import call_sql

LAST = LATEST
"""Name of the statement that reduces a batch."""


def reduce_sql(plan: CurrentPlan) -> str:
    """One row for each key and tick of a batch: the last by event time, then by order of arrival.

    Guarantee: ``cell`` is the least multiple of the tick at or after the row's time ``t``; signals are
    doubles, NULL where the row has none.
    """
    tick, keys = plan.tick, plan.stream.key
    kept = ["s.__t AS t", *(f"CAST({sql} AS DOUBLE) AS v{i}" for i, sql in enumerate(plan.signals))]
    kept.append(f"struct({', '.join(f's.{quoted_name(n)}' for n in row_columns(plan))}) AS r")
    fields = ["t", *(f"v{i}" for i in range(len(plan.signals))), "r"]
    named = ", ".join(f"s.{quoted_name(key)} AS k{i}" for i, key in enumerate(keys))
    by = ", ".join(f"k{i}" for i in range(len(keys)))
    inner = (
        f"SELECT {named}, s.__t + pmod(-s.__t, {tick}L) AS cell, struct({', '.join(kept)}) AS last, "
        "struct(s.__t, s.__part, s.__seq) AS place FROM __VIEW__ s WHERE s.__t IS NOT NULL"
    )
    last = f"SELECT {by}, cell, max_by(last, place) AS last FROM ({inner}) GROUP BY {by}, cell"
    return f"SELECT {by}, cell, {', '.join(f'last.{f} AS {f}' for f in fields)} FROM ({last})"


def row_columns(plan: CurrentPlan) -> list[str]:
    """The columns that Spark's queries may read of a current row."""
    names = [c.name for c in plan.stream.columns]
    return names if plan.stream.time in names else [*names, plan.stream.time]


def entries_sql(step: CurrentStep, keys: str) -> str:
    """The entries of a query's matrix for the keys of a view: by key and group, rows and weights.

    ``n`` counts the rows that a key has in a group (a lookup may meet many), ``n{i}`` those of call i,
    ``w{i}_{j}`` sums the weights of its term j; a least and a largest weight are for MIN and MAX.
    """
    form = step.linear
    assert form is not None
    items = ["s.__key AS key", *(f"{k.sql} AS g{i}" for i, k in enumerate(step.step.keys)), "count(*) AS n"]
    for index, call in enumerate(form.calls):
        items += _weights(index, call)
    group = ", ".join(["s.__key", *(k.sql for k in step.step.keys)])
    tables = _tables(step.step, f"`{keys}` s")
    return f"SELECT {', '.join(items)} FROM {tables}{_where(step.step)} GROUP BY {group}"


def _weights(index: int, call: LinearCall) -> list[str]:
    tests = [f"({call.condition})"] if call.condition is not None else []
    # what is no number is no value of a sum, and yet is counted
    as_read = "({})" if call.function == "count" else "CAST({} AS DOUBLE)"
    tests += [f"{as_read.format(term.weight)} IS NOT NULL" for term in call.terms]
    where = f" FILTER (WHERE {' AND '.join(tests)})" if tests else ""
    found = [f"count(*){where} AS n{index}"]
    for place, term in enumerate(call.terms):
        weight = f"CAST({term.weight} AS DOUBLE)"
        if call.function in ("min", "max"):
            found += [f"min({weight}){where} AS low{index}", f"max({weight}){where} AS high{index}"]
        else:
            found.append(f"sum({weight}){where} AS w{index}_{place}")
    return found


def _tables(step: Step, source: str) -> str:
    tables = source
    for lookup in step.path.lookups:
        side = "JOIN" if lookup.inner else "LEFT JOIN"
        tables += f" {side} `{safe_name(lookup.table)}` {lookup.alias} ON {lookup.on}"
    return tables


def _where(step: Step) -> str:
    return " WHERE " + " AND ".join(f"({p})" for p in step.path.predicates) if step.path.predicates else ""


def ticks_sql(step: Step, catalog: Catalog, view: str, *, empty: bool = False) -> str:
    """A query over the current rows of several ticks, which ``__tick`` tells apart.

    Items are ``o0…``, group keys ``k0…``, in an aggregating query also ``rows``. With ``empty`` it is what
    the query says where there is no row.
    """
    below = catalog.step_of(step.path.source)
    source = f"`{view}` s"
    if below is not None and below.aggregates:
        inner = ticks_sql(below, catalog, view)
        named = ", ".join(f"o{i} AS {quoted_name(o.name)}" for i, o in enumerate(below.outputs))
        time = "" if below.time in (o.name for o in below.outputs) else f", __at AS {quoted_name(below.time)}"
        stamped = f"SELECT *, timestamp_micros(__tick) AS __at FROM ({inner})"
        source = f"(SELECT __tick, {named}{time} FROM ({stamped})) s"
    tables = _tables(step, source)
    where = _where(step)
    if empty:
        where = f"{where} AND false" if where else " WHERE false"
    if not step.aggregates:
        items = ", ".join(f"{o.sql} AS o{i}" for i, o in enumerate(step.outputs))
        return f"SELECT s.__tick, {items} FROM {tables}{where}"
    inner = ", ".join(
        [
            *(f"{k.sql} AS k{i}" for i, k in enumerate(step.keys)),
            *(f"{call_sql(call, catalog)} AS a{i}" for i, call in enumerate(step.calls)),
            "count(*) AS rows",
        ]
    )
    by = [*([] if empty else ["s.__tick"]), *(k.sql for k in step.keys)]
    group = f" GROUP BY {', '.join(by)}" if by else ""
    tick = "CAST(NULL AS BIGINT) AS __tick" if empty else "s.__tick"
    outputs = [f"{o.sql} AS o{i}" for i, o in enumerate(step.outputs)]
    items = ", ".join(["__tick", *(f"k{i}" for i in range(len(step.keys))), *outputs, "rows"])
    having = f" WHERE {step.having}" if step.having is not None else ""
    return f"SELECT {items} FROM (SELECT {tick}, {inner} FROM {tables}{where}{group}){having}"


def items_sql(step: Step, view: str, carried: Sequence[str]) -> str:
    """The items of a query over finished calls and extremes, for what only Spark can compute."""
    items = [*carried, *(f"k{i}" for i in range(len(step.keys)))]
    items += [f"{o.sql} AS o{i}" for i, o in enumerate(step.outputs)]
    having = f" WHERE {step.having}" if step.having is not None else ""
    return f"SELECT {', '.join(items)} FROM `{view}`{having}"


def call_types(session: SparkSession, plan: CurrentPlan, step: Step, catalog: Catalog) -> list[pa.DataType]:
    """What the calls of a query are in Arrow, as Spark types them."""
    calls = [f"{call_sql(call, catalog)} AS a{i}" for i, call in enumerate(step.calls)]
    return _types(session, plan, step, calls) if calls else []


def _types(session: SparkSession, plan: CurrentPlan, step: Step, items: list[str]) -> list[pa.DataType]:
    stream = plan.stream
    columns = ", ".join(f"CAST(NULL AS {c.type}) AS {quoted_name(c.name)}" for c in stream.columns)
    if stream.time_expression is not None:
        columns += f", CAST(NULL AS TIMESTAMP) AS {quoted_name(stream.time)}"
    tables = _tables(step, f"(SELECT {columns}) s")
    schema = session.sql(f"SELECT {', '.join(items)} FROM {tables}").schema
    return list(to_arrow_schema(schema).types)
