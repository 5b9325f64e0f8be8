"""``bench deferral``: how long it takes to say when a million queries must be evaluated again.

All have bounds, drifts and variances of their own, over some orders of magnitude, and one of five beliefs.
*Solve*: linear queries, equation 7, in both modes. *Crossing*: the part of sliding and landmark maxima that
looks ahead, over the whole interval. *Error*: the largest relative difference to root finding, on a sample.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from rich.progress import Progress

from slackwater.planners.deferral_tables import Floats
from slackwater.planners.next_evaluation import next_crossing, next_evaluation
from slackwater.reference import deferral as exact

BELIEFS = (0.8, 0.85, 0.9, 0.95, 0.99)
SEED = 42


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    queries: int
    rounds: int
    checked: int
    """Queries that are solved by root finding as well; a tenth of them on average, which takes quadrature."""


FULL = Sizes(queries=1_000_000, rounds=9, checked=4_000)
QUICK = Sizes(queries=20_000, rounds=1, checked=50)


@dataclass(frozen=True)
class Queries:
    """What is asked of each query: an array for each argument."""

    bound: Floats
    drift: Floats
    variance: Floats
    belief: Floats

    @classmethod
    def drawn(cls, number: int) -> Queries:
        rng = np.random.default_rng(SEED)
        bound, variance = 10 ** rng.uniform(-2, 2, number), 10 ** rng.uniform(-4, 2, number)
        # a drift that is felt at the bound: some of them hardly, some more than the variance
        drift = rng.normal(size=number) * 10 ** rng.uniform(-3, 2, number) * variance / bound
        return cls(bound, drift, variance, rng.choice(BELIEFS, number))

    @property
    def arguments(self) -> tuple[Floats, Floats, Floats, Floats]:
        return self.bound, self.drift, self.variance, self.belief

    def first(self, number: int) -> Queries:
        return Queries(*(argument[:number] for argument in self.arguments))


def deferral(folder: Path, sizes: Sizes, progress: Progress) -> dict[str, float]:
    """All figures of the benchmark; it writes nothing."""
    queries = Queries.drawn(sizes.queries)
    solvers: dict[str, Callable[[Queries], Floats]] = {
        "solve": lambda of: next_evaluation(*of.arguments),
        "average": lambda of: next_evaluation(*of.arguments, mode="average"),
        "crossing": lambda of: next_crossing(*of.arguments),
    }
    chances = {
        "solve": exact.within,
        "average": exact.within_on_average,
        "crossing": exact.always_below,
    }
    task = progress.add_task("a million queries", total=len(solvers) * (sizes.rounds + 1))
    figures: dict[str, float] = {}
    for name, solver in solvers.items():
        # the first call lays out its table
        begun = time.perf_counter()
        solver(queries.first(1))
        figures[f"{name}_table_ms"] = 1e3 * (time.perf_counter() - begun)
        took = []
        for _ in range(sizes.rounds):
            begun = time.perf_counter()
            solver(queries)
            took.append(time.perf_counter() - begun)
            progress.advance(task)
        figures[f"{name}_ms_million"] = 1e3 * median(took) * 1_000_000 / sizes.queries
        checked = queries.first(max(10, sizes.checked // 10) if name == "average" else sizes.checked)
        figures[f"{name}_error"] = _largest_difference(solver(checked), chances[name], checked)
        progress.advance(task)
    return figures


def _largest_difference(found: Floats, chance: exact.Chance, queries: Queries) -> float:
    """Relative to the time found by root finding; infinite where only one of them is."""
    wanted = np.array([exact.falls_to(chance, *of, fine=3) for of in zip(*queries.arguments, strict=True)])
    never = np.isinf(wanted)
    if (never != np.isinf(found)).any():
        return np.inf
    return float(np.abs(found[~never] / wanted[~never] - 1).max())
