"""``reproduce window-pipeline``: where a drop stands in a nested query, Figure 10 of the window drop paper.

A view counts readings over tumbling windows of 10 s, a query counts the view's rows over windows of 100 s.
Three delays of about the same cost stand before, between and behind the two. Windows are left out behind
everything (``rdrop``), between the aggregates (``nested1``) or at the input (``nested2``).

The load is not played, it is worked out: for every alternative and a grid of shares the whole stream is run,
and the executor seconds of all its jobs are counted. At a load L, the input rate over the capacity, a run may
take 1/L of the seconds without drops; the delivered share is that of the least drop which fits, interpolated
between the measured points, and 0 where none fits (`window_curves.delivered_at`). Every delivered answer is
compared with that of the run without drops, and every run of missing windows with the gap.

The second workload nests windows that overlap. There the paper's window, the worst case of an aggregate that
starts a window at every time there is, keeps rows that no kept window needs; the exact needs do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.progress import Progress

from slackwater.experiments.window_burn import Delay, delay, turn_seconds
from slackwater.experiments.window_curves import Measurement, Promise, delivered_at
from slackwater.experiments.window_estimates import kept, planned
from slackwater.experiments.window_measure import Alternative, Bench, Results, Sizes, runs_of
from slackwater.experiments.window_runs import STREAM, by_executors, sensor
from slackwater.planners.window_schedule import Placing
from slackwater.spark.execute import SparkSession

GAP = 10
LOADS = (1.25, 1.5, 1.65, 2.0, 3.0, 5.0, 8.0, 10.0)
THEORY = 0.9
"""The share at which kept rows are counted without running anything."""
QUERY = "full"
PARTS = ("before", "between", "behind")
PLACED: Mapping[str, Placing] = {
    "rdrop": "last",
    "nested1": "first",
    "nested2": "needed",
    "conservative": "conservative",
}
"""Where windows are left out, by alternative."""


FULL = Sizes(seconds=100_000, batches=4, part_s=5.0)
QUICK = Sizes(seconds=10_000, batches=1, part_s=0.3, shares=(1.0,), thorough=False)


@dataclass(frozen=True)
class Nest:
    """A window within a window, by size and slide in seconds."""

    inner: tuple[int, int]
    outer: tuple[int, int]

    def rates(self) -> tuple[float, float, float]:
        """How often each delay is met, for a reading."""
        return 1.0, 1 / self.inner[1], 1 / self.outer[1]

    def sql(self, delays: Sequence[Delay] | None = None) -> str:
        """Both steps. A row that is missing anywhere shows: its inner window is not full, and not counted."""
        before, between, behind = (
            (f" WHERE {delays[0].test('code')}", f" AND {delays[1].test('n')}", delays[2].test("COUNT(*)"))
            if delays is not None
            else ("", "", "true")
        )
        inner, outer = (f"window(ts, '{a} seconds', '{b} seconds')" for a, b in (self.inner, self.outer))
        return (
            f"CREATE VIEW counted AS SELECT COUNT(*) AS n FROM {STREAM}{before} GROUP BY {inner};\n"
            f"CREATE QUERY {QUERY} AS SELECT COUNT(*) AS n FROM counted WHERE n >= {self.inner[0]}{between} "
            f"GROUP BY {outer} HAVING {behind} WITH SUBSET GAP {GAP};"
        )


TUMBLING = Nest((10, 10), (100, 100))
OVERLAPPING = Nest((90, 60), (120, 120))


def delays_of(nest: Nest, sizes: Sizes, turn: float) -> list[Delay]:
    """Three delays that take as long as each other over the whole stream."""
    return [delay(sizes.part_s / (sizes.seconds * rate), turn) for rate in nest.rates()]


def window_pipeline(spark: SparkSession, folder: Path, sizes: Sizes, progress: Progress) -> Results:
    """All figures of the experiment."""
    results = Results()
    task = progress.add_task("runs", total=None)
    with by_executors(spark):
        turn = turn_seconds(spark)
        for name, one in zip(PARTS, delays_of(TUMBLING, sizes, turn), strict=True):
            results.figures[f"calibrated_us.{name}"] = 1e6 * one.seconds
        tumbling = _alternatives(TUMBLING, sizes, turn, ("rdrop", "nested1", "nested2"))
        overlapping = _alternatives(OVERLAPPING, sizes, turn, ("nested2",))
        runs = [
            runs_of(len(ways), len(sizes.shares), thorough=sizes.thorough) for ways in (tumbling, overlapping)
        ]
        progress.update(task, total=2 + sum(runs))
        readings = sensor(spark, folder, sizes.seconds, sizes.batches)
        bench = Bench(spark, folder, readings, lambda: progress.advance(task))
        bench.warm_up(tumbling[-1], [Promise(QUERY, GAP, TUMBLING.outer[1])])
        pair, nested = (
            bench.measure(ways, [Promise(QUERY, GAP, nest.outer[1])], sizes.shares, thorough=sizes.thorough)
            for ways, nest in ((tumbling, TUMBLING), (overlapping, OVERLAPPING))
        )
    results.figures |= pair.figures(LOADS)
    results.figures["wrong_answers"] += nested.wrong
    results.figures["gap_violations"] += nested.violations
    _compare_needs(results, "", pair, TUMBLING)
    _compare_needs(results, "nested.", nested, OVERLAPPING)
    results.series = {"tumbling": pair.series(), "overlapping": nested.series(), "loads": list(LOADS)}
    return results


def _alternatives(nest: Nest, sizes: Sizes, turn: float, names: Sequence[str]) -> list[Alternative]:
    """Those that are named, and the paper's window where it keeps other rows than the exact needs do."""
    sql, plan = nest.sql(delays_of(nest, sizes, turn)), planned(nest.sql())
    alike = all(
        kept(plan, QUERY, share).rows == kept(plan, QUERY, share, "conservative").rows
        for share in sizes.shares
    )
    chosen = [*names] if alike else [*names, "conservative"]
    return [Alternative(name, sql, PLACED[name]) for name in chosen]


def _compare_needs(results: Results, prefix: str, found: Measurement, nest: Nest) -> None:
    """What exact needs deliver over what the paper's window does, and the rows that either keeps."""
    exact = found.curves["nested2"]
    # the same rows are the same run: it is measured once
    paper = found.curves.get("conservative", exact)
    figures = results.figures
    for load in LOADS:
        ours, theirs = delivered_at(exact, load), delivered_at(paper, load)
        figures[f"delivered.{prefix}conservative.{load:g}"] = theirs
        figures[f"delivered.{prefix}nested2.{load:g}"] = ours
        if theirs > 0:
            figures[f"needs_gain.{prefix}{load:g}"] = ours / theirs
    plan = planned(nest.sql())
    counted = kept(plan, QUERY, THEORY)
    figures[f"rows.{prefix}exact"] = counted.rows
    figures[f"rows.{prefix}paper"] = counted.promised
    figures[f"rows.{prefix}conservative"] = kept(plan, QUERY, THEORY, "conservative").rows
    figures[f"rows.{prefix}delivered"] = counted.windows
