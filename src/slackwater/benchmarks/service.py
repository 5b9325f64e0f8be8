"""``bench service``: what readers of a run cost it.

One run, in three stretches: with nobody there, with two hundred readers of event streams and fifty requests
a second, and with nobody again. *Batch time ratio*: the median batch of the middle stretch over that of the
others. *Events lost*: numbers that readers did not get, in between or at the end. *Memory slope*: of the
driver, which serves, while readers are there. The load is light, so that nothing is shed: a run that sheds
would hide in its rates what readers take. Readers are a process of their own at the lowest priority, as they
would be on another machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import psutil
from pyspark.sql import SparkSession
from rich.progress import Progress

from slackwater.errors import RunError
from slackwater.runtime.engine import Engine
from slackwater.runtime.session import Session
from slackwater.service.live import Live
from slackwater.service.server import Address, serving

SQL = """
CREATE STREAM packets (ts TIMESTAMP, src STRING, dport INT, proto STRING, size INT)
  USING traffic OPTIONS (seed '7', rate '5000', speed '1') TIMESTAMP BY ts;
CREATE QUERY web_bytes AS SELECT SUM(size) AS bytes FROM packets WHERE dport = 80
  GROUP BY window(ts, '10 seconds', '1 second') WITH ERROR 5%;
CREATE QUERY all_packets AS SELECT COUNT(*) AS n FROM packets
  GROUP BY window(ts, '5 seconds', '1 second') WITH ERROR 1%;
CREATE QUERY dns_size AS SELECT AVG(size) AS mean FROM packets WHERE dport = 53
  GROUP BY window(ts, '10 seconds', '2 seconds') WITH ERROR 10%;
CREATE QUERY talkers AS SELECT src, SUM(size) AS bytes FROM packets
  GROUP BY window(ts, '5 seconds'), src HAVING SUM(size) > 100000 WITH EXACT;
CREATE QUERY tcp_packets AS SELECT COUNT(*) AS n FROM packets WHERE proto = 'tcp'
  GROUP BY window(ts, '2 seconds') WITH SUBSET GAP 10;
"""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    readers: int
    requests: int
    """A second."""
    warm_seconds: float
    quiet_seconds: float
    """Before readers come, and as long after they have left."""
    seconds: float


FULL = Sizes(readers=200, requests=50, warm_seconds=90.0, quiet_seconds=30.0, seconds=120.0)
"""Two minutes of readers: in one, a single step of the allocator is a slope of several megabytes."""
QUICK = Sizes(readers=10, requests=10, warm_seconds=3.0, quiet_seconds=4.0, seconds=4.0)


@dataclass
class _Batches:
    """When batches ended, how long they took, and the level they were run at."""

    ended: list[float] = field(default_factory=list)
    took: list[float] = field(default_factory=list)
    levels: list[float] = field(default_factory=list)

    def watch(self, engine: Engine) -> None:
        engine.observers.append(self._note)

    def _note(self, engine: Engine) -> None:
        streams = engine.board.status(datetime.now(UTC)).streams
        if streams and streams[0].batch_ms is not None:
            self.ended.append(time.monotonic())
            self.took.append(streams[0].batch_ms)
            self.levels.append(streams[0].level)

    def between(self, begin: float, end: float) -> list[float]:
        return [took for at, took in zip(self.ended, self.took, strict=True) if begin <= at < end]


def service(spark: SparkSession, folder: Path, sizes: Sizes, progress: Progress) -> dict[str, float]:
    """The figures."""
    batches = _Batches()
    session = Session(spark, folder / "state")
    session.watchers.append(batches.watch)
    live = Live(session)
    session.sql(SQL)
    session.start()
    live.start()
    task = progress.add_task("run", total=sizes.warm_seconds + 2 * sizes.quiet_seconds + sizes.seconds)

    def wait(seconds: float) -> tuple[float, float]:
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            if session.wait(0.25):
                raise RunError("the stream ended before the benchmark did")
            progress.advance(task, 0.25)
        return began, time.monotonic()

    try:
        with serving(live, live.control, port=0) as address:
            wait(sizes.warm_seconds)
            memory = _Memory()
            before = wait(sizes.quiet_seconds)
            slope_before = memory.slope()
            memory = _Memory()
            told, during = _readers(address, sizes)
            slope = memory.slope()
            # those who have just left are still being let go
            wait(2.0)
            memory = _Memory()
            after = wait(sizes.quiet_seconds)
            slope_after = memory.slope()
    finally:
        live.stop()
        session.stop()
    quiet = batches.between(*before) + batches.between(*after)
    busy = batches.between(*during)
    return {
        "batch_time_ratio": float(np.median(busy) / np.median(quiet)),
        "events_lost": told["lost"],
        "memory_slope_mb_per_min": slope,
        "memory_slope_quiet_before": slope_before,
        "memory_slope_quiet_after": slope_after,
        "batch_ms_quiet": float(np.median(quiet)),
        "batch_ms_read": float(np.median(busy)),
        "batches_quiet": len(quiet),
        "batches_read": len(busy),
        "batch_ms_quiet_before": float(np.median(batches.between(*before))),
        "batch_ms_quiet_after": float(np.median(batches.between(*after))),
        "largest_level": max(batches.levels, default=0.0),
        "readers": sizes.readers,
        "events": told["events"],
        "streams_broken": told["broken"],
        "requests": told["requests"],
        "requests_failed": told["failed"],
        "requests_late": told["late"],
        "request_ms_median": told["request_ms_median"],
        "request_ms_99": told["request_ms_99"],
    }


def _readers(address: Address, sizes: Sizes) -> tuple[dict[str, float], tuple[float, float]]:
    """Let readers come for as long as said; what they say at the end."""
    command = [sys.executable, "-m", "slackwater.benchmarks.service_client", address.host, str(address.port)]
    command += [str(sizes.readers), str(sizes.requests), str(sizes.seconds)]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate(timeout=sizes.seconds + 60)
    if process.returncode:
        raise RunError(f"the readers ended with code {process.returncode}")
    return json.loads(said), (began, time.monotonic())


class _Memory:
    """The memory of this process, looked at twice a second from now on."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._seen: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.5):
            self._seen.append((time.monotonic(), self._process.memory_info().rss / 2**20))

    def slope(self) -> float:
        """Megabytes a minute, of a straight line through what was seen; the first seconds, in which readers
        come, are left out."""
        self._over.set()
        self._thread.join()
        seen = self._seen[len(self._seen) // 6 :]
        if len(seen) < 2:
            return 0.0
        times, sizes = np.array(seen).T
        return float(np.polyfit((times - times[0]) / 60, sizes, 1)[0])
