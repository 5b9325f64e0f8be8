"""Rows as traces and files that the tests of sources share, and how they are run."""

from __future__ import annotations

import csv
import gzip
import io
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from slackwater.language.parse import parse
from slackwater.runtime.answers import Answer
from slackwater.runtime.session import Session
from slackwater.runtime.testing import ListSink

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
PATIENCE_S = 120.0
COLUMNS = "(ts TIMESTAMP, host STRING, size INT)"
QUERIES = """
CREATE QUERY sliding AS SELECT COUNT(*) AS n, SUM(size) AS s FROM p GROUP BY window(ts, '20 seconds', '10 seconds');
CREATE QUERY middle AS SELECT host, MEDIAN(size) AS m FROM p GROUP BY window(ts, '30 seconds'), host;
CREATE QUERY tuple AS SELECT SUM(size) AS s FROM p WHERE host <> 'b' GROUP BY tuples(60, 40);
"""
Row = dict[str, Any]


def rows_in_order(count: int = 240, seed: int = 5) -> list[Row]:
    """Rows of two event minutes at times that differ, in order."""
    draw = random.Random(seed)
    times = sorted(draw.sample(range(120_000), count))
    return [
        {
            "ts": EPOCH + timedelta(milliseconds=t),
            "host": draw.choice("abc"),
            "size": draw.randrange(-50, 1500),
        }
        for t in times
    ]


ROWS = rows_in_order()
LOST = [{"ts": None, "host": "a", "size": n} for n in range(7)]


def shuffled(rows: Sequence[Row], seed: int = 11) -> list[Row]:
    return random.Random(seed).sample(list(rows), len(rows))


def arrow(rows: Sequence[Row], time_type: pa.DataType | None = None) -> pa.Table:
    """Rows with a column that nobody declared, between those that somebody did."""
    table = pa.Table.from_pylist(
        [{**r, "note": f"row {i}"} for i, r in enumerate(rows)],
        schema=pa.schema(
            [
                ("size", pa.int64()),
                ("note", pa.string()),
                ("ts", pa.timestamp("us", "UTC")),
                ("host", pa.string()),
            ]
        ),
    )
    return table if time_type is None else table.set_column(2, "ts", table["ts"].cast(time_type))


def write_csv(path: Path, rows: Sequence[Row], *, header: bool = True, sep: str = ",") -> None:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=sep)
    names = ["size", "note", "ts", "host"] if header else ["ts", "host", "size"]
    if header:
        writer.writerow(names)
    for row in rows:
        shown = {**row, "ts": row["ts"].isoformat() if row["ts"] else "", "note": "x"}
        writer.writerow([shown[n] for n in names])
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def run(spark: Any, sql: str, **options: Any) -> tuple[list[Answer], Any]:
    """All answers of a run that ends by itself, and the states of its streams."""
    session = Session(spark, **options)
    session.sql(sql)
    sink = ListSink()
    session.start(sink)
    try:
        assert session.wait(PATIENCE_S), "the trace has an end, so the run has one"
        return sink.answers, session.engine.state.streams
    finally:
        session.stop()


def stream_of(sql: str) -> Any:
    return parse(sql)[0]
