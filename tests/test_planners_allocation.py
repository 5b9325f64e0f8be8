"""Load shedding as a whole: one level for all queries, priorities, who is given up, and size."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from load_trees import full_load, random_queries, random_tree
from slackwater.planners.level import Allocation, SplitName, allocate
from slackwater.planners.load import Demand, LoadTree, floors_of, load_of, nodes_of, prefix_rates

SPLITS: tuple[SplitName, ...] = ("minimax", "hoeffding", "input")


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
