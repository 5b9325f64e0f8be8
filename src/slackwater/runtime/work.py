"""What a turn works with, and what it leaves for the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from slackwater.plan.scope import safe_name
from slackwater.plan.slots import Slots
from slackwater.plan.tables import Plan
from slackwater.planners.decision import Decision
from slackwater.runtime.alerts.silence import Stretch
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.journal import Journal
from slackwater.runtime.log import PaneLog
from slackwater.runtime.samples import SampleLog
from slackwater.runtime.shedding import Shed
from slackwater.runtime.state import StreamState
from slackwater.runtime.window_drops import WindowDrops
from slackwater.spark.execute import Executor, SparkSession
from slackwater.spark.shed import Meter
from slackwater.spark.statement import Compiled
from slackwater.statistics.counts import Counts


@dataclass
class Work:
    """A decision with all it takes to carry it out. What changes is in ``state`` and ``log``."""

    plan: Plan
    compiled: dict[str, Compiled]
    decision: Decision
    step: int
    state: StreamState
    log: PaneLog
    journal: Journal
    executor: Executor
    session: SparkSession
    now: Callable[[], datetime]
    lateness: int
    cheap: bool
    """Whether reading the batch again costs less than keeping it."""
    slots: Slots
    samples: SampleLog
    drops: WindowDrops
    shed: Shed | None = None
    """How the batch is thinned out, or measured; None where it is taken whole."""
    meter: Meter | None = None
    counts: Counts = field(default_factory=Counts)
    answers: list[Callable[[], Iterator[AnswerBatch]]] = field(default_factory=list)
    """Each reads its answers anew, so that every sink can, and none need be held."""
    closed: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By source: between which watermarks windows have closed in this turn."""
    stretches: dict[str, Stretch] = field(default_factory=dict)
    """By query that alerts look at: the windows that have closed in this turn, with answers or without."""
    to_fill: dict[str, list[AnswerBatch]] = field(default_factory=dict)
    """By query with FILL: what was delivered in this turn."""
    latest: pa.Table | None = None
    """What each key said last in each tick of the batch, where queries read current values."""
    handed: dict[str, pa.Table | Path] = field(default_factory=dict)
    """By step that others read: the windows that have closed in this turn."""

    def measured(self, name: str, *, python: bool = False) -> AbstractContextManager[None]:
        """Have Spark count what some work costs, where the batch is measured."""
        return nullcontext() if self.meter is None else self.meter.measuring(name, python=python)

    def output(self, name: str) -> Path:
        """Where Spark writes the answers of a query in this turn."""
        return self.journal.outputs / f"{self.step:012d}-{safe_name(name)}"
