"""``reproduce precision-tuning``: period and shrink fitted to the data, over those that stay.

*curves*: messages with the period tuned, over those with a period of 10 seconds, where values come ten times
a second, once a second and once a minute. *burden*: messages with the shrink tuned, over those with the one
fitted to the number of objects, and over the paper's 0.05; values come once a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from slackwater.experiments.precision_data import (
    EXTERNAL,
    SOURCES,
    generated_packets,
    hosts,
    moving_rates,
    real_packets,
)
from slackwater.experiments.precision_schemes import Burden, ByCurves, Granted
from slackwater.experiments.precision_simulation import STEP, Placing, Results, Scheme, simulated
from slackwater.planners.precision_burden import fitted_shrink
from slackwater.planners.precision_constraints import Constraints, Floats, Ints, average, constrained
from slackwater.planners.precision_tuning import Shrinking, fitted_period, judged

PAPERS_SHRINK = 0.05
LEAST_PERIOD = 2_000_000
MAIN = "2013-07_rx"


@dataclass(frozen=True)
class Sizes:
    """How much is simulated."""

    steps: int
    objects: int
    hosts: tuple[float, ...]
    """Constraints of the average over hosts, in kB/s."""
    every: tuple[float, ...]
    """Seconds between two values."""


FULL = Sizes(3000, 1000, (5.0, 50.0, 500.0), (0.1, 1.0, 60.0))
QUICK = Sizes(400, 20, (50.0,), (60.0,))


class TunedByCurves(ByCurves):
    """Curves, with a period that is fitted to how often values change."""

    def adjusted(self, now: float, widths: Floats) -> Granted:
        last, among = round(self.period * 1e6), self._constraints.shared
        self.period = fitted_period(self._rates[:, 0], self._seconds, among, last, LEAST_PERIOD) / 1e6
        return super().adjusted(now, widths)


class TunedBurden(Burden):
    """The paper's allocation, with a part of the fitted shrink that follows from what it costs."""

    def __init__(self, constraints: Constraints, costs: Floats, rng: np.random.Generator) -> None:
        super().__init__(constraints, costs, rng)
        self._fitted = fitted_shrink(constraints)
        self._in_force = self.shrink.copy()
        self._state = Shrinking()
        self._messages = 0.0

    def heard(self, now: float, objects: Ints, told: Sequence[Sequence[float] | None]) -> None:
        self._messages += len(objects)
        super().heard(now, objects, told)

    def adjusted(self, now: float, widths: Floats) -> Granted:
        before = self._state.part
        self._state = judged(self._state, self._messages, float(self._fitted.max()))
        # those that have not been granted since still shrink as they did
        self.shrink = self._in_force
        found = super().adjusted(now, widths)
        self.shrink = self._fitted * self._state.part
        if self._state.part > before:
            # what is to shrink faster must be known to do so: every object is narrowed by a hair, and says so
            after = widths.copy()
            after[found.objects] = found.widths
            every = np.arange(len(widths))
            found = Granted(every, after * (1 - 2.0**-20), len(widths))
        self._in_force[found.objects] = self.shrink[found.objects]
        self._messages = float(len(found.objects) + found.narrowing)
        return found


def _data(sizes: Sizes) -> Iterator[tuple[str, Floats, float]]:
    rng = np.random.default_rng(1)
    objects = min(20, sizes.objects)
    walks = rng.choice([-1.0, 1.0], (sizes.steps, objects)) * rng.uniform(1, 10, objects)
    yield "walks", np.cumsum(walks, axis=0), 40.0
    for within in sizes.hosts:
        yield f"hosts.{within:g}", hosts(MAIN, sizes.steps).values[:, : sizes.objects], within
    for name, trace, within in (("generated", generated_packets, 2.0), ("packets", real_packets, 0.3)):
        packets = trace(sizes.steps)
        if packets is not None:
            objects_of = np.where(packets.matches[:, EXTERNAL], packets.source, -1)
            yield name, moving_rates(packets, objects_of, SOURCES), within


def precision_tuning(spark: Any, folder: Path, sizes: Sizes, shown: Progress) -> Results:
    """All figures of the experiment; Spark has no part in it, and nothing is written."""
    results = Results()
    found = list(_data(sizes))
    task = shown.add_task("data sets", total=len(found))
    wrong = 0

    def messages(values: Floats, constraints: Constraints, scheme: Scheme, every: float = 1.0) -> float:
        nonlocal wrong
        placing: Placing = "following" if scheme.listens else "centred"
        run = simulated(values, constraints, scheme, placing=placing, every=round(every * STEP))
        wrong += run.violations
        return run.a_step()

    for name, values, within in found:
        count = values.shape[1]
        constraints, ones = constrained([average(np.arange(count), within)], count), np.ones(count)
        panel = results.series.setdefault(name, {"every": list(sizes.every), "curves": []})
        for every in sizes.every:
            tuned = messages(values, constraints, TunedByCurves(constraints, ones), every)
            fixed = messages(values, constraints, ByCurves(constraints, ones), every)
            results.figures[f"curves_over_fixed.{name}.{every:g}"] = tuned / fixed
            panel["curves"].append(tuned / fixed)
        rng = np.random.default_rng
        shrinking = messages(values, constraints, TunedBurden(constraints, ones, rng(1)))
        fitted = messages(values, constraints, Burden(constraints, ones, rng(1)))
        papers = messages(values, constraints, Burden(constraints, ones, rng(1), PAPERS_SHRINK))
        results.figures[f"burden_over_fitted.{name}"] = shrinking / fitted
        results.figures[f"burden_over_papers.{name}"] = shrinking / papers
        panel["burden"] = [shrinking / fitted, shrinking / papers]
        shown.advance(task)
    for kind in ("curves_over_fixed", "burden_over_fitted"):
        results.figures[f"{kind}.max"] = max(v for k, v in results.figures.items() if k.startswith(kind))
    results.figures["violations"] = wrong
    return results
