"""Real packets and prices: the answers are what DuckDB and Spark's own window() compute from the same file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from slackwater.runtime.answers import Answer
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.testing import ListSink

duckdb = pytest.importorskip("duckdb", reason="DuckDB computes the same from the same files")

PATIENCE_S = 240.0
HOUR = 3600
Table = dict[tuple[Any, ...], tuple[Any, ...]]

SCRIPT = """
CREATE STREAM packets (epoch_s BIGINT, src STRING, proto STRING, len INT, ttl INT)
  USING replay OPTIONS (path '{packets}', speed 'max') TIMESTAMP BY timestamp_seconds(epoch_s) AS ts;
CREATE QUERY by_proto AS
  SELECT proto, COUNT(*) AS n, SUM(len) AS bytes, COUNT(DISTINCT src) AS sources, PERCENTILE(len, 0.9) AS p90,
         MEDIAN(ttl) AS ttl
  FROM packets GROUP BY window(ts, '2 hours', '1 hour'), proto;

CREATE STREAM prices (time TIMESTAMP, EUR_USD DOUBLE, XAU_USD DOUBLE)
  USING replay OPTIONS (path '{prices}', speed 'max') TIMESTAMP BY time;
CREATE QUERY gold AS
  SELECT COUNT(*) AS minutes, COUNT(XAU_USD) AS ticks, AVG(XAU_USD) AS mean, STDDEV(XAU_USD) AS spread,
         MAX(XAU_USD) - MIN(XAU_USD) AS reach
  FROM prices GROUP BY window(time, '6 hours', '90 minutes');
CREATE QUERY euro AS SELECT AVG(EUR_USD) AS mean, COUNT(EUR_USD) AS ticks FROM prices GROUP BY tuples(500, 250);
"""


@pytest.fixture(scope="module")
def cuts(real_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two days of packets and a week of prices, in no order, with the columns that nobody asks for."""
    folder = tmp_path_factory.mktemp("cuts")
    chosen = {
        "packets": ("sotm34_packets", "epoch_s // 86400 IN (12852, 12853)", "hash(epoch_s, src, spt)"),
        "prices": ("prices_minute_2018", "time BETWEEN '2018-03-05' AND '2018-03-12'", "hash(time)"),
    }
    for name, (file, condition, order) in chosen.items():
        source = real_data / f"{file}.parquet"
        if not source.exists():
            pytest.skip(f"{source.name} is not among the real data sets")
        rows = f"SELECT * FROM '{source}' WHERE {condition} ORDER BY {order}"
        duckdb.sql(f"COPY ({rows}) TO '{folder / name}.parquet' (FORMAT parquet)")
    return {name: folder / f"{name}.parquet" for name in chosen}


@pytest.fixture(scope="module")
def run(spark: Any, cuts: Mapping[str, Path]) -> tuple[list[Answer], Any]:
    """All answers, of one run over both streams, and the states of the streams."""
    session = Session(spark, settings=Settings(rows_per_batch=5000))
    session.sql(SCRIPT.format(**cuts))
    sink = ListSink()
    session.start(sink)
    try:
        assert session.wait(PATIENCE_S)
        return sink.answers, session.engine.state.streams
    finally:
        session.stop()


def answered(run: tuple[list[Answer], Any], query: str, *columns: str) -> Table:
    """The answers of a query as a table: window start in seconds and keys, to the values of its columns."""
    cells: dict[tuple[Any, ...], dict[str, Any]] = {}
    for answer in run[0]:
        if answer.query == query:
            assert answer.window_start is not None
            key = (answer.window_start.timestamp(), *(v for _, v in answer.keys))
            row = cells.setdefault(key, {})
            assert answer.column not in row, "an answer came twice"
            row[answer.column] = answer.value
    return {key: tuple(row[c] for c in columns) for key, row in cells.items()}


def computed(sql: str, keys: int) -> Table:
    return {row[:keys]: row[keys:] for row in duckdb.sql(sql).fetchall()}


def assert_same(found: Table, expected: Table) -> None:
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        for mine, theirs in zip(found[key], values, strict=True):
            if isinstance(theirs, float) and mine is not None:
                assert math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=1e-12), (key, found[key], values)
            else:
                assert mine == theirs, (key, found[key], values)


def test_every_row_was_taken_and_none_was_late(run: Any, cuts: Mapping[str, Path]) -> None:
    for name, path in cuts.items():
        state = run[1][name]
        ((rows,),) = duckdb.sql(f"SELECT count(*) FROM '{path}'").fetchall()
        assert (state.arrived, state.late, state.unreadable) == (rows, 0, 0)
        assert state.batch > 0, "it took several batches"


def test_packets_are_counted_as_duckdb_counts_them(run: Any, cuts: Mapping[str, Path]) -> None:
    expected = computed(
        f"""SELECT (epoch_s // {HOUR} - k) * {HOUR} AS start, proto, count(*), sum(len)::BIGINT,
                   count(DISTINCT src), quantile_cont(len::DOUBLE, 0.9), median(ttl::DOUBLE)
            FROM '{cuts["packets"]}', (SELECT unnest([0, 1]) AS k) GROUP BY ALL""",
        keys=2,
    )
    found = answered(run, "by_proto", "n", "bytes", "sources", "p90", "ttl")
    assert len(found) > 100
    assert_same(found, expected)


def test_packets_are_counted_as_sparks_own_windows_count_them(
    spark: Any, run: Any, cuts: Mapping[str, Path]
) -> None:
    rows = spark.read.parquet(str(cuts["packets"])).selectExpr("*", "timestamp_seconds(epoch_s) AS ts")
    rows.createOrReplaceTempView("packets_at_once")
    frame = spark.sql(
        "SELECT unix_timestamp(window.start), proto, count(*), sum(len), count(DISTINCT src), "
        "percentile(len, 0.9), median(ttl) FROM packets_at_once "
        "GROUP BY window(ts, '2 hours', '1 hour'), proto"
    )
    expected = {tuple(row)[:2]: tuple(row)[2:] for row in frame.collect()}
    assert_same(answered(run, "by_proto", "n", "bytes", "sources", "p90", "ttl"), expected)


def test_prices_with_gaps_are_summed_up_as_duckdb_does(run: Any, cuts: Mapping[str, Path]) -> None:
    slide = HOUR * 3 // 2
    expected = computed(
        f"""SELECT (epoch(time)::BIGINT // {slide} - k) * {slide} AS start, count(*), count(XAU_USD),
                   avg(XAU_USD), stddev_samp(XAU_USD), max(XAU_USD) - min(XAU_USD)
            FROM '{cuts["prices"]}', (SELECT unnest([0, 1, 2, 3]) AS k) GROUP BY start""",
        keys=1,
    )
    found = answered(run, "gold", "minutes", "ticks", "mean", "spread", "reach")
    assert any(minutes != ticks for minutes, ticks, *_ in found.values()), "some minutes have no tick"
    assert_same(found, expected)


def test_windows_of_rows_follow_the_order_of_time(run: Any, cuts: Mapping[str, Path]) -> None:
    expected = computed(
        f"""WITH numbered AS (SELECT time, EUR_USD, row_number() OVER (ORDER BY time) - 1 AS i FROM '{cuts["prices"]}')
            SELECT epoch(min(time)), avg(EUR_USD), count(EUR_USD)
            FROM numbered, (SELECT unnest([0, 1]) AS k) WHERE i // 250 - k >= 0
            GROUP BY i // 250 - k HAVING count(*) = 500""",
        keys=1,
    )
    found = answered(run, "euro", "mean", "ticks")
    assert len(found) > 10
    assert_same(found, expected)


def test_windows_start_where_they_should(run: Any) -> None:
    starts = {a.window_start for a in run[0] if a.query == "gold"}
    assert min(starts) == datetime(2018, 3, 4, 19, 30, tzinfo=UTC)
