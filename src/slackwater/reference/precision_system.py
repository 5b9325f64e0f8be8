"""Sources, filters and a coordinator without latency, step by step; and the best widths for random walks.

Reference: Olston, Jiang, Widom: Adaptive Filters for Continuous Queries over Distributed Data Streams (SIGMOD
2003), sections 1.2 and 3, appendices E and F.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, minimize

from slackwater.reference.precision import Floats, Query, adjust, table, uniform


@dataclass(frozen=True)
class Moment:
    """What happened at one time, and what was answered."""

    updates: list[int]
    """Objects that sent one; twice where a shrink let out a value that had just come in."""
    grown: list[int]
    """Objects that were told to grow."""
    answers: list[tuple[float, float]]
    truths: list[float]


@dataclass
class System:
    """Sources with their filters and a coordinator, which hear each other at once.

    Guarantee: every answer holds the truth and is no wider than its query allows. A period's end comes after
    the values of that time: filters are applied, widths adjusted, filters applied again. What comes of the
    latter counts for the next period. Values at the start are known to the coordinator.

    >>> system = System([Query("avg", {0: 1, 1: 1}, 4.0)], period=2, shrink=0.05)
    >>> moments = list(system.run([[0.0, 0.0], [1.0, 3.0], [1.5, 2.0], [9.0, 2.0]]))
    >>> [(moment.updates, moment.grown) for moment in moments]
    [([1], []), ([], [1]), ([0], [])]
    >>> moments[-1].answers, moments[-1].truths
    ([(4.0, 8.0)], [5.5])
    """

    queries: Sequence[Query]
    period: int = 10
    shrink: float = 0.05
    costs: Sequence[float] | None = None
    choice: random.Random = field(default_factory=lambda: random.Random(0))
    widths: list[float] = field(default_factory=list)

    def run(self, values: Sequence[Sequence[float]]) -> Iterator[Moment]:
        """What happens at each time after the first."""
        objects = len(values[0])
        matrix, limits = table(self.queries, objects)
        costs = [1.0] * objects if self.costs is None else self.costs
        self.widths = uniform(matrix, limits)
        centres, counts = list(values[0]), [0] * objects
        for time, now in enumerate(values[1:], start=1):
            sent, grown = self._filtered(now, centres, counts), list[int]()
            if time % self.period == 0:
                found = adjust(
                    matrix,
                    limits,
                    self.widths,
                    counts,
                    costs,
                    period=self.period,
                    shrink=self.shrink,
                    choice=self.choice,
                )
                self.widths, grown = found.widths, found.grown
                counts = [0] * objects
                sent += self._filtered(now, centres, counts)
            low = [centre - width / 2 for centre, width in zip(centres, self.widths, strict=True)]
            high = [centre + width / 2 for centre, width in zip(centres, self.widths, strict=True)]
            answers = [query.answer(low, high) for query in self.queries]
            yield Moment(sent, grown, answers, [query.answer(now, now)[0] for query in self.queries])

    def _filtered(self, now: Sequence[float], centres: list[float], counts: list[int]) -> list[int]:
        """The objects whose values pass their filters, which are centred anew."""
        sent = []
        for i, value in enumerate(now):
            if abs(value - centres[i]) > self.widths[i] / 2:
                centres[i] = value
                counts[i] += 1
                sent.append(i)
        return sent


def optimum(matrix: Floats, limits: Floats, steps: Sequence[float], costs: Sequence[float]) -> Floats:
    """The best widths that never change, for random walks of known steps (appendix F).

    Every object must be in a query, and every limit and step above 0. Convex, so that what is found is the
    best but for the solver's tolerance.

    >>> optimum(np.ones((1, 2)), np.array([9.0]), [1.0, 8.0], [1.0, 1.0]).round(3).tolist()
    [1.8, 7.2]
    """
    start = np.array(uniform(matrix, limits))
    wanted = np.asarray(costs) * np.square(2 * np.asarray(steps)) / np.square(start)
    wanted = wanted / wanted.sum()

    # in multiples of the uniform widths, of a cost that is 1 with them: no number is large or small
    def cost(widths: Floats) -> float:
        return float((wanted / np.square(widths)).sum())

    def slope(widths: Floats) -> Floats:
        return np.asarray(-2 * wanted / widths**3, dtype=np.float64)

    found = minimize(
        cost,
        np.full(len(start), 0.9),
        jac=slope,
        method="SLSQP",
        bounds=Bounds(1e-4, np.inf),
        constraints=LinearConstraint(matrix * start / limits[:, None], -np.inf, np.ones(len(limits))),
        tol=1e-12,
        options={"maxiter": 1000},
    )
    if not found.success:
        raise ValueError(f"No optimum was found: {found.message}")
    widths: Floats = np.asarray(found.x, dtype=np.float64) * start
    return widths / max(1.0, float((matrix @ widths / limits).max()))
