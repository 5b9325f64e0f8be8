"""What goes down to an agent: always the newest of its kind, and only what is on disk.

What waits is bounded by what there is: the number of the last batch on disk, the shape of the stream, and a
set of objects whose newest grant the agent does not have. A slow agent skips grants that newer ones replaced,
and is told so: whoever granted them may have counted on the one that was skipped.
"""

from __future__ import annotations

import asyncio
import logging

import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from slackwater.edge.messages import Declared, Message, encode
from slackwater.edge.streams import Stream
from slackwater.errors import StateError

GRANTS_PER_MESSAGE = 10_000
_PIECES = 64
Ints = NDArray[np.int64]

logger = logging.getLogger(__name__)


class Deliveries:
    """What waits for one agent, and the sending of it."""

    def __init__(self, stream: Stream, socket: ServerConnection, agent: str) -> None:
        self._stream = stream
        self._socket = socket
        self._agent = agent
        self._wake = asyncio.Event()
        self._received = self._told = 0
        self._declared: Declared | None = None
        self.outdated = False
        """Whether the stream has changed its shape: the agent is told, and comes back anew."""
        self._objects: list[Ints] = []
        self._skipped: Ints = np.empty(0, np.int64)
        """Objects of which the agent may never hear of an older grant."""
        self._covered = self._told_covered = -1
        self._sums = False
        """Whether the agent is to be told which sums it makes."""
        self._told_sums: Message | None = {"type": "sums", "sums": []}

    def begin(self, received: int) -> None:
        """The agent knows from its welcome that the hub has batches up to this one."""
        self._received = self._told = received

    def grants(self, objects: Ints, *, again: bool = False) -> None:
        """The newest grants of these objects are to be sent; ``again``: after a time without the agent."""
        self._objects.append(objects)
        if again:
            self._skipped = np.union1d(self._skipped, objects)
        if len(self._objects) > _PIECES:
            self._objects = [self._gathered()]
        self._wake.set()

    def _gathered(self) -> Ints:
        """The objects that wait, each once; what comes twice was skipped once."""
        objects, times = np.unique(
            np.concatenate([np.zeros(0, np.int64), *self._objects]), return_counts=True
        )
        self._skipped = np.union1d(self._skipped, objects[times > 1])
        return objects

    def cover(self, keys: int) -> None:
        """With the grants that wait now, the agent has all there is for its first ``keys`` keys."""
        self._covered = keys
        self._wake.set()

    def sums(self, *, again: bool = False) -> None:
        """The sums that the agent is to make, or can, may be others now; ``again``: it has some already."""
        self._sums = True
        self._told_sums = None if again else self._told_sums
        self._wake.set()

    def declare(self, declared: Declared, *, changed: bool) -> None:
        self._declared = declared
        self.outdated = self.outdated or changed
        self._wake.set()

    def acknowledge(self, number: int) -> None:
        """The batch of this number is on disk."""
        self._received = max(self._received, number)
        self._wake.set()

    @property
    def queued(self) -> int:
        """Grants that wait to be sent, some of them perhaps twice."""
        return sum(map(len, self._objects))

    async def send(self, message: Message) -> None:
        raw = encode(message)
        self._stream.messages_down += 1
        self._stream.bytes_down += len(raw)
        await self._socket.send(raw)

    async def run(self) -> None:
        """Send what comes to wait, until cancelled or the connection is gone."""
        try:
            while await self._send_waiting():
                await self._wake.wait()
                self._wake.clear()
        except (ConnectionClosed, StateError):
            pass
        except Exception:
            logger.exception("agent %r is disconnected: sending to it failed", self._agent)
            self._socket.transport.abort()

    async def _send_waiting(self) -> bool:
        if self._declared is not None:
            declared, self._declared = self._declared, None
            await self._stream.durable(self._stream.log.end)
            await self.send({"type": "declare", **declared.message()})
        if self.outdated:
            await self._socket.close()
            return False
        if self._received > self._told:
            self._told = self._received
            await self.send({"type": "received", "number": self._told})
        if self._sums:
            await self._send_sums()
        if self._objects or self._covered > self._told_covered:
            await self._send_grants()
        return True

    async def _send_sums(self) -> None:
        """All sums that the agent can make: what it has and is not named any more has ended."""
        self._sums = False
        sums = [list(told) for told in self._stream.registry.sums_of(self._agent)]
        message: Message = {"type": "sums", "sums": sums}
        await self._stream.durable(self._stream.log.end)
        if message != self._told_sums:
            self._told_sums = message
            await self.send(message)

    async def _send_grants(self) -> None:
        """All grants that wait, in the order of their positions, so that `applied` is one number."""
        registry = self._stream.registry
        covered = self._covered
        objects, skipped = self._gathered(), self._skipped
        self._objects, self._skipped = [], np.empty(0, np.int64)
        objects = objects[np.argsort(registry.grants.positions(objects), kind="stable")]
        parts = np.split(objects, range(GRANTS_PER_MESSAGE, len(objects), GRANTS_PER_MESSAGE))
        messages = []
        for index, part in enumerate(parts):
            owner, local = registry.holders(part // max(1, registry.grants.columns))
            # what was taken over by another agent meanwhile is that one's
            mine = owner == registry.agents[self._agent].place
            message = {"type": "grants", **registry.grants.message(part[mine], local[mine])}
            if len(places := np.flatnonzero(np.isin(part[mine], skipped))):
                message["skipped"] = places.tolist()
            # the last of them says for how many keys the agent now has all there is
            messages.append(message | {"keys": covered} if index == len(parts) - 1 else message)
        # the newest grants may have been logged a moment ago
        await self._stream.durable(self._stream.log.end)
        for message in messages:
            await self.send(message)
        self._told_covered = covered
