"""Response curves, allocations over them, and changes that are worth their messages, against slow and obvious ways."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from scipy.optimize import linprog

from precision_queries import exactly_feasible, often, planned, random_queries, seeds, seldom
from slackwater.planners.precision_allocation import Allocation, allocate
from slackwater.planners.precision_changes import HORIZON_PERIODS, horizons, worthwhile
from slackwater.planners.precision_constraints import (
    Constraints,
    Floats,
    average,
    constrained,
    extreme,
    total,
    uniform,
)
from slackwater.planners.precision_curves import AT_A_TIME, FEW, Curves, Told, hulls, known_curves
from slackwater.planners.precision_prices import fitted_prices

POINTS = 6


def falling(rng: np.random.Generator, objects: int, points: int = POINTS) -> tuple[Floats, Floats]:
    """Widths from 0 on and rates that fall, some of them not at all for a while."""
    gaps = rng.uniform(0.1, 2, (objects, points - 1))
    widths = np.concatenate([np.zeros((objects, 1)), np.cumsum(gaps, axis=1)], axis=1)
    falls = rng.exponential(1, (objects, points)) * (rng.random((objects, points)) < 0.7)
    return widths, np.cumsum(falls[:, ::-1], axis=1)[:, ::-1].copy()


def obvious_hull(widths: Floats, rates: Floats) -> Floats:
    """At each point the least of all lines between a point before it and one after it."""
    found = rates.copy()
    for low, high in itertools.combinations(range(len(widths)), 2):
        for place in range(low, high + 1):
            part = (widths[place] - widths[low]) / (widths[high] - widths[low])
            found[place] = min(found[place], rates[low] + part * (rates[high] - rates[low]))
    return found


@pytest.mark.parametrize("objects", [1, FEW, FEW + 1, AT_A_TIME + 3])
def test_hulls_are_the_lowest_lines_between_points(objects: int):
    widths, rates = falling(np.random.default_rng(objects), objects)
    found = hulls(widths, rates)
    for row in (*range(min(objects, 40)), objects - 1):
        assert found.rates[row] == pytest.approx(obvious_hull(widths[row], rates[row]), abs=1e-9)
    assert (found.rates <= rates + 1e-9).all()
    assert (np.diff(found.slopes, axis=1) <= 1e-9).all()


def test_a_curve_is_a_line_between_its_points_and_flat_beyond():
    curve = Curves(np.array([[0.0, 2.0, 6.0]]), np.array([[8.0, 4.0, 2.0]]))
    for width, rate in ((0, 8), (1, 6), (2, 4), (4, 3), (6, 2), (100, 2)):
        assert curve.at(np.array([float(width)])).item() == pytest.approx(rate)


def told(rates: list[float], seconds: float, age: float) -> Told:
    return Told(np.array([0]), np.array([seconds]), np.array([rates]), np.array([age]))


def test_who_is_silent_sends_less_and_less_from_his_width_on():
    rates = [1.0, 0.5, 0.25, 0.1]
    fresh, old = (known_curves(told(rates, 100, age), np.array([2.0]), 10.0) for age in (0.0, 900.0))
    at = np.array([2.0])
    assert fresh.at(at).item() == pytest.approx(0.25, rel=0.2)
    assert old.at(at).item() == pytest.approx(fresh.at(at).item() / 10, rel=0.3)
    faded = old.rates[0] / fresh.rates[0]
    assert 1.4 * faded[2] < faded[0] < 0.3, "who is silent is quiet at narrower bounds too, but less surely"


def test_who_never_told_is_taken_to_send_the_more_the_narrower():
    found = known_curves(told([0.0] * 4, 0.0, 90.0), np.array([2.0]), 10.0)
    assert found.rates[0, 0] > found.rates[0, 1] > found.rates[0, 2] == 0


@pytest.mark.parametrize("width", [0.0, np.inf, 1e-300, 1e300])
def test_any_width_in_use_gives_a_curve(width: float):
    for rates, seconds in (([0.0] * 4, 0.0), ([1.0, 0.5, 0.5, 0.0], 50.0)):
        for between in (0, 2):
            found = known_curves(told(rates, seconds, 5.0), np.array([width]), 10.0, between)
            assert np.isfinite(found.rates).all()
            assert (np.diff(found.rates, axis=1) <= 0).all()
            assert (found.rates >= 0).all()


def test_points_between_rungs_follow_a_power_of_the_width():
    rates = [4.0, 1.0, 0.25, 0.0625]
    found = known_curves(told(rates, 1e9, 0.0), np.array([1e-9]), 10.0, between=3)
    for width, rate in ((1.0, 1.0), (2**0.5, 0.5), (2.0, 0.25), (2**1.25, 0.25 / 2**0.5)):
        assert found.at(np.array([width])).item() == pytest.approx(rate, rel=1e-3)


def optimum(constraints: Constraints, curves: Curves, costs: Floats) -> float:
    """The linear program in its plainest form: a width and a rate above each segment's line, by object."""
    objects = constraints.objects
    rows, right = [], []
    for i in range(objects):
        for point in range(curves.widths.shape[1] - 1):
            slope = -curves.slopes[i, point]
            row = np.zeros(2 * objects)
            row[i], row[objects + i] = slope, -1.0
            rows.append(row)
            right.append(slope * curves.widths[i, point] - curves.rates[i, point])
    for line, limit in zip(constraints.matrix.toarray(), constraints.limit, strict=True):
        rows.append(np.concatenate([line, np.zeros(objects)]))
        right.append(limit)
    most = np.minimum(constraints.ceiling, curves.widths[:, -1])
    bounds = [(0.0, m) for m in most] + [(float(r), None) for r in curves.rates[:, -1]]
    found = linprog(
        np.concatenate([np.zeros(objects), costs]), np.array(rows), np.array(right), bounds=bounds
    )
    assert found.status == 0
    return float(found.fun)


def cost(curves: Curves, widths: Floats, costs: Floats, constraints: Constraints) -> float:
    held = np.minimum(np.where(constraints.shared, widths, constraints.ceiling), curves.widths[:, -1])
    return float(curves.at(held) @ costs)


@often
@given(seeds)
def test_an_allocation_is_feasible_and_costs_least(seed: int):
    rng = np.random.default_rng(seed)
    objects, number = int(rng.integers(2, 7)), int(rng.integers(1, 5))
    kinds = ("avg", "sum", "min")[: int(rng.integers(2, 4))]
    queries = random_queries(rng, objects, number, weighted=bool(rng.integers(2)), functions=kinds)
    constraints = planned(queries, objects)
    curves = hulls(*falling(rng, objects))
    costs = rng.uniform(0.5, 3, objects)
    found = allocate(constraints, curves, costs)
    assert exactly_feasible(constraints, np.where(constraints.shared, found.widths, 0.0))
    assert (found.widths[~constraints.shared] == constraints.ceiling[~constraints.shared]).all()
    assert cost(curves, found.widths, costs, constraints) == pytest.approx(
        optimum(constraints, curves, costs), rel=1e-6, abs=1e-6
    )


def test_a_limit_of_zero_leaves_no_width_but_elsewhere():
    constraints = constrained([total([0, 1], 0.0), total([1, 2], 3.0), total([3, 4], 2.0)], 5)
    curves = hulls(*falling(np.random.default_rng(3), 5))
    found = allocate(constraints, curves, np.ones(5))
    assert found.widths[:2].tolist() == [0.0, 0.0]
    assert found.widths[3:].sum() > 0
    assert exactly_feasible(constraints, found.widths)


@seldom
@given(seeds)
def test_fitted_prices_come_close_to_the_program(seed: int):
    rng = np.random.default_rng(seed)
    objects = 60
    asked = [
        average(rng.choice(objects, int(rng.integers(10, 30)), replace=False), float(rng.uniform(0.5, 3)))
        for _ in range(6)
    ]
    constraints = constrained(asked, objects)
    rungs = np.ldexp(1.0, np.arange(-5, 5))
    widths = np.concatenate([[0.0], rungs]) * rng.lognormal(0, 1, (objects, 1))
    rates = np.concatenate(
        [np.ones((objects, 1)), np.repeat(1 / (1 + 8 * rungs[None, :]) ** 2, objects, 0)], 1
    )
    curves, costs = hulls(widths, rates), np.ones(objects)
    best = allocate(constraints, curves, costs)
    cold = allocate(constraints, curves, costs, program_at_most=0)
    warm = allocate(constraints, curves, costs, cold.prices, program_at_most=0)
    for one in (cold, warm):
        assert exactly_feasible(constraints, np.where(constraints.shared, one.widths, 0.0))
    least = cost(curves, best.widths, costs, constraints)
    assert cost(curves, warm.widths, costs, constraints) <= 1.1 * least
    assert cost(curves, uniform(constraints), costs, constraints) > 1.05 * least, "there is something to gain"


def test_prices_from_when_nothing_was_known_are_no_trap():
    rng = np.random.default_rng(3)
    constraints = constrained([average(rng.choice(40, 20, replace=False), 0.2) for _ in range(4)], 40)
    curves, costs = hulls(*falling(rng, 40)), np.ones(40)
    least = cost(curves, allocate(constraints, curves, costs).widths, costs, constraints)
    silent = Curves(curves.widths, np.zeros(curves.rates.shape))
    before = allocate(constraints, silent, costs, program_at_most=0)
    found = allocate(constraints, curves, costs, before.prices, program_at_most=0)
    assert cost(curves, found.widths, costs, constraints) <= 1.1 * least
    assert (found.prices > 1e3 * before.prices).any(), "there is something to find again"


def test_prices_of_objects_that_nobody_asks_for_are_no_trouble():
    constraints = constrained([total([0, 1], 2.0), total([1, 2], 2.0)], 5)
    curves = hulls(*falling(np.random.default_rng(1), 5))
    slopes = curves.slopes
    slopes[4] = 0.0
    found = fitted_prices(constraints, np.diff(curves.widths, axis=1), slopes, None)
    assert np.isfinite(found.widths).all()
    assert exactly_feasible(constraints, np.where(constraints.shared, found.widths, 0.0))


@often
@given(seeds)
def test_changes_stay_feasible_on_the_way_and_pay_for_their_messages(seed: int):
    rng = np.random.default_rng(seed)
    objects = int(rng.integers(2, 9))
    queries = random_queries(rng, objects, int(rng.integers(1, 5)), weighted=bool(rng.integers(2)))
    constraints = planned(queries, objects)
    curves, costs = hulls(*falling(rng, objects)), rng.uniform(0.5, 3, objects)
    widths = uniform(constraints)
    horizon = float(rng.uniform(1, 100))
    allocation = allocate(constraints, curves, costs)
    found = worthwhile(constraints, curves, costs, widths, allocation, horizon)
    assert not set(found.narrow.tolist()) & set(found.grow.tolist())
    assert (found.widths[found.narrow] < widths[found.narrow]).all()
    assert (found.widths[found.grow] > widths[found.grow]).all()
    others = np.setdiff1d(np.arange(objects), np.concatenate([found.narrow, found.grow]))
    assert (found.widths[others] == widths[others]).all()
    state = np.where(constraints.shared, widths, 0.0)
    for changed in (*found.narrow.tolist(), *found.grow.tolist()):
        state[changed] = found.widths[changed]
        assert constraints.feasible(state)
    if len(found.grow):
        held = np.where(constraints.shared, widths, 0.0)
        saved = (curves.at(held) - curves.at(state)) @ costs * horizon
        spent = costs[found.grow].sum() + 2 * costs[found.narrow].sum()
        assert saved > 0 or np.isclose(saved, 0), "widths that are changed are to cost less"
        assert spent > 0
        component = constraints.components
        for number in np.flatnonzero(component.queries > 1):
            own = component.of_object == number
            less = ((curves.at(held) - curves.at(state)) * costs * horizon)[own].sum()
            paid = costs[found.grow][own[found.grow]].sum() + 2 * costs[found.narrow][own[found.narrow]].sum()
            assert less > paid or less == paid == 0, "where queries overlap all that changes pays together"
    else:
        assert not len(found.narrow), "nobody is narrowed for nothing"


def test_what_saves_little_is_not_worth_a_message():
    constraints = constrained([total([0, 1], 4.0)], 2)
    curves = Curves(np.array([[0.0, 4.0]] * 2), np.array([[1.0, 0.0], [0.9, 0.0]]))
    widths, wanted = np.array([2.0, 2.0]), Allocation(np.array([4.0, 0.0]), np.array([0.25]))
    short, long = (worthwhile(constraints, curves, np.ones(2), widths, wanted, h) for h in (20.0, 200.0))
    assert not len(short.grow)
    assert long.grow.tolist() == [0]
    assert long.narrow.tolist() == [1]


def test_a_donor_of_several_queries_is_paid_for_once():
    constraints = constrained([total([0, 1], 4.0)] * 3, 2)
    curves = Curves(np.array([[0.0, 4.0]] * 2), np.array([[2.0, 0.0], [0.6, 0.0]]))
    widths, wanted = np.array([2.0, 2.0]), Allocation(np.array([4.0, 0.0]), np.full(3, 0.1))
    # at 10 seconds what grows saves 10 messages and costs one, what is narrowed sends 3 more and costs two
    short, long = (worthwhile(constraints, curves, np.ones(2), widths, wanted, h) for h in (4.0, 10.0))
    assert not len(short.grow)
    assert long.grow.tolist() == [0]
    assert long.narrow.tolist() == [1]


def test_objects_that_nobody_shares_stay_and_disturb_nothing():
    constraints = constrained([total([0, 1], 4.0), extreme([2], 1.0)], 4)
    curves = hulls(*falling(np.random.default_rng(1), 4))
    widths = uniform(constraints)
    found = worthwhile(
        constraints, curves, np.ones(4), widths, allocate(constraints, curves, np.ones(4)), 300.0
    )
    assert found.widths[2:].tolist() == [1.0, np.inf]
    lasting = horizons(constraints, curves, widths, 10.0)
    assert (lasting >= HORIZON_PERIODS * 10.0).all()
    assert np.isfinite(lasting).all()


def test_a_change_lasts_the_longer_the_less_is_sent():
    constraints = constrained([total([0, 1], 4.0), total([2, 3], 4.0)], 4)
    rates = np.array([[1.0, 0.5], [1.0, 0.5], [1e-4, 1e-4], [1e-4, 1e-4]])
    curves = Curves(np.array([[0.0, 2.0]] * 4), rates)
    lasting = horizons(constraints, curves, uniform(constraints), 10.0)
    assert lasting[0] == lasting[1] == HORIZON_PERIODS * 10
    assert lasting[2] == lasting[3] > 10 * lasting[0]


def test_a_change_lasts_as_long_as_all_but_few_widths_have():
    constraints = constrained([total(range(20), 4.0), total([20, 21], 4.0)], 23)
    curves = Curves(np.array([[0.0, 2.0]] * 23), np.array([[1.0, 0.5]] * 23))
    lasted = np.concatenate([np.linspace(1000, 20_000, 20), [50.0, 9e9], [0.0]])
    lasting = horizons(constraints, curves, uniform(constraints), 10.0, lasted)
    assert (lasting[:20] == 3000.0).all(), "a tenth of them, two, may be younger"
    assert (lasting[20:] == HORIZON_PERIODS * 10).all(), (
        "one of two is not few; what nobody shares has no say"
    )
    long = horizons(constraints, curves, uniform(constraints), 10.0, np.full(23, 1e12))
    assert np.isfinite(long).all()
