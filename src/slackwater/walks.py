"""Seeded keyed values that wander, like prices or sensors, addressable slice by slice."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slackwater.language.durations import parse_duration
from slackwater.traffic import (
    HORIZON_US,
    ORIGIN_READER,
    Bounds,
    Reader,
    check_number,
    check_origin,
    epoch_us,
    number_readers,
    read_options,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Steps = tuple[Ints, Floats, NDArray[np.int32]]

SCHEMA = pa.schema([
    ("ts", pa.timestamp("us", tz="UTC")), ("key", pa.string()), ("value", pa.float64()),
    ("volume", pa.int32()), ("seq", pa.int64()),
])  # fmt: skip

# Second words of the seed sequences: keep the random numbers of values, times and volumes apart.
_VALUE_STREAM, _TIME_STREAM, _VOLUME_STREAM = 0, 1, 2
# A chunk has about so many values, within these numbers of steps; ends of chunks are kept for so many values.
_CHUNK_VALUES, _FEWEST_STEPS, _MOST_STEPS, _KEPT_VALUES = 2**18, 8, 2**10, 2**22
_ROWS_PER_SEGMENT, _LONGEST_SEGMENT_US = 1000, 2**40
_NORMAL_TAIL, _USUAL_VOLUME, _VOLUME_SPREAD = 30, 100, 0.7

_NUMBERS: dict[str, Bounds] = {
    "seed": (int, 0, 2**63 - 1), "keys": (int, 1, 1_000_000), "start": (float, -(10**12), 10**12),
    "sigma": (float, 0, 10**9), "drift": (float, -(10**9), 10**9), "correlation": (float, 0, 1),
    "tail": (float, 2.01, 10**9), "swing": (float, 0, 1), "jitter": (float, 0, 1),
}  # fmt: skip
_LENGTHS: dict[str, Bounds] = {"every": (int, 1, 2**45), "period": (int, 1, 2**50)}


@dataclass(frozen=True)
class Silence:
    """From `start_s` after the origin, for `length_s`, there are no rows of a key; its value goes on."""

    key: str
    start_s: float
    length_s: float

    def __post_init__(self) -> None:
        check_number("silent start_s", self.start_s, (float, 0, 10**9))
        check_number("silent length_s", self.length_s, (float, 1e-6, 10**9))

    @property
    def span_us(self) -> tuple[int, int]:
        """Begin and end in microseconds after the origin."""
        return round(self.start_s * 1e6), round((self.start_s + self.length_s) * 1e6)


@dataclass(frozen=True)
class Walks:
    """Random walks of many keys, `k0`, `k1` and so on, that move together in part.

    Guarantee: `slice` depends only on the configuration, the index and the width (and on the installed
    numpy's random streams), never on the slices asked for before. Rows and their values are the same whatever
    the width; they are in order of `ts`, then of the number of the key; `seq` increases strictly within and
    across the slices of one width. The first slice at event time t costs time proportional to t * keys, once
    per process.

    Parameters: `seed`; `keys`, how many; `every`, microseconds between two values of a key; `start`, the
    first value of all; `sigma` and `drift`, standard deviation and mean of the change in one second;
    `correlation`, the share of the variance that all keys have in common; `tail`, degrees of freedom of the
    Student t laws, scaled to variance 1, from which the common and the own part of each change are drawn (30
    and more: normal); `swing` and `period` (microseconds): the standard deviation is multiplied by
    1 + swing * sin(2 * pi * t / period); `jitter`, the share of `every` by which a value may come later than
    its turn (what it has changed by is for the time that has really passed); `silent`, stretches without rows
    of a key; `origin`, the event time at which slice 0 begins. Volumes are log-normal around 100, and higher
    where values move more.

    >>> walks = Walks(seed=7, keys=3, silent=(Silence("k1", 2, 5),))
    >>> walks.slice(2, 1_000_000).select(["ts", "key"]).to_pylist()[1]["key"]
    'k2'
    >>> walks.slice(0, 1_000_000)["value"].to_pylist()
    [100.0, 100.0, 100.0]
    """

    schema: ClassVar[pa.Schema] = SCHEMA

    seed: int = 1
    keys: int = 100
    every: int = 1_000_000
    start: float = 100.0
    sigma: float = 0.1
    drift: float = 0.0
    correlation: float = 0.3
    tail: float = 4.0
    swing: float = 0.5
    period: int = 600_000_000
    jitter: float = 0.0
    silent: tuple[Silence, ...] = ()
    origin: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def __post_init__(self) -> None:
        for name, bounds in (_NUMBERS | _LENGTHS).items():
            check_number(name, getattr(self, name), bounds)
        check_origin(self.origin)
        if not isinstance(self.silent, tuple) or not all(isinstance(each, Silence) for each in self.silent):
            raise ValueError(f"silent: expected a tuple of Silence, got {self.silent!r}")
        for silence in self.silent:
            _place(silence.key, self.keys)

    @property
    def rate(self) -> float:
        """Rows per event second, where no key is silent."""
        return self.keys * 1e6 / self.every

    @property
    def segment_us(self) -> int:
        """Event time of about a thousand rows or more: no less than a second, no more than some days."""
        return min(max(1_000_000, self.every * -(-_ROWS_PER_SEGMENT // self.keys)), _LONGEST_SEGMENT_US)

    def slice(self, index: int, width_us: int) -> pa.Table:
        """The rows with event time in [origin + index * width_us, origin + (index + 1) * width_us)."""
        check_number("index", index, (int, 0, 2**31 - 1))
        check_number("width_us", width_us, (int, 1, HORIZON_US // (index + 1)))
        begin, end = index * width_us, (index + 1) * width_us
        parts = list(_paths(self).steps(begin // self.every, -(-end // self.every)))
        time, value, volume = (np.concatenate(each).ravel() for each in zip(*parts, strict=True))
        key = np.tile(np.arange(self.keys), len(time) // self.keys)
        kept = (time >= begin) & (time < end)
        for silence in self.silent:
            low, high = silence.span_us
            if low < end and high > begin:
                kept &= (key != _place(silence.key, self.keys)) | (time < low) | (time >= high)
        chosen = np.flatnonzero(kept)
        if self.jitter:
            # Steps do not overlap, and within one the keys are in order: a stable sort leaves equal times so.
            chosen = chosen[np.argsort(time[chosen], kind="stable")]
        columns = [
            pa.array((time[chosen] + epoch_us(self.origin)).view("datetime64[us]"), SCHEMA.field("ts").type),
            _names(self.keys).take(pa.array(key[chosen])), value[chosen], volume[chosen],
            np.arange(len(chosen), dtype=np.int64) + (index << 32),
        ]  # fmt: skip
        return pa.table(columns, schema=SCHEMA)


def from_options(options: Mapping[str, str]) -> Walks:
    """The walks that SQL OPTIONS describe: the parameters of Walks by name, in any case, as strings.

    Lengths of time are texts such as '1 second'; silences are key:start:length in seconds, comma separated;
    the origin is ISO 8601 with its zone.
    """
    return Walks(**read_options("walks", options, _OPTIONS))


def _parse_length(text: str) -> int:
    length = parse_duration(text)
    if length <= 0:
        raise ValueError("it must be longer than 0")
    return length


def _parse_silence(text: str) -> Silence:
    key, start, length = (part.strip() for part in text.split(":"))
    return Silence(key, float(start), float(length))


_OPTIONS: dict[str, Reader] = (
    number_readers(_NUMBERS)
    | dict.fromkeys(_LENGTHS, (_parse_length, "a length of time such as '1 second'"))
    | {
        "silent": (
            lambda text: tuple(_parse_silence(part) for part in text.split(",") if part.strip()),
            "key:start:length, ... such as 'k3:60:30'",
        ),
        "origin": ORIGIN_READER,
    }
)


def _place(key: object, keys: int) -> int:
    """The number of a key; raises where there is no such key."""
    number = key[1:] if isinstance(key, str) else ""
    if not (number.isdecimal() and key == f"k{int(number)}" and int(number) < keys):
        there = f"k0 to k{keys - 1}" if keys > 1 else "k0 only"
        raise ValueError(f"silent: there is no key {key!r}, the keys are {there}")
    return int(number)


class _Paths:
    """The values of all keys, step by step, simulated as far as asked for.

    A chunk of steps is made from the seed and from where the chunk before it ended. Such ends are kept, with
    the chunk used last. Where they get many only every second one stays, then every fourth, and so on: what
    lies between is made again when needed, so that memory stays small however far event time goes.
    """

    def __init__(self, walks: Walks) -> None:
        self._walks = walks
        self._steps = min(max(_CHUNK_VALUES // walks.keys, _FEWEST_STEPS), _MOST_STEPS)
        self._most_ends = max(4, _KEPT_VALUES // walks.keys)
        before_all = np.full(walks.keys, -walks.every, np.int64), np.full(walks.keys, float(walks.start))
        # By chunk: time and value of each key at the step before it.
        self._ends: dict[int, tuple[Ints, Floats]] = {0: before_all}
        self._newest, self._stride = 0, 1
        self._latest: tuple[int, Steps] | None = None
        self._lock = threading.Lock()

    def steps(self, first: int, stop: int) -> Iterator[Steps]:
        """Microseconds after the origin, values and volumes of some steps: arrays by step and key."""
        for chunk in range(first // self._steps, (stop - 1) // self._steps + 1):
            with self._lock:
                found = self._chunk(chunk)
            begin = chunk * self._steps
            inside = slice(max(0, first - begin), stop - begin)
            yield found[0][inside], found[1][inside], found[2][inside]

    def _chunk(self, number: int) -> Steps:
        known = max(chunk for chunk in self._ends if chunk <= number)
        end = self._ends[known]
        if self._latest is not None and known <= self._latest[0] <= number:
            last, made = self._latest
            if last == number:
                return made
            known, end = last + 1, (made[0][-1], made[1][-1])
        for chunk in range(known, number + 1):
            made = self._made(chunk, *end)
            # Copies: what is kept should not hold the whole chunk.
            end = made[0][-1].copy(), made[1][-1].copy()
            self._keep(chunk + 1, end)
            self._latest = chunk, made
        return made

    def _made(self, chunk: int, before: Ints, value: Floats) -> Steps:
        walks, shape = self._walks, (self._steps, self._walks.keys)
        values, times, volumes = (
            np.random.default_rng([walks.seed, stream, chunk])
            for stream in (_VALUE_STREAM, _TIME_STREAM, _VOLUME_STREAM)
        )
        turn = (np.arange(self._steps, dtype=np.int64)[:, None] + chunk * self._steps) * walks.every
        course = 1 + walks.swing * np.sin(2 * np.pi * (turn % walks.period) / walks.period)
        common, own = _shocks(values, walks.tail, (self._steps, 1)), _shocks(values, walks.tail, shape)
        shocks = np.sqrt(walks.correlation) * common + np.sqrt(1 - walks.correlation) * own
        time: Ints = np.broadcast_to(turn, shape)
        if walks.jitter:
            time = turn + (times.random(shape) * (walks.jitter * walks.every)).astype(np.int64)
        seconds = np.diff(time, axis=0, prepend=before[None]) / 1e6
        changes = walks.drift * seconds + walks.sigma * course * np.sqrt(seconds) * shocks
        if chunk == 0:
            changes[0] = 0
        sizes = _USUAL_VOLUME * course * np.exp(_VOLUME_SPREAD * volumes.standard_normal(shape))
        return time, value + changes.cumsum(axis=0), (1 + sizes).astype(np.int32)

    def _keep(self, chunk: int, end: tuple[Ints, Floats]) -> None:
        if chunk <= self._newest:
            return
        if self._newest % self._stride:
            del self._ends[self._newest]
        self._ends[chunk], self._newest = end, chunk
        if len(self._ends) > self._most_ends:
            self._stride *= 2
            self._ends = {n: e for n, e in self._ends.items() if n % self._stride == 0 or n == chunk}


_paths = lru_cache(maxsize=8)(_Paths)


def _shocks(rng: np.random.Generator, tail: float, shape: tuple[int, int]) -> Floats:
    """Random numbers of mean 0 and variance 1."""
    if tail >= _NORMAL_TAIL:
        return rng.standard_normal(shape)
    scaled: Floats = rng.standard_t(tail, shape) * np.sqrt((tail - 2) / tail)
    return scaled


@lru_cache(maxsize=8)
def _names(keys: int) -> pa.Array:
    return pa.array([f"k{n}" for n in range(keys)])
