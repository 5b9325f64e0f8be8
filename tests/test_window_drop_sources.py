"""Where rows come from, and windows are left out: traces are not read, payloads not parsed, for nobody."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.planners.ruling import FixedRates
from slackwater.runtime.answers import Answer
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.testing import ListSink
from slackwater.spark.shed import shed_frame
from slackwater.spark.trace_source import TraceSource

SECOND = 1_000_000
ORIGIN = 1_700_000_000 // 60 * 60 * SECOND
LENGTH = 60
QUERY = "CREATE QUERY q AS SELECT COUNT(*) AS n, SUM(size) AS s FROM p GROUP BY window(ts, '1 second') WITH SUBSET GAP 5;"


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    random = np.random.default_rng(5)
    times = ORIGIN + np.sort(random.integers(0, LENGTH * SECOND, 6000))
    rows = pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "size": pa.array(random.integers(40, 1500, len(times)).astype("int32")),
            "host": pa.array(random.choice(["a", "b"], len(times))),
        }
    )
    path = tmp_path_factory.mktemp("trace") / "rows.parquet"
    pq.write_table(rows, path)
    return path


def run(spark, sql: str, state: Path, ruler: FixedRates | None) -> dict[tuple[object, ...], Answer]:
    session = Session(spark, state, Settings(rows_per_batch=500), ruler=ruler)
    session.sql(sql)
    sink = ListSink()
    session.start(sink)
    try:
        session.wait(timeout=120)
    finally:
        session.stop()
    return {(a.column, a.window_start): a for a in sink.answers}


@pytest.mark.parametrize("format_", ["", "FORMAT json"])
def test_a_replayed_trace_is_read_only_where_it_is_needed(spark, trace, tmp_path, monkeypatch, format_: str):
    stream = (
        "CREATE STREAM p (ts TIMESTAMP, size INT, host STRING) USING replay "
        f"OPTIONS (path '{trace}', speed 'max') {format_} TIMESTAMP BY ts;"
    )
    asked = []
    read = TraceSource.frame

    def frame(self, session, batch, offsets, before=None, blocks=(), times=None):
        asked.append(times)
        return read(self, session, batch, offsets, before, blocks, times)

    monkeypatch.setattr(TraceSource, "frame", frame)
    exact = run(spark, stream + QUERY, tmp_path / "exact", None)
    assert asked
    assert all(times is None for times in asked)
    asked.clear()
    found = run(spark, stream + QUERY, tmp_path / "subset", FixedRates(drops={"q": 0.7}))
    assert any(times is not None for times in asked)
    assert 0 < len(found) < 0.6 * len(exact)
    assert all(a.value == exact[at].value for at, a in found.items())


def test_rows_without_a_window_are_not_parsed_but_for_their_time(spark):
    rows = [
        (json.dumps({"ts": f"2026-01-01T00:00:{n:02d}Z", "size": n, "host": "a"}), 0, n) for n in range(60)
    ]
    raw = spark.createDataFrame(rows, "value STRING, __part BIGINT, __seq BIGINT")
    payload = raw.selectExpr(
        "from_json(value, 'ts TIMESTAMP, size INT, host STRING') AS __payload", "__part", "__seq"
    )
    parsed = payload.selectExpr("__payload.*", "__part", "__seq").selectExpr("*", "unix_micros(ts) AS __t")
    base = round(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * SECOND
    kept = shed_frame(parsed, 1, 0, (base + 10 * SECOND, 20 * SECOND, 0, 1))
    assert [r.size for r in kept.orderBy("size").collect()] == [*range(10), *range(30, 60)]
    text = kept.selectExpr("size", "host", "__t")._jdf.queryExecution().optimizedPlan().toString()
    test = next(line for line in text.split("\n") if "Filter" in line)
    assert "StructField(ts" in test
    assert "StructField(size" not in test, "the test parses more than the time"
