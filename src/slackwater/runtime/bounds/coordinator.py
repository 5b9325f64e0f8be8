"""The coordinator: decides which widths to grant, from what the queries ask and the log has shown.

Guarantee: if every grant is carried out, believed widths keep every constraint at every moment. A width that
is to be narrowed counts as spent until its agent has said that it has narrowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from slackwater.edge.shadows import RUNGS
from slackwater.edge.widths import TOLD, Bools, Floats, Grants, Ints
from slackwater.plan.adjusting import PERIOD, Adjusting
from slackwater.planners.precision_allocation import Allocation, allocate
from slackwater.planners.precision_burden import Watched, adjust
from slackwater.planners.precision_changes import horizons, worthwhile
from slackwater.planners.precision_constraints import Constraints, narrowed, uniform
from slackwater.planners.precision_curves import Curves, Told, known_curves, refinement
from slackwater.runtime.bounds.altering import Altered
from slackwater.runtime.bounds.belief import Belief
from slackwater.runtime.bounds.constraining import constrained
from slackwater.runtime.bounds.mirror import Mirror
from slackwater.runtime.bounds.queries import BoundedQuery
from slackwater.runtime.bounds.summing import Summed, inherited
from slackwater.runtime.bounds.tuning import Tuning

LEAD = 1_500_000
"""Microseconds before the end of a period at which `burden` begins (section 4)."""
WORTH = 0.02
"""The share of a width by which it must change to be granted anew."""
KEPT = 1e-9
"""What is kept back of a width that is handed on: sums of floats may lose a little."""
STEADY = 3
"""Periods for which widths are not adjusted while sums are replaced."""
BEYOND = 20
"""Octaves above equal widths at which a ladder says nothing of them."""
HAIR, LEAST = 2.0**-20, 1e-100
"""By how much a grant is narrower that is made again, and how wide it is then at least."""


class Coordinator:
    """Widths of one stream. All that it keeps may be lost: it is learnt anew."""

    def __init__(self, adjusting: Adjusting, rng: np.random.Generator) -> None:
        self._adjusting = adjusting
        self.tuning = Tuning(adjusting)
        self._rng = rng
        self.constraints: Constraints | None = None
        """What is enforced, by narrowing bounds where it must be."""
        self._tighter: Constraints | None = None
        """What bounds do not grow beyond while they shrink to it by themselves."""
        self._altered = Altered()
        self._asked: tuple[Sequence[BoundedQuery], bool] = ((), False)
        self._prices: Floats | None = None
        self._targets: Floats | None = None
        self._decided = 0
        """A time in the period in which widths were last adjusted."""
        self._made = 0
        """Grants since the last period of `burden`, and acknowledgements that they ask for."""
        self._counted_from = 0
        self._begins = 0
        """From when on the widths hold that were decided: of `burden`, from the next period on."""
        self._growing: tuple[Ints, Floats] | None = None
        """Objects that are to grow into what others free, and how far."""
        self._held: Bools = np.zeros(0, bool)
        """Objects whose keys wait for a sum: they are granted nothing."""
        self._summed = Summed.nothing(0)
        self._changing = False
        """Whether other sums are to tell queries their keys than do now."""
        self._steady = 0
        """When that was last not so."""

    def ask(
        self,
        queries: Sequence[BoundedQuery],
        belief: Belief,
        summed: Summed | None = None,
        *,
        everything: bool = False,
    ) -> None:
        """Take what queries ask; ``everything``: some query of the stream needs every row of every key.

        While other sums are to tell a query its keys than do, it asks for both: of what tells them now, and
        of what will.
        """
        self._summed = Summed.nothing(belief.size) if summed is None else summed
        self._asked = queries, everything
        self._altered.take(queries)
        self._build(belief)

    def _build(self, belief: Belief) -> None:
        self.constraints, self._tighter = self._constraints(belief, self._altered.enforced), None
        if self._shrinking and self._altered.tighter:
            self._tighter = self._constraints(belief, self._altered.least)
            # what has its ceiling and shares nothing does not shrink
            own = np.where(self.constraints.shared, self.constraints.ceiling, self._tighter.ceiling)
            self.constraints = replace(self.constraints, ceiling=own)
        self._held = np.repeat(self._summed.held, belief.columns)
        self._prices = self._targets = self._growing = None

    @property
    def _shrinking(self) -> bool:
        """Whether widths shrink by themselves."""
        return self._adjusting.allocation == "burden" and self._adjusting.shrink != 0

    def _constraints(self, belief: Belief, promised: Callable[[BoundedQuery], float]) -> Constraints:
        queries, everything = self._asked
        found = constrained(queries, belief, self._summed, promised, self._adjusting.padding, everything)
        self._changing = found.changing
        return found.constraints

    def _enforce(self, belief: Belief, now: int) -> bool:
        """Enforce what was altered and is due; whether some of it is tighter, at an adjustment."""
        altered = self._altered
        if not (altered.looser or altered.tighter):
            return False
        begun = now + LEAD if self._adjusting.allocation == "burden" else now
        due = self._ended(begun)
        reached = self._tighter is not None and self._reached(self._tighter, belief.widths(slice(None), now))
        if not due and not reached:
            return False
        tighter = reached or (altered.tighter and not self._shrinking)
        altered.enforce(tighter=tighter)
        self._build(belief)
        return tighter and not reached

    @staticmethod
    def _reached(constraints: Constraints, widths: Floats) -> bool:
        """Whether widths have shrunk to what is asked."""
        asked_for = constraints.shared | np.isfinite(constraints.ceiling)
        return constraints.feasible(np.where(asked_for, widths, 0.0), rtol=1e-12)

    def decide(self, mirror: Mirror, now: int, *, changed: bool) -> Grants:
        """The grants to be made now; ``changed``: what is asked has changed, or keys have come."""
        belief = mirror.belief
        if self.constraints is None or not belief.size:
            return Grants.none()
        if not self._changing:
            self._steady = now
        tightened = self._enforce(belief, now)
        constraints = self.constraints
        self._begins = now
        every = np.arange(belief.size * belief.columns)
        # where bounds are padded, answers count what has shrunk just now as it was before, for a while
        believed = belief.widths(every, now - self._adjusting.lag)
        waiting = belief.asked > 0
        # what only told whether it is there has no width yet that could be shared
        believed = np.where(constraints.shared & (believed >= TOLD), np.inf, believed)
        # what an object was asked to have is what it will have, if it had no bound at all before
        widths = np.where(np.isinf(believed) & waiting, belief.asked_width, believed)
        asked_for = constraints.shared | np.isfinite(constraints.ceiling)
        overdue = self._overdue(mirror, now) & asked_for
        target = widths.copy()
        target[~asked_for] = np.inf
        fresh = asked_for & np.isinf(widths)
        if fresh.any():
            held = np.where(asked_for, widths, np.inf)
            if self._changing:
                # what replaces others takes over their width
                over = inherited(self._asked[0], self._summed.intended, widths, belief.columns) * (1 - KEPT)
                heirs = fresh & np.isfinite(over)
                held[heirs] = np.minimum(over, constraints.ceiling)[heirs]
                target = held
            if (rest := fresh & np.isinf(held)).any():
                target = self._begun(self._tighter or constraints, held, rest)
        fixed = asked_for & ~constraints.shared
        target[fixed] = constraints.ceiling[fixed]
        settled = np.where(np.isinf(target) & constraints.shared, 0.0, target)
        # what is to be narrowed counts as spent, but nobody else is narrowed for its sake
        soon = np.where(waiting, np.minimum(settled, belief.asked_widths(now)), settled)
        self.tuning.fit(mirror, constraints)
        due = self._ended(now)
        must = fixed & (target < widths)
        if constraints.feasible(np.where(asked_for, settled, 0.0), rtol=1e-12):
            # while something is replaced all stays as it is, though not for long
            if not fresh.any() and not (self._changing and now - self._steady < STEADY * self.tuning.period):
                target = self._adjusted(mirror, now, target, waiting, asked_for)
        elif not constraints.feasible(np.where(asked_for, soon, 0.0), rtol=1e-12):
            held = np.where(asked_for, soon, np.inf)
            # at an adjustment at once to what is best, else by equal shares
            best = self._best(mirror, now, soon) if tightened else held
            target = np.where(asked_for, narrowed(constraints, np.minimum(held, best)), target)
            must |= asked_for & (target < widths)
            growing = np.flatnonzero(tightened & constraints.shared & ~waiting & (best > widths))
            self._growing = (growing, best[growing]) if len(growing) else None
        if due and self._adjusting.allocation != "burden":
            self._decided = now
        slower = self.tuning.slower(constraints, belief) & ~waiting & (target <= widths)
        target[slower] *= 1 - HAIR
        must |= slower
        target[overdue] = _again(belief.asked_widths(now)[overdue])
        # what nobody asks for any more need not answer first
        later = (waiting & asked_for | self._held) & ~overdue
        return self._grants(belief, widths, target, must & ~waiting | overdue, later)

    def _overdue(self, mirror: Mirror, now: int) -> Bools:
        """Objects of which it should long be known that they use what was granted last.

        Their agent was away, or slow, while a wider grant and then this one were made, and got this one only:
        to it, nothing was narrowed. It is granted again, a hair narrower.
        """
        belief = mirror.belief
        since = np.maximum(belief.asked_start, np.repeat(belief.unsure, belief.columns))
        patience = min(self.tuning.period, PERIOD) + 2 * self._adjusting.tolerance
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
        if not self._ended(now):
            return self._grown(constraints, widths)
        if manner.allocation == "uniform":
            even = np.where(constraints.shared, uniform(constraints), widths)
            growing = np.flatnonzero(constraints.shared & (even > widths))
            self._growing = (growing, even[growing])
            return np.where(waiting, widths, np.minimum(self._grown(constraints, widths), even))
        shared = np.where(constraints.shared, widths, 0.0)
        belief, seconds = mirror.belief, self.tuning.period / 1e6
        costs = mirror.costs()
        curves, allocation = self._allocated(mirror, now, widths, costs)
        lasted = np.where(belief.newest > 0, np.maximum(now - belief.asked_start, 0) / 1e6, 0.0)
        # nothing is asked of an object whose last answer is still to come
        held = np.where(waiting, widths, allocation.widths)
        found = worthwhile(
            constraints,
            curves,
            costs,
            np.where(constraints.shared, widths, np.inf),
            type(allocation)(held, allocation.prices),
            horizons(constraints, curves, shared, seconds, lasted),
        )
        target = widths.copy()
        target[found.narrow] = found.widths[found.narrow]
        self._growing = (found.grow, found.widths[found.grow])
        # room that is there already can be used at once, what is narrowed only when agents have said so
        spent = np.where(constraints.shared, widths, 0.0)
        grown = self._grown(constraints, np.where(asked_for, spent, 0.0))
        target[found.grow] = np.maximum(target[found.grow], grown[found.grow])
        return target

    def _allocated(
        self, mirror: Mirror, now: int, widths: Floats, costs: Floats
    ) -> tuple[Curves, Allocation]:
        """The response curves as they are known, and the widths that cost least by them."""
        constraints = self.constraints
        assert constraints is not None
        age = np.repeat(np.maximum(now - mirror.heard, 0) / 1e6, mirror.columns)
        told = _of_use(Told(mirror.lowest, mirror.seconds, mirror.rates, age), constraints)
        shared = np.where(constraints.shared, widths, 0.0)
        curves = known_curves(told, shared, self.tuning.period / 1e6, refinement(len(widths)))
        allocation = allocate(constraints, curves, costs, self._prices)
        self._prices = allocation.prices
        return curves, allocation

    def _best(self, mirror: Mirror, now: int, widths: Floats) -> Floats:
        """The widths that an adjustment aims at; infinite where they are nobody's choice."""
        constraints = self.constraints
        assert constraints is not None
        if self._adjusting.allocation == "curves":
            best = self._allocated(mirror, now, widths, mirror.costs())[1].widths
        else:
            best = uniform(constraints) if self._adjusting.allocation == "uniform" else widths
        return np.where(constraints.shared, best, np.inf)

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
        constraints, manner = self._tighter or self.constraints, self._adjusting
        assert constraints is not None
        if not self._ended(now + LEAD):
            return widths
        ahead = (now + LEAD) // self.tuning.period * self.tuning.period
        self._decided = ahead
        self._begins = max(now, ahead)
        # what will have gone by then, by the laws that are believed; where bounds are padded, what goes at
        # that very time still counts for a while
        then = mirror.belief.widths(slice(None), self._begins - manner.lag)
        shrink = 1 - np.divide(then, widths, out=np.ones(len(then)), where=(widths > 0) & np.isfinite(widths))
        shrink = np.clip(shrink, 0.0, 1.0)
        elapsed = max((now - self._counted_from) / 1e6, 1e-3)
        self._counted_from = now
        self.tuning.ended(float(mirror.updates.sum()) + self._made, constraints)
        self._made = 0
        updates = np.repeat(mirror.updates, mirror.columns)
        mirror.updates[:] = 0
        shared = np.where(constraints.shared, widths, constraints.ceiling)
        watched = Watched(shared, updates, mirror.costs(), elapsed)
        found = adjust(constraints, watched, shrink, self._rng, last=self._targets)
        self._targets = found.targets
        target = widths.copy()
        grown = found.grown[constraints.shared[found.grown]]
        target[grown] = found.widths[grown]
        return target

    def _ended(self, now: int) -> bool:
        """Whether a period has ended since widths were last adjusted, whatever its length is by now."""
        return now // self.tuning.period > self._decided // self.tuning.period

    def _grants(self, belief: Belief, widths: Floats, target: Floats, must: Bools, waiting: Bools) -> Grants:
        """Grants for what differs from what is believed; ``must``: however little that is."""
        constraints = self.constraints
        assert constraints is not None
        both_infinite = np.isinf(widths) & np.isinf(target)
        with np.errstate(invalid="ignore"):
            apart = np.abs(target - widths) > WORTH * np.minimum(widths, target)
        chosen = np.flatnonzero(~both_infinite & (apart | must) & ~waiting)
        shrink = self.tuning.shrinks(constraints)[chosen]
        count = len(chosen)
        self._made += count + int((target[chosen] < widths[chosen]).sum())
        return Grants(
            chosen // belief.columns,
            chosen % belief.columns,
            target[chosen],
            np.full(count, self._begins),
            np.where(np.isfinite(target[chosen]), shrink, 0.0),
            np.full(count, self.tuning.period),
        )


def _again(widths: Floats) -> Floats:
    """Widths that are a hair narrower, so that whoever has them says so; of 0, a hair wider."""
    return np.where(widths > 0, widths * (1 - HAIR), LEAST)


def _of_use(told: Told, constraints: Constraints) -> Told:
    """What was told, but for ladders that begin beyond all widths that objects can have.

    So it is where values were only counted before: at widths that leave nothing out but that there is one.
    They count as never told, and their ladders lie about what equal widths would be.
    """
    even = np.where(constraints.shared, uniform(constraints), 1.0)
    octave = np.frexp(np.maximum(even, np.finfo(np.float64).tiny))[1].astype(np.int64)
    strange = constraints.shared & ((told.seconds == 0) | (told.lowest > octave + BEYOND))
    if not strange.any():
        return told
    return Told(
        np.where(strange, octave - RUNGS // 2, told.lowest),
        np.where(strange, 0.0, told.seconds),
        np.where(strange[:, None], 0.0, told.rates),
        told.age,
    )
