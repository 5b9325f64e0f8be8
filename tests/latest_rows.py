"""Rows of keyed streams, and what the reference says of their current values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from reference_answers import at
from slackwater.reference.evaluate import ReferenceAnswer, Row, UserAggregate, evaluate

STREAM = """
CREATE STREAM s (ts TIMESTAMP, k STRING, x INT, g STRING)
  USING kafka OPTIONS (subscribe 's') FORMAT json KEY k TIMESTAMP BY ts LATENESS 2 SECONDS {tick};
CREATE TABLE held (k STRING, account STRING, qty INT) USING parquet OPTIONS (path 'held');
"""

HELD: dict[str, list[Row]] = {
    "held": [
        {"k": "a", "account": "long", "qty": 2},
        {"k": "b", "account": "long", "qty": 1},
        {"k": "a", "account": "short", "qty": -3},
        {"k": None, "account": "nobody", "qty": 1000},
    ]
}


def row(second: float | None, k: str | None, x: int | None, g: str | None = "n") -> Row:
    return {"ts": None if second is None else at(second), "k": k, "x": x, "g": g}


def run(
    query: str,
    rows: Sequence[Row] | Sequence[Sequence[Row]],
    *,
    tick: str = "TICK 1 SECOND",
    tables: Mapping[str, Sequence[Row]] = HELD,
    functions: Mapping[str, Callable[..., object]] = {},
    aggregates: Mapping[str, UserAggregate] = {},
    end: bool = True,
) -> list[ReferenceAnswer]:
    """The answers of one query ``q``, or of a text that creates steps itself."""
    sql = STREAM.format(tick=tick)
    sql += query if query.lstrip().startswith("CREATE") else f"CREATE QUERY q AS {query}"
    batches = [rows] if rows and isinstance(rows[0], Mapping) else rows
    return evaluate(sql, {"s": batches}, tables, functions, aggregates, end)  # type: ignore[dict-item]


def seen(answers: Sequence[ReferenceAnswer]) -> str:
    """Of each answer the tick in seconds, the values of the keys, and the value unless it is a row's."""
    found = []
    for a in answers:
        assert a.at is not None
        assert (a.window_start, a.window_end) == (None, None)
        values = [v for _, v in a.keys] + ([] if a.column == "*" else [a.value])
        found.append(" ".join([f"{(a.at - at(0)).total_seconds():g}", *map(shown, values)]))
    return ", ".join(found)


def shown(value: object) -> str:
    """A value as text; a time as @ and its second."""
    if isinstance(value, datetime):
        return f"@{(value - at(0)).total_seconds():g}"
    return "NULL" if value is None else str(value)


# key a:   0.5:1  1:2            3:5
# key b:               1.2:10
# tick          1       2        3
FEW = [row(0.5, "a", 1), row(1, "a", 2), row(1.2, "b", 10), row(3, "a", 5)]

LATE = [
    [row(1, "a", 1), row(5, "a", 5)],
    [row(1.5, "b", 100), row(2.5, "c", 20), row(5.5, "a", 6)],
    [row(0.2, "d", 1000), row(None, "e", 10000)],
]
