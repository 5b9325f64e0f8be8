"""``reproduce window-size`` and ``window-slide``: how much must be dropped, Figures 12 and 13 of the paper.

One count with a delay of the same cost before and behind it: for each reading, and for each window. The share
of windows that must be left out at an excess is measured as in `window_pipeline`: the whole stream is run at
a grid of shares, and between runs is interpolated; 1 means that the gap does not allow as much, and the query
is given up. Beside it stands what the paper's formulas estimate from measured costs, and what exact counts
of the schedule do (`window_estimates`). Sizes and slides are seconds of the stream, each with one reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.progress import Progress

from slackwater.experiments.window_burn import Delay, delay, turn_seconds
from slackwater.experiments.window_curves import Measurement, Promise, delivered_at
from slackwater.experiments.window_estimates import Costs, Shape, exact_drop, formula_drop
from slackwater.experiments.window_measure import Alternative, Bench, Results, runs_of
from slackwater.experiments.window_runs import STREAM, by_executors, sensor
from slackwater.planners.ruling import FixedRates
from slackwater.spark.execute import SparkSession

GAP = 10
QUERY = "q"
LARGEST = 100
"""The size of the windows whose slide is varied."""


@dataclass(frozen=True)
class Sizes:
    """How much is run."""

    seconds: int
    batches: int
    part_s: float
    """Executor seconds of a delay that every second meets, over the whole stream."""
    sizes: tuple[int, ...] = (20, 40, 60, 80, 100)
    slides: tuple[int, ...] = (1, 10, 50, 100)
    excess: tuple[int, ...] = (25, 50, 75, 100)
    """Percent of the capacity that comes on top of it; of the sizes the first alone is looked at."""
    shares_by_size: tuple[float, ...] = (0.15, 0.3, 0.45)
    shares_by_slide: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)
    thorough: bool = True


FULL = Sizes(seconds=40_000, batches=3, part_s=7.0)
QUICK = Sizes(
    seconds=2_000,
    batches=1,
    part_s=0.2,
    sizes=(100,),
    slides=(1, 100),
    shares_by_size=(0.5,),
    shares_by_slide=(1.0,),
    thorough=False,
)


@dataclass
class Shares(Results):
    """Its series are, by kind and way, pairs of a window and the share that must be dropped."""

    def note(self, way: str, kind: str, at: int, share: float) -> None:
        self.figures[f"drop.{way}.{kind}.{at}"] = share
        self.series.setdefault(kind, {}).setdefault(way, []).append((at, share))


def sql(shape: Shape, before: Delay | None, behind: Delay | None) -> str:
    """The query of a shape with its delays."""
    where = "" if before is None else f" WHERE {before.test('code')}"
    having = "" if behind is None else f" HAVING {behind.test('COUNT(*)')}"
    window = f"window(ts, '{shape.size} seconds', '{shape.slide} seconds')"
    return (
        f"CREATE QUERY {QUERY} AS SELECT COUNT(*) AS n FROM {STREAM}{where} GROUP BY {window}{having} "
        f"WITH SUBSET GAP {shape.gap};"
    )


@dataclass(frozen=True)
class Setting:
    """The stream, the delay that stands before and behind every aggregate, and what it was found to cost."""

    bench: Bench
    delay: Delay
    costs: Costs
    fixed: float
    """Seconds for a reading that go whatever is dropped: what exact counts have for the aggregate's own."""

    def measured(
        self, shape: Shape, shares: Sequence[float], *, thorough: bool, random: bool = False
    ) -> Measurement:
        """The runs of one shape; ``random``: dropped behind the aggregate."""
        way = Alternative("run", sql(shape, self.delay, self.delay), "last" if random else "needed")
        return self.bench.measure([way], [Promise(QUERY, GAP, shape.slide)], shares, thorough=thorough)

    def note(
        self, results: Shares, kind: str, at: int, shape: Shape, load: float, found: Measurement
    ) -> None:
        """What must be dropped: by the runs, by the formulas and by exact counts."""
        results.note("measured", kind, at, 1.0 - delivered_at(found.curves["run"], load))
        results.note("formula", kind, at, formula_drop(shape, self.costs, load))
        costs = Costs(self.costs.before, 0.0, self.costs.after)
        results.note("exact", kind, at, exact_drop(shape, costs, load, self.fixed))


def window_size(spark: SparkSession, folder: Path, sizes: Sizes, progress: Progress) -> Shares:
    """How much must be dropped by the size of the window, for tumbling ones and for those of slide 1."""
    runs = 2 * len(sizes.sizes) * runs_of(1, len(sizes.shares_by_size), thorough=sizes.thorough)
    results, load = Shares(), 1 + sizes.excess[0] / 100
    with by_executors(spark):
        setting = _setting(spark, folder, sizes, progress, results, runs)
        for size in sizes.sizes:
            for kind, slide in (("tumbling", size), ("sliding", 1)):
                shape = Shape(size, slide, GAP)
                found = setting.measured(shape, sizes.shares_by_size, thorough=sizes.thorough)
                setting.note(results, kind, size, shape, load, found)
                _add_faults(results, found)
    return results


def window_slide(spark: SparkSession, folder: Path, sizes: Sizes, progress: Progress) -> Shares:
    """How much must be dropped by the slide of windows of 100 s, at several excesses.

    At slides of 1 and of 100 a random drop behind the aggregate is measured too.
    """
    ends = (min(sizes.slides), max(sizes.slides))
    times = len(sizes.slides) + len(ends)
    runs = times * runs_of(1, len(sizes.shares_by_slide), thorough=sizes.thorough)
    results = Shares()
    with by_executors(spark):
        setting = _setting(spark, folder, sizes, progress, results, runs)
        for slide in sizes.slides:
            shape = Shape(LARGEST, slide, GAP)
            found = setting.measured(shape, sizes.shares_by_slide, thorough=sizes.thorough)
            _add_faults(results, found)
            for excess in sizes.excess:
                setting.note(results, f"excess{excess}", slide, shape, 1 + excess / 100, found)
            if slide not in ends:
                continue
            behind = setting.measured(shape, sizes.shares_by_slide, thorough=sizes.thorough, random=True)
            _add_faults(results, behind)
            for excess in sizes.excess:
                share = 1.0 - delivered_at(behind.curves["run"], 1 + excess / 100)
                results.note("rdrop", f"excess{excess}", slide, share)
    return results


def _setting(
    spark: SparkSession, folder: Path, sizes: Sizes, progress: Progress, results: Shares, runs: int
) -> Setting:
    """The stream and the delay; costs come from runs without delays, with the first, and with both."""
    task = progress.add_task("runs", total=runs + 5)
    turn = turn_seconds(spark)
    held = delay(sizes.part_s / sizes.seconds, turn)
    readings = sensor(spark, folder, sizes.seconds, sizes.batches)
    bench = Bench(spark, folder, readings, lambda: progress.advance(task))
    shape = Shape(LARGEST, 1, GAP)
    both = sql(shape, held, held)
    bench.warm_up(Alternative("run", both), [Promise(QUERY, GAP, 1)])
    bare, first, whole = (
        bench.run(text, [QUERY], FixedRates())
        for text in (sql(shape, None, None), sql(shape, held, None), both)
    )
    rows, windows = readings.rows, len(whole.answers[QUERY].end)
    before, behind = (first.seconds - bare.seconds) / rows, (whole.seconds - first.seconds) / windows
    fixed = bare.seconds / rows
    figures = {"before": before, "within": fixed, "behind": behind, "calibrated": held.seconds}
    results.figures |= {f"cost_us.{name}": 1e6 * seconds for name, seconds in figures.items()}
    results.figures |= {"wrong_answers": 0, "gap_violations": 0}
    return Setting(bench, held, Costs(before, fixed, behind), fixed)


def _add_faults(results: Shares, found: Measurement) -> None:
    results.figures["wrong_answers"] += found.wrong
    results.figures["gap_violations"] += found.violations
