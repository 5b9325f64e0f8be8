"""The same queries as others run them: plain Structured Streaming, and DuckDB over the same files."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr, unix_micros, window

from slackwater.benchmarks.workload import COLUMNS, SECOND, Windowed

Answers = dict[str, dict[int, int]]
"""By query and start of the window, in microseconds: the value."""


class Disagreement(AssertionError):
    """Two engines gave different answers to one query: no figure about them means anything."""


@dataclass(frozen=True)
class Peer:
    """One run of a peer."""

    seconds: float
    answers: Answers


def plain_spark(
    spark: SparkSession, files: Iterable[Path], queries: Sequence[Windowed], folder: Path
) -> Peer:
    """Each query as its own streaming query with ``window()`` and a watermark, all at once to the end.

    One batch takes all files: nothing is faster for plain Spark than to be given the data at once.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "rows").mkdir(parents=True)
    for file in files:
        os.link(file, folder / "rows" / file.name)
    session = spark.newSession()
    # an empty batch after the last one lets the windows close up to the watermark, as by default
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "true")
    frames = []
    for query in queries:
        rows = session.readStream.schema(f"{COLUMNS}, __t BIGINT").parquet(str(folder / "rows"))
        kept = rows.withWatermark("ts", "0 seconds").where(query.where or "true")
        by = window("ts", f"{query.size} seconds", "1 second")
        answer = kept.groupBy(by).agg(expr(query.aggregate).alias("value"))
        frames.append((query.name, answer.select(unix_micros("window.start").alias("start"), "value")))
    began = time.perf_counter()
    running = [
        frame.writeStream.format("memory")
        .queryName(name)
        .outputMode("append")
        .option("checkpointLocation", str(folder / "checkpoints" / name))
        .trigger(availableNow=True)
        .start()
        for name, frame in frames
    ]
    for streaming in running:
        streaming.awaitTermination()
    seconds = time.perf_counter() - began
    answers: Answers = {}
    for name, _ in frames:
        found = session.table(name).toArrow().to_pydict()
        answers[name] = dict(zip(found["start"], found["value"], strict=True))
        session.catalog.dropTempView(name)
    return Peer(seconds, answers)


def duckdb_statement(files: Iterable[Path], queries: Sequence[Windowed]) -> str:
    """Panes of one second for all queries in one pass, and all their windows from the panes."""
    listed = ", ".join(f"'{file}'" for file in files)
    partials = ", ".join(
        f"{q.aggregate}{f' FILTER ({q.where})' if q.where else ''} AS v{i}" for i, q in enumerate(queries)
    )
    longest = max(q.size for q in queries)
    windows = ", ".join(
        f"sum(v{i}) OVER (ORDER BY pane ROWS BETWEEN {q.size - 1} PRECEDING AND CURRENT ROW)"
        for i, q in enumerate(queries)
    )
    return (
        f"WITH panes AS (SELECT __t // {SECOND} AS pane, {partials} "
        f"FROM read_parquet([{listed}]) GROUP BY pane), "
        f"ends AS (SELECT unnest(range(min(pane), max(pane) + {longest})) AS pane FROM panes) "
        f"SELECT pane, {windows} FROM ends LEFT JOIN panes USING (pane)"
    )


def duck(threads: int, files: Iterable[Path], queries: Sequence[Windowed]) -> Peer:
    """One statement, with as many threads as Spark has cores."""
    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {threads}")
        statement = duckdb_statement(files, queries)
        began = time.perf_counter()
        rows = connection.execute(statement).fetchall()
        seconds = time.perf_counter() - began
    answers: Answers = {}
    last = max(row[0] for row in rows) - max(q.size for q in queries) + 1
    for index, query in enumerate(queries):
        answers[query.name] = {
            (row[0] - query.size + 1) * SECOND: int(row[1 + index])
            for row in rows
            if row[1 + index] and row[0] <= last + query.size - 1
        }
    return Peer(seconds, answers)


def read_answers(path: Path) -> Answers:
    """Slackwater's answers from its JSON lines."""
    answers: Answers = {}
    origin = datetime(1970, 1, 1, tzinfo=UTC)
    with open(path) as lines:
        for line in lines:
            answer = json.loads(line)
            start = datetime.fromisoformat(answer["window_start"]) - origin
            micros = (start.days * 86_400 + start.seconds) * SECOND + start.microseconds
            answers.setdefault(answer["query"], {})[micros] = int(answer["value"])
    return answers


def same(ours: Answers, theirs: Answers, who: str, *, all_of_ours: bool) -> int:
    """Compare every window that the other has; how many there were. Raises where any differs."""
    compared = 0
    for query, windows in theirs.items():
        mine = ours.get(query, {})
        if all_of_ours and len(mine) != len(windows):
            raise Disagreement(f"{query}: {len(mine)} windows here, {len(windows)} from {who}")
        for start, value in windows.items():
            if mine.get(start) != value:
                at = datetime.fromtimestamp(start / SECOND, UTC)
                raise Disagreement(f"{query}, window from {at}: {mine.get(start)} here, {value} from {who}")
            compared += 1
    if not compared:
        raise Disagreement(f"there was no window to compare with {who}")
    return compared
