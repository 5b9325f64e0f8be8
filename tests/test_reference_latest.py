"""Queries over LATEST in the reference evaluator, against answers worked out by hand."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime

import pytest

from latest_rows import FEW, LATE, STREAM, row, run, seen
from reference_answers import at
from slackwater.errors import SourceError
from slackwater.reference.evaluate import ReferenceAnswer, Row, UserAggregate, evaluate, late_rows


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
