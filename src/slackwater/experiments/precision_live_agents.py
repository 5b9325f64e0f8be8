"""A process with some agents, for `precision-live`: each has a host whose value wanders, written down."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

from slackwater.edge.agent import Agent
from slackwater.edge.clock import now_micros

STEP_S = 0.5
OFFERED, COUNTS = "offered", "counts"
SITES = 10


def host(number: int) -> tuple[str, str]:
    """The key of a host: its name and its site."""
    return f"h{number:03d}", f"site{number % SITES}"


def main(url: str, first: int, count: int, seed: int, truth: Path) -> None:
    """Run agents until the process is told to end; what is offered is in ``truth``.

    Each value twice: before it is offered, so that none is missing if the process is killed, and with the
    time since which it counts.
    """
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    # two hosts of one number are alike in every life of the process; where they are is not
    scales = np.random.default_rng(7).lognormal(0.0, 1.2, first + count)[first:]
    rng = np.random.default_rng([seed, time.time_ns()])
    values = rng.uniform(50, 150, count)
    agents = [Agent("load", hub=url, name=host(first + n)[0]).start() for n in range(count)]
    with truth.open("a", encoding="utf-8") as written:
        while not ended.is_set():
            began = time.monotonic()
            values = values + scales * rng.standard_normal(count)
            for n, agent in enumerate(agents):
                offered = f"{first + n} {float(values[n])!r}"
                written.write(f"{OFFERED} {now_micros()} {offered}\n")
                written.flush()
                at = agent.update(host(first + n), {"rx": float(values[n])})
                written.write(f"{COUNTS} {at} {offered}\n")
                written.flush()
            ended.wait(max(0.0, STEP_S - (time.monotonic() - began)))
    for agent in agents:
        agent.flush(10)
    for agent in agents:
        agent.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
