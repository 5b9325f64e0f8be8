"""What is known of a sampled batch: how many rows it had, from when to when, and what its windows may say."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sampling_data import BATCHES, ORIGIN, QUERIES, STREAM, batches, by_key
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.model import TimeWindow
from slackwater.plan.panes import AFTER_ALL, BEFORE_ALL, candidates, starts
from slackwater.plan.slots import slots_of
from slackwater.plan.tables import Plan
from slackwater.planners.decision import Decision
from slackwater.planners.ruling import FixedRates, Ruling
from slackwater.runtime.sampled_windows import sampled_starts, touched
from slackwater.runtime.samples import BATCHES as LOG
from slackwater.runtime.samples import SlotBatches, Span
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.shedding import UNTOLD, Shed
from slackwater.runtime.testing import ListSink, run_scripted, scripted_session, take_turns
from slackwater.spark.scripted import ScriptedSource

SCRIPTED = STREAM.format(using="scripted")
LATE = SCRIPTED.replace("BY ts", "BY ts LATENESS 20 SECONDS")
SECOND = 1_000_000
COUNT = "CREATE QUERY q AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '{0}') WITH ERROR 5%;"
BIG = "CREATE QUERY big AS SELECT size, host FROM p WHERE size > 700 WITH ERROR 5%;"


class InTurn:
    """Rates of one query, batch by batch."""

    paced = False

    def __init__(self, name: str, *rates: float) -> None:
        self._name = name
        self._rates = list(rates)

    def rule(self, coming):
        rate = self._rates.pop(0)
        return Ruling({coming.slots.by_step[self._name].id: rate}, 1.0) if rate < 1 else Ruling()


def rows_at(*seconds: float) -> pa.Table:
    count = len(seconds)
    times = (ORIGIN + np.array(seconds) * SECOND).astype(np.int64)
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "size": pa.array(np.full(count, 1000, dtype="int32")),
            "port": pa.array(np.full(count, 80, dtype="int32")),
            "host": pa.array(["a"] * count),
        }
    )


def shed_of(rates: dict[str, float], queries: str = COUNT.format("20 seconds"), **decided: Any) -> Shed:
    plan = extend(Plan(), Catalog.from_sql(STREAM.format(using="traffic") + queries, Functions()))
    slots = slots_of(plan, "p")
    by_slot = {slots.by_step[name].id: rate for name, rate in rates.items()}
    return Shed(plan, slots, Decision("p", 1, "batch", 1, 0, thresholds=by_slot, **decided))


# how many rows there were


def test_thresholds_of_one_draw_no_sample(spark):
    class AllOnes:
        paced = False

        def rule(self, coming):
            return Ruling({slot.id: 1.0 for slot in coming.slots.sheddable}, 1.0)

    sql = SCRIPTED + QUERIES
    exact = by_key(run_scripted(spark, sql, {"p": BATCHES}))
    found = by_key(run_scripted(spark, sql, {"p": BATCHES}, ruler=AllOnes()))
    assert found.keys() == exact.keys()
    assert {a.how for a in found.values()} == {"exact"}
    for place, answer in found.items():
        assert answer.value == pytest.approx(exact[place].value, rel=1e-12)


def test_a_batch_of_which_nothing_was_drawn_leaves_nothing_in_the_log():
    shed = shed_of({"q": 1.0})
    assert not shed.drawn
    assert shed.batches(1, Span(0, 9, 9)).num_rows == 0
    assert shed_of({"q": 0.9}).drawn
    assert shed_of({}, blocks=(1, 2), share=0.5).drawn


def test_where_nobody_counts_arrivals_rows_weigh_one_over_the_rate(spark, monkeypatch):
    monkeypatch.setattr(ScriptedSource, "knows_size", False)
    monkeypatch.setattr("slackwater.spark.execute.rows_read", lambda frame: None)
    sql = SCRIPTED + COUNT.format("100 seconds")
    (answer,) = run_scripted(spark, sql, {"p": BATCHES}, ruler=FixedRates({"q": 0.25}))
    truth = sum(t.num_rows for t in BATCHES)
    assert answer.value == pytest.approx(4 * answer.rows, rel=1e-6)
    assert answer.low < truth < answer.high
    assert answer.high > answer.value


def test_arrivals_that_are_guessed_calibrate_nothing():
    rows = pa.table({"__arrived": [30], "__kept_0": [30], "__earliest": [5], "pane": [0]})
    shed = shed_of({"q": 0.1})
    shed.count(rows, None)
    assert (shed.arrived, shed.told) == (300, False)
    logged = shed.batches(1, Span(0, 9, 9))
    assert logged["arrived"][0].as_py() * 0.1 == pytest.approx(logged["kept"][0].as_py())
    assert logged["arrived"][0].as_py() == 300 * UNTOLD
    known = shed_of({"q": 0.1})
    known.count(rows, 290)
    assert (known.arrived, known.told) == (290, True)
    assert known.batches(1, Span(0, 9, 9))["kept"][0].as_py() == 30
    # nothing passed, and nobody knows of how many: any number may be missing
    nothing = shed_of({"q": 0.1})
    nothing.count(rows.slice(0, 0), None)
    assert not nothing.empty
    assert nothing.batches(1, Span(0, 9, 9))["arrived"][0].as_py() > 0


# from when to when


@pytest.mark.parametrize("rates", [(1.0, 0.004, 1.0), (1.0, 0.004, 0.004)])
def test_a_window_that_dropped_rows_may_lie_in_is_not_called_exact(spark, rates):
    """Three batches of the same half minute, out of order: what is kept of one says little of where it lies."""
    random = np.random.default_rng(1)
    tables = [rows_at(*random.uniform(0, 30, 600)) for _ in rates]
    sql = LATE.replace("20 SECONDS", "1 MINUTE") + COUNT.format("1 second")
    truth = by_key(run_scripted(spark, sql, {"p": tables}))
    found = by_key(run_scripted(spark, sql, {"p": tables}, ruler=InTurn("q", *rates)))
    assert found.keys() >= truth.keys()
    for place, answer in found.items():
        if answer.how == "exact":
            assert answer.value == truth[place].value
        else:
            assert answer.low <= truth[place].value <= answer.high


def test_the_rows_of_the_next_batch_tell_of_windows_that_the_last_may_have_reached(spark):
    # of rows up to 10 s next to none is kept, and the next batch begins with the same second
    tables = [rows_at(*np.linspace(0, 9.9, 400)), rows_at(*np.linspace(9.91, 200, 500))]
    sql = SCRIPTED + COUNT.format("1 second")
    truth = by_key(run_scripted(spark, sql, {"p": tables}))
    found = by_key(run_scripted(spark, sql, {"p": tables}, ruler=InTurn("q", 0.02, 1.0)))
    assert found.keys() >= truth.keys()
    wrong = [a for place, a in found.items() if a.how == "exact" and a.value != truth[place].value]
    assert not wrong
    assert {a.how for a in found.values()} == {"exact", "sampled"}


@pytest.mark.parametrize(("rate", "how"), [(1e-9, "sampled"), (0.0, "suspended")])
@pytest.mark.parametrize("count", [2, 3])
def test_a_batch_that_kept_nothing_is_told_of(spark, rate, how, count):
    tables = [rows_at(*np.linspace(10 * i, 10 * i + 9.9, 100)) for i in range(count)]
    sql = SCRIPTED + COUNT.format("10 seconds")
    found = run_scripted(spark, sql, {"p": tables}, ruler=InTurn("q", 1.0, rate, 1.0))
    by_start = {round((a.window_start.timestamp() * SECOND - ORIGIN) / SECOND): a for a in found}
    assert sorted(by_start) == [10 * i for i in range(count)]
    lost = by_start[10]
    assert (lost.how, lost.met) == (how, False)
    assert lost.value is None if how == "suspended" else (lost.value == 0 and lost.high >= 100)
    assert all(a.value == 100 for start, a in by_start.items() if start != 10 and a.how == "exact")


def test_no_window_is_made_up_after_the_end_of_a_stream(spark):
    sql = SCRIPTED + COUNT.format("1 second")
    truth = by_key(run_scripted(spark, sql, {"p": BATCHES}))
    found = by_key(run_scripted(spark, sql, {"p": BATCHES}, ruler=FixedRates({"q": 0.3})))
    assert found.keys() == truth.keys()


def test_no_window_is_made_up_before_the_first_row_of_a_stream(spark):
    tables = [rows_at(*np.linspace(3 * i, 3 * i + 2.9, 200)) for i in range(8)]
    sql = LATE + COUNT.format("1 second")
    truth = by_key(run_scripted(spark, sql, {"p": tables}))
    found = by_key(run_scripted(spark, sql, {"p": tables}, ruler=FixedRates({"q": 0.3})))
    assert found.keys() == truth.keys()


def logged(spark: Any, tmp_path: Any, sql: str, tables: list[pa.Table], ruler: Any, turns: int) -> Any:
    """What the log says about batches after so many turns, in seconds from the origin."""
    session = scripted_session(spark, sql, {"p": tables}, state=tmp_path / "s", ruler=ruler, ends=False)
    session.start(ListSink(), manual=True)
    try:
        take_turns(session, {"p": tables[:turns]})
        (log,) = session.engine._samples.values()
        rows = log.table(LOG)
    finally:
        session.stop()
    return [tuple((r[n] - ORIGIN) / SECOND for n in ("low", "high", "seen")) for r in rows.to_pylist()]


def test_a_batch_reaches_from_the_watermark_to_twenty_gaps_after_its_last_row(spark, tmp_path):
    tables = [rows_at(*np.arange(0, 100, 0.5)), rows_at(*np.arange(100, 200, 0.5))]
    sql = LATE + COUNT.format("10 minutes")
    first, second = logged(spark, tmp_path, sql, tables, FixedRates({"q": 0.2}), 2)
    assert 0 <= first[0] < 15
    # one row in five of two a second: gaps of 2.5 seconds
    assert first[1] == pytest.approx(first[2] + 50, abs=20)
    assert second[0] == pytest.approx(first[2] - 20)
    assert 180 < second[2] < 200


def test_a_batch_reaches_at_least_as_far_as_rows_may_be_late(spark, tmp_path):
    tables = [rows_at(*np.linspace(0, 1, 500)), rows_at(*np.linspace(1, 2, 500))]
    sql = LATE + COUNT.format("1 second")
    first, second = logged(spark, tmp_path, sql, tables, InTurn("q", 0.5, 0.0), 2)
    assert first[1] == pytest.approx(first[2] + 20)
    # nothing before the first row, and nothing known of the second batch but that it came later
    assert second[0] == pytest.approx(0, abs=0.01)
    assert second[1:] == (pytest.approx(first[2] + 20), pytest.approx(first[2] + 20))


# what is asked of the windows that close


def spans(*ends: tuple[int, int]) -> SlotBatches:
    count = len(ends)
    ones, number = np.ones(count), np.arange(count)
    low, high = np.array(ends, dtype=np.int64).reshape(count, 2).T
    return SlotBatches(number, number - number - 1, number, number, ones, ones, 0 * ones, low, high)


def test_panes_touched_tell_the_same_windows_as_all_panes_would():
    random = Random(3)
    for _ in range(300):
        width = random.choice([1, 2, 5])
        slide = width * random.randint(1, 6)
        window = TimeWindow(slide * random.randint(1, 5), slide, width * random.randint(0, 3))
        closed = random.randint(-50, 200)
        watermark = closed + random.randint(1, 100)
        some = spans(*((low := random.randint(-100, 300), low + random.randint(0, 60)) for _ in range(4)))
        every = np.arange(-400, 500) * width
        wanted = starts(window, candidates(window, every, width, closed, watermark))
        met, _ = some.overlapping(wanted, wanted + window.size)
        panes = touched(some, width, closed, watermark)
        found = sampled_starts(window, some, panes, width, closed, watermark)
        assert found.tolist() == wanted[np.unique(met)].tolist()
        assert len(panes) <= 4 + (watermark - closed) / width + 4


def test_a_row_with_a_time_far_away_does_not_fill_the_memory():
    far = spans((0, 10**16), (5, 50), (-(10**16), 7))
    assert len(touched(far, 1000, BEFORE_ALL, AFTER_ALL)) < 100_000
    panes = touched(far, 1000, 0, 10**16)
    assert len(panes) < 100_000
    assert {0, 1000, 10**16 - 1000} <= set(panes.tolist())
    assert len(touched(spans((0, 10**16)), 1000, 10**16 - 5000, 10**16)) < 10
    assert touched(None, 10, 0, 100).tolist() == []


def test_a_row_from_the_future_in_a_sampled_batch_is_survived(spark):
    tables = [rows_at(*np.linspace(0, 9.9, 100)), rows_at(*([10.0] * 50), *([30e9] * 50))]
    sql = SCRIPTED + COUNT.format("1 second")
    found = run_scripted(spark, sql, {"p": tables}, ruler=InTurn("q", 1.0, 0.5))
    assert 12 <= len(found) < 50_000


def test_windows_over_rows_do_not_keep_the_log_of_sampled_batches(spark, tmp_path):
    tables = [rows_at(*np.linspace(4 * i, 4 * i + 3.9, 60)) for i in range(30)]
    sql = SCRIPTED + COUNT.format("4 seconds").replace("FROM p", "FROM p WHERE size > 0")
    sql += "CREATE QUERY counted AS SELECT COUNT(*) AS n FROM p GROUP BY tuples(100);"
    assert len(logged(spark, tmp_path, sql, tables, FixedRates({"q": 0.5}), 30)) < 6


def test_queries_without_windows_do_not_keep_it_either(spark, tmp_path):
    tables = [rows_at(*np.linspace(4 * i, 4 * i + 3.9, 60)) for i in range(30)]
    assert len(logged(spark, tmp_path, SCRIPTED + BIG, tables, FixedRates({"big": 0.5}), 30)) < 6


# rows that are delivered as they are


def replayed(spark: Any, tmp_path: Any, name: str, sql: str, ruler: Any) -> list[Any]:
    path = tmp_path / "trace.parquet"
    if not path.exists():
        pq.write_table(pa.concat_tables(batches(8, 25_000, seed=3)), path)
    sink = ListSink()
    session = Session(spark, tmp_path / name, Settings(rows_per_batch=100_000), ruler=ruler)
    session.sql(STREAM.format(using=f"replay OPTIONS (path '{path}', speed 'max')") + sql)
    session.start(sink)
    try:
        assert session.wait(120)
    finally:
        session.stop()
    return sink.answers


def test_rows_of_blocks_say_how_many_are_missing(spark, tmp_path):
    whole = replayed(spark, tmp_path, "whole", BIG, None)
    found = replayed(spark, tmp_path, "blocks", BIG, FixedRates({"big": 0.5}, share=0.4))
    assert {(a.how, a.met) for a in found} == {("sampled", False)}
    by_rate = Counter(a.rate for a in found)
    # the last batch is small, and read whole
    assert sorted(by_rate)[-1] == 0.5
    assert all(0.15 < rate < 0.25 for rate in sorted(by_rate)[:-1])
    assert sum(n / rate for rate, n in by_rate.items()) == pytest.approx(len(whole), rel=0.05)


def test_a_suspended_query_over_rows_says_so_once_for_every_batch(spark, tmp_path):
    tables = [rows_at(*np.linspace(10 * i, 10 * i + 9.9, 40)) for i in range(3)]
    found = run_scripted(spark, SCRIPTED + BIG, {"p": tables}, ruler=InTurn("big", 1.0, 0.0, 1.0))
    assert Counter(a.how for a in found) == {"exact": 80, "suspended": 1}
    (lost,) = (a for a in found if a.how == "suspended")
    assert (lost.query, lost.column, lost.met, lost.rate, lost.rows) == ("big", "*", False, 0.0, 0)
    # the first batch ends at 9.9: all that is known is that the second comes after
    assert lost.window_start.timestamp() * SECOND == pytest.approx(ORIGIN + 9.9 * SECOND)
    assert lost.window_end > lost.window_start
    of_trace = replayed(spark, tmp_path, "suspended", BIG, FixedRates({"big": 0.0}))
    assert {a.how for a in of_trace} == {"suspended"}
    ends = sorted((a.window_start, a.window_end) for a in of_trace)
    assert all(before[1] == after[0] for before, after in pairwise(ends))
    assert (ends[-1][1] - ends[0][0]).total_seconds() == pytest.approx(60, abs=0.1)


def test_it_says_so_though_no_time_is_known_yet(spark):
    tables = [rows_at(1, 2, 3)]
    (lost,) = run_scripted(spark, SCRIPTED + BIG, {"p": tables}, ruler=InTurn("big", 0.0))
    assert (lost.how, lost.window_start, lost.met) == ("suspended", None, False)
