"""A live run over a wall of bricks: what was decided, how long batches took, what was delivered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from slackwater.benchmarks.workload import COLUMNS, STREAM
from slackwater.experiments.bricks import BrickSource, Wall
from slackwater.experiments.runs import Answers, Collector
from slackwater.experiments.workload import Workload
from slackwater.planners.ruling import Coming, Ruling
from slackwater.runtime.governor import Governor
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.shedding import Shed, Took
from slackwater.spark.execute import SparkSession

STATEMENT = f"CREATE STREAM {STREAM} ({COLUMNS}) USING bricks TIMESTAMP BY ts;"
POLL_S = 0.5
PATIENCE_S = 1800.0


@dataclass(frozen=True)
class Batch:
    """One batch of a live run; times in seconds."""

    at: float
    """When it was decided, after the first one."""
    arrived: int
    ruling: Ruling
    stretch: float
    """Of event time."""
    wall: float
    """How long the turn took."""

    @property
    def exact(self) -> bool:
        return not self.ruling.thresholds and self.ruling.share >= 1.0

    @property
    def rate(self) -> float:
        """The least sampling rate of any query."""
        return min(self.ruling.thresholds.values(), default=1.0) * self.ruling.share

    @property
    def lag(self) -> float:
        """How old its first row is when its answers are out."""
        return self.stretch + self.wall


@dataclass
class Observed(Governor):
    """A governor that is looked on at."""

    batches: list[Batch] = field(default_factory=list)
    _decided: list[tuple[float, int, Ruling]] = field(default_factory=list)

    def rule(self, coming: Coming) -> Ruling:
        ruling = super().rule(coming)
        self._decided.append((time.monotonic(), coming.size or 0, ruling))
        return ruling

    def learn(self, stream: str, shed: Shed | None, took: Took) -> None:
        super().learn(stream, shed, took)
        at, size, ruling = self._decided[-1]
        self.batches.append(Batch(at - self._decided[0][0], size, ruling, took.stretch, took.wall))


@dataclass(frozen=True)
class Live:
    """A finished live run."""

    batches: list[Batch]
    durations: Mapping[int, float]
    """By batch: Spark's triggerExecution, in seconds."""
    answers: Mapping[str, Answers]


def live_session(
    spark: SparkSession,
    wall: Wall,
    workload: Workload,
    state: Path,
    settings: Settings,
    *,
    live: bool = True,
    **options: Any,
) -> Session:
    """A session over a wall of bricks, in real time or as fast as it goes; not yet started."""
    source = partial(BrickSource, wall=wall, live=live)
    session = Session(spark, state, settings, sources={STREAM: source}, **options)
    for name, (function, returns) in workload.functions.items():
        session.function(name, function, returns)
    session.sql("\n".join([STATEMENT, *(q.sql for q in workload.queries)]))
    return session


def run_live(
    spark: SparkSession,
    wall: Wall,
    workload: Workload,
    state: Path,
    interval_ms: int,
    on_batch: Callable[[int], None],
) -> Live:
    """Replay a wall in real time under the closed loop."""
    made: list[Observed] = []

    def observed(budget: Callable[[], float], cores: int, split: Any) -> Observed:
        made.append(Observed(budget, cores, split))
        return made[-1]

    settings = Settings(trigger_ms=interval_ms)
    session = live_session(spark, wall, workload, state, settings, governor=observed)
    sink = Collector()
    durations: dict[int, float] = {}
    session.start(sink)
    try:
        with _polled(session, durations, on_batch):
            if not session.wait(PATIENCE_S):
                raise TimeoutError(f"the run took more than {PATIENCE_S:.0f} seconds")
    finally:
        session.stop()
    return Live(made[0].batches, durations, {q.name: sink.answers(q.name) for q in workload.queries})


@contextmanager
def _polled(session: Session, durations: dict[int, float], on_batch: Callable[[int], None]) -> Iterator[None]:
    """Note what Spark says of its batches while they run: it remembers only the last few."""
    stop = threading.Event()

    def poll() -> None:
        while not stop.wait(POLL_S):
            for query in session.engine.executor.session.streams.active:
                for progress in query.recentProgress:
                    taken = progress["durationMs"].get("triggerExecution")
                    if taken is not None:
                        durations.setdefault(int(progress["batchId"]), taken / 1000)
            on_batch(len(durations))

    thread = threading.Thread(target=poll, daemon=True, name="progress")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
