"""``bench queries``: what does the next query cost, where others run over the same stream already?

Every set of queries runs several times over the same rows: first for the JVM to compile its code, then to
be measured. The time is that of the median batch from commit to commit, the first batch left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import duckdb
from rich.progress import Progress

from slackwater.benchmarks.harness import run
from slackwater.benchmarks.many import Standing, equalities, ranges, unlike
from slackwater.benchmarks.peers import Disagreement
from slackwater.benchmarks.report import note
from slackwater.benchmarks.workload import Recording, record
from slackwater.spark.execute import SparkSession
from slackwater.traffic import Traffic

CHECKED = 5
"""Queries of each set whose answers are compared with DuckDB's."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rate: float
    seconds: int
    rows_per_batch: int
    alike: tuple[int, ...]
    unlike: tuple[int, ...]
    warm_ups: int


FULL = Sizes(20_000.0, 120, 500_000, (1, 10, 100, 1000), (1, 10, 100), 5)
QUICK = Sizes(400.0, 60, 5_000, (1, 10), (1, 10), 0)


def queries(spark: SparkSession, folder: Path, sizes: Sizes, progress: Progress) -> dict[str, float]:
    """All figures of the benchmark."""
    traffic = Traffic(seed=43, rate=sizes.rate)
    recording = record(spark, folder, traffic, sizes.seconds, sizes.rows_per_batch, progress)
    kinds: dict[str, tuple[Callable[[int], list[Standing]], tuple[int, ...]]] = {
        "alike_eq": (equalities, sizes.alike),
        "alike_range": (ranges, sizes.alike),
        "unlike": (unlike, sizes.unlike),
    }
    task = progress.add_task("sets of queries", total=sum(len(counts) for _, counts in kinds.values()))
    seconds: dict[str, dict[int, float]] = {}
    for _ in range(2 * sizes.warm_ups):
        # what all sets share is compiled before the first is measured, or the first would be the slowest
        run(spark, recording, [q.sql for q in unlike(1)], folder, sizes.rows_per_batch)
    for kind, (make, counts) in kinds.items():
        seconds[kind] = {}
        for count in counts:
            progress.update(task, description=f"{count} queries, {kind}")
            seconds[kind][count] = _measure(spark, recording, make(count), folder, sizes)
            progress.advance(task)
        shown = ", ".join(f"{count}: {s * 1000:.0f} ms" for count, s in seconds[kind].items())
        note(f"{kind}, a batch of {sizes.rows_per_batch:,} rows by number of queries: {shown}")
    figures = {
        f"{kind}_{count}_over_1": taken / points[1]
        for kind, points in seconds.items()
        for count, taken in points.items()
        if count > 1
    }
    most = max(sizes.alike)
    alike = max(figures[f"alike_eq_{most}_over_1"], figures[f"alike_range_{most}_over_1"])
    times = {
        f"{kind}_{count}_ms": s * 1000 for kind, points in seconds.items() for count, s in points.items()
    }
    return {
        f"alike_{most}_over_1": alike,
        "unlike_growth_over_linear": _growth(seconds["unlike"]),
        **figures,
        **times,
    }


def _growth(seconds: dict[int, float]) -> float:
    """What a query costs in the last step up over what it costs in the first; 1 is linear growth.

    >>> _growth({1: 1.0, 10: 10.0, 100: 55.0})
    0.5
    """
    counts = sorted(seconds)
    slopes = [(seconds[b] - seconds[a]) / (b - a) for a, b in pairwise(counts)]
    return slopes[-1] / slopes[0] if len(slopes) > 1 and slopes[0] > 0 else 1.0


def _measure(
    spark: SparkSession, recording: Recording, chosen: Sequence[Standing], folder: Path, sizes: Sizes
) -> float:
    texts = [query.sql for query in chosen]
    for _ in range(sizes.warm_ups):
        run(spark, recording, texts, folder, sizes.rows_per_batch)
    timed = run(spark, recording, texts, folder, sizes.rows_per_batch)
    if len(timed.batches) < 4:
        raise RuntimeError(f"{len(timed.batches)} batches are too few for a median")
    _check(recording, chosen, timed.answers)
    return timed.steady()


def _check(recording: Recording, chosen: Sequence[Standing], path: Path) -> None:
    """Sums, counts and extremes over all windows are those over all rows."""
    found: dict[str, list[float]] = {}
    with open(path) as lines:
        for line in lines:
            answer = json.loads(line)
            if answer["value"] is not None:
                found.setdefault(answer["query"], []).append(answer["value"])
    step = max(1, len(chosen) // CHECKED)
    checked = [q for q in chosen[::step] if not q.aggregate.startswith("avg")]
    listed = ", ".join(f"'{file}'" for file in recording.files)
    items = ", ".join(f"{q.aggregate} FILTER ({q.where})" for q in checked)
    with duckdb.connect() as connection:
        row = connection.execute(f"SELECT {items} FROM read_parquet([{listed}])").fetchone()
    assert row is not None
    for query, expected in zip(checked, row, strict=True):
        fold = {"max": max, "min": min}.get(query.aggregate[:3], sum)
        value = fold(found[query.name]) if query.name in found else None
        if (value or 0) != (expected or 0):
            raise Disagreement(f"{query.where}: {query.aggregate} is {value} here, {expected} in DuckDB")
