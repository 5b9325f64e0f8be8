"""What deferral learns on the way: correlations, misses, silent series; and its simulated experiments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.progress import Progress
from scipy.sparse import csr_array

from slackwater.experiments import deferral_evaluations, deferral_fidelity, deferral_interruption
from slackwater.experiments import deferral_plots as plots
from slackwater.experiments.deferral_data import WARM_UP, Series, generated, queries
from slackwater.experiments.deferral_extremes import simulate_maxima
from slackwater.experiments.deferral_motion import estimates
from slackwater.experiments.deferral_simulation import OURS, PAPER, Moving, optimum, simulate
from slackwater.planners.deferral_budget import Budget, Clock, belief_at_least
from slackwater.reference import deferral as exact
from slackwater.statistics.calibration import Calibration, time_out
from slackwater.statistics.covariance import Factors
from slackwater.statistics.interruptions import Interruptions


def factor_moves(ticks: int, loadings: np.ndarray, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    own = np.sqrt(1 - np.square(loadings).sum(axis=1))
    return rng.normal(size=(ticks, loadings.shape[1])) @ loadings.T + own * rng.normal(size=(ticks, len(own)))


class TestFactors:
    @pytest.mark.parametrize("missing", [0.0, 0.3])
    @pytest.mark.parametrize("signs", [1, -1])
    def test_the_variance_of_a_sum_with_common_moves(self, missing: float, signs: int) -> None:
        rng = np.random.default_rng(1)
        loadings = rng.uniform(0.4, 0.65, (12, 2))
        loadings[::2] *= signs
        factors = Factors.fresh(12)
        for moves in factor_moves(4000, loadings, seed=2):
            factors.observe(np.where(rng.random(12) < missing, np.nan, moves))
        weights = rng.uniform(0.5, 1.5, (5, 12))
        sigma = rng.uniform(0.5, 2.0, 12)
        matrix = loadings @ loadings.T
        np.fill_diagonal(matrix, 1.0)
        true = np.einsum("qi,ij,qj->q", weights * sigma, matrix, weights * sigma)
        np.testing.assert_allclose(factors.variance_of(csr_array(weights), sigma), true, rtol=0.12)

    def test_independent_series_have_the_sum_of_their_variances(self) -> None:
        rng = np.random.default_rng(3)
        factors, sigma = Factors.fresh(20), rng.uniform(0.5, 2.0, 20)
        weights = csr_array(rng.uniform(0.5, 1.5, (5, 20)))
        alone = weights.power(2) @ sigma**2
        np.testing.assert_allclose(factors.variance_of(weights, sigma), alone, rtol=1e-12)
        for moves in rng.normal(size=(4000, 20)):
            factors.observe(moves)
        np.testing.assert_allclose(factors.variance_of(weights, sigma), alone, rtol=0.1)

    @pytest.mark.parametrize("series", [1, 2, 7])
    def test_variances_are_never_negative(self, series: int) -> None:
        rng = np.random.default_rng(4)
        factors = Factors.fresh(series)
        for tick in range(300):
            moves = rng.standard_t(2, series) * 10.0 ** rng.integers(-3, 3)
            moves[rng.random(series) < 0.2] = np.nan
            # all move as one, then not at all
            factors.observe(np.full(series, moves[0]) if tick < 150 else 0 * moves)
        weights = csr_array(rng.normal(size=(50, series)))
        found = factors.variance_of(weights, np.ones(series))
        assert (found >= 0).all()
        assert np.isfinite(found).all()
        if series == 1:
            np.testing.assert_allclose(found, weights.toarray().ravel() ** 2)

    def test_what_was_saved_goes_on_as_before(self) -> None:
        moves = factor_moves(200, np.full((4, 1), 0.8), seed=5)
        first, second = Factors.fresh(4), Factors.fresh(4)
        for number, move in enumerate(moves):
            first.observe(move)
            second.observe(move)
            if number == 99:
                second = Factors.from_arrays(second.to_arrays())
        np.testing.assert_array_equal(first.loadings, second.loadings)


class TestCalibration:
    def test_time_out_is_what_bridges_spend_there(self) -> None:
        rng = np.random.default_rng(8)
        steps, after, variance, bound = 400, 4.0, 0.7, 1.0
        share = np.arange(1, steps + 1) / steps
        walks = np.cumsum(rng.normal(0, np.sqrt(variance * after / steps), (4000, steps)), axis=1)
        for moved in (0.0, 0.9, 2.5):
            bridges = walks - share * walks[:, -1:] + share * moved
            found = time_out(*(np.array([a]) for a in (bound, variance, after, moved)))
            assert float(found[0]) == pytest.approx(float((np.abs(bridges) > bound).mean()), abs=0.02)

    def test_a_tick_of_one_is_never_out(self) -> None:
        one = np.ones(1)
        assert time_out(one, one, one, 9 * one, tick=1.0).tolist() == [0.0]
        assert 0 < float(time_out(one, one, 4 * one, 9 * one, tick=1.0)[0]) < 0.75

    @pytest.mark.parametrize("wrong", [0.25, 1.0, 6.0])
    def test_factors_make_up_for_a_wrong_variance(self, wrong: float) -> None:
        """Queries evaluated by a variance that is wrong come to be out of bounds as often as is allowed."""
        moving = walks(5000, 8, tail=3.0)
        told = replace(moving, variance=moving.variance * wrong)
        scheme = replace(OURS, budget=False, replanned=0)
        found = simulate(told, scheme, (0.3,), (0.9, 0.8)).fidelity.mean(axis=(0, 1))
        np.testing.assert_allclose(found, [0.9, 0.8], atol=0.045)
        uncalibrated = simulate(told, replace(scheme, calibration=False), (0.3,), (0.9,)).fidelity.mean()
        assert wrong == 1.0 or abs(uncalibrated - 0.9) > 0.05

    def test_new_queries_begin_with_what_others_have_learnt(self) -> None:
        learnt = Calibration.fresh(50)
        every = np.arange(50)
        for _ in range(300):
            learnt.learn(every, np.full(50, 0.3), 0.1, np.full(50, 60.0))
        assert (learnt.factor() > 20).all()
        more = learnt.extended(60)
        np.testing.assert_allclose(more.factor()[50:], more.factor()[0], rtol=0.05)
        again = Calibration.from_arrays(more.to_arrays())
        np.testing.assert_array_equal(again.factor(), more.factor())


def walks(ticks: int, number: int, tail: float) -> Moving:
    """Random walks with heavy tails, and their true drift and variance."""
    rng = np.random.default_rng(9)
    moves = 0.1 * rng.standard_t(tail, (ticks + WARM_UP, number)) / np.sqrt(tail / (tail - 2))
    known = np.full(moves.shape, 0.01)
    return Moving(np.cumsum(moves, axis=0), 0 * known, known, 1.0, 1440.0)


def test_the_budget_spends_within_its_limits() -> None:
    budget, every = Budget.fresh(3), np.arange(3)
    budget.note(every, np.array([100.0, 100.0, 0.0]), 60.0)
    even = np.array([1.0, 1e4, 50.0])
    found = budget.stretched(every, even, 2 * even)
    assert found[0] == 2.0
    assert 100.0 < found[1] < 1e4
    assert found[2] == pytest.approx(50.0)
    ends = budget.stretched(every, np.array([0.0, np.inf, 0.0]), np.array([0.0, np.inf, 0.0]))
    assert ends.tolist() == [0.0, np.inf, 0.0]
    np.testing.assert_array_equal(Budget.from_arrays(budget.to_arrays()).level, budget.level)
    assert belief_at_least(0.99) == pytest.approx(0.98)


def test_the_clock_ends_intervals_early_and_late() -> None:
    clock, both = Clock.fresh(2), np.arange(2)
    clock.begin(both, np.array([100.0, 100.0]), 0.0)
    clock.again(both, np.array([10.0, 1000.0]), 50.0)
    assert clock.due().tolist() == [55.0, 550.0]
    clock.again(both, np.array([np.inf, np.inf]), 60.0)
    assert clock.due().tolist() == [60.0, np.inf]
    clock.again(both, np.array([5.0, 5.0]), 70.0)
    assert clock.due()[1] == pytest.approx(70.0 + 0.49 * 5)


def test_pretended_interruptions_learn_drift_and_spread() -> None:
    rng = np.random.default_rng(10)
    trend = np.array([0.5, 0.5, 0.5, 0.5])
    known, inside = Interruptions.fresh(4), []
    values = np.cumsum(trend + rng.standard_t(3, (6000, 4)), axis=0)
    for tick, row in enumerate(values):
        if tick in (1000, 3000):
            known = Interruptions.from_arrays(known.to_arrays())
        # the drift is right, the variance a quarter of the true one
        known.observe(row, trend, np.full(4, 0.75), np.zeros(4), 1.0)
        if tick > 2000 and tick + 16 < len(values):
            ticks = np.full(4, 16.0)
            said = row + known.gone(trend, np.zeros(4), ticks, 1.0)
            width = 1.645 * known.spread(np.full(4, 0.75), trend, ticks, 1.0)
            inside.append(np.abs(values[tick + 16] - said) <= width)
    assert np.mean(inside) == pytest.approx(0.9, abs=0.03)
    assert known.trust()[0][4] > 0.8


class TestSimulation:
    def test_estimates_are_held_until_they_are_due(self) -> None:
        values, fresh = generated(300, 2, seed=1)
        series = Series("generated", values, fresh, 60.0, 86_400.0, (0.1,), real=False)
        found = estimates(series, 20)
        items = [(60.0 * tick, values[tick, 0]) for tick in range(300)]
        matching = 0
        for tick in range(50, 300):
            _, variance = exact.drift_and_variance(items[tick - 19 : tick + 1])
            matching += abs(found.variance[tick, 0] / variance - 1) < 1e-6
            assert found.variance[tick, 0] > 0
        # at least every tenth tick is estimated anew
        assert 25 <= matching <= 250

    def test_a_motion_as_the_paper_has_it_is_as_faithful_as_claimed(self) -> None:
        moving = walks(6000, 20, tail=30.0)
        found = simulate(moving, replace(PAPER, average=True), (0.4, 0.8), (0.95, 0.9, 0.8))
        # whole ticks: intervals are rounded up, and right again at their ends
        np.testing.assert_allclose(found.fidelity.mean(axis=(0, 1)), [0.95, 0.9, 0.8], atol=0.015)
        ended = simulate(moving, PAPER, (0.4, 0.8), (0.9,)).fidelity.mean()
        assert ended > 0.93

    def test_nobody_beats_the_optimum_at_full_fidelity(self) -> None:
        moving = walks(2000, 5, tail=4.0)
        fewest = optimum(moving.values, (0.3,))
        found = simulate(moving, OURS, (0.3,), (0.999,))
        assert (found.evaluations[:, :, 0] > fewest).all()
        assert (found.evaluations <= 2000).all()

    def test_maxima_are_more_faithful_than_claimed(self) -> None:
        moving = walks(3000, 5, tail=4.0)
        for scheme in (PAPER, OURS):
            found = simulate_maxima(moving, scheme, (0.2, 0.4), (0.9, 0.8))
            assert (found.fidelity.mean(axis=(0, 1)) > [0.9, 0.8]).all()
            assert found.evaluations.mean() < 2000

    def test_queries_have_weights_of_one_in_all(self) -> None:
        weights = queries(30, 4, seed=3)
        assert (np.diff(weights.indptr) == 9).all()
        np.testing.assert_allclose(weights.sum(axis=1), 1.0)


@pytest.mark.parametrize(
    ("module", "draw", "figures"),
    [
        (deferral_fidelity, plots.plot_fidelity, ("avg.prices.95", "max.sensors.85", "paper.avg.prices.90")),
        (
            deferral_evaluations,
            plots.plot_evaluations,
            ("fidelity.90", "ours_over_paper.85", "average.over_paper.90"),
        ),
        (
            deferral_interruption,
            plots.plot_interruption,
            ("coverage.2", "coverage.3", "width.2", "error.2.60"),
        ),
    ],
)
def test_experiments_run_and_draw(module: Any, draw: Any, figures: tuple[str, ...], tmp_path: Path) -> None:
    name = module.__name__.rsplit(".", 1)[1]
    found = getattr(module, name)(None, tmp_path, module.QUICK, Progress(disable=True))
    assert set(figures) <= set(found.figures)
    pytest.importorskip("matplotlib")
    draw(found.series, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").stat().st_size > 1000


def test_series_that_come_later_are_learnt_as_fast_as_the_first() -> None:
    moves = factor_moves(3300, np.full((6, 1), 0.9), seed=27)
    factors = Factors.fresh(6)
    for number, move in enumerate(moves):
        factors.observe(np.where((np.arange(6) >= 4) & (number < 3000), np.nan, move))
    both = csr_array(np.array([[0.0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, -1]]))
    found = factors.variance_of(both, np.ones(6))
    np.testing.assert_allclose(found, [3.62, 0.38], atol=0.25)


@pytest.mark.parametrize("series", [2, 6])
def test_silent_series_are_told_by_the_others(series: int) -> None:
    loadings = np.full((series, 1), 0.9)
    factors = Factors.fresh(series)
    for moves in factor_moves(4000, loadings, seed=6):
        factors.observe(moves)
    tried = factor_moves(3000, loadings, seed=7)
    told = np.stack([factors.told(np.where(np.arange(series) < 1, np.nan, moves)) for moves in tried])
    error = tried[:, 0] - told[:, 0]
    # what the best prediction by the others leaves: 1 - 0.81² / (0.81 + 0.19 / others)
    left = 1 - 0.81**2 * (series - 1) / (0.81 * (series - 1) + 0.19)
    assert np.mean(np.square(error)) == pytest.approx(left, rel=0.15)
    heard = np.stack([factors.told(moves) for moves in tried])
    np.testing.assert_allclose(heard[:, 0], told[:, 0], atol=1e-9), "its own move has no part in it"


def test_what_others_tell_is_trusted_as_far_as_it_has_held() -> None:
    rng = np.random.default_rng(29)
    for worth in (1.0, 0.5, 0.0):
        known, value, path = Interruptions.fresh(3), np.zeros(3), np.zeros(3)
        for _ in range(4000):
            told = rng.normal(size=3)
            path = path + told
            value = value + worth * told + 0.3 * rng.normal(size=3)
            known.observe(value, np.zeros(3), np.ones(3), path, 1.0)
        assert known.trust()[1] == pytest.approx(worth, abs=0.08)
        # what is left is as wide as what others do not tell
        spread = np.exp(known.log_spread[0])
        assert spread == pytest.approx(0.3, rel=0.3)
