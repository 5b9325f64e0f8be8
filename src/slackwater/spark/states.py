"""User-defined aggregates on Spark: states by pane where they merge, rows by pane where they do not."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, LongType, StructField, StructType, _parse_datatype_string

from slackwater.language.aggregates import UserAggregate
from slackwater.plan.tables import Table

_ORDER = ("__t", "__part", "__seq")


def _names(table: Table) -> tuple[list[str], list[str]]:
    return [f"k{i}" for i in range(len(table.keys))], [f"v{i}" for i in range(len(table.values))]


def _fed(rows: pa.Table, values: list[str], aggregate: UserAggregate) -> tuple[pa.Table, Any]:
    """Rows in order of event time and arrival, and the state after them."""
    ordered = rows.sort_by([(name, "ascending") for name in _ORDER])
    state = aggregate.init()
    columns = [ordered[v].to_pylist() for v in values]
    for arguments in zip(*columns, strict=True) if values else [()] * ordered.num_rows:
        state = aggregate.incr(state, *arguments)
    return ordered, state


def first_states(frame: DataFrame, table: Table, aggregate: UserAggregate) -> DataFrame:
    """Rows to states, one per pane and group: fed in order of event time and arrival."""
    keys, values = _names(table)
    kept = {f.name: f for f in frame.schema.fields}
    schema = StructType(
        [
            kept["pane"],
            *(kept[k] for k in keys),
            StructField("state", BinaryType()),
            StructField("n", LongType()),
            StructField("first_time", LongType()),
            StructField("last_time", LongType()),
        ]
    )

    def reduce(rows: pa.Table) -> pa.Table:
        ordered, state = _fed(rows, values, aggregate)
        times = ordered["__t"].to_pylist()
        head = ordered.select(["pane", *keys]).slice(0, 1)
        head = head.append_column("state", pa.array([pickle.dumps(state)], pa.binary()))
        head = head.append_column("n", pa.array([ordered.num_rows], pa.int64()))
        head = head.append_column("first_time", pa.array([min(times)], pa.int64()))
        return head.append_column("last_time", pa.array([max(times)], pa.int64()))

    return frame.groupBy("pane", *keys).applyInArrow(reduce, schema)


def final_states(frame: DataFrame, table: Table, aggregate: UserAggregate) -> DataFrame:
    """Windows from states (merged in pane order) or from rows: w, k…, value, present, first and last time."""
    keys, values = _names(table)
    kept = {f.name: f for f in frame.schema.fields}
    returns = _parse_datatype_string(aggregate.returns)
    # said, not guessed: a Python int may be meant as INT or DOUBLE, and None has no type of its own
    arrow = to_arrow_type(returns, timezone="UTC")
    schema = StructType(
        [
            StructField("w", LongType()),
            *(kept[k] for k in keys),
            StructField("value", returns),
            StructField("present", LongType()),
            StructField("first_time", LongType()),
            StructField("last_time", LongType()),
        ]
    )
    final, merge = aggregate.final, aggregate.merge

    def from_states(rows: pa.Table) -> tuple[Any, int, int, int]:
        ordered = rows.sort_by([("pane", "ascending"), ("first_time", "ascending")])
        states: Iterator[Any] = map(pickle.loads, ordered["state"].to_pylist())
        state = next(states)
        for following in states:
            assert merge is not None
            state = merge(state, following)
        first, last = ordered["first_time"].to_pylist(), ordered["last_time"].to_pylist()
        return final(state), sum(ordered["n"].to_pylist()), min(first), max(last)

    def from_rows(rows: pa.Table) -> tuple[Any, int, int, int]:
        ordered, state = _fed(rows, values, aggregate)
        times = ordered["__t"].to_pylist()
        return final(state), ordered.num_rows, min(times), max(times)

    read = from_states if merge is not None else from_rows

    def finish(rows: pa.Table) -> pa.Table:
        value, count, first, last = read(rows)
        head = rows.select(["w", *keys]).slice(0, 1)
        head = head.append_column("value", pa.array([value], arrow))
        for name, number in (("present", count), ("first_time", first), ("last_time", last)):
            head = head.append_column(name, pa.array([number], pa.int64()))
        return head

    return frame.groupBy("w", *keys).applyInArrow(finish, schema)
