"""What may be declared, promised, altered and dropped."""

from __future__ import annotations

import pytest

from declared import EVERYTHING, FUNCTIONS, LINES, MINUTE, catalog, refusal
from slackwater.language.contracts import Error, Exact
from slackwater.plan.catalog import Catalog

REFUSED = {
    "MIN under ERROR": (
        f"SELECT MIN(size) AS m FROM p {MINUTE} WITH ERROR 5%",
        "MIN cannot be estimated",
        "SUBSET GAP 10 or EXACT",
    ),
    "distinct under ERROR": (
        f"SELECT COUNT(DISTINCT src) AS m FROM p {MINUTE} WITH ERROR",
        "COUNT(DISTINCT) cannot be estimated",
        "use SUBSET GAP 10 or EXACT",
    ),
    "user aggregate under ERROR": (
        f"SELECT longest(src) AS m FROM p {MINUTE} WITH ERROR",
        "LONGEST cannot be estimated",
        "EXACT",
    ),
    "HAVING under ERROR": (
        f"SELECT src, SUM(size) AS m FROM p {MINUTE}, src HAVING SUM(size) > 5 WITH ERROR",
        "HAVING on an estimate",
        "EXACT",
    ),
    "nested under ERROR": (
        f"SELECT SUM(m) AS m FROM (SELECT SUM(size) AS m FROM p {MINUTE}) x "
        "GROUP BY window(ts, '1 hour') WITH ERROR",
        "it reads q.x, which aggregates already",
        "EXACT",
    ),
    "LATEST under ERROR": (
        "SELECT AVG(pps) AS m FROM LATEST(load) WITH ERROR",
        "ERROR samples rows",
        "DRIFT e BELIEF p",
    ),
    "LATEST under SUBSET": (
        "SELECT AVG(pps) AS m FROM LATEST(load) WITH SUBSET GAP 3",
        "LATEST has none",
        "DRIFT",
    ),
    "rows under SUBSET": (
        "SELECT size FROM p WITH SUBSET GAP 3",
        "delivers single rows",
        "use ERROR 5%, or EXACT",
    ),
    "windows under PRECISION": (
        f"SELECT AVG(size) AS m FROM p {MINUTE} WITH PRECISION 5",
        "PRECISION bounds current values",
        "read FROM LATEST(p)",
    ),
    "no agents under PRECISION": (
        "SELECT AVG(price) AS m FROM LATEST(ticks) WITH PRECISION 5",
        "stream ticks has no agents (it is USING rate)",
        "DRIFT e BELIEF p",
    ),
    "IMMEDIATE from the start": (
        "SELECT AVG(pps) AS m FROM LATEST(load) WITH PRECISION 5 IMMEDIATE",
        "IMMEDIATE goes with ALTER QUERY",
        "",
    ),
    "windows under DRIFT": (
        f"SELECT AVG(size) AS m FROM p {MINUTE} WITH DRIFT 1%",
        "DRIFT defers the evaluation of current values",
        "read FROM LATEST(p)",
    ),
    "MAX under DRIFT": (
        "SELECT MAX(price) AS m FROM LATEST(ticks) WITH DRIFT 1%",
        "MAX over keys has no drift",
        "PRECISION d with agents, or EXACT",
    ),
    "MEDIAN under DRIFT": (
        "SELECT MEDIAN(price) AS m FROM LATEST(ticks) WITH DRIFT 1%",
        "MEDIAN is not linear",
        "use SUM, AVG or COUNT",
    ),
    "values chosen by values under DRIFT": (
        "SELECT SUM(price) AS m FROM LATEST(ticks) WHERE price > 3 WITH DRIFT 1%",
        "it chooses keys by price > 3, which changes with the values",
        "use EXACT",
    ),
    "HAVING under DRIFT": (
        "SELECT symbol, SUM(price) AS m FROM LATEST(ticks) GROUP BY symbol HAVING SUM(price) > 3 WITH DRIFT 1%",
        "HAVING would be decided by an answer that may have drifted",
        "select where the answers are read",
    ),
    "rows under DRIFT": (
        "SELECT symbol, price FROM LATEST(ticks) WITH DRIFT 1%",
        "DRIFT bounds an aggregate",
        "use EXACT",
    ),
    "a product of sums under DRIFT": (
        "SELECT SUM(price) * AVG(price) AS m FROM LATEST(ticks) WITH DRIFT 1%",
        "m is not linear in the values",
        "select what it is made of",
    ),
    "an extreme of a product under DRIFT": (
        "SELECT min_since(SUM(price) * AVG(price), TIMESTAMP '2026-01-01') AS m FROM LATEST(ticks) WITH DRIFT 1%",
        "what min_since is taken of is not linear",
        "use EXACT",
    ),
    "an extreme beside times": (
        "SELECT MAX(ts) AS t, max_over(AVG(price), '1 minute') AS m FROM LATEST(ticks) WITH EXACT",
        "beside an extreme over time all is computed in doubles, and ts is TIMESTAMP",
        "make it a query of its own",
    ),
}


@pytest.mark.parametrize(("text", "reason", "instead"), REFUSED.values(), ids=REFUSED)
def test_a_contract_that_cannot_be_honoured_is_refused(text: str, reason: str, instead: str) -> None:
    statement = f"CREATE QUERY q AS {text}"
    message = refusal(statement)
    assert reason in message
    assert instead in message
    column = statement.rindex(" WITH ") + len(" WITH ") + 1
    assert message.startswith(f"line {LINES + 1}, column {column}: ")


UNDER_NO_CONTRACT = {
    "an extreme of what is not kept": (
        "SELECT ^max_over(MEDIAN(price), '1 minute') AS m",
        "COUNT, MIN and MAX of values: MEDIAN is not linear in the values",
        "take the extreme of something linear",
    ),
    "an extreme beside what is not kept": (
        "SELECT std(price) AS s, ^max_over(AVG(price), '1 minute') AS m",
        "STD is not linear in the values",
        "leave it out of this query",
    ),
    "an extreme of a root": (
        "SELECT ^min_since(sqrt(SUM(price)), TIMESTAMP '2026-01-01') AS m",
        "min_since is taken of sums, products and quotients of aggregates, and sqrt(sum(price)) is more",
        "take it of the aggregate itself",
    ),
    "an aggregate in Python over current values": (
        "SELECT AVG(price) AS a, ^longest(symbol) AS m",
        "longest is defined in Python",
        "another aggregate of SQL",
    ),
}


@pytest.mark.parametrize("contract", ["", " WITH EXACT"])
@pytest.mark.parametrize(("marked", "reason", "instead"), UNDER_NO_CONTRACT.values(), ids=UNDER_NO_CONTRACT)
def test_what_no_contract_makes_possible_is_not_put_down_to_one(
    marked: str, reason: str, instead: str, contract: str
) -> None:
    statement = f"CREATE QUERY q AS {marked} FROM LATEST(ticks){contract}"
    message = refusal(statement.replace("^", ""))
    assert message.startswith(f"line {LINES + 1}, column {statement.index('^') + 1}: query q: ")
    assert reason in message
    assert instead in message.split("hint: ")[1]
    assert "honour" not in message


def test_an_altered_contract_is_held_to_the_same() -> None:
    text = f"CREATE QUERY q AS SELECT MIN(size) AS m FROM p {MINUTE};\nALTER QUERY q WITH ERROR 5%;"
    message = refusal(text)
    assert f"line {LINES + 2}, column 1: query q cannot honour ERROR: MIN cannot be estimated" in message


def test_without_a_contract_a_query_gets_the_one_of_its_kind() -> None:
    found = catalog(
        f"""
        CREATE QUERY sums AS SELECT SUM(size) AS s FROM p {MINUTE};
        CREATE QUERY tops AS SELECT MAX(size) AS s FROM p {MINUTE} WITH PRIORITY 2;
        CREATE QUERY raw AS SELECT size FROM p WITH WEIGHT 3;
        CREATE QUERY now AS SELECT AVG(pps) AS a FROM LATEST(load);
        CREATE QUERY deep AS SELECT SUM(s) AS s FROM sums GROUP BY window(ts, '1 hour');
        """
    ).contracts
    assert found == {
        "sums": Error(),
        "tops": Exact(priority=2),
        "raw": Error(weight=3),
        "now": Exact(),
        "deep": Exact(),
    }


# Catalog


@pytest.mark.parametrize(
    "text",
    [
        "",
        EVERYTHING,
        f"CREATE QUERY q AS SELECT SUM(size) AS s FROM p {MINUTE};"
        "ALTER QUERY q WITH SUBSET GAP 3 FILL last WEIGHT 2;",
        "CREATE QUERY q AS SELECT AVG(pps) AS s FROM LATEST(load) WITH PRECISION 5;"
        "ALTER QUERY q WITH PRECISION 1 IMMEDIATE",
        f"CREATE QUERY `my query` AS SELECT SUM(size) AS s FROM p {MINUTE};",
        "CREATE VIEW v AS SELECT ts, size FROM p;"
        f"CREATE QUERY q AS /* how much */ SELECT SUM(size) AS s FROM v {MINUTE}; -- done",
        f"CREATE QUERY q AS WITH w AS (SELECT MAX(size) AS m FROM p {MINUTE}) "
        "SELECT SUM(m) AS m FROM w GROUP BY window(ts, '1 hour')",
    ],
)
def test_a_catalog_is_the_same_after_a_trip_through_sql(text: str) -> None:
    found = catalog(text)
    assert Catalog.from_sql(found.sql(), FUNCTIONS) == found


LAYERS = (
    "CREATE VIEW v AS SELECT ts, size, src FROM p;"
    f"CREATE VIEW w AS SELECT SUM(size) AS s FROM v {MINUTE};"
    f"CREATE QUERY low AS SELECT SUM(size) AS s FROM p {MINUTE} WITH ERROR 5%;"
    "ALTER QUERY low WITH EXACT;"
    "CREATE QUERY over AS SELECT MAX(s) AS s FROM low GROUP BY window(ts, '1 hour') WITH EXACT;"
    "CREATE QUERY higher AS SELECT MAX(m) AS m FROM (SELECT MAX(s) AS m FROM w GROUP BY window(ts, '5 minutes')) x "
    "GROUP BY window(ts, '1 hour');"
    "CREATE ALERT high ON over WHEN s > 5 TO 'https://host/';"
)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("over", {"p", "low", "over"}),
        ("HIGHER", {"p", "v", "w", "higher"}),
        ("w", {"p", "v", "w"}),
        ("here", {"p", "sites", "here"}),
        ("now", {"load", "now"}),
    ],
)
def test_a_part_of_a_catalog_has_all_that_it_reads_and_nothing_else(name: str, wanted: set[str]) -> None:
    found = catalog(EVERYTHING + LAYERS).only([name])
    assert found.declared.keys() == wanted
    assert Catalog.from_sql(found.sql(), FUNCTIONS) == found, "contracts that were altered are as they are"


def test_names_with_dots_are_told_from_the_steps_of_others() -> None:
    inner = f"SELECT MAX(size) AS size FROM p {MINUTE}"
    made = catalog(
        f"CREATE QUERY `a.b` AS {inner}; CREATE QUERY a AS SELECT SUM(size) AS s FROM ({inner}) {MINUTE};"
        f"CREATE QUERY c AS SELECT SUM(size) AS s FROM `a.b` GROUP BY window(ts, '1 hour');"
    )
    assert made.only(["c"]).queries.keys() == {"a.b", "c"}
    assert made.only(["a"]).queries.keys() == {"a"}
    assert len(made.only(["a"]).steps) == 2
    fewer = Catalog.from_sql(made.sql() + "DROP QUERY a;", FUNCTIONS)
    assert fewer.queries.keys() == {"a.b", "c"}


def test_names_are_taken_once() -> None:
    message = refusal("CREATE VIEW P AS SELECT size FROM p")
    assert "there is a stream called p already" in message
    assert "DROP STREAM p first" in message


@pytest.mark.parametrize(
    ("made", "dropped", "readers"),
    [
        ("", "STREAM p", "q"),
        (f"CREATE VIEW v AS SELECT MAX(size) AS size FROM p {MINUTE};", "VIEW v", "q"),
        ("CREATE VIEW v AS SELECT ts, size FROM p;", "VIEW v", "q"),
    ],
)
def test_what_is_read_cannot_be_dropped(made: str, dropped: str, readers: str) -> None:
    source = "v" if made else "p"
    text = f"{made} CREATE QUERY q AS SELECT SUM(size) AS s FROM {source} GROUP BY window(ts, '1 hour');"
    text += f"DROP {dropped}"
    assert f"is read by {readers}" in refusal(text)


def test_a_view_read_inside_a_sub_query_cannot_be_dropped() -> None:
    for select in (
        "SELECT SUM(size) AS s FROM (SELECT * FROM v)",
        "WITH w AS (SELECT * FROM v) SELECT SUM(size) AS s FROM w",
    ):
        text = f"CREATE VIEW v AS SELECT ts, size FROM p; CREATE QUERY q AS {select} {MINUTE}; DROP VIEW v;"
        assert "view v is read by q" in refusal(text)


def test_a_table_that_is_joined_cannot_be_dropped() -> None:
    assert "table sites is read by here" in refusal(EVERYTHING + "DROP QUERY there; DROP TABLE sites;")


def test_dropping_takes_the_inner_steps_along() -> None:
    inner = f"SELECT MAX(size) AS m FROM p {MINUTE}"
    text = f"CREATE QUERY q AS SELECT SUM(m) AS s FROM ({inner}) x GROUP BY window(ts, '1 hour');"
    assert set(catalog(text).steps) == {"q.x", "q"}
    assert catalog(text + "DROP QUERY q;") == catalog("")


def test_dropping_what_is_not_there() -> None:
    assert catalog("DROP QUERY IF EXISTS nothing;") == catalog("")
    assert "there is no query called load" in refusal("DROP QUERY load;")
    assert "did you mean ticks?" in refusal("DROP STREAM tick;")
    assert "there is no query called q" in refusal("ALTER QUERY q WITH EXACT;")
