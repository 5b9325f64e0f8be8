"""The hub of the world: the real stream, log and connections, without sockets, threads and an event loop.

What is asynchronous is carried on by hand: a coroutine that waits for the disk is resumed when the world's disk
has written. A hub may stop, at once or in good order, and start again from what is in its directory; what was
not on disk is gone then, but for a torn piece of it.
"""

from __future__ import annotations

import heapq
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slackwater.edge import deliveries
from slackwater.edge.connections import AgentConnection
from slackwater.edge.log import Log
from slackwater.edge.streams import Stopping, Stream
from slackwater.edge.widths import Grants
from slackwater.runtime.bounds.summing import Order

if TYPE_CHECKING:
    from precision_world import Site, World

Row = dict[str, Any]
SEGMENT_BYTES = 40_000
"""So little that a hub that starts again has a snapshot to start from, as a rule."""


class Until:
    """What a coroutine waits for: that all positions below one are on disk."""

    def __init__(self, end: int) -> None:
        self.end = end

    def __await__(self) -> Generator[Until, None, None]:
        yield self


class WorldStream(Stream):
    """A stream whose disk and time are the world's, and whose entries are kept in memory too."""

    def __init__(self, world: World, directory: Path, entries: list[Row]) -> None:
        self.world, self.entries = world, entries
        self._due = False
        self.began: int | None = None
        """The position of its first new entry."""
        super().__init__(
            "net",
            directory,
            now=lambda: world.now,
            threads=None,
            segment_bytes=SEGMENT_BYTES,  # type: ignore[arg-type]
        )

    def append(self, kind: str, *, span: int = 1, time: int | None = None, **fields: Any) -> int:
        position = super().append(kind, span=span, time=time, **fields)
        if position:
            if self.began is None:
                # what a stop has lost is written over
                self.began = position
                self.cut_to(position)
            entry = {"position": position, "kind": kind, "received": self.registry.last_time, **fields}
            self.entries.append(json.loads(json.dumps(entry)))
            if not self._due:
                self._due = True
                self.world.soon(self.world.writing(), self.write)
        return position

    def cut_to(self, end: int) -> None:
        while self.entries and self.entries[-1]["position"] >= end:
            self.entries.pop()

    def write(self) -> None:
        """What `commit` does with what waits."""
        self._due = False
        if self._abandoned:
            return
        while (pending := self.log.take()) is not None:
            self.log.write(pending)
            while self._waiting and self._waiting[0][0] <= self.log.durable:
                heapq.heappop(self._waiting)[2]()

    async def durable(self, end: int) -> None:
        if self._abandoned:
            raise Stopping("the hub is stopping")
        if end > self.log.durable:
            await Until(end)

    def carry_on(self, coroutine: Coroutine[Until, None, Any], then: Callable[[Any], None]) -> None:
        """Let a coroutine run as far as the disk is; for ever not, if the hub stops before."""
        try:
            waits = coroutine.send(None)
        except StopIteration as done:
            then(done.value)
            return
        self.when_durable(waits.end, lambda: self.carry_on(coroutine, then))

    def stop(self, clean: bool, torn: float) -> None:
        """Let go of the log; of what is not on disk a share is, in pieces."""
        if clean:
            for connection in list(self.agents.values()):
                connection.lose()
            self.write()
        self._give_up()
        pending = self.log.take()
        if pending is not None:
            pieces = []
            for piece in pending.pieces:
                if not isinstance(piece, bytes):
                    break
                pieces.append(piece)
            raw = b"".join(pieces)
            os.write(self.log._file, raw[: int(torn * len(raw))])
        self.log.close()


class Link:
    """A connection: first in, first out both ways, until it is cut. To the hub it is a socket."""

    def __init__(self, world: World, site: Site, hello: Row) -> None:
        self.world, self.site = world, site
        self._hello = {"agent": site.name, **hello}
        self.up = True
        """Whether messages get through."""
        self.welcomed = False
        self.connection: AgentConnection | None = None
        self._last = {"up": 0, "down": 0}
        self._sending = False
        self.transport = self

    @property
    def ended(self) -> bool:
        """Whether the hub knows that it is gone."""
        return self.connection is not None and self.connection._ended

    def carry(self, way: str, message: Row, take: Callable[[Row], None]) -> None:
        """Let a message arrive later, after those before it."""
        world = self.world
        at = max(world.now + world.delay(), self._last[way])
        self._last[way] = at
        world.at(at, lambda: take(message) if self.up else None)

    def to_hub(self, message: Row) -> None:
        self.carry("up", json.loads(json.dumps(message)), self._take)

    # what the hub calls

    async def send(self, raw: str) -> None:
        self.carry("down", json.loads(raw), self.site.heard)

    async def close(self) -> None:
        self.up = False

    def abort(self) -> None:
        self.up = False

    # what the hub does

    def join(self) -> None:
        """What `AgentConnection.serve` does first."""
        stream = self.world.hub.stream
        hello = json.loads(json.dumps({"cost": self.site.cost, **self._hello}))
        connection = self.connection = AgentConnection(stream, self, hello)  # type: ignore[arg-type]
        before = stream.agents.get(connection.agent)
        if before is not None:
            # what a dead process left behind goes in the same way
            before.replace(before.incarnation)
        received, keys = stream.registry.known(connection.agent, connection.incarnation)
        connection.granted = min(connection.granted, keys)
        stream.agents[connection.agent] = connection
        connection.down.begin(received)
        paid = {} if connection.cost == 1 else {"cost": connection.cost}
        life = {"agent": connection.agent, "incarnation": connection.incarnation}
        position = stream.append("joined", **life, keys=keys, **paid)
        self.world.hub.joined.append((position, connection.incarnation))
        stream.carry_on(self._welcome(position, received, keys), lambda _: self.wake())

    async def _welcome(self, position: int, received: int, keys: int) -> None:
        stream, connection = self.world.hub.stream, self.connection
        declared = stream.registry.declared.message()
        await stream.durable(position + 1)
        welcome = {"received": received, "keys": keys, "log": stream.log.identity, "time": stream.now()}
        await connection.down.send({"type": "welcome", "declared": declared, **welcome})
        connection._cover(0, keys)
        if connection.sums:
            connection.down.sums(again=True)
        self._welcomed = True

    _welcomed = False

    def _take(self, message: Row) -> None:
        connection, hub = self.connection, self.world.hub
        if connection is None or self.ended or connection.stream is not hub.stream:
            return
        connection.sign = connection.stream.now()
        end = connection.stream.log.end
        connection._take(message)
        if message["type"] == "batch" and connection.stream.log.end > end:
            self.world.logged(self.site, connection.incarnation, message, end)
        hub.wake()

    def wake(self) -> None:
        """What waits for the agent is sent some time later: its connection may be slow."""
        connection = self.connection
        if self._sending or not self._welcomed or not connection.down._wake.is_set():
            return
        self._sending = True
        self.world.at(self.world.now + self.world.dallying(), self._send)

    def _send(self) -> None:
        down, stream = self.connection.down, self.connection.stream
        if not self.up or self.ended or stream._abandoned:
            return
        down._wake.clear()
        usual, deliveries.GRANTS_PER_MESSAGE = deliveries.GRANTS_PER_MESSAGE, self.world.per_message
        try:
            stream.carry_on(down._send_waiting(), self._sent)
        finally:
            deliveries.GRANTS_PER_MESSAGE = usual

    def _sent(self, _: Any) -> None:
        self._sending = False
        self.wake()

    def lose(self) -> None:
        """The hub notices that it is gone."""
        self.up = False
        if self.connection is not None:
            self.connection.lose()


class Hub:
    """A stream on disk, and who is connected; it may be down."""

    def __init__(self, world: World) -> None:
        self.world = world
        memory = Path("/dev/shm")
        self._home = Path(tempfile.mkdtemp(prefix="hub-", dir=memory if memory.is_dir() else None))
        self.log: list[Row] = []
        """All entries that there are."""
        self.joined: list[tuple[int, str]] = []
        """Where incarnations have joined."""
        self.up = True
        self.stops = 0
        self._requests: dict[int, Callable[[], None]] = {}
        self.stream = WorldStream(world, self._home, self.log)
        self._logs = [self.stream.log]
        weakref.finalize(self, _remove, self._home, self._logs)

    @property
    def registry(self) -> Any:
        return self.stream.registry

    @property
    def end(self) -> int:
        return self.stream.log.end

    @property
    def links(self) -> dict[str, Link]:
        return {name: connection.socket for name, connection in self.stream.agents.items()}  # type: ignore[misc]

    def append(self, kind: str, *, span: int = 1, **fields: Any) -> int:
        return self.stream.append(kind, span=span, **fields)

    def read(self, first: int, end: int) -> list[Row]:
        return [e for e in self.log if first <= e["position"] < end]

    def wake(self) -> None:
        for link in self.links.values():
            link.wake()

    def request(self, answer: Callable[[int, int], None], otherwise: Callable[[], None]) -> None:
        """What `CoordinatorConnection._end` does: an end of the log and its time, once it is on disk."""
        if not self.up:
            otherwise()
            return
        end, time = self.end, self.world.now
        number = len(self.log) + end
        self._requests[number] = otherwise

        def reached() -> None:
            self._requests.pop(number)
            answer(end, time)

        self.stream.when_durable(end, reached)

    def form(self, order: Order) -> int:
        """What a coordinator's request comes to; the position after it."""
        for members in order.members:
            self.registry.check_sum(order.agent, members)
        self.stream.form(order.agent, order.members, order.scope, order.window, order.dropped, 1)
        self.wake()
        return self.end

    def grant(self, grants: Grants) -> int:
        """What a coordinator's request comes to; the position after the last of them."""
        assert (grants.width >= 0).all()
        fields = {
            name: getattr(grants, name).tolist() for name in ("key", "column", "start", "shrink", "period")
        }
        fields["width"] = [None if np.isinf(w) else w for w in grants.width.tolist()]
        self.stream.grant(fields, 1)
        self.wake()
        return self.end

    # it stops and starts

    def stop(self, clean: bool, torn: float) -> None:
        assert self.up
        self.up = False
        self.stops += 1
        self.stream.stop(clean, torn)
        for site in self.world.sites:
            if site.link is not None and site.link.up:
                site.link.up = False
                self.world.at(self.world.now + self.world.delay(), site.connect)
        requests, self._requests = self._requests, {}
        for otherwise in requests.values():
            otherwise()

    def start(self) -> None:
        """What is known is what the disk says."""
        assert not self.up
        self.stream = WorldStream(self.world, self._home, self.log)
        self._logs[0] = self.stream.log
        end = self.end if self.stream.began is None else self.stream.began
        self.stream.cut_to(self.end)
        self.stream.write()
        texts, _ = self.stream.log.read(1, self.end, 1 << 40, 1 << 40)
        assert [json.loads(t) for t in texts] == self.log
        self.up = True
        self.joined = [(p, i) for p, i in self.joined if p < end]
        self.world.lost_from(end)


def _remove(home: Path, logs: list[Log]) -> None:
    with suppress(OSError):
        logs[0].close()
    shutil.rmtree(home, ignore_errors=True)
