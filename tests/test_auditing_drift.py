"""What an audit compares under DRIFT, without Spark: cached answers beside the truth at every tick."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from current_harness import DirectAsking, items, run, values_of
from slackwater.language.contracts import Contract, Drift, Exact
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.planners.deferring import Rules, UnitCosts
from slackwater.runtime.answers import Answer
from slackwater.runtime.auditing import Promise, compare, promises
from slackwater.runtime.replaying import exact_sql
from slackwater.terminal.audit import show_report

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
STREAM = "CREATE STREAM t (ts TIMESTAMP, k BIGINT, x DOUBLE) USING scripted KEY k TIMESTAMP BY ts;\n"
FIVE = Drift(5.0, belief=0.9)


def said(second: float, value: float | None, half: float = 5.0, **more: Any) -> Answer:
    fields: dict[str, Any] = {
        "query": "q",
        "column": "n",
        "at": EPOCH + timedelta(seconds=second),
        "value": value,
        "low": None if value is None else value - half,
        "high": None if value is None else value + half,
        "confidence": 0.9,
        "how": "deferred",
        "rate": 1.0,
        "met": True,
        "emitted_at": EPOCH,
    }
    return Answer(**{**fields, **more})


def true(second: float, value: float | None, **more: Any) -> Answer:
    return said(second, value, 0.0, **{"how": "exact", "confidence": 1.0, **more})


def audited(
    found: Sequence[Answer], truth: Sequence[Answer], contract: Contract = FIVE, *earlier: Drift
) -> Any:
    report = compare(found, truth, {"q": Promise(contract, earlier=earlier)})
    return report, report.columns[0]


def every_tenth(wrong: int, of: int = 100) -> tuple[list[Answer], list[Answer]]:
    """An answer for every ten ticks; in so many stretches the truth is too far away from the second tick on."""
    truth = [true(t, 106.0 if t // 10 < wrong and t % 10 else 100.0) for t in range(10 * of)]
    return [said(10 * i, 100.0) for i in range(of)], truth


def test_a_cached_answer_counts_at_every_tick_until_the_next() -> None:
    report, column = audited(*every_tenth(8))
    drift = column.drift
    assert report.passed
    assert (drift.fidelity.inside, drift.fidelity.of, drift.fidelity.overlap) == (928, 1000, 10)
    assert drift.fidelity.claimed == pytest.approx(0.9)
    assert (column.saved, column.compared, column.missing, column.extra) == (0.9, 1000, 0, 0)
    assert (column.coverage, column.differing, drift.modelled, drift.late) == (None, 0, 0, 0)
    report, column = audited(*every_tenth(25))
    assert report.problems[0].startswith(
        "q.n: the cached answer was within its bound at 77.5% of 1,000 ticks, 90% is claimed"
    )
    # four stretches prove nothing, however many ticks they have
    found, truth = every_tenth(1, 4)
    assert audited(found, truth)[1].drift.fidelity.share < 0.8
    assert audited(found, truth)[0].passed


def test_long_stretches_weigh_more_than_short_ones() -> None:
    found = [said(t, 0.0) for t in range(50)] + [said(50 + 100 * i, 0.0) for i in range(10)]
    _, column = audited(found, [true(t, 0.0) for t in range(1050)])
    assert column.drift.fidelity.of / column.drift.fidelity.overlap == pytest.approx(11, abs=0.1)


def test_an_answer_moves_by_its_slope() -> None:
    truth = [true(t, 3.0 * t) for t in range(100)]
    moving = [said(0, 0.0, slope=3.0), said(50, 150.0, slope=3.1)]
    assert audited(moving, truth)[1].drift.fidelity.share == 1.0
    still = [replace(a, slope=None) for a in moving]
    assert audited(still, truth)[1].drift.fidelity.share == pytest.approx(0.04)


def test_an_answer_is_held_to_its_contract_and_to_its_own_interval() -> None:
    truth = [true(t, 100.0 + t % 10) for t in range(1000)]
    found = [said(10 * i, 100.0) for i in range(100)]
    share = audited(found, truth)[1].drift.fidelity.share
    assert share == pytest.approx(0.6)
    wide = [replace(a, low=0.0, high=200.0, confidence=0.1) for a in found]
    _, column = audited(wide, truth)
    assert (column.drift.fidelity.share, column.drift.fidelity.claimed) == (share, pytest.approx(0.9))
    narrow = [replace(a, low=98.0, high=102.0) for a in found]
    assert audited(narrow, truth)[1].drift.fidelity.share == pytest.approx(0.3)
    relative = Drift(0.03, relative=True, belief=0.9)
    assert audited(wide, truth, relative)[1].drift.fidelity.share == pytest.approx(0.4)
    # a version before allowed more, and who is to say which of the two an answer was for
    assert audited(found, truth, relative, FIVE)[1].drift.fidelity.share == share


def test_a_stretch_that_ends_late_has_been_said_to_be_broken() -> None:
    found, truth = every_tenth(40)
    late = [replace(a, met=not 1 <= i <= 40) for i, a in enumerate(found)]
    report, column = audited(late, truth)
    assert report.passed
    assert (column.drift.late, column.drift.late_within, column.met) == (400, 40, 0.6)
    assert (column.drift.fidelity.share, column.drift.fidelity.of) == (1.0, 600)
    assert not audited(found, truth)[0].passed
    # nobody can have said it yet of a stretch that the recording ends in
    others = [said(t, 0.0, keys=(("k", 1),), met=t != 955) for t in range(900, 1000, 5)]
    own = [replace(a, keys=(("k", 0),)) for a in found[:95]]
    _, column = audited(own + others, [replace(a, keys=(("k", 0),)) for a in truth])
    assert column.drift.late == 60


def test_modelled_answers_are_held_to_what_is_found_when_keys_are_back() -> None:
    # the exact run goes by what interrupted keys have said last: 100, until they are back at 90
    truth = [true(t, 90.0 if t % 20 < 10 else 100.0) for t in range(1000)]
    found = [said(20 * i, 90.0) for i in range(50)]
    # answers of one turn come by kind, not by time
    found += [said(20 * i + 10, 93.0, 8.0, how="modelled", met=False) for i in range(50)]
    report, column = audited(found, truth)
    drift = column.drift
    assert report.passed
    assert (drift.modelled, drift.returns.inside, drift.returns.of, drift.returns.overlap) == (500, 49, 49, 1)
    assert (drift.fidelity.share, drift.fidelity.of, column.compared, drift.late) == (1.0, 500, 500, 0)
    sure = [replace(a, low=91.0, high=95.0, met=True) if a.how == "modelled" else a for a in found]
    report, _ = audited(sure, truth)
    assert report.problems[0].startswith(
        "q.n: what was modelled held the truth at 0.0% of 49 returns of interrupted keys, 90% is claimed"
    )
    # a modelled answer that is wide says so, and does not say that the one before it was late
    late = [replace(a, met=False) if a.how == "modelled" else a for a in sure]
    assert audited(late, truth)[1].drift.late == 500
    # a hundred groups that are interrupted and back together are one trial
    keyed = [replace(a, keys=(("k", k),)) for a in (*sure[:2], sure[50]) for k in range(100)]
    told = [replace(a, keys=(("k", k),)) for a in truth[:30] for k in range(100)]
    report, column = audited(keyed, told)
    assert (column.drift.returns.inside, column.drift.returns.overlap) == (0, 100)
    assert report.passed


def test_what_was_not_answered_is_missing() -> None:
    truth = [true(t, 1.0, keys=(("k", k),)) for t in range(10) for k in "ab"]
    found = [said(4, 1.0, keys=(("k", "a"),)), said(0, 1.0, keys=(("k", "c"),))]
    report, column = audited(found, truth)
    assert (column.missing, column.compared, column.extra) == (14, 6, 1)
    assert report.problems == ("q.n: 14 answers are missing, and the contract is DRIFT 5 BELIEF 90%",)
    late = [replace(found[0], met=False), said(0, 1.0, keys=(("k", "b"),))]
    report, column = audited(late, truth)
    assert report.passed
    assert (column.missing, column.drift.late, column.drift.late_within) == (0, 14, 10)
    report, column = audited([], truth)
    assert (column.missing, column.drift.fidelity, column.saved) == (20, None, 1.0)


def test_that_there_is_no_value_is_said_once() -> None:
    truth = [true(t, None if 3 <= t < 7 else 1.0) for t in range(10)]
    _, column = audited([said(0, 1.0), said(3, None), said(7, 1.0)], truth)
    assert (column.drift.fidelity.inside, column.drift.fidelity.of) == (10, 10)
    _, column = audited([said(0, 1.0)], truth)
    assert column.drift.fidelity.inside == 6
    _, column = audited([said(0, None)], truth)
    assert column.drift.fidelity.inside == 4


def test_a_contract_that_changes_while_the_query_runs() -> None:
    sql = STREAM + "CREATE QUERY q AS SELECT SUM(x) AS n FROM LATEST(t) WITH {};"
    altered = "ALTER QUERY q WITH DRIFT 2;"
    texts = [sql.format("DRIFT 5 BELIEF 90%"), sql.format("EXACT"), sql.format("EXACT") + altered]
    catalogs = [Catalog.from_sql(text, Functions()) for text in texts]
    assert promises(catalogs)["q"].drifts == (FIVE, Drift(2.0))
    exact = [Catalog.from_sql(exact_sql(Path(), text), Functions()) for text in texts]
    assert [c.contracts["q"] for c in exact] == [Exact()] * 3
    later = Catalog.from_sql(exact_sql(Path(), texts[0] + "ALTER QUERY q WITH EXACT WEIGHT 2"), Functions())
    assert later.contracts["q"] == Exact(weight=2)
    truth = [true(t, float(t)) for t in range(30)]
    found = [said(0, 0.0), said(5, 5.0), *truth[10:20], said(20, 20.0), said(25, 25.0)]
    report, column = audited(found, truth, FIVE, FIVE)
    assert report.passed
    assert (column.compared, column.drift.fidelity.of, column.differing) == (30, 20, 0)
    # EXACT owes an answer at every tick, and a true one
    wrong = [*found[:5], *found[6:8], replace(found[8], value=0.0), *found[9:]]
    report, column = audited(wrong, truth, Exact(), FIVE)
    assert (column.missing, column.differing) == (1, 1)
    assert len(report.problems) == 2


def test_a_group_is_known_by_the_keys_that_both_runs_tell() -> None:
    keys = (("k", 1), ("shown", "one"))
    _, column = audited([said(0, 1.0, keys=keys[:1])], [true(t, 1.0, keys=keys) for t in range(5)])
    assert (column.missing, column.extra, column.drift.fidelity.of) == (0, 0, 5)


def test_the_report_says_what_was_promised_found_and_saved() -> None:
    found, truth = every_tenth(8)
    found = [*found[:99], replace(found[99], met=False)]
    report, _ = audited(found, truth)
    out = io.StringIO()
    show_report(report, Console(file=out, width=150))
    heading, row = out.getvalue().splitlines()[1:3]
    assert heading.split()[:8] == ["query", "ticks", "within", "95", "%", "range", "belief", "answers"]
    assert row.split()[:3] == ["q.n", "990", "92.73%"]
    assert row.split()[4:] == ["90%", "100", "90%", "10", "100%"]
    assert "DRIFT 5 BELIEF 90%" in out.getvalue()
    told = json.loads(json.dumps(report.as_dict()))["columns"][0]["drift"]
    assert told["fidelity"]["share"] == pytest.approx(0.9273, abs=1e-4)
    assert (told["late"], told["late_within"], told["modelled"], told["saved"]) == (10, 10, 0, 0.9)
    back, _ = audited([said(0, 100.0, how="modelled"), said(10, 100.0)], [true(t, 100.0) for t in range(20)])
    show_report(back, Console(file=(out := io.StringIO()), width=150))
    shown = " ".join(out.getvalue().splitlines()[2].split())
    assert shown == "q.n 10 100% 2.5%–100% 90% 2 90% 10 1 100% 2.5%–100% 90%"


# --- answers as the runtime gives them ------------------------------------------------------------


def answers_of(
    x: np.ndarray, contract: str, budgets: Sequence[float], silent: range = range(0)
) -> tuple[Any, Any, list[Answer]]:
    """A run over random walks in groups of three keys, with so much for the evaluations of each tick."""
    weights = [(g, (g + place) % x.shape[1], 1.0 + g % 5) for g in range(40) for place in range(3)]
    query = f"CREATE QUERY q AS SELECT k AS g, SUM(x) AS n FROM LATEST(t) GROUP BY k WITH {contract};"
    values, ask = values_of(STREAM + query), DirectAsking(weights)
    values.prepare(ask)
    found: list[Answer] = []
    costs = UnitCosts(entry=0.0, look=0.0, solve=1.0, answer=0.0)
    for t, budget in enumerate(budgets):
        rows = [(t, k, x[t, k]) for k in range(x.shape[1]) if not (t in silent and k < 2)]
        found += run(values, ask, items(rows), t, t + 1, Rules(budget, costs))
    matrix = np.zeros((40, x.shape[1]))
    for group, key, weight in weights:
        matrix[group, key] = weight
    known = x.copy()
    for t in silent:
        known[t, :2] = known[t - 1, :2]
    moment = datetime(1970, 1, 1, tzinfo=UTC)
    truth = [
        true(0, value, at=moment + timedelta(seconds=t), keys=(("g", group),))
        for t in range(len(budgets))
        for group, value in enumerate(matrix @ known[t])
    ]
    promised = promises([Catalog.from_sql(STREAM + query, Functions())])
    report = compare(found, truth, promised)
    return report, report.columns[0], found


def walks(ticks: int, seed: int, drift: float = 0.0) -> np.ndarray:
    return 1000 + np.cumsum(np.random.default_rng(seed).normal(drift, 1.0, (ticks, 12)), axis=0)


@pytest.mark.parametrize("contract", ["DRIFT 12 BELIEF 85%", "DRIFT 0.4% BELIEF 90% EXTRAPOLATE"])
def test_a_run_that_keeps_its_promise_passes(contract: str) -> None:
    report, column, found = answers_of(walks(500, seed=21, drift=0.3), contract, [1e9] * 500)
    assert report.passed, report.problems
    assert (column.missing, column.extra, column.drift.late) == (0, 0, 0)
    assert column.drift.fidelity.of == column.true == 20_000
    assert column.saved > 0.25
    assert len(found) == column.answers


def test_a_run_that_is_overloaded_says_so_and_passes() -> None:
    budgets = [2.0 if 100 < t < 160 else 1e9 for t in range(300)]
    report, column, found = answers_of(walks(300, seed=22), "DRIFT 6 BELIEF 90%", budgets)
    assert report.passed, report.problems
    assert column.drift.late > 2000
    assert column.drift.late_within / column.drift.late < 0.8
    assert column.missing == 0
    assert any(not a.met for a in found)


def test_a_run_with_interrupted_keys_passes() -> None:
    report, column, _ = answers_of(walks(300, 23), "DRIFT 8 BELIEF 90%", [1e9] * 300, range(200, 280))
    assert report.passed, report.problems
    assert column.drift.modelled > 500
    assert column.drift.returns.of == 14
    assert column.drift.returns.overlap == 14
    assert column.hows["modelled"] > 50
