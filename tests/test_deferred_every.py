"""Extremes and moving answers: evaluated at every tick or deferred, and what late rows and silences do to them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array

from current_harness import items, run
from deferred_runs import TRUE, WARM, cached, prepared, rows_of, walks
from slackwater.planners.deferring import Rules, UnitCosts
from slackwater.planners.manner import Manner
from slackwater.runtime.current.landmarks import APART_TICKS, Landmarks
from slackwater.runtime.current.linear import motion
from slackwater.runtime.current.model import Model
from slackwater.runtime.current.scheduling import items_for_every
from slackwater.statistics.series import Series

EVERY, DEFERRED = Rules(every=("q/a",)), Rules()
SINCE = "max_since(AVG(x), TIMESTAMP '1970-01-01 00:01:00')"


@pytest.mark.parametrize("item", [name for name in TRUE if name != "AVG(x)"])
def test_an_extreme_at_every_tick_is_never_beyond_its_bound(item: str):
    x = walks(9, 700, seed=21)
    values, ask = prepared(f"CREATE QUERY q AS SELECT {item} AS a FROM LATEST(t) WITH DRIFT 1 BELIEF 90%;")
    found = []
    for first in range(0, 700, 50):
        found += run(values, ask, items(rows_of(x, first, first + 50)), first, first + 50, EVERY)
    true = TRUE[item](x.mean(axis=1))
    error = np.abs(cached(found, 700) - true)[WARM:]
    assert error.max() <= 1
    moves = np.nansum(np.abs(np.diff(true)))
    assert len(found) <= 2 + 2 * moves, "only what has left its bound is delivered"


@pytest.mark.parametrize("turns", [1, 40, 300])
def test_a_landmark_keeps_its_peak_whichever_way_it_is_evaluated(turns: int):
    """In turns of so many ticks: at every tick, then deferred, and so on, for more ticks than are kept."""
    x = walks(4, 1200, seed=22, sigma=0.2)
    x[300] += 100
    values, ask = prepared(f"CREATE QUERY q AS SELECT {SINCE} AS a FROM LATEST(t) WITH DRIFT 1 BELIEF 90%;")
    found = []
    for number, first in enumerate(range(0, 1200, turns)):
        stop = min(first + turns, 1200)
        rules = EVERY if number % 2 == 0 else DEFERRED
        found += run(values, ask, items(rows_of(x, first, stop)), first, stop, rules)
    true = TRUE[SINCE](x.mean(axis=1))
    late = np.abs(cached(found, 1200) - true)[600:]
    assert late.max() <= 1
    assert values.deferred["q"].items[0].landmarks.extreme[0, 0] == pytest.approx(true[-1], abs=1)


@pytest.mark.parametrize("rules", [EVERY, DEFERRED])
@pytest.mark.parametrize(("begins", "outage"), [(20, 5), (500, 30), (500, 100)])
def test_a_backlog_mends_what_is_taken_since_a_landmark(rules: Rules, begins: int, outage: int):
    x = walks(3, 700, seed=23, sigma=0.1)
    back = begins + outage
    x[begins + 3, 0] += 60
    values, ask = prepared(
        "CREATE QUERY q AS SELECT max_since(SUM(x), TIMESTAMP '1970-01-01') AS a FROM LATEST(t) WITH DRIFT 1;"
    )
    run(values, ask, items(rows_of(x, 0, begins)), 0, begins, rules)
    run(values, ask, items(rows_of(x, begins, back, frozenset({0}))), begins, back, rules)
    backlog = [(t, 0, x[t, 0]) for t in range(begins, back)]
    found = run(values, ask, items([*backlog, *rows_of(x, back, back + 2)]), back, back + 2, rules)
    assert found[0].at.timestamp() == back
    assert found[0].value == pytest.approx(x.sum(axis=1)[: back + 1].max(), abs=1e-9)


def test_what_was_modelled_is_no_peak():
    """A key that rose went silent, and comes back lower than it was taken to be."""
    rising = np.full((400, 2), 10.0) + np.array([[1.0, 0.0]]) * np.arange(400)[:, None]
    rising += np.random.default_rng(24).normal(0, 0.01, rising.shape)
    rising[100:, 0] = 50.0
    values, ask = prepared(
        "CREATE QUERY q AS SELECT max_since(SUM(x), TIMESTAMP '1970-01-01') AS a FROM LATEST(t) WITH DRIFT 1;",
        " INTERRUPTED AFTER 5 SECONDS",
    )
    run(values, ask, items(rows_of(rising, 0, 100)), 0, 100)
    away = run(values, ask, items(rows_of(rising, 100, 350, frozenset({0}))), 100, 350)
    assert max(a.value for a in away if a.how == "modelled") > rising[:100].sum(axis=1).max() + 10
    found = run(values, ask, items(rows_of(rising, 350, 400)), 350, 400)
    assert found[0].how == "deferred"
    assert found[-1].value == pytest.approx(rising[:100].sum(axis=1).max(), abs=1)


def test_an_answer_that_moves_may_be_evaluated_at_every_tick():
    x = walks(9, 600, seed=25, sigma=0.05, drift=0.5)
    sql = "CREATE QUERY q AS SELECT AVG(x) AS a FROM LATEST(t) WITH DRIFT 1 BELIEF 90% EXTRAPOLATE;"
    values, ask = prepared(sql)
    found = run(values, ask, items(rows_of(x, 0, 600)), 0, 600, EVERY)
    assert np.abs(cached(found, 600) - x.mean(axis=1)).max() <= 1
    assert len(found) < 60, "it moves by 300 bounds, and its slope says so"


@pytest.mark.parametrize(
    ("item", "bound", "every"),
    [
        ("max_over(AVG(x), '3 seconds')", 0.8, True),
        ("max_over(AVG(x), '60 seconds')", 5, False),
        (SINCE, 0.02, True),
    ],
)
def test_an_extreme_is_evaluated_at_every_tick_where_that_costs_less(item: str, bound: float, every: bool):
    x = walks(9, 200, seed=26, drift=0.2)
    values, ask = prepared(f"CREATE QUERY q AS SELECT {item} AS a FROM LATEST(t) WITH DRIFT {bound};")
    run(values, ask, items(rows_of(x, 0, 200)), 0, 200)
    rules = Rules(costs=UnitCosts(solve=1e-5, answer=1e-8))
    assert bool(items_for_every(list(values.deferred.values()), 1.0, rules)) == every


def test_generations_of_a_landmark_go_back_no_further_than_what_can_be_read():
    marks, everything = Landmarks(), np.array([0])
    marks.grow(1)
    for now in range(5 * APART_TICKS):
        marks.note(everything, np.array([float(now)]), now, 1)
    kept = marks.at[:, 0].tolist()
    assert kept[0] == 5 * APART_TICKS - 1
    assert all(0 < one - other <= APART_TICKS for one, other in itertools.pairwise(kept))
    other = Landmarks()
    other.load(marks.to_arrays())
    other.back(np.array([True]), kept[1] + 1, 0)
    assert (other.at[0, 0], other.extreme[0, 0]) == (kept[1], kept[1])
    marks.back(np.array([True]), 0, kept[2])
    assert marks.at[:3, 0].tolist() == [kept[2]] * 3


@pytest.mark.parametrize(("sign", "variance"), [("+", 8.0), ("-", 0.0)])
def test_two_signals_of_a_key_that_move_together(sign: str, variance: float):
    """What keys are bought and sold for: their difference hardly moves, their sum twice as much."""
    model, series = Model(2, Manner()), Series(2, 40)
    series.grow(2)
    series.variance[:] = 1.0
    random = np.random.default_rng(28)
    model.grow(2)
    keys = np.arange(2)
    for _ in range(2000):
        moved = random.normal(size=2)
        model.observe(series, keys, np.stack([moved, moved]), np.ones(2), 1.0)
    weights = [csr_array(np.ones((1, 2))), csr_array(np.full((1, 2), 1.0 if sign == "+" else -1.0))]
    _, found = motion(weights, model.motions(series), 1)
    assert found[0] == pytest.approx(variance, abs=0.8), "4 if they were independent"


@pytest.mark.parametrize("contract", ["EXACT", "DRIFT 0 BELIEF 90%"])
@pytest.mark.parametrize("others", [(), (25,), (5, 21, 29)])
def test_what_others_said_does_not_change_an_extreme(contract: str, others: tuple[int, ...]):
    """The value of key 0 stands from tick to tick, whether or not something else comes in between."""
    values, ask = prepared(
        f"CREATE QUERY q AS SELECT k AS g, max_over(SUM(x), '10 seconds') AS a FROM LATEST(t) GROUP BY k WITH {contract};",
        weights=[(0, 0, 1.0)],
    )
    rows = [(1, 0, 100.0), (30, 0, 1.0), (35, 0, 2.0), (41, 0, 3.0), *((t, 1, 7.0) for t in others)]
    found = run(values, ask, items(sorted(rows)), 0, 60)
    said = {int(a.at.timestamp()): a.value for a in found}
    assert [said[t] for t in (1, 30, 35, 41)] == [100, 100, 100, 3]
