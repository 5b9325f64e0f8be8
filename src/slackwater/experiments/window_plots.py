"""The plots of the window drop experiments, drawn from what they wrote; each like a figure of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slackwater.experiments.plots import axes_of, save
from slackwater.experiments.window_curves import Point, delivered_at, limit_of, typical

LABELS = {
    "rdrop": "behind the aggregates (random drop)",
    "nested1": "between the aggregates",
    "nested2": "at the input",
    "conservative": "at the input, the paper's window",
    "split": "each query by itself",
    "shared": "both together",
    "measured": "measured",
    "formula": "the paper's formulas",
    "exact": "exact counts",
}
COLOURS = {
    "rdrop": "tab:red",
    "nested1": "tab:blue",
    "nested2": "tab:green",
    "conservative": "tab:gray",
    "split": "tab:blue",
    "shared": "tab:green",
}
STYLES = {"measured": "o-", "formula": "x:", "exact": "+--", "rdrop": "s-."}
EXCESSES = ("tab:blue", "tab:green", "tab:orange", "tab:red")


def _missing(place: Any, curves: Mapping[str, Any], loads: Sequence[float], title: str) -> None:
    """The share that is missing against the excess; a curve ends where nothing is delivered any more."""
    for name, listed in curves.items():
        points = [Point(*point) for point in listed]
        end = min(max(loads), limit_of(points) * 0.9999)
        grid = np.linspace(1.0, end, 200)
        missing = [100 * (1 - delivered_at(points, load)) for load in grid]
        colour = COLOURS[name]
        place.plot(100 * (grid - 1), missing, color=colour, label=LABELS[name])
        if end < max(loads):
            place.plot([100 * (end - 1)] * 2, [missing[-1], 100], ":", color=colour)
    place.set_title(title)
    place.set_xlabel("excess over the capacity [%]")
    place.set_ylabel("answers that are missing [%]")
    place.set_ylim(0, 102)
    place.grid(visible=True, alpha=0.2)
    place.legend(fontsize="small")


def plot_pipeline(series: Mapping[str, Any], path: Path) -> None:
    """Figure 10: nested aggregates; beside it the pair of windows that overlap."""
    figure, axes = axes_of(1, 2, (9.6, 4))
    titles = {"tumbling": "10 s within 100 s", "overlapping": "90 s every 60 s within 120 s"}
    for place, (name, title) in zip(axes[0], titles.items(), strict=True):
        _missing(place, series[name], series["loads"], title)
    save(figure, path)


def plot_fanout(series: Mapping[str, Any], path: Path) -> None:
    """Figure 11: two queries on one stream."""
    figure, axes = axes_of(1, 1, (6, 4))
    _missing(axes[0][0], series["points"], series["loads"], "windows of 50 s and of 100 s")
    save(figure, path)


def _shares(place: Any, ways: Mapping[str, Any], colour: str, name: str, only: Sequence[str]) -> None:
    for way in only:
        if way in ways:
            at, share = zip(*ways[way], strict=True)
            label = f"{name}, {LABELS[way]}" if name else LABELS[way]
            place.plot(at, [100 * s for s in share], STYLES[way], color=colour, label=label)


def plot_size(series: Mapping[str, Any], path: Path) -> None:
    """Figure 12: how much must be dropped by the size of the window."""
    figure, axes = axes_of(1, 1, (6, 4))
    place = axes[0][0]
    for kind, colour in (("tumbling", "tab:green"), ("sliding", "tab:blue")):
        _shares(place, series[kind], colour, kind, ("measured", "formula", "exact"))
    place.set_xlabel("size of the window [s]")
    place.set_ylabel("windows to be dropped [%]")
    place.set_ylim(0, 102)
    place.grid(visible=True, alpha=0.2)
    place.legend(fontsize="small")
    save(figure, path)


def plot_slide(series: Mapping[str, Any], path: Path) -> None:
    """Figure 13: how much must be dropped by the slide, measured, by the formulas and by exact counts."""
    figure, axes = axes_of(1, 3, (12, 4), sharey=True)
    for place, way in zip(axes[0], ("measured", "formula", "exact"), strict=True):
        for colour, (kind, ways) in zip(EXCESSES, series.items(), strict=False):
            name = f"{kind.removeprefix('excess')} % too much"
            at, share = zip(*ways[way], strict=True)
            place.plot(at, [100 * s for s in share], "o-", color=colour, label=name)
        place.set_title(LABELS[way])
        place.set_xlabel("slide of windows of 100 s [s]")
        place.set_xscale("log")
        place.set_ylim(0, 102)
        place.grid(visible=True, alpha=0.2)
    axes[0][0].set_ylabel("windows to be dropped [%]")
    axes[0][0].legend(fontsize="small")
    save(figure, path)


def plot_overhead(series: Mapping[str, Any], path: Path) -> None:
    """Table 4: the throughput of every round over that of the faster half of those without a drop."""
    figure, axes = axes_of(1, 1, (6, 4))
    place = axes[0][0]
    for number, rounds in enumerate(series.values()):
        plain = typical(rounds["exact"]["wall_s"])
        ways = (("exact", "tab:blue"), ("p=0", "tab:gray"), ("tested", "tab:green"))
        for offset, (name, colour) in zip((-0.2, 0, 0.2), ways, strict=True):
            walls = rounds[name]["wall_s"]
            place.plot(
                [number + offset] * len(walls), [plain / w for w in walls], "o", color=colour, alpha=0.3
            )
            place.plot(number + offset, plain / typical(walls), "_", color="black", markersize=10)
    named = [place_.replace(".", " s,\n", 1) for place_ in series]
    place.set_xticks(range(len(series)), named, fontsize="small")
    place.set_xlabel("window and selectivity: no drop (blue), p = 0 (gray), every row tested (green)")
    place.set_ylabel("throughput over that without a drop")
    place.grid(visible=True, alpha=0.2)
    save(figure, path)
