"""What queries with a precision ask of the widths of filters: the terms that both allocations share.

Reference: Olston, Jiang, Widom: Adaptive Filters for Continuous Queries over Distributed Data Streams (SIGMOD
2003), section 3 and appendices A, B, D. An *object* has a bound of width W; a query over it answers with an
interval at most δ wide as long as the widths of its objects satisfy

    sum of |K| · W  <=  limit        (AVG: δ times the number of objects; SUM: δ)
    W  <=  δ for each of them        (MIN and MAX; a query over one object, by its weight)

The first kind is a row of a sparse matrix. The second bounds an object alone: it is folded into the object's
*ceiling*, so that a MIN over a million keys costs a number per key and no row. An object in no row has nobody
to share with: its width is its ceiling, infinite where nobody asks for it (the paper's two fixed cases).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

OF_THE_MATRIX = ("sizes", "by_object", "membership", "reciprocal", "shared", "rounding", "even", "components")
"""What of constraints does not depend on their limits."""
EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Components:
    """Which queries and objects hang together: width moves only within a component."""

    of_query: Ints
    of_object: Ints
    count: int

    @cached_property
    def queries(self) -> Ints:
        """How many queries each component has; none: an object by itself."""
        return np.bincount(self.of_query, minlength=self.count)


@dataclass(frozen=True, eq=False)
class Constraints:
    """All that is asked of the widths: ``matrix @ widths <= limit`` and ``widths <= ceiling``."""

    matrix: csr_array
    """Queries × objects: absolute weights, each above 0; no row has one entry alone. Rows may be empty."""
    limit: Floats
    ceiling: Floats
    """The most that an object may have by itself, infinite where nothing says so."""

    def __post_init__(self) -> None:
        queries, objects = self.matrix.shape
        if self.limit.shape != (queries,) or self.ceiling.shape != (objects,):
            raise ValueError("Constraints have one limit for each query and one ceiling for each object.")
        if not (np.isfinite(self.limit).all() and (self.limit >= 0).all() and (self.ceiling >= 0).all()):
            raise ValueError("Limits are finite and not negative, ceilings are not negative.")
        if not (np.isfinite(self.matrix.data).all() and (self.matrix.data > 0).all()):
            raise ValueError("The matrix holds absolute weights: finite and above 0.")
        if (self.sizes == 1).any():
            raise ValueError("A query over one object bounds its ceiling, it has no row.")

    @property
    def queries(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def objects(self) -> int:
        return int(self.matrix.shape[1])

    @cached_property
    def sizes(self) -> Ints:
        """How many objects each row is over."""
        return np.diff(self.matrix.indptr).astype(np.int64)

    @cached_property
    def by_object(self) -> csr_array:
        """The transposed matrix, by rows: the queries of each object."""
        return csr_array(self.matrix.T.tocsr())

    @cached_property
    def membership(self) -> csr_array:
        """1 wherever the matrix has a weight."""
        return self.with_entries(np.ones(self.matrix.nnz))

    @cached_property
    def reciprocal(self) -> csr_array:
        """The matrix with 1 over each of its weights."""
        return self.with_entries(1 / self.matrix.data)

    def with_entries(self, values: Floats) -> csr_array:
        """Other entries at the places of the weights."""
        return csr_array((values, self.matrix.indices, self.matrix.indptr), shape=self.matrix.shape)

    def within(self, limit: Floats, ceiling: Floats) -> Constraints:
        """The same queries with other limits and ceilings; what was found out about the matrix is kept."""
        found = replace(self, limit=limit, ceiling=ceiling)
        found.__dict__.update({name: self.__dict__[name] for name in OF_THE_MATRIX if name in self.__dict__})
        return found

    @cached_property
    def shared(self) -> Bools:
        """Objects in some row: the ones whose widths are a matter of choice."""
        return np.diff(self.by_object.indptr) > 0

    @cached_property
    def usable(self) -> Floats:
        """The limits less what sums of floats may be off: who keeps to these keeps to the limits exactly."""
        lowered: Floats = self.limit * (1 - self.rounding)
        return lowered

    @cached_property
    def rounding(self) -> Floats:
        """By query: the share of its limit that sums of floats may be off, summed and kept up to date."""
        return 2 * EPSILON * (self.sizes.astype(np.float64) + 8)

    @cached_property
    def even(self) -> bool:
        """Whether all weights within each query are equal, as they are without weights."""
        filled = self.sizes > 0
        first = self.matrix.data[self.matrix.indptr[:-1][filled]]
        return bool((self.matrix.data == np.repeat(first, self.sizes[filled])).all())

    @cached_property
    def components(self) -> Components:
        """The connected components of the graph of queries and objects."""
        queries, objects = self.queries, self.objects
        start = np.concatenate([self.matrix.indptr, np.full(objects, self.matrix.nnz, np.int32)])
        graph = csr_array(
            (np.ones(self.matrix.nnz, dtype=np.int8), self.matrix.indices + queries, start),
            shape=(queries + objects, queries + objects),
        )
        count, labels = connected_components(graph, directed=False)
        return Components(labels[:queries].astype(np.int64), labels[queries:].astype(np.int64), int(count))

    def slack(self, widths: Floats) -> Floats:
        """By query: how much of its limit the widths leave; negative where they break it."""
        left: Floats = self.limit - self.matrix @ widths
        return left

    def feasible(self, widths: Floats, *, rtol: float = 0.0) -> bool:
        """Whether the widths keep every limit and ceiling, or exceed them by no more than that share."""
        return bool(
            (widths >= 0).all()
            and (widths <= self.ceiling * (1 + rtol)).all()
            and (self.matrix @ widths <= self.limit * (1 + rtol)).all()
        )

    def least_by_object(self, values: Floats) -> Floats:
        """The least that the queries of each object have, infinite for those in no row."""
        found = np.full(self.objects, np.inf)
        np.minimum.at(found, self.matrix.indices, np.repeat(values, self.sizes))
        return found


def uniform(constraints: Constraints) -> Floats:
    """Equal widths for all objects of a query; an object of several has the least of what they give it.

    Guarantee: feasible, without tolerance. Reference: sections 1.2.1 and 3, the allocation to begin with.

    >>> two = constrained([average([0, 1], 10), average([1, 2, 3], 6), extreme([3], 5)], 5)
    >>> uniform(two).round(9).tolist()
    [10.0, 6.0, 6.0, 5.0, inf]
    """
    weights = constraints.matrix.sum(axis=1)
    equal = np.divide(constraints.usable, weights, out=np.full(len(weights), np.inf), where=weights > 0)
    return np.minimum(constraints.least_by_object(equal), constraints.ceiling)


def narrowed(constraints: Constraints, widths: Floats) -> Floats:
    """Widths that are feasible and nowhere more than the given ones: for limits that have become less.

    Guarantee: feasible, without tolerance, and unchanged where no query of the object is over its limit.
    Variant: an object is cut by the largest share that one of its queries has to save. A width that is
    infinite though a row holds its object starts from the uniform one. Reference: section 3.4, which leaves
    open how widths are to be shrunk at once.

    >>> two = constrained([total([0, 1], 3), total([1, 2], 9)], 3)
    >>> narrowed(two, np.array([4.0, 2.0, 7.0])).round(9).tolist()
    [2.0, 1.0, 7.0]
    """
    held = np.minimum(widths, constraints.ceiling)
    unbounded = constraints.shared & ~np.isfinite(held)
    if unbounded.any():
        held = np.where(unbounded, uniform(constraints), held)
    used = constraints.matrix @ held
    over = used > constraints.limit
    kept = np.ones(constraints.queries)
    kept[over] = constraints.usable[over] / used[over] * (1 - 4 * EPSILON)
    factor = np.where(constraints.shared, constraints.least_by_object(kept), 1.0)
    return np.where(factor < 1, held * np.minimum(factor, 1.0), held)


@dataclass(frozen=True)
class Tolerance:
    """What one query asks: the limit of the weighted sum of its objects' widths, or of each of them."""

    objects: Sequence[int] | Ints
    limit: float
    weights: Sequence[float] | Floats | None = None
    """Of either sign; None: all 1."""
    each: bool = False


def total(
    objects: Sequence[int] | Ints, within: float, weights: Sequence[float] | Floats | None = None
) -> Tolerance:
    """A SUM, weighted or not, whose interval is to be at most ``within`` wide."""
    return Tolerance(objects, within, weights)


def average(
    objects: Sequence[int] | Ints, within: float, weights: Sequence[float] | Floats | None = None
) -> Tolerance:
    """An AVG, which the paper divides by the number of objects, weighted or not."""
    return Tolerance(objects, within * len(objects), weights)


def extreme(objects: Sequence[int] | Ints, within: float) -> Tolerance:
    """A MIN or MAX: any of the objects may become the least, so each is bounded (appendix A)."""
    return Tolerance(objects, within, each=True)


def constrained(tolerances: Sequence[Tolerance], objects: int) -> Constraints:
    """The constraints of these queries, in their order, over that many objects.

    >>> found = constrained([total([0, 2], 6, weights=[2, -1]), total([1], 8, weights=[-4])], 3)
    >>> found.matrix.toarray().tolist(), found.limit.tolist(), found.ceiling.tolist()
    ([[2.0, 0.0, 1.0], [0.0, 0.0, 0.0]], [6.0, 8.0], [inf, 2.0, inf])
    """
    ceiling = np.full(objects, np.inf)
    rows, columns, weights = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
    for position, asked in enumerate(tolerances):
        members = np.asarray(asked.objects, dtype=np.int64)
        if asked.each:
            ceiling[members] = np.minimum(ceiling[members], asked.limit)
            continue
        rows.append(np.full(len(members), position))
        columns.append(members)
        weights.append(np.ones(len(members)) if asked.weights is None else np.asarray(asked.weights, float))
    return from_entries(
        np.concatenate(rows),
        np.concatenate(columns),
        np.concatenate(weights),
        limit=np.array([asked.limit for asked in tolerances], dtype=np.float64),
        ceiling=ceiling,
    )


def from_entries(
    rows: Ints, columns: Ints, weights: Floats, *, limit: Floats, ceiling: Floats
) -> Constraints:
    """The constraints of entries (query, object, signed weight); ceilings are those of MIN and MAX.

    An object that a query names twice has the sum of its weights; one whose weight is 0 is not in the query.
    """
    shape = (len(limit), len(ceiling))
    # half the bytes to read wherever the matrix is multiplied
    narrow = np.dtype(np.int32 if max(*shape, len(weights)) < np.iinfo(np.int32).max else np.int64)
    places = (rows.astype(narrow), columns.astype(narrow))
    matrix = csr_array(coo_array((weights.astype(np.float64), places), shape=shape))
    matrix.sum_duplicates()
    np.abs(matrix.data, out=matrix.data)
    matrix.eliminate_zeros()
    sizes = np.diff(matrix.indptr)
    alone = np.repeat(sizes == 1, sizes)
    if alone.any():
        own, weight = limit[sizes == 1], matrix.data[alone]
        with np.errstate(over="ignore"):
            most = own / weight
        most = np.where(most * weight > own, np.nextafter(most, 0), most)
        ceiling = ceiling.copy()
        np.minimum.at(ceiling, matrix.indices[alone], most)
        start = np.concatenate([[0], np.cumsum(np.where(sizes == 1, 0, sizes))]).astype(narrow)
        matrix = csr_array((matrix.data[~alone], matrix.indices[~alone], start), shape=matrix.shape)
    return Constraints(matrix, limit, ceiling)
