"""Intervals of deferred queries: the tables against root finding, and what they claim against drawn motions."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.planners.next_evaluation import next_crossing, next_evaluation, trailing_edge
from slackwater.reference import deferral as exact
from slackwater.statistics.diffusion import estimate, next_estimate

BELIEFS = (0.05, 0.3, 0.5, 0.8, 0.85, 0.9, 0.95, 0.99, 0.999, 0.999999)
CLOSE = 2e-4


def drawn(number: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Bounds, drifts, variances and beliefs from far apart."""
    rng = np.random.default_rng(seed)
    bound, variance = 10 ** rng.uniform(-4, 4, number), 10 ** rng.uniform(-6, 6, number)
    # drifts that matter as much as the variance, more, and less
    drift = rng.choice([-1, 1], number) * 10 ** rng.uniform(-4, 4, number) * variance / bound
    return bound, drift, variance, rng.choice(BELIEFS, number)


def differences(found: np.ndarray, wanted: list[float]) -> float:
    expected = np.array(wanted)
    assert ((found == np.inf) == (expected == np.inf)).all()
    there = np.isfinite(expected)
    return float(np.abs(found[there] / expected[there] - 1).max())


@pytest.mark.parametrize(
    ("mode", "chance", "number"), [("end", exact.within, 400), ("average", exact.within_on_average, 40)]
)
def test_intervals_are_those_of_the_exact_solver(
    mode: Literal["end", "average"], chance: exact.Chance, number: int
) -> None:
    bound, drift, variance, belief = drawn(number, seed=1)
    found = next_evaluation(bound, drift, variance, belief, mode=mode)
    wanted = [exact.falls_to(chance, *of, fine=3) for of in zip(bound, drift, variance, belief, strict=True)]
    assert differences(found, wanted) < CLOSE


@pytest.mark.parametrize(
    ("mode", "chance"), [("marginal", exact.below_at_end), ("reflection", exact.always_below)]
)
def test_crossings_are_those_of_the_exact_solver(
    mode: Literal["marginal", "reflection"], chance: exact.Chance
) -> None:
    bound, drift, variance, belief = drawn(400, seed=2)
    found = next_crossing(bound, drift, variance, belief, mode=mode)
    wanted = [exact.falls_to(chance, *of) for of in zip(bound, drift, variance, belief, strict=True)]
    assert differences(found, wanted) < CLOSE
    assert 50 < np.isinf(found).sum() < 300


def test_crossings_where_the_chance_hardly_falls_so_low() -> None:
    """With a drift away from the line 1 - exp(2·r) of all motions never cross it: near that times grow."""
    belief = 0.9
    r = np.log(1 - belief) / 2 * (1 - np.array([0.3, 0.1, 1e-2, 1e-3, 1e-5]))
    found = next_crossing(1.0, r, 1.0, belief)
    wanted = [exact.falls_to(exact.always_below, 1.0, float(x), 1.0, belief) for x in r]
    assert differences(found, wanted) < CLOSE
    assert (np.diff(found) > 0).all()
    assert next_crossing(1.0, float(np.log(1 - belief) / 2) * 1.0001, 1.0, belief) == np.inf


def test_beliefs_below_the_table_are_solved() -> None:
    beliefs = np.array([0.0005, 0.004, 0.0099])
    found = next_evaluation(2.0, 0.3, 0.5, beliefs)
    wanted = [exact.falls_to(exact.within, 2.0, 0.3, 0.5, float(belief)) for belief in beliefs]
    assert differences(found, wanted) < 1e-6


def test_one_belief_for_all_is_the_same_as_one_for_each() -> None:
    bound, drift, variance, _ = drawn(50_000, seed=3)
    for belief in (0.5, 0.9, 0.999):
        for found in (
            lambda p: next_evaluation(bound, drift, variance, p),
            lambda p: next_crossing(bound, drift, variance, p),
        ):
            np.testing.assert_allclose(found(belief), found(np.full(50_000, belief)), rtol=1e-12)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.floats(1e-3, 1e3),
    st.floats(-1e3, 1e3),
    st.floats(1e-6, 1e3),
    st.floats(0.02, 0.999),
    st.floats(1.001, 10),
)
def test_larger_bounds_and_lower_beliefs_defer_longer(
    bound: float, drift: float, variance: float, belief: float, times: float
) -> None:
    slack = 1 + 4 * CLOSE
    for mode in ("end", "average"):
        first = float(next_evaluation(bound, drift, variance, belief, mode=mode))
        assert first <= float(next_evaluation(bound * times, drift, variance, belief, mode=mode)) * slack
        assert first <= float(next_evaluation(bound, drift, variance, belief / times, mode=mode)) * slack
        assert first >= float(next_evaluation(bound, drift, variance * times, belief, mode=mode)) / slack or (
            drift != 0
        )
    end, average = (
        float(next_evaluation(bound, drift, variance, belief, mode=m)) for m in ("end", "average")
    )
    assert end <= average * slack


EDGES: list[tuple[dict[str, Any], float]] = [
    ({"variance": 0.0, "drift": 0.0}, math.inf),
    ({"variance": 0.0, "drift": 0.0, "bound": 0.0}, math.inf),
    ({"variance": 0.0, "drift": -0.5}, 4.0),
    ({"bound": 0.0}, 0.0),
    ({"bound": 0.0, "drift": 0.5, "variance": 0.0}, 0.0),
    ({"variance": math.nan}, 0.0),
    ({"drift": math.nan}, 0.0),
    ({"variance": math.nan, "bound": math.inf}, 0.0),
    ({"bound": math.inf}, math.inf),
    ({"variance": math.inf}, 0.0),
    ({"belief": 1.0}, 0.0),
    ({"belief": 0.0}, math.inf),
    ({"variance": 1e-300, "drift": 0.5}, 4.0),
    ({"variance": 1e-300, "drift": 1e-300, "bound": 1e300}, math.inf),
]


@pytest.mark.parametrize(("given_", "wanted"), EDGES)
def test_edges(given_: dict[str, Any], wanted: float) -> None:
    arguments = {"bound": 2.0, "drift": 0.0, "variance": 1.0, "belief": 0.9} | given_
    assert float(next_evaluation(**arguments)) == pytest.approx(wanted)
    many = {name: np.full(3, value) for name, value in arguments.items()}
    assert next_evaluation(**many) == pytest.approx(wanted)
    arguments["headroom"] = arguments.pop("bound")
    arguments["drift"] = abs(arguments["drift"])
    for mode in ("reflection", "marginal"):
        assert float(next_crossing(**arguments, mode=mode)) == pytest.approx(wanted)


def test_edges_of_crossings() -> None:
    assert float(next_crossing(1.0, -0.5, 0.0, 0.9)) == math.inf
    assert float(next_crossing(0.0, -0.5, 0.0, 0.9)) == math.inf
    assert float(next_crossing(-1.0, -0.5, 0.0, 0.9)) == 0.0
    assert float(next_crossing(1.0, 0.0, 1.0, 0.4, mode="marginal")) == math.inf
    assert float(next_crossing(1.0, -1e9, 1e-9, 0.9)) == math.inf


def test_average_mode_without_a_variance_is_over_the_share() -> None:
    assert float(next_evaluation(2.0, 0.5, 0.0, 0.8, mode="average")) == pytest.approx(5.0)


def motions(drift: float, after: float, number: int, steps: int) -> np.ndarray:
    """Standard Brownian motions with a drift, a row each."""
    rng = np.random.default_rng(4)
    step = after / steps
    moves = rng.normal(drift * step, math.sqrt(step), (number, steps))
    return np.cumsum(moves, axis=1)


@pytest.mark.parametrize("drift", [0.0, 0.7, -0.4])
def test_reflection_covers_the_whole_interval_and_the_marginal_does_not(drift: float) -> None:
    belief, number, steps = 0.9, 4000, 500
    shares = {}
    for mode in ("reflection", "marginal"):
        after = float(next_crossing(1.0, drift, 1.0, belief, mode=mode))
        paths = motions(drift, after, number, steps)
        # between two steps the maximum is somewhat higher: Broadie, Glasserman and Kou's correction
        line = 1.0 - 0.5826 * math.sqrt(after / steps)
        shares[mode] = float((paths.max(axis=1) <= line).mean())
        if mode == "marginal":
            assert float((paths[:, -1] <= 1).mean()) == pytest.approx(belief, abs=0.015)
    assert shares["reflection"] == pytest.approx(belief, abs=0.015)
    if drift == 0:
        assert shares["marginal"] == pytest.approx(2 * belief - 1, abs=0.02)
    else:
        assert shares["marginal"] < belief - 0.03


@pytest.mark.parametrize("drift", [0.0, 1.5])
def test_average_mode_is_the_share_of_time_within_bounds(drift: float) -> None:
    after = float(next_evaluation(1.0, drift, 1.0, 0.9, mode="average"))
    paths = motions(drift, after, 4000, 300)
    assert float((np.abs(paths) <= 1).mean()) == pytest.approx(0.9, abs=0.01)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.lists(st.integers(-5, 5), min_size=6, max_size=6), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.5, 1.0, 3.0, 20.0]),
    st.integers(0, 3),
)
def test_the_trailing_edge_is_that_of_a_scan(rows: list[list[int]], bound: float, outside: int) -> None:
    times = np.array([0.0, 1.0, 2.5, 3.0, 4.0, 6.0])
    size = 6.0 - outside
    found = trailing_edge(times, np.array(rows, float), 6.0, size, bound)
    assert found.tolist() == [exact.leaves(times.tolist(), row, 6.0, size, bound) for row in rows]


def test_a_trailing_edge_with_missing_values() -> None:
    nan = math.nan
    values = np.array([[nan, 5.0, 1.0, nan], [nan, nan, nan, nan], [3.0, nan, nan, nan]])
    found = trailing_edge(np.arange(4.0), values, 3.0, 3.0, np.array([2.0, 2.0, 2.0]))
    # a lone value stays the maximum until the window has passed
    assert found.tolist() == [1.0, 0.0, 3.0]
    assert trailing_edge(np.arange(4.0), values, 30.0, 3.0, 2.0).tolist() == [0.0, 0.0, 0.0]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(-9, 9)), max_size=7), min_size=1, max_size=5)
)
def test_estimates_are_those_of_a_loop(rows: list[list[tuple[int, int]]]) -> None:
    rows = [sorted(row, key=lambda item: item[0]) for row in rows]
    times, values = np.full((len(rows), 7), np.nan), np.full((len(rows), 7), np.nan)
    for number, row in enumerate(rows):
        if row:
            times[number, -len(row) :], values[number, -len(row) :] = np.array(row).T
    drift, variance = estimate(times, values)
    wanted = [exact.drift_and_variance(row) for row in rows]
    np.testing.assert_allclose(drift, [d for d, _ in wanted], atol=1e-12)
    np.testing.assert_allclose(variance, [v for _, v in wanted], rtol=1e-9, atol=1e-12)


def test_estimates_recover_what_was_drawn() -> None:
    rng = np.random.default_rng(5)
    gaps = rng.exponential(1.0, (2000, 100))
    steps = 0.3 * gaps + rng.normal(0, 2.0 * np.sqrt(gaps))
    drift, variance = estimate(np.cumsum(gaps, axis=1), np.cumsum(steps, axis=1))
    assert drift.mean() == pytest.approx(0.3, abs=0.02)
    assert variance.mean() == pytest.approx(4.0, rel=0.01)


def test_the_schedule_of_estimates() -> None:
    found = next_estimate(
        np.full(4, 50.0), np.array([40.0, 40.0, 50.0, 40.0]), 1.0, [0.25, 0.0, 0.0, 100.0], 15.0
    )
    assert found.tolist() == [65.0, 65.0, 50.0, 51.0]
