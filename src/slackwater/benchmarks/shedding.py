"""``bench shedding``: the cost of shedding while it is idle, and what it buys under load.

*Idle*: the same seven queries over the same batches, with the closed loop on and a budget that is never
exceeded, beside a run with shedding off; the two take turns. *Gain*: rows a second at a rate of 0.1 over
those at 1, on a stream that is parsed from JSON and on one that lies in columns. *Held*: how many times the
rows of an unshed batch can be taken in the time of that batch, when as little as possible is kept of them,
with every row read and with blocks skipped at the source.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
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
    held_seconds: Mapping[str, int]
    """How long the stream is; by kind, where multiples of a batch are wanted of it."""
    idle_rows: int
    """Rows of a batch while nothing is shed: enough batches that few of them are the first ones."""
    gain_rows: int
    rounds: int
    unshed_rows: Mapping[str, int]
    """By kind of stream: rows of the batch whose time the held multiples have."""
    multiples: tuple[int, ...]


FULL = Sizes(
    rate=60_000.0,
    seconds=400,
    held_seconds={"json": 400, "binary": 800},
    idle_rows=500_000,
    gain_rows=4_000_000,
    rounds=3,
    # batches of which a good part is not what each takes whatever its rows
    unshed_rows={"json": 500_000, "binary": 4_000_000},
    multiples=(2, 3, 4, 6, 8, 12, 16, 24),
)
QUICK = Sizes(400.0, 60, {"json": 60, "binary": 60}, 8_000, 8_000, 1, {"json": 4_000, "binary": 4_000}, (2,))
NEXT_TO_NOTHING, NEARLY_ALL = 1e-3, 0.999
"""Rates; of a batch at least eight blocks are read."""
LANDED_AT_MOST = 2_000_000
"""Larger batches have more files of the trace, no larger ones: it need not be landed again for each size."""


def shedding(spark: SparkSession, folder: Path, sizes: Sizes, progress: Progress) -> dict[str, float]:
    """All figures of the benchmark."""
    traffic = Traffic(seed=42, rate=sizes.rate)

    def recorded(kind: str, rows: int, seconds: int = sizes.seconds) -> Recording:
        rows = min(rows, LANDED_AT_MOST)
        return record(spark, folder, traffic, seconds, rows, progress, text=kind == "json")

    figures = _idle(spark, recorded("binary", sizes.idle_rows), folder, sizes, progress)
    for kind in sizes.unshed_rows:
        gained = _gain(spark, recorded(kind, sizes.gain_rows), folder, sizes, progress, kind)
        figures[f"{kind}_gain"] = gained
    for kind in sizes.unshed_rows:
        long = partial(recorded, kind, seconds=sizes.held_seconds[kind])
        figures |= _held(spark, folder, long, sizes, kind)
    figures["planner_ms_1000"] = _planner_ms()
    return figures


def _steady(timed: Timed) -> float:
    """Seconds of a batch; the first compiles code and the last may hold less, so both are left out."""
    cycles = timed.cycles
    return median(cycles[1:-1] or cycles[1:] or cycles)


def _idle(
    spark: SparkSession, recording: Recording, folder: Path, sizes: Sizes, progress: Progress
) -> dict[str, float]:
    task = progress.add_task("idle beside off", total=sizes.rounds * 2)
    times: dict[str, list[float]] = {"off": [], "idle": []}
    for turn in range(sizes.rounds + 1):
        for name in times:
            ruler = Governor(lambda: NEVER, 2, everywhere=True) if name == "idle" else None
            timed = run(spark, recording, QUERIES, folder, sizes.idle_rows, ruler=ruler)
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
            timed = run(spark, recording, QUERIES, folder, sizes.gain_rows, ruler=rates)
            if turn > 0 or sizes.rounds == 1:
                times[rate].append(_steady(timed))
                progress.advance(task)
    note(f"{kind}: a batch of {sizes.gain_rows:,} rows takes {median(times[1.0]):.3f} s at a rate of 1")
    note(f"{kind}: and {median(times[0.1]):.3f} s at 0.1")
    return median(times[1.0]) / median(times[0.1])


def _held(
    spark: SparkSession, folder: Path, recorded: Callable[[int], Recording], sizes: Sizes, kind: str
) -> dict[str, float]:
    """The largest multiple of an unshed batch that is taken in the time of that batch."""
    names = [q.name for q in NETWORK]
    unshed_rows = sizes.unshed_rows[kind]

    def seconds(rows: int, ruler: Ruler | None = None) -> float:
        recording = recorded(rows)
        # the first run compiles
        return [_steady(run(spark, recording, QUERIES, folder, rows, ruler=ruler)) for _ in range(2)][1]

    unshed, rows_in_all = seconds(unshed_rows), recorded(unshed_rows).rows
    note(f"{kind}: an unshed batch of {unshed_rows:,} rows takes {unshed:.3f} s")
    held: dict[str, float] = {}
    for way in ("without_skipping", "with_skipping"):
        held[way], skipping = 1.0, way == "with_skipping"
        for multiple in sizes.multiples:
            rows = unshed_rows * multiple
            if rows * 3 > rows_in_all and multiple > sizes.multiples[0]:
                note(f"{kind}: there are not rows enough for three batches of {multiple} times as many")
                break
            rate, share = (NEARLY_ALL, NEXT_TO_NOTHING) if skipping else (NEXT_TO_NOTHING, 1.0)
            taken = seconds(rows, FixedRates(dict.fromkeys(names, rate), share))
            note(f"{kind}: {multiple} times as many rows, {way.replace('_', ' ')}: {taken:.3f} s")
            if taken > unshed:
                break
            held[way] = float(multiple)
    return {f"held_multiple.{kind}": max(held.values())} | {
        f"held_multiple.{kind}.{way}": multiple for way, multiple in held.items()
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
