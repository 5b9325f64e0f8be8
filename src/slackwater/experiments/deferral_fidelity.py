"""``reproduce deferral-fidelity``: how often deferred answers are within their bounds, Figure 5 and Table 2.

Averages over nine series, and maxima over 30 ticks of such averages; ten queries of nine series at random
with weights that differ by up to three times. The paper's scheme and ours, each as it is: a belief is given,
and the share of ticks measured at which the cached answer is within the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.progress import Progress

from slackwater.experiments.deferral_data import SOURCES, Series, queries
from slackwater.experiments.deferral_extremes import simulate_maxima
from slackwater.experiments.deferral_simulation import OURS, PAPER, Moving, Outcome, Results, simulate

BELIEFS = (0.95, 0.9, 0.85)
SCHEMES = {
    "ours": OURS,
    "paper": PAPER,
    "uncalibrated": replace(OURS, calibration=False),
    "independent": replace(OURS, calibration=False, covariance=False),
}
SEED = 7
KINDS: dict[str, Callable[..., Outcome]] = {"avg": simulate, "max": simulate_maxima}


@dataclass(frozen=True)
class Sizes:
    """How much is simulated."""

    ticks: int
    queries: int
    bounds: int
    """Of those of each data set, how many."""


FULL = Sizes(ticks=40_200, queries=10, bounds=4)
QUICK = Sizes(ticks=320, queries=2, bounds=1)


def deferral_fidelity(spark: Any, folder: Path, sizes: Sizes, shown: Progress) -> Results:
    """All figures of the experiment; Spark has no part in it, and nothing is written."""
    results = Results()
    task = shown.add_task("simulated runs", total=len(SOURCES) * len(SCHEMES) * len(KINDS))
    for name, source in SOURCES.items():
        series = source(sizes.ticks)
        results.figures[f"real.{name}"] = float(series.real)
        results.figures[f"ticks.{name}"] = len(series.values)
        for scheme in SCHEMES:
            _measure(results, series, scheme, sizes, lambda: shown.advance(task))
    short = [
        belief - results.figures[f"avg.{name}.{100 * belief:.0f}"] for name in SOURCES for belief in BELIEFS
    ]
    results.figures["avg.shortfall.max"] = max(short)
    return results


def _measure(
    results: Results, series: Series, scheme: str, sizes: Sizes, advance: Callable[[], None]
) -> None:
    weights = queries(series.values.shape[1], sizes.queries, SEED)
    bounds = series.bounds[: sizes.bounds]
    moving = Moving.of(series, weights, SCHEMES[scheme])
    before = "" if scheme == "ours" else f"{scheme}."
    for kind, run in KINDS.items():
        outcome = run(moving, SCHEMES[scheme], bounds, BELIEFS)
        curves = results.series.setdefault(f"{kind}.{series.name}", {"bounds": list(bounds)})
        for place, belief in enumerate(BELIEFS):
            name = f"{kind}.{series.name}.{100 * belief:.0f}"
            by_bound = outcome.fidelity[:, :, place].mean(axis=0)
            curves.setdefault(scheme, {})[f"{100 * belief:.0f}"] = by_bound.tolist()
            results.figures[f"{before}{name}"] = float(by_bound.mean())
            results.figures[f"{before}worst.{name}"] = float(by_bound.min())
            results.figures[f"{before}evaluations.{name}"] = float(outcome.evaluations[:, :, place].mean())
        advance()
