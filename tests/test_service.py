"""The service over a real run: frames, events, answers, the plan, statistics, decisions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from service_client import Client
from service_run import EPOCH, PORTS, QUERIES, STREAM, Running, running
from slackwater.errors import RunError
from slackwater.service.folding import fold
from slackwater.service.models import Frame

WATCHED = "CREATE ALERT busy ON total WHEN n > 1e9 TO 'http://127.0.0.1:9/';\n"


@pytest.fixture(scope="module")
def run(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    state = tmp_path_factory.mktemp("service") / "state"
    with running(spark, state, STREAM + QUERIES + WATCHED) as found:
        found.turn(6)
        yield found


@pytest.fixture
def client(run: Running) -> Client:
    return run.client


def named(items: list[dict[str, Any]], name: str = "name") -> dict[str, dict[str, Any]]:
    return {item[name]: item for item in items}


def test_a_frame_shows_the_run(run: Running, client: Client) -> None:
    frame = client.get("/api/frame").ok()
    Frame.model_validate(frame)
    assert (frame["mode"], frame["phase"], frame["whole"], frame["number"]) == (
        "live",
        "running",
        True,
        run.live.number,
    )
    stream = frame["streams"][0]
    assert (stream["name"], stream["batch"], stream["rows"]) == ("p", run.taken, 300 * run.taken)
    queries = named(frame["queries"])
    assert {"total", "by_port", "web"} <= queries.keys()
    total = queries["total"]
    assert (total["kind"], total["how"], total["met"], total["error"], total["column"]) == (
        "windows", "exact", True, 0.0, "bytes",
    )  # fmt: skip
    assert (queries["by_port"]["groups"], list(queries["by_port"]["keys"])) == (3, ["port"])
    times = [datetime.fromisoformat(point["at"]) for point in total["points"]]
    assert times == sorted(times)
    assert len(times) >= 2 * run.taken - 2
    assert frame["load"] > 0
    assert sum(q["load"] for q in frame["queries"] if q["load"]) == pytest.approx(
        frame["kept_load"], rel=1e-3
    )
    assert client.get("/api/health").ok() == {k: frame[k] for k in ("phase", "mode", "version", "number")}


def test_readers_of_events_see_what_a_whole_frame_shows(run: Running, client: Client) -> None:
    with client.events("/api/events") as found:
        _, number, first = next(found)
        folded = Frame.model_validate(first)
        for _ in range(2):
            run.turn()
            name, number, data = next(found)
            assert (name, data["whole"], number) == ("frame", False, run.live.number)
            folded = fold(folded, Frame.model_validate(data))
    whole = Frame.model_validate(client.get("/api/frame").ok())
    assert folded.model_dump(exclude={"queries"}) == whole.model_dump(exclude={"queries"})
    for one, other in zip(folded.queries, whole.queries, strict=True):
        assert one.model_dump() == other.model_dump()


def test_a_reader_comes_back_soon_or_late(run: Running, client: Client) -> None:
    run.turn()
    with client.events(f"/api/events?after={run.live.number - 1}") as found:
        assert next(found)[2]["whole"] is False
    with client.events("/api/events", Last_Event_ID=str(run.live.number + 100)) as found:
        assert next(found)[2]["whole"] is True


def test_the_tide_line_is_the_newest_moments(run: Running, client: Client) -> None:
    moments = client.get("/api/moments?limit=3").ok()
    assert [m["number"] for m in moments] == [run.live.number - 2, run.live.number - 1, run.live.number]
    assert moments[-1]["load"] == client.get("/api/frame").ok()["load"]
    assert client.get("/api/level").ok()["load"] == moments[-1]["load"]


def test_answers_of_a_range(client: Client) -> None:
    path = "/api/queries/total/answers?column=n"
    found = client.get(f"{path}&limit=5").ok()
    assert [a["column"] for a in found] == ["n"] * 5
    ends = [datetime.fromisoformat(a["window_end"]) for a in found]
    assert ends == sorted(ends)
    assert found[-1]["value"] == 300, "two seconds of rows"
    since, until = (EPOCH + timedelta(seconds=s) for s in (4, 6))
    text = f"&since={since:%Y-%m-%dT%H:%M:%SZ}&until={until:%Y-%m-%dT%H:%M:%S}"
    within = [a["window_end"] for a in client.get(path + text).ok()]
    assert within == [f"2026-01-01T00:00:0{s}.000000Z" for s in (4, 5, 6)], "a time without a zone is in UTC"
    assert client.get(path + "&since=2030-01-01").ok() == []
    strange = client.get("/api/queries/total/answers?column=nope").problem(422)
    assert (strange["detail"], strange["hint"]) == (
        "query total has no column nope",
        "its columns are bytes, n",
    )


def test_answers_of_a_group(client: Client) -> None:
    found = client.get("/api/queries/BY_PORT/answers?key.port=53&limit=4").ok()
    assert [a["keys"] for a in found] == [{"port": 53}] * 4
    assert {a["value"] for a in found} == {50}
    assert client.get("/api/queries/by_port/answers?key.port=7").ok() == []
    strange = client.get("/api/queries/by_port/answers?key.host=53").problem(422)
    assert (strange["detail"], strange["hint"]) == (
        "query by_port has no group key host",
        "its keys are port",
    )
    assert client.get("/api/queries/by_port/answers?key.port=53&null=&limit=4").ok() == found
    assert client.get("/api/queries/by_port/answers?null=port").ok() == []
    assert client.get("/api/queries/by_port/answers?key.port=sNaN").ok() == []
    client.get("/api/queries/by_port/answers?null=host").problem(422)
    client.get("/api/queries/by_port/answers?null=port&key.port=53").problem(422)
    client.get("/api/queries/by_port/answers?key=53").problem(422)
    latest = client.get("/api/queries/by_port/latest").ok()
    assert sorted(a["keys"]["port"] for a in latest) == sorted(PORTS)
    assert len({a["window_end"] for a in latest}) == 1
    assert {a["column"] for a in client.get("/api/queries/total/latest").ok()} == {"bytes", "n"}
    assert len(client.get("/api/queries/by_port/latest?limit=2").ok()) == 2


def test_answers_come_as_events(run: Running, client: Client) -> None:
    with client.events("/api/answers/events?query=web") as found:
        run.turn(2)
        name, number, data = next(found)
    assert (name, {a["query"] for a in data}) == ("answers", {"web"})
    known = client.get("/api/queries/web/answers").ok()
    assert data
    assert all(answer in known for answer in data)
    with client.events(f"/api/answers/events?after={number - 1}") as found:
        assert next(found)[1] == number
    with client.events("/api/answers/events?after=0") as found:
        assert next(found)[:2] == ("answers", run.live.keeper.began + 1)
    with client.events("/api/answers/events?after=1") as found:
        assert next(found)[0] == "lost", "a number of another run"
    client.get("/api/answers/events?query=nix").problem(404)


def test_the_plan_in_four_forms(client: Client) -> None:
    kinds = {
        "text": "text/plain",
        "json": "application/json",
        "dot": "text/vnd.graphviz",
        "svg": "image/svg+xml",
    }
    for form, kind in kinds.items():
        said = client.get(f"/api/plan?format={form}")
        assert (said.status, said.kind) == (200, kind)
        assert b"by_port" in said.body
        assert b"by_port" not in client.get(f"/api/plan?format={form}&name=web").body
    assert json.loads(client.get("/api/plan?format=json").body)["streams"][0]["name"] == "p"
    client.get("/api/plan?format=pdf").problem(422)


def test_statistics_say_what_was_measured(client: Client) -> None:
    found = client.get("/api/statistics").ok()
    stream = found["streams"][0]
    assert stream["measured"] > 0
    assert (found["load"], stream["level"]) == (stream["load"], 0.0)
    ends = {name for operator in stream["operators"] for name in operator["queries"]}
    assert {"total", "by_port", "web"} <= ends
    test = next(o for o in stream["operators"] if o["label"] == "port = 80")
    assert test["selectivity"] == pytest.approx(1 / 3, abs=0.1)
    assert stream["operators"][test["parent"]]["kind"] == "stream"
    assert named(stream["queries"], "query")["by_port"]["groups"] == 3


def test_decisions_are_told_newest_first(run: Running, client: Client) -> None:
    found = client.get("/api/decisions?stream=P&limit=4").ok()
    assert [d["batch"] for d in found] == [run.taken - 1 - i for i in range(4)]
    assert {(d["stream"], d["kind"], d["level"]) for d in found} == {("p", "batch", 0.0)}


def test_what_is_declared(client: Client) -> None:
    stream = client.get("/api/streams").ok()[0]
    assert (stream["name"], stream["format"], stream["time"]) == ("p", "scripted", "ts")
    assert [c["name"] for c in stream["columns"]] == ["ts", "port", "size"]
    assert client.get("/api/tables").ok() == []
    assert client.get("/api/agents").ok() == []
    assert client.get("/api/knobs").problem(404)["detail"] == "there are no sliders: this is no demo"
    client.change("PUT", "/api/knobs", {"load": 2}).problem(404)
    alert = client.get("/api/alerts").ok()[0]
    assert (alert["name"], alert["query"], alert["raised"]) == ("busy", "total", 0)
    query = client.get("/api/queries/WEB").ok()
    assert (query["name"], query["contract"], query["columns"]) == ("web", "ERROR 5%", ["bytes"])
    assert query["sql"].startswith("CREATE QUERY web AS SELECT")
    assert query["frame"]["name"] == "web"
    assert [q["name"] for q in client.get("/api/queries").ok()][:3] == ["total", "by_port", "web"]


@pytest.mark.parametrize("state", ["idle", "ended"])
def test_a_stream_that_fell_silent_while_it_was_shed_leaves_no_level(
    run: Running, client: Client, monkeypatch: pytest.MonkeyPatch, state: Any
) -> None:
    engine = run.session.engine
    shed = replace(engine.decided["p"], level=0.5)
    monkeypatch.setattr(engine, "decided", {"p": shed})
    run.live.advance()
    assert run.live.frame().level == 0.5
    status = run.session.status()
    quiet = replace(status, streams=tuple(replace(s, state=state) for s in status.streams))
    monkeypatch.setattr(run.session, "status", lambda: quiet)
    run.live.advance()
    assert run.live.frame().level == 0.0
    told = client.get("/api/statistics").ok()
    assert [s["ended"] for s in told["streams"]] == [state == "ended"]
    assert told["streams"][0]["load"] > told["load"] == 0, "its picture stays, and it is no load"


def test_a_run_that_breaks_says_why(spark: Any, tmp_path: Path) -> None:
    broken = (
        "CREATE QUERY broken AS SELECT SUM(IF(port = 53, CAST(raise_error('no port') AS INT), size)) AS s "
        "FROM p GROUP BY window(ts, '2 seconds')"
    )
    with running(spark, tmp_path / "state", STREAM + broken) as run:
        with pytest.raises(RunError, match="no port") as raised:
            run.turn()
        run.live.advance()
        frame = run.client.get("/api/frame").ok()
        assert (frame["phase"], frame["message"]) == ("failed", str(raised.value))
        run.session.engine.error = KeyError("size")
        run.live.advance()
        assert run.live.frame().message == "KeyError: 'size'"


def test_a_frame_that_cannot_be_written_leaves_readers_no_gap(
    run: Running, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = run.live.number
    with monkeypatch.context() as broken:
        broken.setattr(Frame, "model_dump_json", Mock(side_effect=UnicodeError))
        with pytest.raises(UnicodeError):
            run.live.advance()
    run.live.advance()
    (data,) = run.live.frames(seen, 10)
    frame = Frame.model_validate_json(data)
    assert (frame.whole, frame.number) == (True, run.live.number)
    run.live.advance()
    assert len(run.live.frames(frame.number, 10)) == 1
    assert run.live.frames(frame.number + 1, 10) == []
