"""Queries come, change and go while the stream runs; a new one starts warm where panes serve it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from agreement import identity, tables_of
from slackwater.errors import LanguageError, PlanError
from slackwater.reference.evaluate import evaluate
from slackwater.runtime.clocks import Clocks
from slackwater.runtime.recording import Recording
from slackwater.runtime.replaying import replay
from slackwater.runtime.testing import ListSink, scripted_session, take_turns

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("port", pa.int32()), ("size", pa.int32())])
STREAM = "CREATE STREAM p (ts TIMESTAMP, port INT, size INT) USING scripted TIMESTAMP BY ts;\n"
OLD = "CREATE QUERY old AS SELECT SUM(size) AS s FROM p WHERE port = 1 GROUP BY window(ts, '10 seconds', '1 second');"
ROWS = [{"ts": EPOCH + timedelta(seconds=i / 2), "port": i % 3, "size": i} for i in range(120)]
BATCHES = {"p": [ROWS[i : i + 30] for i in range(0, 120, 30)]}
TABLES = tables_of(BATCHES, SCHEMA)


def of(answers: list[Any], query: str) -> list[Any]:
    return [a for a in answers if a.query == query]


def test_a_new_query_is_exact_from_its_first_answer(spark: Any) -> None:
    session = scripted_session(spark, STREAM + OLD, TABLES)
    sink = ListSink()
    session.start(sink, manual=True)
    take_turns(session, {"p": TABLES["p"][:2]})
    new = "CREATE QUERY fresh AS SELECT MAX(size) AS m FROM p WHERE port = 2 GROUP BY window(ts, '5 seconds', '1 second');"
    session.sql(new)
    take_turns(session, TABLES)
    session.stop()
    truth = {identity(a) for a in evaluate(STREAM + OLD + new, BATCHES)}
    found = of(sink.answers, "fresh")
    assert found, "windows that lie after the change are answered"
    assert {identity(a) for a in sink.answers} <= truth, "and none is answered from a part of its rows"
    seen_before = BATCHES["p"][1][-1]["ts"]
    assert min(a.window_start for a in found) == seen_before + timedelta(seconds=0.5)


def test_a_new_query_starts_warm_from_panes_that_are_there(spark: Any) -> None:
    session = scripted_session(spark, STREAM + OLD, TABLES)
    sink = ListSink()
    session.start(sink, manual=True)
    take_turns(session, {"p": TABLES["p"][:2]})
    new = "CREATE QUERY warm AS SELECT SUM(size) AS t FROM p WHERE port = 1 GROUP BY window(ts, '8 seconds', '2 seconds');"
    session.sql(new)
    take_turns(session, TABLES)
    session.stop()
    truth = {identity(a) for a in evaluate(STREAM + OLD + new, BATCHES)}
    found = of(sink.answers, "warm")
    assert {identity(a) for a in sink.answers} <= truth
    change = BATCHES["p"][2][0]["ts"]
    assert min(a.window_start for a in found) < change, "the first windows began before the query was there"


def test_old_answers_are_untouched_by_changes(spark: Any) -> None:
    session = scripted_session(spark, STREAM + OLD, TABLES)
    sink = ListSink()
    session.start(sink, manual=True)
    for index in range(4):
        take_turns(session, {"p": TABLES["p"][: index + 1]})
        if index == 3:
            with pytest.raises(PlanError, match="reads p, which has ended"):
                session.sql("CREATE QUERY tardy AS SELECT size FROM p")
            break
        for other in range(4):
            session.sql(
                f"CREATE QUERY q{index}_{other} AS SELECT COUNT(*) AS n FROM p WHERE port = {index * 4 + other} "
                "GROUP BY window(ts, '4 seconds')"
            )
        if index:
            session.sql(f"DROP QUERY q{index - 1}_0; ALTER QUERY old WITH SUBSET GAP {index}")
    session.stop()
    expected = [identity(a) for a in evaluate(STREAM + OLD, BATCHES)]
    assert sorted(map(repr, map(identity, of(sink.answers, "old")))) == sorted(map(repr, expected))


def test_a_change_that_cannot_be_changes_nothing(spark: Any) -> None:
    session = scripted_session(spark, STREAM + OLD, TABLES)
    session.start(manual=True)
    before = session.catalog
    with pytest.raises(LanguageError, match="no column colour"):
        session.sql(
            "DROP QUERY old; CREATE QUERY bad AS SELECT MAX(colour) FROM p GROUP BY window(ts, '1 second')"
        )
    with pytest.raises(LanguageError, match="Spark refuses bad"):
        session.sql("CREATE QUERY bad AS SELECT SUM(nosuch(size)) FROM p GROUP BY window(ts, '1 second')")
    assert session.catalog is before
    assert session.engine.versions.latest == 1
    session.stop()


def test_a_tick_closes_windows_of_a_silent_stream(spark: Any) -> None:
    seconds = [100.0]
    clocks = Clocks(seconds=lambda: seconds[0], now=lambda: EPOCH)
    stream = STREAM.replace("TIMESTAMP BY ts", "TIMESTAMP BY ts IDLE 5 SECONDS")
    session = scripted_session(spark, stream + OLD, TABLES, clocks=clocks, ends=False)
    sink = ListSink()
    session.start(sink, manual=True)
    take_turns(session, {"p": TABLES["p"][:1]})
    answered = len(sink.answers)
    seconds[0] += 4.0
    assert not session.engine.tick("p"), "the stream may be silent for five seconds"
    seconds[0] += 60.0
    assert session.engine.tick("p")
    assert len(sink.answers) > answered
    assert not session.engine.tick("p"), "nothing is left to close"
    expected = [identity(a) for a in evaluate(stream + OLD, {"p": BATCHES["p"][:1]})]
    assert sorted(map(repr, map(identity, sink.answers))) == sorted(map(repr, expected))
    session.stop()


def test_a_stream_of_which_no_batch_comes_is_idle_until_one_does(spark: Any) -> None:
    seconds = [100.0]
    clocks = Clocks(seconds=lambda: seconds[0], now=lambda: EPOCH + timedelta(seconds=seconds[0]))
    stream = STREAM.replace("TIMESTAMP BY ts", "TIMESTAMP BY ts IDLE 5 SECONDS")
    session = scripted_session(spark, stream + OLD, TABLES, clocks=clocks, ends=False)
    session.start(manual=True)
    engine = session.engine

    def told() -> tuple[str, float, float | None]:
        (found,) = session.status().streams
        return found.state, found.rate, found.lag_s

    take_turns(session, {"p": TABLES["p"][:1]})
    state, rate, lag = told()
    assert (state, lag) == ("running", pytest.approx(85.5))
    assert rate > 0
    seconds[0] += 9.0
    engine.rest("p", 10.0)
    assert told() == ("running", rate, lag), "it has not been silent for long enough"
    seconds[0] += 1.0
    engine.rest("p", 10.0)
    assert told() == ("idle", 0.0, 0.0)
    assert session.status().streams[0].last_rate == rate
    seconds[0] += 60.0
    assert engine.tick("p")
    assert told() == ("idle", 0.0, 0.0), "the clock closes windows, and no rows come"
    take_turns(session, {"p": TABLES["p"][:2]})
    engine.rest("p", 10.0)
    state, rate, lag = told()
    assert (state, lag) == ("running", pytest.approx(140.5))
    assert rate > 30, "what comes after a silence is not spread over it"
    session.stop()


COUNTS = "CREATE QUERY counts AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '2 seconds');"


def test_a_query_that_starts_to_read_another_answers_only_what_it_saw_whole(spark: Any) -> None:
    session = scripted_session(spark, STREAM + COUNTS, TABLES)
    sink = ListSink()
    session.start(sink, manual=True)
    take_turns(session, {"p": TABLES["p"][:2]})
    outer = "CREATE QUERY outer AS SELECT SUM(n) AS n FROM counts GROUP BY window(ts, '10 seconds');"
    session.sql(outer)
    take_turns(session, TABLES)
    session.stop()
    truth = {identity(a) for a in evaluate(STREAM + COUNTS + outer, BATCHES)}
    assert of(sink.answers, "outer")
    assert {identity(a) for a in sink.answers} <= truth


def test_a_run_whose_queries_were_all_dropped_goes_on_without_any(spark: Any, tmp_path: Path) -> None:
    session = scripted_session(spark, STREAM + COUNTS, TABLES, state=tmp_path)
    session.start(manual=True)
    take_turns(session, {"p": TABLES["p"][:1]})
    session.sql("DROP QUERY counts")
    session.stop()
    session = scripted_session(spark, STREAM + COUNTS, TABLES, state=tmp_path)
    sink = ListSink()
    session.start(sink, manual=True)
    assert session.changed_live == ["counts was dropped"]
    take_turns(session, {"p": TABLES["p"][:2]})
    assert not session.poll(), "its stream goes on"
    session.sql(OLD)
    take_turns(session, TABLES)
    session.stop()
    truth = {identity(a) for a in evaluate(STREAM + OLD, BATCHES)}
    assert of(sink.answers, "old")
    assert {identity(a) for a in sink.answers} <= truth
    empty = scripted_session(spark, STREAM, TABLES)
    with pytest.raises(PlanError, match="there is no query to run"):
        empty.start(manual=True)


def test_a_changed_inner_step_starts_the_outer_one_anew(spark: Any) -> None:
    first = "CREATE QUERY q AS SELECT SUM(n) AS n FROM (SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '2 seconds')) i GROUP BY window(ts, '20 seconds');"
    other = first.replace("COUNT(*)", "MAX(size)")
    session = scripted_session(spark, STREAM + first, TABLES)
    sink = ListSink()
    session.start(sink, manual=True)
    take_turns(session, {"p": TABLES["p"][:2]})
    before = len(sink.answers)
    session.sql("DROP QUERY q;" + other)
    take_turns(session, TABLES)
    session.stop()
    truth = {identity(a) for a in evaluate(STREAM + other, BATCHES)}
    assert sink.answers[before:]
    assert {identity(a) for a in sink.answers[before:]} <= truth


def shown(session: Any, name: str) -> tuple[int, Any]:
    (query,) = (q for q in session.status().queries if q.name == name)
    return query.answers, query.last_value


def test_a_query_that_is_replaced_shows_nothing_of_the_old_one(spark: Any, tmp_path: Path) -> None:
    other = COUNTS.replace("COUNT(*)", "MIN(size)")
    session = scripted_session(spark, STREAM + COUNTS + OLD, TABLES, state=tmp_path)
    sink = ListSink()
    session.start(sink, manual=True)
    take_turns(session, {"p": TABLES["p"][:2]})
    stays = of(sink.answers, "old")
    assert shown(session, "counts")[0] == len(of(sink.answers, "counts")) > 0
    session.sql("DROP QUERY counts;" + other)
    assert shown(session, "counts") == (0, None)
    assert shown(session, "old")[0] == len(stays)
    take_turns(session, {"p": TABLES["p"][:3]})
    told = shown(session, "counts")
    session.stop()
    # the file says the same by now, or what it said at first
    for file, expected in ((other, told), (COUNTS, (0, None))):
        again = scripted_session(spark, STREAM + file + OLD, TABLES, state=tmp_path)
        again.start(ListSink(sink.answers), manual=True)
        assert shown(again, "counts")[0] == expected[0]
        assert shown(again, "old")[0] > 0
        again.stop()


def test_new_windows_over_rows_begin_with_their_own_first_row(spark: Any) -> None:
    old = "CREATE QUERY rows AS SELECT SUM(size) AS s FROM p GROUP BY tuples(7);"
    session = scripted_session(spark, STREAM + old, TABLES)
    sink = ListSink()
    session.start(sink, manual=True)
    take_turns(session, {"p": TABLES["p"][:2]})
    new = (
        "CREATE QUERY more AS SELECT SUM(port) AS s, COUNT(DISTINCT size) AS d FROM p GROUP BY tuples(7);"
        "CREATE QUERY long AS SELECT COUNT(*) AS n FROM p GROUP BY tuples(20, 5);"
    )
    session.sql(new)
    take_turns(session, TABLES)
    session.stop()
    found = [a for a in sink.answers if a.query in ("more", "long")]
    truth = evaluate(STREAM + new, {"p": BATCHES["p"][2:]})
    assert sorted(map(repr, map(identity, found))) == sorted(map(repr, map(identity, truth)))
    kept = [identity(a) for a in evaluate(STREAM + old, BATCHES)]
    assert sorted(map(repr, map(identity, of(sink.answers, "rows")))) == sorted(map(repr, kept))


def test_a_new_predicate_on_a_shared_table_survives_a_turn_without_rows(spark: Any) -> None:
    seconds = [0.0]
    clocks = Clocks(seconds=lambda: seconds[0], now=lambda: EPOCH)
    stream = STREAM.replace("TIMESTAMP BY ts", "TIMESTAMP BY ts IDLE 5 SECONDS")
    session = scripted_session(spark, stream + OLD, TABLES, clocks=clocks, ends=False)
    sink = ListSink()
    session.start(sink, manual=True)
    take_turns(session, {"p": TABLES["p"][:1]})
    session.sql(
        "CREATE QUERY fresh AS SELECT SUM(size) AS s FROM p WHERE port = 2 GROUP BY window(ts, '10 seconds', '1 second')"
    )
    seconds[0] += 60.0
    assert session.engine.tick("p")
    session.stop()


def test_a_session_that_goes_on_knows_what_was_changed(spark: Any, tmp_path: Path) -> None:
    session = scripted_session(spark, STREAM + OLD, TABLES, state=tmp_path / "state")
    session.start(manual=True)
    assert session.changed_live == []
    take_turns(session, {"p": TABLES["p"][:1]})
    session.sql("ALTER QUERY old WITH SUBSET GAP 3")
    take_turns(session, {"p": TABLES["p"][:2]})
    session.stop()
    session = scripted_session(spark, STREAM + OLD, TABLES, state=tmp_path / "state")
    session.start(manual=True)
    session.stop()
    assert session.changed_live == ["old is WITH SUBSET GAP 3, not ERROR 5%"]


@pytest.mark.parametrize("count", [151, 199])
def test_a_run_that_began_with_more_conditions_than_are_taken_now_is_gone_on_with(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    where = " AND ".join(f"size <> -{n + 1}" for n in range(count))
    many = (
        f"CREATE QUERY many AS SELECT COUNT(*) AS n FROM p WHERE {where} GROUP BY window(ts, '10 seconds');"
    )
    state, recorded = tmp_path / "state", tmp_path / "recorded"
    with monkeypatch.context() as earlier:
        earlier.setattr("slackwater.plan.catalog.CONJUNCTS", 10_000)
        session = scripted_session(spark, STREAM + OLD + many, TABLES, state=state)
        session.start(manual=True, record=recorded)
        take_turns(session, {"p": TABLES["p"][:1]})
        session.stop()
    with pytest.raises(LanguageError, match=f"many asks for {count} conditions"):
        scripted_session(spark, STREAM + OLD + many, TABLES, state=tmp_path / "another")
    sink = ListSink()
    session = scripted_session(spark, STREAM + OLD + many, TABLES, state=state)
    session.start(manual=True, record=recorded)
    with pytest.raises(LanguageError, match="more asks for"):
        session.sql(many.replace("many", "more"))
    take_turns(session, TABLES)
    session.stop()
    replay(Recording.open(recorded), spark, sink)
    truth = {identity(a) for a in evaluate(STREAM + OLD + many, BATCHES)}
    assert {identity(a) for a in sink.answers} == truth
