"""``reproduce precision-single``: the paper's query Q5 over ten hosts, Fig. 6.

The average over ten hosts of an organisation of the packets a second between each and hosts outside: moving
rates over a minute, told every second. Equal widths that stay, the paper's allocation with its own settings
(S = 0.05, a period of 10 s), and ours; every message counted, after a time to warm up as in the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from slackwater.experiments.precision_data import (
    EXTERNAL,
    SOURCES,
    Packets,
    generated_packets,
    moving_rates,
    real_packets,
)
from slackwater.experiments.precision_schemes import Burden, ByCurves, Static
from slackwater.experiments.precision_simulation import Counted, Results, simulated
from slackwater.experiments.precision_static import Clairvoyant
from slackwater.planners.precision_constraints import Constraints, Floats, average, constrained

PAPERS_SHRINK = 0.05
TRACES: dict[str, Callable[[int], Packets | None]] = {"generated": generated_packets, "packets": real_packets}
"""By data set; None: it is not there."""


@dataclass(frozen=True)
class Sizes:
    """How much is simulated."""

    seconds: int
    warm_up: int
    within: dict[str, tuple[float, ...]]
    """By data set: constraints, in packets a second."""


FULL = Sizes(
    3600,
    600,
    {
        "generated": (0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0),
        "packets": (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0),
    },
)
QUICK = Sizes(400, 100, {"generated": (0.0, 2.0), "packets": (0.0, 0.3)})


def precision_single(spark: Any, folder: Path, sizes: Sizes, shown: Progress) -> Results:
    """All figures of the experiment; Spark has no part in it, and nothing is written."""
    results = Results()
    task = shown.add_task("constraints", total=sum(map(len, sizes.within.values())))
    violations = 0
    for name, trace in TRACES.items():
        packets = trace(sizes.seconds)
        results.figures[f"real.{name}"] = float(packets is not None and packets.real)
        if packets is None:
            shown.advance(task, len(sizes.within[name]))
            continue
        objects = np.where(packets.matches[:, EXTERNAL], packets.source, -1)
        values = moving_rates(packets, objects, SOURCES)
        clairvoyant = Clairvoyant(values[sizes.warm_up :])
        results.figures[f"rate.{name}"] = float(values.mean())
        results.figures[f"rate.min.{name}"], results.figures[f"rate.max.{name}"] = (
            float(values.mean(axis=0).min()),
            float(values.mean(axis=0).max()),
        )
        panel = results.series.setdefault(name, {"within": list(sizes.within[name])})
        for within in sizes.within[name]:
            constraints = constrained([average(np.arange(SOURCES), within)], SOURCES)
            runs = measured(values, constraints)
            violations += sum(run.violations for run in runs.values())
            costs = {scheme: run.a_step(sizes.warm_up) for scheme, run in runs.items()}
            costs["clairvoyant"] = clairvoyant.a_step(constraints)
            for scheme, cost in costs.items():
                panel.setdefault(scheme, []).append(cost)
                results.figures[f"{scheme}.{name}.{within:g}"] = cost
            for scheme in ("burden", "curves"):
                results.figures[f"{scheme}_over_uniform.{name}.{within:g}"] = costs[scheme] / costs["uniform"]
            shown.advance(task)
    results.figures["violations"] = violations
    return results


def measured(values: Floats, constraints: Constraints) -> dict[str, Counted]:
    """Equal widths, the paper's allocation with its own settings, and ours."""
    ones = np.ones(constraints.objects)
    burden = Burden(constraints, ones, np.random.default_rng(1), PAPERS_SHRINK)
    return {
        "uniform": simulated(values, constraints, Static(constraints)),
        "burden": simulated(values, constraints, burden),
        "curves": simulated(values, constraints, ByCurves(constraints, ones), placing="following"),
    }
