"""The benchmarks run on small data and give the figures they promise; nothing is measured here.

`bench recovery` starts and kills the command line; `test_cli` does the same with one kill.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from rich.progress import Progress
from typer.testing import CliRunner

from slackwater.benchmarks import agent_memory, hub, panes, queries
from slackwater.benchmarks.app import bench
from slackwater.benchmarks.report import write


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
