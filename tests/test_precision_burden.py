"""The burden allocation of widths, against the paper's algorithm in plain loops."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_queries import InThisOrder, exactly_feasible, often, planned, random_queries, seeds, seldom
from slackwater.planners.precision_burden import (
    Watched,
    adjust,
    burdens,
    deviations,
    fitted_shrink,
    grow,
)
from slackwater.planners.precision_constraints import (
    Constraints,
    Floats,
    average,
    constrained,
    from_entries,
    total,
    uniform,
)
from slackwater.reference import precision as reference
from slackwater.reference.precision import Query
from slackwater.reference.precision_system import System, optimum

# --- growth


@often
@given(seeds, st.booleans())
def test_it_is_the_one_by_one_pass(seed: int, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    queries = random_queries(rng, 9, 4, weighted=weighted, functions=("sum", "avg", "min"))
    constraints, (matrix, limits) = planned(queries, 9), reference.table(queries, 9)
    widths = np.where(constraints.shared, uniform(constraints) * rng.uniform(0.3, 1, 9), constraints.ceiling)
    over = rng.permutation(9).astype(float)
    found, grown = grow(constraints, widths, over, rng)
    expected = reference.grow(matrix, limits, widths.tolist(), np.argsort(-over).tolist())
    assert found.tolist() == pytest.approx(expected, rel=1e-9)
    assert exactly_feasible(constraints, found)
    assert sorted(grown) == np.flatnonzero(found > widths).tolist()


@seldom
@given(seeds)
def test_many_ceilings_are_reached_as_one_by_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.ones((2, 60))
    rows[1, :30] = 0
    ceiling = np.where(rng.random(60) < 0.9, rng.uniform(1, 3, 60), np.inf)
    singles = np.diag(np.where(np.isfinite(ceiling), 1.0, 0.0))
    limits = np.array([rng.uniform(50, 200), rng.uniform(20, 80)])
    asked = [total(np.flatnonzero(row), limit) for row, limit in zip(rows, limits, strict=True)]
    constraints = constrained(asked, 60)
    constraints = Constraints(constraints.matrix, constraints.limit, ceiling)
    over = rng.permutation(60).astype(float)
    widths = np.minimum(0.5, uniform(constraints))
    found, _ = grow(constraints, widths, over, rng)
    matrix = np.vstack([rows, singles[np.isfinite(ceiling)]])
    limits = np.concatenate([limits, ceiling[np.isfinite(ceiling)]])
    expected = reference.grow(matrix, limits, widths.tolist(), np.argsort(-over).tolist())
    assert found.tolist() == pytest.approx(expected, rel=1e-9)


def test_ties_are_broken_evenly() -> None:
    constraints = constrained([average(range(6), 4)], 6)
    widths = uniform(constraints) * 0.9
    counts = np.zeros(6)
    for seed in range(1200):
        _, grown = grow(constraints, widths, np.zeros(6), np.random.default_rng(seed))
        counts[grown] += 1
    assert counts.sum() == 1200
    assert np.abs(counts - 200).max() < 5 * (1200 * 5 / 36) ** 0.5


# --- one adjustment


@often
@given(seeds, st.booleans())
def test_it_is_the_references_for_one_order_of_the_ties(seed: int, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    functions = ("sum", "avg", "avg", "min")
    queries = random_queries(rng, 5, 2, weighted=weighted, functions=functions)
    constraints, (matrix, limits) = planned(queries, 5), reference.table(queries, 5)
    several = np.flatnonzero(np.count_nonzero(matrix, axis=1) > 1)
    widths, shared = uniform(constraints), np.flatnonzero(constraints.shared)
    widths[shared] *= rng.choice([0, 0.4, 1, 1], len(shared))
    updates, costs = rng.poisson(2, 5), rng.uniform(0.5, 2, 5)
    found = adjust(constraints, Watched(widths, updates, costs, 10.0), 0.05, rng)
    assert exactly_feasible(constraints, found.widths)
    outcomes = []
    for order in permutations(range(5)):
        outcome = reference.adjust(
            matrix, limits, widths.tolist(), updates.tolist(), costs.tolist(),
            period=10, shrink=0.05, choice=InThisOrder(order),
        )  # fmt: skip
        outcomes.append(outcome)
    theirs = matrix[several].T @ outcomes[0].targets[several]
    if not np.allclose(constraints.by_object @ found.targets, theirs, atol=1e-6):
        assert weighted  # appendix B explained less than nothing: see the targets' tests
        return
    assert any(
        found.widths.tolist() == pytest.approx(outcome.widths, rel=1e-6)
        and found.grown.tolist() == outcome.grown
        for outcome in outcomes
    )


@often
@given(seeds, st.booleans())
def test_limits_hold_exactly_over_many_periods(seed: int, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    queries = random_queries(rng, 12, 5, weighted=weighted, functions=("sum", "avg", "avg", "max"))
    constraints = planned(queries, 12)
    widths, last = uniform(constraints), None
    for _ in range(12):
        watched = Watched(widths, rng.poisson(2, 12), np.ones(12), 10.0)
        found = adjust(constraints, watched, fitted_shrink(constraints), rng, last=last)
        widths, last = found.widths, found.targets
        assert constraints.feasible(widths)
        assert exactly_feasible(constraints, widths)
        # nobody could grow any more but who is near his ceiling
        left = constraints.slack(widths) > 1e-12 * constraints.limit
        able = constraints.shared & (constraints.least_by_object(left.astype(float)) > 0)
        assert (widths[able] > 0.95 * constraints.ceiling[able] * (1 - 1e-6)).all()


def test_objects_of_no_query_and_of_single_queries_are_fixed() -> None:
    constraints = constrained([total([0], 8, weights=[-2]), total([0], 5), average([1, 2], 3)], 4)
    start = uniform(constraints)
    assert start.round(9).tolist() == [4, 3, 3, np.inf]
    found = adjust(constraints, Watched(start, np.ones(4), np.ones(4)), 0.5, np.random.default_rng(1))
    assert found.widths[[0, 3]].tolist() == [4, np.inf]
    assert set(found.grown) <= {1, 2}
    # a query that has gone leaves its object to be told
    alone = constrained([total([0], 8, weights=[-2])], 4)
    found = adjust(alone, Watched(start, np.ones(4), np.ones(4)), 0.5, np.random.default_rng(1))
    assert found.widths.tolist() == [4, np.inf, np.inf, np.inf]
    assert found.grown.tolist() == [1, 2]


def test_a_limit_of_nothing_leaves_no_width_and_harms_nobody_else() -> None:
    constraints = constrained([average([0, 1], 0), average([1, 2, 3], 6)], 4)
    start = uniform(constraints)
    assert start.round(9).tolist() == [0, 0, 6, 6]
    updates = np.array([9, 9, 3, 1])
    found = adjust(constraints, Watched(start, updates, np.ones(4)), 0.05, np.random.default_rng(1))
    assert np.isfinite(found.targets).all()
    assert found.widths[:2].tolist() == [0, 0]
    assert found.widths.sum() == pytest.approx(18)
    assert found.grown.tolist() == [2]  # of the two that have width it is the burdened one


def test_who_has_no_width_but_updates_comes_first() -> None:
    constraints = constrained([average([0, 1, 2], 6)], 3)
    watched = Watched(np.array([9.0, 9.0, 0.0]), np.array([50, 2, 1]), np.ones(3))
    assert burdens(watched)[2] == np.inf
    found = adjust(constraints, watched, 0.1, np.random.default_rng(1))
    assert found.widths.round(9).tolist() == [8.1, 8.1, 1.8]


def test_a_limit_that_has_become_less_stops_growth_only() -> None:
    constraints = constrained([average([0, 1], 3), average([2, 3], 3)], 4)
    watched = Watched(np.array([5.0, 5.0, 3.0, 3.0]), np.array([1, 9, 1, 9]), np.ones(4))
    found = adjust(constraints, watched, 0.1, np.random.default_rng(1))
    assert found.widths.round(9).tolist() == [4.5, 4.5, 2.7, 3.3]
    assert found.grown.tolist() == [3]


def test_begun_early_it_goes_by_rates_so_far() -> None:
    constraints = constrained([average(range(4), 3)], 4)
    early = Watched(uniform(constraints), np.array([1, 2, 4, 0]), np.ones(4), elapsed=4.0)
    late = Watched(uniform(constraints), np.array([2, 4, 8, 0]), np.ones(4), elapsed=8.0)
    a, b = (adjust(constraints, w, 0.1, np.random.default_rng(1)) for w in (early, late))
    assert a.widths.tolist() == b.widths.tolist()
    assert a.targets == pytest.approx(b.targets)


def test_an_object_at_its_ceiling_is_no_measure_for_others() -> None:
    """The paper's own reading makes it one that is never overburdened, whatever its width."""
    queries = [Query("avg", {0: 1, 1: 1, 2: 1}, 6.0), Query("min", {0: 1}, 1.0)]
    constraints, (matrix, _) = planned(queries, 3), reference.table(queries, 3)
    updates = np.array([90, 2, 4])
    capped = Watched(np.array([1.0, 8.0, 8.0]), updates, np.ones(3))
    found = adjust(constraints, capped, 0.01, np.random.default_rng(1))
    assert found.targets.tolist() == [pytest.approx(3 / 8), 0]
    assert found.grown.tolist() == [2]
    below = Watched(np.array([0.5, 8.0, 8.0]), updates, np.ones(3))
    borne = burdens(below)
    assert adjust(constraints, below, 0.01, np.random.default_rng(1)).widths[0] == 1
    assert reference.deviations(matrix, borne.tolist(), reference.weighted_targets(matrix, borne))[0] == 0


def test_costs_and_weights_enter_the_burden() -> None:
    constraints = constrained([total([0, 1, 2], 6, weights=[1, -1, 1])], 3)
    watched = Watched(uniform(constraints), np.array([3, 2, 3]), np.array([1.0, 2.0, 1.0]))
    assert adjust(constraints, watched, 0.1, np.random.default_rng(1)).grown.tolist() == [1]
    over = deviations(constraints, burdens(watched), np.array([1.5]))
    assert over.round(9).tolist() == [0, 0.5, 0]


# --- whole systems


@seldom
@given(seeds)
def test_every_answer_holds_the_truth_and_is_narrow_enough(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries = random_queries(rng, 6, 5, weighted=True, functions=("sum", "avg", "min", "max", "count"))
    walks = np.cumsum(rng.normal(0, rng.uniform(0.1, 3, 6), (60, 6)), axis=0)
    system = System(queries, period=5, shrink=0.1, choice=random.Random(seed))
    for moment in system.run(walks.tolist()):
        for query, (low, high), truth in zip(queries, moment.answers, moment.truths, strict=True):
            assert low - 1e-9 <= truth <= high + 1e-9
            assert high - low <= query.within * (1 + 1e-9)


def test_the_optimum_for_one_query_is_known() -> None:
    steps, costs = np.array([1.0, 2.0, 5.0, 9.0]), np.array([1.0, 4.0, 1.0, 2.0])
    shares = (costs * steps**2) ** (1 / 3)
    found = optimum(np.ones((1, 4)), np.array([20.0]), steps, costs)
    assert found == pytest.approx(20 * shares / shares.sum(), rel=1e-4)


def sent(
    walks: Floats, constraints: Constraints, widths: Floats, shrink: float | Floats | None, after: int = 0
) -> int:
    """How many updates come after some time; without a shrink widths stay as they are."""
    objects, rng, last = constraints.objects, np.random.default_rng(1), None
    centres, counts, found = walks[0].copy(), np.zeros(objects), 0
    for time, now in enumerate(walks[1:], start=1):
        adjusting = shrink is not None and time % 10 == 0
        for again in (False, True) if adjusting else (False,):
            out = np.abs(now - centres) > widths / 2
            centres[out] = now[out]
            counts += out
            found += int(out.sum()) if time > after else 0
            if adjusting and not again:
                watched = Watched(widths, counts, np.ones(objects), 10.0)
                adjusted = adjust(constraints, watched, shrink, rng, last=last)
                widths, last, counts = adjusted.widths, adjusted.targets, np.zeros(objects)
    return found


def random_walks(rng: np.random.Generator, steps: Floats, times: int) -> Floats:
    return np.cumsum(steps * rng.choice([-1, 1], (times + 1, len(steps))), axis=0)


@pytest.mark.parametrize("queries", [1, 5])
def test_on_random_walks_it_comes_near_the_best_that_never_changes(queries: int) -> None:
    rng = np.random.default_rng(3)
    steps = rng.uniform(0.1, 10, 10)
    sets = [list(range(10))]
    if queries > 1:
        sets = [rng.choice(10, rng.integers(2, 6), replace=False).tolist() for _ in range(queries)]
        sets.append(sorted(set(range(10)) - {i for members in sets for i in members}))
    asked = [Query("avg", dict.fromkeys(s, 1.0), float(rng.uniform(15, 50))) for s in sets if s]
    constraints, (matrix, limits) = planned(asked, 10), reference.table(asked, 10)
    walks = random_walks(rng, steps, 8000)
    best = sent(walks, constraints, optimum(matrix, limits, steps, np.ones(10)), None, after=2000)
    ours = sent(walks, constraints, uniform(constraints), fitted_shrink(constraints), after=2000)
    assert ours < 1.3 * best


def test_planner_and_reference_send_about_as_much() -> None:
    rng = np.random.default_rng(8)
    queries = [
        Query("avg", dict.fromkeys(range(6), 1.0), 12.0),
        Query("avg", dict.fromkeys(range(4, 9), 1.0), 20.0),
    ]
    walks = random_walks(rng, rng.uniform(0.2, 5, 9), 3000)
    theirs = sum(len(m.updates) for m in System(queries, period=10, shrink=0.05).run(walks.tolist()))
    constraints = planned(queries, 9)
    assert sent(walks, constraints, uniform(constraints), 0.05) == pytest.approx(theirs, rel=0.1)


@pytest.mark.parametrize("seed", [0, 1])
def test_weights_that_differ_starve_nobody_as_appendix_b_taken_at_its_word_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries = [
        replace(query, function="avg", within=40.0) for query in random_queries(rng, 20, 5, weighted=True)
    ]
    walks = random_walks(rng, rng.uniform(0.1, 10, 20), 1000)
    theirs = sum(len(m.updates) for m in System(queries, period=10, shrink=0.025).run(walks.tolist()))
    constraints = planned(queries, 20)
    even = sent(walks, constraints, uniform(constraints), None)
    assert sent(walks, constraints, uniform(constraints), 0.025) < even < theirs


# --- the shrink


def test_it_is_the_papers_for_ten_objects_and_falls_with_their_number() -> None:
    for size, expected in ((2, 0.05), (10, 0.05), (100, 0.005), (1000, 0.0005)):
        assert fitted_shrink(constrained([average(range(size), 1)], size)).tolist() == [expected] * size


def test_hundreds_of_objects_starve_on_the_papers_shrink_only() -> None:
    rng = np.random.default_rng(2)
    steps = rng.uniform(0.1, 10, 200)
    constraints = constrained([average(range(200), 40.0)], 200)

    def cost(shrink: float | Floats) -> float:
        """By the formula of appendix E, for the widths as they are after many periods."""
        choice, widths, spent = np.random.default_rng(4), uniform(constraints), []
        for period in range(1500):
            rates = np.minimum(1.0, np.square(2 * steps / widths))
            watched = Watched(widths, choice.binomial(10, rates), np.ones(200), 10.0)
            widths = adjust(constraints, watched, shrink, choice).widths
            spent += [rates.sum()] if period > 1000 else []
        return float(np.mean(spent))

    even = np.square(2 * steps / uniform(constraints)).sum()
    assert cost(fitted_shrink(constraints)) < even < 2 * even < cost(0.05)


# --- size


def test_a_large_instance_stays_feasible_and_exhausts_its_queries() -> None:
    rng = np.random.default_rng(1)
    objects, queries = 50_000, 1_000
    rows = np.repeat(np.arange(queries), 200)
    weights = rng.choice([-1.0, 1.0], len(rows)) * rng.uniform(0.5, 2, len(rows))
    columns = rng.integers(0, objects, len(rows))
    limit = rng.uniform(100, 1000, queries)
    ceiling = np.where(rng.random(objects) < 0.3, rng.uniform(0.5, 5, objects), np.inf)
    for entries in (np.ones(len(rows)), weights):
        constraints = from_entries(rows, columns, entries, limit=limit, ceiling=ceiling)
        widths, last = uniform(constraints), None
        for _ in range(3):
            watched = Watched(widths, rng.poisson(2, objects), np.ones(objects), 10.0)
            found = adjust(constraints, watched, fitted_shrink(constraints), rng, last=last)
            widths, last = found.widths, found.targets
            assert constraints.feasible(widths)
        assert (constraints.slack(widths) < 1e-9 * limit).mean() > 0.3
