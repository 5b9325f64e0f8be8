"""CREATE ALERT and DROP ALERT: what they say, where they complain, and how a catalog keeps them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from slackwater.errors import LanguageError
from slackwater.language.parse import parse, parse_one
from slackwater.language.render import create_alert, drop_alert
from slackwater.language.statements import CreateAlert, Drop
from slackwater.language.urls import shown_url
from slackwater.plan.catalog import Catalog
from slackwater.plan.explain import explain
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.tables import Plan
from slackwater.runtime.versions import changed_live, reconcile

DECLARED = """CREATE STREAM p (ts TIMESTAMP, port INT, size INT) USING traffic TIMESTAMP BY ts;
CREATE QUERY traffic AS SELECT port, SUM(size) AS bytes, COUNT(*) AS `n rows` FROM p
  GROUP BY window(ts, '10 seconds'), port;
CREATE QUERY plain AS SELECT port, size FROM p;
"""
HEAVY = "CREATE ALERT heavy ON traffic WHEN bytes > 1e9 TO 'http://localhost:8000/alerts'"


def alert(text: str) -> CreateAlert:
    statement = parse_one(text)
    assert isinstance(statement, CreateAlert)
    return statement


def catalog(*more: str) -> Catalog:
    return Catalog.from_sql(DECLARED + ";".join(more), Functions())


# --- what it says --------------------------------------------------------------------------------


def test_an_alert_says_whom_it_watches_and_whom_it_tells() -> None:
    found = alert(HEAVY)
    assert (found.name, found.query, found.column, found.comparison) == ("heavy", "traffic", "bytes", ">")
    assert found.limit == Decimal("1e9")
    assert found.certainty == "certainly", "CERTAINLY is what holds where nothing is said"
    assert found.urls == ("http://localhost:8000/alerts",)
    assert found.condition == "bytes > 1e9"
    assert found.sql == HEAVY


@pytest.mark.parametrize(
    ("condition", "comparison", "limit", "certainty"),
    [
        ("bytes >= 5", ">=", "5", "certainly"),
        ("bytes < -0.5 CERTAINLY", "<", "-0.5", "certainly"),
        ("bytes<=- 3 possibly", "<=", "-3", "possibly"),
        ("bytes > 12345678901234567890 POSSIBLY", ">", "12345678901234567890", "possibly"),
    ],
)
def test_conditions(condition: str, comparison: str, limit: str, certainty: str) -> None:
    found = alert(f"CREATE ALERT a ON q WHEN {condition} TO 'http://h'")
    assert (found.comparison, found.limit, found.certainty) == (comparison, Decimal(limit), certainty)


def test_an_alert_may_tell_several() -> None:
    found = alert("CREATE ALERT a ON q WHEN x > 1 TO 'http://one/' AND 'https://two:8443/x'")
    assert found.urls == ("http://one/", "https://two:8443/x")


def test_the_address_may_stand_before_the_condition() -> None:
    first = alert("CREATE ALERT a ON q TO 'http://h' AND 'http://i' WHEN bytes > 1e9 POSSIBLY")
    last = alert("CREATE ALERT a ON q WHEN bytes > 1e9 POSSIBLY TO 'http://h' AND 'http://i'")
    assert (first.condition, first.certainty, first.urls) == (last.condition, last.certainty, last.urls)
    assert alert("CREATE ALERT a ON q TO 'http://h' WHEN bytes > 1e9").certainty == "certainly"


def test_names_in_back_quotes_and_words_of_the_grammar() -> None:
    found = alert("CREATE ALERT `when` ON `to` WHEN `n rows` > 1 TO 'http://h'")
    assert (found.name, found.query, found.column) == ("when", "to", "n rows")


def test_from_python_it_is_the_same() -> None:
    written = create_alert("heavy", "traffic", "bytes > 1e9", ["http://localhost:8000/alerts"])
    assert alert(written).condition == alert(HEAVY).condition
    dropped = parse_one(drop_alert("hea`vy"))
    assert isinstance(dropped, Drop)
    assert (dropped.kind, dropped.name) == ("alert", "hea`vy")


# --- where it complains; ^ marks the place -------------------------------------------------------

BAD = [
    ("CREATE ALERT^", "expected the name of the alert, found the end"),
    ("CREATE ALERT a ^WHEN x > 1", "expected ON after CREATE ALERT a, then the name of a query"),
    ("CREATE ALERT a ON ^1", "expected the name of a query"),
    ("CREATE ALERT a ON q ^POSSIBLY", "expected WHEN after ON q, then a condition such as"),
    ("CREATE ALERT a ON q TO 'http://h'^", "expected WHEN after the address, then a condition such as"),
    ("CREATE ALERT a ON q TO 'http://h' WHEN x > 5 ^TO 'http://i'", "the address stands before WHEN"),
    ("CREATE ALERT a ON q TO 'http://h' WHEN x > 5 ^CERTAINTY", "expected CERTAINLY or POSSIBLY after x > 5"),
    ("CREATE ALERT a ON q TO 'http://h' AND ^'http://h' WHEN x > 5", "named twice"),
    ("CREATE ALERT a ON q WHEN ^5 < x TO 'http://h'", "expected a column of the query, found '5'"),
    ("CREATE ALERT a ON q WHEN x ^= 5 TO 'http://h'", "hardly ever one number"),
    ("CREATE ALERT a ON q WHEN sum^(x) > 5 TO 'http://h'", "by its name after AS"),
    ("CREATE ALERT a ON q WHEN x > ^y TO 'http://h'", "expected the limit (a number), found 'y'"),
    ("CREATE ALERT a ON q WHEN x > ^1_000 TO 'http://h'", "expected the limit (a number), found '1_000'"),
    ("CREATE ALERT a ON q WHEN x > ^1e999 TO 'http://h'", "a number below 1.8e308"),
    ("CREATE ALERT a ON q WHEN x > 5^% TO 'http://h'", "in the unit of the column, not a share"),
    ("CREATE ALERT a ON q WHEN x > 5 ^CERTAINTY TO 'http://h'", "did you mean CERTAINLY?"),
    ("CREATE ALERT a ON q WHEN x > 5 ^'http://h'", "expected CERTAINLY or POSSIBLY or TO after x > 5"),
    ("CREATE ALERT a ON q WHEN x > 5^", "expected TO after x > 5, then the address of a webhook"),
    ("CREATE ALERT a ON q WHEN x > 5 TO ^http", "written in single quotes"),
    ("CREATE ALERT a ON q WHEN x > 5 TO ^7", "expected the address of a webhook in single quotes"),
    ("CREATE ALERT a ON q WHEN x > 5 TO ^'ftp://h'", "by http or https"),
    ("CREATE ALERT a ON q WHEN x > 5 TO ^'http:///x'", "names no host"),
    ("CREATE ALERT a ON q WHEN x > 5 TO ^'http://h:99999/'", "this is no address: port out of range"),
    ("CREATE ALERT a ON q WHEN x > 5 TO ^'http://h:0/'", "port of this address is 0"),
    ("CREATE ALERT a ON q WHEN x > 5 TO ^'http://h/a b'", "blank in this address"),
    ("CREATE ALERT a ON q WHEN x > 5 TO ^'http://hé/'", "letters that an address cannot have"),
    ("CREATE ALERT a ON q WHEN x > 5 TO 'http://h' AND ^'http://h'", "named twice"),
    ("CREATE ALERT a ON q WHEN x > 5 TO 'http://h' ^OR 'http://i'", "unexpected 'OR' after the address"),
    ("DROP ALERT^", "expected a name"),
    ("EXPLAIN ^CREATE ALERT a ON q WHEN x > 5 TO 'http://h'", "EXPLAIN shows the plan of queries"),
]


@pytest.mark.parametrize(("marked", "message"), BAD)
def test_mistakes_are_shown_where_they_are(marked: str, message: str) -> None:
    text = marked.replace("^", "")
    with pytest.raises(LanguageError) as raised:
        parse(text)
    assert message in str(raised.value)
    assert raised.value.position is not None
    assert raised.value.position.offset == marked.index("^")


REFUSED = [
    ("CREATE ALERT a ON ^traffik WHEN bytes > 1 TO 'http://h'", "did you mean traffic?"),
    ("CREATE ALERT a ON ^p WHEN bytes > 1 TO 'http://h'", "there is no query called p"),
    ("CREATE ALERT a ON traffic WHEN ^byte > 1 TO 'http://h'", "did you mean bytes?"),
    ("CREATE ALERT a ON traffic WHEN ^colour > 1 TO 'http://h'", "columns are bytes, n rows"),
    ("CREATE ALERT a ON traffic WHEN ^PORT > 1 TO 'http://h'", "groups by, and has no interval"),
    ("CREATE ALERT a ON plain WHEN ^size > 1 TO 'http://h'", "query plain has no aggregate"),
    ("^CREATE ALERT Traffic ON traffic WHEN bytes > 1 TO 'http://h'", "there is a query called traffic"),
    ("^CREATE ALERT HEAVY ON traffic WHEN bytes > 1 TO 'http://h'", "or DROP ALERT heavy first"),
    ("^DROP QUERY traffic", "query traffic has the alert heavy"),
    ("^DROP ALERT traffic", "there is no alert called traffic"),
    ("^DROP ALERT heavi", "did you mean heavy?"),
    ("^DROP QUERY heavy", "there is no query called heavy"),
    ("CREATE QUERY r AS SELECT bytes FROM ^heavy", "there is no stream, view or query called heavy"),
]


@pytest.mark.parametrize(("marked", "message"), REFUSED)
def test_what_a_catalog_refuses(marked: str, message: str) -> None:
    text = marked.replace("^", "")
    with pytest.raises(LanguageError) as raised:
        catalog(HEAVY).apply_all(parse(text))
    assert message in str(raised.value)
    assert raised.value.position is not None
    assert raised.value.position.offset == marked.index("^")


# --- how a catalog keeps it ----------------------------------------------------------------------


def test_a_catalog_takes_names_as_the_query_has_them_and_writes_itself() -> None:
    found = catalog("CREATE ALERT A ON TRAFFIC WHEN BYTES > 1 TO 'http://h'")
    assert (found.alerts["a"].query, found.alerts["a"].column) == ("traffic", "bytes")
    assert Catalog.from_sql(found.sql(), Functions()) == found
    altered = found.apply_all(parse("ALTER QUERY traffic WITH EXACT"))
    assert Catalog.from_sql(altered.sql(), Functions()) == altered


def test_dropped_alerts_are_gone_and_the_query_may_follow() -> None:
    found = catalog(HEAVY, "DROP ALERT heavy", "DROP ALERT IF EXISTS heavy", "DROP QUERY traffic")
    assert not found.alerts
    assert "traffic" not in found.queries


def test_an_alert_that_is_called_as_a_subquery_can_be_dropped() -> None:
    nested = (
        "CREATE QUERY n AS WITH hot AS (SELECT SUM(size) AS s FROM p GROUP BY window(ts, '1 second')) "
        "SELECT MAX(s) AS m FROM hot GROUP BY window(ts, '5 seconds')"
    )
    found = catalog(nested, "CREATE ALERT hot ON n WHEN m > 1 TO 'http://h'", "DROP ALERT hot")
    assert not found.alerts


def test_explain_shows_alerts_at_their_query_and_no_secret() -> None:
    secret = "CREATE ALERT a ON traffic WHEN bytes > 1 POSSIBLY TO 'https://ann:sesame@h:1/x?token=t'"
    plan = extend(Plan(), catalog(secret))
    text = explain(plan)
    assert "alert a: bytes > 1 POSSIBLY, to https://h:1/…" in text
    assert "sesame" not in text
    assert "token" not in text
    assert "alert a" in explain(plan, "text", "a"), "EXPLAIN of an alert is that of its query"
    assert "alert a" in explain(plan, "json", "traffic")
    assert "alert" not in explain(plan, "text", "plain")


def test_addresses_are_shown_without_secrets() -> None:
    assert shown_url("http://h") == shown_url("http://h/") == "http://h"
    assert shown_url("https://u:p@[::1]:8/x?a=b#c") == "https://[::1]:8/…"
    assert shown_url("https://hooks.example/services/T0/B1") == "https://hooks.example/…"
    assert shown_url("https://h?token=1") == "https://h/…"


def test_a_restart_keeps_what_was_changed_while_running() -> None:
    script = DECLARED + HEAVY
    running = catalog(HEAVY, "DROP ALERT heavy", HEAVY.replace("heavy", "other"))
    applied = [s.sql for s in parse(script)]
    kept, _ = reconcile(running, applied, script)
    assert list(kept.alerts) == ["other"]
    assert changed_live(catalog(HEAVY), kept) == ["heavy was dropped", "other was created"]
    # the file says more now: what it said before stays dropped, what is new comes
    kept, _ = reconcile(running, applied, script + ";" + HEAVY.replace("heavy", "third"))
    assert set(kept.alerts) == {"other", "third"}
    # the file says something else of the same alert
    kept, _ = reconcile(running, applied, script.replace("1e9", "2e9"))
    assert kept.alerts["heavy"].limit == Decimal("2e9")
