"""Streams as Spark reads them: any format by name, a replayed trace, generated rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from slackwater import traffic, walks
from slackwater.errors import SourceError
from slackwater.language.durations import parse_duration
from slackwater.language.statements import CreateStream
from slackwater.plan.agents import check_declared, check_files, pointing, sent_by_agents
from slackwater.spark.agents_source import open_agents
from slackwater.spark.execute import first_line
from slackwater.spark.files import (
    FILE_FORMATS,
    cast_column,
    csv_layout,
    declared_schema,
    local_files,
    read_nanoseconds,
)
from slackwater.spark.kafka_blocks import block_sql, blocks_of, readings, stretches
from slackwater.spark.landing import land
from slackwater.spark.source import Offsets, StreamSource
from slackwater.spark.trace import GeneratedTrace, Generator, generated_columns
from slackwater.spark.trace_source import TraceSource

GENERATORS: Mapping[str, Callable[[Mapping[str, str]], Generator]] = {
    "traffic": traffic.from_options,
    "walks": walks.from_options,
}


class SparkSource:
    """Any Spark streaming format, with its own options."""

    as_fast_as_it_goes = False
    cheap_to_read = False
    tells_time = False
    # compaction and transactions leave gaps between the offsets of a topic
    knows_size = False

    def __init__(self, session: SparkSession, stream: CreateStream) -> None:
        self._session = session
        self._stream = stream
        self._nanos: frozenset[str] = frozenset()
        try:
            # built at once, so that what cannot be read is told before anything is written
            self._frame = self._normalised(self._load())
        except SourceError:
            raise
        except Exception as error:  # Spark's own errors have many classes; the user needs its first line
            reason = first_line(error)
            reason += _hint(stream, reason)
            raise SourceError(
                f"stream {stream.name}: Spark cannot read USING {stream.format}: {reason}"
            ) from error

    def streaming(self) -> DataFrame:
        return self._frame

    def _load(self) -> DataFrame:
        """The rows as the source delivers them."""
        stream = self._stream
        kind = stream.format.lower()
        options = dict(stream.options)
        reader = self._session.readStream.format(stream.format)
        if kind in FILE_FORMATS and kind != "text" and stream.payload is None:
            path = next((v for k, v in options.items() if k.lower() == "path"), "")
            schema = declared_schema(stream.columns)
            if kind == "csv":
                options, schema = csv_layout(self._session, stream, path, options, header=False)
            elif kind in ("parquet", "orc") and (files := local_files(path)):
                # the files say how they hold a column; it is cast to what is declared
                self._nanos = read_nanoseconds(self._session, files[0]) if kind == "parquet" else frozenset()
                found = self._session.read.format(kind).load(str(files[0])).schema
                schema = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in found.fields)
            reader = reader.schema(schema)
        return reader.options(**options).load()

    def _normalised(self, frame: DataFrame) -> DataFrame:
        stream = self._stream
        if stream.payload is not None:
            frame = self._parsed(frame)
        there = {name.lower() for name in frame.columns}
        missing = [c.name for c in stream.columns if c.name.lower() not in there]
        if missing:
            listed = ", ".join(n for n in frame.columns if not n.startswith("__"))
            raise SourceError(
                f"stream {stream.name}: {stream.format} delivers {listed}, "
                f"and {', '.join(missing)} is declared; rename the columns, or say FORMAT json (or csv) "
                "where they are inside the payload"
            )
        columns = [cast_column(c, self._nanos) for c in stream.columns]
        kept = [n for n in ("__block",) if n in frame.columns]
        frame = frame.selectExpr(*columns, *self._identity(frame), *kept)
        if stream.time_expression is not None:
            frame = frame.selectExpr("*", f"CAST({stream.time_expression} AS TIMESTAMP) AS `{stream.time}`")
        return frame.selectExpr("*", f"unix_micros(CAST(`{stream.time}` AS TIMESTAMP)) AS __t")

    def _parsed(self, frame: DataFrame) -> DataFrame:
        """The payload's fields beside the columns that say where a row comes from."""
        stream = self._stream
        names = [n for n in frame.columns if n in ("topic", "partition", "offset")]
        blocks = [n for n in ("__block",) if n in frame.columns]
        if "value" not in frame.columns:
            raise SourceError(
                f"stream {stream.name}: FORMAT {stream.payload} reads the column value, and {stream.format} "
                f"delivers {', '.join(frame.columns)}; leave FORMAT out"
            )
        carried = [f"`{n}` AS `__{n}`" for n in names] + blocks
        if stream.format.lower() in FILE_FORMATS:
            names.append("file")
            carried.append("_metadata.file_path AS __file")
        if stream.payload == "text":
            return frame.selectExpr(f"CAST(value AS STRING) AS `{stream.columns[0].name}`", *carried)
        schema = _quoted(declared_schema(stream.columns))
        options = ", ".join(_quoted(text) for pair in stream.payload_options for text in pair)
        arguments = f"CAST(value AS STRING), {schema}" + (f", map({options})" if options else "")
        return frame.selectExpr(f"from_{stream.payload}({arguments}) AS __payload", *carried).selectExpr(
            "__payload.*", *(f"`__{n}`" for n in names), *blocks
        )

    def _identity(self, frame: DataFrame) -> list[str]:
        """Partition and offset of a row: what orders arrivals, the same on every replay."""
        if "__offset" in frame.columns:
            return ["concat(__topic, '/', lpad(__partition, 10, '0')) AS __part", "__offset AS __seq"]
        if {"topic", "partition", "offset"} <= set(frame.columns):
            return ["concat(topic, '/', lpad(partition, 10, '0')) AS __part", "offset AS __seq"]
        if self._stream.format.lower() in FILE_FORMATS:
            file = "__file" if self._stream.payload is not None else "_metadata.file_path"
            # only Parquet numbers the rows of a file
            numbered = self._stream.format.lower() == "parquet" and self._stream.payload is None
            return [f"{file} AS __part", *(["_metadata.row_index AS __seq"] if numbered else [])]
        return []

    def offsets(self, batch: int, before: Offsets | None) -> Offsets:
        return {}

    def blocks(self, offsets: Offsets, before: Offsets | None) -> list[list[tuple[int, int]]]:
        return blocks_of(stretches(offsets, before) or ())

    def frame(
        self,
        session: SparkSession,
        batch: DataFrame,
        offsets: Offsets,
        before: Offsets | None = None,
        blocks: Sequence[int] = (),
        times: Sequence[tuple[int, int]] | None = None,
    ) -> DataFrame | None:
        if blocks:
            return self._part(session, offsets, before, blocks)
        # Spark numbers the rows of a batch, not those of a stream
        missing = {"__part": "CAST(spark_partition_id() AS BIGINT)", "__seq": "monotonically_increasing_id()"}
        added = [f"{sql} AS {name}" for name, sql in missing.items() if name not in batch.columns]
        return batch.selectExpr("*", *added) if added else batch

    def _part(
        self, session: SparkSession, offsets: Offsets, before: Offsets | None, blocks: Sequence[int]
    ) -> DataFrame:
        """The rows of chosen blocks, read by their offsets; the batch that Spark has made is not touched."""
        found = stretches(offsets, before)
        assert found is not None
        options = {
            k: v
            for k, v in self._stream.options
            if k.lower().startswith("kafka.") or k.lower() == "includeheaders"
        }
        reads = [
            session.read.format("kafka").options(**options, **chosen).load()
            for chosen in readings(found, blocks)
        ]
        together = reduce(DataFrame.unionAll, reads)
        return self._normalised(together.selectExpr("*", f"{block_sql(found)} AS __block"))

    @property
    def identifies_rows(self) -> bool:
        return {"__part", "__seq"} <= set(self._frame.columns)

    @property
    def skips(self) -> bool:
        return self._stream.format.lower() == "kafka"

    def size(self, offsets: Offsets, before: Offsets | None) -> int | None:
        found = stretches(offsets, before)
        return None if found is None else sum(s.rows for s in found)

    def ended(self, offsets: Offsets) -> bool:
        return False

    def progress(self, offsets: Offsets) -> float | None:
        return None

    def lag(self, offsets: Offsets) -> float | None:
        return None

    def release(self, offsets: Offsets) -> None:
        pass


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _hint(stream: CreateStream, reason: str) -> str:
    if stream.format.lower() == "kafka" and "kafka" in reason.lower() and "find" in reason.lower():
        return "\nhint: the Kafka connector is not there; run make setup, or give spark.jars"
    return ""


def open_source(
    session: SparkSession,
    stream: CreateStream,
    folder: Path,
    *,
    rows_per_batch: int,
    clock: Callable[[], float] = time.monotonic,
) -> StreamSource:
    """The source of a stream, made ready to be read; raises SourceError where it cannot be."""
    format_ = stream.format.lower()
    options = {k.lower(): v for k, v in stream.options}
    if sent_by_agents(stream):
        return open_agents(session, stream)
    if format_ == "replay":
        if stream.payload not in (None, "json"):
            raise SourceError(
                f"stream {stream.name}: a replay hands rows on as they are, or with FORMAT json as text "
                f"to be parsed in every batch; got FORMAT {stream.payload}"
            )
        speed = _speed(stream, options)
        trace = land(session, stream, folder / "trace", rows_per_batch)
        return TraceSource(session, stream, trace, speed, rows_per_batch, clock)
    if format_ in GENERATORS:
        generator, seconds, speed = _generator(stream, options)
        generated = GeneratedTrace(generator, folder / format_, seconds)
        return TraceSource(session, stream, generated, speed, rows_per_batch, clock)
    return SparkSource(session, stream)


def check_source(stream: CreateStream) -> None:
    """Raise where a stream's options cannot be, as far as that shows without reading it."""
    if stream.format.lower() in GENERATORS:
        _generator(stream, dict(stream.options))
    elif sent_by_agents(stream):
        pointing(check_declared, stream)
        pointing(check_files, stream)


def _generator(
    stream: CreateStream, given: Mapping[str, str]
) -> tuple[Generator, float | None, float | None]:
    """What makes a stream's rows, for how many seconds, and how fast; None: for ever, as it goes."""
    format_ = stream.format.lower()
    options = {name.lower(): value for name, value in given.items()}
    speed = _speed(stream, options)
    options.pop("speed", None)
    length = options.pop("length", None)
    try:
        seconds = parse_duration(length) / 1e6 if length is not None else None
        generator = GENERATORS[format_](options)
    except ValueError as error:
        raise SourceError(f"stream {stream.name}: {error}") from None
    if stream.payload is not None:
        raise SourceError(f"stream {stream.name}: {format_} delivers columns; leave FORMAT out")
    columns = generated_columns(generator)
    unknown = [c.name for c in stream.columns if c.name not in columns]
    if unknown:
        raise SourceError(
            f"stream {stream.name}: {format_} has no column {', '.join(unknown)}; it has {', '.join(columns)}"
        )
    return generator, seconds, speed


def _speed(stream: CreateStream, options: Mapping[str, str]) -> float | None:
    text = options.get("speed", "1").lower()
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < math.inf:
        raise SourceError(
            f"stream {stream.name}: speed is event seconds per second, a number above 0 or 'max'; "
            f"got {text!r}"
        )
    return speed
