"""The benchmarks run on small data and give the figures they promise; nothing is measured here.

`bench recovery` starts and kills the command line; `test_cli` does the same with one kill.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from rich.progress import Progress
from typer.testing import CliRunner

from slackwater.benchmarks import agent_memory, hub, panes, queries, service
from slackwater.benchmarks.app import bench
from slackwater.benchmarks.report import LIMITS, write
from slackwater.benchmarks.service_client import Told, read_events


@pytest.fixture
def progress() -> Progress:
    return Progress(disable=True)


def test_panes_agree_with_both_peers_and_compile_nothing(
    spark: Any, tmp_path: Path, progress: Progress
) -> None:
    figures = panes.panes(spark, tmp_path, panes.QUICK, progress)
    assert {"over_plain_spark", "over_duckdb", "empty_batch_ms", "compilations"} <= set(figures)
    assert all(math.isfinite(f) and f >= 0 for f in figures.values())
    assert figures["compilations"] == 0


def test_queries_alike_and_unlike_run_in_all_numbers(spark: Any, tmp_path: Path, progress: Progress) -> None:
    figures = queries.queries(spark, tmp_path, queries.QUICK, progress)
    assert {"alike_10_over_1", "unlike_10_over_1"} <= set(figures)
    assert all(math.isfinite(f) and f > 0 for f in figures.values())


def test_a_hub_takes_all_its_agents_back_and_loses_nothing(tmp_path: Path, progress: Progress) -> None:
    figures = hub.hub(tmp_path, hub.QUICK, progress)
    assert figures["agents"] == hub.QUICK.agents
    assert figures["rows_a_second"] > 0
    assert figures["lost"] == 0


def test_readers_of_a_service_lose_nothing_and_are_counted(
    spark: Any, tmp_path: Path, progress: Progress
) -> None:
    figures = service.service(spark, tmp_path, service.QUICK, progress)
    assert {"batch_time_ratio", "events_lost", "memory_slope_mb_per_min"} <= set(figures) & set(LIMITS)
    assert all(math.isfinite(f) for f in figures.values())
    assert figures["batch_time_ratio"] > 0
    assert figures["events"] >= 2 * service.QUICK.readers
    assert figures["requests"] >= service.QUICK.requests
    lost = ("events_lost", "streams_broken", "requests_failed")
    assert [figures[name] for name in lost] == [0, 0, 0]


@pytest.mark.parametrize(
    ("streams", "lost", "broken"),
    [
        (["1 2 3 4 5", "1 2 3 4 5"], 0, 0),
        (["1 2 3 4 5", "1 2 3 4"], 0, 0),
        (["1 2 3 4 5", "1 2 5"], 2, 0),
        (["1 2 3 4 5", "1 2 ."], 2, 1),
        (["1 2 3 4 5", "."], 5, 1),
        ([".", "."], 2, 2),
    ],
)
def test_what_readers_of_a_service_lose_is_counted(streams: list[str], lost: int, broken: int) -> None:
    async def read() -> Told:
        told, left = Told(), iter(streams)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            words = next(left).split()
            for word in words:
                if word != ".":
                    writer.write(f"event: frame\nid: {word}\ndata: {{}}\n\n".encode())
            while words[-1] != "." and await reader.read(1024):
                # one that goes on is ended by its reader
                pass
            writer.close()
            await writer.wait_closed()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            for _ in streams:
                await read_events("127.0.0.1", port, time.monotonic() + 0.5, told)
        return told

    told = asyncio.run(read())
    assert (told.lost, told.broken) == (lost, broken)


def test_figures_are_written_as_json(tmp_path: Path) -> None:
    target = tmp_path / "figures.json"
    write("panes", {"over_duckdb": 0.5}, target)
    assert json.loads(target.read_text()) == {"name": "panes", "figures": {"over_duckdb": 0.5}}


def test_the_command_line_lists_the_benchmarks() -> None:
    shown = CliRunner().invoke(bench, ["--help"]).output
    assert all(name in shown for name in ("panes", "queries", "recovery"))


def test_the_memory_of_an_agent_is_measured_in_processes_of_their_own(
    tmp_path: Path, progress: Progress
) -> None:
    figures = agent_memory.agent_memory(tmp_path, agent_memory.Sizes(keys=3_000, rounds=2), progress)
    assert {"peak_mb.drained", "peak_mb.waiting", "peak_mb.pieces", "offer_s.waiting"} <= set(figures)
    assert all(math.isfinite(f) and f > 0 for f in figures.values())
