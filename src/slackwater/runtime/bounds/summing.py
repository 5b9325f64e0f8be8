"""Which sums agents are to make of their keys, and which of them serve: groups, or one for each query.

A sum is formed, announced by its agent, granted a width, and serves from its first row on. Sums that are only
formed are watched: their agents find out what they would send. Guarantee: sums that serve are given up only
when what replaces them serves.

What is kept here may be lost: it follows again from the log, or is measured anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from slackwater.edge.widths import Bools, Floats, Ints
from slackwater.plan.adjusting import Adjusting
from slackwater.planners.precision_sums import Entries, Structure, structured
from slackwater.runtime.bounds.belief import LiveSum
from slackwater.runtime.bounds.choosing import Choices, Wanted
from slackwater.runtime.bounds.covers import differ
from slackwater.runtime.bounds.mirror import Mirror
from slackwater.runtime.bounds.queries import BoundedQuery
from slackwater.runtime.bounds.tuning import Tuning

SETTLING = 1_000_000
"""Microseconds without new keys of an agent, after which those it has are put together."""
MOST_SHARE = 0.8
"""A sum of this share of a group will do for three periods: keys may come one after the other."""


@dataclass(frozen=True)
class Order:
    """Sums for an agent to make, by their keys, and those to make no longer."""

    agent: str
    members: list[list[int]] = field(default_factory=list)
    scope: list[str] = field(default_factory=list)
    window: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Summed:
    """What is to be in use: sums by their keys."""

    intended: dict[int, LiveSum]
    held: Bools
    """By key: whether it waits for a sum instead of a width."""
    standing: Bools
    """Of those, one for each sum that is waited for, so that room is left for it."""

    def same(self, other: Summed) -> bool:
        """Whether it comes to the same."""
        return self.intended.keys() == other.intended.keys() and np.array_equal(self.held, other.held)

    @staticmethod
    def nothing(keys: int) -> Summed:
        return Summed({}, np.zeros(keys, bool), np.zeros(keys, bool))


class Summing:
    """The sums of one stream."""

    def __init__(self, adjusting: Adjusting, tuning: Tuning) -> None:
        self._adjusting = adjusting
        self._tuning = tuning
        self._structure: Structure | None = None
        self._choices = Choices(tuning)
        self._keys: dict[int, tuple[int, int]] = {}
        """By agent: how many keys it has, and since when."""
        self._count = -1
        self._version = -1
        self._everything = False
        self._look = 0
        """When to look again, even if nothing is heard."""
        self._last: Summed | None = None

    def due(self, mirror: Mirror, now: int, *, everything: bool) -> bool:
        """Whether there may be something to decide."""
        return mirror.sums_version != self._version or now >= self._look or everything != self._everything

    def decide(
        self, queries: Sequence[BoundedQuery], mirror: Mirror, now: int, *, everything: bool, changed: bool
    ) -> tuple[Summed | None, list[Order]]:
        """What is to be in use from now on (None: what was), and what is asked of agents for that."""
        self._version, self._everything = mirror.sums_version, everything
        summed, orders = self._decided(queries, mirror, now, everything=everything, changed=changed)
        period = self._tuning.period
        self._look = now + SETTLING if summed.held.any() or orders else (now // period + 1) * period
        same = not changed and self._last is not None and summed.same(self._last)
        self._last = summed
        return None if same else summed, orders

    def _decided(
        self, queries: Sequence[BoundedQuery], mirror: Mirror, now: int, *, everything: bool, changed: bool
    ) -> tuple[Summed, list[Order]]:
        belief = mirror.belief
        summed = Summed.nothing(belief.size)
        if self._adjusting.sums == "never" or everything:
            return summed, self._dropped(queries, mirror, {}, set())
        owned = int((mirror.announced >= 0).sum())
        if changed or self._structure is None or owned != self._count:
            self._count = owned
            self._structure = _structure(queries, mirror)
            self._note_keys(mirror, now)
        structure = self._structure
        wanted = self._groups(structure, mirror, now, summed)
        wanted += self._choices.wanted(structure, self._rows(queries), mirror, now)
        wanted += self._means(queries, mirror, now)
        orders, kept = self._matched(wanted, mirror, summed.intended)
        return summed, orders + self._dropped(queries, mirror, summed.intended, kept)

    def _rows(self, queries: Sequence[BoundedQuery]) -> list[tuple[str, int]]:
        """The query and row that each row of the structure stands for."""
        return [(q.step.name, row) for q in queries if _by_moment(q) for row in range(q.matrix.size)]

    def _note_keys(self, mirror: Mirror, now: int) -> None:
        plain = np.array([not isinstance(name, dict) for name in mirror.names], bool)
        owner = mirror.announced[plain]
        count = np.bincount(owner[owner >= 0], minlength=len(mirror.agents))
        for place, keys in enumerate(count.tolist()):
            if self._keys.get(place, (-1, 0))[0] != keys:
                self._keys[place] = (keys, now)

    def _groups(self, structure: Structure, mirror: Mirror, now: int, summed: Summed) -> list[Wanted]:
        """The sums of groups of several keys; keys that have no width yet wait for theirs."""
        period = self._tuning.period
        names = {agent.place: name for name, agent in mirror.agents.items()}
        existing = _existing(mirror)
        widths = mirror.belief.asked_width.reshape(mirror.belief.size, mirror.columns)
        wanted = []
        for group in np.flatnonzero(structure.sizes > 1).tolist():
            members = structure.members(group)
            place = int(mirror.announced[members[0]])
            since = self._keys.get(place, (0, 0))[1]
            best = max(
                (n for n in existing.get(place, ()) if _inside(mirror, n, members)),
                key=lambda n: len(mirror.ordered.defined[n].members),
                default=None,
            )
            fresh = members[np.isinf(widths[members]).all(axis=1)]
            some = members if best is None else np.array(mirror.ordered.defined[best].members, np.int64)
            enough = len(some) >= MOST_SHARE * len(members) and now - since < 3 * period
            away = bool(mirror.away[members].any())
            settled = now - since >= SETTLING and not away
            if best is not None and (len(some) == len(members) or enough or not settled):
                wanted.append(Wanted(place, names[place], some, in_use=True))
                waiting = fresh[np.isin(fresh, some)]
            elif settled:
                wanted.append(Wanted(place, names[place], members, in_use=True))
                waiting = fresh
            else:
                waiting = fresh[:0] if away else fresh
            summed.held[waiting] = True
            summed.standing[waiting[:1]] = True
        return wanted

    def _means(self, queries: Sequence[BoundedQuery], mirror: Mirror, now: int) -> list[Wanted]:
        """The means over windows that are all some queries need."""
        if self._adjusting.rates is not None:
            # padded bounds speak of now, and a mean changes all at once at the end of a step
            return []
        names = {agent.place: name for name, agent in mirror.agents.items()}
        others = [q.entries.key for q in queries if q.lenient is None]
        # what is told for its own sake need not be told as a mean too
        told = np.zeros(mirror.belief.size, bool)
        told[np.concatenate([np.empty(0, np.int64), *others])] = True
        wanted = []
        windows = {q.lenient for q in queries if q.lenient is not None}
        for window in sorted(windows):
            some = [q for q in queries if q.lenient == window and (q.ready or not told[q.entries.key].any())]
            structure = _structure(some, mirror, every=True)
            for group in range(structure.groups.groups):
                members = structure.members(group)
                place = int(mirror.announced[members[0]])
                settled = now - self._keys.get(place, (0, 0))[1] >= SETTLING
                # a mean that began before its keys count would hold what is not theirs yet
                settled &= bool(mirror.belief.known[members].all())
                wants = [Wanted(place, names[place], members, window=window, in_use=True)]
                if not self._live(mirror, wants[0]):
                    # what tells a part of them does so until all of them are told together
                    wants = wants if settled and not mirror.away[members].any() else []
                    for number, defined in mirror.ordered.of(names[place]):
                        if defined.window == window and _inside(mirror, number, members):
                            part = np.array(defined.members, np.int64)
                            wants.append(Wanted(place, names[place], part, window=window, in_use=True))
                wanted += wants
        return wanted

    @staticmethod
    def _live(mirror: Mirror, want: Wanted) -> bool:
        return any(
            told.window == want.window and np.array_equal(told.members, want.members)
            for told in mirror.belief.live.values()
        )

    def _matched(
        self, wanted: Sequence[Wanted], mirror: Mirror, intended: dict[int, LiveSum]
    ) -> tuple[list[Order], set[int]]:
        """Find the sums that are there for what is wanted; orders for the rest."""
        defined = {(d.agent, d.members, d.scope, d.window): n for n, d in mirror.ordered.defined.items()}
        orders: dict[str, Order] = {}
        kept: set[int] = set()
        for want in wanted:
            members = tuple(want.members.tolist())
            number = defined.get((want.agent, members, want.scope, want.window))
            if number is None:
                order = orders.setdefault(want.agent, Order(want.agent))
                order.members.append(list(members))
                order.scope.append(want.scope)
                order.window.append(want.window)
                continue
            kept.add(number)
            key = mirror.sum_keys.get(number)
            if not want.in_use or key is None or mirror.announced[key] != want.place:
                continue
            if key in mirror.belief.live or not mirror.away[key]:
                intended[key] = LiveSum(want.members, want.scope, want.window)
        return list(orders.values()), kept

    def _dropped(
        self, queries: Sequence[BoundedQuery], mirror: Mirror, intended: dict[int, LiveSum], kept: set[int]
    ) -> list[Order]:
        """Sums that nobody wants any more, and that serve nobody who has nothing else."""
        belief = mirror.belief
        needed: set[int] = set()
        serving = {key: told for key, told in belief.live.items() if key in intended}
        for query in queries:
            if query.ready and query.means is not None:
                # what means tell nothing else does
                after = query.covered(serving, query.lenient or 0)
                told = query.means.cover.told
                then = np.full(len(told), -1) if after is None else after.told
                keys = query.means.cover.key
                # but for keys that went before the window began: those are nothing, told or not
                left = belief.left[keys] + (query.lenient or 0) <= mirror.queue.released
                left &= ~belief.here[keys]
                needed |= set(np.unique(told[(told >= 0) & (then < 0) & ~left]).tolist())
            if query.cover is None or query.ready:
                continue
            after = query.covered(serving)
            told = query.cover.told
            then = np.full(len(told), -1) if after is None else after.told
            teller = np.where(then >= 0, then, query.cover.key)
            lost = (told >= 0) & (told != then) & ~_ready(mirror, teller) & belief.here[query.cover.key]
            needed |= set(np.unique(told[lost]).tolist())
        orders: dict[str, Order] = {}
        for number, defined in mirror.ordered.defined.items():
            key = mirror.sum_keys.get(number)
            if number in kept and (key is None or key in intended or key not in belief.live):
                continue
            if key is not None and key in needed:
                continue
            # what is wanted on trial and serves still, though something else is to, is formed anew
            orders.setdefault(defined.agent, Order(defined.agent)).dropped.append(number)
        return list(orders.values())


def _structure(queries: Sequence[BoundedQuery], mirror: Mirror, *, every: bool = False) -> Structure:
    """Groups and slots of all queries that sum; ``every``: of those that need no moment too."""
    # what was withdrawn is in no sum
    apart = ~mirror.belief.here
    parts, count = [], 0
    for query in queries:
        entries = query.entries
        if not query.sums_up:
            apart[entries.key] = True
        apart[entries.key] |= query.apart[entries.key]
        if not (every or _by_moment(query)):
            continue
        parts.append(Entries(entries.row + count, entries.key, entries.kind))
        count += query.matrix.size
    return structured(Entries.joined(parts), mirror.announced, apart)


def _by_moment(query: BoundedQuery) -> bool:
    """Whether a query rests on what keys are at every moment, and sums of them will do."""
    return query.sums_up and not query.ready


def _existing(mirror: Mirror) -> dict[int, list[int]]:
    """By agent: the sums that are for any row."""
    found: dict[int, list[int]] = {}
    for number, defined in mirror.ordered.defined.items():
        if not defined.scope and not defined.window and defined.agent in mirror.agents:
            found.setdefault(mirror.agents[defined.agent].place, []).append(number)
    return found


def _inside(mirror: Mirror, number: int, members: Ints) -> bool:
    """Whether a sum is of some keys alone."""
    mine = mirror.ordered.defined[number].members
    return len(mine) <= len(members) and bool(np.isin(mine, members).all())


def _ready(mirror: Mirror, keys: Ints) -> Bools:
    """Which keys and sums tell their rows by themselves: they have told a value since they were asked for it.

    A sum that has served before, and is not asked for now, has told something, and has no bound.
    """
    belief = mirror.belief
    centre = belief.centre.reshape(belief.size, belief.columns)
    finite = np.isfinite(belief.width.reshape(belief.size, belief.columns)[keys])
    told = belief.known[keys] & np.any(~np.isnan(centre[keys]) & finite, axis=1)
    live = np.isin(keys, np.array(list(belief.live), np.int64)) & finite.any(axis=1)
    found: Bools = (live | told) & (belief.unsure[keys] == 0)
    return found


def inherited(
    queries: Sequence[BoundedQuery], intended: dict[int, LiveSum], widths: Floats, columns: int
) -> Floats:
    """By object: the width that it can have without any other being narrowed, where it replaces others.

    Whatever tells a row now has its width split evenly among the keys that it tells; what is to tell them
    gets the sum of those parts, in the row that leaves it least. Infinite where it replaces nothing.
    """
    found = np.full(len(widths), np.inf)
    for query in queries:
        now, then = query.cover, query.covered(intended)
        if not differ(now, then):
            continue
        row, key = query.entries.row, query.entries.key
        teller, next_teller = (key if c is None else np.where(c.told >= 0, c.told, key) for c in (now, then))
        changed, width = next_teller != teller, query.matrix.width
        _, place, count = np.unique(row * width + teller, return_inverse=True, return_counts=True)
        into, inverse = np.unique(row[changed] * width + next_teller[changed], return_inverse=True)
        for column in range(columns):
            share = widths[teller * columns + column] / count[place]
            share = np.where(np.isfinite(share), share, 0.0)[changed]
            total = np.bincount(inverse, share, minlength=len(into))
            objects = into % width * columns + column
            np.minimum.at(found, objects[total > 0], total[total > 0])
    return found
