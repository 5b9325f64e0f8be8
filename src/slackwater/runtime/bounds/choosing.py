"""Whether agents tell the groups of their keys, or one sum for each query: by what either would cost.

The paper leaves this choice to future work (section 5.2.1). It is made for each agent and each set of queries
that have groups in common there, from what the agent's filters on trial have counted, and made anew as that
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slackwater.edge.widths import Floats, Ints
from slackwater.planners.precision_changes import HORIZON_PERIODS
from slackwater.planners.precision_curves import Curves, Told, known_curves
from slackwater.planners.precision_grouping import Groups, Priced, chosen, priced
from slackwater.planners.precision_sums import MEMBERS_AT_MOST, Structure
from slackwater.runtime.bounds.covers import scope_of
from slackwater.runtime.bounds.mirror import Mirror
from slackwater.runtime.bounds.tuning import Tuning

SLOTS_AT_MOST = 32
"""Queries that one agent tries sums for, in one set."""
TRIALS_AT_MOST = 20_000
"""Sums on trial, in all."""
WATCHED_PERIODS = 5.0
"""Periods for which a sum must have been watched before its cost is believed."""


_Name = tuple[str, tuple[str, ...]]
"""Of a set: its agent, and the rows that its slots are of."""


@dataclass(frozen=True, eq=False)
class Wanted:
    """A sum that is to be there: watched, or in use."""

    place: int
    agent: str
    members: Ints
    scope: str = ""
    window: int = 0
    in_use: bool = False


@dataclass(frozen=True, eq=False)
class _Set:
    """An agent's slots that have groups in common, with the sums that either way needs."""

    place: int
    agent: str
    local: Groups
    """Which of its groups are in which of its slots."""
    of_slot: tuple[Wanted, ...]
    of_group: tuple[Wanted, ...]
    group_of_slot: tuple[int | None, ...]
    """By slot: the group that has the same members, and so sends the same."""
    slot_of_group: tuple[int | None, ...]

    @property
    def name(self) -> _Name:
        return self.agent, tuple(want.scope for want in self.of_slot)


@dataclass(frozen=True, eq=False)
class _Tellers:
    """What tells a set, or would: the keys of its sums, either way."""

    set: _Set
    slot_keys: Ints
    group_keys: Ints
    by_query: bool

    def asked_for(self, mirror: Mirror, column: int, period: float) -> bool:
        """Whether a column is asked for, and either way has been watched for long enough."""
        used = self.slot_keys if self.by_query else self.group_keys
        widths = mirror.belief.asked_width[used * mirror.columns + column]
        both = np.concatenate([self.slot_keys, self.group_keys]) * mirror.columns + column
        watched = mirror.seconds[both] >= WATCHED_PERIODS * period
        return bool(np.isfinite(widths).all() and watched.all())

    def shares(self, mirror: Mirror, column: int) -> Floats:
        """By slot: the width that its sum has, or would have."""
        used = self.slot_keys if self.by_query else self.group_keys
        widths: Floats = mirror.belief.asked_width[used * mirror.columns + column]
        if self.by_query:
            return widths
        groups = self.set.local
        return np.bincount(groups.slot, widths[groups.group], minlength=groups.slots).astype(np.float64)


class Choices:
    """The sets that are told by query, and when either way was last compared."""

    def __init__(self, tuning: Tuning) -> None:
        self._tuning = tuning
        self._structure: Structure | None = None
        self._sets: list[_Set] = []
        self._by_query: set[_Name] = set()
        self._since: dict[_Name, int] = {}
        """When what a set is told by was last changed, or first asked for."""
        self._compared = 0

    def wanted(
        self, structure: Structure, rows: Sequence[tuple[str, int]], mirror: Mirror, now: int
    ) -> list[Wanted]:
        """The sums that the choice needs: those in use, and those on trial."""
        if structure is not self._structure:
            self._structure = structure
            self._sets = _sets(structure, rows, mirror)
            # what was granted to sums of queries is told by query still
            self._by_query |= {s.name for s in self._sets if _granted(mirror, s)}
        period = now // self._tuning.period
        if period > self._compared:
            self._compared = period
            self._compare(mirror, now)
        found = []
        for one in self._sets:
            if one.name in self._by_query:
                serve = all(_there(mirror, want) for want in one.of_slot)
                found += [replace(want, in_use=serve) for want in one.of_slot]
                twins = one.slot_of_group
                found += [want for want, twin in zip(one.of_group, twins, strict=True) if twin is None]
            else:
                twins = one.group_of_slot
                found += [want for want, twin in zip(one.of_slot, twins, strict=True) if twin is None]
        return found

    def _compare(self, mirror: Mirror, now: int) -> None:
        """Change to what is cheaper, where that has been watched for long enough; all sets at once."""
        seconds, columns = self._tuning.period / 1e6, mirror.columns
        sets = [found for one in self._sets if (found := self._comparable(one, mirror)) is not None]
        by_group, by_query = np.zeros(len(sets)), np.zeros(len(sets))
        known = np.zeros(len(sets), bool)
        for column in range(columns):
            some = [n for n, one in enumerate(sets) if one.asked_for(mirror, column, seconds)]
            if not some:
                continue
            groups = _joined([sets[n].set.local for n in some])
            slots = np.concatenate([sets[n].slot_keys for n in some]) * columns + column
            own = np.concatenate([sets[n].group_keys for n in some]) * columns + column
            shares = np.concatenate([sets[n].shares(mirror, column) for n in some])
            both = priced(
                groups, shares, _curves(mirror, own, now, seconds), _curves(mirror, slots, now, seconds)
            )
            # independent sets are numbered in the order of their first slots
            by_group[some] += both.by_group
            by_query[some] += both.by_query
            known[some] = True
        if not known.any():
            return
        all_groups = _joined([one.set.local for one in sets])
        told = np.array([one.by_query for one in sets], bool)
        costs = Priced(by_group, by_query, np.zeros(all_groups.groups))
        # what has lasted for long will last for as long again
        lasted = [(now - self._since.setdefault(one.set.name, now)) / 1e6 for one in sets]
        horizon = np.maximum(HORIZON_PERIODS * seconds, lasted)
        found_better = chosen(all_groups, costs, told, horizon) != told
        for n in np.flatnonzero(found_better & known).tolist():
            self._by_query ^= {sets[n].set.name}
            self._since[sets[n].set.name] = now

    def _comparable(self, one: _Set, mirror: Mirror) -> _Tellers | None:
        """What tells a set either way; None where something is not there to compare."""
        slot_keys, group_keys = _keys(mirror, one.of_slot), _keys(mirror, one.of_group)
        by_query = one.name in self._by_query
        if by_query:
            _borrow(group_keys, one.slot_of_group, slot_keys)
        else:
            # a group of one key is told by that
            alone = [int(w.members[0]) if len(w.members) == 1 else -1 for w in one.of_group]
            group_keys[group_keys < 0] = np.array(alone, np.int64)[group_keys < 0]
            _borrow(slot_keys, one.group_of_slot, group_keys)
        if (slot_keys < 0).any() or (group_keys < 0).any() or mirror.away[slot_keys].any():
            return None
        return _Tellers(one, slot_keys, group_keys, by_query)


def _sets(structure: Structure, rows: Sequence[tuple[str, int]], mirror: Mirror) -> list[_Set]:
    """The sets in which there is a choice: of several slots that have groups in common."""
    groups = structure.groups
    names = {agent.place: name for name, agent in mirror.agents.items()}
    shared = np.bincount(groups.of_group[np.unique(groups.group)], minlength=groups.sets)
    slots_of = np.bincount(groups.of_slot, minlength=groups.sets)
    entries = np.bincount(groups.of_slot[groups.slot], minlength=groups.sets)
    # where no group is in two slots there is nothing to choose
    open_ones = np.flatnonzero((slots_of > 1) & (slots_of <= SLOTS_AT_MOST) & (entries > shared))
    slots_by, groups_by = _by_set(groups.of_slot, groups.sets), _by_set(groups.of_group, groups.sets)
    entries_by = _by_set(groups.of_slot[groups.slot], groups.sets)
    members = np.bincount(groups.slot, structure.sizes[groups.group], minlength=groups.slots)
    found, trials = [], 0
    for number in open_ones.tolist():
        slots, own, some = slots_by(number), groups_by(number), entries_by(number)
        if members[slots].max() > MEMBERS_AT_MOST:
            continue
        place = int(mirror.announced[structure.members(int(own[0]))[0]])
        agent = names[place]
        trials += len(slots)
        if trials > TRIALS_AT_MOST:
            break
        slot, group = np.searchsorted(slots, groups.slot[some]), np.searchsorted(own, groups.group[some])
        local = Groups(slot, group, slots=len(slots), groups=len(own))
        of_slot = tuple(
            Wanted(place, agent, structure.slot_members(s), scope_of(*rows[int(structure.slot_row[s])]))
            for s in slots.tolist()
        )
        of_group = tuple(Wanted(place, agent, structure.members(g)) for g in own.tolist())
        twins = tuple(_twin(want, of_group) for want in of_slot), tuple(_twin(w, of_slot) for w in of_group)
        found.append(_Set(place, agent, local, of_slot, of_group, *twins))
    return found


def _by_set(labels: Ints, sets: int) -> Callable[[int], Ints]:
    """The places of a label, in order."""
    order = np.argsort(labels, kind="stable")
    start = np.searchsorted(labels[order], np.arange(sets + 1))
    return lambda label: order[start[label] : start[label + 1]]


def _twin(want: Wanted, others: Sequence[Wanted]) -> int | None:
    """The place of another sum of the same members."""
    same = (i for i, other in enumerate(others) if np.array_equal(want.members, other.members))
    return next(same, None)


def _joined(parts: Sequence[Groups]) -> Groups:
    """Slots and groups of several sets, one after the other."""
    slots = np.cumsum([0, *(part.slots for part in parts)])
    groups = np.cumsum([0, *(part.groups for part in parts)])
    slot = np.concatenate([part.slot + first for part, first in zip(parts, slots[:-1], strict=True)])
    group = np.concatenate([part.group + first for part, first in zip(parts, groups[:-1], strict=True)])
    return Groups(slot, group, slots=int(slots[-1]), groups=int(groups[-1]))


def _number(mirror: Mirror, want: Wanted) -> int | None:
    members = tuple(want.members.tolist())
    for number, defined in mirror.ordered.of(want.agent):
        if (defined.scope, defined.window, defined.members) == (want.scope, want.window, members):
            return number
    return None


def _keys(mirror: Mirror, wanted: Sequence[Wanted]) -> Ints:
    """The keys of sums; -1 where there is none yet."""
    numbers = [_number(mirror, want) for want in wanted]
    return np.array([-1 if n is None else mirror.sum_keys.get(n, -1) for n in numbers], np.int64)


def _there(mirror: Mirror, want: Wanted) -> bool:
    return bool(_keys(mirror, [want])[0] >= 0)


def _granted(mirror: Mirror, one: _Set) -> bool:
    """Whether the sums of a set's queries have widths."""
    keys = _keys(mirror, one.of_slot)
    if (keys < 0).any():
        return False
    widths = mirror.belief.asked_width.reshape(-1, mirror.columns)[keys]
    return bool(np.isfinite(widths).any(axis=1).all())


def _borrow(keys: Ints, twins: Sequence[int | None], others: Ints) -> None:
    """Let sums that there are none of stand for by others of the same members."""
    for place, twin in enumerate(twins):
        if keys[place] < 0 and twin is not None:
            keys[place] = others[twin]


def _curves(mirror: Mirror, objects: Ints, now: int, period: float) -> Curves:
    """The response curves of objects."""
    widths: Floats = mirror.belief.asked_width[objects]
    in_use = np.isfinite(widths)
    # that what is on trial is silent says nothing
    heard = mirror.heard[objects // mirror.columns]
    age = np.where(in_use, np.maximum(now - heard, 0) / 1e6, 0.0)
    told = Told(mirror.lowest[objects], mirror.seconds[objects], mirror.rates[objects], age)
    return known_curves(told, np.where(in_use, widths, 0.0), period)
