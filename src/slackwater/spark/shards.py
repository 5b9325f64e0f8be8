"""Work on pieces that lie in folders, done by Spark's tasks: what is too large for the driver alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from slackwater.spark.execute import spark_errors

Work = Callable[[Any, str, bytes], bytes]
"""What is done with a folder, given what all share and what is its own."""


def map_shards(
    session: SparkSession, work: Work, shared: Any, tasks: Sequence[tuple[str, bytes]]
) -> list[bytes]:
    """The results of some work on each of the folders, in their order; ``shared`` is sent once."""
    if not tasks:
        return []
    broadcast = session.sparkContext.broadcast(shared)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ("place", "folder", "own"))
            for place, folder, own in zip(*columns, strict=True):
                made = work(broadcast.value, folder, own)
                yield pa.record_batch({"place": pa.array([place], pa.int64()), "made": pa.array([made])})

    folders, own = zip(*tasks, strict=True)
    table = pa.table(
        {
            "place": pa.array(range(len(tasks)), pa.int64()),
            "folder": list(folders),
            "own": pa.array(own, pa.binary()),
        }
    )
    try:
        with spark_errors():
            frame = session.createDataFrame(table).repartition(len(tasks), "place")
            found = frame.mapInArrow(run, "place BIGINT, made BINARY").toArrow()
    finally:
        broadcast.destroy()
    made = dict(zip(found["place"].to_pylist(), found["made"].to_pylist(), strict=True))
    return [made[place] for place in range(len(tasks))]
