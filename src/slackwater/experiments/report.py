"""Figures and series of an experiment as JSON, and a table of the figures for the reader."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from slackwater.benchmarks.report import Limit, console

LIMITS: Mapping[str, Limit] = {
    "batches_in_time": Limit(least=0.99),
}
"""What figures must keep to, where that has been settled."""


def rounded(value: float) -> float | int:
    """Four digits that count.

    >>> rounded(0.0312345), rounded(1451573), rounded(12345.678)
    (0.03123, 1451573, 12350.0)
    """
    return value if isinstance(value, int) else float(f"{value:.4g}")


def write(name: str, figures: Mapping[str, float], series: Mapping[str, Any], path: Path | None) -> None:
    """Show the figures, and keep them with what the plots are drawn from where a path is given."""
    table = Table(title=f"reproduce {name}", title_justify="left")
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
        kept = {"name": name, "figures": {n: rounded(v) for n, v in figures.items()}, "series": series}
        path.write_text(json.dumps(kept, indent=1, default=float) + "\n")


def read(path: Path) -> dict[str, Any]:
    """What an experiment wrote."""
    kept: dict[str, Any] = json.loads(path.read_text())
    return kept
