"""Where extremes, silences and late rows meet: new keys, new queries, another contract; without Spark."""

from __future__ import annotations

import numpy as np
import pytest

from current_harness import DirectAsking, items, run, values_of
from deferred_runs import STREAM, prepared, rows_of, walks
from slackwater.plan.catalog import Catalog
from slackwater.plan.current import current_plan
from slackwater.plan.functions import Functions
from slackwater.planners.deferring import Rules
from slackwater.planners.manner import Manner
from slackwater.runtime.current.model import Model
from slackwater.statistics.covariance import Factors
from slackwater.statistics.series import Series

EVERY, DEFERRED = Rules(every=("q/a",)), Rules()
TOP = "max_since(SUM(x), TIMESTAMP '1970-01-01')"


class WithSignals(DirectAsking):
    """Reads the one value of rows that were kept whole, whatever the signal is called."""

    def signals(self, wanted, rows):
        import pyarrow as pa

        value = rows.field("x")
        return pa.table({f"v{i}": value for i in range(len(wanted))})


def changed(values, sql: str, ask, clauses: str = ""):
    """The same values under other queries."""
    catalog = Catalog.from_sql(STREAM.format(clauses=clauses) + sql, Functions())
    plan = current_plan(catalog, "t")
    assert plan is not None
    return values.carried(plan, ask)


def test_the_first_row_of_a_key_may_be_late():
    values, ask = prepared(
        "CREATE QUERY q AS SELECT k AS g, max_over(SUM(x), '10 seconds') AS a FROM LATEST(t) GROUP BY k;",
        weights=[(0, 0, 1.0), (1, 1, 1.0)],
    )
    run(values, ask, items([(1, 0, 1.0), (2, 0, 2.0)]), 0, 3)
    found = run(values, ask, items([(2, 1, 9.0), (4, 1, 5.0)]), 3, 5)
    assert {a.group["g"]: a.value for a in found} == {0: 2, 1: 9}


@pytest.mark.parametrize("contract", ["EXACT", "DRIFT 0 BELIEF 90%"])
def test_a_new_extreme_knows_what_stands(contract: str):
    first = "CREATE QUERY s AS SELECT SUM(x) AS s FROM LATEST(t);"
    values, ask = values_of(STREAM.format(clauses="") + first), WithSignals()
    values.prepare(ask)
    run(values, ask, items([(1, 0, 5.0), (2, 0, 6.0), (3, 0, 100.0)]), 0, 4)
    new = f"CREATE QUERY q AS SELECT max_over(SUM(x), '10 seconds') AS a FROM LATEST(t) WITH {contract};"
    values = changed(values, first + new, ask)
    found = run(values, ask, items([(t, 0, 3.0) for t in (50, 55, 60, 61, 62)]), 4, 63)
    said = {int(a.at.timestamp()): (a.value, a.met) for a in found if a.query == "q"}
    assert said[50] == (100, True)
    assert said[60] == (3, True)


def test_a_new_extreme_goes_on_through_a_silence():
    clauses = " INTERRUPTED AFTER 5 SECONDS"
    first = "CREATE QUERY s AS SELECT SUM(x) AS s FROM LATEST(t) WITH DRIFT 1;"
    values, ask = values_of(STREAM.format(clauses=clauses) + first), WithSignals()
    values.prepare(ask)
    x = walks(2, 60, seed=31)
    run(values, ask, items(rows_of(x, 0, 50)), 0, 50)
    new = "CREATE QUERY q AS SELECT max_over(SUM(x), '10 seconds') AS a FROM LATEST(t) WITH DRIFT 1;"
    values = changed(values, first + new, ask, clauses)
    found = run(values, ask, items([(100, 0, 1000.0)]), 50, 101)
    assert {a.how for a in found if a.query == "q"} == {"modelled"}


@pytest.mark.parametrize("rules", [EVERY, DEFERRED])
@pytest.mark.parametrize("late", [20, 180, 250])
def test_no_late_peak_is_lost(rules: Rules, late: int):
    """One row that comes late in every turn, and each time is higher than all before."""
    values, ask = prepared(f"CREATE QUERY q AS SELECT {TOP} AS a FROM LATEST(t) WITH DRIFT 0 BELIEF 90%;")
    run(values, ask, items([(t, k, 1.0) for t in range(300) for k in range(2)]), 0, 300, rules)
    top = 10.0
    for turn in range(60):
        now, top = 300 + 7 * turn, top + 1
        rows = [(t, k, 1.0) for t in range(now, now + 7) for k in range(2)]
        found = run(values, ask, items([(now - late, 0, top), *rows]), now, now + 7, rules)
        # of the same time the one that came last counts
        assert found[0].value == top + 1
        assert int(found[0].at.timestamp()) == now


def test_another_contract_before_the_first_tick():
    sql = f"CREATE QUERY q AS SELECT k AS g, {TOP} AS a FROM LATEST(t) GROUP BY k WITH {{}};"
    values, _ = prepared(sql.format("DRIFT 1"), weights=[(0, 0, 1.0), (1, 1, 1.0)])
    ask = WithSignals([(0, 0, 1.0), (1, 1, 1.0)])
    run(values, ask, items([(5, 0, 1.0), (5, 1, 2.0)]), 0, 1)
    values = changed(values, sql.format("EXACT"), ask)
    found = run(values, ask, items([(6, 0, 0.0)]), 1, 7)
    assert [(a.group["g"], a.value) for a in found] == [(0, 1), (1, 2), (0, 1), (1, 2)]


@pytest.mark.parametrize(("before", "after"), [("EXACT", "DRIFT 0"), ("DRIFT 0", "EXACT")])
def test_late_rows_may_take_a_false_peak_away_under_another_contract(before: str, after: str):
    sql = f"CREATE QUERY q AS SELECT {TOP} AS a FROM LATEST(t) WITH {{}};"
    clauses = " INTERRUPTED AFTER 1 HOUR"
    values, _ = prepared(sql.format(before), clauses)
    ask = WithSignals()
    rows = [(1, 0, 9.0), (1, 1, 1.0), (3, 1, 8.0), (5, 1, 2.0), (5, 0, 1.0)]
    assert run(values, ask, items(rows), 0, 6)[-1].value == 17
    values = changed(values, sql.format(after), ask, clauses)
    # the first key had fallen before the second rose
    found = run(values, ask, items([(2, 0, 3.0), (7, 0, 1.0)]), 6, 8)
    assert found[-1].value == 11


@pytest.mark.parametrize("rules", [EVERY, DEFERRED])
def test_a_modelled_peak_is_not_taken_back_while_its_key_is_silent(rules: Rules):
    values, ask = prepared(
        f"CREATE QUERY q AS SELECT {TOP} AS a FROM LATEST(t) WITH DRIFT 0.5 BELIEF 90%;",
        " INTERRUPTED AFTER 3 SECONDS",
    )
    noise = np.random.default_rng(32).normal(0, 0.05, (400, 2))
    x = 1000 + noise + np.array([1.0, 0.0]) * np.arange(400)[:, None]
    x[340, 1] += 200
    run(values, ask, items(rows_of(x, 0, 300)), 0, 300, rules)
    found = run(values, ask, items(rows_of(x, 300, 380, frozenset({0}))), 300, 380, rules)
    said = [a.value for a in found if a.at.timestamp() >= 340]
    assert len(said) > 3
    assert min(said) > 2300 + 200
    assert np.diff(said).min() > -1, "but for what is learnt meanwhile"


@pytest.mark.parametrize("sigma", [0.0, 0.05, 1.0])
def test_what_rises_steadily_goes_on_rising(sigma: float):
    """A meter: intervals hold, and are no wider than what the drift has shown to be worth."""
    values, ask = prepared(
        "CREATE QUERY q AS SELECT AVG(x) AS a FROM LATEST(t) WITH DRIFT 0.5 BELIEF 90%;",
        " INTERRUPTED AFTER 3 SECONDS",
    )
    x = walks(3, 1100, seed=33, sigma=sigma, drift=1.0)
    run(values, ask, items(rows_of(x, 0, 1000)), 0, 1000)
    found = run(values, ask, items(rows_of(x, 1000, 1060, frozenset({0}))), 1000, 1060)
    modelled = [a for a in found if a.how == "modelled"]
    assert len(modelled) > 5
    inside = [a.low <= x[int(a.at.timestamp())].mean() <= a.high for a in modelled]
    assert np.mean(inside) > 0.85
    assert modelled[-1].value > found[0].value + 15


def test_intervals_hold_until_the_next_answer_though_others_tell_much():
    """Ten keys that move nearly as one: what is told of a silent one is nothing for the time to come."""
    held: dict[int, list[bool]] = {0: [], 5: []}
    for seed in range(4):
        random = np.random.default_rng(seed)
        common = random.normal(0, 1, 1300)[:, None]
        x = 1000 + np.cumsum(0.98 * common + 0.2 * random.normal(0, 1, (1300, 10)), axis=0)
        values, ask = prepared(
            "CREATE QUERY q AS SELECT k AS g, SUM(x) AS a FROM LATEST(t) GROUP BY k WITH DRIFT 1 BELIEF 90%;",
            " INTERRUPTED AFTER 3 SECONDS",
            [(k, k, 1.0) for k in range(10)],
        )
        run(values, ask, items(rows_of(x, 0, 1200)), 0, 1200)
        for turn in range(4):
            first = 1200 + 25 * turn
            silent = frozenset({turn})
            for a in run(values, ask, items(rows_of(x, first, first + 15, silent)), first, first + 15):
                for ahead, found in held.items():
                    at = int(a.at.timestamp()) + ahead
                    if a.how == "modelled" and at < first + 16:
                        found.append(a.low <= x[at, turn] <= a.high)
            run(values, ask, items(rows_of(x, first + 15, first + 25)), first + 15, first + 25)
    assert np.mean(held[0]) > 0.9
    assert np.mean(held[5]) > 0.8


def test_a_retired_key_keeps_no_stream_awake():
    values, ask = prepared(
        "CREATE QUERY q AS SELECT AVG(x) AS a FROM LATEST(t) WITH DRIFT 1;", " INTERRUPTED AFTER 1 MINUTE"
    )
    x = walks(2, 200, seed=34)
    run(values, ask, items([*rows_of(x, 0, 50), (50, 0, None), (50, 1, 1.0)]), 0, 51)
    run(values, ask, items(rows_of(x, 51, 130, frozenset({0}))), 51, 130)
    assert not values.wakes(150 * 1_000_000)
    assert values.wakes(250 * 1_000_000)


def test_common_factors_are_learnt_whoever_came_first():
    random = np.random.default_rng(35)
    moves = 0.9 * random.normal(size=(900, 1)) + np.sqrt(0.19) * random.normal(size=(900, 8))
    late = Factors.fresh(8)
    for number, move in enumerate(moves):
        # first one key alone, then the first four, then only the others
        heard = np.arange(8) < 1 if number == 0 else (np.arange(8) < 4) == (number < 300)
        late.observe(np.where(heard, move, np.nan))
    loadings, _ = late.correlations()
    between = loadings @ loadings.T
    assert np.mean(between[4:, 4:][np.triu_indices(4, 1)]) == pytest.approx(0.81, abs=0.15)


def test_a_model_of_many_keys_survives_a_restart():
    model, series = Model(1, Manner()), Series(1, 2)
    series.grow(100_001)
    series.variance[:] = 1.0
    model.grow(100_001)
    for _ in range(3):
        model.observe(series, np.arange(5), np.ones((1, 5)), np.ones(5), 1.0)
    other = Model(1, Manner())
    other.load(model.to_arrays())
    other.grow(100_001)
    assert other.factors is not None
    assert other.factors.heard[:5].tolist() == [3] * 5
