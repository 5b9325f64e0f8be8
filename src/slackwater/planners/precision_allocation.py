"""Widths of least cost: over the hulls of the response curves, under every query's constraint.

The paper assumes how an object's rate falls with its width and equalises burdens (section 3.2, appendix C).
Where the curves are known, the problem itself can be solved: it is a linear program, whose variables are the
segments of the hulls. What a unit of a query's limit would save is its *price*; an object pays the prices of
its queries, each times its weight, and takes every segment that saves more than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from slackwater.planners.precision_constraints import Bools, Constraints, Floats, Ints, narrowed, uniform
from slackwater.planners.precision_curves import Curves
from slackwater.planners.precision_prices import STEPS_WARM, fitted_prices

PROGRAM_AT_MOST = 4_000
"""Segments up to which the linear program is solved as it is; beyond, prices are fitted step by step,
which is some hundred times as quick and costs up to 2 % more, as a rule less than one."""


@dataclass(frozen=True)
class Allocation:
    """Widths, and what width is worth."""

    widths: Floats
    prices: Floats
    """By query: what a unit of its limit would save, in cost a second."""

    def price(self, constraints: Constraints) -> Floats:
        """By object: what a unit of its width costs its queries."""
        found: Floats = constraints.by_object @ self.prices
        return found


def allocate(
    constraints: Constraints,
    curves: Curves,
    costs: Floats,
    last: Floats | None = None,
    *,
    program_at_most: int = PROGRAM_AT_MOST,
    steps: int = STEPS_WARM,
) -> Allocation:
    """The widths that cost least.

    Guarantee: feasible, without tolerance. Of least cost where each object has one query (greedy by slope) or
    where the program is small; else near it, the nearer the more often it is called with its ``last`` prices,
    or the more ``steps`` are made from there.
    Objects that are in no row have their ceiling.
    """
    segments = _segments(constraints, curves, costs)
    component = constraints.components
    alone = component.queries[component.of_query] == 1
    prices = np.zeros(constraints.queries)
    widths = np.where(constraints.shared, 0.0, constraints.ceiling)
    lone = constraints.shared & (component.queries[component.of_object] == 1)
    if lone.any():
        _greedily(constraints, segments, lone, widths, prices)
    several = np.flatnonzero(constraints.shared & ~lone)
    if len(several):
        if segments.useful[several].sum() <= program_at_most:
            _programmed(constraints, segments, several, widths, prices)
        else:
            fitted = fitted_prices(constraints, segments.lengths, segments.slopes, last, steps)
            prices[~alone] = fitted.prices[~alone]
            widths[several] = fitted.widths[several]
    return Allocation(narrowed(constraints, widths), prices)


@dataclass(frozen=True)
class _Segments:
    lengths: Floats
    slopes: Floats
    """What a unit of width saves, costs included; falling along each curve."""

    @property
    def useful(self) -> Ints:
        """How many segments of each object save something."""
        found: Ints = ((self.slopes > 0) & (self.lengths > 0)).sum(axis=1)
        return found


def _segments(constraints: Constraints, curves: Curves, costs: Floats) -> _Segments:
    """The segments of all curves up to each object's ceiling."""
    ceiling = constraints.ceiling[:, None]
    lengths = np.diff(np.minimum(curves.widths, ceiling), axis=1)
    return _Segments(lengths, curves.slopes * costs[:, None])


def _greedily(
    constraints: Constraints, segments: _Segments, objects: Bools, widths: Floats, prices: Floats
) -> None:
    """Objects of one query each: segments by what they save of the limit, until it is spent."""
    rows = np.flatnonzero(objects)
    by_object = constraints.by_object
    query, weight = by_object.indices[by_object.indptr[rows]], by_object.data[by_object.indptr[rows]]
    length, slope = segments.lengths[rows], segments.slopes[rows] / weight[:, None]
    used = (length > 0) & (slope > 0)
    place = np.nonzero(used)[0]
    takes, saves, of = (length * weight[:, None])[used], slope[used], query[place].astype(np.int64)
    # the sort is stable: segments of one object stay in order
    order = np.lexsort((-saves, of))
    place, takes, saves, of = place[order], takes[order], saves[order], of[order]
    total = np.cumsum(takes)
    start = np.searchsorted(of, np.arange(constraints.queries))
    before = np.concatenate([[0.0], total])[start]
    left = constraints.usable[of] - (total - takes - before[of])
    taken = np.clip(left, 0.0, takes)
    np.add.at(widths, rows[place], taken / weight[place])
    short = taken < takes
    # falling slopes: the first segment that is not taken whole sets the price
    first = np.flatnonzero(short)[np.unique(of[short], return_index=True)[1]]
    prices[of[first]] = saves[first]


def _programmed(
    constraints: Constraints, segments: _Segments, objects: Ints, widths: Floats, prices: Floats
) -> None:
    """The linear program over the segments of some objects."""
    used = (segments.lengths[objects] > 0) & (segments.slopes[objects] > 0)
    place = np.nonzero(used)[0]
    lengths, slopes = segments.lengths[objects][used], segments.slopes[objects][used]
    if not len(place):
        return
    columns = csr_array(constraints.matrix.tocsc()[:, objects[place]])
    chosen = np.flatnonzero(np.diff(columns.indptr) > 0)
    # in units of each segment's whole saving and of each limit: numbers of one size
    scale = np.where(constraints.usable[chosen] > 0, constraints.usable[chosen], 1.0)
    scaled = csr_array(columns[chosen] * lengths[None, :] / scale[:, None])
    free = constraints.usable[chosen] > 0
    # its stubs know no sparse matrices
    solve: Any = linprog
    found = solve(
        -slopes * lengths,
        A_ub=scaled[free],
        b_ub=np.ones(int(free.sum())),
        bounds=np.stack([np.zeros(len(place)), _upper(columns, chosen[~free], len(place))], axis=1),
        method="highs",
    )
    if found.status != 0:
        # a program that the solver gives up on: equal widths are always there to be had
        widths[objects] = uniform(constraints)[objects]
        return
    np.add.at(widths, objects[place], np.clip(found.x, 0.0, 1.0) * lengths)
    prices[chosen[free]] = np.maximum(-found.ineqlin.marginals, 0.0) / scale[free]


def _upper(columns: csr_array, shut: Ints, count: int) -> Floats:
    """1 for each segment, 0 for those of objects in a query that leaves no width at all."""
    upper = np.ones(count)
    upper[np.unique(columns[shut].indices)] = 0.0
    return upper
