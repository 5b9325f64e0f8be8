"""``bench hub``: thousands of agents on one hub, connected all at once, each waiting for its acknowledgement.

The hub is a process of its own with its log on disk; the agents are connections that speak the protocol
without filters, so that it is the hub that is measured. *Connect*: from nobody to every agent welcomed, with
its key announced and its grants received. *Rows*: each agent sends a row, waits until it is acknowledged,
which is after it is on disk, and sends the next. *Back*: the hub is killed; until every agent of a new one is
welcomed again. *Lost*: acknowledged rows that are not in the log, or are there twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rich.progress import Progress
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from slackwater.edge.coordinator_link import CoordinatorLink
from slackwater.edge.limits import allow_many_files
from slackwater.edge.messages import Declared
from slackwater.edge.widths import Grants

STREAM, DECLARED = "hosts", Declared(("host",), ("load",))
AT_ONCE = 200
"""Agents that are about to connect at one time: more would wait for the hub's accepting anyway."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    agents: int
    seconds: float


FULL = Sizes(agents=3000, seconds=20.0)
QUICK = Sizes(agents=30, seconds=0.5)


@dataclass
class _Agent:
    """One connection; batches are numbered across them."""

    number: int
    sent: int = 0
    acknowledged: int = 0
    waits: list[float] = field(default_factory=list)
    socket: ClientConnection | None = None

    async def join(self, url: str) -> None:
        """Connect, until the hub is there, and say which key this is; done when its grants are told."""
        while True:
            try:
                self.socket = await connect(url, compression=None, proxy=None, ping_interval=None)
                break
            except (OSError, InvalidHandshake, TimeoutError):
                await asyncio.sleep(0.1)
        name, life = f"a{self.number}", f"i{self.number}"
        hello = {"role": "agent", "version": 1, "token": "", "stream": STREAM, "agent": name, "applied": 0}
        await self._say("hello", **hello, incarnation=life)
        welcome = await self._hear("welcome")
        if not welcome["keys"]:
            await self._say("keys", first=0, keys=[[name]])
        while (await self._hear("grants")).get("keys", 0) < 1:
            pass

    async def send_until(self, end: float) -> None:
        """Rows, one after the other."""
        while time.monotonic() < end:
            began = time.monotonic()
            self.sent += 1
            at = time.time_ns() // 1000
            rows = {"key": [0], "at": [at], "values": [[float(self.sent)]]}
            await self._say("batch", number=self.sent, sent=at, rows=rows)
            while self.acknowledged < self.sent:
                self.acknowledged = (await self._hear("received"))["number"]
            self.waits.append(time.monotonic() - began)

    async def _say(self, kind: str, **fields: Any) -> None:
        assert self.socket is not None
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def _hear(self, kind: str) -> dict[str, Any]:
        assert self.socket is not None
        while True:
            message: dict[str, Any] = json.loads(await self.socket.recv())
            if message["type"] == kind:
                return message
            if message["type"] == "refused":
                raise RuntimeError(message["reason"])

    async def leave(self) -> None:
        if self.socket is not None:
            self.socket.transport.abort()


class _Hub:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._listen = "127.0.0.1:0"
        self.process, self.url = self._start()
        self._listen = self.url.removeprefix("ws://")

    def _start(self) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "slackwater.edge", "hub", "--listen", self._listen]
        process = subprocess.Popen(
            [*command, "--directory", str(self._folder / "hub")],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        assert process.stdout is not None
        said = process.stdout.readline().split()
        return process, next(word.rstrip(",") for word in said if word.startswith("ws://"))

    @property
    def megabytes(self) -> float:
        return float(psutil.Process(self.process.pid).memory_info().rss) / 1e6

    def killed_and_back(self) -> None:
        self.stop()
        self.process, self.url = self._start()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()


def hub(folder: Path, sizes: Sizes, progress: Progress) -> dict[str, float]:
    """All figures of the benchmark."""
    allow_many_files()
    task = progress.add_task("a hub and its agents", total=3)
    running = _Hub(folder)
    link = CoordinatorLink(running.url, STREAM, DECLARED)
    try:
        link.connect()
        return asyncio.run(_measured(running, link, sizes, lambda: progress.advance(task)))
    finally:
        link.close()
        running.stop()


async def _measured(running: _Hub, link: CoordinatorLink, sizes: Sizes, advance: Any) -> dict[str, float]:
    agents = [_Agent(number) for number in range(sizes.agents)]
    figures: dict[str, float] = {"agents": sizes.agents}
    began = time.monotonic()
    await _all_join(agents, running.url)
    figures["connect_seconds"] = time.monotonic() - began
    each = np.arange(sizes.agents)
    zero = np.zeros(sizes.agents, np.int64)
    widths = Grants(each, zero, np.zeros(sizes.agents), zero, np.zeros(sizes.agents), zero + 1_000_000)
    await asyncio.to_thread(link.grant, widths)
    advance()
    began = time.monotonic()
    await asyncio.gather(*(agent.send_until(began + sizes.seconds) for agent in agents))
    took = time.monotonic() - began
    waits = 1e3 * np.concatenate([agent.waits for agent in agents])
    figures["rows_a_second"] = sum(agent.acknowledged for agent in agents) / took
    figures["acknowledged_ms.median"] = float(np.median(waits))
    figures["acknowledged_ms.99th"] = float(np.percentile(waits, 99))
    figures["hub_mb"] = running.megabytes
    advance()
    began = time.monotonic()
    running.killed_and_back()
    for agent in agents:
        await agent.leave()
    await _all_join(agents, running.url)
    figures["back_seconds"] = time.monotonic() - began
    figures["lost"] = await asyncio.to_thread(_lost, link, agents)
    for agent in agents:
        await agent.leave()
    advance()
    return figures


async def _all_join(agents: list[_Agent], url: str) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def join(agent: _Agent) -> None:
        async with room:
            try:
                await agent.join(url)
            except ConnectionClosed:
                await agent.join(url)

    await asyncio.gather(*map(join, agents))


def _lost(link: CoordinatorLink, agents: list[_Agent]) -> float:
    """Rows that were acknowledged and are not once in the log."""
    found: Counter[tuple[str, int]] = Counter()
    start, end = 1, link.end().position
    while start < end:
        entries, start = link.read(start, end)
        found.update((e["agent"], e["number"]) for e in entries if e["kind"] == "batch")
    wanted = ((f"a{agent.number}", n + 1) for agent in agents for n in range(agent.acknowledged))
    return float(sum(found[one] != 1 for one in wanted))
