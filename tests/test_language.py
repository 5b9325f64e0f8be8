"""The language: every statement form, what is assumed where nothing is said, and errors in their place."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import LanguageError
from slackwater.language.contracts import Contract, Drift, Error, Exact, Precision, Standing, Subset
from slackwater.language.durations import format_duration, parse_duration, unit_micros
from slackwater.language.parse import parse, parse_one
from slackwater.language.render import alter_query
from slackwater.language.statements import (
    AlterQuery,
    Column,
    CreateQuery,
    CreateStream,
    CreateTable,
    CreateView,
    Drop,
    Explain,
)

STREAM = "CREATE STREAM s (ts TIMESTAMP, x INT) USING kafka TIMESTAMP BY ts"
SELECT = "SELECT COUNT(*) AS n FROM s GROUP BY window(ts, '1 minute')"
QUERY = f"CREATE QUERY q AS {SELECT}"
SECOND = 1_000_000


def stream(text: str) -> CreateStream:
    found = parse_one(text)
    assert isinstance(found, CreateStream)
    return found


def contract(text: str) -> Contract | None:
    found = parse_one(f"{QUERY} WITH {text}")
    assert isinstance(found, CreateQuery)
    return found.contract


# Streams and tables


def test_a_stream_with_everything() -> None:
    found = stream(
        """CREATE STREAM packets (at TIMESTAMP, src STRING, tags MAP<STRING, ARRAY<INT>>, size DECIMAL(10, 2))
        USING kafka OPTIONS (subscribe 'packets', 'kafka.bootstrap.servers' 'localhost:9092', a.b = 5, c TRUE)
        FORMAT json OPTIONS (mode 'FAILFAST') KEY (src, size) TIMESTAMP BY at
        LATENESS 2 SECONDS TOLERANCE 400 MILLISECONDS MAX RATE 5 PER MINUTE IDLE 10 SECONDS"""
    )
    assert found.columns == (
        Column("at", "TIMESTAMP"),
        Column("src", "STRING"),
        Column("tags", "MAP<STRING, ARRAY<INT>>"),
        Column("size", "DECIMAL(10, 2)"),
    )
    assert found.format == "kafka"
    assert found.options == (
        ("subscribe", "packets"),
        ("kafka.bootstrap.servers", "localhost:9092"),
        ("a.b", "5"),
        ("c", "true"),
    )
    assert (found.payload, found.payload_options) == ("json", (("mode", "FAILFAST"),))
    assert found.key == ("src", "size")
    assert (found.time, found.time_expression) == ("at", None)
    assert (found.lateness, found.tolerance, found.idle) == (2 * SECOND, 400_000, 10 * SECOND)
    assert found.max_rate == pytest.approx(5 / 60)


def test_what_a_stream_is_without_being_told() -> None:
    found = stream(STREAM)
    assert (found.options, found.payload, found.payload_options, found.key) == ((), None, (), ())
    assert (found.lateness, found.tolerance, found.max_rate, found.idle) == (0, None, None, None)
    assert found.sql == STREAM


def test_clauses_stand_in_any_order_and_words_in_any_case() -> None:
    found = stream("create stream S (X int, Ts timestamp) using Rate lateness 1 minute timestamp by TS key x")
    assert (found.name, found.time, found.key, found.lateness) == ("S", "Ts", ("X",), 60 * SECOND)


def test_time_may_be_an_expression() -> None:
    found = stream(
        "CREATE STREAM s (epoch BIGINT) USING kafka "
        "TIMESTAMP BY timestamp_seconds(epoch) AS at LATENESS 1 SECOND"
    )
    assert (found.time, found.time_expression, found.lateness) == ("at", "timestamp_seconds(epoch)", SECOND)
    unnamed = stream("CREATE STREAM s (epoch BIGINT) USING kafka TIMESTAMP BY timestamp_millis(epoch)")
    assert unnamed.time == "ts"


def test_names_may_be_quoted() -> None:
    found = stream(
        "CREATE STREAM `my stream` (`the time` TIMESTAMP) USING org.example.Source TIMESTAMP BY `the time`"
    )
    assert (found.name, found.time, found.format) == ("my stream", "the time", "org.example.Source")


def test_a_table() -> None:
    found = parse_one(
        "CREATE TABLE sites (host STRING, site STRING) USING parquet OPTIONS (path 'sites.parquet')"
    )
    assert isinstance(found, CreateTable)
    assert (found.name, found.format, found.options) == ("sites", "parquet", (("path", "sites.parquet"),))


# Views and queries


def test_views_and_queries() -> None:
    view, query = parse(f"CREATE VIEW v AS {SELECT}; {QUERY};")
    assert isinstance(view, CreateView)
    assert isinstance(query, CreateQuery)
    assert (view.name, query.name) == ("v", "q")
    assert (query.contract, query.standing, query.contract_at) == (None, Standing(), None)
    assert query.sql == QUERY


def test_a_cte_is_no_contract() -> None:
    found = parse_one("CREATE QUERY q AS WITH w AS (SELECT x FROM s) SELECT x FROM w WITH EXACT")
    assert isinstance(found, CreateQuery)
    assert found.contract == Exact()
    assert found.contract_at is not None
    assert found.contract_at.column == 68


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("EXACT", Exact()),
        ("EXACT PRIORITY 1 WEIGHT 0.5", Exact(weight=0.5, priority=1)),
        ("ERROR", Error(0.05, 0.95)),
        ("ERROR 1%", Error(0.01)),
        ("ERROR 0.5% CONFIDENCE 99.9%", Error(0.005, 0.999)),
        ("ERROR CONFIDENCE 90%", Error(0.05, 0.9)),
        ("ERROR 5% WEIGHT 2 PRIORITY 3", Error(0.05, weight=2, priority=3)),
        ("ERROR WEIGHT 2", Error(0.05, weight=2)),
        ("SUBSET GAP 10", Subset(10)),
        ("SUBSET GAP 10 FILL linear WEIGHT 2", Subset(10, "linear", weight=2)),
        ("SUBSET GAP 1 FILL LAST", Subset(1, "last")),
        ("PRECISION 0.5", Precision(0.5)),
        ("PRECISION 0 IMMEDIATE", Precision(0, immediate=True)),
        ("DRIFT 5", Drift(5)),
        ("DRIFT 1% BELIEF 90%", Drift(0.01, relative=True, belief=0.9)),
        ("DRIFT 0.25 EXTRAPOLATE", Drift(0.25, extrapolate=True)),
    ],
)
def test_contracts(text: str, expected: Contract) -> None:
    assert contract(text) == expected


def test_a_standing_without_a_contract() -> None:
    found = parse_one(f"{QUERY} WITH WEIGHT 3 PRIORITY 2")
    assert isinstance(found, CreateQuery)
    assert found.contract is None
    assert found.standing == Standing(weight=3, priority=2)


SHARES = st.floats(0, 1, exclude_min=True, exclude_max=True)
WEIGHTS = st.floats(0, exclude_min=True, allow_infinity=False)
PRIORITIES = st.none() | st.integers(1, 9)
NUMBERS = st.floats(0, allow_nan=False, allow_infinity=False)
CONTRACTS: st.SearchStrategy[Contract] = st.one_of(
    st.builds(Exact, weight=WEIGHTS, priority=PRIORITIES),
    st.builds(Error, SHARES, SHARES, weight=WEIGHTS, priority=PRIORITIES),
    st.builds(Subset, st.integers(1, 1000), st.sampled_from([None, "last", "linear"]), weight=WEIGHTS),
    st.builds(Precision, NUMBERS, st.booleans()),
    st.builds(Drift, NUMBERS, st.just(False), SHARES, st.booleans()),
    st.builds(Drift, SHARES, st.just(True), SHARES, st.booleans()),
)


@given(CONTRACTS)
def test_a_contract_reads_back_as_it_is_written(expected: Contract) -> None:
    altered = parse_one(alter_query("q", expected))
    assert isinstance(altered, AlterQuery)
    assert altered.contract == expected
    # IMMEDIATE is for the moment: what is promised reads back without it
    promised = replace(expected, immediate=False) if isinstance(expected, Precision) else expected
    assert contract(str(expected)) == promised


# The other statements


def test_alter_drop_and_explain() -> None:
    assert parse_one("ALTER QUERY q WITH SUBSET GAP 3") == AlterQuery(
        "ALTER QUERY q WITH SUBSET GAP 3", parse_one("EXPLAIN").source, "q", Subset(3)
    )
    for kind in ("query", "view", "stream", "table"):
        found = parse_one(f"DROP {kind.upper()} IF EXISTS x")
        assert isinstance(found, Drop)
        assert (found.kind, found.name, found.if_exists) == (kind, "x", True)
    found = parse_one("DROP QUERY x")
    assert isinstance(found, Drop)
    assert not found.if_exists


@pytest.mark.parametrize(
    ("text", "form", "name", "statement"),
    [
        ("EXPLAIN", "text", None, None),
        ("EXPLAIN svg", "svg", None, None),
        ("EXPLAIN q", "text", "q", None),
        ("EXPLAIN QUERY q", "text", "q", None),
        ("EXPLAIN JSON q", "json", "q", None),
        ("EXPLAIN FORMAT DOT q", "dot", "q", None),
        (f"EXPLAIN {QUERY} WITH EXACT", "text", None, "q"),
        (f"EXPLAIN SVG CREATE VIEW v AS {SELECT}", "svg", None, "v"),
        (f"EXPLAIN {SELECT} WITH EXACT", "text", None, "explained"),
    ],
)
def test_explain(text: str, form: str, name: str | None, statement: str | None) -> None:
    found = parse_one(text)
    assert isinstance(found, Explain)
    assert (found.format, found.name) == (form, name)
    assert (found.statement.name if found.statement is not None else None) == statement


def test_several_statements_comments_and_empty_ones() -> None:
    found = parse(f"-- the first\n{STREAM};;\n/* the; second */ {QUERY}\n;\nEXPLAIN q; DROP QUERY q")
    assert [type(s).__name__ for s in found] == ["CreateStream", "CreateQuery", "Explain", "Drop"]
    assert [s.source.position.line for s in found] == [2, 3, 5, 5]


@pytest.mark.parametrize("text", ["", "  \n", ";", "-- nothing\n"])
def test_a_text_may_hold_nothing(text: str) -> None:
    assert parse(text) == ()


def test_statements_read_back_from_their_own_text() -> None:
    text = f"{STREAM}; {QUERY} WITH ERROR 5%; ALTER QUERY q WITH EXACT; DROP QUERY q; EXPLAIN SVG q"
    for statement in parse(text):
        assert parse_one(statement.sql) == statement


def test_a_doubled_quote_stands_for_one() -> None:
    found = parse_one("CREATE QUERY q AS SELECT x FROM s WHERE y = 'it''s'")
    assert isinstance(found, CreateQuery)
    assert found.select.args["where"].this.expression.this == "it's"


def test_one_statement_where_one_is_wanted() -> None:
    with pytest.raises(LanguageError, match="expected one statement, found 2"):
        parse_one("DROP QUERY a; DROP QUERY b")


# Lengths of time


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("10 seconds", 10 * SECOND),
        ("1 hour 30 minutes", 5400 * SECOND),
        ("250ms", 250_000),
        ("1.5 s", 1_500_000),
        ("INTERVAL 2 days", 172_800 * SECOND),
        ("1 week", 604_800 * SECOND),
        ("3 us", 3),
    ],
)
def test_durations(text: str, micros: int) -> None:
    assert parse_duration(text) == micros


@pytest.mark.parametrize("text", ["", "soon", "5", "5 parsecs", "1 month", "-5 seconds", "5 seconds ago"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a length of time|not a unit of fixed length"):
        parse_duration(text)


@given(st.integers(1, 10**15))
def test_durations_read_back_as_they_are_written(micros: int) -> None:
    assert parse_duration(format_duration(micros)) == micros


def test_units() -> None:
    assert unit_micros("Minutes") == unit_micros("min") == 60 * SECOND
    assert unit_micros("fortnight") is None
