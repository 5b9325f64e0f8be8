"""``reproduce window-overhead``: what a drop costs that leaves nothing out, Table 4 of the paper.

A count over tumbling windows behind a filter is run without a drop (``EXACT``), with one at p = 0 as the
system runs it, and with one whose statements look up for every row whether a kept window needs it, though
all are kept: batches that leave nothing out are not tested otherwise. All in turns in one process, so that
whatever else the machine does falls on all. The ratio is that of the throughputs, each that of
the faster half of its rounds: what else there is to do only ever makes them slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.progress import Progress

from slackwater.benchmarks.report import note
from slackwater.experiments.window_curves import typical
from slackwater.experiments.window_measure import Results
from slackwater.experiments.window_runs import STREAM, Outcome, run, sensor
from slackwater.planners.ruling import FixedRates
from slackwater.spark.execute import SparkSession

QUERY = "q"
WAYS = {
    "exact": ("EXACT", FixedRates()),
    "p=0": ("SUBSET GAP 10", FixedRates(drops={QUERY: 0.0})),
    "tested": ("SUBSET GAP 10", FixedRates(always=True)),
}
RATIOS = {"ratio": ("p=0", "wall"), "tested": ("tested", "wall")}
RATIOS |= {"cpu_ratio": ("p=0", "seconds"), "cpu_tested": ("tested", "seconds")}


@dataclass(frozen=True)
class Sizes:
    """How much is run."""

    seconds: int
    rate: int
    """Readings a second."""
    batches: int
    rounds: int
    warming: int
    """Rounds before those: Java compiles what runs often, and each query has code of its own."""
    windows: tuple[int, ...] = (25, 50, 75, 100)
    """Seconds."""
    selectivities: tuple[float, ...] = (1.0, 0.5)


FULL = Sizes(seconds=40_000, rate=400, batches=2, rounds=18, warming=6)
QUICK = Sizes(seconds=4_000, rate=10, batches=1, rounds=1, warming=1, windows=(25, 100), selectivities=(1.0,))


def sql(window: int, selectivity: float, contract: str) -> str:
    """A filtered count; of the readings' codes, which go up to 1000, so many pass."""
    below = round(1000 * selectivity)
    return (
        f"CREATE QUERY {QUERY} AS SELECT COUNT(*) AS n FROM {STREAM} WHERE code < {below} "
        f"GROUP BY window(ts, '{window} seconds') WITH {contract};"
    )


def window_overhead(spark: SparkSession, folder: Path, sizes: Sizes, progress: Progress) -> Results:
    """All figures of the experiment."""
    readings = sensor(spark, folder, sizes.seconds, sizes.batches, rate=sizes.rate)
    kinds = len(sizes.windows) * len(sizes.selectivities)
    task = progress.add_task("runs", total=kinds * (sizes.warming + sizes.rounds) * len(WAYS))
    results = Results({"rows": readings.rows, "wrong_answers": 0})
    for window in sizes.windows:
        for selectivity in sizes.selectivities:
            found: dict[str, list[Outcome]] = {name: [] for name in WAYS}
            for turn in range(sizes.warming + sizes.rounds):
                # each goes first as often as the others
                for name in (list(WAYS) * 2)[turn % len(WAYS) :][: len(WAYS)]:
                    contract, ruler = WAYS[name]
                    text = sql(window, selectivity, contract)
                    found[name].append(run(spark, readings, text, [QUERY], folder, ruler))
                    progress.advance(task)
            timed = {name: outcomes[sizes.warming :] for name, outcomes in found.items()}
            _note(results, f"{window}.{selectivity:g}", timed)
    for kind in RATIOS:
        ratios = [v for name, v in results.figures.items() if name.startswith(f"{kind}.")]
        results.figures[f"{kind}.min"] = min(ratios)
    return results


def _note(results: Results, place: str, found: dict[str, list[Outcome]]) -> None:
    for kind, (way, measure) in RATIOS.items():
        plain, other = (typical([getattr(o, measure) for o in found[name]]) for name in ("exact", way))
        results.figures[f"{kind}.{place}"] = plain / other
    true = found["exact"][0].answers[QUERY]
    for way in ("p=0", "tested"):
        mine = found[way][0].answers[QUERY]
        same = mine.end.tolist() == true.end.tolist() and mine.value.tolist() == true.value.tolist()
        results.figures["wrong_answers"] += not same
    results.series[place] = {
        name: {"wall_s": [o.wall for o in outcomes], "executor_s": [o.seconds for o in outcomes]}
        for name, outcomes in found.items()
    }
    told = ", ".join(f"{kind} {results.figures[f'{kind}.{place}']:.3f}" for kind in RATIOS)
    note(f"windows of {place.replace('.', ' s, selectivity ', 1)}: {told}")
