"""What the demo's check says of stories that went well, and of others."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console

from slackwater.language.contracts import Contract, Drift, Error, Exact, Precision, Subset
from slackwater.runtime.answers import Answer
from slackwater.runtime.auditing import Promise, compare
from slackwater.terminal.demo_check import (
    Finding,
    alert_findings,
    audit_findings,
    bounds_findings,
    burst_findings,
    estimate_findings,
    latency_findings,
    show,
    span,
)
from slackwater.terminal.demo_load import Batch
from slackwater.terminal.demo_story import STORY, Chapter

SECOND = 1_000_000
INTERVAL = 2.0
START = 1_800_000_000 * SECOND
ORIGIN = datetime.fromtimestamp(START / 1e6, UTC)
CONTRACTS: dict[str, Contract] = {
    "all": Exact(),
    "some": Error(0.1),
    "seldom": Subset(3),
    "slow": Drift(1.0, belief=0.9),
    "hosts": Precision(4.0),
}


def chapters() -> list[tuple[int, Chapter]]:
    """The story as it is told from the start on."""
    found, at = [], START
    for chapter in STORY:
        found.append((at, chapter))
        at += int(chapter.seconds * SECOND)
    return found


def batches(multiple: float = 5.0, took: float = 1.0) -> list[Batch]:
    """A story with a batch each interval, all of them on time."""
    begin, end = span(chapters(), "burst")
    found = []
    for number in range(37):
        oldest = START + int(number * INTERVAL * SECOND)
        newest = oldest + int(INTERVAL * SECOND)
        high = begin <= oldest and newest <= end
        ended = newest + int(took * SECOND)
        load = multiple if high else 0.4
        rows, level = (10_000, 0.3) if high else (1_000, 0.0)
        found.append(Batch(number, oldest, newest, ended, took, rows, level, high, load, 1.0))
    return found


def held(findings: list[Finding]) -> list[bool]:
    return [finding.held for finding in findings]


def test_a_burst_that_was_one() -> None:
    assert held(burst_findings(batches(), chapters())) == [True, True, True]


def test_a_burst_that_was_too_small_or_not_shed_or_never_came() -> None:
    assert held(burst_findings(batches(multiple=2.9), chapters())) == [True, False, True]
    kept = [replace(b, sheds=False) for b in batches()]
    assert held(burst_findings(kept, chapters())) == [True, True, False]
    assert held(burst_findings([], chapters())) == [False, False, False]
    assert held(burst_findings(batches(), chapters()[:1])) == [False, False, False]
    unknown = [replace(b, capacity=None) for b in batches()]
    assert held(burst_findings(unknown, chapters())) == [True, False, True]


def test_a_capacity_that_shrinks_is_no_burst() -> None:
    same = [replace(b, rows=1_000) for b in batches()]
    assert held(burst_findings(same, chapters())) == [False, True, True]


def test_batches_that_kept_to_their_interval() -> None:
    assert held(latency_findings(batches(), chapters(), INTERVAL)) == [True, True, True]
    assert held(latency_findings(batches(took=2.0), chapters(), INTERVAL)) == [True, True, True]


def test_a_few_may_be_late_and_not_more() -> None:
    def late(count: int, took: float = 3.0) -> list[Batch]:
        return [
            replace(b, ended=b.newest + int(took * SECOND)) if 10 <= b.number < 10 + count else b
            for b in batches()
        ]

    assert held(latency_findings(late(3), chapters(), INTERVAL)) == [True, True, True]
    assert held(latency_findings(late(4), chapters(), INTERVAL)) == [False, True, True]
    assert held(latency_findings(late(1, took=7.0), chapters(), INTERVAL)) == [True, False, True]


def test_a_run_that_is_behind_at_its_end_or_has_no_batches() -> None:
    good = batches()
    behind = [*good[:-1], replace(good[-1], ended=good[-1].newest + 3 * SECOND)]
    assert held(latency_findings(behind, chapters(), INTERVAL)) == [True, True, False]
    assert held(latency_findings([], chapters(), INTERVAL)) == [False, False, False]
    # what was before the story says nothing
    cold = [replace(b, oldest=b.oldest - 10**9, newest=b.newest - 10**9) for b in good]
    assert held(latency_findings(cold, chapters(), INTERVAL)) == [False, False, False]


def answer(query: str, second: int, value: float, **more: object) -> Answer:
    end = ORIGIN + timedelta(seconds=second)
    fields: dict[str, object] = {
        "query": query,
        "column": "x",
        "window_start": end - timedelta(seconds=1),
        "window_end": end,
        "value": value,
        "low": value,
        "high": value,
        "confidence": 1.0,
        "how": "exact",
        "rate": 1.0,
        "met": True,
        "emitted_at": end,
    }
    return Answer(**(fields | more))  # type: ignore[arg-type]


def current(query: str, second: int, value: float | None, **more: object) -> Answer:
    """An answer of current values."""
    at = {"window_start": None, "window_end": None, "at": ORIGIN + timedelta(seconds=second)}
    return answer(query, second, value, **(at | more))  # type: ignore[arg-type]


def sampled(query: str, second: int, value: float, off: float = 0.0, **more: object) -> Answer:
    low, high = value + off - 5, value + off + 5
    how = {"how": "sampled", "low": low, "high": high, "confidence": 0.95, "rate": 0.5}
    return answer(query, second, value + off, **(how | more))


def judged(answers: list[Answer], truth: list[Answer]) -> dict[str, bool]:
    """By query: whether its finding held."""
    promised = {query: Promise(contract, 1.0, timedelta(seconds=1)) for query, contract in CONTRACTS.items()}
    findings = audit_findings(compare(answers, truth, promised), CONTRACTS)
    return {finding.what.split()[0]: finding.held for finding in findings}


def world() -> tuple[list[Answer], list[Answer]]:
    """Answers that keep all promises, and the truth."""
    seconds = range(1, 61)
    truth = [answer(q, s, 100.0 + s) for q in ("all", "some", "seldom") for s in seconds]
    truth += [current("slow", s, 10.0) for s in seconds]
    said = [answer("all", s, 100.0 + s) for s in seconds]
    said += [sampled("some", s, 100.0 + s, off=1.0) for s in seconds]
    said += [answer("seldom", s, 100.0 + s, how="subset") for s in seconds if s % 4 == 0 or s < 4]
    cached = {"how": "deferred", "confidence": 0.9, "low": 9.0, "high": 11.0}
    said += [current("slow", s, 10.0, **cached) for s in seconds if s % 5 == 1]
    return said, truth


def test_answers_that_are_what_they_say() -> None:
    assert judged(*world()) == {"all": True, "some": True, "seldom": True, "slow": True}


def test_an_exact_answer_that_differs_or_is_missing() -> None:
    said, truth = world()
    wrong = [replace(a, value=0.0) if a.query == "all" and a == said[7] else a for a in said]
    assert not judged(wrong, truth)["all"]
    assert not judged([a for a in said if a != said[7]], truth)["all"]


def test_intervals_that_do_not_hold() -> None:
    said, truth = world()
    far = [sampled("some", s, 100.0 + s, off=9.0) for s in range(1, 61)]
    found = judged([a for a in said if a.query != "some"] + far, truth)
    assert found == {"all": True, "some": False, "seldom": True, "slow": True}


def test_a_gap_that_is_too_long_and_a_subset_that_is_wrong() -> None:
    said, truth = world()
    sparse = [a for a in said if a.query != "seldom" or a.window_end is None or a.window_end.second % 8 == 0]
    assert not judged(sparse, truth)["seldom"]
    wrong = [replace(a, value=-1.0) if a.query == "seldom" else a for a in said]
    assert not judged(wrong, truth)["seldom"]


def test_cached_answers_that_are_out_of_bounds() -> None:
    said, truth = world()
    drifted = [replace(t, value=14.0) if t.query == "slow" else t for t in truth]
    assert not judged(said, drifted)["slow"]


def test_a_query_that_said_nothing() -> None:
    said, truth = world()
    for query in ("all", "some", "seldom", "slow"):
        assert not judged([a for a in said if a.query != query], truth)[query]


def bounded(second: int, value: float | None, **more: object) -> Answer:
    low = high = None
    if value is not None:
        low, high = value - 2, value + 2
    return current("hosts", second, value, **({"how": "bounded", "low": low, "high": high, "rows": 8} | more))


def bounds(answers: list[Answer], late: int = 0) -> list[bool]:
    return held(bounds_findings(answers, lambda a: 50.0, lambda a: 8, late))


def test_bounds_that_hold() -> None:
    good = [bounded(s, 51.0) for s in range(20)]
    away = bounded(30, None, met=False)
    assert bounds([*good, away]) == [True, True, True]
    # nobody was away, or it does not show
    assert bounds(good) == [True, True, False]
    # too few to tell
    assert bounds([*good[:5], away]) == [False, True, True]


def test_bounds_that_do_not() -> None:
    away = bounded(500, None, met=False)
    good = [bounded(s, 51.0) for s in range(200)]
    assert bounds([*good, bounded(201, 53.0), away]) == [False, True, True]
    # what came late is promised nothing, and is little
    assert bounds([*good, bounded(201, 53.0), away], late=3) == [True, True, True]
    assert bounds([*good, *(bounded(s, 53.0) for s in range(201, 206)), away], late=3) == [False, True, True]
    wide = [replace(a, met=False) for a in good]
    assert bounds([*wide, away]) == [True, False, True]


def test_bounds_before_all_keys_were_heard_of_are_passed_over() -> None:
    away = bounded(500, None, met=False)
    good = [bounded(s, 51.0) for s in range(20)]
    first = bounded(0, 7.0, met=False, rows=1)
    assert bounds([first, *good, away]) == [True, True, True]
    # one that says that it is met is held to it
    assert bounds([replace(first, met=True), *good, away]) == [False, True, True]


def estimates(answers: list[Answer]) -> dict[str, bool]:
    contracts = {q: CONTRACTS[q] for q in ("all", "some", "seldom")}
    return {f.what: f.held for f in estimate_findings(answers, contracts, chapters())}


def story(met: bool = True, end: str = "exact") -> list[Answer]:
    """Exact, in the burst estimated, exact."""
    found = []
    for second in range(1, 76):
        burst = 22 <= second <= 47
        more = {"how": "sampled" if burst else "exact", "met": met or not burst}
        if second > 70:
            more["how"] = end
        found += [answer("some", second, 1.0, **more), answer("seldom", second, 1.0)]
    return found


def given_up(answers: list[Answer]) -> list[Answer]:
    """The same with half of the estimates suspended."""
    return [
        replace(a, how="suspended", met=False, value=None, low=None, high=None)
        if a.how == "sampled" and a.window_end is not None and a.window_end.second % 2
        else a
        for a in answers
    ]


def test_estimates_that_came_and_went() -> None:
    assert set(estimates(story()).values()) == {True}
    assert len(estimates(story())) == 3


@pytest.mark.parametrize(
    ("answers", "broken"),
    [
        (story(met=False), "estimates in the burst"),
        (story(end="sampled"), "the last answers of some"),
        ([a for a in story() if a.how == "exact"], "estimates in the burst"),
        (given_up(story()), "estimates in the burst"),
        ([a for a in story() if a.query == "some"], "the last answers of seldom"),
    ],
)
def test_estimates_that_were_bad_or_stayed_or_never_were(answers: list[Answer], broken: str) -> None:
    assert [what for what, good in estimates(answers).items() if not good] == [broken]


@pytest.mark.parametrize(
    ("states", "good"),
    [
        (["raised", "cleared"], True),
        (["raised", "cleared", "raised", "cleared"], True),
        (["raised"], False),
        (["cleared"], False),
        ([], False),
    ],
)
def test_what_the_webhook_was_told(states: list[str], good: bool) -> None:
    assert held(alert_findings([{"state": state} for state in states])) == [good]


def test_what_is_printed_and_given_back() -> None:
    def printed(*findings: Finding) -> tuple[bool, str]:
        out = StringIO()
        return show(findings, Console(file=out, width=200)), out.getvalue()

    good, bad = Finding("one", "found 1", "wanted 1", True), Finding("two", "found 2", "wanted 3", False)
    passed, text = printed(good)
    assert passed
    assert "✓ latency held" in text
    passed, text = printed(good, bad)
    assert not passed
    assert "✗ two: found 2; wanted: wanted 3" in text
    assert "✓ latency held" not in text
