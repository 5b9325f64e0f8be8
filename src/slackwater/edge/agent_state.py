"""What an agent knows: its keys, their filters, the grants applied, and what waits for the hub.

Knows neither threads nor connections, and no clock: every call says what time it is. So all of an agent's
decisions can be tested step by step. `Agent` guards it with a lock.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from slackwater.edge.filters import Filters
from slackwater.edge.grant_table import widths
from slackwater.edge.messages import Declared, Key, Message
from slackwater.edge.outbox import ROWS_PER_BATCH, Outbox, Rows
from slackwater.edge.shapes import Keys, key_of, row_of
from slackwater.edge.widths import Floats, Grants, Ints

logger = logging.getLogger(__name__)


class AgentState:
    """The state of one agent of one stream."""

    def __init__(self, *, outbox_limit: int) -> None:
        self.declared: Declared | None = None
        self.outbox_limit = outbox_limit
        self.offered = 0
        """Values that came in."""
        self.passed = 0
        """Rows that left a bound, by an update, a grant or a shrink."""
        self.superseded_before = 0
        """Rows superseded by earlier incarnations of this process."""
        self.rejected = 0
        """Values held until the stream was declared, which did not fit it."""
        self._held: dict[Any, Any] = {}
        self._keys = Keys()
        self._begin()

    def _begin(self) -> None:
        """A new incarnation: the hub knows nothing of it, and it has no grants."""
        columns = len(self.declared.columns) if self.declared else 0
        self.incarnation = secrets.token_hex(8)
        self.log: str | None = None
        self.applied = 0
        self.granted_keys = 0
        self.filters = Filters(columns)
        self._reviewed_at = 0
        self._changes = 0
        self._looked = -1
        self._due: int | None = None
        # a batch of so many values, whatever the columns: what a hub takes at a time is limited
        rows_per_batch = max(1, ROWS_PER_BATCH // max(1, columns))
        self.outbox = Outbox(columns, self.outbox_limit, rows_per_batch)
        self._announced = 0
        self._catching_up = -1

    # values

    def _row(self, key: Key, value: Any) -> list[float]:
        assert self.declared is not None
        return row_of(value, self.declared, lambda: self._current(key))

    def _current(self, key: Key) -> list[float]:
        number = self._keys.find(key)
        if number is None or number >= self.filters.size:
            return [float("nan")] * self.filters.columns
        return list(self.filters.current(np.array([number]))[0].tolist())

    def offer(self, key: Any, value: Any, at: int) -> None:
        """A new value of a key: it goes to the outbox if it leaves its bound."""
        if self.declared is None:
            self._hold(key, value)
            return
        held = key_of(key, self.declared)
        row = np.array([self._row(held, value)])
        self.offered += 1
        number = self._keys.number(held)
        self._pass(np.array([number]), row, at)

    def offer_many(self, keys: Sequence[Any], values: Any, at: int) -> None:
        """New values of many keys at one time; of a key that comes twice the values count in turn."""
        if self.declared is None:
            for key, value in zip(keys, values, strict=True):
                self._hold(key, value)
            return
        held = [key_of(key, self.declared) for key in keys]
        if not isinstance(values, np.ndarray):
            values = [self._row(key, value) for key, value in zip(held, values, strict=True)]
        rows = np.array(values, np.float64).reshape(len(held), len(self.declared.columns))
        if np.isinf(rows).any():
            raise ValueError("expected finite numbers, or NaN for no value, got an infinite one")
        self.offered += len(held)
        numbers = np.fromiter((self._keys.number(key) for key in held), np.int64, len(held))
        left = np.arange(len(held))
        while len(left):
            # a filter sees each key once at a time
            _, first = np.unique(numbers[left], return_index=True)
            turn = left[np.sort(first)]
            self._pass(numbers[turn], rows[turn], at)
            left = np.setdiff1d(left, turn, assume_unique=True)

    def _hold(self, key: Any, value: Any) -> None:
        self.offered += 1
        before = self._held.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            value = {**before, **value}
        self._held[key] = value

    def _pass(self, numbers: Ints, rows: Floats, at: int) -> None:
        self._make_places()
        places = self.filters.offer(numbers, rows, at)
        self._send(numbers[places], at)

    def _make_places(self) -> None:
        """Let the filters have a place for every key: some to spare, so that keys may come one by one."""
        if (missing := len(self._keys) - self.filters.size) > 0:
            self.filters.add(max(missing, self.filters.size // 16))

    def _send(self, numbers: Ints, at: int) -> None:
        if not len(numbers):
            return
        self.passed += len(numbers)
        self._changes += 1
        times = np.full(len(numbers), at, np.int64)
        # at once: what is said of a bound must be said before it is placed anew
        curve = self.filters.response(numbers)
        self.outbox.put(Rows(numbers, times, self.filters.current(numbers), curve))

    def review(self, now: int) -> None:
        """Apply the filters again after widths have shrunk."""
        self._reviewed_at = now
        self._changes += 1
        self._send(self.filters.review(now), now)

    def next_review(self) -> int | None:
        """When the filters are to be applied again; it may have passed. Looked for only after a change."""
        if self._looked != self._changes:
            self._due, self._looked = self.filters.next_review(self._reviewed_at), self._changes
        return self._due

    @property
    def keys(self) -> int:
        return len(self._keys) or len(self._held)

    @property
    def unannounced(self) -> bool:
        """Whether there are keys that the hub is still to be told of."""
        return self.declared is not None and self._announced < len(self._keys)

    @property
    def flushed(self) -> bool:
        """Whether the hub has on disk all there is, and has told the grants of all keys."""
        return self.outbox.done and (self.declared is None or self.granted_keys >= len(self._keys))

    # the hub

    def hello(self) -> Message:
        return {"incarnation": self.incarnation, "applied": self.applied, "keys": self.granted_keys}

    def welcome(self, message: Message, now: int) -> bool:
        """The hub's answer to hello; False where this incarnation cannot go on, and a new one has begun.

        That is so where the stream has another shape than before, or the hub knows less than it once
        acknowledged: it is another hub, or another log.
        """
        shape = None if message["declared"] is None else Declared.parse(message["declared"])
        forgotten = message["received"] < self.outbox.acknowledged
        if (self.log is not None and message["log"] != self.log) or forgotten:
            self.start_anew(now)
            return False
        self.log = message["log"]
        if shape is not None and not self.declare(shape, now):
            return False
        self.outbox.reconnect(message["received"])
        self._announced = message["keys"]
        self._catching_up = len(self._keys) if self.declared else -1
        return True

    def declare(self, declared: Declared, now: int) -> bool:
        """The shape of the stream; False where it has changed, and a new incarnation has begun."""
        if declared == self.declared:
            return True
        before, self.declared = self.declared, declared
        self._keys = Keys()
        self.superseded_before += self.outbox.superseded
        incarnation, log = self.incarnation, self.log
        self._begin()
        if before is None:
            # nothing was sent so far: it is the same incarnation that goes on
            self.incarnation, self.log = incarnation, log
        held, self._held = self._held, {}
        for key, value in held.items():
            try:
                self.offer(key, value, now)
                self.offered -= 1
            except ValueError as error:
                self.rejected += 1
                logger.warning("a value that came before the stream was declared does not fit: %s", error)
        if len(self._keys):
            self._catching_up = len(self._keys)
        else:
            self.outbox.catch_up()
        return before is None

    def start_anew(self, now: int) -> None:
        """A new incarnation with the same keys and current values: to the hub it is an agent that starts."""
        before = self.filters
        self.superseded_before += self.outbox.superseded
        self._begin()
        if before.size:
            self.filters.add(before.size)
            everything = np.arange(before.size)
            self.filters.offer(everything, before.current(everything), now)

    def next_message(self, now: int) -> Message | None:
        """The next message to the hub on this connection: keys before the rows that name them."""
        if self.declared is None:
            return None
        if self._announced < len(self._keys):
            message = self._keys.message(self._announced)
            self._announced += len(message["keys"])
            return message
        batch = self.outbox.next_batch(now)
        return None if batch is None else batch.message()

    def grants(self, message: Message, now: int) -> None:
        """Apply grants: what that narrows is told in the same batch as the rows that it causes."""
        columns = {name: np.array(message[name], np.int64) for name in ("key", "column", "start", "period")}
        shrink = np.array(message["shrink"], np.float64)
        grants = Grants(width=widths(message["width"]), shrink=shrink, **columns)
        if len(columns["key"]):
            self._make_places()
            narrowed = self.filters.grant(grants, now)
            self.review(now)
            positions = np.array(message["position"], np.int64)
            self.outbox.narrow(positions[narrowed], now)
            self.applied = max(self.applied, int(positions.max()))
        if "keys" in message:
            self.granted_keys = message["keys"]
            if 0 <= self._catching_up <= self.granted_keys:
                self._catching_up = -1
                self.outbox.catch_up()
