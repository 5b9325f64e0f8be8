"""``bench panes``: seven queries over network traffic; plain Spark and DuckDB beside the pipeline.

All read the same Parquet files in the same process and the same run, and all are given them at once: DuckDB
in one statement, plain Spark and Slackwater in one batch. Slackwater and DuckDB take turns, and the medians
are compared. What a batch costs whatever its size weighs on small ones, so the ratio to DuckDB is measured
for several smaller sizes too, and all are reported. Plain Spark gets two shorter stretches of the same
data, and the best of its rates counts, the rate between the two included, which is free of what a start
costs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from statistics import median

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
    """More than there are: all of them in one batch."""
    warm_ups: int
    """At most so many runs before the measured ones."""
    rounds: int
    smaller: tuple[int, ...]
    """Other rows per batch at which the ratio to DuckDB is measured."""
    plain_rows: tuple[int, int]
    batches: int


FULL = Sizes(
    rate=60_000.0,
    seconds=200,
    rows_per_batch=20_000_000,
    warm_ups=20,
    rounds=9,
    smaller=(500_000, 2_000_000, 7_000_000),
    plain_rows=(300_000, 1_000_000),
    batches=50,
)
QUICK = Sizes(
    rate=400.0,
    seconds=60,
    rows_per_batch=100_000,
    warm_ups=0,
    rounds=1,
    smaller=(),
    plain_rows=(2_000, 6_000),
    batches=5,
)


def panes(spark: SparkSession, folder: Path, sizes: Sizes, progress: Progress) -> dict[str, float]:
    """All figures of the benchmark."""
    traffic = Traffic(seed=42, rate=sizes.rate)
    recording = record(spark, folder, traffic, sizes.seconds, sizes.rows_per_batch, progress)
    ours, ducks = _in_turns(spark, recording, folder, sizes, sizes.rows_per_batch, progress)
    answers = read_answers(ours[-1].answers)
    compared = same(answers, ducks[-1].answers, "DuckDB", all_of_ours=True)
    plain = _plain(spark, recording, folder, sizes, progress, answers)
    our_seconds = median(r.wall for r in ours)
    duck_seconds = median(d.seconds for d in ducks)
    ours_rate, duck_rate = recording.rows / our_seconds, recording.rows / duck_seconds
    note(f"{recording.rows:,} rows, {len(NETWORK)} queries; {compared:,} windows are the same as DuckDB's")
    note(f"rows per second: Slackwater {ours_rate:,.0f}, plain Spark {plain:,.0f}, DuckDB {duck_rate:,.0f}")
    _where_time_goes(ours, our_seconds)
    at_sizes = _at_smaller_sizes(spark, folder, traffic, sizes, progress)
    small = small_batches(spark, folder, sizes.batches, progress)
    return {
        "over_plain_spark": ours_rate / plain,
        "over_duckdb": ours_rate / duck_rate,
        **small,
        "over_duckdb_best_runs": min(d.seconds for d in ducks) / min(r.wall for r in ours),
        **at_sizes,
        "rows_per_batch": sizes.rows_per_batch,
        "rows": recording.rows,
        "rows_per_second": ours_rate,
        "plain_spark_rows_per_second": plain,
        "duckdb_rows_per_second": duck_rate,
    }


def _in_turns(
    spark: SparkSession,
    recording: Recording,
    folder: Path,
    sizes: Sizes,
    rows_per_batch: int,
    progress: Progress,
) -> tuple[list[Timed], list[Peer]]:
    """Slackwater and DuckDB by turns, after runs in which the JVM compiles what is hot."""
    cores = spark.sparkContext.defaultParallelism
    texts = [q.sql for q in NETWORK]
    task = progress.add_task("warming up", total=None)
    taken: list[float] = []
    while len(taken) < sizes.warm_ups and not _warm(taken):
        taken.append(run(spark, recording, texts, folder, rows_per_batch).wall)
    progress.update(task, description="Slackwater and DuckDB by turns", total=sizes.rounds)
    ours: list[Timed] = []
    ducks: list[Peer] = []
    for _ in range(sizes.rounds):
        ours.append(run(spark, recording, texts, folder, rows_per_batch))
        ducks.append(duck(cores, recording.files, NETWORK))
        progress.advance(task)
    return ours, ducks


def _at_smaller_sizes(
    spark: SparkSession, folder: Path, traffic: Traffic, sizes: Sizes, progress: Progress
) -> dict[str, float]:
    """The ratio to DuckDB by rows per batch: the same rows, landed as a replay of such batches does."""
    ratios = {}
    for rows in sizes.smaller:
        recording = record(spark, folder, traffic, sizes.seconds, rows, progress)
        ours, ducks = _in_turns(spark, recording, folder, sizes, rows, progress)
        ratio = median(d.seconds for d in ducks) / median(r.wall for r in ours)
        ratios[f"over_duckdb_at_{rows}_rows"] = ratio
        note(f"batches of {rows:,} rows: {ratio:.3f} of DuckDB's rate, in {len(ours[-1].batches)} batches")
    return ratios


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
    """The parts of the median run."""
    timed = min(runs, key=lambda r: abs(r.wall - seconds))
    parts = {
        "scan, panes and windows": sum(lap.partials - lap.recorded for lap in timed.laps),
        "answers": sum(lap.answers - lap.partials for lap in timed.laps),
        "commit": sum(lap.committed - lap.answers for lap in timed.laps),
    }
    parts["between batches"] = timed.wall - sum(parts.values())
    shown = ", ".join(f"{name} {part:.3f} s" for name, part in parts.items())
    note(f"a run of {len(timed.batches)} batches in {timed.wall:.3f} s on {os.cpu_count()} cores: {shown}")
