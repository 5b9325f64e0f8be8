"""The command line of the experiments: ``slackwater reproduce NAME``, one for each figure or table."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import Progress

from slackwater.benchmarks import report
from slackwater.experiments.packets import DATA

if TYPE_CHECKING:
    from slackwater.spark.execute import SparkSession

reproduce = typer.Typer(
    name="reproduce",
    help="The papers' experiments again, on the real pipeline, with their plots.",
    no_args_is_help=True,
    add_completion=False,
)

Json = Annotated[Path | None, typer.Option("--json", help="Write figures and series to this file.")]
Plot = Annotated[Path | None, typer.Option("--plot", help="Draw the plot into this file (.svg).")]
Quick = Annotated[bool, typer.Option("--quick", help="Tiny: checks that it works, shows nothing.")]
Data = Annotated[
    Path, typer.Option("--data", help="Where the real packets are; without them they are generated.")
]
Generated = Annotated[
    bool, typer.Option("--generated", help="Generated packets, even if there are real ones.")
]
Measured = tuple[Mapping[str, float], Mapping[str, Any]]
"""Figures, and the series that the plot is drawn from."""


def _reproduce(
    name: str,
    json: Path | None,
    plot: Path | None,
    draw: Callable[[Mapping[str, Any], Path], None],
    measure: Callable[[SparkSession, Path, Progress], Measured],
) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="slackwater-reproduce-") as folder,
        report.progress() as shown,
        report.spark_session("slackwater-reproduce") as spark,
    ):
        figures, series = measure(spark, Path(folder), shown)
    report.write(f"reproduce {name}", figures, json, series)
    if plot is not None:
        draw(series, plot)


@reproduce.command()
def sampling_load(
    json: Json = None,
    plot: Plot = None,
    quick: Quick = False,
    data: Data = DATA,
    generated: Generated = False,
) -> None:
    """Error against load: dropping at the input, the paper's split and ours, at up to ten capacities."""
    import slackwater.experiments.sampling_load as module
    from slackwater.experiments import plots

    def measure(spark: SparkSession, folder: Path, shown: Progress) -> Measured:
        sizes = module.QUICK if quick else module.FULL
        found = module.sampling_load(spark, folder, None if generated else data, sizes, shown)
        return found.figures, found.curves

    _reproduce("sampling-load", json, plot, plots.plot_load, measure)


@reproduce.command()
def sampling_time(
    json: Json = None,
    plot: Plot = None,
    quick: Quick = False,
    data: Data = DATA,
    generated: Generated = False,
) -> None:
    """Error over time at three times the capacity."""
    import slackwater.experiments.sampling_time as module
    from slackwater.experiments import plots
    from slackwater.experiments.sampling_load import FULL, QUICK

    def measure(spark: SparkSession, folder: Path, shown: Progress) -> Measured:
        sizes = QUICK if quick else FULL
        found = module.sampling_time(spark, folder, None if generated else data, sizes, shown)
        return found.figures, {"seconds": found.seconds, "errors": found.errors}

    _reproduce("sampling-time", json, plot, plots.plot_time, measure)


@reproduce.command()
def sampling_burst(json: Json = None, plot: Plot = None, quick: Quick = False) -> None:
    """A burst and a flood, live: batches keep to their interval, and answers are exact again afterwards."""
    import slackwater.experiments.sampling_burst as module
    from slackwater.experiments import plots

    def measure(spark: SparkSession, folder: Path, shown: Progress) -> Measured:
        found = module.sampling_burst(spark, folder, module.QUICK if quick else module.FULL, shown)
        return found.figures, found.series

    _reproduce("sampling-burst", json, plot, plots.plot_burst, measure)


@reproduce.command()
def window_pipeline(json: Json = None, plot: Plot = None, quick: Quick = False) -> None:
    """Windows dropped behind, between and before nested aggregates: what is delivered, by load."""
    import slackwater.experiments.window_pipeline as module
    from slackwater.experiments import window_plots

    def measure(spark: SparkSession, folder: Path, shown: Progress) -> Measured:
        found = module.window_pipeline(spark, folder, module.QUICK if quick else module.FULL, shown)
        return found.figures, found.series

    _reproduce("window-pipeline", json, plot, window_plots.plot_pipeline, measure)


@reproduce.command()
def window_fanout(json: Json = None, plot: Plot = None, quick: Quick = False) -> None:
    """Windows of two queries on one stream, dropped together, apart, or behind their aggregates."""
    import slackwater.experiments.window_fanout as module
    from slackwater.experiments import window_plots

    def measure(spark: SparkSession, folder: Path, shown: Progress) -> Measured:
        found = module.window_fanout(spark, folder, module.QUICK if quick else module.FULL, shown)
        return found.figures, found.series

    _reproduce("window-fanout", json, plot, window_plots.plot_fanout, measure)


@reproduce.command()
def window_size(json: Json = None, plot: Plot = None, quick: Quick = False) -> None:
    """How many windows must be dropped at an excess of 25 %, by their size."""
    import slackwater.experiments.window_parameters as module
    from slackwater.experiments import window_plots

    def measure(spark: SparkSession, folder: Path, shown: Progress) -> Measured:
        found = module.window_size(spark, folder, module.QUICK if quick else module.FULL, shown)
        return found.figures, found.series

    _reproduce("window-size", json, plot, window_plots.plot_size, measure)


@reproduce.command()
def window_slide(json: Json = None, plot: Plot = None, quick: Quick = False) -> None:
    """How many windows must be dropped at excesses of 25 to 100 %, by their slide."""
    import slackwater.experiments.window_parameters as module
    from slackwater.experiments import window_plots

    def measure(spark: SparkSession, folder: Path, shown: Progress) -> Measured:
        found = module.window_slide(spark, folder, module.QUICK if quick else module.FULL, shown)
        return found.figures, found.series

    _reproduce("window-slide", json, plot, window_plots.plot_slide, measure)


@reproduce.command()
def window_overhead(json: Json = None, plot: Plot = None, quick: Quick = False) -> None:
    """What it costs to test rows for being needed when nothing is dropped."""
    import slackwater.experiments.window_overhead as module
    from slackwater.experiments import window_plots

    def measure(spark: SparkSession, folder: Path, shown: Progress) -> Measured:
        found = module.window_overhead(spark, folder, module.QUICK if quick else module.FULL, shown)
        return found.figures, found.series

    _reproduce("window-overhead", json, plot, window_plots.plot_overhead, measure)


if __name__ == "__main__":
    reproduce()
