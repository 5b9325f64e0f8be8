"""``reproduce precision-hosts``: one AVG over the network rates of some 200 hosts, by constraint, Fig. 7.

Every message is counted, in both directions, from the first step on: updates, grants, and the acknowledgement
of each grant that narrows. *uniform*: equal widths that stay. *burden*: the paper's allocation, at the best
of some shrinks for each constraint. *curves*: ours. *clairvoyant*: the best widths that stay, by somebody who
knows the whole month; bounds are centred on the value, as the paper has it. Beside them: curves with bounds
that are always centred, a clairvoyant whose bounds may lean, and queries that overlap. How much of what a
clairvoyant knows could be learnt at all is shown by *past*: the widths that were best in the first half, used
in the second, over those that are best in the second half itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from slackwater.experiments.precision_data import hosts
from slackwater.experiments.precision_schemes import Burden, ByCurves, Static
from slackwater.experiments.precision_simulation import Placing, Results, Scheme, simulated
from slackwater.experiments.precision_static import Clairvoyant, sent
from slackwater.planners.precision_constraints import Constraints, Floats, average, constrained

MAIN = "2013-07_rx"
PAPERS_SHRINK = 0.05
SHRINKS = {"paper": PAPERS_SHRINK, "0.01": 0.01, "0.005": 0.005, "fitted": None, "0.001": 0.001}
"""How much bounds shrink in a period: the paper's, some others, and what is fitted to the objects."""
OVERLAP = 0.25
"""The share of hosts that one of several queries is over."""


@dataclass(frozen=True)
class Sizes:
    """How much is simulated."""

    steps: int
    within: dict[str, tuple[float, ...]]
    """By data set: the constraints, in kB/s."""
    queries: tuple[int, ...]
    """How many queries overlap, each over a quarter of the hosts of the main data set."""
    objects: int = 1000
    """At most so many hosts."""


ALL = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)
SOME = (5.0, 50.0, 500.0, 5000.0)
FULL = Sizes(
    8640, {MAIN: ALL, "2013-08_rx": ALL, "2013-07_tx": SOME, "2013-08_tx": SOME}, queries=(5, 20, 50)
)
QUICK = Sizes(300, {MAIN: (50.0, 1000.0), "2013-08_rx": (50.0,)}, queries=(3,), objects=30)

AT_ONCE = 6
"""Constraints that are simulated side by side, each with all hosts: nothing hangs together across them."""

Chosen = Callable[[Constraints], Scheme]


def precision_hosts(spark: Any, folder: Path, sizes: Sizes, shown: Progress) -> Results:
    """All figures of the experiment; Spark has no part in it, and nothing is written."""
    results = Results()
    total = sum(len(within) for within in sizes.within.values()) + len(sizes.queries)
    task = shown.add_task("constraints", total=total)
    violations, answers = 0, 0
    for name, constraints in sizes.within.items():
        found = hosts(name, sizes.steps)
        values = found.values[:, : sizes.objects]
        results.figures[f"real.{name}"] = float(found.real)
        results.figures[f"steps.{name}"], results.figures[f"hosts.{name}"] = values.shape
        runs = _Runs(values)
        for place in range(0, len(constraints), AT_ONCE):
            some = constraints[place : place + AT_ONCE]
            costs = _averages(runs, some)
            for number, within in enumerate(some):
                own = {scheme: float(found[number]) for scheme, found in costs.items()}
                _told(results, name, within, own, runs.past_over_clairvoyant(runs.average(within)))
            shown.advance(task, len(some))
        if name == MAIN:
            for number in sizes.queries:
                _overlapping(results, runs, number)
                shown.advance(task)
        violations, answers = violations + runs.violations, answers + runs.answers
    results.figures["violations"], results.figures["answers"] = violations, answers
    worst = [
        v for k, v in results.figures.items() if ".".join(k.split(".")[:-1]).endswith("curves_over_uniform")
    ]
    results.figures["curves_over_uniform.max"] = max(worst)
    return results


class _Runs:
    """Runs over one data set; whatever is answered wrongly adds up."""

    def __init__(self, values: Floats) -> None:
        self.values = values
        self.clairvoyant = Clairvoyant(values)
        first, second = values[: len(values) // 2], values[len(values) // 2 :]
        self._first, self._second, self._later = Clairvoyant(first), Clairvoyant(second), second
        self.violations, self.answers = 0, 0

    def a_step(self, constraints: Constraints, scheme: Scheme, placing: Placing = "centred") -> float:
        counted = simulated(self.values, constraints, scheme, placing=placing)
        self.violations += counted.violations
        self.answers += counted.answers
        return counted.a_step()

    def average(self, *within: float) -> Constraints:
        """One AVG over all objects for each constraint, side by side."""
        objects = self.values.shape[1]
        asked = [average(objects * n + np.arange(objects), w) for n, w in enumerate(within)]
        return constrained(asked, objects * len(within))

    def side_by_side(self, within: Sequence[float], chosen: Chosen, placing: Placing = "centred") -> Floats:
        """Messages a step for each constraint of one AVG over all objects."""
        constraints = self.average(*within)
        values = np.tile(self.values, (1, len(within)))
        counted = simulated(values, constraints, chosen(constraints), placing=placing, by_object=True)
        self.violations += counted.violations
        self.answers += counted.answers
        assert counted.of_object is not None
        found: Floats = counted.of_object.mean(axis=0).reshape(len(within), -1).sum(axis=1)
        return found

    def past_over_clairvoyant(self, constraints: Constraints) -> float:
        """The best widths of the first half in the second, over the best of the second."""
        past = sent(self._later, self._first.widths(constraints)).sum() / len(self._later)
        return float(past) / self._second.a_step(constraints)


def _averages(runs: _Runs, within: Sequence[float]) -> dict[str, Floats]:
    """Messages a step of all schemes, by constraint."""

    def burden(shrink: float | None) -> Chosen:
        return lambda asked: Burden(asked, np.ones(asked.objects), np.random.default_rng(1), shrink)

    def curves(asked: Constraints) -> Scheme:
        return ByCurves(asked, np.ones(asked.objects))

    costs = {"uniform": runs.side_by_side(within, Static)}
    tried = {name: runs.side_by_side(within, burden(shrink)) for name, shrink in SHRINKS.items()}
    costs |= {f"burden.{name}": found for name, found in tried.items()}
    costs["burden"] = np.min(list(tried.values()), axis=0)
    costs["curves"] = runs.side_by_side(within, curves, "following")
    costs["centred"] = runs.side_by_side(within, curves)
    alone = [runs.average(w) for w in within]
    costs["clairvoyant"] = np.array([runs.clairvoyant.a_step(asked) for asked in alone])
    leaning = [runs.clairvoyant.a_step(asked, may_lean=True) for asked in alone]
    costs["leaning_clairvoyant"] = np.array(leaning)
    return costs


RATIOS = (
    ("curves", "uniform"),
    ("curves", "clairvoyant"),
    ("burden", "uniform"),
    ("burden.fitted", "uniform"),
    ("burden.paper", "uniform"),
    ("centred", "uniform"),
    ("centred", "clairvoyant"),
    ("curves", "leaning_clairvoyant"),
)


def _told(results: Results, name: str, within: float, costs: dict[str, float], past: float) -> None:
    before = "" if name == MAIN else f"{name}."
    panel = results.series.setdefault(name, {"within": [], **{scheme: [] for scheme in costs}})
    panel["within"].append(within)
    for scheme, cost in costs.items():
        panel[scheme].append(cost)
        results.figures[f"{before}{scheme}.{within:g}"] = cost
    results.figures[f"{before}past_over_clairvoyant.{within:g}"] = past
    for one, other in RATIOS:
        ratio = costs[one] / costs[other]
        results.figures[f"{before}{one.replace('.', '_')}_over_{other}.{within:g}"] = ratio


def _overlapping(results: Results, runs: _Runs, number: int) -> None:
    """Queries over a quarter of the hosts each, whose constraints differ by up to four times."""
    objects = runs.values.shape[1]
    rng = np.random.default_rng(number)
    size = max(2, round(OVERLAP * objects))
    asked = [
        average(rng.choice(objects, size, replace=False), 50 * 2 ** rng.uniform(-1, 1)) for _ in range(number)
    ]
    constraints = constrained(asked, objects)
    ones = np.ones(objects)
    uniform = runs.a_step(constraints, Static(constraints))
    burden = runs.a_step(constraints, Burden(constraints, ones, np.random.default_rng(1)))
    chosen = ByCurves(constraints, ones)
    curves = runs.a_step(constraints, chosen, "following")
    results.figures[f"overlapping.uniform.{number}"] = uniform
    results.figures[f"overlapping.burden_over_uniform.{number}"] = burden / uniform
    results.figures[f"overlapping.curves_over_uniform.{number}"] = curves / uniform
