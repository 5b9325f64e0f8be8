"""A process with some agents, for `precision-live`: values of their hosts' ports, written down.

Some hosts have many ports, which their agent may add up; some ports are withdrawn now and then and come back.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import numpy as np

from slackwater.edge.agent import Agent
from slackwater.edge.clock import now_micros
from slackwater.experiments.precision_live_queries import PORTS, SITES, STREAMS, flow_at, key, ports

STEP_S = 1.0
OFFERED, COUNTS = "offered", "counts"
LEAVING, GONE = "leaving", "gone"
HANDED = "handed"
AWAY_S, EVERY_S = 8.0, 60.0


def away(stream: str, number: int, port: int, seconds: float) -> bool:
    """Whether a port is withdrawn at a time.

    Last ports are, one host after the other, and a whole site at once: then its group has no row. Values of
    `flow` stay, since nothing bounds the rate of what comes and goes.
    """
    if stream == "flow":
        return False
    if number % SITES == SITES - 1:
        return seconds % (2 * EVERY_S) < AWAY_S
    return port == PORTS - 1 and (seconds + 3.7 * number) % EVERY_S < AWAY_S


class Host:
    """A key of a stream at its agent, written down whatever happens to it.

    Each value twice: before it is offered, so that none is missing if the process is killed, and with the
    time since which it counts. A key is withdrawn at some time between two that are written down.
    """

    def __init__(self, agent: Agent, number: int, port: int, value: float, scale: float, to: TextIO) -> None:
        self.agent, self.number, self.port = agent, number, port
        self.value, self._scale = value, scale
        self._there = False
        self._to = to

    def step(self, noise: float, seconds: float, *, may_leave: bool) -> None:
        stream = self.agent.stream
        if may_leave and away(stream, self.number, self.port, seconds):
            if self._there:
                self._write(LEAVING, now_micros())
                self.agent.withdraw(key(self.number, self.port))
                self._write(GONE, now_micros())
            self._there = False
            return
        self.value = flow_at(self.number, seconds) if stream == "flow" else self.value + self._scale * noise
        self._write(OFFERED, now_micros())
        at = self.agent.update(key(self.number, self.port), {"rx": self.value})
        self._write(COUNTS, at)
        self._there = True

    def _write(self, kind: str, at: int) -> None:
        self._to.write(f"{kind} {self.agent.stream} {at} {self.number} {self.port} {self.value!r}\n")
        self._to.flush()


def main(url: str, first: int, count: int, seed: int, truth: Path) -> None:
    """Run agents until the process is told to end; what is offered is in ``truth``."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    # two ports of one number are alike in every life of the process; where they are is not
    places = (first + count) * PORTS
    scales = np.random.default_rng(7).lognormal(0.0, 1.2, places)
    rng = np.random.default_rng([seed, time.time_ns()])
    with truth.open("a", encoding="utf-8") as written:
        agents: list[Agent] = []
        hosts: list[Host] = []
        for stream in STREAMS:
            for number in range(first, first + count):
                if not ports(stream, number):
                    continue
                agent = Agent(stream, hub=url, name=f"h{number:03d}").start()
                agents.append(agent)
                for port in range(ports(stream, number)):
                    scale = float(scales[number * PORTS + port])
                    hosts.append(Host(agent, number, port, float(rng.uniform(50, 150)), scale, written))
        _offer(hosts, rng.standard_normal, ended)
        for agent in agents:
            agent.stop(20)
            done = agent.counters
            # a row of the last moment may have had no time: it was not handed over
            if not done.waiting and not done.under_way:
                rows = f"{done.passed} {done.superseded}"
                written.write(f"{HANDED} {agent.stream} {now_micros()} {agent.name} {rows}\n")


def _offer(hosts: list[Host], noise: Callable[[int], np.ndarray], ended: threading.Event) -> None:
    steps = 0
    while not ended.is_set():
        began = time.monotonic()
        for host, moved in zip(hosts, noise(len(hosts)), strict=True):
            # a process that starts again has all of its keys first: those that it does not name, nobody has
            host.step(float(moved), time.time(), may_leave=steps > 2)
        steps += 1
        ended.wait(max(0.0, STEP_S - (time.monotonic() - began)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
