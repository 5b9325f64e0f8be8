"""The sums that agents are to make of their keys: which there are, of which keys, and who makes them.

Whatever an agent has may be told apart or summed up where it arises, if nobody asks for it apart. A sum is
defined by the coordinator and numbered by its position in the log; to all else it is a key like others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class SumDefined:
    """A sum: of these keys, by the hub's numbers, which one agent has."""

    agent: str
    members: tuple[int, ...]
    scope: str = ""
    """What it is for, in the words of whoever defined it; empty: for all."""
    window: int = 0
    """Over how many microseconds it is the mean; 0: it is what the keys are now."""


class SumTable:
    """The sums of a stream by their numbers. A function of the log's entries of kind ``sums``."""

    def __init__(self) -> None:
        self.defined: dict[int, SumDefined] = {}
        self._of_agent: dict[str, set[int]] = {}

    def apply(self, entry: dict[str, Any]) -> list[int]:
        """Take an entry of the log; the sums that it ended."""
        agent: str = entry["agent"]
        told = zip(entry["members"], entry["scope"], entry["window"], strict=True)
        for number, (members, scope, window) in enumerate(told, entry["position"]):
            self._add(number, SumDefined(agent, tuple(members), scope, window))
        ended = [number for number in entry["dropped"] if self.defined.pop(number, None) is not None]
        for numbers in self._of_agent.values():
            numbers.difference_update(ended)
        return ended

    def _add(self, number: int, defined: SumDefined) -> None:
        self.defined[number] = defined
        self._of_agent.setdefault(defined.agent, set()).add(number)

    def of(self, agent: str) -> list[tuple[int, SumDefined]]:
        """The sums that an agent is to make."""
        return [(number, self.defined[number]) for number in sorted(self._of_agent.get(agent, ()))]

    def with_key(self, keys: Iterable[int]) -> list[int]:
        """The sums that some keys are in."""
        chosen = set(keys)
        return [number for number, defined in self.defined.items() if not chosen.isdisjoint(defined.members)]

    def to_json(self) -> list[list[Any]]:
        return [[number, d.agent, list(d.members), d.scope, d.window] for number, d in self.defined.items()]

    def load(self, kept: Iterable[list[Any]]) -> None:
        for number, agent, members, scope, window in kept:
            self._add(int(number), SumDefined(agent, tuple(members), scope, window))
