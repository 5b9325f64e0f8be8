"""Queries with a precision, drawn at random, in the words of the planner and of the reference."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from slackwater.planners.precision_constraints import (
    Bools,
    Constraints,
    Floats,
    average,
    constrained,
    extreme,
    total,
)
from slackwater.reference.precision import Query

seeds = st.integers(0, 10**6)
often = settings(max_examples=150, deadline=None, derandomize=True)
seldom = settings(max_examples=40, deadline=None, derandomize=True)


def random_queries(
    rng: np.random.Generator,
    objects: int,
    queries: int,
    *,
    weighted: bool = False,
    functions: Sequence[str] = ("avg", "sum"),
) -> list[Query]:
    """Over any number of objects; weights, if any, are of either sign."""
    found = []
    for _ in range(queries):
        size = int(rng.integers(1, objects + 1))
        members = rng.choice(objects, size, replace=False).tolist()
        weights = rng.choice([-1, 1], size) * rng.uniform(0.5, 3, size) if weighted else np.ones(size)
        by_object = dict(zip(members, weights.tolist(), strict=True))
        found.append(Query(str(rng.choice(functions)), by_object, float(rng.uniform(1, 9))))
    return found


def planned(queries: Sequence[Query], objects: int) -> Constraints:
    """The same queries as the planner has them."""
    asked = []
    for query in queries:
        members, weights = list(query.weights), list(query.weights.values())
        if query.function in ("min", "max"):
            asked.append(extreme(members, query.within))
        elif query.function in ("sum", "avg"):
            asked.append((total if query.function == "sum" else average)(members, query.within, weights))
    return constrained(asked, objects)


def everything(constraints: Constraints) -> Bools:
    return np.ones(constraints.objects, dtype=bool)


def exactly_feasible(constraints: Constraints, widths: Floats) -> bool:
    """In fractions: no rounding hides a limit that is broken."""
    if np.isinf(widths[constraints.shared]).any():
        return False
    for row, limit in zip(constraints.matrix.toarray(), constraints.limit, strict=True):
        used = sum(Fraction(row[i]) * Fraction(widths[i]) for i in np.flatnonzero(row))
        if used > Fraction(limit):
            return False
    return bool((widths <= constraints.ceiling).all() and (widths >= 0).all())


class InThisOrder(random.Random):
    """A choice that has been made."""

    def __init__(self, order: Sequence[int]) -> None:
        super().__init__(0)
        self.order = order

    def sample(self, population: Sequence[int], k: int) -> list[int]:
        return [one for one in self.order if one in population]
