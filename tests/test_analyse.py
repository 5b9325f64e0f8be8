"""A SELECT taken apart into steps, and what is refused on the way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import parse_one

from declared import DECLARED, EVERYTHING, LINES, MINUTE, catalog, query, refusal
from slackwater.errors import LanguageError
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.model import Path, TimeWindow, TupleWindow


def test_a_view_is_looked_through_and_keeps_its_meaning() -> None:
    text = f"""
    CREATE VIEW v AS SELECT ts, size + sport AS x, size > 5 OR sport = 1 AS y FROM p WHERE dport = 80;
    CREATE QUERY q AS SELECT SUM(x * 2) AS s FROM v WHERE y AND x > 3 {MINUTE}"""
    step = catalog(text).steps["q"]
    assert step.path == Path(
        "p", (), ("s.`dport` = 80", "(s.`size` > 5 OR s.`sport` = 1)", "(s.`size` + s.`sport`) > 3")
    )
    assert step.calls[0].arguments == ("(s.`size` + s.`sport`) * 2",)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_inlining_keeps_the_value_of_an_expression(data: st.DataObject) -> None:
    """Whatever the operators, a view's column means the same inside as outside."""
    inner = data.draw(
        st.sampled_from(["size + sport", "size - sport", "-size", "size * 2", "size", "size % 3"])
    )
    outer = data.draw(st.sampled_from(["x * 2", "2 - x", "-x", "x % 5", "10 - x - x", "x * x"]))
    text = f"CREATE VIEW v AS SELECT ts, {inner} AS x FROM p;"
    text += f"CREATE QUERY q AS SELECT SUM({outer}) AS s FROM v {MINUTE}"
    (argument,) = catalog(text).steps["q"].calls[0].arguments
    values = {"size": data.draw(st.integers(-9, 9)), "sport": data.draw(st.integers(-9, 9))}
    merged = argument.replace("s.", "").replace("`", "")
    assert eval(merged, {}, values) == eval(outer, {}, {"x": eval(inner, {}, values)})


def test_ctes_and_sub_queries_nest() -> None:
    hour = "GROUP BY window(ts, '1 hour')"
    for text in (
        f"WITH w AS (SELECT MAX(size) AS m FROM p {MINUTE}) SELECT SUM(m) AS s FROM w WHERE m > 3 {hour}",
        f"SELECT SUM(m) AS s FROM (SELECT MAX(size) AS m FROM p {MINUTE}) w WHERE m > 3 {hour}",
    ):
        steps = catalog(f"CREATE QUERY q AS {text}").steps
        assert list(steps) == ["q.w", "q"]
        assert not steps["q.w"].published
        assert steps["q"].path == Path("q.w", (), ("s.`m` > 3",))
        assert steps["q"].stream == "p"


def test_a_cte_without_an_aggregate_is_no_step() -> None:
    step = catalog(
        f"CREATE QUERY q AS WITH w AS (SELECT ts, size AS z FROM p WHERE sport = 1) "
        f"SELECT SUM(z) AS s FROM w {MINUTE}"
    ).steps
    assert list(step) == ["q"]
    assert step["q"].path == Path("p", (), ("s.`sport` = 1",))


def test_inner_steps_of_one_label_are_kept_apart() -> None:
    text = f"""CREATE QUERY q AS WITH w AS (SELECT MAX(size) AS m FROM p {MINUTE})
      SELECT SUM(x) AS s FROM (SELECT MAX(m) AS x FROM w GROUP BY window(ts, '1 hour')) w
      GROUP BY window(ts, '1 day')"""
    steps = catalog(text).steps
    assert [(s.name, s.path.source) for s in steps.values()] == [("q.w", "p"), ("q.w2", "q.w"), ("q", "q.w2")]


@pytest.mark.parametrize("key", ["host", "1", "src", "p.src"])
def test_keys_may_be_named_by_alias_or_number(key: str) -> None:
    step = query(f"SELECT src AS host, SUM(size) AS s FROM p {MINUTE}, {key}")
    assert [(k.name, k.sql) for k in step.keys] == [("host", "s.`src`")]
    assert [o.sql for o in step.outputs] == ["k0", "a0"]


def test_items_are_written_over_calls_and_keys() -> None:
    step = query(
        f"SELECT window.start AS begins, upper(src) AS u, MAX(size) - MIN(size) AS d, MAX(size) / 2 AS h "
        f"FROM p {MINUTE}, upper(src) HAVING COUNT(*) > 5"
    )
    assert [str(call) for call in step.calls] == ["max(size)", "min(size)", "count(*)"]
    assert [o.sql for o in step.outputs] == ["window_start", "k0", "a0 - a1", "a0 / 2"]
    assert step.having == "a2 > 5"


@pytest.mark.parametrize(
    ("written", "call"),
    [
        ("COUNT(1)", "count(*)"),
        ("COUNT(*) FILTER (WHERE size > 3)", "count(*) where size > 3"),
        ("COUNT_IF(size > 3)", "count(*) where size > 3"),
        ("COUNT(DISTINCT src, dport)", "count_distinct(src, dport)"),
        ("MEAN(size)", "avg(size)"),
        ("STD(size)", "stddev_samp(size)"),
        ("VAR_POP(size)", "var_pop(size)"),
        ("MEDIAN(size)", "percentile(size, 0.5)"),
        ("PERCENTILE(size, 0.9)", "percentile(size, 0.9)"),
        ("PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY size)", "percentile(size, 0.25)"),
        ("BOOL_AND(size > 3)", "bool_and(size > 3)"),
        ("ANY(size > 3)", "bool_or(size > 3)"),
        ("longest(src)", "longest(src)"),
    ],
)
def test_aggregates_go_by_one_name(written: str, call: str) -> None:
    step = query(f"SELECT {written} AS x FROM p {MINUTE}")
    assert [str(c) for c in step.calls] == [call]


def test_windows_are_read_from_the_group() -> None:
    assert query(
        "SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '10 minutes', '1 minute', '15 seconds')"
    ).window == (TimeWindow(600_000_000, 60_000_000, 15_000_000))
    assert query("SELECT COUNT(*) AS n FROM p GROUP BY tuples(100)").window == TupleWindow(100, 100)
    assert query("SELECT COUNT(*) AS n FROM p GROUP BY window(ts, INTERVAL 5 MINUTES)").window == (
        TimeWindow(300_000_000, 300_000_000)
    )


def test_a_lookup_names_its_keys() -> None:
    step = query(f"SELECT site, COUNT(*) AS n FROM p JOIN sites AS x ON p.src = x.host {MINUTE}, site")
    (lookup,) = step.path.lookups
    assert (lookup.table, lookup.keys, lookup.inner) == ("sites", ("host",), True)
    assert str(lookup) == "lookup sites on src = sites.host"
    using = query(
        "SELECT account, SUM(qty * price) AS w FROM LATEST(ticks) JOIN holdings USING (symbol) "
        "GROUP BY account"
    )
    assert using.path.lookups[0].keys == ("symbol",)
    assert using.current


def test_expressions_in_canonical_form_parse_again() -> None:
    for step in catalog(EVERYTHING).steps.values():
        for predicate in step.path.predicates:
            parse_one(predicate, dialect="spark")


WRONG = {
    "unknown stream": ("SELECT 1 AS x FROM nowhere", "no stream, view or query called nowhere", "nowhere"),
    "table alone": ("SELECT host FROM sites", "sites is a table", "sites"),
    "unknown column": (f"SELECT SUM(sice) AS s FROM p {MINUTE}", "no column sice in p", "sice"),
    "near column": (f"SELECT SUM(sice) AS s FROM p {MINUTE}", "did you mean size?", "sice"),
    "aggregate in WHERE": (
        f"SELECT COUNT(*) AS n FROM p WHERE SUM(size) > 3 {MINUTE}",
        "put the condition into HAVING",
        None,
    ),
    "no window": ("SELECT COUNT(*) AS n FROM p", "needs a window", None),
    "two windows": (f"SELECT COUNT(*) AS n FROM p {MINUTE}, tuples(5)", "found a second", None),
    "other time": (
        "SELECT COUNT(*) AS n FROM p GROUP BY window(size, '1 minute')",
        "which is ts; found size",
        "size, '1",
    ),
    "no length": (
        "SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 month')",
        "not a unit of fixed length",
        None,
    ),
    "long slide": (
        "SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 minute', '2 minutes')",
        "would belong to none",
        None,
    ),
    "no tuples": ("SELECT COUNT(*) AS n FROM p GROUP BY tuples(0)", "above 0", None),
    "fractions of tuples": (
        "SELECT COUNT(*) AS n FROM p GROUP BY tuples(1.5)",
        "whole numbers of rows",
        None,
    ),
    "stray column": (f"SELECT src, COUNT(*) AS n FROM p {MINUTE}", "neither in GROUP BY nor inside", "src"),
    "star": (f"SELECT *, COUNT(*) AS n FROM p {MINUTE}", "SELECT * cannot stand beside GROUP BY", None),
    "nested aggregate": (f"SELECT SUM(MAX(size)) AS n FROM p {MINUTE}", "needs a step between", None),
    "aggregate key": (f"SELECT COUNT(*) AS n FROM p {MINUTE}, SUM(size)", "cannot be a group key", None),
    "ordinal": (f"SELECT COUNT(*) AS n FROM p {MINUTE}, 7", "GROUP BY 7: there are 1 items", None),
    "twice": (f"SELECT COUNT(*) AS n, SUM(size) AS n FROM p {MINUTE}", "two columns are called n", None),
    "twice in rows": ("SELECT size, sport AS size FROM p", "two columns are called size", None),
    "unsupported": (
        f"SELECT COLLECT_LIST(size) AS n FROM p {MINUTE}",
        "is not an aggregate that Slackwater keeps",
        None,
    ),
    "share": (f"SELECT PERCENTILE(size, 90) AS n FROM p {MINUTE}", "a number from 0 to 1", None),
    "ORDER BY": ("SELECT size FROM p ORDER BY size", "ORDER BY has no meaning", None),
    "LIMIT": ("SELECT size FROM p LIMIT 5", "LIMIT has no meaning", None),
    "DISTINCT": ("SELECT DISTINCT size FROM p", "SELECT DISTINCT is not supported", None),
    "HAVING alone": ("SELECT size FROM p HAVING size > 3", "HAVING needs GROUP BY", None),
    "UNION": ("SELECT size FROM p UNION ALL SELECT size FROM p", "one SELECT, found UNION", "SELECT"),
    "no FROM": ("SELECT 1 AS x", "needs FROM", None),
    "two streams": ("SELECT size FROM p JOIN load ON src = host", "load is none", "load"),
    "cross join": ("SELECT size FROM p CROSS JOIN sites", "is not a lookup", "sites"),
    "right join": (
        "SELECT size FROM p RIGHT JOIN sites ON src = host",
        "RIGHT JOIN is not a lookup",
        "sites",
    ),
    "join without equality": (
        "SELECT size FROM p JOIN sites ON src > host",
        "equates no column of sites",
        "sites",
    ),
    "join without ON": ("SELECT size FROM p JOIN sites", "equates no column of sites", "sites"),
    "ambiguous": (
        "SELECT symbol FROM LATEST(ticks) JOIN holdings ON ticks.symbol = holdings.symbol",
        "column symbol is in ticks and in holdings",
        "symbol",
    ),
    "column of neither": (
        "SELECT SUM(qtty) AS x FROM LATEST(ticks) JOIN holdings USING (symbol)",
        "no column qtty in ticks or holdings",
        "qtty",
    ),
    "column of one of two": (
        "SELECT SUM(h.price) AS x FROM LATEST(ticks) JOIN holdings h USING (symbol)",
        "no column price in h\n",
        "price",
    ),
    "LATEST without key": ("SELECT size FROM LATEST(p)", "p has no KEY", None),
    "LATEST of nothing": ("SELECT size FROM LATEST(q)", "none called q", None),
    "LATEST of a table": (
        "SELECT host FROM LATEST(sites)",
        "sites is a table, and LATEST reads a stream",
        "sites",
    ),
    "LATEST of a CTE": (
        "WITH w AS (SELECT pps FROM LATEST(load)) SELECT pps FROM LATEST(w)",
        "w is a sub-query, and LATEST reads a stream with a KEY",
        "w)",
    ),
    "extreme of a value": (
        "SELECT host, max_over(pps, '10 seconds') AS x FROM LATEST(load)",
        "hint: write max_over(AVG(pps), '10 seconds')",
        "max_over",
    ),
    "extreme of a value since a time": (
        "SELECT min_since(pps * 2, TIMESTAMP '2026-01-01') AS x FROM LATEST(load)",
        "min_since() is of an aggregate over time",
        "min_since",
    ),
    "extreme of a value beside an aggregate": (
        "SELECT AVG(pps) AS a, min_over(pps, '10 seconds') AS x FROM LATEST(load)",
        "write min_over(AVG(pps), '10 seconds')",
        "min_over",
    ),
    "extreme of a value in WHERE": (
        "SELECT pps FROM LATEST(load) WHERE max_over(pps, '10 seconds') > 3",
        "max_over() is of an aggregate",
        "max_over",
    ),
    "extreme of a key in HAVING": (
        "SELECT host, AVG(pps) AS a FROM LATEST(load) GROUP BY host HAVING max_over(host, '1 minute') > 'a'",
        "write max_over(AVG(x), '30 minutes')",
        None,
    ),
    "extreme of a value over rows": (
        "SELECT max_over(size, '10 seconds') AS x FROM p",
        "max_over() goes over current values",
        "max_over",
    ),
    "extreme of what is aggregated below": (
        "SELECT max_over(a, '1 minute') AS x FROM (SELECT AVG(pps) AS a FROM LATEST(load)) v",
        "q.v aggregates already: take the extreme there",
        "max_over",
    ),
    "LATEST with window": (
        "SELECT AVG(pps) AS x FROM LATEST(load) GROUP BY window(ts, '1 minute')",
        "takes no window",
        None,
    ),
    "table function": ("SELECT 1 AS x FROM range(5)", "there is one such form: LATEST(stream)", None),
}


@pytest.mark.parametrize(("text", "said", "at"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_planned_is_refused_in_its_place(text: str, said: str, at: str | None) -> None:
    statement = f"CREATE QUERY q AS {text}"
    message = refusal(statement)
    assert said in message
    if at is not None:
        assert message.startswith(f"line {LINES + 1}, column {statement.index(at) + 1}: ")


def test_latest_of_what_is_no_stream_says_what_it_is() -> None:
    below = f"CREATE VIEW v AS SELECT AVG(pps) AS a FROM LATEST(load); CREATE QUERY r AS SELECT COUNT(*) AS n FROM p {MINUTE};\n"
    view = refusal(below + "CREATE QUERY q AS SELECT a FROM LATEST(v)")
    assert "v is a view, and LATEST reads a stream with a KEY" in view
    assert "hint: it reads current values already: write FROM v" in view
    windowed = refusal(below + "CREATE QUERY q AS SELECT n FROM LATEST(r)")
    assert "r is a query, and LATEST reads a stream with a KEY" in windowed
    assert "hint: streams with a KEY are load, ticks" in windowed


def test_a_function_of_the_users_may_be_called_like_an_extreme() -> None:
    own = Functions(frozenset({"max_over"}))
    text = DECLARED + "CREATE QUERY q AS SELECT max_over(pps, 2) AS x FROM LATEST(load)"
    assert not Catalog.from_sql(text, own).steps["q"].moves


def test_having_may_take_the_extreme_of_an_item() -> None:
    step = query("SELECT AVG(pps) AS a FROM LATEST(load) HAVING max_over(a, '1 minute') > 3")
    assert [move.sql for move in step.moves] == ["(a0)"]


# What cannot be honoured


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ("SELECT * FROM p WHERE rand() < 0.5", "rand() changes from run to run"),
        ("SELECT uuid() AS u FROM p", "uuid() changes from run to run"),
        ("SELECT now() AS n FROM p", "now() is the clock's"),
        ("SELECT monotonically_increasing_id() AS n FROM p", "depends on how Spark cuts the work"),
        ("SELECT AVG(size) OVER (PARTITION BY src) AS a FROM p", "window functions (OVER) are not supported"),
        ("SELECT size FROM p WHERE size IN (SELECT size FROM p)", "a sub-query stands only after FROM"),
        (
            "SELECT COUNT(*) AS n FROM p GROUP BY ROLLUP(src), window(ts, '1 second')",
            "ROLLUP is not supported",
        ),
        ("SELECT COUNT(*) AS n FROM p GROUP BY session_window(ts, '1 second')", "session windows are not"),
        ("SELECT try_sum(size) AS s FROM p GROUP BY window(ts, '1 second')", "TRY_SUM is not an aggregate"),
        (
            "SELECT max_by(src, size) AS s FROM p GROUP BY window(ts, '1 second')",
            "MAX_BY is not an aggregate",
        ),
        (
            "SELECT percentile(size, 0.5, size) AS s FROM p GROUP BY window(ts, '1 second')",
            "found 3 arguments",
        ),
        ("SELECT MEDIAN(DISTINCT size) AS s FROM p GROUP BY window(ts, '1 second')", "(DISTINCT …) is not"),
    ],
)
def test_what_cannot_be_honoured_is_refused_where_it_stands(select: str, said: str) -> None:
    stream = "CREATE STREAM p (ts TIMESTAMP, src STRING, size INT) USING rate TIMESTAMP BY ts;\n"
    with pytest.raises(LanguageError) as caught:
        Catalog.from_sql(stream + f"CREATE QUERY q AS {select};", Functions())
    assert said in str(caught.value)
    assert caught.value.position is not None
    assert caught.value.position.line == 2
