"""Which keys of an agent can be told as sums: measurement groups, and one sum for each query.

A query that sums needs of an agent only what all its keys that weigh alike are together. Keys that are alike
in every row of every query are a *group*: nothing is lost by telling their sum. The keys of an agent that are
alike in one row are a *slot* of that row; it is made of whole groups. Its sum serves that row alone, with a
width that no other query narrows.

Reference: Olston, Jiang, Widom (SIGMOD 2003), section 5.2: groups by the subset of queries that they are in;
section 5.2.1: source aggregation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from slackwater.planners.precision_constraints import Bools, Ints
from slackwater.planners.precision_grouping import Groups

NOBODY = -1
MEMBERS_AT_MOST = 1 << 16
"""Keys of a sum. Which members have no value is told as one list, so that of a sum without an end would be
one too; what more messages there are for it is nothing beside so many keys."""
Hashes = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Entries:
    """Which rows of queries read which keys, one entry for each; arrays of one length."""

    row: Ints
    key: Ints
    kind: Ints
    """Entries of a row that are of one kind weigh their keys alike."""

    @staticmethod
    def joined(parts: Sequence[Entries]) -> Entries:
        """Those of several queries, one after the other; rows are told apart already."""
        none = np.empty(0, np.int64)
        row, key, kind = (
            np.concatenate([none, *(getattr(part, name) for part in parts)])
            for name in ("row", "key", "kind")
        )
        return Entries(row, key, kind)


@dataclass(frozen=True, eq=False)
class Structure:
    """Groups of keys and slots of rows, of all agents."""

    group_of: Ints
    """By key; -1: it is in none, since nobody reads it, or somebody needs it apart."""
    slot_row: Ints
    """By slot: its row."""
    groups: Groups
    """Which groups make up which slots."""

    @cached_property
    def sizes(self) -> Ints:
        """By group: how many keys it has."""
        return np.bincount(self.group_of[self.group_of >= 0], minlength=self.groups.groups)

    @cached_property
    def _keys(self) -> tuple[Ints, Ints]:
        """Keys in the order of their groups, and where each group begins."""
        return _ordered(self.group_of, self.groups.groups)

    @cached_property
    def _slots(self) -> tuple[Ints, Ints]:
        return _ordered(self.groups.slot, self.groups.slots)

    def members(self, group: int) -> Ints:
        """The keys of a group, in order."""
        order, start = self._keys
        return order[start[group] : start[group + 1]]

    def groups_of(self, slot: int) -> Ints:
        """The groups of a slot."""
        order, start = self._slots
        return self.groups.group[order[start[slot] : start[slot + 1]]]

    def slot_members(self, slot: int) -> Ints:
        """The keys of a slot, in order."""
        return np.sort(np.concatenate([self.members(group) for group in self.groups_of(slot).tolist()]))


def _ordered(numbers: Ints, count: int) -> tuple[Ints, Ints]:
    """Places in the order of their numbers, and where each number from 0 on begins."""
    order = np.argsort(numbers, kind="stable")
    return order, np.searchsorted(numbers[order], np.arange(count + 1))


def structured(entries: Entries, owner: Ints, apart: Bools, at_most: int = MEMBERS_AT_MOST) -> Structure:
    """Groups and slots; by key its agent (-1: nobody), and whether somebody needs it apart.

    Guarantee: keys of one group have the same agent and are read by the same rows, alike in each, but for
    collisions of hashes of 128 bits; `covered` finds those out. A group has at most so many keys: what would
    be larger is cut by the numbers of its keys, so that it stays what it is when others come or go.

    >>> entries = Entries(np.array([0, 0, 0, 1]), np.array([0, 1, 2, 2]), np.zeros(4, np.int64))
    >>> found = structured(entries, np.array([7, 7, 7]), np.zeros(3, bool))
    >>> [found.members(g).tolist() for g in (0, 1)], [found.slot_members(s).tolist() for s in (0, 1)]
    ([[0, 1], [2]], [[0, 1, 2], [2]])
    """
    keys = len(owner)
    kept = (owner[entries.key] != NOBODY) & ~apart[entries.key]
    row, key, kind = entries.row[kept], entries.key[kept], entries.kind[kept]
    signs = np.zeros((keys, 2), np.uint64)
    for place, seed in enumerate((0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)):
        read_as = _mixed(_mixed(row, seed) ^ _mixed(kind, seed ^ 0xFF51AFD7ED558CCD), seed)
        np.add.at(signs[:, place], key, read_as)
    read = np.zeros(keys, bool)
    read[key] = True
    chosen = np.flatnonzero(read)
    table = np.column_stack([owner[chosen].astype(np.uint64), signs[chosen]])
    _, first, label = np.unique(table, axis=0, return_index=True, return_inverse=True)
    # numbered in the order of their first keys
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    group_of = np.full(keys, -1)
    group_of[chosen] = rank[label.ravel()]
    group_of, count = _cut(group_of, len(first), at_most)
    slots, slot = np.unique(np.column_stack([row, kind, owner[key]]), axis=0, return_inverse=True)
    pairs = np.unique(np.column_stack([slot.ravel(), group_of[key]]), axis=0)
    groups = Groups(pairs[:, 0], pairs[:, 1], slots=len(slots), groups=count)
    return Structure(group_of, slots[:, 0] if len(slots) else np.empty(0, np.int64), groups)


def _cut(group_of: Ints, count: int, at_most: int) -> tuple[Ints, int]:
    """Groups of at most so many keys, and how many there are of them.

    >>> _cut(np.array([0, 1, 0, 0, -1, 0]), 2, 2)
    (array([ 0,  1,  2,  2, -1,  3]), 4)
    """
    sizes = np.bincount(group_of[group_of >= 0], minlength=count)
    if sizes.max(initial=0) <= at_most:
        return group_of, count
    key = np.flatnonzero(group_of >= 0)
    piece = np.where(sizes[group_of[key]] > at_most, key // at_most, 0)
    _, first, label = np.unique(
        np.column_stack([group_of[key], piece]), axis=0, return_index=True, return_inverse=True
    )
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    found = group_of.copy()
    found[key] = rank[label.ravel()]
    return found, len(first)


def _mixed(numbers: Ints | Hashes, seed: int) -> Hashes:
    """Numbers that look like chance: the finalizer of MurmurHash3."""
    found = numbers.astype(np.uint64) + np.uint64(seed)
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53)):
        found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
    return found ^ (found >> np.uint64(33))


def covered(entries: Entries, members: Sequence[Ints], scope: Ints) -> Ints:
    """By entry: the sum that tells it, by place, or -1: its key does.

    ``scope`` is by sum the only row that it is for, or -1. Guarantee: where a row is told by a sum, all
    members of the sum are in the row, alike, and no other sum tells any of them to that row. Of sums that
    would do, those for the row alone come first, then larger ones.

    >>> entries = Entries(np.array([0, 0, 0, 1, 1]), np.array([0, 1, 2, 1, 2]), np.zeros(5, np.int64))
    >>> covered(entries, [np.array([0, 1]), np.array([1, 2]), np.array([2])], np.array([-1, 1, -1])).tolist()
    [0, 0, 2, 1, 1]
    """
    found = np.full(len(entries.row), -1)
    if not len(members) or not len(found):
        return found
    sizes = np.array([len(m) for m in members])
    flat, of = np.concatenate(list(members)), np.repeat(np.arange(len(members)), sizes)
    order = np.argsort(flat, kind="stable")
    flat, of = flat[order], of[order]
    first = np.searchsorted(flat, entries.key)
    count = np.searchsorted(flat, entries.key, side="right") - first
    entry = np.repeat(np.arange(len(found)), count)
    begin = np.cumsum(count) - count
    which = of[np.repeat(first - begin, count) + np.arange(len(entry))]
    fits = (scope[which] < 0) | (scope[which] == entries.row[entry])
    entry, which = entry[fits], which[fits]
    codes = entries.row[entry] * len(members) + which
    _, pair, inside = np.unique(codes, return_inverse=True, return_counts=True)
    usable = _usable(pair, inside, sizes, which, entries.kind[entry])
    entry, which, pair = entry[usable[pair]], which[usable[pair]], pair[usable[pair]]
    # by rank: for this row alone, then of many members, then in their order
    ranked = np.lexsort((np.arange(len(members)), -sizes, scope < 0))
    rank = np.empty(len(members), np.int64)
    rank[ranked] = np.arange(len(members))
    while len(entry):
        best = np.full(len(found), len(members))
        np.minimum.at(best, entry, rank[which])
        wins = best[entry] == rank[which]
        won = np.bincount(pair[wins], minlength=len(inside))
        taken = won[pair] == sizes[which]
        found[entry[taken]] = which[taken]
        # a sum that tells a key less than all it is of cannot be used here
        lost = np.zeros(len(inside), bool)
        lost[pair[found[entry] >= 0]] = True
        left = ~lost[pair]
        entry, which, pair = entry[left], which[left], pair[left]
    return found


def _usable(pair: Ints, inside: Ints, sizes: Ints, which: Ints, kind: Ints) -> Bools:
    """By pair of row and sum: whether all members are there, and alike."""
    sum_of = np.zeros(len(inside), np.int64)
    sum_of[pair] = which
    least, most = np.full(len(inside), np.iinfo(np.int64).max), np.full(len(inside), np.iinfo(np.int64).min)
    np.minimum.at(least, pair, kind)
    np.maximum.at(most, pair, kind)
    found: Bools = (inside == sizes[sum_of]) & (least == most)
    return found
