"""Plain Structured Streaming over the same bricks, in real time, without shedding: how far it falls behind.

It is given the kinder form: panes of a second with one aggregate for all queries, the Python function called
once for a row; sliding windows as Spark has them would copy each row once for every second of a window.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from slackwater.benchmarks.workload import SECOND
from slackwater.experiments.bricks import FIELDS, ORIGIN, PLACES, Wall
from slackwater.experiments.workload import ORIGIN as FUNCTION
from slackwater.experiments.workload import Workload
from slackwater.spark.execute import DataFrame, SparkSession

POLL_S = 0.25


@dataclass
class Behind:
    """Seconds after the start, and how many seconds of the stream were not worked off by then."""

    at: list[float] = field(default_factory=list)
    lag_s: list[float] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    """Rows worked off."""


def plain_streaming(
    spark: SparkSession, folder: Path, wall: Wall, workload: Workload, seconds: float, interval_ms: int
) -> Behind:
    """Lay the wall second by second for so long, and look how far Spark gets."""
    rows = folder / "rows"
    rows.mkdir(parents=True)
    session = spark.newSession()
    for name, (function, returns) in workload.functions.items():
        session.udf.register(name, function, returns)
    view = f"plain_{folder.name.replace('-', '_')}"
    stamped(session, rows).withWatermark("ts", "0 seconds").createOrReplaceTempView(view)
    query: Any = (
        session.sql(statement(workload, view))
        .writeStream.format("noop")
        .outputMode("append")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime=f"{interval_ms} milliseconds")
        .start()
    )
    stop = threading.Event()
    began = time.monotonic()
    layer = threading.Thread(target=_lay, args=(wall, rows, began, stop), daemon=True, name="layer")
    layer.start()
    try:
        return _watch(query, wall, began, seconds)
    finally:
        stop.set()
        layer.join()
        query.stop()


def stamped(session: SparkSession, rows: Path) -> DataFrame:
    """The rows of files that are named after their second, with their times."""
    read = session.readStream.schema(f"{FIELDS}, {PLACES}").parquet(str(rows))
    second = "cast(split(_metadata.file_name, '-')[0] as bigint)"
    timed = read.selectExpr("*", f"timestamp_micros({ORIGIN}L + {second} * {SECOND} + __at) AS ts")
    return timed.selectExpr("*", f"{FUNCTION}(src) AS network")


def statement(workload: Workload, view: str) -> str:
    """All queries in panes of a second."""
    items = []
    for query in workload.queries:
        tests = " AND ".join(query.tests).replace(f"{FUNCTION}(src)", "network") or "true"
        items.append(f"{query.aggregate} FILTER (WHERE {tests}) AS {query.name}")
    return f"SELECT window.start AS pane, {', '.join(items)} FROM {view} GROUP BY window(ts, '1 second')"


def _lay(wall: Wall, rows: Path, began: float, stop: threading.Event) -> None:
    """Put every second's bricks there when it is over."""
    for second in range(len(wall.density)):
        if stop.wait(max(0.0, began + second + 1 - time.monotonic())):
            return
        for brick in wall.of(second):
            os.link(wall.bricks.files[brick], rows / f"{second:06d}-{brick:05d}.parquet")


def _watch(query: Any, wall: Wall, began: float, seconds: float) -> Behind:
    sizes = np.array([len(t) for t in wall.bricks.times])
    laid = np.cumsum([sizes[wall.of(s)].sum() for s in range(len(wall.density))])
    done: dict[int, int] = {}
    behind = Behind()
    while (at := time.monotonic() - began) < seconds:
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()).split("\n")[0])
        for progress in query.recentProgress:
            known: Mapping[str, Any] = progress
            done[int(known["batchId"])] = int(known["numInputRows"])
        finished = int(np.searchsorted(laid, sum(done.values()), side="right"))
        behind.at.append(at)
        behind.lag_s.append(max(0.0, min(at, len(wall.density)) - finished))
        behind.done.append(sum(done.values()))
        time.sleep(POLL_S)
    return behind
