"""Closed windows as answers for the reader and as rows for the steps that read them.

A *result* is a table with ``ws``, ``we`` (bounds in microseconds), ``rows``, ``k0…`` and ``o0…``
(keys and items), whether the driver or Spark made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.language.render import quoted_name
from slackwater.plan.model import Step, TimeWindow, TupleWindow
from slackwater.plan.tables import StepPlan
from slackwater.planners.window_schedule import QuerySchedule
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import How
from slackwater.runtime.closing import Closed
from slackwater.runtime.expressions import evaluate

ANSWERS_AT_A_TIME = 50_000
EvaluateBySpark = Callable[[pa.Table], pa.Table]


def result_of(plans: Sequence[StepPlan], closed: Closed, by_spark: EvaluateBySpark) -> pa.Table:
    """The result of windows closed on the driver; what Arrow cannot compute, Spark does.

    Where alike steps were read together, ``owner`` says which one a row is of.
    """
    step = plans[0].step
    stamp = pa.timestamp("us", tz="UTC")
    columns: dict[str, pa.Array] = {f"k{i}": key for i, key in enumerate(closed.keys)}
    columns |= {f"a{i}": call for i, call in enumerate(closed.calls)}
    bounds = {
        "ws": pa.array(closed.window_start),
        "we": pa.array(closed.window_end),
        "rows": pa.array(closed.rows),
    }
    if len(plans) > 1:
        bounds["owner"] = pa.array(closed.owner)
    timed = {**columns, "window_start": bounds["ws"].cast(stamp), "window_end": bounds["we"].cast(stamp)}
    items: dict[str, pa.Array] = {}
    for index, output in enumerate(step.outputs):
        values = evaluate(output.sql, timed)
        if values is None:
            return by_spark(pa.table({**bounds, **timed}))
        items[f"o{index}"] = values
    result = pa.table({**bounds, **{f"k{i}": columns[f"k{i}"] for i in range(len(step.keys))}, **items})
    if step.having is None:
        return result
    passes = evaluate(step.having, timed)
    if passes is None:
        return by_spark(pa.table({**bounds, **timed}))
    return result.filter(pc.fill_null(passes, False))


def answers_of(
    step: Step,
    result: pa.Table,
    emitted_at: datetime,
    names: Sequence[str] = (),
    schedules: Sequence[QuerySchedule | None] = (),
) -> Iterator[AnswerBatch]:
    """A result as answers: one for each window, group and aggregated item.

    ``names`` are those of the queries that the ``owner`` of each row counts, ``schedules`` what is left out
    of their windows: answers that came while some were are a subset.
    """
    if result.num_rows == 0:
        return
    if any(s is not None and s.thinned for s in schedules):
        shares = _shares(step, result, schedules)
        for thinned in (False, True):
            chosen = (shares > 0) == thinned
            part = result.filter(pa.array(chosen))
            for batch in answers_of(step, part, emitted_at, names):
                how: How = "subset" if thinned else "exact"
                yield replace(batch, how=how, rate=1.0 - shares[chosen]) if thinned else batch
        return
    keys = _keys(step, result)
    start, end = result["ws"].to_numpy(), result["we"].to_numpy()
    rows = result["rows"]
    counted = rows.to_numpy().astype(np.int64) if rows.null_count == 0 else None
    aggregated = [(f"o{i}", o.name) for i, o in enumerate(step.outputs) if o.aggregated]
    nothing = pa.nulls(result.num_rows)
    query: str | pa.Array = step.name
    if names:
        owner = pc.cast(_whole(result["owner"]), pa.int32())
        query = pa.DictionaryArray.from_arrays(owner, pa.array(names))
    for column, name in aggregated or [("", "*")]:
        yield AnswerBatch(
            query=query,
            column=name,
            window_start=start,
            window_end=end,
            keys=keys,
            value=_whole(result[column]) if column else nothing,
            confidence=1.0,
            how="exact",
            rows=counted,
            emitted_at=emitted_at,
        )


def _shares(
    step: Step, result: pa.Table, schedules: Sequence[QuerySchedule | None]
) -> npt.NDArray[np.float64]:
    """Of each row, which share of windows was left out when its own was decided."""
    owner = result["owner"].to_numpy() if len(schedules) > 1 else np.zeros(result.num_rows, dtype=np.int64)
    shares = np.zeros(result.num_rows)
    begun = result["ws"].to_numpy()
    for number, schedule in enumerate(schedules):
        for low, high, share in schedule.thinned if schedule is not None else ():
            # windows over rows have no time that they start at: what holds now stands for it
            there = (begun >= low) & (begun < high) if isinstance(step.window, TimeWindow) else True
            shares[(owner == number) & there] = share
    return shares


def _keys(step: Step, result: pa.Table) -> dict[str, pa.Array]:
    """Group keys and the items made of them, by name."""
    named = {key.name: _whole(result[f"k{i}"]) for i, key in enumerate(step.keys)}
    for index, output in enumerate(step.outputs):
        if not output.aggregated:
            named[output.name] = _whole(result[f"o{index}"])
    return named


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def row_answers(
    step: Step, rows: pa.Table, emitted_at: datetime, rate: float = 1.0, *, met: bool = True
) -> Iterator[AnswerBatch]:
    """The rows of a set-valued query: an answer each, the row's columns being its keys.

    Each row is as it was; where a sample was drawn, some are missing.
    """
    if rows.num_rows:
        yield AnswerBatch(
            query=step.name,
            column="*",
            at=rows["at"].to_numpy(),
            keys={o.name: _whole(rows[f"o{i}"]) for i, o in enumerate(step.outputs)},
            value=pa.nulls(rows.num_rows),
            confidence=1.0,
            how="exact" if rate >= 1.0 else "sampled",
            rate=rate,
            met=met,
            rows=np.ones(rows.num_rows, dtype=np.int64),
            emitted_at=emitted_at,
        )


def read_results(path: Path) -> Iterator[pa.Table]:
    """A result that Spark wrote, in pieces that fit the driver."""
    for file in sorted(path.glob("*.parquet")):
        for batch in pq.ParquetFile(file).iter_batches(ANSWERS_AT_A_TIME):
            yield pa.table(batch)


def handed_on(step: Step, result: pa.Table) -> pa.Table:
    """A result as rows for the steps that read it: items by name, time, order."""
    stamp = pa.timestamp("us", tz="UTC")
    keys = [f"k{i}" for i in range(len(step.keys)) if not pa.types.is_nested(result[f"k{i}"].type)]
    by = [(name, "ascending", "at_start") for name in ("we", "ws", *keys)]
    order = pc.sort_indices(result, by)
    result = result.take(order)
    columns: dict[str, pa.Array] = {o.name: _whole(result[f"o{i}"]) for i, o in enumerate(step.outputs)}
    time = _whole(result[_time_of(step)])
    columns.setdefault(step.time, time.cast(stamp))
    columns.setdefault("window_start", _whole(result["ws"]).cast(stamp))
    columns.setdefault("window_end", _whole(result["we"]).cast(stamp))
    columns["__t"] = time
    columns["__part"] = pa.array(np.zeros(result.num_rows, dtype=np.int64))
    columns["__seq"] = pa.array(np.arange(result.num_rows, dtype=np.int64))
    return pa.table(columns)


def handed_on_sql(step: Step) -> list[str]:
    """The same for a result in files, as the items of a SELECT."""
    time = _time_of(step)
    items = {o.name: f"o{i}" for i, o in enumerate(step.outputs)}
    items.setdefault(step.time, f"timestamp_micros({time})")
    items.setdefault("window_start", "timestamp_micros(ws)")
    items.setdefault("window_end", "timestamp_micros(we)")
    # only windows over rows ask for the order; for others Spark leaves this out
    by = ", ".join(["we", "ws", *(f"k{i}" for i in range(len(step.keys)))])
    order = ["CAST(0 AS BIGINT) AS __part", f"CAST(row_number() OVER (ORDER BY {by}) AS BIGINT) AS __seq"]
    return [*(f"{sql} AS {quoted_name(name)}" for name, sql in items.items()), f"{time} AS __t", *order]


def _time_of(step: Step) -> str:
    """A window is handed on under its start; a tuple window, whose rows may be far apart, under its end."""
    return "we" if isinstance(step.window, TupleWindow) else "ws"
