"""A stream that the tests of the reference share, and how they ask for its answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from slackwater.reference.evaluate import ReferenceAnswer, Row, UserAggregate, evaluate

STREAM = """
CREATE STREAM p (ts TIMESTAMP, host STRING, size INT, load DOUBLE, ok BOOLEAN)
  USING kafka OPTIONS (subscribe 'p') FORMAT json TIMESTAMP BY ts LATENESS 2 SECONDS;
CREATE TABLE sites (host STRING, site STRING, w INT) USING parquet OPTIONS (path 'sites');
"""


def at(second: float) -> datetime:
    return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def row(second: float | None, size: int | None = 1, host: str | None = "a", **others: object) -> Row:
    return {"ts": None if second is None else at(second), "size": size, "host": host, **others}


def run(
    query: str,
    rows: Sequence[Row] | Sequence[Sequence[Row]],
    *,
    tables: Mapping[str, Sequence[Row]] = {},
    functions: Mapping[str, Callable[..., object]] = {},
    aggregates: Mapping[str, UserAggregate] = {},
    end: bool = True,
) -> list[ReferenceAnswer]:
    """The answers of one query ``q`` over ``p``, or of a text that creates steps itself."""
    sql = STREAM + (query if query.lstrip().startswith("CREATE") else f"CREATE QUERY q AS {query}")
    batches = [rows] if rows and isinstance(rows[0], Mapping) else rows
    return evaluate(sql, {"p": batches}, tables, functions, aggregates, end)  # type: ignore[dict-item]


def shape(answers: Sequence[ReferenceAnswer]) -> list[tuple[float, float, object]]:
    """Start and end in seconds, and the value."""
    found = []
    for a in answers:
        assert a.window_start is not None
        assert a.window_end is not None
        found.append(
            ((a.window_start - at(0)).total_seconds(), (a.window_end - at(0)).total_seconds(), a.value)
        )
    return found


def values(answers: Sequence[ReferenceAnswer]) -> list[object]:
    return [answer.value for answer in answers]


SITES: dict[str, list[Row]] = {
    "sites": [
        {"host": "a", "site": "north", "w": 3},
        {"host": "b", "site": "south", "w": 5},
        {"host": None, "site": "nowhere", "w": 7},
    ]
}
