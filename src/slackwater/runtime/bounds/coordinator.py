"""The coordinator: decides which widths to grant, from what the queries ask and the log has shown.

Guarantee: if every grant is carried out, believed widths keep every constraint at every moment. A width that
is to be narrowed counts as spent until its agent has said that it has narrowed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slackwater.edge.widths import Bools, Floats, Grants, Ints
from slackwater.plan.adjusting import Adjusting
from slackwater.planners.precision_allocation import allocate
from slackwater.planners.precision_burden import Watched, adjust, fitted_shrink
from slackwater.planners.precision_changes import HORIZON_PERIODS, worthwhile
from slackwater.planners.precision_constraints import Constraints, from_entries, narrowed, uniform
from slackwater.planners.precision_curves import Told, known_curves
from slackwater.runtime.bounds.belief import Belief
from slackwater.runtime.bounds.mirror import Mirror
from slackwater.runtime.bounds.queries import BoundedQuery

LEAD = 1_500_000
"""Microseconds before the end of a period at which `burden` begins (section 4)."""
REFINED_UP_TO = 100_000
"""Objects up to which response curves are refined between their rungs."""
BETWEEN = 2
WORTH = 0.02
"""The share of a width by which it must change to be granted anew."""
HAIR, LEAST = 2.0**-20, 1e-100
"""By how much a grant is narrower that is made again, and how wide it is then at least."""


class Coordinator:
    """Widths of one stream. All that it keeps may be lost: it is learnt anew."""

    def __init__(self, adjusting: Adjusting, rng: np.random.Generator) -> None:
        self._adjusting = adjusting
        self._rng = rng
        self.constraints: Constraints | None = None
        self._prices: Floats | None = None
        self._targets: Floats | None = None
        self._decided = 0
        """The period in which widths were last adjusted."""
        self._counted_from = 0
        self._begins = 0
        """From when on the widths hold that were decided: of `burden`, from the next period on."""
        self._growing: tuple[Ints, Floats] | None = None
        """Objects that are to grow into what others free, and how far."""

    def ask(self, queries: Sequence[BoundedQuery], belief: Belief, *, everything: bool) -> None:
        """Take what queries ask; ``everything``: some query of the stream needs every row of every key."""
        size = belief.size * belief.columns
        ceiling = np.full(size, 0.0 if everything else np.inf)
        rows, columns, weights, limits = [], [], [], []
        count, padding = 0, self._adjusting.padding
        for query in queries:
            entries, ceilings = query.asks()
            for objects, most in ceilings:
                np.minimum.at(ceiling, objects, np.maximum(most - padding, 0.0))
            width = query.granted_width
            for row, column, weight in entries:
                rows.append(row + count)
                columns.append(column)
                weights.append(weight)
                padded = np.zeros(query.matrix.size)
                np.add.at(padded, row, np.abs(weight) * padding)
                limits.append(np.maximum(width - padded, 0.0))
                count += query.matrix.size
        none = np.zeros(0, np.int64)
        self.constraints = from_entries(
            np.concatenate([none, *rows]),
            np.concatenate([none, *columns]),
            np.concatenate([np.zeros(0), *weights]),
            limit=np.concatenate([np.zeros(0), *limits]),
            ceiling=ceiling,
        )
        self._prices = self._targets = self._growing = None

    def decide(self, mirror: Mirror, now: int, *, changed: bool) -> Grants:
        """The grants to be made now; ``changed``: what is asked has changed, or keys have come."""
        constraints, belief = self.constraints, mirror.belief
        if constraints is None or not belief.size:
            return Grants.none()
        self._begins = now
        every = np.arange(belief.size * belief.columns)
        believed = belief.widths(every, now)
        waiting = belief.asked > 0
        # what an object was asked to have is what it will have, if it had no bound at all before
        widths = np.where(np.isinf(believed) & waiting, belief.asked_width, believed)
        asked_for = constraints.shared | np.isfinite(constraints.ceiling)
        overdue = self._overdue(mirror, now) & asked_for
        target = widths.copy()
        target[~asked_for] = np.inf
        fresh = asked_for & np.isinf(widths)
        if fresh.any():
            target = self._begun(constraints, np.where(asked_for, widths, np.inf), fresh)
        fixed = asked_for & ~constraints.shared
        target[fixed] = constraints.ceiling[fixed]
        settled = np.where(np.isinf(target) & constraints.shared, 0.0, target)
        # what is to be narrowed counts as spent, but nobody else is narrowed for its sake
        soon = np.where(waiting, np.minimum(settled, belief.asked_widths(now)), settled)
        period = now // self._adjusting.period
        due = period > self._decided
        must = fixed & (target < widths)
        if constraints.feasible(np.where(asked_for, settled, 0.0), rtol=1e-12):
            if not fresh.any():
                target = self._adjusted(mirror, now, target, waiting, asked_for)
        elif not constraints.feasible(np.where(asked_for, soon, 0.0), rtol=1e-12):
            held = np.where(asked_for, soon, np.inf)
            target = np.where(asked_for, narrowed(constraints, held), target)
            must |= asked_for & (target < widths)
            self._growing = None
        if due and self._adjusting.allocation != "burden":
            self._decided = period
        target[overdue] = _again(belief.asked_widths(now)[overdue])
        return self._grants(belief, widths, target, must & ~waiting | overdue, waiting & ~overdue)

    def _overdue(self, mirror: Mirror, now: int) -> Bools:
        """Objects of which it should long be known that they use what was granted last.

        Their agent was away, or slow, while a wider grant and then this one were made, and got this one only:
        to it, nothing was narrowed. It is granted again, a hair narrower.
        """
        belief = mirror.belief
        since = np.maximum(belief.asked_start, np.repeat(belief.unsure, belief.columns))
        patience = self._adjusting.period + 2 * self._adjusting.tolerance
        waiting = (belief.asked > 0) | mirror.unsaid()
        there = ~np.repeat(mirror.away, belief.columns)
        found: Bools = waiting & there & (now - since > patience)
        return found

    def _begun(self, constraints: Constraints, widths: Floats, fresh: Bools) -> Floats:
        """Widths for objects that have none: equal parts of what the others leave."""
        if fresh[constraints.shared].all():
            return np.where(fresh, uniform(constraints), widths)
        spent = np.where(fresh, 0.0, np.where(np.isinf(widths), 0.0, widths))
        left = np.maximum(constraints.usable - constraints.matrix @ spent, 0.0)
        wanted = constraints.matrix @ fresh.astype(np.float64)
        part = np.divide(left, wanted, out=np.full(len(left), np.inf), where=wanted > 0)
        share = np.minimum(constraints.least_by_object(part), constraints.ceiling)
        return np.where(fresh, share, widths)

    def _adjusted(self, mirror: Mirror, now: int, widths: Floats, waiting: Bools, asked_for: Bools) -> Floats:
        """Widths adjusted to how objects behave, once a period; what waits for room is grown as it comes."""
        constraints = self.constraints
        assert constraints is not None
        manner = self._adjusting
        if manner.allocation == "burden":
            return self._burdened(mirror, now, widths)
        if now // manner.period == self._decided:
            return self._grown(constraints, widths)
        if manner.allocation == "uniform":
            even = np.where(constraints.shared, uniform(constraints), widths)
            growing = np.flatnonzero(constraints.shared & (even > widths))
            self._growing = (growing, even[growing])
            return np.where(waiting, widths, np.minimum(self._grown(constraints, widths), even))
        shared = np.where(constraints.shared, widths, 0.0)
        seconds, period = manner.period / 1e6, HORIZON_PERIODS
        age = np.repeat(np.maximum(now - mirror.heard, 0) / 1e6, mirror.columns)
        told = Told(mirror.lowest, mirror.seconds, mirror.rates, age)
        between = BETWEEN if len(widths) <= REFINED_UP_TO else 0
        curves = known_curves(told, shared, seconds, between)
        costs = np.ones(len(widths))
        allocation = allocate(constraints, curves, costs, self._prices)
        self._prices = allocation.prices
        # nothing is asked of an object whose last answer is still to come
        held = np.where(waiting, widths, allocation.widths)
        found = worthwhile(
            constraints,
            curves,
            costs,
            np.where(constraints.shared, widths, np.inf),
            type(allocation)(held, allocation.prices),
            period * seconds,
        )
        target = widths.copy()
        target[found.narrow] = found.widths[found.narrow]
        self._growing = (found.grow, found.widths[found.grow])
        # room that is there already can be used at once, what is narrowed only when agents have said so
        spent = np.where(constraints.shared, widths, 0.0)
        grown = self._grown(constraints, np.where(asked_for, spent, 0.0))
        target[found.grow] = np.maximum(target[found.grow], grown[found.grow])
        return target

    def _grown(self, constraints: Constraints, widths: Floats) -> Floats:
        """Grow those that wait for room, as far as there is some."""
        if self._growing is None:
            return widths
        objects, targets = self._growing
        widths = widths.copy()
        spent = np.where(constraints.shared & np.isfinite(widths), widths, 0.0)
        left = constraints.usable - constraints.matrix @ spent
        by_object, waiting = constraints.by_object, []
        for chosen, target in zip(objects.tolist(), targets.tolist(), strict=True):
            entries = slice(by_object.indptr[chosen], by_object.indptr[chosen + 1])
            queries, weights = by_object.indices[entries], by_object.data[entries]
            more = target - widths[chosen]
            if more <= 0 or not len(queries):
                continue
            if float((left[queries] / weights).min()) < more:
                waiting.append((chosen, target))
                continue
            widths[chosen] = target
            left[queries] -= more * weights
        kept = np.array([o for o, _ in waiting], np.int64), np.array([t for _, t in waiting])
        self._growing = kept if len(waiting) else None
        return widths

    def _burdened(self, mirror: Mirror, now: int, widths: Floats) -> Floats:
        """The paper's adjustment, begun shortly before the end of a period."""
        constraints, manner = self.constraints, self._adjusting
        assert constraints is not None
        ahead = (now + LEAD) // manner.period
        if ahead <= self._decided:
            return widths
        self._decided = ahead
        self._begins = max(now, ahead * manner.period)
        # what will have gone by then, by the laws that are believed; where bounds are padded, what goes at
        # that very time still counts for a while
        lag = 0 if manner.rate is None else manner.tolerance
        then = mirror.belief.widths(slice(None), self._begins - lag)
        shrink = 1 - np.divide(then, widths, out=np.ones(len(then)), where=(widths > 0) & np.isfinite(widths))
        shrink = np.clip(shrink, 0.0, 1.0)
        elapsed = max((now - self._counted_from) / 1e6, 1e-3)
        self._counted_from = now
        updates = np.repeat(mirror.updates, mirror.columns)
        mirror.updates[:] = 0
        shared = np.where(constraints.shared, widths, constraints.ceiling)
        watched = Watched(shared, updates, np.ones(len(widths)), elapsed)
        found = adjust(constraints, watched, shrink, self._rng, last=self._targets)
        self._targets = found.targets
        target = widths.copy()
        grown = found.grown[constraints.shared[found.grown]]
        target[grown] = found.widths[grown]
        return target

    def shrinks(self, constraints: Constraints) -> Floats:
        """By object: what goes of a width in a period."""
        if self._adjusting.allocation != "burden":
            return np.zeros(constraints.objects)
        fitted = fitted_shrink(constraints)
        chosen = self._adjusting.shrink
        return fitted if chosen is None else np.where(fitted > 0, chosen, 0.0)

    def _grants(self, belief: Belief, widths: Floats, target: Floats, must: Bools, waiting: Bools) -> Grants:
        """Grants for what differs from what is believed; ``must``: however little that is."""
        constraints = self.constraints
        assert constraints is not None
        both_infinite = np.isinf(widths) & np.isinf(target)
        with np.errstate(invalid="ignore"):
            apart = np.abs(target - widths) > WORTH * np.minimum(widths, target)
        chosen = np.flatnonzero(~both_infinite & (apart | must) & ~waiting)
        shrink = self.shrinks(constraints)[chosen]
        count = len(chosen)
        return Grants(
            chosen // belief.columns,
            chosen % belief.columns,
            target[chosen],
            np.full(count, self._begins),
            np.where(np.isfinite(target[chosen]), shrink, 0.0),
            np.full(count, self._adjusting.period),
        )


def _again(widths: Floats) -> Floats:
    """Widths that are a hair narrower, so that whoever has them says so; of 0, a hair wider."""
    return np.where(widths > 0, widths * (1 - HAIR), LEAST)
