"""Traffic and queries that the benchmarks share: made from a seed, before anything is measured."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.progress import Progress

from slackwater.language.parse import parse
from slackwater.language.statements import CreateStream
from slackwater.runtime.journal import Journal
from slackwater.spark.execute import SparkSession
from slackwater.spark.landing import land
from slackwater.traffic import Traffic

STREAM = "packets"
COLUMNS = "ts TIMESTAMP, src STRING, dst STRING, sport INT, dport INT, proto STRING, size INT"
SECOND = 1_000_000


@dataclass(frozen=True)
class Windowed:
    """A query of the network workload: one aggregate over a sliding window, by seconds."""

    name: str
    aggregate: str
    where: str
    size: int

    @property
    def sql(self) -> str:
        """The query as Slackwater takes it."""
        condition = f" WHERE {self.where}" if self.where else ""
        return (
            f"CREATE QUERY {self.name} AS SELECT {self.aggregate} AS value FROM {STREAM}{condition} "
            f"GROUP BY window(ts, '{self.size} seconds', '1 second');"
        )


NETWORK = (
    Windowed("web_bytes", "sum(size)", "dport = 80", 60),
    Windowed("web_packets", "count(*)", "dport = 80", 10),
    Windowed("packets_all", "count(*)", "", 30),
    Windowed("tcp_bytes", "sum(size)", "proto = 'tcp'", 120),
    Windowed("large_tcp_bytes", "sum(size)", "proto = 'tcp' AND size > 1000", 300),
    Windowed("lookups", "count(*)", "proto = 'udp' AND dport = 53", 10),
    Windowed("tls_packets", "count(*)", "proto = 'tcp' AND dport = 443", 300),
)
"""COUNT and SUM with shared filters, windows of ten seconds to five minutes that slide by one second."""


@dataclass(frozen=True)
class Recording:
    """A recorded stream, landed once: every run and every peer reads the same files."""

    statement: str
    folder: Path
    rows: int
    files: tuple[Path, ...]
    """In order of time."""

    def seed_state(self, state: Path) -> None:
        """Let a run that starts in ``state`` use the landing there is."""
        Journal(state).close()
        target = state / "sources" / STREAM / "trace"
        target.parent.mkdir(parents=True)
        shutil.copytree(self.folder, target, copy_function=os.link)

    def first_files(self, rows: int) -> tuple[Path, ...]:
        """The earliest files that hold about so many rows."""
        chosen: list[Path] = []
        for file in self.files:
            if rows <= 0:
                break
            chosen.append(file)
            rows -= self.rows_in([file])
        return tuple(chosen)

    def rows_in(self, files: Iterable[Path]) -> int:
        """Rows of some of the files."""
        return sum(pq.ParquetFile(file).metadata.num_rows for file in files)


def seconds_of(traffic: Traffic, seconds: int) -> Iterator[pa.Table]:
    """Traffic second by second."""
    return (traffic.slice(second, SECOND) for second in range(seconds))


def record(
    spark: SparkSession,
    folder: Path,
    traffic: Traffic,
    seconds: int,
    rows_per_batch: int,
    progress: Progress,
    *,
    text: bool = False,
) -> Recording:
    """Write traffic to Parquet, once, and land it as the replay source does for batches of this size.

    As ``text`` it is landed as JSON, which every batch then parses.
    """
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"traffic-{seconds}.parquet"
    if not source.exists():
        schema = traffic.slice(0, SECOND).schema.remove(7)
        made = progress.track(seconds_of(traffic, seconds), total=seconds, description="making traffic")
        with pq.ParquetWriter(source, schema) as writer:
            for table in made:
                writer.write_table(table.drop_columns(["seq"]))
    statement = (
        f"CREATE STREAM {STREAM} ({COLUMNS}) USING replay "
        f"OPTIONS (path '{source}', speed 'max') {'FORMAT json ' if text else ''}TIMESTAMP BY ts;"
    )
    (declared,) = parse(statement)
    assert isinstance(declared, CreateStream)
    landing = folder / f"landing-{seconds}-{rows_per_batch}{'-text' if text else ''}"
    task = progress.add_task("landing it in order of time", total=None)
    trace = land(spark, declared, landing, rows_per_batch)
    progress.update(task, total=1, completed=1)
    listed = json.loads((landing / "index.json").read_text())["segments"]
    files = tuple(landing / s["path"] for s in sorted(listed, key=lambda s: int(s["first"])))
    return Recording(statement, landing, trace.rows, files)
