"""Runs of window drop: a sensor's readings, what a run took of the executors, and what it delivered."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.benchmarks.workload import SECOND
from slackwater.experiments.runs import PATIENCE_S, Answers, Collector
from slackwater.language.parse import parse
from slackwater.language.statements import CreateStream
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.tables import Plan
from slackwater.planners.ruling import Ruler
from slackwater.runtime.journal import Journal
from slackwater.runtime.session import Session, Settings
from slackwater.spark.execute import SparkSession
from slackwater.spark.landing import land

STREAM = "readings"
ORIGIN = 1_767_225_600
"""When the readings begin, in seconds: a midnight, at which windows of all slides start."""
EXCLUDED = "spark.sql.optimizer.excludedRules"
FOLDING = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
"""Computes tests of rows that the driver holds while it plans: the work would be in nobody's count."""


@dataclass(frozen=True)
class Sensor:
    """Readings of a temperature sensor, landed once for all runs."""

    statement: str
    landing: Path
    rows: int
    rows_per_batch: int

    def plan(self, queries: str) -> Plan:
        """The plan of some queries on the readings."""
        return extend(Plan(), Catalog.from_sql(self.statement + queries, Functions()))


def temperatures(seconds: int, rate: int, seed: int) -> pa.Table:
    """So many readings a second, evenly spaced, of a temperature that wanders."""
    random = np.random.default_rng(seed)
    times = ORIGIN * SECOND + np.arange(seconds * rate, dtype=np.int64) * (SECOND // rate)
    values = np.round(20 + np.cumsum(random.normal(0, 0.05, len(times))), 2)
    stamps = pa.array(times).cast(pa.timestamp("us", "UTC"))
    # whole numbers: what delays begin with, and what filters of a set selectivity look at
    return pa.table({"ts": stamps, "value": values, "code": random.integers(0, 1000, len(times))})


def sensor(
    spark: SparkSession, folder: Path, seconds: int, batches: int, *, rate: int = 1, seed: int = 1
) -> Sensor:
    """Readings written and landed, to be read in so many batches."""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / f"readings-{seconds}-{rate}.parquet"
    pq.write_table(temperatures(seconds, rate, seed), source)
    statement = (
        f"CREATE STREAM {STREAM} (ts TIMESTAMP, value DOUBLE, code BIGINT) USING replay "
        f"OPTIONS (path '{source}', speed 'max') TIMESTAMP BY ts;\n"
    )
    (declared,) = parse(statement)
    assert isinstance(declared, CreateStream)
    rows = seconds * rate
    rows_per_batch = -(-rows // batches)
    landing = folder / f"landing-{seconds}-{rate}-{batches}"
    land(spark, declared, landing, rows_per_batch)
    return Sensor(statement, landing, rows, rows_per_batch)


@contextmanager
def by_executors(spark: SparkSession) -> Iterator[None]:
    """Sessions begun meanwhile leave all tests of rows to the executors, where they are counted."""
    # asked for before anything is set: a session takes its settings over when it is first used
    before = spark.conf.get(EXCLUDED, "") or ""
    conf = spark.sparkContext._conf
    conf.set(EXCLUDED, FOLDING)
    try:
        yield
    finally:
        conf.set(EXCLUDED, before)


class Spent:
    """Executor seconds of all jobs since the last reading, by Spark's count of processor time."""

    def __init__(self, spark: SparkSession) -> None:
        self._context: Any = spark.sparkContext._jsc.sc()
        self._last = -1
        # of what ran before, Spark may have forgotten the stages; only which jobs there were is asked for
        self._stages()

    def read(self) -> float:
        """What has been spent since the last reading."""
        store = self._context.statusStore()
        return sum(int(store.lastStageAttempt(s).executorCpuTime()) for s in self._stages()) / 1e9

    def _stages(self) -> set[int]:
        """The stages of all jobs that are new."""
        # Spark counts behind our back: the numbers are there when its events have been worked off
        self._context.listenerBus().waitUntilEmpty()
        jobs = self._context.statusStore().jobsList(None)
        found: set[int] = set()
        last = self._last
        for place in range(jobs.size()):
            job = jobs.apply(place)
            number = int(job.jobId())
            if number <= self._last:
                # the newest come first
                break
            last = max(last, number)
            stages = job.stageIds()
            found |= {int(stages.apply(i)) for i in range(stages.size())}
        self._last = last
        return found


@dataclass(frozen=True)
class Outcome:
    """A finished run."""

    seconds: float
    """Of executors, for all its jobs."""
    wall: float
    answers: Mapping[str, Answers]


def run(
    spark: SparkSession, readings: Sensor, queries: str, names: Sequence[str], folder: Path, ruler: Ruler
) -> Outcome:
    """Run queries over the readings to their end, and keep the answers of those that are named."""
    state = folder / "state"
    shutil.rmtree(state, ignore_errors=True)
    Journal(state).close()
    target = state / "sources" / STREAM / "trace"
    target.parent.mkdir(parents=True)
    shutil.copytree(readings.landing, target, copy_function=os.link)
    sink = Collector()
    session = Session(spark, state, Settings(rows_per_batch=readings.rows_per_batch), ruler=ruler)
    session.sql(readings.statement + queries)
    spent = Spent(spark)
    begun = time.perf_counter()
    try:
        session.start(sink)
        if not session.wait(PATIENCE_S):
            raise TimeoutError(f"the run took more than {PATIENCE_S:.0f} seconds")
        wall = time.perf_counter() - begun
    finally:
        session.stop()
        shutil.rmtree(state, ignore_errors=True)
    return Outcome(spent.read(), wall, {name: sink.answers(name) for name in names})
