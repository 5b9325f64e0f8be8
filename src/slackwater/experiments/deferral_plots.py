"""The plots of the deferral experiments, drawn from what they wrote; each like a figure of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slackwater.experiments.plots import axes_of, save

COLOURS = {"95": "tab:blue", "90": "tab:green", "85": "tab:orange"}
STYLES = {"ours": "o-", "paper": "x:"}
LABELS = {"ours": "ours", "paper": "the paper's"}
KINDS = {"avg": "average", "max": "maximum over 30 ticks"}
UNITS = {"prices": "% of the first price", "sensors": "°C", "buoys": "°C"}


def plot_fidelity(series: Mapping[str, Any], path: Path) -> None:
    """Figure 5: fidelity against the bound, a row for averages and one for maxima, by data set."""
    names = [panel.split(".")[1] for panel in series if panel.startswith("avg.")]
    figure, axes = axes_of(len(KINDS), len(names), (4.2 * len(names), 7), sharey="row")
    for row, kind in zip(axes, KINDS, strict=True):
        for place, name in zip(row, names, strict=True):
            curves = series[f"{kind}.{name}"]
            for scheme, style in STYLES.items():
                for belief, fidelity in curves[scheme].items():
                    place.plot(
                        curves["bounds"],
                        [100 * share for share in fidelity],
                        style,
                        color=COLOURS[belief],
                        label=f"{LABELS[scheme]}, p = {belief} %",
                    )
            if kind == "avg":
                for belief, colour in COLOURS.items():
                    place.axhline(float(belief), color=colour, linewidth=0.6, alpha=0.6)
            place.set_title(f"{KINDS[kind]}, {name}")
            place.set_xlabel(f"bound [{UNITS[name]}]")
            place.set_xscale("log")
            place.set_xticks(curves["bounds"], [f"{bound:g}" for bound in curves["bounds"]])
            place.minorticks_off()
            place.grid(visible=True, alpha=0.2)
        row[0].set_ylabel("fidelity [%]")
    axes[0][-1].legend(fontsize="x-small")
    save(figure, path)


def plot_evaluations(series: Mapping[str, Any], path: Path) -> None:
    """Figure 6: evaluations against the bound; below it evaluations against the fidelity that they bring."""
    figure, axes = axes_of(2, len(series), (4.2 * len(series), 7))
    for column, (name, curves) in zip(axes.T, series.items(), strict=True):
        bounds = curves["bounds"]
        upper, lower = column
        upper.plot(bounds, curves["naive"], color="black", label="naive")
        upper.plot(bounds, curves["optimum"], "--", color="black", label="offline optimum")
        for scheme, style in STYLES.items():
            for belief, counts in curves[scheme].items():
                label = f"{LABELS[scheme]}, p = {belief} %"
                upper.plot(bounds, counts, style, color=COLOURS[belief], label=label)
            at = curves[f"{scheme}_at_fidelity"]
            for number, bound in enumerate(bounds):
                fidelity = [100 * share for share in at["fidelity"][number]]
                shares = [count / curves["naive"][number] for count in at["evaluations"][number]]
                named = {"label": f"bound {bound:g}"} if scheme == "ours" else {}
                lower.plot(fidelity, shares, style, color=f"C{number}", markersize=4, **named)
        upper.set_title(name)
        upper.set_xlabel(f"bound [{UNITS[name]}]")
        upper.set_ylabel("evaluations")
        upper.set_xscale("log")
        upper.set_xticks(bounds, [f"{bound:g}" for bound in bounds])
        upper.minorticks_off()
        lower.legend(fontsize="x-small", title="dotted: the paper's", title_fontsize="x-small")
        lower.set_xlim(70, 100)
        lower.set_xlabel("measured fidelity [%]")
        lower.set_ylabel("evaluations a tick")
        for place in column:
            place.set_yscale("log")
            place.grid(visible=True, alpha=0.2)
    axes[0][-1].legend(fontsize="x-small")
    save(figure, path)


def plot_interruption(series: Mapping[str, Any], path: Path) -> None:
    """Figure 8: the error of an average of prices against how long some of them have been silent."""
    figure, axes = axes_of(1, 1, (6.4, 4))
    place = axes[0][0]
    for scheme, style in STYLES.items():
        for silent, errors in series[scheme].items():
            colour = "tab:green" if silent == "2" else "tab:red"
            label = f"{silent} of 9 silent, {LABELS[scheme]}"
            place.plot(series["minutes"], errors, style, color=colour, label=label)
    place.set_xlabel("silent for [minutes]")
    place.set_ylabel("mean error of the average [% of the first price]")
    place.set_ylim(bottom=0)
    place.grid(visible=True, alpha=0.2)
    place.legend(fontsize="small")
    save(figure, path)


SCHEMES = {"naive": ("all at every tick", "tab:red"), "deferred": ("deferred", "tab:green")}


def plot_scale(series: Mapping[str, Any], path: Path) -> None:
    """Figure 7: the share of evaluations missed against the number of queries; and the seconds of a tick."""
    figure, axes = axes_of(1, 2, (9.6, 4))
    for name, points in series["points"].items():
        scheme, _, alone = name.partition("_")
        label, colour = SCHEMES[scheme]
        queries, missed, seconds = zip(*points, strict=True)
        style = "x:" if alone else "o-"
        label += ", not delivered" if alone else ", delivered"
        axes[0][0].plot(queries, [100 * share for share in missed], style, color=colour, label=label)
        axes[0][1].plot(queries, seconds, style, color=colour, label=label)
    axes[0][0].set_ylabel("evaluations missed [%]")
    axes[0][1].set_ylabel("time of a tick [s]")
    axes[0][1].axhline(series["budget_s"], color="tab:gray", linewidth=0.8)
    for place in axes[0]:
        place.set_xscale("log")
        place.set_xlabel("standing queries")
        place.grid(visible=True, alpha=0.2)
        place.legend(fontsize="small")
    save(figure, path)
