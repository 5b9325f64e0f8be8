"""Load shedding the slow and obvious way: every choice is tried, or a general optimiser is asked."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import LinearConstraint, NonlinearConstraint, minimize
from scipy.stats import norm

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

Ends = Sequence[tuple[int, float]]
"""The nodes at which queries end, with their rates."""


def least_load(
    parent: Sequence[int],
    rows: Sequence[float],
    seconds: Sequence[float],
    ends: Ends,
    shedder_seconds: float = 0.0,
) -> float:
    """The least load of all sets of nodes that shed, where each brings about the least rate it may.

    >>> least_load((-1, 0), (10, 10), (0.1, 0.1), [(1, 0.5)])
    1.0
    """
    rates = [max((r for e, r in ends if node in path(parent, e)), default=0.0) for node in range(len(parent))]
    return min(
        load_with(parent, rows, seconds, ends, shedder_seconds, rates, set(chosen))
        for size in range(len(parent) + 1)
        for chosen in itertools.combinations(range(len(parent)), size)
    )


def load_with(
    parent: Sequence[int],
    rows: Sequence[float],
    seconds: Sequence[float],
    ends: Ends,
    shedder_seconds: float,
    rates: Sequence[float],
    chosen: set[int],
) -> float:
    """The load if the chosen nodes shed down to their rates, and queries at their ends what is left."""
    total = 0.0
    runs: list[float] = []
    for node, above in enumerate(parent):
        arrives = 1.0 if above < 0 else runs[above]
        if rates[node] == 0:
            runs.append(0.0)
            continue
        if node in chosen:
            total += shedder_seconds * rows[node] * arrives
        runs.append(rates[node] if node in chosen else arrives)
        total += rows[node] * seconds[node] * runs[node]
    for node, rate in ends:
        if 0 < rate < runs[node]:
            total += shedder_seconds * rows[node] * runs[node]
    return total


def path(parent: Sequence[int], node: int) -> list[int]:
    """A node and all above it.

    >>> path((-1, 0, 0), 2)
    [2, 0]
    """
    found = []
    while node >= 0:
        found.append(node)
        node = parent[node]
    return found


def bisected_level(
    parent: Sequence[int],
    costs: Sequence[float],
    constants: Sequence[tuple[int, str, float, float]],
    capacity: float,
) -> float:
    """The least level by bisection; queries are (node, "error" or "rows", c or w, floor)."""

    def load(level: float) -> float:
        at = [0.0] * len(parent)
        for node, kind, value, floor in constants:
            rate = min(1.0, value / level) if kind == "error" else 1 - level / value
            for above in path(parent, node):
                at[above] = max(at[above], floor, rate)
        return sum(cost * rate for cost, rate in zip(costs, at, strict=True))

    low, high = 1e-12, 1e12
    for _ in range(200):
        middle = math.sqrt(low * high)
        if load(middle) > capacity:
            low = middle
        else:
            high = middle
    return high


@dataclass(frozen=True)
class Shares:
    """Queries (node, bound / (weight · √r)) that shall all stay below a level with a chance of ``share``.

    Points are the rates of all nodes, then the logarithm of the level.
    """

    parent: Sequence[int]
    costs: Floats
    nodes: Ints
    tight: Floats
    capacity: float
    share: float
    floor: float

    def rates(self, own: Floats) -> Floats:
        """The rates of all nodes if the queries have theirs."""
        found = np.zeros(len(self.parent))
        for node, rate in zip(self.nodes, own, strict=True):
            above = path(self.parent, int(node))
            found[above] = np.maximum(found[above], rate)
        return found

    def slack(self, x: Floats, exact: Bools) -> float:
        z = self._scores(x)
        logs = np.log(2 * norm.cdf(z) - 1)
        return float(np.where(exact, 0.0, logs).sum()) - math.log(self.share)

    def slope(self, x: Floats, exact: Bools) -> Floats:
        z = self._scores(x)
        each = np.where(exact, 0.0, 2 * norm.pdf(z) * z / (2 * norm.cdf(z) - 1))
        own = np.clip(x[self.nodes], self.floor, 1 - 1e-9)
        slope = np.zeros(len(x))
        np.add.at(slope, self.nodes, each / (2 * own * (1 - own)))
        slope[-1] = each.sum()
        return slope

    def _scores(self, x: Floats) -> Floats:
        own = np.clip(x[self.nodes], self.floor, 1 - 1e-9)
        found: Floats = np.maximum(np.exp(x[-1]) * self.tight * np.sqrt(own / (1 - own)), 1e-12)
        return found


def optimised_level(problem: Shares, starts: int, seed: int) -> float:
    """The least level that a general optimiser finds: sequential least squares over the rates of all nodes.

    It begins several times: with equal rates, with random ones, and with some queries held at rate 1.
    """
    size = len(problem.parent)
    order = np.zeros((size, size + 1))
    for node, above in enumerate(problem.parent):
        if above >= 0:
            order[node, above], order[node, node] = 1, -1
    best = math.inf
    random = np.random.default_rng(seed)
    for number in range(starts):
        exact = random.random(len(problem.nodes)) < random.random() * (number % 2)
        own = np.where(exact, 1.0, random.random(len(exact)) if number > 1 else 0.5)
        least = problem.rates(np.where(exact, 1.0, problem.floor))
        room = problem.capacity - float(problem.costs @ least)
        if room <= 0:
            continue
        wish = problem.rates(own) - least
        share = min(1.0, room / max(float(problem.costs @ wish), 1e-12))
        level = _from_start(problem, least, least + share * wish, exact, order)
        best = min(best, level)
    return best


def _from_start(problem: Shares, least: Floats, begin: Floats, exact: Bools, order: Floats) -> float:
    """The level reached from one start; infinite if the optimiser leaves the constraints."""

    def level(x: Floats) -> float:
        return float(x[-1])

    def level_slope(x: Floats) -> Floats:
        return np.append(np.zeros(len(x) - 1), 1.0)

    def slack(x: Floats) -> list[float]:
        return [problem.slack(x, exact)]

    def slope(x: Floats) -> Floats:
        return problem.slope(x, exact)[None]

    limits = (
        LinearConstraint(np.append(problem.costs, 0.0)[None] / problem.capacity, -np.inf, 1.0),
        LinearConstraint(order, 0.0, np.inf),
        NonlinearConstraint(slack, 0.0, np.inf, jac=slope),
    )
    with warnings.catch_warnings():
        # a step outside the bounds is clipped, and said so
        warnings.simplefilter("ignore")
        point: Floats = minimize(
            level,
            np.append(begin, 0.0),
            jac=level_slope,
            bounds=[*((float(low), 1.0) for low in least), (-20.0, 20.0)],
            constraints=limits,
            method="SLSQP",
            options={"maxiter": 200, "ftol": 1e-6},
        ).x
    fits = float(problem.costs @ point[:-1]) <= problem.capacity * 1.00001
    return math.exp(float(point[-1])) if fits and problem.slack(point, exact) >= -1e-5 else math.inf
