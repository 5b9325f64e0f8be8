"""Recorded traces and generated traffic, however they are stored and cut."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agreement import differences
from slackwater.errors import SourceError
from slackwater.reference.evaluate import evaluate
from slackwater.runtime.clocks import Clocks
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.testing import ListSink
from slackwater.spark.landing import land
from slackwater.spark.trace import RecordedTrace, Segment, TrafficTrace
from slackwater.spark.trace_source import TraceSource
from slackwater.traffic import Traffic
from traces import COLUMNS, EPOCH, LOST, QUERIES, ROWS, Row, arrow, run, shuffled, stream_of, write_csv


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_replay_gives_the_answers_of_the_reference_and_ends_by_itself(
    spark: Any, tmp_path: Path, kind: str
) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    mixed = shuffled([*ROWS, *LOST])
    for number, part in enumerate((mixed[:90], mixed[90:100], mixed[100:])):
        if kind == "parquet":
            pq.write_table(arrow(part), trace / f"{number}.parquet")
        else:
            write_csv(trace / f"{number}.csv", part)
    sql = f"CREATE STREAM p {COLUMNS} USING replay OPTIONS (path '{trace}', speed 'max') TIMESTAMP BY ts;{QUERIES}"
    found, states = run(spark, sql, settings=Settings(rows_per_batch=80))
    assert not differences(found, evaluate(sql, {"p": [ROWS]}))
    state = states["p"]
    assert (state.arrived, state.unreadable, state.late) == (len(ROWS) + len(LOST), len(LOST), 0)
    assert state.batch > 0, "small batches were asked for"
    assert state.ended


def test_epoch_seconds_become_the_time_and_a_clock_sets_the_pace(spark: Any, tmp_path: Path) -> None:
    start = 1_700_000_000
    rows = [{"epoch_s": start + i // 3, "size": i} for i in range(180)]
    pq.write_table(pa.Table.from_pylist(shuffled(rows)), tmp_path / "t.parquet")
    sql = (
        "CREATE STREAM p (epoch_s BIGINT, size INT) "
        f"USING replay OPTIONS (path '{tmp_path / 't.parquet'}', speed 4) "
        "TIMESTAMP BY timestamp_seconds(epoch_s) AS ts;"
        "CREATE QUERY q AS SELECT COUNT(*) AS n, SUM(size) AS s FROM p GROUP BY window(ts, '20 seconds', '5 seconds');"
    )
    # a second passes whenever somebody looks at the clock
    clock = itertools.count(1000.0)
    clocks = Clocks(seconds=lambda: next(clock), now=lambda: EPOCH)
    found, states = run(spark, sql, clocks=clocks, settings=Settings(trigger_ms=10))
    assert not differences(found, evaluate(sql, {"p": [rows]}))
    assert states["p"].arrived == len(rows)
    assert {a.emitted_at for a in found} == {EPOCH}


class Hand:
    """A clock that goes when told to."""

    def __init__(self) -> None:
        self.seconds = 50.0

    def __call__(self) -> float:
        return self.seconds


P = stream_of(f"CREATE STREAM p {COLUMNS} USING replay OPTIONS (path 'x') TIMESTAMP BY ts")


def test_speed_is_event_seconds_per_second_from_where_a_run_starts() -> None:
    trace = RecordedTrace([Segment("a", 1_000_000, 9_000_000, 10), Segment("b", 9_000_001, 40_000_000, 10)])
    clock = Hand()
    source = TraceSource(None, P, trace, 2.5, 1, clock)  # type: ignore[arg-type]
    first = source.offsets(0, None)
    assert first == {"from": 1_000_000, "to": 1_000_000}
    clock.seconds += 2
    second = source.offsets(1, first)
    assert second == {"from": 1_000_000, "to": 6_000_000}
    assert not source.ended(second)
    clock.seconds -= 1
    assert source.offsets(2, second) == {"from": 6_000_000, "to": 6_000_000}, "time never goes back"
    resumed = TraceSource(None, P, trace, 2.5, 1, clock)  # type: ignore[arg-type]
    assert resumed.offsets(2, second) == {"from": 6_000_000, "to": 6_000_000}, "nor jumps over a pause"
    clock.seconds += 1000
    last = source.offsets(3, second)
    assert last == {"from": 6_000_000, "to": 40_000_001}
    assert source.ended(last)
    assert source.progress(last) == 1.0


def test_as_fast_as_it_goes_takes_whole_segments_up_to_the_rows_of_a_batch() -> None:
    trace = RecordedTrace([Segment(str(i), 10 * i, 10 * i + 9, 100) for i in range(5)])
    assert trace.advance(0, 250) == 20
    assert trace.advance(0, 50) == 10, "at least one segment, or it would stand still"
    assert trace.advance(30, 1000) == trace.end == 50
    untimed = RecordedTrace([Segment("none", 0, 0, 500), Segment("a", 0, 9, 100), Segment("b", 10, 19, 100)])
    assert untimed.advance(0, 100) == 10, "rows without a time come with the first that have one"


def landed(spark: Any, sql: str, folder: Path, rows_per_batch: int = 1000) -> list[Row]:
    """The rows of a trace as its batches would read them, in order of arrival."""
    stream = stream_of(sql)
    trace = land(spark, stream, folder, rows_per_batch)
    source = TraceSource(spark, stream, trace, None, 1000)
    assert trace.end is not None
    frame = source.frame(spark, spark.range(0), {"from": trace.start, "to": trace.end})
    assert frame is not None
    return [r.asDict() for r in frame.orderBy("__part", "__seq").collect()]


def timed(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    return [(r["ts"].replace(tzinfo=UTC), r["host"], r["size"]) for r in rows if r["ts"] is not None]


@pytest.mark.parametrize(
    "kind", ["ns", "ns, UTC", "us", "ms, UTC", "csv.gz", "tsv", "no header", "jsonl", "named"]
)
def test_a_trace_is_read_however_it_was_written(spark: Any, tmp_path: Path, kind: str) -> None:
    rows = shuffled([*ROWS[:40], *LOST])
    options, path = "", tmp_path / "t.csv"
    if kind == "csv.gz":
        path = tmp_path / "t.csv.gz"
        write_csv(path, rows)
    elif kind == "tsv":
        path = tmp_path / "t.tsv"
        write_csv(path, rows, sep="\t")
    elif kind == "no header":
        write_csv(path, rows, header=False)
        options = ", header 'false'"
    elif kind == "jsonl":
        path = tmp_path / "t.jsonl"
        path.write_text("\n".join(json.dumps(r, default=lambda t: t.isoformat()) for r in rows))
    else:
        unit, _, zone = kind.partition(", ")
        path = tmp_path / "t.parquet"
        if kind == "named":
            unit, path, options = "us", tmp_path / "trace", ", format 'parquet'"
        time_type = pa.timestamp(unit, zone or None)
        pq.write_table(arrow(rows, time_type), path)
    sql = f"CREATE STREAM p {COLUMNS} USING replay OPTIONS (path '{path}'{options}) TIMESTAMP BY ts"
    found = landed(spark, sql, tmp_path / "landed")
    assert timed(found) == timed(ROWS[:40])
    assert sum(r["ts"] is None for r in found) == len(LOST)


def test_nanoseconds_before_the_epoch_round_down_like_those_after(spark: Any, tmp_path: Path) -> None:
    nanos = pa.array([-1, 1_999, -1_000_000_001], pa.timestamp("ns"))
    pq.write_table(pa.table({"ts": nanos}), tmp_path / "t.parquet")
    sql = f"CREATE STREAM p (ts TIMESTAMP) USING replay OPTIONS (path '{tmp_path / 't.parquet'}') TIMESTAMP BY ts"
    assert [r["__t"] for r in landed(spark, sql, tmp_path / "landed")] == [-1_000_001, -1, 1]


def test_rows_without_a_time_are_all_counted_however_many(spark: Any, tmp_path: Path) -> None:
    pq.write_table(arrow([*ROWS[:20], *(LOST * 30)]), tmp_path / "t.parquet")
    sql = f"CREATE STREAM p {COLUMNS} USING replay OPTIONS (path '{tmp_path / 't.parquet'}') TIMESTAMP BY ts"
    found = landed(spark, sql, tmp_path / "landed", rows_per_batch=10)
    assert sum(r["ts"] is None for r in found) == 210
    assert timed(found) == timed(ROWS[:20])


def test_a_landing_is_used_again_where_nothing_changed_even_when_moved(spark: Any, tmp_path: Path) -> None:
    trace = tmp_path / "t.parquet"
    pq.write_table(arrow(ROWS[:20]), trace)
    stream = stream_of(f"CREATE STREAM p {COLUMNS} USING replay OPTIONS (path '{trace}') TIMESTAMP BY ts")
    first = land(spark, stream, tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    second = land(None, stream, tmp_path / "b")  # type: ignore[arg-type]  # no Spark: nothing may be read
    assert (second.start, second.end, second.rows) == (first.start, first.end, 20)
    assert all(Path(s.path).exists() for s in second.segments(0, 1 << 62))
    pq.write_table(arrow(ROWS[:21]), trace)
    with pytest.raises(SourceError, match=r"has changed since this state was written.*--fresh"):
        land(spark, stream, tmp_path / "b")


# --- generated traffic ----------------------------------------------------------------------------


def test_traffic_is_the_same_however_it_is_cut(spark: Any, tmp_path: Path) -> None:
    sql = (
        "CREATE STREAM p (ts TIMESTAMP, src STRING, dport INT, size INT) "
        "USING traffic OPTIONS (seed 3, rate 60, sources 8, length '6500 milliseconds', speed 'max', "
        "origin '2026-01-01T00:00:00.000007+00:00') TIMESTAMP BY ts;"
        "CREATE QUERY q AS SELECT COUNT(*) AS n, SUM(size) AS s, COUNT(DISTINCT src) AS d "
        "FROM p GROUP BY window(ts, '2 seconds', '1 second');"
        "CREATE QUERY t AS SELECT MAX(size) AS m FROM p WHERE dport = 443 GROUP BY tuples(20);"
    )
    origin = EPOCH + timedelta(microseconds=7)
    traffic = Traffic(seed=3, rate=60.0, sources=8, origin=origin)
    made = [r for i in range(7) for r in traffic.slice(i, 1_000_000).to_pylist()]
    rows = [
        {k: r[k] for k in ("ts", "src", "dport", "size")}
        for r in made
        if r["ts"] < origin + timedelta(milliseconds=6500)
    ]
    expected = evaluate(sql, {"p": [rows]})
    for rows_per_batch in (100, 10_000):
        found, states = run(spark, sql, settings=Settings(rows_per_batch=rows_per_batch))
        assert not differences(found, expected)
        assert states["p"].arrived == len(rows)


def test_traffic_forgets_what_was_read_and_makes_it_again_alike(tmp_path: Path) -> None:
    trace = TrafficTrace(Traffic(seed=9, rate=30.0), tmp_path, None)
    before = pq.read_table(trace.segments(trace.start, trace.start + 1)[0].path)
    trace.segments(trace.start, trace.start + 8_000_000)
    trace.forget(trace.start + 6_000_000)
    assert sorted(int(f.stem) for f in tmp_path.glob("*.parquet")) == [5, 6, 7]
    assert pq.read_table(trace.segments(trace.start, trace.start + 1)[0].path).equals(before)
    assert trace.end is None


def test_a_trace_can_be_handed_on_as_json_that_every_batch_parses(spark, tmp_path):
    rows = pa.table(
        {
            "ts": pa.array(
                [1_700_000_000_000_000 + i * 250_000 for i in range(80)], pa.timestamp("us", "UTC")
            ),
            "host": pa.array(["it's", 'a "b"'][i % 2] for i in range(80)),
            "size": pa.array([i if i % 7 else None for i in range(80)], pa.int32()),
        }
    )
    pq.write_table(rows, tmp_path / "trace.parquet")
    columns = "(ts TIMESTAMP, host STRING, size INT)"
    query = "CREATE QUERY q AS SELECT host, COUNT(size) AS n, SUM(size) AS s FROM p GROUP BY window(ts, '5 seconds'), host;"
    found = []
    for payload in ("", "FORMAT json"):
        options = f"OPTIONS (path '{tmp_path / 'trace.parquet'}', speed 'max')"
        session = Session(spark, tmp_path / f"state{len(payload)}")
        session.sql(f"CREATE STREAM p {columns} USING replay {options} {payload} TIMESTAMP BY ts; {query}")
        sink = ListSink()
        session.start(sink)
        assert session.wait(60)
        session.stop()
        found.append({(a.column, a.window_start, a.keys, a.value) for a in sink.answers})
    assert found[0] == found[1]
    assert len(found[0]) == 16
