"""What an audit compares, without Spark: answers of a run beside the true ones."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from slackwater.language.contracts import Contract, Error, Exact, Subset
from slackwater.runtime.answers import Answer
from slackwater.runtime.auditing import Promise, compare, longest_gap
from slackwater.statistics.coverage import Coverage

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def answer(place: int, value: Any, *, how: Any = "exact", half: float = 0.0, **more: Any) -> Answer:
    fields: dict[str, Any] = {
        "query": "q",
        "column": "n",
        "window_start": EPOCH + timedelta(seconds=place),
        "window_end": EPOCH + timedelta(seconds=place + 1),
        "value": value,
        "low": None if value is None else value - half,
        "high": None if value is None else value + half,
        "confidence": 1.0 if how == "exact" else 0.95,
        "how": how,
        "rate": 1.0,
        "met": True,
        "emitted_at": EPOCH,
    }
    return Answer(**{**fields, **more})


def report_of(found: list[Answer], true: list[Answer], contract: Contract, overlap: float = 1.0) -> Any:
    report = compare(found, true, {"q": Promise(contract, overlap)})
    return report, report.columns[0]


def test_intervals_that_hold_too_seldom_are_told() -> None:
    truth = [answer(i, 100) for i in range(200)]
    good = [answer(i, 100 if i % 20 else 90, how="sampled", half=5) for i in range(200)]
    report, column = report_of(good, truth, Error(0.05))
    assert report.passed
    assert column.coverage == Coverage(190, 200, pytest.approx(0.95))
    assert (column.errors.median, column.errors.worst, column.within) == (0.0, 0.1, 0.95)
    bad = [answer(i, 100 if i % 8 else 90, how="sampled", half=5) for i in range(200)]
    report, column = report_of(bad, truth, Error(0.05))
    assert not report.passed
    assert "87.5% of 200 intervals hold the truth, 95% is claimed" in report.problems[0]
    # windows that share nine of ten rows say no more than a tenth as many
    assert report_of(bad, truth, Error(0.05), overlap=10)[0].passed


def test_what_is_exact_must_be_there_and_be_true() -> None:
    truth = [answer(i, i + 0.1) for i in range(5)]
    assert report_of([answer(i, i + 0.1 + 1e-13) for i in range(5)], truth, Exact())[0].passed
    report, column = report_of([answer(0, 0.1), answer(1, 1.2), answer(9, 1.0)], truth, Exact())
    assert (column.differing, column.missing, column.compared) == (2, 3, 2)
    assert len(report.problems) == 2
    assert "3 answers are missing, and the contract is EXACT" in report.problems[1]


def test_a_subset_may_miss_answers_as_far_as_its_gap() -> None:
    truth = [answer(i, i) for i in range(10)]
    found = [answer(i, i, how="subset") for i in (0, 3, 4, 5, 7, 8, 9)]
    report, column = report_of(found, truth, Subset(2))
    assert report.passed
    assert (column.missing, column.gap, column.gap_allowed) == (3, 2, 2)
    report, _ = report_of(found, truth, Subset(1))
    assert report.problems == ("q.n: 2 answers in a row are missing, 1 are allowed",)
    report, _ = report_of([answer(0, 7, how="subset")], truth, Subset(20))
    assert len(report.problems) == 1


def test_gaps_are_those_of_windows_in_order() -> None:
    assert longest_gap([]) == 0
    moments = [EPOCH + timedelta(seconds=i) for i in range(6)]
    assert longest_gap(zip(moments[::-1], [True, False, False, True, False, True], strict=True)) == 2


def test_rows_are_compared_as_a_multiset() -> None:
    def row(size: int, how: Any = "sampled") -> Answer:
        return answer(
            0, None, how=how, column="*", window_start=None, window_end=None, at=EPOCH, keys=(("s", size),)
        )

    truth = [row(1, "exact"), row(1, "exact"), row(2, "exact")]
    report, column = report_of([row(1), row(1)], truth, Error(0.05))
    assert report.passed
    assert (column.missing, column.coverage) == (1, None)
    report, column = report_of([row(2), row(2)], truth, Error(0.05))
    assert (column.differing, column.missing) == (1, 2)
    assert "1 rows are none of the true ones" in report.problems[0]


def test_suspended_windows_speak_for_all_their_groups() -> None:
    truth = [answer(i, i, keys=(("k", k),)) for i in range(3) for k in "ab"]
    found = [answer(i, i, keys=(("k", k),)) for i in range(2) for k in "ab"]
    found.append(answer(2, None, how="suspended", keys=(("k", None),), met=False))
    report, column = report_of(found, truth, Exact())
    assert report.passed
    assert (column.suspended, column.missing, column.met) == (2, 0, 0.8)


def test_an_estimate_of_nothing_is_extra_and_not_wrong() -> None:
    report, column = report_of([answer(0, 0.0, how="sampled", half=3)], [], Error(0.05))
    assert report.passed
    assert (column.extra, column.differing) == (1, 0)


def test_an_answer_that_says_that_its_contract_was_kept_is_held_to_it() -> None:
    truth = [answer(i, 100) for i in range(200)]
    # the intervals hold, but say of wide ones that they are within 5 %
    wide = [answer(i, 100 if i % 3 else 92, how="sampled", half=20) for i in range(200)]
    report, column = report_of(wide, truth, Error(0.05))
    assert column.coverage.share == 1.0
    assert len(report.problems) == 1
    assert "of 200 answers that say that ERROR 5% was kept, it was by 66.5%" in report.problems[0]
    honest = [replace(one, met=False) for one in wide]
    report, column = report_of(honest, truth, Error(0.05))
    assert report.passed
    assert column.kept is None


def test_rows_of_a_time_for_which_rows_were_suspended_are_not_missing() -> None:
    def row(second: int, **more: Any) -> Answer:
        at = EPOCH + timedelta(seconds=second)
        return answer(0, None, **{"column": "*", "window_start": None, "window_end": None, "at": at, **more})

    truth = [row(second) for second in range(6)]
    silence = row(2, how="suspended", at=None, met=False)
    silence = replace(
        silence, window_start=EPOCH + timedelta(seconds=2), window_end=EPOCH + timedelta(seconds=5)
    )
    _, column = report_of([row(0), silence], truth, Error(0.05))
    assert (column.suspended, column.missing) == (3, 2)
