"""A coordinator's connection at the hub: requests, each answered in turn.

One coordinator at a time: a new one raises the generation, and the one before is told that it is fenced.
One that comes back with its generation, and finds it the newest still, goes on with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from slackwater.edge.messages import (
    BadMessage,
    Declared,
    Message,
    bad,
    decode,
    encode,
    field,
    label,
    number,
    one_length,
    text,
    whole,
    wholes,
)
from slackwater.edge.streams import Stopping, Stream
from slackwater.errors import StateError

READ_LIMIT = 100_000
CLOSE_S = 5.0


class CoordinatorConnection:
    """One coordinator, from its welcome on; ``hello`` is its first message, its token checked."""

    def __init__(self, stream: Stream, socket: ServerConnection, hello: Message) -> None:
        self.stream = stream
        self.socket = socket
        self.generation = 0
        self._hello = hello
        self._fencing: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Welcome the coordinator and answer it until it is gone."""
        with suppress(ConnectionClosed):
            if not await self._welcome():
                return
            async for raw in self.socket:
                request = decode(raw)
                # one that was fenced while its request was on the way is not answered any more
                if self.stream.coordinator is not self:
                    return
                await self._answer(request)
        if self.stream.coordinator is self:
            self.stream.coordinator = None

    async def _welcome(self) -> bool:
        stream, registry = self.stream, self.stream.registry
        declared = Declared.parse(self._hello.get("declared"), "hello.declared")
        resumed = (
            field(self._hello, "generation", whole, "a generation") if "generation" in self._hello else None
        )
        if resumed is not None and resumed != registry.generation:
            await self.socket.send(self._fenced(registry.generation))
            return False
        before, stream.coordinator = stream.coordinator, self
        if resumed is None:
            stream.append("generation", number=registry.generation + 1)
        self.generation = registry.generation
        if before is not None:
            before.fence(self.generation)
        stream.declare(declared)
        end, time = stream.log.end, stream.now()
        await stream.durable(end)
        message = {"generation": self.generation, "position": end, "begin": stream.log.begin}
        await self.socket.send(
            encode({"type": "welcome", **message, "log": stream.log.identity, "time": time})
        )
        return True

    def fence(self, generation: int) -> None:
        """Tell that a newer coordinator is there, and close."""
        self._fencing = asyncio.create_task(self._tell_fenced(generation))

    async def _tell_fenced(self, generation: int) -> None:
        with suppress(ConnectionClosed, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.socket.send(self._fenced(generation))
                await self.socket.close()
        self.socket.transport.abort()

    def _fenced(self, generation: int) -> str:
        # with the log's name: one that was begun anew has no other coordinator, only lower generations
        return encode({"type": "fenced", "generation": generation, "log": self.stream.log.identity})

    async def _answer(self, request: Message) -> None:
        kinds: dict[str, Callable[[Message], Awaitable[str]]] = {
            "end": self._end,
            "read": self._read,
            "grant": self._grant,
            "form": self._form,
            "forget": self._forget,
            "status": self._status,
        }
        answer = kinds.get(request["type"])
        identity = encode({"id": request.get("id")})[1:-1]
        if answer is None:
            raise bad("message.type", f"one of {', '.join(kinds)}", request["type"])
        try:
            body = await answer(request)
        except Stopping:
            # no answer is given: it is asked again when the hub is back
            raise
        except (BadMessage, StateError) as error:
            # the request is at fault, not the connection: later ones may be right
            body = encode({"type": "refused", "reason": str(error)})
        await self.socket.send("{" + identity + "," + body[1:])

    async def _end(self, request: Message) -> str:
        end, time = self.stream.log.end, self.stream.now()
        await self.stream.durable(end)
        return encode({"type": "end", "position": end, "time": time})

    async def _read(self, request: Message) -> str:
        start = field(request, "from", whole, "a position")
        to = field(request, "to", whole, "a position")
        limit = field(request, "limit", whole, "a number of entries")
        entries, following = await self.stream.read(start, to, min(max(1, limit), READ_LIMIT))
        # entries are on disk as they are sent: there is no need to take them apart
        return f'{{"type":"entries","next":{following},"entries":[{",".join(entries)}]}}'

    def _newest(self, request: Message) -> int:
        """The generation of a request that only the newest coordinator may make."""
        generation = field(request, "generation", whole, "a generation")
        newest = self.stream.registry.generation
        if generation != newest:
            kind = request["type"]
            raise BadMessage(f"{kind}: generation {generation} is fenced, the newest is {newest}")
        return generation

    async def _form(self, request: Message) -> str:
        generation = self._newest(request)
        await self.stream.room()
        agent = field(request, "agent", label, "the name of an agent")
        members = field(request, "members", _lists, "a list of lists of numbers of keys")
        scope = field(request, "scope", _texts, "a list of texts")
        window = field(request, "window", wholes, "a list of microseconds, 0 for none")
        dropped = field(request, "dropped", wholes, "a list of numbers of sums")
        one_length("form", {"members": members, "scope": scope, "window": window})
        for some in members:
            self.stream.registry.check_sum(agent, some)
        numbers = self.stream.form(agent, members, scope, window, dropped, generation)
        await self.stream.durable(self.stream.log.end)
        return encode({"type": "formed", "sums": numbers})

    async def _grant(self, request: Message) -> str:
        generation = self._newest(request)
        await self.stream.room()
        grants = self._grants(request)
        position, start = self.stream.grant(grants, generation)
        await self.stream.durable(position + len(start))
        positions = list(range(position, position + len(start)))
        return encode({"type": "granted", "position": positions, "start": start})

    def _grants(self, request: Message) -> Message:
        registry = self.stream.registry
        grants = field(request, "grants", lambda v: v if isinstance(v, dict) else None, "an object of arrays")
        checked: Message = {
            "key": field(grants, "key", wholes, "a list of numbers of keys", "grant.grants"),
            "column": field(grants, "column", wholes, "a list of numbers of columns", "grant.grants"),
            "width": field(grants, "width", _widths, "a list of numbers from 0 on, or null", "grant.grants"),
            "start": field(grants, "start", wholes, "a list of times in microseconds", "grant.grants"),
            "shrink": field(
                grants, "shrink", _shrinks, "a list of numbers from 0 to below 1", "grant.grants"
            ),
            "period": field(grants, "period", _periods, "a list of microseconds above 0", "grant.grants"),
        }
        one_length("grant.grants", checked)
        if checked["key"] and max(checked["key"]) >= len(registry.names):
            raise bad("grant.grants.key", f"numbers below {len(registry.names)}", max(checked["key"]))
        if checked["column"] and max(checked["column"]) >= registry.grants.columns:
            raise bad(
                "grant.grants.column", f"numbers below {registry.grants.columns}", max(checked["column"])
            )
        return checked

    async def _forget(self, request: Message) -> str:
        through = field(request, "through", whole, "a position")
        self.stream.log.forget(min(through, self.stream.log.durable))
        return encode({"type": "forgotten", "begin": self.stream.log.begin})

    async def _status(self, request: Message) -> str:
        stream, registry = self.stream, self.stream.registry
        return encode(
            {
                "type": "status",
                "agents": len(stream.agents),
                "agents_known": len(registry.agents),
                "keys": len(registry.names),
                "messages_up": stream.messages_up,
                "messages_down": stream.messages_down,
                "bytes_up": stream.bytes_up,
                "bytes_down": stream.bytes_down,
                "grants_queued": sum(agent.down.queued for agent in stream.agents.values()),
                "unwritten_bytes": stream.log.waiting_bytes,
                "log_bytes": stream.log.size(),
                "begin": stream.log.begin,
                "position": stream.log.end,
                "generation": registry.generation,
                "time": stream.now(),
            }
        )


def _lists(value: Any) -> list[list[int]] | None:
    return value if isinstance(value, list) and all(wholes(v) is not None for v in value) else None


def _texts(value: Any) -> list[str] | None:
    return value if isinstance(value, list) and all(text(v) is not None for v in value) else None


def _widths(value: Any) -> list[float | None] | None:
    fits = isinstance(value, list) and all(w is None or (number(w) and w >= 0) for w in value)
    return value if fits else None


def _shrinks(value: Any) -> list[float] | None:
    return value if isinstance(value, list) and all(number(s) and 0 <= s < 1 for s in value) else None


def _periods(value: Any) -> list[int] | None:
    return value if isinstance(value, list) and all(type(p) is int and p > 0 for p in value) else None
