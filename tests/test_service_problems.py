"""Every error of the service is a problem, with the text that the command line shows."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from service_client import Client
from service_still import SQL, Still, StillControl
from slackwater.cli import app
from slackwater.errors import RunError
from slackwater.service.changing import WAITING_AT_MOST, Changes
from slackwater.service.problems import Refusal
from slackwater.service.server import serving
from waiting import wait_for

WRONG = [
    ("CREATE QUERY r AS\n  SELECT SUM(sise) AS n FROM p GROUP BY window(ts, '1 second')", 2, 14),
    ("CREATE QUERY q AS SELECT size FROM p", 1, 1),
    ("CREATE QUERY r AS SELECT size FROM nowhere", 1, 36),
    ("CREATE QUERY r AS SELECT size FROM p WITH EROR 5%", 1, 43),
    ("DELETE FROM p", 1, 1),
    ("CREATE QUERY r AS SELECT 'ä' || sise AS x FROM p", 1, 33),
]


@dataclass
class Moody(StillControl):
    """Breaks on purpose."""

    def apply(self, sql: str) -> list[str]:
        if "broken" in sql:
            raise ZeroDivisionError("a secret")
        if "stopped" in sql:
            raise RunError("this session has been stopped: nothing can be changed any more")
        return super().apply(sql)


@pytest.fixture(scope="module")
def moody() -> Moody:
    return Moody()


@pytest.fixture(scope="module")
def client(moody: Moody) -> Iterator[Client]:
    with serving(moody.watched, moody, port=0) as address:
        yield Client(address)


@pytest.mark.parametrize(("sql", "line", "column"), WRONG)
def test_wrong_sql_is_told_as_on_the_command_line(
    client: Client, tmp_path: Path, sql: str, line: int, column: int
) -> None:
    said = client.change("POST", "/api/queries", {"sql": sql}).problem(422)
    assert (said["line"], said["column"]) == (line, column)
    assert said["offset"] == len("".join(sql.splitlines(keepends=True)[: line - 1])) + column - 1
    assert said["detail"].startswith(f"line {line}, column {column}: {said['message']}\n")
    file = tmp_path / "wrong.sql"
    # the same lines behind what is declared already, and so further down
    file.write_text(SQL + sql)
    told = CliRunner().invoke(app, ["check", "--quick", str(file)])
    assert told.exit_code == 1
    there = said["detail"].replace(f"line {line},", f"line {line + SQL.count(chr(10))},", 1)
    assert f"error: {file}: {there}" in told.output.replace("\r", "")


def test_what_is_asked_for_in_a_wrong_way_is_told_by_its_field(client: Client) -> None:
    def refused(body: Any, *, method: str = "POST", path: str = "/api/queries") -> str:
        return str(client.change(method, path, body).problem(422)["detail"])

    assert refused({}) == "sql: field required"
    assert refused({"sql": ""}) == "sql: string should have at least 1 character"
    assert refused({"sql": 5}) == "sql: input should be a valid string"
    assert refused({"sql": "EXPLAIN", "now": True}) == "now: extra inputs are not permitted"
    assert "100000 characters" in refused({"sql": "x" * 100_001})
    assert "JSON" in _told(client, b"{")
    assert "less than or equal to 100" in _told(client, b'{"load": NaN}', "PUT", "/api/knobs")
    assert refused(b'{"sql": "EXPLAIN"}').startswith("the body must be JSON"), "nobody said that it is"
    assert refused([]).startswith("the body: ")
    assert refused({"sql": " ; "}) == "expected a statement, found none"
    assert "less than or equal to 20" in refused({"tolerance": 21}, method="PUT", path="/api/knobs")
    assert "limit" in str(client.get("/api/moments?limit=0").problem(422)["detail"])
    for text in ("yesterday", "0.5", "1767225600"):
        said = client.get(f"/api/queries/q/answers?since={text}").problem(422)["detail"]
        assert said == "query.since: value error, expected a time such as 2026-01-01T00:00:00Z"


def _told(client: Client, body: bytes, method: str = "POST", path: str = "/api/queries") -> str:
    said = client.ask(method, path, body, token=True, Content_Type="application/json")
    return str(said.problem(422)["detail"])


def test_a_contract_brings_no_other_statement_with_it(client: Client, moody: Moody) -> None:
    said = client.change("PATCH", "/api/queries/q", {"contract": "EXACT; DROP QUERY q"}).problem(422)
    assert "expected one statement, found 2" in said["detail"]
    assert "q" in moody.watched.declared.queries
    assert "EROR" in client.change("PATCH", "/api/queries/q", {"contract": "EROR"}).problem(422)["detail"]


def test_only_what_creates_is_posted(client: Client) -> None:
    for sql, hint in (
        ("DROP QUERY q", "PATCH alters a query, DELETE drops it"),
        ("ALTER QUERY q WITH EXACT", "PATCH alters a query, DELETE drops it"),
        ("CREATE STREAM s (ts TIMESTAMP) USING rate TIMESTAMP BY ts", "before the run starts"),
    ):
        said = client.change("POST", "/api/queries", {"sql": f"EXPLAIN;\n{sql}"}).problem(422)
        assert said["line"] == 2
        assert hint in said["hint"]
    said = client.change("POST", "/api/alerts", {"sql": "DROP QUERY q"}).problem(422)
    assert said["message"] == "expected CREATE ALERT"


def test_what_is_not_there_is_told_with_what_is(client: Client) -> None:
    for path in ("/api/queries/nix", "/api/queries/nix/latest", "/api/queries/nix/answers"):
        said = client.get(path).problem(404)
        assert said["detail"] == "there is no query called nix"
        assert said["hint"] == "there are q"
    assert client.get("/api/decisions?stream=nix").problem(404)["hint"] == "there are p"
    assert (
        "there is no stream, view or query called nix"
        in client.get("/api/plan?name=nix").problem(404)["detail"]
    )
    client.change("DELETE", "/api/alerts/nix").problem(404)
    client.change("DELETE", "/api/queries/nix").problem(404)
    client.change("PATCH", "/api/queries/nix", {"contract": "EXACT"}).problem(404)
    assert "/api/openapi.json" in client.get("/api/nothing").problem(404)["detail"]
    client.get("/page/nothing.js").problem(404)


def test_what_cannot_be_done_is_told_with_what_can(client: Client) -> None:
    for path, allowed in (
        ("/api/queries", "GET, POST"),
        ("/api/queries/q", "DELETE, GET, PATCH"),
        ("/api/health", "GET"),
        ("/api/queries/q/latest", "GET"),
        ("/metrics", "GET"),
    ):
        said = client.change("PUT", path)
        assert said.problem(405)["detail"] == f"PUT cannot be done with {path}"
        assert said.headers["allow"] == allowed


def test_parts_of_a_query_are_neither_altered_nor_dropped(client: Client) -> None:
    for part in ("answers", "latest"):
        for method in ("PATCH", "DELETE"):
            said = client.change(method, f"/api/queries/q/{part}")
            assert said.problem(405)["detail"] == f"{method} cannot be done with /api/queries/q/{part}"
            assert said.headers["allow"] == "GET"


def test_a_stopped_run_is_a_conflict_and_the_unexpected_is_told_without_its_words(client: Client) -> None:
    sql = "CREATE QUERY {} AS SELECT size FROM p"
    said = client.change("POST", "/api/queries", {"sql": sql.format("stopped")}).problem(409)
    assert said["detail"].startswith("this session has been stopped")
    said = client.change("POST", "/api/queries", {"sql": sql.format("broken")}).problem(500)
    assert "ZeroDivisionError" in said["detail"]
    assert "secret" not in said["detail"]


def test_a_few_changes_wait_and_no_more() -> None:
    changes = Changes(StillControl())

    def one() -> int:
        with changes.one() as run:
            return run.version

    with ThreadPoolExecutor(WAITING_AT_MOST) as pool:
        with changes.one():
            asked = [pool.submit(one) for _ in range(WAITING_AT_MOST - 1)]
            wait_for(lambda: changes._waiting._value == 0)
            with pytest.raises(Refusal, match="8 changes wait already: try again") as refused:
                one()
            assert not any(a.done() for a in asked), "one at a time"
        assert [a.result(60) for a in asked] == [1] * (WAITING_AT_MOST - 1)
    assert (refused.value.status, refused.value.headers) == (429, {"Retry-After": "2"})
    assert one() == 1, "there is room again"


def test_a_recording_cannot_be_changed() -> None:
    with serving(Still(), None, port=0) as address:
        recorded = Client(address)
        for method, path, body in (
            ("POST", "/api/queries", {"sql": "CREATE QUERY r AS SELECT size FROM p"}),
            ("PATCH", "/api/queries/q", {"contract": "EXACT"}),
            ("DELETE", "/api/queries/q", None),
            ("POST", "/api/preview", {"sql": "EXPLAIN"}),
            ("PUT", "/api/knobs", {"load": 2}),
        ):
            said = recorded.change(method, path, body).problem(409)
            assert said["detail"] == "this is a recording: nothing in it can be changed"
        assert (
            "a recording has no answers to come" in recorded.get("/api/answers/events").problem(409)["detail"]
        )


def test_a_body_that_is_not_said_to_be_json_is_told_so(client: Client) -> None:
    said = client.ask(
        "POST", "/api/preview", b'{"sql": "EXPLAIN"}', Content_Type="application/x-www-form-urlencoded"
    )
    assert "Content-Type: application/json" in said.problem(422)["detail"]


def test_sql_that_is_nested_too_deeply_is_told_and_no_error_of_the_service(client: Client) -> None:
    sql = f"CREATE QUERY q AS SELECT COUNT(*) AS n FROM p WHERE {'(' * 300}size{')' * 300} > 1"
    for path in ("/api/preview", "/api/queries"):
        said = client.ask("POST", path, {"sql": sql}, token=True).problem(422)
        assert said["message"] == "this statement is nested too deeply to be read"
        assert (said["line"], said["column"]) == (1, 1)
