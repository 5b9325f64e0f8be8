"""The demo put together: a short stretch of it on Spark, every answer held against the truth."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from slackwater.cli import app
from slackwater.runtime.auditing import compare, promises
from slackwater.runtime.json_values import to_micros
from slackwater.runtime.testing import ListSink
from slackwater.service.models import KnobsWanted
from slackwater.terminal.demo import Asked, spark_settings
from slackwater.terminal.demo_agents import HOSTS, SERVICES
from slackwater.terminal.demo_check import audit_findings
from slackwater.terminal.demo_load import Batch
from slackwater.terminal.demo_stage import RATE, Stage
from slackwater.terminal.demo_truth import queues_truth, traffic_truth, true_load
from waiting import until


def test_a_stretch_of_the_demo(spark: Any, tmp_path: Path) -> None:
    sink = ListSink()
    with Stage(spark, tmp_path) as stage:
        stage.open(sink)
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
    contracts = {s.name: session.catalog.contracts[n] for n, s in session.catalog.queries.items()}
    delays = [to_micros(a.at) for a in answers if a.query == "delay" and a.at is not None]
    truth = [*traffic_truth(stage.packets, batches[-1].newest), *queues_truth(stage.queues, max(delays))]
    report = compare(answers, truth, promises([session.catalog]))
    findings = {f.what.split()[0]: f for f in audit_findings(report, contracts)}
    assert set(findings) == {name for name in contracts if not name.endswith("_load")}
    exact = ("all_traffic", "guest_senders")
    assert [findings[name].held for name in exact] == [True, True], [findings[name] for name in exact]
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
