"""When an alert is raised and when it is cleared, what of that survives, and what is put on disk."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from alert_turns import Turns, alert, answers, catalog_of
from slackwater.language.parse import parse_one
from slackwater.language.statements import CreateAlert
from slackwater.runtime.alerts.comparing import verdicts
from slackwater.runtime.alerts.events import Event
from slackwater.runtime.alerts.groups import Groups, group_texts
from slackwater.runtime.answer_batch import AnswerBatch

# --- comparing -----------------------------------------------------------------------------------


def condition(text: str) -> CreateAlert:
    found = parse_one(f"CREATE ALERT a ON q WHEN x {text} TO 'http://h'")
    assert isinstance(found, CreateAlert)
    return found


NEAR = 0.1 + 2**-56
"""The double after 0.1, which itself is a little more than the decimal 0.1."""


@pytest.mark.parametrize(
    ("text", "low", "high", "expected"),
    [
        ("> 5", [4, 5, 6, 3, None], [4, 5, 8, 7, None], [-1, -1, 1, 0, 0]),
        (">= 5", [4, 5, 6, 3], [4, 5, 8, 7], [-1, 1, 1, 0]),
        ("> 5 POSSIBLY", [4, 5, 6, 3], [4, 5, 8, 7], [-1, -1, 1, 1]),
        ("< 5", [4, 5, 6, 3], [4, 5, 8, 7], [1, -1, -1, 0]),
        ("<= 5", [4, 5, 6, 3], [5, 6, 8, 7], [1, 0, -1, 0]),
        ("< 5 POSSIBLY", [4, 5, 6, 3], [4, 5, 8, 7], [1, -1, -1, 1]),
        # a whole number and a limit that is none
        ("> 2.5", [2, 3], [2, 3], [-1, 1]),
        ("< -2.5", [-2, -3], [-2, -3], [-1, 1]),
        # doubles: the limit is the decimal, not what a double makes of it
        ("> 0.1", [0.1, NEAR], [0.1, NEAR], [1, 1]),
        ("<= 0.1", [0.1, 0.0], [0.1, 0.0], [-1, 1]),
        (
            "> 5",
            [float("nan"), float("-inf"), float("inf")],
            [float("nan"), float("inf"), float("inf")],
            [0, 0, 1],
        ),
        ("> 5 POSSIBLY", [float("nan"), float("-inf")], [float("nan"), float("inf")], [0, 1]),
        # one end alone can tell that there is nothing beyond
        ("> 5", [None, None], [4.0, 9.0], [-1, 0]),
        # limits that the type does not hold
        ("> 1e300", [2**62], [2**62], [-1]),
        ("> -1e300", [2**62, None], [2**62, None], [1, 0]),
        ("< 1e300", [2**62], [2**62], [1]),
        ("> 1e-300", [0, 1], [0, 1], [-1, 1]),
    ],
)
def test_an_interval_against_a_limit(text: str, low: list[Any], high: list[Any], expected: list[int]) -> None:
    assert verdicts(answers(low, high), condition(text)).tolist() == expected


def test_whole_numbers_and_decimals_are_compared_with_all_their_digits() -> None:
    large = 2**53
    assert verdicts(answers([large, large + 1]), condition(f"> {large}")).tolist() == [-1, 1]
    exact = pa.array([Decimal("0.10"), Decimal("0.11")], pa.decimal128(38, 2))
    assert verdicts(answers(exact), condition("> 0.1")).tolist() == [-1, 1]
    assert verdicts(answers(exact), condition(">= 0.1")).tolist() == [1, 1]
    assert verdicts(answers(exact), condition("> 0.1099999999999999999999999999999")).tolist() == [-1, 1]
    assert verdicts(answers(exact), condition("> 1e40")).tolist() == [-1, -1]
    digits = "12345678901234567890123456789012345.67"
    long = answers(pa.array([Decimal(digits)], pa.decimal128(38, 2)))
    assert verdicts(long, condition(f">= {digits}")).tolist() == [1]
    assert verdicts(long, condition(f"> {digits}")).tolist() == [-1]
    assert verdicts(long, condition(f"> {digits[:-1]}6")).tolist() == [1]


def test_what_is_no_number_says_nothing_and_the_status_says_why(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 1")))
    assert turns.states(answers(["x", "y"])) == []
    assert "of type string" in turns.status().trouble
    turns.turn(answers([1], ends=20))
    assert turns.status().trouble == ""


# --- raising and clearing ------------------------------------------------------------------------


def test_an_alert_is_raised_once_and_cleared_once(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10")))
    assert turns.states(answers([10])) == []
    (event,) = turns.turn(answers([11], ends=20))
    assert (event["alert"], event["state"], event["reason"]) == ("a", "raised", "answer")
    assert (event["condition"], event["certainty"], event["query"], event["column"]) == (
        "bytes > 10",
        "certainly",
        "total",
        "bytes",
    )
    assert (event["value"], event["low"], event["high"], event["how"]) == (11, 11, 11, "exact")
    assert event["window_end"] == "1970-01-01T00:00:20.000000Z"
    assert turns.status().raised == 1
    assert turns.states(answers([12], ends=30)) == []
    assert turns.states(answers([9], ends=40)) == [("cleared", None)]
    assert turns.states(answers([8], ends=50)) == []
    assert (turns.status().raised, turns.status().events) == (0, 2)


def test_an_interval_around_the_limit_does_not_let_it_flap(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10"), alert("bytes > 10 POSSIBLY", name="perhaps")))
    said = {}
    for end, (low, high) in enumerate([(8, 12), (11, 13), (9, 14), (11, 12), (9, 11), (8, 10), (9, 11)], 2):
        found = turns.turn(answers([low], [high], ends=10 * end, how="sampled"))
        said[low, high, end] = [(e["alert"], e["state"]) for e in found]
    assert list(said.values()) == [
        [("perhaps", "raised")],
        [("a", "raised")],
        [],
        [],
        [],
        [("a", "cleared"), ("perhaps", "cleared")],
        [("perhaps", "raised")],
    ]


def test_what_says_nothing_changes_nothing(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10")))
    turns.turn(answers([11]))
    assert turns.states(answers(pa.nulls(1), ends=20, how="suspended")) == []
    assert turns.states(answers([None], ends=30)) == []
    assert turns.states(answers([float("nan")], ends=40)) == []
    unknown = answers(pa.array([3.0]), ends=50, how="modelled")
    nothing = pa.nulls(1, pa.float64())
    assert turns.states(AnswerBatch(**{**unknown.__dict__, "low": nothing, "high": nothing})) == []
    assert turns.status().raised == 1
    assert turns.states(answers([1.0], [2.0], ends=60, how="modelled")) == [("cleared", None)], (
        "a modelled answer counts where it has an interval"
    )


def test_groups_are_raised_each_by_itself(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10", on="q")))
    hosts = ["x", "y", None, "null", "1:x"]
    found = turns.states(answers([11, 5, 11, 5, 11], query="q", hosts=hosts))
    assert sorted(found, key=str) == [("raised", "1:x"), ("raised", "x"), ("raised", None)]
    assert turns.status().raised == 3
    found = turns.states(answers([11, 11, 5, 11, 11], query="q", hosts=hosts, ends=20))
    assert sorted(found, key=str) == [("cleared", None), ("raised", "null"), ("raised", "y")]
    # other columns and other queries are not looked at
    assert turns.states(answers([99], query="q", column="n", hosts=["z"], ends=20)) == []
    assert turns.states(answers([99], query="now", hosts=["z"], ends=20)) == []


def test_windows_of_one_turn_count_in_order_of_their_ends(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10", on="q")))
    later = answers([5, 12], query="q", hosts=["x", "x"], ends=[40, 30])
    sooner = answers([11, 5, 3], query="q", hosts=["x", "x", "y"], ends=[10, 20, 20], how="subset")
    found = turns.turn(later, sooner)
    assert [(e["state"], e["value"]) for e in found] == [
        ("raised", 11),
        ("cleared", 5),
        ("raised", 12),
        ("cleared", 5),
    ]
    assert len({e["id"] for e in found}) == 4


def test_what_is_older_than_what_was_answered_changes_nothing(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10"), alert("s > 10", name="b", on="now")))
    turns.turn(answers([11], ends=20))
    assert turns.states(answers([1], ends=10)) == []
    assert turns.states(answers([1], ends=30)) == [("cleared", None)]
    assert turns.states(answers([99], ends=20)) == []
    # current values: groups are answered when they have changed, each in its own time
    tick = {"query": "now", "column": "s", "ticks": True, "how": "deferred"}
    assert turns.states(answers([20], hosts=["x"], ends=50, **tick)) == [("raised", "x")]
    assert turns.states(answers([20, 1], hosts=["y", "x"], ends=40, **tick)) == [("raised", "y")]
    assert turns.states(answers([1], hosts=["x"], ends=60, **tick)) == [("cleared", "x")]


def test_a_current_value_stands_until_the_next_one(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("s > 10", on="now")))
    tick = {"query": "now", "column": "s", "ticks": True, "how": "deferred"}
    turns.turn(answers([20], hosts=["x"], ends=1, **tick))
    for end in range(2, 9):
        assert turns.states(answers([1], hosts=["y"], ends=end, **tick)) == []
    assert turns.status().raised == 1


# --- groups that are there no more ---------------------------------------------------------------


def test_a_group_that_an_exact_window_lacks_is_cleared(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10", on="q")))
    turns.turn(answers([11, 11], query="q", hosts=["x", "y"]))
    (event,) = turns.turn(answers([11], query="q", hosts=["y"], ends=20))
    assert (event["state"], event["reason"], event["keys"]) == ("cleared", "missing", {"host": "x"})
    assert (event["value"], event["low"], event["high"], event["rows"]) == (None, None, None, 0)
    assert event["window_end"] == "1970-01-01T00:00:20.000000Z"
    assert turns.states(answers([11, 11], query="q", hosts=["x", "y"], ends=30)) == [("raised", "x")]


def test_a_group_that_having_leaves_out_may_have_rows(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10", on="some")))
    turns.turn(answers([11, 11], query="some", hosts=["x", "y"]))
    (event,) = turns.turn(answers([11], query="some", hosts=["y"], ends=20))
    assert (event["state"], event["reason"], event["rows"]) == ("cleared", "missing", None)


def test_a_sample_may_have_missed_a_group(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10", on="q")))

    def sampled(*hosts: str, end: int) -> list[tuple[str, Any]]:
        size = len(hosts)
        return turns.states(
            answers([11] * size, [12] * size, query="q", hosts=list(hosts), ends=end, how="sampled")
        )

    sampled("x", "y", end=10)
    assert sampled("y", end=20) == []
    assert sampled("y", end=30) == []
    assert sampled("x", "y", end=40) == [], "it is back, and had never gone"
    assert sampled("y", end=50) == []
    assert sampled("y", end=60) == []
    turns = turns.restarted()
    assert sampled("y", end=70) == [("cleared", "x")]


def test_nothing_is_below_a_limit_too(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("n < 10", on="q")))
    turns.turn(answers([5, 50], query="q", column="n", hosts=["x", "y"]))
    for end in range(20, 200, 10):
        assert turns.states(answers([50], query="q", column="n", hosts=["y"], ends=end)) == []
    assert turns.status().raised == 1
    many = 1_000
    gone = answers([50] * many, query="q", column="n", hosts=["y"] * many, ends=range(200, 200 + many))
    assert turns.states(gone) == [("cleared", "x")], "one that never comes back is forgotten at last"


def test_without_any_answer_nothing_is_gone(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10", on="q")))
    turns.turn(answers([11], query="q", hosts=["x"]))
    assert turns.states() == []
    suspended = answers(pa.nulls(1), query="q", hosts=pa.nulls(1), ends=20, how="suspended")
    assert turns.states(suspended) == []
    assert turns.states(answers([1.0], [1.0], query="q", hosts=["y"], ends=30, how="modelled")) == []
    assert turns.status().raised == 1


def test_more_groups_than_an_alert_can_hold_are_counted(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10", on="q")), room=3)
    hosts = ["e", "d", "c", "b", "a"]
    found = turns.states(answers([11] * 5, query="q", hosts=hosts))
    assert sorted(host for _, host in found) == ["a", "b", "c"], "the same ones whatever the order"
    assert turns.status().raised == 3
    assert turns.status().trouble.startswith("2 more groups are beyond the limit")
    values = [11, 11, 11, 11, 1]
    assert turns.states(answers(values, query="q", hosts=hosts, ends=20)) == [("cleared", "a")]
    assert turns.states(answers(values, query="q", hosts=hosts, ends=30)) == [("raised", "d")]


def test_keys_of_every_type_come_back(tmp_path: Path) -> None:
    keys = {
        "host": pa.array(["x", "y"]),
        "day": pa.array([1, 2], pa.int32()).cast(pa.date32()),
        "share": pa.array([Decimal("0.10"), None], pa.decimal128(5, 2)),
        "port": pa.array([80, 81], pa.int32()),
        "ratio": pa.array([0.5, float("nan")]),
    }
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10", on="q")))
    turns.turn(answers([11, 11], query="q", keys=keys))
    turns = turns.restarted()
    wider = {**keys, "port": pa.array([80, 81], pa.int64())}
    assert turns.turn(answers([11, 11], query="q", keys=wider, ends=20)) == [], "the same groups"
    rest = {name: column.slice(0, 1) for name, column in keys.items()}
    (gone,) = turns.turn(answers([11], query="q", keys=rest, ends=30))
    assert gone["keys"] == {"host": "y", "day": "1970-01-03", "share": None, "port": 81, "ratio": "NaN"}
    assert gone["types"]["keys"] == {"day": "date", "ratio": "float"}


def test_texts_of_groups_are_all_different() -> None:
    first = pa.array(["a", "a1:b", "", None, "-", "ä"])
    second = pa.array(["b", "", "a", "-", None, "ä"])
    texts = group_texts({"one": first, "two": second}, np.arange(6)).to_pylist()
    assert len(set(texts)) == 6
    places, numbers = Groups(texts[::-1]).find({"one": first, "two": second}, 6)
    assert (places.tolist(), numbers.tolist()) == ([0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0])


# --- what survives -------------------------------------------------------------------------------


def test_a_restart_knows_what_is_raised(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10", on="q")))
    turns.turn(answers([11], query="q", hosts=["x"]))
    turns = turns.restarted()
    assert (turns.status().raised, turns.status().events, turns.status().waiting) == (1, 1, 1)
    assert turns.states(answers([12], query="q", hosts=["x"], ends=20)) == []
    assert turns.states(answers([2], query="q", hosts=["x"], ends=30)) == [("cleared", "x")]


def test_a_turn_that_is_run_again_makes_the_same_events(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10", on="q")))
    batch = answers([11, 12, 3], query="q", hosts=["x", "y", "y"], ends=[10, 10, 20])
    first = turns.turn(batch, commit=False)
    assert turns.status().events == 0, "it does not count before it is committed"
    turns = turns.restarted()
    assert turns.status().waiting == 0, "what no commit knows is not sent"
    again = turns.turn(batch.take([2, 0, 1]))
    # the id of the run was not committed either
    assert [{**e, "id": ""} for e in again] == [{**e, "id": ""} for e in first]
    turns.turn(answers([1], query="q", hosts=["x"], ends=30), commit=False)
    once = turns.turn(answers([1], query="q", hosts=["x"], ends=30), commit=False)
    twice = turns.restarted().turn(answers([1], query="q", hosts=["x"], ends=30))
    assert [e["id"] for e in once] == [e["id"] for e in twice]


def test_another_run_makes_other_ids(tmp_path: Path) -> None:
    found = [Turns(tmp_path / name, catalog_of(alert("bytes > 10"))) for name in "ab"]
    for turns in found:
        turns.folder.mkdir()
    ids = [turns.turn(answers([11]))[0]["id"] for turns in found]
    assert ids[0] != ids[1]


def test_a_state_of_a_run_without_alerts_is_gone_on_from(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of())
    assert turns.turn(answers([11])) == []
    assert not (tmp_path / "alerts").exists()
    assert json.loads(turns.kept)["alerts"] == {}
    turns.change(catalog_of(alert("bytes > 10")))
    assert turns.states(answers([12], ends=20)) == [("raised", None)]


# --- changes while it runs -----------------------------------------------------------------------


def test_another_limit_goes_on_from_what_is_raised(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10")))
    turns.turn(answers([11]))
    turns.change(catalog_of(alert("bytes > 20 POSSIBLY")))
    (event,) = turns.turn(answers([12], ends=20))
    assert (event["state"], event["condition"]) == ("cleared", "bytes > 20")


def test_another_contract_changes_nothing_of_what_is_raised(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10")))
    turns.turn(answers([11]))
    turns.change(catalog_of(alert("bytes > 10"), "ALTER QUERY total WITH EXACT"))
    assert turns.states(answers([12], ends=20)) == []
    assert turns.states(answers([2], ends=30)) == [("cleared", None)]


def test_a_dropped_alert_is_forgotten(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10")))
    turns.turn(answers([11]))
    turns.change(catalog_of())
    assert turns.alerts.status() == ()
    assert not list((tmp_path / "alerts").glob("*.jsonl")), "nobody waits for what it had to tell"
    turns.turn(answers([12], ends=20))
    turns.change(catalog_of(alert("bytes > 10")))
    assert turns.states(answers([13], ends=30)) == [("raised", None)]


def test_one_that_was_dropped_and_is_back_before_the_next_turn_starts_anew(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10")))
    turns.turn(answers([11]))
    turns.change(catalog_of())
    turns.change(catalog_of(alert("bytes > 10", url="http://127.0.0.1:9/other")))
    assert turns.states(answers([13], ends=20), dropped={"a"}) == [("raised", None)]
    assert turns.status().waiting == 1, "what the other one had to tell is gone"


def test_one_that_looks_at_something_else_starts_anew(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10", on="q")))
    turns.turn(answers([11], query="q", hosts=["x"]))
    turns.change(catalog_of(alert("n > 10", on="q")))
    assert turns.states(answers([1], query="q", column="n", hosts=["x"], ends=20)) == []
    assert turns.status().raised == 0


def test_a_turn_goes_by_its_own_version(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10")))
    # decided before the change, and run after it
    turns.alerts.declare(catalog_of(alert("bytes > 99")))
    assert [e["condition"] for e in turns.turn(answers([11]))] == ["bytes > 10"]


def test_turns_of_other_streams_leave_an_alert_alone(tmp_path: Path) -> None:
    both = catalog_of(alert("bytes > 10"), alert("bytes > 5", name="b", on="elsewhere"))
    turns = Turns(tmp_path, both)
    turns.turn(answers([11]))
    assert turns.states(answers([6], query="elsewhere"), stream="other") == [("raised", None)]
    assert [s.raised for s in turns.alerts.status()] == [1, 1]


def test_alike_queries_come_in_one_batch(tmp_path: Path) -> None:
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10", on="q"), alert("bytes > 10", name="b")))
    names = pa.array(["now", "total", "q", "total"]).dictionary_encode()
    found = turns.turn(answers([99, 11, 12, 5], query=names, ends=[10, 10, 10, 20]))
    assert [(e["alert"], e["query"], e["state"], e["value"]) for e in found] == [
        ("a", "q", "raised", 12),
        ("b", "total", "raised", 11),
        ("b", "total", "cleared", 5),
    ]


# --- size ----------------------------------------------------------------------------------------


def test_a_million_answers_cost_no_python_work_for_each(tmp_path: Path) -> None:
    size = 1_000_000
    hosts = pa.array(np.arange(size)).cast(pa.string())
    values = np.zeros(size)
    values[::100_000] = 11.0
    turns = Turns(tmp_path, catalog_of(alert("bytes > 10", on="q")))
    began = time.process_time()
    assert len(turns.turn(answers(pa.array(values), query="q", hosts=hosts))) == 10
    assert turns.turn(answers(pa.array(values), query="q", hosts=hosts, ends=20)) == []
    # answers one by one take ten times as long
    assert time.process_time() - began < 8


def test_an_event_says_which_attempt_it_is() -> None:
    event = Event("i", "a", '{"id":"i","alert":"a"}')
    assert json.loads(event.body(3)) == {"id": "i", "alert": "a", "attempt": 3}
    assert Event.from_line(event.text) == event
