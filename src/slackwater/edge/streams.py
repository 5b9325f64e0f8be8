"""One stream at the hub: its log and registry, kept in step, and the connections that wait for the disk.

Whatever happens becomes an entry by `Stream.append`: it gets a position and a time, changes the registry at
once and is written with the next fsync. Nothing is acknowledged or passed on before `durable`.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from slackwater.edge.log import SEGMENT_BYTES, Log
from slackwater.edge.messages import Declared
from slackwater.edge.registry import NOBODY, Registry
from slackwater.errors import StateError

if TYPE_CHECKING:
    from slackwater.edge.connections import AgentConnection
    from slackwater.edge.requests import CoordinatorConnection

logger = logging.getLogger(__name__)
BEHIND_BYTES = 8 << 20
"""With so much waiting for the disk no agent's message is read, and TCP holds the agents back."""


class Stopping(StateError):
    """The hub is on its way down: nothing more is acknowledged, and whoever asks should come again."""


class Stream:
    """The log of a stream and all who are connected to it. ``now`` never goes back."""

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        now: Callable[[], int],
        threads: Executor,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.name = name
        self._now = now
        self.registry = Registry()
        self.agents: dict[str, AgentConnection] = {}
        """The connected ones, by name."""
        self.coordinator: CoordinatorConnection | None = None
        self.messages_up = self.messages_down = self.bytes_up = self.bytes_down = 0
        self._threads = threads
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._asked = 0
        self._reached: set[asyncio.Future[None]] = set()
        self._writing: asyncio.Future[None] | None = None
        self._abandoned = False
        self.log = Log(directory, freeze=self.registry.freeze, segment_bytes=segment_bytes)
        self.log.recover(self.registry.restore, self.registry.apply)
        # who was connected when the hub stopped has been without it since its last sign of life
        for agent, record in self.registry.agents.items():
            if record.joined:
                self.append(
                    "lost", agent=agent, incarnation=record.incarnation, since=record.sign, clean=False
                )

    def now(self) -> int:
        """The hub's time, never before that of the last entry, even after a restart with a clock set back."""
        return max(self._now(), self.registry.last_time)

    def append(self, kind: str, *, span: int = 1, time: int | None = None, **fields: Any) -> int:
        """Log what has happened, and let the registry know; gives the position.

        After the stream was abandoned nothing happens any more: `durable` says so to whoever waits for it.
        """
        if self._abandoned:
            return 0
        entry = {"kind": kind, "received": self.now() if time is None else time, **fields}
        position = self.log.append(entry, span)
        self.registry.apply({"position": position, **entry})
        if (news := _news(kind, fields, self.registry)) is not None:
            logger.info("stream %s: %s", self.name, news)
        self._work.set()
        if self.log.waiting_bytes > BEHIND_BYTES:
            self._room.clear()
        return position

    async def commit(self) -> None:
        """Write what was appended, for ever: many entries with one fsync. An error of the disk ends it."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                while (pending := self.log.take()) is not None:
                    self._writing = loop.run_in_executor(self._threads, self.log.write, pending)
                    # a thread cannot be stopped in the middle: `_stop` waits for it
                    await asyncio.shield(self._writing)
                    if self.log.waiting_bytes <= BEHIND_BYTES:
                        self._room.set()
                    while self._waiting and self._waiting[0][0] <= self.log.durable:
                        heapq.heappop(self._waiting)[2]()
        finally:
            self._give_up()

    def _give_up(self) -> None:
        """Nothing more is logged, so nothing more is acknowledged; whoever waits is told."""
        self._abandoned = True
        self._waiting = []
        self._room.set()
        for reached in self._reached:
            if not reached.done():
                reached.set_exception(Stopping("the hub is stopping"))

    def when_durable(self, end: int, callback: Callable[[], None]) -> None:
        """Call once all positions below ``end`` are on disk; never, if the stream is abandoned before."""
        if self._abandoned:
            return
        if end <= self.log.durable:
            callback()
        else:
            self._asked += 1
            heapq.heappush(self._waiting, (end, self._asked, callback))

    async def durable(self, end: int) -> None:
        """Wait until all positions below ``end`` are on disk; `Stopping` if they never will be."""
        if self._abandoned:
            raise Stopping("the hub is stopping")
        if end <= self.log.durable:
            return
        reached = asyncio.get_running_loop().create_future()
        self._reached.add(reached)
        self.when_durable(end, lambda: None if reached.done() else reached.set_result(None))
        try:
            await reached
        finally:
            self._reached.discard(reached)

    async def room(self) -> None:
        """Wait until the disk has caught up far enough to take more."""
        await self._room.wait()

    async def read(self, start: int, to: int, limit: int) -> tuple[list[str], int]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self.log.read, start, to, limit)

    def declare(self, declared: Declared) -> None:
        """Take the shape that a coordinator gives the stream; agents are told.

        A changed shape ends their connections: what they have is of the old one, and they come back anew.
        """
        before = self.registry.declared
        if declared == before:
            return
        self.append("declared", **declared.message())
        for agent in list(self.agents.values()):
            agent.down.declare(declared, changed=before is not None)

    def grant(self, grants: dict[str, Any], generation: int) -> tuple[int, list[int]]:
        """Log grants, none of which begins before now, and tell agents; the first position and the starts."""
        now = self.now()
        grants["start"] = [max(start, now) for start in grants["start"]]
        count = len(grants["key"])
        if not count:
            return self.log.end, []
        position = self.append("grants", span=count, time=now, generation=generation, **grants)
        key = np.array(grants["key"], np.int64)
        objects = key * self.registry.grants.columns + np.array(grants["column"], np.int64)
        owner, _ = self.registry.holders(key)
        for place, chosen in _by_owner(owner, objects):
            agent = self.agents.get(self.registry.agent_names[place])
            if agent is not None:
                agent.down.grants(chosen)
        return position, grants["start"]

    def form(
        self,
        agent: str,
        members: list[list[int]],
        scope: list[str],
        window: list[int],
        dropped: list[int],
        generation: int,
    ) -> list[int]:
        """Log the sums that an agent is to make from now on, or no longer, and tell it; their numbers."""
        position = self.append(
            "sums",
            span=max(1, len(members)),
            generation=generation,
            agent=agent,
            members=members,
            scope=scope,
            window=window,
            dropped=dropped,
        )
        connected = self.agents.get(agent)
        if connected is not None:
            connected.down.sums()
        return list(range(position, position + len(members)))

    async def close(self, committing: asyncio.Task[None]) -> None:
        """Write what is left and let go of the log."""
        with suppress(Stopping):
            await self.durable(self.log.end)
        await self.abandon(committing)

    async def abandon(self, committing: asyncio.Task[None]) -> None:
        """Stop as a crash would: what is not on disk yet never will be."""
        self._give_up()
        committing.cancel()
        waits = [committing, *([self._writing] if self._writing else [])]
        await asyncio.gather(*waits, return_exceptions=True)
        self.log.close()


def _news(kind: str, fields: Mapping[str, Any], registry: Registry) -> str | None:
    """What an operator wants to know of an entry; None of most, which come all the time."""
    if kind == "joined":
        keys = registry.keys_among(registry.agents[fields["agent"]].numbers)
        again = f" again, with {keys} key(s)" if fields["keys"] else ""
        return f"agent {fields['agent']!r} has joined{again}"
    if kind == "withdrawn":
        return f"{registry.keys_among(fields['numbers'])} key(s) of agent {fields['agent']!r} are forgotten"
    if kind == "lost":
        return f"agent {fields['agent']!r} {'has left' if fields['clean'] else 'is lost'}"
    if kind == "declared":
        return f"declared with key {', '.join(fields['key'])} and values {', '.join(fields['columns'])}"
    if kind == "generation":
        return f"a coordinator has taken over, generation {fields['number']}"
    return None


def _by_owner(owner: NDArray[np.int64], objects: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    """Objects grouped by the agent that has them; those of nobody are left out."""
    order = np.argsort(owner, kind="stable")
    places, starts = np.unique(owner[order], return_index=True)
    parts = np.split(objects[order], starts[1:])
    return [(place, part) for place, part in zip(places.tolist(), parts, strict=True) if place != NOBODY]
