"""The keys of an agent: their names and numbers, in some thirty bytes each.

An agent may have a million keys. As Python objects in a dict they would take five times as much, more than
their filters do.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator

import numpy as np

from slackwater.edge.messages import Key, Message, Scalar, SumName, parts_of
from slackwater.edge.widths import Ints

KEYS_PER_MESSAGE = 10_000
BYTES_PER_MESSAGE = 1 << 20
_TEXT, _PARTS, _SUM = b"t", b"p", b"s"


class Keys:
    """Keys, numbered from 0 in the order in which they came. Numbers are equal as Python has it: 1 is 1.0."""

    def __init__(self) -> None:
        self._names = bytearray()
        """All names, one after the other."""
        self._ends = array("q", [0])
        self._table = array("i", [-1]) * 64
        """Numbers by the hash of their name, those that collide behind one another; -1: free."""

    def __len__(self) -> int:
        return len(self._ends) - 1

    def number(self, key: Key) -> int:
        """The number of a key, a new one if it is new."""
        return self._add(_name(key))

    def numbers(self, keys: Iterable[Key]) -> Ints:
        """The numbers of many keys, new ones for those that are new."""
        return np.fromiter(self._numbers(keys), np.int64)

    def _numbers(self, keys: Iterable[Key]) -> Iterator[int]:
        # `number` of each, without the cost of calls: an agent may have a million at a time
        table, names, ends, last = self._table, self._names, self._ends, len(self._table) - 1
        for key in keys:
            name = _TEXT + key.encode() if type(key) is str else _name(key)
            place = hash(name) & last
            while (number := table[place]) >= 0 and names[ends[number] : ends[number + 1]] != name:
                place = (place + 1) & last
            if number < 0:
                number = self._insert(place, name)
                table, last = self._table, len(self._table) - 1
            yield number

    def _add(self, name: bytes) -> int:
        place = self._place(name)
        number = self._table[place]
        return self._insert(place, name) if number < 0 else number

    def _insert(self, place: int, name: bytes) -> int:
        number = self._table[place] = len(self)
        self._names += name
        self._ends.append(len(self._names))
        if 3 * len(self) > 2 * len(self._table):
            self._widen()
        return number

    def find(self, key: Key) -> int | None:
        """The number of a key, None if it has none."""
        number = self._table[self._place(_name(key))]
        return None if number < 0 else number

    def _place(self, name: bytes) -> int:
        """Where a name is in the table, or would be."""
        table, names, ends = self._table, self._names, self._ends
        last = len(table) - 1
        place = hash(name) & last
        while (number := table[place]) >= 0 and names[ends[number] : ends[number + 1]] != name:
            place = (place + 1) & last
        return place

    def _widen(self) -> None:
        table = array("i", [-1]) * (2 * len(self._table))
        last = len(table) - 1
        for number in range(len(self)):
            place = hash(self._held(number)) & last
            while table[place] >= 0:
                place = (place + 1) & last
            table[place] = number
        self._table = table

    def _held(self, number: int) -> bytes:
        return bytes(self._names[self._ends[number] : self._ends[number + 1]])

    def without_sums(self) -> tuple[Keys, Ints]:
        """The keys that are no sums, numbered anew in their order, and what their numbers were."""
        kept, numbers = Keys(), []
        for number in range(len(self)):
            name = self._held(number)
            if not name.startswith(_SUM):
                kept._add(name)
                numbers.append(number)
        return kept, np.array(numbers, np.int64)

    def message(self, first: int) -> Message:
        """The names of keys from a number on, as the hub is told: as many as make a message."""
        last = min(first + KEYS_PER_MESSAGE, len(self))
        count = 0
        while first + count < last and self._ends[first + count] - self._ends[first] <= BYTES_PER_MESSAGE:
            count += 1
        names = [_parts(self._held(number)) for number in range(first, first + count)]
        return {"type": "keys", "first": first, "keys": names}


def turns(numbers: Ints) -> Iterator[Ints]:
    """The places of numbers, such that each number comes once at a time, its first place first.

    >>> [turn.tolist() for turn in turns(np.array([7, 8, 7, 7]))]
    [[0, 1], [2], [3]]
    """
    left = np.arange(len(numbers))
    if (np.diff(numbers) > 0).all():
        # none comes twice, as where callers keep to one order
        yield left
        return
    while len(left):
        _, first = np.unique(numbers[left], return_index=True)
        turn = left[np.sort(first)]
        yield turn
        left = np.setdiff1d(left, turn, assume_unique=True)


def _name(key: Key) -> bytes:
    if isinstance(key, str):
        return _TEXT + key.encode()
    if isinstance(key, SumName):
        return _SUM + str(key.number).encode()
    parts = [_plain(part) for part in (key if isinstance(key, tuple) else (key,))]
    return _PARTS + json.dumps(parts, separators=(",", ":"), ensure_ascii=False).encode()


def _plain(part: Scalar) -> Scalar:
    """One form for numbers that are equal: the whole one."""
    return int(part) if isinstance(part, float) and part.is_integer() and abs(part) < 2.0**63 else part


def _parts(name: bytes) -> list[Scalar] | dict[str, int]:
    if name.startswith(_TEXT):
        return [name[1:].decode()]
    if name.startswith(_SUM):
        return parts_of(SumName(int(name[1:])))
    parts: list[Scalar] = json.loads(name[1:])
    return parts
