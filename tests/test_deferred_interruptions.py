"""Interruptions of current values, late backlogs, and state that is kept through them; without Spark."""

from __future__ import annotations

import numpy as np
import pytest

from current_harness import SECOND, DirectAsking, items, run, values_of
from deferred_runs import STREAM, TRUE, prepared, rows_of, walks
from slackwater.planners.deferring import Rules
from slackwater.runtime.answers import Answer


def interrupted(
    length: int, item: str = "AVG(x)", seed: int = 11, clauses: str = ""
) -> tuple[list[Answer], np.ndarray]:
    """Answers while two of nine keys are silent from tick 300 on, and the truth."""
    x = walks(9, 320 + length, seed=seed)
    values = values_of(
        STREAM.format(clauses=clauses)
        + f"CREATE QUERY q AS SELECT {item} AS a FROM LATEST(t) WITH DRIFT 2 BELIEF 90%;"
    )
    ask = DirectAsking()
    values.prepare(ask)
    run(values, ask, items(rows_of(x, 0, 300)), 0, 300)
    found = []
    for first in range(300, 300 + length):
        found += run(values, ask, items(rows_of(x, first, first + 1, frozenset({0, 1}))), first, first + 1)
    back = run(values, ask, items(rows_of(x, 300 + length, 320 + length)), 300 + length, 320 + length)
    return found + back, TRUE[item](x.mean(axis=1))


def test_answers_go_on_through_an_interruption_and_say_how_wrong_they_may_be():
    inside = widths = 0
    total = 0
    for seed in range(12):
        found, truth = interrupted(60, seed=seed)
        modelled = [a for a in found if a.how == "modelled"]
        assert modelled[0].at.timestamp() <= 305, "three usual gaps after the last item"
        assert all(a.at.timestamp() < 361 for a in modelled)
        wide = [a.high - a.low for a in modelled]
        assert wide == sorted(wide) or np.all(np.diff(wide) > -0.5), "the longer, the less is known"
        inside += sum(a.low <= truth[int(a.at.timestamp())] <= a.high for a in modelled)
        total += len(modelled)
        widths += sum(wide)
        after = [a for a in found if a.at.timestamp() >= 360]
        assert after, "the answer is mended when the data is back"
        assert after[0].how == "deferred"
        assert after[0].value == pytest.approx(truth[360])
    assert inside / total >= 0.88
    assert widths / total < 12


@pytest.mark.parametrize(
    "item", ["max_over(AVG(x), '60 seconds')", "max_since(AVG(x), TIMESTAMP '1970-01-01 00:01:00')"]
)
def test_extremes_go_on_too(item: str):
    inside = total = 0
    for seed in range(10):
        found, truth = interrupted(40, item, seed=seed)
        modelled = [a for a in found if a.how == "modelled"]
        inside += sum(a.low <= truth[int(a.at.timestamp())] <= a.high for a in modelled)
        total += len(modelled)
    assert total > 50
    assert inside / total >= 0.88


def test_how_long_a_silence_may_be_can_be_declared():
    found, _ = interrupted(60, clauses=" INTERRUPTED AFTER 30 SECONDS")
    modelled = [a for a in found if a.how == "modelled"]
    assert modelled[0].at.timestamp() >= 329


def test_answers_go_on_while_nothing_comes_at_all():
    x = walks(3, 100, seed=1)
    values = values_of(
        STREAM.format(clauses="")
        + "CREATE QUERY q AS SELECT AVG(x) AS a FROM LATEST(t) WITH DRIFT 2 BELIEF 90%;"
    )
    ask = DirectAsking()
    values.prepare(ask)
    run(values, ask, items(rows_of(x, 0, 100)), 0, 100)
    found = run(values, ask, None, 100, 150)
    assert len(found) >= 5
    assert {a.how for a in found} == {"modelled"}
    assert all(100 < a.at.timestamp() < 150 for a in found)


def test_a_backlog_that_comes_late_mends_the_past():
    x = walks(3, 200, seed=8)
    values, ask = prepared(
        "CREATE QUERY q AS SELECT max_over(SUM(x), '50 seconds') AS m FROM LATEST(t) WITH DRIFT 0 BELIEF 90%;"
    )
    x[150, 0] += 500
    run(values, ask, items(rows_of(x, 0, 140)), 0, 140)
    run(values, ask, items(rows_of(x, 140, 180, frozenset({0}))), 140, 180)
    backlog = [(t, 0, x[t, 0]) for t in range(140, 181)]
    found = run(values, ask, items([*backlog, *rows_of(x, 180, 182, frozenset({0}))]), 180, 182)
    assert found[0].at.timestamp() == 180
    assert found[0].value == pytest.approx(x.sum(axis=1)[130:181].max())
    buffer, *_ = values.series.buffers(np.array([0]))
    assert buffer[0, -1] == 180 * SECOND
    assert (np.diff(buffer[0]) == SECOND).all()


@pytest.mark.parametrize(("clauses", "apart"), [(" INTERRUPTED AFTER 30 SECONDS", 1), ("", 10)])
def test_a_whole_stream_that_falls_silent_is_modelled_however_long_the_limit_is(clauses: str, apart: int):
    """Ten keys in turn, each heard of every ten ticks: silence is usual up to thirty."""
    values, ask = prepared(
        "CREATE QUERY q AS SELECT AVG(x) AS a FROM LATEST(t) WITH DRIFT 2 BELIEF 90%;", clauses
    )
    random = np.random.default_rng(2)
    rows = [(t, k, 50 + random.normal()) for t in range(150) for k in range(10) if t % apart == k % apart]
    run(values, ask, items(rows), 0, 150)
    assert values.wakes(400 * SECOND)
    found = run(values, ask, None, 150, 400)
    assert {a.how for a in found} == {"modelled"}
    assert 165 <= found[0].at.timestamp() <= 182
    assert len(found) > 20


def test_neither_silence_nor_a_look_at_every_tick_spoils_the_calibration():
    x = walks(6, 900, seed=21)
    query = "CREATE QUERY q AS SELECT AVG(x) AS a FROM LATEST(t) WITH DRIFT 2 BELIEF 90%;"
    values, ask = prepared(query)
    run(values, ask, items(rows_of(x, 0, 300)), 0, 300)
    item = values.deferred["q"].items[0]
    learnt = float(item.calibration.factor()[0])
    run(values, ask, None, 300, 2800)
    assert item.calibration.factor()[0] == learnt, "what is modelled says nothing of how answers drift"
    values, ask = prepared(query)
    run(values, ask, items(rows_of(x, 0, 300)), 0, 300)
    item = values.deferred["q"].items[0]
    learnt = float(item.calibration.factor()[0])
    run(values, ask, items(rows_of(x, 300, 900)), 300, 900, Rules(every=("q/a",)))
    assert item.calibration.factor()[0] == learnt, "nor do those that were chosen because they have drifted"


def test_a_count_alone_has_no_signal_and_is_answered_when_it_changes():
    values, ask = prepared("CREATE QUERY q AS SELECT COUNT(*) AS c FROM LATEST(t) WITH DRIFT 5;")
    found = run(values, ask, items(rows_of(np.ones((20, 3)), 0, 20)), 0, 20)
    assert [a.value for a in found] == [3]
    found = run(values, ask, items([(20, 7, 1.0)]), 20, 21)
    assert [a.value for a in found] == [4]


def test_of_a_key_that_was_hardly_heard_no_interval_is_claimed():
    values, ask = prepared(
        "CREATE QUERY q AS SELECT AVG(x) AS a FROM LATEST(t) WITH DRIFT 5 BELIEF 90%;",
        " INTERRUPTED AFTER 10 SECONDS",
    )
    run(values, ask, items([(0, 0, 1000.0), (1, 0, 1200.0)]), 0, 2)
    found = [a for a in run(values, ask, None, 2, 60) if a.how == "modelled"]
    assert found
    assert all(a.low is None and a.high is None and not a.met for a in found)


def test_a_peak_since_a_landmark_is_not_lost_when_ticks_come_faster():
    values, ask = prepared(
        "CREATE QUERY q AS SELECT max_since(AVG(x), TIMESTAMP '1970-01-01') AS m FROM LATEST(t) WITH DRIFT 5 BELIEF 90%;"
    )
    random = np.random.default_rng(4)
    slow = [(60 * t, k, 100 + random.normal()) for t in range(60) for k in range(3)]
    run(values, ask, items(slow), 0, 3600)
    fast = [
        (3600 + t, k, (1100 if 100 <= t < 110 else 100) + random.normal())
        for t in range(900)
        for k in range(3)
    ]
    found = run(values, ask, items(fast), 3600, 4500)
    assert found
    seen = [a for a in found if a.value > 1000]
    assert seen[-1].value == pytest.approx(1100, abs=5)
    assert seen[0].at.timestamp() < 3600 + 110 + 256


def test_one_late_row_does_not_make_an_outage_usual():
    values, ask = prepared("CREATE QUERY q AS SELECT AVG(x) AS a FROM LATEST(t) WITH DRIFT 2;")
    x = walks(2, 60, seed=5)
    run(values, ask, items(rows_of(x, 0, 30)), 0, 30)
    run(values, ask, items([(t, k, 1000.0 + t) for t in range(3600, 3605) for k in (0, 1)]), 30, 3605)
    run(values, ask, items([(3603.5, 0, 1.0), (3605, 0, 1.0), (3605, 1, 1.0), (3606, 0, 2.0)]), 3605, 3607)
    assert values.series.limit[0] < 60 * SECOND


def test_a_repair_that_no_tick_has_followed_yet_is_not_forgotten():
    query = "CREATE QUERY q AS SELECT SUM(x) AS a FROM LATEST(t) WITH DRIFT 50;"
    one, ask = prepared(query)
    run(one, ask, items(rows_of(np.full((40, 2), 10.0), 0, 40)), 0, 40)
    run(one, ask, items([(39.5, 0, 5000.0)]), 41, 41)
    other = values_of(STREAM.format(clauses="") + query)
    arrays, tables = one.to_parts()
    other.load({n: np.array(a) for n, a in arrays.items()}, tables)
    other.prepare(ask)
    more = items([(42, 1, 10.0)])
    assert run(one, ask, more, 41, 43) == run(other, ask, more, 41, 43) != []


def test_groups_whose_weights_have_changed_since_the_state_was_kept_are_answered():
    query = "CREATE QUERY q AS SELECT k AS g, SUM(x) AS a FROM LATEST(t) GROUP BY k WITH DRIFT 50;"
    one, ask = prepared(query, weights=[(1, 0, 1.0), (2, 1, 1.0)])
    run(one, ask, items(rows_of(np.full((40, 2), 10.0), 0, 40)), 0, 40)
    arrays, tables = one.to_parts()
    other, changed = values_of(STREAM.format(clauses="") + query), DirectAsking([(1, 0, 1.0), (2, 1, 3.0)])
    other.load({n: np.array(a) for n, a in arrays.items()}, tables)
    other.prepare(changed)
    for deferred in other.deferred.values():
        deferred.compare()
    found = run(other, changed, items(rows_of(np.full((41, 2), 10.0), 40, 41)), 40, 41)
    assert [(a.group["g"], a.value) for a in found] == [(2, 30.0)]


def test_a_key_whose_last_row_has_no_value_is_retired():
    values, ask = prepared("CREATE QUERY q AS SELECT AVG(x) AS a FROM LATEST(t) WITH DRIFT 2;")
    x = walks(3, 200, seed=30)
    run(values, ask, items(rows_of(x, 0, 60)), 0, 60)
    gone = [(60, 2, None), *rows_of(x, 60, 200, frozenset({2}))]
    found = run(values, ask, items(gone), 60, 200)
    assert {a.how for a in found} == {"deferred"}
    assert {a.rows for a in found} == {3}
    last = found[-1]
    assert last.value == pytest.approx(x[int(last.at.timestamp()), :2].mean())
