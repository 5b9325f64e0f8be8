"""Landing a recorded trace: Parquet, CSV or JSON, sorted by time into segments, once."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr, monotonically_increasing_id, spark_partition_id

from slackwater.errors import SourceError
from slackwater.language.statements import CreateStream
from slackwater.spark.execute import SPARK_ERRORS, first_line
from slackwater.spark.files import cast_column, csv_layout, data_files, declared_schema, read_nanoseconds
from slackwater.spark.options import check_options
from slackwater.spark.trace import BLOCK, RecordedTrace, Segment

ROWS_PER_SEGMENT = 1_000_000
"""At most: a file costs some milliseconds to open, a part of one to skip."""
SEGMENTS_AT_MOST = 500
"""Segments made smaller than that for the sake of small batches."""

LOOKED_AT = 200
"""Rows looked at for each bound between segments."""


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
    stamp = {"path": str(source.resolve()), "files": _fingerprint(source), "sql": stream.sql, "block": BLOCK}
    index = folder / "index.json"
    if index.exists():
        known = json.loads(index.read_text())
        if known["stamp"] == stamp:
            # the folder may have moved since
            return RecordedTrace(
                [Segment(**{**s, "path": str(folder / s["path"])}) for s in known["segments"]]
            )
        if known["stamp"]["sql"] == stamp["sql"] and known["stamp"].get("block") == BLOCK:
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
    # Spark's own partitioning by range draws its bounds anew each time, and rows are sampled by their place
    stretch = expr(_stretch_of(_bounds(numbered, count, parts)))
    ordered = numbered.repartitionById(parts, stretch).sortWithinPartitions("__t", "__file", "__id")
    placed = (
        ordered.drop("__id", "__file")
        .withColumn("__part", spark_partition_id().cast("bigint"))
        .withColumn("__seq", monotonically_increasing_id())
        .selectExpr("*", f"(__part << 32) + (__seq & {2**33 - 1}) div {BLOCK} AS __block")
    )
    if stream.payload == "json":
        # as a broker would hand it on: text, to be parsed in every batch
        columns = ", ".join(f"`{c.name}`" for c in stream.columns)
        placed = placed.selectExpr(
            f"to_json(struct({columns})) AS value", "__t", "__part", "__seq", "__block"
        )
    folder.mkdir(parents=True)
    # pages as long as blocks, so that a block can be read without those around it
    pages = placed.write.option("parquet.page.row.count.limit", str(BLOCK))
    pages.mode("overwrite").parquet(str(folder / "rows"))
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


def _bounds(numbered: DataFrame, count: int, parts: int) -> list[int]:
    """Times that divide a trace into parts of about as many rows, the same ones whenever it is landed."""
    if parts == 1:
        return []
    every = max(1, count // (LOOKED_AT * parts))
    looked_at = numbered.where(f"__t IS NOT NULL AND pmod(xxhash64(__id), {every}) = 0").select("__t")
    times = np.sort(looked_at.toArrow()["__t"].to_numpy())
    places = np.arange(1, parts) * len(times) // parts
    return [int(t) for t in np.unique(times[places])] if len(times) else []


def _stretch_of(bounds: Sequence[int], first: int = 0) -> str:
    """SQL for how many of some bounds a time is at or beyond, by halving."""
    if not bounds:
        return str(first)
    middle = len(bounds) // 2
    below = _stretch_of(bounds[:middle], first)
    above = _stretch_of(bounds[middle + 1 :], first + middle + 1)
    return f"CASE WHEN __t >= {bounds[middle]} THEN {above} ELSE {below} END"


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
