"""Dropping rows before they are parsed, and measuring what a batch cost: Spark's part of load shedding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from slackwater.spark.statement import WHOLE


def shed_frame(frame: DataFrame, salt: int, threshold: int, needed: Sequence[int] = ()) -> DataFrame:
    """The rows of a batch whose ``__u`` lies below the root's threshold, with that number.

    ``__u`` is a hash of what identifies the row: a replay draws the same sample, and equal rows are not
    dropped together. Nothing of the row's content is looked at, so Catalyst pushes the test below the parse.
    Where times are ``needed`` (where their cells begin, how wide they are, and the cells), rows of those
    times are kept whatever their number: of such a row nothing but its time is looked at.
    """
    listed = ",".join(map(str, (salt, threshold, *needed[:2])))
    numbers = f"cast(split('{listed}', ',') as array<bigint>)"
    index = "coalesce(cast(__seq & 0 as int), 0)"
    number = f"shiftrightunsigned(xxhash64(__part, __seq, get({numbers}, {index})), 11)"
    hashed = frame.selectExpr("*", f"{number} AS __u")
    if threshold >= WHOLE:
        return hashed
    drawn = f"__u < get({numbers}, {index} + 1)"
    if not needed:
        return hashed.where(drawn)
    # the time stands there once: where it is parsed from a payload, that is done for every row
    since = f"(__t - get({numbers}, {index} + 2)) / CAST(get({numbers}, {index} + 3) AS DOUBLE)"
    cell = f"CAST(least(greatest(floor({since}), -1D), 1000000000D) AS INT)"
    bits = f"cast(split('{','.join(map(str, needed[2:]))}', ',') as array<bigint>)"
    return hashed.where(f"{drawn} OR coalesce(get({bits}, {cell}), -1L) != 0")


def rows_read(frame: DataFrame) -> int | None:
    """How many rows a finished statement got from its source; None where there is no telling.

    Tables that are looked up come by broadcast, and are passed over.
    """
    counts = list(_leaves(frame._jdf.queryExecution().executedPlan()))
    return counts[0] if len(counts) == 1 else None


def _leaves(node: Any) -> Iterator[int]:
    name = str(node.nodeName())
    if name == "BroadcastExchange":
        return
    if name == "InMemoryTableScan":
        yield from _leaves(node.relation().cachedPlan())
        return
    children = node.children()
    if children.size() == 0:
        counted = node.metrics().get("numOutputRows")
        if counted.isDefined():
            yield int(counted.get().value())
        return
    for index in range(children.size()):
        yield from _leaves(children.apply(index))


class Meter:
    """Seconds of executor time that named pieces of work took, by Spark's own count."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self._names: dict[str, bool] = {}
        self._turn = 0

    @contextmanager
    def measuring(self, name: str, *, python: bool = False) -> Iterator[None]:
        """Have the jobs that are started meanwhile counted under a name.

        ``python``: a Python function works for them, whose time the JVM's processor clock does not see; the
        time that tasks ran stands for it.
        """
        tag = f"slackwater-{id(self)}-{self._turn}-{name}"
        self._names[name] = python
        self._context.addJobTag(tag)
        try:
            yield
        finally:
            self._context.removeJobTag(tag)

    def read(self) -> dict[str, float]:
        """What has been measured since the last reading, by name."""
        context: Any = self._context._jsc.sc()
        # Spark counts behind our back: the numbers are there when its events have been worked off
        context.listenerBus().waitUntilEmpty()
        store, tracker = context.statusStore(), context.statusTracker()
        found: dict[str, float] = {}
        for name, python in self._names.items():
            nanos = 0
            jobs = tracker.getJobIdsForTag(f"slackwater-{id(self)}-{self._turn}-{name}")
            for job in map(tracker.getJobInfo, jobs):
                for stage in job.get().stageIds() if job.isDefined() else ():
                    data = store.lastStageAttempt(stage)
                    ran = data.executorRunTime() * 1_000_000
                    nanos += ran if python else data.executorCpuTime()
            found[name] = nanos / 1e9
        self._names.clear()
        self._turn += 1
        return found
