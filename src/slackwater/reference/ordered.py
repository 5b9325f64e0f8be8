"""Streams of items in order of time, the marks they carry, and the filters and aggregates that read them.

Reference: Tatbul, Zdonik: Window-Aware Load Shedding for Aggregation Queries over Data Streams (VLDB 2006),
sections 2.2 and 3.3. A stream is any sequence of items in non-decreasing time; operators make one of another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

VALUE = "v"
"""The column that aggregates read, and the one that they write."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a window drop says of one of its windows, carried by the first item at or after its start."""

    start: int
    """Where that window starts. In the paper it is the time of the item: there each time has an item."""
    until: int | None
    """Where it ends, if it is kept: items before that are there. None if it is left out. The paper writes 0,
    but here windows begin before the first item, and 0 may be where one of them ends."""

    def handed_on(self, size: int) -> Mark:
        """The same for those that read an aggregate: its last complete window starts size - 1 earlier.

        >>> Mark(1, 8).handed_on(3), Mark(7, None).handed_on(3)
        (Mark(start=1, until=6), Mark(start=7, until=None))
        """
        return self if self.until is None else Mark(self.start, self.until - (size - 1))


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a stream. A fake has no values, only marks, and takes no part in any computation."""

    time: int
    values: Mapping[str, int] | None
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Condition:
    """Whether a column leaves a remainder: data, so that other evaluators can be asked the same."""

    column: str
    modulus: int
    remainder: int

    def passed(self, items: Iterable[Item]) -> Iterator[Item]:
        """The filter. An item that fails goes on as a fake if it has marks, since they are for those below.

        >>> even = Condition("v", 2, 0)
        >>> list(even.passed([Item(1, {"v": 3}), Item(2, {"v": 5}, (Mark(2, None),))]))
        [Item(time=2, values=None, marks=(Mark(start=2, until=None),))]
        """
        for item in items:
            if item.values is None or item.values[self.column] % self.modulus == self.remainder:
                yield item
            elif item.marks:
                yield Item(item.time, None, item.marks)


def numbered(items: Iterable[Item]) -> Iterator[Item]:
    """The items with their numbers for times: windows over rows are windows over these.

    Marks and fakes come after it: nothing may be dropped before all have been counted.

    >>> [item.time for item in numbered([Item(7, {"v": 1}), Item(7, {"v": 2}), Item(9, {"v": 3})])]
    [0, 1, 2]
    """
    for number, item in enumerate(items):
        assert item.values is not None
        yield Item(number, item.values)


State = tuple[int, ...]


@dataclass(frozen=True)
class Function:
    """What is computed over a window: the first state, the state after one more value, and the result."""

    init: Callable[[], State]
    incr: Callable[[State, int], State]
    final: Callable[[State], int]


FUNCTIONS: Mapping[str, Function] = {
    "count": Function(lambda: (0,), lambda state, value: (state[0] + 1,), lambda state: state[0]),
    "sum": Function(lambda: (0,), lambda state, value: (state[0] + value,), lambda state: state[0]),
    "max": Function(tuple, lambda state, value: (max((*state, value)),), lambda state: state[0]),
    # user-defined in the paper's first example: the difference of the highest and the lowest
    "spread": Function(
        tuple,
        lambda state, value: (min((*state[:1], value)), max((*state[1:], value))),
        lambda state: state[1] - state[0],
    ),
}


class Openings(Protocol):
    """Which windows an aggregate opens, by the marks that it has read."""

    def read(self, item: Item) -> None: ...

    def allows(self, start: int) -> bool: ...


class AllOpen:
    """Without a window drop before it, an aggregate opens every window."""

    def read(self, item: Item) -> None:
        pass

    def allows(self, start: int) -> bool:
        return True


@dataclass
class MarkedOpen:
    """The windows that some mark allows.

    Guarantee: a window opens only if all its items are there. Variant: two horizons. Only a mark moves the
    one that decides on opening. The other, how long items are needed by what is open, has no variable here:
    a window stays open until it ends. Reference: table 3, whose one horizon does both.

    >>> openings = MarkedOpen(3)
    >>> openings.read(Item(1, None, (Mark(1, 8),)))
    >>> [start for start in (-1, 1, 3, 5, 7) if openings.allows(start)]
    [1, 3, 5]
    """

    size: int
    spans: list[tuple[int, int]] = field(default_factory=list)
    """From where to where windows may start, the end excluded."""

    def read(self, item: Item) -> None:
        # no later item is in a window that starts before this
        low = item.time - self.size + 1
        self.spans = [span for span in self.spans if span[1] > low]
        handed_on = [mark.handed_on(self.size) for mark in item.marks]
        self.spans += [(mark.start, mark.until) for mark in handed_on if mark.until is not None]

    def allows(self, start: int) -> bool:
        return any(low <= start < high for low, high in self.spans)


@dataclass
class LiteralOpen:
    """Table 3 as it is printed, for streams with one item at each time as in the paper.

    No guarantee: an open window moves the horizon for opening to its own end, and so lets others open which
    are left out, from what is there of their items. Here for the test that says so.
    """

    size: int
    slide: int
    origin: int = 0
    keep_until: float = -math.inf
    opened: set[int] = field(default_factory=set)

    def read(self, item: Item) -> None:
        begins = (item.time - self.origin) % self.slide == 0
        until = item.marks[-1].until if item.marks else None
        if until is not None:
            self.keep_until = until - (self.size - 1)
        elif begins and item.time < self.keep_until:
            self.keep_until = max(self.keep_until, item.time + self.size)
        else:
            begins = False
        if begins:
            self.opened.add(item.time)

    def allows(self, start: int) -> bool:
        return start in self.opened


Decoding = Literal["none", "marks", "literal"]


@dataclass(frozen=True)
class Aggregate:
    """Windows [s, s + size) for every s = origin + a multiple of slide, by keys; what it gives has time s.

    Guarantee: with ``decode="marks"`` behind a window drop, what it gives is a part of what it gives without.
    Variant: windows begin before the first item too, and one without items gives nothing. A mark goes on with
    what the window gives that begins where the mark does; otherwise in a fake at that time, held back so that
    times stay in order. Reference: section 2.2, and table 3 read with two horizons.

    >>> items = [Item(1, {"v": 4}, (Mark(0, None), Mark(1, 4))), Item(2, {"v": 5}), Item(4, {"v": 6})]
    >>> for item in Aggregate(2, 2, (), FUNCTIONS["sum"]).over(items, "marks"):
    ...     print(item)
    Item(time=0, values=None, marks=(Mark(start=0, until=None),))
    Item(time=1, values=None, marks=(Mark(start=1, until=3),))
    Item(time=2, values={'v': 5}, marks=())
    """

    size: int
    slide: int
    keys: tuple[str, ...]
    function: Function
    origin: int = 0

    def over(self, items: Iterable[Item], decode: Decoding = "none") -> Iterator[Item]:
        """What it gives, in order of time."""
        openings = self._openings(decode)
        open_: dict[int, dict[State, State]] = {}
        marks: dict[int, Mark] = {}
        for item in items:
            openings.read(item)
            marks.update((mark.start, mark.handed_on(self.size)) for mark in item.marks)
            yield from self._closed(open_, marks, item.time - self.size)
            if item.values is None:
                continue
            keys = tuple(item.values[key] for key in self.keys)
            for start in self.starts(item.time):
                if openings.allows(start):
                    groups = open_.setdefault(start, {})
                    state = groups[keys] if keys in groups else self.function.init()
                    groups[keys] = self.function.incr(state, item.values[VALUE])
        yield from self._closed(open_, marks, math.inf)

    def starts(self, time: int) -> range:
        """Where the windows start that hold a time."""
        last = time - (time - self.origin) % self.slide
        return range(last - (last - time + self.size - 1) // self.slide * self.slide, last + 1, self.slide)

    def _openings(self, decode: Decoding) -> Openings:
        if decode == "marks":
            return MarkedOpen(self.size)
        return LiteralOpen(self.size, self.slide, self.origin) if decode == "literal" else AllOpen()

    def _closed(
        self, open_: dict[int, dict[State, State]], marks: dict[int, Mark], last: float
    ) -> Iterator[Item]:
        """All windows and marks that start no later than the last which has ended: none comes before them."""
        for start in sorted(start for start in open_.keys() | marks.keys() if start <= last):
            carried = (marks.pop(start),) if start in marks else ()
            groups = open_.pop(start, {})
            if not groups:
                yield Item(start, None, carried)
            for keys, state in sorted(groups.items()):
                named = dict(zip(self.keys, keys, strict=True))
                yield Item(start, {**named, VALUE: self.function.final(state)}, carried)
                carried = ()
