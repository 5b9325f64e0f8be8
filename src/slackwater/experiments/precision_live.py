"""The live run: agents in processes of their own, a hub, Spark and seven queries, each killed in turn.

Meanwhile constraints are altered, keys are withdrawn and come back. What the agents offer is written down
where it is offered; every interval is held against it for as long as it stands.
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

from rich.progress import Progress

from slackwater.experiments.precision_live_check import Checked, checked
from slackwater.experiments.precision_live_driver import PATIENCE_S
from slackwater.experiments.precision_live_queries import QUERIES, altered, script
from slackwater.experiments.precision_simulation import Results


@dataclass(frozen=True)
class Sizes:
    """How many agents, in how many processes, and how long each part of the run is in seconds."""

    agents: int = 200
    processes: int = 4
    part: float = 25.0


FULL = Sizes()
QUICK = Sizes(agents=12, processes=2, part=5.0)


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
        file = self.folder / "live.sql"
        file.write_text(script(self.url, self.sizes.agents), encoding="utf-8")
        command = ["slackwater.experiments.precision_live_driver", str(file), str(self.folder)]
        self.driver = self._python(command, "driver.log", told=True)

    def tell(self, statements: list[str]) -> None:
        """Let the driver apply statements while it runs."""
        assert self.driver is not None
        assert self.driver.stdin is not None
        for statement in statements:
            self.driver.stdin.write(f"{statement}\n".encode())
        self.driver.stdin.flush()

    def end_driver(self) -> None:
        """Let the driver end by itself; raises where it does not."""
        assert self.driver is not None
        assert self.driver.stdin is not None
        self.driver.stdin.close()
        if self.driver.wait(PATIENCE_S + 60):
            raise RuntimeError(f"the driver has failed:\n{self._said('driver')}")

    @property
    def answers(self) -> Path:
        return self.folder / "answers.jsonl"

    def _said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(encoding="utf-8")[-2000:]

    def _python(self, command: list[str], log: str, *, told: bool = False) -> subprocess.Popen[bytes]:
        with (self.folder / log).open("ab") as written:
            return subprocess.Popen(
                [sys.executable, "-m", *command],
                stdout=written,
                stderr=written,
                stdin=subprocess.PIPE if told else subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )

    def await_answers(self, more_than: int, seconds: float = 300.0) -> None:
        """Wait until there are more bytes of answers than that; raises where something has ended."""
        deadline = time.monotonic() + seconds
        while not self.answers.exists() or self.answers.stat().st_size <= more_than:
            for name, process in (("driver", self.driver), ("hub", self.hub)):
                if process is not None and process.poll() is not None:
                    raise RuntimeError(f"the {name} has ended:\n{self._said(name)}")
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
    """Run it, alter what is asked, kill everything in turn, and hold every answer against the truth.

    Spark has a process too. The session that is given is not used.
    """
    live = Live(folder, sizes)
    task = shown.add_task("live run", total=6)
    killed: dict[str, float] = {}
    told: dict[str, float] = {}

    def alter(name: str, *statements: str) -> None:
        told[name] = time.time()
        live.tell(list(statements))

    try:
        live.start_hub()
        live.workers = [live.start_worker(n) for n in range(sizes.processes)]
        live.start_driver()
        live.await_answers(0)
        time.sleep(sizes.part)
        shown.advance(task)
        alter("looser", *altered(sizes.agents, total=1.5, top=1.5))
        time.sleep(sizes.part)
        shown.advance(task)
        killed["agents"] = time.time()
        _kill(live.workers[0])
        time.sleep(3)
        live.workers[0] = live.start_worker(0)
        time.sleep(sizes.part / 2)
        alter("tighter", *altered(sizes.agents, by_site=0.7, first=0.7, smooth=0.7))
        time.sleep(sizes.part / 2)
        shown.advance(task)
        assert live.hub is not None
        assert live.driver is not None
        killed["hub"] = time.time()
        _kill(live.hub)
        time.sleep(2)
        live.start_hub()
        time.sleep(sizes.part / 2)
        at_once = [f"{sql} IMMEDIATE" for sql in altered(sizes.agents, total=0.6, mean=0.7)]
        alter("at once", *at_once, *altered(sizes.agents, pace=1.2))
        time.sleep(sizes.part / 2)
        shown.advance(task)
        killed["driver"] = time.time()
        _kill(live.driver)
        before = live.size()
        live.start_driver()
        live.await_answers(before)
        time.sleep(sizes.part / 2)
        alter("again", *altered(sizes.agents, total=1.0, by_site=1.0, smooth=0.5))
        time.sleep(sizes.part / 2)
        shown.advance(task)
        for worker in live.workers:
            worker.send_signal(signal.SIGTERM)
        for worker in live.workers:
            worker.wait(60)
        live.end_driver()
        found = checked(folder, live.url, sizes.agents)
        shown.advance(task)
        since = {name: at - found.first for name, at in killed.items()}
        changed = {name: at - found.first for name, at in told.items()}
        series = {"by_second": found.by_second, "killed": since, "altered": changed, "wrong": found.wrong}
        return Results(_figures(found, sizes), {**series, "lost": found.lost})
    finally:
        live.close()


def _figures(found: Checked, sizes: Sizes) -> dict[str, float]:
    seconds = max(found.seconds, 1.0)
    return {
        "agents": float(sizes.agents),
        "keys": float(found.keys),
        "keys.by_sum": float(found.by_sum),
        "keys.by_mean": float(found.by_mean),
        "queries": float(len(QUERIES)),
        "altered": float(found.altered),
        "withdrawn": float(found.withdrawn),
        "answers": float(found.answers),
        "answers.met": float(found.met),
        "truths": float(found.truths),
        "truths.unpromised": float(found.unpromised),
        "violations": float(found.violations),
        "missing": float(found.missing),
        "lost_updates": float(sum(found.lost.values())),
        "rows.late": float(found.late),
        "excused": float(found.excused),
        "messages_over_everything": found.messages / max(found.offered, 1),
        "messages_a_second": found.messages / seconds,
        "offered_a_second": found.offered / seconds,
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
