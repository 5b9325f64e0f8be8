"""The log of a hub as events in time: rows, grants, acknowledgements, agents that come and go.

The two serialising queues of section 4 are one here: an event is released when the hub's time has passed its
own by the latency tolerance, in order of time; equal times are one transaction. What the hub received later
than that is late: it is released at once, and counted. So is what comes from a clock that is ahead of the
hub's by more than that: it holds from when it was received.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np

Entry = dict[str, Any]
LIVES = ("lost", "joined", "keys", "caught_up", "withdrawn")
"""What is said of the agents themselves."""
TIMED = ("row", "narrowed", "absent", "beside", "caught_up")
"""What has its time by an agent's clock."""


@dataclass(frozen=True, order=True)
class Event:
    """Something that holds from a time on; ``order`` is its place in the log, for equal times."""

    at: int
    order: tuple[int, int]
    kind: str = field(compare=False)
    what: dict[str, Any] = field(compare=False)
    late: bool = field(default=False, compare=False)


class Queue:
    """Events that wait until no earlier one can still come in time."""

    def __init__(self, tolerance: int, hold: int | None = None) -> None:
        self._tolerance = tolerance
        self._hold = tolerance if hold is None else hold
        """How long events wait: not at all where padding makes up for those that are still to come."""
        self._waiting: list[Event] = []
        self.released = 0
        """Up to which time events have been released."""
        self.late = 0
        self.rows = 0
        self._lives: dict[str, int] = {}
        """By agent: the time of the last that was said of its coming and going."""

    def take(self, entry: Entry) -> None:
        """An entry of the log, in its order."""
        if "missing" in entry and entry["missing"] + self._tolerance < entry["received"]:
            self.late += entry["superseded"]
        for event in events_of(entry):
            ahead = event.kind in TIMED and event.at > entry["received"] + self._tolerance
            if ahead:
                event = replace(event, at=entry["received"], what={**event.what, "ahead": True})
            if event.kind in LIVES:
                event = self._in_turn(event)
            behind = event.kind in ("row", "narrowed") and entry["received"] > event.at + self._tolerance
            late = ahead or behind
            self.rows += event.kind == "row"
            self.late += late and event.kind == "row"
            heapq.heappush(self._waiting, Event(event.at, event.order, event.kind, event.what, late))

    def _in_turn(self, event: Event) -> Event:
        """What is said of an agent's life, in the order of the log, whatever its clock and the hub's say."""
        agent, at = event.what["agent"], event.at
        if event.kind == "lost":
            # what it had told after that may have been on its way, and be lost too
            at -= self._tolerance
        at = self._lives[agent] = max(at, self._lives.get(agent, 0))
        return Event(at, event.order, event.kind, event.what)

    def release(self, time: int) -> Iterator[tuple[int, list[Event]]]:
        """Transactions up to a time of the hub less the tolerance, in order; late events come first."""
        until = time - self._hold
        due: list[Event] = []
        # an event of the past is known from now on
        while self._waiting and self._waiting[0].at <= until:
            due.append(heapq.heappop(self._waiting))
        before = self.released
        self.released = max(before, until)
        for at, together in groupby(due, key=lambda e: max(e.at, before)):
            yield at, list(together)

    @property
    def granting(self) -> bool:
        """Whether a grant waits that is not believed yet: until then nothing can be decided on widths."""
        return any(event.kind == "grants" for event in self._waiting)

    def to_json(self) -> dict[str, Any]:
        waiting = [[e.at, list(e.order), e.kind, e.what, e.late] for e in sorted(self._waiting)]
        counts = {"released": self.released, "late": self.late, "rows": self.rows}
        return {"waiting": waiting, "lives": self._lives, **counts}

    def load(self, kept: dict[str, Any]) -> None:
        self._waiting = [Event(at, (o[0], o[1]), k, w, late) for at, o, k, w, late in kept["waiting"]]
        heapq.heapify(self._waiting)
        self._lives = dict(kept["lives"])
        self.released, self.late, self.rows = kept["released"], kept["late"], kept["rows"]


def events_of(entry: Entry) -> Iterator[Event]:
    """What an entry of the log says, each with the time from which it holds."""
    position, kind = entry["position"], entry["kind"]
    if kind == "batch":
        curves = entry.get("curve") or [None] * len(entry["key"])
        rows = zip(entry["key"], entry["at"], entry["values"], curves, strict=True)
        for place, (key, at, values, curve) in enumerate(rows):
            what = {"key": key, "values": values, "rides": curve, "agent": entry["agent"]}
            yield Event(at, (position, place), "row", what)
        told = entry.get("narrowed")
        if told:
            for place, (grant, at) in enumerate(zip(told["position"], told["at"], strict=True)):
                yield Event(
                    at,
                    (position, len(entry["key"]) + place),
                    "narrowed",
                    {"grant": grant, "agent": entry["agent"]},
                )
        for place, what in enumerate(_columns(entry.get("absent"))):
            # after the row that it belongs to, in one transaction with it
            yield Event(what["at"], (position, (1 << 39) + place), "absent", what)
        if "missing" in entry:
            # what it told last may have been superseded: as if nobody had heard of it since then
            yield Event(entry["missing"], (position, -1), "lost", {"agent": entry["agent"]})
        if "beside" in entry:
            yield Event(entry["sent"], (position, 1 << 39), "beside", entry["beside"])
        if entry.get("caught_up"):
            what = {"agent": entry["agent"]}
            yield Event(entry["sent"], (position, 1 << 40), "caught_up", what)
    elif kind == "grants":
        names = ("key", "column", "width", "start", "shrink", "period")
        starts = np.array(entry["start"], np.int64)
        for start in np.unique(starts).tolist():
            places = np.flatnonzero(starts == start)
            what = {name: [entry[name][i] for i in places] for name in names}
            what["position"] = [position + int(i) for i in places]
            yield Event(start, (position, 0), "grants", what)
    elif kind == "sums":
        what = {name: entry[name] for name in ("agent", "members", "scope", "window", "dropped", "position")}
        yield Event(entry["received"], (position, 0), "sums", what)
    elif kind in ("keys", "withdrawn"):
        what = {name: entry[name] for name in ("agent", "numbers")}
        yield Event(entry["received"], (position, 0), kind, what)
    elif kind == "lost":
        yield Event(entry["since"], (position, 0), "lost", {"agent": entry["agent"]})
    elif kind == "joined":
        what = {name: entry[name] for name in ("agent", "incarnation")}
        if "cost" in entry:
            what["cost"] = entry["cost"]
        yield Event(entry["received"], (position, 0), "joined", what)


def _columns(told: dict[str, list[Any]] | None) -> Iterator[dict[str, Any]]:
    """Arrays of one length as one object for each place."""
    if told is not None:
        for values in zip(*told.values(), strict=True):
            yield dict(zip(told, values, strict=True))
