"""An agent's rows on their way to the hub: what waits, what is under way, what is acknowledged.

Guarantee: every row that was put in is sent in a batch until the hub has it on disk, in the order in which
rows were put in, except rows that were superseded: where more wait than the limit, of each key only the
newest stays, and the hub is told since when others are missing. So the outbox holds at most the limit, or
five rows for every four keys if that is more. What waits is in arrays; Python objects are made of what is
sent, a batch at a time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from slackwater.edge.curves import Curve, ToldCurves
from slackwater.edge.messages import Message
from slackwater.edge.rows import Rows
from slackwater.edge.sums import Absent
from slackwater.edge.waiting import Waiting
from slackwater.edge.widths import Ints

ROWS_PER_BATCH = 2_000
BATCHES_UNDER_WAY = 16
SHARE_TO_THIN = 4
"""Of what stayed when older rows were taken out, the part that must come before they are again."""


@dataclass(frozen=True)
class Narrowed:
    """Grants by position that were narrower than what was in use, and since when they are used."""

    position: Ints
    at: int
    after: int
    """How many rows were put in before: they are sent before this is, or with it."""


@dataclass(frozen=True)
class ToldAbsent:
    """The members of a sum that have no value since a time."""

    key: int
    absent: Absent
    at: int
    after: int
    """As with `Narrowed`."""


class Curves(Protocol):
    """The response curves as they are when a batch is made: they speak of no single row."""

    def told_curves(self, key: Ints) -> ToldCurves:
        """Of keys that are sent."""

    def beside(self, now: int) -> tuple[Ints, list[list[Curve]]]:
        """Of keys that are not."""


class NoCurves:
    """Nothing rides on rows."""

    def told_curves(self, key: Ints) -> ToldCurves:
        return ToldCurves.none(len(key))

    def beside(self, now: int) -> tuple[Ints, list[list[Curve]]]:
        return np.empty(0, np.int64), []


@dataclass(frozen=True)
class Batch:
    """A numbered batch: sent again it is the same, but for ``caught_up``, which speaks of one connection."""

    number: int
    sent: int
    rows: Rows
    curves: ToldCurves
    narrowed: list[Narrowed]
    caught_up: bool
    superseded: int
    missing: int | None
    """Since when rows are missing that were superseded."""
    absent: list[ToldAbsent]
    beside: tuple[Ints, list[list[Curve]]]
    offered: int = 0
    """Values that had come to the agent when it was made: what sending everything would have sent."""

    def message(self) -> Message:
        message: Message = {"type": "batch", "number": self.number, "sent": self.sent}
        message["rows"] = self.rows.message(self.curves.lists())
        if self.narrowed:
            position = [p for narrowed in self.narrowed for p in narrowed.position.tolist()]
            at = [narrowed.at for narrowed in self.narrowed for _ in narrowed.position]
            message["narrowed"] = {"position": position, "at": at}
        if self.absent:
            message["absent"] = {
                "key": [told.key for told in self.absent],
                "at": [told.at for told in self.absent],
                "absent": [told.absent for told in self.absent],
            }
        if len(self.beside[0]):
            message["beside"] = {"key": self.beside[0].tolist(), "curve": self.beside[1]}
        if self.caught_up:
            message["caught_up"] = True
        if self.offered:
            message["offered"] = self.offered
        if self.superseded:
            message["superseded"] = self.superseded
            message["missing"] = self.missing
        return message


@dataclass
class Outbox:
    """What one incarnation of an agent has for the hub."""

    columns: int
    limit: int
    rows_per_batch: int = ROWS_PER_BATCH
    curves: Curves = field(default_factory=NoCurves)
    superseded: int = 0
    """Rows that newer ones of the same key have replaced."""
    acknowledged: int = 0
    """The number of the last batch that the hub has on disk."""
    _put: int = 0
    _taken: int = 0
    """Rows ever put in, and of those the ones that are in batches or superseded."""
    _next_thinning: int = 0
    _narrowed: deque[Narrowed] = field(default_factory=deque)
    _absent: deque[ToldAbsent] = field(default_factory=deque)
    _caught_up: int | None = None
    """How many rows were put in when all was caught up, until that is said."""
    _complete: bool = False
    """Whether all was caught up on this connection, said or not."""
    _untold: int = 0
    _missing: int | None = None
    _under_way: deque[Batch] = field(default_factory=deque)
    _unsent: int = 0
    """How many of the batches under way are still to be sent on this connection: the last ones."""
    _number: int = 0

    def __post_init__(self) -> None:
        self._waiting = Waiting(self.columns)
        self._next_thinning = self.limit

    def put(self, rows: Rows) -> None:
        self._waiting.put(rows)
        self._put += len(rows)
        if self.waiting > self._next_thinning:
            self._thin()

    def _thin(self) -> None:
        """Keep the newest waiting row of every key."""
        gone, first = self._waiting.thin()
        self.superseded += gone
        self._untold += gone
        if first is not None:
            self._missing = first if self._missing is None else min(first, self._missing)
            # nobody knows what was in between: all is caught up again with the last of those that stayed
            self._caught_up = self._put if self._complete else self._caught_up
        self._taken += gone
        # counts of rows are of another order now: what follows some rows follows all that are here
        self._narrowed = deque(replace(narrowed, after=self._put) for narrowed in self._narrowed)
        self._absent = deque(replace(told, after=self._put) for told in self._absent)
        self._caught_up = None if self._caught_up is None else self._put
        # not again before some have come for those that stayed, so that it stays cheap with many keys
        self._next_thinning = max(self.limit, self.waiting + self.waiting // SHARE_TO_THIN)

    def narrow(self, position: Ints, at: int) -> None:
        """Grants were narrower than what was in use: told with the rows that this caused."""
        if len(position):
            self._narrowed.append(Narrowed(position, at, self._put))

    def tell_absent(self, key: int, absent: Absent, at: int) -> None:
        """Of a sum, its members without a value: told with the row that this caused."""
        self._absent.append(ToldAbsent(key, absent, at, self._put))

    def catch_up(self) -> None:
        """All rows up to now are here, and none is missing: said with the last of them."""
        self._caught_up = self._put
        self._complete = True

    def next_batch(self, now: int, offered: int = 0) -> Batch | None:
        """The next batch to send on this connection, None while there is none or enough are under way.

        ``offered`` is how many values have come to the agent so far.
        """
        if self._unsent:
            self._unsent -= 1
            return self._under_way[-1 - self._unsent]
        if len(self._under_way) >= BATCHES_UNDER_WAY or self.empty_handed:
            return None
        rows = self._waiting.take(self.rows_per_batch)
        self._taken += len(rows)
        narrowed = self._take_narrowed()
        absent: list[ToldAbsent] = []
        while self._absent and self._absent[0].after <= self._taken:
            absent.append(self._absent.popleft())
        caught_up = self._caught_up is not None and self._taken >= self._caught_up and not self._narrowed
        self._number += 1
        curves, beside = self.curves.told_curves(rows.key), self.curves.beside(now)
        told = self._untold, self._missing
        batch = Batch(self._number, now, rows, curves, narrowed, caught_up, *told, absent, beside, offered)
        self._untold, self._missing = 0, None
        self._caught_up = None if caught_up else self._caught_up
        self._under_way.append(batch)
        return batch

    def _take_narrowed(self) -> list[Narrowed]:
        found: list[Narrowed] = []
        room = self.rows_per_batch
        while room and self._narrowed and self._narrowed[0].after <= self._taken:
            first = self._narrowed.popleft()
            if len(first.position) > room:
                self._narrowed.appendleft(replace(first, position=first.position[room:]))
                first = replace(first, position=first.position[:room])
            found.append(first)
            room -= len(first.position)
        return found

    def acknowledge(self, number: int) -> None:
        """The hub has all batches up to this number on disk."""
        while self._under_way and self._under_way[0].number <= number:
            self._under_way.popleft()
        self._unsent = min(self._unsent, len(self._under_way))
        self.acknowledged = max(self.acknowledged, number)

    def reconnect(self, received: int) -> None:
        """A new connection: what is above ``received`` is sent again, and nothing is caught up yet."""
        self.acknowledge(received)
        self._under_way = deque(replace(batch, caught_up=False) for batch in self._under_way)
        self._unsent = len(self._under_way)
        self._caught_up = None
        self._complete = False

    @property
    def waiting(self) -> int:
        """Rows that are in no batch yet."""
        return self._put - self._taken

    @property
    def under_way(self) -> int:
        """Batches that are not acknowledged."""
        return len(self._under_way)

    @property
    def empty_handed(self) -> bool:
        """Whether there is nothing to make a batch of."""
        return not self.waiting and not self._narrowed and not self._absent and self._caught_up is None

    @property
    def done(self) -> bool:
        """Whether the hub has everything."""
        return self.empty_handed and not self._under_way
