"""``reproduce precision-solver``: how long one adjustment of widths takes, Fig. 2, up to a million objects.

The paper's sizes: 200 sources, AVG queries over 5 and 25 % of them, up to 200 queries; the whole adjustment
by `burden`, of which the paper shows the linear solver alone. Beyond: queries over up to 550 objects each, up
to 10,000 of them over a million objects, either allocation. An adjustment is warm: it starts from the targets
or prices of the one before, after rates have moved by 10 %. `curves` is what a coordinator does at the end of
a period: curves from what was told, widths of least cost, and which changes are worth their messages.

Where the linear program can be solved, the cost of the widths that fitted prices lead to is compared with its
optimum, cold and after some warm adjustments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.progress import Progress

from slackwater.experiments.precision_schemes import PERIOD
from slackwater.experiments.precision_simulation import Results
from slackwater.planners.precision_allocation import Allocation, allocate
from slackwater.planners.precision_burden import Adjustment, Watched, adjust, fitted_shrink
from slackwater.planners.precision_changes import horizons, worthwhile
from slackwater.planners.precision_constraints import Constraints, Floats, from_entries, uniform
from slackwater.planners.precision_curves import Curves, Told, known_curves, refinement

PERIOD_S = float(PERIOD)
SOURCES = 200
SHARES = (0.05, 0.25)
MOVED = 0.1
"""By how much rates move from one adjustment to the next, as the deviation of a logarithm."""
RUNGS, BELOW = 10, 4
REPEATED = 3
WARM = 3
"""Adjustments one after the other, of which the last is compared with the program."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    queries: tuple[int, ...]
    """Over the paper's 200 sources."""
    large: tuple[tuple[int, int, int], ...]
    """Objects, queries, and objects of a query."""
    compared: tuple[tuple[int, int, int], ...]
    """The same, where the linear program is solved too."""


FULL = Sizes(
    (10, 50, 100, 150, 200),
    ((1000, 10, 100), (10_000, 100, 300), (100_000, 1000, 550), (1_000_000, 10_000, 550)),
    ((190, 5, 50), (190, 50, 20), (2000, 50, 100), (2000, 200, 40), (2500, 100, 500)),
)
QUICK = Sizes((10,), ((1000, 10, 50),), ((190, 5, 50),))


@dataclass(frozen=True)
class Instance:
    """Queries, and objects whose rates fall with about the square of their widths, as a walk's do."""

    constraints: Constraints
    lowest: Floats
    rates: Floats
    """At width 0 and by rung."""

    @staticmethod
    def made(objects: int, queries: int, size: int, seed: int, *, weighted: bool = False) -> Instance:
        rng = np.random.default_rng(seed)
        query = np.repeat(np.arange(queries), size)
        some = (
            rng.integers(0, objects, (queries, size))
            if objects > 50_000
            else _apart(rng, objects, queries, size)
        )
        # an object that is drawn twice is in a query once
        entries = np.unique(query * objects + some.ravel())
        query, member = entries // objects, entries % objects
        weights = rng.uniform(0.5, 2, len(query)) if weighted else np.ones(len(query))
        limit = np.bincount(query, weights, minlength=queries) * rng.uniform(0.5, 4, queries)
        constraints = from_entries(query, member, weights, limit=limit, ceiling=np.full(objects, np.inf))
        step = rng.lognormal(0, 1.5, objects)
        lowest = np.floor(np.log2(step)) - BELOW
        widths = np.ldexp(1.0, lowest.astype(np.int64)[:, None] + np.arange(RUNGS))
        rates = np.minimum(1.0, np.square(step[:, None] / widths)) * rng.lognormal(0, 0.1, (objects, RUNGS))
        rates = np.minimum.accumulate(rates, axis=1)
        return Instance(constraints, lowest, np.concatenate([rates[:, :1], rates], axis=1))

    def moved(self, seed: int) -> Instance:
        """The same some time later: rates are a little different."""
        factor = np.random.default_rng(seed).lognormal(0, MOVED, (len(self.rates), 1))
        return Instance(self.constraints, self.lowest, self.rates * factor)

    def curves(self, widths: Floats) -> Curves:
        """What a coordinator knows, of objects that have been heard of lately."""
        objects = len(self.rates)
        told = Told(self.lowest.astype(np.int64), np.full(objects, 2000.0), self.rates, np.full(objects, 5.0))
        held = np.where(self.constraints.shared, widths, 0.0)
        return known_curves(told, held, PERIOD_S, refinement(objects))


def _apart(rng: np.random.Generator, objects: int, queries: int, size: int) -> Any:
    return np.stack([rng.choice(objects, size, replace=False) for _ in range(queries)])


def precision_solver(spark: Any, folder: Path, sizes: Sizes, shown: Progress) -> Results:
    """All figures of the experiment; Spark has no part in it, and nothing is written."""
    results = Results()
    total = len(SHARES) * len(sizes.queries) + len(sizes.large) + len(sizes.compared)
    task = shown.add_task("instances", total=total)
    for share in SHARES:
        points = []
        for queries in sizes.queries:
            instance = Instance.made(SOURCES, queries, round(share * SOURCES), seed=queries)
            seconds = burden_seconds(instance)
            points.append((queries, seconds / PERIOD_S))
            results.figures[f"burden.share_of_period.{100 * share:.0f}.{queries}"] = seconds / PERIOD_S
            shown.advance(task)
        results.series[f"paper.{100 * share:.0f}"] = points
    for objects, queries, size in sizes.large:
        instance = Instance.made(objects, queries, size, seed=3)
        instance.constraints.components  # noqa: B018 - found once for all adjustments, as by_object is
        taken = {"burden": burden_seconds(instance), "curves": curves_seconds(instance)}
        for name, value in taken.items():
            results.figures[f"{name}.seconds.{objects}"] = value
            results.series.setdefault(name, []).append((objects, value))
        results.figures[f"seconds.{objects}"] = max(taken.values())
        shown.advance(task)
    _compared(results, sizes, lambda: shown.advance(task))
    return results


def burden_seconds(instance: Instance) -> float:
    """One adjustment by burdens: targets, deviations, growth; the second one, warm."""
    constraints = instance.constraints
    rng = np.random.default_rng(1)
    shrink = fitted_shrink(constraints)
    widths = uniform(constraints)
    costs = np.ones(constraints.objects)

    def one(at: Instance, last: Adjustment | None) -> Adjustment:
        seen = last.widths if last else widths
        held = np.where(constraints.shared, seen, 1.0)
        expected = at.curves(seen).at(held) * PERIOD_S
        updates = np.where(constraints.shared, rng.poisson(expected), 0).astype(np.float64)
        began = perf_counter()
        found = adjust(
            constraints,
            Watched(seen, updates, costs, PERIOD_S),
            shrink,
            rng,
            last=last.targets if last else None,
        )
        taken.append(perf_counter() - began)
        return found

    taken: list[float] = []
    last = None
    for number in range(1 + REPEATED):
        last = one(instance.moved(number), last)
    return float(np.median(taken[1:]))


def curves_seconds(instance: Instance) -> float:
    """One adjustment by curves: what is known, widths, changes; warm."""
    constraints = instance.constraints
    costs = np.ones(constraints.objects)
    widths, prices, taken = uniform(constraints), None, []
    lasted = np.random.default_rng(1).exponential(100 * PERIOD_S, constraints.objects)
    for number in range(1 + REPEATED):
        at = instance.moved(number)
        began = perf_counter()
        curves = at.curves(widths)
        allocation = allocate(constraints, curves, costs, prices)
        lasting = horizons(constraints, curves, widths, PERIOD_S, lasted)
        found = worthwhile(constraints, curves, costs, widths, allocation, lasting)
        taken.append(perf_counter() - began)
        widths, prices = found.widths, allocation.prices
        assert constraints.feasible(np.where(constraints.shared, widths, 0.0))
    return float(np.median(taken[1:]))


def _compared(results: Results, sizes: Sizes, advance: Callable[[], None]) -> None:
    """What the method of prices costs over the optimum of the linear program."""
    cold, warm, equal = [], [], []
    for objects, queries, size in sizes.compared:
        for weighted in (False, True):
            instance = Instance.made(objects, queries, size, seed=1, weighted=weighted)
            costs = np.ones(objects)
            found, best = over_program(instance, costs)
            cold.append(found[0] / best)
            warm.append(found[-1] / best)
            name = f"{objects}.{queries}{'.weighted' if weighted else ''}"
            results.figures[f"curves_over_program.{name}"] = warm[-1]
            curves = instance.curves(uniform(instance.constraints))
            equal.append(cost_of(instance.constraints, curves, uniform(instance.constraints)) / best)
        advance()
    results.figures["curves_over_program.max"] = max(warm)
    results.figures["curves_over_program.cold.max"] = max(cold)
    results.figures["uniform_over_program.min"] = min(equal)


def over_program(instance: Instance, costs: Floats) -> tuple[list[float], float]:
    """Costs by fitted prices, cold and then warm, and the cost of the linear program."""
    constraints = instance.constraints
    curves = instance.curves(uniform(constraints))
    best = allocate(constraints, curves, costs, program_at_most=10**9)
    found: list[float] = []
    last: Allocation | None = None
    for _ in range(WARM):
        last = allocate(constraints, curves, costs, last.prices if last else None, program_at_most=0)
        found.append(cost_of(constraints, curves, last.widths))
    return found, cost_of(constraints, curves, best.widths)


def cost_of(constraints: Constraints, curves: Curves, widths: Floats) -> float:
    """Updates a second of all objects that somebody shares."""
    return float(curves.at(np.where(constraints.shared, widths, 0.0))[constraints.shared].sum())
