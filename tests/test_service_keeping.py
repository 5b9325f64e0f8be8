"""The newest answers of a run, as the service keeps them."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.groups import places_of_group
from slackwater.runtime.json_values import to_micros
from slackwater.runtime.packed import AS_TEXT
from slackwater.service.keeping import AnswerKeeper
from slackwater.service.parts import Part
from slackwater.service.watched import Asked, Newest

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def batch(
    query: str | pa.Array, values: list[int], hosts: list[str] | None = None, second: int = 0
) -> AnswerBatch:
    ends = np.full(len(values), to_micros(BEGAN + timedelta(seconds=second)), dtype=np.int64)
    keys = {"host": pa.array(hosts)} if hosts else {}
    return AnswerBatch(
        query=query,
        column="n",
        window_start=ends - 1_000_000,
        window_end=ends,
        keys=keys,
        value=pa.array(values),
        confidence=1.0,
        how="exact",
        emitted_at=BEGAN,
    )


def test_answers_are_seen_once_their_turn_is_committed() -> None:
    keeper = AnswerKeeper()
    keeper.take(batch("q", [1, 2]))
    assert keeper.answers("q", Asked()) == []
    fresh = keeper.publish()
    assert [(p.number, list(p.queries), len(p)) for p in fresh] == [(1, ["q"], 2)]
    assert [a.value for a in keeper.answers("Q", Asked())] == [1, 2]


def test_only_the_newest_are_kept_of_a_query_and_of_all() -> None:
    keeper = AnswerKeeper(per_query=5, in_all=8)
    for second in range(10):
        keeper.take(batch("a", [second, second], second=second))
        keeper.take(batch("b", [second], second=second))
        keeper.publish()
    assert [a.value for a in keeper.answers("a", Asked())] == [8, 8, 9, 9]
    parts, lost, _ = keeper.after(0)
    assert parts[0].number - 1 == lost
    assert sum(map(len, parts)) <= 8


def test_answers_are_chosen_by_group_and_time() -> None:
    keeper = AnswerKeeper()
    for second in range(4):
        keeper.take(batch("q", [second, 10 + second], ["x", "y"], second))
        keeper.publish()
    asked = Asked(keys={"host": "y"}, since=BEGAN + timedelta(seconds=1), until=BEGAN + timedelta(seconds=2))
    assert [a.value for a in keeper.answers("q", asked)] == [11, 12]
    assert [a.value for a in keeper.answers("q", Asked(limit=3))] == [12, 3, 13]
    assert keeper.answers("q", Asked(keys={"port": "80"})) == []
    assert keeper.answers("q", Asked(column="m")) == []
    assert {(a.group["host"], a.value) for a in keeper.latest("q", 10).answers} == {("x", 3), ("y", 13)}
    assert len(keeper.latest("q", 1).answers) == 1


@pytest.mark.parametrize("copies", [1, AS_TEXT])
def test_doubles_are_asked_for_however_they_are_written(copies: int) -> None:
    ratios = [1.0, 2.5, 1e22, math.nan, None]
    made = batch("q", [1, 2, 3, 4, 5] * copies)
    keeper = AnswerKeeper()
    keeper.take(replace(made, keys={"ratio": pa.array(ratios * copies, pa.float64())}))
    keeper.publish()

    def found(text: str) -> set[object]:
        return {a.value for a in keeper.answers("q", Asked(keys={"ratio": text}))}

    assert found("1") == found("1.0") == found("1e0") == {1}
    assert (found("2.5"), found("1e+22"), found("NaN"), found("")) == ({2}, {3}, {4}, {5})
    assert found("2") == found("one") == found("1,0") == found("sNaN") == found("-sNaN7") == set()


@pytest.mark.parametrize("copies", [1, AS_TEXT])
def test_null_is_told_from_an_empty_text_where_that_is_asked_for(copies: int) -> None:
    hosts = ["", None, "null"] * copies
    keeper = AnswerKeeper()
    keeper.take(replace(batch("q", [1, 2, 3] * copies), keys={"host": pa.array(hosts)}))
    keeper.publish()

    def found(**asked: Any) -> set[object]:
        return {a.value for a in keeper.answers("q", Asked(**asked))}

    assert found(keys={"host": ""}) == {1, 2}
    assert found(keys={"host": ""}, nulls=()) == {1}
    assert found(nulls=("host",)) == {2}
    assert found(keys={"host": "null"}, nulls=()) == {3}
    assert found(nulls=("port",)) == set()
    assert {a.value for a in keeper.latest("q", 10).answers} == {1, 2, 3}


@pytest.mark.parametrize("copies", [1, AS_TEXT])
def test_decimals_are_compared_with_numbers_alone(copies: int) -> None:
    made = batch("q", [1, 2] * copies)
    keeper = AnswerKeeper()
    prices = pa.array([Decimal("1.10"), Decimal("2")] * copies, pa.decimal128(9, 2))
    keeper.take(replace(made, keys={"price": prices}))
    keeper.publish()
    asked = [{a.value for a in keeper.answers("q", Asked(keys={"price": t}))} for t in ("1.1", "sNaN", "NaN")]
    assert asked == [{1}, set(), set()]


def test_alike_queries_in_one_batch_are_told_apart() -> None:
    keeper = AnswerKeeper()
    owner = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int32()), pa.array(["a", "b"]))
    keeper.take(batch(owner, [1, 2, 3]))
    keeper.publish()
    assert [a.value for a in keeper.answers("a", Asked())] == [1, 3]
    assert [a.value for a in keeper.answers("b", Asked())] == [2]


def test_who_listens_is_told_of_what_came_after_and_what_was_lost() -> None:
    keeper = AnswerKeeper(in_all=2)
    for value in range(4):
        keeper.take(batch("q", [value]))
        keeper.publish()
    parts, lost, _ = keeper.after(3)
    assert ([p.number for p in parts], lost) == ([4], 0)
    parts, lost, _ = keeper.after(0)
    assert ([p.number for p in parts], lost) == ([3, 4], 2)
    assert keeper.after(4) == ([], 0, 4)
    assert keeper.after(3, "other") == ([], 0, 4)


def test_answers_may_take_only_so_many_bytes() -> None:
    keeper = AnswerKeeper(bytes_in_all=3_500)
    for text in ("short", "x" * 1_000, "y" * 1_000):
        keeper.take(batch("q", [1], [text]))
        keeper.publish()
    assert [p.number for p in keeper.after(0)[0]] == [2, 3]
    keeper.take(batch("q", [1], ["z" * 100_000]))
    keeper.publish()
    assert [p.number for p in keeper.after(0)[0]] == [4], "the newest stays whatever it takes"
    assert [a.keys for a in keeper.answers("q", Asked())] == [(("host", "z" * 100_000),)]


@pytest.mark.parametrize("size", [3, 500])
def test_bytes_of_a_part_are_about_what_it_holds(size: int) -> None:
    part = Part.of(1, batch("q", list(range(size)), ["x" * 100] * size))
    assert size * 100 < part.nbytes < size * 500 + 6_000


def test_rows_of_a_group_may_have_a_key_that_is_null() -> None:
    answers = batch("q", [1, 2, 3], ["x", None, "x"])  # type: ignore[list-item]
    every = np.arange(3)
    assert places_of_group(answers.keys, {"host": "x"}, every).tolist() == [0, 2]
    assert places_of_group(answers.keys, {"host": "x"}, every[1:]).tolist() == [2]
    assert places_of_group(answers.keys, {"host": None}, every).tolist() == [1]
    assert places_of_group(answers.keys, {"port": 1}, every).tolist() == []


def test_the_latest_is_the_newest_by_its_time() -> None:
    keeper = AnswerKeeper()
    for second in (3, 1, 2):
        keeper.take(batch("q", [second], second=second))
    keeper.publish()
    assert [a.value for a in keeper.latest("q", 5).answers] == [3]
    assert [a.value for a in keeper.answers("q", Asked())] == [1, 2, 3]


def test_any_group_of_the_latest_is_found_and_all_are_counted() -> None:
    keeper = AnswerKeeper()
    hosts = [f"h{n}" for n in range(1000)]
    # batches of a turn come in any order
    for some in (hosts[500:], hosts[:500]):
        keeper.take(batch("q", list(range(500)), some, second=9))
        keeper.publish()
    found = keeper.latest("q", 3)
    assert ([a.group["host"] for a in found.answers], found.there) == (["h0", "h1", "h10"], 1000)
    found = keeper.latest("q", 3, "HOST=h99 9")
    assert ([a.group["host"] for a in found.answers], found.there) == (["h99", "h990", "h991"], 11)
    assert keeper.latest("q", 3, until=BEGAN) == Newest([], 0)


def test_where_not_all_of_the_newest_are_kept_they_are_not_said_to_be_all() -> None:
    hosts = [f"h{n}" for n in range(30)]
    whole = AnswerKeeper(per_query=20)
    for second in range(1, 9):
        whole.take(batch("q", list(range(10)), hosts[:10], second=second))
    whole.publish()
    assert (whole.latest("q", 3).there, whole.latest("q", 3).cut) == (10, False), "older ones may go"
    one = AnswerKeeper(per_query=20)
    one.take(batch("q", list(range(30)), hosts, second=1))
    one.publish()
    assert (one.latest("q", 3).there, one.latest("q", 3).cut) == (20, True)
    assert one.latest("q", 3, "h1").cut
    several = AnswerKeeper(per_query=20)
    for some in (hosts[:15], hosts[15:]):
        several.take(batch("q", list(range(15)), some, second=1))
    several.publish()
    assert several.latest("q", 3).cut
    everything = AnswerKeeper(in_all=20)
    for some in (hosts[:15], hosts[15:]):
        everything.take(batch("q", list(range(15)), some, second=1))
    everything.publish()
    assert everything.latest("q", 3).cut
    everything.take(batch("q", list(range(10)), hosts[:10], second=2))
    everything.publish()
    assert not everything.latest("q", 3).cut, "all of the newest are there"


def test_answers_of_a_query_that_is_no_more_are_not_those_of_the_next_one() -> None:
    keeper = AnswerKeeper()
    keeper.take(batch("Gone", [1]))
    keeper.take(batch("q", [2]))
    keeper.publish()
    keeper.forget(["Gone"])
    assert keeper.answers("gone", Asked()) == []
    assert [a.value for a in keeper.answers("q", Asked())] == [2]
    assert keeper.after(0, "gone") == ([], 0, 2)
    keeper.take(batch("Gone", [3]))
    keeper.publish()
    parts, lost, newest = keeper.after(0, "gone")
    assert ([p.number for p in parts], lost, newest) == ([3], 0, 3)
    assert [p.number for p in keeper.after(0)[0]] == [1, 2, 3], "whoever follows all has them all"


def test_what_a_query_has_lost_are_none_of_the_parts_of_the_one_before_it() -> None:
    keeper = AnswerKeeper(parts_in_all=4)

    def gives(*values: int) -> None:
        for value in values:
            keeper.take(batch("Q", [value]))
            keeper.publish()

    gives(1, 2, 3)
    keeper.forget(["Q"])
    gives(4, 5, 6)
    parts, lost, _ = keeper.after(0, "q")
    assert ([p.number for p in parts], lost) == ([4, 5, 6], 0)
    gives(7, 8, 9)
    parts, lost, _ = keeper.after(0, "q")
    assert ([p.number for p in parts], lost) == ([6, 7, 8, 9], 2)


def test_many_small_parts_are_bounded_too() -> None:
    keeper = AnswerKeeper(parts_in_all=10)
    for value in range(50):
        keeper.take(batch("ab"[value % 2], [value]))
        keeper.publish()
    assert [a.value for a in keeper.answers("a", Asked())] == [40, 42, 44, 46, 48]
    parts, lost, _ = keeper.after(0)
    assert (len(parts), lost) == (10, 40)


def test_many_answers_and_few_are_told_alike() -> None:
    """Few are kept as text and many as columns: nobody who asks can tell."""
    hosts = [f"h{n % 7}" for n in range(200)]
    kept = []
    for size in (AS_TEXT, 200):
        keeper = AnswerKeeper()
        for start in range(0, 200, size):
            stop = min(start + size, 200)
            keeper.take(batch("q", list(range(start, stop)), hosts[start:stop], second=5))
        keeper.publish()
        asked = Asked(keys={"host": "h3"}, since=BEGAN, limit=5)
        json_ = b",".join(keeper.json(part, None)[1:-1] for part in keeper.after(0)[0])
        kept.append(
            (keeper.answers("q", Asked()), keeper.answers("q", asked), keeper.latest("q", 9).answers, json_)
        )
    assert kept[0] == kept[1]
    assert [a.value for a in kept[0][1]] == [171, 178, 185, 192, 199]


def test_a_few_answers_take_little_room_and_keep_nothing_of_their_turn() -> None:
    """A thousand turns with one answer each, cut out of a large result."""
    before = pa.total_allocated_bytes()
    keeper = AnswerKeeper()
    tracemalloc.start()
    try:
        for second in range(1_000):
            keeper.take(batch("q", list(range(1_000)), second=second).slice(7, 8))
            keeper.publish()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(keeper.answers("q", Asked(limit=5_000))) == 1_000
    assert pa.total_allocated_bytes() - before < 100_000
    assert taken < 2_000_000
