"""Recorded and generated streams as segments of Parquet in order of time, read slice by slice."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import monotonically_increasing_id, spark_partition_id

from slackwater.errors import SourceError
from slackwater.language.statements import CreateStream
from slackwater.spark.execute import SPARK_ERRORS, first_line
from slackwater.spark.files import cast_column, csv_layout, data_files, declared_schema, read_nanoseconds
from slackwater.spark.options import check_options
from slackwater.traffic import SCHEMA, Traffic

ROWS_PER_SEGMENT = 1_000_000
"""At most: a file costs some milliseconds to open, a part of one to skip."""
SEGMENTS_AT_MOST = 500
"""Segments made smaller than that for the sake of small batches."""


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


def land(
    session: SparkSession, stream: CreateStream, folder: Path, rows_per_batch: int = ROWS_PER_SEGMENT
) -> RecordedTrace:
    """Sort a trace by time into segments, once; a finished landing of the same files is used again."""
    options = {k.lower() if k.lower() in ("path", "speed", "format") else k: v for k, v in stream.options}
    path = options.pop("path", None)
    if path is None:
        raise SourceError(
            f"stream {stream.name}: replay needs the option path, a Parquet, CSV or JSON file or folder; "
            "write USING replay OPTIONS (path 'trace.parquet')"
        )
    options.pop("speed", None)
    # Spark may have been started from another directory
    source = Path(path).absolute()
    if not source.exists():
        raise SourceError(f"stream {stream.name}: there is nothing at {path!r} (looked from {os.getcwd()})")
    stamp = {"path": str(source.resolve()), "files": _fingerprint(source), "sql": stream.sql}
    index = folder / "index.json"
    if index.exists():
        known = json.loads(index.read_text())
        if known["stamp"] == stamp:
            # the folder may have moved since
            return RecordedTrace(
                [Segment(**{**s, "path": str(folder / s["path"])}) for s in known["segments"]]
            )
        if known["stamp"]["sql"] == stamp["sql"]:
            raise SourceError(
                f"stream {stream.name}: the trace at {path!r} has changed since this state was written; "
                "start over with --fresh, or put it back"
            )
    shutil.rmtree(folder, ignore_errors=True)
    try:
        segments = _land(session, stream, source, options, folder, rows_per_batch)
        listed = [{**vars(s), "path": str(Path(s.path).relative_to(folder))} for s in segments]
        temporary = index.with_suffix(".tmp")
        temporary.write_text(json.dumps({"stamp": stamp, "segments": listed}))
        temporary.replace(index)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, SPARK_ERRORS):
            reason = first_line(error)
            raise SourceError(
                f"stream {stream.name}: Spark cannot read the trace at {path!r} as declared: {reason}"
            ) from error
        raise
    return RecordedTrace(segments)


def _land(
    session: SparkSession,
    stream: CreateStream,
    source: Path,
    options: Mapping[str, str],
    folder: Path,
    rows_per_batch: int,
) -> list[Segment]:
    frame = _read(session, stream, source, options)
    count = frame.count()
    if count == 0:
        raise SourceError(f"stream {stream.name}: the trace at {str(source)!r} holds no rows")
    numbered = frame.withColumn("__id", monotonically_increasing_id())
    # every core shall have a file or two of a batch
    share = rows_per_batch // (2 * session.sparkContext.defaultParallelism)
    size = max(1, min(ROWS_PER_SEGMENT, share))
    parts = max(-(-count // ROWS_PER_SEGMENT), min(-(-count // size), SEGMENTS_AT_MOST))
    ordered = numbered.repartitionByRange(parts, "__t").sortWithinPartitions("__t", "__file", "__id")
    placed = (
        ordered.drop("__id", "__file")
        .withColumn("__part", spark_partition_id().cast("bigint"))
        .withColumn("__seq", monotonically_increasing_id())
    )
    folder.mkdir(parents=True)
    placed.write.mode("overwrite").parquet(str(folder / "rows"))
    found = [_segment(file) for file in sorted((folder / "rows").glob("*.parquet"))]
    timed = [s for s in found if s.first <= s.last]
    if not timed:
        raise SourceError(
            f"stream {stream.name}: no row of the trace at {str(source)!r} has a time in {stream.time}; "
            f"{_time_hint(stream)}"
        )
    start = min(s.first for s in timed)
    # rows without a time are read with the first rows that have one, so that they are counted
    untimed = [Segment(s.path, start, start, s.rows) for s in found if s.first > s.last and s.rows]
    return timed + untimed


def _time_hint(stream: CreateStream) -> str:
    if stream.time_expression is not None:
        return f"TIMESTAMP BY {stream.time_expression} gives NULL for all of them"
    return (
        "give how it is written, such as OPTIONS (timestampFormat 'dd.MM.yyyy HH:mm:ss') for CSV, or an "
        "expression: TIMESTAMP BY timestamp_seconds(epoch_s) AS ts"
    )


def _fingerprint(source: Path) -> list[list[object]]:
    """The files of a trace by name, size and time of change."""
    listed = [(f.name if f == source else str(f.relative_to(source)), f.stat()) for f in data_files(source)]
    return [[name, stat.st_size, stat.st_mtime_ns] for name, stat in listed]


def _segment(file: Path) -> Segment:
    """A written file as a segment; one whose rows have no time has its first after its last."""
    metadata = pq.ParquetFile(file).metadata
    column = metadata.schema.to_arrow_schema().get_field_index("__t")
    lows, highs = [], []
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(column).statistics
        if statistics is not None and statistics.has_min_max:
            lows.append(statistics.min)
            highs.append(statistics.max)
    return Segment(str(file), min(lows, default=0), max(highs, default=-1), metadata.num_rows)


def _read(session: SparkSession, stream: CreateStream, source: Path, options: Mapping[str, str]) -> DataFrame:
    """The declared columns of a trace, its files being Parquet, CSV or JSON by their names."""
    kind = _kind(stream, source, options.get("format"))
    check_options(stream.name, kind, options)
    nanos: frozenset[str] = frozenset()
    if kind == "csv":
        chosen, schema = csv_layout(session, stream, str(source), options, header=True)
        frame = session.read.options(**chosen).schema(schema).csv(str(source))
    elif kind == "json":
        frame = session.read.options(**options).schema(declared_schema(stream.columns)).json(str(source))
    else:
        nanos = read_nanoseconds(session, source)
        frame = session.read.options(**options).parquet(str(source))
        _check_columns(stream, frame.columns, source)
    columns = [cast_column(c, nanos) for c in stream.columns]
    timed = frame.selectExpr(*columns, "_metadata.file_path AS __file")
    if stream.time_expression is not None:
        timed = timed.selectExpr("*", f"CAST({stream.time_expression} AS TIMESTAMP) AS `{stream.time}`")
    return timed.selectExpr("*", f"unix_micros(CAST(`{stream.time}` AS TIMESTAMP)) AS __t")


_KINDS = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv",
    ".json": "json", ".jsonl": "json", ".ndjson": "json",
}  # fmt: skip


def _kind(stream: CreateStream, source: Path, said: str | None) -> str:
    """What the names of the files say they are; compressed text keeps its name before the last suffix."""
    if said is not None and said.lower() in _KINDS.values():
        return said.lower()
    files = data_files(source)
    if not files:
        raise SourceError(f"stream {stream.name}: the folder {str(source)!r} holds no files")
    kinds = {
        next((_KINDS[s.lower()] for s in reversed(f.suffixes[-2:]) if s.lower() in _KINDS), f.name)
        for f in files
    }
    if len(kinds) > 1 or not kinds <= set(_KINDS.values()):
        raise SourceError(
            f"stream {stream.name}: replay reads .parquet, .csv, .tsv or .jsonl files, all of one kind; "
            f"found {', '.join(sorted(kinds)[:5])} at {str(source)!r}; the option format says what they are "
            "where their names do not"
        )
    return kinds.pop()


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
