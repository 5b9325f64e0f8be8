"""The deferral experiments at small sizes: they run with and without real data, and write what pages need."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from rich.progress import Progress
from typer.testing import CliRunner

from slackwater.experiments import deferral_data, deferral_scale, page
from slackwater.experiments.app import reproduce
from slackwater.experiments.deferral_simulation import optimum

SIMULATED = ("deferral-fidelity", "deferral-evaluations", "deferral-interruption")


def ran(name: str, folder: Path) -> dict[str, float]:
    file = folder / f"{name}.json"
    result = CliRunner().invoke(
        reproduce, [name, "--quick", "--json", str(file), "--plot", str(folder / f"{name}.svg")]
    )
    assert result.exit_code == 0, result.output
    assert "<svg" in (folder / f"{name}.svg").read_text()
    return json.loads(file.read_text())["figures"]


@pytest.mark.parametrize("name", SIMULATED)
def test_an_experiment_gives_the_figures_that_it_is_for(name: str, tmp_path: Path):
    figures = ran(name, tmp_path)
    wanted = {
        "deferral-fidelity": [f"{k}.{s}.{p}" for k in ("avg", "max") for s in ("prices", "sensors") for p in (95, 90, 85)],
        "deferral-evaluations": [f"{n}.{p}" for n in ("ours_over_paper", "ours_over_optimum", "fidelity") for p in (95, 90, 85)],
        "deferral-interruption": ["coverage.2", "coverage.3"],
    }[name]  # fmt: skip
    assert set(wanted) <= figures.keys()
    assert all(np.isfinite(figures[figure]) for figure in wanted)


def test_the_scale_is_measured_through_the_pipeline(spark, tmp_path: Path):
    with Progress(disable=True) as shown:
        figures = deferral_scale.deferral_scale(spark, tmp_path, deferral_scale.QUICK, shown).figures
    for n in deferral_scale.QUICK.queries:
        assert figures[f"delivered.naive.{n}"] == n
        for scheme in ("naive", "deferred"):
            assert 0 <= figures[f"missed.{scheme}.{n}"] <= 1


def test_without_real_data_it_is_generated(tmp_path: Path):
    for source in (deferral_data.prices, deferral_data.sensors, deferral_data.buoys):
        made = source(500, folder=tmp_path)
        assert not made.real
        assert made.values.shape[0] == 500
        assert np.isfinite(made.values).all()


def test_every_stream_of_the_scale_has_moves_of_its_own():
    made = deferral_scale.moves(40, 25)
    assert made.shape == (25, 40)
    assert len(np.unique(made.round(12), axis=1).T) >= 25, "some markets are closed for a while"


def test_the_optimum_is_the_fewest_evaluations():
    values = np.concatenate([np.zeros(deferral_data.WARM_UP), [0, 1, 2, 1, 0, 5]])[:, None]
    assert optimum(values, [1.0, 2.0, 10.0]).tolist() == [[4, 2, 1]]


def test_a_page_asks_for_no_figure_that_its_experiments_do_not_give(tmp_path: Path):
    template = (Path(page.__file__).parent / "deferral.template.md").read_text()
    asked = {(m[0], m[1]) for m in re.findall(r"\{([a-z-]+):([^}:]+)(?::[^}]+)?\}", template)}
    results = Path(__file__).resolve().parents[1] / "docs" / "results"
    for name, figure in sorted(asked):
        file = results / f"{name}.json"
        assert file.exists(), name
        assert figure in json.loads(file.read_text())["figures"], f"{name} has no {figure}"
