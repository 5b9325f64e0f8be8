"""Load shedding: where to shed, and how much of whom."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from load_trees import full_load, random_queries, random_tree
from slackwater.planners import hoeffding, minimax
from slackwater.planners.chance import share_below, tightness
from slackwater.planners.level import allocate
from slackwater.planners.load import Demand, LoadTree, load_of, nodes_of, prefix_rates
from slackwater.planners.placement import place, shedders
from slackwater.planners.segments import segments
from slackwater.reference.shedding import Shares, bisected_level, least_load, optimised_level


def load_at(tree: LoadTree, demands: list[Demand], rates: np.ndarray) -> float:
    return load_of(tree, prefix_rates(tree, nodes_of(demands), rates))


# --- placement


def test_the_load_of_algorithm_1_is_the_least_of_all_placements() -> None:
    random = np.random.default_rng(1)
    for _ in range(1000):
        tree = random_tree(random, int(random.integers(1, 7)))
        ends = [(int(random.integers(0, len(tree.parent))), float(random.random())) for _ in range(4)]
        rates = prefix_rates(tree, np.array([n for n, _ in ends]), np.array([r for _, r in ends]))
        found = shedders(tree, rates.tolist())
        runs: list[float] = []
        for node, parent in enumerate(tree.parent):
            runs.append((1.0 if parent < 0 else runs[parent]) * found.get(node, 1.0))
        assert runs == pytest.approx(rates)
        best = least_load(tree.parent, tree.rows, tree.seconds, ends)
        assert load_of(tree, np.array(runs)) == pytest.approx(best)


def test_shedders_that_cost_something_are_placed_as_well_as_can_be() -> None:
    random = np.random.default_rng(2)
    moved = 0
    for _ in range(1000):
        tree = random_tree(random, int(random.integers(1, 7)))
        # rates are alike, and some are equal, so that tests are not always worth it
        ends = [
            (int(random.integers(0, len(tree.parent))), float(random.choice([0.0, 0.5, 0.8, 0.9, 0.95, 1.0])))
            for _ in range(int(random.integers(1, 5)))
        ]
        seconds = float(random.choice([0.0, 0.02, 0.2, 1.0]))
        found = place(tree, ends, seconds)
        assert found.load == pytest.approx(least_load(tree.parent, tree.rows, tree.seconds, ends, seconds))
        rates = prefix_rates(tree, np.array([n for n, _ in ends]), np.array([r for _, r in ends]))
        moved += shedders(tree, rates.tolist()).keys() != found.shedders.keys()
        for position, (node, rate) in enumerate(ends):
            if rate > 0:
                assert found.rates[node] * found.own.get(position, 1.0) == pytest.approx(rate)
    assert moved > 50, "the cost of shedders made a difference"


def test_a_branch_that_nobody_needs_is_cut_off_at_its_top() -> None:
    tree = LoadTree((-1, 0, 1, 0), (1.0,) * 4, (1.0,) * 4)
    assert shedders(tree, (1.0, 0.0, 0.0, 1.0)) == {1: 0.0}
    found = place(tree, [(3, 1.0), (2, 0.0)], 0.1)
    assert (found.shedders, found.own, found.load) == ({1: 0.0}, {}, 2.0)


def test_segments_are_the_chains_between_branches_and_queries() -> None:
    random = np.random.default_rng(3)
    for _ in range(200):
        tree = random_tree(random, int(random.integers(1, 12)))
        demands = random_queries(random, tree, int(random.integers(1, 6)))
        nodes = nodes_of(demands)
        parts = segments(tree, nodes)
        rates = random.random(len(demands))
        own = np.zeros(len(parts.costs))
        np.maximum.at(own, parts.of_node[nodes], rates)
        prefix = prefix_rates(tree, nodes, rates)
        assert parts.maxima(own)[parts.of_node[prefix > 0]] == pytest.approx(prefix[prefix > 0])
        assert float(parts.costs @ parts.maxima(own)) == pytest.approx(load_of(tree, prefix))
        inner, beside = parts.beside(own, parts.maxima(own))
        for here, above in enumerate(parts.parent):
            alone = own.copy()
            alone[here] = 0
            assert inner[here] == parts.maxima(alone)[here]
            if above >= 0:
                alone = np.where(parts.below(np.array([here]))[0], 0, own)
                assert beside[here] == parts.maxima(alone)[above]


# --- the paper's split


def test_hoeffding_finds_what_bisection_finds() -> None:
    random = np.random.default_rng(4)
    for _ in range(300):
        tree = random_tree(random, int(random.integers(1, 9)))
        demands = random_queries(random, tree, int(random.integers(1, 7)))
        demands = [
            replace(
                d, kind="rows" if random.random() < 0.3 else "error", floor=float(random.choice([1e-4, 0.02]))
            )
            for d in demands
        ]
        margin = float(random.choice([0.0, 0.05]))
        capacity = full_load(tree, demands) * float(random.uniform(0.05, 0.98))
        found = hoeffding.split(tree, demands, capacity, margin=margin)
        assert found is not None
        slow = bisected_level(
            tree.parent,
            tree.costs.tolist(),
            [
                (d.node, d.kind, d.weight, d.floor)
                if d.kind == "rows"
                else (d.node, d.kind, d.weight * (d.bound_constant + margin) / d.bound, d.floor)
                for d in demands
            ],
            capacity,
        )
        assert found.level == pytest.approx(slow, rel=1e-9)
        assert load_at(tree, demands, found.rates) == pytest.approx(capacity)


def test_in_the_papers_split_all_that_is_shed_loses_the_same() -> None:
    random = np.random.default_rng(5)
    exact = 0
    for _ in range(100):
        tree = random_tree(random, 8)
        demands = random_queries(random, tree, 6)
        found = hoeffding.split(tree, demands, full_load(tree, demands) * 0.6)
        assert found is not None
        for demand, rate in zip(demands, found.rates, strict=True):
            least = demand.weight * demand.bound_constant / demand.bound
            if rate < 1:
                if rate > demand.floor:
                    assert least / rate == pytest.approx(found.level)
            else:
                exact += 1
                assert least >= found.level * (1 - 1e-9), "shed a little it would lose more than the level"
    assert exact > 50


def test_a_margin_makes_rates_alike_and_weights_pull_them_apart() -> None:
    tree = LoadTree((-1, -1), (1.0, 1.0), (1.0, 1.0))
    one = Demand("one", 0, "error", bound=0.1, bound_constant=0.001)
    two = replace(one, query="two", node=1, bound_constant=0.003)

    def ratio(demands: list[Demand], margin: float = 0.0) -> float:
        found = hoeffding.split(tree, demands, 0.4, margin=margin)
        assert found is not None
        return float(found.rates[1] / found.rates[0])

    assert ratio([one, two]) == pytest.approx(3)
    assert ratio([one, two], 0.001) == pytest.approx(2)
    assert ratio([one, replace(two, weight=2.0)]) == pytest.approx(6)


# --- our split


def test_minimax_is_as_good_as_a_general_optimiser() -> None:
    ratios = []
    for seed in range(200):
        random = np.random.default_rng(seed)
        tree = random_tree(random, int(random.integers(2, 12)))
        demands = random_queries(random, tree, int(random.integers(2, 9)))
        capacity = full_load(tree, demands) * float(random.choice([0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97]))
        nodes, tight = nodes_of(demands), tightness(demands)
        needed = prefix_rates(tree, nodes, np.ones(len(demands)))
        found = minimax.split(tree, demands, capacity)
        assert found is not None
        assert load_at(tree, demands, found.rates) <= capacity * (1 + 1e-8)
        assert share_below(found.level, tight, found.rates) >= 0.5
        problem = Shares(tree.parent, tree.costs * needed, nodes, tight, capacity, 0.5, 1e-4)
        ratios.append(found.level / optimised_level(problem, 5, seed))
    assert max(ratios) < 1.02
    assert np.isfinite(ratios).all()


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_less_capacity_and_a_greater_share_never_lower_the_level(share: float) -> None:
    random = np.random.default_rng(7)
    for _ in range(10):
        tree = random_tree(random, 10)
        demands = random_queries(random, tree, 6)
        demands[0] = replace(demands[0], kind="rows")
        last = math.inf
        for part in (0.01, 0.05, 0.2, 0.4, 0.6, 0.8, 0.9, 0.99, 1.0):
            capacity = full_load(tree, demands) * part
            found = minimax.split(tree, demands, capacity, share=share)
            assert found is not None
            assert found.level <= last * 1.002
            assert share_below(found.level, tightness(demands), found.rates) >= share
            assert found.level >= demands[0].weight * (1 - found.rates[0]) * (1 - 1e-9)
            larger = minimax.split(tree, demands, capacity, share=(1 + share) / 2)
            assert larger is not None
            assert larger.level >= found.level * 0.998
            last = found.level
        assert last == 0


def test_a_cheap_query_is_not_pushed_up_to_the_error_of_the_rest() -> None:
    tree = LoadTree((-1, -1), (1000.0, 10.0), (0.001, 0.001))
    often = Demand("often", 0, "error", bound=0.1, spread=0.01, bound_constant=0.1)
    seldom = Demand("seldom", 1, "error", bound=0.1, spread=1.0, bound_constant=1.0)
    ours = allocate(tree, [often, seldom], 0.51)
    # the cheap one is exact, and the other has the whole chance
    assert ours.by_query == {"often": pytest.approx(0.5), "seldom": 1.0}
    assert ours.level == pytest.approx(0.67449, rel=1e-3)


def test_alike_queries_share_alike_unless_one_can_be_nearly_exact() -> None:
    tree = LoadTree((-1, -1), (1.0, 1.0), (1.0, 1.0))
    both = [Demand(f"q{n}", n, "error", bound=0.1, spread=0.1) for n in range(2)]
    found = allocate(tree, both, 1.2)
    assert list(found.by_query.values()) == pytest.approx([0.6, 0.6], abs=2e-3)
    # just below full load one query takes nearly all of the loss: sharing it would raise the largest
    found = allocate(tree, both, 1.9)
    low, high = sorted(found.by_query.values())
    assert low < 0.91
    assert high > 0.99
    tight = tightness(both)
    assert share_below(found.level, tight, np.array([0.95, 0.95])) < 0.49
    assert share_below(found.level * 1.001, tight, np.array([0.9, 1.0])) < 0.5


def test_who_is_nearly_exact_is_exact() -> None:
    random = np.random.default_rng(10)
    for _ in range(50):
        tree = random_tree(random, 8)
        demands = random_queries(random, tree, 6)
        found = allocate(tree, demands, full_load(tree, demands) * 0.8)
        assert not any(0.9999 < rate < 1 for rate in found.by_query.values())


def test_queries_below_an_expensive_shared_operator_have_its_rate() -> None:
    tree = LoadTree((-1, *[0] * 50), (1000.0, *[1.0] * 50), (1.0, *[1e-6] * 50))
    queries = [Demand(f"q{n}", n + 1, "error", spread=0.1 * (n + 1)) for n in range(50)]
    found = allocate(tree, queries, 300.0)
    assert sorted(found.by_query.values())[10:] == pytest.approx([0.3] * 40, rel=1e-4)
    assert found.load == pytest.approx(300.0)
