"""The demo's packets: network traffic whose rate can be changed while it is made, second by second."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import pyarrow as pa

from slackwater.terminal.demo_story import forget
from slackwater.traffic import Traffic, epoch_us

POOL = 200_000
"""Packets that are made beforehand, and of which all others are copies: made anew, they would take a burst's
time from those who are to work on them."""
WOBBLE = 0.06
"""By how much the rate of a second scatters by itself."""
_COUNT_STREAM, _TEXTS = 2, ("src", "dst", "proto")


@dataclass
class DialledTraffic:
    """Packets at ``rate`` a second, times a factor that may be changed at any time.

    Guarantee: what a second holds depends on the seed, its number and the factor that was set when it was
    first asked for, and is the same whenever it is asked for again within the hour. Seconds that have been
    asked for stay as they are; a new factor counts for those to come. All methods may be called from any
    thread.
    """

    origin: datetime
    rate: float = 10_000.0
    seed: int = 7
    hosts: int = 2_000
    pool: int = POOL
    segment_us: int = 1_000_000
    _factor: float = 1.0
    _factors: dict[int, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        made = Traffic(seed=self.seed, rate=float(self.pool), sources=1_000, hosts=self.hosts)
        packets = made.slice(0, 1_000_000).drop_columns(["ts", "seq"])
        for name in _TEXTS:
            # each text once: a copied packet then has a number for it
            place = packets.schema.get_field_index(name)
            packets = packets.set_column(place, name, packets[name].combine_chunks().dictionary_encode())
        self._packets: pa.Table = packets
        stamp = pa.field("ts", pa.timestamp("us", tz="UTC"))
        self.schema = pa.schema([stamp, *packets.schema, pa.field("seq", pa.int64())])

    @property
    def factor(self) -> float:
        with self._lock:
            return self._factor

    def turn(self, factor: float) -> None:
        """Set the factor of the seconds to come."""
        with self._lock:
            self._factor = factor

    @property
    def factors(self) -> Mapping[int, float]:
        """By number of a second that has been asked for: its factor."""
        with self._lock:
            return dict(self._factors)

    def slice(self, index: int, width_us: int) -> pa.Table:
        """The packets from index * width to (index + 1) * width after the origin, in order of time."""
        with self._lock:
            factor = self._factors.setdefault(index, self._factor)
            forget(self._factors)
        rng = np.random.default_rng([self.seed, _COUNT_STREAM, index, width_us])
        wobble = float(np.exp(WOBBLE * rng.standard_normal()))
        start = int(rng.integers(self._packets.num_rows))
        count = round(self.rate * factor * wobble * width_us / 1e6)
        # gaps between packets as those of a Poisson stream of so many
        gaps = rng.standard_exponential(count + 1).cumsum()
        begin = epoch_us(self.origin) + index * width_us
        times = begin + (gaps[:-1] / gaps[-1] * width_us).astype(np.int64)
        stamps = pa.array(times.view("datetime64[us]"), self.schema.field("ts").type)
        numbers = pa.array(np.arange(count, dtype=np.int64) + (index << 32))
        packets = self._copies(start, count)
        return pa.table([stamps, *packets.columns, numbers], schema=self.schema)

    def _copies(self, start: int, count: int) -> pa.Table:
        """So many packets of the pool, from a place on and round and round."""
        parts, size = [], self._packets.num_rows
        while count > 0:
            part = self._packets.slice(start, min(count, size - start))
            parts.append(part)
            count, start = count - part.num_rows, 0
        return pa.concat_tables(parts) if parts else self._packets.slice(0, 0)
