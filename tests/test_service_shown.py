"""What is shown of each query: the series, its group, the last answer, and the frame made of them."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.json_values import to_micros
from slackwater.service.folding import KEPT_POINTS
from slackwater.service.picking import answer_at
from slackwater.service.shown import STALE, Shown, take_all

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def answers(values: Any, second: int | list[int] = 0, query: Any = "q", **more: Any) -> AnswerBatch:
    """Answers of windows that end at a second."""
    column = values if isinstance(values, pa.Array) else pa.array(values)
    seconds = np.broadcast_to(np.asarray(second), len(column))
    ends = to_micros(BEGAN) + 1_000_000 * seconds.astype(np.int64)
    plain: dict[str, Any] = {"column": "n", "confidence": 1.0, "how": "exact", "emitted_at": BEGAN}
    times = {"window_start": ends - 1_000_000, "window_end": ends}
    return AnswerBatch(query=query, value=column, **(plain | times | more))


def shown(*batches: AnswerBatch) -> Shown:
    found = Shown("q")
    for batch in batches:
        take_all({"q": found}, [batch])
    return found


def test_points_are_in_order_and_a_later_answer_replaces_an_earlier_one() -> None:
    found = shown(answers([3, 1, 2], [3, 1, 2]), answers([20], 3))
    assert [p.value for p in found.points] == [1, 2, 20]
    assert [p.value for p in found.fresh] == [1, 2, 20]
    assert found.last is not None
    assert (found.last.value, found.text, found.error, found.groups) == (20, "20", 0.0, 0)


def test_a_point_that_comes_late_takes_its_place() -> None:
    found = shown(answers([1, 4], [1, 4]), answers([3], 3), answers([2], 2), answers([30], 3))
    assert [p.value for p in found.points] == [1, 2, 30, 4]


def test_rows_are_no_groups_and_the_newest_is_shown() -> None:
    keys = {"src": pa.array(["h0", "h1", None]), "size": pa.array([1_000, 2, 3]), "no": pa.array([0, 1, 2])}
    rows = answers(pa.nulls(3), [1, 3, 2], column="*", keys=keys)
    found = shown(rows)
    assert (found.keys, found.groups, found.text) == ({}, 0, "src=h1 size=2 no=1")
    assert not found.points, "there is nothing to draw"
    later = answers(
        pa.nulls(1), 4, column="*", keys={"src": pa.array(["x" * 400]), "size": pa.array([1], pa.int64())}
    )
    take_all({"q": found}, [later])
    assert (found.text[:8], len(found.text)) == ("src=xxxx", 300)
    take_all({"q": found}, [answers(pa.nulls(1), 5, column="*", how="suspended", met=False)])
    assert (found.text, found.met) == ("–", False)


def test_what_is_passed_over_of_many_is_no_gap_unless_there_was_one() -> None:
    def told(*seconds: range) -> list[tuple[int, bool | None]]:
        found = Shown("q", 1.0)
        take_all({"q": found}, [answers([0], 0)])
        assert [p.gap for p in found.told()] == [None]
        for part in seconds:
            take_all({"q": found}, [answers(list(part), list(part))])
        points = found.told()
        assert len(points) == KEPT_POINTS
        assert all(p.gap is None for p in points[1:])
        return [(int(p.value or 0), p.gap) for p in points[:1]]

    assert told(range(1, 401)) == [(101, False)]
    assert told(range(2, 402)) == [(102, True)]
    assert told(range(1, 201), range(201, 501)) == [(201, False)]
    assert told(range(1, 201), range(202, 502)) == [(202, True)]
    many = [range(first, first + 200) for first in range(1, 2001, 200)]
    assert told(*many) == [(1701, False)]
    assert told(*many[:4], *many[5:]) == [(1701, True)], "long before those that are told"


def test_only_the_newest_points_are_kept_of_many() -> None:
    found = shown(answers(list(range(1000)), list(range(1000))))
    assert [p.value for p in found.points] == list(range(1000 - KEPT_POINTS, 1000))
    take_all({"q": found}, [answers(list(range(1000, 1400)), list(range(1000, 1400)))])
    assert len(found.points) == KEPT_POINTS
    assert len(found.told()) == KEPT_POINTS


def test_the_interval_is_told() -> None:
    batch = answers(
        [100.0],
        low=pa.array([90.0]),
        high=pa.array([110.0]),
        confidence=0.95,
        how="sampled",
        rate=0.25,
        met=False,
    )
    found = shown(batch)
    point = found.points[-1]
    assert (point.low, point.value, point.high, point.how, point.rate, point.met) == (
        90,
        100,
        110,
        "sampled",
        0.25,
        False,
    )
    assert (found.error, found.met, found.text) == (0.1, False, "100 ± 10 (95%)")


@pytest.mark.parametrize(
    ("column", "number", "text"),
    [
        (pa.array([math.nan]), None, "not a number"),
        (pa.array([math.inf]), None, "∞"),
        (pa.array([None], pa.float64()), None, "–"),
        (pa.array([Decimal("12.50")]), 12.5, "12.5"),
        (pa.array([2.5], pa.float32()), 2.5, "2.5"),
        (pa.array(["word"]), None, "word"),
        (pa.array([True]), None, "true"),
        (pa.array([2**62]), float(2**62), f"{2**62:,}"),
        (pa.array(["a", "b"]).dictionary_encode()[1:], None, "b"),
    ],
)
def test_values_of_all_kinds_can_be_shown(column: pa.Array, number: float | None, text: str) -> None:
    found = shown(answers(column))
    assert (found.points[-1].value, found.text) == (number, text)


def test_an_error_needs_a_value_that_it_is_a_part_of() -> None:
    wide = {"low": pa.array([-1.0]), "high": pa.array([1.0])}
    assert shown(answers([0.0], **wide)).error is None
    assert shown(answers([0.0])).error == 0.0
    assert shown(answers([1.0], low=pa.array([-math.inf]), high=pa.array([1.0]))).error is None
    assert Shown("q").error is None


def test_one_answer_is_the_one_that_the_batch_gives() -> None:
    batch = answers(
        [1.5, 2.5],
        [1, 2],
        keys={"host": pa.array(["x", None]), "day": pa.array([None, BEGAN], pa.timestamp("ns", "UTC"))},
        low=pa.array([1.0, 2.0]),
        rate=np.array([0.5, 1.0]),
        met=np.array([True, False]),
        rows=np.array([4, 5]),
        slope=np.array([0.1, -0.1]),
    )
    assert [answer_at(batch, i) for i in range(2)] == list(batch.answers())
    alike = replace(batch, query=pa.array(["a", "b"]).dictionary_encode(), window_start=None, window_end=None)
    assert [answer_at(alike, i) for i in range(2)] == list(alike.answers())


def test_answers_without_a_time_have_no_points() -> None:
    found = shown(answers([1, 2], window_start=None, window_end=None))
    assert (list(found.points), found.text) == ([], "2")
    moments = np.array([to_micros(BEGAN)])
    assert shown(answers([1], window_start=None, window_end=None, at=moments)).points[-1].at == BEGAN


def test_the_first_column_is_shown() -> None:
    found = shown(answers([1]), answers([500], column="m"), answers([2], 1))
    assert (found.column, [p.value for p in found.points]) == ("n", [1, 2])


def hosts(values: list[int], names: list[str | None], second: int) -> AnswerBatch:
    return answers(values, second, keys={"host": pa.array(names)})


def test_of_groups_the_largest_is_shown_and_stays() -> None:
    found = shown(hosts([5, -9, 1], ["a", "b", "c"], 0), hosts([50, 1, 1], ["a", "b", "c"], 1))
    assert (found.keys, found.groups) == ({"host": "b"}, 3)
    assert [p.value for p in found.points] == [-9, 1]


def test_all_groups_of_current_values_are_counted_though_few_are_answered_at_a_time() -> None:
    def told(names: list[str | None], second: int) -> AnswerBatch:
        times = {"window_start": None, "window_end": None}
        at = np.full(len(names), to_micros(BEGAN) + 1_000_000 * second)
        return answers([1] * len(names), keys={"host": pa.array(names)}, at=at, **times)

    assert shown(told(["a", "b"], 1), told([None], 2), told(["b"], 3), told(["c"], 2)).groups == 4
    nested = {"host": pa.array([["a"], ["b"], ["a"]])}
    at = np.arange(3) * 1_000_000
    assert shown(answers([1, 2, 3], keys=nested, at=at, window_start=None, window_end=None)).groups == 2


def test_a_group_that_stays_away_gives_way_to_another() -> None:
    found = shown(hosts([9, 1], [None, "a"], 0))
    assert found.keys == {"host": None}
    for second in range(1, STALE):
        take_all({"q": found}, [hosts([second, 7], ["a", "b"], second)])
        assert (found.keys, len(found.points)) == ({"host": None}, 1), "it may come again"
    take_all({"q": found}, [hosts([1, 7], ["a", "b"], STALE)])
    assert (found.keys, [p.value for p in found.points]) == ({"host": "b"}, [7])
    assert found.fresh == list(found.points)


def test_a_group_without_any_number_can_be_shown() -> None:
    found = shown(answers([None, None], keys={"host": pa.array(["a", "b"])}, low=None))
    assert found.keys == {"host": "b"}


def test_whether_the_contract_is_met_is_told_of_the_newest_answers() -> None:
    batch = answers([1, 2, 3], [0, 1, 1], keys={"host": pa.array(["a", "a", "b"])})
    assert shown(replace(batch, met=np.array([False, True, True]))).met is True
    assert shown(replace(batch, met=np.array([True, True, False]))).met is False


def test_while_a_query_is_suspended_one_answer_speaks_for_all_groups() -> None:
    blank = {"low": pa.array([-math.inf]), "high": pa.array([math.inf]), "how": "suspended", "met": False}
    suspended = answers([math.nan], 1, keys={"host": pa.array([None], pa.string())}, **blank)
    found = shown(hosts([5], ["a"], 0), suspended)
    assert (found.keys, found.groups, found.met) == ({"host": "a"}, 0, False)
    assert found.last is not None
    assert (found.last.how, len(found.points)) == ("suspended", 2)


def test_alike_queries_in_one_batch_are_told_apart() -> None:
    owner = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 2], pa.int32()), pa.array(["a", "b", "gone"]))
    both = {"a": Shown("a"), "b": Shown("b")}
    names = pa.array(["x", "x", "y", "x"])
    told = take_all(both, [answers([1, 2, 3, 4], 0, owner, keys={"host": names})])
    assert told == {"a", "b"}
    assert (both["a"].keys, both["a"].text, both["a"].groups) == ({"host": "y"}, "3", 2)
    assert (both["b"].keys, both["b"].text, both["b"].groups) == ({"host": "x"}, "2", 1)


def test_an_older_window_that_comes_later_is_a_point_and_not_the_last_word() -> None:
    found = shown(answers([7], 3), answers([5], 2, met=False))
    assert found.last is not None
    assert (found.last.value, found.text, found.met) == (7, "7", True)
    assert [point.value for point in found.points] == [5.0, 7.0]


def test_every_window_that_was_suspended_is_a_point() -> None:
    found = shown(answers(pa.nulls(2, pa.int64()), [1, 2], how="suspended", met=False))
    assert [point.how for point in found.points] == ["suspended", "suspended"]


def test_a_large_result_in_several_batches_is_one_look() -> None:
    found = Shown("q")
    for second in range(3):
        parts = [
            answers(
                [part, 9 - part], second, keys={"host": pa.array([f"a{part}", f"b{part}"])}, met=part != 1
            )
            for part in range(4)
        ]
        take_all({"q": found}, parts)
    assert (found.groups, found.met, found.keys) == (8, False, {"host": "b0"})
    assert [point.value for point in found.points] == [9, 9, 9], "the group stays"


def test_a_contract_is_met_only_if_every_column_is() -> None:
    found = Shown("q")
    take_all({"q": found}, [answers([1]), answers([2], column="m", met=False)])
    assert (found.met, found.column) == (False, "n")
