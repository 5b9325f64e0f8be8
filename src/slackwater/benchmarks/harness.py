"""Runs of the real pipeline, timed from inside by the points that a turn passes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

from slackwater.benchmarks.workload import Recording
from slackwater.planners.ruling import Ruler
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.sinks import JsonLinesSink
from slackwater.spark.execute import SparkSession

PATIENCE_S = 600.0


@dataclass(frozen=True)
class Lap:
    """One turn: when it was decided, its panes and windows were done, its answers out, its commit made."""

    recorded: float
    partials: float
    answers: float
    committed: float

    @property
    def seconds(self) -> float:
        return self.committed - self.recorded


@dataclass
class Stopwatch:
    """Notes the time of every point of every turn."""

    laps: list[Lap] = field(default_factory=list)
    on_lap: Callable[[int], None] | None = None
    _points: dict[str, float] = field(default_factory=dict)

    def __call__(self, point: str) -> None:
        now = time.perf_counter()
        self._points[point] = now
        if point == "committed":
            points = self._points
            # the turn that ends a stream has no record of its own to wait for
            began = points.get("recorded", self.laps[-1].committed if self.laps else now)
            self.laps.append(Lap(began, points["partials"], points["answers"], now))
            self._points = {}
            if self.on_lap is not None:
                self.on_lap(len(self.laps))


@dataclass(frozen=True)
class Timed:
    """A finished run."""

    laps: tuple[Lap, ...]
    """The turns, the last being the end of the stream."""
    answers: Path

    @property
    def batches(self) -> tuple[Lap, ...]:
        return self.laps[:-1]

    @property
    def wall(self) -> float:
        """From the first decision to the last commit, with all that Spark does between the batches."""
        return self.laps[-1].committed - self.laps[0].recorded

    @property
    def cycles(self) -> tuple[float, ...]:
        """Seconds from commit to commit, for every batch but the first."""
        ends = [lap.committed for lap in self.batches]
        return tuple(after - before for before, after in pairwise(ends))

    def steady(self) -> float:
        """The median cycle: a batch with code compiled and everything around it."""
        return median(self.cycles)


def run(
    spark: SparkSession,
    recording: Recording,
    queries: Sequence[str],
    folder: Path,
    rows_per_batch: int,
    *,
    on_lap: Callable[[int], None] | None = None,
    answers: str = "answers.jsonl",
    ruler: Ruler | None = None,
    shedding: str = "off",
) -> Timed:
    """Run queries over a recording to its end, answers into a file of JSON lines."""
    state = folder / "state"
    shutil.rmtree(state, ignore_errors=True)
    recording.seed_state(state)
    watch = Stopwatch(on_lap=on_lap)
    target = folder / answers
    settings = Settings(rows_per_batch=rows_per_batch, shedding=shedding)
    session = Session(spark, state, settings, fault=watch, ruler=ruler)
    session.sql("\n".join([recording.statement, *queries]))
    try:
        session.start(JsonLinesSink(target, overwrite=True))
        if not session.wait(PATIENCE_S):
            raise TimeoutError(f"the run took more than {PATIENCE_S:.0f} seconds")
    finally:
        session.stop()
        shutil.rmtree(state, ignore_errors=True)
    return Timed(tuple(watch.laps), target)
