"""The command line of the experiments: ``slackwater reproduce NAME``, one for each figure or table."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import import_module
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
    measure: Callable[[Any, Path, Progress], Measured],
    *,
    simulated: bool = False,
) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="slackwater-reproduce-") as folder,
        report.progress() as shown,
        nullcontext() if simulated else report.spark_session("slackwater-reproduce") as spark,
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


@dataclass(frozen=True)
class Experiment:
    """An experiment that takes no options of its own: where it is, and where its plot is drawn."""

    name: str
    help: str
    module: str
    plots: str
    plot: str
    simulated: bool = False
    """Whether it needs no Spark."""


PLAIN = (
    Experiment(
        "sampling-burst",
        "A burst and a flood, live: batches keep to their interval, and answers are exact again afterwards.",
        "sampling_burst",
        "plots",
        "plot_burst",
    ),
    Experiment(
        "window-pipeline",
        "Windows dropped behind, between and before nested aggregates: what is delivered, by load.",
        "window_pipeline",
        "window_plots",
        "plot_pipeline",
    ),
    Experiment(
        "window-fanout",
        "Windows of two queries on one stream, dropped together, apart, or behind their aggregates.",
        "window_fanout",
        "window_plots",
        "plot_fanout",
    ),
    Experiment(
        "window-size",
        "How many windows must be dropped at an excess of 25 %, by their size.",
        "window_parameters",
        "window_plots",
        "plot_size",
    ),
    Experiment(
        "window-slide",
        "How many windows must be dropped at excesses of 25 to 100 %, by their slide.",
        "window_parameters",
        "window_plots",
        "plot_slide",
    ),
    Experiment(
        "window-overhead",
        "What a window drop costs that leaves nothing out.",
        "window_overhead",
        "window_plots",
        "plot_overhead",
    ),
    Experiment(
        "deferral-fidelity",
        "How often a cached answer is within its bound, for averages and maxima of real series.",
        "deferral_fidelity",
        "deferral_plots",
        "plot_fidelity",
        simulated=True,
    ),
    Experiment(
        "deferral-evaluations",
        "Evaluations at the same measured fidelity: all, the paper's, ours and the offline optimum.",
        "deferral_evaluations",
        "deferral_plots",
        "plot_evaluations",
        simulated=True,
    ),
    Experiment(
        "deferral-scale",
        "Evaluations missed by the number of standing queries, up to a million, delivered and not.",
        "deferral_scale",
        "deferral_plots",
        "plot_scale",
    ),
    Experiment(
        "deferral-interruption",
        "Answers while two and three of nine series are silent: how wrong they are, and say they may be.",
        "deferral_interruption",
        "deferral_plots",
        "plot_interruption",
        simulated=True,
    ),
    Experiment(
        "precision-optimal",
        "Adaptive widths on random walks, over the best widths that never change.",
        "precision_optimal",
        "precision_plots",
        "plot_optimal",
        simulated=True,
    ),
    Experiment(
        "precision-hosts",
        "Messages of one average over some 200 hosts, by its constraint: equal, paper's, ours, clairvoyant.",
        "precision_hosts",
        "precision_plots",
        "plot_hosts",
        simulated=True,
    ),
    Experiment(
        "precision-single",
        "Messages of the paper's query Q5 over the packet rates of ten hosts, by its constraint.",
        "precision_single",
        "precision_plots",
        "plot_single",
        simulated=True,
    ),
    Experiment(
        "precision-queries",
        "Messages of five queries that overlap, over measurement groups, by their constraint.",
        "precision_queries",
        "precision_plots",
        "plot_queries",
        simulated=True,
    ),
    Experiment(
        "precision-aggregation",
        "Objects by measurement group or by query, and the choice between them from measured cost.",
        "precision_aggregation",
        "precision_plots",
        "plot_aggregation",
        simulated=True,
    ),
    Experiment(
        "precision-latency",
        "Updates that a hub receives later than a tolerance, by the tolerance, from ten to 300 agents.",
        "precision_latency",
        "precision_plots",
        "plot_latency",
        simulated=True,
    ),
    Experiment(
        "precision-tuning",
        "Period and shrink fitted to the data, over those that stay: how many messages.",
        "precision_tuning",
        "precision_plots",
        "plot_tuning",
        simulated=True,
    ),
    Experiment(
        "precision-leniency",
        "Means over sliding windows: bounds of means at the agents, over δ at all times.",
        "precision_leniency",
        "precision_plots",
        "plot_leniency",
        simulated=True,
    ),
    Experiment(
        "precision-live",
        "200 agents, a hub, Spark and seven queries, each killed in turn: answers against the truth.",
        "precision_live",
        "precision_plots",
        "plot_live",
        simulated=True,
    ),
    Experiment(
        "precision-solver",
        "Seconds for one adjustment of widths, up to 10,000 queries over a million objects.",
        "precision_solver",
        "precision_plots",
        "plot_solver",
        simulated=True,
    ),
)


def _command(experiment: Experiment) -> None:
    """Add an experiment to the command line; it is imported when it is run, since that takes a while."""

    def command(json: Json = None, plot: Plot = None, quick: Quick = False) -> None:
        module = import_module(f"slackwater.experiments.{experiment.module}")
        plots = import_module(f"slackwater.experiments.{experiment.plots}")
        run = getattr(module, experiment.name.replace("-", "_"))

        def measure(spark: SparkSession, folder: Path, shown: Progress) -> Measured:
            found = run(spark, folder, module.QUICK if quick else module.FULL, shown)
            return found.figures, found.series

        draw = getattr(plots, experiment.plot)
        _reproduce(experiment.name, json, plot, draw, measure, simulated=experiment.simulated)

    reproduce.command(experiment.name, help=experiment.help)(command)


for _experiment in PLAIN:
    _command(_experiment)


if __name__ == "__main__":
    reproduce()
