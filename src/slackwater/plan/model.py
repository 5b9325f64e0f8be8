"""The plan's vocabulary: windows, paths, aggregate calls and steps, immutable and compared by structure.

Expressions are Spark SQL text in a canonical form: columns of the source as ``s.`name` ``, columns
of a lookup under the lookup's own alias. Two queries share an operator when its text is equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import gcd
from typing import Literal

from slackwater.language.contracts import Contract
from slackwater.language.durations import format_duration

_LOOKUP_ALIAS = re.compile(r"\bl_([A-Za-z0-9_]+?)_[0-9a-f]{6}\.")
_SOURCE_ALIAS = re.compile(r"(?<![\w.])s\.")
_PLACE = re.compile(r"\b([akm])(\d+)\b")


@dataclass(frozen=True)
class TimeWindow:
    """Windows over event time, ``size`` long and ``slide`` apart, in microseconds.

    Starts are multiples of the slide since the epoch plus ``offset``, as Spark's are.
    """

    size: int
    slide: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.size <= 0 or self.slide <= 0:
            raise ValueError(f"a window's size and slide must be above 0, got {self.size} and {self.slide}")
        if self.slide > self.size:
            raise ValueError(
                f"the slide ({format_duration(self.slide)}) is longer than the window "
                f"({format_duration(self.size)}), so rows between windows would belong to none"
            )

    @property
    def pane(self) -> int:
        """The widest pane of which every window is a whole number.

        >>> TimeWindow(size=10, slide=4).pane
        2
        """
        return gcd(self.size, self.slide, self.offset)

    def __str__(self) -> str:
        text = f"window {format_duration(self.size)}"
        if self.slide != self.size:
            text += f" every {format_duration(self.slide)}"
        return text + (f" offset {format_duration(self.offset)}" if self.offset else "")


@dataclass(frozen=True)
class TupleWindow:
    """Windows over the arrival sequence: ``size`` rows each, a new one every ``slide`` rows."""

    size: int
    slide: int

    def __post_init__(self) -> None:
        if self.size <= 0 or self.slide <= 0:
            raise ValueError(f"tuples() takes a size and a slide above 0, got {self.size} and {self.slide}")

    @property
    def pane(self) -> int:
        return gcd(self.size, self.slide)

    @property
    def offset(self) -> int:
        return 0

    def __str__(self) -> str:
        return f"tuples {self.size}" + (f" every {self.slide}" if self.slide != self.size else "")


Window = TimeWindow | TupleWindow


@dataclass(frozen=True)
class Lookup:
    """A join with a stored table in which every row finds at most one partner."""

    table: str
    alias: str
    on: str
    keys: tuple[str, ...]
    """Columns of the table that the condition equates: they must identify a row."""
    inner: bool

    def __str__(self) -> str:
        return f"{'' if self.inner else 'left '}lookup {self.table} on {plain(self.on)}"


@dataclass(frozen=True)
class Path:
    """The operators between a source and a windowed aggregate (or the reader of single rows)."""

    source: str
    lookups: tuple[Lookup, ...] = ()
    predicates: tuple[str, ...] = ()
    apart: str = field(default="", repr=False)
    """Set where queries on one path must not share partials: some are sampled, some leave out windows."""

    def __str__(self) -> str:
        return " → ".join([self.source, *map(str, self.lookups), *map(plain, self.predicates)])


@dataclass(frozen=True)
class Call:
    """One aggregate over the rows of a window: ``sum(s.size)`` and the like."""

    function: str
    arguments: tuple[str, ...] = ()
    condition: str | None = None
    parameter: float | None = None
    written: str = field(default="", compare=False, repr=False)
    """Its name in the user's text: MEDIAN is a percentile here."""

    @property
    def label(self) -> str:
        return self.written or self.function.upper()

    def __str__(self) -> str:
        inner = ", ".join(map(plain, self.arguments)) or "*"
        if self.parameter is not None:
            inner += f", {self.parameter:g}"
        where = f" where {plain(self.condition)}" if self.condition else ""
        return f"{self.function}({inner}){where}"


Extreme = Literal["max", "min", "avg"]
"""Of what was over time: the largest, the least, or the mean, which only PRECISION has."""


@dataclass(frozen=True)
class Move:
    """The extreme or mean of what is aggregated over current values: in a sliding window, or since a time.

    ``sql`` is over ``a0…`` (calls) and ``k0…`` (keys); times are in microseconds.
    """

    extreme: Extreme
    sql: str
    size: int | None = None
    since: int | None = None

    @property
    def function(self) -> str:
        return f"{self.extreme}_{'over' if self.size is not None else 'since'}"

    @property
    def reach(self) -> str:
        """How far back it goes, as SQL."""
        if self.size is not None:
            return f"'{format_duration(self.size)}'"
        assert self.since is not None
        return f"TIMESTAMP '{datetime(1970, 1, 1) + timedelta(microseconds=self.since)}'"


@dataclass(frozen=True)
class Key:
    name: str
    sql: str


@dataclass(frozen=True)
class Output:
    """One item of a SELECT: over ``a0…`` (calls), ``k0…`` (keys), ``window_start``, ``window_end``.

    Over current values also over ``m0…`` (moves). Without aggregates it is over the source's columns.
    """

    name: str
    sql: str
    aggregated: bool
    call: int | None = None
    """The call that this item is, where it is nothing more."""


@dataclass(frozen=True)
class Step:
    """A view or query taken apart: a path, then a windowed aggregate, then its items."""

    name: str
    stream: str
    """The stream at the bottom of the nesting."""
    time: str
    path: Path
    window: Window | None
    keys: tuple[Key, ...]
    calls: tuple[Call, ...]
    outputs: tuple[Output, ...]
    having: str | None = None
    current: bool = False
    """Reads ``LATEST(stream)``: current values instead of windows."""
    published: bool = False
    contract: Contract | None = None
    moves: tuple[Move, ...] = ()
    """Extremes over time, in a step over current values."""

    @property
    def aggregates(self) -> bool:
        return self.window is not None or bool(self.calls)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a reader of this step sees."""
        names = [output.name for output in self.outputs]
        bounds = () if self.current else ("window_start", "window_end")
        names += [n for n in (self.time, *bounds) if n not in names and self.aggregates]
        return tuple(names if self.time in names else [*names, self.time])

    def readable(self, sql: str) -> str:
        """SQL over ``a0…``, ``k0…`` and ``m0…`` with the calls, keys and moves themselves."""

        def shown(place: re.Match[str]) -> str:
            kind, index = place.group(1), int(place.group(2))
            if kind == "a" and index < len(self.calls):
                return str(self.calls[index])
            if kind == "k" and index < len(self.keys):
                return self.keys[index].name
            if kind == "m" and index < len(self.moves):
                move = self.moves[index]
                return f"{move.function}({self.readable(move.sql)}, {move.reach})"
            return place.group()

        return _PLACE.sub(shown, plain(sql))


def plain(sql: str) -> str:
    """Canonical SQL made easy to read: no back quotes, no ``s.``, lookups under their table's name.

    >>> plain("s.`sport` = 80")
    'sport = 80'
    """
    return _LOOKUP_ALIAS.sub(r"\1.", _SOURCE_ALIAS.sub("", sql.replace("`", "")))
