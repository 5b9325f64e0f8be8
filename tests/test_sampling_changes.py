"""Queries come, change and go while batches are sampled: nothing is called exact that rests on a sample."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sampling_data import ORIGIN, STREAM, Key, by_key, key
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.panes import BEFORE_ALL
from slackwater.plan.tables import Plan
from slackwater.planners.ruling import Coming, FixedRates, Ruling
from slackwater.runtime.answers import Answer
from slackwater.runtime.samples import BATCHES as SAMPLED
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.state import LogFile, StreamState
from slackwater.runtime.testing import ListSink, run_scripted, scripted_session, take_turns
from slackwater.runtime.versions import adopt

SECOND = 1_000_000
SPAN = 10
"""Seconds that a batch is long: batch n goes from n·10 to n·10 + 10."""
SAMPLED_UNTIL = 3
"""The change comes after so many batches; all before it may be sampled."""
PROMPT = STREAM.format(using="scripted")
SURE = "CREATE QUERY sure AS SELECT COUNT(*) AS n FROM p WHERE port = 53 GROUP BY window(ts, '5 seconds') WITH EXACT;"
PATIENT = PROMPT.replace(";", " LATENESS 25 SECONDS;") + SURE
"""With so much lateness three batches are in open windows at any time. As one query is exact, all rows are looked
at, and how far a sampled batch reaches in time is known."""
WEB = """CREATE QUERY web AS SELECT COUNT(*) AS n, SUM(size) AS bytes FROM p WHERE port = 80
  GROUP BY window(ts, '5 seconds') WITH ERROR 5%;"""
PORTS = """CREATE QUERY ports AS SELECT port, COUNT(*) AS n FROM p
  GROUP BY port, window(ts, '5 seconds') WITH ERROR 5%;"""
RATES = {"web": 0.3, "ports": 0.3, "late": 0.3}


def batches(count: int = 9, rows: int = 400, seed: int = 4) -> list[pa.Table]:
    random = np.random.default_rng(seed)
    made = []
    for number in range(count):
        times = ORIGIN + number * SPAN * SECOND + np.sort(random.integers(0, SPAN * SECOND, rows))
        made.append(
            pa.table(
                {
                    "ts": pa.array(times, pa.timestamp("us", "UTC")),
                    "size": pa.array(random.integers(40, 1500, rows).astype("int32")),
                    "port": pa.array(random.choice([80, 443, 53], rows, p=[0.6, 0.3, 0.1]).astype("int32")),
                    "host": pa.array(random.choice(["a", "b"], rows)),
                }
            )
        )
    return made


TABLES = {"p": batches()}


@dataclass
class InTurns:
    """Fixed rates in some turns, counted from 0; all other batches are taken whole."""

    rates: Mapping[str, float]
    turns: Collection[int]
    paced: bool = False
    turn: int = -1

    def rule(self, coming: Coming) -> Ruling:
        self.turn += 1
        fixed = FixedRates(self.rates)
        return fixed.rule(coming) if self.turn in self.turns else Ruling()


def seconds(answer: Answer) -> float:
    """When the window of an answer starts, in seconds from the first row on."""
    assert answer.window_start is not None
    return (answer.window_start - datetime.fromtimestamp(ORIGIN / 1e6, UTC)) / timedelta(seconds=1)


def changed(
    spark: Any, sql: str, change: str, turns: Collection[int] = range(SAMPLED_UNTIL), **options: Any
) -> list[Answer]:
    """The answers of a run whose query set changes once batches have been sampled."""
    session = scripted_session(spark, sql, TABLES, ruler=InTurns(RATES, turns), **options)
    sink = ListSink()
    session.start(sink, manual=True)
    try:
        take_turns(session, {"p": TABLES["p"][:SAMPLED_UNTIL]})
        session.sql(change)
        take_turns(session, TABLES)
    finally:
        session.stop()
    return sink.answers


def of(answers: list[Answer], query: str) -> list[Answer]:
    return [a for a in answers if a.query == query]


def assert_exact_from(found: list[Answer], truth: Mapping[Key, Answer], first: float) -> None:
    """All windows that start from some second on are answered, exactly, and none before."""
    assert found
    assert {a.how for a in found} == {"exact"}
    for answer in found:
        assert answer.value == truth[key(answer)].value, answer
    query = found[0].query
    wanted = {k for k, a in truth.items() if a.query == query and seconds(a) >= first}
    assert by_key(found).keys() == wanted


READERS = {
    "driver": (WEB, "CREATE QUERY reader AS SELECT SUM(n) AS n FROM web GROUP BY window(ts, '10 seconds', '5 seconds') WITH EXACT;"),
    "files": (
        PORTS,
        "CREATE QUERY reader AS SELECT SUM(n) AS n, COUNT(*) AS groups FROM ports GROUP BY window(ts, '10 seconds', '5 seconds') WITH EXACT;",
    ),
}  # fmt: skip


@pytest.mark.parametrize("where", READERS)
@pytest.mark.parametrize("turns", [range(SAMPLED_UNTIL), (1,)])
def test_a_new_reader_begins_after_the_samples_of_what_it_reads(spark, where, turns):
    read, reader = READERS[where]
    options = {"settings": Settings(driver_rows=1)} if where == "files" else {}
    truth = by_key(run_scripted(spark, PATIENT + read + reader, TABLES))
    found = changed(spark, PATIENT + read, reader, turns, **options)
    assert_exact_from(of(found, "reader"), truth, (max(turns) + 1) * SPAN)
    assert "sampled" in {a.how for a in found}


def test_a_reader_of_a_reader_begins_there_too(spark):
    peaks = "CREATE VIEW peaks AS SELECT MAX(n) AS n FROM web GROUP BY window(ts, '10 seconds');"
    outer = "CREATE QUERY outer AS SELECT SUM(n) AS n FROM peaks GROUP BY window(ts, '20 seconds', '10 seconds') WITH EXACT;"
    truth = by_key(run_scripted(spark, PATIENT + WEB + peaks + outer, TABLES))
    found = changed(spark, PATIENT + WEB, peaks + outer)
    assert_exact_from(of(found, "outer"), truth, SAMPLED_UNTIL * SPAN)


@pytest.mark.parametrize("where", READERS)
def test_a_reader_that_counts_rows_gets_them_without_gaps_or_samples(spark, where):
    """Windows of the second batch are exact, but lie between windows that rest on samples."""
    read, _ = READERS[where]
    name = "web" if where == "driver" else "ports"
    options = {"settings": Settings(driver_rows=1)} if where == "files" else {}
    reader = f"CREATE QUERY reader AS SELECT SUM(n) AS n, COUNT(*) AS windows FROM {name} GROUP BY tuples(3) WITH EXACT;"
    exact = by_key(run_scripted(spark, PATIENT + read, TABLES))
    found = of(changed(spark, PATIENT + read, reader, (0, 2), **options), "reader")
    read_from = [a for a in exact.values() if (a.query, a.column) == (name, "n")]
    rows = [a for a in read_from if seconds(a) >= SAMPLED_UNTIL * SPAN]
    rows.sort(key=lambda a: (seconds(a), a.group.get("port", 0)))
    values = [int(a.value) for a in rows]
    assert [a.value for a in found if a.column == "n"] == [
        sum(values[i : i + 3]) for i in range(0, len(values), 3)
    ]


def test_a_step_within_a_query_that_shares_sampled_partials_begins_after_them(spark):
    nested = """CREATE QUERY nested AS SELECT MAX(n) AS n FROM
      (SELECT COUNT(*) AS n FROM p WHERE port = 80 GROUP BY window(ts, '5 seconds')) i
      GROUP BY window(ts, '10 seconds', '5 seconds') WITH EXACT;"""
    truth = by_key(run_scripted(spark, PATIENT + WEB + nested, TABLES))
    found = changed(spark, PATIENT + WEB, nested)
    assert_exact_from(of(found, "nested"), truth, SAMPLED_UNTIL * SPAN)


@pytest.mark.parametrize("having", ["", " HAVING COUNT(*) > 120"])
@pytest.mark.parametrize("where", ["driver", "files"])
def test_a_new_exact_query_does_not_go_back_over_samples(spark, having, where):
    keys, path = ("", " WHERE port = 80") if where == "driver" else ("port, ", "")
    options = {"settings": Settings(driver_rows=1)} if where == "files" else {}
    late = f"""CREATE QUERY late AS SELECT {keys}COUNT(*) AS n FROM p{path}
      GROUP BY {keys}window(ts, '10 seconds', '5 seconds'){having} WITH EXACT;"""
    read = WEB if where == "driver" else PORTS
    truth = by_key(run_scripted(spark, PATIENT + read + late, TABLES))
    found = changed(spark, PATIENT + read, late, **options)
    assert_exact_from(of(found, "late"), truth, SAMPLED_UNTIL * SPAN)


def test_what_was_altered_to_be_exact_has_still_been_sampled(spark):
    late = "CREATE QUERY late AS SELECT COUNT(*) AS n FROM p WHERE port = 80 GROUP BY window(ts, '10 seconds') WITH EXACT;"
    session = scripted_session(spark, PATIENT + WEB, TABLES, ruler=InTurns(RATES, range(2)))
    sink = ListSink()
    session.start(sink, manual=True)
    take_turns(session, {"p": TABLES["p"][:2]})
    session.sql("ALTER QUERY web WITH EXACT")
    take_turns(session, {"p": TABLES["p"][:3]})
    session.sql(late)
    take_turns(session, TABLES)
    session.stop()
    truth = by_key(run_scripted(spark, PATIENT + WEB + late, TABLES))
    assert_exact_from(of(sink.answers, "late"), truth, 2 * SPAN)


def test_a_new_query_starts_warm_from_partials_that_were_never_sampled(spark):
    late = "CREATE QUERY late AS SELECT COUNT(*) AS n FROM p WHERE port = 53 GROUP BY window(ts, '10 seconds', '5 seconds') WITH EXACT;"
    truth = by_key(run_scripted(spark, PATIENT + WEB + late, TABLES))
    found = of(changed(spark, PATIENT + WEB, late), "late")
    assert_exact_from(found, truth, min(seconds(a) for a in found))
    assert min(seconds(a) for a in found) < (SAMPLED_UNTIL - 1) * SPAN


def test_a_new_query_with_an_error_contract_starts_after_the_samples_so_far(spark):
    late = """CREATE QUERY late AS SELECT COUNT(*) AS n, AVG(size) AS mean FROM p WHERE port = 80
      GROUP BY window(ts, '10 seconds', '5 seconds') WITH ERROR 20%;"""
    truth = by_key(run_scripted(spark, PATIENT + WEB + late, TABLES))
    found = of(changed(spark, PATIENT + WEB, late, range(6)), "late")
    assert min(seconds(a) for a in found) == SAMPLED_UNTIL * SPAN
    for answer in found:
        assert answer.how == ("sampled" if seconds(answer) < 6 * SPAN else "exact")
        assert answer.value == pytest.approx(float(truth[key(answer)].value), rel=0.25)
    within = [a.low <= truth[key(a)].value <= a.high for a in found if a.how == "sampled"]
    assert np.mean(within) >= 0.8


def test_altered_to_be_exact_while_windows_rest_on_samples(spark):
    truth = by_key(run_scripted(spark, PATIENT + WEB, TABLES))
    found = changed(spark, PATIENT + WEB, "ALTER QUERY web WITH EXACT", range(9))
    assert by_key(found).keys() == truth.keys()
    within = []
    for answer in of(found, "web"):
        true = float(truth[key(answer)].value)
        if seconds(answer) >= SAMPLED_UNTIL * SPAN:
            assert (answer.how, answer.value, answer.met) == ("exact", true, True)
            continue
        assert (answer.how, answer.confidence) == ("sampled", 0.95)
        assert answer.low < answer.value < answer.high
        within.append(answer.low <= true <= answer.high)
        if seconds(answer) >= SPAN:
            assert not answer.met, "it closed after the change, and exact it is not"
    assert np.mean(within) >= 0.8


@pytest.mark.parametrize("options", [{}, {"settings": Settings(driver_rows=1)}])
def test_a_query_is_dropped_while_it_is_sampled(spark, options):
    sql = PATIENT + WEB + PORTS
    truth = by_key(run_scripted(spark, sql, TABLES))
    found = changed(spark, sql, "DROP QUERY web", range(9), **options)
    left = {k for k, a in truth.items() if a.query != "web"}
    assert {key(a) for a in found if a.query != "web"} == left
    assert all(seconds(a) < (SAMPLED_UNTIL - 1) * SPAN for a in of(found, "web"))
    for answer in of(found, "sure"):
        assert (answer.how, answer.value) == ("exact", truth[key(answer)].value)
    ports = of(found, "ports")
    assert {a.how for a in ports} == {"sampled"}
    assert np.mean([a.low <= truth[key(a)].value <= a.high for a in ports]) >= 0.9


def test_a_query_that_comes_back_begins_anew(spark):
    session = scripted_session(spark, PATIENT + WEB, TABLES, ruler=InTurns(RATES, range(9)))
    sink = ListSink()
    session.start(sink, manual=True)
    take_turns(session, {"p": TABLES["p"][:3]})
    session.sql("DROP QUERY web")
    take_turns(session, {"p": TABLES["p"][:4]})
    before = len(sink.answers)
    session.sql(WEB.replace("ERROR 5%", "EXACT"))
    take_turns(session, TABLES)
    session.stop()
    truth = by_key(run_scripted(spark, PATIENT + WEB, TABLES))
    assert_exact_from(of(sink.answers[before:], "web"), truth, 4 * SPAN)


def test_where_not_all_rows_are_looked_at_a_new_query_begins_later_than_any_may_lie(spark):
    late = "CREATE QUERY late AS SELECT COUNT(*) AS n FROM p WHERE port = 443 GROUP BY window(ts, '2 seconds', '100 milliseconds') WITH EXACT;"
    session = scripted_session(spark, PROMPT + WEB, TABLES, ruler=FixedRates({"web": 0.02}))
    sink = ListSink()
    session.start(sink, manual=True)
    take_turns(session, {"p": TABLES["p"][:2]})
    state = session.engine.state.streams["p"]
    reached = max(f.high for f in state.files[SAMPLED])
    assert reached > state.latest
    session.sql(late)
    take_turns(session, TABLES)
    session.stop()
    truth = by_key(run_scripted(spark, PROMPT + WEB + late, TABLES))
    assert_exact_from(of(sink.answers, "late"), truth, (reached + 1 - ORIGIN) / SECOND)


def test_rows_dropped_at_the_end_of_a_batch_are_not_missed_by_a_new_query(spark, tmp_path):
    """Of the last second of a batch nothing is kept: a window that begins there has lost rows."""
    whole = pa.concat_tables(TABLES["p"])
    pq.write_table(whole, tmp_path / "trace.parquet")
    stream = STREAM.format(using=f"replay OPTIONS (path '{tmp_path / 'trace.parquet'}', speed 'max')")
    error = (
        "CREATE QUERY some AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '10 seconds') WITH ERROR 5%;"
    )
    late = "CREATE QUERY late AS SELECT COUNT(*) AS n FROM p WHERE port = 443 GROUP BY window(ts, '2 seconds', '100 milliseconds') WITH EXACT;"

    def run(name: str, first: str, later: str, ruler: FixedRates | None) -> list[Answer]:
        sink = ListSink()
        session = Session(spark, tmp_path / name, Settings(rows_per_batch=400), ruler=ruler)
        session.sql(first)
        session.start(sink, manual=True)
        try:
            take_turns(session, {"p": [whole] * 2})
            latest, offsets = (
                session.engine.state.streams["p"].latest,
                session.engine.state.streams["p"].offsets,
            )
            assert ruler is None or latest + 200_000 < offsets["to"], "the sample misses the end of the batch"
            session.sql(later)
            take_turns(session, {"p": [whole] * 9})
        finally:
            session.stop()
        return sink.answers

    truth = by_key(run("whole", stream + error + late, "ALTER QUERY some WITH EXACT", None))
    found = of(run("thin", stream + error, late, FixedRates({"some": 0.004})), "late")
    assert found
    assert {a.how for a in found} == {"exact"}
    assert [a.value for a in found] == [truth[key(a)].value for a in found]
    assert len(found) > 500


def test_where_a_new_query_begins_is_after_every_row_that_was_dropped() -> None:
    plan = planned(Plan(), PROMPT + WEB)
    more = planned(
        plan,
        PROMPT + WEB + "CREATE QUERY new AS SELECT MAX(size) AS m FROM p GROUP BY window(ts, '1 second');",
    )
    sampled = {SAMPLED: [LogFile("a", 1, 0, 70), LogFile("b", 1, 50, 99)]}

    def begins(change: Callable[[StreamState], None]) -> int:
        state = StreamState(version=1, latest=80)
        change(state)
        adopt(state, "p", plan, more, 2)
        return state.since["new"]

    (table,) = (id_ for id_, _ in plan.tables_on("p"))
    assert begins(lambda state: None) == 81, "nothing was dropped"
    assert begins(lambda state: setattr(state, "files", sampled)) == 100
    assert begins(lambda state: setattr(state, "kept_from", {table: 95})) == 95, (
        "batches before that are forgotten"
    )

    def end_told(state: StreamState) -> None:
        state.kept_from, state.offsets = {table: 500}, {"from": 80, "to": 90}

    assert begins(end_told) == 90, "and none was read beyond the end of the last"


def test_where_new_queries_begin_never_goes_back() -> None:
    plan = planned(Plan(), PROMPT + WEB)
    exact = planned(plan, PROMPT + WEB.replace("ERROR 5%", "EXACT"))
    more = planned(exact, PROMPT + WEB.replace("ERROR 5%", "EXACT") + SURE)
    state = StreamState(version=1, latest=80, files={SAMPLED: [LogFile("a", 1, 0, 99)]})
    adopt(state, "p", plan, exact, 2)
    state.files.clear()
    adopt(state, "p", exact, more, 3)
    assert state.since["sure"] == 100
    assert StreamState().seen_to == BEFORE_ALL


def planned(before: Plan, sql: str) -> Plan:
    return extend(before, Catalog.from_sql(sql, Functions()))
