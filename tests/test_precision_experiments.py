"""The precision experiments at small sizes: what they must show can fail here, with and without real data."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from slackwater.experiments import page, precision_data, precision_solver
from slackwater.experiments.app import reproduce
from slackwater.experiments.precision_aggregation import CASES, by_formula
from slackwater.experiments.precision_hosts import MAIN
from slackwater.experiments.precision_queries import QUICK, from_packets
from slackwater.experiments.precision_schemes import Burden, ByCurves, Granted, Static
from slackwater.experiments.precision_simulation import simulated
from slackwater.experiments.precision_static import Clairvoyant, best_static, sent, walking_curves
from slackwater.planners.precision_constraints import Constraints, Floats, average, constrained, extreme
from slackwater.planners.precision_curves import Curves
from slackwater.planners.precision_grouping import Groups, Priced, chosen, priced
from slackwater.reference.precision import Query
from slackwater.reference.precision_system import System

QUICK_ONES = {
    "precision-optimal": ["curves.max", "burden.max", "curves.all.max", "curves_over_exact.max"],
    "precision-hosts": [
        f"{ratio}.{within}"
        for ratio in ("curves_over_uniform", "curves_over_clairvoyant", "burden_over_uniform")
        for within in (50, 1000)
    ],
    "precision-single": ["curves_over_uniform.generated.2", "burden_over_uniform.generated.2"],
    "precision-queries": ["curves_over_uniform.generated.8", "burden_over_uniform.hosts.100"],
    "precision-aggregation": ["adaptive_over_best.case1", "system.measured_over_never.switching"],
    "precision-latency": ["q5.late.0.4", "q5.fidelity.0.4", "q5.needed", "everything.needed"],
    "precision-tuning": ["curves_over_fixed.walks.60", "burden_over_fitted.walks", "burden_over_fitted.max"],
    "precision-leniency": ["means_over_moments.hosts.50.60", "means_over_moments.generated.60"],
    "precision-solver": ["seconds.1000", "curves_over_program.max"],
}


def ran(name: str, folder: Path) -> dict[str, float]:
    file = folder / f"{name}.json"
    result = CliRunner().invoke(
        reproduce, [name, "--quick", "--json", str(file), "--plot", str(folder / f"{name}.svg")]
    )
    assert result.exit_code == 0, result.output
    assert "<svg" in (folder / f"{name}.svg").read_text()
    return json.loads(file.read_text())["figures"]


@pytest.mark.parametrize("name", QUICK_ONES)
def test_an_experiment_gives_the_figures_that_it_is_for(name: str, tmp_path: Path):
    figures = ran(name, tmp_path)
    assert set(QUICK_ONES[name]) <= figures.keys()
    assert all(np.isfinite(figures[figure]) for figure in QUICK_ONES[name])
    assert figures.get("violations", 0) == 0
    if name == "precision-solver":
        assert figures["curves_over_program.max"] <= 1.02
    if name == "precision-aggregation":
        assert figures["aggregated_over_grouped.case1"] < 0.5
        assert figures["aggregated_over_grouped.case2"] > 1
        assert figures["adaptive_over_best.case1"] < 1.2


def hosts_alike(within: float) -> tuple[Floats, Constraints, Floats]:
    values = precision_data.generated_hosts(1500, 40, seed=4)
    objects = values.shape[1]
    return values, constrained([average(np.arange(objects), within)], objects), np.ones(objects)


def test_curves_send_less_than_equal_widths_where_objects_differ():
    values, constraints, ones = hosts_alike(20.0)
    uniform = simulated(values, constraints, Static(constraints))
    curves = simulated(values, constraints, ByCurves(constraints, ones), placing="following")
    assert curves.violations == uniform.violations == 0
    assert curves.answers == len(values)
    assert curves.a_step(200) < 0.85 * uniform.a_step(200)
    best = Clairvoyant(values).a_step(constraints)
    assert best < uniform.a_step()
    assert Clairvoyant(values).a_step(constraints, may_lean=True) <= best


class _TooWide(Static):
    """Breaks its promise after a while."""

    def adjusted(self, step: int, widths: Floats) -> Granted:
        return Granted(np.array([0]), np.array([widths.sum() * 2]))


def test_a_scheme_that_breaks_its_promise_is_caught():
    values, constraints, _ = hosts_alike(20.0)
    assert simulated(values[:50], constraints, _TooWide(constraints)).violations > 0
    alone = constrained([extreme([0], 1.0)], 40)
    assert simulated(values[:50], alone, Static(alone)).violations == 0
    assert simulated(values[:50], alone, Static(alone), start=np.full(40, 3.0)).violations == 50


def test_messages_are_those_of_the_reference():
    rng = np.random.default_rng(2)
    values = np.cumsum(rng.normal(0, 1, (200, 4)), axis=0)
    queries = [Query("avg", dict.fromkeys(range(4), 1.0), 3.0)]
    constraints = constrained([average(range(4), 3.0)], 4)
    still = System(queries, period=10**9)
    updates = sum(len(moment.updates) for moment in still.run(values.tolist()))
    # the first values are known to the reference, here they are sent
    assert simulated(values, constraints, Static(constraints)).updates.sum() == updates + 4
    assert sent(values, np.full(4, 3.0)).sum() == updates + 4


def test_costs_are_what_is_counted():
    values, constraints, ones = hosts_alike(5.0)
    burden = simulated(values[:100], constraints, Burden(constraints, ones, np.random.default_rng(1)))
    dear = simulated(
        values[:100], constraints, Burden(constraints, ones, np.random.default_rng(1)), costs=3 * ones
    )
    assert dear.total.sum() == 3 * burden.total.sum()
    kept = simulated(values[:100], constraints, ByCurves(constraints, ones), by_object=True)
    assert kept.of_object is not None
    assert kept.of_object.sum(axis=1) == pytest.approx(kept.total)


def test_the_stairs_of_a_walk_are_as_derived():
    rng = np.random.default_rng(1)
    walk = np.cumsum(rng.choice([-1.0, 1.0], (40_000, 1)) * 3.0, axis=0)
    curves = walking_curves(np.array([3.0]), 25.0, np.array([True]))
    counted = sent(walk, curves.widths.T) / len(walk)
    assert counted.ravel() == pytest.approx(curves.rates.ravel(), rel=0.1)
    two = constrained([average([0, 1], 12.0)], 2)
    both = walking_curves(np.array([1.0, 3.0]), 24.0, np.ones(2, bool))
    assert best_static(two, both, np.ones(2))[1] > 12.0


def test_source_aggregation_is_better_in_the_first_case_and_worse_in_the_second():
    apart, summed = by_formula(CASES["case1"])
    assert summed < apart
    apart, summed = by_formula(CASES["case2"])
    assert summed > 1.5 * apart


def test_a_choice_of_grouping_keeps_to_the_shares_and_is_made_for_each_set():
    rng = np.random.default_rng(1)
    # two sources: three groups in two slots, and one group in two slots that nothing else is in
    groups = Groups(np.array([0, 0, 1, 1, 2, 3]), np.array([0, 1, 0, 2, 3, 3]), slots=4, groups=4)
    assert groups.sets == 2
    assert len({*groups.of_slot[:2], *groups.of_group[:3]}) == 1
    widths = np.repeat(np.array([[0.0, 1.0, 2.0, 4.0, 8.0]]), 4, axis=0)
    walk = np.array([1.0, 0.5, 0.15, 0.04, 0.01])
    curves = Curves(widths, walk * rng.uniform(0.5, 1, (4, 1)))
    shares = np.array([4.0, 2.0, 4.0, 2.0])
    found = priced(groups, shares, curves, curves)
    assert found.widths[0] + found.widths[1] <= 4.0
    assert found.widths[0] + found.widths[2] <= 2.0
    assert found.widths[3] == 2.0, "the narrower of the two"
    by_hand = curves.at(shares)
    assert found.by_query == pytest.approx([by_hand[:2].sum(), by_hand[2:].sum()])
    # the router of the paper's Example 1: one value that two queries ask for is told once
    assert not chosen(
        groups, Priced(found.by_group, 2 * found.by_group, found.widths), np.ones(2, bool), 1e6
    ).any()


def test_a_choice_of_grouping_does_not_change_for_little():
    groups = Groups(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 2]), slots=2, groups=3)
    for by_query in (np.array([True]), np.array([False])):
        near = Priced(np.array([1.0]), np.array([0.95]), np.zeros(3))
        assert chosen(groups, near, by_query, 1e9).tolist() == by_query.tolist()


def test_measurement_groups_are_the_subsets_of_queries_that_packets_are_in():
    packets = precision_data.generated_packets(90, rate=300.0)
    workload = from_packets(packets, QUICK)
    second, matched = packets.seconds, packets.matches.sum(axis=0)
    assert workload.members.any(axis=0).all(), "no object that no query asks for"
    last = (packets.second >= second - precision_data.WINDOW_S)[:, None] & packets.matches
    assert workload.members @ workload.values[-1] * precision_data.WINDOW_S == pytest.approx(last.sum(axis=0))
    assert (matched[precision_data.INCOMING] > matched[precision_data.LOGINS]).all()
    constraints = workload.asked(10.0)
    assert constraints.queries == precision_data.QUERIES


def test_prices_are_within_two_percent_of_the_program():
    for seed in range(3):
        instance = precision_solver.Instance.made(150, 12, 30, seed, weighted=bool(seed % 2))
        costs = np.random.default_rng(seed).uniform(0.5, 2, 150)
        found, best = precision_solver.over_program(instance, costs)
        assert found[-1] <= 1.02 * best


def test_without_real_data_it_is_generated(tmp_path: Path):
    made = precision_data.hosts(MAIN, 300, folder=tmp_path)
    assert not made.real
    assert made.values.shape == (300, 190)
    assert precision_data.real_packets(300, folder=tmp_path) is None


def test_a_page_asks_for_no_figure_that_its_experiments_do_not_give():
    template, drawn = page.PAGES["precision.md"]
    text = (Path(page.__file__).parent / template).read_text()
    asked = {(m[0], m[1]) for m in re.findall(r"\{([a-z-]+):([^}:]+)(?::[^}]+)?\}", text)}
    assert {name for name, _ in asked} == drawn.keys()
    results = Path(__file__).resolve().parents[1] / "docs" / "results"
    for name, figure in sorted(asked):
        file = results / f"{name}.json"
        assert file.exists(), name
        assert figure in json.loads(file.read_text())["figures"], f"{name} has no {figure}"
