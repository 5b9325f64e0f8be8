"""What an agent knows: its keys, their filters, the grants applied, and what waits for the hub.

Knows neither threads nor connections, and no clock: every call says what time it is. So all of an agent's
decisions can be tested step by step. `Agent` guards it with a lock.

Time never goes back here: what comes with an earlier time than what came before counts as of then, since rows
are carried out in the order of their times. Where bounds change by themselves, filters are applied as of that
very moment, however much later there is time to do so.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from slackwater.edge.bounds import UNTOLD
from slackwater.edge.filters import Filters
from slackwater.edge.grant_table import grants_of
from slackwater.edge.keys import Keys, turns
from slackwater.edge.means import Means
from slackwater.edge.messages import Declared, Key, Message
from slackwater.edge.outbox import ROWS_PER_BATCH, Outbox
from slackwater.edge.shapes import drop, hold, key_of, keys_of, row_of, rows_of
from slackwater.edge.sums import Sums
from slackwater.edge.terms import TermsOf, told_terms
from slackwater.edge.widths import Floats, Ints

REVIEWS_AT_ONCE = 60
"""Times at which bounds changed that are made up for one by one; after a longer sleep, all at once."""
OFFERED_AT_ONCE = 16_384
"""Values that are worked through at a time."""

logger = logging.getLogger(__name__)


class AgentState:
    """The state of one agent of one stream."""

    def __init__(self, *, outbox_limit: int, terms: TermsOf | None = None) -> None:
        self.declared: Declared | None = None
        self.outbox_limit = outbox_limit
        self._terms = terms
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
        self._time = 0
        self._begin()

    def _begin(self) -> None:
        """A new incarnation: the hub knows nothing of it, and it has no grants."""
        columns = len(self.declared.columns) if self.declared else 0
        self.incarnation = secrets.token_hex(8)
        self.log: str | None = None
        self.applied = 0
        self.granted_keys = 0
        self.filters = Filters(columns)
        self._sums, self._means = Sums(), Means()
        self._due: int | None = None
        """When bounds next change by themselves."""
        # a batch of so many values, whatever the columns: what a hub takes at a time is limited
        rows_per_batch = max(1, ROWS_PER_BATCH // max(1, columns))
        self.outbox = Outbox(columns, self.outbox_limit, rows_per_batch, self.filters)
        self._announced = 0
        self._catching_up = -1

    # time

    def review(self, now: int) -> int:
        """Apply the filters wherever bounds have changed until a time; that time, or the last if later."""
        now = max(now, self._time)
        for _ in range(REVIEWS_AT_ONCE):
            if self._due is None or self._due > now:
                break
            self._review(self._due)
        else:
            self._review(now)
        return now

    def _review(self, now: int, keys: Ints | None = None) -> None:
        self._time = now
        self._send(self.filters.review(now, keys), now)
        if (means := self._means.at_end(now)) is not None:
            numbers, rows = means
            self._send(numbers[self.filters.offer(numbers, rows, now)], now)
        self._due = self._next_due(now)

    def _next_due(self, now: int) -> int | None:
        """When bounds or means next change by themselves."""
        times = (self.filters.next_review(now), self._means.next_end())
        return min((t for t in times if t is not None), default=None)

    def next_review(self) -> int | None:
        """When the filters are to be applied again; it may have passed."""
        return self._due

    # values

    def _current(self, key: Key) -> list[float]:
        number = self._keys.find(key)
        if number is None or number >= self.filters.size:
            return [float("nan")] * self.filters.columns
        found: list[float] = self.filters.current(np.array([number]))[0].tolist()
        return found

    def offer(self, key: Any, value: Any, at: int) -> int:
        """A new value of a key: it goes to the outbox if it leaves its bound. Since when it counts."""
        if self.declared is None:
            hold(self._held, key, value)
            self.offered += 1
            return at
        held = key_of(key, self.declared)
        row = row_of(value, self.declared, lambda: self._current(held))
        self.offered += 1
        number = self._keys.number(held)
        self._make_places()
        self._time = at = self.review(at)
        before = self._values()[number].tolist() if len(self._sums) else row
        if self.filters.offer_one(number, row, at):
            self._send(np.array([number]), at)
        if len(self._sums) and len(sums := self._sums.of(np.array([number]))):
            rows = self._sums.changed(number, before, row, self._values())
            flipped = any((b != b) != (a != a) for b, a in zip(before, row, strict=True))
            self._sum_up(sums, rows, sums if flipped else sums[:0], at)
        return at

    def offer_many(self, keys: Sequence[Any], values: Any, at: int) -> None:
        """New values of many keys at one time; of a key that comes twice the values count in turn."""
        if self.declared is None:
            for key, value in zip(keys, values, strict=True):
                hold(self._held, key, value)
            self.offered += len(keys)
            return
        held = keys_of(keys, self.declared)
        rows = rows_of(held, values, self.declared, self._current)
        self.offered += len(held)
        self._time = at = self.review(at)
        left = iter(held)
        # in pieces, of one time: what a million keys need beside their filters would be as much again
        for first in range(0, len(held), OFFERED_AT_ONCE):
            numbers = self._keys.numbers(islice(left, OFFERED_AT_ONCE))
            self._make_places()
            # a filter sees each key once at a time
            for turn in turns(numbers):
                self._offer_many(numbers[turn], rows[first + turn], at)

    def _offer_many(self, numbers: Ints, rows: Floats, at: int) -> None:
        before = np.isnan(self._values()[numbers]) if len(self._sums) else None
        places = self.filters.offer(numbers, rows, at)
        self._send(numbers[places], at)
        if before is not None and len(sums := self._sums.of(numbers)):
            flipped = numbers[(before != np.isnan(rows)).any(axis=1)]
            self._sum_up(sums, self._sums.rows(sums, self._values()), self._sums.of(flipped), at)

    def withdraw(self, key: Any, at: int) -> bool:
        """A key is there no more; False where nothing was known of it."""
        if self.declared is None:
            return drop(self._held, key)
        number = self._keys.find(key_of(key, self.declared))
        if number is None:
            return False
        self._make_places()
        self._time = at = self.review(at)
        if self.filters.withdraw(number, at):
            self._send(np.array([number]), at)
        if len(self._sums) and len(sums := self._sums.of(np.array([number]))):
            self._sum_up(sums, self._sums.rows(sums, self._values()), sums, at)
        return True

    def _values(self) -> Floats:
        """The current values of all keys, by column."""
        return self.filters.value.reshape(self.filters.size, self.filters.columns)

    def _sum_up(self, sums: Ints, rows: Floats, flipped: Ints, at: int) -> None:
        """Sums have changed. Those in which a member has got or lost its value, the ``flipped``, are sent."""
        if len(self._means):
            means = np.array([number in self._means for number in sums.tolist()], bool)
            for number, row in zip(sums[means].tolist(), rows[means].tolist(), strict=True):
                self._means.change(number, row, at)
            sums, rows = sums[~means], rows[~means]
            # of a mean that is known it is told too, and the mean stays what it is
            unknown = np.isnan(self._values()[flipped]).all(axis=1)
            flipped = flipped[~unknown]
        left = sums[self.filters.offer(sums, rows, at)]
        told = np.setdiff1d(flipped[self.filters.asked_for(flipped)], left)
        self.filters.place(told, at)
        self._send(np.concatenate([left, told]), at)

    def _make_places(self) -> None:
        """Let the filters have a place for every key."""
        if (missing := len(self._keys) - self.filters.size) > 0:
            self.filters.add(missing)

    def _send(self, numbers: Ints, at: int) -> None:
        if not len(numbers):
            return
        self.passed += len(numbers)
        # at once: what is said of a bound must be said before it is placed anew
        for first in range(0, len(numbers), OFFERED_AT_ONCE):
            self.outbox.put(self.filters.rows(numbers[first : first + OFFERED_AT_ONCE], at))
        if len(self._sums):
            for number in numbers.tolist():
                if number in self._sums and (absent := self._sums.absent(number, self._values())) is not None:
                    self.outbox.tell_absent(number, absent, at)
        self._due = self._next_due(at)

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
        known = {"incarnation": self.incarnation, "applied": self.applied, "keys": self.granted_keys}
        return {**known, "sums": len(self._sums)} if len(self._sums) else known

    def welcome(self, message: Message, now: int) -> bool:
        """The hub's answer to hello; False where this incarnation cannot go on, and a new one has begun.

        That is so where the stream has another shape than before, or the hub knows less than it once
        acknowledged: it is another hub, or another log.
        """
        shape = None if message["declared"] is None else Declared.parse(message["declared"])
        # a log without a grant that is in use here was restored from an older copy
        granted = self.applied >= message.get("position", self.applied + 1)
        forgotten = granted or message["received"] < self.outbox.acknowledged
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
        values, gone = self._values(), self.filters.gone
        self.superseded_before += self.outbox.superseded + self.outbox.waiting
        self._begin()
        # sums were those of the other log
        self._keys, kept = self._keys.without_sums()
        if len(kept):
            self.filters.add(len(kept))
            # without grants there is nothing to send
            self.filters.value[:] = values[kept].ravel()
            self.filters.since[np.isnan(self.filters.value)] = UNTOLD
            self.filters.gone[:] = gone[kept]

    def turn_back(self, now: int) -> None:
        """The clock was set back: a new incarnation, whose time begins now.

        To wait until it is there again would leave bounds as they are that the coordinator shrinks and moves.
        """
        self.start_anew(now)
        self._time = now

    def next_message(self, now: int) -> Message | None:
        """The next message to the hub on this connection: keys before the rows that name them."""
        if self.declared is None:
            return None
        if self._announced < len(self._keys):
            message = self._keys.message(self._announced)
            if self._terms is not None:
                message |= told_terms(message["keys"], self.declared, self._terms)
            self._announced += len(message["keys"])
            return message
        batch = self.outbox.next_batch(now, self.offered)
        return None if batch is None else batch.message()

    def make_sums(self, message: Message, now: int) -> None:
        """Make these sums of keys, and no others."""
        self._time = now = self.review(now)
        fresh, ended = self._sums.set(message["sums"], self._keys.number)
        self._make_places()
        for number in ended.tolist():
            self._means.end(number)
        self.filters.watch(ended, watched=False)
        self.filters.watch(fresh)
        rows = self._sums.rows(fresh, self._values())
        now_ones = np.array([self._sums.window[number] == 0 for number in fresh.tolist()], bool)
        self.filters.offer(fresh[now_ones], rows[now_ones], now)
        for number, row in zip(fresh[~now_ones].tolist(), rows[~now_ones].tolist(), strict=True):
            self._means.begin(number, self._sums.window[number], row, now)
        self._due = self._next_due(now)

    def grants(self, message: Message, now: int) -> None:
        """Apply grants: what that narrows is told in the same batch as the rows that it causes."""
        grants = grants_of(message)
        if len(grants):
            self._make_places()
            self._time = now = self.review(now)
            narrowed = self.filters.grant(grants, now)
            # an older one that never came may have been wider, and counts until this one is acknowledged
            narrowed[np.array(message.get("skipped", []), np.int64)] = True
            self._review(now, np.unique(grants.key))
            positions = np.array(message["position"], np.int64)
            self.outbox.narrow(positions[narrowed], now)
            self.applied = max(self.applied, int(positions.max()))
        if "keys" in message:
            self.granted_keys = message["keys"]
            if 0 <= self._catching_up <= self.granted_keys:
                self._catching_up = -1
                self.outbox.catch_up()
