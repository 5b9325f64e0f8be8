"""What the language refuses, and what it says of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import LanguageError
from slackwater.language.parse import parse
from slackwater.language.statements import ExplainFormat
from slackwater.plan.catalog import CONJUNCTS, Catalog
from slackwater.plan.explain import explain
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.tables import Plan
from slackwater.runtime.journal import Journal, kept_script
from slackwater.runtime.versions import Versions, reconcile
from slackwater.service.recorded_sql import RecordedVersions

STREAM = "CREATE STREAM s (ts TIMESTAMP, x INT) USING kafka TIMESTAMP BY ts"
SELECT = "SELECT COUNT(*) AS n FROM s GROUP BY window(ts, '1 minute')"
QUERY = f"CREATE QUERY q AS {SELECT}"
SECOND = 1_000_000
DEEP = "CREATE STREAM p (ts TIMESTAMP, size INT) USING scripted TIMESTAMP BY ts;\n "
FORMS: tuple[ExplainFormat, ...] = ("text", "json", "dot", "svg")


WRONG = [
    # text up to ^, where the error is to point, what it says
    ("^SELECT 1", "expected CREATE or ALTER or DROP or EXPLAIN at the start"),
    ("^CREAT QUERY q", "did you mean CREATE?"),
    ("CREATE^", "expected STREAM or TABLE or VIEW or QUERY or ALERT after CREATE, found the end"),
    ("CREATE ^STREM s (x INT)", "did you mean STREAM?"),
    ("CREATE STREAM ^5 (x INT)", "expected the name of the stream, found '5'"),
    ("DROP QUERY ^`..`", "a name has more than dots and blanks"),
    ("DROP QUERY ^` `", "a name has more than dots and blanks"),
    ("CREATE STREAM s^", "declare every column"),
    ("CREATE STREAM s ()^", "expected the columns of s, found none"),
    ("CREATE STREAM s ^(x INT", "opened here and never closed"),
    ("CREATE STREAM s (x INT, ^X STRING) USING kafka TIMESTAMP BY x", "declared twice"),
    ("CREATE STREAM s (x ^INTT) USING kafka", "'INTT' is not a Spark SQL type"),
    ("CREATE STREAM s (x^) USING kafka", "expected a type for column x"),
    ("CREATE STREAM s (x INT)^", "expected USING after the columns"),
    ("CREATE STREAM s (ts TIMESTAMP) USING kafka^", "name the time column: TIMESTAMP BY ts"),
    (
        "CREATE STREAM s (ts TIMESTAMP) USING kafka OPTIONS (a ^b) TIMESTAMP BY ts",
        "a value for option a in single quotes",
    ),
    (
        "CREATE STREAM s (ts TIMESTAMP) USING kafka OPTIONS (a 'b' ^c 'd') TIMESTAMP BY ts",
        "expected , between options",
    ),
    ("CREATE STREAM s (ts TIMESTAMP) USING kafka TIMESTAMP BY ^tz", "no column tz is declared"),
    ("CREATE STREAM s (at BIGINT) USING kafka TIMESTAMP BY ^at", "TIMESTAMP BY timestamp_seconds(at) AS ts"),
    ("CREATE STREAM s (at BIGINT) USING kafka TIMESTAMP BY ^f(at) AS at", "which a column is called already"),
    ("CREATE STREAM s (at BIGINT) USING kafka TIMESTAMP BY ^f(at AS at", "cannot read the time expression"),
    (f"{STREAM} LATENESS 2^", "expected a unit of time"),
    (f"{STREAM} LATENESS 2 ^MONTHS", "'MONTHS' is not a unit of fixed length"),
    (f"{STREAM} LATENESS ^two SECONDS", "such as 2 SECONDS (a number), found 'two'"),
    (f"{STREAM} LATENESS ^2m", "expected the lateness as a number and a unit, found '2m'"),
    (f"{STREAM} LATENESS ^2m", "hint: write 2 MINUTES"),
    (f"{STREAM} TOLERANCE ^1s", "hint: write 1 SECOND"),
    (f"{STREAM} TOLERANCE ^500ms KEY x", "hint: write 500 MILLISECONDS"),
    (f"{STREAM} IDLE ^1h", "hint: write 1 HOUR"),
    (f"{STREAM} TICK ^1.5s", "hint: write 1.5 SECONDS"),
    (f"{STREAM} INTERRUPTED AFTER ^2d", "hint: write 2 DAYS"),
    (f"{STREAM} LATENESS ^-2 SECONDS", "cannot be below 0"),
    (f"{STREAM} ^TIMESTAMP BY ts", "TIMESTAMP BY is given twice"),
    (f"{STREAM} KEY ^y", "declared are ts, x"),
    (f"{STREAM} KEY (x, ^X)", "column x is in the KEY twice\n"),
    (f"{STREAM} KEY x, ^x", "hint: name every column of the key once"),
    (f"{STREAM} FORMAT ^avro", "expected JSON or CSV or XML or TEXT after FORMAT"),
    (f"{STREAM} MAX RATE 5 ^SECOND", "expected PER after the rate"),
    (f"{STREAM} MAX RATE 5 PER ^MONTH", "not a unit of fixed length"),
    (f"{STREAM} ^BOGUS 1", "expected one of OPTIONS, FORMAT, KEY, TIMESTAMP BY"),
    ("CREATE TABLE t (a INT) USING csv ^KEY a", "a table has USING and OPTIONS, nothing more"),
    (f"CREATE VIEW v AS {SELECT} ^WITH ERROR 5%", "a view has no contract of its own"),
    ("CREATE QUERY q^", "expected AS after CREATE QUERY q"),
    ("CREATE QUERY q AS^", "expected SELECT"),
    ("CREATE QUERY q AS ^INSERT", "expected SELECT"),
    ("CREATE QUERY q AS SELECT a b ^c FROM s", "cannot read this SELECT"),
    ("CREATE QUERY q AS SELECT a FROM ^WHERE", "expected table name at 'WHERE'"),
    ("CREATE QUERY q AS SELECT a FROM s WHERE a ^>", "something is missing at '>'"),
    ("CREATE QUERY q AS ^SELECT a FROM s UNION SELECT a FROM s", "one SELECT, found UNION"),
    ("CREATE QUERY q AS SELECT 'abc^", "ends inside a string"),
    (f"{QUERY} WITH^", "expected EXACT or ERROR or SUBSET or PRECISION or DRIFT after WITH"),
    (f"{QUERY} WITH ^EROR 5%", "did you mean ERROR?"),
    (f"{QUERY} WITH ERROR 5^", "expected % after the error"),
    (f"{QUERY} WITH ERROR 5^", "hint: write 5%"),
    (f"{QUERY} WITH ERROR 0.05^", "hint: write 5% or 0.05%"),
    (f"{QUERY} WITH ERROR 5 ^PERCENT", "hint: write 5%"),
    (f"{QUERY} WITH ERROR ^CONFIDENC 99%", "did you mean CONFIDENCE?"),
    (f"{QUERY} WITH ^ERROR 0%", "for no error, use EXACT"),
    (f"{QUERY} WITH ^ERROR 5% CONFIDENCE 100%", "CONFIDENCE must lie between 0% and 100%"),
    (f"{QUERY} WITH SUBSET^", "expected GAP after SUBSET"),
    (f"{QUERY} WITH ^SUBSET GAP 0", "at least 1, got 0"),
    (f"{QUERY} WITH SUBSET GAP ^1.5", "a whole number"),
    (f"{QUERY} WITH SUBSET GAP 3 FILL ^cubic", "expected LINEAR or LAST after FILL"),
    (f"{QUERY} WITH ^PRECISION -1", "at least 0, got -1"),
    (f"{QUERY} WITH PRECISION ^1e400", "(a number below 1.8e308), found '1e400'"),
    (f"{STREAM} MAX RATE ^1e400 PER SECOND", "(a number below 1.8e308), found '1e400'"),
    (f"{QUERY} WITH PRECISION 5^%", "a width in the unit of the column, not a share"),
    (f"{QUERY} WITH PRECISION 0.5^%", "hint: write PRECISION 0.5"),
    (f"{QUERY} WITH PRECISION 5 ^PERCENT", "hint: write PRECISION 5"),
    ("ALTER QUERY q WITH PRECISION 5^%", "hint: write PRECISION 5"),
    (f"{QUERY} WITH PRECISION 5 ^kB", "which is not named: write PRECISION 5"),
    (f"{QUERY} WITH PRECISION ^5kB", "which is not named: write PRECISION 5"),
    (f"{QUERY} WITH PRECISION 5 ^IMMEDIAT", "IMMEDIATE goes with ALTER QUERY"),
    ("ALTER QUERY q WITH PRECISION 5 ^kB", "write PRECISION 5; IMMEDIATE may follow it"),
    ("ALTER QUERY q WITH PRECISION 5 ^IMMEDIAT", "did you mean IMMEDIATE?"),
    ("ALTER QUERY q WITH PRECISION 5 IMMEDIATE ^now", "PRECISION may be followed by IMMEDIATE, or by ;"),
    (f"{QUERY} WITH PRECISION 5 ^WEIGHT 2", "WEIGHT does not go with PRECISION"),
    (f"{QUERY} WITH ^DRIFT 5 BELIEF 100%", "BELIEF must lie between"),
    (f"{QUERY} WITH DRIFT 1 BELIEF 0.95^", "hint: write 95% or 0.95%"),
    (f"{QUERY} WITH DRIFT 1 BELIEF 1.5^", "hint: write 1.5%"),
    (f"{QUERY} WITH DRIFT 1 BELIEF 150^", "hint: write a percentage such as 95%"),
    (f"{QUERY} WITH DRIFT 1 ^PERCENT BELIEF 90%", "hint: write 1%"),
    (f"{QUERY} WITH DRIFT 1 ^EXTRAPOLAT", "did you mean EXTRAPOLATE?"),
    (f"{QUERY} WITH DRIFT 1 EXTRAPOLATE ^BELIEF 90%", "in this order: DRIFT, BELIEF, EXTRAPOLATE"),
    (f"{QUERY} WITH DRIFT 1 ^roughly", "DRIFT may be followed by BELIEF and EXTRAPOLATE, or by ;"),
    (f"{QUERY} WITH EXACT ^EXTRAPOLATE", "EXTRAPOLATE goes with DRIFT"),
    (f"{QUERY} WITH SUBSET GAP 3 ^CONFIDENCE 90%", "CONFIDENCE goes with ERROR"),
    (f"{QUERY} WITH WEIGHT 2 ^EXACT", "EXACT comes first, then WEIGHT and PRIORITY"),
    (f"{QUERY} WITH EXACT ^EXACT", "unexpected 'EXACT' after the contract"),
    (f"{QUERY} WITH EXACT ^EXACT", "a query has one contract"),
    (f"{QUERY} WITH EXACT\n^CRAETE QUERY r AS SELECT 1", "put ; before the next one"),
    (f"{QUERY} WITH EXACT\n^CREATE QUERY r AS SELECT 1", "put ; before the next one"),
    (f"{QUERY} ^ERROR 5%", "WITH is missing before it"),
    ("ALTER ^VIEW v WITH EXACT", "only the contract of a query can be altered"),
    ("ALTER QUERY q ^SET EXACT", "expected WITH after ALTER QUERY q"),
    ("DROP^", "expected QUERY or VIEW or STREAM or TABLE or ALERT after DROP"),
    ("DROP QUERY a ^b", "the statement should end here"),
    ("DROP QUERY a ^DROP QUERY b", "a ; is missing before it"),
    ("EXPLAIN q ^r", "unexpected 'r'"),
    (f"EXPLAIN ^{STREAM}", "EXPLAIN shows the plan of queries"),
]


@pytest.mark.parametrize(("marked", "said"), WRONG)
def test_errors_say_what_and_where(marked: str, said: str) -> None:
    # a statement before and a line above must not move the pointer
    before = "DROP QUERY IF EXISTS other;\n  "
    text = before + marked.replace("^", "", 1)
    offset = len(before) + marked.index("^")
    with pytest.raises(LanguageError) as caught:
        parse(text, file="monitor.sql")
    position = caught.value.position
    message = str(caught.value)
    assert said in message
    assert position is not None
    assert position.offset == offset
    line, column = text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
    assert (position.line, position.column) == (line, column)
    assert message.startswith(f"monitor.sql: line {line}, column {column}: ")
    shown = message.splitlines()
    assert shown[1] == "  " + text.splitlines()[line - 1]
    assert shown[2] == " " * (column + 1) + "^"


@given(st.text(alphabet=st.sampled_from(list("CREATE QUERYSLAFOMW(),;'`%5.*-\n")), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing but a LanguageError with a position comes out, whatever goes in."""
    _read_or_refused(text)


@given(st.data())
def test_any_order_of_words_is_read_or_refused(data: st.DataObject) -> None:
    text = f"{STREAM} LATENESS 2 SECONDS; {QUERY} WITH ERROR 5% WEIGHT 2; EXPLAIN q; DROP QUERY IF EXISTS q"
    words = re.findall(r"\w+|'[^']*'|\S", text)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(words) - 1))
        words[place] = data.draw(st.sampled_from([*words, ""]))
    _read_or_refused(" ".join(words))


def _read_or_refused(text: str) -> None:
    refused: LanguageError | None = None
    try:
        parse(text)
    except LanguageError as error:
        refused = error
    if refused is not None:
        assert refused.position is not None
        assert 0 <= refused.position.offset <= len(text)
        assert str(refused)


@pytest.mark.parametrize(
    "condition",
    [
        "(" * 300 + "size" + ")" * 300 + " > 1",
        "NOT " * 900 + "size > 1",
        "CASE WHEN size > 1 THEN " * 200 + "1" + " ELSE 0 END" * 200 + " = 1",
    ],
    ids=["parentheses", "not", "case"],
)
def test_what_is_nested_too_deeply_is_told_where_it_begins(condition: str) -> None:
    sql = f"EXPLAIN;\nCREATE QUERY q AS SELECT COUNT(*) AS n FROM p WHERE {condition}"
    with pytest.raises(LanguageError, match="nested too deeply to be read") as raised:
        parse(sql)
    assert raised.value.position is not None
    assert (raised.value.position.line, raised.value.position.column) == (2, 1)
    assert "views" in raised.value.hint


def test_what_is_too_deep_to_be_planned_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr("slackwater.plan.catalog.analyse", endless)
    sql = f"{DEEP}CREATE QUERY q AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 second')"
    with pytest.raises(LanguageError, match="line 2, column 2: this statement is nested too deeply"):
        Catalog.from_sql(sql, Functions())


def test_more_conditions_than_can_be_planned_are_told_and_the_most_are_planned() -> None:
    def catalog_of(count: int) -> Catalog:
        where = " AND ".join(f"size <> {n}" for n in range(count))
        return Catalog.from_sql(
            f"{DEEP}CREATE VIEW v AS SELECT * FROM p WHERE {where};"
            "CREATE QUERY q AS SELECT COUNT(*) AS n FROM v WHERE size > -1 GROUP BY window(ts, '1 second')",
            Functions(),
        )

    with pytest.raises(LanguageError, match="q asks for 151 conditions") as raised:
        catalog_of(CONJUNCTS)
    assert "NOT IN" in raised.value.hint
    with pytest.raises(LanguageError, match="v asks for 500 conditions"):
        catalog_of(500)
    plan = extend(Plan(), catalog_of(CONJUNCTS - 1))
    for form in FORMS:
        assert explain(plan, form)


@pytest.mark.parametrize("count", [CONJUNCTS + 1, 199])
def test_what_an_earlier_run_took_is_not_held_to_the_bound_on_conditions(count: int, tmp_path: Path) -> None:
    where = " AND ".join(f"size <> {n}" for n in range(count))
    sql = f"{DEEP}CREATE QUERY q AS SELECT COUNT(*) AS n FROM p WHERE {where} GROUP BY window(ts, '1 second');\n"
    with pytest.raises(LanguageError, match="conditions"):
        Catalog.from_sql(sql, Functions())
    catalog = Catalog.from_sql(sql, Functions(), kept=True)
    for form in FORMS:
        assert explain(extend(Plan(), catalog), form)
    # a state is gone on with, whether its file is as it was or not
    journal = Journal(tmp_path / "state")
    script = [statement.sql for statement in parse(sql)]
    Versions(journal, Functions()).propose(catalog, script)
    assert kept_script(tmp_path / "state") == script
    kept = Versions(journal, Functions())
    assert list(kept.plan(1).catalog.queries) == ["q"]
    more = "CREATE QUERY r AS SELECT COUNT(*) AS n FROM p WHERE {} GROUP BY window(ts, '1 second');"
    found, _ = reconcile(kept.plan(1).catalog, kept.script, sql + more.format("size > 1"))
    assert list(found.queries) == ["q", "r"]
    with pytest.raises(LanguageError, match="r asks for"):
        reconcile(kept.plan(1).catalog, kept.script, sql + more.format(where))
    # and a recording is opened
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions" / "00000001.sql").write_text(catalog.sql())
    assert list(RecordedVersions(tmp_path, {}).last().queries) == ["q"]
