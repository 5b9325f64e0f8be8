"""The burden allocation of widths: all shrink a little, and who is overburdened gets what that frees.

Reference: Olston, Jiang, Widom: Adaptive Filters for Continuous Queries over Distributed Data Streams (SIGMOD
2003), sections 3.1, 3.2 and 4, appendices A to C. Symbols as there: W widths, N updates, C costs, B burdens,
T targets, D deviations, S the shrink.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slackwater.planners.precision_constraints import Constraints, Floats, Ints
from slackwater.planners.precision_targets import TOLERANCE, burden_targets

MOST_SHRINK = 0.05
"""The paper's, found good for ten objects."""

TURN = 0.5
"""What one object gains in its turn, in mean widths: the paper's ten objects times 0.05."""

NEAR = MOST_SHRINK * (1 - 1e-9)
"""Who lacks less than this share of his ceiling does not grow: it is not worth a message."""


@dataclass(frozen=True, eq=False)
class Watched:
    """What the coordinator has seen of each object since the last adjustment."""

    widths: Floats
    """As they were in force, before the shrink that is due."""
    updates: Floats
    """How many updates came."""
    costs: Floats
    """Of one message of the object."""
    elapsed: float | Floats = 1.0
    """For how long they were counted: the period, or less if the adjustment is begun early."""

    def __post_init__(self) -> None:
        if not self.widths.shape == self.updates.shape == self.costs.shape:
            raise ValueError("There is one width, one number of updates and one cost for each object.")
        if not np.all(np.asarray(self.elapsed) > 0):
            raise ValueError("Updates are counted over a time above 0.")


@dataclass(frozen=True, eq=False)
class Adjustment:
    """What holds from the next period on."""

    widths: Floats
    grown: Ints
    """The objects that have more than they would by shrinking alone: each is owed a message."""
    targets: Floats
    """By query; to start the next adjustment from."""


def adjust(
    constraints: Constraints,
    watched: Watched,
    shrink: float | Floats,
    rng: np.random.Generator,
    *,
    last: Floats | None = None,
) -> Adjustment:
    """The widths of the next period: all shrunk by their share, some of them grown again.

    Guarantee: if the shrunk widths are feasible, so are these, without tolerance, and no object can grow
    any further unless it is near its ceiling. Where a limit has become less, its objects do not grow and
    shrinking goes on; ``narrowed`` sees to it at once. Objects in no row have their ceiling, and neither
    shrink nor count.

    Variant: the paper's greedy pass, exactly sequential, ties in random order. Departures: (1) an object at
    its ceiling, or of width 0, does not count for the targets. Its burden says what its own bound costs,
    not what a query's width is worth. The paper has a query of its own there, whose target takes up
    whatever burden the object has, so that it is never overburdened however far below its ceiling it is.
    (2) An object of width 0 that sent updates comes first; one that sent none has burden 0. (3) Leftovers
    that only rounding has left are none: no message goes out for them. (4) For the same reason nobody grows
    who lacks less than a twentieth of his ceiling, where the paper sends him what each shrink took.

    Begun early, before the period ends, it takes what was counted until then over the time that it took,
    and the widths in force; the result holds from the end of the period.

    >>> from slackwater.planners.precision_constraints import average, constrained
    >>> three = constrained([average([0, 1, 2], 10)], 4)
    >>> watched = Watched(np.array([10.0, 10.0, 10.0, 7.0]), np.array([0, 4, 1, 0]), np.ones(4))
    >>> found = adjust(three, watched, 0.1, np.random.default_rng(1))
    >>> found.widths.round(6).tolist(), found.grown.tolist(), found.targets.round(6).tolist()
    ([9.0, 12.0, 9.0, inf], [1, 3], [0.166667])
    """
    B = burdens(watched)  # noqa: N806 - the paper's symbols
    W = watched.widths  # noqa: N806
    counted = np.isfinite(B) & (W > 0) & (constraints.ceiling > W)
    targets = burden_targets(constraints, B, counted, last)
    shrunk = np.where(constraints.shared, W * (1 - np.asarray(shrink)), W)
    free = ~constraints.shared
    widths, grown = grow(constraints, shrunk, deviations(constraints, B, targets), rng, near=NEAR)
    widths[free] = constraints.ceiling[free]
    grown = np.concatenate([grown, np.flatnonzero(free & (widths > W))])
    return Adjustment(widths, np.sort(grown), targets)


def burdens(watched: Watched) -> Floats:
    """What each object's updates cost in a unit of time, for each unit of its width: C·N / (T·W).

    >>> burdens(Watched(np.array([2.0, 0.0, 0.0]), np.array([3, 1, 0]), np.ones(3), elapsed=10)).tolist()
    [0.15, inf, 0.0]
    """
    spent = watched.costs * watched.updates / watched.elapsed
    found = np.where(spent > 0, np.inf, 0.0)
    return np.divide(spent, watched.widths, out=found, where=(spent > 0) & (watched.widths > 0))


def deviations(constraints: Constraints, burdens: Floats, targets: Floats) -> Floats:
    """How far each object's burden is above the targets of its queries by their weights; 0 if it is not."""
    over = burdens - constraints.by_object @ targets
    # the targets are known to the solver's tolerance only: what is less is a tie
    known = 10 * TOLERANCE * (burdens + constraints.by_object @ np.abs(targets))
    return np.where(np.isinf(burdens) | (over > known), np.maximum(over, 0.0), 0.0)


def grow(
    constraints: Constraints,
    widths: Floats,
    deviations: Floats,
    rng: np.random.Generator,
    *,
    near: float = 0.0,
) -> tuple[Floats, Ints]:
    """The widths after one greedy pass in falling deviation, and the objects that have grown.

    Guarantee: the same as taking all objects one by one, each growing by all that its queries have left.
    Variant: an object that grows exhausts a query, and all objects of that are out, so that there is no more
    than one turn for each query; or it reaches its ceiling, and such ones are taken many at a time. Who
    lacks no more than the share ``near`` of his ceiling stays as he is.

    >>> from slackwater.planners.precision_constraints import constrained, total
    >>> two = constrained([total([0, 1], 9), total([1, 2], 5)], 3)
    >>> over, rng = np.array([1.0, 7.0, 0.0]), np.random.default_rng(1)
    >>> widths, grown = grow(two, np.array([4.0, 2.0, 2.0]), over, rng)
    >>> widths.round(6).tolist(), grown.tolist()
    ([6.0, 3.0, 2.0], [1, 0])
    """
    queue = _Queue(constraints, widths, constraints.ceiling * (1 - near), deviations, rng)
    at, run = queue.next(0), 1
    grown = [np.zeros(0, np.int64)]
    while at >= 0:
        chosen = queue.chosen(at, run)
        if run == 1:
            capped = queue.take(int(chosen[0]))
        else:
            capped = queue.cap(chosen)
            if not capped:
                run //= 2
                continue
        grown.append(chosen)
        at, run = queue.next(at + run), 2 * run if capped else 1
    return queue.widths, np.concatenate(grown)


class _Queue:
    """The objects that can still grow, in order, and what their queries have left."""

    def __init__(
        self,
        constraints: Constraints,
        widths: Floats,
        below: Floats,
        deviations: Floats,
        rng: np.random.Generator,
    ) -> None:
        self.widths = widths.copy()
        self._constraints = constraints
        self._nothing = constraints.rounding * constraints.limit
        self._left = constraints.usable - constraints.matrix @ widths
        self._left[self._left <= self._nothing] = 0.0
        able = constraints.shared & (constraints.least_by_object(self._left) > 0)
        order = rng.permutation(np.flatnonzero(able & (widths < below)))
        self._order = order[np.argsort(-deviations[order], kind="stable")]
        # 1 by place in the order while the object can grow; objects not in it have the place behind its end
        self._waiting = bytearray(b"\1" * len(order) + b"\0")
        self._flags = np.frombuffer(self._waiting, dtype=np.uint8)
        self._place = np.full(constraints.objects, len(order))
        self._place[self._order] = np.arange(len(order))

    def next(self, place: int) -> int:
        """The place of the first that can still grow, from here on; -1 if there is none."""
        return self._waiting.find(1, place)

    def chosen(self, place: int, run: int) -> Ints:
        """Those of so many from this place on that can still grow."""
        found: Ints = self._order[place + np.flatnonzero(self._flags[place : place + run])]
        return found

    def take(self, chosen: int) -> bool:
        """Let one grow by all that is left; whether its ceiling stopped it."""
        by_object = self._constraints.by_object
        entries = slice(by_object.indptr[chosen], by_object.indptr[chosen + 1])
        queries, weights = by_object.indices[entries].astype(np.int64), by_object.data[entries]
        ceiling = self._constraints.ceiling[chosen]
        possible = float((self._left[queries] / weights).min())
        capped = bool(ceiling - self.widths[chosen] <= possible)
        gain = ceiling - self.widths[chosen] if capped else possible
        self.widths[chosen] = ceiling if capped else self.widths[chosen] + gain
        self._spend(queries, gain * weights)
        return capped

    def cap(self, chosen: Ints) -> bool:
        """Let all of them grow to their ceilings, if there is enough left for that."""
        ceiling = self._constraints.ceiling[chosen]
        needed = self._constraints.by_object[chosen].T @ (ceiling - self.widths[chosen])
        if not (needed <= self._left).all():
            return False
        self.widths[chosen] = ceiling
        queries = np.flatnonzero(needed)
        self._spend(queries, needed[queries])
        return True

    def _spend(self, queries: Ints, amounts: Floats) -> None:
        matrix = self._constraints.matrix
        self._left[queries] -= amounts
        for query in queries[self._left[queries] <= self._nothing[queries]]:
            self._left[query] = 0.0
            members = matrix.indices[matrix.indptr[query] : matrix.indptr[query + 1]]
            self._flags[self._place[members]] = 0


def fitted_shrink(constraints: Constraints, *, most: float = MOST_SHRINK, turn: float = TURN) -> Floats:
    """The share by which each object's width is to shrink in a period; 0 for those whose width is fixed.

    Guarantee: the width that a query's objects give up in a period is at most ``turn`` times their mean width
    (were they equally wide), and no share is above ``most``.

    Reason: what a query frees goes, but for a rest, to one object, and n objects wait n periods for a turn.
    With a shrink of S an object has (1-S)^n of its width left by then, and gains S·n mean widths at once. So
    it is S·n that must not be large: the paper's 0.05 lets 10 objects lose 40 % between turns and 190 all
    they have. S·n = 0.5 is the paper's own setting for its ten. Measured on 190 hosts (one AVG, messages a
    step; uniform 20.2): 58 at S·n = 9.5, 19.3 at 1.9, 18.5 at 0.95, 18.4 at 0.5, 18.6 at 0.25, 18.9 at 0.11;
    updates of 10, 50 and 200 random walks, over the static optimum's: 3.0, 2.1, 2.0 at S·n = 2, 1.6, 1.3, 1.3
    at 1, 1.26, 1.10, 1.14 at 0.5, 1.2, 1.07, 1.07 at 0.25.
    Less of it is closer to the optimum in the long run and slower to follow what changes: 1/S periods. An
    object of several queries goes by the largest, or that one would free too much. The paper leaves
    choosing S to future work (section 5).

    >>> from slackwater.planners.precision_constraints import average, constrained
    >>> two = constrained([average(range(10), 1), average(range(9, 109), 1)], 110)
    >>> fitted_shrink(two)[[0, 9, 108, 109]].tolist()
    [0.05, 0.005, 0.005, 0.0]
    """
    largest = -constraints.least_by_object(-constraints.sizes.astype(np.float64))
    return np.where(constraints.shared, np.minimum(most, turn / largest), 0.0)
