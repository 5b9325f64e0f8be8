"""What the log has shown of a stream, as it is held and kept: keys and agents, and arrays for each of them.

`Mirror` carries the log out on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from slackwater.edge.shadows import POINTS
from slackwater.edge.sum_table import SumTable
from slackwater.edge.widths import Bools, Floats, Ints
from slackwater.runtime.bounds.belief import Belief, LiveSum
from slackwater.runtime.bounds.events import Queue

_ARRAYS = (
    "owner",
    "announced",
    "away",
    "told",
    "taken",
    "acked",
    "updates",
    "cost",
    "heard",
    "lowest",
    "seconds",
    "rates",
)
"""What is kept by key and by object."""
OFFERED_OVER = 60_000_000
"""Microseconds over which it is counted how many values come to an agent."""


@dataclass
class AgentSeen:
    """An agent as the log shows it."""

    place: int
    incarnation: str = ""
    lost: int = 0
    """Since when; 0: it is there."""
    cost: float = 1.0
    """What one of its messages costs, relative to those of others, times what its key says."""
    rows: int = 0
    """What it has told."""
    interruptions: int = 0
    """How often it was away, or has lost rows on their way."""
    last_away: tuple[int, int] = (0, 0)
    """From when to when it was away the last time; zeros where it never was and is back."""
    offered: deque[tuple[int, int]] = field(default_factory=deque, compare=False)
    """By time: how many values had come to it; of the last minute, and of the life it is in."""

    def is_lost(self, at: int) -> None:
        """From a time on nobody has heard of it, where it was there until then."""
        if not self.lost:
            self.interruptions += 1
            self.lost = at

    def is_back(self, at: int) -> None:
        """From a time on it is there."""
        if self.lost:
            self.last_away = self.lost, max(self.lost, at)
        self.lost = 0

    def offers(self, at: int, values: int) -> None:
        """It has said how many values had come to it at a time."""
        if self.offered and (values < self.offered[-1][1] or at < self.offered[-1][0]):
            self.offered.clear()
        self.offered.append((at, values))
        while len(self.offered) > 2 and at - self.offered[1][0] > OFFERED_OVER:
            self.offered.popleft()

    @property
    def offered_per_second(self) -> float | None:
        """Values a second that come to it; None while it has not said twice."""
        if len(self.offered) < 2 or self.offered[-1][0] == self.offered[0][0]:
            return None
        (first, before), (last, after) = self.offered[0], self.offered[-1]
        return (after - before) * 1e6 / (last - first)

    def to_json(self) -> list[Any]:
        """What is kept of it."""
        seen = [self.place, self.incarnation, self.lost, self.cost, self.rows]
        return [*seen, self.interruptions, list(self.last_away)]

    @classmethod
    def from_json(cls, kept: list[Any]) -> Self:
        """What was kept; earlier versions took note of less."""
        found = cls(*kept[:6])
        if len(kept) > 6:
            found.last_away = kept[6][0], kept[6][1]
        return found


class Seen:
    """All that is known of one stream whose values agents send."""

    def __init__(
        self,
        columns: int,
        tolerance: int,
        *,
        rates: Sequence[float] | None = None,
        widening: int | None = None,
    ) -> None:
        """``rates``, by column, are the most that values change in a second; without, rows are waited for."""
        self.columns = columns
        self._widening = widening
        self._rates = rates
        self._tolerance = tolerance
        self._hold = tolerance if rates is None else 0
        self._begin()

    def _begin(self) -> None:
        self.belief = Belief(self.columns, self._widening, self._rates)
        self.queue = Queue(self._tolerance, self._hold)
        self._declared: dict[str, Any] = {}
        self.owner: Ints = np.empty(0, np.int64)
        """By key: the agent that has it, by place."""
        self.announced: Ints = np.empty(0, np.int64)
        """By key: the agent that is to have it, by the newest of the log, whose time is still to come."""
        self.names: list[Any] = []
        """The keys, by the hub's numbers; of a sum, an object that says which."""
        self.sums = SumTable()
        """The sums that are defined, and have not ended at the time that has been reached."""
        self.ordered = SumTable()
        """Those that the log defines, some of them from a time on that is still to come."""
        self.sum_keys: dict[int, int] = {}
        """By the number of a sum: the number of its key, once its agent has announced it."""
        self._missing: dict[int, tuple[int, list[list[int]]]] = {}
        """By key of a sum: the members that have no value, and the position that said so."""
        self.sums_version = 0
        """Another number whenever sums have been defined, announced or ended."""
        self.agents: dict[str, AgentSeen] = {}
        self.updates: Floats = np.empty(0)
        """By key: rows since they were last asked for."""
        self.heard: Ints = np.empty(0, np.int64)
        """By key: the time of its last row."""
        self.lowest: Ints = np.empty(0, np.int64)
        self.seconds: Floats = np.empty(0)
        self.rates: Floats = np.empty((0, POINTS))
        self.away: Bools = np.empty(0, bool)
        """By key: whether its agent is lost, and has not caught up since."""
        self.told: Ints = np.empty(0, np.int64)
        """By key: the position of its newest row."""
        self.taken: Ints = np.empty(0, np.int64)
        """By key: since which position another process has it, which knew nothing of its bounds."""
        self.acked: Ints = np.empty(0, np.int64)
        """By object: the position of the last word of its agent that it uses a grant."""
        self.cost: Floats = np.empty(0)
        """By key: what its messages cost, relative to those of its agent's other keys."""
        self._early: dict[tuple[int, str], int] = {}
        """Words on grants whose own start is still to come, whose they are, and their positions."""
        self._granted_to = 0
        """The position of the newest grant that is believed."""
        self.unread = 0
        """What agents have said that nothing can be made of: a hub of today would have refused it."""
        self._by_grant: Ints | None = None
        """Objects in the order of their newest grants; None: those have changed."""

    def _grow(self, size: int) -> None:
        more = size - self.belief.size
        if more <= 0:
            return
        self.belief.grow(size)
        self.owner = np.concatenate([self.owner, np.full(more, -1)])
        self.announced = np.concatenate([self.announced, np.full(more, -1)])
        self.updates = np.concatenate([self.updates, np.zeros(more)])
        self.cost = np.concatenate([self.cost, np.ones(more)])
        for name in ("heard", "told", "taken"):
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros(more, np.int64)]))
        self.away = np.concatenate([self.away, np.zeros(more, bool)])
        objects = more * self.columns
        self.acked = np.concatenate([self.acked, np.zeros(objects, np.int64)])
        self._by_grant = None
        self.lowest = np.concatenate([self.lowest, np.zeros(objects, np.int64)])
        self.seconds = np.concatenate([self.seconds, np.zeros(objects)])
        self.rates = np.concatenate([self.rates, np.zeros((objects, POINTS))])

    def costs(self) -> Floats:
        """By object: what one of its messages costs; of a sum, what the dearest of its members do."""
        # the last place is that of nobody
        by_agent = np.ones(len(self.agents) + 1)
        for agent in self.agents.values():
            by_agent[agent.place] = agent.cost
        own = self.cost
        if (own != 1).any():
            own = own.copy()
            for number, defined in self.sums.defined.items():
                if number in self.sum_keys:
                    own[self.sum_keys[number]] = own[list(defined.members)].max()
        return np.repeat(by_agent[self.owner] * own, self.columns)

    def unsaid(self) -> Bools:
        """By object: whether the process that has it now is still to say that it uses its grant."""
        granted = np.isfinite(self.belief.asked_width)
        return granted & (self.acked < np.repeat(self.taken, self.columns))

    def to_parts(self) -> tuple[dict[str, npt.NDArray[np.generic]], dict[str, Any]]:
        """All of it as arrays and JSON, to be kept."""
        arrays = {f"belief.{n}": a for n, a in self.belief.to_arrays().items()}
        arrays |= {name: getattr(self, name) for name in _ARRAYS}
        kept = {
            "names": self.names,
            "agents": {n: agent.to_json() for n, agent in self.agents.items()},
            "declared": self._declared,
            "queue": self.queue.to_json(),
            "early": [[grant, position, agent] for (grant, agent), position in sorted(self._early.items())],
            "unread": self.unread,
            "granted_to": self._granted_to,
            "sums": self.sums.to_json(),
            "ordered": self.ordered.to_json(),
            "missing": [[key, *told] for key, told in self._missing.items()],
            "live": [[key, s.members.tolist(), s.scope, s.window] for key, s in self.belief.live.items()],
        }
        return arrays, kept

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]], kept: Mapping[str, Any]) -> None:
        prefix = "belief."
        self.belief.load({n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)})
        # snapshots of earlier versions know neither of costs nor of sums
        for name in _ARRAYS:
            usual = np.ones(self.belief.size) if name == "cost" else arrays["owner"]
            setattr(self, name, np.array(arrays.get(name, usual)))
        self.names = list(kept["names"])
        named = enumerate(self.names)
        self.sum_keys = {n["sum"]: number for number, n in named if isinstance(n, dict)}
        self.sums.load(kept.get("sums", ()))
        self.ordered.load(kept.get("ordered", ()))
        self._missing = {key: (position, lists) for key, position, lists in kept.get("missing", ())}
        live = kept.get("live", ())
        self.belief.live = {key: LiveSum(np.array(m, np.int64), scope, size) for key, m, scope, size in live}
        self.agents = {n: AgentSeen.from_json(seen) for n, seen in kept["agents"].items()}
        self._declared = dict(kept["declared"])
        self.queue.load(dict(kept["queue"]))
        # earlier versions asked neither whose words are nor whether all can be read
        early = ((int(g), str(agent[0]) if agent else "", int(p)) for g, p, *agent in kept["early"])
        self._early = {(grant, agent): position for grant, agent, position in early}
        self.unread = int(kept.get("unread", 0))
        self._granted_to = int(kept["granted_to"])
        self._by_grant = None
