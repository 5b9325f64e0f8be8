"""``reproduce precision-optimal``: adaptive widths against the best static ones on random walks, Figs. 3, 4.

Ten objects, each a walk of ±s with a step s at random; one AVG over all of them, or five AVG queries over two
to five objects at random whose constraints are drawn from (0, δmax). Also with costs of a message that differ
by up to five times. Eight such systems run beside each other, and their costs are added up: what is sent at
wide constraints is little, and differs by some percent from one half of them to the other.

Two optima that know the steps. *Appendix F*: the law (2s)²/W² for the rate, minimised by scipy; it is wrong
where bounds are as narrow as a step. *exact*: the true response of such a walk, which falls in stairs; an
allocation that does not know where stairs end cannot reach it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from slackwater.experiments.precision_schemes import Burden, ByCurves
from slackwater.experiments.precision_simulation import Counted, Results, simulated
from slackwater.experiments.precision_static import best_static, sent, walking_curves
from slackwater.planners.precision_constraints import (
    Constraints,
    Floats,
    Tolerance,
    average,
    constrained,
    uniform,
)
from slackwater.reference.precision_system import optimum

OBJECTS, QUERIES = 10, 5
STEPS_FROM, STEPS_TO = 1.0, 10.0
DEAREST = 5.0


@dataclass(frozen=True)
class Sizes:
    """How much is simulated."""

    systems: int
    steps: int
    warm_up: int
    single: tuple[float, ...]
    """Constraints of the one query."""
    several: tuple[float, ...]
    """The most that constraints of five queries are."""
    dear: tuple[float, ...]
    """Those of both that are also run with costs that differ."""

    def cases(self) -> list[tuple[bool, bool, float]]:
        """Whether there are several queries, whether costs differ, and the constraint."""
        return [
            (several, dear, within)
            for several in (False, True)
            for dear in (False, True)
            for within in (self.several if several else self.single)
            if not dear or within in self.dear
        ]


FULL = Sizes(8, 30_000, 10_000, (20.0, 40.0, 60.0, 80.0, 120.0), (50.0, 100.0, 200.0), (40.0, 80.0, 100.0))
QUICK = Sizes(2, 800, 300, (40.0,), (100.0,), (40.0,))


@dataclass(frozen=True)
class _World:
    """Systems side by side: nothing hangs together across them."""

    values: Floats
    steps: Floats
    constraints: Constraints
    costs: Floats

    @staticmethod
    def made(sizes: Sizes, within: float, *, several: bool, dear: bool) -> _World:
        moved, steps, costs, asked = [], [], [], list[Tolerance]()
        for system in range(sizes.systems):
            rng = np.random.default_rng([system, several, dear])
            step = rng.uniform(STEPS_FROM, STEPS_TO, OBJECTS)
            moved.append(np.cumsum(rng.choice([-1.0, 1.0], (sizes.steps, OBJECTS)) * step, axis=0))
            steps.append(step)
            costs.append(rng.uniform(1, DEAREST, OBJECTS) if dear else np.ones(OBJECTS))
            for _ in range(QUERIES if several else 1):
                size = int(rng.integers(2, 6)) if several else OBJECTS
                members = OBJECTS * system + rng.choice(OBJECTS, size, replace=False)
                asked.append(average(members, within * (rng.uniform() if several else 1.0)))
        constraints = constrained(asked, OBJECTS * sizes.systems)
        return _World(
            np.concatenate(moved, axis=1), np.concatenate(steps), constraints, np.concatenate(costs)
        )

    def by_appendix_f(self) -> Floats:
        """The best widths by the paper's law, system by system."""
        matrix, widths = self.constraints.matrix.toarray(), uniform(self.constraints)
        part = self.constraints.components
        for number in np.unique(part.of_query):
            rows, objects = np.flatnonzero(part.of_query == number), np.flatnonzero(part.of_object == number)
            limits = self.constraints.limit[rows]
            table = matrix[np.ix_(rows, objects)]
            found = optimum(table, limits, self.steps[objects].tolist(), self.costs[objects].tolist())
            widths[objects] = found * (1 - 1e-12)
        return widths

    def exact(self) -> Floats:
        """The best widths by the true response of these walks."""
        shared = self.constraints.shared
        curves = walking_curves(self.steps, float(self.constraints.limit.max()), shared)
        return best_static(self.constraints, curves, self.costs)

    def updates(self, widths: Floats, warm_up: int) -> float:
        """The cost of updates in a step with widths that stay."""
        assert self.constraints.feasible(np.where(self.constraints.shared, widths, 0.0))
        counted = sent(self.values, widths) - sent(self.values[:warm_up], widths)
        return float(counted @ self.costs) / (len(self.values) - warm_up)

    def run(self, scheme: str) -> Counted:
        constraints, costs = self.constraints, self.costs
        if scheme == "burden":
            burden = Burden(constraints, costs, np.random.default_rng(1))
            return simulated(self.values, constraints, burden, costs=costs)
        chosen = ByCurves(constraints, costs)
        return simulated(self.values, constraints, chosen, placing="following", costs=costs)


ADAPTIVE = ("burden", "curves")


def precision_optimal(spark: Any, folder: Path, sizes: Sizes, shown: Progress) -> Results:
    """All figures of the experiment; Spark has no part in it, and nothing is written."""
    results = Results()
    cases = sizes.cases()
    task = shown.add_task("simulated cases", total=len(cases))
    largest: dict[str, float] = {}
    violations = 0
    for several, dear, within in cases:
        world = _World.made(sizes, within, several=several, dear=dear)
        name = f"{'five' if several else 'one'}{'.dear' if dear else ''}"
        costs = {
            "appendix_f": world.updates(world.by_appendix_f(), sizes.warm_up),
            "exact": world.updates(world.exact(), sizes.warm_up),
            "uniform": world.updates(uniform(world.constraints), sizes.warm_up),
        }
        every = {"uniform": costs["uniform"]}
        for scheme in ADAPTIVE:
            run = world.run(scheme)
            violations += run.violations
            costs[scheme], every[scheme] = run.updates_a_step(sizes.warm_up), run.a_step(sizes.warm_up)
        panel = results.series.setdefault(name, {"within": []})
        panel["within"].append(within)
        for scheme, cost in costs.items():
            panel.setdefault(scheme, []).append(cost / sizes.systems)
        for scheme, cost in every.items():
            results.figures[f"{scheme}.{name}.{within:g}"] = costs[scheme] / costs["appendix_f"]
            for key, ratio in (
                (f"{scheme}.max", costs[scheme] / costs["appendix_f"]),
                (f"{scheme}.all.max", cost / costs["appendix_f"]),
                (f"{scheme}_over_exact.max", costs[scheme] / costs["exact"]),
                (f"{scheme}.{name}.max", costs[scheme] / costs["appendix_f"]),
            ):
                largest[key] = max(largest.get(key, 0.0), ratio)
        results.figures[f"exact_over_appendix_f.{name}.{within:g}"] = costs["exact"] / costs["appendix_f"]
        shown.advance(task)
    results.figures |= largest
    results.figures["violations"] = violations
    return results
