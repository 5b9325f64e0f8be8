"""The board: what is shown of a query with groups is of one of them, whatever its answers look like."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slackwater.language.contracts import Error, Exact
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.board import STALE, Board
from slackwater.runtime.groups import places_of_group
from slackwater.runtime.json_values import to_micros
from slackwater.runtime.status import QueryStatus, StreamStatus

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class Run:
    """A run of one query, told to a board turn by turn."""

    def __init__(self) -> None:
        self.board, self.turns = Board(), 0
        self.others: set[str] = set()
        self.counted: dict[str, int] = {}
        self.board.queries({"q": Exact()})

    def turn(
        self, *batches: tuple[pa.Array, list[float | None]], how: str = "exact", column: str = "n"
    ) -> None:
        self.turns += 1
        end = to_micros(BEGAN + timedelta(seconds=self.turns))
        made = [
            AnswerBatch(
                query="q",
                column=column,
                window_start=np.full(len(keys), end - 1_000_000),
                window_end=np.full(len(keys), end),
                keys={"k": keys},
                value=pa.nulls(len(keys)) if how == "suspended" else pa.array(values, pa.float64()),
                confidence=1.0,
                how=how,  # type: ignore[arg-type]
                emitted_at=BEGAN,
            )
            for keys, values in batches
        ]
        self.counted = {}
        assert len(list(self.board.watching(made, self.counted, lambda: self.others))) == len(made)

    @property
    def shown(self) -> QueryStatus:
        return self.board.status(BEGAN).queries[0]


def texts(*keys: str | None) -> pa.Array:
    return pa.array(keys, pa.string())


def test_a_history_is_of_one_group() -> None:
    run = Run()
    for number in range(3):
        run.turn((texts("b"), [100.0 + number]), (texts("a", "c"), [1.0, 50.0]))
    assert run.shown.history == (100.0, 101.0, 102.0)
    assert run.shown.last_keys == (("k", "b"),)
    assert run.shown.answers == 9


def test_a_group_that_is_gone_for_long_makes_room_for_another_one() -> None:
    run = Run()
    run.turn((texts("a"), [1.0]))
    for _ in range(STALE - 1):
        # several batches are one turn
        run.turn((texts("b"), [2.0]), (texts("c"), [3.0]))
    assert (run.shown.last_keys, run.shown.history) == ((("k", "a"),), (1.0,))
    run.turn((texts("b"), [2.0]))
    assert (run.shown.last_keys, run.shown.history) == ((("k", "b"),), (2.0,))


def test_a_query_that_is_suspended_says_so_and_goes_on_with_its_group() -> None:
    run = Run()
    run.turn((pa.nulls(1), [None]), how="suspended")
    assert run.shown.how == "suspended"
    run.turn((texts("a"), [1.0]))
    assert (run.shown.how, run.shown.last_keys) == ("exact", (("k", "a"),))
    run.turn((pa.nulls(2), [None, None]), how="suspended")
    assert run.shown.how == "suspended"
    run.turn((texts("b", "a"), [9.0, 2.0]))
    assert (run.shown.how, run.shown.last_keys, run.shown.history) == ("exact", (("k", "a"),), (1.0, 2.0))


def test_of_rows_that_are_delivered_as_they_are_the_last_one_is_shown() -> None:
    run = Run()
    for name in "abc":
        run.turn((texts(name), [1.0]), column="*")
        assert run.shown.last_keys == (("k", name),)


def test_the_last_answer_is_the_newest_in_whatever_order_they_come() -> None:
    board = Board()
    board.queries({"q": Exact()})
    seconds = [38, 46, 22]
    for ends in (seconds, [50], [28, 32]):
        times = np.array([to_micros(BEGAN + timedelta(seconds=s)) for s in ends])
        made = AnswerBatch(
            query="q",
            column="n",
            window_start=times - 2_000_000,
            window_end=times,
            value=pa.array(ends, pa.float64()),
            confidence=1.0,
            how="exact",
            emitted_at=BEGAN,
        )
        assert len(list(board.watching([made], {}))) == 1
        shown = board.status(BEGAN).queries[0]
        if ends is seconds:
            assert (shown.last_value, shown.history) == (46.0, (22.0, 38.0, 46.0))
    assert (shown.last_value, shown.last_window_end) == (50.0, BEGAN + timedelta(seconds=50))


def test_keys_may_change_their_type() -> None:
    run = Run()
    run.turn((texts("a"), [1.0]))
    for _ in range(STALE):
        run.turn((pa.array([7, 8]), [5.0, 6.0]))
    assert run.shown.last_keys == (("k", 8),)


@pytest.mark.parametrize(
    ("keys", "value", "places"),
    [
        (pa.array([1.0, math.nan, None]), math.nan, [1]),
        (pa.array([1.0, math.nan, None]), None, [2]),
        (pa.array([1.0, math.nan, None]), 1.0, [0]),
        (pa.nulls(3), "a", []),
        (pa.nulls(3), None, [0, 1, 2]),
        (pa.array([1, 2, 3]), "a", []),
        (pa.array([1, 2, 3]), math.nan, []),
        (pa.array([[1], [2], None]), [2], [1]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), "a", [0, 2]),
    ],
)
def test_where_a_group_is(keys: pa.Array, value: Any, places: list[int]) -> None:
    assert places_of_group({"k": keys}, {"k": value}, np.arange(3)).tolist() == places


def test_while_a_batch_runs_time_goes_on() -> None:
    board = Board()

    def told(second: float) -> StreamStatus:
        return next(iter(board.status(BEGAN + timedelta(seconds=second)).streams))

    with board.running("p", BEGAN):
        # the first one may take long, and there is nothing else to see of its stream
        assert (told(9).name, told(9).batch, told(9).running_s, told(9).lag_s) == ("p", 0, 9.0, None)
        assert told(9).long_batch_s == 9.0
        assert told(2).long_batch_s is None
    board.stream(StreamStatus(name="p", batch=1, lag_s=4.0, batch_ms=5_000))
    assert (told(20).running_s, told(20).lag_s) == (None, 4.0)
    with board.running("p", BEGAN):
        assert [told(s).lag_s for s in (1, 4, 9, 30)] == [4.0, 4.0, 9.0, 30.0], "its source goes on"
        assert [told(s).long_batch_s for s in (9, 10, 11)] == [None, None, 11.0]
    assert told(60).running_s is None


def test_a_stream_that_ends_is_in_no_batch_and_lags_as_it_did() -> None:
    board = Board()
    board.stream(StreamStatus(name="P", batch=3, rate=500.0, lag_s=4.0, batch_ms=100.0))
    board.stream(StreamStatus(name="other", rate=7.0, lag_s=1.0))
    with board.running("P", BEGAN):
        # the last batch takes its time, and the stream ends within it
        board.ended("p")
        told = board.status(BEGAN + timedelta(seconds=9)).streams[0]
        assert (told.state, told.running_s, told.long_batch_s, told.lag_s) == ("ended", None, None, 4.0)
    board.ended("p")
    board.stopped()
    told, other = board.status(BEGAN + timedelta(seconds=60)).streams
    assert (told.state, told.running_s, told.lag_s, told.progress) == ("ended", None, 4.0, 1.0)
    assert (told.rate, told.last_rate) == (0.0, 500.0), "it comes no more, and this is how fast it came"
    assert (other.state, other.rate, other.last_rate) == ("stopped", 7.0, 0.0)


def test_a_stream_is_idle_between_batches_alone() -> None:
    board = Board()
    assert not board.idle("p"), "it has not been read yet"
    board.stream(StreamStatus(name="p", rate=500.0, lag_s=4.0, kept=0.5, level=1.5, update_rate=3.0))
    with board.running("p", BEGAN):
        assert not board.idle("p"), "a batch may take long"
    assert board.idle("p")
    assert not board.idle("p"), "it is already"
    status = board.status(BEGAN)
    told = status.streams[0]
    assert (told.state, told.rate, told.last_rate, told.update_rate) == ("idle", 0.0, 500.0, 0.0)
    assert (told.lag_s, told.kept, told.level) == (0.0, 1.0, 0.0)
    assert (status.quiet, status.ended) == ({"p"}, frozenset())
    with board.running("p", BEGAN):
        told = board.status(BEGAN + timedelta(seconds=2)).streams[0]
        assert (told.state, told.rate, told.lag_s, told.running_s) == ("running", 0.0, 2.0, 2.0)
    board.ended("p")
    assert not board.idle("p")


def test_another_query_of_the_same_name_begins_anew() -> None:
    run = Run()
    run.turn((texts("a"), [1.0]))
    run.board.missed({"q": (2, 5)})
    run.board.queries({"q": Error(0.1)})
    shown = run.shown
    assert (shown.answers, shown.history, shown.missed) == (1, (1.0,), 2), "an altered one goes on"
    run.board.queries({"q": Exact(), "new": Exact()}, {"q", "new"})
    shown = run.shown
    assert (shown.answers, shown.history, shown.last_value, shown.last_keys) == (0, (), None, ())
    assert (shown.missed, shown.evaluated, shown.contract) == (0, 0, "EXACT")
    # a turn that was under way has answers of the old one: they go to the sink, and are counted there
    run.others = {"q"}
    run.turn((texts("a"), [2.0]))
    assert (run.shown.answers, run.shown.last_value, run.counted) == (0, None, {"q": 1})
    run.others = set()
    run.turn((texts("b"), [3.0]))
    assert (run.shown.answers, run.shown.history, run.shown.last_keys) == (1, (3.0,), (("k", "b"),))
