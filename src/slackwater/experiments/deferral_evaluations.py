"""``reproduce deferral-evaluations``: how many evaluations deferral needs, Figure 6.

Naive (one at each tick), the paper's scheme, ours, and the offline optimum: the fewest with which every tick
is within the bound. A scheme that claims too much needs less than it should, so schemes are compared at the
same *measured* fidelity too: each is run at many beliefs, and its evaluations interpolated to where its
fidelity is 95, 90 and 85 %. Then a wrong constant in the variance makes no difference; what is left is how
well evaluations are placed. Each of our extensions is also tried on top of the paper's scheme by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from slackwater.experiments.deferral_data import SOURCES, WARM_UP, Floats, Series, queries
from slackwater.experiments.deferral_fidelity import SEED
from slackwater.experiments.deferral_simulation import (
    OURS,
    PAPER,
    REPLANNED,
    Moving,
    Outcome,
    Results,
    Scheme,
    optimum,
    simulate,
)

LEVELS = (0.95, 0.9, 0.85)
SCHEMES: dict[str, Scheme] = {
    "paper": PAPER,
    "ours": OURS,
    "ours_planned_once": replace(OURS, replanned=0),
    "ours_even": replace(OURS, budget=False),
    "covariance": replace(PAPER, covariance=True),
    "calibration": replace(PAPER, calibration=True),
    "average": replace(PAPER, average=True),
    "budget": replace(PAPER, budget=True),
    "replanned": replace(PAPER, replanned=REPLANNED),
}


@dataclass(frozen=True)
class Sizes:
    """How much is simulated."""

    ticks: int
    queries: int
    bounds: int
    beliefs: tuple[float, ...]
    sources: tuple[str, ...] = tuple(SOURCES)


FULL = Sizes(
    ticks=40_200,
    queries=10,
    bounds=4,
    beliefs=(0.02, 0.1, 0.2, 0.3, 0.45, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.985, 0.995, 0.999),
)
QUICK = Sizes(320, queries=2, bounds=1, beliefs=(0.5, 0.85, 0.9, 0.95, 0.99), sources=("prices",))


def deferral_evaluations(spark: Any, folder: Path, sizes: Sizes, shown: Progress) -> Results:
    """All figures of the experiment; Spark has no part in it, and nothing is written."""
    results = Results()
    task = shown.add_task("simulated runs", total=len(sizes.sources) * len(SCHEMES))
    for name in sizes.sources:
        series = SOURCES[name](sizes.ticks)
        bounds = series.bounds[: sizes.bounds]
        weights = queries(series.values.shape[1], sizes.queries, SEED)
        outcomes = {}
        for scheme, settings in SCHEMES.items():
            moving = Moving.of(series, weights, settings)
            outcomes[scheme] = simulate(moving, settings, bounds, sizes.beliefs)
            shown.advance(task)
        fewest = optimum(series.values @ weights.T, bounds).mean(axis=0)
        before = "" if name == "prices" else f"{name}."
        for figure, value in _compared(outcomes, fewest, sizes).items():
            results.figures[f"{before}{figure}"] = value
        results.series[name] = _curves(outcomes, fewest, series, bounds, sizes)
    return results


def at_fidelity(outcome: Outcome, wanted: float, what: Floats) -> Floats:
    """Something of a scheme, by bound, at the belief where its measured fidelity is the one wanted.

    Means over queries, interpolated between the two beliefs around; NaN where no belief gets there.
    """
    fidelity, found = outcome.fidelity.mean(axis=0), what.mean(axis=0)
    values = []
    for reached, of in zip(fidelity, found, strict=True):
        order = np.argsort(reached)
        values.append(np.interp(wanted, reached[order], of[order], left=np.nan, right=np.nan))
    return np.array(values)


def _compared(outcomes: dict[str, Outcome], fewest: Floats, sizes: Sizes) -> dict[str, float]:
    figures: dict[str, float] = {}
    for level in LEVELS:
        name, place = f"{100 * level:.0f}", sizes.beliefs.index(level)
        evaluations = {
            scheme: np.exp(at_fidelity(outcome, level, np.log(outcome.evaluations)))
            for scheme, outcome in outcomes.items()
        }
        for scheme, counts in evaluations.items():
            # bounds at which no belief brings just that fidelity are left out, and counted
            figures[f"{scheme}.left_out.{name}"] = float(np.isnan(counts).sum())
            if scheme != "paper":
                shown = f"{scheme}_over_paper" if scheme.startswith("ours") else f"{scheme}.over_paper"
                figures[f"{shown}.{name}"] = _mean_ratio(counts / evaluations["paper"])
        figures[f"ours_over_optimum.{name}"] = _mean_ratio(evaluations["ours"] / fewest)
        figures[f"paper_over_optimum.{name}"] = _mean_ratio(evaluations["paper"] / fewest)
        for scheme in ("ours", "paper"):
            outcome = outcomes[scheme]
            before = "" if scheme == "ours" else f"{scheme}."
            figures[f"{before}fidelity.{name}"] = float(outcome.fidelity[:, :, place].mean())
            figures[f"{before}evaluations.{name}"] = float(outcome.evaluations[:, :, place].mean())
            wild = at_fidelity(outcome, level, outcome.wild_fidelity)
            figures[f"{before}wild.{name}"] = float(np.nanmean(wild)) if np.isfinite(wild).any() else np.nan
        figures[f"plans_per_evaluation.{name}"] = float(
            outcomes["ours"].plans[:, :, place].sum() / outcomes["ours"].evaluations[:, :, place].sum()
        )
    return figures


def _mean_ratio(ratios: Floats) -> float:
    """The geometric mean over the bounds at which both schemes get to the fidelity."""
    there = ratios[np.isfinite(ratios)]
    return float(np.exp(np.log(there).mean())) if len(there) else np.nan


def _curves(
    outcomes: dict[str, Outcome], fewest: Floats, series: Series, bounds: Sequence[float], sizes: Sizes
) -> dict[str, Any]:
    curves: dict[str, Any] = {
        "bounds": list(bounds),
        "naive": [len(series.values) - WARM_UP] * len(bounds),
        "optimum": fewest.tolist(),
    }
    for scheme in ("ours", "paper"):
        counts = outcomes[scheme].evaluations.mean(axis=0)
        curves[scheme] = {
            f"{100 * level:.0f}": counts[:, sizes.beliefs.index(level)].tolist() for level in LEVELS
        }
        curves[f"{scheme}_at_fidelity"] = {
            "fidelity": outcomes[scheme].fidelity.mean(axis=0).tolist(),
            "evaluations": counts.tolist(),
        }
    return curves
