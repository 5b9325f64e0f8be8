"""What queries ask of widths, and the burden targets, against the paper's equations written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_queries import everything, exactly_feasible, often, planned, random_queries, seeds, seldom
from slackwater.planners import precision_targets
from slackwater.planners.precision_constraints import (
    Constraints,
    Floats,
    average,
    constrained,
    narrowed,
    total,
    uniform,
)
from slackwater.planners.precision_targets import burden_targets
from slackwater.reference import precision as reference
from slackwater.reference.precision import Query


def rows_of_several(queries: list[Query], objects: int) -> Floats:
    """The rows over more than one object: the planner has the others as ceilings."""
    matrix, _ = reference.table(queries, objects)
    return matrix[np.count_nonzero(matrix, axis=1) > 1]


# --- constraints


@often
@given(seeds)
def test_uniform_widths_and_ceilings_are_the_references(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries = random_queries(rng, 6, 4, weighted=True, functions=("sum", "avg", "min", "max", "count"))
    constraints, (matrix, limits) = planned(queries, 6), reference.table(queries, 6)
    assert constraints.ceiling.tolist() == pytest.approx(reference.ceilings(matrix, limits))
    assert uniform(constraints).tolist() == pytest.approx(reference.uniform(matrix, limits))
    assert exactly_feasible(constraints, uniform(constraints))


@often
@given(seeds)
def test_narrowed_widths_are_feasible_and_touch_nobody_else(seed: int) -> None:
    rng = np.random.default_rng(seed)
    constraints = planned(random_queries(rng, 7, 3, weighted=True), 7)
    before = uniform(constraints) * rng.uniform(0.2, 3, 7)
    before[rng.random(7) < 0.1] = np.inf
    after = narrowed(constraints, before)
    assert exactly_feasible(constraints, after)
    assert constraints.feasible(after)
    assert (after <= before).all()
    if exactly_feasible(constraints, before):
        assert after.tolist() == before.tolist()


def test_components_hold_what_is_connected() -> None:
    parts = constrained([total([0, 1], 1), total([1, 2], 1), total([3, 4], 1), total([5], 1)], 6).components
    assert parts.of_query[0] == parts.of_query[1] == parts.of_object[0] == parts.of_object[2]
    assert parts.of_query[2] == parts.of_object[3] == parts.of_object[4] != parts.of_query[0]
    assert parts.count == 4  # the query of one object has no row, and its object nobody
    assert sorted(parts.queries.tolist()) == [0, 1, 1, 2]


def test_an_object_named_twice_has_the_sum_of_its_weights() -> None:
    found = constrained([total([0, 0, 1, 2, 2, 3], 6, weights=[1, 2, 1, 1, -1, 5])], 4)
    assert found.matrix.toarray().tolist() == [[3, 1, 0, 5]]
    assert uniform(found).round(9).tolist() == [0.666666667, 0.666666667, np.inf, 0.666666667]


def test_what_cannot_be_meant_is_refused() -> None:
    good = constrained([total([0, 1], 6)], 2)
    with pytest.raises(ValueError, match="one limit"):
        Constraints(good.matrix, np.ones(2), good.ceiling)
    with pytest.raises(ValueError, match="not negative"):
        constrained([total([0, 1], -1)], 2)
    with pytest.raises(ValueError, match="finite"):
        constrained([total([0, 1], 1, weights=[1, np.inf])], 2)
    with pytest.raises(ValueError, match="ceiling"):
        Constraints(good.matrix[:, [0]], good.limit, np.ones(1))


# --- targets


@often
@given(seeds)
def test_without_weights_they_are_least_squares_and_appendix_b_at_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries = random_queries(rng, 7, 4)
    constraints = planned(queries, 7)
    matrix = rows_of_several(queries, 7)
    borne = rng.exponential(1, 7)
    here = constraints.by_object @ burden_targets(constraints, borne, everything(constraints))
    shared = constraints.shared
    # targets need not be unique; what objects are compared with is
    assert here[shared] == pytest.approx(
        (matrix.T @ reference.least_squares_targets(matrix, borne))[shared], abs=1e-6
    )
    assert here[shared] == pytest.approx(
        (matrix.T @ reference.weighted_targets(matrix, borne))[shared], abs=1e-6
    )


@often
@given(seeds)
def test_the_solver_for_weights_agrees_where_there_are_none(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries = random_queries(rng, 7, 4)
    plain = planned(queries, 7)
    nearly = plain.matrix.copy()
    nearly.data = 1 + 1e-12 * rng.random(len(nearly.data))
    weighted = Constraints(nearly, plain.limit, plain.ceiling)
    borne = rng.exponential(1, 7)
    a, b = (c.by_object @ burden_targets(c, borne, everything(c)) for c in (plain, weighted))
    assert a == pytest.approx(b, abs=1e-6)


@often
@given(seeds)
def test_with_weights_they_are_appendix_b_where_that_explains_the_burdens(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries = random_queries(rng, 7, 3, weighted=True)
    constraints = planned(queries, 7)
    matrix = rows_of_several(queries, 7)
    borne = rng.exponential(1, 7)
    found = burden_targets(constraints, borne, everything(constraints))
    wanted = matrix.T @ reference.weighted_targets(matrix, borne)
    with np.errstate(divide="ignore"):
        sizes = np.where(matrix > 0, 1 / matrix**2, 0).sum(axis=0) / np.maximum((matrix > 0).sum(axis=0), 1)
    explained = (sizes * (borne - wanted) ** 2).sum() <= (sizes * borne**2).sum()
    here = constraints.by_object @ found
    if explained and constraints.components.queries.max() == len(matrix):
        assert here == pytest.approx(wanted, abs=1e-6)
    assert (sizes * (borne - here) ** 2).sum() <= (sizes * borne**2).sum() * (1 + 1e-6)


def test_the_iterative_solver_agrees_with_the_direct_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    queries = [
        Query("sum", {int(i): float(rng.uniform(0.5, 2)) for i in rng.choice(300, 9, replace=False)}, 1.0)
        for _ in range(60)
    ]
    constraints, borne = planned(queries, 300), rng.exponential(1, 300)
    direct = burden_targets(constraints, borne, everything(constraints))
    monkeypatch.setattr(precision_targets, "DENSE", 0)
    assert burden_targets(constraints, borne, everything(constraints)) == pytest.approx(direct, abs=1e-6)
    assert direct == pytest.approx(
        reference.weighted_targets(reference.table(queries, 300)[0], borne), abs=1e-6
    )


@pytest.mark.parametrize("dense", [0, 100])
@pytest.mark.parametrize("off", [0.0, 1e-9, 1e-3])
def test_queries_whose_system_is_singular_get_targets_that_help(
    monkeypatch: pytest.MonkeyPatch, dense: int, off: float
) -> None:
    # two queries that differ, over common objects in other proportions: see the module
    k = (6**0.5 + 2**0.5) / 2 + off
    queries = [Query("sum", {0: 1, 1: k, 2: 1}, 1.0), Query("sum", {0: k, 1: 1}, 1.0)]
    matrix, _ = reference.table(queries, 3)
    assert np.linalg.matrix_rank(matrix) == 2
    borne = np.array([1.0, 2.0, 5.0])
    if off:
        assert np.abs(reference.weighted_targets(matrix, borne)).max() > 500
    monkeypatch.setattr(precision_targets, "DENSE", dense)
    found = burden_targets(planned(queries, 3), borne, np.ones(3, dtype=bool))
    assert np.abs(found).max() < 10
    assert ((borne - matrix.T @ found) ** 2).sum() < (borne**2).sum()


def test_queries_apart_have_averages() -> None:
    constraints = constrained([average([0, 1, 2], 1), total([3, 4], 1, weights=[2, -4]), total([5], 1)], 7)
    found = burden_targets(
        constraints, np.array([1.0, 2.0, 6.0, 4.0, 4.0, 9.0, 9.0]), everything(constraints)
    )
    assert found.tolist() == [3.0, 1.5, 0.0]


def test_a_small_component_is_solved_as_well_as_a_large_one() -> None:
    pair = [[0, 1, 2], [2, 3]]
    constraints = constrained([average(p, 1) for p in (*pair, *([i + 4 for i in p] for p in pair))], 8)
    borne = np.array([1.0, 1.0, 4.0, 3.5])
    found = burden_targets(constraints, np.concatenate([borne * 1e9, borne * 1e-9]), everything(constraints))
    assert found[:2] / 1e9 == pytest.approx(found[2:] * 1e9)


@seldom
@given(seeds, st.booleans())
def test_a_warm_start_ends_where_a_cold_one_does(seed: int, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    constraints = planned(random_queries(rng, 12, 5, weighted=weighted), 12)
    borne = rng.exponential(1, 12)
    cold = burden_targets(constraints, borne, everything(constraints))
    warm = burden_targets(constraints, borne, everything(constraints), cold + rng.normal(size=5))
    assert constraints.by_object @ warm == pytest.approx(constraints.by_object @ cold, abs=1e-6)
