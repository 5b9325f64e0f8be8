"""Windows: which rows each holds, and when it has closed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from slackwater.errors import LanguageError
from slackwater.language.durations import parse_duration
from slackwater.reference.relations import Event, Relation, place


@dataclass(frozen=True)
class Window:
    """One window and its rows, in order of arrival; start and end in microseconds."""

    start: int
    end: int
    rows: tuple[Event, ...]


@dataclass(frozen=True)
class TimeWindows:
    """``window(ts, size, slide, offset)``: [s, s + size) for every s = offset + a multiple of slide."""

    size: int
    slide: int
    offset: int = 0

    def starts(self, time: int) -> list[int]:
        """The starts of all windows that hold a time.

        >>> TimeWindows(10, 5).starts(12), TimeWindows(10, 10, 3).starts(2), TimeWindows(2, 10).starts(5)
        ([5, 10], [-7], [])
        """
        start = time - (time - self.offset) % self.slide
        found = []
        while start + self.size > time:
            found.append(start)
            start -= self.slide
        return found[::-1]

    def closed(self, rows: Sequence[Event], watermark: float) -> list[Window]:
        """The windows with rows that end at or before the watermark, by end."""
        held: dict[int, list[Event]] = {}
        for row in rows:
            for start in self.starts(row.time):
                held.setdefault(start, []).append(row)
        return [
            Window(start, start + self.size, tuple(held[start]))
            for start in sorted(held)
            if start + self.size <= watermark
        ]

    def time_of(self, window: Window) -> int:
        """The time of the rows that a window hands on."""
        return window.start

    def handed_on(self, watermark: float) -> float:
        """The start of the first window that the watermark has not closed.

        >>> TimeWindows(10, 5).handed_on(20), TimeWindows(10, 5).handed_on(24)
        (15, 15)
        """
        if math.isinf(watermark):
            return watermark
        return ((int(watermark) - self.size - self.offset) // self.slide + 1) * self.slide + self.offset


@dataclass(frozen=True)
class TupleWindows:
    """``tuples(size, slide)``: the rows numbered [k * slide, k * slide + size), for k = 0, 1, 2, …"""

    size: int
    slide: int

    def closed(self, rows: Sequence[Event], watermark: float) -> list[Window]:
        """The complete windows, in order of arrival: a tuple window closes when it is full."""
        windows = []
        for first in range(0, len(rows) - self.size + 1, self.slide):
            held = tuple(rows[first : first + self.size])
            windows.append(Window(min(r.time for r in held), max(r.time for r in held), held))
        return windows

    def time_of(self, window: Window) -> int:
        """The time of the rows that a window hands on."""
        return window.end

    def handed_on(self, watermark: float) -> float:
        """The watermark itself: a window yet to fill up ends no earlier."""
        return watermark


Windows = TimeWindows | TupleWindows


def read_windows(node: exp.Expr, relation: Relation) -> Windows | None:
    """What a GROUP BY expression says of windows; None where it is a key."""
    if not isinstance(node, exp.Anonymous) or node.name.lower() not in ("window", "tuples"):
        return None
    operands = node.expressions
    if node.name.lower() == "tuples":
        if len(operands) not in (1, 2) or not all(isinstance(o, exp.Literal) and o.is_int for o in operands):
            raise LanguageError(f"expected tuples(size, slide) with whole numbers, got {node.sql('spark')}")
        size, slide = int(operands[0].name), int(operands[-1].name)
        if size < 1 or slide < 1:
            raise LanguageError(f"the size and slide of {node.sql('spark')} must be at least 1")
        return TupleWindows(size, slide)
    if not 2 <= len(operands) <= 4:
        raise LanguageError(f"expected window(time, size, slide, offset), got {node.sql('spark')}")
    over = operands[0]
    if not isinstance(over, exp.Column) or place(relation.fields, over) != relation.time_place:
        raise LanguageError(f"a window is taken over the time {relation.time}, got {node.sql('spark')}")
    lengths = [read_duration(operand) for operand in operands[1:]]
    windows = TimeWindows(lengths[0], *(lengths[1:] or lengths))
    if windows.size < 1 or windows.slide < 1:
        raise LanguageError(f"the size and slide of {node.sql('spark')} must be above 0")
    return windows


def read_duration(node: exp.Expr) -> int:
    """Microseconds in a length of time, written as a text or an INTERVAL."""
    text = node.name
    if isinstance(node, exp.Interval):
        text = f"{node.this.name} {node.args['unit'].name}" if node.args.get("unit") else node.this.name
    try:
        return parse_duration(text)
    except ValueError as error:
        raise LanguageError(str(error)) from None
