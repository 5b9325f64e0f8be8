"""Which changes of widths are worth their messages.

An allocation moves nearly every width a little at every period. A grant is a message; a grant that narrows is
two, since the agent must say from when on. So bounds are grown only if what that saves until the next change
pays for their messages and for those that narrow others to make room; and others are narrowed only for that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slackwater.planners.precision_allocation import Allocation, allocate
from slackwater.planners.precision_constraints import Bools, Constraints, Floats, Ints
from slackwater.planners.precision_curves import Curves

HORIZON_PERIODS = 30.0
"""Periods for which a change is taken to last at least: what it saves in that time must pay for it."""
HORIZON_UPDATES = 4.0
"""How many updates an object sends on average while a change lasts, if that takes longer: until about so many
have come, nothing is known that could call for another change."""
OUTLASTED = 0.1
"""The share of widths that may be younger than what the others are taken to have shown of how long widths
last: a few objects that are out of step do not hold up the rest, but where much changes nothing is old."""
ROUNDS = 4
PART = 0.5
"""A bound is not grown by less than this part of what it is to grow by."""


@dataclass(frozen=True)
class Changes:
    """Objects to be narrowed first, objects to be grown into what is left then, and all their new widths."""

    narrow: Ints
    grow: Ints
    """The one that saves most first."""
    widths: Floats


def horizons(
    constraints: Constraints, curves: Curves, widths: Floats, period: float, lasted: Floats | None = None
) -> Floats:
    """By object: for how many seconds a change is taken to last.

    The same for all that hang together, since one gives what another takes: some periods, or where objects
    send so seldom that nothing can be learnt of them in that time, as long as some updates take, or as long
    as widths have ``lasted`` already, in seconds since each was granted. The last is what lets a world that
    stands still come to its best widths: savings too small to pay for their messages soon do pay in the end,
    as with skis that are bought once renting them has cost as much.

    >>> from slackwater.planners.precision_constraints import constrained, total
    >>> two = constrained([total([0, 1], 4)], 3)
    >>> curves = Curves(np.array([[0.0, 2.0]] * 3), np.array([[0.2, 0.004]] * 3))
    >>> horizons(two, curves, np.array([2.0, 2.0, np.inf]), 10.0).round(6).tolist()
    [1000.0, 1000.0, 300.0]
    >>> horizons(two, curves, np.array([2.0, 2.0, np.inf]), 10.0, np.array([7e3, 5e3, 0.0])).tolist()
    [5000.0, 5000.0, 300.0]
    """
    component, shared = constraints.components, constraints.shared
    rates = np.where(shared, curves.at(np.where(shared, widths, 0.0)), 0.0)
    together = np.bincount(component.of_object, rates, minlength=component.count)
    number = np.bincount(component.of_object, shared, minlength=component.count)
    least = HORIZON_PERIODS * period
    seldom = np.divide(
        HORIZON_UPDATES * number, together, out=np.full(len(number), least), where=together > TINY
    )
    longest = seldom if lasted is None else np.maximum(seldom, _outlasted(constraints, lasted))
    found: Floats = np.clip(longest, least, LONGEST_PERIODS * period)[component.of_object]
    return found


def _outlasted(constraints: Constraints, lasted: Floats) -> Floats:
    """By component: how long all but some of its widths have lasted."""
    component, objects = constraints.components, np.flatnonzero(constraints.shared)
    order = objects[np.lexsort((lasted[objects], component.of_object[objects]))]
    sizes = np.bincount(component.of_object[objects], minlength=component.count)
    first = np.cumsum(sizes) - sizes
    found = np.zeros(component.count)
    some = sizes > 0
    found[some] = lasted[order[(first + OUTLASTED * sizes)[some].astype(np.int64)]]
    return found


LONGEST_PERIODS = 3000.0
"""However seldom objects send: the world changes too."""


def worthwhile(
    constraints: Constraints,
    curves: Curves,
    costs: Floats,
    widths: Floats,
    allocation: Allocation,
    horizon: float | Floats,
) -> Changes:
    """The changes from widths towards an allocation that pay for their messages within ``horizon`` seconds.

    Guarantee: the new widths are feasible if the old ones are, and so is every state on the way as long as
    narrowing comes first. Where queries overlap, the changes among all that hang together save more than
    their messages cost. Costs are those of a message of each object. Objects in no row stay as they are.

    >>> from slackwater.planners.precision_constraints import constrained, total
    >>> one = constrained([total([0, 1], 4)], 2)
    >>> curves = Curves(np.array([[0.0, 4.0]] * 2), np.array([[1.0, 0.0], [0.1, 0.0]]))
    >>> wanted = Allocation(np.array([4.0, 0.0]), np.array([0.25]))
    >>> even = np.array([2.0, 2.0])
    >>> [worthwhile(one, curves, np.ones(2), even, wanted, h).widths.round(9).tolist() for h in (5.0, 100.0)]
    [[2.0, 2.0], [4.0, 0.0]]
    """
    movable = constraints.shared & np.isfinite(widths)
    given, widths = widths, np.where(movable, widths, 0.0)
    target = np.where(movable, allocation.widths, 0.0)
    now = curves.at(widths) * costs
    saved = (now - curves.at(target) * costs) * horizon
    growing = movable & (target > widths * (1 + MARGIN)) & (saved > costs)
    giving = movable & (target < widths * (1 - MARGIN))
    if not growing.any():
        return Changes(np.empty(0, np.int64), np.empty(0, np.int64), given)
    # a donor costs a grant, an acknowledgement, and what it will send more
    worth = np.where(giving, 2 * costs - saved, saved - costs)
    component = constraints.components
    several = component.queries[component.of_object] > 1
    move = _Moves(constraints, widths, target, worth)
    donors, share = move.of_one_query(growing & ~several, giving & ~several, allocation.price(constraints))
    # what a unit of width saves in a second is known: about what it is worth until the next change
    lasting = float(np.median(np.broadcast_to(horizon, len(widths))[growing]))
    overlapping = move.of_several_queries(growing & several, giving & several, allocation.prices * lasting)
    donors, share = donors | (giving & several & (overlapping < KEPT)), np.maximum(share, overlapping)
    grown = np.flatnonzero(growing & (share > 1 - KEPT))
    grown = grown[np.lexsort((-worth[grown], -share[grown]))]
    grown, after = _grown(constraints, np.where(donors, target, widths), grown, target)
    # what was taken in part is now taken whole or not at all: where queries overlap that may not pay
    gained = (now - curves.at(after) * costs) * horizon - np.where(donors, 2 * costs, 0.0)
    gained[grown] -= costs[grown]
    together = np.bincount(component.of_object, gained, minlength=component.count)
    pays = ~several | (together > 0)[component.of_object]
    after = np.where(pays, after, widths)
    return Changes(np.flatnonzero(donors & pays), grown[pays[grown]], np.where(movable, after, given))


MARGIN, TINY = 1e-4, 1e-300
STEPS = 20
"""Steps of prices where changes are chosen: of a million objects that finds 99 % of what can be saved."""
KEPT = 0.9
"""A donor that would keep this share of what it can give gives nothing; nor does who would get as little as
the rest grow."""


@dataclass(frozen=True)
class _Moves:
    """What can move, and what that is worth."""

    constraints: Constraints
    widths: Floats
    target: Floats
    worth: Floats
    """What growing saves less its message; what giving costs, with its messages."""

    def of_one_query(self, growing: Bools, giving: Bools, price: Floats) -> tuple[Bools, Floats]:
        """Who gives, and 1 for those that grow; of objects whose queries share nothing with others.

        The cheapest donors; who would pay more for width than they cost on average does not grow. That drops
        more than must be, all at once; to choose as where queries overlap changed more and saved no more.
        """
        constraints, more = self.constraints, self.target - self.widths
        spent = np.where(giving, self.worth, 0.0)
        order = np.argsort(spent / np.maximum(-more * price, TINY))
        order = order[giving[order]]
        slack = constraints.slack(self.widths)
        for _ in range(ROUNDS):
            need = constraints.matrix @ np.where(growing, more, 0.0) - slack
            donors = _donors(constraints, order, -more, need)
            paid = _donor_price(constraints, donors, -more, np.maximum(spent, 0.0), need)
            dear = self.worth < (constraints.by_object @ paid) * more
            if not (growing & dear).any():
                break
            growing = growing & ~dear
        else:
            need = constraints.matrix @ np.where(growing, more, 0.0) - slack
            donors = _donors(constraints, order, -more, need)
        return donors, growing.astype(np.float64)

    def of_several_queries(self, growing: Bools, giving: Bools, prices: Floats) -> Floats:
        """The shares of what they would take that growing objects get, and of what they would give that
        others keep.

        Were all donors narrowed, what room that leaves is worth something to those that grow, and to donors
        that keep their width. To give it to whom it is worth most is an allocation again, over curves of one
        segment each. An object that grows takes width of all its queries, and a donor frees some in each of
        its own: prices of one query at a time would count the same messages several times. Where there are
        many objects, that is fitted from the ``prices`` on.
        """
        none = np.zeros(len(self.widths))
        if not growing.any():
            return np.where(giving, 1.0, none)
        length = np.where(giving | growing, np.abs(self.target - self.widths), 0.0)
        left = self.constraints.usable - self.constraints.matrix @ np.where(giving, self.target, self.widths)
        room = self.constraints.within(np.maximum(left, 0.0), length)
        worth = np.where(giving | growing, self.worth, 0.0)
        segments = Curves(np.stack([none, length], axis=1), np.stack([worth, none], axis=1))
        taken = allocate(room, segments, np.ones(len(length)), prices, steps=STEPS).widths
        return np.divide(taken, length, out=none, where=length > 0)


def _donors(constraints: Constraints, order: Ints, freed: Floats, need: Floats) -> Bools:
    """For each query that needs width the first objects in order that free as much."""
    chosen = np.zeros(len(freed), bool)
    if not len(order) or not (need > 0).any():
        return chosen
    by_object = constraints.by_object[order]
    place = np.repeat(np.arange(len(order)), np.diff(by_object.indptr))
    query, given = by_object.indices, by_object.data * freed[order[place]]
    wanted = need[query] > 0
    place, query, given = place[wanted], query[wanted], given[wanted]
    sort = np.argsort(query, kind="stable")
    place, query, given = place[sort], query[sort], given[sort]
    total = np.cumsum(given)
    first = np.searchsorted(query, query)
    before = total - given - np.concatenate([[0.0], total])[first]
    chosen[order[place[before < need[query]]]] = True
    return chosen


def _donor_price(
    constraints: Constraints, donors: Bools, freed: Floats, spent: Floats, need: Floats
) -> Floats:
    """By query: what a unit of width costs that its donors free; nothing where it needs none."""
    paid = constraints.membership @ np.where(donors, spent, 0.0)
    given = constraints.matrix @ np.where(donors, freed, 0.0)
    price: Floats = np.divide(paid, given, out=np.zeros(len(given)), where=(given > 0) & (need > 0))
    return price


def _grown(constraints: Constraints, widths: Floats, order: Ints, target: Floats) -> tuple[Ints, Floats]:
    """Grow objects in order into what is left, none by too small a part."""
    widths, left = widths.copy(), constraints.usable - constraints.matrix @ widths
    kept, taken = [], []
    wanted = target[order] - widths[order]
    if (constraints.matrix[:, order] @ wanted <= left).all():
        widths[order] = target[order]
        return order, widths
    # one after the other, each with a few entries: plain numbers are quicker here than arrays of a few
    rows = constraints.by_object[order]
    queries, weights, start = rows.indices.tolist(), rows.data.tolist(), rows.indptr.tolist()
    room = left.tolist()
    for place, (chosen, more) in enumerate(zip(order.tolist(), wanted.tolist(), strict=True)):
        entries = range(start[place], start[place + 1])
        possible = min(more, min(room[queries[entry]] / weights[entry] for entry in entries))
        if possible >= PART * more and possible > 0:
            for entry in entries:
                room[queries[entry]] -= possible * weights[entry]
            kept.append(chosen)
            taken.append(possible)
    widths[kept] += taken
    return np.array(kept, np.int64), widths
