"""Recorded and generated streams as segments of Parquet in order of time, read slice by slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.traffic import epoch_us


@dataclass(frozen=True)
class Segment:
    """A file with rows of a stretch of time, in microseconds; ``last`` is included."""

    path: str
    first: int
    last: int
    rows: int


class Trace(Protocol):
    """Rows by event time. Columns: the stream's, ``__t``, ``__part``, ``__seq`` and ``__block``."""

    start: int
    end: int | None
    """One after the last row; None where rows never end."""

    def segments(self, low: int, high: int) -> Sequence[Segment]:
        """The segments that may hold rows with low <= time < high."""

    def advance(self, low: int, rows: int) -> int:
        """Where to stop so that about so many rows lie between ``low`` and there."""

    def forget(self, before: int) -> None:
        """Rows before a time are not asked for again."""


def rows_between(trace: Trace, low: int, high: int) -> int:
    """How many rows a slice of a trace has; those without a time are in the slice that begins it."""
    if high <= low:
        return 0
    total = 0
    for segment in trace.segments(low, high):
        times = segment_times(segment.path)
        total += int(np.searchsorted(times, high) - np.searchsorted(times, low))
        if low <= trace.start:
            total += _untimed(segment.path)
    return total


BLOCK = 4096
"""Rows that are read or skipped together: as many as a page of a segment holds."""


def blocks_between(trace: Trace, low: int, high: int) -> list[tuple[int, int]]:
    """The blocks of a slice of a trace, each with how many rows of the slice it holds."""
    found: list[tuple[int, int]] = []
    for segment in trace.segments(low, high):
        times = segment_times(segment.path)
        # rows without a time come first in their segment, and are in the slice that begins the trace
        untimed = _untimed(segment.path)
        first = 0 if low <= trace.start else untimed + int(np.searchsorted(times, low))
        last = untimed + int(np.searchsorted(times, high))
        base = first_block(segment.path)
        for block in range(first // BLOCK, -(-last // BLOCK)):
            rows = min(last, (block + 1) * BLOCK) - max(first, block * BLOCK)
            found.append((base + block, rows))
    return found


@lru_cache(maxsize=512)
def first_block(path: str) -> int:
    """The number of a segment's first block; -1 where it has no rows, and so no blocks."""
    file = pq.ParquetFile(path)
    if not file.metadata.num_rows:
        return -1
    return int(file.read_row_group(0, columns=["__block"])["__block"][0].as_py())


@lru_cache(maxsize=64)
def segment_times(path: str) -> npt.NDArray[np.int64]:
    """The times of a segment's rows, sorted; rows without one are left out.

    Those of a few are kept: a batch asks for its own segments several times, and never again after it.
    """
    times = pq.read_table(path, columns=["__t"])["__t"]
    known: npt.NDArray[np.int64] = times.drop_null().to_numpy()
    return known if bool((np.diff(known) >= 0).all()) else np.sort(known)


@lru_cache(maxsize=512)
def _untimed(path: str) -> int:
    return int(pq.ParquetFile(path).metadata.num_rows) - len(segment_times(path))


class RecordedTrace:
    """A Parquet, CSV or JSON trace, sorted once into segments beside the state."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = sorted(segments, key=lambda s: (s.first, s.path))
        self.start = self._segments[0].first
        self.end: int | None = max(s.last for s in self._segments) + 1

    @property
    def rows(self) -> int:
        return sum(s.rows for s in self._segments)

    def segments(self, low: int, high: int) -> Sequence[Segment]:
        return [s for s in self._segments if s.first < high and s.last >= low]

    def advance(self, low: int, rows: int) -> int:
        assert self.end is not None
        taken = 0
        for segment in self._segments:
            if segment.last < low:
                continue
            if taken and taken + segment.rows > rows and segment.first > low:
                return segment.first
            taken += segment.rows
        return self.end

    def forget(self, before: int) -> None:
        """A recorded trace stays: it may be replayed from the start."""


class Generator(Protocol):
    """A stream that is made up, addressable slice by slice: a slice is the same whenever it is asked for."""

    @property
    def origin(self) -> datetime: ...
    @property
    def schema(self) -> pa.Schema:
        """The columns, ``ts`` first and ``seq`` last."""

    @property
    def rate(self) -> float:
        """Rows per event second, about."""

    @property
    def segment_us(self) -> int:
        """How much event time a file should hold."""

    def slice(self, index: int, width_us: int, /) -> pa.Table:
        """The rows from index * width to (index + 1) * width after the origin, in order of time."""


def generated_columns(generator: Generator) -> tuple[str, ...]:
    """The columns that a stream may declare."""
    return tuple(n for n in generator.schema.names if n != "seq")


class GeneratedTrace:
    """A generated stream: segments of equal width, each written when first asked for."""

    def __init__(self, generator: Generator, folder: Path, seconds: float | None = None) -> None:
        self._generator = generator
        self._folder = folder
        self._width = generator.segment_us
        self.start = epoch_us(generator.origin)
        self.end: int | None = self.start + round(seconds * 1_000_000) if seconds is not None else None
        folder.mkdir(parents=True, exist_ok=True)

    def segments(self, low: int, high: int) -> Sequence[Segment]:
        first = (low - self.start) // self._width
        last = (high - 1 - self.start) // self._width
        return [self._segment(index) for index in range(max(0, first), last + 1)]

    def _segment(self, index: int) -> Segment:
        file = self._folder / f"{index:010d}.parquet"
        begin = self.start + index * self._width
        if not file.exists():
            rows = self._generator.slice(index, self._width)
            times = rows["ts"].cast(pa.int64())
            part = pa.array(np.full(rows.num_rows, index, np.int64))
            table = rows.drop_columns(["seq"])
            block = pa.array((index << 32) + np.arange(rows.num_rows, dtype=np.int64) // BLOCK)
            placed = (("__t", times), ("__part", part), ("__seq", rows["seq"]), ("__block", block))
            for name, values in placed:
                table = table.append_column(name, values)
            temporary = file.with_suffix(".tmp")
            pq.write_table(
                table,
                temporary,
                compression="lz4",
                write_page_index=True,
                max_rows_per_page=BLOCK,
                # times and numbers hardly repeat: to look for those that do takes most of the time
                use_dictionary=_texts(table.schema),
            )
            temporary.replace(file)
        return Segment(str(file), begin, begin + self._width - 1, 0)

    def advance(self, low: int, rows: int) -> int:
        segments = max(1, int(rows / (self._generator.rate * self._width / 1e6)))
        stop = low + segments * self._width
        return stop if self.end is None else min(stop, self.end)

    def forget(self, before: int) -> None:
        first = (before - self.start) // self._width
        for file in self._folder.glob("*.parquet"):
            if int(file.stem) < first - 1:
                file.unlink(missing_ok=True)


def _texts(schema: pa.Schema) -> list[str]:
    return [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_dictionary(f.type)]


# the name it had when traffic was all that could be generated
TrafficTrace = GeneratedTrace
