"""What benchmarks and experiments share: figures as JSON and a table, limits, progress, a session."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from slackwater.spark.execute import SparkSession

console = Console(highlight=False)


@dataclass(frozen=True)
class Limit:
    """What a figure must keep to."""

    least: float | None = None
    most: float | None = None

    def holds(self, value: float) -> bool:
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        return f"≥ {self.least:g}" if self.least is not None else f"≤ {self.most:g}"


LIMITS: Mapping[str, Limit] = {
    "over_plain_spark": Limit(least=30),
    "over_duckdb": Limit(least=0.4),
    "empty_batch_ms": Limit(most=300),
    "compilations": Limit(most=0),
    "alike_1000_over_1": Limit(most=5),
    "unlike_100_over_1": Limit(most=12),
    "unlike_growth_over_linear": Limit(most=1),
    "kills": Limit(least=20),
    "idle_ratio": Limit(least=0.95),
    "json_gain": Limit(least=4),
    "planner_ms_1000": Limit(most=100),
    "differing_answers": Limit(most=0),
    **{f"network.input_over_paper.{load}": Limit(least=1.8) for load in (2, 3, 5)},
    **{f"network.ours_over_paper.{load}": Limit(most=0.7) for load in (3, 5, 10)},
    "cheap.ours_over_paper.max": Limit(most=1.02),
    "network.ours_error.5": Limit(most=0.05),
    "coverage_shortfall.max": Limit(most=0.01),
    "batches_in_time": Limit(least=0.99),
    "batches_to_exact": Limit(most=2),
    "wrong_answers": Limit(most=0),
    "gap_violations": Limit(most=0),
    "ratio.min": Limit(least=0.97),
    **{f"peak_mb.{c}": Limit(most=500) for c in ("drained", "waiting", "away", "pieces", "pieces_waiting")},
    "batch_time_ratio": Limit(most=1.1),
    "events_lost": Limit(most=0),
    "streams_broken": Limit(most=0),
    "requests_failed": Limit(most=0),
    "memory_slope_mb_per_min": Limit(most=2),
    "solve_ms_million": Limit(most=200),
    "solve_error": Limit(most=1e-3),
    "lost": Limit(most=0),
    **{f"avg.{s}.{p}": Limit(least=p / 100 - 0.02) for s in ("prices", "sensors") for p in (95, 90, 85)},
    **{f"max.{s}.{p}": Limit(least=p / 100) for s in ("prices", "sensors") for p in (95, 90, 85)},
    **{f"ours_over_paper.{p}": Limit(most=0.85) for p in (95, 90, 85)},
    "missed.deferred.1000000": Limit(most=0),
    **{f"coverage.{silent}": Limit(least=0.88) for silent in (2, 3)},
}
"""What figures must keep to, where that has been settled."""


def rounded(value: float) -> float | int:
    """Four digits that count are more than any of these measurements can tell.

    >>> rounded(0.0312345), rounded(1451573), rounded(12345.678)
    (0.03123, 1451573, 12350.0)
    """
    return value if isinstance(value, int) else float(f"{value:.4g}")


def write(
    title: str, figures: Mapping[str, float], path: Path | None, series: Mapping[str, Any] | None = None
) -> None:
    """Show the figures; keep them, and what plots are drawn from, where a path is given."""
    table = Table(title=title, title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_column("limit", justify="right")
    for figure, value in figures.items():
        limit = LIMITS.get(figure)
        style = "" if limit is None else "green" if limit.holds(value) else "bold red"
        table.add_row(figure, f"{rounded(value):g}", "" if limit is None else str(limit), style=style)
    console.print(table)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept: dict[str, Any] = {
            "name": title.split()[-1],
            "figures": {figure: rounded(value) for figure, value in figures.items()},
        }
        if series is not None:
            kept["series"] = series
        path.write_text(json.dumps(kept, indent=1, default=float) + "\n")


def read(path: Path) -> dict[str, Any]:
    """What was kept."""
    kept: dict[str, Any] = json.loads(path.read_text())
    return kept


def note(text: str) -> None:
    """A line for the reader beside the figures."""
    console.print(text, markup=False)


@contextmanager
def progress() -> Iterator[Progress]:
    """Progress on standard output while something is measured."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        yield shown


@contextmanager
def spark_session(name: str) -> Iterator[SparkSession]:
    """Spark for as long as something is measured."""
    from slackwater.spark.session import build_session

    session = build_session(name)
    try:
        yield session
    finally:
        session.stop()
