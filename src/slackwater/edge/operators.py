"""An operator's connection at the hub: looks at what is granted, and withdraws keys that nobody answers for.

It takes no generation: a coordinator that is there goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import numpy as np
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from slackwater.edge.messages import BadMessage, Message, bad, decode, encode, field, label, parts_of, whole
from slackwater.edge.streams import Stream

KEYS_PER_ANSWER = 10_000


class OperatorConnection:
    """Requests of one operator, each answered in turn; its token is checked."""

    def __init__(self, stream: Stream, socket: ServerConnection) -> None:
        self.stream = stream
        self.socket = socket

    async def serve(self) -> None:
        """Answer until the operator is gone; a request that is wrong is a `BadMessage`."""
        kinds: dict[str, Callable[[Message], Awaitable[Message]]] = {
            "widths": self._widths,
            "withdraw": self._withdraw,
        }
        with suppress(ConnectionClosed):
            await self.socket.send(encode({"type": "welcome", "time": self.stream.now()}))
            async for raw in self.socket:
                request = decode(raw)
                answer = kinds.get(request["type"])
                if answer is None:
                    raise bad("message.type", f"one of {', '.join(kinds)}", request["type"])
                await self.socket.send(encode(await answer(request)))

    async def _widths(self, request: Message) -> Message:
        """The newest grants of some keys, with the names of the keys; on disk before they are told."""
        first = field(request, "first", whole, "the number of a key")
        registry = self.stream.registry
        if registry.declared is None:
            raise BadMessage(f"stream {self.stream.name!r} is not declared yet: no query has asked for it")
        names = registry.names[first : first + KEYS_PER_ANSWER]
        numbers = np.arange(first, first + len(names))
        objects = registry.grants.objects(numbers)
        grants = registry.grants.message(objects, objects // registry.grants.columns)
        answer = {
            "type": "widths",
            "declared": registry.declared.message(),
            "time": self.stream.now(),
            "keys": [parts_of(key) for key in names],
            "grants": grants,
            "next": first + len(names),
            "total": len(registry.names),
        }
        await self.stream.durable(self.stream.log.end)
        return answer

    async def _withdraw(self, request: Message) -> Message:
        """Withdraw the keys of an agent that no connected process answers for."""
        agent = field(request, "agent", label, "the name of an agent")
        registry = self.stream.registry
        if agent not in registry.agents:
            there = ", ".join(sorted(registry.agents)[:10]) or "none"
            raise BadMessage(f"stream {self.stream.name!r} has had no agent {agent!r}; it has: {there}")
        numbers = registry.unclaimed(agent)
        if numbers:
            self.stream.append("withdrawn", agent=agent, numbers=numbers)
        await self.stream.durable(self.stream.log.end)
        return {
            "type": "withdrawn",
            "keys": registry.keys_among(numbers),
            "connected": registry.agents[agent].joined,
        }
