"""Queries over LATEST in the reference evaluator, against answers worked out by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import pytest

from reference_answers import at
from slackwater.errors import LanguageError, SourceError
from slackwater.reference.evaluate import ReferenceAnswer, Row, UserAggregate, evaluate, late_rows

STREAM = """
CREATE STREAM s (ts TIMESTAMP, k STRING, x INT, g STRING)
  USING kafka OPTIONS (subscribe 's') FORMAT json KEY k TIMESTAMP BY ts LATENESS 2 SECONDS {tick};
CREATE TABLE held (k STRING, account STRING, qty INT) USING parquet OPTIONS (path 'held');
"""

HELD: dict[str, list[Row]] = {
    "held": [
        {"k": "a", "account": "long", "qty": 2},
        {"k": "b", "account": "long", "qty": 1},
        {"k": "a", "account": "short", "qty": -3},
        {"k": None, "account": "nobody", "qty": 1000},
    ]
}


def row(second: float | None, k: str | None, x: int | None, g: str | None = "n") -> Row:
    return {"ts": None if second is None else at(second), "k": k, "x": x, "g": g}


def run(
    query: str,
    rows: Sequence[Row] | Sequence[Sequence[Row]],
    *,
    tick: str = "TICK 1 SECOND",
    tables: Mapping[str, Sequence[Row]] = HELD,
    functions: Mapping[str, Callable[..., object]] = {},
    aggregates: Mapping[str, UserAggregate] = {},
    end: bool = True,
) -> list[ReferenceAnswer]:
    """The answers of one query ``q``, or of a text that creates steps itself."""
    sql = STREAM.format(tick=tick)
    sql += query if query.lstrip().startswith("CREATE") else f"CREATE QUERY q AS {query}"
    batches = [rows] if rows and isinstance(rows[0], Mapping) else rows
    return evaluate(sql, {"s": batches}, tables, functions, aggregates, end)  # type: ignore[dict-item]


def seen(answers: Sequence[ReferenceAnswer]) -> str:
    """Of each answer the tick in seconds, the values of the keys, and the value unless it is a row's."""
    found = []
    for a in answers:
        assert a.at is not None
        assert (a.window_start, a.window_end) == (None, None)
        values = [v for _, v in a.keys] + ([] if a.column == "*" else [a.value])
        found.append(" ".join([f"{(a.at - at(0)).total_seconds():g}", *map(shown, values)]))
    return ", ".join(found)


def shown(value: object) -> str:
    """A value as text; a time as @ and its second."""
    if isinstance(value, datetime):
        return f"@{(value - at(0)).total_seconds():g}"
    return "NULL" if value is None else str(value)


# key a:   0.5:1  1:2            3:5
# key b:               1.2:10
# tick          1       2        3
FEW = [row(0.5, "a", 1), row(1, "a", 2), row(1.2, "b", 10), row(3, "a", 5)]


def test_every_tick_with_rows_has_the_aggregate_of_the_newest_row_of_each_key() -> None:
    answers = run("SELECT SUM(x) AS v FROM LATEST(s)", FEW)
    assert seen(answers) == "1 2, 2 12, 3 15"
    assert answers[0] == ReferenceAnswer("q", "v", None, None, at(1), (), 2)


def test_ticks_without_rows_have_no_answer() -> None:
    assert seen(run("SELECT COUNT(*) AS n FROM LATEST(s)", [row(1, "a", 1), row(7.5, "b", 1)])) == "1 1, 8 2"


def test_the_tick_is_a_second_where_none_is_declared() -> None:
    query = "SELECT SUM(x) AS v FROM LATEST(s)"
    assert run(query, FEW, tick="") == run(query, FEW)


def test_ticks_are_multiples_of_the_declared_length_since_the_epoch() -> None:
    assert seen(run("SELECT SUM(x) AS v FROM LATEST(s)", FEW, tick="TICK 2 SECONDS")) == "2 12, 4 15"
    (answer,) = run("SELECT COUNT(*) AS n FROM LATEST(s)", [row(0, "a", 1)], tick="TICK 7 SECONDS")
    assert answer.at is not None
    assert answer.at.timestamp() % 7 == 0
    assert 0 <= (answer.at - at(0)).total_seconds() < 7
    fine = run("SELECT SUM(x) AS v FROM LATEST(s)", FEW, tick="TICK 100 MILLISECONDS")
    assert seen(fine) == "0.5 1, 1 2, 1.2 12, 3 15"


def test_a_tick_before_the_epoch_lies_behind_its_rows() -> None:
    rows = [{"ts": datetime(1969, 12, 31, 23, 59, 58, 500_000, UTC), "k": "a", "x": 1}]
    (answer,) = run("SELECT SUM(x) AS v FROM LATEST(s)", rows)
    assert answer.at == datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)


def test_a_tick_is_complete_when_the_watermark_is_above_it() -> None:
    query = "SELECT SUM(x) AS v FROM LATEST(s)"
    assert run(query, [row(1, "a", 1), row(3, "b", 2)], end=False) == []  # the watermark is 3 - 2
    assert seen(run(query, [row(1, "a", 1), row(3.000001, "b", 2)], end=False)) == "1 1"
    assert seen(run(query, [row(1, "a", 1), row(3, "b", 2)])) == "1 1, 3 3"
    assert run(query, [], end=True) == []
    assert run(query, [[], []], end=True) == []


def test_a_batch_may_complete_several_ticks() -> None:
    rows = [*FEW, row(9, "c", 100)]
    assert seen(run("SELECT SUM(x) AS v FROM LATEST(s)", rows, end=False)) == "1 2, 2 12, 3 15"


def test_streams_have_ticks_of_their_own() -> None:
    sql = """
        CREATE STREAM r (ts TIMESTAMP, k STRING) USING kafka OPTIONS (subscribe 'r') FORMAT json
          KEY k TIMESTAMP BY ts;
        CREATE QUERY one AS SELECT COUNT(*) AS n FROM LATEST(s);
        CREATE QUERY other AS SELECT COUNT(*) AS n FROM LATEST(r);
    """
    streams: dict[str, list[list[Row]]] = {"s": [FEW], "r": [[{"ts": at(5.5), "k": "z"}]]}
    answers = evaluate(STREAM.format(tick="") + sql, streams)
    assert [a.query for a in answers] == ["one", "one", "one", "other"]
    assert seen(answers) == "1 1, 2 2, 3 2, 6 1"


def test_of_equal_times_the_row_that_came_last_is_current() -> None:
    query = "SELECT SUM(x) AS v FROM LATEST(s)"
    same = [row(1, "a", 1), row(1, "a", 4), row(1, "a", 2)]
    assert seen(run(query, same)) == "1 2"
    assert seen(run(query, [[r] for r in same])) == "1 2"


def test_an_older_row_that_comes_later_is_not_current() -> None:
    rows = [row(1, "a", 1), row(0.2, "a", 2), row(1.5, "b", 4)]
    assert seen(run("SELECT SUM(x) AS v FROM LATEST(s)", rows)) == "1 1, 2 5"


def test_null_is_a_key_like_any_other() -> None:
    rows = [row(1, None, 1), row(1, "a", 10), row(2, None, 2)]
    answers = run("SELECT k, SUM(x) AS v FROM LATEST(s) GROUP BY k", rows)
    assert seen(answers) == "1 NULL 1, 1 a 10, 2 NULL 2, 2 a 10"


def test_a_key_may_have_several_columns() -> None:
    sql = """
        CREATE STREAM r (ts TIMESTAMP, k STRING, l INT, x INT) USING kafka OPTIONS (subscribe 'r')
          FORMAT json KEY (l, k) TIMESTAMP BY ts;
        CREATE QUERY q AS SELECT SUM(x) AS v FROM LATEST(r);
        CREATE QUERY rows AS SELECT k, x FROM LATEST(r);
    """
    listed = [(1, "a", 1, 1), (1, "a", 2, 10), (1, "a", None, 100), (2, "a", None, 200), (2, "b", 1, 1000)]
    rows: list[Row] = [{"ts": at(t), "k": k, "l": l_, "x": x} for t, k, l_, x in listed]
    answers = evaluate(sql, {"r": [rows]})
    assert seen(answers[:2]) == "1 111, 2 1211"
    # by l and then k, as declared
    assert seen(answers[2:]) == "1 a 100, 1 a 1, 1 a 10, 2 a 200, 2 a 1, 2 b 1000, 2 a 10"


def test_a_null_value_is_current_too() -> None:
    query = "SELECT COUNT(*) AS n, COUNT(x) AS c, AVG(x) AS m FROM LATEST(s)"
    rows = [row(1, "a", 4), row(1, "b", 8), row(2, "b", None), row(3, "a", None)]
    assert [a.value for a in run(query, rows)] == [2, 2, 6.0, 2, 1, 4.0, 2, 0, None]


def test_the_time_may_come_from_an_expression() -> None:
    sql = """
        CREATE STREAM e (t BIGINT, k INT, x INT) USING kafka OPTIONS (subscribe 'e') FORMAT json
          KEY k TIMESTAMP BY timestamp_millis(t) AS ts;
        CREATE QUERY q AS SELECT SUM(x) AS v, MAX(ts) AS m FROM LATEST(e);
    """
    rows: list[Row] = [{"t": 500, "k": 1, "x": 1}, {"t": None, "k": 1, "x": 9}, {"t": 1000, "k": 2, "x": 2}]
    answers = evaluate(sql, {"e": [rows]})
    second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert [(a.at, a.value) for a in answers] == [(second, 3), (second, second)]


# LATENESS 2. Batch 0 reaches 5: the watermark is 3, tick 1 is complete.
# Batch 1: 1.5 is late, since tick 2 was complete. 2.5 is not: tick 3 was not above the watermark but at it.
#          It reaches 5.5: the watermark is 3.5, tick 3 is complete.
# Batch 2: 0.2 is late; nothing more is complete before the end.
LATE = [
    [row(1, "a", 1), row(5, "a", 5)],
    [row(1.5, "b", 100), row(2.5, "c", 20), row(5.5, "a", 6)],
    [row(0.2, "d", 1000), row(None, "e", 10000)],
]


def test_late_rows_are_known_from_the_next_tick_that_is_evaluated() -> None:
    query = "SELECT SUM(x) AS v FROM LATEST(s)"
    # tick 2 holds a late row only, and is not evaluated
    assert seen(run(query, LATE)) == "1 1, 3 121, 5 1125, 6 1126"
    assert seen(run(query, LATE, end=False)) == "1 1, 3 121"
    # the same row comes before the batch that completes tick 3, or after it
    early = [LATE[0], LATE[2], LATE[1]]
    assert seen(run(query, early)) == "1 1, 3 1121, 5 1125, 6 1126"


def test_a_row_may_be_late_for_windows_and_in_time_for_latest() -> None:
    assert late_rows(STREAM.format(tick=""), {"s": LATE}) == {"s": 3}  # 1.5, 2.5 and 0.2


def test_a_late_row_is_current_only_where_it_is_the_newest_of_its_key() -> None:
    # watermark 8 after the first batch: 4 and 6 are late; a has 5 already, b only 1
    batches = [
        [row(1, "b", 1), row(5, "a", 5), row(10, "c", 0)],
        [row(4, "a", 40), row(4, "b", 400), row(6, "b", 600)],
    ]
    answers = run("SELECT k, x FROM LATEST(s)", batches)
    assert seen(answers) == "1 b 1, 5 a 5, 5 b 1, 10 a 5, 10 b 600, 10 c 0"


def test_a_late_row_of_the_same_time_came_last() -> None:
    batches = [[row(1, "a", 1), row(10, "b", 0)], [row(1, "a", 2)]]
    assert seen(run("SELECT SUM(x) AS v FROM LATEST(s)", batches)) == "1 1, 10 2"


def test_without_late_rows_the_cuts_do_not_matter() -> None:
    dice = random.Random(3)
    queries = """
        CREATE QUERY q AS SELECT g, SUM(x) AS v, max_over(SUM(x), '3 seconds') AS h FROM LATEST(s) GROUP BY g;
        CREATE QUERY r AS SELECT k, x FROM LATEST(s) WHERE x > 3;
    """
    rows = [row(t / 10, dice.choice("abc"), dice.randrange(9), dice.choice("mn")) for t in range(0, 99, 7)]
    # out of order by less than the LATENESS
    rows.sort(key=lambda r: (r["ts"] - at(0)).total_seconds() + dice.random())  # type: ignore[operator]
    whole = run(queries, rows)
    assert run(queries, [[r] for r in rows]) == whole
    assert run(queries, [rows[:4], [], rows[4:9], rows[9:]]) == whole
    for query in ("q", "r"):
        found = [a for a in run(queries, [[r] for r in rows], end=False) if a.query == query]
        expected = [a for a in whole if a.query == query]
        assert 0 < len(found) < len(expected)
        assert found == expected[: len(found)]


def test_where_is_asked_of_the_current_row() -> None:
    # at 3 the newest of a is 5: its older 2 does not come back
    assert seen(run("SELECT SUM(x) AS v FROM LATEST(s) WHERE x < 5 OR x = 10", FEW)) == "1 2, 2 12, 3 10"


def test_without_group_by_there_is_one_answer_even_of_no_rows() -> None:
    query = "SELECT 'all' AS which, COUNT(*) AS n, SUM(x) AS v FROM LATEST(s) WHERE x > 4"
    assert seen(run(query, FEW)) == "1 all 0, 1 all NULL, 2 all 1, 2 all 10, 3 all 2, 3 all 15"
    assert [a.column for a in run(query, FEW)[:2]] == ["n", "v"]


def test_a_key_moves_from_group_to_group() -> None:
    rows = [row(1, "a", 1, "m"), row(1, "b", 2, "n"), row(2, "a", 4, "n"), row(3, "b", 8, None)]
    answers = run("SELECT g, SUM(x) AS v, COUNT(*) AS n FROM LATEST(s) GROUP BY g", rows)
    assert seen(answers) == "1 m 1, 1 m 1, 1 n 2, 1 n 1, 2 n 6, 2 n 2, 3 NULL 8, 3 NULL 1, 3 n 4, 3 n 1"


def test_keys_are_named_as_in_windows_and_answers_come_by_tick_and_keys() -> None:
    rows = [row(1, "b", 3), row(1, "a", 2), row(1, "c", 5)]
    answers = run("SELECT MAX(x) AS v, upper(g) AS u FROM LATEST(s) GROUP BY x % 2, g", rows)
    assert [(a.column, a.keys, a.value) for a in answers] == [
        ("v", (("x % 2", 0), ("g", "n"), ("u", "N")), 2),
        ("v", (("x % 2", 1), ("g", "n"), ("u", "N")), 5),
    ]
    answers = run("SELECT upper(k) AS u, COUNT(*) AS n FROM LATEST(s) GROUP BY u", rows)
    assert seen(answers) == "1 A 1, 1 B 1, 1 C 1"


def test_groups_without_aggregate_are_rows() -> None:
    answers = run("SELECT x % 2 AS odd FROM LATEST(s) GROUP BY x % 2", FEW)
    assert {a.column for a in answers} == {"*"}
    assert seen(answers) == "1 0, 2 0, 3 0, 3 1"


def test_having() -> None:
    rows = [row(1, "a", 1, "m"), row(1, "b", 2, "n"), row(2, "c", 4, "m")]
    query = "SELECT g, SUM(x) AS v FROM LATEST(s) GROUP BY g HAVING "
    assert seen(run(query + "SUM(x) > 1 AND g <> 'z'", rows)) == "1 n 2, 2 m 5, 2 n 2"
    assert seen(run(query + "v > 2", rows)) == "2 m 5"
    assert seen(run(query + "COUNT(*) = 2", rows)) == "2 m 5"
    assert seen(run("SELECT SUM(x) AS v FROM LATEST(s) HAVING COUNT(*) > 2", rows)) == "2 7"
    assert run("SELECT SUM(x) AS v FROM LATEST(s) WHERE x > 9 HAVING v > 0", rows) == []


def test_all_aggregates() -> None:
    rows = [row(1, k, x) for k, x in zip("abcde", (1, 2, 2, 4, None), strict=True)]
    items = {
        "COUNT(*)": 5,
        "COUNT(x)": 4,
        "COUNT_IF(x > 1)": 3,
        "COUNT(DISTINCT x)": 3,
        "SUM(x)": 9,
        "SUM(DISTINCT x)": 7,
        "AVG(x)": 2.25,
        "MIN(x)": 1,
        "MAX(x)": 4,
        "VAR_POP(x)": 1.1875,
        "STDDEV_POP(x)": math.sqrt(1.1875),
        "MEDIAN(x)": 2.0,
        "PERCENTILE(x, 0.25)": 1.75,
        "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x)": 2.0,
        "BOOL_AND(x > 1)": False,
        "ANY(x > 3)": True,
        "SUM(x) FILTER (WHERE x < 4)": 5,
        "SUM(x) / COUNT(*)": 1.8,
    }
    listed = ", ".join(f"{item} AS c{i}" for i, item in enumerate(items))
    assert [a.value for a in run(f"SELECT {listed} FROM LATEST(s)", rows)] == list(items.values())


def test_users_aggregates_get_the_rows_in_order_of_time_and_arrival() -> None:
    spell = UserAggregate(init=str, incr=lambda state, k: state + k, final=lambda state: state)
    rows = [row(3, "b", 1), row(2, "c", 1), row(3, "a", 1), row(1, "z", 1), row(1, "c", 1)]
    answers = run("SELECT spell(k) AS v FROM LATEST(s)", rows, aggregates={"spell": spell})
    assert seen(answers) == "1 zc, 2 zc, 3 zcba"
    query = "SELECT spell(k) AS v FROM (SELECT k FROM LATEST(s) LEFT JOIN held USING (k))"  # a is held twice
    assert seen(run(query, rows, aggregates={"spell": spell})) == "1 zc, 2 zc, 3 zcbaa"


def test_users_functions() -> None:
    answers = run(
        "SELECT SUM(twice(x)) AS v FROM LATEST(s)",
        FEW,
        functions={"twice": lambda x: None if x is None else 2 * x},
    )
    assert seen(answers) == "1 4, 2 24, 3 30"


def test_contracts_are_passed_over() -> None:
    plain = run("SELECT AVG(x) AS v FROM LATEST(s)", FEW)
    for contract in ("PRECISION 5", "DRIFT 1%", "EXACT"):
        assert run(f"SELECT AVG(x) AS v FROM LATEST(s) WITH {contract}", FEW) == plain


@pytest.mark.parametrize("condition", ["USING (k)", "ON s.k = held.k", "ON held.k = s.k AND qty <> 0"])
def test_a_key_may_match_many_rows_of_a_table(condition: str) -> None:
    # tick 1: a = 2; tick 2: b = 10; tick 3: a = 5.  long = 2 a + b, short = -3 a
    query = f"SELECT account, SUM(qty * x) AS v FROM LATEST(s) JOIN held {condition} GROUP BY account"
    rows = [*FEW, row(3, "c", 9), row(3, None, 7)]
    assert seen(run(query, rows)) == "1 long 4, 1 short -6, 2 long 14, 2 short -6, 3 long 20, 3 short -15"
    left = query.replace("JOIN", "LEFT JOIN")
    assert seen(run(left, rows)[-3:]) == "3 NULL NULL, 3 long 20, 3 short -15"


def test_a_lookup_multiplies_rows_over_latest_only() -> None:
    query = "SELECT COUNT(*) AS n, SUM(x) AS v FROM LATEST(s) AS l JOIN held AS h ON l.k = h.k"
    assert seen(run(query, FEW)) == "1 2, 1 4, 2 3, 2 14, 3 3, 3 20"
    with pytest.raises(SourceError, match="at most one"):
        run("SELECT account FROM s JOIN held USING (k)", FEW)


def test_weights_may_be_null_and_cancel_out() -> None:
    tables = {"held": [{"k": "a", "account": "x", "qty": q} for q in (1, None, -1)]}
    query = "SELECT SUM(qty * x) AS v, COUNT(*) AS n, COUNT(qty) AS c FROM LATEST(s) JOIN held USING (k)"
    assert [a.value for a in run(query, FEW, tables=tables)[:3]] == [0, 3, 2]


def test_lookups_in_a_set_valued_query_keep_the_order_of_the_table() -> None:
    answers = run(
        "SELECT account, x * qty AS w FROM LATEST(s) JOIN held USING (k)", [row(1, "b", 3), row(1, "a", 2)]
    )
    assert seen(answers) == "1 long 4, 1 short -6, 1 long 3"


def test_a_set_valued_query_shows_all_current_rows_at_every_tick_by_the_streams_key() -> None:
    answers = run("SELECT x * 2 AS double, k FROM LATEST(s) WHERE x <> 5", FEW)
    assert answers[1] == ReferenceAnswer("q", "*", None, None, at(2), (("double", 4), ("k", "a")), None)
    assert seen(answers) == "1 4 a, 2 4 a, 2 20 b, 3 20 b"


def test_star_shows_the_rows_own_time() -> None:
    answers = run("SELECT * FROM LATEST(s)", [row(0.5, "a", 1)])
    assert answers[0].keys == (("ts", at(0.5)), ("k", "a"), ("x", 1), ("g", "n"))
    assert answers[0].at == at(1)


# SUM(x) over keys a and b:   tick   1   2   3   6   7
#                              sum   9   4   6   5   7
UPS = [row(1, "a", 9), row(2, "a", 3), row(2, "b", 1), row(3, "b", 3), row(6, "b", 2), row(7, "a", 5)]


@pytest.mark.parametrize(
    ("call", "values"),
    [
        ("max_over(SUM(x), '1 second')", "9 9 6 5 7"),
        ("max_over(SUM(x), '3 seconds')", "9 9 9 6 7"),  # both ends belong to it: 6 still sees 3
        ("max_over(SUM(x), '2999 milliseconds')", "9 9 9 5 7"),
        ("max_over(SUM(x), INTERVAL 5 SECONDS)", "9 9 9 9 7"),
        ("min_over(SUM(x), '3 seconds')", "9 4 4 5 5"),
        ("MIN_OVER(SUM(x), '1 hour')", "9 4 4 4 4"),
        ("max_since(SUM(x), TIMESTAMP '2024-01-01 00:00:02')", "NULL 4 6 6 7"),
        ("max_since(SUM(x), TIMESTAMP '2024-01-01 00:00:02.000001')", "NULL NULL 6 6 7"),
        ("max_since(SUM(x), TIMESTAMP '2024-01-01 02:00:02+02:00')", "NULL 4 6 6 7"),
        ("max_since(SUM(x), TIMESTAMP '2024-01-01')", "9 9 9 9 9"),
        ("min_since(SUM(x), TIMESTAMP '2024-01-01 00:00:06')", "NULL NULL NULL 5 5"),
        ("max_since(SUM(x), TIMESTAMP '2030-01-01')", "NULL NULL NULL NULL NULL"),
        ("max_over(SUM(x) * -10 + COUNT(*), '3 seconds')", "-89 -38 -38 -48 -48"),
        ("max_over(SUM(x), '3 seconds') - SUM(x)", "0 5 3 1 0"),
        ("max_over(SUM(x), '3 seconds') - min_over(SUM(x), '3 seconds')", "0 5 5 1 2"),
    ],
)
def test_extremes(call: str, values: str) -> None:
    expected = zip("12367", values.split(), strict=True)
    assert seen(run(f"SELECT {call} AS v FROM LATEST(s)", UPS)) == ", ".join(map(" ".join, expected))


def test_an_extreme_stands_beside_other_items() -> None:
    answers = run("SELECT SUM(x) AS v, max_over(SUM(x), '1 hour') AS m, 'k' AS c FROM LATEST(s)", UPS)
    assert [(a.column, a.keys, a.value) for a in answers[2:4]] == [
        ("v", (("c", "k"),), 4),
        ("m", (("c", "k"),), 9),
    ]


def test_an_extreme_of_a_group_is_over_the_ticks_where_the_group_has_rows() -> None:
    # a: m at 1, n at 2 and 3, m again from 4.  b: n at 3 and later
    rows = [row(1, "a", 5, "m"), row(2, "a", 9, "n"), row(3, "b", 1, "n"), row(4, "a", 2, "m")]
    query = "SELECT g, max_over(SUM(x), '{}') AS v, min_over(COUNT(*), '{}') AS n FROM LATEST(s) GROUP BY g"
    answers = run(query.format("1 hour", "1 hour"), rows)
    assert seen(answers) == "1 m 5, 1 m 1, 2 n 9, 2 n 1, 3 n 10, 3 n 1, 4 m 5, 4 m 1, 4 n 10, 4 n 1"
    assert seen(run(query.format("2 seconds", "1 second"), rows)[-4::2]) == "4 m 2, 4 n 10"


def test_an_extreme_may_name_the_groups_keys() -> None:
    rows = [row(1, "a", 1), row(1, "b", 3), row(2, "a", 9), row(2, "b", 2)]
    query = (
        "SELECT x % 2 AS odd, max_over(SUM(x) + 100 * (x % 2), '1 hour') AS v FROM LATEST(s) GROUP BY x % 2"
    )
    assert seen(run(query, rows)) == "1 1 104, 2 0 2, 2 1 109"


def test_without_group_by_no_rows_count_as_an_aggregate_over_nothing() -> None:
    query = (
        "SELECT min_over(COUNT(*), '1 hour') AS n, max_over(SUM(x), '1 hour') AS v FROM LATEST(s) WHERE x > 4"
    )
    assert seen(run(query, UPS)[:6]) == "1 1, 1 9, 2 0, 2 9, 3 0, 3 9"
    query = "SELECT max_over(SUM(x), '1 second') AS v FROM LATEST(s) WHERE x > 4"
    assert seen(run(query, UPS)) == "1 9, 2 9, 3 NULL, 6 NULL, 7 5"


def test_extremes_pass_over_null_and_put_nan_above_all() -> None:
    rows = [row(1, "a", None), row(2, "a", 1), row(3, "a", None)]
    query = "SELECT max_over({}, '1 hour') AS v FROM LATEST(s)"
    assert seen(run(query.format("AVG(x)"), rows)) == "1 NULL, 2 1.0, 3 1.0"
    assert seen(run(query.format("10 / SUM(x - 1)"), rows)) == "1 NULL, 2 NULL, 3 NULL"
    rows = [row(1, "a", 0), row(2, "a", 4), row(3, "a", 0)]
    assert seen(run(query.format("SUM(SQRT(0 - x))"), rows)) in (
        "1 0.0, 2 nan, 3 nan",
        "1 -0.0, 2 nan, 3 nan",
    )


def test_extremes_over_lookups() -> None:
    # long = 2 a + b: 4 14 20, short = -3 a: -6 -6 -15
    query = (
        "SELECT account, min_over(SUM(qty * x) / 2, '1 hour') AS low FROM LATEST(s) JOIN held USING (k) "
        "GROUP BY account"
    )
    answers = run(query, FEW)
    assert seen(answers) == "1 long 2.0, 1 short -3.0, 2 long 2.0, 2 short -3.0, 3 long 2.0, 3 short -7.5"


def test_having_may_ask_for_an_extreme_and_name_an_item_in_it() -> None:
    query = "SELECT SUM(x) AS v, COUNT(*) AS x FROM LATEST(s) HAVING "
    expected = "3 6, 3 2, 6 5, 6 2"
    assert seen(run(query + "max_over(SUM(x), '3 seconds') - SUM(x) IN (1, 3)", UPS)) == expected
    # v is the item; inside SUM x is the column, outside of it the item
    assert seen(run(query + "max_over(v, '3 seconds') - v IN (1, 3)", UPS)) == expected
    assert seen(run(query + "max_over(v - SUM(x) + x, '3 seconds') = 1", UPS)) == "1 9, 1 1"


def test_late_rows_repair_the_past() -> None:
    # Ticks 1 and 2 are answered after the first batch. Then it turns out that b was 7 from 1.6 on; that a was
    # 50 from 1.5 on changes nothing, since at tick 2 it was 2 again. So tick 2 has 2 + 7.
    batches = [
        [row(1, "a", 1), row(2, "a", 2), row(5, "a", 5)],
        [row(1.5, "a", 50), row(1.6, "b", 7), row(6, "a", 6)],
    ]
    query = "SELECT SUM(x) AS v, max_over(SUM(x), '1 hour') AS m FROM LATEST(s)"
    assert seen(run(query, batches)) == "1 1, 1 1, 2 2, 2 2, 5 12, 5 12, 6 13, 6 13"
    lower = "SELECT min_over(SUM(x), '3 seconds') AS m FROM LATEST(s)"
    assert seen(run(lower, batches)) == "1 1, 2 1, 5 9, 6 12"


def test_a_late_row_may_put_an_old_extreme_right() -> None:
    # At tick 1 a seems to be 90; that it was 3 at 0.9 comes too late, and then 90 was never at a tick.
    batches = [[row(0.5, "a", 90), row(5, "a", 5)], [row(0.9, "a", 3), row(5.5, "b", 1)]]
    assert seen(run("SELECT max_over(SUM(x), '1 hour') AS m FROM LATEST(s)", batches)) == "1 90, 5 5, 6 6"
    # but not before its batch has come
    cut = [*batches[:1], [row(8, "c", 0)], batches[1]]
    assert seen(run("SELECT max_over(SUM(x), '1 hour') AS m FROM LATEST(s)", cut)) == "1 90, 5 90, 6 6, 8 6"


PER_GROUP = "CREATE VIEW per_group AS SELECT g, SUM(x) AS p FROM LATEST(s) GROUP BY g;"
# group m:  1: 1        2: 5 (a, c)   3: 5
# group n:  1: 2        2: 2          3: 9
GROUPED = [row(1, "a", 1, "m"), row(1, "b", 2, "n"), row(2, "c", 4, "m"), row(3, "b", 9, "n")]


def test_a_query_over_an_aggregating_view() -> None:
    sql = PER_GROUP + "CREATE QUERY q AS SELECT MAX(p) AS v, COUNT(*) AS n FROM per_group"
    assert seen(run(sql, GROUPED)) == "1 2, 1 2, 2 5, 2 2, 3 9, 3 2"


def test_a_query_over_a_query_and_both_answer() -> None:
    sql = """
        CREATE QUERY top AS SELECT MAX(p) AS v FROM per_group WITH DRIFT 5%;
        CREATE QUERY per_group AS SELECT g, SUM(x) AS p FROM LATEST(s) GROUP BY g HAVING p > 1;
        CREATE QUERY wide AS SELECT p - v AS d FROM (SELECT p, 0 AS v FROM per_group) WHERE p > 4;
    """
    answers = run(sql, GROUPED)
    assert seen([a for a in answers if a.query == "top"]) == "1 2, 2 5, 3 9"
    assert seen([a for a in answers if a.query == "per_group"]) == "1 n 2, 2 m 5, 2 n 2, 3 m 5, 3 n 9"
    assert seen([a for a in answers if a.query == "wide"]) == "2 5, 3 5, 3 9"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT MAX(i.p) AS v FROM (SELECT g, SUM(x) AS p FROM LATEST(s) GROUP BY g) AS i",
        "WITH i AS (SELECT g, SUM(x) AS p FROM LATEST(s) GROUP BY g) SELECT MAX(p) AS v FROM i",
        "WITH c AS (SELECT g, x AS y FROM LATEST(s)), i AS (SELECT g, SUM(y) AS p FROM c GROUP BY g) "
        "SELECT MAX(j.p) AS v FROM i AS j",
    ],
)
def test_subqueries_and_ctes(query: str) -> None:
    assert seen(run(query, GROUPED)) == "1 2, 2 5, 3 9"


def test_projections_are_looked_through() -> None:
    sql = """
        CREATE VIEW big AS SELECT k AS who, x * 10 AS y FROM LATEST(s) WHERE x > 1;
        CREATE QUERY q AS SELECT SUM(y) AS v, MAX(ts) AS t FROM big;
        CREATE QUERY r AS SELECT who, y FROM big WHERE y < 90;
    """
    answers = run(sql, GROUPED)
    assert seen(answers[:6]) == "1 20, 1 @1, 2 60, 2 @2, 3 130, 3 @3"
    assert seen(answers[6:]) == "1 b 20, 2 b 20, 2 c 40, 3 c 40"


def test_an_aggregating_step_hands_on_its_items_and_the_tick() -> None:
    sql = PER_GROUP + "CREATE QUERY q AS SELECT * FROM per_group WHERE g = 'm'"
    answers = run(sql, GROUPED)
    assert [a.keys for a in answers] == [
        (("g", "m"), ("p", 1), ("ts", at(1))),
        (("g", "m"), ("p", 5), ("ts", at(2))),
        (("g", "m"), ("p", 5), ("ts", at(3))),
    ]
    own = "SELECT ts FROM (SELECT MIN(ts) AS ts FROM LATEST(s))"
    assert seen(run(own, GROUPED)) == "1 @1, 2 @1, 3 @1"


def test_without_group_by_a_nested_query_answers_even_where_the_inner_one_has_no_rows() -> None:
    sql = PER_GROUP + "CREATE QUERY q AS SELECT COUNT(*) AS n, SUM(p) AS v FROM per_group WHERE p > 4"
    assert seen(run(sql, GROUPED)) == "1 0, 1 NULL, 2 1, 2 5, 3 2, 3 14"


def test_lookups_over_an_aggregating_step_may_match_many_rows() -> None:
    sql = "CREATE VIEW per_key AS SELECT k, SUM(x) AS p FROM LATEST(s) GROUP BY k;"
    sql += "CREATE QUERY q AS SELECT SUM(p * qty) AS v FROM per_key JOIN held USING (k)"
    assert seen(run(sql, FEW)) == "1 -2, 2 8, 3 5"


def test_extremes_inside_and_outside_of_a_nested_query() -> None:
    rows = [row(1, "a", 9, "m"), row(2, "a", 3, "m"), row(2, "b", 4, "n"), row(3, "b", 1, "n")]
    # m: 9 3 3   n: - 4 1    largest: 9 4 3    largest within 1 s: m 9 9 3, n - 4 4
    outer = PER_GROUP + "CREATE QUERY q AS SELECT max_over(MAX(p), '1 second') AS v FROM per_group"
    assert seen(run(outer, rows)) == "1 9, 2 9, 3 4"
    inner = PER_GROUP.replace("SUM(x)", "max_over(SUM(x), '1 second')")
    assert seen(run(inner + "CREATE QUERY q AS SELECT MIN(p) AS v FROM per_group", rows)) == "1 9, 2 4, 3 3"
    both = inner + "CREATE QUERY q AS SELECT min_over(SUM(p), '1 hour') AS v FROM per_group"
    assert seen(run(both, rows)) == "1 9, 2 9, 3 7"  # 9, 9 + 4, 3 + 4


def test_extremes_of_a_nested_query_are_repaired_too() -> None:
    batches = [[row(1, "a", 1, "m"), row(5, "a", 5, "m")], [row(0.5, "b", 9, "n"), row(6, "a", 6, "m")]]
    sql = PER_GROUP + "CREATE QUERY q AS SELECT max_over(MAX(p) - MIN(p), '1 hour') AS v FROM per_group"
    assert seen(run(sql, batches)) == "1 0, 5 8, 6 8"


def by_definition(batches: Sequence[Sequence[Row]], reach: int) -> str:
    """SUM(x) and its maximum over ``reach`` seconds, straight from the words of the definition; LATENESS 2."""
    times = [[(r["ts"] - at(0)).total_seconds() for r in batch] for batch in batches]  # type: ignore[operator]
    rows = [(n, time, r) for n, batch in enumerate(batches) for time, r in zip(times[n], batch, strict=True)]

    def watermark(after: int) -> float:
        return max((time for number, time, _ in rows if number <= after), default=-math.inf) - 2

    def is_late(number: int, time: float) -> bool:
        return watermark(number - 1) > math.ceil(time)

    ticks = sorted({math.ceil(time) for number, time, _ in rows if not is_late(number, time)})

    def total(tick: int, now: int) -> object:
        completed_by = next((n for n in range(len(batches)) if watermark(n) > now), len(batches))
        newest: dict[object, tuple[float, Row]] = {}
        for number, time, r in rows:
            known = not is_late(number, time) or number <= completed_by
            if known and math.ceil(time) <= tick and time >= newest.get(r["k"], (-math.inf,))[0]:
                newest[r["k"]] = (time, r)
        return sum(r["x"] for _, r in newest.values())  # type: ignore[misc]

    found = []
    for now in ticks:
        best = max(total(tick, now) for tick in ticks if now - reach <= tick <= now)  # type: ignore[type-var]
        found.append(f"{now} {total(now, now)}, {now} {best}")
    return ", ".join(found)


@pytest.mark.parametrize("seed", range(12))
def test_random_recordings_by_definition(seed: int) -> None:
    dice = random.Random(seed)

    def some(front: int) -> Row:
        second = max(0, front + dice.choice((0, 0.25, 0.5, 1, -1, -3, -6)))
        return row(second, dice.choice("abcd"), dice.randrange(50))

    batches = [[some(front) for _ in range(dice.randrange(5))] for front in range(0, 24, 2)]
    query = "SELECT SUM(x) AS v, max_over(SUM(x), '5 seconds') AS m FROM LATEST(s)"
    assert seen(run(query, batches)) == by_definition(batches, 5)


REFUSED = r"""
COUNT(*) FROM LATEST(s) GROUP BY window(ts, '1 second') -> takes no window
COUNT(*) FROM LATEST(s) GROUP BY tuples(3) -> takes no window
MAX(p) FROM per_group GROUP BY window(ts, '1 second') -> takes no window
COUNT(*) FROM (SELECT x FROM LATEST(s)) GROUP BY g, tuples(3, 1) -> takes no window
x, COUNT(*) FROM LATEST(s) -> x is neither in GROUP BY nor in an aggregate
x, COUNT(*) FROM LATEST(s) GROUP BY g -> x is neither in GROUP BY
*, COUNT(*) FROM LATEST(s) -> cannot be selected
x FROM LATEST(s) HAVING x > 1 -> x is neither in GROUP BY
COUNT(*) FROM LATEST(s) GROUP BY SUM(x) -> is an aggregate
SUM(x) AS v FROM LATEST(s) GROUP BY v -> is an aggregate
nope FROM LATEST(s) -> no column nope
x FROM LATEST(nope) -> none called nope
x FROM LATEST(held) -> none called held
p FROM LATEST(per_group) -> none called per_group
x FROM LATEST(s, s) -> expected a stream
x FROM NEWEST(s) -> expected a stream
x FROM LATEST(s) LIMIT 1 -> LIMIT
x FROM LATEST(s) CROSS JOIN held -> expected .* JOIN
v FROM (SELECT v FROM q) -> reads itself
max_over(x, '1 hour') FROM LATEST(s) -> expected an aggregate
g, max_over(g, '1 hour') FROM LATEST(s) GROUP BY g -> expected an aggregate
max_over(SUM(x) + x, '1 hour') FROM LATEST(s) -> x is neither in GROUP BY
max_over(max_over(SUM(x), '1 hour'), '1 hour') FROM LATEST(s) -> cannot be taken of another
min_since(1 + max_over(SUM(x), '1 hour'), TIMESTAMP '2024-01-01') FROM LATEST(s) -> cannot be taken of another
max_over(SUM(x), '1 hour') AS v FROM LATEST(s) HAVING min_over(v, '1 hour') > 0 -> cannot be taken of another
max_over(SUM(x), '1 hour') AS v FROM LATEST(s) GROUP BY v -> is an aggregate
max_over(SUM(x)) FROM LATEST(s) -> expected max_over\(expression, reach\)
max_over(SUM(x), '1 hour', 2) FROM LATEST(s) -> expected max_over
max_over(SUM(x), '1 month') FROM LATEST(s) -> not a unit of fixed length
max_over(SUM(x), '0 seconds') FROM LATEST(s) -> above 0
max_over(SUM(x), 30) FROM LATEST(s) -> expected a length of time
max_over(SUM(x), k) FROM LATEST(s) -> expected a length of time
max_since(SUM(x), '1 hour') FROM LATEST(s) -> expected a time such as
max_since(SUM(x), ts) FROM LATEST(s) -> expected a time such as
max_over(SUM(x), '1 hour') FROM s GROUP BY window(ts, '1 second') -> read FROM LATEST
"""
REFUSED_WITH_ROWS = """
SUM(MAX(x)) FROM LATEST(s) -> no group here
x FROM LATEST(s) WHERE SUM(x) > 1 -> no group here
SUM(max_over(SUM(x), '1 hour')) FROM LATEST(s) -> no group here
x FROM LATEST(s) WHERE max_over(SUM(x), '1 hour') > 1 -> no group here
max_over(SUM(y), '1 hour') FROM LATEST(s) -> no column y
"""


def refused(line: str, rows: Sequence[Row]) -> None:
    query, message = line.split(" -> ")
    with pytest.raises(LanguageError, match=message):
        run(f"{PER_GROUP} CREATE QUERY q AS SELECT {query}", rows)


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_what_cannot_be_evaluated_is_named_whether_there_are_rows_or_not(line: str) -> None:
    refused(line, [row(1, "a", 1)])
    refused(line, [])


@pytest.mark.parametrize("line", REFUSED_WITH_ROWS.strip().splitlines())
def test_what_an_aggregate_is_over_is_looked_at_where_there_are_rows(line: str) -> None:
    refused(line, [row(1, "a", 1)])


def test_latest_needs_a_key_and_batches() -> None:
    sql = "CREATE STREAM p (ts TIMESTAMP, x INT) USING kafka OPTIONS (subscribe 'p') FORMAT json TIMESTAMP BY ts;"
    sql += "CREATE QUERY q AS SELECT SUM(x) AS v FROM LATEST(p)"
    with pytest.raises(LanguageError, match="declare a KEY"):
        evaluate(sql, {"p": [[{"ts": at(0), "x": 1}]]})
    with pytest.raises(SourceError, match="no batches"):
        evaluate(STREAM.format(tick="") + "CREATE QUERY q AS SELECT SUM(x) AS v FROM LATEST(s)", {})


def test_a_function_of_the_users_hides_an_extreme() -> None:
    query = "SELECT max_over(x, 1) AS v FROM LATEST(s)"
    answers = run(query, FEW[:1], functions={"max_over": lambda x, y: (x, y)})
    assert seen(answers) == "1 (1, 1)"
