"""The demo's agents: a few hosts that measure their services, each a real agent of a real hub."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

import numpy as np

from slackwater.edge.agent import Agent

STREAM = "hosts"
HOSTS = ("rome", "oslo", "lima", "cairo", "delhi", "tokyo")
SERVICES = ("web", "mail", "search", "store", "chat", "maps", "video", "login")
LOST = "lima"
"""The host whose agent goes away for a while."""
STEP_S = 0.25
USUAL, PULL, SHOCK = 50.0, 0.02, 0.8
"""Loads go back to what is usual by so much of their distance in a step, and are pushed away from it."""

KEPT = 4_000
"""Values of a key that are kept at least: a quarter of an hour, where the story takes two minutes."""

Key = tuple[str, str]


class History:
    """The newest values that a key has had, each since when it counts: what is true of it at those times."""

    def __init__(self, keep: int = KEPT) -> None:
        self._keep = keep
        self.times: list[int] = []
        self.values: list[float] = []
        self.count = 0
        """Values so far."""

    def note(self, since: int, value: float) -> None:
        self.times.append(since)
        self.values.append(value)
        self.count += 1
        if len(self.times) >= 2 * self._keep:
            # in one go, now and then: a demo that is left open must not grow
            del self.times[: self._keep], self.values[: self._keep]


class Fleet:
    """All agents of the demo, from entering to leaving; a thread measures for them.

    What they have measured is kept in ``histories``, so that it can be told afterwards whether answers held.
    """

    def __init__(
        self,
        hub: str,
        *,
        seed: int = 7,
        step: float = STEP_S,
        make: Callable[..., Agent] = Agent,
    ) -> None:
        self._hub, self._step, self._make = hub, step, make
        self._rng = np.random.default_rng([seed, 3])
        self._loads = USUAL + 10 * self._rng.standard_normal((len(HOSTS), len(SERVICES)))
        self._agents: dict[str, Agent] = {}
        self._lost: frozenset[str] = frozenset()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="demo-fleet", daemon=True)
        self.histories: Mapping[Key, History] = {(h, s): History() for h in HOSTS for s in SERVICES}

    def __enter__(self) -> Self:
        self.measure()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        for agent in self._agents.values():
            agent.stop(0.5)

    def lose(self, *hosts: str) -> None:
        """These hosts are away from now on, and all others are there."""
        with self._lock:
            self._lost = frozenset(hosts)

    @property
    def there(self) -> tuple[str, ...]:
        """The hosts whose agents run."""
        return tuple(self._agents)

    def _run(self) -> None:
        while not self._stopping.wait(self._step):
            self.measure()

    def measure(self) -> None:
        """Move all loads by a step and offer them to the agents that are there."""
        with self._lock:
            lost = self._lost
        shocks = SHOCK * self._rng.standard_normal(self._loads.shape)
        moved = self._loads + PULL * (USUAL - self._loads) + shocks
        for place, host in enumerate(HOSTS):
            if host in lost:
                # nothing is measured where nobody is: loads are what they were when it is back
                if host in self._agents:
                    self._agents.pop(host).stop(0.5)
                continue
            self._loads[place] = moved[place]
            agent = self._agents.get(host) or self._started(host)
            for service, load in zip(SERVICES, moved[place].tolist(), strict=True):
                since = agent.update((host, service), load)
                self.histories[host, service].note(since, load)

    def _started(self, host: str) -> Agent:
        agent = self._agents[host] = self._make(STREAM, hub=self._hub, name=host).start()
        return agent

    @property
    def offered(self) -> int:
        """How many values were measured."""
        return sum(history.count for history in self.histories.values())
