"""Feedback acts on what dropping rows can change, and no further."""

from __future__ import annotations

import numpy as np
import pytest
from tests.test_governor import Machine, rows_for

from slackwater.planners.ruling import Coming
from slackwater.runtime.pace import HOPELESS, LEAST, MORE, REMEMBERED, Aim, Pace


def pace(**given: float) -> Pace:
    return Pace(lambda: 0.8, 2, **given)


def test_batches_that_take_longer_are_planned_shorter_and_the_other_way_round():
    feedback = pace(batch=0.2)
    before = feedback.capacity(0.1)
    feedback.correct(Aim(0.25, 0.8), 0.9)
    assert feedback.capacity(0.1) < before
    for _ in range(3):
        feedback.correct(Aim(0.25, 0.8), 0.7)
    assert feedback.capacity(0.1) > before


def test_neither_feedback_nor_caution_takes_all_that_rows_have():
    feedback = pace(batch=0.3)
    for _ in range(REMEMBERED):
        feedback.correct(Aim(0.3, 0.8), 3.0)
    rows = feedback.capacity(0.0) * feedback.executor
    assert rows == pytest.approx(LEAST * 0.5)
    # and it comes back as soon as batches are short again
    for _ in range(4):
        feedback.correct(Aim(0.3, 0.8), 0.4)
    assert feedback.capacity(0.0) * feedback.executor > 1.5 * rows


def test_feedback_adds_no_more_than_a_little():
    feedback = pace(batch=0.3)
    for _ in range(50):
        feedback.correct(Aim(0.3, 0.8), 0.3)
    assert feedback.capacity(0.0) * feedback.executor == pytest.approx((1 + MORE) * 0.5)


def test_times_that_scatter_leave_more_room():
    steady, scattered = pace(), pace()
    for turn in range(REMEMBERED):
        sign = 1 if turn % 2 else -1
        steady.correct(Aim(0.1, 0.8), 0.8 + 0.01 * sign)
        scattered.correct(Aim(0.1, 0.8), 0.8 + 0.3 * sign)
    assert steady.target(0.1) == pytest.approx(0.8)
    assert scattered.target(0.1) < 0.7


def test_a_machine_on_which_an_empty_batch_is_late_does_not_drop_all():
    feedback = pace(batch=1.5)
    whole = feedback.capacity(0.2)
    aim = feedback.aim(whole, 0.2, 0.2, 1)
    assert not aim.steers
    for _ in range(REMEMBERED):
        feedback.correct(aim, 3.0)
    assert feedback.capacity(0.2) == whole
    assert (whole - 0.2) * feedback.executor == pytest.approx(HOPELESS * feedback.floor(0.2))


def test_a_cold_start_passes_and_what_fits_is_exact_again():
    machine = Machine(fixed=1.1)
    fits = rows_for(Machine(), machine.budget)
    for _ in range(25):
        machine.batch(fits // 2)
    kept = [min(r.values(), default=1.0) for r in machine.rates[8:]]
    assert min(kept) > 0.1, "nothing is gained by dropping more"
    machine.fixed = 0.12
    for _ in range(20):
        machine.batch(fits // 2)
    assert not any(machine.rates[-4:])


@pytest.mark.parametrize("fixed", [0.12, 0.5])
def test_rates_stay_where_they_are_while_the_load_does(fixed: float):
    machine = Machine(noise=0.08, fixed=fixed)
    fits = rows_for(machine, machine.budget)
    for _ in range(10):
        machine.batch(fits // 2, skips=True)
    for _ in range(110):
        machine.batch(fits * 10, skips=True)
    kept = np.array(
        [s * max(r.values(), default=1.0) for s, r in zip(machine.shares, machine.rates, strict=True)]
    )
    steady = kept[50:]
    assert steady.std() / steady.mean() < 0.3
    assert np.mean(np.array(machine.walls[14:]) > 1.0) <= 0.02


def test_code_that_gets_faster_is_noticed_though_hardly_a_row_is_kept():
    machine = Machine(python=2e-5, fixed=0.4)
    fits = int(0.9 * rows_for(Machine(), machine.budget))
    for _ in range(25):
        machine.batch(fits)
    assert max(min(r.values(), default=1.0) for r in machine.rates[-5:]) < 0.5
    machine.python, machine.fixed = 3e-6, 0.12
    for _ in range(60):
        machine.batch(fits)
    assert np.mean([bool(r) for r in machine.rates[-10:]]) < 0.2


def test_what_is_not_seen_is_not_taken_for_free():
    machine = Machine(noise=0.08)
    fits = rows_for(machine, machine.budget)
    for _ in range(10):
        machine.batch(fits // 2, skips=True)
    for _ in range(200):
        machine.batch(fits * 40, skips=True)
    assert np.mean(np.array(machine.walls[14:]) > 1.0) <= 0.02


def test_nothing_is_given_up_where_that_would_not_make_a_batch_shorter():
    machine = Machine(
        costs={"pass": 0.02, "python pass": 0.02, "read": 2e-6, "block": 2e-6, "row": 2e-7, "test": 2e-8},
        fixed=0.3,
    )
    fits = rows_for(machine, machine.budget)
    for _ in range(10):
        machine.batch(fits // 2)
    # the least part that can be read fills the interval
    for _ in range(40):
        ruling = machine.governor.rule(Coming("p", machine.plan, machine.slots, fits * 12, 0.08))
        assert ruling.thresholds
        assert not ruling.suspended
        assert min(ruling.thresholds.values()) > 0
        machine.batch(fits * 12, skips=True)
