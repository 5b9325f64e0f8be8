"""Queries come, change and go while windows are left out: nothing is delivered that has lost rows."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slackwater.planners.ruling import FixedRates
from slackwater.runtime.answers import Answer
from slackwater.runtime.session import Settings
from slackwater.runtime.testing import ListSink, run_scripted, scripted_session
from test_window_drop import ROWS, SPANS, STREAM, longest_missing, place

SUB = """CREATE QUERY sub AS SELECT COUNT(*) AS n, SUM(size) AS bytes FROM p WHERE port = 80
  GROUP BY window(ts, '1 second') WITH SUBSET GAP 4;"""
NESTED = """CREATE VIEW pairs AS SELECT SUM(size) AS bytes FROM p WHERE port = 80 GROUP BY window(ts, '2 seconds');
CREATE QUERY nested AS SELECT MAX(bytes) AS most FROM pairs GROUP BY window(ts, '6 seconds') WITH SUBSET GAP 2;"""


def changed(
    spark, before: str, change: str, *, timed: bool = True, share: float = 0.7, salt: int = 1
) -> list[Answer]:
    """The answers of a run whose query set is changed after half of its batches."""
    drops = dict.fromkeys(("sub", "other", "nested", "late", *(f"q{n}" for n in range(9))), share)
    spans = {"p": SPANS} if timed else {}
    session = scripted_session(
        spark,
        STREAM + before,
        {"p": ROWS},
        ruler=FixedRates(drops=drops),
        spans=spans,
        settings=Settings(salt=salt),
    )
    sink = ListSink()
    session.start(sink, manual=True)
    carrier = session.engine.executor.session.range(0)
    try:
        for number in range(len(ROWS)):
            if number == len(ROWS) // 2:
                session.sql(change)
            session.engine.batch("p", carrier, number)
    finally:
        session.stop()
    return sink.answers


def exact(spark, queries: str) -> dict[tuple[object, ...], Answer]:
    return {place(a): a for a in run_scripted(spark, STREAM + queries, {"p": ROWS})}


def true_ones(found: list[Answer], truth: dict[tuple[object, ...], Answer]) -> None:
    for answer in found:
        assert answer.value == truth[place(answer)].value, answer


LATE = {
    "same": "CREATE QUERY late AS SELECT COUNT(*) AS n FROM p WHERE port = 80 GROUP BY window(ts, '1 second') WITH EXACT;",
    "wider": "CREATE QUERY late AS SELECT SUM(size) AS s FROM p WHERE port = 80 GROUP BY window(ts, '3 seconds') WITH EXACT;",
    "nested": "CREATE QUERY late AS SELECT MAX(bytes) AS m FROM pairs GROUP BY window(ts, '4 seconds') WITH EXACT;",
}  # fmt: skip


@pytest.mark.parametrize(("kind", "timed"), [("same", True), ("wider", False), ("nested", True)])
def test_a_query_that_comes_later_is_exact_from_its_first_answer(spark, kind: str, timed: bool):
    late = LATE[kind]
    truth = exact(spark, SUB + NESTED + late)
    found = changed(spark, SUB + NESTED, late, timed=timed)
    true_ones(found, truth)
    mine = sorted((a for a in found if a.query == "late"), key=lambda a: a.window_start)
    assert len(mine) >= 3
    wanted = [a for a in truth.values() if a.query == "late" and a.window_start >= mine[0].window_start]
    assert len(mine) == len(wanted), "none is missing after the first"


def test_a_contract_that_becomes_exact_delivers_all_windows_that_have_lost_nothing(spark):
    truth = exact(spark, SUB)
    found = changed(spark, SUB, "ALTER QUERY sub WITH EXACT;")
    true_ones(found, truth)
    half = SPANS[len(ROWS) // 2][0]
    later = [a for a in truth.values() if a.window_start.timestamp() * 1e6 >= half + 1_000_000]
    got = {place(a) for a in found}
    assert all(place(a) in got for a in later)
    early = [a for a in truth.values() if a.window_start.timestamp() * 1e6 < half]
    assert any(place(a) not in got for a in early)


def test_a_query_that_joins_a_drop_breaks_no_gap(spark):
    other = "CREATE QUERY other AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '2 seconds') WITH SUBSET GAP 2;"
    truth = exact(spark, SUB + other)
    found = changed(spark, SUB, other, share=1.0)
    true_ones(found, truth)
    by_place = {place(a): a for a in found}
    for query, slide, gap in (("sub", 1, 4), ("other", 2, 2)):
        mine = [a for a in truth.values() if a.query == query]
        first = min(a.window_start for a in found if a.query == query)
        assert longest_missing([a for a in mine if a.window_start >= first], by_place, slide) <= gap
        assert any(a.query == query for a in found)


def test_a_dropped_query_leaves_the_others_as_they_were(spark):
    other = "CREATE QUERY other AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '2 seconds') WITH SUBSET GAP 4;"
    truth = exact(spark, SUB + other)
    found = changed(spark, SUB + other, "DROP QUERY other;")
    true_ones(found, truth)
    mine = [a for a in truth.values() if a.query == "sub"]
    assert longest_missing(mine, {place(a): a for a in found}, 1) <= 4
    last = max(a.window_start for a in found if a.query == "other")
    assert last < min(a.window_start for a in mine) + timedelta(seconds=45)


@pytest.mark.parametrize("salt", [1, 2, 3])
def test_a_change_takes_nothing_from_a_nested_query_that_goes_on(spark, salt: int):
    nested = NESTED.replace("MAX(bytes) AS most", "COUNT(*) AS n, SUM(bytes) AS bytes")
    other = "CREATE QUERY other AS SELECT COUNT(*) AS n FROM p WHERE port = 53 GROUP BY window(ts, '2 seconds') WITH EXACT;"
    truth = exact(spark, nested + other)
    found = changed(spark, nested, other, share=0.5, salt=salt)
    true_ones(found, truth)
    mine = [a for a in truth.values() if a.query == "nested"]
    assert longest_missing(mine, {place(a): a for a in found}, 6) <= 2


def test_a_member_of_a_signature_that_becomes_exact_leaves_its_lost_windows_out(spark):
    queries = "".join(
        f"CREATE QUERY q{n} AS SELECT COUNT(*) AS n FROM p WHERE size > {40 + n} GROUP BY window(ts, '6 seconds') "
        "WITH SUBSET GAP 3;"
        for n in range(9)
    )
    truth = exact(spark, queries)
    found = changed(spark, queries, "ALTER QUERY q8 WITH EXACT; ALTER QUERY q7 WITH ERROR 5%;", share=0.7)
    true_ones(found, truth)
    assert {a.query for a in found} >= {"q7", "q8"}
