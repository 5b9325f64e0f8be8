"""The packet streams of the experiments: real arrivals with real packets, or generated traffic.

No public trace has arrival times, hosts and sizes that were observed together at the size the paper used. So
the arrivals of DEC-PKT-1 are paired with packets that a firewall saw, drawn in runs so that scans and floods
stay what they are, and time-shifted copies are superposed until a window holds as many packets as the paper's
(DEC-PKT-4, some 1,500 a second). Real arrivals, real packets, not observed together.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.benchmarks.workload import COLUMNS, SECOND, STREAM, Recording, seconds_of
from slackwater.language.parse import parse
from slackwater.language.statements import CreateStream
from slackwater.spark.execute import SparkSession
from slackwater.spark.landing import land
from slackwater.traffic import Traffic

ARRIVALS, PACKETS = "dec_pkt_1_udp_arrivals.parquet", "sotm34_packets.parquet"
COPIES = 7
"""Seven times 230 packets a second are 1,613."""
RUN = 64
"""Packets that stay together when they are drawn."""
HOUR = 3600 * SECOND
ORIGIN = 800_000_000 * SECOND
"""The event time at which the stream begins: an even second of 1995."""
NO_PORT = -1
HOSTS = 20_000
"""Of generated traffic: enough for a table of prefixes."""
DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
"""Where the real packets are looked for: beside the project."""


@dataclass(frozen=True)
class Landed:
    """A packet stream on disk: landed as a replay of batches of this size does, and cut into them."""

    recording: Recording
    rows_per_batch: int
    slices: tuple[tuple[int, int], ...]
    """From when to when each batch goes, in microseconds."""

    @property
    def begins(self) -> int:
        return self.slices[0][0]

    @property
    def ends(self) -> int:
        return self.slices[-1][1]

    def rows(self) -> pa.Table:
        """All rows in order of time, with what identifies them."""
        whole = pa.concat_tables([pq.read_table(file) for file in self.recording.files])
        return whole.sort_by("__t")


def has_real_packets(data: Path) -> bool:
    return (data / ARRIVALS).exists() and (data / PACKETS).exists()


def real_packets(data: Path, seconds: int, seed: int) -> pa.Table:
    """Real packets at real arrival times, in order of time."""
    random = np.random.default_rng(seed)
    arrivals = pq.read_table(data / ARRIVALS)["t_us"].to_numpy()
    seen = pq.read_table(data / PACKETS)
    times, drawn = [], []
    for copy in range(COPIES):
        shifted = np.sort((arrivals + copy * HOUR // COPIES) % HOUR)
        mine = shifted[: int(np.searchsorted(shifted, seconds * SECOND))]
        times.append(mine)
        drawn.append(drawn_in_runs(len(mine), seen.num_rows, random))
    order = np.argsort(np.concatenate(times), kind="stable")
    packets = seen.take(pa.array(np.concatenate(drawn)[order]))
    ports = {n: pc.fill_null(pc.cast(packets[c], pa.int32()), NO_PORT) for n, c in _PORTS.items()}
    return pa.table(
        {
            "ts": pa.array(ORIGIN + np.concatenate(times)[order]).cast(pa.timestamp("us", "UTC")),
            "src": packets["src"],
            "dst": packets["dst"],
            **ports,
            "proto": pc.utf8_lower(packets["proto"]),
            "size": pc.cast(packets["len"], pa.int32()),
        }
    )


_PORTS = {"sport": "spt", "dport": "dpt"}


def drawn_in_runs(count: int, of: int, random: np.random.Generator) -> np.ndarray:
    """So many numbers below ``of``, in runs of neighbours that begin anywhere.

    >>> drawn_in_runs(3, 10**6, np.random.default_rng(1)).tolist()
    [473158, 473159, 473160]
    """
    begins = random.integers(0, max(1, of - RUN), -(-count // RUN))
    return (begins[:, None] + np.arange(RUN)).ravel()[:count] % of


def generated_packets(seconds: int, rate: float, seed: int) -> pa.Table:
    """The generator's traffic in the same columns."""
    made = pa.concat_tables(seconds_of(Traffic(seed=seed, rate=rate, hosts=HOSTS), seconds))
    return made.drop_columns(["seq"])


def landed(spark: SparkSession, packets: pa.Table, folder: Path, rows_per_batch: int) -> Landed:
    """Packets written and landed once, for all runs to read."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "packets.parquet"
    pq.write_table(packets, source)
    statement = (
        f"CREATE STREAM {STREAM} ({COLUMNS}) USING replay "
        f"OPTIONS (path '{source}', speed 'max') TIMESTAMP BY ts;"
    )
    (declared,) = parse(statement)
    assert isinstance(declared, CreateStream)
    target = folder / "landing"
    trace = land(spark, declared, target, rows_per_batch)
    listed = json.loads((target / "index.json").read_text())["segments"]
    files = tuple(target / s["path"] for s in sorted(listed, key=lambda s: int(s["first"])))
    assert trace.end is not None
    low, slices = trace.start, []
    while low < trace.end:
        high = trace.advance(low, rows_per_batch)
        slices.append((low, high))
        low = high
    return Landed(Recording(statement, target, trace.rows, files), rows_per_batch, tuple(slices))
