"""The reference evaluator against answers worked out by hand: steps over steps, rows, lookups, refusals."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from reference_answers import SITES, STREAM, at, row, run, shape, values
from slackwater.errors import LanguageError, SourceError
from slackwater.reference.evaluate import ReferenceAnswer, Row, evaluate

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
