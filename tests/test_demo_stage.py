"""The demo put together: a short stretch of it on Spark, every answer held against the truth."""

from __future__ import annotations

import threading
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from service_client import Client
from slackwater.cli import app
from slackwater.runtime.json_values import to_micros
from slackwater.runtime.sinks import JsonLinesSink
from slackwater.runtime.testing import ListSink
from slackwater.service.models import KnobsWanted
from slackwater.service.server import Address
from slackwater.terminal.demo import Asked, findings, run_demo, spark_settings
from slackwater.terminal.demo_agents import HOSTS, SERVICES
from slackwater.terminal.demo_load import Batch
from slackwater.terminal.demo_stage import RATE, Stage
from slackwater.terminal.demo_truth import true_load
from waiting import until, wait_for


def test_a_stretch_of_the_demo(spark: Any, tmp_path: Path) -> None:
    sink, kept = ListSink(), tmp_path / "answers.jsonl"
    with Stage(spark, tmp_path) as stage:
        stage.open(sink, JsonLinesSink(kept))
        # the visitor takes over, so that nothing here depends on how fast the machine is
        assert stage.dials.turn(KnobsWanted(load=0.5, tolerance=2.0)).load == 0.5
        session = stage.session

        def whole() -> bool:
            bounded = [a for a in list(sink.answers) if a.query == "total_load"]
            return any(a.met and a.rows == len(HOSTS) * len(SERVICES) for a in bounded)

        def altered() -> bool:
            return str(session.catalog.contracts["office_bytes"]) == "ERROR 40%"

        def many() -> bool:
            last = stage.batches.last
            return last is not None and last.number >= 6

        until(lambda: whole() and altered() and many(), session)
        frame = stage.live.frame()
        session.stop()
        batches = stage.batches.batches
    answers = sink.answers
    found = {f.what.split(" (")[0]: f for f in findings(stage, kept)}
    assert {step.name for step in session.catalog.queries.values() if not step.name.endswith("_load")} <= set(
        found
    )
    for name in ("all_traffic", "guest_senders", "intervals under PRECISION that hold"):
        assert found[name].held, found[name]
        assert not found[name].found.startswith(("none", "0 ")), found[name]
    # there was no burst: what is said of one is not so
    assert not found["rows a second in the burst"].held
    for answer in answers:
        if answer.query in ("total_load", "host_load") and answer.met and answer.at is not None:
            host = answer.group.get("host")
            true = true_load(stage.fleet, to_micros(answer.at), None if host is None else str(host))
            assert true is not None
            assert answer.low <= true + 1e-6
            assert true - 1e-6 <= answer.high
    assert frame.knobs is not None
    assert frame.knobs.tolerance == 2.0
    assert {stream.name for stream in frame.streams} == {"packets", "hosts", "queues"}
    _in_order(batches)
    # made as asked for: half of the usual rate since the visitor came
    assert stage.packets.factor == 0.5
    assert batches[-1].rows < 2 * RATE * (batches[-1].newest - batches[-1].oldest) / 1e6


def test_the_demo_serves_its_page_until_its_time_is_over(spark: Any) -> None:
    said, over, seen = StringIO(), threading.Event(), {}

    def address() -> str:
        return said.getvalue().partition("page: ")[2].partition("/#token=")[0]

    def answered() -> bool:
        seen.update(
            Client(Address("127.0.0.1", int(address().rpartition(":")[2]), "")).get("/api/frame").ok()
        )
        return len(seen["queries"]) == 8 and all(q["answers"] for q in seen["queries"])

    def look() -> None:
        try:
            wait_for(lambda: bool(address()))
            wait_for(answered, seconds=120)
        finally:
            over.set()

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    # its time is over once all has been seen, however long that takes here
    ended = run_demo(
        Console(file=said, width=200),
        Asked(port=0, browser=False, seconds=1.0),
        clock=lambda: 1e9 if over.is_set() else 0.0,
    )
    watcher.join(timeout=30)
    assert ended
    assert seen["knobs"]["chapter"] in said.getvalue(), "who has no page reads how the story goes on"
    assert {stream["name"] for stream in seen["streams"]} == {"packets", "hosts", "queues"}
    text = said.getvalue()
    assert all(query["name"] in text for query in seen["queries"]), "the summary"
    assert "The story was not told to its end" in text


def _in_order(batches: tuple[Batch, ...]) -> None:
    assert [b.number for b in batches] == sorted({b.number for b in batches})
    for before, after in pairwise(batches):
        assert after.oldest == before.newest
        assert after.ended >= after.newest
        assert after.load > 0
        assert after.capacity


@pytest.mark.parametrize("arguments", [["--check", "--for-seconds", "5"], ["--for-seconds", "0"]])
def test_options_that_cannot_be(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["demo", *arguments])
    assert result.exit_code != 0


def test_what_is_asked_for_by_default() -> None:
    assert Asked() == Asked(port=None, browser=True, seconds=None, check=False)
    assert spark_settings(1)["spark.sql.shuffle.partitions"] == "1"
