"""The plots of the precision experiments, drawn from what they wrote; each like a figure of the paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from slackwater.experiments.plots import axes_of, save

STYLES = {
    "uniform": ("uniform", "tab:red", "o-"),
    "burden": ("burden (the paper's)", "tab:blue", "s-"),
    "curves": ("curves (ours)", "tab:green", "o-"),
    "centred": ("curves, bounds always centred", "tab:green", "x:"),
    "clairvoyant": ("clairvoyant, static", "black", "--"),
    "leaning_clairvoyant": ("clairvoyant, static, leaning", "tab:gray", ":"),
    "appendix_f": ("static optimum, Appendix F", "black", "d--"),
    "exact": ("static optimum, exact stairs", "tab:gray", "d:"),
}
TITLES = {
    "one": "one AVG over ten walks",
    "one.dear": "one AVG, costs differ",
    "five": "five AVG over ten walks",
    "five.dear": "five AVG, costs differ",
    "generated": "generated packets",
    "packets": "real packets",
    "hosts": "hosts",
}


def _lines(place: Any, panel: Mapping[str, Any], schemes: Iterable[str]) -> None:
    for scheme in schemes:
        if scheme in panel:
            label, colour, style = STYLES[scheme]
            place.plot(panel["within"], panel[scheme], style, color=colour, label=label, markersize=4)
    place.grid(visible=True, alpha=0.2)


def plot_optimal(series: Mapping[str, Any], path: Path) -> None:
    """Figures 3 and 4: cost of updates against the constraint, beside the static optimum."""
    figure, axes = axes_of(2, 2, (9.6, 7))
    for place, (name, panel) in zip(axes.flat, series.items(), strict=False):
        _lines(place, panel, ("uniform", "burden", "curves", "appendix_f", "exact"))
        place.set_title(TITLES[name])
        place.set_xlabel("constraint δ" if name.startswith("one") else "largest constraint δmax")
        place.set_ylabel("cost of updates a step")
        place.set_yscale("log")
    axes[0][0].legend(fontsize="small")
    save(figure, path)


def plot_hosts(series: Mapping[str, Any], path: Path) -> None:
    """Figure 7: messages a step against the constraint; below it the same over uniform."""
    figure, axes = axes_of(2, len(series), (4.2 * len(series), 7.5))
    schemes = ("uniform", "burden", "curves", "centred", "clairvoyant", "leaning_clairvoyant")
    for column, (name, panel) in zip(axes.T, series.items(), strict=True):
        _lines(column[0], panel, schemes)
        over = {s: [a / b for a, b in zip(panel[s], panel["uniform"], strict=True)] for s in schemes}
        _lines(column[1], {"within": panel["within"], **over}, schemes)
        month, way = name.split("_")
        column[0].set_title(f"hosts {month}, {'received' if way == 'rx' else 'sent'}")
        column[0].set_ylabel("messages a step")
        column[0].set_yscale("log")
        column[1].set_ylabel("messages over uniform")
        column[1].set_ylim(0, 1.3)
        for place in column:
            place.set_xscale("log")
            place.set_xlabel("constraint δ [kB/s]")
    axes[0][0].legend(fontsize="x-small")
    save(figure, path)


def plot_single(series: Mapping[str, Any], path: Path) -> None:
    """Figure 6: messages a second against the constraint, for query Q5 over ten hosts."""
    figure, axes = axes_of(1, len(series), (4.8 * len(series), 4))
    for place, (name, panel) in zip(axes[0], series.items(), strict=True):
        _lines(place, panel, ("uniform", "burden", "curves", "clairvoyant"))
        place.set_title(f"Q5, {TITLES[name]}")
        place.set_xlabel("constraint δ [packets/s]")
        place.set_ylabel("messages a second")
        place.set_yscale("symlog", linthresh=0.1)
        place.set_ylim(bottom=0)
    axes[0][0].legend(fontsize="small")
    save(figure, path)


def plot_queries(series: Mapping[str, Any], path: Path) -> None:
    """Figure 8: messages a step against the constraint of Q2 and Q5, for five queries that overlap."""
    figure, axes = axes_of(1, len(series), (4.2 * len(series), 4))
    for place, (name, panel) in zip(axes[0], series.items(), strict=True):
        _lines(place, panel, ("uniform", "burden", "curves"))
        place.set_title(f"Q1 to Q5, {TITLES[name]}")
        unit, step = ("kB/s", "step") if name == "hosts" else ("packets/s", "second")
        place.set_xlabel(f"constraint δ of Q2 and Q5 [{unit}]")
        place.set_ylabel(f"messages a {step}")
        place.set_xscale("log")
        place.set_ylim(bottom=0)
    axes[0][0].legend(fontsize="small")
    save(figure, path)


KINDS = {
    "grouped": ("by group", "tab:red"),
    "aggregated": ("by query", "tab:blue"),
    "adaptive": ("adaptive", "tab:green"),
}
CASES = {"case1": "constraints differ", "case2": "one walk moves most", "switching": "in turns"}


def plot_aggregation(series: Mapping[str, Any], path: Path) -> None:
    """Messages a step and source over time, told by group, by query, and by the one that is cheaper."""
    figure, axes = axes_of(1, len(series), (4.2 * len(series), 4))
    for place, (name, panel) in zip(axes[0], series.items(), strict=True):
        for kind, (label, colour) in KINDS.items():
            # adaptive runs along one of the others, which is to be seen
            width, order, shade = (4.0, 1, 0.4) if kind == "adaptive" else (1.0, 2, 1.0)
            place.plot(
                panel["at"],
                panel[kind],
                color=colour,
                label=label,
                linewidth=width,
                zorder=order,
                alpha=shade,
            )
        place.set_title(CASES[name])
        place.set_xlabel("step")
        place.set_ylabel("messages a step")
        place.set_ylim(bottom=0)
        place.grid(visible=True, alpha=0.2)
    axes[0][0].legend(fontsize="small")
    save(figure, path)


def plot_solver(series: Mapping[str, Any], path: Path) -> None:
    """Figure 2: the share of a period that one adjustment takes; and seconds on to a million objects."""
    figure, axes = axes_of(1, 2, (9.6, 4))
    left, right = axes[0]
    for share in ("5", "25"):
        queries, shares = zip(*series[f"paper.{share}"], strict=True)
        left.plot(queries, [100 * s for s in shares], "o-", label=f"over {share} % of 200 sources")
    left.set_xlabel("queries")
    left.set_ylabel("of a period of 10 s [%]")
    left.set_ylim(bottom=0)
    for name in ("burden", "curves"):
        label, colour, style = STYLES[name]
        objects, seconds = zip(*series[name], strict=True)
        right.plot(objects, seconds, style, color=colour, label=label)
    right.axhline(5.0, color="tab:gray", linewidth=0.8)
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_xlabel("objects (a query for each hundred)")
    right.set_ylabel("one adjustment [s]")
    for place in (left, right):
        place.grid(visible=True, alpha=0.2)
        place.legend(fontsize="small")
    save(figure, path)


def plot_latency(series: Mapping[str, Any], path: Path) -> None:
    """Figure 9: the fraction of updates that come later than a tolerance, against the tolerance."""
    figure, axes = axes_of(1, 1, (6.4, 4))
    place = axes[0][0]
    tolerances = series["tolerance"]
    for name, panel in series.items():
        if name == "tolerance":
            continue
        sent = f"δ = {panel['within']:g}" if panel["within"] else "every value sent"
        place.plot(
            tolerances,
            [100 * f for f in panel["late"]],
            "o-",
            markersize=4,
            label=f"{panel['agents']} agents, {sent}",
        )
    place.axhline(0.2, color="tab:gray", linewidth=0.8)
    place.text(tolerances[0], 0.2, "99.8 % on time", fontsize="small", va="bottom", color="tab:gray")
    place.set_xscale("log")
    # a fraction of zero has a place on the axis too
    place.set_yscale("symlog", linthresh=0.01)
    place.set_ylim(-0.002, 120)
    place.set_xlabel("tolerance λ [s]")
    place.set_ylabel("updates later than λ [%]")
    place.grid(visible=True, alpha=0.2)
    place.legend(fontsize="small", loc="lower left")
    save(figure, path)


def plot_live(series: Mapping[str, Any], path: Path) -> None:
    """Messages in both directions by second of the live run, and when something was killed or altered."""
    figure, axes = axes_of(1, 1, (8, 3.6))
    place = axes[0][0]
    seconds, messages = zip(*series["by_second"], strict=True)
    place.plot(seconds, messages, color="tab:blue", linewidth=1)
    marks = [(at, f" {name} killed", "tab:red") for name, at in series["killed"].items()]
    marks += [(at, f" {name}", "tab:green") for name, at in series["altered"].items()]
    for line, (at, text, color) in enumerate(sorted(marks)):
        place.axvline(at, color=color, linestyle=":")
        # one below the other: they may be close
        high = (1.0 - 0.08 * line) * max(messages)
        place.text(at, high, text, fontsize="small", va="top", color=color)
    place.set_xlabel("second of the run")
    place.set_ylabel("rows and grants a second")
    save(figure, path)


def plot_tuning(series: Mapping[str, Any], path: Path) -> None:
    """Messages with the period tuned, over those with one of 10 seconds, by how often values come."""
    figure, axes = axes_of(1, 1, (6.4, 4.2))
    place = axes.flat[0]
    for name, panel in series.items():
        place.plot(panel["every"], panel["curves"], "o-", label=name, markersize=4)
    place.axhline(1.0, color="black", linewidth=0.8)
    place.set_xscale("log")
    place.set_xlabel("seconds between two values")
    place.set_ylabel("messages, over a period of 10 s")
    place.grid(visible=True, alpha=0.2)
    place.legend(fontsize="small")
    save(figure, path)


def plot_leniency(series: Mapping[str, Any], path: Path) -> None:
    """Messages where agents tell means, over those where they tell moments, by the window."""
    figure, axes = axes_of(1, 1, (6.4, 4.2))
    place = axes.flat[0]
    for name, panel in series.items():
        place.plot(panel["window"], panel["means"], "o-", label=name, markersize=4)
    place.set_xscale("log")
    place.set_ylim(bottom=0.0)
    place.set_xlabel("window in seconds")
    place.set_ylabel("messages, over those with δ at all times")
    place.grid(visible=True, alpha=0.2)
    place.legend(fontsize="small")
    save(figure, path)
