"""The order of evaluations against all orders there are, and when evaluating everything costs less."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from slackwater.errors import PlanError
from slackwater.planners.deferring import (
    ItemLoad,
    Rules,
    UnitCosts,
    deferred_cost,
    evaluate_every,
    every_cost,
    leaving,
)
from slackwater.planners.evaluations import affordable, penalty, urgency
from slackwater.planners.manner import Manner
from slackwater.runtime.settings import Settings


def lateness(order: np.ndarray, deadline: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """By how much each of some tasks is late that run one after the other from now on."""
    done = np.empty(len(order))
    done[order] = np.cumsum(cost[order])
    return done - deadline


@pytest.mark.parametrize("seed", range(40))
def test_the_earliest_deadline_first_is_late_only_where_every_order_is(seed: int):
    random = np.random.default_rng(seed)
    deadline, cost = random.uniform(0, 6, 6), random.uniform(0.2, 1.5, 6)
    order = affordable(deadline, np.zeros(6), np.ones(6), cost, None)
    feasible = any((lateness(np.array(o), deadline, cost) <= 0).all() for o in permutations(range(6)))
    assert (lateness(order, deadline, cost) <= 0).all() == feasible


@pytest.mark.parametrize("seed", range(40))
def test_late_evaluations_by_urgency_cost_little_more_than_in_the_best_order(seed: int):
    random = np.random.default_rng(seed)
    deadline, cost = random.uniform(-5, 0, 6), random.uniform(0.1, 2, 6)
    drift, variance = random.normal(0, 1, 6), random.uniform(0, 4, 6)

    def total(order: np.ndarray) -> float:
        return float(penalty(lateness(order, deadline, cost), drift, variance).sum())

    by_urgency = np.argsort(-urgency(deadline - cost, drift, variance, cost))
    best = min(total(np.array(order)) for order in permutations(range(6)))
    worst = max(total(np.array(order)) for order in permutations(range(6)))
    assert total(by_urgency) <= 1.25 * best
    assert total(by_urgency) < (best + worst) / 2


def test_under_overload_a_part_is_for_those_that_have_waited_longest():
    deadline = np.concatenate([np.full(50, -0.1), [-500.0]])
    variance = np.concatenate([np.full(50, 9.0), [0.01]])
    run = affordable(deadline, np.zeros(51), variance, np.ones(51), 12.0)
    assert len(run) == 12
    assert 50 in run


def test_an_evaluation_that_is_larger_than_the_budget_runs_all_the_same():
    assert len(affordable(np.zeros(3), np.zeros(3), np.ones(3), np.full(3, 9.0), 1.0)) == 1


def test_what_nothing_is_known_of_comes_first():
    variance = np.array([1.0, np.nan, 100.0])
    assert affordable(np.zeros(3), np.zeros(3), variance, np.ones(3), 1.0).tolist() == [1]


def test_the_cheaper_way_is_taken_and_kept():
    costs, ones = UnitCosts(entry=1e-7), np.ones(50)
    for wait in (1.0, 2.0, 5.0, 20.0, 100.0):
        load = ItemLoad(1000, 50, wait * ones, leaving(ones, 0 * ones, ones / (2.7 * wait)))
        cheaper = every_cost(load, 1.0, costs) < deferred_cost(load, 1.0, costs)
        close = 0.8 < every_cost(load, 1.0, costs) / deferred_cost(load, 1.0, costs) < 1.25
        if not close:
            assert (
                evaluate_every(load, 1.0, costs, True) == evaluate_every(load, 1.0, costs, False) == cheaper
            )
    # which way it is must depend on how long answers wait
    assert evaluate_every(ItemLoad(9, 50, ones, leaving(ones, 0 * ones, ones / 4)), 1.0, costs, False)
    assert not evaluate_every(
        ItemLoad(9, 50, 99 * ones, leaving(ones, 0 * ones, ones / 400)), 1.0, costs, True
    )


def test_rules_are_the_same_when_they_are_read_back():
    rules = Rules(0.1 + 0.2, UnitCosts(entry=1 / 3), ("q/a", "q/b"))
    assert Rules.from_json(rules.to_json()) == rules
    assert Rules.from_json({}) == Rules()


def test_extensions_are_named_by_a_setting():
    assert Manner.of(Settings().deferral) == Manner()
    assert Manner.of(" Covariance , reflection ") == Manner(True, False, False, False, False, True)
    with pytest.raises(PlanError, match="setting deferral: expected all, paper, or some of covariance"):
        Settings(deferral="faster")
