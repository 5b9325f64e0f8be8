"""``bench shedding``: the cost of shedding while it is idle, and what it buys under load.

*Idle*: the same seven queries over the same batches, with the closed loop on and a budget that is never
exceeded, beside a run with shedding off; the two take turns. *Gain*: rows a second at a rate of 0.1 over
those at 1, on a stream that is parsed from JSON and on one that lies in columns. *Held*: how many times the
rows of an unshed batch can be taken in the time of that batch, when as little as possible is kept of them,
with every row read and with blocks skipped at the source.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from rich.progress import Progress

from slackwater.benchmarks.harness import Timed, run
from slackwater.benchmarks.report import note
from slackwater.benchmarks.workload import NETWORK, Recording, record
from slackwater.planners.level import allocate
from slackwater.planners.load import Demand, LoadTree
from slackwater.planners.ruling import FixedRates, Ruler
from slackwater.runtime.governor import Governor
from slackwater.spark.execute import SparkSession
from slackwater.traffic import Traffic

QUERIES = [query.sql for query in NETWORK]
NEVER = 1e9
"""A budget in seconds that no batch exceeds."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rate: float
    seconds: int
    rows_per_batch: int
    rounds: int
    unshed_rows: int
    """Rows of the batch whose time the held multiples have."""
    multiples: tuple[int, ...]


FULL = Sizes(60_000.0, 200, 500_000, 5, 250_000, (2, 3, 4, 6, 8, 12, 16, 24, 32, 48))
QUICK = Sizes(400.0, 60, 8_000, 1, 4_000, (2,))


def shedding(spark: SparkSession, folder: Path, sizes: Sizes, progress: Progress) -> dict[str, float]:
    """All figures of the benchmark."""
    traffic = Traffic(seed=42, rate=sizes.rate)
    figures: dict[str, float] = {}
    recordings = {
        kind: record(
            spark, folder, traffic, sizes.seconds, sizes.rows_per_batch, progress, text=kind == "json"
        )
        for kind in ("binary", "json")
    }
    figures |= _idle(spark, recordings["binary"], folder, sizes, progress)
    for kind, recording in recordings.items():
        figures[f"{kind}_gain"] = _gain(spark, recording, folder, sizes, progress, kind)
    for kind in recordings:
        figures |= _held(spark, folder, traffic, sizes, progress, kind)
    figures["planner_ms_1000"] = _planner_ms()
    return figures


def _steady(timed: Timed) -> float:
    """Seconds of a batch, with the first left out: it compiles code."""
    cycles = timed.cycles
    return median(cycles[1:] or cycles)


def _idle(
    spark: SparkSession, recording: Recording, folder: Path, sizes: Sizes, progress: Progress
) -> dict[str, float]:
    task = progress.add_task("idle beside off", total=sizes.rounds * 2)
    times: dict[str, list[float]] = {"off": [], "idle": []}
    for turn in range(sizes.rounds + 1):
        for name in times:
            ruler = Governor(lambda: NEVER, 2, everywhere=True) if name == "idle" else None
            timed = run(spark, recording, QUERIES, folder, sizes.rows_per_batch, ruler=ruler)
            # the first round compiles both ways of reading a batch
            if turn > 0 or sizes.rounds == 1:
                times[name].append(sum(timed.cycles[1:]))
                progress.advance(task)
    ratio = median(times["off"]) / median(times["idle"])
    note(f"idle: {median(times['idle']):.2f} s with the loop on, {median(times['off']):.2f} s with it off")
    return {"idle_ratio": ratio}


def _gain(
    spark: SparkSession, recording: Recording, folder: Path, sizes: Sizes, progress: Progress, kind: str
) -> float:
    task = progress.add_task(f"gain on {kind}", total=sizes.rounds * 2)
    times: dict[float, list[float]] = {1.0: [], 0.1: []}
    for turn in range(sizes.rounds + 1):
        for rate in times:
            rates: Ruler | None = (
                FixedRates(dict.fromkeys((q.name for q in NETWORK), rate)) if rate < 1 else None
            )
            timed = run(spark, recording, QUERIES, folder, sizes.rows_per_batch, ruler=rates)
            if turn > 0 or sizes.rounds == 1:
                times[rate].append(_steady(timed))
                progress.advance(task)
    note(f"{kind}: a batch of {sizes.rows_per_batch:,} rows takes {median(times[1.0]):.3f} s at a rate of 1")
    note(f"{kind}: and {median(times[0.1]):.3f} s at 0.1")
    return median(times[1.0]) / median(times[0.1])


def _held(
    spark: SparkSession, folder: Path, traffic: Traffic, sizes: Sizes, progress: Progress, kind: str
) -> dict[str, float]:
    """The largest multiple of an unshed batch that is taken in the time of that batch."""
    names = [q.name for q in NETWORK]
    text = kind == "json"
    base = record(spark, folder, traffic, sizes.seconds, sizes.unshed_rows, progress, text=text)
    run(spark, base, QUERIES, folder, sizes.unshed_rows)
    unshed = _steady(run(spark, base, QUERIES, folder, sizes.unshed_rows))
    note(f"{kind}: an unshed batch of {sizes.unshed_rows:,} rows takes {unshed:.3f} s")
    held: dict[str, float] = {}
    for skipping in (False, True):
        best = 1.0
        for multiple in sizes.multiples:
            rows = sizes.unshed_rows * multiple
            if rows * 4 > base.rows and multiple > sizes.multiples[0]:
                # too few batches of that size to tell
                break
            recording = record(spark, folder, traffic, sizes.seconds, rows, progress, text=text)
            kept = 0.2 / multiple
            share = 0.3 / multiple if skipping else 1.0
            ruler = FixedRates(dict.fromkeys(names, kept / share), share)
            run(spark, recording, QUERIES, folder, rows, ruler=ruler)
            taken = _steady(run(spark, recording, QUERIES, folder, rows, ruler=ruler))
            note(f"{kind}: {multiple} times as many rows, skipping {skipping}: {taken:.3f} s")
            if taken > unshed:
                break
            best = float(multiple)
        held["with" if skipping else "without"] = best
    return {
        f"held_multiple.{kind}": max(held.values()),
        f"held_multiple.{kind}.without_skipping": held["without"],
    }


def _planner_ms() -> float:
    """Milliseconds that rates for 1,000 queries take, the median of several draws."""
    times = []
    for seed in range(9):
        random = np.random.default_rng(seed)
        size = 1000
        rows = [1e6, *(1e6 * random.uniform(0.001, 1, size))]
        seconds = [1e-7, *random.lognormal(-17, 1, size)]
        tree = LoadTree((-1, *([0] * size)), tuple(rows), tuple(seconds))
        demands = [
            Demand(f"q{i}", i + 1, "error", spread=float(random.lognormal(-8, 2)), bound=0.05)
            for i in range(size)
        ]
        capacity = 0.3 * float(tree.costs.sum())
        began = time.perf_counter()
        allocate(tree, demands, capacity)
        times.append((time.perf_counter() - began) * 1000)
    return median(times)
