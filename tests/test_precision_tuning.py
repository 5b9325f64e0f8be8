"""Period and shrink fitted to the data: what they come to, and that nothing is promised which is not kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from precision_world import BEGIN, SECOND, STREAM, World
from slackwater.edge.filters import Filters
from slackwater.edge.widths import Grants
from slackwater.errors import SourceError
from slackwater.plan.adjusting import Adjusting, adjusting
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.planners.precision_constraints import average, constrained
from slackwater.planners.precision_tuning import LOWEST, PERIOD, Shrinking, fitted_period, judged
from slackwater.runtime.bounds.belief import Belief
from slackwater.runtime.bounds.coordinator import Coordinator
from slackwater.runtime.bounds.tuning import Tuning
from test_precision_guarantee import last_said, peopled, unexcused

# the planner


def fitted(rate: float, last: int = PERIOD, watched: float = 1e5, count: int = 8) -> float:
    some = np.full(count, rate)
    return fitted_period(some, np.full(count, watched), np.ones(count, bool), last, 2 * SECOND) / SECOND


def test_a_period_holds_about_ten_values_and_no_less_than_the_least() -> None:
    for rate in np.geomspace(1e-3, 4.0, 40):
        assert 0.49 <= fitted(rate) * rate / 10 <= 2.05
    assert fitted(1000.0) == 2.5
    assert fitted(1e-9, watched=1e12) == 10 * 2**13


def test_it_stays_where_little_is_known_and_where_it_is_nearly_right() -> None:
    assert fitted(1 / 60, watched=100.0) == 10
    assert fitted(1 / 60, count=1) == fitted(1 / 60)
    # from one side and from the other the same rate leaves it as it is
    for last in (10 * SECOND, 20 * SECOND):
        assert fitted(10 / 14.2, last=last) == last / SECOND


def test_those_that_never_change_do_not_count() -> None:
    changes = np.array([0.0] * 50 + [1 / 60] * 5)
    found = fitted_period(changes, np.full(55, 1e5), np.ones(55, bool), PERIOD, SECOND)
    assert found == 640 * SECOND


def test_the_shrink_goes_down_while_that_costs_nothing_and_up_when_it_does() -> None:
    rng = np.random.default_rng(1)
    state, parts = Shrinking(), []
    for _ in range(600):
        state = judged(state, float(rng.poisson(40)), 0.05)
        parts.append(state.part)
    assert parts[-1] == LOWEST
    assert parts.count(1.0) < 60
    for _ in range(100):
        state = judged(state, float(rng.poisson(60)), 0.05)
        parts.append(state.part)
    assert max(parts[600:]) == 1.0


# options


def declared(options: str) -> Adjusting:
    sql = STREAM.format(allocation="burden", period=10, tolerance=1, rate="", sums="measured")
    sql = sql.replace(", period '10 seconds'", options)
    return adjusting(Catalog.from_sql(sql, Functions()).streams["net"])


def test_both_are_tuned_unless_a_stream_says_otherwise() -> None:
    assert declared("") == declared(", period 'tuned', shrink 'Tuned'")
    assert (declared("").tuned_period, declared("").tuned_shrink) == (True, True)
    fixed = declared(", period '30 seconds', shrink '5%'")
    assert (fixed.period, fixed.shrink, fixed.tuned_period, fixed.tuned_shrink) == (
        30 * SECOND,
        0.05,
        False,
        False,
    )
    assert not declared(", shrink 'fitted'").tuned_shrink
    with pytest.raises(SourceError, match="tuned"):
        declared(", period 'often'")


# the runtime


def test_what_is_to_shrink_faster_is_narrowed_to_be_known_to() -> None:
    constraints = constrained([average([0, 1], 4.0)], 2)
    belief = Belief(1)
    belief.grow(2)
    belief.width[:] = 2.0
    tuning = Tuning(Adjusting("burden", tuned_shrink=True))
    belief.shrink[:], belief.period[:] = [0.05, 0.01], PERIOD
    assert tuning.slower(constraints, belief).tolist() == [False, True]
    belief.shrink[:], belief.period[1] = 0.05, 2 * PERIOD
    assert tuning.slower(constraints, belief).tolist() == [False, True]
    assert not Tuning(Adjusting("curves", tuned_period=True)).slower(constraints, belief).any()
    assert "fitted to the data" in tuning.described(constraints)


def test_a_period_ends_by_time_whatever_its_length_is_by_then() -> None:
    coordinator = Coordinator(Adjusting(tuned_period=True), np.random.default_rng(1))
    coordinator._decided = 1_003 * SECOND
    for period, ended in ((10, 1_010), (20, 1_020), (5, 1_005), (640, 1_280)):
        coordinator.tuning.period = period * SECOND
        assert not coordinator._ended(ended * SECOND - 1)
        assert coordinator._ended(ended * SECOND)


def test_agents_go_by_the_period_of_their_newest_grant() -> None:
    filters = Filters(1)
    filters.add(2)
    zero = np.zeros(2, np.int64)
    law = (np.zeros(2), np.array([640, 320]) * SECOND)
    filters.grant(Grants(np.arange(2), zero, np.ones(2), np.array([5, 7]), *law), 10)
    assert filters._tracks is not None
    assert filters._tracks._period == 320 * SECOND
    assert filters._tracks._shadows._halved.tolist() == [3200.0, 160000.0]


@pytest.mark.parametrize(("seed", "allocation"), [(3, "curves"), (4, "burden"), (8, "burden")])
def test_the_promise_is_kept_while_they_change(seed: int, allocation: str) -> None:
    world: World = peopled(seed, allocation=allocation, tuned=True, sums="never")
    for name in ("plain", "racks"):
        world.ask(name, 20)
    world.start_batches()
    world.run(25)
    world.trouble(30)
    world.run(40)
    assert unexcused(world) == []
    assert all(said.met for said in last_said(world))
    periods: set[Any] = {p for _, grants in world.granted for p in np.unique(grants.period).tolist()}
    # values come about twice a second
    assert 5 * SECOND in periods
    if allocation == "burden":
        driver = world.driver
        assert not driver.coordinator.tuning.slower(
            driver.coordinator.constraints, driver.mirror.belief
        ).any()
    assert world.now > BEGIN
