"""Sums that an agent makes of its keys, so that what nobody asks for apart is told as one object.

A sum is a key like others: its value, by column, is the sum of what its members have, and it has filters of
its own. Guarantee: the value is the double nearest to the exact sum, however many members there are and
however they change, so that no rounding adds up. It is infinite where no double can hold the sum: it is told
to have a value and no bound then. A member without a value adds nothing, and is told of.

Reference: Olston, Jiang, Widom (SIGMOD 2003), section 5.2.1: measurement groups and source aggregation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slackwater.edge.messages import SumName
from slackwater.edge.widths import Floats, Ints

ANEW_UP_TO = 256
"""Members up to which a sum is added up anew at every change; beyond, changes are added to it."""
_UNIT = 1074
"""Every double is a whole number of times 2 to the power of minus this."""
SCALE = 1 << _UNIT

Absent = list[list[int]]
"""By column: which members have no value, by their places in the sum."""


def exact(value: float) -> int:
    """A double as a whole number of the smallest double.

    >>> exact(1.5) == 3 * exact(0.5)
    True
    """
    numerator, denominator = value.as_integer_ratio()
    return numerator * (SCALE // denominator)


class Sums:
    """The sums of one agent, by its own numbers of keys."""

    def __init__(self) -> None:
        self._number: dict[int, int] = {}
        """By the hub's number of a sum: the number of its key here."""
        self._members: dict[int, Ints] = {}
        """By number of the sum's key."""
        self.window: dict[int, int] = {}
        """Over how many microseconds each is the mean; 0: it is what its members are now."""
        self._exact: dict[int, list[int]] = {}
        """Of large sums: what each column adds up to, exactly; built when first needed."""
        self._told: dict[int, Absent] = {}
        """The absent members as they were last told."""
        self._of: NDArray[np.int64] = np.empty(0, np.int64)
        self._start: NDArray[np.int32] = np.zeros(1, np.int32)

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, number: int) -> bool:
        return number in self._members

    def set(self, told: Sequence[Sequence[Any]], number_of: Callable[[SumName], int]) -> tuple[Ints, Ints]:
        """Make these sums and no others, each given by its number, members and window.

        What began, and what ended.
        """
        wanted = {int(number): (members, int(window)) for number, members, window in told}
        ended = [self._number.pop(number) for number in list(self._number) if number not in wanted]
        fresh = []
        for number, (members, window) in wanted.items():
            if number not in self._number:
                key = self._number[number] = number_of(SumName(number))
                self._members[key] = np.array(members, np.int64)
                self.window[key] = window
                fresh.append(key)
        for key in ended:
            for held in (self._members, self._exact, self._told, self.window):
                held.pop(key, None)
        self._index()
        return np.array(fresh, np.int64), np.array(ended, np.int64)

    def _index(self) -> None:
        """For each key the sums that it is in, one after the other."""
        members = list(self._members.values())
        keys = np.concatenate([np.empty(0, np.int64), *members])
        sums = np.repeat(np.array(list(self._members), np.int64), [len(m) for m in members])
        order = np.argsort(keys, kind="stable")
        self._of = sums[order]
        size = int(keys.max(initial=-1)) + 2
        self._start = np.searchsorted(keys[order], np.arange(size)).astype(np.int32)

    def of(self, keys: Ints) -> Ints:
        """The sums that some keys are in."""
        keys = keys[keys < len(self._start) - 1]
        if len(keys) == 1:
            first, last = self._start[keys[0] : keys[0] + 2].tolist()
            return self._of[first:last]
        first, count = self._start[keys], np.diff(self._start)[keys]
        begin = np.cumsum(count) - count
        found: Ints = np.unique(self._of[np.repeat(first - begin, count) + np.arange(int(count.sum()))])
        return found

    def rows(self, sums: Ints, values: Floats) -> Floats:
        """What sums are, by column, from the values of all keys by column."""
        found = np.empty((len(sums), values.shape[1]))
        for place, key in enumerate(sums.tolist()):
            self._exact.pop(key, None)
            found[place] = _added(values[self._members[key]])
        return found

    def changed(self, key: int, before: Sequence[float], after: Sequence[float], values: Floats) -> Floats:
        """`rows` of the sums of one key, whose values were others before."""
        sums = self.of(np.array([key]))
        found = np.empty((len(sums), values.shape[1]))
        plain = not any(b != b or a != a for b, a in zip(before, after, strict=True))
        for place, number in enumerate(sums.tolist()):
            members = self._members[number]
            if len(members) <= ANEW_UP_TO or not plain:
                self._exact.pop(number, None)
                found[place] = _added(values[members])
                continue
            totals = self._exact.get(number)
            if totals is None:
                self._exact[number] = totals = _exactly(values[members])
            else:
                for column, (b, a) in enumerate(zip(before, after, strict=True)):
                    totals[column] += exact(a) - exact(b)
            for column, total in enumerate(totals):
                there = not np.isnan(values[members, column]).all() if total == 0 else True
                found[place, column] = _nearest(total) if there else np.nan
        return found

    def absent(self, sum_: int, values: Floats) -> Absent | None:
        """The members of a sum that have no value, if that is not what was last told."""
        gone = np.isnan(values[self._members[sum_]])
        found = [np.flatnonzero(column).tolist() for column in gone.T]
        if found == self._told.get(sum_):
            return None
        self._told[sum_] = found
        return found


def _added(block: Floats) -> list[float]:
    """The sums of columns, nearest to the exact ones; NaN where there is no value at all."""
    found = []
    for column in block.T:
        there = column[~np.isnan(column)]
        found.append(_sum(there) if len(there) else math.nan)
    return found


def _sum(values: Floats) -> float:
    try:
        return math.fsum(values)
    except OverflowError:
        return _nearest(sum(exact(v) for v in values.tolist()))


def _exactly(block: Floats) -> list[int]:
    return [sum(exact(v) for v in column[~np.isnan(column)].tolist()) for column in block.T]


def _nearest(total: int) -> float:
    """The double nearest to an exact sum; infinite where it is beyond all of them."""
    try:
        return total / SCALE
    except OverflowError:
        return math.inf if total > 0 else -math.inf
