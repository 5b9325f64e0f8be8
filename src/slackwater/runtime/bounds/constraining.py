"""What queries ask of the widths of objects: constraints on what tells them their keys, now and soon.

While other sums are to tell a query its keys than do, it asks for both. A query that means over a window tell
asks for them, and beside them for keys that are in none yet; until then it asks for moments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from slackwater.planners.precision_constraints import Constraints, from_entries
from slackwater.runtime.bounds.belief import Belief, LiveSum
from slackwater.runtime.bounds.covers import Cover, differ
from slackwater.runtime.bounds.queries import BoundedQuery
from slackwater.runtime.bounds.summing import Summed


class Constrained(NamedTuple):
    """Constraints on all objects of a stream."""

    constraints: Constraints
    changing: bool
    """Whether other sums are to tell queries their keys than do now."""


def constrained(
    queries: Sequence[BoundedQuery],
    belief: Belief,
    summed: Summed,
    promised: Callable[[BoundedQuery], float],
    padding: float,
    everything: bool,
) -> Constrained:
    """The constraints of queries; ``everything``: some other query needs every row of every key.

    ``promised`` is how wide answers of a query may be, ``padding`` by how much a bound is widened for each
    unit that its value changes in a second at most.
    """
    size = belief.size * belief.columns
    ceiling = np.full(size, 0.0 if everything else np.inf)
    ceiling[np.repeat(belief.summed, belief.columns)] = np.inf
    rows, columns, weights, limits = [], [], [], []
    count, changing = 0, False
    padded_by = padding * belief.paces(summed.intended) if padding else np.zeros(size)
    held = np.repeat(summed.held & ~summed.standing, belief.columns)
    for query in queries:
        covers, other = _covers(query, summed.intended)
        changing |= other
        for cover, sums_only in covers:
            entries, ceilings = query.asks(cover, promised(query), sums_only=sums_only)
            for objects, most in ceilings:
                objects, most = objects[~held[objects]], most[~held[objects]]
                np.minimum.at(ceiling, objects, np.maximum(most - padded_by[objects], 0.0))
            width = query.granted_width(promised(query))
            for row, column, weight in entries:
                row, column, weight = row[~held[column]], column[~held[column]], weight[~held[column]]
                rows.append(row + count)
                columns.append(column)
                weights.append(weight)
                padded = np.zeros(query.matrix.size)
                np.add.at(padded, row, np.abs(weight) * padded_by[column])
                limits.append(np.maximum(width - padded, 0.0))
                count += query.matrix.size
    none = np.zeros(0, np.int64)
    found = from_entries(
        np.concatenate([none, *rows]),
        np.concatenate([none, *columns]),
        np.concatenate([np.zeros(0), *weights]),
        limit=np.concatenate([np.zeros(0), *limits]),
        ceiling=ceiling,
    )
    return Constrained(found, changing)


def _covers(
    query: BoundedQuery, intended: dict[int, LiveSum]
) -> tuple[list[tuple[Cover | None, bool]], bool]:
    """By what a query is asked for: what tells it now, and what will; by sums alone, or by keys too.

    And whether what tells its moments is to be something else.
    """
    found, changing = list[tuple[Cover | None, bool]](), False
    if not query.ready:
        found.append((query.cover, False))
        if differ(query.cover, then := query.covered(intended)):
            found.append((then, False))
            changing = True
    window = query.lenient
    if window is not None:
        then = query.covered(intended, window)
        now = query.means.cover if query.ready and query.means is not None else None
        if now is not None:
            found.append((now, False))
        if then is not None and (now is None or differ(now, then)):
            found.append((then, not query.ready))
    return found, changing
