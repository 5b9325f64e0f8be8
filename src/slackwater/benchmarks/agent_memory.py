"""``bench agent-memory``: what the process of an agent with a million keys takes at its peak.

Each case is a process of its own, with a real agent and its caller; here is a hub that grants every object a
width of 0, so that every value makes a row, and then takes the rows, or does not. The peak is that of the
resident memory as the system counts it: interpreter, libraries and the caller's own lists included.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import Progress
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from slackwater.edge.deliveries import GRANTS_PER_MESSAGE
from slackwater.edge.messages import Declared, Message, decode, encode

PERIOD = 10_000_000


@dataclass(frozen=True)
class Case:
    """One process: how its caller feeds it, and whether its hub takes rows."""

    name: str
    way: str
    """``once``: all keys in one call; ``lists``: values as a list too; ``pieces``: a few at a time."""
    hub: str
    """``takes`` rows, or after the grants ``stops`` to read, or is ``away``."""
    columns: int = 1


CASES = (
    Case("drained", "once", "takes"),
    Case("waiting", "once", "stops"),
    Case("away", "once", "away"),
    Case("lists", "lists", "stops"),
    Case("pieces", "pieces", "takes"),
    Case("pieces_waiting", "pieces", "stops"),
    Case("two_columns", "once", "stops", columns=2),
)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    keys: int
    rounds: int
    """Values of every key after the grants."""


FULL = Sizes(keys=1_000_000, rounds=4)
QUICK = Sizes(keys=20_000, rounds=2)


class GrantingHub:
    """As much of a hub as an agent sees: it grants width 0 to all keys, and then takes rows or does not."""

    def __init__(self, case: Case, keys: int) -> None:
        self._case = case
        self._keys = keys
        self._known = self._received = 0
        self._away = asyncio.Event()

    async def __call__(self, socket: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            await self._serve(socket)

    async def _serve(self, socket: ServerConnection) -> None:
        await socket.recv()
        columns = tuple(f"load{n}" for n in range(self._case.columns))
        shape = Declared(("host",), columns).message()
        known = {"declared": shape, "received": self._received, "keys": self._known}
        await socket.send(encode({"type": "welcome", "log": "log", "time": 0, **known}))
        if self._granted and self._case.hub != "takes":
            await socket.wait_closed()
        async for raw in socket:
            message = decode(raw)
            if message["type"] == "keys":
                await self._grant(socket, message)
                if self._granted and self._case.hub == "stops":
                    # nothing is read any more: what was sent fills the buffers between
                    await socket.wait_closed()
                if self._granted and self._case.hub == "away":
                    self._away.set()
            elif message["type"] == "batch":
                self._received = max(self._received, message["number"])
                await socket.send(encode({"type": "received", "number": self._received}))

    @property
    def _granted(self) -> bool:
        return self._known >= self._keys

    async def _grant(self, socket: ServerConnection, message: Message) -> None:
        columns = self._case.columns
        objects = range(self._known * columns, (self._known + len(message["keys"])) * columns)
        self._known += len(message["keys"])
        for first in range(0, len(objects), GRANTS_PER_MESSAGE):
            some = objects[first : first + GRANTS_PER_MESSAGE]
            grants = {
                "position": [1 + n for n in some],
                "key": [n // columns for n in some],
                "column": [n % columns for n in some],
                "width": [0.0] * len(some),
                "start": [0] * len(some),
                "shrink": [0.0] * len(some),
                "period": [PERIOD] * len(some),
            }
            last = {"keys": self._known} if first + len(some) >= len(objects) else {}
            await socket.send(encode({"type": "grants", **grants, **last}))

    async def away(self) -> None:
        """Wait until the hub is to be there no more."""
        await self._away.wait()


async def measured(case: Case, sizes: Sizes) -> dict[str, float]:
    hub = GrantingHub(case, sizes.keys)
    # the agent may take long to answer a ping: it has one core
    async with serve(hub, "127.0.0.1", 0, max_size=None, ping_interval=None, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        arguments = [f"ws://127.0.0.1:{port}", case.way, case.hub, sizes.keys, case.columns, sizes.rounds]
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "slackwater.benchmarks.agent_memory_agent", *map(str, arguments)),
            stdout=asyncio.subprocess.PIPE,
        )
        gone = asyncio.create_task(_go_away(hub, server))
        printed, _ = await child.communicate()
        gone.cancel()
        server.close()
    if child.returncode:
        raise RuntimeError(f"agent-memory: the agent of case {case.name!r} ended with {child.returncode}")
    figures: dict[str, float] = json.loads(printed)
    return figures


async def _go_away(hub: GrantingHub, server: Any) -> None:
    await hub.away()
    server.close()


def agent_memory(folder: Path, sizes: Sizes, progress: Progress) -> dict[str, float]:
    """All figures of the benchmark; it writes nothing."""
    task = progress.add_task("an agent with many keys", total=len(CASES))
    figures: dict[str, float] = {}
    for case in CASES:
        found = asyncio.run(measured(case, sizes))
        figures |= {f"{name}.{case.name}": found[name] for name in ("peak_mb", "offer_s")}
        progress.advance(task)
    return figures
