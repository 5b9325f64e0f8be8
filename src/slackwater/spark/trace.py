"""Recorded and generated streams as segments of Parquet in order of time, read slice by slice."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import monotonically_increasing_id, spark_partition_id

from slackwater.errors import SourceError
from slackwater.language.statements import CreateStream
from slackwater.traffic import SCHEMA, Traffic

ROWS_PER_SEGMENT = 100_000


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
    """A Parquet or CSV trace, sorted once into segments beside the state."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = sorted(segments, key=lambda s: s.first)
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
            if taken and taken + segment.rows > rows:
                return max(segment.first, low + 1)
            taken += segment.rows
        return self.end

    def forget(self, before: int) -> None:
        """A recorded trace stays: it may be replayed from the start."""


def land(session: SparkSession, stream: CreateStream, folder: Path) -> RecordedTrace:
    """Sort a trace by time into segments, once; a finished landing of the same files is used again."""
    options = dict(stream.options)
    path = options.pop("path", None)
    if path is None:
        raise SourceError(
            f"stream {stream.name}: replay needs the option path, a Parquet or CSV file or folder; "
            "write USING replay OPTIONS (path 'trace.parquet')"
        )
    options.pop("speed", None)
    source = Path(path)
    if not source.exists():
        raise SourceError(f"stream {stream.name}: there is nothing at {path!r} (looked from {os.getcwd()})")
    stamp = {"path": str(source.resolve()), "modified": _modified(source), "sql": stream.sql}
    index = folder / "index.json"
    if index.exists():
        known = json.loads(index.read_text())
        if known["stamp"] == stamp:
            return RecordedTrace([Segment(**s) for s in known["segments"]])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    frame = _read(session, stream, source, options)
    count = frame.count()
    if count == 0:
        raise SourceError(f"stream {stream.name}: the trace at {path!r} holds no rows")
    numbered = frame.withColumn("__id", monotonically_increasing_id())
    parts = max(1, -(-count // ROWS_PER_SEGMENT))
    ordered = numbered.repartitionByRange(parts, "__t").sortWithinPartitions("__t", "__id").drop("__id")
    placed = ordered.withColumn("__part", spark_partition_id().cast("bigint")).withColumn(
        "__seq", monotonically_increasing_id()
    )
    placed.write.mode("overwrite").parquet(str(folder / "rows"))
    segments = [
        s for file in sorted((folder / "rows").glob("*.parquet")) if (s := _segment(file)) is not None
    ]
    if not segments:
        raise SourceError(
            f"stream {stream.name}: no row of the trace at {path!r} has a time in {stream.time}",
        )
    temporary = index.with_suffix(".tmp")
    temporary.write_text(json.dumps({"stamp": stamp, "segments": [vars(s) for s in segments]}))
    temporary.replace(index)
    return RecordedTrace(segments)


def _modified(source: Path) -> float:
    files = [source] if source.is_file() else [f for f in source.rglob("*") if f.is_file()]
    return max((f.stat().st_mtime for f in files), default=0.0)


def _segment(file: Path) -> Segment | None:
    metadata = pq.ParquetFile(file).metadata
    column = metadata.schema.to_arrow_schema().get_field_index("__t")
    lows, highs = [], []
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(column).statistics
        if statistics is not None and statistics.has_min_max:
            lows.append(statistics.min)
            highs.append(statistics.max)
    return Segment(str(file), min(lows), max(highs), metadata.num_rows) if lows else None


def _read(session: SparkSession, stream: CreateStream, source: Path, options: Mapping[str, str]) -> DataFrame:
    """The declared columns of a trace, its files being Parquet or CSV by their names."""
    suffixes = {source.suffix} if source.is_file() else {f.suffix for f in source.rglob("*") if f.is_file()}
    reader = session.read.options(**options)
    if ".csv" in suffixes or ".tsv" in suffixes or options.get("format") == "csv":
        defaults = {"header": "true", "sep": "\t" if ".tsv" in suffixes else ","}
        names = session.read.options(**{**defaults, **options}).csv(str(source)).columns
        _check_columns(stream, names, source)
        raw = ", ".join(f"`{n}` {_declared_type(stream, n)}" for n in names)
        frame = session.read.options(**{**defaults, **options}).schema(raw).csv(str(source))
    else:
        frame = reader.parquet(str(source))
        _check_columns(stream, frame.columns, source)
    columns = [f"CAST(`{c.name}` AS {c.type}) AS `{c.name}`" for c in stream.columns]
    time = stream.time_expression or f"`{stream.time}`"
    timed = frame.selectExpr(*columns)
    if stream.time_expression is not None:
        timed = timed.selectExpr("*", f"CAST({time} AS TIMESTAMP) AS `{stream.time}`")
    return timed.selectExpr("*", f"unix_micros(CAST(`{stream.time}` AS TIMESTAMP)) AS __t")


def _declared_type(stream: CreateStream, name: str) -> str:
    return next((c.type for c in stream.columns if c.name.lower() == name.lower()), "STRING")


def _check_columns(stream: CreateStream, names: Sequence[str], source: Path) -> None:
    there = {n.lower() for n in names}
    missing = [c.name for c in stream.columns if c.name.lower() not in there]
    if missing:
        raise SourceError(
            f"stream {stream.name}: {source} has no column {', '.join(missing)}; it has {', '.join(names)}"
        )


class TrafficTrace:
    """Generated traffic: a segment per event second, written when first asked for."""

    WIDTH = 1_000_000

    def __init__(self, traffic: Traffic, folder: Path, seconds: float | None = None) -> None:
        self._traffic = traffic
        self._folder = folder
        self.start = int(traffic.origin.timestamp() * 1_000_000)
        self.end: int | None = self.start + int(seconds * 1_000_000) if seconds is not None else None
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
