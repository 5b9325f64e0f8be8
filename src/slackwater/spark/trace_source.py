"""A recorded or generated trace as a stream, slice by slice, at any speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession

from slackwater.language.statements import CreateStream
from slackwater.spark.files import declared_schema
from slackwater.spark.source import Offsets
from slackwater.spark.trace import Segment, Trace, blocks_between, first_block, rows_between


def _meets(segment: Segment, low: int, high: int, times: Sequence[tuple[int, int]]) -> bool:
    """Whether a segment may hold rows of some times between two others."""
    low, high = max(low, segment.first), min(high, segment.last + 1)
    return any(first < high and end > low for first, end in times)


class TraceSource:
    """A trace on a clock stream: Spark counts and checkpoints batches, the clock says up to when."""

    cheap_to_read = True
    tells_time = True
    identifies_rows = True
    knows_size = True
    skips = True

    def __init__(
        self,
        session: SparkSession,
        stream: CreateStream,
        trace: Trace,
        speed: float | None,
        rows_per_batch: int,
        clock: Callable[[], float] = time.monotonic,
        since: float | None = None,
    ) -> None:
        self._session = session
        self._stream = stream
        self._trace = trace
        self._speed = speed
        self._rows = rows_per_batch
        self._clock = clock
        # when the first row is due, by the clock: so that event time keeps to another one, such as the wall's
        self._anchor: tuple[float, int] | None = None if since is None else (since, trace.start)
        self.as_fast_as_it_goes = speed is None

    def streaming(self) -> DataFrame:
        return self._session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

    def offsets(self, batch: int, before: Offsets | None) -> Offsets:
        low = int(str(before["to"])) if before is not None else self._trace.start
        if self._speed is None:
            high = self._trace.advance(low, self._rows)
        else:
            if self._anchor is None:
                self._anchor = (self._clock(), low)
            began, origin = self._anchor
            high = max(low, origin + int((self._clock() - began) * self._speed * 1_000_000))
        if self._trace.end is not None:
            high = min(high, self._trace.end)
        return {"from": low, "to": high}

    def blocks(self, offsets: Offsets, before: Offsets | None) -> list[list[tuple[int, int]]]:
        return [blocks_between(self._trace, int(str(offsets["from"])), int(str(offsets["to"])))]

    def frame(
        self,
        session: SparkSession,
        batch: DataFrame,
        offsets: Offsets,
        before: Offsets | None = None,
        blocks: Sequence[int] = (),
        times: Sequence[tuple[int, int]] | None = None,
    ) -> DataFrame | None:
        low, high = int(str(offsets["from"])), int(str(offsets["to"]))
        segments = self._trace.segments(low, high) if high > low else []
        if times is not None:
            # rows without a time are in the first, and are counted
            segments = [
                s
                for s in segments
                if s.first <= self._trace.start or _meets(s, max(low, s.first), high, times)
            ]
        files = [s.path for s in segments]
        if not files:
            return None
        text = self._stream.payload is not None
        declared = ["value STRING"] if text else [f"`{c.name}` {c.type}" for c in self._stream.columns]
        if self._stream.time_expression is not None and not text:
            declared.append(f"`{self._stream.time}` TIMESTAMP")
        schema = ", ".join([*declared, "__t BIGINT", "__part BIGINT", "__seq BIGINT"])
        if blocks:
            chosen = {block >> 32 for block in blocks}
            files = [f for f in files if first_block(f) >> 32 in chosen]
            schema += ", __block BIGINT"
        rows = session.read.schema(schema).parquet(*files)
        if blocks:
            # a set of so many is passed by reference, and pushed down to the pages that hold them
            rows = rows.where(f"__block IN ({', '.join(f'{b}L' for b in blocks)})")
        # rows without a time are read with the first batch, so that they are counted
        bounds = f"cast(split('{low},{high},{self._trace.start}', ',') as array<bigint>)"
        index = "coalesce(cast(__t & 0 as int), 0)"
        at = f"coalesce(__t, get({bounds}, {index} + 2))"
        rows = rows.where(f"{at} >= get({bounds}, {index}) AND {at} < get({bounds}, {index} + 1)")
        return self._parsed(rows) if text else rows

    def _parsed(self, rows: DataFrame) -> DataFrame:
        """Rows that lie there as JSON: their fields beside what tells when and where they are."""
        schema = declared_schema(self._stream.columns).replace("'", "\\'")
        rest = [n for n in rows.columns if n != "value"]
        parsed = rows.selectExpr(f"from_json(value, '{schema}') AS __payload", *rest)
        fields = parsed.selectExpr("__payload.*", *rest)
        if self._stream.time_expression is None:
            return fields
        time = f"CAST({self._stream.time_expression} AS TIMESTAMP) AS `{self._stream.time}`"
        return fields.selectExpr("*", time)

    def size(self, offsets: Offsets, before: Offsets | None) -> int | None:
        return rows_between(self._trace, int(str(offsets["from"])), int(str(offsets["to"])))

    def ended(self, offsets: Offsets) -> bool:
        return self._trace.end is not None and int(str(offsets["to"])) >= self._trace.end

    def progress(self, offsets: Offsets) -> float | None:
        if self._trace.end is None:
            return None
        length = max(1, self._trace.end - self._trace.start)
        return min(1.0, (int(str(offsets["to"])) - self._trace.start) / length)

    def lag(self, offsets: Offsets) -> float | None:
        if self._speed is None or self._anchor is None:
            return None
        began, origin = self._anchor
        due = origin + (self._clock() - began) * self._speed * 1_000_000
        if self._trace.end is not None:
            due = min(due, self._trace.end)
        return max(0.0, (due - int(str(offsets["to"]))) / 1e6 / self._speed)

    def release(self, offsets: Offsets) -> None:
        self._trace.forget(int(str(offsets["from"])))
