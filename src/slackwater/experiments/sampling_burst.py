"""``reproduce sampling-burst``: live, closed loop, Figure 6 of the sampling paper and what it leaves out.

A stream well below capacity, then at three times the capacity, then below again; then ten times the capacity
for hundreds of batches, and plain Structured Streaming on that stream. Windows are a tenth as long as
elsewhere, so that answers, not only batches, are exact again soon after the burst.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from slackwater.benchmarks.harness import Stopwatch
from slackwater.benchmarks.report import note
from slackwater.benchmarks.workload import SECOND
from slackwater.errors import RunError
from slackwater.experiments.accuracy import relative_errors
from slackwater.experiments.bricks import ORIGIN, Bricks, Wall, make_bricks
from slackwater.experiments.live import Batch, Live, live_session, run_live
from slackwater.experiments.packets import HOSTS
from slackwater.experiments.plain import FORMS, plain_streaming
from slackwater.experiments.runs import OURS, Floats, governor
from slackwater.experiments.workload import Workload, workloads
from slackwater.runtime.session import Settings
from slackwater.spark.execute import SparkSession
from slackwater.traffic import Traffic

SEED = 6
SHORTER = 10
"""Windows are so many times shorter than those of the other experiments."""
UTILISATION = Settings().utilisation / 100
WARM = 2
"""The first batches of a run compile code, those of the flood find out what it costs."""
STEADY = 15
"""Batches after a change of the rate before it is looked at as steady."""


@dataclass(frozen=True)
class Sizes:
    """How much is run; densities are bricks a second, a brick being ``part`` of what the capacity is."""

    ramp: tuple[int, ...]
    ramp_rows: float
    """Rows of a brick while the capacity is measured."""
    calm_s: int
    burst_s: int
    flood_s: int
    plain_s: float
    part: float = 0.3
    calm: int = 2
    burst: int = 10
    flood: int = 34
    """34 times 0.3 are a little more than ten times the capacity."""
    prefixes: int = 4000
    interval_ms: int = 1000
    capacity: float | None = None
    """Rows a second, where they are not measured."""


FULL = Sizes(
    ramp=(1, 4, 8, 12, 16) * 7,
    ramp_rows=8000.0,
    calm_s=45,
    burst_s=45,
    flood_s=320,
    plain_s=60.0,
)
QUICK = replace(
    FULL,
    ramp=(1, 2),
    ramp_rows=500.0,
    calm_s=4,
    burst_s=3,
    flood_s=3,
    plain_s=3.0,
    prefixes=60,
    capacity=3000.0,
)


@dataclass
class Results:
    """Figures by name, and the series that the plot shows."""

    figures: dict[str, float] = field(default_factory=dict)
    series: dict[str, Any] = field(default_factory=dict)


def sampling_burst(spark: SparkSession, folder: Path, sizes: Sizes, progress: Progress) -> Results:
    """All figures of the experiment."""
    task = progress.add_task("measuring the capacity", total=None)
    workload, capacity = _capacity(spark, folder, sizes)
    note(f"capacity: {capacity:,.0f} rows a second in {UTILISATION:.0%} of an interval")
    # enough for three batches without a brick twice
    count = -(-3 * sizes.flood * sizes.interval_ms // 1000)
    bricks = make_bricks(folder / "bricks", _traffic(capacity * sizes.part), count)
    density = (
        *[sizes.calm] * sizes.calm_s,
        *[sizes.burst] * sizes.burst_s,
        *[sizes.calm] * sizes.calm_s,
        *[sizes.flood] * sizes.flood_s,
    )
    wall = Wall(bricks, density)
    progress.update(task, description="live", total=len(density), completed=0)
    live = run_live(
        spark,
        wall,
        workload,
        folder / "live",
        sizes.interval_ms,
        lambda batches: progress.update(task, completed=batches),
    )
    progress.update(task, description="plain Structured Streaming", total=None)
    flood = Wall(bricks, (sizes.flood,) * int(sizes.plain_s + 1))
    behind = {
        form: plain_streaming(
            spark, folder / f"plain-{form}", flood, workload, sizes.plain_s, sizes.interval_ms, form
        )
        for form in FORMS
    }
    results = Results({"capacity": capacity, "rows_per_second": sizes.flood * bricks.rows})
    _figures(results, live, wall, workload, sizes)
    begins = 2 * sizes.calm_s + sizes.burst_s
    for form, found in behind.items():
        results.figures[f"plain.{form}.lag_s"] = found.lag_s[-1]
        results.figures[f"plain.{form}.rows_per_second"] = found.done[-1] / sizes.plain_s
        results.series[f"plain.{form}"] = {"at": [begins + t for t in found.at], "lag_s": found.lag_s}
    return results


def _traffic(rate: float) -> Traffic:
    # few periods of silence: density is the wall's business
    return Traffic(seed=SEED, rate=rate, sources=256, on_s=4.0, off_s=1.0, alpha=1.9, hosts=HOSTS)


def _workload(bricks: Bricks, prefixes: int) -> Workload:
    known = workloads(bricks.table(0), prefixes, SEED)["network"]
    shorter = tuple(replace(q, seconds=max(1, q.seconds // SHORTER)) for q in known.queries)
    return replace(known, queries=shorter)


def _capacity(spark: SparkSession, folder: Path, sizes: Sizes) -> tuple[Workload, float]:
    """Rows a second whose batches take the planned part of an interval, nothing being shed, all measured."""
    bricks = make_bricks(folder / "ramp", _traffic(sizes.ramp_rows), max(sizes.ramp))
    workload = _workload(bricks, sizes.prefixes)
    wall, watch = Wall(bricks, sizes.ramp), Stopwatch()
    ruler = governor(spark, OURS, 1.0)
    session = live_session(
        spark, wall, workload, folder / "measuring", Settings(), live=False, ruler=ruler, fault=watch
    )
    session.start()
    try:
        session.wait()
    finally:
        session.stop()
    if sizes.capacity is not None:
        return workload, sizes.capacity
    ends = [lap.committed for lap in watch.laps[:-1]]
    seconds = np.array([after - before for before, after in pairwise(ends)])
    # the first third is slow for reasons that pass
    settled = np.arange(len(seconds)) >= len(seconds) // 3
    bricks_of = np.array(sizes.ramp[1:])
    steps = np.unique(bricks_of[settled])
    typical = [float(np.median(seconds[settled & (bricks_of == n)])) for n in steps]
    each, once = np.polyfit(steps * bricks.rows, typical, 1)
    interval = sizes.interval_ms / 1000
    if once >= interval * UTILISATION or each <= 0:
        raise RunError(
            f"a batch of hardly any rows takes {once:.2f} s here, more than {UTILISATION:.0%} of an interval "
            f"of {interval:g} s: the machine is too busy for this experiment"
        )
    return workload, float((interval * UTILISATION - once) / each / interval)


def _figures(results: Results, live: Live, wall: Wall, workload: Workload, sizes: Sizes) -> None:
    batches = live.batches
    interval = sizes.interval_ms / 1000
    burst_ends = sizes.calm_s + sizes.burst_s
    flood_begins = burst_ends + sizes.calm_s
    timed = [live.durations.get(i, b.wall) for i, b in enumerate(batches)]
    flood = [i for i, b in enumerate(batches) if b.at >= flood_begins]
    after = [b for b in batches if burst_ends + 1 <= b.at < flood_begins]
    late = [t > interval for t in timed]
    figures = results.figures
    figures["batches"] = len(batches)
    figures["flood.batches"] = len(flood)
    figures["batches_in_time"] = 1 - float(np.mean([late[i] for i in flood[WARM:]] or [False]))
    figures["all.batches_in_time"] = 1 - float(np.mean(late[WARM:]))
    figures["slowest_batch_s"] = max(timed[WARM:])
    figures["batches_to_exact"] = next((i for i, b in enumerate(after) if b.exact), len(after))
    figures["exact_after_burst"] = float(np.mean([b.exact for b in after])) if after else 1.0
    calm = [b for b in batches[WARM:] if b.at < sizes.calm_s]
    figures["exact_before_burst"] = float(np.mean([b.exact for b in calm])) if calm else 1.0
    for name, low, high in (
        ("burst", sizes.calm_s, burst_ends),
        ("flood", flood_begins, len(wall.density)),
    ):
        figures.update(_steadiness(name, [b for b in batches if low + STEADY <= b.at < high]))
    errors = _errors(live, wall, workload)
    for name, low, high in (("burst", sizes.calm_s, burst_ends), ("flood", flood_begins, len(errors))):
        figures[f"{name}.average_error"] = float(np.mean(errors[low:high])) if high > low else 0.0
    exact = np.flatnonzero(errors[burst_ends:flood_begins] == 0)
    figures["seconds_to_exact_answers"] = int(exact[0]) if len(exact) else sizes.calm_s
    results.series["interval_s"] = interval
    for name, low, high in (("burst", 0, flood_begins), ("flood", flood_begins, len(wall.density) + 10)):
        mine = [i for i, b in enumerate(batches) if low <= b.at < high]
        seconds = range(low, min(high, len(errors)))
        results.series[name] = {
            "at": [batches[i].at for i in mine],
            "arrived": [batches[i].arrived for i in mine],
            "rate": [batches[i].rate for i in mine],
            "level": [batches[i].ruling.level for i in mine],
            "share": [batches[i].ruling.share for i in mine],
            "batch_s": [timed[i] for i in mine],
            "lag_s": [batches[i].lag for i in mine],
            "seconds": list(seconds),
            "error": [float(errors[s]) for s in seconds],
        }


def _steadiness(name: str, batches: list[Batch]) -> dict[str, float]:
    """How much the rate moves about while the load stays: an oscillation changes sides at every turn."""
    rates = np.array([b.rate for b in batches])
    if len(rates) < 3:
        return {}
    side = np.sign(rates - rates.mean())
    crossings = float(np.mean(side[1:] != side[:-1]))
    return {
        f"{name}.rate": float(rates.mean()),
        f"{name}.rate_variation": float(rates.std() / rates.mean()),
        f"{name}.rate_crossings": crossings,
    }


def _errors(live: Live, wall: Wall, workload: Workload) -> Floats:
    """By second of the stream: the largest relative error of all queries whose window ends with it."""
    seconds = len(wall.density)
    ends = ORIGIN + (np.arange(seconds, dtype=np.int64) + 1) * SECOND
    worst = np.zeros(seconds)
    for name, each in wall.truth(workload).items():
        length = next(q.seconds for q in workload.queries if q.name == name)
        sums = np.concatenate([[0.0], np.cumsum(each)])
        truth = sums[1:] - sums[np.maximum(np.arange(seconds) + 1 - length, 0)]
        found = live.answers[name]
        there = np.isin(ends, found.end)
        errors = relative_errors(found.at(ends[there]).value, truth[there])
        # a query that was suspended has no answer
        worst[there] = np.maximum(worst[there], np.where(np.isfinite(errors), errors, 1.0))
    return worst
