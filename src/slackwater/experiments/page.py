"""``make docs``: the pages about the experiments and their plots, from what they wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slackwater.benchmarks.report import read
from slackwater.experiments import deferral_plots, plots, precision_plots, window_plots

RESULTS = Path("docs/results")
Drawn = Mapping[str, Callable[[Mapping[str, Any], Path], None] | None]
"""By experiment: what draws its plot; None: it has none, as a benchmark."""
PAGES: Mapping[str, tuple[str, Drawn]] = {
    "sampling.md": (
        "sampling.template.md",
        {
            "sampling-load": plots.plot_load,
            "sampling-time": plots.plot_time,
            "sampling-burst": plots.plot_burst,
        },
    ),
    "window-drop.md": (
        "window_drop.template.md",
        {
            "window-pipeline": window_plots.plot_pipeline,
            "window-fanout": window_plots.plot_fanout,
            "window-size": window_plots.plot_size,
            "window-slide": window_plots.plot_slide,
            "window-overhead": window_plots.plot_overhead,
        },
    ),
    "deferral.md": (
        "deferral.template.md",
        {
            "deferral-fidelity": deferral_plots.plot_fidelity,
            "deferral-evaluations": deferral_plots.plot_evaluations,
            "deferral-scale": deferral_plots.plot_scale,
            "deferral-interruption": deferral_plots.plot_interruption,
        },
    ),
    "precision.md": (
        "precision.template.md",
        {
            "precision-optimal": precision_plots.plot_optimal,
            "precision-hosts": precision_plots.plot_hosts,
            "precision-single": precision_plots.plot_single,
            "precision-queries": precision_plots.plot_queries,
            "precision-aggregation": precision_plots.plot_aggregation,
            "precision-tuning": precision_plots.plot_tuning,
            "precision-leniency": precision_plots.plot_leniency,
            "precision-solver": precision_plots.plot_solver,
            "precision-latency": precision_plots.plot_latency,
            "precision-live": precision_plots.plot_live,
            "agent-memory": None,
        },
    ),
}
"""By page: its text, and the experiments that fill it."""
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


def write_page(page: str, folder: Path) -> None:
    """A page and its plots, from the results in a folder; what is not there is shown as missing."""
    template, drawn = PAGES[page]
    results: dict[str, Mapping[str, float]] = {}
    for name, draw in drawn.items():
        file = folder / f"{name}.json"
        if file.exists():
            kept = read(file)
            results[name] = kept["figures"]
            if draw is not None:
                draw(kept["series"], folder / f"{name}.svg")
    text = (Path(__file__).parent / template).read_text(encoding="utf-8")
    (folder / page).write_text(filled(text, results), encoding="utf-8")


def main() -> None:
    for page in PAGES:
        write_page(page, RESULTS)


if __name__ == "__main__":
    main()
