"""The closed loop against a simulated machine: what a batch really costs is known here, and no Spark runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.slots import slots_of
from slackwater.plan.tables import Plan
from slackwater.planners.ruling import Coming
from slackwater.planners.steady import in_classes
from slackwater.planners.terms import python_share, terms_of
from slackwater.runtime.governor import Governor
from slackwater.runtime.shedding import Took
from slackwater.statistics.costs import predicted

SQL = """
CREATE STREAM p (ts TIMESTAMP, src STRING, size INT, port INT) USING traffic TIMESTAMP BY ts;
CREATE QUERY volume AS SELECT SUM(size) AS s FROM p WHERE port = 80 AND net(src) <> 'x'
  GROUP BY window(ts, '60 seconds', '1 second') WITH ERROR 5%;
CREATE QUERY rare AS SELECT COUNT(*) AS n FROM p WHERE port = 53 GROUP BY window(ts, '30 seconds') WITH ERROR 5%;
CREATE QUERY large AS SELECT COUNT(*) AS n FROM p WHERE size > 1000 GROUP BY window(ts, '30 seconds') WITH ERROR 5%;
"""


def plan_of(sql: str = SQL) -> Plan:
    return extend(Plan(), Catalog.from_sql(sql, Functions().with_scalar("net", "string")))


@dataclass
class Machine:
    """Runs batches at costs of its own, noisily, and tells the governor what Spark would tell it."""

    sql: str = SQL
    budget: float = 0.8
    cores: int = 2
    noise: float = 0.05
    bend: float = 1.0
    """Above 1, a batch takes more than in proportion: what no fit of ours can know."""
    costs: dict[str, float] = field(
        default_factory=lambda: {
            "pass": 0.02,
            "python pass": 0.02,
            "read": 8e-8,
            "block": 1.6e-7,
            "row": 2e-7,
            "test": 2e-8,
        }
    )
    python: float = 3e-6
    fixed: float = 0.12

    def __post_init__(self) -> None:
        self.plan = plan_of(self.sql)
        self.slots = slots_of(self.plan, "p")
        self.governor = Governor(lambda: self.budget, self.cores)
        self.random = np.random.default_rng(1)
        self.walls: list[float] = []
        self.rates: list[dict[str, float]] = []
        self.shares: list[float] = []

    def batch(self, rows: int, *, known: bool = True, skips: bool = False, stream: str = "p") -> None:
        slots = self.slots if stream == "p" else slots_of(self.plan, stream)
        ruling = self.governor.rule(
            Coming(stream, self.plan, slots, rows if known else None, 0.0 if skips else 1.0)
        )
        statistician = self.governor.known(stream, self.plan, slots)
        load = self.governor._load(statistician, rows * ruling.share)
        true = {**self.costs, **{f"python {s.id}": self.python for s in slots.all}}
        emits = [s.step.name for s in self.plan.steps_on(stream) if not s.step.aggregates]
        times = {
            name: predicted(true, terms_of(load, ruling.thresholds, name)) * self._jitter()
            for name in [*(id_ for id_, _ in self.plan.tables_on(stream)), *emits]
        }
        wall = self.fixed + (sum(times.values()) / self.cores) ** self.bend * self._jitter()
        shed: Any = _Shed(ruling.thresholds, rows, ruling.share) if ruling.measured else None
        self.governor.learn(stream, shed, Took(rows, 1.0, wall, times if shed is not None else {}))
        self.walls.append(wall)
        self.rates.append(dict(ruling.thresholds))
        self.shares.append(ruling.share)

    def probe(self, rows: int) -> None:
        """Run its texts over a batch of which all is dropped, as is done while there is time for it."""
        nothing = dict.fromkeys((slot.id for slot in self.slots.sheddable), 1e-9)
        load = self.governor._load(self.governor.known("p", self.plan, self.slots), rows)
        for id_, _ in self.plan.tables_on("p"):
            seconds = predicted(self.costs, terms_of(load, nothing, id_)) * self._jitter()
            self.governor.probed("p", self.plan, self.slots, nothing, rows, 1.0, {id_: seconds})

    def _jitter(self) -> float:
        return float(np.exp(self.random.normal(0, self.noise)))

    def whole(self, rows: int) -> float:
        """Seconds of a batch that sheds nothing."""
        load = self.governor._load(self.governor.known("p", self.plan, self.slots), rows)
        true = {**self.costs, **{f"python {s.id}": self.python for s in self.slots.all}}
        spent = sum(predicted(true, terms_of(load, {}, id_)) for id_, _ in self.plan.tables_on("p"))
        return self.fixed + (spent / self.cores) ** self.bend


@dataclass
class _Shed:
    """What the statistician reads of a batch: nothing but that it ran at these rates."""

    rates: dict[str, float]
    arrived: int
    share: float
    parts: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.passed = self.arrived
        self.drawn = bool(self.rates) or self.share < 1.0
        self.nodes = np.array([])
        self.partials: dict[str, Any] = {}

    def kept_of(self, slot: Any) -> int:
        return self.arrived


@pytest.mark.parametrize("python", [1e-5, 1e-3, 1e-2])
def test_a_few_batches_of_different_sizes_tell_what_a_function_costs_once_settled(python: float) -> None:
    machine = Machine(python=python)
    for rows in (1_000, 1_000, 2_000, 12_000):
        machine.batch(rows)
    machine.governor.settle()
    known = machine.governor.known("p", machine.plan, machine.slots)
    calls = [slot.id for slot in machine.slots.all if "volume" in slot.steps]
    assert known.costs[f"python {calls[0]}"] == pytest.approx(python, rel=0.3)


def rows_for(machine: Machine, seconds: float) -> int:
    """The batch that takes so long unshed."""
    low, high = 1, 10**9
    while high - low > max(10, low // 1000):
        middle = (low + high) // 2
        low, high = (middle, high) if machine.whole(middle) < seconds else (low, middle)
    return low


def test_a_load_that_fits_is_never_shed():
    machine = Machine()
    rows = rows_for(machine, 0.5)
    for _ in range(40):
        machine.batch(rows)
    assert not any(machine.rates[2:])


@pytest.mark.parametrize("bend", [1.0, 1.3, 0.8])
@pytest.mark.parametrize("multiple", [2, 4, 10])
def test_batches_hold_their_time_at_a_multiple_of_the_capacity(multiple: int, bend: float):
    machine = Machine(bend=bend)
    fits = rows_for(machine, machine.budget)
    for _ in range(10):
        machine.batch(fits // 2)
    for _ in range(80):
        machine.batch(fits * multiple, skips=True)
    late = [wall > 1.0 for wall in machine.walls[12:]]
    assert sum(late) <= 4
    steady = np.array(machine.walls[40:])
    assert steady.mean() == pytest.approx(machine.budget, rel=0.25)


def test_a_burst_is_shed_in_the_batch_in_which_it_arrives_where_its_size_is_known():
    machine = Machine()
    fits = rows_for(machine, machine.budget)
    for _ in range(20):
        machine.batch(int(fits * 0.8))
    machine.batch(fits * 4)
    assert machine.rates[-1]
    assert machine.walls[-1] < 1.3
    unknowing = Machine()
    for _ in range(20):
        unknowing.batch(int(fits * 0.8), known=False)
    unknowing.batch(fits * 4, known=False)
    assert not unknowing.rates[-1]
    unknowing.batch(fits * 4, known=False)
    assert unknowing.rates[-1]


@pytest.mark.parametrize("python", [3e-6, 3e-5, 3e-4])
@pytest.mark.parametrize("waits", [0.02, 0.3])
def test_what_a_function_costs_is_known_from_small_batches_and_a_look_at_empty_ones(
    python: float, waits: float
) -> None:
    """All batches before a burst are alike: what a pass takes and what its rows do is told by probes alone."""
    costs = {"pass": 0.02, "python pass": waits, "read": 8e-8, "block": 1.6e-7, "row": 2e-7, "test": 2e-8}
    machine = Machine(python=python, costs=costs)
    calm = rows_for(machine, machine.fixed + waits / 2 + 0.08)
    for _ in range(4):
        machine.batch(calm)
    machine.probe(calm)
    for _ in range(4):
        machine.batch(calm)
    assert not any(machine.rates)
    burst = rows_for(machine, 3.0)
    known = machine.governor.known("p", machine.plan, machine.slots)
    load = machine.governor._load(known, burst)
    said = predicted(known.costs, terms_of(load, {}))
    assert said == pytest.approx(2 * (3.0 - machine.fixed), rel=0.4)
    machine.batch(burst)
    assert machine.rates[-1]
    assert machine.walls[-1] < 1.0


def test_several_batches_of_a_new_size_are_measured():
    machine = Machine()
    fits = rows_for(machine, machine.budget)

    def measured(rows: int) -> bool:
        before = sum(machine.governor._sizes["p"].values())
        machine.batch(rows)
        return sum(machine.governor._sizes["p"].values()) > before

    for _ in range(10):
        machine.batch(fits // 10)
    assert [measured(fits // 4) for _ in range(8)] == [True] * 3 + [False] * 5
    # to and fro they say nothing new
    assert sum(measured(fits // (10 if turn % 2 else 4)) for turn in range(40)) <= 2


def test_it_is_exact_again_within_two_batches_of_the_bursts_end():
    machine = Machine()
    fits = rows_for(machine, machine.budget)
    for size, times in ((0.8, 12), (3.0, 40), (0.8, 5)):
        for _ in range(times):
            machine.batch(int(fits * size))
    assert not machine.rates[-4], [bool(r) for r in machine.rates[-6:]]
    assert not any(machine.rates[-4:])


def test_a_steady_overload_does_not_make_it_swing():
    machine = Machine(noise=0.08)
    fits = rows_for(machine, machine.budget)
    for _ in range(100):
        machine.batch(fits * 3)
    roots = np.array([max(r.values(), default=1.0) for r in machine.rates[40:]])
    assert roots.std() / roots.mean() < 0.3
    walls = np.array(machine.walls[40:])
    around = walls - walls.mean()
    # a loop that over-corrects alternates: neighbours would be the other side of the mean
    assert np.mean(around[1:] * around[:-1]) > -0.6 * around.var()


def test_what_cannot_be_shed_is_skipped_at_the_source():
    machine = Machine(
        costs={"pass": 0.02, "python pass": 0.02, "read": 4e-7, "block": 5e-7, "row": 2e-7, "test": 2e-8}
    )
    fits = rows_for(machine, machine.budget)
    for _ in range(10):
        machine.batch(fits // 2, skips=True)
    for _ in range(30):
        machine.batch(fits * 20, skips=True)
    assert max(machine.shares[-10:]) < 0.25
    assert np.mean([wall > 1.0 for wall in machine.walls[14:]]) <= 0.05


def test_two_streams_share_one_capacity():
    sql = SQL + (
        "CREATE STREAM q (ts TIMESTAMP, v DOUBLE) USING traffic TIMESTAMP BY ts;"
        "CREATE QUERY other AS SELECT COUNT(*) AS n FROM q GROUP BY window(ts, '10 seconds') WITH ERROR 5%;"
    )
    machine = Machine(sql)
    fits = rows_for(machine, machine.budget)
    for _ in range(12):
        machine.batch(int(fits * 0.9))
    assert not machine.rates[-1]
    beside = slots_of(machine.plan, "q")
    other = machine.governor
    for _ in range(6):
        other.rule(Coming("q", machine.plan, beside, fits * 20))
        other.learn("q", None, Took(fits * 20, 1.0, 0.5))
    machine.batch(int(fits * 0.9))
    assert machine.rates[-1], "the other stream leaves less for this one"
    other.rest("q")
    for _ in range(3):
        machine.batch(int(fits * 0.9))
    assert not machine.rates[-1], "one that is idle leaves all of it"
    other.learn("q", None, Took(fits * 20, 1.0, 0.5))
    machine.batch(int(fits * 0.9))
    assert machine.rates[-1], "until it has a batch again"
    other.end("q")
    for _ in range(3):
        machine.batch(int(fits * 0.9))
    assert not machine.rates[-1], "one that has ended leaves all of it"


def test_two_streams_that_are_both_too_much_keep_to_the_interval_together():
    sql = SQL + (
        "CREATE STREAM q (ts TIMESTAMP, v DOUBLE) USING traffic TIMESTAMP BY ts;"
        "CREATE QUERY other AS SELECT SUM(v) AS s FROM q WHERE net(v) <> 'x'"
        "  GROUP BY window(ts, '10 seconds') WITH ERROR 5%;"
    )
    machine = Machine(sql)
    fits = rows_for(machine, machine.budget)
    for _ in range(80):
        machine.batch(fits * 2)
        machine.batch(fits * 2, stream="q")
    both = np.array(machine.walls[0::2]) + np.array(machine.walls[1::2])
    assert np.mean(both[20:] > 1.0) <= 0.05
    assert both[20:].mean() > 0.6, "and the time there is is used"


def test_rows_that_are_delivered_cost_something_too():
    sql = (
        SQL[: SQL.index("CREATE QUERY")]
        + "CREATE QUERY big AS SELECT src FROM p WHERE size > 1000 WITH ERROR 5%;"
    )
    machine = Machine(sql)
    for _ in range(6):
        machine.batch(10_000)
    machine.batch(1_000_000_000)
    assert machine.rates[-1]


def test_a_query_of_which_no_values_are_known_is_not_starved():
    sql = SQL[: SQL.index("CREATE QUERY")] + (
        "CREATE QUERY middle AS SELECT MEDIAN(size) AS m FROM p WHERE net(src) <> 'x'"
        "  GROUP BY window(ts, '60 seconds') WITH ERROR 5%;"
        "CREATE QUERY mean AS SELECT AVG(size) AS m FROM p WHERE net(src) <> 'y'"
        "  GROUP BY window(ts, '60 seconds') WITH ERROR 5%;"
    )
    machine = Machine(sql)
    fits = rows_for(machine, machine.budget)
    for _ in range(10):
        machine.batch(fits * 2)
    rates = machine.rates[-1]
    middle, mean = (rates.get(machine.slots.by_step[name].id, 1.0) for name in ("middle", "mean"))
    assert middle > 0.5 * mean


def test_what_must_be_exact_is_never_given_up_and_leaves_the_others_a_little():
    machine = Machine(SQL.replace("'1 second') WITH ERROR 5%", "'1 second') WITH EXACT"))
    fits = rows_for(machine, machine.budget)
    for _ in range(6):
        machine.batch(fits // 2)
    ruling = machine.governor.rule(Coming("p", machine.plan, machine.slots, fits * 5))
    assert machine.slots.by_step["volume"].id not in ruling.thresholds
    assert not ruling.suspended
    assert ruling.thresholds.get(machine.slots.by_step["rare"].id, 1.0) > 0


def test_rates_are_made_few_by_raising_some():
    rates = {f"s{i}": 0.01 * 1.3**i for i in range(16)}
    fewer = in_classes(rates, 4)
    assert len(set(fewer.values())) == 4
    assert all(fewer[s] >= rates[s] for s in rates)
    assert in_classes(rates, 16) == rates


def test_rows_that_reach_a_python_function_are_those_that_pass_what_is_before_it():
    machine = Machine()
    statistician = machine.governor.known("p", machine.plan, machine.slots)
    place = next(i for i, n in enumerate(statistician.nodes) if n.kind == "python")
    above = statistician.nodes[place].parent
    assert statistician.nodes[above].label == "port = 80"
    statistician._passed[above] = (25.0, 100.0)
    load = machine.governor._load(statistician, 1000.0)
    slot = machine.slots.by_step["volume"]
    assert python_share(load, slot.id) == 0.25
    assert python_share(load, machine.slots.by_step["rare"].id) == 0.0


@pytest.mark.parametrize(
    "change", [lambda m: setattr(m, "python", m.python * 3), lambda m: setattr(m, "fixed", 0.3)]
)
def test_a_machine_that_turns_slower_is_followed(change: Callable[[Machine], None]):
    machine = Machine()
    fits = rows_for(machine, machine.budget)
    for _ in range(30):
        machine.batch(fits * 2)
    change(machine)
    for _ in range(30):
        machine.batch(fits * 2)
    assert np.mean([wall > 1.0 for wall in machine.walls[-20:]]) <= 0.1


def test_a_run_that_goes_on_sheds_a_burst_in_its_first_batch():
    before = Machine()
    fits = rows_for(before, before.budget)
    for _ in range(20):
        before.batch(int(fits * 0.8))
    after = Machine()
    after.governor.go_on(json.loads(json.dumps(before.governor.to_json())))
    after.batch(fits * 4)
    assert after.rates[-1]
    assert after.walls[-1] < 1.3
    # what it has not heard of yet is not lost for the run after it
    untouched = Machine()
    untouched.governor.go_on(before.governor.to_json())
    assert untouched.governor.to_json()["streams"] == before.governor.to_json()["streams"]
