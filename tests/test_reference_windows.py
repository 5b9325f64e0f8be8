"""Windows, groups and watermarks of the reference evaluator, against answers worked out by hand."""

from __future__ import annotations

from reference_answers import STREAM, row, run, shape, values
from slackwater.reference.evaluate import late_rows, unreadable_rows


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
