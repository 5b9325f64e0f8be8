"""Samples through the whole pipeline on Spark: estimates beside exact answers, replays, blocks, suspension."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sampling_data import BATCHES, QUERIES, RATES, STREAM, Key, batches, by_key, key
from slackwater.planners.ruling import FixedRates, Ruling
from slackwater.runtime.answers import Answer
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.testing import (
    Killed,
    ListSink,
    abandon,
    killer,
    run_scripted,
    scripted_session,
    take_turns,
)


@pytest.fixture(scope="module")
def exact(spark) -> dict[Key, Answer]:
    return by_key(run_scripted(spark, STREAM.format(using="scripted") + QUERIES, {"p": BATCHES}))


@pytest.fixture(scope="module")
def sampled(spark) -> dict[Key, Answer]:
    sql = STREAM.format(using="scripted") + QUERIES
    return by_key(run_scripted(spark, sql, {"p": BATCHES}, ruler=FixedRates(RATES)))


def test_every_window_is_answered_and_says_how(exact: Mapping[Key, Answer], sampled: Mapping[Key, Answer]):
    assert sampled.keys() == exact.keys()
    hows = defaultdict(set)
    for answer in sampled.values():
        hows[answer.query].add(answer.how)
    assert hows.pop("sure") == {"exact"}
    assert all(how == {"sampled"} for how in hows.values())
    assert len(hows) == 5


def test_estimates_lie_near_the_truth_and_most_intervals_hold_it(exact, sampled):
    inside = []
    for place, answer in sampled.items():
        truth = float(exact[place].value)
        if answer.how == "exact":
            assert answer.value == exact[place].value
            continue
        assert answer.low <= answer.value <= answer.high, answer
        assert answer.value == pytest.approx(truth, rel=0.12), answer
        assert answer.confidence == 0.95
        inside.append(answer.low <= truth <= answer.high)
        allowed = 0.05 * abs(answer.value)
        assert answer.met == (answer.value - answer.low <= allowed and answer.high - answer.value <= allowed)
    assert np.mean(inside) >= 0.9, f"{np.mean(inside):.2f} of {len(inside)}"


def test_the_rate_and_the_rows_are_those_of_the_sample(exact, sampled):
    for place, answer in sampled.items():
        if answer.how != "sampled":
            continue
        assert answer.rate == pytest.approx(RATES[answer.query], abs=0.06), answer
        whole = exact[place].rows
        assert whole is not None
        assert answer.rows == pytest.approx(whole * RATES[answer.query], rel=0.25), answer


def test_arrivals_are_counted_though_no_query_sees_all_rows(spark):
    sql = STREAM.format(using="scripted") + (
        "CREATE QUERY q AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '100 seconds') WITH ERROR 5%;"
    )
    (answer,) = run_scripted(spark, sql, {"p": BATCHES}, ruler=FixedRates({"q": 0.5}))
    assert answer.value == pytest.approx(sum(t.num_rows for t in BATCHES))


def test_a_rate_of_one_gives_the_exact_answers(spark, exact):
    class Measuring:
        paced = False

        def rule(self, coming):
            return Ruling(measured=True)

    sql = STREAM.format(using="scripted") + QUERIES
    measured = by_key(run_scripted(spark, sql, {"p": BATCHES}, ruler=Measuring()))
    assert measured.keys() == exact.keys()
    for place, answer in measured.items():
        whole = exact[place]
        assert (answer.how, answer.rate, answer.rows, answer.met) == ("exact", 1.0, whole.rows, True)
        assert answer.value == pytest.approx(whole.value, rel=1e-12)


def test_only_some_batches_sampled(spark, exact):
    class EverySecond(FixedRates):
        turns = 0

        def rule(self, coming):
            object.__setattr__(self, "turns", self.turns + 1)
            return super().rule(coming) if self.turns % 2 else Ruling()

    sql = STREAM.format(using="scripted") + QUERIES
    half = by_key(run_scripted(spark, sql, {"p": BATCHES}, ruler=EverySecond(RATES)))
    assert half.keys() == exact.keys()
    closer = [
        abs(answer.value - float(exact[place].value)) / float(exact[place].value)
        for place, answer in half.items()
        if answer.how == "sampled"
    ]
    assert len(closer) > 20
    assert np.mean(closer) < 0.02
    # windows at the ends may lie in a sampled batch altogether
    assert np.mean([a.rate - RATES[a.query] for a in half.values() if a.how == "sampled"]) > 0.15


def test_another_salt_draws_another_sample_and_the_same_salt_the_same(spark, sampled):
    sql = STREAM.format(using="scripted") + QUERIES
    again = run_scripted(spark, sql, {"p": BATCHES}, ruler=FixedRates(RATES))
    other = run_scripted(spark, sql, {"p": BATCHES}, ruler=FixedRates(RATES), settings=Settings(salt=7))
    same = {k: (a.value, a.low, a.high, a.rows) for k, a in by_key(again).items()}
    assert same == {k: (a.value, a.low, a.high, a.rows) for k, a in sampled.items()}
    differing = [a.value != sampled[key(a)].value for a in other if a.how == "sampled"]
    assert np.mean(differing) > 0.9


@pytest.mark.parametrize(
    ("point", "occurrence"), [("recorded", 3), ("partials", 2), ("answers", 4), ("committed", 3)]
)
def test_a_killed_run_draws_the_same_sample_when_it_goes_on(spark, sampled, tmp_path, point, occurrence):
    sql = STREAM.format(using="scripted") + QUERIES
    kept: list[Answer] = []
    options = {"state": tmp_path / "state", "ruler": FixedRates(RATES)}
    first = scripted_session(spark, sql, {"p": BATCHES}, fault=killer(point, occurrence), **options)
    first.start(ListSink(kept), manual=True)
    with pytest.raises(Killed):
        take_turns(first, {"p": BATCHES})
    abandon(first)
    second = scripted_session(spark, sql, {"p": BATCHES}, **options)
    second.start(ListSink(kept), manual=True)
    take_turns(second, {"p": BATCHES})
    second.stop()
    assert {k: (a.value, a.low, a.high) for k, a in by_key(kept).items()} == {
        k: (a.value, a.low, a.high) for k, a in sampled.items()
    }


def test_a_batch_that_is_replayed_obeys_its_record_not_a_new_ruling(spark, sampled, tmp_path):
    sql = STREAM.format(using="scripted") + QUERIES
    kept: list[Answer] = []
    first = scripted_session(
        spark, sql, {"p": BATCHES}, fault=killer("recorded", 3), state=tmp_path / "s", ruler=FixedRates(RATES)
    )
    first.start(ListSink(kept), manual=True)
    with pytest.raises(Killed):
        take_turns(first, {"p": BATCHES})
    abandon(first)
    whole = scripted_session(spark, sql, {"p": BATCHES}, state=tmp_path / "s", ruler=FixedRates({}))
    whole.start(ListSink(kept), manual=True)
    take_turns(whole, {"p": BATCHES[:3]})
    whole.stop()
    for answer in kept:
        assert answer.value == sampled[key(answer)].value


def test_rare_groups_are_kept_at_a_rate_of_their_own(spark, exact):
    """Port 80 is frequent and thinned out; the others, and any that never came before, are kept whole."""
    (hashed,) = spark.sql("SELECT xxhash64(CAST(80 AS INT)) AS h").collect()

    class TwoRates:
        paced = False

        def rule(self, coming):
            slot = coming.slots.by_step["ports"].id
            return Ruling({slot: 0.1, f"{slot}/rare": 1.0}, 1.0, frequent={slot: (hashed.h,)})

    sql = STREAM.format(using="scripted") + QUERIES
    found = by_key(run_scripted(spark, sql, {"p": BATCHES}, ruler=TwoRates()))
    assert found.keys() == exact.keys()
    ports = {k: a for k, a in found.items() if a.query == "ports"}
    assert len(ports) == 18
    for place, answer in ports.items():
        truth = exact[place]
        if answer.group["port"] == 80:
            assert answer.rows == pytest.approx(0.1 * truth.rows, rel=0.3)
            assert answer.low <= answer.value <= answer.high
            assert answer.value == pytest.approx(truth.value, rel=0.15)
        else:
            assert (answer.rows, answer.value) == (truth.rows, pytest.approx(truth.value))
            assert answer.low == pytest.approx(answer.value)
    files = by_key(
        run_scripted(spark, sql, {"p": BATCHES}, ruler=TwoRates(), settings=Settings(driver_rows=1))
    )
    assert {k: a.rows for k, a in files.items() if a.query == "ports"} == {
        k: a.rows for k, a in ports.items()
    }


def test_a_suspended_query_says_so(spark, exact):
    sql = STREAM.format(using="scripted") + QUERIES
    found = run_scripted(
        spark, sql, {"p": BATCHES}, ruler=FixedRates({"web": 0.0, "middle": 0.0, "ports": 0.0})
    )
    hows = defaultdict(set)
    for answer in found:
        hows[answer.query].add((answer.how, answer.value is None, answer.met))
    for name in ("web", "middle", "ports"):
        assert hows[name] == {("suspended", True, False)}
    assert hows["sure"] == {("exact", False, True)}
    windows = {(a.query, a.column, a.window_start) for a in found}
    assert windows == {(a.query, a.column, a.window_start) for a in exact.values()}


def test_nothing_kept_gives_zero_with_an_upper_limit(spark):
    sql = STREAM.format(using="scripted") + (
        "CREATE QUERY rare AS SELECT COUNT(*) AS n FROM p WHERE port = 53 AND size > 1490 "
        "GROUP BY window(ts, '20 seconds') WITH ERROR 5%;"
        "CREATE QUERY other AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '20 seconds') WITH ERROR 5%;"
    )
    truth = by_key(run_scripted(spark, sql, {"p": BATCHES}))
    found = run_scripted(spark, sql, {"p": BATCHES}, ruler=FixedRates({"rare": 0.002, "other": 0.5}))
    rare = [a for a in found if a.query == "rare"]
    assert len(rare) == 3
    for answer in rare:
        assert answer.low >= 0
        assert answer.high > 100
        assert answer.rows == 0 or answer.value > 100
        assert key(answer) not in truth or answer.low <= truth[key(answer)].value <= answer.high


def test_groups_too_many_for_the_driver_are_estimated_from_files(spark, exact):
    sql = STREAM.format(using="scripted") + QUERIES
    found = by_key(
        run_scripted(spark, sql, {"p": BATCHES}, ruler=FixedRates(RATES), settings=Settings(driver_rows=1))
    )
    assert found.keys() == exact.keys()
    ports = [a for a in found.values() if a.query == "ports"]
    assert all(a.how == "sampled" for a in ports)
    assert np.mean([a.low <= exact[key(a)].value <= a.high for a in ports]) >= 0.9


def test_blocks_of_a_trace_are_read_and_the_rest_is_not(spark, tmp_path):
    whole = pa.concat_tables(batches(8, 25_000, seed=3))
    pq.write_table(whole, tmp_path / "trace.parquet")
    stream = STREAM.format(using=f"replay OPTIONS (path '{tmp_path / 'trace.parquet'}', speed 'max')")
    queries = QUERIES[: QUERIES.index("CREATE QUERY sure")]

    def run(ruler: FixedRates | None, name: str) -> dict[Key, Answer]:
        sink = ListSink()
        session = Session(spark, tmp_path / name, Settings(rows_per_batch=100_000), ruler=ruler)
        session.sql(stream + queries)
        session.start(sink)
        try:
            assert session.wait(120)
            status = session.status()
        finally:
            session.stop()
        assert status.streams[0].rows == whole.num_rows
        return by_key(sink.answers)

    truth = run(None, "whole")
    found = run(FixedRates(RATES, share=0.4), "blocks")
    assert found.keys() == truth.keys()
    inside, errors = [], []
    for place, answer in found.items():
        assert answer.how == "sampled"
        # a batch of a few blocks is read in eight all the same, or whole
        assert 0.3 * RATES[answer.query] < answer.rate < 1.05 * RATES[answer.query]
        errors.append(abs(answer.value / float(truth[place].value) - 1))
        inside.append(answer.low <= truth[place].value <= answer.high)
    assert np.mean(inside) >= 0.9
    # windows that end inside a batch depend on which of its blocks were read
    assert np.mean(errors) < 0.1
    assert np.mean([a.rate / RATES[a.query] for a in found.values()]) < 0.7


def test_sampled_state_is_forgotten_with_its_windows(spark, tmp_path: Path):
    tables = batches(60, 60, seed=9)
    sql = STREAM.format(using="scripted") + (
        "CREATE QUERY q AS SELECT COUNT(*) AS n, SUM(size) AS s FROM p WHERE port = 80 "
        "GROUP BY window(ts, '4 seconds', '2 seconds') WITH ERROR 5%;"
    )
    session = scripted_session(
        spark, sql, {"p": tables}, state=tmp_path / "s", ruler=FixedRates({"q": 0.5}), ends=False
    )
    sink = ListSink()
    session.start(sink, manual=True)
    take_turns(session, {"p": tables})
    files = [f for listed in session.engine.state.streams["p"].files.values() for f in listed]
    session.stop()
    assert len(sink.answers) > 40
    assert len(files) < 30
    assert len(list((tmp_path / "s" / "panes").rglob("*.parquet"))) < 40
