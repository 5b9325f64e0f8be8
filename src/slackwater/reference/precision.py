"""Adaptive filters, slow and literal: what queries ask of widths, and one adjustment by plain loops.

Reference: Olston, Jiang, Widom: Adaptive Filters for Continuous Queries over Distributed Data Streams (SIGMOD
2003), section 3 and appendices A, B, D. Weights are a table of queries by objects, 0 where the object is not
in the query, of either sign; a query over one object is a row like any other. Nothing is sparse, solved
iteratively, or skipped.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Function = Literal["count", "sum", "avg", "min", "max"]

NEAR = 0.05 * (1 - 1e-9)
NOTHING = 1e-12
"""The share of a limit that only rounding has left."""


@dataclass(frozen=True)
class Query:
    """An aggregate over objects, whose interval is to be at most so wide."""

    function: Function
    weights: dict[int, float]
    """By object; 1 where the query has none. Of no account to all but sums and averages."""
    within: float

    def answer(self, low: Sequence[float], high: Sequence[float]) -> tuple[float, float]:
        """The least and the greatest answer that values between these bounds can have (appendices A and D).

        >>> Query("avg", {0: 1, 1: -1}, 9).answer([10, 1], [14, 2])
        (4.0, 6.5)
        >>> Query("min", {0: 1, 1: 1}, 9).answer([10, 12], [14, 13])
        (10, 13)
        """
        if self.function == "count":
            return len(self.weights), len(self.weights)
        if self.function in ("min", "max"):
            pick = min if self.function == "min" else max
            return pick(low[i] for i in self.weights), pick(high[i] for i in self.weights)
        least = math.fsum(k * (low[i] if k >= 0 else high[i]) for i, k in self.weights.items())
        most = math.fsum(k * (high[i] if k >= 0 else low[i]) for i, k in self.weights.items())
        if self.function == "avg":
            return least / len(self.weights), most / len(self.weights)
        return least, most

    def rows(self, objects: int) -> list[tuple[list[float], float]]:
        """What it asks of the widths: absolute weights of all objects, and the limit of the weighted sum."""
        if self.function == "count":
            return []
        if self.function in ("min", "max"):
            return [([float(i == one) for i in range(objects)], self.within) for one in self.weights]
        size = len(self.weights) if self.function == "avg" else 1
        return [([abs(self.weights.get(i, 0.0)) for i in range(objects)], self.within * size)]


def table(queries: Sequence[Query], objects: int) -> tuple[Floats, Floats]:
    """The rows of all queries and their limits."""
    rows = [row for query in queries for row in query.rows(objects)]
    matrix = np.array([row for row, _ in rows], dtype=np.float64).reshape(len(rows), objects)
    return matrix, np.array([limit for _, limit in rows], dtype=np.float64)


def ceilings(matrix: Floats, limits: Floats) -> list[float]:
    """The most that each object may have for the queries over it alone.

    >>> ceilings(np.array([[1.0, 1.0], [0.0, 2.0]]), np.array([3.0, 5.0]))
    [inf, 2.5]
    """
    found = [math.inf] * matrix.shape[1]
    for row, limit in zip(matrix, limits, strict=True):
        members = np.flatnonzero(row)
        if len(members) == 1:
            found[members[0]] = min(found[members[0]], float(limit / row[members[0]]))
    return found


def uniform(matrix: Floats, limits: Floats) -> list[float]:
    """Equal widths in each query, the least of them for an object of several (section 3)."""
    found = [math.inf] * matrix.shape[1]
    for row, limit in zip(matrix, limits, strict=True):
        for i in np.flatnonzero(row):
            found[i] = min(found[i], float(limit / row.sum()))
    return found


def burdens(
    widths: Sequence[float], updates: Sequence[int], costs: Sequence[float], period: float
) -> list[float]:
    """C / (P·W) with P the time between updates; 0 without updates (section 3.2)."""
    found = []
    for width, number, cost in zip(widths, updates, costs, strict=True):
        if number == 0:
            found.append(0.0)
        else:
            found.append(math.inf if width == 0 else cost / (period / number * width))
    return found


def weighted_targets(matrix: Floats, burdens: Sequence[float]) -> Floats:
    """Appendix B's equations written out, and solved; the shortest solution where there are many.

    Guarantee: without weights these are the equations of section 3.2.1.

    >>> both = np.array([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    >>> weighted_targets(both, [1, 1, 4, 3]).round(9).tolist()
    [1.0, 3.0]
    """
    queries = len(matrix)
    left, right = np.eye(queries), np.zeros(queries)
    for j in range(queries):
        members = np.flatnonzero(matrix[j]).tolist()
        for i in members:
            right[j] += burdens[i] / matrix[j, i] / len(members)
            for k in range(queries):
                if k != j:
                    left[j, k] += matrix[k, i] / matrix[j, i] / len(members)
        if len(members) == 0:
            left[j, j] = 0.0
    return np.asarray(np.linalg.lstsq(left, right)[0], dtype=np.float64)


def least_squares_targets(matrix: Floats, burdens: Sequence[float]) -> Floats:
    """The targets whose sums come closest to the burdens; the shortest of them where there are many."""
    return np.asarray(np.linalg.pinv(matrix.T) @ np.array(burdens), dtype=np.float64)


def deviations(matrix: Floats, burdens: Sequence[float], targets: Floats) -> list[float]:
    """How far burdens are above the targets of their queries; what rounding alone has made is nothing."""
    found = []
    for i, burden in enumerate(burdens):
        parts = [float(matrix[j, i] * targets[j]) for j in range(len(matrix))]
        rounding = 1e-7 * (burden + sum(map(abs, parts))) if math.isfinite(burden) else 0.0
        over = burden - sum(parts)
        found.append(over if over > rounding else 0.0)
    return found


def grow(matrix: Floats, limits: Floats, widths: Sequence[float], order: Sequence[int]) -> list[float]:
    """Each object in this order takes all that its queries have left (section 3.2).

    >>> grow(np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), np.array([9.0, 5.0]), [4.0, 2.0, 2.0], [1, 0, 2])
    [6.0, 3.0, 2.0]
    """
    found = list(widths)
    for i in order:
        rows = [j for j in range(len(matrix)) if matrix[j, i] > 0]
        possible = []
        for j in rows:
            left = limits[j] - math.fsum(matrix[j, k] * found[k] for k in np.flatnonzero(matrix[j]))
            possible.append(float(left / matrix[j, i]) if left > NOTHING * limits[j] else 0.0)
        if rows:
            found[i] += min(possible)
    return found


def falling(deviations: Sequence[float], among: Sequence[int], choice: random.Random) -> list[int]:
    """The order of growth: by falling deviation, ties at random."""
    shuffled = choice.sample(list(among), len(among))
    return sorted(shuffled, key=lambda i: -deviations[i])


@dataclass(frozen=True)
class Adjusted:
    """What one adjustment comes to: the widths, and what led to them."""

    widths: list[float]
    grown: list[int]
    targets: Floats
    """By row that is over more than one object; 0 for the others."""
    deviations: list[float]


def adjust(
    matrix: Floats,
    limits: Floats,
    widths: Sequence[float],
    updates: Sequence[int],
    costs: Sequence[float],
    *,
    period: float,
    shrink: float,
    choice: random.Random,
    near: float = NEAR,
) -> Adjusted:
    """Shrink all widths, then let objects grow in falling deviation (sections 3.1 and 3.2, appendix B).

    Objects of single-object queries alone, and of none, are at their ceiling and stay there. Those that are
    at their ceiling though others share with them, or have no width, are left out where targets are found.
    Nobody grows who lacks less than the share ``near`` of his ceiling.
    """
    objects, most = matrix.shape[1], ceilings(matrix, limits)
    several = [j for j in range(len(matrix)) if np.count_nonzero(matrix[j]) > 1]
    shared = [i for i in range(objects) if any(matrix[j, i] > 0 for j in several)]
    borne = burdens(widths, updates, costs, period)
    counted = [i for i in shared if 0 < widths[i] < most[i]]
    targets = np.zeros(len(matrix))
    if counted and several:
        part = matrix[np.ix_(several, counted)]
        targets[several] = weighted_targets(part, [borne[i] for i in counted])
    over = deviations(matrix, borne, targets)
    shrunk = [width * (1 - shrink) if i in shared else most[i] for i, width in enumerate(widths)]
    able = [i for i in shared if shrunk[i] < most[i] * (1 - near)]
    found = grow(matrix, limits, shrunk, falling(over, able, choice))
    return Adjusted(found, [i for i in shared if found[i] > shrunk[i]], targets, over)
