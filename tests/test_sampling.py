"""Samples through the whole pipeline on Spark: estimates beside exact answers, replays, blocks, suspension."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from slackwater.planners.ruling import FixedRates, Ruling
from slackwater.runtime.answers import Answer
from slackwater.runtime.governor import WARMING, Governor
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.statistician import DECAY
from slackwater.runtime.testing import (
    Killed,
    ListSink,
    abandon,
    killer,
    run_scripted,
    scripted_session,
    take_turns,
)

ORIGIN = 1_700_000_000_000_000
STREAM = "CREATE STREAM p (ts TIMESTAMP, size INT, port INT, host STRING) USING {using} TIMESTAMP BY ts;"
QUERIES = """
CREATE QUERY web AS SELECT COUNT(*) AS n, SUM(size) AS bytes, AVG(size) AS mean, SUM(size) / COUNT(*) AS ratio
  FROM p WHERE port = 80 GROUP BY window(ts, '20 seconds', '10 seconds') WITH ERROR 5%;
CREATE QUERY middle AS SELECT MEDIAN(size) AS m, COUNT(*) AS n FROM p WHERE port = 443
  GROUP BY window(ts, '20 seconds') WITH ERROR 5%;
CREATE QUERY tail AS SELECT percentile(size, 0.9) AS m FROM p WHERE port = 443 AND size > 100
  GROUP BY window(ts, '20 seconds') WITH ERROR 5%;
CREATE QUERY spread AS SELECT STDDEV(size) AS s, VAR_POP(size) AS v FROM p WHERE port > 80
  GROUP BY window(ts, '20 seconds') WITH ERROR 5%;
CREATE QUERY ports AS SELECT port, COUNT(*) AS n, SUM(size) AS bytes FROM p
  GROUP BY port, window(ts, '20 seconds') WITH ERROR 5%;
CREATE QUERY sure AS SELECT MAX(size) AS m, COUNT(*) AS n FROM p WHERE port = 53
  GROUP BY window(ts, '20 seconds') WITH EXACT;
"""
RATES = {"web": 0.2, "middle": 0.4, "tail": 0.5, "spread": 0.3, "ports": 0.6}
Key = tuple[object, ...]


def batches(count: int = 6, rows: int = 2500, seed: int = 0) -> list[pa.Table]:
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(0, 60_000_000, count * rows))
    made = []
    for part in np.split(times, count):
        size = len(part)
        columns = {
            "ts": pa.array(ORIGIN + part, pa.timestamp("us", "UTC")),
            "size": pa.array(random.integers(40, 1500, size).astype("int32")),
            "port": pa.array(random.choice([80, 443, 53], size, p=[0.6, 0.3, 0.1]).astype("int32")),
            "host": pa.array(random.choice(["a", "b", "c"], size)),
        }
        made.append(pa.table(columns))
    return made


BATCHES = batches()


def key(answer: Answer) -> Key:
    return (answer.query, answer.column, answer.window_start, answer.keys)


def by_key(answers: list[Answer]) -> dict[Key, Answer]:
    found = {key(a): a for a in answers}
    assert len(found) == len(answers), "an answer was delivered twice"
    return found


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

        def rule(self, stream, plan, slots, size, *, skips):
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

        def rule(self, stream, plan, slots, size, *, skips):
            object.__setattr__(self, "turns", self.turns + 1)
            return super().rule(stream, plan, slots, size, skips=skips) if self.turns % 2 else Ruling()

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

        def rule(self, stream, plan, slots, size, *, skips):
            slot = slots.by_step["ports"].id
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


HEAVY = """
CREATE QUERY bytes AS SELECT SUM(size) AS s FROM p WHERE port = 80 AND known(host)
  GROUP BY window(ts, '20 seconds') WITH ERROR 5%;
CREATE QUERY others AS SELECT COUNT(*) AS n FROM p WHERE port = 443 GROUP BY window(ts, '20 seconds') WITH ERROR 5%;
"""


def heavy_batches() -> list[pa.Table]:
    random = np.random.default_rng(11)
    made = []
    for table in BATCHES:
        size = np.minimum(40 * random.pareto(1.2, table.num_rows) + 1, 2_000_000)
        made.append(table.set_column(1, "size", pa.array(size.astype("int32"))))
    return made


class BySize:
    """Keeps about a tenth of the rows of ``bytes``, by their size where there is a mean to go by."""

    paced = False

    def __init__(self, tau: float) -> None:
        self.tau = tau

    def rule(self, stream, plan, slots, size, *, skips):
        slot = slots.by_step["bytes"]
        assert slot.summed is not None
        return Ruling({slot.id: 0.1}, 1.0, sizes={slot.id: self.tau} if self.tau else {})


def test_a_heavy_tailed_sum_keeps_rows_in_proportion_to_their_size(spark):
    tables = {"p": heavy_batches()}
    sql = STREAM.format(using="scripted") + HEAVY
    options = {"functions": {"known": (lambda host: host != "c", "boolean")}}
    truth = by_key(run_scripted(spark, sql, tables, **options))
    sizes = np.concatenate([t["size"].to_numpy() for t in tables["p"]])
    tau = float(sizes.mean() / 0.1)
    errors, widths = {}, {}
    for name, ruler in (("size", BySize(tau)), ("rows", BySize(0.0))):
        found = by_key(run_scripted(spark, sql, tables, ruler=ruler, **options))
        assert found.keys() == truth.keys()
        mine = {k: a for k, a in found.items() if a.query == "bytes"}
        assert all(a.how == "sampled" and a.low <= a.value <= a.high for a in mine.values())
        assert all(a.low <= truth[k].value <= a.high for k, a in mine.items())
        assert np.mean([a.rows / truth[k].rows for k, a in mine.items()]) < 0.15
        errors[name] = np.mean([abs(a.value / truth[k].value - 1) for k, a in mine.items()])
        widths[name] = np.mean([(a.high - a.low) / a.value for a in mine.values()])
        assert all(a.value == truth[k].value for k, a in found.items() if a.query == "others")
    assert widths["size"] < 0.5 * widths["rows"], widths
    assert errors["size"] < 0.15, errors


class LearnsBySize(Governor):
    """Keeps rows by their size, and learns what they are like."""

    def rule(self, stream, plan, slots, size, *, skips):
        super().rule(stream, plan, slots, size, skips=skips)
        slot = slots.by_step["bytes"]
        return Ruling({slot.id: 0.1}, 1.0, measured=True, sizes={slot.id: 800.0})


def test_what_is_learnt_of_values_does_not_depend_on_large_ones_being_kept_more_often(spark):
    # no row so small that the few of its kind that are kept stand for most of the others
    tables = {"p": [t.set_column(1, "size", pc.add(t["size"], 40).cast("int32")) for t in heavy_batches()]}
    options = {"functions": {"known": (lambda host: host != "c", "boolean")}}
    governor = LearnsBySize(lambda: 1e9, 2, everywhere=True)
    run_scripted(spark, STREAM.format(using="scripted") + HEAVY, tables, ruler=governor, **options)
    rows = total = of = 0.0
    for table in tables["p"][WARMING:]:
        mine = table.filter(pc.and_(pc.equal(table["port"], 80), pc.not_equal(table["host"], "c")))
        rows, total = DECAY * rows + mine.num_rows, DECAY * total + pc.sum(mine["size"]).as_py()
        of = DECAY * of + table.num_rows
    known = governor.snapshot()[0].queries["bytes"]
    assert known.mean == pytest.approx(total / rows, rel=0.15)
    assert known.share == pytest.approx(rows / of, rel=0.15)


def test_sums_by_size_are_unbiased(spark):
    tables = {"p": heavy_batches()[:2]}
    sql = STREAM.format(using="scripted") + HEAVY.split(";")[0] + ";"
    options = {"functions": {"known": (lambda host: host != "c", "boolean")}}
    truth = by_key(run_scripted(spark, sql, tables, **options))
    sizes = np.concatenate([t["size"].to_numpy() for t in tables["p"]])
    ratios = []
    for salt in range(1, 9):
        found = run_scripted(
            spark,
            sql,
            tables,
            ruler=BySize(float(sizes.mean() / 0.2)),
            settings=Settings(salt=salt),
            **options,
        )
        ratios += [a.value / truth[key(a)].value for a in found]
    assert abs(np.mean(ratios) - 1) < 3 * np.std(ratios) / np.sqrt(len(ratios)) + 1e-9


MEMBERS = "".join(
    f"CREATE QUERY h{i} AS SELECT COUNT(*) AS n, SUM(size) AS s FROM p WHERE port = {80 + i} "
    f"GROUP BY window(ts, '20 seconds') WITH ERROR 5%;\n"
    for i in range(12)
)


def test_members_of_a_signature_have_rates_of_their_own(spark):
    random = np.random.default_rng(5)
    tables = []
    for table in BATCHES:
        ports = pa.array((80 + random.integers(0, 12, table.num_rows)).astype("int32"))
        tables.append(table.set_column(2, "port", ports))
    sql = STREAM.format(using="scripted") + MEMBERS
    truth = by_key(run_scripted(spark, sql, {"p": tables}))
    rates = {f"h{i}": 1.0 if i == 3 else 0.15 + 0.07 * i for i in range(12)}
    found = by_key(run_scripted(spark, sql, {"p": tables}, ruler=FixedRates(rates)))
    assert found.keys() == truth.keys()
    inside = []
    for place, answer in found.items():
        if answer.query == "h3":
            assert (answer.how, answer.value) == ("exact", truth[place].value)
            continue
        assert answer.how == "sampled"
        assert answer.rate == pytest.approx(rates[answer.query], abs=0.09)
        inside.append(answer.low <= truth[place].value <= answer.high)
    # the samples are nested, so that a bad one is bad for many
    assert np.mean(inside) >= 0.85


def test_rows_of_a_set_valued_query_are_thinned_out(spark):
    sql = (
        STREAM.format(using="scripted")
        + "CREATE QUERY big AS SELECT size, host FROM p WHERE size > 1000 WITH ERROR 5%;"
    )
    whole = run_scripted(spark, sql, {"p": BATCHES})
    part = run_scripted(spark, sql, {"p": BATCHES}, ruler=FixedRates({"big": 0.25}))
    assert len(part) == pytest.approx(0.25 * len(whole), rel=0.15)
    assert {(a.at, a.keys) for a in part} <= {(a.at, a.keys) for a in whole}
    assert {(a.how, a.rate, a.met) for a in part} == {("sampled", 0.25, False)}
    nearly = run_scripted(spark, sql, {"p": BATCHES[:1]}, ruler=FixedRates({"big": 0.97}))
    assert {(a.how, a.met) for a in nearly} == {("sampled", True)}


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


def test_a_query_that_others_read_is_never_sampled(spark):
    sql = STREAM.format(using="scripted") + (
        "CREATE QUERY base AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '5 seconds') WITH ERROR 5%;"
        "CREATE QUERY above AS SELECT MAX(n) AS m FROM base GROUP BY window(ts, '20 seconds') WITH EXACT;"
    )
    truth = by_key(run_scripted(spark, sql, {"p": BATCHES}))
    found = by_key(run_scripted(spark, sql, {"p": BATCHES}, ruler=FixedRates({"base": 0.1})))
    assert {k: (a.value, a.how) for k, a in found.items()} == {k: (a.value, a.how) for k, a in truth.items()}


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


def test_only_rows_that_are_kept_are_looked_up(spark, tmp_path):
    pq.write_table(pa.table({"host": ["a", "b"], "site": ["x", "y"]}), tmp_path / "sites.parquet")
    sql = STREAM.format(using="scripted") + (
        f"CREATE TABLE sites (host STRING, site STRING) USING parquet OPTIONS (path '{tmp_path / 'sites.parquet'}');"
        "CREATE QUERY looked AS SELECT COUNT(*) AS n, SUM(size) AS s FROM p JOIN sites USING (host) "
        "WHERE site = 'x' GROUP BY window(ts, '20 seconds') WITH ERROR 5%;"
        "CREATE QUERY plain AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '20 seconds') WITH ERROR 5%;"
    )
    truth = by_key(run_scripted(spark, sql, {"p": BATCHES}))
    found = by_key(run_scripted(spark, sql, {"p": BATCHES}, ruler=FixedRates({"looked": 0.3})))
    assert found.keys() == truth.keys()
    for place, answer in found.items():
        if answer.query == "plain":
            assert answer.value == truth[place].value
        else:
            assert answer.how == "sampled"
            assert answer.low <= truth[place].value <= answer.high


def test_sums_of_intervals_and_decimals_are_measured_without_harm(spark):
    class Measuring(FixedRates):
        def rule(self, stream, plan, slots, size, *, skips):
            ruling = super().rule(stream, plan, slots, size, skips=skips)
            return replace(ruling, measured=True)

    sql = (
        "CREATE STREAM p (ts TIMESTAMP, size INT, port INT, host STRING) USING scripted TIMESTAMP BY ts;"
        "CREATE QUERY late AS SELECT SUM(ts - TIMESTAMP '2023-11-14 00:00:00') AS d "
        "FROM p GROUP BY window(ts, '20 seconds');"
        "CREATE QUERY money AS SELECT SUM(CAST(size AS DECIMAL(12, 2))) AS d, AVG(CAST(size AS DECIMAL(12, 2))) AS a "
        "FROM p WHERE port = 80 GROUP BY window(ts, '20 seconds');"
        "CREATE QUERY texts AS SELECT SUM(CAST(size AS STRING)) AS d FROM p WHERE port = 53 GROUP BY window(ts, '20 seconds');"
    )
    truth = by_key(run_scripted(spark, sql, {"p": BATCHES}))
    rates = {"late": 0.5, "money": 0.5, "texts": 0.5}
    found = by_key(run_scripted(spark, sql, {"p": BATCHES}, ruler=Measuring(rates)))
    assert found.keys() == truth.keys()
    for place, answer in found.items():
        if answer.query == "late":
            assert (answer.how, answer.value) == ("exact", truth[place].value)
        else:
            assert answer.how == "sampled"
            assert float(answer.value) == pytest.approx(float(truth[place].value), rel=0.2)
