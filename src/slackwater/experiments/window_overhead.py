"""``reproduce window-overhead``: what testing rows costs when nothing is dropped, Table 4 of the paper.

A count over tumbling windows behind a filter is run with statements that look up for every row whether a kept
window needs it, though all are kept, and with plain ones; both in turns in one process, so that whatever else
the machine does falls on both. The ratio is that of the throughputs, at the best of all rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.progress import Progress

from slackwater.benchmarks.report import note
from slackwater.experiments.window_measure import Results
from slackwater.experiments.window_runs import STREAM, Outcome, run, sensor
from slackwater.planners.ruling import FixedRates
from slackwater.spark.execute import SparkSession

QUERY = "q"
RULERS = {"plain": FixedRates(), "tested": FixedRates(always=True)}


@dataclass(frozen=True)
class Sizes:
    """How much is run."""

    seconds: int
    rate: int
    """Readings a second."""
    batches: int
    rounds: int
    windows: tuple[int, ...] = (25, 50, 75, 100)
    """Seconds."""
    selectivities: tuple[float, ...] = (1.0, 0.5)


FULL = Sizes(seconds=40_000, rate=400, batches=2, rounds=14)
QUICK = Sizes(seconds=4_000, rate=10, batches=1, rounds=1, windows=(25, 100), selectivities=(1.0,))


def sql(window: int, selectivity: float) -> str:
    """A filtered count; of the readings' codes, which go up to 1000, so many pass."""
    below = round(1000 * selectivity)
    return (
        f"CREATE QUERY {QUERY} AS SELECT COUNT(*) AS n FROM {STREAM} WHERE code < {below} "
        f"GROUP BY window(ts, '{window} seconds') WITH SUBSET GAP 10;"
    )


def window_overhead(spark: SparkSession, folder: Path, sizes: Sizes, progress: Progress) -> Results:
    """All figures of the experiment."""
    readings = sensor(spark, folder, sizes.seconds, sizes.batches, rate=sizes.rate)
    kinds = len(sizes.windows) * len(sizes.selectivities)
    task = progress.add_task("runs", total=kinds * (1 + sizes.rounds) * len(RULERS))
    results = Results({"rows": readings.rows, "wrong_answers": 0})
    for window in sizes.windows:
        for selectivity in sizes.selectivities:
            found: dict[str, list[Outcome]] = {name: [] for name in RULERS}
            for _ in range(1 + sizes.rounds):
                for name, ruler in RULERS.items():
                    text = sql(window, selectivity)
                    found[name].append(run(spark, readings, text, [QUERY], folder, ruler))
                    progress.advance(task)
            _note(results, f"{window}.{selectivity:g}", found)
    for kind in ("ratio", "cpu_ratio"):
        ratios = [v for name, v in results.figures.items() if name.startswith(f"{kind}.")]
        results.figures[f"{kind}.min"] = min(ratios)
    return results


def _note(results: Results, place: str, found: dict[str, list[Outcome]]) -> None:
    # the first of each compiles code
    plain, tested = found["plain"][1:], found["tested"][1:]
    ratio = min(o.wall for o in plain) / min(o.wall for o in tested)
    results.figures[f"ratio.{place}"] = ratio
    results.figures[f"cpu_ratio.{place}"] = min(o.seconds for o in plain) / min(o.seconds for o in tested)
    mine, true = tested[0].answers[QUERY], plain[0].answers[QUERY]
    same = mine.end.tolist() == true.end.tolist() and mine.value.tolist() == true.value.tolist()
    results.figures["wrong_answers"] += not same
    results.series[place] = {
        name: {"wall_s": [o.wall for o in outcomes], "executor_s": [o.seconds for o in outcomes]}
        for name, outcomes in found.items()
    }
    note(f"windows of {place.replace('.', ' s, selectivity ', 1)}: {ratio:.3f} of the throughput")
