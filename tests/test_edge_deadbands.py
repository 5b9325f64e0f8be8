"""Widths exported as deadbands: what is granted, in words that a device understands, and nobody is disturbed."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from edge_clients import SECOND, TestClock
from slackwater.cli import app
from slackwater.edge import operators
from slackwater.edge.agent import Agent
from slackwater.edge.coordinator_link import CoordinatorLink
from slackwater.edge.deadbands import Deadband, export, write_csv, write_json
from slackwater.edge.hub_thread import HubThread
from slackwater.edge.messages import Declared, Disconnected
from slackwater.edge.operator_link import OperatorLink
from slackwater.edge.widths import TOLD, Grants
from slackwater.errors import SourceError

WIDE = Declared(("host", "port"), ("rx", "tx"))


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def hub(tmp_path: Path, clock: TestClock) -> Iterator[HubThread]:
    with HubThread(tmp_path / "hub", clock=clock) as running:
        yield running


def granted(link: CoordinatorLink, *grants: tuple[int, int, float, int, float]) -> None:
    """Grants of key, column, width, start and shrink."""
    key, column, width, start, shrink = (np.array(c) for c in zip(*grants, strict=True))
    period = np.full(len(grants), 10 * SECOND)
    link.grant(Grants(key, column, width.astype(float), start, shrink.astype(float), period))


@pytest.fixture
def link(hub: HubThread, clock: TestClock) -> Iterator[CoordinatorLink]:
    """A coordinator, and an agent with three keys."""
    with CoordinatorLink(hub.url, "wide", WIDE) as coordinator:
        with Agent("wide", hub=hub.url, name="a", clock=clock) as agent:
            assert agent.declared(20)
            agent.update_many([("x", 1), ("y", 2), ("z", 3)], [{"rx": 1, "tx": 2}] * 3)
            assert agent.flush(20)
        yield coordinator


def no_sleep(_: float) -> None:
    raise AssertionError("nothing is to be waited for")


def exported(hub: HubThread, sleep: Any = no_sleep) -> list[Deadband]:
    with OperatorLink(hub.url, "wide") as operator:
        return list(export(operator, "wide", sleep=sleep).deadbands)


def test_deadbands_are_half_of_what_is_granted_and_nobody_is_fenced_off(
    hub: HubThread, link: CoordinatorLink, clock: TestClock
) -> None:
    granted(link, (0, 0, 5.0, 0, 0.0), (1, 1, 8.0, 0, 0.5), (2, 0, np.inf, 0, 0.0))
    clock.advance(25 * SECOND)
    found = {(tuple(d.key), d.column): d for d in exported(hub)}
    assert list(found) == [(k, c) for k in (("x", 1), ("y", 2), ("z", 3)) for c in ("rx", "tx")]
    assert found[("x", 1), "rx"] == Deadband(["x", 1], "rx", 2.5, 0.0, 0.0)
    # two periods have passed since it was granted
    assert found[("y", 2), "tx"] == Deadband(["y", 2], "tx", 1.0, 0.5, 10.0)
    assert {k: d.deadband for k, d in found.items() if d.deadband is None}.keys() == {
        (("x", 1), "tx"),
        (("y", 2), "rx"),
        (("z", 3), "rx"),
        (("z", 3), "tx"),
    }
    # the coordinator goes on as if nothing had been
    granted(link, (0, 0, 4.0, 0, 0.0))
    assert link.generation == 1
    assert exported(hub)[0].deadband == 2.0


def test_what_is_only_counted_has_no_deadband(
    hub: HubThread, link: CoordinatorLink, caplog: pytest.LogCaptureFixture
) -> None:
    granted(link, (0, 0, TOLD, 0, 0.0), (1, 0, TOLD * (1 - 1e-9), 0, 0.5), (2, 0, 4.0, 0, 0.0))
    file = io.StringIO()
    with OperatorLink(hub.url, "wide") as operator:
        write_json(export(operator, "wide"), file)
    told = [band for band in json.loads(file.getvalue())["deadbands"] if band["column"] == "rx"]
    assert [band["deadband"] for band in told] == [None, None, 2.0]
    assert not any("shrink" in band for band in told)
    assert "5 of them are never sent, as nobody asks for them, they are only counted" in caplog.text


def test_many_keys_come_in_pages(
    hub: HubThread, link: CoordinatorLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted(link, (0, 0, 1.0, 0, 0.0), (1, 0, 2.0, 0, 0.0), (2, 1, 4.0, 0, 0.0))
    whole = exported(hub)
    monkeypatch.setattr(operators, "KEYS_PER_ANSWER", 2)
    assert exported(hub) == whole


def test_grants_that_have_not_begun_are_waited_for(
    hub: HubThread, link: CoordinatorLink, clock: TestClock
) -> None:
    granted(link, (0, 0, 1.0, 0, 0.0))
    granted(link, (0, 0, 6.0, clock() + 2 * SECOND, 0.0))
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        clock.advance(int(seconds * 1e6))

    assert exported(hub, sleep)[0].deadband == 3.0
    assert waited == [2.0]
    granted(link, (0, 0, 6.0, clock() + 2 * SECOND, 0.0))
    with pytest.raises(SourceError, match="have not begun yet: try again"):
        exported(hub, lambda _: None)


def test_a_device_that_keeps_to_its_deadband_keeps_its_values_in_their_bounds(
    hub: HubThread, link: CoordinatorLink
) -> None:
    granted(link, (0, 0, 3.0, 0, 0.0))
    deadband = exported(hub)[0].deadband
    assert deadband is not None
    sent, count = None, 0
    for value in np.cumsum(np.random.default_rng(5).normal(0, 1, 500)).tolist():
        if sent is None or abs(value - sent) > deadband:
            sent, count = value, count + 1
        assert sent - 3.0 / 2 <= value <= sent + 3.0 / 2
    assert count < 300


def test_files_can_be_read_back(hub: HubThread, link: CoordinatorLink, clock: TestClock) -> None:
    granted(link, (0, 0, 5.0, 0, 0.0), (1, 1, 8.0, 0, 0.05))
    for write in (write_json, write_csv):
        file = io.StringIO()
        with OperatorLink(hub.url, "wide") as operator:
            assert write(export(operator, "wide"), file) == 6
        text = file.getvalue()
        if write is write_json:
            told = json.loads(text)
            assert (told["stream"], told["key"], told["columns"]) == ("wide", ["host", "port"], ["rx", "tx"])
            assert told["made"] == "1970-01-01T00:16:40.000000+00:00"
            first, second, *_ = told["deadbands"]
            assert first == {"key": ["x", 1], "column": "rx", "deadband": 2.5}
            assert second == {"key": ["x", 1], "column": "tx", "deadband": None}
            law = {"shrink": 0.05, "period_seconds": 10.0}
            assert told["deadbands"][3] == {"key": ["y", 2], "column": "tx", "deadband": 4.0, **law}
        else:
            rows = list(csv.DictReader(io.StringIO(text)))
            assert [r["deadband"] for r in rows] == ["2.5", "never", "never", "4.0", "never", "never"]
            assert (rows[0]["key.host"], rows[0]["key.port"], rows[0]["column"]) == ("x", "1", "rx")
            assert rows[3]["shrink"] == "0.05"


def test_the_command_writes_a_file_as_a_whole(hub: HubThread, link: CoordinatorLink, tmp_path: Path) -> None:
    granted(link, (0, 0, 5.0, 0, 0.0))
    runner, words = CliRunner(), ["deadbands", "--hub", hub.url, "--stream", "wide"]
    printed = runner.invoke(app, words)
    assert printed.exit_code == 0
    assert json.loads(printed.stdout)["deadbands"][0]["deadband"] == 2.5
    target = tmp_path / "bands.csv"
    result = runner.invoke(app, [*words, "--format", "csv", "-o", str(target)])
    assert f"wrote 6 deadbands to {target}" in result.stdout
    assert target.read_text().startswith("key.host,key.port,column,deadband")
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    wrong = runner.invoke(app, [*words, "--format", "xml"])
    assert wrong.exit_code == 1
    assert "--format: expected json or csv, got 'xml'" in wrong.stderr


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_a_reader_that_has_seen_enough_ends_it_quietly(
    hub: HubThread, link: CoordinatorLink, format_: str
) -> None:
    granted(link, (0, 0, 5.0, 0, 0.0), *((key, 1, 5.0, 0, 0.0) for key in range(3)))
    words = ["deadbands", "--hub", hub.url, "--stream", "wide", "--format", format_]
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "slackwater.edge", *words]
    with subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE, text=True) as process:
        # nobody reads a word of it, from before the first one is written
        os.close(writing)
        os.close(reading)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert [line for line in errors.splitlines() if "are never sent" not in line] == []


def test_what_is_not_there_is_said(hub: HubThread, tmp_path: Path) -> None:
    with HubThread(tmp_path / "other") as gone:
        url = gone.url
    with pytest.raises(Disconnected, match="cannot reach the hub"):
        OperatorLink(url, "wide").__enter__()
    with pytest.raises(SourceError, match="expected a hub such as ws://"):
        OperatorLink("http://x", "wide")
    with Agent("undeclared", hub=hub.url, name="a") as agent:
        assert agent.wait(lambda: agent.connected, 20)
        with (
            OperatorLink(hub.url, "undeclared") as operator,
            pytest.raises(SourceError, match="is not declared yet: no query has asked for it"),
        ):
            export(operator, "undeclared")
