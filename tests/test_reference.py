"""The reference evaluator against answers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from slackwater.errors import LanguageError, SourceError
from slackwater.reference.evaluate import (
    ReferenceAnswer,
    Row,
    UserAggregate,
    evaluate,
    late_rows,
    unreadable_rows,
)

STREAM = """
CREATE STREAM p (ts TIMESTAMP, host STRING, size INT, load DOUBLE, ok BOOLEAN)
  USING kafka OPTIONS (subscribe 'p') FORMAT json TIMESTAMP BY ts LATENESS 2 SECONDS;
CREATE TABLE sites (host STRING, site STRING, w INT) USING parquet OPTIONS (path 'sites');
"""


def at(second: float) -> datetime:
    return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def row(second: float | None, size: int | None = 1, host: str | None = "a", **others: object) -> Row:
    return {"ts": None if second is None else at(second), "size": size, "host": host, **others}


def run(
    query: str,
    rows: Sequence[Row] | Sequence[Sequence[Row]],
    *,
    tables: Mapping[str, Sequence[Row]] = {},
    functions: Mapping[str, Callable[..., object]] = {},
    aggregates: Mapping[str, UserAggregate] = {},
    end: bool = True,
) -> list[ReferenceAnswer]:
    """The answers of one query ``q`` over ``p``, or of a text that creates steps itself."""
    sql = STREAM + (query if query.lstrip().startswith("CREATE") else f"CREATE QUERY q AS {query}")
    batches = [rows] if rows and isinstance(rows[0], Mapping) else rows
    return evaluate(sql, {"p": batches}, tables, functions, aggregates, end)  # type: ignore[dict-item]


def shape(answers: Sequence[ReferenceAnswer]) -> list[tuple[float, float, object]]:
    """Start and end in seconds, and the value."""
    found = []
    for a in answers:
        assert a.window_start is not None
        assert a.window_end is not None
        found.append(
            ((a.window_start - at(0)).total_seconds(), (a.window_end - at(0)).total_seconds(), a.value)
        )
    return found


def values(answers: Sequence[ReferenceAnswer]) -> list[object]:
    return [answer.value for answer in answers]


def one(expression: str, rows: Sequence[Row], **options: object) -> object:
    """The value of an aggregate over all rows in one window."""
    (answer,) = run(f"SELECT {expression} AS v FROM p GROUP BY window(ts, '1 hour')", rows, **options)  # type: ignore[arg-type]
    return answer.value


def scalar(expression: str, **columns: object) -> object:
    """The value of an expression over one row."""
    answers = run(f"SELECT {expression} AS v FROM p", [{"ts": at(0), **columns}])
    return answers[0].keys[0][1]


def test_tumbling_windows_without_rows_give_no_answer() -> None:
    #  size:  1   2  |  4      |         |  8
    #  time:  0   9  | 10      |         | 30
    #       [0,    10)[10,  20)[20,   30)[30,  40)
    answers = run(
        "SELECT SUM(size) AS bytes FROM p GROUP BY window(ts, '10 seconds')",
        [row(0, 1), row(9, 2), row(10, 4), row(30, 8)],
    )
    assert shape(answers) == [(0, 10, 3), (10, 20, 4), (30, 40, 8)]
    assert {(a.query, a.column, a.at, a.keys) for a in answers} == {("q", "bytes", None, ())}


def test_sliding_windows_share_rows() -> None:
    #  time:     2        7      12
    #  [-5,  5)  1
    #     [0,   10)  1 + 2
    #          [5,     15)  2 + 4
    #                 [10,      20)  4
    answers = run(
        "SELECT SUM(size) AS v FROM p GROUP BY window(ts, '10 seconds', '5 seconds')",
        [row(2, 1), row(7, 2), row(12, 4)],
    )
    assert shape(answers) == [(-5, 5, 1), (0, 10, 3), (5, 15, 6), (10, 20, 4)]


def test_window_offset_moves_all_starts() -> None:
    answers = run(
        "SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '10 seconds', '10 seconds', '3 seconds')",
        [row(2), row(3), row(12.9)],
    )
    assert shape(answers) == [(-7, 3, 1), (3, 13, 2)]


def test_windows_with_gaps_between_them_hold_only_what_falls_inside() -> None:
    answers = run(
        "SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '2 seconds', '10 seconds')",
        [row(1), row(2), row(11)],
    )
    assert shape(answers) == [(0, 2, 1), (10, 12, 1)]


def test_starts_are_multiples_of_the_slide_since_the_epoch() -> None:
    (answer,) = run("SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '7 seconds')", [row(0)])
    assert answer.window_start is not None
    assert answer.window_start.timestamp() % 7 == 0


def test_where_is_asked_before_the_window_opens() -> None:
    answers = run(
        "SELECT COUNT(*) AS n FROM p WHERE size > 1 GROUP BY window(ts, '10 seconds')",
        [row(0, 1), row(10, 2), row(11, None)],
    )
    assert shape(answers) == [(10, 20, 1)]


def test_keys_are_named_by_alias_column_or_text() -> None:
    answers = run(
        "SELECT host AS h, SUM(size) AS v, upper(host) AS u, MAX(size) FROM p "
        "GROUP BY window(ts, '10 seconds'), host, size % 2",
        [row(0, 2, "b"), row(1, 4, "b"), row(2, 3, "a")],
    )
    assert [(a.keys, a.column, a.value) for a in answers] == [
        ((("h", "a"), ("size % 2", 1), ("u", "A")), "v", 3),
        ((("h", "a"), ("size % 2", 1), ("u", "A")), "MAX(size)", 3),
        ((("h", "b"), ("size % 2", 0), ("u", "B")), "v", 6),
        ((("h", "b"), ("size % 2", 0), ("u", "B")), "MAX(size)", 4),
    ]


def test_null_is_a_key_of_its_own_and_comes_first() -> None:
    answers = run(
        "SELECT host, COUNT(*) AS n FROM p GROUP BY host, window(ts, '10 seconds')",
        [row(0, host="a"), row(1, host=None), row(2, host=None)],
    )
    assert [(a.keys, a.value) for a in answers] == [((("host", None),), 2), ((("host", "a"),), 1)]


def test_group_by_an_alias() -> None:
    answers = run(
        "SELECT upper(host) AS u, COUNT(*) AS n FROM p GROUP BY u, window(ts, '10 seconds')",
        [row(0, host="a"), row(1, host="A")],
    )
    assert [(a.keys, a.value) for a in answers] == [((("u", "A"),), 2)]


def test_groups_without_aggregate_give_a_star() -> None:
    answers = run(
        "SELECT host FROM p GROUP BY host, window(ts, '10 seconds')", [row(0), row(1), row(2, 1, "b")]
    )
    assert [(a.column, a.keys, a.value) for a in answers] == [
        ("*", (("host", "a"),), None),
        ("*", (("host", "b"),), None),
    ]


def test_window_items_are_not_columns() -> None:
    (answer,) = run(
        "SELECT window, window.start AS s, window.end, window(ts, '10 seconds').start AS z, COUNT(*) AS n "
        "FROM p GROUP BY window(ts, '10 seconds')",
        [row(1)],
    )
    assert (answer.column, answer.keys, answer.value) == ("n", (), 1)


def test_window_bounds_inside_expressions() -> None:
    (answer,) = run(
        "SELECT CAST(window.end AS BIGINT) - CAST(window.start AS BIGINT) AS width, COUNT(*) AS n "
        "FROM p GROUP BY window(ts, '10 seconds')",
        [row(1)],
    )
    assert answer.keys == (("width", 10),)


def test_having_filters_groups_and_sees_aliases() -> None:
    rows = [row(0, 5, "a"), row(1, 1, "b"), row(2, 7, "c")]
    query = "SELECT host, SUM(size) AS v FROM p GROUP BY host, window(ts, '10 seconds') HAVING "
    assert values(run(query + "SUM(size) > 4 AND host <> 'c'", rows)) == [5]
    assert values(run(query + "v > 4", rows)) == [5, 7]
    assert values(run(query + "MAX(size) IS NULL", rows)) == []


def test_having_takes_a_key_before_an_alias_of_the_same_name() -> None:
    answers = run(
        "SELECT -size AS size, COUNT(*) AS n FROM p GROUP BY size, window(ts, '10 seconds') HAVING size > 0",
        [row(0, 3), row(1, -3)],
    )
    assert [a.keys for a in answers] == [(("size", 3), ("size", -3))]


# Tuple windows: tuples(3, 2) over arrivals 0 1 2 3 4 5
#   window 0: [0 1 2]
#   window 1:     [2 3 4]
#   window 2:         [4 5 .]  never full
def test_tuple_windows_count_arrivals() -> None:
    answers = run(
        "SELECT SUM(size) AS v FROM p GROUP BY tuples(3, 2)",
        [row(i, 2**i) for i in range(6)],
    )
    assert shape(answers) == [(0, 2, 1 + 2 + 4), (2, 4, 4 + 8 + 16)]


def test_tuple_windows_are_numbered_after_where_and_over_all_groups() -> None:
    # passing rows: a1 b2 a4 | b8 a16 .   times 0 3 1 | 5 4
    rows = [row(0, 1), row(3, 2, "b"), row(9, -1), row(1, 4), row(5, 8, "b"), row(4, 16)]
    answers = run("SELECT host, SUM(size) AS v FROM p WHERE size > 0 GROUP BY host, tuples(3, 3)", rows)
    assert [(a.keys[0][1], *s) for a, s in zip(answers, shape(answers), strict=True)] == [
        ("a", 0, 3, 5),
        ("b", 0, 3, 2),
    ]


def test_tuple_windows_do_not_wait_for_the_watermark() -> None:
    assert values(run("SELECT COUNT(*) AS n FROM p GROUP BY tuples(2, 2)", [row(0), row(1)], end=False)) == [
        2
    ]


def test_tuple_windows_skip_rows_when_the_slide_is_larger() -> None:
    answers = run("SELECT SUM(size) AS v FROM p GROUP BY tuples(1, 2)", [row(i, i) for i in range(4)])
    assert values(answers) == [0, 2]


# LATENESS 2: batch 0 reaches 10, so the watermark before batch 1 is 8; batch 1 reaches 20, then it is 18.
LATE = [
    [row(10, 1), row(0, 2)],  # the first batch makes nothing late, not even its own
    [row(7.9, 4), row(8, 8), row(20, 16), row(9, 32)],  # 7.9 is late; 9 is not, though 20 came before it
    [row(17, 64), row(None, 128), row(18, 256)],
]


def test_late_and_unreadable_rows_reach_no_query() -> None:
    answers = run("SELECT SUM(size) AS v FROM p GROUP BY window(ts, '10 seconds')", LATE)
    assert shape(answers) == [(0, 10, 2 + 8 + 32), (10, 20, 1 + 256), (20, 30, 16)]
    assert late_rows(STREAM, {"p": LATE}) == {"p": 2}
    assert unreadable_rows(STREAM, {"p": LATE}) == {"p": 1}
    rows = run("SELECT size FROM p", LATE)
    assert sorted(answer.keys[0][1] for answer in rows) == [1, 2, 8, 16, 32, 256]  # type: ignore[type-var]


def test_only_windows_behind_the_watermark_are_closed_before_the_end() -> None:
    # W = 20 - 2 = 18: [0, 10) is closed, [10, 20) is not
    answers = run("SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '10 seconds')", LATE, end=False)
    assert shape(answers) == [(0, 10, 3)]
    assert run("SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '10 seconds')", [], end=False) == []


def test_a_window_ending_at_the_watermark_is_closed() -> None:
    query = "SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '10 seconds')"
    assert values(run(query, [row(0), row(12)], end=False)) == [1]
    assert values(run(query, [row(0), row(11.999999)], end=False)) == []


# spread over 10 s:   [0,10) 4   [10,20) 0   [20,30) 9   [30,40) 1
SPREAD = """
CREATE VIEW spread AS SELECT MAX(size) - MIN(size) AS d FROM p GROUP BY window(ts, '10 seconds');
"""
SPREAD_ROWS = [row(0, 1), row(5, 5), row(10, 3), row(20, 0), row(29, 9), row(30, 1), row(31, 2)]


def test_a_step_over_a_windowed_view() -> None:
    # outer 20 s: [0,20) holds the rows of 0 and 10, [20,40) those of 20 and 30
    query = "CREATE QUERY jumps AS SELECT SUM(d) AS v, COUNT(*) AS n FROM spread WHERE d > 0 "
    answers = run(SPREAD + query + "GROUP BY window(ts, '20 seconds')", SPREAD_ROWS)
    assert [(a.query, a.column, *s) for a, s in zip(answers, shape(answers), strict=True)] == [
        ("jumps", "v", 0, 20, 4),
        ("jumps", "n", 0, 20, 1),
        ("jumps", "v", 20, 40, 10),
        ("jumps", "n", 20, 40, 2),
    ]


def test_nested_two_deep_and_partly_closed() -> None:
    sql = (
        SPREAD
        + """
        CREATE VIEW tops AS SELECT MAX(d) AS m FROM spread GROUP BY window(ts, '20 seconds');
        CREATE QUERY q AS SELECT SUM(m) AS v FROM tops GROUP BY window(ts, '40 seconds');
        """
    )
    assert shape(run(sql, SPREAD_ROWS)) == [(0, 40, 4 + 9)]
    # Watermarks at 41 s:  stream 41 - 2 = 39, so the first inner window open is [30, 40);
    # spread's is 30, so the first open window of tops is [20, 40); tops' is 20: nothing in q is closed.
    assert run(sql, [*SPREAD_ROWS, row(41)], end=False) == []
    # At 59 s: 57 -> [50, 60) open -> 50 -> [40, 60) open -> 40 -> [0, 40) is closed.
    assert shape(run(sql, [*SPREAD_ROWS, row(59)], end=False)) == [(0, 40, 13)]
    # At 50 s: 48 -> [40, 50) open -> 40 -> [40, 60) open -> 40.
    assert shape(run(sql, [*SPREAD_ROWS, row(50)], end=False)) == [(0, 40, 13)]
    assert run(sql, [*SPREAD_ROWS, row(41.9)], end=False) == []


def test_watermark_after_sliding_inner_windows_is_the_first_open_start() -> None:
    sql = """
        CREATE VIEW v AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '10 seconds', '5 seconds');
        CREATE QUERY q AS SELECT SUM(n) AS s FROM v GROUP BY window(ts, '5 seconds');
    """
    # W = 20: closed are starts up to 10; the first open start is 15, so outer windows up to [10, 15) close.
    rows = [row(1), row(11), row(22)]
    assert shape(run(sql, rows, end=False)) == [(-5, 0, 1), (0, 5, 1), (5, 10, 1), (10, 15, 1)]


def test_a_tuple_window_hands_on_its_largest_time() -> None:
    sql = """
        CREATE VIEW v AS SELECT SUM(size) AS s, host FROM p GROUP BY tuples(2, 2), host;
        CREATE QUERY q AS SELECT SUM(s) AS t, MAX(window_start) AS m FROM v GROUP BY window(ts, '10 seconds');
    """
    # windows: {9, 3} ends at 9, {12, 8} ends at 12
    answers = run(sql, [row(9, 1), row(3, 2), row(12, 4), row(8, 8)])
    assert shape(answers) == [(0, 10, 3), (0, 10, at(3)), (10, 20, 12), (10, 20, at(8))]
    # W = 12 - 2: a tuple window yet to come ends at 10 or later
    assert len(run(sql, [row(9, 1), row(3, 2), row(12, 4)], end=False)) == 2


def test_tuple_windows_over_a_windowed_step() -> None:
    sql = SPREAD + "CREATE QUERY q AS SELECT SUM(d) AS v FROM spread GROUP BY tuples(2, 1)"
    assert shape(run(sql, SPREAD_ROWS)) == [(0, 10, 4), (10, 20, 9), (20, 30, 10)]


def test_a_query_reads_a_query_and_both_answer() -> None:
    sql = """
        CREATE QUERY hits AS SELECT host, COUNT(*) AS n FROM p GROUP BY host, window(ts, '10 seconds');
        CREATE QUERY top AS SELECT MAX(n) AS m FROM hits AS h WHERE h.host <> 'c'
          GROUP BY window(ts, '10 seconds');
    """
    answers = run(sql, [row(0), row(1), row(2, host="b"), *[row(i, host="c") for i in range(5)]])
    assert [(a.query, a.value) for a in answers] == [("hits", 2), ("hits", 1), ("hits", 5), ("top", 2)]


def test_subqueries_and_ctes() -> None:
    rows = [row(0, 1), row(1, 2), row(11, 4)]
    inner = "SELECT SUM(size) AS s FROM p GROUP BY window(ts, '10 seconds')"
    outer = "GROUP BY window(ts, '20 seconds')"
    assert values(run(f"SELECT MAX(x.s) AS v FROM ({inner}) AS x {outer}", rows)) == [4]
    assert values(
        run(f"WITH c AS ({inner}), d AS (SELECT s + 1 AS s FROM c) SELECT MAX(s) AS v FROM d {outer}", rows)
    ) == [5]


def test_set_valued_query() -> None:
    answers = run(
        "SELECT host, size * 2 AS double FROM p WHERE size > 1", [row(5, 2), row(3, 1), row(4, 3, "b")]
    )
    assert answers == [
        ReferenceAnswer("q", "*", None, None, at(4), (("host", "b"), ("double", 6)), None),
        ReferenceAnswer("q", "*", None, None, at(5), (("host", "a"), ("double", 4)), None),
    ]


def test_star_gives_the_declared_columns_and_then_the_tables() -> None:
    (answer,) = run("SELECT * FROM p JOIN sites USING (host)", [row(0)], tables=SITES)
    assert [name for name, _ in answer.keys] == ["ts", "host", "size", "load", "ok", "site", "w"]
    (answer,) = run("SELECT s.* FROM p JOIN sites AS s ON p.host = s.host", [row(0)], tables=SITES)
    assert answer.keys == (("host", "a"), ("site", "north"), ("w", 3))


def test_a_set_valued_view_hands_on_the_time() -> None:
    sql = """
        CREATE VIEW big AS SELECT size AS s FROM p WHERE size > 1;
        CREATE QUERY q AS SELECT SUM(s) AS v FROM big GROUP BY window(ts, '10 seconds');
        CREATE QUERY all_of_it AS SELECT * FROM big;
    """
    answers = run(sql, [row(0, 1), row(1, 2), row(11, 4)])
    assert values(answers[:2]) == [2, 4]
    assert answers[2].keys == (("s", 2), ("ts", at(1)))


def test_a_view_that_renames_the_time_away_is_ambiguous_only_when_asked() -> None:
    view = "CREATE VIEW v AS SELECT size AS ts FROM p; CREATE QUERY q AS SELECT "
    with pytest.raises(LanguageError, match="ambiguous"):
        run(view + "COUNT(*) AS n FROM v GROUP BY window(ts, '1 second')", [row(0)])


SITES: dict[str, list[Row]] = {
    "sites": [
        {"host": "a", "site": "north", "w": 3},
        {"host": "b", "site": "south", "w": 5},
        {"host": None, "site": "nowhere", "w": 7},
    ]
}


@pytest.mark.parametrize(
    "condition", ["USING (host)", "ON p.host = sites.host", "ON sites.host = p.host AND w > 0"]
)
def test_lookup(condition: str) -> None:
    rows = [row(0, 1, "a"), row(1, 2, "b"), row(2, 4, "c"), row(3, 8, None)]
    select = (
        "SELECT site, SUM(size * w) AS v FROM p {} JOIN sites "
        + condition
        + " GROUP BY site, window(ts, '1 hour')"
    )
    inner = run(select.format(""), rows, tables=SITES)
    assert [(a.keys[0][1], a.value) for a in inner] == [("north", 3), ("south", 10)]
    left = run(select.format("LEFT"), rows, tables=SITES)
    assert [(a.keys[0][1], a.value) for a in left] == [(None, None), ("north", 3), ("south", 10)]


def test_a_lookup_that_finds_two_rows_is_refused() -> None:
    twice = {"sites": [{"host": "a", "site": "x"}, {"host": "a", "site": "y"}]}
    with pytest.raises(SourceError, match="at most one"):
        run("SELECT site FROM p JOIN sites USING (host)", [row(0)], tables=twice)


def test_time_from_an_expression() -> None:
    sql = """
        CREATE STREAM e (t_ms BIGINT, v INT) USING kafka OPTIONS (subscribe 'e') FORMAT json
          TIMESTAMP BY timestamp_millis(t_ms) AS ts;
        CREATE QUERY q AS SELECT SUM(v) AS s FROM e GROUP BY window(ts, '1 second');
        CREATE QUERY r AS SELECT * FROM e WHERE v = 4;
    """
    rows: list[Row] = [
        {"t_ms": 500, "v": 1},
        {"t_ms": 999, "v": 2},
        {"t_ms": None, "v": 3},
        {"t_ms": 1000, "v": 4},
    ]
    answers = evaluate(sql, {"e": [rows]})
    assert values(answers) == [3, 4, None]
    assert answers[-1].keys == (("t_ms", 1000), ("v", 4), ("ts", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)))


NULLS = [row(0, 4), row(1, None), row(2, 1), row(3, 1), row(4, 10)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("COUNT(*)", 5),
        ("COUNT(size)", 4),
        ("COUNT(size, host)", 4),
        ("COUNT(DISTINCT size)", 3),
        ("COUNT(DISTINCT host, size)", 3),
        ("COUNT_IF(size > 1)", 2),
        ("SUM(size)", 16),
        ("SUM(DISTINCT size)", 15),
        ("AVG(size)", 4.0),
        ("AVG(DISTINCT size)", 5.0),
        ("MIN(size)", 1),
        ("MAX(size)", 10),
        ("MEDIAN(size)", 2.5),
        ("PERCENTILE(size, 0.5)", 2.5),
        ("PERCENTILE(size, 0.9)", 8.2),  # position 2.7 in 1 1 4 10: 0.3 * 4 + 0.7 * 10
        ("percentile_cont(0.9) WITHIN GROUP (ORDER BY size)", 8.2),
        ("percentile_cont(0.1) WITHIN GROUP (ORDER BY size DESC)", 8.2),
        ("VAR_POP(size)", 13.5),  # deviations 0 3 3 6: 54 / 4
        ("VAR_SAMP(size)", 18.0),
        ("VARIANCE(size)", 18.0),
        ("STDDEV(size)", math.sqrt(18)),
        ("STDDEV_SAMP(size)", math.sqrt(18)),
        ("STDDEV_POP(size)", math.sqrt(13.5)),
        ("BOOL_AND(size > 0)", True),
        ("EVERY(size > 1)", False),
        ("BOOL_OR(size > 9)", True),
        ("ANY(size > 99)", False),
        ("SOME(size = 1)", True),
        ("SUM(size) FILTER (WHERE size > 1)", 14),
        ("COUNT(*) FILTER (WHERE size > 1)", 2),
        ("COUNT(DISTINCT size) FILTER (WHERE size < 9)", 2),
        ("MEDIAN(size) FILTER (WHERE size > 99)", None),
        ("PERCENTILE(size, 0.5) FILTER (WHERE size > 99)", None),
        ("MAX(size) - MIN(size)", 9),
        ("SUM(size) / COUNT(*)", 3.2),
        ("CASE WHEN COUNT(*) > 3 THEN 'many' ELSE 'few' END", "many"),
    ],
)
def test_aggregates(expression: str, expected: object) -> None:
    assert one(expression, NULLS) == pytest.approx(expected)


@pytest.mark.parametrize(
    "expression",
    ["SUM(size)", "AVG(size)", "MIN(size)", "MAX(size)", "MEDIAN(size)", "PERCENTILE(size, 0.5)",
     "STDDEV(size)", "VAR_POP(size)", "BOOL_AND(size > 0)", "BOOL_OR(size > 0)", "SUM(DISTINCT size)"],
)  # fmt: skip
def test_aggregates_of_nothing_are_null(expression: str) -> None:
    assert one(expression, [row(0, None), row(1, None)]) is None


def test_counts_of_nothing_are_zero() -> None:
    for expression in ("COUNT(size)", "COUNT(DISTINCT size)", "COUNT_IF(size > 0)"):
        assert one(expression, [row(0, None)]) == 0


def test_the_sample_deviation_of_one_value_is_null() -> None:
    assert one("STDDEV_SAMP(size)", [row(0, 3)]) is None
    assert one("STDDEV_POP(size)", [row(0, 3)]) == 0


def test_sums_of_doubles_are_rounded_once() -> None:
    rows = [{"ts": at(i), "load": v} for i, v in enumerate([1e16, 1.0, -1e16])]
    assert one("SUM(load)", rows) == 1.0


TRACE = UserAggregate(init=list, incr=lambda state, *args: [*state, args], final=tuple)


def test_user_aggregates_see_every_row_in_order_of_time_and_arrival() -> None:
    rows = [row(5, 1), row(3, None), row(5, 2), row(1, 3, "b")]
    traced = one("Trace(size, host)", rows, aggregates={"TRACE": TRACE})
    assert traced == ((3, "b"), (None, "a"), (1, "a"), (2, "a"))
    filtered = one("trace(size) FILTER (WHERE host = 'a')", rows, aggregates={"trace": TRACE})
    assert filtered == ((None,), (1,), (2,))


def test_user_aggregates_go_into_expressions() -> None:
    spread = UserAggregate(
        lambda: (math.inf, -math.inf), lambda s, v: (min(s[0], v), max(s[1], v)), lambda s: s[1] - s[0]
    )
    assert one("spread(size) * 2 + COUNT(*)", [row(0, 3), row(1, 8)], aggregates={"spread": spread}) == 12


def test_user_functions_take_nulls_and_any_case() -> None:
    rows = [row(0, None), row(1, 5)]
    assert one("SUM(or_one(size))", rows, functions={"Or_One": lambda v: 1 if v is None else v}) == 6


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("7 / 2", 3.5),
        ("7 / 0", None),
        ("7 % 0", None),
        ("-7 % 3", -1),
        ("-7 DIV 2", -3),
        ("'x' + 1", None),
        ("'3' + 1", 4.0),
        ("NULL AND FALSE", False),
        ("NULL OR TRUE", True),
        ("NOT (NULL = 1)", None),
        ("NULL <=> NULL", True),
        ("1 <=> NULL", False),
        ("1 IN (2, NULL)", None),
        ("1 NOT IN (1, NULL)", False),
        ("2 BETWEEN 1 AND NULL", None),
        ("3 BETWEEN 4 AND NULL", False),
        ("'abc' LIKE 'a_c'", True),
        ("'abc' NOT LIKE '%b%'", False),
        ("'abc' RLIKE '^b'", False),
        ("CASE WHEN NULL THEN 1 ELSE 2 END", 2),
        ("CASE 3 WHEN 3 THEN 'x' END", "x"),
        ("IF(1 > 2, 1, NULL)", None),
        ("COALESCE(NULL, 2)", 2),
        ("NVL(NULL, 3)", 3),
        ("NULLIF(1, 1)", None),
        ("ROUND(2.5)", 3.0),
        ("FLOOR(-1.5)", -2),
        ("CEIL(1.2)", 2),
        ("POWER(2, 3)", 8.0),
        ("SQRT(16)", 4.0),
        ("LENGTH('abc')", 3),
        ("SUBSTRING('abcd', 2, 2)", "bc"),
        ("SUBSTRING('abcd', -2)", "cd"),
        ("CONCAT('a', 1, TRUE)", "a1true"),
        ("'a' || NULL", None),
        ("CAST('12' AS INT)", 12),
        ("CAST('x' AS DOUBLE)", None),
        ("CAST(2.9D AS BIGINT)", 2),
        ("CAST(1.0D AS STRING)", "1.0"),
        ("CAST('no' AS BOOLEAN)", False),
        ("GREATEST(1, NULL, 3)", 3),
        ("LEAST(NULL, 2)", 2),
        ("ts = '2024-01-01 00:00:00'", True),
        ("ok IS NULL", True),
        ("p.size + SIZE", 14),
    ],
)
def test_expressions(expression: str, expected: object) -> None:
    value = scalar(expression, size=7)
    assert (value, type(value)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT soundex(host) AS s FROM p", r"cannot evaluate SOUNDEX\(host\)"),
        ("SELECT nope FROM p", "no column nope"),
        ("SELECT size FROM nowhere", "no stream, view or query nowhere"),
        ("SELECT COUNT(*) AS n FROM p", "needs a window"),
        ("SELECT host, COUNT(*) AS n FROM p GROUP BY host", "one window"),
        ("SELECT host, COUNT(*) AS n FROM p GROUP BY window(ts, '1 second')", "neither in GROUP BY"),
        ("SELECT COUNT(*) AS n FROM p GROUP BY window(size, '1 second')", "over the time ts"),
        ("SELECT COUNT(*) AS n FROM p GROUP BY tuples(0, 1)", "at least 1"),
        ("SELECT SUM(MAX(size)) AS n FROM p GROUP BY window(ts, '1 second')", "no group here"),
        ("SELECT size FROM p CROSS JOIN sites", "expected .* JOIN"),
        ("SELECT size FROM p LIMIT 1", "LIMIT"),
        ("SELECT host FROM p JOIN sites ON p.host = sites.host", "ambiguous"),
        ("SELECT size FROM q", "reads itself"),
    ],
)
def test_what_cannot_be_evaluated_is_named(query: str, message: str) -> None:
    with pytest.raises(LanguageError, match=message):
        run(query, [row(0)], tables=SITES)


def test_misspelt_inputs_are_refused() -> None:
    with pytest.raises(SourceError, match="not created: x"):
        evaluate(STREAM, {"x": []})
    with pytest.raises(SourceError, match="not declared: sise"):
        run("SELECT size FROM p", [{"ts": at(0), "sise": 1}])
    with pytest.raises(SourceError, match="no batches"):
        evaluate(STREAM + "CREATE QUERY q AS SELECT size FROM p", {})


def test_queries_over_latest_are_left_out() -> None:
    sql = """
        CREATE QUERY now AS SELECT AVG(size) AS v FROM LATEST(p) WITH PRECISION 5;
        CREATE QUERY above AS SELECT v FROM now;
        CREATE QUERY n AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '10 seconds');
    """
    assert [a.query for a in run(sql, [row(0)])] == ["n"]


def test_answers_come_in_the_order_of_queries() -> None:
    sql = """
        CREATE QUERY z AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '10 seconds');
        CREATE QUERY a AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '20 seconds');
        CREATE QUERY gone AS SELECT size FROM p; DROP QUERY gone;
    """
    answers = run(sql, [row(15), row(0)])
    assert [(x.query, *s) for x, s in zip(answers, shape(answers), strict=True)] == [
        ("z", 0, 10, 1),
        ("z", 10, 20, 1),
        ("a", 0, 20, 2),
    ]
