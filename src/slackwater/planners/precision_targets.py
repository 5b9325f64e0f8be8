"""Burden targets: how much burden each query may ask its objects to bear, from what they bear now.

Reference: Olston, Jiang, Widom: Adaptive Filters for Continuous Queries over Distributed Data Streams (SIGMOD
2003), section 3.2.1 and appendix B. With B the burdens of the objects and A the absolute weights, queries by
objects, the paper's equation for T_j says that over the objects of the query the residuals B - Aᵀ·T, each
divided by the weight that the query gives it, sum to nothing.

* Without weights that is A·(B - Aᵀ·T) = 0: the normal equations of the least squares of Aᵀ·T ≈ B. Equal
  weights within a query change nothing about it. Targets may not be unique, Aᵀ·T always is.
* With weights it is R·(B - Aᵀ·T) = 0, R being A with the reciprocal of each entry. This is no least squares
  and not symmetric. Where queries weigh common objects differently R·Aᵀ has eigenvalues below 0 and near it,
  or is singular although Aᵀ is not: two queries over (1, k, 1) and (k, 1, 0) with k + 1/k = √6. Targets are
  then absurd and the same few objects get all width. On 50 random walks under 20 queries, weights from 0.5
  to 3, in three draws: the equations taken at their word cost 28 to 39 updates a step, uniform widths 8.1 to
  9.6, what is done here 6.4 to 7.2.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import LinearOperator, gmres, lsmr

from slackwater.planners.precision_constraints import Bools, Constraints, Floats, Ints

TOLERANCE = 1e-8
"""Relative; a deviation below this share of the burden is none."""

STEPS, RESTART = 500, 50
DENSE = 100
"""Up to so many weighted queries are solved directly."""

SOLVED = 1e-4
"""What is left of appendix B's equations, of their right side, that is still a solution."""


def burden_targets(
    constraints: Constraints, burdens: Floats, counted: Bools, last: Floats | None = None
) -> Floats:
    """The target of each query, from the burdens of the objects that count; 0 for a query without any.

    Guarantee: the paper's targets but for the solver's tolerance. A query that shares no object has the
    average of its objects' burdens over weights, exactly. Variant: all components of overlapping queries are
    solved at once, each scaled to its own burdens so that a small one is solved as well as a large one.
    ``last`` are targets to start from, those of the period before. Where the system of appendix B has no
    solution that explains the burdens better than no targets would, its component gets the least squares
    of Aᵀ·T ≈ B in which each object is measured by its weights: the same thing for a single query, and for
    any number of them without weights.

    >>> from slackwater.planners.precision_constraints import average, constrained
    >>> apart = constrained([average([0, 1], 1), average([2, 3], 1)], 4)
    >>> all_of_them = np.ones(4, dtype=bool)
    >>> burden_targets(apart, np.array([1.0, 3.0, 5.0, 5.0]), all_of_them).tolist()
    [2.0, 5.0]
    >>> shared = constrained([average([0, 1, 2], 1), average([2, 3], 1)], 4)
    >>> burden_targets(shared, np.array([1.0, 1.0, 4.0, 3.0]), all_of_them).round(6).tolist()
    [1.0, 3.0]
    """
    parts = constraints.components
    counting = (counted & constraints.shared).astype(np.float64)
    bearing = np.where(counting > 0, burdens, 0.0)
    number = constraints.membership @ counting
    alone = parts.queries[parts.of_query] == 1
    averages = _over(constraints.reciprocal @ bearing, number)
    if alone.all():
        return averages
    scale = np.sqrt(np.bincount(parts.of_object, np.square(bearing), minlength=parts.count))
    scale[scale == 0] = 1.0
    unit = scale[parts.of_query]
    wanted = np.where(parts.queries[parts.of_object] > 1, bearing / scale[parts.of_object], 0.0)
    start = np.zeros(constraints.queries) if last is None else np.where(alone, 0.0, last / unit)
    if constraints.even:
        found = _least_squares(constraints, wanted, counting, start)
    else:
        found = _weighted(constraints, wanted, counting, number, start)
    return np.where(alone, averages, found * unit)


def _least_squares(constraints: Constraints, wanted: Floats, measure: Floats, start: Floats) -> Floats:
    """Targets with the least sum of squares of measure · (wanted - Aᵀ·T)."""
    matrix, by_object = constraints.matrix, constraints.by_object
    norms = np.sqrt(constraints.with_entries(np.square(matrix.data)) @ np.square(measure))
    # unknowns are scaled to columns of norm 1: a query over ten objects counts as much as one over a million
    per_unit = _over(np.ones(len(norms)), norms)
    operator = LinearOperator(
        by_object.shape,
        matvec=lambda units: measure * (by_object @ (per_unit * np.ravel(units))),
        rmatvec=lambda rest: per_unit * (matrix @ (measure * np.ravel(rest))),
        dtype=np.float64,
    )
    right, begun = measure * wanted, start * norms
    found = lsmr(operator, right, atol=TOLERANCE, btol=TOLERANCE, conlim=0, maxiter=STEPS, x0=begun)[0]
    return per_unit * np.asarray(found, dtype=np.float64)


def _weighted(
    constraints: Constraints, wanted: Floats, counting: Floats, number: Floats, start: Floats
) -> Floats:
    """Appendix B, and least squares for the components in which that does not help."""
    parts, by_object = constraints.components, constraints.by_object
    squares = np.asarray(constraints.reciprocal.power(2).sum(axis=0), dtype=np.float64)
    measure = counting * np.sqrt(_over(squares, np.diff(by_object.indptr).astype(np.float64)))

    def averaged(burdens: Floats) -> Floats:
        return _over(constraints.reciprocal @ (counting * burdens), number)

    right = averaged(wanted)
    if constraints.queries <= DENSE:
        columns = [averaged(by_object @ one) for one in np.eye(constraints.queries)]
        found = np.linalg.lstsq(np.column_stack(columns), right)[0]
    else:
        shape = (constraints.queries, constraints.queries)
        operator = LinearOperator(shape, lambda it: averaged(by_object @ np.ravel(it)), dtype=np.float64)
        found, _ = gmres(operator, right, start, rtol=TOLERANCE, restart=RESTART, maxiter=STEPS // RESTART)
    rest = wanted - by_object @ found

    def length(values: Floats, of: Ints) -> Floats:
        """The sum of squares in each component."""
        return np.bincount(of, np.square(values), minlength=parts.count).astype(np.float64)

    # written so that what is not a number has failed too
    solved = length(averaged(rest), parts.of_query) <= SOLVED**2 * length(right, parts.of_query)
    borne = length(measure * wanted, parts.of_object)
    explains = length(measure * rest, parts.of_object) <= (1 + TOLERANCE) * borne
    failed = ~(solved & explains)[parts.of_query]
    if failed.any():
        found = np.where(failed, _least_squares(constraints, wanted, measure, np.zeros(len(start))), found)
    return np.asarray(found, dtype=np.float64)


def _over(values: Floats, by: Floats) -> Floats:
    """The quotient, 0 where there is nothing to divide by."""
    return np.divide(values, by, out=np.zeros(len(values)), where=by > 0)
