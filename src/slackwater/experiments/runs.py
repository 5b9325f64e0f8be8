"""Runs of a workload over a landed stream, with what was decided and spent batch by batch."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from slackwater.benchmarks.workload import STREAM
from slackwater.experiments.packets import Landed
from slackwater.experiments.workload import Workload
from slackwater.plan.slots import slots_of
from slackwater.plan.tables import Plan, StepPlan
from slackwater.planners.level import SplitName
from slackwater.planners.ruling import Coming, Ruling
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.governor import Governor
from slackwater.runtime.json_values import double_column
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.shedding import Shed, Took
from slackwater.spark.execute import SparkSession

PATIENCE_S = 1200.0
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Strategy:
    """A way to share the loss: the planner's split, and how kept rows are weighed."""

    name: str
    split: SplitName
    calibrated: bool


INPUT = Strategy("input", "input", calibrated=False)
PAPER = Strategy("paper", "hoeffding", calibrated=False)
OURS = Strategy("ours", "minimax", calibrated=True)
STRATEGIES = (INPUT, PAPER, OURS)


@dataclass
class Watched(Governor):
    """A governor that is looked on at, and that reads every batch whole: the paper knows no skipping."""

    rulings: list[Ruling] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)
    """Executor seconds of each batch, by Spark's count."""

    def rule(self, coming: Coming) -> Ruling:
        ruling = super().rule(replace(coming, least=1.0))
        self.rulings.append(ruling)
        return ruling

    def learn(self, stream: str, shed: Shed | None, took: Took) -> None:
        super().learn(stream, shed, took)
        self.spent.append(sum(took.times.values()))


@dataclass(frozen=True)
class Answers:
    """The answers of one query, by the end of their window."""

    end: Ints
    value: Floats
    low: Floats
    high: Floats

    def at(self, ends: Ints) -> Answers:
        """Those of given windows; raises where one is missing."""
        place = np.minimum(np.searchsorted(self.end, ends), len(self.end) - 1)
        if not np.array_equal(self.end[place], ends):
            raise ValueError(f"{int((self.end[place] != ends).sum())} of {len(ends)} windows have no answer")
        return Answers(ends, self.value[place], self.low[place], self.high[place])


class Collector:
    """A sink that keeps values and intervals as arrays."""

    def __init__(self) -> None:
        self._kept: dict[str, list[AnswerBatch]] = {}

    def open(self, resume: Mapping[str, object] | None) -> None:
        """Nothing to go on from."""

    def write(self, step: int, batches: Iterable[AnswerBatch]) -> None:
        for batch in batches:
            assert isinstance(batch.query, str)
            self._kept.setdefault(batch.query, []).append(batch)

    def mark(self) -> dict[str, object]:
        return {}

    def close(self) -> None:
        """Nothing to let go of."""

    def answers(self, query: str) -> Answers:
        kept = self._kept[query]
        end = np.concatenate([b.window_end for b in kept if b.window_end is not None])
        value, low, high = (
            np.concatenate([_numbers(b, name) for b in kept]) for name in ("value", "low", "high")
        )
        order = np.argsort(end)
        return Answers(end[order], value[order], low[order], high[order])


def _numbers(batch: AnswerBatch, name: str) -> Floats:
    column = getattr(batch, name)
    column = double_column(batch.value if column is None else column)
    return np.asarray(column.fill_null(np.nan).to_numpy(zero_copy_only=False), dtype=np.float64)


@dataclass(frozen=True)
class Run:
    """A finished run."""

    answers: Mapping[str, Answers]
    governor: Watched
    plan: Plan

    @property
    def spent(self) -> float:
        """Executor seconds of the median batch; batches are of one size, and the first two compile code."""
        return median(self.governor.spent[2:] or self.governor.spent)

    def rates(self, query: str) -> Floats:
        """The sampling rate of a query in each batch."""
        slot = self._slot(query)
        return np.array([r.thresholds.get(slot, 1.0) for r in self.governor.rulings])

    def taus(self, query: str) -> Floats:
        """In each batch the τ of a query whose rows were kept in proportion to their size, else 0."""
        slot = self._slot(query)
        return np.array([r.sizes.get(slot, 0.0) for r in self.governor.rulings])

    def _slot(self, query: str) -> str:
        return slots_of(self.plan, STREAM).by_step[query.lower()].id

    def step(self, query: str) -> StepPlan:
        return self.plan.steps[query.lower()]


def governor(
    spark: SparkSession, strategy: Strategy, multiple: float, seed: Watched | None = None
) -> Watched:
    """A governor for a load, that plans with what another has learnt; without one it learns itself."""
    cores = spark.sparkContext.defaultParallelism
    made = Watched(
        lambda: 0.0,
        cores,
        strategy.split,
        multiple=multiple,
        fitting=seed is None,
        calibrated=strategy.calibrated,
    )
    return made if seed is None else made.seeded_from(seed)


def run(
    spark: SparkSession, landed: Landed, workload: Workload, folder: Path, ruler: Watched, *, salt: int = 1
) -> Run:
    """Run a workload over a stream to its end."""
    state = folder / "state"
    shutil.rmtree(state, ignore_errors=True)
    landed.recording.seed_state(state)
    sink = Collector()
    session = Session(spark, state, Settings(rows_per_batch=landed.rows_per_batch, salt=salt), ruler=ruler)
    for name, (function, returns) in workload.functions.items():
        session.function(name, function, returns)
    session.sql("\n".join([landed.recording.statement, *(q.sql for q in workload.queries)]))
    try:
        session.start(sink)
        if not session.wait(PATIENCE_S):
            raise TimeoutError(f"the run took more than {PATIENCE_S:.0f} seconds")
        plan = session.plan
    finally:
        session.stop()
        shutil.rmtree(state, ignore_errors=True)
    assert len(ruler.rulings) == len(landed.slices), "the batches were not those of the landing"
    answers = {q.name: sink.answers(q.name) for q in workload.queries}
    return Run(answers, ruler, plan)
