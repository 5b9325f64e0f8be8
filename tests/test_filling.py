"""FILL: predicted values lie where they should, and their limits hold about as often as they say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from slackwater.errors import SlackwaterError
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.model import Path, Step, TimeWindow
from slackwater.runtime.answers import Answer
from slackwater.runtime.filling import Filling
from slackwater.statistics.filling import Point, change_of, filled

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
STREAM = "CREATE STREAM p (ts TIMESTAMP, size INT, host STRING) USING scripted TIMESTAMP BY ts;"


def series(kind: str, seed: int, length: int = 40) -> np.ndarray:
    random = np.random.default_rng(seed)
    scatter = random.normal(0, 1, length)
    return 100 + (np.cumsum(scatter) if kind == "drifts" else scatter)


@pytest.mark.parametrize("kind", ["drifts", "scatters"])
@pytest.mark.parametrize("fill", ["linear", "last"])
@pytest.mark.parametrize("gap", [1, 3, 6])
def test_limits_hold_about_as_often_as_they_say(kind: str, fill, gap: int):
    inside = []
    for seed in range(600):
        values = series(kind, seed)
        before = [(n, float(values[n])) for n in range(8, 20)]
        after: Point = (20 + gap, float(values[20 + gap]))
        known = change_of([*before, after] if fill == "linear" else before)
        for missing in range(20, 20 + gap):
            found = filled(missing, before[-1], after if fill == "linear" else None, known, fill)
            assert found.low is not None
            assert found.high is not None
            inside.append(found.low <= values[missing] <= found.high)
    assert 0.9 <= np.mean(inside) <= 0.995, np.mean(inside)


def answer(second: int, value: float, host: str | None = None) -> Answer:
    start = NOW + timedelta(seconds=second)
    return Answer(
        query="q",
        column="n",
        window_start=start,
        window_end=start + timedelta(seconds=1),
        keys=(("host", host),) if host is not None else (),
        value=value,
        low=value,
        high=value,
        confidence=1.0,
        how="subset",
        rate=0.5,
        met=True,
        emitted_at=NOW,
    )


def micros(second: int) -> int:
    return round((NOW + timedelta(seconds=second)).timestamp()) * SECOND


def filling(kind) -> Filling:
    step = Step("q", "p", "ts", Path("p"), TimeWindow(SECOND, SECOND), (), (), ())
    return Filling(step, kind)


def given(found) -> dict[tuple[int, object], float]:
    return {
        (round((a.window_start - NOW).total_seconds()), a.group.get("host")): a.value
        for batch in found
        for a in batch.answers()
    }


def test_linear_waits_for_the_window_after_the_gap_through_a_restart():
    first = filling("linear")
    assert given(first.turn([answer(0, 10.0)], [micros(1), micros(2)], NOW, ended=False)) == {}
    again = Filling.from_json(first.step, "linear", first.to_json())
    found = given(again.turn([answer(4, 30.0)], [micros(3)], NOW, ended=False))
    assert found == {(1, None): 15.0, (2, None): 20.0, (3, None): 25.0}


def test_last_answers_at_once_and_linear_falls_back_to_it_at_the_end():
    found = given(filling("last").turn([answer(0, 10.0)], [micros(1), micros(2)], NOW, ended=False))
    assert found == {(1, None): 10.0, (2, None): 10.0}
    waiting = filling("linear")
    assert given(waiting.turn([answer(0, 10.0)], [micros(1)], NOW, ended=True)) == {(1, None): 10.0}


def test_groups_are_filled_that_stand_on_both_sides_of_the_gap():
    delivered = [answer(0, 1.0, "a"), answer(0, 5.0, "b"), answer(2, 3.0, "a"), answer(2, 7.0, "c")]
    found = given(filling("linear").turn(delivered, [micros(1)], NOW, ended=False))
    assert found == {(1, "a"): 2.0}


def test_nothing_is_predicted_before_the_first_delivered_window():
    assert given(filling("last").turn([answer(5, 1.0)], [micros(3), micros(4)], NOW, ended=False)) == {}


def test_fill_is_refused_for_windows_over_rows():
    sql = "CREATE QUERY q AS SELECT COUNT(*) AS n FROM p GROUP BY tuples(10) WITH SUBSET GAP 2 FILL last;"
    with pytest.raises(SlackwaterError, match=r"FILL predicts windows .* windows over rows"):
        Catalog.from_sql(STREAM + sql, Functions())
