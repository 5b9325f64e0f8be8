"""Leaving windows out in a closed loop: a simulated machine that falls behind and catches up, without Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from slackwater.planners.ruling import Coming
from slackwater.planners.terms import terms_of
from slackwater.planners.window_needs import points_of
from slackwater.planners.window_schedule import Extent, Schedule, extended
from slackwater.runtime.pace import Pace
from slackwater.runtime.session import Session
from slackwater.runtime.shedding import Took
from slackwater.runtime.window_drops import WindowDrops
from slackwater.runtime.window_leaving import WindowLeaving
from slackwater.statistics.costs import predicted
from test_governor import Machine

SECOND = 1_000_000
STREAM = "CREATE STREAM p (ts TIMESTAMP, src STRING, size INT, port INT) USING traffic TIMESTAMP BY ts;"
SUB = """CREATE QUERY sub AS SELECT COUNT(*) AS n, SUM(size) AS s FROM p WHERE port > 1
  GROUP BY window(ts, '{size} seconds', '{slide} seconds') WITH SUBSET GAP {gap};"""
DRAWN = "CREATE QUERY drawn AS SELECT COUNT(*) AS n FROM p WHERE size > 5 GROUP BY window(ts, '10 seconds') WITH ERROR 5%;"


@dataclass
class _Shed:
    rates: dict[str, float]
    parts: dict[str, float]
    arrived: int

    def __post_init__(self) -> None:
        self.share, self.passed, self.drawn = 1.0, self.arrived, bool(self.rates)
        self.nodes = np.array([])
        self.partials: dict[str, Any] = {}

    def kept_of(self, slot: Any) -> int:
        return self.arrived


@dataclass
class Live(Machine):
    """A stream that comes whether or not it is worked off: a batch takes what has come since the last one."""

    costs: dict[str, float] = field(
        default_factory=lambda: {
            "pass": 0.02,
            "python pass": 0.02,
            "read": 5e-9,
            "block": 1e-8,
            "row": 2e-7,
            "test": 2e-8,
        }
    )
    """A trace: where nobody needs its rows it is hardly read."""
    now: float = 0.0
    done: float = 0.0
    schedule: Schedule = field(default_factory=Schedule)
    salt: int = 1
    told: bool = True
    """Whether it is known how many rows come."""
    lags: list[float] = field(default_factory=list)
    levels: list[float] = field(default_factory=list)

    def live(self, rate: float, seconds: float) -> None:
        """Go on for some seconds at rows a second."""
        points = points_of(self.plan, "p")
        stop = self.now + seconds
        while self.now < stop:
            self.now = max(self.now, self.done + 1.0)
            low, high = round(self.done * SECOND), round(self.now * SECOND)
            rows = round(rate * (high - low) / SECOND)
            told = rows if self.told else None
            leaving = self.governor.leave(Coming("p", self.plan, self.slots, told), points)
            extents = [
                Extent(
                    p,
                    id_,
                    low,
                    high,
                    leaving.shares.get(id_, 0.0),
                    leaving.shut & set(p.members),
                    leaving.runs.get(id_),
                )
                for id_, p in points.items()
            ]
            self.schedule = extended(self.schedule, extents, self.salt)
            drops = WindowDrops(self.plan, "p", self.schedule)
            parts = drops.parts(self.slots, low, high)
            ruling = self.governor.rule(Coming("p", self.plan, self.slots, told, parts=parts))
            load = self.governor._load(self.governor.known("p", self.plan, self.slots), rows)
            load.__dict__["parts"] = parts
            times = {
                id_: predicted(self.costs, terms_of(load, ruling.thresholds, id_)) * self._jitter()
                for id_, _ in self.plan.tables_on("p")
            }
            wall = self.fixed + sum(times.values()) / self.cores * self._jitter()
            shed: Any = _Shed(dict(ruling.thresholds), dict(parts), rows)
            self.governor.learn("p", shed, Took(rows, (high - low) / 1e6, wall, times))
            self.done = self.now
            self.now += wall
            self.lags.append(self.now - self.done)
            self.levels.append(max(ruling.level, leaving.level))

    def delivered(self, low: float, high: float, slide: int = 1) -> float:
        schedule = self.schedule.queries["sub"]
        out = (*schedule.out, *schedule.shut)
        starts = range(round(low), round(high), slide)
        gone = [s for s in starts if any(a <= s * SECOND < b for a, b in out)]
        return 1 - len(gone) / len(starts)


def capacity(machine: Live) -> float:
    """Rows a second that just fit the budget."""
    one, two = machine.whole(100_000), machine.whole(200_000)
    return 100_000 + (machine.budget - one) / (two - one) * 100_000


@pytest.mark.parametrize("salt", [1, 2, 3, 4])
@pytest.mark.parametrize("times", [1.5, 3.0, 6.0])
def test_a_burst_is_kept_up_with_and_over_all_is_exact_again(times: float, salt: int):
    machine = Live(STREAM + SUB.format(size=1, slide=1, gap=10), salt=salt)
    fits = capacity(machine)
    machine.live(0.5 * fits, 30)
    assert machine.delivered(0, 30) == 1.0
    begun = machine.now
    machine.live(times * fits, 120)
    assert max(machine.lags[-50:]) < times + 1, "it is late by the window that is kept, not by more"
    assert machine.delivered(begun + 40, machine.done) == pytest.approx(1 / times, rel=0.25)
    after = machine.done
    machine.live(0.5 * fits, 60)
    assert machine.lags[-1] < 1.0
    assert machine.delivered(after + 5, machine.done) == 1.0


@pytest.mark.parametrize("times", [1.5, 3.0, 6.0])
def test_a_source_that_does_not_tell_its_size_is_kept_up_with_too(times: float):
    machine = Live(STREAM + SUB.format(size=1, slide=1, gap=10), told=False)
    fits = capacity(machine)
    machine.live(0.5 * fits, 30)
    begun = machine.now
    machine.live(times * fits, 120)
    assert max(machine.lags[-50:]) < 2 * times
    assert machine.delivered(begun + 40, machine.done) == pytest.approx(1 / times, rel=0.3)


@pytest.mark.parametrize("salt", [1, 2, 3, 4])
def test_sliding_windows_are_left_out_in_runs_that_save_rows(salt: int):
    machine = Live(STREAM + SUB.format(size=10, slide=1, gap=60), salt=salt)
    fits = capacity(machine)
    machine.live(0.5 * fits, 20)
    machine.live(2.0 * fits, 300)
    assert max(machine.lags[-50:]) < 20, "about 25 windows are kept in a row"
    assert 0.2 < machine.delivered(120, machine.done) < 0.55


@pytest.mark.parametrize(("gap", "times"), [(1, 3.0), (1, 10.0), (10, 20.0)])
def test_a_query_whose_gap_asks_for_too_much_is_shut_and_the_run_keeps_up(gap: int, times: float):
    machine = Live(STREAM + SUB.format(size=1, slide=1, gap=gap))
    fits = capacity(machine)
    machine.live(0.5 * fits, 30)
    machine.live(times * fits, 120)
    late = [lag > 1.0 for lag in machine.lags[-60:]]
    assert sum(late) <= 6, "now and then it is tried again"
    assert max(machine.lags[-60:]) < 2.5 * times
    assert machine.schedule.queries["sub"].shut, "its answers say so"
    after = machine.done
    machine.live(0.5 * fits, 40)
    assert machine.delivered(after + 5, machine.done) == 1.0


@pytest.mark.parametrize("times", [1.5, 3.0, 6.0])
def test_a_query_whose_gap_allows_enough_is_not_shut(times: float):
    machine = Live(STREAM + SUB.format(size=1, slide=1, gap=10))
    fits = capacity(machine)
    machine.live(0.5 * fits, 30)
    machine.live(times * fits, 120)
    assert not machine.schedule.queries["sub"].shut


@pytest.mark.parametrize("times", [2.0, 4.0])
def test_drops_that_cannot_be_one_leave_out_the_same_windows(times: float):
    grouped = SUB.replace("QUERY sub AS SELECT", "QUERY by_src AS SELECT src,").replace(
        "GROUP BY window", "GROUP BY src, window"
    )
    machine = Live(STREAM + SUB.format(size=1, slide=1, gap=10) + grouped.format(size=1, slide=1, gap=10))
    fits = capacity(machine)
    machine.live(0.5 * fits, 30)
    begun = machine.done
    machine.live(times * fits, 120)
    out = [machine.schedule.queries[name].out for name in ("sub", "by_src")]
    late = [
        {s for s in range(round(begun) + 20, round(machine.done)) if any(a <= s * SECOND < b for a, b in o)}
        for o in out
    ]
    assert late[0]
    assert late[0] == late[1]


def test_sampled_queries_beside_it_give_way_while_a_window_is_kept():
    machine = Live(STREAM + SUB.format(size=1, slide=1, gap=10) + DRAWN)
    fits = capacity(machine)
    machine.live(0.5 * fits, 30)
    machine.live(4.0 * fits, 90)
    assert max(machine.lags[-10:]) < 8
    assert 0 < machine.delivered(60, machine.done) < 1
    assert max(machine.levels[-30:]) > 0


def _busy(spark_seconds: float) -> Session:
    """A session whose batches take so long beside what is done with their rows."""
    session = Session()
    run: Any = SimpleNamespace(spark_seconds=lambda: spark_seconds, engine=SimpleNamespace(after=0.05))
    session._run = run
    return session


@pytest.mark.parametrize("spark_seconds", [0.74, 0.75, 0.8, 1.3, 20.0])
def test_where_spark_alone_takes_the_interval_some_of_it_is_left(spark_seconds: float):
    machine = Live(STREAM + SUB.format(size=1, slide=1, gap=10))
    fits = capacity(machine)
    machine.governor.budget = machine.governor.pace.budget = _busy(spark_seconds)._batch_seconds
    # of the first batches nobody has learnt how long they took
    machine.live(0.5 * fits, 20)
    machine.live(3 * fits, 60)
    assert machine.delivered(40, machine.done) < 0.5, "windows are left out where nothing can be kept up with"


@pytest.mark.parametrize("spark_seconds", [0.75, 1.3])
def test_late_batches_never_make_for_more_where_spark_takes_the_interval(spark_seconds: float):
    pace = Pace(_busy(spark_seconds)._batch_seconds, 2)
    leaving = WindowLeaving(shares={"drop": 0.5})
    assert leaving.usual(1000.0, pace.interval, told=True) == 1000.0
    plan = Live(STREAM + SUB.format(size=1, slide=1, gap=10)).plan
    leaving.learn(plan, {}, Took(1000, 1.0, 3.0, {}), pace)
    assert leaving.factor < 1.0
    assert 0 < leaving.usual(1000.0, pace.interval, told=True) < 1000.0
