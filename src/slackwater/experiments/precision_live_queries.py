"""The streams and queries of the live run: as SQL, and as what they say of values that are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from slackwater.edge.widths import Bools, Floats

TOLERANCE = 1_000_000
RATE = 1.0
"""The most that a value of `flow` changes in a second, as its stream says; they do a quarter of that."""
WINDOW = 10_000_000
SITES = 10
PORTS = 8
STREAMS = {"load": "", "work": "", "flow": f" MAX RATE {RATE:g} PER SECOND"}

Key = tuple[str, str, int]
"""Of all streams: a host, its site and one of its ports."""


@dataclass(frozen=True)
class Asked:
    """A query, and what is true of it."""

    name: str
    column: str
    stream: str
    select: str
    truth: Callable[[Floats, Bools], float]
    """Of the values of its keys, and of which of them are there; only asked where one is."""
    chosen: Callable[[Key], bool] = lambda key: True
    by_site: bool = False
    window: int = 0
    within: float = 2.0
    """Its constraint, for each key that it reads where it is a sum."""
    each: bool = True

    def width(self, agents: int) -> float:
        """The constraint that the run begins with."""
        count = sum(self.chosen(key) for key in keys(self.stream, agents)) if self.each else 1
        return self.within * count / (SITES if self.by_site else 1)

    def group(self, key: Key) -> str:
        return key[1] if self.by_site else ""


def _total(values: Floats, there: Bools) -> float:
    return float(values[there].sum())


QUERIES = (
    Asked("total", "total", "load", "SELECT SUM(rx) AS total", _total),
    Asked(
        "mean", "mean", "load", "SELECT AVG(rx) AS mean", lambda v, there: float(v[there].mean()), each=False
    ),
    Asked("by_site", "rx", "load", "SELECT site, SUM(rx) AS rx", _total, by_site=True, within=4.0),
    Asked(
        "top",
        "top",
        "load",
        "SELECT MAX(rx) AS top",
        lambda v, there: float(v[there].max()),
        chosen=lambda key: key[2] == 0,
        within=40.0,
        each=False,
    ),
    Asked(
        "first",
        "half",
        "load",
        "SELECT SUM(0.5 * rx) AS half",
        lambda v, there: _total(v, there) / 2,
        chosen=lambda key: key[0] < "h020" and key[2] < 4,
    ),
    Asked(
        "smooth",
        "smooth",
        "work",
        f"SELECT avg_over(SUM(rx), '{WINDOW // 1_000_000} seconds') AS smooth",
        _total,
        window=WINDOW,
        within=0.5,
    ),
    Asked("pace", "pace", "flow", "SELECT SUM(rx) AS pace", _total, within=4.0),
)
"""MAX has the first port of every host told apart; what else a host has, its agent may add up."""
CONDITIONS = {"top": "port = 0", "first": "host < 'h020' AND port < 4"}


def named(name: str) -> Asked:
    return next(query for query in QUERIES if query.name == name)


def ports(stream: str, number: int) -> int:
    """How many keys of a stream a host has."""
    if stream == "load":
        return PORTS if number % 7 == 0 else 1
    if stream == "work":
        return PORTS if number % 20 == 1 else 0
    return 1 if number % 10 == 2 else 0


def key(number: int, port: int) -> Key:
    return f"h{number:03d}", f"site{number % SITES}", port


def keys(stream: str, agents: int) -> Iterator[Key]:
    for number in range(agents):
        for port in range(ports(stream, number)):
            yield key(number, port)


def script(hub: str, agents: int) -> str:
    """All of it as SQL."""
    made = [
        f"CREATE STREAM {stream} (ts TIMESTAMP, host STRING, site STRING, port INT, rx DOUBLE)\n"
        f"  USING agents OPTIONS (hub '{hub}') KEY (host, site, port) TIMESTAMP BY ts"
        f" TOLERANCE {TOLERANCE // 1_000_000} SECOND{more};"
        for stream, more in STREAMS.items()
    ]
    for asked in QUERIES:
        where = f" WHERE {CONDITIONS[asked.name]}" if asked.name in CONDITIONS else ""
        by = " GROUP BY site" if asked.by_site else ""
        made.append(
            f"CREATE QUERY {asked.name} AS {asked.select} FROM LATEST({asked.stream}){where}{by}"
            f" WITH PRECISION {asked.width(agents):g};"
        )
    return "\n".join(made) + "\n"


def altered(agents: int, **factors: float) -> list[str]:
    """Statements that give queries other constraints, as multiples of those that they began with."""
    return [
        f"ALTER QUERY {name} WITH PRECISION {named(name).width(agents) * factor:g}"
        for name, factor in factors.items()
    ]


def flow_at(number: int, seconds: float) -> float:
    """The value of a host in `flow`: it changes by a quarter of `RATE` a second at most.

    >>> steps = [abs(flow_at(3, s + 1) - flow_at(3, s)) for s in range(100)]
    >>> max(steps) <= RATE / 4
    True
    """
    turn = 30.0 + number % 17
    return 50.0 + RATE / 4 * turn / (2 * np.pi) * float(np.sin(2 * np.pi * (seconds / turn + number / 7)))
