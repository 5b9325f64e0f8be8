"""The Python way in refuses what cannot be, at the call that says it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.errors import LanguageError, PlanError, RunError, SinkError, SourceError
from slackwater.language.aggregates import UserAggregate
from slackwater.language.contracts import Exact, Subset
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.sinks import ParquetSink
from slackwater.runtime.testing import ListSink, scripted_session, take_turns

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
STREAM = "CREATE STREAM p (ts TIMESTAMP, size INT) USING scripted TIMESTAMP BY ts;"
QUERY = "CREATE QUERY q AS SELECT SUM(size) AS s FROM p GROUP BY window(ts, '2 seconds');"
TABLES = {"p": [pa.table({"ts": [EPOCH + timedelta(seconds=i) for i in range(6)], "size": range(6)})]}


def test_answers_before_the_start_do_not_wait_for_ever() -> None:
    session = Session()
    session.sql("CREATE STREAM p (ts TIMESTAMP, size INT) USING rate TIMESTAMP BY ts")
    with pytest.raises(RunError, match=r"before start\(\)"):
        session.answers()


def test_types_and_names_are_checked_where_they_are_given() -> None:
    session = Session()
    with pytest.raises(PlanError, match="function f: returns: 'STRNG' is not a Spark SQL type"):
        session.function("f", lambda x: x, "STRNG")
    mine = UserAggregate(init=int, incr=lambda s, v: s + v, final=int)
    with pytest.raises(PlanError, match="SQL has one of that name"):
        session.aggregate("Sum", mine)
    with pytest.raises(PlanError, match="setting rows_per_batch: expected a whole number above 0, got -5"):
        Settings(rows_per_batch=-5)
    with pytest.raises(PlanError, match="there is no plan as 'pdf'; there are text, json, dot, svg"):
        session.explain("pdf")  # type: ignore[arg-type]


def test_a_contract_may_be_given_as_a_value_or_as_sql() -> None:
    session = Session()
    session.sql(STREAM)
    session.query(
        "a", "SELECT SUM(size) AS s FROM p GROUP BY window(ts, '1 second')", contract="SUBSET GAP 2"
    )
    session.query("b", "SELECT SUM(size) AS s FROM p GROUP BY window(ts, '1 second')", contract=Subset(3))
    session.alter("b", "EXACT PRIORITY 1")
    assert session.catalog.contracts == {"a": Subset(2), "b": Exact(priority=1)}
    with pytest.raises(LanguageError, match="expected EXACT or ERROR"):
        session.alter("b", "PERFECT")


def test_check_reads_no_table_and_points_at_what_spark_refuses(spark: Any) -> None:
    session = Session(spark)
    session.sql(
        STREAM + "CREATE TABLE `my-table` (size INT, label STRING) USING parquet OPTIONS (path 'nowhere')"
    )
    session.query("fine", "SELECT label, size FROM p JOIN `my-table` t USING (size)")
    session.check()
    session.query("wrong", "SELECT size, nosuch(size) AS n FROM p")
    with pytest.raises(LanguageError, match="Spark refuses wrong") as caught:
        session.check()
    assert caught.value.position is not None
    assert caught.value.text[caught.value.position.offset :].startswith("nosuch")


def test_counts_go_on_after_a_restart(spark: Any, tmp_path: Path) -> None:
    batches = {"p": [TABLES["p"][0].slice(0, 4), TABLES["p"][0].slice(4)]}
    kept: list[Any] = []
    for turns in (1, 2):
        session = scripted_session(spark, STREAM + QUERY, batches, state=tmp_path / "state")
        session.start(ListSink(kept), manual=True)
        take_turns(session, {"p": batches["p"][:turns]})
        session.stop()
        (stream,), (query,) = session.status().streams, session.status().queries
        assert query.answers == len(kept)
        assert stream.state == ("stopped" if turns == 1 else "ended")
    assert stream.rows == 6


def test_foreign_parquet_is_not_mixed_with_answers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "sensors.parquet")
    with pytest.raises(SinkError, match=r"sensors\.parquet"):
        ParquetSink(tmp_path).open(None)


def test_a_misspelt_option_of_a_trace_is_told(spark: Any, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("ts,size\n2026-01-01 00:00:00,1\n")
    session = Session(spark)
    session.sql(
        f"CREATE STREAM p (ts TIMESTAMP, size INT) USING replay OPTIONS (path '{trace}', heaer true) TIMESTAMP BY ts;"
        + QUERY
    )
    with pytest.raises(SourceError, match=r"no option 'heaer'; did you mean header\?"):
        session.start()


def test_times_at_the_edge_of_the_calendar_are_answered(spark: Any) -> None:
    far = [datetime(9999, 12, 31, 12, tzinfo=UTC), datetime(1, 1, 1, 12, tzinfo=UTC)]
    tables = {"p": [pa.table({"ts": [far[1], EPOCH, far[0]], "size": [1, 2, 4]})]}
    query = QUERY.replace("2 seconds", "10 days")
    session = scripted_session(spark, STREAM + query, tables)
    sink = ListSink()
    session.start(sink, manual=True)
    take_turns(session, tables)
    session.stop()
    assert [a.value for a in sorted(sink.answers, key=lambda a: a.value)] == [1, 2, 4]
    assert all(a.to_json_line() for a in sink.answers)
