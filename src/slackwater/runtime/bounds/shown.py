"""Agents, their messages and their widths at one moment, as frozen values: what the service shows of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slackwater.runtime.bounds.mirror import Mirror
from slackwater.runtime.bounds.queries import BoundedQuery
from slackwater.runtime.bounds.showing import Rates, used_of

AGENTS_AT_MOST = 200
"""Agents that are told one by one: those that are away first, then those that send most."""


@dataclass(frozen=True)
class AgentShown:
    """One agent; ``away_since`` in microseconds, 0 while it is there."""

    name: str
    keys: int
    updates: int
    offered_per_second: float | None
    """Values a second that come to it, each a message if it sent everything; None while it has not said."""
    away_since: int
    interruptions: int = 0
    """How often it was away."""
    last_away: tuple[int, int] = (0, 0)
    """From when to when it was away the last time, where it is back."""


@dataclass(frozen=True)
class WidthsShown:
    """The widths behind one column of a query; None where there is none yet."""

    query: str
    column: str
    smallest: float | None
    median: float | None
    largest: float | None
    used: float | None
    """The width of the widest answer's interval; None, too, where some answer has none."""
    allowed: float


@dataclass(frozen=True)
class AgentsShown:
    """The agents of one stream."""

    stream: str
    there: int
    known: int
    interruptions: int
    """How often agents were away, all together."""
    keys: int
    updates_per_second: float
    grants_per_second: float
    offered_per_second: float | None
    late: int
    agents: tuple[AgentShown, ...]
    widths: tuple[WidthsShown, ...]


def shown(stream: str, mirror: Mirror, queries: list[BoundedQuery], rates: Rates) -> AgentsShown:
    """What there is to see of a stream that agents send."""
    belief = mirror.belief
    own = np.flatnonzero(belief.here & ~belief.summed)
    places = len(mirror.agents)
    owners = mirror.owner[own]
    keys = np.bincount(owners[owners >= 0], minlength=places)
    agents = [
        AgentShown(
            name,
            int(keys[agent.place]),
            agent.rows,
            agent.offered_per_second,
            agent.lost,
            agent.interruptions,
            agent.last_away,
        )
        for name, agent in mirror.agents.items()
    ]
    there = [a for a in agents if not a.away_since]
    # of one that has not said it is not known: what there is counts, which is the least it can be
    told = [a.offered_per_second for a in there if a.offered_per_second is not None]
    agents.sort(key=lambda a: (not a.away_since, -a.updates, a.name))
    return AgentsShown(
        stream,
        len(there),
        places,
        sum(agent.interruptions for agent in agents),
        len(own),
        rates.up,
        rates.down,
        sum(told) if told else None,
        mirror.queue.late,
        tuple(agents[:AGENTS_AT_MOST]),
        tuple(_widths(mirror, queries)),
    )


def _widths(mirror: Mirror, queries: list[BoundedQuery]) -> list[WidthsShown]:
    now = mirror.queue.released
    widths, bounds = mirror.belief.widths(slice(None), now), mirror.belief.bounds(slice(None), now)
    found = []
    for query in queries:
        items = query.means.told if query.ready and query.means is not None else query.items
        for output, item in zip(query.outputs(), items, strict=True):
            own = widths[np.unique(item.weights.indices)]
            own = own[np.isfinite(own)]
            used = used_of(item, bounds) if len(own) else None
            three = (own.min(), np.median(own), own.max()) if len(own) else (None, None, None)
            smallest, median, largest = (None if w is None else float(w) for w in three)
            found.append(
                WidthsShown(
                    query.step.name, output.name, smallest, median, largest, used, query.contract.width
                )
            )
    return found
