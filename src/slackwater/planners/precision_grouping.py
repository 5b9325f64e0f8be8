"""Whether a source tells its values by group or by query: source aggregation, chosen by measured cost.

What a source measures falls into groups, by which queries they are in. It can tell each group as an object,
which serves all its queries; or one object for each query, the sum of the groups, whose bound no other query
narrows. Which is cheaper depends on the data and on the constraints; the paper leaves the choice to future
work. An agent has all values, so it can run shadow filters for either kind, whichever is in use: both costs
are known.

A *slot* is one query at one source. Its *share* is what the query leaves this source of its limit. Both kinds
are compared within the shares that the source has, so that a choice never asks width of anybody else, and one
that is made lowers the cost. Sets of slots that have no group in common are chosen for independently.

Reference: Olston, Jiang, Widom: Adaptive Filters for Continuous Queries over Distributed Data Streams (SIGMOD
2003), section 5.2.1 and appendix G.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from slackwater.planners.precision_allocation import allocate
from slackwater.planners.precision_constraints import Bools, Constraints, Floats, Ints, from_entries
from slackwater.planners.precision_curves import Curves

MARGIN = 0.1
"""The other kind must be cheaper by this share: costs are counts of chance events."""


@dataclass(frozen=True, eq=False)
class Groups:
    """Which groups are in which slots; entries by place."""

    slot: Ints
    group: Ints
    slots: int
    groups: int

    @cached_property
    def of_slot(self) -> Ints:
        """The independent set of each slot."""
        return self._sets[1][: self.slots]

    @cached_property
    def of_group(self) -> Ints:
        """The independent set of each group."""
        return self._sets[1][self.slots :]

    @property
    def sets(self) -> int:
        return self._sets[0]

    @cached_property
    def _sets(self) -> tuple[int, Ints]:
        size = self.slots + self.groups
        edges = coo_array((np.ones(len(self.slot)), (self.slot, self.group + self.slots)), shape=(size, size))
        count, labels = connected_components(csr_array(edges), directed=False)
        return int(count), labels.astype(np.int64)

    def constraints(self, shares: Floats) -> Constraints:
        """What the shares ask of the widths of the groups."""
        ones, open_ended = np.ones(len(self.slot)), np.full(self.groups, np.inf)
        return from_entries(self.slot, self.group, ones, limit=shares, ceiling=open_ended)


@dataclass(frozen=True, eq=False)
class Priced:
    """What the objects of each independent set cost a second, told either way."""

    by_group: Floats
    by_query: Floats
    widths: Floats
    """Of the groups, at that cost; those of the sums are the shares."""


def priced(groups: Groups, shares: Floats, of_groups: Curves, of_slots: Curves, cost: float = 1.0) -> Priced:
    """Both costs, from the response curves of both kinds of objects; ``cost`` is that of a message.

    Guarantee: the widths keep within the shares, and cost least by the curves of the groups.

    >>> flat, falling = [[0.0, 4.0], [0.0, 0.0]], [[0.0, 4.0], [1.0, 0.2]]
    >>> curves = lambda *them: Curves(np.array([w for w, _ in them]), np.array([r for _, r in them]))
    >>> groups = Groups(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 2]), slots=2, groups=3)
    >>> found = priced(groups, np.array([4.0, 4.0]), curves(falling, flat, flat), curves(falling, falling))
    >>> found.by_group.round(3).tolist(), found.by_query.round(3).tolist(), found.widths.round(3).tolist()
    ([0.2], [0.4], [4.0, 0.0, 0.0])
    """
    constraints = groups.constraints(shares)
    widths = allocate(constraints, of_groups, np.full(groups.groups, cost)).widths
    apart = np.bincount(groups.of_group, of_groups.at(widths) * cost, minlength=groups.sets)
    summed = np.bincount(groups.of_slot, of_slots.at(shares) * cost, minlength=groups.sets)
    return Priced(apart.astype(np.float64), summed.astype(np.float64), widths)


def messages_to_change(groups: Groups) -> tuple[Floats, Floats]:
    """By set: the messages of changing to groups, and to queries.

    Each object that begins is granted a width and sends its value; each one that ends is granted none.
    """
    groups_of = np.bincount(groups.of_group, minlength=groups.sets).astype(np.float64)
    slots_of = np.bincount(groups.of_slot, minlength=groups.sets).astype(np.float64)
    return 2 * groups_of + slots_of, 2 * slots_of + groups_of


def chosen(
    groups: Groups, costs: Priced, by_query: Bools, horizon: float | Floats, cost: float = 1.0
) -> Bools:
    """By set, whether it is to be told by query from now on; ``by_query``: whether it is now.

    Guarantee: what changes is cheaper by the margin, and pays for its messages within ``horizon`` seconds, of
    all sets or of each. So of two kinds that cost about the same none is changed to, whatever chance does to
    the counts.

    >>> groups = Groups(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 2]), slots=2, groups=3)
    >>> costs = Priced(np.array([0.2]), np.array([0.4]), np.zeros(3))
    >>> [chosen(groups, costs, np.array([True]), horizon).tolist() for horizon in (30.0, 300.0)]
    [[True], [False]]
    """
    now = np.where(by_query, costs.by_query, costs.by_group)
    then = np.where(by_query, costs.by_group, costs.by_query)
    to_groups, to_queries = messages_to_change(groups)
    spent = cost * np.where(by_query, to_groups, to_queries)
    change = (then < now * (1 - MARGIN)) & ((now - then) * horizon > spent)
    found: Bools = by_query ^ change
    return found
