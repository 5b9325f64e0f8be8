"""The process that ``bench agent-memory`` measures: one agent, its caller, and nothing else.

``python -m slackwater.benchmarks.agent_memory_agent HUB WAY HUB_WAY KEYS COLUMNS ROUNDS`` prints JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from slackwater.edge.agent import Agent

PIECE = 10_000
"""Keys that a caller feeds at a time who does so in pieces."""
SEED = 7
PATIENCE_S = 600.0


class Caller:
    """Who feeds the agent: all keys at once, or in ``pieces`` that are made anew for every call.

    At once, keys are a list that is kept, and values an array that is filled anew, or with ``lists`` a new
    list each time.
    """

    def __init__(self, way: str, keys: int, columns: int) -> None:
        self._pieces, self._lists = way == "pieces", way == "lists"
        self._random = np.random.default_rng(SEED)
        self._count = keys
        self._columns = columns
        self._keys = [] if self._pieces else names(0, keys)
        self._values = np.empty((0 if self._pieces or self._lists else keys, columns))

    def calls(self) -> Iterator[tuple[list[str], Any]]:
        """One value of every key, as arguments of `Agent.update_many`."""
        if self._pieces:
            for first in range(0, self._count, PIECE):
                some = names(first, min(first + PIECE, self._count))
                yield some, self._random.normal(size=(len(some), self._columns))
        elif self._lists:
            yield self._keys, [self._random.normal() for _ in range(self._count)]
        else:
            for first in range(0, self._count, PIECE):
                part = self._values[first : first + PIECE]
                part[:] = self._random.normal(size=part.shape)
            yield self._keys, self._values


def names(first: int, end: int) -> list[str]:
    return [f"k{number:07d}" for number in range(first, end)]


def run(hub: str, way: str, takes: bool, keys: int, columns: int, rounds: int) -> dict[str, float]:
    """Offer values of all keys, wait until all have grants, and offer ``rounds`` more, each of which is sent.

    If the hub ``takes`` rows each round waits for the one before; else all of them end in the outbox.
    """
    agent = Agent("hosts", hub=hub, name="a").start()
    if agent.declared(PATIENCE_S) is None:
        raise SystemExit(f"no declaration: {agent.trouble}")
    caller = Caller(way, keys, columns)
    for call in caller.calls():
        agent.update_many(*call)
    state = agent._state
    if not agent.wait(lambda: state.granted_keys >= keys, PATIENCE_S):
        raise SystemExit("the grants did not come")
    took = []
    for _ in range(rounds):
        if takes and not agent.flush(PATIENCE_S):
            raise SystemExit("the rows were not taken")
        seconds = 0.0
        for call in caller.calls():
            # of this thread alone: beside it, and beside other processes, rows are sent
            begun = time.thread_time()
            agent.update_many(*call)
            seconds += time.thread_time() - begun
            # what was handed over is the caller's no more
            del call
        took.append(seconds)
    told = agent.counters
    if told.passed != (1 + rounds) * keys or (told.superseded and takes):
        raise SystemExit(f"every value makes a row, and none that is taken is superseded; got {told}")
    return {
        "peak_mb": _peak_mb(),
        "offer_s": float(np.median(took)),
        "superseded": told.superseded,
        "waiting": told.waiting,
    }


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    given_hub, given_way, given_takes, *numbers = sys.argv[1:]
    found = run(given_hub, given_way, given_takes == "takes", *map(int, numbers))
    print(json.dumps(found))
