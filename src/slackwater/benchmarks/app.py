"""The command line of the benchmarks: ``slackwater bench panes|queries|recovery|…``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress

from slackwater.benchmarks import report

if TYPE_CHECKING:
    pass

bench = typer.Typer(
    name="bench",
    help="Measure: seeded workloads through the real pipeline, peers beside it.",
    no_args_is_help=True,
    add_completion=False,
)

Json = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small sizes: checks that it works, measures nothing.")]
Measure = Callable[[Path, Progress], Mapping[str, float]]


def _measure(name: str, json: Path | None, measure: Measure) -> None:
    with tempfile.TemporaryDirectory(prefix="slackwater-bench-") as folder, report.progress() as progress:
        figures = measure(Path(folder), progress)
    report.write(f"bench {name}", figures, json)


@bench.command()
def panes(json: Json = None, quick: Quick = False) -> None:
    """Seven sliding-window queries: Slackwater, plain Structured Streaming and DuckDB on the same files."""
    from slackwater.benchmarks import panes as module

    def measure(folder: Path, progress: Progress) -> Mapping[str, float]:
        with report.spark_session("slackwater-bench") as spark:
            return module.panes(spark, folder, module.QUICK if quick else module.FULL, progress)

    _measure("panes", json, measure)


@bench.command()
def queries(json: Json = None, quick: Quick = False) -> None:
    """One to a thousand queries over one stream, alike and unlike: what does the next one cost?"""
    from slackwater.benchmarks import queries as module

    def measure(folder: Path, progress: Progress) -> Mapping[str, float]:
        with report.spark_session("slackwater-bench") as spark:
            return module.queries(spark, folder, module.QUICK if quick else module.FULL, progress)

    _measure("queries", json, measure)


@bench.command()
def recovery(json: Json = None, quick: Quick = False) -> None:
    """Kill a run at random points, let it go on, and compare its answers with those of one left alone."""
    from slackwater.benchmarks import recovery as module

    def measure(folder: Path, progress: Progress) -> Mapping[str, float]:
        return module.recovery(folder, module.QUICK if quick else module.FULL, progress)

    _measure("recovery", json, measure)


@bench.command()
def shedding(json: Json = None, quick: Quick = False) -> None:
    """What shedding costs while idle, what it gains, how much more than its capacity a run can hold."""
    from slackwater.benchmarks import shedding as module

    def measure(folder: Path, progress: Progress) -> Mapping[str, float]:
        with report.spark_session("slackwater-bench") as spark:
            return module.shedding(spark, folder, module.QUICK if quick else module.FULL, progress)

    _measure("shedding", json, measure)


@bench.command()
def deferral(json: Json = None, quick: Quick = False) -> None:
    """Next evaluation times of a million queries: how long they take, and how exact they are."""
    from slackwater.benchmarks import deferral as module

    def measure(folder: Path, progress: Progress) -> Mapping[str, float]:
        return module.deferral(folder, module.QUICK if quick else module.FULL, progress)

    _measure("deferral", json, measure)


@bench.command()
def hub(json: Json = None, quick: Quick = False) -> None:
    """Thousands of agents on one hub: connecting, rows acknowledged from its disk, coming back."""
    from slackwater.benchmarks import hub as module

    def measure(folder: Path, progress: Progress) -> Mapping[str, float]:
        return module.hub(folder, module.QUICK if quick else module.FULL, progress)

    _measure("hub", json, measure)


@bench.command(name="agent-memory")
def agent_memory(json: Json = None, quick: Quick = False) -> None:
    """Peak memory of an agent with a million keys, while the hub takes its rows and while it does not."""
    from slackwater.benchmarks import agent_memory as module

    def measure(folder: Path, progress: Progress) -> Mapping[str, float]:
        return module.agent_memory(folder, module.QUICK if quick else module.FULL, progress)

    _measure("agent-memory", json, measure)


@bench.command()
def service(json: Json = None, quick: Quick = False) -> None:
    """Two hundred readers and fifty requests a second on a run: what they take of its batches and memory."""
    from slackwater.benchmarks import service as module

    def measure(folder: Path, progress: Progress) -> Mapping[str, float]:
        with report.spark_session("slackwater-bench") as spark:
            return module.service(spark, folder, module.QUICK if quick else module.FULL, progress)

    _measure("service", json, measure)


if __name__ == "__main__":
    bench()
