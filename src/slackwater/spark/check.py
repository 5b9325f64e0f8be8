"""Spark's own judgement of every query, on streams without rows, before anything runs."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import NumericType

from slackwater.errors import LanguageError, Position
from slackwater.language.render import quoted_name
from slackwater.language.statements import CreateQuery, CreateStream, CreateView, Source
from slackwater.language.tokens import position_at
from slackwater.plan.catalog import Catalog
from slackwater.plan.model import Call, Step
from slackwater.plan.scope import safe_name
from slackwater.plan.signature import shape
from slackwater.plan.tables import Plan
from slackwater.spark.execute import Executor, first_line


def check_with_spark(executor: Executor, plan: Plan) -> None:
    """Raise LanguageError, pointing at the query, where Spark cannot analyse one.

    Queries that differ only in constants are analysed once, and what has passed is not looked at again.
    """
    catalog = plan.catalog
    session = executor.session
    executor.prepare(session, catalog, {})
    frames: dict[str, DataFrame] = {}
    # LATEST(…) may meet many rows of a table: what it weighs by them is not a foreign key
    windowed = [s for s in catalog.steps.values() if not s.current]
    for lookup in dict.fromkeys(k for s in windowed for k in s.path.lookups):
        executor.check_lookup(lookup, catalog)
    for stream in catalog.streams.values():
        frames[stream.name.lower()] = _empty(executor, stream, catalog)
    for step in catalog.steps.values():
        source = frames[step.path.source.lower()]
        key = (source.schema.simpleString(), _form(step))
        read = bool(plan.steps_on(step.name))
        if key not in executor.checked or read:
            try:
                frame = _analyse(executor, source, step, catalog)
            except PySparkException as error:
                raise _complaint(catalog, step.name, error) from error
            frames[step.name.lower()] = frame
            if key not in executor.checked and (
                _answers_no_numbers(frame, step) or _sums_intervals(executor, source, step, catalog)
            ):
                executor.numberless.add(key)
            executor.checked.add(key)
        if key in executor.numberless:
            executor.unsampled.add(step.name.lower())
        else:
            executor.unsampled.discard(step.name.lower())


def _answers_no_numbers(frame: DataFrame, step: Step) -> bool:
    """Whether an aggregated item is a text, a truth value, a time or a list: no interval holds such."""
    # items come first in what was analysed, in their order
    kinds = [field.dataType for field in frame.schema.fields[: len(step.outputs)]]
    items = zip(step.outputs, kinds, strict=True)
    return any(o.aggregated and not isinstance(kind, NumericType) for o, kind in items)


def _sums_intervals(executor: Executor, source: DataFrame, step: Step, catalog: Catalog) -> bool:
    """Whether an aggregate is over intervals of time, which no estimate is made of."""
    calls = [call_sql(c, catalog) for c in step.calls if c.function not in ("count", "min", "max")]
    if not calls or (not any("interval" in t for _, t in source.dtypes) and not _may_subtract(step)):
        return False
    source.createOrReplaceTempView("checked__source")
    tables = "checked__source s"
    for lookup in step.path.lookups:
        tables += f" LEFT JOIN `{safe_name(lookup.table)}` {lookup.alias} ON {lookup.on}"
    found = executor.session.sql(
        f"SELECT {', '.join(f'{c} AS a{i}' for i, c in enumerate(calls))} FROM {tables}"
    )
    return any("interval" in kind for _, kind in found.dtypes)


def _may_subtract(step: Step) -> bool:
    """Whether an argument is more than a column: a difference of times is an interval."""
    return any(
        not argument.replace("`", "").replace(".", "").isidentifier()
        for c in step.calls
        for argument in c.arguments
    )


def _form(step: Step) -> tuple[object, ...]:
    """A step without its name and constants: what decides whether Spark accepts it."""
    return (shape(step.path)[0], step.keys, step.calls, step.moves, step.outputs, step.having)


def _empty(executor: Executor, stream: CreateStream, catalog: Catalog) -> DataFrame:
    columns = ", ".join(f"`{c.name}` {c.type}" for c in stream.columns)
    frame = executor.session.createDataFrame([], columns)
    if stream.time_expression is not None:
        try:
            frame = frame.selectExpr("*", f"CAST({stream.time_expression} AS TIMESTAMP) AS `{stream.time}`")
        except PySparkException as error:
            raise stream.source.error(f"Spark cannot read TIMESTAMP BY: {first_line(error)}") from error
    return frame


def _analyse(executor: Executor, source: DataFrame, step: Step, catalog: Catalog) -> DataFrame:
    """A frame with the step's columns and types, as Spark sees them."""
    source.createOrReplaceTempView("checked__source")
    tables = "checked__source s"
    for lookup in step.path.lookups:
        tables += f" LEFT JOIN `{safe_name(lookup.table)}` {lookup.alias} ON {lookup.on}"
    where = " AND ".join(f"({p})" for p in step.path.predicates) or "true"
    time = f"CAST(NULL AS TIMESTAMP) AS `{step.time}`"
    names = [o.name for o in step.outputs]
    if not step.aggregates:
        items = ", ".join(f"{o.sql} AS {quoted_name(o.name)}" for o in step.outputs)
        items += "" if step.time in names else f", s.`{step.time}`"
        return executor.session.sql(f"SELECT {items} FROM {tables} WHERE {where}")
    calls = [f"{call_sql(call, catalog)} AS a{i}" for i, call in enumerate(step.calls)]
    keys = [f"{k.sql} AS k{i}" for i, k in enumerate(step.keys)]
    inner = ", ".join(
        [*keys, *calls, "CAST(NULL AS TIMESTAMP) AS window_start", "CAST(NULL AS TIMESTAMP) AS window_end"]
    )
    grouped = f" GROUP BY {', '.join(k.sql for k in step.keys)}" if step.keys else ""
    items = ", ".join(f"{o.sql} AS {quoted_name(o.name)}" for o in step.outputs)
    extra = [n for n in ("window_start", "window_end") if n not in names]
    items = ", ".join(filter(None, [items, *extra, "" if step.time in names else time]))
    having = f" WHERE {step.having}" if step.having is not None else ""
    rows = f"(SELECT {inner} FROM {tables} WHERE {where}{grouped})"
    if step.moves:
        moves = ", ".join(f"{move.sql} AS m{i}" for i, move in enumerate(step.moves))
        rows = f"(SELECT *, {moves} FROM {rows})"
    return executor.session.sql(f"SELECT {items} FROM {rows}{having}")


def call_sql(call: Call, catalog: Catalog) -> str:
    """An aggregate as Spark writes it; a user's own is only told by its type."""
    user = catalog.functions.aggregate(call.function)
    inner = ", ".join(call.arguments)
    where = f" FILTER (WHERE {call.condition})" if call.condition is not None else ""
    if user is not None:
        return f"CAST(NULL AS {user.returns})"
    if call.function == "percentile":
        return f"percentile({inner}, {call.parameter!r}D){where}"
    if call.function == "count":
        return f"count({inner or '*'}){where}"
    if call.function.endswith("_distinct"):
        return f"{call.function.removesuffix('_distinct')}(DISTINCT {inner}){where}"
    return f"{call.function}({inner}){where}"


def _complaint(catalog: Catalog, name: str, error: PySparkException) -> LanguageError:
    declared = catalog.declared.get(name.lower().split(".")[0])
    # its line and position are those of a text that the user has not written
    text = re.sub(r"[;,] line \d+,? pos \d+.*$| SQLSTATE: \w+", "", first_line(error))
    # Spark's message names columns as the plan does; the user wrote them without the alias
    message = f"Spark refuses {name}: {text}".replace("`s`.", "").replace("s.`", "`")
    own = "a function of your own comes with --import FILE, or with session.function(…)"
    hint = own if "UNRESOLVED_ROUTINE" in text else ""
    if isinstance(declared, CreateQuery | CreateView):
        source: Source = declared.source
        return source.error(message, hint=hint, at=_place(text, source, declared.sql))
    return LanguageError(message, hint=hint)


def _place(text: str, source: Source, sql: str) -> Position | None:
    """Where the first name that Spark complains of stands in the statement."""
    for quoted in re.findall(r'[`"]([^`"]+)[`"]', text):
        for word in re.findall(r"\w+", quoted):
            found = re.search(rf"\b{re.escape(word)}\b", sql, re.IGNORECASE)
            if found is not None:
                return position_at(source.text, source.position.offset + found.start())
    return None
