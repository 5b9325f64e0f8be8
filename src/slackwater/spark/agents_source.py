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
from slackwater.edge.marks import Mark, identified, other_log
from slackwater.edge.messages import Declared, OtherLog
from slackwater.errors import StateError
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
        self._log = welcome.log
        self._read: tuple[int, int, list[Entry]] = (0, 0, [])
        self._told: Declared | None = None
        """The shape that the log gave the stream last, of what has been made rows of."""
        self._rows: tuple[int, int, pa.Table] = (0, 0, None)
        """The rows of the last batch: names go on with the log, so they are made once."""

    def give_up(self) -> None:
        """The run is to stop: wait no longer for a hub that is not there."""
        self.link.give_up()

    def streaming(self) -> DataFrame:
        return self._session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

    def offsets(self, batch: int, before: Offsets | None) -> Offsets:
        if before is None and self._begin > 1:
            raise StateError(
                f"stream {self._stream.name}: the hub's log begins at position {self._begin}. "
                "What was before, keys among it, is kept by an earlier run, and the hub has forgotten it; a "
                "run that starts over needs all of it. Go on with the state of that run, or stop the hub and "
                "move the directory of the stream away: agents then start anew"
            )
        first = int(str(before["end"])) if before is not None else self._begin
        end = self.link.end()
        found = self._entries(first, end.position)
        if before is not None:
            self._check_shape(found)
        last = list(identified(found[-1])) if found else (before or {}).get("last")
        # with the name of the log: positions of another one mean nothing
        return {"first": first, "end": end.position, "time": end.time, "log": self._log, "last": last}

    def _check_shape(self, found: list[Entry]) -> None:
        """Refuse to go on where another run gave the stream another shape: the hub numbers keys anew then."""
        for entry in found:
            if entry["kind"] == "declared":
                raise StateError(
                    f"stream {self._stream.name} was declared anew since this run has read it: at position "
                    f"{entry['position']} of the hub's log, with key {', '.join(entry['key'])} and values "
                    f"{', '.join(entry['columns'])}. Agents have started anew, and the keys that this run "
                    "has kept are no more. Start it over with --fresh (Session.start(fresh=True)), and give "
                    "streams of different shapes different names"
                )

    def go_on(self, offsets: Offsets) -> None:
        """A run goes on from here: `OtherLog` if the hub has not the log any more that it has read."""
        self.link.go_on(_mark(offsets))

    def entries(self, offsets: Offsets, first: int | None = None) -> list[Entry]:
        """The entries of a batch, or all from a position up to its end; `OtherLog` if they are others now."""
        begin = int(str(offsets["first"])) if first is None else first
        mark = _mark(offsets)
        difference = mark.strange(self._log, mark.end)
        found = [] if difference is not None else self._entries(begin, mark.end)
        if difference is None and mark.last is not None and mark.last[0] >= begin:
            difference = mark.differs(found[-1:])
        if difference is not None:
            raise self._other(difference)
        return found

    def _entries(self, first: int, end: int) -> list[Entry]:
        if self._read[:2] != (first, end):
            if end < first:
                raise self._other(f"expected one that goes up to position {first}, got one up to {end}")
            found: list[Entry] = []
            place = first
            while place < end:
                part, following = self.link.read(place, end)
                if following <= place:
                    raise self._other(f"expected entries up to position {end}, got none from {place} on")
                found += part
                place = following
            self._read = (first, end, found)
        return self._read[2]

    def _other(self, difference: str) -> OtherLog:
        return other_log(options_of(self._stream)["hub"], self._stream.name, difference)

    def has_name(self, name: Any) -> bool:
        """Whether a key is one of the stream: no sum, and of the types that are declared."""
        return not isinstance(name, dict) and self._shape.unfit(name) is None

    def know(self, names: list[Any]) -> None:
        """Take the names of keys that a run which goes on had read before."""
        self.names, self._told = names, self._shape

    def frame(
        self,
        session: SparkSession,
        batch: DataFrame,
        offsets: Offsets,
        before: Offsets | None = None,
        blocks: Sequence[int] = (),
        times: Sequence[tuple[int, int]] | None = None,
    ) -> DataFrame | None:
        table = self._table(offsets)
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

    def _table(self, offsets: Offsets) -> pa.Table:
        entries = self.entries(offsets)
        place = int(str(offsets["first"])), int(str(offsets["end"]))
        if self._rows[:2] != place:
            self._rows = (*place, self._table_of(entries))
        return self._rows[2]

    def _table_of(self, entries: list[Entry]) -> pa.Table:
        rows: list[tuple[list[Any], int, int, list[float | None]]] = []
        for entry in entries:
            if entry["kind"] == "declared":
                declared = Declared.parse(entry)
                if declared != self._told:
                    # a stream of another shape is another stream: the hub numbers its keys anew
                    self.names = []
                self._told = declared
            if entry["kind"] == "keys":
                for name, number in zip(entry["keys"], entry["numbers"], strict=True):
                    if number == len(self.names):
                        self.names.append(name)
            if entry["kind"] == "batch" and self._told in (None, self._shape):
                told = zip(entry["key"], entry["at"], entry["values"], strict=True)
                first = entry["position"] * PLACES
                # a sum is no row of the stream, nor is what came under a key of other types
                rows += [
                    (self.names[k], at, first + i, v)
                    for i, (k, at, v) in enumerate(told)
                    if self.has_name(self.names[k])
                ]
        columns: dict[str, pa.Array] = {}
        for place, (name, type_) in enumerate(zip(self._stream.key, self.key_types, strict=True)):
            columns[name] = pa.array([r[0][place] for r in rows], type_)
        for place, name in enumerate(self.columns):
            columns[name] = pa.array([r[3][place] for r in rows], pa.float64())
        columns["__t"] = pa.array([r[1] for r in rows], pa.int64())
        columns["__part"] = pa.array(["agents"] * len(rows), pa.string())
        columns["__seq"] = pa.array([r[2] for r in rows], pa.int64())
        return pa.table(columns)

    def blocks(self, offsets: Offsets, before: Offsets | None) -> list[list[tuple[int, int]]]:
        return []

    def size(self, offsets: Offsets, before: Offsets | None) -> int | None:
        entries = self.entries(offsets)
        return sum(len(e["key"]) for e in entries if e["kind"] == "batch")

    def ended(self, offsets: Offsets) -> bool:
        return False

    def progress(self, offsets: Offsets) -> float | None:
        return None

    def lag(self, offsets: Offsets) -> float | None:
        return None

    def release(self, offsets: Offsets) -> None:
        """The coordinator says what may be forgotten: it goes on from what it has kept."""


def _mark(offsets: Offsets) -> Mark:
    """Where a batch ends; what earlier versions have kept names no log."""
    last: Any = offsets.get("last")
    return Mark(str(offsets.get("log", "")), int(str(offsets["end"])), tuple(last) if last else None)


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
