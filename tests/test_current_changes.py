"""Queries over current values that come later, go on after a restart, or read what is no number; on Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from slackwater.runtime.clocks import Clocks
from slackwater.runtime.testing import ListSink, abandon, run_scripted, scripted_session

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
STREAM = "CREATE STREAM m (ts TIMESTAMP, k STRING, v DOUBLE) USING scripted KEY k TIMESTAMP BY ts{clauses};\n"


def rows(*said: tuple[float, str, float | None]) -> pa.Table:
    time = [EPOCH + timedelta(seconds=t) for t, _, _ in said]
    columns = {"ts": pa.array(time, pa.timestamp("us", tz="UTC")), "k": [k for _, k, _ in said]}
    return pa.table(columns | {"v": pa.array([v for _, _, v in said], pa.float64())})


def test_a_silence_through_a_restart_is_ended_by_the_clock(spark, tmp_path: Path):
    """With no window on the stream beside them: ticks that wait are answered after IDLE, in the second run."""
    clock = [0.0]
    clocks = Clocks(seconds=lambda: clock[0], now=lambda: EPOCH + timedelta(seconds=clock[0]))
    sql = STREAM.format(clauses=" IDLE 8 SECONDS") + "CREATE QUERY s AS SELECT SUM(v) AS s FROM LATEST(m);"
    batches = {"m": [rows((1, "a", 1.0), (2, "a", 2.0), (3, "b", 5.0))]}
    sink = ListSink()
    first = scripted_session(spark, sql, batches, state=tmp_path, clocks=clocks, ends=False)
    first.start(sink, manual=True)
    first.engine.batch("m", first.engine.executor.session.range(0), 0)
    assert [a.value for a in sink.answers] == [1, 2]
    abandon(first)
    second = scripted_session(spark, sql, batches, state=tmp_path, clocks=clocks, ends=False)
    second.start(sink, manual=True)
    second.engine.recover("m")
    assert not second.engine.tick("m")
    clock[0] = 9.0
    assert second.engine.tick("m")
    second.stop()
    assert [a.value for a in sink.answers] == [1, 2, 7]


@pytest.mark.parametrize("contract", ["EXACT", "DRIFT 0 BELIEF 90%"])
def test_extremes_of_a_query_that_comes_later_say_that_not_all_is_known(spark, contract: str):
    stream = STREAM.format(clauses=" INTERRUPTED AFTER 1 HOUR")
    sql = stream + "CREATE QUERY s AS SELECT SUM(v) AS s FROM LATEST(m);"
    late = (
        "CREATE QUERY n AS SELECT min_over(COUNT(*), '10 seconds') AS low, COUNT(*) AS c, "
        "max_since(SUM(v), TIMESTAMP '2026-01-01 00:00:00') AS ever, "
        f"max_since(SUM(v), TIMESTAMP '2026-01-01 00:00:05') AS later FROM LATEST(m) WITH {contract};"
    )
    batches = {
        "m": [
            rows((1, "a", 9.0), (2, "a", 1.0), (2, "b", 2.0), (3, "b", 2.5)),
            rows(*((t, "b", 3.0 + t % 2) for t in range(4, 16)), (20, "c", 1.0)),
        ]
    }
    session = scripted_session(spark, sql, batches)
    sink = ListSink()
    session.start(sink, manual=True)
    carrier = session.engine.executor.session.range(0)
    session.engine.batch("m", carrier, 0)
    session.sql(late)
    session.engine.batch("m", carrier, 1)
    session.stop()
    found = [a for a in sink.answers if a.query == "n"]
    met = {(a.column, (a.at - EPOCH).seconds): a.met for a in found}
    assert not met["low", 3], "the count was 1 ten seconds ago, which it has not seen"
    assert all(met[column, at] == (at >= 12) for column, at in met if column == "low")
    assert {column for (column, _), whole in met.items() if not whole} == {"low", "ever"}
    assert not any(whole for (column, _), whole in met.items() if column == "ever")


def test_what_is_no_number_has_no_sum(spark):
    items = "SUM(k) AS s, AVG(k) AS a, COUNT(k) AS c"
    sql = STREAM.format(clauses="") + (
        f"CREATE QUERY d AS SELECT {items} FROM LATEST(m) WITH DRIFT 1;"
        f"CREATE QUERY e AS SELECT {items} FROM LATEST(m) WITH EXACT;"
        "CREATE QUERY some AS SELECT SUM(k) AS s FROM LATEST(m) WHERE k <> 'a' WITH DRIFT 1;"
    )
    found = run_scripted(spark, sql, {"m": [rows((1, "a", 1.0), (1, "b", 1.0), (1, "7", 1.0))]})
    said = {(a.query, a.column): a.value for a in found}
    assert said["d", "s"] == said["e", "s"] == said["some", "s"] == 7
    assert said["d", "a"] == said["e", "a"] == 7
    assert said["d", "c"] == said["e", "c"] == 3
    none = run_scripted(spark, sql, {"m": [rows((1, "a", 1.0))]})
    assert {a.value for a in none if a.column in "sa"} == {None}
