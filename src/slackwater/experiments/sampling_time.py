"""``reproduce sampling-time``: error over time at three times the capacity, Figure 5 of the paper."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from rich.progress import Progress

from slackwater.benchmarks.workload import SECOND
from slackwater.experiments.accuracy import accuracy, compared_ends
from slackwater.experiments.packets import landed
from slackwater.experiments.runs import OURS, STRATEGIES, governor, run
from slackwater.experiments.sampling_load import SALT, SEED, UNSHED, Sizes, packets_for
from slackwater.experiments.workload import workloads
from slackwater.spark.execute import SparkSession

LOAD = 3


@dataclass
class Results:
    """Figures by name, and the largest error second by second."""

    figures: dict[str, float] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    """After the beginning of the stream."""
    errors: dict[str, list[float]] = field(default_factory=dict)
    """By strategy."""


def sampling_time(
    spark: SparkSession, folder: Path, data: Path | None, sizes: Sizes, progress: Progress
) -> Results:
    """All figures of the experiment."""
    packets, real = packets_for(data, sizes)
    stream = landed(spark, packets, folder, sizes.rows_per_batch)
    workload = workloads(packets, sizes.prefixes, SEED)["network"]
    ends = compared_ends(stream, workload)
    task = progress.add_task("runs", total=1 + len(STRATEGIES))
    whole = run(spark, stream, workload, folder, governor(spark, OURS, UNSHED), salt=SALT)
    progress.advance(task)
    results = Results({"real_packets": int(real), "seconds_compared": len(ends)})
    results.seconds = [float(e - stream.begins) / SECOND for e in ends]
    for strategy in STRATEGIES:
        ruler = governor(spark, strategy, float(LOAD), whole.governor)
        shed = run(spark, stream, workload, folder, ruler, salt=SALT)
        found = accuracy(shed.answers, whole.answers, ends)
        results.errors[strategy.name] = [float(e) for e in found.largest]
        low, high = sorted(found.largest)[len(ends) // 20], sorted(found.largest)[-1 - len(ends) // 20]
        results.figures[f"average.{strategy.name}"] = found.average
        results.figures[f"worst.{strategy.name}"] = found.worst
        results.figures[f"from.{strategy.name}"] = float(low)
        results.figures[f"to.{strategy.name}"] = float(high)
        results.figures[f"spent.{strategy.name}"] = shed.spent / whole.spent
        progress.advance(task)
    return results
