"""``reproduce sampling-load``: error against load, Figure 4 of the sampling paper.

For each workload a run without shedding gives the truth and the costs; then at every load the same stream is
run with tuples dropped at the input alone, with the paper's split, and with ours, all planned with the same
costs. The truth of another kind, the answers of many salts at the rates of a run, comes from its replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from rich.progress import Progress

from slackwater.benchmarks.report import note
from slackwater.experiments.accuracy import accuracy, compared_ends
from slackwater.experiments.coverage import check_faithful, repeat
from slackwater.experiments.packets import (
    Landed,
    generated_packets,
    has_real_packets,
    landed,
    real_packets,
)
from slackwater.experiments.replica import Stream, stream_of
from slackwater.experiments.runs import INPUT, OURS, PAPER, STRATEGIES, Ints, Run, governor, run
from slackwater.experiments.workload import Workload, workloads
from slackwater.spark.execute import SparkSession

SEED = 1
SALT = 1
UNSHED = 1.0
"""The load at which nothing is shed."""


@dataclass(frozen=True)
class Sizes:
    """How much is run."""

    seconds: int
    rows_per_batch: int
    loads: tuple[int, ...] = (2, 3, 5, 7, 10)
    prefixes: int = 4000
    rate: float = 1600.0
    """Of generated packets."""
    covered: tuple[int, ...] = (2, 5, 10)
    """Loads at which coverage is looked at."""
    salts: int = 1000
    salts_of_errors: int = 100


FULL = Sizes(seconds=780, rows_per_batch=48_000)
QUICK = Sizes(
    seconds=320,
    rows_per_batch=18_000,
    loads=(3,),
    prefixes=200,
    rate=100.0,
    covered=(3,),
    salts=3,
    salts_of_errors=2,
)


@dataclass
class Results:
    """Figures by name, and the points of the plot."""

    figures: dict[str, float] = field(default_factory=dict)
    curves: dict[str, dict[str, list[tuple[float, float, float]]]] = field(default_factory=dict)
    """By workload and strategy: load, average error and worst error."""

    def ratio(self, average: str, above: str, below: str, load: int) -> float:
        """Between the averages of two strategies; ``average`` says which."""
        found = self.figures
        return found[f"{average}.{above}.{load}"] / max(found[f"{average}.{below}.{load}"], 1e-12)


def packets_for(data: Path | None, sizes: Sizes) -> tuple[pa.Table, bool]:
    """The stream, and whether it is real."""
    if data is not None and has_real_packets(data):
        return real_packets(data, sizes.seconds, SEED), True
    return generated_packets(sizes.seconds, sizes.rate, SEED), False


def sampling_load(
    spark: SparkSession, folder: Path, data: Path | None, sizes: Sizes, progress: Progress
) -> Results:
    """All figures of the experiment."""
    packets, real = packets_for(data, sizes)
    stream = landed(spark, packets, folder, sizes.rows_per_batch)
    results = Results({"real_packets": int(real), "packets": packets.num_rows})
    both = workloads(packets, sizes.prefixes, SEED)
    total = len(both) * (1 + len(sizes.loads) * len(STRATEGIES))
    task = progress.add_task("runs", total=total)
    for workload in both.values():
        _workload(spark, folder, stream, workload, sizes, results, lambda: progress.advance(task))
    _headlines(results, sizes.loads)
    return results


def _workload(
    spark: SparkSession,
    folder: Path,
    landed: Landed,
    workload: Workload,
    sizes: Sizes,
    results: Results,
    advance: object,
) -> None:
    assert callable(advance)
    name, ends = workload.name, compared_ends(landed, workload)
    whole = run(spark, landed, workload, folder, governor(spark, OURS, UNSHED), salt=SALT)
    assert not any(r.thresholds for r in whole.governor.rulings), "the run for the truth was shed"
    stream = stream_of(landed, workload)
    advance()
    results.figures[f"{name}.seconds_compared"] = len(ends)
    curves = results.curves.setdefault(name, {s.name: [(UNSHED, 0.0, 0.0)] for s in STRATEGIES})
    for load in sizes.loads:
        for strategy in STRATEGIES:
            ruler = governor(spark, strategy, float(load), whole.governor)
            shed = run(spark, landed, workload, folder, ruler, salt=SALT)
            found = accuracy(shed.answers, whole.answers, ends)
            curves[strategy.name].append((float(load), found.average, found.worst))
            place = f"{strategy.name}.{load}"
            results.figures[f"{name}.average.{place}"] = found.average
            results.figures[f"{name}.worst.{place}"] = found.worst
            results.figures[f"{name}.spent.{place}"] = shed.spent / whole.spent
            note(
                f"{name}, {load} times the capacity, {strategy.name}: error {found.average:.2%}, "
                f"at worst {found.worst:.2%}; spent {shed.spent / whole.spent:.2f}"
            )
            check_faithful(shed, strategy, stream, SALT, ends)
            again = repeat(shed, strategy, stream, whole.answers, ends, sizes.salts_of_errors)
            results.figures[f"{name}.replicated.average.{place}"] = again.average
            results.figures[f"{name}.replicated.worst.{place}"] = again.worst
            if strategy is OURS and load in sizes.covered:
                _coverage(shed, stream, whole, ends, sizes.salts, f"{name}.{load}", results)
            advance()


def _coverage(
    shed: Run, stream: Stream, whole: Run, ends: Ints, salts: int, place: str, results: Results
) -> None:
    repeated = repeat(shed, OURS, stream, whole.answers, ends, salts)
    for query, share in repeated.coverage.items():
        results.figures[f"coverage.{place}.{query}"] = share
    key = "coverage_shortfall.max"
    results.figures[key] = max(repeated.shortfall, results.figures.get(key, -1.0))


def _headlines(results: Results, loads: Sequence[int]) -> None:
    """The figures that the experiment is about, from all the others."""
    figures = results.figures
    for load in loads:
        for kind in ("network", "cheap"):
            for other in (INPUT.name, OURS.name):
                # one draw says little: its windows overlap, so that an error stays for minutes
                ratio = results.ratio(f"{kind}.replicated.average", other, PAPER.name, load)
                figures[f"{kind}.{other}_over_paper.{load}"] = ratio
                once = results.ratio(f"{kind}.average", other, PAPER.name, load)
                figures[f"{kind}.one_run.{other}_over_paper.{load}"] = once
        figures[f"network.ours_error.{load}"] = figures[f"network.replicated.average.ours.{load}"]
    for kind in ("cheap", "cheap.one_run"):
        figures[f"{kind}.ours_over_paper.max"] = max(
            figures[f"{kind}.ours_over_paper.{load}"] for load in loads
        )
