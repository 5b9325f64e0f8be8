"""Figures as JSON for the record and as a table for the reader."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

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
}


def rounded(value: float) -> float | int:
    """Three digits after the point are more than any of these measurements can tell."""
    return value if isinstance(value, int) else round(value, 3)


def write(name: str, figures: Mapping[str, float], path: Path | None) -> None:
    """Show the figures, and keep them where a path is given."""
    table = Table(title=f"bench {name}", title_justify="left")
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
        kept = {"name": name, "figures": {figure: rounded(value) for figure, value in figures.items()}}
        path.write_text(json.dumps(kept, indent=2) + "\n")


def note(text: str) -> None:
    """A line for the reader beside the figures."""
    console.print(text, markup=False)


@contextmanager
def progress() -> Iterator[Progress]:
    """Progress on standard output while something is measured."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        yield shown
