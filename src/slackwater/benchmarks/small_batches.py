"""What a batch costs that holds next to nothing, and whether Spark compiles anything anew for it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq
from rich.progress import Progress

from slackwater.benchmarks.harness import PATIENCE_S, Lap, Stopwatch
from slackwater.benchmarks.report import note
from slackwater.benchmarks.workload import COLUMNS, NETWORK, SECOND, STREAM
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.sinks import JsonLinesSink
from slackwater.spark.execute import SparkSession
from slackwater.spark.session import compilations
from slackwater.traffic import Traffic

WARM_UP = 25
"""Batches before anything is counted."""
TRIGGER_MS = 100
RATE = 1_000.0
SILENCE_S = 3_600


@dataclass
class Batches:
    """What was seen of a run of small batches."""

    laps: list[Lap] = field(default_factory=list)
    durations: list[dict[str, int]] = field(default_factory=list)
    compiled: int = 0

    def milliseconds(self, part: str) -> float:
        """The median of one of Spark's own times; ``triggerExecution`` is the whole batch."""
        return median([d.get(part, 0) for d in self.durations] or [0])

    def parts(self) -> dict[str, float]:
        """Where the milliseconds of a batch go: in Spark around it, and in the turn itself."""
        turn = {
            "scan_panes_windows": median(lap.partials - lap.recorded for lap in self.laps) * 1000,
            "answers": median(lap.answers - lap.partials for lap in self.laps) * 1000,
            "commit": median(lap.committed - lap.answers for lap in self.laps) * 1000,
        }
        names = {"walCommit": "spark_wal", "commitOffsets": "spark_commit", "queryPlanning": "spark_planning"}
        around = {name: self.milliseconds(part) for part, name in names.items()}
        rest = self.milliseconds("triggerExecution") - sum(turn.values()) - sum(around.values())
        return {**turn, **around, "rest": max(0.0, rest)}


def small_batches(spark: SparkSession, folder: Path, count: int, progress: Progress) -> dict[str, float]:
    """Batches without rows, and batches of a hundred, one after the other."""
    traffic = Traffic(seed=7, rate=RATE)
    seconds = max(60, count)
    few = _traffic(folder / "few.parquet", traffic, seconds, silence=False)
    none = _traffic(folder / "none.parquet", traffic, 5, silence=True)
    of_few = _run(spark, folder / "few", few, count, progress, "batches of a hundred rows")
    of_none = _run(spark, folder / "none", none, count, progress, "empty batches")
    _tell("an empty batch", of_none)
    _tell("a batch of about a hundred rows", of_few)
    return {
        "empty_batch_ms": of_none.milliseconds("triggerExecution"),
        "compilations": of_few.compiled + of_none.compiled,
        **{f"empty_batch_{name}_ms": part for name, part in of_none.parts().items()},
        "hundred_rows_batch_ms": of_few.milliseconds("triggerExecution"),
    }


def _traffic(path: Path, traffic: Traffic, seconds: int, *, silence: bool) -> Path:
    """A trace; with silence, its last row comes an hour after the others, so that batches find nothing."""
    tables = [traffic.slice(second, SECOND) for second in range(seconds)]
    if silence:
        last = tables[-1].slice(0, 1)
        late = pa.array([last["ts"][0].as_py() + timedelta(seconds=SILENCE_S)], last["ts"].type)
        tables.append(last.set_column(0, "ts", late))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.concat_tables(tables).drop_columns(["seq"]), path)
    return path


def _run(
    spark: SparkSession, folder: Path, trace: Path, count: int, progress: Progress, what: str
) -> Batches:
    """Run until so many batches have been seen after the warm-up, in real time."""
    seen = Batches()
    task = progress.add_task(what, total=WARM_UP + count)
    marks: list[int] = []
    watch = Stopwatch()

    def on_lap(number: int) -> None:
        progress.update(task, completed=number)
        if number == WARM_UP or number == WARM_UP + count:
            marks.append(compilations(spark))

    watch.on_lap = on_lap
    settings = Settings(trigger_ms=TRIGGER_MS)
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(WARM_UP + count + 50))
    with Session(spark, folder / "state", settings, fault=watch) as session:
        session.sql(
            f"CREATE STREAM {STREAM} ({COLUMNS}) USING replay "
            f"OPTIONS (path '{trace}', speed '1') TIMESTAMP BY ts;" + "".join(q.sql for q in NETWORK)
        )
        session.start(JsonLinesSink(folder / "answers.jsonl", overwrite=True), fresh=True)
        deadline = time.monotonic() + PATIENCE_S
        while len(watch.laps) <= WARM_UP + count and not session.wait(0.2):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} took more than {PATIENCE_S:.0f} seconds")
        (query,) = session.engine.executor.session.streams.active
        reported = {p["batchId"]: dict(p["durationMs"]) for p in query.recentProgress}
    seen.laps = watch.laps[WARM_UP : WARM_UP + count]
    seen.durations = [reported[b] for b in range(WARM_UP, WARM_UP + count) if b in reported]
    seen.compiled = marks[1] - marks[0]
    return seen


def _tell(what: str, seen: Batches) -> None:
    shown = ", ".join(f"{name.replace('_', ' ')} {part:.0f}" for name, part in seen.parts().items())
    whole = seen.milliseconds("triggerExecution")
    note(f"{what}, median of {len(seen.laps)}: {whole:.0f} ms, of which {shown}")
