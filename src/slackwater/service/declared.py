"""What frames and reports say of a query by its declaration alone."""

from __future__ import annotations

from typing import Any, Literal

from slackwater.plan.catalog import Catalog
from slackwater.plan.model import Step, TimeWindow

Kind = Literal["windows", "rows", "current"]


def declared(catalog: Catalog) -> list[dict[str, Any]]:
    """By query what a frame says of it that does not change while the run goes on, but for its contract."""
    return [
        {
            "name": step.name,
            "stream": step.stream,
            "contract": str(catalog.contracts[name]),
            "kind": kind_of(step),
            "slide_seconds": slide_seconds(step),
            "columns": [output.name for output in step.outputs],
        }
        for name, step in catalog.queries.items()
    ]


def kind_of(step: Step) -> Kind:
    """What a query answers for: windows, single rows, or values as they are now."""
    return "current" if step.current else "windows" if step.aggregates else "rows"


def slide_seconds(step: Step) -> float | None:
    """Seconds between the ends of two windows; None where there are none, or they end with some row."""
    return step.window.slide / 1e6 if isinstance(step.window, TimeWindow) else None
