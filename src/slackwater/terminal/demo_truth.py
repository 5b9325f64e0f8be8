"""The true answers of the demo's queries, from the rows that were made for it, without Spark.

Each query is written here once more, by hand: what a run says is held against something that shares nothing
with it but the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from slackwater.runtime.answers import Answer
from slackwater.runtime.json_values import Value
from slackwater.terminal.demo_agents import Fleet
from slackwater.terminal.demo_network import GUESTS, OFFICE, ROUTES, longest_prefix
from slackwater.terminal.demo_queues import DialledWalks
from slackwater.terminal.demo_traffic import DialledTraffic
from slackwater.traffic import epoch_us

SECOND = 1_000_000


@dataclass(frozen=True)
class Second:
    """What is needed of the packets of one second."""

    sizes: np.ndarray
    dns: np.ndarray
    """Sizes of those to port 53."""
    web: int
    office: int
    senders: int | None
    """None where there is no packet to the guests."""


def second_of(packets: pa.Table, networks: Mapping[str, str | None]) -> Second:
    """What a second adds up to; ``networks`` has the network of every address."""
    size = packets["size"].to_numpy()
    port = packets["dport"].to_numpy()
    tcp = _matches(packets["proto"], {"tcp"})
    office = tcp & _matches(packets["dst"], {a for a, n in networks.items() if n == OFFICE})
    guests = ~tcp & _matches(packets["dst"], {a for a, n in networks.items() if n == GUESTS})
    senders = packets["src"].filter(pa.array(guests)).unique()
    return Second(
        size,
        size[port == 53],
        int(size[port == 80].sum()),
        int(size[office].sum()),
        len(senders) or None,
    )


def _matches(texts: pa.ChunkedArray, wanted: set[str]) -> np.ndarray:
    """Which of some texts, each kept once with numbers for it, are wanted."""
    found = []
    for chunk in texts.chunks:
        known = np.array([text in wanted for text in chunk.dictionary.to_pylist()], dtype=bool)
        found.append(known[chunk.indices.to_numpy()])
    return np.concatenate(found) if found else np.zeros(0, bool)


def traffic_truth(packets: DialledTraffic, until: int) -> Iterator[Answer]:
    """The answers of all windows over packets that end by a time, in order of time for each query."""
    begin = epoch_us(packets.origin) // SECOND
    count = until // SECOND - begin
    find = longest_prefix(ROUTES)
    first = packets.slice(0, SECOND)
    networks = {a: find(a) for a in _texts(first["dst"])}
    seconds = [second_of(packets.slice(index, SECOND), networks) for index in range(count)]

    def windows(
        query: str, column: str, size: int, value: Callable[[Sequence[Second]], Value]
    ) -> Iterator[Answer]:
        # those that began before the first packet hold what there is
        for end in range(1, count + 1):
            part = seconds[max(0, end - size) : end]
            found = value(part)
            if found is not None:
                yield _answer(query, column, found, window=(begin + end - size, begin + end))

    yield from windows("all_traffic", "bytes", 2, lambda part: sum(int(s.sizes.sum()) for s in part))
    yield from windows("all_traffic", "n", 2, lambda part: sum(len(s.sizes) for s in part))
    yield from windows("office_bytes", "bytes", 5, lambda part: sum(s.office for s in part) or None)
    yield from windows("web_bytes", "bytes", 5, lambda part: sum(s.web for s in part) or None)
    yield from windows("dns_spread", "sd", 5, _spread)
    yield from windows("guest_senders", "senders", 1, lambda part: part[0].senders)


def _texts(texts: pa.ChunkedArray) -> list[str]:
    """All texts that there are numbers for."""
    return [] if not texts.num_chunks else list(texts.chunk(0).dictionary.to_pylist())


def _spread(part: Sequence[Second]) -> float | None:
    sizes = np.concatenate([second.dns for second in part])
    return float(np.std(sizes, ddof=1)) if len(sizes) > 1 else None


def queues_truth(queues: DialledWalks, until: int) -> Iterator[Answer]:
    """The mean of what all routers have said last, at every second up to a time."""
    begin = epoch_us(queues.origin) // SECOND
    last: dict[str, float] = {}
    for index in range(until // SECOND - begin + 1):
        rows = queues.slice(index, SECOND)
        last.update(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))
        yield _answer("delay", "delay", float(np.mean(list(last.values()))), at=begin + index)


def true_load(fleet: Fleet, at: int, host: str | None = None) -> float | None:
    """What the services of a host, or of all, add up to at a time; None before all of them have a value."""
    total = 0.0
    for (owner, _), history in fleet.histories.items():
        if host is not None and owner != host:
            continue
        place = int(np.searchsorted(history.times, at, side="right")) - 1
        if place < 0:
            return None
        total += history.values[place]
    return total


def _answer(
    query: str, column: str, value: Value, *, window: tuple[int, int] | None = None, at: int | None = None
) -> Answer:
    start, end = (_time(t) for t in window) if window is not None else (None, None)
    return Answer(
        query=query,
        column=column,
        window_start=start,
        window_end=end,
        at=None if at is None else _time(at),
        value=value,
        low=value,
        high=value,
        confidence=1.0,
        how="exact",
        rate=1.0,
        met=True,
        emitted_at=end or _time(at or 0),
    )


def _time(seconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
