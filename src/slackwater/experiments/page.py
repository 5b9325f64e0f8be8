"""``make docs``: the page about the sampling experiments and its plots, from what they wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slackwater.benchmarks.report import read
from slackwater.experiments import plots

RESULTS = Path("docs/results")
TEMPLATE = "sampling.template.md"
PAGE = "sampling.md"
DRAWN: Mapping[str, Callable[[Mapping[str, Any], Path], None]] = {
    "sampling-load": plots.plot_load,
    "sampling-time": plots.plot_time,
    "sampling-burst": plots.plot_burst,
}
"""By experiment: what draws its plot."""
MISSING = "—"
_PLACE = re.compile(r"\{([a-z-]+):([^}:]+)(?::([^}]+))?\}")


def shown(value: float, form: str | None) -> str:
    """A figure as a reader wants it; ``form`` is a format such as ``.1%``.

    >>> shown(0.0312, ".1%"), shown(1451573, None), shown(0.41666, None)
    ('3.1%', '1,451,573', '0.417')
    """
    if form is not None:
        return format(value, form)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def filled(template: str, results: Mapping[str, Mapping[str, float]]) -> str:
    """A text with ``{experiment:figure}`` or ``{experiment:figure:format}`` replaced by the figures.

    >>> filled("{a-b:x.1:.0%} of {a-b:y}", {"a-b": {"x.1": 0.5}})
    '50% of —'
    """

    def replace(place: re.Match[str]) -> str:
        name, figure, form = place.groups()
        value = results.get(name, {}).get(figure)
        return MISSING if value is None else shown(value, form)

    return _PLACE.sub(replace, template)


def main() -> None:
    results: dict[str, Mapping[str, float]] = {}
    for name, draw in DRAWN.items():
        file = RESULTS / f"{name}.json"
        if file.exists():
            kept = read(file)
            results[name] = kept["figures"]
            draw(kept["series"], RESULTS / f"{name}.svg")
    template = (Path(__file__).parent / TEMPLATE).read_text(encoding="utf-8")
    (RESULTS / PAGE).write_text(filled(template, results), encoding="utf-8")


if __name__ == "__main__":
    main()
