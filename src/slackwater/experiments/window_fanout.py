"""``reproduce window-fanout``: two queries on one stream, dropped together or each by itself, Figure 11.

Both count the same readings, behind a delay that they share, over tumbling windows of 50 and of 100 s; each
has a delay of its own behind its aggregate. ``shared``: the planner joins both drops into one, and windows of
the same time are left out together. ``split``: another priority keeps them apart, each with coins of its own,
and a row is dropped early only where neither query needs it. ``rdrop``: windows are left out behind the
aggregates. Both queries can do without news for 1000 s. What is delivered is the mean of both shares; loads
are worked out as in `window_pipeline`.
"""

from __future__ import annotations

from pathlib import Path

from rich.progress import Progress

from slackwater.experiments.window_burn import Delay, delay, turn_seconds
from slackwater.experiments.window_curves import Promise
from slackwater.experiments.window_estimates import planned
from slackwater.experiments.window_measure import Alternative, Bench, Results, Sizes, runs_of
from slackwater.experiments.window_runs import STREAM, by_executors, sensor
from slackwater.planners.window_needs import points_of
from slackwater.spark.execute import SparkSession

WINDOWS = {"often": 50, "seldom": 100}
"""By query: its tumbling window, in seconds."""
GAPS = {"often": 20, "seldom": 11}
"""As one drop they can miss 10 windows of 100 s. The coins of two drops over stretches of the same length are
shifts of each other: how often both fall alike would be up to the salt. So these stretches differ."""
LOADS = (1.25, 1.5, 1.65, 2.0, 2.5, 3.0, 5.0, 8.0)


FULL = Sizes(seconds=100_000, batches=4, part_s=5.0)
QUICK = Sizes(seconds=10_000, batches=1, part_s=0.3, shares=(0.6, 1.0), thorough=False)


def queries(delays: dict[str, Delay] | None, *, joined: bool) -> str:
    """Both queries; with the same priority their drops can be joined."""
    made = []
    before = "" if delays is None else f" WHERE {delays['before'].test('code')}"
    for number, (name, size) in enumerate(WINDOWS.items(), start=1):
        having = "" if delays is None else f" HAVING {delays[name].test('COUNT(*)')}"
        made.append(
            f"CREATE QUERY {name} AS SELECT COUNT(*) AS n FROM {STREAM}{before} "
            f"GROUP BY window(ts, '{size} seconds'){having} "
            f"WITH SUBSET GAP {GAPS[name]} PRIORITY {1 if joined else number};"
        )
    return "\n".join(made)


def window_fanout(spark: SparkSession, folder: Path, sizes: Sizes, progress: Progress) -> Results:
    """All figures of the experiment."""
    for joined, drops in ((True, 1), (False, 2)):
        found = len(points_of(planned(queries(None, joined=joined)), STREAM))
        assert found == drops, f"the planner set {found} drops, expected {drops}"
    results = Results()
    task = progress.add_task("runs", total=2 + runs_of(3, len(sizes.shares), thorough=sizes.thorough))
    with by_executors(spark):
        turn = turn_seconds(spark)
        delays = {"before": delay(sizes.part_s / sizes.seconds, turn)}
        delays |= {n: delay(sizes.part_s * size / sizes.seconds, turn) for n, size in WINDOWS.items()}
        for name, one in delays.items():
            results.figures[f"calibrated_us.{name}"] = 1e6 * one.seconds
        readings = sensor(spark, folder, sizes.seconds, sizes.batches)
        bench = Bench(spark, folder, readings, lambda: progress.advance(task))
        apart = queries(delays, joined=False)
        alternatives = [
            Alternative("shared", queries(delays, joined=True)),
            Alternative("split", apart),
            Alternative("rdrop", apart, "last"),
        ]
        promises = [Promise(name, GAPS[name], size) for name, size in WINDOWS.items()]
        bench.warm_up(alternatives[0], promises)
        measured = bench.measure(alternatives, promises, sizes.shares, thorough=sizes.thorough)
    results.figures |= measured.figures(LOADS)
    results.series = {"points": measured.series(), "loads": list(LOADS)}
    return results
