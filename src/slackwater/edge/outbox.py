"""An agent's rows on their way to the hub: what waits, what is under way, what is acknowledged.

Guarantee: every row that was put in is sent in a batch until the hub has it on disk, in the order in which
rows were put in, except rows that were superseded: where more wait than the limit, of each key only the
newest stays. So the outbox holds at most the limit, or two rows for every key if that is more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slackwater.edge.messages import Message, nullable

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ROWS_PER_BATCH = 2_000
BATCHES_UNDER_WAY = 16
_PIECE = 10_000


@dataclass(frozen=True)
class Rows:
    """Rows as arrays of one length: the number of the key, the time, and a value for every column.

    ``curve`` is what the filters said of each row when it left its bound; the hub passes it on unread.
    """

    key: Ints
    at: Ints
    values: Floats
    curve: list[Any]

    def __len__(self) -> int:
        return len(self.key)

    def part(self, chosen: slice | Ints) -> Rows:
        """Some of the rows."""
        curve = self.curve[chosen] if isinstance(chosen, slice) else [self.curve[i] for i in chosen]
        return Rows(self.key[chosen], self.at[chosen], self.values[chosen], curve)

    def message(self) -> Message:
        rows = {"key": self.key.tolist(), "at": self.at.tolist(), "values": nullable(self.values)}
        return rows if all(c is None for c in self.curve) else {**rows, "curve": self.curve}


def joined(parts: list[Rows], columns: int) -> Rows:
    """Rows one after the other."""
    if len(parts) == 1:
        return parts[0]
    nothing = Rows(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, columns)), [])
    return Rows(
        np.concatenate([nothing.key, *(part.key for part in parts)]),
        np.concatenate([nothing.at, *(part.at for part in parts)]),
        np.concatenate([nothing.values, *(part.values for part in parts)]),
        [curve for part in parts for curve in part.curve],
    )


def _pieces(rows: Rows) -> Iterator[Rows]:
    """The same rows in pieces of which it costs little to take some off."""
    for first in range(0, len(rows), _PIECE):
        yield rows.part(slice(first, first + _PIECE))


@dataclass(frozen=True)
class Narrowed:
    """Grants by position that were narrower than what was in use, and since when they are used."""

    position: Ints
    at: int
    after: int
    """How many rows were put in before: they are sent before this is, or with it."""


@dataclass(frozen=True)
class Batch:
    """A numbered batch: sent again it is the same, but for ``caught_up``, which speaks of one connection."""

    number: int
    sent: int
    rows: Rows
    narrowed: list[Narrowed]
    caught_up: bool
    superseded: int

    def message(self) -> Message:
        message: Message = {"type": "batch", "number": self.number, "sent": self.sent}
        message["rows"] = self.rows.message()
        if self.narrowed:
            position = [p for narrowed in self.narrowed for p in narrowed.position.tolist()]
            at = [narrowed.at for narrowed in self.narrowed for _ in narrowed.position]
            message["narrowed"] = {"position": position, "at": at}
        if self.caught_up:
            message["caught_up"] = True
        if self.superseded:
            message["superseded"] = self.superseded
        return message


@dataclass
class Outbox:
    """What one incarnation of an agent has for the hub."""

    columns: int
    limit: int
    rows_per_batch: int = ROWS_PER_BATCH
    superseded: int = 0
    """Rows that newer ones of the same key have replaced."""
    acknowledged: int = 0
    """The number of the last batch that the hub has on disk."""
    _waiting: deque[Rows] = field(default_factory=deque)
    _put: int = 0
    _taken: int = 0
    """Rows ever put in, and of those the ones that are in batches or superseded."""
    _next_thinning: int = 0
    _narrowed: deque[Narrowed] = field(default_factory=deque)
    _caught_up: int | None = None
    """How many rows were put in when all was caught up, until that is said."""
    _untold: int = 0
    _under_way: deque[Batch] = field(default_factory=deque)
    _unsent: int = 0
    """How many of the batches under way are still to be sent on this connection: the last ones."""
    _number: int = 0

    def __post_init__(self) -> None:
        self._next_thinning = self.limit

    def put(self, rows: Rows) -> None:
        self._waiting.extend(_pieces(rows))
        self._put += len(rows)
        if self.waiting > self._next_thinning:
            self._thin()

    def _thin(self) -> None:
        """Keep the newest waiting row of every key."""
        rows = joined(list(self._waiting), self.columns)
        # the first of each key from the end is its newest
        _, places = np.unique(rows.key[::-1], return_index=True)
        kept = np.sort(len(rows) - 1 - places)
        gone = len(rows) - len(kept)
        self.superseded += gone
        self._untold += gone
        self._waiting = deque(_pieces(rows.part(kept)))
        self._taken += gone
        # counts of rows are of another order now: what follows some rows follows all that are here
        self._narrowed = deque(replace(narrowed, after=self._put) for narrowed in self._narrowed)
        self._caught_up = None if self._caught_up is None else self._put
        # not again before as many have come as stayed, so that it stays cheap with many keys
        self._next_thinning = max(self.limit, 2 * len(kept))

    def narrow(self, position: Ints, at: int) -> None:
        """Grants were narrower than what was in use: told with the rows that this caused."""
        if len(position):
            self._narrowed.append(Narrowed(position, at, self._put))

    def catch_up(self) -> None:
        """All rows up to now are here, and none is missing: said with the last of them."""
        self._caught_up = self._put

    def next_batch(self, now: int) -> Batch | None:
        """The next batch to send on this connection, None while there is none or enough are under way."""
        if self._unsent:
            self._unsent -= 1
            return self._under_way[-1 - self._unsent]
        if len(self._under_way) >= BATCHES_UNDER_WAY or self.empty_handed:
            return None
        rows = self._take()
        narrowed = self._take_narrowed()
        caught_up = self._caught_up is not None and self._taken >= self._caught_up and not self._narrowed
        self._number += 1
        batch = Batch(self._number, now, rows, narrowed, caught_up, self._untold)
        self._untold = 0
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

    def _take(self) -> Rows:
        parts: list[Rows] = []
        room = self.rows_per_batch
        while self._waiting and room:
            first = self._waiting.popleft()
            if len(first) > room:
                self._waiting.appendleft(first.part(slice(room, None)))
                first = first.part(slice(0, room))
            parts.append(first)
            room -= len(first)
        rows = joined(parts, self.columns)
        self._taken += len(rows)
        return rows

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
        return not self.waiting and not self._narrowed and self._caught_up is None

    @property
    def done(self) -> bool:
        """Whether the hub has everything."""
        return self.empty_handed and not self._under_way
