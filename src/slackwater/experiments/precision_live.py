"""The live run: agents in processes of their own, a hub, Spark and five queries; each of them killed in turn.

What the agents offer is written down where it is offered; every answer that says ``met`` is held against it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from slackwater.experiments.precision_live_check import Checked, checked
from slackwater.experiments.precision_simulation import Results

SQL = """
CREATE STREAM load (ts TIMESTAMP, host STRING, site STRING, rx DOUBLE)
  USING agents OPTIONS (hub '{hub}') KEY (host, site) TIMESTAMP BY ts TOLERANCE 1 SECOND;
CREATE QUERY total AS SELECT SUM(rx) AS total FROM LATEST(load) WITH PRECISION {total};
CREATE QUERY mean AS SELECT AVG(rx) AS mean FROM LATEST(load) WITH PRECISION {mean};
CREATE QUERY by_site AS SELECT site, SUM(rx) AS rx FROM LATEST(load) GROUP BY site WITH PRECISION {site};
CREATE QUERY top AS SELECT MAX(rx) AS top FROM LATEST(load) WITH PRECISION 40;
CREATE QUERY first AS SELECT SUM(0.5 * rx) AS half FROM LATEST(load) WHERE host < 'h020' WITH PRECISION 60;
"""


@dataclass(frozen=True)
class Sizes:
    """How many agents, in how many processes, and how long each part of the run is in seconds."""

    agents: int = 200
    processes: int = 4
    part: float = 25.0


FULL = Sizes()
QUICK = Sizes(agents=12, processes=2, part=6.0)


@dataclass
class Live:
    """The processes of a run."""

    folder: Path
    sizes: Sizes = FULL
    seed: int = 1
    port: int = field(default_factory=lambda: _free_port())
    hub: subprocess.Popen[bytes] | None = None
    driver: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def start_hub(self) -> None:
        listen = f"127.0.0.1:{self.port}"
        command = ["slackwater.edge", "hub", "--listen", listen, "--directory", str(self.folder / "hub")]
        self.hub = self._python(command, "hub.log")

    def start_worker(self, place: int) -> subprocess.Popen[bytes]:
        count = self.sizes.agents // self.sizes.processes
        truth = self.folder / f"truth-{place}.txt"
        numbers = [str(place * count), str(count), str(self.seed), str(truth)]
        return self._python(
            ["slackwater.experiments.precision_live_agents", self.url, *numbers], f"agents-{place}.log"
        )

    def start_driver(self) -> None:
        count = self.sizes.agents
        file = self.folder / "live.sql"
        widths = {"total": 2.0 * count, "mean": 2.0, "site": 4.0 * count / 10}
        file.write_text(SQL.format(hub=self.url, **widths), encoding="utf-8")
        state, answers = self.folder / "state", self.answers
        command = ["slackwater.cli", "run", str(file), "--state", str(state), "--answers", str(answers)]
        self.driver = self._python(command, "driver.log")

    @property
    def answers(self) -> Path:
        return self.folder / "answers.jsonl"

    def _python(self, command: list[str], log: str) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("ab") as written:
            return subprocess.Popen(
                [sys.executable, "-m", *command],
                stdout=written,
                stderr=written,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )

    def await_answers(self, more_than: int, seconds: float = 120.0) -> None:
        """Wait until there are more bytes of answers than that; raises where something has ended."""
        deadline = time.monotonic() + seconds
        while not self.answers.exists() or self.answers.stat().st_size <= more_than:
            for name, process in (("driver", self.driver), ("hub", self.hub)):
                if process is not None and process.poll() is not None:
                    text = (self.folder / f"{name}.log").read_text(encoding="utf-8")[-2000:]
                    raise RuntimeError(f"the {name} has ended:\n{text}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"no answers within {seconds:g} s; see {self.folder}")
            time.sleep(0.1)

    def size(self) -> int:
        return self.answers.stat().st_size if self.answers.exists() else 0

    def close(self) -> None:
        for process in [*self.workers, self.driver, self.hub]:
            if process is not None and process.poll() is None:
                _kill(process)


def precision_live(spark: Any, folder: Path, sizes: Sizes, shown: Progress) -> Results:
    """Run it, kill everything in turn, and hold every answer against the truth; Spark has a process too."""
    live = Live(folder, sizes)
    task = shown.add_task("live run", total=6)
    killed: dict[str, float] = {}
    try:
        live.start_hub()
        live.workers = [live.start_worker(n) for n in range(sizes.processes)]
        live.start_driver()
        live.await_answers(0)
        time.sleep(2 * sizes.part)
        shown.advance(task, 2)
        killed["agents"] = time.time()
        _kill(live.workers[0])
        time.sleep(3)
        live.workers[0] = live.start_worker(0)
        time.sleep(sizes.part)
        shown.advance(task)
        assert live.hub is not None
        assert live.driver is not None
        killed["hub"] = time.time()
        _kill(live.hub)
        time.sleep(2)
        live.start_hub()
        time.sleep(sizes.part)
        shown.advance(task)
        killed["driver"] = time.time()
        _kill(live.driver)
        before = live.size()
        live.start_driver()
        live.await_answers(before)
        time.sleep(sizes.part)
        shown.advance(task)
        for worker in live.workers:
            worker.send_signal(signal.SIGTERM)
        for worker in live.workers:
            worker.wait(60)
        # what the last rows say is answered a tolerance and a batch later
        time.sleep(6)
        live.driver.send_signal(signal.SIGINT)
        live.driver.wait(60)
        found = checked(folder, live.url, live.answers, sizes.agents)
        shown.advance(task)
        since = {name: at - found.first for name, at in killed.items()}
        series = {"by_second": found.by_second, "killed": since, "wrong": found.wrong}
        return Results(_figures(found, sizes), series)
    finally:
        live.close()


def _figures(found: Checked, sizes: Sizes) -> dict[str, float]:
    seconds = np.array(found.by_second)
    return {
        "agents": float(sizes.agents),
        "answers": float(found.answers),
        "answers.met": float(found.met),
        "violations": float(found.violations),
        "lost_updates": float(found.lost),
        "rows.late": float(found.late),
        "excused": float(found.excused),
        "messages_over_everything": found.messages / max(found.offered, 1),
        "messages_a_second": found.messages / max(len(seconds), 1),
        "offered_a_second": found.offered / max(len(seconds), 1),
    }


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and what it has started, as a machine that fails would."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
