"""Plain Structured Streaming over the same bricks, in real time, without shedding: how far it falls behind.

In two forms. *Windows*: the queries as they are written, each with Spark's own sliding `window()`. *Panes*:
one statement by an expert's hand, with panes of a second for all queries together and the Python function
called once for a row, which leaves it to the reader to add panes up to windows.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from slackwater.benchmarks.workload import SECOND
from slackwater.experiments.bricks import FIELDS, ORIGIN, PLACES, Wall
from slackwater.experiments.workload import ORIGIN as FUNCTION
from slackwater.experiments.workload import Workload
from slackwater.spark.execute import DataFrame, SparkSession

POLL_S = 0.25
Form = Literal["windows", "panes"]
FORMS: tuple[Form, ...] = ("windows", "panes")


@dataclass
class Behind:
    """Seconds after the start, and how many seconds of the stream were not worked off by then."""

    at: list[float] = field(default_factory=list)
    lag_s: list[float] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    """Rows worked off."""


def plain_streaming(
    spark: SparkSession,
    folder: Path,
    wall: Wall,
    workload: Workload,
    seconds: float,
    interval_ms: int,
    form: Form = "windows",
) -> Behind:
    """Lay the wall second by second for so long, and look how far Spark gets; the slowest query counts."""
    rows = folder / "rows"
    rows.mkdir(parents=True)
    session = spark.newSession()
    for name, (function, returns) in workload.functions.items():
        session.udf.register(name, function, returns)
    view = f"plain_{folder.name.replace('-', '_')}"
    stamped(session, rows).withWatermark("ts", "0 seconds").createOrReplaceTempView(view)
    texts = windows(workload, view) if form == "windows" else [panes(workload, view)]
    queries: list[Any] = [
        session.sql(text)
        .writeStream.format("noop")
        .outputMode("append")
        .option("checkpointLocation", str(folder / f"checkpoint-{number}"))
        .trigger(processingTime=f"{interval_ms} milliseconds")
        .start()
        for number, text in enumerate(texts)
    ]
    stop = threading.Event()
    began = time.monotonic()
    layer = threading.Thread(target=_lay, args=(wall, rows, began, stop), daemon=True, name="layer")
    layer.start()
    try:
        return _watch(queries, wall, began, seconds)
    finally:
        stop.set()
        layer.join()
        for query in queries:
            query.stop()


def stamped(session: SparkSession, rows: Path) -> DataFrame:
    """The rows of files that are named after their second, with their times."""
    read = session.readStream.schema(f"{FIELDS}, {PLACES}").parquet(str(rows))
    second = "cast(split(_metadata.file_name, '-')[0] as bigint)"
    return read.selectExpr("*", f"timestamp_micros({ORIGIN}L + {second} * {SECOND} + __at) AS ts")


def windows(workload: Workload, view: str) -> list[str]:
    """The queries one by one, as they are written."""
    texts = []
    for query in workload.queries:
        where = f" WHERE {' AND '.join(query.tests)}" if query.tests else ""
        window = f"window(ts, '{query.seconds} seconds', '1 second')"
        texts.append(f"SELECT {window}, {query.aggregate} AS value FROM {view}{where} GROUP BY {window}")
    return texts


def panes(workload: Workload, view: str) -> str:
    """All queries in panes of a second."""
    items = []
    for query in workload.queries:
        tests = " AND ".join(query.tests).replace(f"{FUNCTION}(src)", "network") or "true"
        items.append(f"{query.aggregate} FILTER (WHERE {tests}) AS {query.name}")
    rows = f"(SELECT *, {FUNCTION}(src) AS network FROM {view})"
    return f"SELECT window.start AS pane, {', '.join(items)} FROM {rows} GROUP BY window(ts, '1 second')"


def _lay(wall: Wall, rows: Path, began: float, stop: threading.Event) -> None:
    """Put every second's bricks there when it is over."""
    for second in range(len(wall.density)):
        if stop.wait(max(0.0, began + second + 1 - time.monotonic())):
            return
        for brick in wall.of(second):
            os.link(wall.bricks.files[brick], rows / f"{second:06d}-{brick:05d}.parquet")


def _watch(queries: list[Any], wall: Wall, began: float, seconds: float) -> Behind:
    sizes = np.array([len(t) for t in wall.bricks.times])
    laid = np.cumsum([sizes[wall.of(s)].sum() for s in range(len(wall.density))])
    done: list[dict[int, int]] = [{} for _ in queries]
    behind = Behind()
    while (at := time.monotonic() - began) < seconds:
        for query, batches in zip(queries, done, strict=True):
            if query.exception() is not None:
                raise RuntimeError(str(query.exception()).split("\n")[0])
            for progress in query.recentProgress:
                known: Mapping[str, Any] = progress
                batches[int(known["batchId"])] = int(known["numInputRows"])
        least = min(sum(batches.values()) for batches in done)
        finished = int(np.searchsorted(laid, least, side="right"))
        behind.at.append(at)
        behind.lag_s.append(max(0.0, min(at, len(wall.density)) - finished))
        behind.done.append(least)
        time.sleep(POLL_S)
    return behind
