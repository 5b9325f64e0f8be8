"""The window drop over ordered items, and networks of aggregates that it stands in.

Reference: Tatbul, Zdonik: Window-Aware Load Shedding for Aggregation Queries over Data Streams (VLDB 2006),
sections 3.1 and 3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from slackwater.reference.ordered import FUNCTIONS, Aggregate, Condition, Decoding, Item, Mark

Coins = Callable[[int], bool]
"""For each batch of windows: whether they are to be dropped."""


def window_count(time: int, first: int, size: int, slide: int) -> int:
    """How many windows hold a time, if the first of all windows starts at ``first``.

    Reference: definition 1, where a size is m slides and a rest.

    >>> [window_count(time, 0, 5, 2) for time in range(8)]
    [1, 1, 2, 2, 3, 2, 3, 2]
    """
    whole = size // slide
    number = (time - first) // slide
    if number < whole:
        return number + 1
    return whole + 1 if time < first + (number - whole) * slide + size else whole


def left_out(first: int, gap: int, coins: Coins) -> Iterator[bool]:
    """Of each window from the first on, whether it is left out.

    Guarantee: never more than ``gap`` in a row are. Variant: one coin for each batch of ``gap`` windows,
    counted from window 0. A window is kept against its coin where the run of missing ones is full; it is then
    owed, and another left out against its coin as soon as the run has room. Reference: section 3.4, where it
    is always the first window of the second batch that is kept.

    >>> from itertools import islice
    >>> ["-" if out else "+" for out in islice(left_out(0, 3, lambda batch: batch < 2), 9)]
    ['-', '-', '-', '+', '-', '-', '-', '+', '+']
    """
    unit, missing, owed = first, 0, 0
    while True:
        drops = coins(unit // gap)
        if (drops or owed > 0) and missing < gap:
            missing += 1
            if not drops:
                owed -= 1
            yield True
        else:
            missing = 0
            if drops:
                owed += 1
            yield False
        unit += 1


@dataclass(frozen=True)
class WinDrop:
    """Marks where windows start with whether they are kept, and drops the items that no kept one holds.

    Guarantee: all items of a kept window are there, and its mark comes no later than the first of them.
    Variant: windows before ``first_unit`` are kept. With gaps in time, an item carries the marks of all
    windows that have started since the one before it. Reference: sections 3.1 and 3.4 (the early drop).

    >>> drop = WinDrop(2, 2, 1, lambda batch: batch == 1)
    >>> for item in drop.over(Item(time, {"v": 5}) for time in (1, 2, 3, 5)):
    ...     print(item)
    Item(time=1, values={'v': 5}, marks=(Mark(start=0, until=2),))
    Item(time=2, values=None, marks=(Mark(start=2, until=None),))
    Item(time=5, values={'v': 5}, marks=(Mark(start=4, until=6),))
    """

    size: int
    slide: int
    gap: int
    coins: Coins
    first_unit: int = 0
    origin: int = 0

    def over(self, items: Iterable[Item]) -> Iterator[Item]:
        """What is left of a stream that has no marks yet."""
        rule = left_out(self.first_unit, self.gap, self.coins)
        decided, out = self.first_unit, set[int]()
        marked: int | None = None
        for item in items:
            place = item.time - self.origin
            begun = place // self.slide + 1
            holding = range((place - self.size) // self.slide + 1, begun)
            while decided < begun:
                if next(rule):
                    out.add(decided)
                decided += 1
            # what begins before the first item and does not hold it holds nothing
            fresh = range(holding.start if marked is None else marked, begun)
            marks = tuple(self._mark(unit, unit not in out) for unit in fresh)
            marked = begun
            if any(unit not in out for unit in holding):
                yield Item(item.time, item.values, marks)
            elif marks:
                yield Item(item.time, None, marks)

    def _mark(self, unit: int, kept: bool) -> Mark:
        start = self.origin + unit * self.slide
        return Mark(start, start + self.size if kept else None)


def delivered(items: Iterable[Item]) -> list[Item]:
    """What a query gets of the aggregate that answers it: the windows that start in a kept unit.

    A window may be open only because another aggregate needs it, or since a sibling's larger window has kept
    its items. The last mark at or before its start says whether it is to be delivered.

    >>> delivered([Item(0, {"v": 1}, (Mark(0, 9),)), Item(3, {"v": 2}, (Mark(3, None),)), Item(4, {"v": 3})])
    [Item(time=0, values={'v': 1}, marks=())]
    """
    found, kept = [], False
    for item in items:
        if item.marks:
            kept = item.marks[-1].until is not None
        if kept and item.values is not None:
            found.append(Item(item.time, item.values))
    return found


@dataclass(frozen=True)
class Step:
    """An aggregate of a network over what its filter lets through, and the steps that read it."""

    name: str
    size: int
    slide: int
    keys: tuple[str, ...] = ()
    function: str = "count"
    """One of FUNCTIONS."""
    where: Condition | None = None
    gap: int | None = None
    """How many of its windows a query may miss in a row; None where only other steps read it."""
    readers: tuple[Step, ...] = ()

    def over(self, items: Iterable[Item], origin: int, decode: Decoding = "none") -> list[Item]:
        """What it gives, with the marks for its readers."""
        aggregate = Aggregate(self.size, self.slide, self.keys, FUNCTIONS[self.function], origin)
        return list(aggregate.over(self.where.passed(items) if self.where else items, decode))

    def leads_to(self, names: Sequence[str]) -> bool:
        return self.name in names or any(reader.leads_to(names) for reader in self.readers)


@dataclass(frozen=True)
class Network:
    """A stream, and the steps that read it."""

    stream: str
    readers: tuple[Step, ...]
    origin: int = 0
    """Windows start there, and at all multiples of their slides from there."""

    def readers_of(self, name: str) -> tuple[Step, ...]:
        """The steps that read the stream, or a step."""
        if name == self.stream:
            return self.readers
        return next(step.readers for step in self.steps() if step.name == name)

    def steps(self) -> Iterator[Step]:
        """All steps, each before those that read it."""
        waiting = list(self.readers)
        while waiting:
            step = waiting.pop(0)
            yield step
            waiting += step.readers


@dataclass(frozen=True)
class Drop:
    """A window drop in a network: whose items it stands behind, and the queries that it decides for."""

    source: str
    members: tuple[str, ...]
    size: int
    slide: int
    gap: int
    coins: Coins
    first_unit: int = 0


def run(network: Network, items: Sequence[Item], drops: Iterable[Drop] = ()) -> dict[str, list[Item]]:
    """What each query of a network gets: by the name of every step that has a gap.

    Guarantee: exactly those answers of a run without drops whose windows start in a unit that is kept, if the
    drops are set by the paper's rules. Variant: each drop is a pass of its own from its source to its
    members. So the marks of two drops never meet, and a step can be delivered by one and read by another.
    Reference: sections 3.1 to 3.4.

    >>> network = Network("s", (Step("a", 2, 2, gap=1),))
    >>> items = [Item(time, {"v": 5}) for time in range(6)]
    >>> [item.time for item in run(network, items)["a"]]
    [0, 2, 4]
    >>> drop = Drop("s", ("a",), 2, 2, 1, lambda batch: batch == 1)
    >>> [item.time for item in run(network, items, [drop])["a"]]
    [0, 4]
    """
    given = exact(network, items)
    found = {step.name: given[step.name] for step in network.steps() if step.gap is not None}
    for drop in drops:
        passed = decoded(network, given[drop.source], drop)
        found.update((name, delivered(passed[name])) for name in drop.members)
    return found


def exact(network: Network, items: Iterable[Item]) -> dict[str, list[Item]]:
    """What the stream and all steps give without drops, by name."""
    given = {network.stream: list(items)}

    def follow(name: str) -> None:
        for step in network.readers_of(name):
            given[step.name] = step.over(given[name], network.origin)
            follow(step.name)

    follow(network.stream)
    return given


def decoded(network: Network, items: Iterable[Item], drop: Drop) -> dict[str, list[Item]]:
    """What the steps from a drop to its members give, by name, with the marks; items are those of its source.

    Guarantee: no step gives anything that it does not give without drops.
    """
    window_drop = WinDrop(drop.size, drop.slide, drop.gap, drop.coins, drop.first_unit, network.origin)
    passed = {drop.source: list(window_drop.over(items))}

    def follow(name: str) -> None:
        for step in network.readers_of(name):
            if step.leads_to(drop.members):
                passed[step.name] = step.over(passed[name], network.origin, "marks")
                follow(step.name)

    follow(drop.source)
    return passed
