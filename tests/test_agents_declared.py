"""Streams that agents send, as declared: what is refused, where, and what is only without effect."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from slackwater.cli import app
from slackwater.edge.hub_thread import HubThread
from slackwater.edge.messages import Refused
from slackwater.errors import LanguageError, SourceError
from slackwater.language.contracts import Precision
from slackwater.plan.adjusting import adjusting
from slackwater.plan.agents import check_agents, token_of
from slackwater.plan.bounded import bounded_form
from slackwater.plan.catalog import Catalog
from slackwater.plan.explain import explain
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.tables import Plan
from slackwater.runtime.board import Board
from slackwater.spark.agents_source import open_agents

COLUMNS = "(ts TIMESTAMP, host STRING, port INT, rx DOUBLE)"
PRECISE = "CREATE QUERY q AS SELECT SUM(rx) AS s FROM LATEST(load) WITH PRECISION 1;"
EXACT = "CREATE QUERY e AS SELECT SUM(rx) AS s FROM LATEST(load) WITH EXACT;"
WINDOWED = "CREATE QUERY w AS SELECT SUM(rx) AS s FROM load GROUP BY window(ts, '1 minute') WITH EXACT;"
HUB = "hub 'ws://h:7400'"
runner = CliRunner()


def stream(options: str, clauses: str = "") -> str:
    """A declaration whose options are the second line, and its further clauses the third."""
    head = f"CREATE STREAM load {COLUMNS} USING agents OPTIONS ("
    return f"{head}\n{options}\n) KEY (host, port) TIMESTAMP BY ts {clauses};\n"


def catalog(text: str) -> Catalog:
    return Catalog.from_sql(text, Functions())


def refused(text: str) -> LanguageError:
    with pytest.raises(LanguageError) as caught:
        check_agents(catalog(text))
    return caught.value


WRONG = {
    "an option": (
        f"{HUB}, alocation 'curves'",
        "alocation",
        ["no option alocation", "did you mean allocation?"],
    ),
    "another option": (f"{HUB}, colour 'red'", "colour", ["there are hub, token_file, ca"]),
    "a hub by HTTP": ("hub 'http://h:7400'", "hub", ["ws://host:7400 or wss://host:7400", "'http://h:7400'"]),
    "a hub without a scheme": ("hub 'h:7400'", "hub", ["ws://host:7400", "'h:7400'"]),
    "a hub without a host": ("hub 'ws://'", "hub", ["ws://host:7400", "'ws://'"]),
    "a hub at no port": ("hub 'ws://h:74000'", "hub", ["ws://host:7400", "'ws://h:74000'"]),
    "a certificate for nothing": (f"{HUB}, ca 'x.pem'", "ca", ["wss://", "leave ca out"]),
    "an allocation": (f"{HUB}, allocation 'best'", "allocation", ["curves, burden, uniform", "'best'"]),
    "a period": (f"{HUB}, period 'often'", "period", ["often", "tuned"]),
    "a short period": (f"{HUB}, period '1 ms'", "period", ["at least a second", "'1 ms'"]),
    "a shrink": (f"{HUB}, allocation 'burden', shrink '200%'", "shrink", ["a share such as 5%", "'200%'"]),
    "a shrink under curves": (f"{HUB}, shrink '5%'", "shrink", ["by 'curves'", "say allocation 'burden'"]),
    "a tuned shrink under uniform": (
        f"{HUB}, allocation 'uniform', shrink 'tuned'",
        "shrink",
        ["by 'uniform'", "leave shrink out"],
    ),
    "sums": (f"{HUB}, sums 'always'", "sums", ["measured, never", "'always'"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_option_is_pointed_at(case: str) -> None:
    options, place, expected = WRONG[case]
    error = refused(stream(options) + PRECISE)
    assert [part for part in ["stream load: ", *expected] if part not in str(error)] == [], error
    assert error.position is not None
    assert (error.position.line, error.position.column) == (2, options.index(place) + 1)


def test_what_else_cannot_be_is_told_with_its_place() -> None:
    error = refused(f"\nCREATE STREAM load {COLUMNS} USING agents KEY host TIMESTAMP BY ts;" + PRECISE)
    assert "option hub is missing: OPTIONS (hub 'ws://host:7400')" in str(error)
    assert error.position is not None
    assert error.position.line == 2
    error = refused(f"CREATE STREAM load {COLUMNS} USING agents OPTIONS ({HUB})\nTIMESTAMP BY ts;")
    assert "needs KEY" in str(error)
    error = refused(stream(HUB).replace("port INT", "port DATE"))
    assert "key port is DATE" in str(error)
    assert error.position is not None
    assert error.position.line == 3


def test_files_that_cannot_be_read_are_told_where_they_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "no.pem").write_text("no certificate")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff")
    cases = {
        "token_file 'nope'": ["cannot read", "nope", "No such file"],
        "token_file 'empty'": ["empty", "is empty"],
        "token_file 'binary'": ["cannot read", "no UTF-8 text"],
        "token_file '.'": ["cannot read", "directory"],
        "ca 'nope.pem'": ["nope.pem", "certificates (PEM)"],
        "ca 'no.pem'": ["no.pem", "certificates (PEM)"],
    }
    for option, expected in cases.items():
        given = option.replace("'", f"'{tmp_path}/", 1)
        options = f"hub 'wss://h:7400', {given}"
        error = refused(stream(options) + PRECISE)
        assert [part for part in expected if part not in str(error)] == [], error
        assert error.position is not None
        assert (error.position.line, error.position.column) == (2, options.index(given) + 1)


def test_the_token_is_of_the_file_or_what_was_there_without_one(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(" secret\n")
    named = catalog(stream(f"{HUB}, token_file '{tmp_path}/token'")).streams["load"]
    assert token_of(named, "other") == "secret"
    assert token_of(catalog(stream(HUB)).streams["load"], "other") == "other"


def test_a_run_knows_the_token_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with HubThread(tmp_path, token="secret") as hub:
        declared = catalog(stream(f"hub '{hub.url}'")).streams["load"]
        with pytest.raises(Refused, match="the token is wrong"):
            open_agents(cast(Any, None), declared)
        monkeypatch.setenv("SLACKWATER_TOKEN", "secret\n")
        source = open_agents(cast(Any, None), declared)
        assert source.columns == ("rx",)
        source.link.close()


def test_a_shrink_goes_with_burden() -> None:
    declared = catalog(stream(f"{HUB}, allocation 'burden', shrink '5%'")).streams["load"]
    assert adjusting(declared).shrink == 0.05
    with pytest.raises(SourceError, match="stream load: only widths by allocation 'burden' shrink"):
        adjusting(catalog(stream(f"{HUB}, shrink '5%'")).streams["load"])


UNUSED = {
    "LATENESS 2 SECONDS": "TOLERANCE 1 SECOND",
    "IDLE 5 SECONDS": "leave it out",
    "TICK 1 SECOND": "leave it out",
    "INTERRUPTED AFTER 1 MINUTE": "MAX RATE",
}


@pytest.mark.parametrize("clause", UNUSED)
def test_clauses_without_effect_are_warned_of(clause: str) -> None:
    declared = stream(HUB, f"TOLERANCE 1 SECOND\n{clause}")
    [warning] = check_agents(catalog(declared + PRECISE))
    assert "means nothing to queries under PRECISION" in str(warning)
    assert UNUSED[clause] in warning.hint
    assert warning.position is not None
    assert (warning.position.line, warning.position.column) == (4, 1)
    # to queries under other contracts it is a stream like any other
    for other in (EXACT, WINDOWED):
        assert check_agents(catalog(declared + other)) == []
        assert "means nothing" not in "".join(map(str, check_agents(catalog(declared + PRECISE + other))))
    # and what is not read yet may be so later
    assert check_agents(catalog(declared)) == []


@pytest.mark.parametrize("other", [EXACT, WINDOWED])
def test_another_contract_beside_precision_has_every_change_sent(other: str) -> None:
    text = stream(HUB) + PRECISE + "\n" + other
    [warning] = check_agents(catalog(text))
    name = "e" if other == EXACT else "w"
    assert f"agents send every change of load for query {name}" in warning.message
    assert "q is under PRECISION" in warning.message
    assert "another stream" in warning.hint
    assert warning.position is not None
    assert warning.position.offset == text.rindex("EXACT;")
    # an altered contract counts, and one alone costs nobody anything
    assert check_agents(catalog(stream(HUB) + other)) == []
    if other == EXACT:
        assert check_agents(catalog(text + "ALTER QUERY e WITH PRECISION 2;")) == []
    [warning] = check_agents(
        catalog(text + "CREATE QUERY d AS SELECT AVG(rx) AS a FROM LATEST(load) WITH DRIFT 1;")
    )
    assert f"queries {name}, d" in warning.message


def test_no_tolerance_at_all_is_warned_of() -> None:
    [warning] = check_agents(catalog(stream(HUB, "TOLERANCE 0 SECONDS") + PRECISE))
    assert "leaves a row no time to reach the hub" in str(warning)
    assert "TOLERANCE 400 MILLISECONDS" in warning.hint


def test_the_command_refuses_and_warns_without_spark(tmp_path: Path) -> None:
    file = tmp_path / "load.sql"
    file.write_text(stream(f"{HUB}, alocation 'curves'") + PRECISE)
    result = runner.invoke(app, ["check", "--quick", str(file)])
    assert result.exit_code == 1
    assert f"{file}: line 2, column 20: stream load: there is no option alocation" in result.stderr
    file.write_text(stream(HUB, "LATENESS 2 SECONDS") + PRECISE)
    result = runner.invoke(app, ["check", "--quick", str(file)])
    assert result.exit_code == 0
    assert "warning: " in result.stderr
    assert "LATENESS means nothing" in result.stderr
    assert "all in order" in result.stdout
    # a run tells it before anything is started
    file.write_text(stream("hub 'http://h'") + PRECISE)
    result = runner.invoke(app, ["run", str(file), "--state", str(tmp_path / "state")])
    assert result.exit_code == 1
    assert "got 'http://h'" in result.stderr
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("option", [("--live",), ("--load", "2x")])
def test_to_look_at_what_a_file_costs_takes_no_stream_over(tmp_path: Path, option: tuple[str, ...]) -> None:
    file = tmp_path / "load.sql"
    file.write_text(stream(HUB) + PRECISE)
    result = runner.invoke(app, ["explain", str(file), *option])
    assert result.exit_code == 1
    assert "would take it over from the run that reads it" in " ".join(result.stderr.split())


TABLE = "CREATE TABLE sites (host STRING, name STRING, size DOUBLE) USING parquet OPTIONS (path 'x');"
TEXTS = [
    ("SUM(host)", "host"),
    ("AVG(host)", "host"),
    ("SUM(rx) + SUM(-(host))", "host"),
    ("SUM(rx * host)", "host"),
    ("SUM(rx * name)", "name"),
    ("avg_over(SUM(name), '1 minute')", "name"),
]


@pytest.mark.parametrize(("item", "column"), TEXTS)
def test_texts_are_not_added_up(item: str, column: str) -> None:
    select = f"SELECT {item} AS x FROM LATEST(load) JOIN sites USING (host)"
    for statement in (
        f"CREATE QUERY q AS {select}\nWITH PRECISION 1;",
        f"CREATE QUERY q AS {select} WITH EXACT;\nALTER QUERY q WITH PRECISION 1;",
    ):
        if "avg_over" in item and "ALTER" in statement:
            continue
        with pytest.raises(LanguageError) as caught:
            catalog(stream(HUB) + TABLE + statement)
        message = str(caught.value)
        assert "query q cannot honour PRECISION" in message
        assert f"takes {column} for a number, and it is STRING" in message
        assert "CAST(… AS DOUBLE)" in caught.value.hint
        assert caught.value.position is not None
        assert caught.value.position.line == 5


@pytest.mark.parametrize(
    "item",
    [
        "COUNT(host)",
        "SUM(CAST(host AS DOUBLE) * rx)",
        "SUM(port)",
        "SUM(rx * size)",
        "SUM(CASE WHEN name = 'a' THEN 1 ELSE 0 END * rx)",
        "SUM(rx) FILTER (WHERE host > 'h')",
    ],
)
def test_texts_may_be_counted_compared_and_cast(item: str) -> None:
    select = f"SELECT {item} AS x FROM LATEST(load) JOIN sites USING (host)"
    assert catalog(stream(HUB) + TABLE + f"CREATE QUERY q AS {select} WITH PRECISION 1;").queries


def test_immediate_is_an_instruction_and_no_part_of_the_contract() -> None:
    text = stream(HUB) + PRECISE + "ALTER QUERY q WITH PRECISION 0.5 IMMEDIATE;"
    altered = catalog(text)
    assert str(altered.contracts["q"]) == "PRECISION 0.5"
    assert "IMMEDIATE" not in explain(extend(Plan(), altered), "text", None)
    board = Board()
    board.queries({"q": altered.contracts["q"]})
    assert board.status(datetime.now(UTC)).queries[0].contract == "PRECISION 0.5"
    # what is kept of it for a run that goes on says the same
    assert altered.contracts["q"] == Precision(0.5, immediate=True)
    assert catalog(altered.sql()) == altered


@pytest.mark.parametrize(
    ("item", "whole"),
    [
        ("COUNT(*)", True),
        ("COUNT(rx)", True),
        ("2 * COUNT(*)", False),
        ("SUM(rx)", False),
        ("SUM(port)", False),
    ],
)
def test_counts_are_whole_numbers(item: str, whole: bool) -> None:
    known = catalog(stream(HUB) + f"CREATE QUERY q AS SELECT {item} AS x FROM LATEST(load) WITH PRECISION 1;")
    [found] = bounded_form(known.queries["q"], known.streams["load"]).items
    assert found.whole is whole


REFUSED = {
    # the SELECT up to ^, where the error is to point; the reason; the hint
    "a product": (
        "SUM(^rx * rx) AS p FROM LATEST(load)",
        "rx * rx is not linear",
        "multiply a value by constants",
    ),
    "a product of one of two": (
        "SUM(rx) + SUM(^rx * rx) AS p FROM LATEST(load)",
        "rx * rx is not linear",
        "or use EXACT",
    ),
    "aggregates multiplied": (
        "host, ^SUM(rx) * SUM(rx) AS p FROM LATEST(load) GROUP BY host",
        "p is not linear",
        "select what it is made of as columns of their own",
    ),
    "rows chosen by values": (
        "SUM(rx) AS s FROM LATEST(load) WHERE host = 'a' AND ^rx > 5",
        "chooses keys by rx > 5",
        "select by values where the answers are read, or use EXACT",
    ),
    "rows chosen by qualified values": (
        "SUM(l.rx) AS s FROM LATEST(load) AS l WHERE ^l.rx > 5",
        "chooses keys by rx > 5",
        "choose rows by key columns and columns of lookups",
    ),
    "a filter by values": (
        "SUM(rx) FILTER (WHERE ^rx > 5) AS s FROM LATEST(load)",
        "rx > 5 changes with the values",
        "choose rows by key columns",
    ),
    "groups by values": (
        "SUM(rx) AS s FROM LATEST(load) GROUP BY ^round(rx)",
        "groups by round(rx)",
        "group by key columns and columns of lookups",
    ),
    "having": (
        "host, SUM(rx) AS s FROM LATEST(load) GROUP BY host HAVING ^SUM(rx) > 3",
        "HAVING would be decided by an interval",
        "leave HAVING out and select where the answers are read, or use EXACT",
    ),
    "nothing aggregated": (
        "^host, rx FROM LATEST(load)",
        "it aggregates nothing",
        "ask for an aggregate, such as AVG(rx)",
    ),
    "extremes mixed": (
        "host, ^MAX(rx) - MIN(rx) AS spread FROM LATEST(load) GROUP BY host",
        "spread mixes an extreme with other aggregates",
        "ask for MAX(rx) and MIN(rx) as columns of their own, or use EXACT",
    ),
    "a deviation": (
        "SUM(rx) AS s, ^STDDEV(rx) AS m FROM LATEST(load)",
        "no interval follows for STDDEV from",
        "use SUM, AVG, COUNT, MIN or MAX",
    ),
    "a median": (
        "host, ^MEDIAN(rx) AS m FROM LATEST(load) GROUP BY host",
        "no interval follows for MEDIAN",
        "use SUM, AVG, COUNT, MIN or MAX",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_precision_cannot_honour_is_pointed_at(case: str) -> None:
    marked, reason, hint = REFUSED[case]
    before = stream(HUB) + "CREATE QUERY q AS SELECT "
    with pytest.raises(LanguageError) as caught:
        catalog(before + marked.replace("^", "") + "\nWITH PRECISION 1;")
    assert reason in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.position is not None
    assert caught.value.position.offset == len(before) + marked.index("^")
    # where the SELECT is not in the statement, the statement is pointed at
    altered = stream(HUB) + f"CREATE QUERY q AS SELECT {marked.replace('^', '')} WITH EXACT;\nALTER QUERY q "
    with pytest.raises(LanguageError) as caught:
        catalog(altered + "WITH PRECISION 1;")
    assert hint in caught.value.hint
    assert caught.value.position is not None
    assert caught.value.position.line == 5


@pytest.mark.parametrize(
    "item", ["2 * MAX(rx) - 1", "SUM(rx) / COUNT(rx)", "SUM(rx) - 2 * AVG(rx)", "-MIN(rx)"]
)
def test_what_is_made_of_aggregates_under_precision(item: str) -> None:
    assert catalog(stream(HUB) + f"CREATE QUERY q AS SELECT {item} AS x FROM LATEST(load) WITH PRECISION 1;")
