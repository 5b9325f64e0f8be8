"""An agent's connection at the hub: what comes up is checked and logged.

Messages are read only while the log keeps up: behind a slow disk TCP holds the agents back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

import numpy as np
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from slackwater.edge.batches import batch_fields
from slackwater.edge.deliveries import Deliveries
from slackwater.edge.messages import (
    BadMessage,
    Message,
    bad,
    cost_of,
    decode,
    field,
    label,
    text,
    whole,
)
from slackwater.edge.streams import Stream
from slackwater.edge.terms import COST, checked_terms

logger = logging.getLogger(__name__)
PING_S = 10.0
CLOCK_OFF = 1_000_000
"""A difference between the clocks of agent and hub that is told, in microseconds."""


class AgentConnection:
    """One agent, from its welcome to its loss; ``hello`` is its first message, its token checked."""

    def __init__(
        self, stream: Stream, socket: ServerConnection, hello: Message, *, ping_s: float = PING_S
    ) -> None:
        self.stream = stream
        self.socket = socket
        self.agent = field(hello, "agent", label, "a name of up to 200 printable characters")
        self.incarnation = field(hello, "incarnation", text, "a text")
        self.applied = field(hello, "applied", whole, "the position of a grant, or 0")
        self.granted = (
            field(hello, "keys", whole, "the number of keys whose grants it has") if "keys" in hello else 0
        )
        self.sums = field(hello, "sums", whole, "the number of sums that it makes") if "sums" in hello else 0
        self.cost = field(hello, "cost", cost_of, COST) if "cost" in hello else 1.0
        self.sign = stream.now()
        """Hub time of the last sign of life."""
        self.clean = False
        self.dismissed = ""
        """Why it had to give way to another process, if it had to."""
        self._current = self._told_clock = False
        self._ping_s = ping_s
        self._leaving: asyncio.Task[None] | None = None
        self._ended = False
        self.down = Deliveries(stream, socket, self.agent)

    async def serve(self) -> None:
        """Welcome the agent, and log what it sends until it is gone; what is wrong is a `BadMessage`."""
        stream = self.stream
        before = stream.agents.get(self.agent)
        if before is not None:
            before.replace(self.incarnation)
        received, keys = stream.registry.known(self.agent, self.incarnation)
        # of the keys that are to be announced again, all grants are sent again
        self.granted = min(self.granted, keys)
        stream.agents[self.agent] = self
        self.down.begin(received)
        paid: Message = {} if self.cost == 1 else {"cost": self.cost}
        position = stream.append("joined", agent=self.agent, incarnation=self.incarnation, keys=keys, **paid)
        declared = stream.registry.declared
        tasks: list[asyncio.Task[None]] = []
        try:
            await stream.durable(position + 1)
            welcome = {"received": received, "keys": keys, "log": stream.log.identity, "time": stream.now()}
            welcome["position"] = position
            shape = declared.message() if declared else None
            await self.down.send({"type": "welcome", "declared": shape, **welcome})
            self._cover(0, keys)
            if self.sums:
                # some of them may have ended meanwhile
                self.down.sums(again=True)
            tasks = [asyncio.create_task(self.down.run()), asyncio.create_task(self._watch())]
            async for raw in self.socket:
                self.sign = stream.now()
                stream.messages_up += 1
                stream.bytes_up += len(raw)
                await stream.room()
                if not self._ended and not self.down.outdated:
                    self._take(decode(raw))
        except ConnectionClosed:
            pass
        finally:
            self.lose()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        """Ping, so that a dead agent is noticed, and a silent one known to live."""
        while True:
            await asyncio.sleep(self._ping_s)
            asked = self.stream.now()
            try:
                async with asyncio.timeout(self._ping_s):
                    await (await self.socket.ping())
            except TimeoutError:
                # the answer may wait behind much else; whoever sends something lives
                if self.sign <= asked:
                    self.socket.transport.abort()
                    return
            # it lived when it heard the ping, and not surely later
            self.sign = max(self.sign, asked)

    def replace(self, incarnation: str) -> None:
        """Give way to a new connection of the agent: this one is dead, or another process has its name."""
        self.lose()
        if incarnation == self.incarnation:
            self.socket.transport.abort()
            return
        reason = f"agent {self.agent!r} has connected from another process: two agents need two names"
        self.dismissed = reason
        self._leaving = asyncio.create_task(self._dismiss(reason))

    async def _dismiss(self, reason: str) -> None:
        with suppress(ConnectionClosed, TimeoutError):
            async with asyncio.timeout(self._ping_s):
                await self.down.send({"type": "refused", "reason": reason})
                await self.socket.close()
        self.socket.transport.abort()

    def lose(self) -> None:
        """Log that the agent is gone, once."""
        if self._ended:
            return
        self._ended = True
        self.stream.append(
            "lost", agent=self.agent, incarnation=self.incarnation, since=self.sign, clean=self.clean
        )
        if self.stream.agents.get(self.agent) is self:
            del self.stream.agents[self.agent]

    def _cover(self, first: int, end: int) -> None:
        """Send the grants of the agent's keys ``first`` to ``end`` that it does not have yet."""
        registry = self.stream.registry
        numbers = np.asarray(registry.agents[self.agent].numbers)[first:end].copy()
        had = registry.grants.objects(numbers[: max(0, self.granted - first)])
        had = had[registry.grants.positions(had) > self.applied]
        self.down.grants(had, again=True)
        self.down.grants(registry.grants.objects(numbers[max(0, self.granted - first) :]))
        self.down.cover(end)
        if registry.sums.of(self.agent):
            # it may have what it needs for a sum now
            self.down.sums()

    def _take(self, message: Message) -> None:
        kinds: dict[str, Callable[[Message], None]] = {
            "keys": self._take_keys,
            "batch": self._take_batch,
            "leave": self._take_leave,
        }
        take = kinds.get(message["type"])
        if take is None:
            raise bad("message.type", f"one of {', '.join(kinds)}", message["type"])
        take(message)

    def _take_leave(self, message: Message) -> None:
        self.clean = True

    def _take_keys(self, message: Message) -> None:
        registry = self.stream.registry
        if registry.declared is None:
            raise BadMessage(f"keys: stream {self.stream.name!r} is not declared yet, so keys have no shape")
        first = field(message, "first", whole, "the agent's number of the first key")
        keys = field(message, "keys", lambda v: v if isinstance(v, list) else None, "a list of keys")
        known = len(registry.agents[self.agent].numbers)
        if first != known:
            raise bad("keys.first", f"{known}, the number of keys announced so far", first)
        numbers = registry.number_keys(self.agent, keys)
        terms = checked_terms(message, len(registry.declared.columns))
        self.stream.append("keys", agent=self.agent, keys=keys, numbers=numbers, **terms)
        self._cover(known, known + len(keys))

    def _take_batch(self, message: Message) -> None:
        record = self.stream.registry.agents[self.agent]
        number = field(message, "number", whole, "the number of the batch")
        if number <= record.received:
            # it was on its way when the connection broke, and had arrived: once is enough
            self.stream.when_durable(self.stream.log.end, lambda: self.down.acknowledge(number))
            return
        if number != record.received + 1:
            raise bad("batch.number", f"{record.received + 1}", number)
        declared = self.stream.registry.declared
        if declared is None:
            raise BadMessage(f"batch: stream {self.stream.name!r} is not declared yet, so rows have no shape")
        fields = batch_fields(message, len(declared.columns), record.numbers)
        self.stream.registry.check_batch(self.agent, fields)
        self._check_clock(fields)
        position = self.stream.append("batch", agent=self.agent, number=number, **fields)
        self.stream.when_durable(position + 1, lambda: self.down.acknowledge(number))

    def _check_clock(self, fields: Message) -> None:
        """Tell, once, of a clock that is ahead, or behind unless messages take that long.

        Batches that are sent again were made long ago; what says that all is told was made since it joined.
        """
        self._current |= bool(fields.get("caught_up"))
        ahead = fields["sent"] - self.sign
        if self._told_clock or not (ahead > CLOCK_OFF or (self._current and -ahead > CLOCK_OFF)):
            return
        self._told_clock = True
        logger.warning(
            "stream %s: the clock of agent %r is %.1f s %s; rows off by more than TOLERANCE are late",
            self.stream.name,
            self.agent,
            abs(ahead) / 1e6,
            "ahead of the hub's" if ahead > 0 else "behind the hub's, or its messages take so long",
        )
