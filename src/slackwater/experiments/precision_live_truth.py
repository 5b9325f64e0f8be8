"""What the keys of the live run were at any time, as their processes have written it down."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from slackwater.edge.widths import Bools, Floats, Ints
from slackwater.experiments.precision_live_agents import COUNTS, GONE, HANDED, LEAVING, OFFERED
from slackwater.experiments.precision_live_queries import Asked, Key, key

Named = tuple[str, Key]
"""A key of a stream."""


@dataclass
class History:
    """One key: its values from times on, None where it was withdrawn."""

    times: list[int] = field(default_factory=list)
    values: list[float | None] = field(default_factory=list)
    doubtful: list[tuple[int, int]] = field(default_factory=list)
    """Within which it was withdrawn, nobody knows when."""
    last: str = ""
    """The kind of the last line."""

    def note(self, kind: str, at: int, value: float) -> None:
        if kind == COUNTS and self.last == OFFERED:
            self.times[-1] = at
        elif kind == GONE and self.last == LEAVING:
            self.doubtful.append((self.times[-1], at))
        else:
            if self.last == LEAVING:
                # its process was killed
                self.doubtful.append((self.times[-1], at))
            self.times.append(at)
            self.values.append(value if kind in (OFFERED, COUNTS) else None)
        self.last = kind

    def counted(self, told: Sequence[int]) -> Iterator[tuple[int, float | None]]:
        """Its values as they count: each time that it comes, from the first row on that tells it."""
        here = there = False
        for place, (at, value) in enumerate(zip(self.times, self.values, strict=True)):
            if value is None:
                if there:
                    yield at, None
                here = there = False
                continue
            if not here:
                here, since = True, at
            if not there:
                first = bisect_left(told, since)
                until = self.times[place + 1] if place + 1 < len(self.times) else None
                if first == len(told) or (until is not None and told[first] >= until):
                    continue
                there, at = True, max(at, told[first])
            yield at, value


class Truth:
    """What every key was at any time, and what agents have handed over."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._histories: dict[Named, History] = defaultdict(History)
        self.handed: dict[tuple[str, str], int] = {}
        """By stream and agent: rows that its last process has sent."""
        self.withdrawn = 0
        self.end = 0
        for line in lines:
            parts = line.split()
            if len(parts) != 6 or not line.endswith("\n"):
                # its process was killed
                continue
            kind, stream, at = parts[0], parts[1], int(parts[2])
            if kind == HANDED:
                self.handed[stream, parts[3]] = int(parts[4]) - int(parts[5])
                continue
            self.withdrawn += kind == GONE
            self.end = max(self.end, at)
            name = key(int(parts[3]), int(parts[4]))
            self._histories[stream, name].note(kind, at, float(parts[5]))

    @staticmethod
    def read(folder: Path) -> Truth:
        def lines() -> Iterator[str]:
            for path in sorted(folder.glob("truth-*.txt")):
                with path.open(encoding="utf-8") as file:
                    yield from file

        return Truth(lines())

    def names(self) -> Iterable[Named]:
        """All keys that were ever offered."""
        return self._histories.keys()

    def offered(self, since: int) -> int:
        """How many values were offered from a time on."""
        return sum(
            value is not None
            for history in self._histories.values()
            for value in history.values[bisect_left(history.times, since) :]
        )

    def history(self, stream: str, name: Key) -> History:
        return self._histories[stream, name]

    def value(self, stream: str, name: Key, at: int) -> float | None:
        history = self._histories[stream, name]
        place = bisect_right(history.times, at) - 1
        return history.values[place] if place >= 0 else None


@dataclass(frozen=True, eq=False)
class Course:
    """What a group of a query was: from each of its times to the next, and how many keys counted."""

    at: Ints
    value: Floats
    """NaN where no key counts."""
    rows: Ints
    keys: tuple[Key, ...]
    doubtful: Ints
    """Stretches of time, by row, in which it is not known when a key went."""

    @staticmethod
    def made(asked: Asked, names: Sequence[Key], truth: Truth, told: Mapping[Key, Sequence[int]]) -> Course:
        """Whatever happens at one time happens at once."""
        events: list[tuple[int, int, float | None]] = []
        doubtful: list[tuple[int, int]] = []
        for place, name in enumerate(names):
            history = truth.history(asked.stream, name)
            events += [(at, place, value) for at, value in history.counted(told.get(name, ()))]
            doubtful += history.doubtful
        events.sort(key=lambda event: event[0])
        values, there = np.zeros(len(names)), np.zeros(len(names), bool)
        at, found, rows = [], [], []
        for number, (time, place, value) in enumerate(events):
            there[place], values[place] = value is not None, value or 0.0
            if number + 1 < len(events) and events[number + 1][0] == time:
                continue
            at.append(time)
            rows.append(int(there.sum()))
            found.append(asked.truth(values, there) if rows[-1] else np.nan)
        return Course(
            np.array(at, np.int64),
            np.array(found, np.float64),
            np.array(rows, np.int64),
            tuple(names),
            np.array(sorted(doubtful), np.int64).reshape(-1, 2),
        )

    def __call__(self, times: Ints) -> tuple[Floats, Ints]:
        """Value and rows at some times; NaN and 0 before the first."""
        place = np.searchsorted(self.at, times, "right") - 1
        known = place >= 0
        if not len(self.at):
            return np.full(len(times), np.nan), np.zeros(len(times), np.int64)
        return np.where(known, self.value[place], np.nan), np.where(known, self.rows[place], 0)

    def over(self, times: Ints, window: int) -> Floats:
        """The mean over the window up to some times, of the part of it in which there was a value.

        >>> at, value = np.array([0, 4, 8]), np.array([1.0, np.nan, 5.0])
        >>> Course(at, value, np.array([1, 0, 1]), (), np.empty((0, 2), np.int64)).over(np.array([10]), 8)
        array([3.])
        """
        if not len(self.at):
            return np.full(len(times), np.nan)
        there = ~np.isnan(self.value)
        lasts = np.diff(self.at)
        values = np.where(there, self.value, 0.0)
        summed = np.concatenate([[0.0], np.cumsum(values[:-1] * lasts)])
        stood = np.concatenate([[0], np.cumsum(there[:-1] * lasts)])

        def until(moments: Ints) -> tuple[Floats, Ints]:
            place = np.searchsorted(self.at, moments, "right") - 1
            since = np.where(place >= 0, moments - self.at[place], 0)
            place = np.maximum(place, 0)
            return summed[place] + values[place] * since, stood[place] + there[place] * since

        (after, long), (before, short) = until(times), until(times - window)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean: Floats = (after - before) / (long - short)
        return mean

    def uncertain(self, times: Ints, window: int = 0) -> Bools:
        """Whether it is not known, at some times, which keys counted."""
        return overlaps(self.doubtful, times, window)


def overlaps(stretches: Ints, times: Ints, window: int = 0) -> Bools:
    """Whether the windows up to some times touch any stretch, whose ends belong to it.

    >>> overlaps(np.array([[2, 4], [3, 9]]), np.array([1, 4, 9, 12]), 2).tolist()
    [False, True, True, False]
    """
    if not len(stretches):
        return np.zeros(len(times), bool)
    begun = np.searchsorted(np.sort(stretches[:, 0]), times, "right")
    ended = np.searchsorted(np.sort(stretches[:, 1]), times - window, "left")
    found: Bools = begun > ended
    return found
