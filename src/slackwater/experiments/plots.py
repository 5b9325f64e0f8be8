"""The plots of the experiments, drawn from what they wrote; each like a figure of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

LABELS = {"input": "dropped at the input", "paper": "the paper's split", "ours": "ours"}
COLOURS = {"input": "tab:red", "paper": "tab:blue", "ours": "tab:green"}


def axes_of(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    plt.rcParams["svg.hashsalt"] = "slackwater"
    return plt.subplots(rows, columns, figsize=size, squeeze=False, **options)


def save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def plot_load(series: Mapping[str, Any], path: Path) -> None:
    """Figure 4: average and worst error against load, a panel for each workload."""
    figure, axes = axes_of(1, len(series), (9.6, 4))
    for place, (workload, curves) in zip(axes[0], series.items(), strict=True):
        for strategy, points in curves.items():
            load, average, worst = zip(*points, strict=True)
            colour, label = COLOURS[strategy], LABELS[strategy]
            place.plot(load, [100 * e for e in average], "o-", color=colour, label=f"{label}, average")
            place.plot(load, [100 * e for e in worst], "x:", color=colour, label=f"{label}, worst")
        place.set_title(workload)
        place.set_xlabel("load [capacities]")
        place.set_ylabel("largest relative error of seven queries [%]")
        place.grid(visible=True, alpha=0.2)
        place.legend(fontsize="small")
    save(figure, path)


def plot_time(series: Mapping[str, Any], path: Path) -> None:
    """Figure 5: error over time."""
    figure, axes = axes_of(1, 1, (8, 4))
    place = axes[0][0]
    for strategy, errors in series["errors"].items():
        shown = [100 * e for e in errors]
        place.plot(series["seconds"], shown, color=COLOURS[strategy], label=LABELS[strategy], linewidth=1)
    place.set_xlabel("time in the stream [s]")
    place.set_ylabel("largest relative error of seven queries [%]")
    place.set_ylim(bottom=0)
    place.grid(visible=True, alpha=0.2)
    place.legend()
    save(figure, path)


def plot_burst(series: Mapping[str, Any], path: Path) -> None:
    """Figure 6: rate, error and batch time through a burst, and through ten times the capacity with lags."""
    figure, axes = axes_of(3, 2, (10, 8), sharex="col")
    for column, (part, title) in zip(
        axes.T, (("burst", "a burst"), ("flood", "ten times the capacity")), strict=True
    ):
        batches = series[part]
        at = batches["at"]
        column[0].set_title(title)
        column[0].plot(at, [n / 1000 for n in batches["arrived"]], color="tab:gray", label="arrived")
        column[0].set_ylabel("rows a batch [1000]")
        column[1].plot(at, batches["rate"], color="tab:green", label="least sampling rate")
        column[1].plot(batches["seconds"], batches["error"], color="tab:red", label="largest relative error")
        column[1].set_ylim(0, 1.05)
        column[2].plot(at, batches["batch_s"], color="tab:blue", label="batch time [s]")
        column[2].plot(at, batches["lag_s"], color="tab:orange", label="behind [s]")
        for form, line in (("windows", ":"), ("panes", "-.")) if part == "flood" else ():
            plain = series.get(f"plain.{form}", {"at": [], "lag_s": []})
            label = f"plain Structured Streaming in {form}, behind [s]"
            column[2].plot(plain["at"], plain["lag_s"], color="black", linestyle=line, label=label)
        column[2].axhline(series["interval_s"], color="tab:gray", linewidth=0.8)
        # batches take about a second, plain streaming falls behind by a minute
        column[2].set_yscale("symlog", linthresh=4)
        column[2].set_ylim(bottom=0)
        column[2].set_yticks([0, 1, 2, 4, 10, 60], ["0", "1", "2", "4", "10", "60"])
        column[2].set_xlabel("time [s]")
        for place in column:
            place.grid(visible=True, alpha=0.2)
            place.legend(fontsize="small")
    save(figure, path)
