"""``reproduce precision-leniency``: means over sliding windows, with bounds of means instead of moments.

The mean of all objects, and its mean over a window of 1, 5 and 15 minutes; values come every second. Every
message is counted, in both directions.

* *moments*: bounds of what objects are at every moment, kept within δ; what follows for a window is narrow
  enough, as the paper notes.
* *means*: bounds of what objects were on average over the window, which agents compute (`edge/means.py`).

Both by the adaptive allocation over response curves. At every step each answer is checked against the truth:
of the values, or of their means at the ends of the window's steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from slackwater.edge.means import step_of
from slackwater.experiments.precision_data import (
    EXTERNAL,
    SOURCES,
    generated_packets,
    hosts,
    moving_rates,
    real_packets,
)
from slackwater.experiments.precision_schemes import ByCurves
from slackwater.experiments.precision_simulation import STEP, Counted, Results, simulated
from slackwater.planners.precision_constraints import Floats, average, constrained

MAIN = "2013-07_rx"


@dataclass(frozen=True)
class Sizes:
    """How much is simulated."""

    steps: int
    objects: int
    windows: tuple[int, ...]
    """In seconds."""
    hosts: tuple[float, ...]
    """The constraints, in kB/s."""


FULL = Sizes(4000, 1000, (60, 300, 900), (5.0, 50.0, 500.0))
QUICK = Sizes(400, 20, (60,), (50.0,))


def means_of(values: Floats, window: int) -> Floats:
    """Means over the window before each step's end, held until the next one; from the first whole window on.

    >>> means_of(np.array([[0.0], [3.0], [6.0], [9.0], [12.0]]), 3).ravel().tolist()
    [3.0, 6.0, 9.0]
    """
    step = step_of(window * STEP) // STEP
    summed = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    ends = np.arange(window, len(values) + 1)
    # the last end of a step up to each time
    ends = (ends - window) // step * step + window
    found: Floats = (summed[ends] - summed[ends - window]) / window
    return found


def _run(values: Floats, within: float) -> Counted:
    objects = values.shape[1]
    constraints = constrained([average(np.arange(objects), within)], objects)
    return simulated(values, constraints, ByCurves(constraints, np.ones(objects)), placing="following")


def precision_leniency(spark: Any, folder: Path, sizes: Sizes, shown: Progress) -> Results:
    """All figures of the experiment; Spark has no part in it, and nothing is written."""
    results = Results()
    cases = list(_data(sizes))
    task = shown.add_task("constraints", total=len(cases) * (1 + len(sizes.windows)))
    violations = answers = 0
    for name, values, within in cases:
        moments = _run(values, within)
        shown.advance(task)
        results.figures[f"moments.{name}"] = moments.a_step()
        panel = results.series[name] = {"window": [], "means": []}
        runs = [moments]
        for window in sizes.windows:
            runs.append(_run(means_of(values, window), within))
            ratio = runs[-1].a_step() / moments.a_step()
            results.figures[f"means.{name}.{window}"] = runs[-1].a_step()
            results.figures[f"means_over_moments.{name}.{window}"] = ratio
            panel["window"].append(window)
            panel["means"].append(ratio)
            shown.advance(task)
        violations += sum(run.violations for run in runs)
        answers += sum(run.answers for run in runs)
    ratios = [v for k, v in results.figures.items() if k.startswith("means_over_moments.")]
    results.figures["means_over_moments.max"] = max(ratios)
    results.figures["violations"], results.figures["answers"] = violations, answers
    return results


def _data(sizes: Sizes) -> Iterator[tuple[str, Floats, float]]:
    for within in sizes.hosts:
        yield f"hosts.{within:g}", hosts(MAIN, sizes.steps).values[:, : sizes.objects], within
    for name, trace, within in (("generated", generated_packets, 2.0), ("packets", real_packets, 0.3)):
        packets = trace(sizes.steps)
        if packets is not None:
            of = np.where(packets.matches[:, EXTERNAL], packets.source, -1)
            yield name, moving_rates(packets, of, SOURCES), within
