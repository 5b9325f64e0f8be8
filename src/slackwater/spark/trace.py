"""Recorded and generated streams as segments of Parquet in order of time, read slice by slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.traffic import SCHEMA, Traffic


@dataclass(frozen=True)
class Segment:
    """A file with rows of a stretch of time, in microseconds; ``last`` is included."""

    path: str
    first: int
    last: int
    rows: int


class Trace(Protocol):
    """Rows by event time. Columns: the stream's, ``__t``, ``__part`` and ``__seq``."""

    start: int
    end: int | None
    """One after the last row; None where rows never end."""

    def segments(self, low: int, high: int) -> Sequence[Segment]:
        """The segments that may hold rows with low <= time < high."""

    def advance(self, low: int, rows: int) -> int:
        """Where to stop so that about so many rows lie between ``low`` and there."""

    def forget(self, before: int) -> None:
        """Rows before a time are not asked for again."""


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


class TrafficTrace:
    """Generated traffic: a segment per event second, written when first asked for."""

    WIDTH = 1_000_000

    def __init__(self, traffic: Traffic, folder: Path, seconds: float | None = None) -> None:
        self._traffic = traffic
        self._folder = folder
        self.start = (traffic.origin - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        self.end: int | None = self.start + round(seconds * 1_000_000) if seconds is not None else None
        folder.mkdir(parents=True, exist_ok=True)

    def segments(self, low: int, high: int) -> Sequence[Segment]:
        first = (low - self.start) // self.WIDTH
        last = (high - 1 - self.start) // self.WIDTH
        return [self._segment(index) for index in range(max(0, first), last + 1)]

    def _segment(self, index: int) -> Segment:
        file = self._folder / f"{index:010d}.parquet"
        begin = self.start + index * self.WIDTH
        if not file.exists():
            rows = self._traffic.slice(index, self.WIDTH)
            times = rows["ts"].cast(pa.int64())
            part = pa.array([index] * rows.num_rows, pa.int64())
            table = rows.drop_columns(["seq"])
            for name, values in (("__t", times), ("__part", part), ("__seq", rows["seq"])):
                table = table.append_column(name, values)
            temporary = file.with_suffix(".tmp")
            pq.write_table(table, temporary, compression="lz4")
            temporary.replace(file)
        return Segment(str(file), begin, begin + self.WIDTH - 1, 0)

    def advance(self, low: int, rows: int) -> int:
        seconds = max(1, int(rows / self._traffic.rate))
        stop = low + seconds * self.WIDTH
        return stop if self.end is None else min(stop, self.end)

    def forget(self, before: int) -> None:
        first = (before - self.start) // self.WIDTH
        for file in self._folder.glob("*.parquet"):
            if int(file.stem) < first - 1:
                file.unlink(missing_ok=True)


TRAFFIC_COLUMNS = tuple(n for n in SCHEMA.names if n != "seq")
