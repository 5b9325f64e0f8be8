"""Ticks: when the current values of a stream are looked at, and which rows are known then."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from slackwater.language.statements import CreateStream
from slackwater.reference.expressions import Functions
from slackwater.reference.relations import Event, Field, Relation, place
from slackwater.reference.sources import Batches, event_of, fields_of
from slackwater.reference.values import Value, identity, sort_key

DEFAULT_TICK = 1_000_000
"""Microseconds between two ticks of a stream that declares no TICK."""


def tick_of(time: int, length: int) -> int:
    """The tick that a time belongs to: the least multiple of the length at or after it.

    >>> tick_of(10, 10), tick_of(11, 10), tick_of(-11, 10)
    (10, 20, -10)
    """
    return -(-time // length) * length


@dataclass(frozen=True)
class Moment:
    """A tick of a stream, looked at when the first ``late`` of its late rows were known.

    The rows of the moment are those of its tick or an earlier one that came in time, and the known late
    ones that are not behind its tick.
    """

    stream: str
    tick: int
    late: int


@dataclass(frozen=True)
class Timeline:
    """A stream as LATEST sees it: all its readable rows, and the moments at which queries are answered."""

    fields: tuple[Field, ...]
    key: tuple[int, ...]
    """Where the KEY columns are."""
    time: str
    """Name of the time column."""
    length: int
    """Microseconds between two ticks."""
    in_time: tuple[Event, ...]
    late: tuple[Event, ...]
    """Rows whose tick was complete before their batch came, in order of arrival."""
    moments: tuple[Moment, ...]
    """By tick: every tick that is complete and holds a row that came in time, as it was then."""

    def ticks_until(self, tick: int) -> list[int]:
        """The evaluated ticks up to one of them, in ascending order."""
        return [moment.tick for moment in self.moments if moment.tick <= tick]

    def current(self, moment: Moment) -> Relation:
        """The current row of each key, in order of the keys: the newest, of equal times the last to come."""
        known = self.in_time + self.late[: moment.late]
        newest: dict[tuple[Value, ...], Event] = {}
        for row in sorted(known, key=lambda row: (row.time, row.arrival)):
            if tick_of(row.time, self.length) <= moment.tick:
                newest[tuple(identity(row.values[i]) for i in self.key)] = row
        rows = sorted(newest.values(), key=lambda row: [sort_key(row.values[i]) for i in self.key])
        return Relation(self.fields, tuple(rows), self.time, math.inf)


def timeline_of(stream: CreateStream, batches: Batches, functions: Functions, end: bool) -> Timeline:
    """The timeline of a stream with a KEY.

    A tick is complete once the watermark, which is the largest event time that has come less the LATENESS,
    is above it; with ``end`` all are complete in the end. Rows without event time are left out.
    """
    fields = fields_of(stream)
    length = stream.tick or DEFAULT_TICK
    in_time: list[Event] = []
    late: list[Event] = []
    moments: list[Moment] = []
    open_ticks: set[int] = set()

    def complete(watermark: float) -> None:
        for tick in sorted(open_ticks):
            if tick < watermark:
                moments.append(Moment(stream.name, tick, len(late)))
                open_ticks.remove(tick)

    watermark = -math.inf
    for arrived in _arrivals(stream, batches, functions):
        for row in arrived:
            tick = tick_of(row.time, length)
            if tick < watermark:
                late.append(row)
            else:
                in_time.append(row)
                open_ticks.add(tick)
        largest = max((row.time for row in arrived), default=-math.inf)
        watermark = max(watermark, largest - stream.lateness)
        complete(watermark)
    if end:
        complete(math.inf)
    key = tuple(place(fields, exp.column(name)) for name in stream.key)
    return Timeline(fields, key, stream.time, length, tuple(in_time), tuple(late), tuple(moments))


def _arrivals(stream: CreateStream, batches: Batches, functions: Functions) -> Sequence[Sequence[Event]]:
    """The readable rows of each batch, numbered through as they came."""
    number = 0
    found: list[list[Event]] = []
    for batch in batches:
        found.append([])
        for row in batch:
            number += 1
            event = event_of(stream, row, functions)
            if event is not None:
                found[-1].append(Event(event.time, event.values, number))
    return found
