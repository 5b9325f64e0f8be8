"""The Python way in: what cannot be is refused at the call that says it; several callers, any Spark."""

from __future__ import annotations

import signal
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.errors import LanguageError, PlanError, RunError, SinkError, SourceError, StateError
from slackwater.language.aggregates import UserAggregate
from slackwater.language.contracts import Exact, Subset
from slackwater.runtime.clocks import Clocks
from slackwater.runtime.journal import Journal
from slackwater.runtime.running import Run
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.sinks import IteratorSink, ParquetSink
from slackwater.runtime.testing import ListSink, run_scripted, scripted_session, take_turns
from slackwater.spark.streaming import Running
from waiting import until

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


# --- several at once ---------------------------------------------------------------------------------


def test_a_state_in_use_is_neither_shared_nor_deleted(tmp_path: Path) -> None:
    first = Journal(tmp_path / "state")
    first.write_version(1, {"sql": "", "script": []})
    for fresh in (False, True):
        with pytest.raises(StateError, match="another run uses the state"):
            Journal(tmp_path / "state", fresh=fresh)
    assert list(first.versions()) == [1]
    first.close()
    second = Journal(tmp_path / "state", fresh=True)
    assert second.versions() == {}
    second.close()


def test_a_state_of_another_format_is_refused_and_may_be_started_over(tmp_path: Path) -> None:
    root = tmp_path / "state"
    root.mkdir()
    (root / "format.json").write_text('{"format": 1}')
    with pytest.raises(StateError, match=r"has format 1, this version reads 2; start over with --fresh"):
        Journal(root)
    Journal(root, fresh=True).close()
    Journal(root).close()


def test_a_kill_while_deleting_leaves_nothing_to_go_on_from(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "state")
    journal.write_version(1, {"sql": "", "script": []})
    journal.close()
    (tmp_path / "state" / "discarding").touch()
    again = Journal(tmp_path / "state")
    assert again.versions() == {}
    assert not (tmp_path / "state" / "discarding").exists()
    again.close()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for fresh in (False, True):
        with pytest.raises(StateError, match="is no state of a run"):
            Journal(tmp_path, fresh=fresh)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_streams_and_queries_may_have_any_name(spark: Any) -> None:
    sql = (STREAM + QUERY).replace(" p ", " `größe-p` ").replace("QUERY q", "QUERY `q-ü`")
    answers = run_scripted(spark, sql, {"größe-p": TABLES["p"]})
    assert [(a.query, a.value) for a in answers] == [("q-ü", 1), ("q-ü", 5), ("q-ü", 9)]


def test_changes_from_several_threads_all_hold(spark: Any) -> None:
    session = scripted_session(spark, STREAM + QUERY, TABLES)
    session.start(manual=True)
    threads = [
        threading.Thread(target=session.sql, args=(QUERY.replace("QUERY q", f"QUERY q{n}"),))
        for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(session.catalog.queries) == ["q", "q0", "q1", "q2", "q3", "q4", "q5"]
    assert sorted(session.engine.catalog.queries) == sorted(session.catalog.queries)
    session.stop()


def test_a_change_does_not_wait_for_a_turn(spark: Any) -> None:
    session = scripted_session(spark, STREAM + QUERY, TABLES)
    session.start(manual=True)
    with session.engine.lock:  # as a turn holds it while a slow reader lets it wait
        thread = threading.Thread(target=session.sql, args=("DROP QUERY q; " + QUERY.replace("SUM", "MAX"),))
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
    session.stop()


def test_what_fails_before_the_start_leaves_no_trace(spark: Any, tmp_path: Path) -> None:
    def made() -> Session:
        return scripted_session(spark, STREAM, TABLES, state=tmp_path / "state")

    first = made()
    with pytest.raises(LanguageError, match="nowhere"):
        first.sql(QUERY + "CREATE QUERY b AS SELECT size FROM nowhere;")
    other = QUERY.replace("QUERY q", "QUERY c")
    first.sql(other)
    first.start(manual=True)
    first.stop()
    second = made()
    second.sql(other + QUERY)
    second.start(manual=True)
    assert sorted(second.catalog.queries) == ["c", "q"]
    second.stop()


def test_a_stopped_session_says_so(spark: Any) -> None:
    session = scripted_session(spark, STREAM + QUERY, TABLES)
    session.start(manual=True)
    session.stop()
    assert not session.wait(0.1), "the stream has not ended"
    for act in (session.start, lambda: session.sql("DROP QUERY q")):
        with pytest.raises(RunError, match="has been stopped"):
            act()


def test_a_tick_that_fails_breaks_the_run(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = [0.0]
    clocks = Clocks(seconds=lambda: seconds[0], now=lambda: EPOCH)
    session = scripted_session(spark, STREAM + QUERY, TABLES, clocks=clocks, ends=False)
    session.start(manual=True)
    take_turns(session, TABLES)
    seconds[0] += 60

    def full(decision: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(session.engine.journal, "write_record", full)
    with pytest.raises(OSError, match="No space left"):
        session.engine.tick("p")
    with pytest.raises(OSError, match="No space left"):
        session.poll()
    session.stop()


def test_a_stream_that_stops_between_batches_breaks_the_run_for_all_who_look(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = scripted_session(spark, STREAM + QUERY, TABLES, ends=False)
    session.start()
    try:
        monkeypatch.setattr(Running, "problem", lambda self: "the disk is gone")
        with pytest.raises(RunError, match="stream p stopped: the disk is gone") as raised:
            session.wait(60)
        assert session.engine.error is raised.value
    finally:
        session.stop()


# --- Spark as others set it --------------------------------------------------------------------------


def test_answers_do_not_depend_on_the_settings_of_a_session(spark: Any) -> None:
    theirs = spark.newSession()
    for key, value in (
        ("spark.sql.ansi.enabled", "true"),
        ("spark.sql.session.timeZone", "Asia/Tokyo"),
        ("spark.sql.parquet.outputTimestampType", "INT96"),
    ):
        theirs.conf.set(key, value)
    sql = STREAM + (
        "CREATE QUERY q AS SELECT hour(ts) AS h, date_trunc('hour', ts) AS t, SUM(6 / (size % 2)) AS s "
        "FROM p GROUP BY window(ts, '10 seconds', '5 seconds'), hour(ts), date_trunc('hour', ts);"
    )
    found = {}
    for rows in (1, 100_000):
        answers = run_scripted(theirs, sql, TABLES, settings=Settings(driver_rows=rows))
        found[rows] = sorted((a.window_start, a.keys, a.value) for a in answers)
    assert found[1] == found[100_000]
    assert [v for _, _, v in found[1]] == [12.0, 18.0, 6.0]
    assert {dict(k)["h"] for _, k, _ in found[1]} == {0}
    assert theirs.conf.get("spark.sql.ansi.enabled") == "true", "theirs stay as they are"


def test_panes_by_groups_that_outgrow_the_driver_are_left_to_spark(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slackwater.runtime.log.RESIDENT_CELLS", 500)
    rows = pa.table({"ts": [EPOCH + timedelta(seconds=i) for i in range(100)], "size": range(100)})
    batches = {"p": [rows.slice(0, 10), rows.slice(10, 60), rows.slice(70)]}
    sql = STREAM + (
        "CREATE QUERY q AS SELECT size, COUNT(*) AS n FROM p GROUP BY window(ts, '4 seconds', '1 second'), size;"
    )
    answers = run_scripted(spark, sql, batches)
    assert len(answers) == 400
    assert {a.value for a in answers} == {1}


def test_check_tells_a_misspelt_option_and_where_functions_come_from(spark: Any) -> None:
    session = Session(spark)
    session.sql("CREATE STREAM t (ts TIMESTAMP) USING traffic OPTIONS (rtae '5') TIMESTAMP BY ts")
    with pytest.raises(SourceError, match="unknown traffic option 'rtae': did you mean 'rate'"):
        session.check()
    session = Session(spark)
    session.sql("CREATE STREAM t (ts TIMESTAMP, src STRING) USING traffic TIMESTAMP BY ts")
    session.query("mine", "SELECT net16(src) AS n FROM t")
    with pytest.raises(LanguageError, match="UNRESOLVED_ROUTINE") as caught:
        session.check()
    assert "--import FILE" in caught.value.hint


def test_a_stream_that_a_change_is_the_first_to_read_may_come_while_a_run_is_polled() -> None:
    sources: dict[str, object] = {"p": None}

    class Ended:
        @property
        def ended(self) -> bool:
            sources[f"q{len(sources)}"] = None
            return True

    state = SimpleNamespace(streams={"p": Ended()})
    engine: Any = SimpleNamespace(error=None, sources=sources, state=state)
    assert Run(engine, Settings(), Clocks(), {}, IteratorSink()).poll()
    assert len(sources) == 2


def test_a_source_that_has_nothing_more_is_idle_and_runs_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark itself reads it: without rows it makes no batch that would tell of the silence."""
    monkeypatch.setattr("slackwater.runtime.running.IDLE_S", 0.05)
    folder = tmp_path / "rows"
    folder.mkdir()

    def write(number: int) -> None:
        waiting = tmp_path / f"{number}.json"
        waiting.write_text('{"ts": "2026-01-01T00:00:00Z", "size": 1}\n' * 10)
        waiting.rename(folder / waiting.name)

    write(1)
    session = Session(spark, tmp_path / "state", Settings(trigger_ms=20))
    session.sql(STREAM.replace("USING scripted", f"USING json OPTIONS (path '{folder}')") + QUERY)
    session.start()

    def idle_after(rows: int) -> bool:
        told = [(s.state, s.rows, s.rate, s.lag_s) for s in session.status().streams]
        return told == [("idle", rows, 0.0, 0.0)]

    try:
        until(lambda: idle_after(10), session)
        write(2)
        until(lambda: idle_after(20), session)
    finally:
        session.stop()
    assert session.status().streams[0].state == "stopped"


def test_ctrl_c_does_not_cancel_what_spark_is_doing(spark: Any) -> None:
    # PySpark's own handler would: the batch that runs is to come to its end
    handler = signal.getsignal(signal.SIGINT)
    assert not getattr(handler, "__module__", "").startswith("pyspark")
