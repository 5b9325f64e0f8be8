"""Extremes over time of current values, and queries over queries, in the reference."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from latest_rows import FEW, STREAM, row, run, seen
from reference_answers import at
from slackwater.errors import LanguageError, SourceError
from slackwater.reference.evaluate import Row, evaluate

UPS = [row(1, "a", 9), row(2, "a", 3), row(2, "b", 1), row(3, "b", 3), row(6, "b", 2), row(7, "a", 5)]


@pytest.mark.parametrize(
    ("call", "values"),
    [
        ("max_over(SUM(x), '1 second')", "9 9 6 6 7"),
        ("max_over(SUM(x), '3 seconds')", "9 9 9 6 7"),
        ("max_over(SUM(x), '2999 milliseconds')", "9 9 9 6 7"),  # what was said at 3 stood until 6
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
    assert seen(run(lower, batches)) == "1 1, 2 1, 5 9, 6 9"


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
        # what stood at the beginning of that time counts
        first = max((tick for tick in ticks if tick <= now - reach), default=now - reach)
        best = max(total(tick, now) for tick in ticks if first <= tick <= now)  # type: ignore[type-var]
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
