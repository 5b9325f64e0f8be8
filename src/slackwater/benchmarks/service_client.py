"""Readers of a service, as a process of its own: event streams that count what they miss, and requests.

Run by ``bench service``: the address, how many readers, requests a second and seconds. It answers in JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field

PATHS = (
    "/api/level",
    "/api/frame",
    "/api/queries/web_bytes/answers?limit=50",
    "/api/statistics",
    "/api/queries/all_packets/latest",
    "/metrics",
    "/api/streams",
    "/api/plan",
    "/api/decisions?limit=10",
    "/api/health",
)
CONNECTIONS = 10
PATIENCE_S = 5.0
LOWEST_PRIORITY = 19
"""Readers are elsewhere in life: here they take only what the run leaves of the machine."""


@dataclass
class Told:
    """What came."""

    events: int = 0
    gaps: int = 0
    """Numbers between those of two events that came after each other."""
    newest: list[int | None] = field(default_factory=list)
    """By event stream: the number of its last event; None where none came."""
    broken: int = 0
    """Event streams that ended before their time."""
    requests: int = 0
    failed: int = 0
    late: int = 0
    """Requests that were not sent at their time: the readers themselves had none to spare."""
    seconds: list[float] = field(default_factory=list)

    @property
    def lost(self) -> int:
        """Numbers that event streams did not get, in between or at their end.

        One that has just been made may have come to some and not yet to others. A stream without any event
        misses all that the others can have had.
        """
        known = [number for number in self.newest if number is not None]
        if not known:
            return len(self.newest)
        most = max(1, round(self.events / len(known)))
        ends = [most if number is None else max(0, max(known) - number - 1) for number in self.newest]
        return self.gaps + sum(ends)


async def read_events(host: str, port: int, until: float, told: Told) -> None:
    """One event stream: numbers must follow each other."""
    reader, writer = await asyncio.open_connection(host, port, limit=2**24)
    writer.write(f"GET /api/events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    last: int | None = None
    try:
        while (left := until - time.monotonic()) > 0:
            async with asyncio.timeout(min(left, PATIENCE_S)):
                line = await reader.readline()
            if not line:
                told.broken += 1
                return
            if line.startswith(b"id: "):
                number = int(line[4:])
                told.events += 1
                told.gaps += max(0, number - last - 1) if last is not None else 0
                last = number
    except TimeoutError:
        # at the end it is what ends the waiting; before, nothing has come for long
        told.broken += time.monotonic() < until - 0.1
    except ConnectionError:
        told.broken += 1
    finally:
        told.newest.append(last)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def ask(host: str, port: int, place: int, each_s: float, until: float, told: Told) -> None:
    """Requests on one connection, each at its time."""
    reader, writer = await asyncio.open_connection(host, port, limit=2**24)
    at = time.monotonic() + each_s * place / CONNECTIONS
    number = place
    while at < until:
        wait = at - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        told.late += wait < -each_s
        path = PATHS[number % len(PATHS)]
        number += 1
        began = time.monotonic()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        status = (await reader.readline()).split()
        length = 0
        while (line := await reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        await reader.readexactly(length)
        told.requests += 1
        told.failed += len(status) < 2 or status[1] != b"200"
        told.seconds.append(time.monotonic() - began)
        at += each_s
    writer.close()


async def main(host: str, port: int, readers: int, requests: int, seconds: float) -> Told:
    told = Told()
    until = time.monotonic() + seconds
    each = CONNECTIONS / requests
    async with asyncio.TaskGroup() as group:
        for _ in range(readers):
            group.create_task(read_events(host, port, until, told))
        for place in range(CONNECTIONS):
            group.create_task(ask(host, port, place, each, until, told))
    return told


if __name__ == "__main__":
    os.nice(LOWEST_PRIORITY)
    found = asyncio.run(
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
    )
    waits = sorted(found.seconds) or [0.0]
    summary: dict[str, float] = {k: v for k, v in vars(found).items() if isinstance(v, int)}
    summary |= {
        "lost": found.lost,
        "request_ms_median": 1000 * waits[len(waits) // 2],
        "request_ms_99": 1000 * waits[int(0.99 * (len(waits) - 1))],
    }
    print(json.dumps(summary))
