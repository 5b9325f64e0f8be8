"""Seeded bursty network traffic for demos, tests and benchmarks, addressable slice by slice."""

from __future__ import annotations

import difflib
import threading
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bounds = tuple[type[int] | type[float], float, float]
Reader = tuple[Callable[[str], Any], str]  # how the text of an option is read, and what it should be

SCHEMA = pa.schema([
    ("ts", pa.timestamp("us", tz="UTC")), ("src", pa.string()), ("dst", pa.string()), ("sport", pa.int32()),
    ("dport", pa.int32()), ("proto", pa.string()), ("size", pa.int32()), ("seq", pa.int64()),
])  # fmt: skip

# Port, protocol and weight of each service; one end of a packet is a service, the other is ephemeral.
_SERVICES = (
    (443, "tcp", 44), (80, "tcp", 18), (443, "udp", 12), (53, "udp", 9), (22, "tcp", 4), (25, "tcp", 3),
    (993, "tcp", 3), (8080, "tcp", 3), (123, "udp", 2), (3306, "tcp", 1), (3389, "tcp", 1),
)  # fmt: skip
_SERVICE_DRAW = np.repeat(np.arange(len(_SERVICES)), [weight for _, _, weight in _SERVICES])
_SERVICE_PORT = np.array([port for port, _, _ in _SERVICES], dtype=np.int32)
_SERVICE_IS_UDP = np.array([protocol == "udp" for _, protocol, _ in _SERVICES])
_UDP_PORTS, _EPHEMERAL_PORTS = (53, 123), (32768, 61000)
_SMALLEST_PACKET, _ACK_SHARE, _SIZE_SHAPE = 40, 0.4, 1.2

# Second words of the seed sequences: keep the timelines' random numbers apart from the packets'.
_TIMELINE_STREAM, _PACKET_STREAM = 0, 1
# A chunk has 2**12 periods: below these bounds no sum of periods and begin of a chunk can leave int64.
_CYCLES_PER_CHUNK, _LONGEST_PERIOD_US, HORIZON_US = 2**11, 2**50, 2**52

_BOUNDS: dict[str, Bounds] = {
    "seed": (int, 0, 2**63 - 1), "rate": (float, 1e-6, 10**9), "sources": (int, 1, 100_000),
    "alpha": (float, 1.01, 1.99), "on_s": (float, 0.001, 10**6), "off_s": (float, 0.001, 10**6),
    "hosts": (int, 2, 2**24 - 2), "skew": (float, 0, 10), "max_size": (int, _SMALLEST_PACKET + 1, 65535),
}  # fmt: skip


def check_number(name: str, value: object, bounds: Bounds) -> None:
    """Raise where a value is no number of the kind and in the range that bounds say."""
    kind, low, high = bounds
    # bool is an int to isinstance, but a rate of True is a mistake rather than a rate of 1.
    is_number = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
    if not (is_number and low <= value <= high):  # type: ignore[operator]
        noun = "whole number" if kind is int else "number"
        raise ValueError(f"{name}: expected a {noun} from {low} to {high}, got {value!r}")


@dataclass(frozen=True)
class Burst:
    """From `start_s` after the origin, for `length_s`, the rate is multiplied by `factor`.

    The packets that the burst adds, rate * (factor - 1), all go to `host` and `port` where given.
    """

    start_s: float
    length_s: float
    factor: float
    port: int | None = None
    host: str | None = None

    def __post_init__(self) -> None:
        check_number("burst start_s", self.start_s, (float, 0, 10**9))
        check_number("burst length_s", self.length_s, (float, 1e-6, 10**9))
        check_number("burst factor", self.factor, (float, 1, 10**6))
        if self.port is not None:
            check_number("burst port", self.port, (int, 0, 65535))
        if self.host is not None and not (isinstance(self.host, str) and self.host):
            raise ValueError(f"burst host: expected a host such as '10.0.3.17', got {self.host!r}")

    @property
    def span_us(self) -> tuple[int, int]:
        """Begin and end in microseconds after the origin."""
        return round(self.start_s * 1e6), round((self.start_s + self.length_s) * 1e6)


@dataclass(frozen=True)
class Traffic:
    """Packets of many on/off sources, bursty at every time scale.

    Guarantee: `slice` depends only on the configuration, the index and the width (and on the installed
    numpy's random streams), never on the slices asked for before. Rows are in order of `ts`, `seq` increases
    strictly within and across the slices of one width, and the on and off periods of the sources are unbroken
    and the same whatever the width. The expected rate is `rate` at every moment outside bursts. The first
    slice at event time t costs time proportional to t * sources, once per process.

    Parameters: `seed`; `rate`, mean packets per event second; `sources`, how many on/off sources share it;
    `alpha`, shape of their Pareto periods (Hurst parameter (3 - alpha) / 2); `on_s` and `off_s`, mean periods
    in seconds; `hosts` and `skew`, size and exponent of the Zipf laws from which each packet draws src and
    dst; `max_size`, where the Pareto tail of packet sizes is cut; `bursts`, whose added packets add up where
    they overlap; `origin`, the event time at which slice 0 begins.

    Reference: W. Willinger, M. S. Taqqu, R. Sherman, D. V. Wilson, "Self-similarity through high-variability:
    statistical analysis of Ethernet LAN traffic at the source level", IEEE/ACM Trans. Networking 5(1), 1997.

    >>> traffic = Traffic(seed=7, rate=1000.0, bursts=(Burst(60, 20, 5.0, port=53),))
    >>> table = traffic.slice(3, 1_000_000)
    >>> table.column_names
    ['ts', 'src', 'dst', 'sport', 'dport', 'proto', 'size', 'seq']
    >>> table["seq"][0].as_py() == 3 << 32
    True
    """

    schema: ClassVar[pa.Schema] = SCHEMA
    segment_us: ClassVar[int] = 1_000_000

    seed: int = 1
    rate: float = 2000.0
    sources: int = 64
    alpha: float = 1.5
    on_s: float = 1.0
    off_s: float = 2.0
    hosts: int = 1000
    skew: float = 1.0
    max_size: int = 1500
    bursts: tuple[Burst, ...] = ()
    origin: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def __post_init__(self) -> None:
        for name, bounds in _BOUNDS.items():
            check_number(name, getattr(self, name), bounds)
        check_origin(self.origin)
        if not isinstance(self.bursts, tuple) or not all(isinstance(burst, Burst) for burst in self.bursts):
            raise ValueError(f"bursts: expected a tuple of Burst, got {self.bursts!r}")

    def slice(self, index: int, width_us: int) -> pa.Table:
        """The rows with event time in [origin + index * width_us, origin + (index + 1) * width_us)."""
        check_number("index", index, (int, 0, 2**31 - 1))
        check_number("width_us", width_us, (int, 1, HORIZON_US // (index + 1)))
        begin, end = index * width_us, (index + 1) * width_us
        timelines = _timelines(self.seed, self.sources, self.alpha, self.on_s, self.off_s)
        periods = timelines.on_periods(begin, end)
        rng = np.random.default_rng([self.seed, _PACKET_STREAM, index, width_us])
        density = self.rate / 1e6 / self.sources * (self.on_s + self.off_s) / self.on_s
        parts = [_arrivals(rng, periods, density)]
        active = [burst for burst in self.bursts if burst.span_us[0] < end and burst.span_us[1] > begin]
        for burst in active:
            # A Poisson stream of its own on top of the others: together they have `factor` times the rate.
            parts.append(_arrivals(rng, periods.clip(*burst.span_us), density * (burst.factor - 1)))
        # Time and stream sort as one integer: equal keys are alike, so any sorting algorithm gives one order.
        keys = np.concatenate([(part - begin) * len(parts) + stream for stream, part in enumerate(parts)])
        keys.sort()
        time, stream = np.divmod(keys, len(parts)) if active else (keys, keys)
        count = len(time)
        names, popularity = _zipf_hosts(self.hosts, self.skew)
        src = np.searchsorted(popularity, rng.random(count), side="right")
        # Rotated, so that the most popular sender is not the most popular receiver too.
        dst = (np.searchsorted(popularity, rng.random(count), side="right") + self.hosts // 2) % self.hosts
        service = _SERVICE_DRAW[rng.integers(0, len(_SERVICE_DRAW), count)]
        is_udp, port = _SERVICE_IS_UDP[service], _SERVICE_PORT[service]
        ephemeral = rng.integers(*_EPHEMERAL_PORTS, count, dtype=np.int32)
        is_request = rng.random(count, dtype=np.float32) < 0.5
        for number, burst in enumerate(active, start=1):
            rows = stream == number
            if burst.port is not None:
                is_request[rows], port[rows], is_udp[rows] = True, burst.port, burst.port in _UDP_PORTS
            if burst.host is not None:
                dst[rows] = len(names)
                names = pa.concat_arrays([names, pa.array([burst.host])])
        # The inverse distribution function of a Pareto law truncated to [smallest, max_size + 1).
        reach = 1 - (_SMALLEST_PACKET / (self.max_size + 1)) ** _SIZE_SHAPE
        tail = _SMALLEST_PACKET * (1 - reach * rng.random(count)) ** (-1 / _SIZE_SHAPE)
        is_ack = rng.random(count, dtype=np.float32) < _ACK_SHARE
        size = np.where(is_ack, _SMALLEST_PACKET, np.minimum(tail, self.max_size)).astype(np.int32)
        stamps = (time + (epoch_us(self.origin) + begin)).view("datetime64[us]")
        columns = [
            pa.array(stamps, type=SCHEMA.field("ts").type),
            names.take(pa.array(src)), names.take(pa.array(dst)),
            np.where(is_request, ephemeral, port), np.where(is_request, port, ephemeral),
            pa.array(["tcp", "udp"]).take(pa.array(is_udp.view(np.int8))),
            size, np.arange(count, dtype=np.int64) + (index << 32),
        ]  # fmt: skip
        return pa.table(columns, schema=SCHEMA)


def from_options(options: Mapping[str, str]) -> Traffic:
    """The traffic that SQL OPTIONS describe: the parameters of Traffic by name, in any case, as strings.

    Bursts are start:length:factor[:port=P][:host=H], comma separated; the origin is ISO 8601 with its zone.
    """
    return Traffic(**read_options("traffic", options, _OPTIONS))


def read_options(source: str, options: Mapping[str, str], known: Mapping[str, Reader]) -> dict[str, Any]:
    """The values of options given as texts, by name in lower case; errors name the source and the option."""
    values: dict[str, Any] = {}
    for name, text in options.items():
        key = name.lower()
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known)}"
            raise ValueError(f"unknown {source} option {name!r}: {hint}")
        parse, expected = known[key]
        try:
            values[key] = parse(text.strip())
        except ValueError as error:
            raise ValueError(
                f"{source} option {name}: expected {expected}, got {text!r} ({error})"
            ) from error
    return values


def number_readers(bounds: Mapping[str, Bounds]) -> dict[str, Reader]:
    """How options are read that are numbers."""
    return {
        name: (kind, "a whole number" if kind is int else "a number") for name, (kind, _, _) in bounds.items()
    }


ORIGIN_READER: Reader = (datetime.fromisoformat, "a time like '2026-01-01T00:00:00Z'")


def check_origin(origin: object) -> None:
    """Raise where an origin is no time with its zone."""
    if not isinstance(origin, datetime) or origin.utcoffset() is None:
        raise ValueError(f"origin: expected a datetime with time zone, got {origin!r}")


def epoch_us(moment: datetime) -> int:
    """Microseconds from 1970 to a time."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _parse_burst(text: str) -> Burst:
    start, length, factor, *rest = (part.strip() for part in text.split(":"))
    extra = dict(part.split("=", 1) for part in rest)
    if unknown := extra.keys() - {"port", "host"}:
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}")
    port = int(extra["port"]) if "port" in extra else None
    return Burst(float(start), float(length), float(factor), port, extra.get("host"))


_OPTIONS: dict[str, Reader] = number_readers(_BOUNDS) | {
    "bursts": (
        lambda text: tuple(_parse_burst(part) for part in text.split(",") if part.strip()),
        "start:length:factor[:port=P][:host=H], ...",
    ),
    "origin": ORIGIN_READER,
}


def _arrivals(rng: np.random.Generator, periods: Ints, density: float) -> Ints:
    """Poisson arrivals, unordered, at `density` per microsecond throughout each period (row: start, stop)."""
    lengths = periods[:, 1] - periods[:, 0]
    counts = rng.poisson(lengths * density)
    places: Ints = (rng.random(counts.sum()) * np.repeat(lengths, counts)).astype(np.int64)
    return places + np.repeat(periods[:, 0], counts)


class _Timelines:
    """The alternating on and off periods of all sources, simulated as far as asked for.

    Only the begin of each chunk of cycles is kept for good, with the edges of the chunk used last: a chunk
    is made again from the seed when needed, so memory stays small however far event time goes.
    """

    def __init__(self, seed: int, sources: int, alpha: float, on_s: float, off_s: float) -> None:
        self._seed, self._alpha, self._on_share = seed, alpha, on_s / (on_s + off_s)
        # A Pareto law with mean m has its smallest value at m * (alpha - 1) / alpha.
        self._smallest = np.array([on_s, off_s]) * 1e6 * (alpha - 1) / alpha
        self._begins: list[list[int]] = [[0] for _ in range(sources)]
        self._latest: list[tuple[int, Ints]] = [(-1, np.empty(0, np.int64))] * sources
        self._lock = threading.Lock()

    def on_periods(self, begin: int, end: int) -> Ints:
        """All on periods of all sources, cut to [begin, end): rows of start and stop in microseconds."""
        found: list[Ints] = []
        with self._lock:
            for source, begins in enumerate(self._begins):
                while begins[-1] <= begin:
                    self._edges(source, len(begins) - 1)
                chunk, reached = bisect_right(begins, begin) - 1, begin
                while reached < end:
                    edges = self._edges(source, chunk)
                    periods = edges[:-1].reshape(-1, 2)
                    first = periods[:, 1].searchsorted(begin, side="right")
                    found.append(periods[first : periods[:, 0].searchsorted(end)])
                    chunk, reached = chunk + 1, int(edges[-1])
        return np.concatenate(found).clip(begin, end)

    def _edges(self, source: int, chunk: int) -> Ints:
        """The times at which the periods of a chunk begin, on and off in turn, and the end of the last."""
        if self._latest[source][0] != chunk:
            rng = np.random.default_rng([self._seed, _TIMELINE_STREAM, source, chunk])
            periods = self._smallest * (1 + rng.pareto(self._alpha, (_CYCLES_PER_CHUNK, 2)))
            if chunk == 0:
                # Stationary from the start: time 0 is a uniform place in a period of the length-biased law,
                # which for Pareto of shape alpha is Pareto of shape alpha - 1.
                state = int(rng.random() >= self._on_share)
                periods[0, :state] = 0
                periods[0, state] = self._smallest[state] * (1 + rng.pareto(self._alpha - 1)) * rng.random()
            whole = np.rint(np.minimum(periods, _LONGEST_PERIOD_US)).astype(np.int64).ravel()
            begins = self._begins[source]
            edges = np.concatenate([[0], whole.cumsum()]) + begins[chunk]
            if chunk == len(begins) - 1:
                begins.append(int(edges[-1]))
            self._latest[source] = chunk, edges
        return self._latest[source][1]


_timelines = lru_cache(maxsize=8)(_Timelines)


@lru_cache(maxsize=8)
def _zipf_hosts(hosts: int, skew: float) -> tuple[pa.Array, NDArray[np.float64]]:
    """The hosts' names and their cumulated probabilities, the most popular first."""
    names = pa.array([f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(1, hosts + 1)])
    cumulated = np.cumsum(np.arange(1, hosts + 1) ** -float(skew))
    return names, cumulated / cumulated[-1]
