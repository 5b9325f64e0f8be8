"""Intervals of items over several aggregates, and items that have none."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from sampling_data import BATCHES, STREAM, by_key
from slackwater.language.contracts import Error
from slackwater.plan.model import Output, Path, Step, TimeWindow
from slackwater.planners.ruling import FixedRates
from slackwater.runtime.estimating import Estimated, _numbers, answers
from slackwater.runtime.testing import run_scripted
from slackwater.statistics.limits import Estimate


def no_spark(rows: pa.Table) -> pa.Table:
    raise AssertionError("Spark is asked for what needs none")


def interval_of(
    sql: str, limits: Sequence[tuple[float, float, float]]
) -> tuple[float | None, float | None, float | None]:
    """The value and limits of an item over aggregates with given values and limits."""
    calls = tuple(Estimate(*(np.array([x]) for x in (*three, 9.0))) for three in limits)
    output = Output("item", sql, aggregated=True)
    step = Step("q", "p", "ts", Path("p"), TimeWindow(10, 10), (), (), (output,), published=True)
    apart = 1 - 0.05 / len(limits)
    one = np.ones(1)
    cells = Estimated(step, np.array([0]), 10, (), {0.95: calls, apart: calls}, 0.95, one, one)
    (batch,) = answers(cells, Error(), datetime(2026, 1, 1, tzinfo=UTC), no_spark)
    (answer,) = batch.answers()
    return answer.value, answer.low, answer.high


def test_a_quotient_is_tried_with_both_at_their_limits() -> None:
    hundred, ten = (100.0, 90.0, 110.0), (10.0, 5.0, 11.0)
    value, low, high = interval_of("a0 / a1", [hundred, ten])
    assert value == 10
    # 110 / 5: each alone would go to 11 and to 20, together 21
    assert high == pytest.approx(22)
    assert low == pytest.approx(90 / 11)


def test_corners_hold_every_point_between_where_items_are_monotone() -> None:
    rng = np.random.default_rng(31)
    for sql, count, item in (
        ("a0 * a1 / a2", 3, lambda a: a[0] * a[1] / a[2]),
        ("a0 / (a1 + a2) - a3", 4, lambda a: a[0] / (a[1] + a[2]) - a[3]),
        ("a0 - 3", 1, lambda a: a[0] - 3),
    ):
        ends = [tuple(sorted(rng.uniform(1, 9, 3))) for _ in range(count)]
        limits = [(middle, low, high) for low, middle, high in ends]
        value, low, high = interval_of(sql, limits)
        points = np.stack([rng.uniform(low, high, 1_000) for _, low, high in limits])
        assert value == pytest.approx(item([v for v, _, _ in limits]))
        assert low <= item(points).min()
        assert item(points).max() <= high


def test_of_many_aggregates_the_moves_are_added_up() -> None:
    limits = [(float(i), i - 0.5, i + 0.25) for i in range(1, 6)]
    value, low, high = interval_of("a0 + a1 + a2 + a3 + a4", limits)
    assert (value, low, high) == (15, 12.5, 16.25)


def test_an_item_without_a_value_at_some_corner_has_no_limits() -> None:
    assert interval_of("a0 / a1", [(100.0, 90.0, 110.0), (10.0, 0.0, 20.0)]) == (10, None, None)
    assert interval_of("a0 + a1", [(1.0, -np.inf, 2.0), (1.0, 1.0, 1.0)]) == (2, None, None)


@pytest.mark.parametrize(
    "values",
    [
        ["busy"],
        ["12"],
        [True],
        [[1]],
        [{"a": 1}],
        [datetime(2026, 1, 1)],
        [datetime(2026, 1, 1).date()],
        [None],
    ],
)
def test_what_is_no_number_is_none(values: list[object]) -> None:
    """A log may hold batches that were sampled when a path had other queries: no reason to stop."""
    assert np.isnan(_numbers(pa.array(values))).all()


def test_steps_with_an_item_that_is_no_number_are_never_sampled(spark) -> None:
    items = {
        "word": "IF(COUNT(*) > 9, 'busy', 'calm')",
        "truth": "COUNT(*) > 9",
        "list": "array(COUNT(*), SUM(size))",
        "pair": "struct(COUNT(*) AS n)",
        "day": "date_add(DATE '2026-01-01', CAST(COUNT(*) AS INT) % 7)",
        "time": "timestamp_seconds(COUNT(*))",
        "number": "CAST(SUM(size) AS DECIMAL(20, 2)) / 2",
        "tiny": "CAST(least(COUNT(*), 100) AS TINYINT)",
    }
    # each on a path of its own, since the queries of a path share its rate
    queries = [
        f"CREATE QUERY {name} AS SELECT port, COUNT(*) AS n, {sql} AS x FROM p WHERE size > {40 + place} "
        "GROUP BY port, window(ts, '20 seconds') WITH ERROR 5%;"
        for place, (name, sql) in enumerate(items.items())
    ]
    sql, tables = STREAM.format(using="scripted") + "".join(queries), {"p": BATCHES[:2]}
    truth = by_key(run_scripted(spark, sql, tables))
    found = by_key(run_scripted(spark, sql, tables, ruler=FixedRates(dict.fromkeys(items, 0.5))))
    assert found.keys() == truth.keys()
    hows = {name: {a.how for a in found.values() if a.query == name} for name in items}
    sampled = {"number", "tiny"}
    assert hows == {name: {"sampled"} if name in sampled else {"exact"} for name in items}
    for place, answer in found.items():
        if answer.query not in sampled:
            assert answer.value == truth[place].value
            assert answer.value is not None
