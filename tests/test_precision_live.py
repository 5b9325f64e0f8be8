"""The check of the live run: what it must find wrong, what it may excuse, and what it counts as true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slackwater.experiments.precision_live_check import Answers, Checked, check_query
from slackwater.experiments.precision_live_log import StreamLog, lost
from slackwater.experiments.precision_live_queries import QUERIES, Asked, key, keys, script
from slackwater.experiments.precision_live_truth import Course, Truth
from slackwater.language.parse import parse
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions

S = 1_000_000
AGENTS = 3
TOTAL = Asked("total", "total", "load", "", lambda v, there: float(v[there].sum()), lambda k: k[2] == 0)


def offered(at: float, number: int, value: float, port: int = 0) -> list[str]:
    where = f"{number} {port} {value!r}\n"
    return [f"offered load {round(at * S) - 5} {where}", f"counts load {round(at * S)} {where}"]


def withdrawn(at: float, number: int) -> list[str]:
    where = f"{number} 0 0.0\n"
    return [f"leaving load {round(at * S)} {where}", f"gone load {round(at * S) + 5} {where}"]


def batch(position: int, number: int, at: float, received: float | None = None, count: int = 1) -> Any:
    return {
        "position": position,
        "kind": "batch",
        "agent": f"h{number:03d}",
        "number": count,
        "key": [number],
        "at": [round(at * S)],
        "received": round((at if received is None else received) * S),
        "values": [[1.0]],
    }


def joined(*batches: Any) -> StreamLog:
    """A log in which every host has joined, and has told its key at 1 s."""
    entries: list[Any] = []
    for n in range(AGENTS):
        name = f"h{n:03d}"
        entries.append(
            {"position": 2 * n, "kind": "joined", "received": 0, "agent": name, "incarnation": "x"}
        )
        keys_of = {"keys": [list(key(n, 0))], "numbers": [n]}
        entries.append({"position": 2 * n + 1, "kind": "keys", "received": 0, "agent": name, **keys_of})
        entries.append(batch(100 + n, n, 1.0))
    return StreamLog("load", entries + list(batches))


def said(at: float, low: float | None, high: float | None, rows: int = 3, *, met: bool = True) -> Any:
    time = str(np.datetime64(round(at * S), "us")) + "Z"
    return {"at": time, "emitted_at": time, "low": low, "high": high, "rows": rows, "met": met}


def judged(lines: list[str], answers: list[Any], log: StreamLog, width: float = 5.0, **more: Any) -> Checked:
    found = Checked()
    groups = {"": Answers.made(answers)} if answers else {}
    query = more.get("query", TOTAL)
    check_query(query, AGENTS, Truth(lines), log, groups, [(0, 0, width)], 60 * S, found)
    return found


THREE = [line for n in range(3) for line in offered(1.0, n, 10.0 * n)]


def test_an_answer_is_held_against_what_is_true_for_as_long_as_it_stands() -> None:
    right = judged([*THREE, *offered(3.0, 2, 21.0)], [said(1, 28, 32)], joined())
    assert (right.answers, right.met, right.violations, right.missing) == (1, 1, 0, 0)
    # at the answer's own time and when the value of a key has changed
    assert right.truths == 3
    moved = [*THREE, *offered(3.0, 2, 23.0), *offered(4.0, 2, 21.0)]
    wrong = judged(moved, [said(1, 28, 32)], joined())
    assert (wrong.violations, wrong.excused) == (1, 0)
    assert wrong.wrong[0] | {"why": "outside", "true": 33.0, "time": 3 * S} == wrong.wrong[0]
    # another one took its place at that very time
    assert judged(moved, [said(1, 28, 32), said(3, 31, 35)], joined()).violations == 0
    # intervals hold the truth whether they are as narrow as was asked for or not
    assert judged(moved, [said(1, 28, 32, met=False)], joined()).violations == 1
    silent = judged(moved, [said(1, None, None, met=False)], joined())
    assert (silent.violations, silent.unpromised) == (0, silent.truths)


def test_an_answer_is_no_wider_than_it_says_and_of_as_many_rows() -> None:
    assert judged(THREE, [said(1, 26, 32)], joined()).wrong[0]["why"] == "wide"
    assert judged(THREE, [said(1, 26, 32, met=False)], joined()).violations == 0
    assert judged(THREE, [said(1, 28, 32, rows=2)], joined()).wrong[0]["why"] == "rows"


def test_only_rows_of_its_own_that_were_late_then_excuse_an_answer() -> None:
    moved = [*THREE, *offered(3.0, 2, 23.0)]
    late = joined(batch(200, 2, 3.0, 4.5))
    assert late.late_rows == 1
    found = judged(moved, [said(1, 28, 32), said(4.2, 31, 35)], late)
    assert (found.violations, found.excused) == (0, 1)
    # it had come by then
    found = judged([*moved, *offered(5.0, 2, 24.0)], [said(4.6, 28, 32)], late)
    assert (found.violations, found.excused) == (1, 0)
    # a row of a key that the query does not read
    others = Asked("total", "total", "load", "", TOTAL.truth, lambda k: k[0] > "h000" and k[2] == 0)
    found = judged(moved, [said(1, 28, 32, 2)], joined(batch(200, 0, 3.0, 4.5)), query=others)
    assert (found.violations, found.excused) == (1, 0)


def test_a_key_counts_from_its_first_row_until_it_is_withdrawn_and_again_from_the_next() -> None:
    lines = [*THREE, *withdrawn(4.0, 2), *offered(6.0, 2, 30.0), *offered(7.0, 2, 31.0)]
    log = joined(batch(200, 2, 6.5))
    course = Course.made(TOTAL, [key(n, 0) for n in range(3)], Truth(lines), log.told)
    assert course.at.tolist() == [1 * S, 4 * S, round(6.5 * S), 7 * S]
    assert course.value.tolist() == [30.0, 10.0, 40.0, 41.0]
    assert course.rows.tolist() == [3, 2, 3, 3]
    # when exactly it went is not known
    assert course.uncertain(np.array([4 * S - 1, 4 * S + 3, 4 * S + 6])).tolist() == [False, True, False]
    found = judged(lines, [said(1, 29, 31), said(4, 9, 11, 2), said(6.5, 38, 42)], log)
    assert (found.violations, found.missing) == (0, 0)
    stale = judged(lines, [said(1, 29, 31), said(6.5, 38, 42)], log)
    assert stale.violations == 0, "at that time, nobody knows"
    stale = judged([*lines, *offered(5.0, 1, 10.5)], [said(1, 29, 31), said(6.5, 38, 42)], log)
    assert stale.violations == 1


def test_a_group_that_has_a_value_and_no_answer_is_missing() -> None:
    by_site = Asked("by_site", "rx", "load", "", TOTAL.truth, TOTAL.chosen, by_site=True)
    found = Checked()
    groups = {f"site{n}": Answers.made([said(1, 10 * n - 1, 10 * n + 1, 1)]) for n in range(2)}
    check_query(by_site, AGENTS, Truth(THREE), joined(), groups, [(0, 0, 5.0)], 60 * S, found)
    assert (found.violations, found.missing) == (0, 1)
    groups["site2"] = Answers.made([said(2, 19, 21, 1)])
    found = Checked()
    check_query(by_site, AGENTS, Truth(THREE), joined(), groups, [(0, 0, 5.0)], 60 * S, found)
    assert (found.violations, found.missing) == (0, 1), "it came a second after the others"
    # one that says that there is no value
    groups["site2"] = Answers.made([said(1, None, None, 0)])
    found = Checked()
    check_query(by_site, AGENTS, Truth(THREE), joined(), groups, [(0, 0, 5.0)], 60 * S, found)
    assert (found.violations, found.missing) == (1, 0)


def test_means_are_judged_at_the_ends_of_steps() -> None:
    window = Asked("smooth", "smooth", "load", "", TOTAL.truth, TOTAL.chosen, window=4 * S)
    lines = [*THREE, *offered(6.0, 2, 24.0)]
    found = judged(lines, [said(5, 29, 31), said(7, 30, 32), said(8, 31, 33)], joined(), query=window)
    # the last one stands on, and the mean goes on to 34
    assert (found.violations, found.wrong[0]["true"]) == (1, 34.0)
    assert found.wrong[0]["time"] == 10 * S
    whole = [said(5, 29, 31), said(7, 30, 32), said(8, 31, 33), said(9, 32, 34)]
    assert judged(lines, whole, joined(), query=window).violations == 0


@pytest.mark.parametrize(
    ("batches", "handed", "read", "found"),
    [
        ([], 1, 3, {}),
        ([batch(200, 2, 2.0, count=2)], 2, 4, {}),
        ([batch(200, 2, 2.0, count=3)], 2, 4, {"batches": 1}),
        ([batch(200, 2, 2.0, count=1)], 2, 4, {"batches": 1}),
        ([], 2, 3, {"rows": 1}),
        ([], 1, 4, {"unread": 1}),
        ([], 1, 2, {"unread": 1}),
    ],
)
def test_what_was_handed_over_is_in_the_log_and_read_once(
    batches: list[Any], handed: int, read: int, found: dict[str, int], tmp_path: Path
) -> None:
    (tmp_path / "read.json").write_text(json.dumps({"load": read}))
    truth = Truth([*THREE, f"handed load {9 * S} h002 {handed} 0\n"])
    declared = {"position": -1, "kind": "declared", "received": 0, "key": ["host"], "columns": ["rx"]}
    log = joined(*batches)
    log.entries.insert(0, declared)
    assert {how: count for how, count in lost(log, truth, tmp_path).items() if count} == found


def test_the_queries_are_what_they_are_checked_against() -> None:
    catalog = Catalog().apply_all(parse(script("ws://x", 200)))
    assert set(catalog.queries) == {query.name for query in QUERIES}
    for query in QUERIES:
        step = catalog.queries[query.name]
        assert step.stream == query.stream
        assert [output.name for output in step.outputs][-1] == query.column
        assert bool(step.keys) == query.by_site
    assert sum(1 for _ in keys("load", 200)) == 171 + 29 * 8
    assert Functions() == catalog.functions
