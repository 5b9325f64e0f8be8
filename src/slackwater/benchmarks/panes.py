"""``bench panes``: seven queries over network traffic; plain Spark and DuckDB beside the pipeline.

All read the same Parquet files in the same process and the same run. Slackwater and DuckDB take turns,
and the best run of each counts, which is what a machine without other work would show; plain Spark gets
two shorter stretches of the same data, and the best of its rates counts, the rate between the two
included, which is free of what a start costs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rich.progress import Progress

from slackwater.benchmarks.harness import Timed, run
from slackwater.benchmarks.peers import Answers, Peer, duck, plain_spark, read_answers, same
from slackwater.benchmarks.report import note
from slackwater.benchmarks.small_batches import small_batches
from slackwater.benchmarks.workload import NETWORK, Recording, record
from slackwater.spark.execute import SparkSession
from slackwater.traffic import Traffic


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rate: float
    seconds: int
    rows_per_batch: int
    warm_ups: int
    """At most so many runs before the measured ones."""
    rounds: int
    plain_rows: tuple[int, int]
    batches: int


FULL = Sizes(
    rate=60_000.0,
    seconds=200,
    rows_per_batch=7_000_000,
    warm_ups=20,
    rounds=9,
    plain_rows=(300_000, 1_000_000),
    batches=50,
)
QUICK = Sizes(
    rate=400.0,
    seconds=60,
    rows_per_batch=12_000,
    warm_ups=0,
    rounds=1,
    plain_rows=(2_000, 6_000),
    batches=5,
)


def panes(spark: SparkSession, folder: Path, sizes: Sizes, progress: Progress) -> dict[str, float]:
    """All figures of the benchmark."""
    traffic = Traffic(seed=42, rate=sizes.rate)
    recording = record(spark, folder, traffic, sizes.seconds, sizes.rows_per_batch, progress)
    ours, ducks = _in_turns(spark, recording, folder, sizes, progress)
    answers = read_answers(ours[-1].answers)
    compared = same(answers, ducks[-1].answers, "DuckDB", all_of_ours=True)
    plain = _plain(spark, recording, folder, sizes, progress, answers)
    our_seconds = min(r.wall for r in ours)
    duck_seconds = min(d.seconds for d in ducks)
    ours_rate, duck_rate = recording.rows / our_seconds, recording.rows / duck_seconds
    note(f"{recording.rows:,} rows, {len(NETWORK)} queries; {compared:,} windows are the same as DuckDB's")
    note(f"rows per second: Slackwater {ours_rate:,.0f}, plain Spark {plain:,.0f}, DuckDB {duck_rate:,.0f}")
    _where_time_goes(ours, our_seconds)
    small = small_batches(spark, folder, sizes.batches, progress)
    return {
        "over_plain_spark": ours_rate / plain,
        "over_duckdb": ours_rate / duck_rate,
        **small,
        "rows": recording.rows,
        "rows_per_second": ours_rate,
        "plain_spark_rows_per_second": plain,
        "duckdb_rows_per_second": duck_rate,
    }


def _in_turns(
    spark: SparkSession, recording: Recording, folder: Path, sizes: Sizes, progress: Progress
) -> tuple[list[Timed], list[Peer]]:
    """Slackwater and DuckDB by turns, after runs in which the JVM compiles what is hot."""
    cores = spark.sparkContext.defaultParallelism
    texts = [q.sql for q in NETWORK]
    task = progress.add_task("warming up", total=None)
    taken: list[float] = []
    while len(taken) < sizes.warm_ups and not _warm(taken):
        taken.append(run(spark, recording, texts, folder, sizes.rows_per_batch).wall)
    progress.update(task, description="Slackwater and DuckDB by turns", total=sizes.rounds)
    ours: list[Timed] = []
    ducks: list[Peer] = []
    for _ in range(sizes.rounds):
        ours.append(run(spark, recording, texts, folder, sizes.rows_per_batch))
        ducks.append(duck(cores, recording.files, NETWORK))
        progress.advance(task)
    return ours, ducks


def _warm(taken: list[float]) -> bool:
    """Whether the last four runs were no faster than those before them."""
    return len(taken) > 6 and min(taken[-4:]) > 0.97 * min(taken[:-4])


def _plain(
    spark: SparkSession, recording: Recording, folder: Path, sizes: Sizes, progress: Progress, ours: Answers
) -> float:
    """Rows per second of plain Spark: the best of two sizes and of the step from one to the other."""
    task = progress.add_task("plain Spark", total=3)
    measured: list[tuple[int, float]] = []
    small, large = sizes.plain_rows
    for turn, wanted in enumerate((small, small, large)):
        files = recording.first_files(wanted)
        peer = plain_spark(spark, files, NETWORK, folder / "plain")
        if turn:  # the first only warms up
            compared = same(ours, peer.answers, "plain Spark", all_of_ours=False)
            measured.append((recording.rows_in(files), peer.seconds))
        progress.advance(task)
    (few, short), (many, long) = measured
    rates = {"small": few / short, "large": many / long}
    if many > few and long > short:
        rates["from small to large"] = (many - few) / (long - short)
    shown = ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
    note(f"plain Spark, rows per second: {shown} ({few:,} and {many:,} rows); {compared:,} windows the same")
    return max(rates.values())


def _where_time_goes(runs: list[Timed], seconds: float) -> None:
    """The parts of the best run."""
    timed = next(r for r in runs if r.wall == seconds)
    parts = {
        "scan, panes and windows": sum(lap.partials - lap.recorded for lap in timed.laps),
        "answers": sum(lap.answers - lap.partials for lap in timed.laps),
        "commit": sum(lap.committed - lap.answers for lap in timed.laps),
    }
    parts["between batches"] = timed.wall - sum(parts.values())
    shown = ", ".join(f"{name} {part:.3f} s" for name, part in parts.items())
    note(f"a run of {len(timed.batches)} batches in {timed.wall:.3f} s on {os.cpu_count()} cores: {shown}")
