"""Load shedding: where to shed, how much of whom, and who is given up."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from slackwater.planners import hoeffding, minimax
from slackwater.planners.chance import share_below, tightness
from slackwater.planners.level import Allocation, SplitName, allocate
from slackwater.planners.load import (
    Demand,
    LoadTree,
    floors_of,
    load_of,
    nodes_of,
    prefix_rates,
)
from slackwater.planners.placement import place, shedders
from slackwater.planners.segments import segments
from slackwater.reference.shedding import Shares, bisected_level, least_load, optimised_level

SPLITS: tuple[SplitName, ...] = ("minimax", "hoeffding", "input")


def random_tree(random: np.random.Generator, size: int, roots: float = 0.15) -> LoadTree:
    parent = [-1 if n == 0 or random.random() < roots else int(random.integers(0, n)) for n in range(size)]
    rows = np.exp(random.normal(0, 1.5, size))
    return LoadTree(tuple(parent), tuple(rows.tolist()), tuple(random.uniform(0.2, 2.0, size).tolist()))


def random_queries(random: np.random.Generator, tree: LoadTree, count: int) -> list[Demand]:
    """Queries at any node; most of them hard to answer, some easy."""
    return [
        Demand(
            f"q{n}",
            int(random.integers(0, len(tree.parent))),
            "error",
            weight=float(np.exp(random.normal(0, 0.5))),
            bound=float(random.choice([0.01, 0.05, 0.1])),
            spread=float(np.exp(random.normal(-5, 2.5))),
            bound_constant=float(np.exp(random.normal(-3, 1.2))),
        )
        for n in range(count)
    ]


def full_load(tree: LoadTree, demands: list[Demand]) -> float:
    return load_of(tree, prefix_rates(tree, nodes_of(demands), np.ones(len(demands))))


def load_at(tree: LoadTree, demands: list[Demand], rates: np.ndarray) -> float:
    return load_of(tree, prefix_rates(tree, nodes_of(demands), rates))


def assert_sound(tree: LoadTree, demands: list[Demand], capacity: float, found: Allocation) -> None:
    """What holds of every answer."""
    assert found.fits
    assert found.load <= capacity * (1 + 1e-8)
    assert set(found.by_query) == {d.query for d in demands}
    rates = np.array([found.by_query[d.query] for d in demands])
    assert found.rates == pytest.approx(prefix_rates(tree, nodes_of(demands), rates))
    assert found.load == pytest.approx(load_of(tree, np.array(found.rates)))
    for demand, rate, floor in zip(demands, rates, floors_of(demands), strict=True):
        assert rate == 0 if demand.query in found.suspended else floor * (1 - 1e-9) <= rate <= 1


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


# --- the level


@pytest.mark.parametrize("split", SPLITS)
def test_what_fits_is_exact(split: SplitName) -> None:
    tree = LoadTree((-1, 0, 0, -1), (10.0, 5.0, 5.0, 7.0), (1.0, 1.0, 1.0, 1.0), fixed=3.0)
    demands = [Demand("a", 1, "error", spread=1.0, bound_constant=0.1), Demand("b", 2, "rows")]
    found = allocate(tree, demands, 23.0, split=split)
    assert found == Allocation(0.0, (1.0, 1.0, 1.0, 0.0), {"a": 1.0, "b": 1.0}, 23.0)
    assert allocate(tree, [], 3.0, split=split) == Allocation(0.0, (0.0,) * 4, {}, 3.0)


@pytest.mark.parametrize("split", SPLITS)
def test_random_mixtures_are_sound_and_repeatable(split: SplitName) -> None:
    random = np.random.default_rng(8)
    for _ in range(60):
        tree = replace(random_tree(random, int(random.integers(1, 15))), fixed=0.1)
        demands = [
            replace(
                demand,
                kind=str(random.choice(["error", "error", "rows", "exact"])),
                priority=[None, 1, 2][int(random.integers(0, 3))],
                floor=float(random.choice([1e-4, 0.01, 0.3])),
                spread=float(random.choice([0.0, demand.spread])),
                bound=float(random.choice([0.0, 0.1, 0.1])),
            )
            for demand in random_queries(random, tree, int(random.integers(1, 10)))
        ]
        capacity = 0.1 + (full_load(tree, demands) - 0.1) * float(random.uniform(0.0, 1.0)) ** 2
        found = allocate(tree, demands, capacity, split=split)
        assert_sound(tree, demands, capacity, found)
        assert found == allocate(tree, demands, capacity, split=split)
        for demand in demands:
            if demand.kind == "exact" and demand.query not in found.suspended:
                assert found.by_query[demand.query] == 1
        running = [d for d in demands if d.query not in found.suspended and d.kind != "exact"]
        ranks = [math.inf if d.priority is None else d.priority for d in running]
        lowest = max(ranks, default=0)
        for demand, rank in zip(running, ranks, strict=True):
            if rank < lowest:
                assert found.by_query[demand.query] == 1, "all above the lowest that run are exact"


def test_input_sheds_all_alike_and_leaves_the_exact_ones() -> None:
    tree = LoadTree((-1, 0, 0, 0), (4.0, 2.0, 2.0, 2.0), (1.0,) * 4)
    shed = [Demand("a", 1, "error", spread=1.0, bound_constant=0.1), Demand("b", 2, "rows")]
    found = allocate(tree, shed, 4.0, split="input")
    assert found.rates == pytest.approx((0.5, 0.5, 0.5, 0.0))
    found = allocate(tree, [*shed, Demand("c", 3, "exact")], 8.0, split="input")
    assert found.rates == pytest.approx((1.0, 0.5, 0.5, 1.0))
    assert allocate(tree, shed, 4.0).level <= found.level


@pytest.mark.parametrize("split", SPLITS)
def test_set_valued_queries_lose_rows_in_inverse_proportion_to_their_weights(split: SplitName) -> None:
    tree = LoadTree((-1, -1), (1.0, 1.0), (1.0, 1.0))
    demands = [Demand("a", 0, "rows", weight=1.0), Demand("b", 1, "rows", weight=3.0)]
    found = allocate(tree, demands, 1.6, split=split)
    if split == "input":
        assert found.rates == pytest.approx((0.8, 0.8))
        assert found.level == pytest.approx(0.6)
    else:
        assert found.rates == pytest.approx((0.7, 0.9))
        assert found.level == pytest.approx(0.3)


def test_set_valued_queries_and_estimates_meet_at_one_level() -> None:
    tree = LoadTree((-1, -1), (1.0, 1.0), (1.0, 1.0))
    demands = [Demand("a", 0, "rows"), Demand("b", 1, "error", bound=0.1, spread=0.01)]
    found = allocate(tree, demands, 1.2)
    kept, seen = found.by_query["a"], found.by_query["b"]
    assert found.load == pytest.approx(1.2)
    assert 1 - kept == pytest.approx(found.level, rel=2e-3)
    assert 0.6745 * math.sqrt((1 - seen) / seen) == pytest.approx(found.level, rel=2e-3)


def test_spread_0_needs_no_more_than_its_least_rate() -> None:
    tree = LoadTree((-1, -1), (1.0, 1.0), (1.0, 1.0))
    demands = [Demand("known", 0, "error", spread=0.0), Demand("open", 1, "error", spread=1.0)]
    found = allocate(tree, demands, 0.5)
    assert found.by_query["known"] == pytest.approx(1e-4)
    assert found.by_query["open"] == pytest.approx(0.4999)
    # and it gets what the others leave
    found = allocate(tree, demands, 1.5)
    assert (found.level, found.by_query) == (0.0, {"known": pytest.approx(0.5), "open": 1.0})


def test_a_bound_of_0_can_only_be_kept_exactly() -> None:
    tree = LoadTree((-1, -1), (1.0, 1.0), (1.0, 1.0))
    demands = [Demand("a", 0, "error", bound=0.0, spread=1.0), Demand("b", 1, "error", spread=1.0)]
    assert allocate(tree, demands, 1.5).rates == pytest.approx((1.0, 0.5))


@pytest.mark.parametrize("split", SPLITS)
def test_one_query_gets_all_there_is(split: SplitName) -> None:
    tree = LoadTree((-1, 0), (1.0, 1.0), (1.0, 1.0), fixed=1.0)
    query = Demand("q", 1, "error", bound=0.1, spread=0.01, bound_constant=0.2)
    found = allocate(tree, [query], 1.5, split=split)
    assert found.rates == pytest.approx((0.25, 0.25))
    expected = 0.2 / 0.1 / 0.25 if split == "hoeffding" else 0.67449 * math.sqrt(3)
    assert found.level == pytest.approx(expected, rel=1e-4)


def test_several_streams_share_one_capacity() -> None:
    tree = LoadTree((-1, 0, -1, 2), (10.0, 1.0, 1.0, 1.0), (1.0,) * 4)
    demands = [
        Demand("large", 1, "error", bound=0.1, spread=0.001),
        Demand("small", 3, "error", bound=0.1, spread=0.1),
    ]
    found = allocate(tree, demands, 6.5)
    assert found.by_query["small"] > found.by_query["large"]
    assert found.load == pytest.approx(6.5)


# --- priorities and admission


def test_lower_priorities_run_only_if_all_above_are_exact() -> None:
    tree = LoadTree((-1, -1, -1), (1.0,) * 3, (1.0,) * 3)
    demands = [Demand("c", 2, "rows"), Demand("a", 0, "rows", priority=1), Demand("b", 1, "rows", priority=2)]
    for capacity, rates, suspended in [
        (0.5, (0.5, 0.0, 0.0), ("c", "b")),
        (1.5, (1.0, 0.5, 0.0), ("c",)),
        (2.5, (1.0, 1.0, 0.5), ()),
        (3.0, (1.0, 1.0, 1.0), ()),
    ]:
        found = allocate(tree, demands, capacity)
        assert found.rates == pytest.approx(rates)
        assert found.suspended == suspended
        assert found.level == pytest.approx(0.0 if capacity == 3 else 0.5)


def test_exact_queries_come_before_any_priority_and_go_last() -> None:
    tree = LoadTree((-1, -1, -1), (1.0,) * 3, (1.0,) * 3)
    demands = [
        Demand("shed", 0, "rows", priority=1),
        Demand("low", 1, "exact", weight=9.0),
        Demand("high", 2, "exact", priority=1),
    ]
    assert allocate(tree, demands, 2.5).rates == pytest.approx((0.5, 1.0, 1.0))
    found = allocate(tree, demands, 1.00005)
    assert found.suspended == ("shed", "low")
    assert found.by_query["high"] == 1
    # what is left when an exact one is gone goes to those that can use it
    found = allocate(tree, demands, 1.4)
    assert found.suspended == ("low",)
    assert found.by_query["shed"] == pytest.approx(0.4)


def test_who_saves_most_for_its_weight_is_suspended_first() -> None:
    tree = LoadTree((-1, -1, -1), (3.0, 2.0, 2.0), (1.0,) * 3)
    demands = [
        Demand("a", 0, "exact", weight=6.0),
        Demand("b", 1, "exact", weight=1.0),
        Demand("c", 2, "exact", weight=2.0),
    ]
    assert allocate(tree, demands, 5.0).suspended == ("b",)
    assert allocate(tree, demands, 3.0).suspended == ("b", "c")
    assert allocate(tree, demands, 2.5).suspended == ("b", "a"), "who was given up in vain is taken back"


def test_queries_that_share_all_they_cost_go_together_and_nobody_in_vain() -> None:
    tree = LoadTree((-1, 0, 0, -1, -1), (10.0, 0.0, 0.0, 1.0, 1.0), (1.0,) * 5)
    demands = [Demand(name, node, "exact") for name, node in [("a", 1), ("b", 2), ("c", 3), ("d", 4)]]
    found = allocate(tree, demands, 5.0)
    assert set(found.suspended) == {"a", "b"}


def test_least_rates_that_do_not_fit_suspend_somebody() -> None:
    tree = LoadTree((-1, -1), (1.0, 1.0), (1.0, 1.0))
    demands = [Demand("a", 0, "error", spread=1.0, floor=0.5), Demand("b", 1, "rows", floor=0.5, weight=2.0)]
    assert allocate(tree, demands, 1.0).rates == pytest.approx((0.5, 0.5))
    found = allocate(tree, demands, 0.8)
    assert found.suspended == ("a",)
    assert found.by_query["b"] == pytest.approx(0.8)
    assert found.level == pytest.approx(0.4)
    found = allocate(tree, demands, 0.2)
    assert set(found.suspended) == {"a", "b"}
    assert (found.level, found.load, found.fits) == (0.0, 0.0, True)


def test_only_a_fixed_load_that_is_too_much_does_not_fit() -> None:
    tree = LoadTree((-1,), (1.0,), (1.0,), fixed=2.0)
    demands = [Demand("a", 0, "exact"), Demand("b", 0, "rows"), Demand("c", 0, "rows", priority=1)]
    found = allocate(tree, demands, 1.9)
    assert not found.fits
    assert found.suspended == ("b", "c", "a")
    assert found.load == 2.0
    assert allocate(tree, demands, 2.0).fits


# --- size and refusals


def shape(name: str, random: np.random.Generator, count: int) -> tuple[list[int], list[int]]:
    """Parents, and the nodes at which queries end."""
    if name == "star":
        return [-1] * count, list(range(count))
    if name == "signature":
        return [-1, 0, *[1] * count], list(range(2, count + 2))
    if name == "one node":
        return [-1, 0], [1] * count
    parents = [-1, -1, -1, *(int(n) for n in random.integers(0, 3, 30))]
    parents += [int(n) for n in random.integers(3, 33, 100)]
    inner = len(parents)
    parents += [int(n) for n in random.integers(3, inner, count)]
    return parents, list(range(inner, inner + count))


@pytest.mark.parametrize("name", ["star", "signature", "one node", "prefixes"])
@pytest.mark.parametrize("part", [0.05, 0.5, 0.95])
def test_a_thousand_queries(name: str, part: float) -> None:
    random = np.random.default_rng(9)
    parents, ends = shape(name, random, 1000)
    rows = np.exp(random.normal(0, 1, len(parents)))
    tree = LoadTree(tuple(parents), tuple(rows.tolist()), (1.0,) * len(parents))
    spreads = np.exp(random.normal(-6, 2, 1000)).tolist()
    demands = [
        Demand(f"q{n}", end, "rows" if n % 50 == 0 else "error", spread=spread, bound_constant=0.01 + spread)
        for n, (end, spread) in enumerate(zip(ends, spreads, strict=True))
    ]
    capacity = full_load(tree, demands) * part
    ours = allocate(tree, demands, capacity)
    assert_sound(tree, demands, capacity, ours)
    assert not ours.suspended
    assert ours.load == pytest.approx(capacity)
    plain = allocate(tree, demands, capacity, split="input")
    assert ours.level <= plain.level * 1.001
    assert_sound(tree, demands, capacity, allocate(tree, demands, capacity, split="hoeffding"))


def test_a_deep_chain() -> None:
    size = 300
    tree = LoadTree(tuple(range(-1, size - 1)), (1.0,) * size, (1.0,) * size)
    demands = [Demand(f"q{n}", n, "error", spread=0.01 * (size - n)) for n in range(0, size, 10)]
    found = allocate(tree, demands, 100.0)
    assert_sound(tree, demands, 100.0, found)
    assert list(found.rates) == sorted(found.rates, reverse=True)


def test_what_makes_no_sense_is_refused() -> None:
    tree = LoadTree((-1,), (1.0,), (1.0,))
    with pytest.raises(ValueError, match="after its parent"):
        LoadTree((0,), (1.0,), (1.0,))
    with pytest.raises(ValueError, match="finite"):
        LoadTree((-1,), (math.nan,), (1.0,))
    with pytest.raises(ValueError, match="least rate"):
        Demand("q", 0, "rows", floor=0.0)
    with pytest.raises(ValueError, match="weight"):
        Demand("q", 0, "rows", weight=0.0)
    with pytest.raises(ValueError, match="one demand"):
        allocate(tree, [Demand("q", 0, "rows")] * 2, 1.0)
    with pytest.raises(ValueError, match="share"):
        allocate(tree, [], 1.0, share=1.0)
