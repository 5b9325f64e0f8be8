"""Agents, their messages and their widths at one moment, as frozen values: what the service shows of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slackwater.edge.widths import Floats, Ints
from slackwater.runtime.bounds.mirror import Mirror
from slackwater.runtime.bounds.queries import BoundedQuery
from slackwater.runtime.bounds.showing import Rates

AGENTS_AT_MOST = 200
"""Agents that are told one by one: those that are away first, then those that send most."""


@dataclass(frozen=True)
class AgentShown:
    """One agent; ``away_since`` in microseconds, 0 while it is there."""

    name: str
    keys: int
    updates: int
    offered_per_second: float | None
    """Messages a second if it sent every change; None while it has not said."""
    away_since: int


@dataclass(frozen=True)
class WidthsShown:
    """The widths behind one column of a query; None where there is none yet."""

    query: str
    column: str
    smallest: float | None
    median: float | None
    largest: float | None
    used: float | None
    """The width of the widest answer's interval, as far as widths make it."""
    allowed: float


@dataclass(frozen=True)
class AgentsShown:
    """The agents of one stream."""

    stream: str
    there: int
    known: int
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
    offered = _offered(mirror, own)
    owners = mirror.owner[own]
    places = len(mirror.agents)
    there = owners >= 0
    keys = np.bincount(owners[there], minlength=places)
    known = there & ~np.isnan(offered)
    each = np.bincount(owners[known], weights=offered[known], minlength=places)
    told = np.bincount(owners[known], minlength=places)
    agents = [
        AgentShown(
            name,
            int(keys[agent.place]),
            agent.rows,
            float(each[agent.place]) if told[agent.place] else None,
            agent.lost,
        )
        for name, agent in mirror.agents.items()
    ]
    agents.sort(key=lambda a: (not a.away_since, -a.updates, a.name))
    return AgentsShown(
        stream,
        sum(not agent.lost for agent in mirror.agents.values()),
        places,
        len(own),
        rates.up,
        rates.down,
        float(offered[known].sum()) if known.any() else None,
        mirror.queue.late,
        tuple(agents[:AGENTS_AT_MOST]),
        tuple(_widths(mirror, queries)),
    )


def _offered(mirror: Mirror, keys: Ints) -> Floats:
    """By key: how often a second it changes, which is what it would send at a width of 0; NaN: unknown."""
    objects = keys[:, None] * mirror.columns + np.arange(mirror.columns)
    if not objects.size:
        return np.empty(0)
    told = mirror.seconds[objects] > 0
    # a row has all columns: it is sent when any of them leaves its bound
    most = np.where(told, mirror.rates[objects, 0], 0.0).max(axis=1)
    return np.asarray(np.where(told.any(axis=1), most, np.nan))


def _widths(mirror: Mirror, queries: list[BoundedQuery]) -> list[WidthsShown]:
    widths = mirror.belief.widths(slice(None), mirror.queue.released)
    found = []
    for query in queries:
        items = query.means.told if query.ready and query.means is not None else query.items
        for output, item in zip(query.outputs(), items, strict=True):
            own = widths[np.unique(item.weights.indices)]
            own = own[np.isfinite(own)]
            used = None
            if len(own) and item.least is None:
                used = float((abs(item.weights) @ np.where(np.isfinite(widths), widths, 0.0)).max())
            three = (own.min(), np.median(own), own.max()) if len(own) else (None, None, None)
            smallest, median, largest = (None if w is None else float(w) for w in three)
            found.append(
                WidthsShown(
                    query.step.name, output.name, smallest, median, largest, used, query.contract.width
                )
            )
    return found
