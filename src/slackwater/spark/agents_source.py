"""A stream whose rows agents send: the hub's log, batch by batch, each up to a position and a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from slackwater.edge import TOKEN_VARIABLE
from slackwater.edge.coordinator_link import CoordinatorLink
from slackwater.edge.messages import Declared
from slackwater.language.statements import CreateStream
from slackwater.plan.adjusting import options_of
from slackwater.plan.agents import check_declared, key_type, token_of
from slackwater.plan.bounded import value_columns
from slackwater.spark.source import Offsets

KINDS = {"STRING": "text", "BIGINT": "whole", "INT": "whole", "DOUBLE": "number"}
KEY_TYPES = {"STRING": pa.string(), "BIGINT": pa.int64(), "INT": pa.int64(), "DOUBLE": pa.float64()}
PLACES = 1 << 20
"""More rows than a batch of an agent has: what tells them apart in ``__seq``."""

Entry = dict[str, Any]


class AgentsSource:
    """The hub's log as a stream: Spark counts and checkpoints batches, the hub says up to where they go."""

    as_fast_as_it_goes = False
    cheap_to_read = False
    tells_time = False
    knows_size = True
    identifies_rows = True
    skips = False

    def __init__(self, session: SparkSession, stream: CreateStream, link: CoordinatorLink) -> None:
        self._session = session
        self._stream = stream
        self.link = link
        self.columns = value_columns(stream)
        self.key_types = [KEY_TYPES[key_type(stream, name)] for name in stream.key]
        self._shape = _shape(stream)
        self.names: list[Any] = []
        """Keys by the hub's numbers; of a sum, an object that says which."""
        welcome = link.connect()
        self.granted_from = welcome.position
        """What was in the log when this coordinator came: it grants nothing before it has read that."""
        self._begin, self.connected_at = welcome.begin, welcome.time
        self._read: tuple[int, int, list[Entry]] = (0, 0, [])

    def give_up(self) -> None:
        """The run is to stop: wait no longer for a hub that is not there."""
        self.link.give_up()

    def streaming(self) -> DataFrame:
        return self._session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

    def offsets(self, batch: int, before: Offsets | None) -> Offsets:
        first = int(str(before["end"])) if before is not None else self._begin
        end = self.link.end()
        return {"first": first, "end": max(end.position, first), "time": end.time}

    def entries(self, first: int, end: int) -> list[Entry]:
        """The entries of the log between two positions."""
        if self._read[:2] != (first, end):
            found: list[Entry] = []
            place = first
            while place < end:
                part, place = self.link.read(place, end)
                found += part
            self._read = (first, end, found)
        return self._read[2]

    def has_name(self, name: Any) -> bool:
        """Whether a key is one of the stream: no sum, and of the types that are declared."""
        return not isinstance(name, dict) and self._shape.unfit(name) is None

    def know(self, names: list[Any]) -> None:
        """Take the names of keys that a run which goes on had read before."""
        self.names = names

    def frame(
        self,
        session: SparkSession,
        batch: DataFrame,
        offsets: Offsets,
        before: Offsets | None = None,
        blocks: Sequence[int] = (),
        times: Sequence[tuple[int, int]] | None = None,
    ) -> DataFrame | None:
        table = self._table(self.entries(int(str(offsets["first"])), int(str(offsets["end"]))))
        if not table.num_rows:
            return None
        stream = self._stream
        cast = [
            f"CAST(`{c.name}` AS {c.type}) AS `{c.name}`"
            for c in stream.columns
            if c.name in table.column_names
        ]
        cast += [f"timestamp_micros(__t) AS `{stream.time}`"]
        return session.createDataFrame(table).selectExpr(*cast, "__t", "__part", "__seq")

    def _table(self, entries: list[Entry]) -> pa.Table:
        rows: list[tuple[int, int, int, list[float | None]]] = []
        for entry in entries:
            if entry["kind"] == "keys":
                for name, number in zip(entry["keys"], entry["numbers"], strict=True):
                    if number == len(self.names):
                        self.names.append(name)
            if entry["kind"] == "batch":
                told = zip(entry["key"], entry["at"], entry["values"], strict=True)
                first = entry["position"] * PLACES
                # a sum is no row of the stream, nor is what came under a key of other types
                rows += [
                    (k, at, first + i, v) for i, (k, at, v) in enumerate(told) if self.has_name(self.names[k])
                ]
        columns: dict[str, pa.Array] = {}
        for place, (name, type_) in enumerate(zip(self._stream.key, self.key_types, strict=True)):
            columns[name] = pa.array([self.names[r[0]][place] for r in rows], type_)
        for place, name in enumerate(self.columns):
            columns[name] = pa.array([r[3][place] for r in rows], pa.float64())
        columns["__t"] = pa.array([r[1] for r in rows], pa.int64())
        columns["__part"] = pa.array(["agents"] * len(rows), pa.string())
        columns["__seq"] = pa.array([r[2] for r in rows], pa.int64())
        return pa.table(columns)

    def blocks(self, offsets: Offsets, before: Offsets | None) -> list[list[tuple[int, int]]]:
        return []

    def size(self, offsets: Offsets, before: Offsets | None) -> int | None:
        entries = self.entries(int(str(offsets["first"])), int(str(offsets["end"])))
        return sum(len(e["key"]) for e in entries if e["kind"] == "batch")

    def ended(self, offsets: Offsets) -> bool:
        return False

    def progress(self, offsets: Offsets) -> float | None:
        return None

    def lag(self, offsets: Offsets) -> float | None:
        return None

    def release(self, offsets: Offsets) -> None:
        """The coordinator says what may be forgotten: it goes on from what it has kept."""


def _shape(stream: CreateStream) -> Declared:
    """What hub and agents know of a stream."""
    kinds = tuple(KINDS[key_type(stream, name)] for name in stream.key)
    return Declared(stream.key, value_columns(stream), kinds)


def open_agents(session: SparkSession, stream: CreateStream) -> AgentsSource:
    """Connect to the hub of a stream."""
    check_declared(stream)
    options = options_of(stream)
    token = token_of(stream, os.environ.get(TOKEN_VARIABLE, "").strip())
    ca = Path(options["ca"]) if "ca" in options else None
    # once it was there, a hub is waited for as long as the query runs
    link = CoordinatorLink(options["hub"], stream.name, _shape(stream), token=token, ca=ca, endless=True)
    return AgentsSource(session, stream, link)
