"""A run that is changed through its service: queries, alerts, sliders, and what a change would do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from service_client import Client
from service_run import QUERIES, STREAM, Running, running
from slackwater.errors import SlackwaterError
from slackwater.service.control import LiveControl
from slackwater.service.models import Knobs, KnobsWanted
from waiting import wait_for

CALLS = (
    "reflect('java.lang.System', 'exit', 0) IS NULL",
    "from_json(CAST(size AS STRING), repeat('a INT,', 300000000)) IS NULL",
    "no_such_function(size)",
)
"""Conditions that do more than to look at a row, or cannot be looked up without Spark."""
WATCHED = "CREATE ALERT busy ON total WHEN n > 1e9 TO 'http://127.0.0.1:9/';\n"


@dataclass
class Sliders:
    """`Dials` that only remember."""

    now: Knobs = field(default_factory=lambda: Knobs(load=1, tolerance=1, story=True, chapter="calm"))

    def knobs(self) -> Knobs:
        return self.now

    def turn(self, wanted: KnobsWanted) -> Knobs:
        if wanted.load == 13:
            raise SlackwaterError("not that one")
        self.now = self.now.model_copy(update=wanted.model_dump(exclude_none=True))
        return self.now


def slow() -> Callable[[int], int]:
    """A function that takes its time; made here, since Spark's workers have no tests."""

    def scored(port: int) -> int:
        until = time.perf_counter() + 0.004
        while time.perf_counter() < until:
            pass
        return port

    return scored


@pytest.fixture(scope="module")
def run(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    state = tmp_path_factory.mktemp("service") / "state"
    functions = {"scored": (slow(), "int")}
    with running(spark, state, STREAM + QUERIES + WATCHED, dials=Sliders(), functions=functions) as found:
        found.turn(5)
        yield found


@pytest.fixture
def client(run: Running) -> Client:
    return run.client


def test_queries_are_created_altered_and_dropped_live(run: Running, client: Client) -> None:
    before = client.get("/api/health").ok()["version"]
    sql = "CREATE VIEW big AS SELECT * FROM p WHERE size > 700;\nCREATE QUERY heavy AS SELECT COUNT(*) AS n FROM big GROUP BY window(ts, '1 second');\nEXPLAIN"
    made = client.change("POST", "/api/queries", {"sql": sql}).ok(201)
    assert (made["applied"], made["version"]) == (["big", "heavy"], before + 1)
    assert "query heavy" in made["explained"][0]
    assert client.get("/api/queries/heavy").ok()["frame"] is None, "no frame has told of it"
    run.turn(3)
    assert client.get("/api/queries/heavy").ok()["frame"]["answers"] > 0
    altered = client.change("PATCH", "/api/queries/heavy", {"contract": "SUBSET GAP 2"}).ok()
    assert altered["applied"] == ["heavy"]
    assert client.get("/api/queries/heavy").ok()["contract"] == "SUBSET GAP 2"
    with client.events(f"/api/events?after={run.live.number}") as found:
        assert client.change("DELETE", "/api/queries/heavy").ok()["version"] == before + 3
        run.turn()
        assert next(found)[2]["dropped"] == ["heavy"]
    client.get("/api/queries/heavy").problem(404)
    client.get("/api/queries/heavy/latest").problem(404)
    assert client.get("/api/views").ok() == [
        {"name": "big", "sql": "CREATE VIEW big AS SELECT * FROM p WHERE size > 700"}
    ]
    assert client.change("DELETE", "/api/views/BIG").ok()["applied"] == ["big"]
    assert client.get("/api/views").ok() == []
    assert client.change("DELETE", "/api/views/big").problem(404)["hint"] == "there are none yet"


def test_tables_are_dropped_when_nothing_reads_them(run: Running, client: Client, tmp_path: Path) -> None:
    names = tmp_path / "names.csv"
    names.write_text("80,web\n443,web\n53,dns\n")
    sql = f"""CREATE TABLE names (port INT, name STRING) USING csv OPTIONS (path '{names}');
        CREATE QUERY named AS SELECT name, COUNT(*) AS n FROM p JOIN names ON p.port = names.port
        GROUP BY window(ts, '1 second'), name"""
    client.change("POST", "/api/queries", {"sql": sql}).ok(201)
    refused = client.change("DELETE", "/api/tables/names").problem(422)
    assert "named" in refused["detail"]
    assert "line" not in refused, "nobody has written the statement that drops it"
    client.change("DELETE", "/api/queries/named").ok()
    assert client.change("DELETE", "/api/tables/names").ok()["applied"] == ["names"]
    assert client.get("/api/tables").ok() == []


def test_what_is_altered_and_dropped_by_the_same_statements_is_previewed(client: Client) -> None:
    sql = "ALTER QUERY web WITH ERROR 20%; DROP QUERY web"
    said = client.change("POST", "/api/preview", {"sql": sql}).ok()
    assert (said["alters"], said["drops"]) == (["web"], ["web"])
    assert "web" not in [q["query"] for q in said["queries"]]


def test_of_several_statements_all_are_applied_or_none(run: Running, client: Client) -> None:
    good = "CREATE QUERY one AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 second')"
    bad = "CREATE QUERY two AS SELECT COUNT(*) AS n FROM p WHERE upper(size, 2) = 1 GROUP BY window(ts, '1 second')"
    said = client.change("POST", "/api/queries", {"sql": f"{good};\n{bad}"}).problem(422)
    assert said["line"] == 2, said
    assert "one" not in run.session.catalog.queries


def test_alerts_are_created_and_dropped(run: Running, client: Client) -> None:
    sql = "CREATE ALERT never ON web WHEN bytes > 1e12 POSSIBLY TO 'http://127.0.0.1:9/'"
    assert client.change("POST", "/api/alerts", {"sql": sql}).ok(201)["applied"] == ["never"]
    run.turn()
    assert {a["name"] for a in client.get("/api/alerts").ok()} == {"busy", "never"}
    assert client.change("DELETE", "/api/alerts/NEVER").ok()["applied"] == ["never"]
    run.turn()
    assert {a["name"] for a in client.get("/api/alerts").ok()} == {"busy"}


def test_sliders_move_where_there_are_some(run: Running, client: Client) -> None:
    assert client.get("/api/knobs").ok() == {"load": 1, "tolerance": 1, "story": True, "chapter": "calm"}
    assert client.change("PUT", "/api/knobs", {"load": 5, "story": False}).ok()["load"] == 5
    assert client.get("/api/knobs").ok()["story"] is False
    assert client.change("PUT", "/api/knobs", {"load": 13}).problem(422)["detail"] == "not that one"
    run.live.advance()
    assert client.get("/api/frame").ok()["knobs"]["load"] == 5


NEW = "CREATE QUERY mail AS SELECT SUM(size) AS b FROM p WHERE port = 443 GROUP BY window(ts, '2 seconds') WITH ERROR 5%"


def test_a_preview_says_what_would_become_of_load_and_errors(run: Running, client: Client) -> None:
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.ask, "POST", "/api/preview", {"sql": NEW}, token=True)
        wait_for(lambda: "p" in run.session.engine.tasting._wanted or asked.done())
        run.turn()
        said = asked.result(60).ok()
    assert (said["creates"], said["alters"], said["drops"]) == (["mail"], [], [])
    assert "query mail" in said["plan"]
    assert said["plan_svg"].startswith("<svg")
    assert said["load"] >= said["load_before"] > 0
    assert [q["query"] for q in said["queries"]] == ["mail"]
    mail = said["queries"][0]
    assert (mail["fresh"], mail["rate"], mail["error"], mail["met"]) == (True, 1.0, 0.0, True)
    assert said["notes"] == ["Tried on 300 rows that have just come."]
    assert "mail" not in run.session.catalog.queries, "nothing was changed"


HIGHER = {
    "a view": (
        "CREATE VIEW big AS SELECT * FROM p WHERE size > 700;"
        "CREATE VIEW bigger AS SELECT port AS q, size FROM big WHERE size > 900;"
        "CREATE QUERY heavy AS SELECT COUNT(*) AS n FROM bigger GROUP BY window(ts, '2 seconds') WITH ERROR 5%"
    ),
    "a windowed view over a view": (
        "CREATE VIEW big AS SELECT * FROM p WHERE size > 700;"
        "CREATE VIEW counted AS SELECT COUNT(*) AS n FROM big GROUP BY window(ts, '1 second');"
        "CREATE QUERY heavy AS SELECT MAX(n) AS n FROM counted GROUP BY window(ts, '2 seconds')"
    ),
    "a query": (
        "CREATE QUERY heavy AS SELECT MAX(bytes) AS n FROM web GROUP BY window(ts, '4 seconds') WITH EXACT"
    ),
}


@pytest.mark.parametrize("over", HIGHER)
def test_a_query_over_others_is_tried_with_all_that_it_reads(
    run: Running, client: Client, over: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, Any] = {}
    trial = LiveControl._tried

    def kept(self: LiveControl, *given: Any) -> dict[str, Any]:
        found.update(trial(self, *given))
        return found

    monkeypatch.setattr(LiveControl, "_tried", kept)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.ask, "POST", "/api/preview", {"sql": HIGHER[over]}, token=True)
        wait_for(lambda: "p" in run.session.engine.tasting._wanted or asked.done())
        run.turn()
        said = asked.result(60).ok()
    assert [note for note in said["notes"] if "ried" in note] == ["Tried on 300 rows that have just come."]
    known, plan = found["p"]
    assert known.batches
    assert "heavy" in plan.catalog.queries, "or nothing that was counted of it would be found again"
    assert "by_port" not in plan.catalog.queries


def test_a_function_is_previewed_with_the_time_that_it_takes(run: Running, client: Client) -> None:
    sql = (
        "CREATE QUERY dear AS SELECT COUNT(*) AS n FROM p WHERE scored(port) > 0 "
        "GROUP BY window(ts, '2 seconds') WITH ERROR 5%"
    )
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.ask, "POST", "/api/preview", {"sql": sql}, token=True)
        wait_for(lambda: "p" in run.session.engine.tasting._wanted or asked.done())
        if not asked.done():
            run.turn()
        said = asked.result(60).ok()
    assert said["load"] - said["load_before"] > 0.5 * 300 * 0.004, "300 rows of four milliseconds each"


def test_without_the_token_nothing_is_run(run: Running, client: Client) -> None:
    before = run.session.engine.tasting._tasted.copy()
    said = client.ask("POST", "/api/preview", {"sql": NEW}).ok()
    assert [q["query"] for q in said["queries"]] == ["mail"]
    assert "Without the token of the run nothing was tried on rows" in said["notes"][0]
    assert run.session.engine.tasting._tasted == before
    for call in CALLS:
        said = client.ask("POST", "/api/preview", {"sql": NEW.replace("port = 443", call)}).ok()
        assert said["creates"] == ["mail"]
    client.change("POST", "/api/preview", {"sql": NEW.replace("port = 443", CALLS[-1])}).problem(422)
    run.turn()
    assert run.session.engine.error is None


def test_under_overload_an_error_is_predicted(run: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def look() -> Any:
        glimpse = run.live._capture.glimpse
        assert glimpse is not None
        dear = {"row": 5e-3, "test": 5e-3}
        return replace(
            glimpse,
            loads=tuple(
                (
                    replace(
                        load, statistics=replace(load.statistics, costs={**load.statistics.costs, **dear})
                    ),
                    after,
                )
                for load, after in glimpse.loads
            ),
        )

    said = LiveControl(run.session, look).preview(NEW)
    mail = said.queries[0]
    assert said.capacity is not None
    assert said.load is not None
    assert said.load > said.capacity
    assert mail.rate is not None
    assert mail.rate < 1
    assert mail.suspended or (mail.error is not None and mail.error > 0)
    altered = LiveControl(run.session, look).preview("ALTER QUERY web WITH ERROR 50%; DROP QUERY by_port")
    assert (altered.alters, altered.drops) == (["web"], ["by_port"])
    assert altered.queries[0].query == "web"
    assert altered.load is not None
    assert altered.load_before is not None
    assert altered.load <= altered.load_before
    assert altered.notes == []
    status = run.session.status()
    idle = replace(status, streams=tuple(replace(s, state="idle") for s in status.streams))
    monkeypatch.setattr(run.session, "status", lambda: idle)
    again = LiveControl(run.session, look).preview("ALTER QUERY web WITH ERROR 50%; DROP QUERY by_port")
    assert again.notes == ["p is idle: it is counted as it was when it last had rows."]
    assert (again.load, again.load_before) == (altered.load, altered.load_before)


def test_a_preview_of_wrong_sql_says_where(client: Client) -> None:
    said = client.ask("POST", "/api/preview", {"sql": NEW.replace("SUM(size)", "SUM(seize)")}).problem(422)
    assert (said["line"], said["column"], said["hint"]) == (1, NEW.index("size") + 1, "did you mean size?")
    # types are Spark's to tell, which is not asked without the token
    wrong = NEW.replace("port = 443", "upper(port, 1)")
    typed = client.change("POST", "/api/preview", {"sql": wrong}).problem(422)
    assert typed["line"] == 1
    said = client.ask("POST", "/api/preview", {"sql": "DROP STREAM p"}).problem(422)
    assert said["message"] == "streams are declared and dropped before the run starts"


def test_a_preview_reads_no_file_and_keeps_no_table(run: Running, client: Client, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("pw,1\npw,2\n")
    before = dict(run.session.engine.executor._tables)
    table = f"CREATE TABLE t (name STRING, n INT) USING csv OPTIONS (path '{secret}');\n"
    lookup = (
        "CREATE QUERY looked AS SELECT COUNT(*) AS c FROM p JOIN t ON CAST(port AS STRING) = t.name "
        "GROUP BY window(ts, '1 second') WITH EXACT"
    )
    said = client.ask("POST", "/api/preview", {"sql": table + lookup})
    assert "pw" not in said.body.decode()
    gone = client.ask("POST", "/api/preview", {"sql": table.replace("secret.csv", "none.csv") + lookup})
    assert said.status == gone.status, "nor is it told whether a file is there"
    assert run.session.engine.executor._tables == before


def test_rows_that_cannot_be_read_for_a_preview_do_not_end_the_run(
    run: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no rows today")

    monkeypatch.setattr("slackwater.runtime.tasting.taste", broken)
    engine = run.session.engine
    engine.tasting._tasted.clear()
    engine.tasting._wanted.add("p")
    run.turn()
    assert engine.error is None
