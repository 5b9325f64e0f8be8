"""The agent: takes values beside the data, and sends those that leave their bounds to the hub."""

from __future__ import annotations

import platform
import random as randomness
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from slackwater.edge.agent_state import AgentState
from slackwater.edge.clock import SteadyClock, now_micros
from slackwater.edge.messages import Declared, cost_of, label, name_of
from slackwater.edge.terms import COST, Terms, TermsOf, terms_of
from slackwater.edge.tls import client_tls
from slackwater.edge.uplink import Uplink
from slackwater.errors import SourceError

OUTBOX_LIMIT = 100_000


@dataclass(frozen=True)
class AgentCounters:
    """What an agent has done since it was made."""

    offered: int
    """Values that came in."""
    passed: int
    """Rows that left a bound."""
    sent: int
    """Messages to the hub: batches and names of keys."""
    waiting: int
    """Rows that are in no batch yet."""
    under_way: int
    """Batches that the hub has not acknowledged."""
    superseded: int
    """Rows that a newer one of their key replaced before they were sent."""
    rejected: int
    """Values that came before the stream was declared, and did not fit it."""
    keys: int
    connected: bool
    connections: int
    """How often the hub has welcomed it."""


class Agent:
    """Values of a stream's keys go in; those that leave their bounds go to the hub.

    Guarantees. Every row that leaves its bound reaches the hub's log once, however often the connection
    breaks, unless it was superseded: with more than ``outbox_limit`` rows waiting, only the newest of each
    key is kept, and the log says how many were not. Without a connection, filters go on and rows wait. What
    has no grant is not sent.

    ``name`` tells agents of a stream apart and outlives restarts: the host's name by default, so two agents
    of one stream on one host need names. ``clock`` gives microseconds since the epoch; where it was set
    back by more than a second, the agent begins anew and all values are told again. ``cost`` is what one of
    its messages costs, relative to 1: the dearer they are, the wider its bounds. ``terms`` says of single
    keys what their messages cost, times that, and how fast their values can change; it is asked when a key is
    first told to the hub. All methods may be called from any thread.

    >>> agent = Agent("hosts", hub="ws://127.0.0.1:7400", name="rack-1")
    >>> since = agent.update("web-1", 0.75)
    >>> agent.update_many(["web-1", "web-2"], [0.5, 0.25])
    >>> agent.counters.offered, agent.counters.connected
    (3, False)
    >>> agent.trouble
    'the agent was not started'

    As a context manager it connects, and on leaving waits for what is under way:

        with Agent("hosts", hub="ws://hub:7400", token=token) as agent:
            agent.update("web-1", measure())
    """

    def __init__(
        self,
        stream: str,
        *,
        hub: str,
        token: str = "",
        name: str | None = None,
        ca: Path | None = None,
        clock: Callable[[], int] = now_micros,
        random: Callable[[], float] = randomness.random,
        outbox_limit: int = OUTBOX_LIMIT,
        flush_timeout: float = 5.0,
        cost: float = 1.0,
        terms: Mapping[Any, Terms] | TermsOf | None = None,
    ) -> None:
        self.stream = stream
        self.name = platform.node() if name is None else name
        if name_of(stream) is None:
            raise SourceError(f"expected a stream's name of letters, digits, _ - and ., got {stream!r}")
        if label(self.name) is None:
            raise SourceError(
                f"expected an agent's name of up to 200 printable characters, got {self.name!r}"
            )
        if not hub.startswith(("ws://", "wss://")):
            raise SourceError(f"expected a hub such as ws://host:7400 or wss://host:7400, got {hub!r}")
        if (paid := cost_of(cost)) is None:
            raise SourceError(f"expected {COST}, got {cost!r}")
        identity = {"stream": stream, "agent": self.name, "token": token}
        tls = client_tls(hub, ca)
        self._clock = steady = SteadyClock(clock)
        self._flush_timeout = flush_timeout
        self._changed = threading.Condition()
        self._state = AgentState(outbox_limit=outbox_limit, terms=terms_of(terms))
        self._uplink = Uplink(
            self._state,
            self._changed,
            url=hub,
            identity=identity if paid == 1 else {**identity, "cost": paid},
            clock=steady,
            random=random,
            tls=tls,
        )
        self._thread: threading.Thread | None = None

    # values

    def update(self, key: Any, value: Any, at: int | None = None) -> int:
        """A new value of a key: a number where the stream has one value column, else a mapping by column.

        Columns that a mapping leaves out stay as they are; None is no value. A key is a text or number, or a
        tuple of them for several KEY columns. What does not fit the stream is a ValueError. Values that come
        before the hub has said what the stream looks like are held; of each key the last counts.

        ``at`` is since when the value holds, by the agent's clock. What has not come yet counts as now. What
        is before another value, or before bounds have changed, counts as of then: time does not go back.
        What is given back is since when it counts.
        """
        with self._changed:
            waiting = self._state.passed
            counts = self._state.offer(key, value, self._when(at))
            self._after(waiting)
            return counts

    def update_many(self, keys: Sequence[Any], values: Any, at: int | None = None) -> None:
        """New values of many keys at one time: values as for `update`, or an array with a row for each."""
        with self._changed:
            waiting = self._state.passed
            self._state.offer_many(keys, values, self._when(at))
            self._after(waiting)

    def withdraw(self, key: Any, at: int | None = None) -> bool:
        """A key is there no more: it counts no longer, and needs no width. It is back with its next value.

        False where the agent has had no value of it. A key that is there and has no value is another thing:
        ``update(key, None)``.
        """
        with self._changed:
            waiting = self._state.passed
            known = self._state.withdraw(key, self._when(at))
            self._after(waiting)
            return known

    def review(self) -> None:
        """Apply the filters again, as widths shrink with time; done by itself while the agent runs."""
        with self._changed:
            waiting = self._state.passed
            self._state.review(self._clock())
            self._after(waiting)

    def _when(self, at: int | None) -> int:
        now = self._clock()
        if at is None:
            return now
        if isinstance(at, bool) or not isinstance(at, int | np.integer) or at < 0:
            raise ValueError(f"expected a time in whole microseconds since the epoch, got {at!r}")
        return min(int(at), now)

    def _after(self, passed: int) -> None:
        if self._state.passed != passed or self._state.unannounced:
            self._uplink.wake()

    # the connection

    def start(self) -> Self:
        """Connect, in a thread of its own, and stay connected."""
        if self._thread is not None:
            raise SourceError(f"agent {self.name!r} was started before: make a new one")
        self._uplink.open()
        self._thread = threading.Thread(target=self._uplink.run, name=f"agent-{self.name}", daemon=True)
        self._thread.start()
        return self

    def stop(self, flush_timeout: float | None = None) -> bool:
        """Disconnect, after waiting for what is under way; whether the hub has everything."""
        if self._thread is None:
            return self._state.outbox.done
        flushed = self.flush(self._flush_timeout if flush_timeout is None else flush_timeout)
        self._uplink.stop()
        self._thread.join()
        return flushed

    def flush(self, timeout: float) -> bool:
        """Wait until the hub has on disk all that left its bounds; False after ``timeout`` seconds."""
        return self.wait(lambda: self._state.flushed, timeout)

    def wait(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition on the agent holds; False after ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    def declared(self, timeout: float = 0.0) -> Declared | None:
        """The shape of the stream, waiting for it; None where the hub has not said it."""
        self.wait(lambda: self._state.declared is not None, timeout)
        return self._state.declared

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # what it does

    @property
    def connected(self) -> bool:
        return self._uplink.connected

    @property
    def trouble(self) -> str:
        """Why there is no connection, in words; empty with one, and while the first is made."""
        return self._uplink.trouble

    @property
    def counters(self) -> AgentCounters:
        with self._changed:
            state = self._state
            return AgentCounters(
                offered=state.offered,
                passed=state.passed,
                sent=self._uplink.messages,
                waiting=state.outbox.waiting,
                under_way=state.outbox.under_way,
                superseded=state.superseded_before + state.outbox.superseded,
                rejected=state.rejected,
                keys=state.keys,
                connected=self._uplink.connected,
                connections=self._uplink.connections,
            )
