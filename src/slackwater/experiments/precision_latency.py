"""``reproduce precision-latency``: the fraction of updates that come later than a tolerance λ, Fig. 9.

Real agents, each with a thread and a connection of its own, and a hub in its own process with its log on
disk, over sockets of this machine. Agents offer what `precision-single` has: for the paper's query Q5, the
moving packet rates of ten hosts, each an agent; several such queries beside each other put the hub under
load. Rates go by at ten times their speed, so that minutes have enough updates; λ is real time. The last load
sends every value, at the speed at which it was.

What is measured is what judges lateness in a running system: an update's own time, by the agent's clock,
against the time at which the hub received it, in the hub's log. Both clocks are this machine's: skew, which a
network would have, is not in it. *Fidelity* is the share of time at which no update was missing that was due,
its own time plus λ; what the answer was meanwhile may have been within its constraint all the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from slackwater.edge.agent import Agent
from slackwater.edge.clock import now_micros
from slackwater.edge.coordinator_link import CoordinatorLink, Entry
from slackwater.edge.messages import Declared
from slackwater.edge.widths import NEVER, Grants
from slackwater.experiments.precision_data import EXTERNAL, SOURCES, generated_packets, moving_rates
from slackwater.experiments.precision_live import Live
from slackwater.experiments.precision_simulation import Results
from slackwater.planners.precision_constraints import Floats, Ints

STREAM, DECLARED = "packets", Declared(("host",), ("rate",))
TOLERANCES = (0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 1.0, 2.0)
"""λ, in seconds; the paper's is 0.4."""
ON_TIME = 0.998
"""The share of updates that are on time with the paper's λ."""
READY_S = 60.0
GROUP_APART = 97
"""Steps between what two queries' hosts offer at one time."""


@dataclass(frozen=True)
class Load:
    """So many queries like Q5, each over ten agents; ``within`` is the constraint in packets a second."""

    queries: int
    within: float
    step_s: float = 0.1
    """Real time from one value of a host to the next, which are a second apart in the trace."""


@dataclass(frozen=True)
class Sizes:
    """What is measured, and for how long."""

    loads: dict[str, Load]
    seconds: float


FULL = Sizes(
    {"q5": Load(1, 2.0), "ten": Load(10, 2.0), "thirty": Load(30, 2.0), "everything": Load(30, 0.0, 1.0)},
    seconds=90.0,
)
QUICK = Sizes({"q5": Load(1, 2.0), "everything": Load(1, 0.0)}, seconds=1.5)


def precision_latency(spark: Any, folder: Path, sizes: Sizes, shown: Progress) -> Results:
    """All figures of the experiment; Spark has no part in it."""
    results = Results()
    results.series["tolerance"] = list(TOLERANCES)
    rates = _rates(max(round(sizes.seconds / load.step_s) for load in sizes.loads.values()))
    task = shown.add_task("loads", total=len(sizes.loads))
    for name, load in sizes.loads.items():
        place = folder / name
        place.mkdir()
        _told(results, name, load, measured(place, load, rates, sizes.seconds))
        shown.advance(task)
    return results


def _rates(steps: int) -> Floats:
    packets = generated_packets(steps + 60)
    return moving_rates(packets, np.where(packets.matches[:, EXTERNAL], packets.source, -1), SOURCES)


@dataclass(frozen=True)
class Measured:
    """Updates of one load: when each was true and when the hub had it, in microseconds, between two times."""

    at: Ints
    received: Ints
    since: int
    until: int
    offered: int

    @property
    def latency(self) -> Floats:
        """In seconds."""
        return np.asarray((self.received - self.at) / 1e6, dtype=np.float64)

    def late(self, tolerance: float) -> float:
        """The fraction of updates that came later than that."""
        return float((self.latency > tolerance).mean())

    def needed(self, share: float) -> float:
        """The tolerance with which that share of updates is on time.

        >>> some = Measured(np.zeros(4, int), 1000 * np.array([4, 1, 2, 3]), 0, 5000, 4)
        >>> some.needed(0.75), some.needed(1.0)
        (0.003, 0.004)
        """
        return float(np.sort(self.latency)[max(int(np.ceil(share * len(self.at))) - 1, 0)])

    def fidelity(self, tolerance: float) -> float:
        """The share of time at which no update was missing that was due.

        >>> two = Measured(np.array([100, 120]), np.array([200, 220]), 0, 1000, 2)
        >>> two.fidelity(0.0), round(two.fidelity(0.00005), 6), two.fidelity(1.0)
        (0.88, 0.93, 1.0)
        """
        due = self.at + round(tolerance * 1e6)
        order = np.argsort(due)
        due, received = due[order], self.received[order]
        # what an earlier one has made inconsistent until then is not counted again
        covered = np.concatenate([[self.since], np.maximum.accumulate(received)[:-1]])
        missing = np.maximum(received - np.maximum(due, covered), 0)
        return 1 - float(missing.sum()) / (self.until - self.since)


def measured(folder: Path, load: Load, rates: Floats, seconds: float) -> Measured:
    """Run one load: a hub, its agents with widths granted, then the steps; and what its log says of them."""
    steps = round(seconds / load.step_s)
    live = Live(folder)
    agents: list[Agent] = []
    try:
        live.start_hub()
        names = [f"q{query}h{host}" for query in range(load.queries) for host in range(SOURCES)]
        with CoordinatorLink(live.url, STREAM, DECLARED) as link:
            agents = [Agent(STREAM, hub=live.url, name=name).start() for name in names]
            values = np.concatenate(
                [np.roll(rates, GROUP_APART * query, axis=0) for query in range(load.queries)], axis=1
            )
            for agent, value in zip(agents, values[0].tolist(), strict=True):
                agent.update(agent.name, value)
            _grant(link, load, len(agents))
            begun = now_micros()
            _offer(agents, values[:steps], load.step_s)
            until = now_micros()
            for agent in agents:
                if not agent.flush(READY_S):
                    raise RuntimeError(f"agent {agent.name} could not send all: {agent.trouble}")
            entries = _log(link)
    finally:
        for agent in agents:
            agent.stop(0.0)
        live.close()
    rows = [(at, e["received"]) for e in entries if e["kind"] == "batch" for at in e["at"] if at >= begun]
    times = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return Measured(times[:, 0], times[:, 1], begun, until, steps * len(agents))


def _grant(link: CoordinatorLink, load: Load, agents: int) -> None:
    """Give every host its equal share, which is the constraint itself; wait until each has told its value."""

    def known(entries: Sequence[Entry]) -> bool:
        return sum(len(e["numbers"]) for e in entries if e["kind"] == "keys") == agents

    def told(entries: Sequence[Entry]) -> bool:
        return len({k for e in entries if e["kind"] == "batch" for k in e["key"]}) == agents

    _await(link, known, "to be known")
    keys, zero = np.arange(agents), np.zeros(agents, np.int64)
    link.grant(Grants(keys, zero, np.full(agents, load.within), zero, np.zeros(agents), zero + NEVER))
    _await(link, told, "to tell its first value")


def _await(link: CoordinatorLink, done: Callable[[Sequence[Entry]], bool], what: str) -> None:
    deadline = time.monotonic() + READY_S
    while not done(_log(link)):
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {READY_S:g} s for every host {what}")
        time.sleep(0.05)


def _log(link: CoordinatorLink) -> list[Entry]:
    place, end = link.connect().begin, link.end().position
    found: list[Entry] = []
    while place < end:
        part, place = link.read(place, end)
        found += part
    return found


def _offer(agents: Sequence[Agent], values: Floats, step_s: float) -> None:
    """One value an agent and step, the agents spread over the step: sources do not tick together."""
    rest = threading.Event()
    began = time.monotonic()
    for step, row in enumerate(values.tolist()):
        for place, (agent, value) in enumerate(zip(agents, row, strict=True)):
            ahead = began + step_s * (step + place / len(agents)) - time.monotonic()
            if ahead > 0:
                rest.wait(ahead)
            agent.update(agent.name, value)


def _told(results: Results, name: str, load: Load, found: Measured) -> None:
    seconds = (found.until - found.since) / 1e6
    figures = {
        "agents": float(load.queries * SOURCES),
        "updates": float(len(found.at)),
        "updates_a_second": len(found.at) / seconds,
        "updates_over_offered": len(found.at) / found.offered,
        "offered_a_second": found.offered / seconds,
        "median_ms": 1e3 * float(np.median(found.latency)),
        "needed": found.needed(ON_TIME),
        "largest": found.needed(1.0),
    }
    for tolerance in TOLERANCES:
        figures[f"late.{tolerance:g}"] = found.late(tolerance)
        figures[f"fidelity.{tolerance:g}"] = found.fidelity(tolerance)
    results.figures |= {f"{name}.{figure}": value for figure, value in figures.items()}
    late = [found.late(tolerance) for tolerance in TOLERANCES]
    results.series[name] = {"late": late, "agents": load.queries * SOURCES, "within": load.within}
