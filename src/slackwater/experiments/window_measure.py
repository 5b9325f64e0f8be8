"""Ways to drop windows, measured: each share of windows that is left out is a run, checked and timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from slackwater.benchmarks.report import note
from slackwater.experiments.window_curves import Measurement, Point, Promise, checked
from slackwater.experiments.window_runs import Outcome, Sensor, run
from slackwater.planners.ruling import FixedRates
from slackwater.planners.window_schedule import Placing
from slackwater.spark.execute import SparkSession


@dataclass(frozen=True)
class Sizes:
    """How much is run of a query in three parts."""

    seconds: int
    """Of the stream, with one reading each."""
    batches: int
    part_s: float
    """Executor seconds of each of the three delays over the whole stream."""
    shares: tuple[float, ...] = (0.2, 0.4, 0.6, 0.75, 0.85, 1.0)
    """Of windows; the gap allows 10/11 at most."""
    thorough: bool = True


@dataclass
class Results:
    """Figures by name, and what the plot is drawn from."""

    figures: dict[str, float] = field(default_factory=dict)
    series: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Alternative:
    """A way to drop: the queries as they are declared, and where drops stand in their plan."""

    name: str
    queries: str
    placing: Placing = "needed"


@dataclass(frozen=True)
class Bench:
    """A stream that all alternatives are run over."""

    spark: SparkSession
    folder: Path
    readings: Sensor
    advance: Callable[[], None] = lambda: None
    """Called after every run."""

    def run(self, queries: str, names: Sequence[str], ruler: FixedRates) -> Outcome:
        found = run(self.spark, self.readings, queries, names, self.folder, ruler)
        self.advance()
        return found

    def left_out(self, alternative: Alternative, names: Sequence[str], share: float) -> Outcome:
        """A run that leaves out a share of the windows."""
        ruler = FixedRates(drops=dict.fromkeys(names, share), placing=alternative.placing)
        return self.run(alternative.queries, names, ruler)

    def warm_up(self, alternative: Alternative, promises: Sequence[Promise]) -> None:
        """Run the texts with and without tests once: until code is compiled, it is several times slower."""
        names = [promise.query for promise in promises]
        self.run(alternative.queries, names, FixedRates())
        self.left_out(alternative, names, 0.5)

    def measure(
        self,
        alternatives: Sequence[Alternative],
        promises: Sequence[Promise],
        shares: Sequence[float],
        *,
        thorough: bool = True,
    ) -> Measurement:
        """All alternatives at all shares, beside runs without drops.

        ``thorough``: there is one before and after each, and its seconds are what it takes of the mean of
        both: the machine may be faster at one time than at another. An alternative's first run does not
        count, since it has code of its own.
        """
        names = [promise.query for promise in promises]
        wholes: list[Outcome] = []
        parts: dict[str, list[float]] = {alternative.name: [] for alternative in alternatives}
        measured = Measurement({alternative.name: [] for alternative in alternatives})
        for alternative in alternatives:
            if thorough:
                self.left_out(alternative, names, shares[0])
            if thorough or not wholes:
                wholes.append(self.run(alternative.queries, names, FixedRates()))
            for share in shares:
                beside = [wholes[-1].seconds]
                found = self.left_out(alternative, names, share)
                if thorough:
                    wholes.append(self.run(alternative.queries, names, FixedRates()))
                    beside.append(wholes[-1].seconds)
                check = checked(found.answers, wholes[0].answers, promises)
                measured.add(alternative.name, share, check, found.seconds)
                parts[alternative.name].append(found.seconds / mean(beside))
                note(
                    f"{alternative.name}, {share:.2f} to be left out: {check.delivered:.3f} delivered, "
                    f"{parts[alternative.name][-1]:.3f} of the seconds"
                )
        seconds = median(whole.seconds for whole in wholes)
        for name, points in measured.curves.items():
            points[:] = [
                replace(p, seconds=part * seconds) for p, part in zip(points, parts[name], strict=True)
            ]
            points.insert(0, Point(0.0, 1.0, seconds))
        return measured


def runs_of(alternatives: int, shares: int, *, thorough: bool = True) -> int:
    """How many runs a measurement takes."""
    return alternatives * (2 + 2 * shares) if thorough else 1 + alternatives * shares
