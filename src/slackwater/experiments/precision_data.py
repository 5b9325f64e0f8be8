"""The values that precision is tried on: random walks, rates of hosts, rates of packets; generated where real
ones are missing.

Hosts are those of a data centre, in kB/s every five minutes for a month; where nothing was reported the last
value is held, before the first one it is 0.

Packets come from the traffic generator, or real: the arrivals of DEC-PKT-1 paired with packets that a
firewall saw, drawn in runs (real arrivals, real packets, not observed together). Either way ten hosts are the
organisation's. As in the paper, an object is a one-minute moving rate of packets, told every second.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.experiments.packets import ARRIVALS, DATA, PACKETS, drawn_in_runs
from slackwater.planners.precision_constraints import Bools, Floats, Ints
from slackwater.traffic import Burst, Traffic

WINDOW_S = 60
SOURCES = 10
LOGIN_PORTS = (21, 22, 23, 3389)
DNS_PORT = 53
QUERIES = 5
LOGINS, INCOMING, SYNS, LOOKUPS, EXTERNAL = range(QUERIES)
"""The paper's Q1 to Q5."""


@dataclass(frozen=True)
class Values:
    """By step and object."""

    values: Floats
    real: bool


def hosts(name: str, steps: int, folder: Path = DATA) -> Values:
    """Rates of hosts such as ``2013-07_rx``, in kB/s."""
    path = folder / f"hosts_{name}_kBps.parquet"
    if not path.exists():
        return Values(generated_hosts(steps, 190, seed=sum(name.encode())), real=False)
    table = pq.read_table(path).drop_columns(["epoch_s"]).slice(0, steps)
    found = np.column_stack([table[n].to_numpy().astype(np.float64) for n in table.column_names])
    place = np.where(np.isfinite(found), np.arange(len(found))[:, None], 0)
    np.maximum.accumulate(place, axis=0, out=place)
    return Values(np.nan_to_num(np.take_along_axis(found, place, axis=0)), real=True)


def generated_hosts(steps: int, objects: int, seed: int) -> Floats:
    """Rates that differ by orders of magnitude; most rest at a level and jump at times, some keep moving.

    >>> made = generated_hosts(200, 8, seed=1)
    >>> made.shape, bool((made >= 0).all())
    ((200, 8), True)
    """
    rng = np.random.default_rng(seed)
    level = rng.lognormal(2.0, 2.0, objects)
    wild = rng.beta(0.5, 2.0, objects)
    noise = np.cumsum(rng.normal(0, 0.05, (steps, objects)), axis=0) * wild
    jumps = (rng.random((steps, objects)) < 0.02 + 0.3 * wild) * rng.exponential(3.0, (steps, objects))
    return np.asarray(level * np.exp(np.clip(noise, -3, 3)) * (1 + jumps * wild), dtype=np.float64)


@dataclass(frozen=True)
class Packets:
    """Packets with one end in the organisation; arrays by packet."""

    second: Ints
    source: Ints
    """Which of the organisation's hosts sees it: one that stays inside is seen by both of its hosts."""
    matches: Bools
    """By query: whether the packet is in it, as that host sees it."""
    seconds: int
    real: bool


def generated_packets(seconds: int, rate: float = 2000.0, seed: int = 11) -> Packets:
    """The generator's: of 20 hosts every other one is the organisation's. It knows no flags: a TCP packet of
    the smallest size to a service stands for a SYN. With a burst of logins, a flood, and a burst of lookups.
    """
    bursts = (
        Burst(seconds * 0.35, seconds * 0.05, 1.5, port=22, host="10.0.0.3"),
        Burst(seconds * 0.55, seconds * 0.04, 3.0, port=80, host="10.0.0.7"),
        Burst(seconds * 0.75, seconds * 0.05, 1.3, port=DNS_PORT),
    )
    traffic = Traffic(seed=seed, rate=rate, hosts=2 * SOURCES, bursts=bursts)
    parts = [_seen(traffic.slice(second, 1_000_000), second) for second in range(seconds)]
    return _joined(parts, seconds, real=False)


def _seen(table: pa.Table, second: int) -> tuple[Ints, Ints, Bools]:
    names = {f"10.0.0.{n + 1}": n for n in range(2 * SOURCES)}
    ends = [_numbered(table[end], names) for end in ("src", "dst")]
    tcp = pc.equal(table["proto"], "tcp").to_numpy()
    size, sport, port = (table[name].to_numpy() for name in ("size", "sport", "dport"))
    syn = tcp & (size == 40) & (port < sport)
    src, dst = (np.where(end % 2 == 0, end // 2, -1) for end in ends)
    return _matched(np.full(len(src), second), src, dst, port, syn)


def _numbered(column: pa.ChunkedArray, names: dict[str, int]) -> Ints:
    known = pa.array(list(names))
    places = pc.fill_null(pc.index_in(column, known), len(names))
    numbers = np.array([*names.values(), -1], dtype=np.int64)
    found: Ints = numbers[places.to_numpy()]
    return found


def _matched(second: Ints, src: Ints, dst: Ints, port: Ints, syn: Bools) -> tuple[Ints, Ints, Bools]:
    """What the hosts of the organisation see (numbers, -1: outside): who receives, and who sends."""
    received, sent = np.flatnonzero(dst >= 0), np.flatnonzero(src >= 0)
    matches = np.zeros((len(received) + len(sent), QUERIES), bool)
    here, there = matches[: len(received)], matches[len(received) :]
    outside = src[received] < 0
    here[:, LOGINS] = outside & np.isin(port[received], LOGIN_PORTS)
    here[:, INCOMING] = True
    here[:, SYNS] = syn[received]
    here[:, EXTERNAL] = outside
    there[:, LOOKUPS] = port[sent] == DNS_PORT
    there[:, EXTERNAL] = dst[sent] < 0
    found = matches.any(axis=1)
    times = np.concatenate([second[received], second[sent]])
    sources = np.concatenate([dst[received], src[sent]])
    return times[found], sources[found], matches[found]


def real_packets(seconds: int, folder: Path = DATA, seed: int = 11) -> Packets | None:
    """Real arrivals with real packets; the ten inside hosts that receive most are the organisation's."""
    if not ((folder / ARRIVALS).exists() and (folder / PACKETS).exists()):
        return None
    arrivals = pq.read_table(folder / ARRIVALS)["t_us"].to_numpy()
    arrivals = arrivals[arrivals < seconds * 1_000_000]
    seen = pq.read_table(folder / PACKETS)
    rows = drawn_in_runs(len(arrivals), seen.num_rows, np.random.default_rng(seed))
    packets = seen.take(pa.array(rows))
    counted = sorted(seen["dst"].value_counts().to_pylist(), key=lambda row: -row["counts"])
    names = {row["values"]: n for n, row in enumerate(counted[:SOURCES])}
    src, dst = _numbered(packets["src"], names), _numbered(packets["dst"], names)
    port = pc.fill_null(packets["dpt"], -1).to_numpy()
    syn = pc.equal(packets["tcp_flags"], "SYN").to_numpy()
    second = (arrivals // 1_000_000).astype(np.int64)
    return _joined([_matched(second, src, dst, port, syn)], seconds, real=True)


def _joined(parts: list[tuple[Ints, Ints, Bools]], seconds: int, *, real: bool) -> Packets:
    second, source, matches = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Packets(second, source, matches, seconds, real)


def moving_rates(packets: Packets, objects: Ints, number: int) -> Floats:
    """The one-minute moving rate of each object at every second; ``objects`` by packet, below 0: in none.

    The first minute, before a window is full, is left out.

    >>> two = np.array([0, 0, 59, 60])
    >>> some = Packets(two, two, np.zeros((4, 5), bool), 62, False)
    >>> (60 * moving_rates(some, np.array([0, -1, 0, 0]), 1)).ravel().tolist()
    [2.0, 2.0, 2.0]
    """
    counts = np.zeros((packets.seconds + 1, number))
    used = objects >= 0
    np.add.at(counts, (packets.second[used] + 1, objects[used]), 1)
    total = np.cumsum(counts, axis=0)
    return (total[WINDOW_S:] - total[:-WINDOW_S]) / WINDOW_S
