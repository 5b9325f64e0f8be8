"""A stream whose batches are given: for tests, and for trying a query on a handful of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from slackwater.language.statements import CreateStream
from slackwater.spark.source import Offsets


class ScriptedSource:
    """Batches of rows in order of arrival; the last one ends the stream where ``ends`` says so."""

    as_fast_as_it_goes = True
    cheap_to_read = False
    tells_time = False
    identifies_rows = True
    knows_size = True
    skips = False

    def __init__(
        self,
        session: SparkSession,
        stream: CreateStream,
        batches: Sequence[pa.Table],
        *,
        ends: bool = True,
        spans: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._session = session
        self._stream = stream
        self._batches = batches
        self._ends = ends
        self._spans = spans
        """From when to when each batch is, as of a trace; none where that is not known before it is read."""

    def streaming(self) -> DataFrame:
        return self._session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

    def offsets(self, batch: int, before: Offsets | None) -> Offsets:
        index = int(str(before["index"])) + 1 if before is not None else 0
        if index >= len(self._spans):
            return {"index": index}
        low, high = self._spans[index]
        return {"index": index, "from": low, "to": high}

    def blocks(self, offsets: Offsets, before: Offsets | None) -> list[list[tuple[int, int]]]:
        return []

    def frame(
        self,
        session: SparkSession,
        batch: DataFrame,
        offsets: Offsets,
        before: Offsets | None = None,
        blocks: Sequence[int] = (),
        times: Sequence[tuple[int, int]] | None = None,
    ) -> DataFrame | None:
        index = int(str(offsets["index"]))
        if index >= len(self._batches) or self._batches[index].num_rows == 0:
            return None
        rows = self._batches[index]
        size = rows.num_rows
        rows = rows.append_column("__part", pa.array(np.zeros(size, dtype=np.int64)))
        rows = rows.append_column("__seq", pa.array((index << 32) + np.arange(size, dtype=np.int64)))
        columns = [f"CAST(`{c.name}` AS {c.type}) AS `{c.name}`" for c in self._stream.columns]
        frame = session.createDataFrame(rows).selectExpr(*columns, "__part", "__seq")
        if self._stream.time_expression is not None:
            time = f"CAST({self._stream.time_expression} AS TIMESTAMP) AS `{self._stream.time}`"
            frame = frame.selectExpr("*", time)
        return frame.selectExpr("*", f"unix_micros(CAST(`{self._stream.time}` AS TIMESTAMP)) AS __t")

    def size(self, offsets: Offsets, before: Offsets | None) -> int | None:
        index = int(str(offsets["index"]))
        return self._batches[index].num_rows if index < len(self._batches) else 0

    def ended(self, offsets: Offsets) -> bool:
        return self._ends and int(str(offsets["index"])) >= len(self._batches) - 1

    def progress(self, offsets: Offsets) -> float | None:
        return (int(str(offsets["index"])) + 1) / max(1, len(self._batches))

    def lag(self, offsets: Offsets) -> float | None:
        return None

    def release(self, offsets: Offsets) -> None:
        pass
