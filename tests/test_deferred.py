"""Deferred evaluation of current values, without Spark: promises kept, interruptions bridged, nothing lost."""

from __future__ import annotations

import numpy as np
import pytest

from current_harness import DirectAsking, items, run, values_of
from deferred_runs import STREAM, TRUE, WARM, answered, cached, rows_of, walks
from slackwater.planners.deferring import Rules, UnitCosts
from slackwater.runtime.current.scheduling import items_for_every


@pytest.mark.parametrize("item", TRUE)
@pytest.mark.parametrize("belief", [0.85, 0.95])
def test_the_cached_answer_is_within_the_bound_as_often_as_is_believed(item: str, belief: float):
    x = walks(9, 1200, seed=5, drift=0.05)
    found = answered(f"SELECT {item} AS a FROM LATEST(t) WITH DRIFT 3 BELIEF {belief:.0%}", x)
    truth = TRUE[item](x.mean(axis=1))
    right = np.abs(cached(found, len(x)) - truth)[WARM:] <= 3
    assert right.mean() >= belief
    assert len(found) < len(x) / 4, "and most evaluations are saved"
    assert all(a.how == "deferred" and a.met and a.confidence == belief for a in found)
    assert all(
        a.value == pytest.approx(truth[int(a.at.timestamp())]) for a in found if a.at.timestamp() >= 60
    )


def test_the_answers_do_not_depend_on_the_batches():
    x = walks(4, 300, seed=2)
    query = "SELECT AVG(x) AS a, max_over(SUM(x), '20 seconds') AS m FROM LATEST(t) WITH DRIFT 1 BELIEF 90%"
    one, other = answered(query, x, batch=7), answered(query, x, batch=300)
    assert sorted(one, key=lambda a: (a.column, a.at)) == sorted(other, key=lambda a: (a.column, a.at))


def test_an_answer_that_moves_needs_fewer_evaluations_of_what_drifts():
    x = walks(9, 1000, seed=3, sigma=0.2, drift=0.5)
    plain = answered("SELECT AVG(x) AS a FROM LATEST(t) WITH DRIFT 2 BELIEF 90%", x)
    moving = answered("SELECT AVG(x) AS a FROM LATEST(t) WITH DRIFT 2 BELIEF 90% EXTRAPOLATE", x)
    assert len(moving) < len(plain) / 4
    right = np.abs(cached(moving, len(x)) - x.mean(axis=1))[WARM:] <= 2
    assert right.mean() >= 0.9
    assert moving[-1].slope == pytest.approx(0.5, abs=0.3)
    assert plain[-1].slope is None


def test_groups_weigh_their_keys_and_a_weight_may_be_negative():
    x = walks(3, 400, seed=4)
    weights = [(7, 0, 2.0), (7, 1, -1.0), (8, 2, 3.0)]
    found = answered(
        "SELECT k AS g, SUM(x) AS a FROM LATEST(t) GROUP BY k WITH DRIFT 2 BELIEF 90%", x, weights=weights
    )
    for group, truth in ((7, 2 * x[:, 0] - x[:, 1]), (8, 3 * x[:, 2])):
        mine = [a for a in found if a.group["g"] == group]
        assert len(mine) > 3
        assert all(a.value == pytest.approx(truth[int(a.at.timestamp())]) for a in mine)


def test_a_relative_bound_of_a_value_that_is_0_evaluates_at_every_tick():
    x = np.zeros((50, 2))
    x[:, 0] = np.sin(np.arange(50))
    x[:, 1] = -x[:, 0]
    found = answered("SELECT SUM(x) AS a FROM LATEST(t) WITH DRIFT 10% BELIEF 90%", x)
    assert len(found) == 50


def test_values_that_never_change_are_evaluated_seldom():
    found = answered("SELECT AVG(x) AS a FROM LATEST(t) WITH DRIFT 1 BELIEF 90%", np.full((500, 3), 7.0))
    assert 1 <= len(found) < 20
    assert {a.value for a in found} == {7.0}


def test_a_new_key_is_answered_at_once():
    values = values_of(
        STREAM.format(clauses="")
        + "CREATE QUERY q AS SELECT SUM(x) AS a, COUNT(*) AS c FROM LATEST(t) WITH DRIFT 5;"
    )
    ask = DirectAsking()
    values.prepare(ask)
    x = np.full((100, 2), 10.0)
    run(values, ask, items(rows_of(x, 0, 100)), 0, 100)
    found = run(values, ask, items([(100, 0, 10.0), (100, 5, 500.0)]), 100, 101)
    assert {(a.column, a.value) for a in found} == {("a", 520.0), ("c", 3)}
    found = run(values, ask, items([(101, 5, None)]), 101, 102)
    assert {(a.column, a.value) for a in found} == {("a", 20.0), ("c", 3)}, "and so is a value that is gone"


def test_a_kept_state_goes_on_as_if_nothing_had_been():
    x = walks(5, 400, seed=6)
    sql = STREAM.format(clauses="") + (
        "CREATE QUERY q AS SELECT AVG(x) AS a, max_over(AVG(x), '30 seconds') AS m, "
        "min_since(AVG(x), TIMESTAMP '1970-01-01') AS l FROM LATEST(t) WITH DRIFT 1 BELIEF 90%;"
    )
    one, ask = values_of(sql), DirectAsking()
    one.prepare(ask)
    run(one, ask, items(rows_of(x, 0, 200)), 0, 195)
    other = values_of(sql)
    arrays, tables = one.to_parts()
    other.load({n: np.array(a) for n, a in arrays.items()}, tables)
    other.prepare(ask)
    for first in range(200, 400, 20):
        more = items(rows_of(x, first, first + 20))
        assert run(other, ask, more, first - 5, first + 15) == run(one, ask, more, first - 5, first + 15)


def portfolios(count: int) -> list[tuple[int, int, float]]:
    """Groups of three keys each, some much wilder than others."""
    return [(g, (g + place) % 12, 1.0 + g % 5) for g in range(count) for place in range(3)]


def test_under_overload_what_is_late_is_counted_and_said():
    x = walks(12, 240, seed=9)
    sql = (
        STREAM.format(clauses="")
        + "CREATE QUERY q AS SELECT k AS g, SUM(x) AS a FROM LATEST(t) GROUP BY k WITH DRIFT 4 BELIEF 90%;"
    )
    values, ask = values_of(sql), DirectAsking(portfolios(60))
    values.prepare(ask)
    costs = UnitCosts(entry=0.0, look=0.0, solve=1.0, answer=0.0)
    found = []
    for first in range(240):
        budget = 10.0 if 100 <= first < 140 else 1e9
        found += run(values, ask, items(rows_of(x, first, first + 1)), first, first + 1, Rules(budget, costs))
        at = [a for a in found if a.at.timestamp() == first]
        assert len(at) <= 10 or budget > 10
    item = values.deferred["q"].items[0]
    assert item.missed > 100
    assert item.evaluated == len(found)
    late = [a for a in found if not a.met]
    assert late, "an answer that came late says that the promise was not kept"
    assert all(100 < a.at.timestamp() <= 141 for a in late)
    wild = [a for a in found if 110 <= a.at.timestamp() < 140]
    often = np.mean([a.group["g"] % 5 for a in wild])
    assert often > 2.0, "those that drift fastest come first"


def test_what_is_evaluated_at_every_tick_is_delivered_where_it_has_drifted():
    x = walks(9, 600, seed=10)
    sql = (
        STREAM.format(clauses="")
        + "CREATE QUERY q AS SELECT AVG(x) AS a FROM LATEST(t) WITH DRIFT 1 BELIEF 90%;"
    )
    values, ask = values_of(sql), DirectAsking()
    values.prepare(ask)
    found = run(values, ask, items(rows_of(x, 0, 600)), 0, 600, Rules(every=("q/a",)))
    error = np.abs(cached(found, 600) - x.mean(axis=1))
    assert error.max() <= 1
    assert len(found) < len(answered("SELECT AVG(x) AS a FROM LATEST(t) WITH DRIFT 1 BELIEF 90%", x)) / 1.5


def test_a_product_once_a_tick_is_not_deferred_and_a_scan_of_a_window_is():
    x = walks(9, 100, seed=12)
    sql = STREAM.format(clauses="") + (
        "CREATE QUERY q AS SELECT k AS g, SUM(x) AS a, max_over(SUM(x), '90 seconds') AS m FROM LATEST(t) GROUP BY k WITH DRIFT 20;"
    )
    values, ask = values_of(sql), DirectAsking([(g, key, 1.0) for g, key, _ in portfolios(400)])
    values.prepare(ask)
    run(values, ask, items(rows_of(x, 0, 100)), 0, 100)
    queries = list(values.deferred.values())
    assert items_for_every(queries, 1.0, Rules()) == ("q/a",)
    dear = Rules(costs=UnitCosts(entry=1e-6))
    assert items_for_every(queries, 1.0, dear) == (), "where entries cost much, only what is due is evaluated"
