"""What PRECISION promises: at all times the interval holds the truth, and it is as narrow as was asked for."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from precision_entries import PERIOD, T, ack, advanced, batch, bounded_mirror, grant, keys, life
from precision_world import BEGIN, COLUMNS, QUERIES, SECOND, STREAM, Asked, Key, World, entries
from slackwater.edge.filters import Filters
from slackwater.edge.widths import Grants, width_at
from slackwater.plan.adjusting import Adjusting
from slackwater.plan.bounded import bounded_form
from slackwater.plan.catalog import Catalog
from slackwater.plan.current import CurrentStep
from slackwater.plan.functions import Functions
from slackwater.runtime.bounds.belief import Belief
from slackwater.runtime.bounds.coordinator import Coordinator
from slackwater.runtime.bounds.evaluating import Evaluator
from slackwater.runtime.bounds.events import Queue
from slackwater.runtime.bounds.mirror import Mirror
from slackwater.runtime.bounds.queries import BoundedQuery
from slackwater.runtime.bounds.showing import Rates
from slackwater.runtime.bounds.shown import AgentShown, shown
from slackwater.runtime.current.matrix import Matrix

NOW = datetime(2026, 11, 16, tzinfo=UTC)
DECLARED = STREAM.format(allocation="curves", period=10, tolerance=1, rate="", sums="measured")


# the promise, in a world with trouble


def peopled(seed: int, **how: Any) -> World:
    world = World(seed, **how)
    for site in world.sites:
        for _ in range(3):
            world.add_key(site)
    return world


def unexcused(world: World) -> list[Any]:
    """Answers that are wrong without excuse; most have none, right or wrong."""
    excused = sum(world.excused(said) for said in world.said)
    assert excused < 0.25 * len(world.said), (excused, len(world.said))
    return [said for said in world.said if world.wrong(said) and not world.excused(said)]


def last_said(world: World) -> list[Any]:
    """The last answer of each group of the queries that there are."""
    last = {(s.query, s.column, s.keys): s for s in world.said}
    return [said for said in last.values() if said.query in world.catalog.queries]


def settled(world: World) -> None:
    """No agent is away, everything that was asked is in use, and every constraint is kept."""
    driver = world.driver
    belief, constraints = driver.mirror.belief, driver.coordinator.constraints
    assert not driver.coordinator._changing
    widths = belief.widths(slice(None), world.now)
    asked_for = constraints.shared | np.isfinite(constraints.ceiling)
    # keys that sums tell of, and sums that serve nobody, have no say
    assert not np.repeat(belief.unsure, belief.columns)[asked_for].any()
    assert np.isinf(widths[~asked_for]).all()
    assert np.isfinite(widths[asked_for]).all()
    assert constraints.feasible(np.where(asked_for, widths, 0.0), rtol=1e-9)
    last = last_said(world)
    assert {s.query for s in last} == set(world.catalog.queries)
    assert all(s.met for s in last), [s for s in last if not s.met]


@pytest.mark.parametrize(
    ("seed", "allocation"), [(3, "curves"), (6, "curves"), (4, "burden"), (7, "burden"), (5, "uniform")]
)
def test_every_answer_holds_the_truth_whatever_happens(seed: int, allocation: str) -> None:
    world = peopled(seed, allocation=allocation)
    for name in ("plain", "racks", "ends"):
        world.ask(name, 20)
    world.start_batches()
    world.run(8)
    world.trouble(30)
    world.run(30)
    assert unexcused(world) == []
    settled(world)


@pytest.mark.parametrize(("seed", "allocation"), [(1, "burden"), (2, "burden"), (3, "curves")])
def test_with_a_largest_rate_answers_hold_now(seed: int, allocation: str) -> None:
    world = peopled(seed, allocation=allocation, rate=0.5)
    for name in ("plain", "racks", "ends", "shared"):
        world.ask(name, 20)
    world.start_batches()
    world.run(8)
    world.trouble(20)
    world.run(25)
    assert unexcused(world) == []
    # nothing is waited for
    assert world.driver.mirror.queue.released == world.driver.time
    settled(world)


def test_without_trouble_nothing_is_excused_and_all_queries_are_met() -> None:
    world = peopled(11)
    for name in QUERIES:
        world.ask(name, 25)
    world.start_batches()
    world.run(40)
    assert not any(world.excused(said) for said in world.said)
    assert unexcused(world) == []
    settled(world)
    late = [s for s in world.said if s.at > BEGIN + 20 * SECOND]
    assert len(late) > 200
    assert all(s.met for s in late)


def test_a_driver_that_starts_again_believes_the_same() -> None:
    world = peopled(12)
    world.ask("plain", 10)
    world.start_batches()
    world.run(15)
    before = world.driver
    again = before.again()
    for name, array in before.mirror.to_parts()[0].items():
        np.testing.assert_array_equal(array, again.mirror.to_parts()[0][name], err_msg=name)
    assert json.dumps(before.mirror.to_parts()[1]) == json.dumps(again.mirror.to_parts()[1])


def test_a_tighter_precision_narrows_first_and_a_looser_one_grows() -> None:
    world = peopled(13, sums="never")
    world.ask("plain", 40)
    world.start_batches()
    world.run(15)
    # what was granted before is believed
    while (
        world.driver.mirror.queue.granting or world.driver.first < world.hub.end or len(world.driver.grants)
    ):
        world.run(0.1)
    world.sql("ALTER QUERY plain WITH PRECISION 8 IMMEDIATE")
    spent = []
    for _ in range(100):
        world.run(0.1)
        widths = world.driver.mirror.belief.widths(slice(None), world.now).reshape(-1, 2)[:, 0]
        spent.append(widths.sum())
    kept = next(i for i, s in enumerate(spent) if s <= 8)
    # until all have narrowed nothing grows, and from then on the limit is kept
    assert all(after <= before for before, after in pairwise(spent[:kept]))
    assert max(spent[kept:]) <= 8
    world.sql("ALTER QUERY plain WITH PRECISION 60")
    world.run(25)
    assert world.driver.mirror.belief.widths(slice(None), world.now).reshape(-1, 2)[:, 0].sum() > 8
    assert unexcused(world) == []
    settled(world)


def test_a_precision_that_is_a_little_tighter_is_met_too() -> None:
    world = peopled(14)
    world.ask("plain", 40)
    world.ask("ends", 40)
    world.start_batches()
    world.run(15)
    world.sql("ALTER QUERY plain WITH PRECISION 39.9; ALTER QUERY ends WITH PRECISION 39.9")
    world.run(10)
    settled(world)


def test_what_nobody_asks_for_is_not_sent_and_an_exact_query_needs_all() -> None:
    world = peopled(15, sums="never")
    world.ask("plain", 20)
    world.start_batches()
    world.run(10)
    widths = world.driver.mirror.belief.widths(slice(None), world.now).reshape(-1, 2)
    assert np.isfinite(widths[:, 0]).all()
    assert np.isinf(widths[:, 1]).all()
    world.sql("CREATE QUERY all_of_it AS SELECT SUM(b) AS s FROM LATEST(net) WITH EXACT")
    world.run(6)
    assert (world.driver.mirror.belief.widths(slice(None), world.now) == 0).all()
    world.sql("DROP QUERY all_of_it; DROP QUERY plain")
    world.run(6)
    assert np.isinf(world.driver.mirror.belief.widths(slice(None), world.now)).all()


# the log as events


def test_events_come_in_the_order_of_time_and_equal_times_at_once() -> None:
    queue = Queue(SECOND)
    queue.take(batch(1, "x", [(0, T[3], 1.0), (1, T[5], 1.0)]))
    queue.take(batch(2, "y", [(2, T[3], 1.0), (3, T[4], 1.0)]))
    assert [(at, [e.what["key"] for e in events]) for at, events in queue.release(T[5])] == [
        (T[3], [0, 2]),
        (T[4], [3]),
    ]
    assert [(at, len(events)) for at, events in queue.release(T[6])] == [(T[5], 1)]


def test_what_the_hub_got_late_is_counted_by_its_own_time() -> None:
    queue = Queue(SECOND)
    queue.take(batch(1, "x", [(0, T[3], 1.0)], received=T[4]))
    queue.take(batch(2, "x", [(0, T[4], 1.0), (1, T[4], 2.0)], received=T[5] + 1))
    assert (queue.late, queue.rows) == (2, 3)
    list(queue.release(T[10]))
    queue.take(batch(3, "x", [(0, T[5], 3.0)], received=T[11]))
    # it is carried out at once, after all that was released before
    assert [at for at, _ in queue.release(T[11])] == [T[9]]
    assert queue.late == 3


def test_a_queue_that_was_kept_goes_on() -> None:
    queue, other = Queue(SECOND), Queue(SECOND)
    queue.take(life(1, "lost", "x", T[5]))
    queue.take(grant(2, T[9], None))
    other.load(json.loads(json.dumps(queue.to_json())))
    assert other.granting
    assert list(other.release(T[20])) == list(queue.release(T[20]))
    queue.take(life(3, "joined", "x", T[2], keys=0))
    other.take(life(3, "joined", "x", T[2], keys=0))
    assert queue.to_json() == other.to_json()


# what is believed


def believed(belief: Belief, at: int) -> float:
    return float(belief.widths(np.array([0]), at)[0])


def test_a_grant_is_believed_as_the_wider_of_old_and_new() -> None:
    rng = np.random.default_rng(5)
    for _ in range(300):
        belief = Belief(1)
        belief.grow(1)
        laws: list[tuple[float, int, float, int]] = []
        at = BEGIN
        for position in range(1, 5):
            at += int(rng.integers(0, 40 * SECOND))
            law = (
                float(rng.choice([0.0, 1.0, 3.0, 8.0, math.inf])),
                at,
                float(rng.choice([0.0, 0.05, 0.5])),
                int(rng.choice([5, 10])) * SECOND,
            )
            names = ("width", "start", "shrink", "period")
            belief.granted(
                np.array([0]),
                {n: np.array([v]) for n, v in zip(names, law, strict=True)},
                np.array([position]),
            )
            laws.append(law)
            if belief.asked[0] and rng.random() < 0.5:
                belief.narrowed(np.array([0]), np.array([position]))
                laws = laws[-1:]
            for later in range(0, 200, 7):
                now = at + later * SECOND
                # any of those since the last word may be the one in use
                most = max(float(width_at(*(np.array([v]) for v in one), now)[0]) for one in laws)
                assert believed(belief, now) >= most * (1 - 1e-12)


def test_narrowing_counts_from_the_word_of_the_agent_on() -> None:
    mirror = bounded_mirror(grant(11, T[5], 1.0), ack(12, "x", 11, T[8]))
    advanced(mirror, T[8])
    assert believed(mirror.belief, T[8]) == 4.0
    assert mirror.belief.asked[0] == 11
    advanced(mirror, T[9])
    assert believed(mirror.belief, T[9]) == 1.0


def test_a_word_before_the_start_of_its_grant_counts_from_then_on() -> None:
    # the agent's clock is behind the hub's
    mirror = bounded_mirror(grant(11, T[5], 1.0), ack(12, "x", 11, T[4]))
    advanced(mirror, T[5] + SECOND - 1)
    assert believed(mirror.belief, T[5]) == 4.0
    advanced(mirror, T[6])
    assert believed(mirror.belief, T[6]) == 1.0
    # a word on a grant that is in use already, as of a process that starts anew, leaves nothing behind
    mirror.take(ack(13, "x", 11, T[7]))
    advanced(mirror, T[20])
    assert mirror.to_parts()[1]["early"] == []


def test_what_an_old_log_holds_that_nobody_can_read_is_passed_over_and_counted() -> None:
    mirror = bounded_mirror(
        batch(11, "x", [(0, T[5], 11.0)], curve=[{"c": ["x"]}]),
        batch(12, "x", [], received=T[5], beside={"key": [1], "curve": [[[1, 2]]]}),
        batch(13, "x", [], received=T[5], absent={"key": [1], "at": [T[5]], "absent": [[["x"]]]}),
        batch(14, "x", [(0, T[8], 12.0), (1, T[8], 21.0)], curve=[{"c": [12.5]}, None]),
    )
    advanced(mirror, T[7])
    assert mirror.unread == 3
    # where the bounds are is not known until the next rows
    low, high = mirror.belief.bounds(np.arange(2), T[7])
    assert (low.tolist(), high.tolist()) == ([-math.inf] * 2, [math.inf] * 2)
    arrays, kept = mirror.to_parts()
    later = Mirror(1, SECOND)
    later.load(arrays, json.loads(json.dumps(kept)))
    advanced(later, T[10])
    assert later.unread == 3
    low, high = later.belief.bounds(np.arange(2), T[10])
    assert (low.tolist(), high.tolist()) == ([10.5, 19.0], [14.5, 23.0])


@pytest.mark.parametrize("early", [False, True])
def test_only_who_has_a_key_says_that_its_grant_is_used(early: bool) -> None:
    at = T[4] if early else T[8]
    more = [life(11, "joined", "y", T[3], keys=0), keys(12, "y", T[3], [2]), grant(13, T[5], 1.0)]
    mirror = bounded_mirror(*more, ack(14, "y", 13, at))
    advanced(mirror, T[10])
    assert (believed(mirror.belief, T[10]), mirror.unread) == (4.0, 1)
    mirror.take(ack(15, "x", 13, T[11]))
    advanced(mirror, T[12])
    assert (believed(mirror.belief, T[12]), mirror.unread) == (1.0, 1)


# agents that come and go


def unsure(mirror: Mirror, time: int) -> list[bool]:
    advanced(mirror, time)
    return (mirror.belief.unsure > 0).tolist()


def test_who_is_lost_vouches_for_nothing_until_it_has_caught_up() -> None:
    mirror = bounded_mirror(life(11, "lost", "x", T[10]))
    assert unsure(mirror, T[12]) == [True, True]
    # what it told since then may have been on its way
    assert mirror.belief.unsure.tolist() == [T[9], T[9]]
    mirror.take(life(12, "joined", "x", T[20], keys=2))
    mirror.take(batch(13, "x", [(0, T[12], 11.0)], received=T[20]))
    # what waited comes bit by bit: a row of long ago says nothing of now
    assert unsure(mirror, T[22]) == [True, True]
    mirror.take(batch(14, "x", [(0, T[19], 15.0)], received=T[22], caught_up=True))
    assert unsure(mirror, T[24]) == [False, False]


def test_interruptions_of_an_agent_are_told_and_kept() -> None:
    def of(mirror: Mirror) -> AgentShown:
        [agent] = shown("load", mirror, [], Rates()).agents
        return agent

    mirror = bounded_mirror(life(11, "lost", "x", T[10]))
    advanced(mirror, T[14])
    assert (of(mirror).away_since, of(mirror).interruptions, of(mirror).last_away) == (T[9], 1, (0, 0))
    # it is said again that nobody hears of it: that is the same interruption
    mirror.take(life(12, "lost", "x", T[15]))
    mirror.take(batch(13, "x", [(0, T[19], 15.0)], received=T[22], caught_up=True))
    advanced(mirror, T[24])
    assert (of(mirror).away_since, of(mirror).interruptions, of(mirror).last_away) == (0, 1, (T[9], T[22]))
    mirror.take(life(14, "lost", "x", T[30]))
    mirror.take(life(15, "joined", "x", T[33], "two", keys=0))
    advanced(mirror, T[34])
    arrays, kept = mirror.to_parts()
    again = Mirror(mirror.columns, SECOND)
    again.load(arrays, json.loads(json.dumps(kept)))
    assert (of(again).interruptions, of(again).last_away) == (2, (T[29], T[33]))
    # what was kept by earlier versions says nothing of them
    kept["agents"] = {name: seen[:5] for name, seen in kept["agents"].items()}
    again.load(arrays, kept)
    assert (of(again).interruptions, of(again).last_away) == (0, (0, 0))


def test_what_was_on_its_way_before_an_agent_was_lost_does_not_vouch_for_it() -> None:
    # the agent's clock is ahead of the hub's: its row, and that it had caught up, seem to come after its loss
    mirror = bounded_mirror(
        batch(11, "x", [(0, T[10] + 300_000, 11.0)], received=T[10], sent=T[10] + 300_000, caught_up=True),
        life(12, "lost", "x", T[10] + 100_000),
    )
    assert unsure(mirror, T[15]) == [True, True]


def test_a_process_that_starts_anew_vouches_key_by_key() -> None:
    mirror = bounded_mirror(
        life(11, "lost", "x", T[10]),
        life(12, "joined", "x", T[20], "two", keys=0),
        keys(13, "x", T[20], [0, 1]),
    )
    assert unsure(mirror, T[22]) == [True, True]
    # a row alone will do no more than a word alone
    mirror.take(batch(14, "x", [(0, T[23], 12.0)]))
    mirror.take(ack(15, "x", 4, T[23]))
    assert unsure(mirror, T[25]) == [True, True]
    mirror.take(ack(16, "x", 3, T[25]))
    assert unsure(mirror, T[27]) == [False, True]
    mirror.take(batch(17, "x", [(1, T[28], 12.0)]))
    assert unsure(mirror, T[30]) == [False, False]


def test_a_key_that_another_agent_takes_over_is_unsure_until_that_one_tells_it() -> None:
    more = [
        life(11, "lost", "x", T[10]),
        life(12, "joined", "y", T[11], "other", keys=0),
        keys(13, "y", T[11], [1]),
        # the clock of the new one is behind: what it says is newer all the same
        batch(14, "y", [(1, T[2] - 1, 99.0)], received=T[12], narrowed={"position": [4], "at": [T[12]]}),
    ]
    # and the clock of the old one was ahead: its last row seems to be newer
    mirror = bounded_mirror(batch(10, "x", [(1, T[13] + 1, 50.0)], received=T[9]), *more[:3])
    assert unsure(mirror, T[13]) == [True, True]
    mirror.take(more[3])
    assert unsure(mirror, T[15]) == [True, False]
    assert mirror.belief.value[1] == 99.0
    # the old one comes back with what is left to it
    mirror.take(life(15, "joined", "x", T[20], keys=1))
    mirror.take(batch(16, "x", [], received=T[21], caught_up=True))
    assert unsure(mirror, T[25]) == [False, False]


def test_the_same_declaration_again_changes_nothing_and_another_begins_anew() -> None:
    mirror = Mirror(1, SECOND)
    declared = {"position": 1, "kind": "declared", "received": T[0], "key": ["host"], "columns": ["a"]}
    mirror.take(declared)
    mirror.take(keys(2, "x", T[0], [0, 1]))
    mirror.take({**declared, "position": 3})
    assert len(mirror.names) == 2
    mirror.take({**declared, "position": 4, "columns": ["b"]})
    assert mirror.names == []
    mirror.take(keys(5, "x", T[0], [0, 1]))
    mirror.take({**declared, "position": 6, "columns": ["b"], "kinds": ["whole"]})
    assert mirror.names == [], "the hub numbers keys of another kind anew"


def test_rates_of_keys_of_an_earlier_shape_need_not_fit() -> None:
    mirror = Mirror(2, SECOND, rates=[1.0, 1.0])
    declared = {"position": 1, "kind": "declared", "received": T[0], "key": ["host"]}
    mirror.take({**declared, "columns": ["a", "b", "c"]})
    mirror.take({**keys(2, "x", T[0], [0, 1]), "terms": [[1, 2.0, [3.0, None, 4.0]]]})
    mirror.take({**declared, "position": 3, "columns": ["a", "b"]})
    mirror.take({**keys(4, "x", T[0], [0]), "terms": [[0, 2.0, [3.0, None]]]})
    assert len(mirror.names) == 1
    assert mirror.cost.tolist() == [2.0]


@pytest.mark.parametrize(("first", "grown", "last"), [(2.0, 9.0, 5.0), (0.0, 9.0, 0.0)])
def test_an_agent_that_missed_a_wider_grant_is_asked_again(first: float, grown: float, last: float) -> None:
    """It got only the last of three: to it nothing was narrowed, so it has nothing to say."""
    catalog = Catalog.from_sql(
        DECLARED + "CREATE QUERY q AS SELECT SUM(a) AS s FROM LATEST(net) WITH PRECISION 10", Functions()
    )
    mirror = Mirror(2, SECOND)
    agent = Filters(2, follow=False)
    agent.add(2)
    names: list[Key] = [("h0", "r", 1), ("h1", "r", 1)]
    mirror.take(life(1, "joined", "x", T[0], keys=0))
    mirror.take({**keys(2, "x", T[0], [0, 1]), "keys": [list(n) for n in names]})
    position = 10

    def granted(width: float, at: int, *, heard: bool, key: int = 0) -> None:
        nonlocal position
        mirror.take(grant(position, at, width, key=key))
        if heard:
            hear(position, key, width, at)
        position += 10

    def hear(of: int, key: int, width: float, at: int) -> None:
        one = Grants(
            np.array([key]), np.array([0]), np.array([width]), np.array([at]), np.zeros(1), np.array([PERIOD])
        )
        if agent.grant(one, at)[0]:
            mirror.take(ack(of + 1, "x", of, at))

    values = np.array([[5.0, 0.0], [6.0, 0.0]])
    agent.offer(np.arange(2), values, T[1])
    granted(first, T[2], heard=True)
    granted(1.0, T[2], heard=True, key=1)
    for key in (0, 1):
        row = batch(position, "x", [(key, T[3], 5.0)])
        mirror.take({**row, "values": [[5.0 + key, 0.0]]})
        position += 1
    granted(grown, T[5], heard=False)
    granted(last, T[8], heard=False)
    hear(position - 10, 0, last, T[9])
    advanced(mirror, T[20])
    assert mirror.belief.asked[0] == position - 10
    query = made_query(catalog, "q", names)
    query.weigh(mirror.belief)
    coordinator = Coordinator(Adjusting(allocation="uniform", tolerance=SECOND), np.random.default_rng(1))
    coordinator.ask([query], mirror.belief, everything=False)
    now = T[20]
    for _ in range(6):
        if not mirror.belief.asked[0]:
            break
        now += 15 * SECOND
        found = coordinator.decide(mirror, now, changed=False)
        for key, width in zip(found.key.tolist(), found.width.tolist(), strict=True):
            granted(width, now, heard=True, key=key)
        advanced(mirror, now + 2 * SECOND)
    assert not mirror.belief.asked[0]
    assert believed(mirror.belief, now) <= max(last, 1e-90)


def test_nobody_is_narrowed_because_another_does_not_answer() -> None:
    catalog = Catalog.from_sql(
        DECLARED + "CREATE QUERY q AS SELECT SUM(a) AS s FROM LATEST(net) WITH PRECISION 8", Functions()
    )
    mirror, names = told_mirror(2)
    query = made_query(catalog, "q", names)
    query.weigh(mirror.belief)
    coordinator = Coordinator(Adjusting(tolerance=SECOND), np.random.default_rng(1))
    coordinator.ask([query], mirror.belief, everything=False)
    # 20 each is in use: one of them says that it has narrowed, the agent of the other is away
    found = coordinator.decide(mirror, T[10], changed=True)
    assert found.key.tolist() == [0, 1]
    assert found.width == pytest.approx([4.0, 4.0], rel=1e-5)
    mirror.take(life(500, "lost", "x1", T[10]))
    for key in (0, 1):
        mirror.take(grant(510 + key, T[10], float(found.width[key]), key=key))
    mirror.take(ack(520, "x0", 510, T[11]))
    advanced(mirror, T[20])
    for turn in range(12):
        assert len(coordinator.decide(mirror, T[20 + 10 * turn], changed=False)) == 0


# intervals


def made_query(catalog: Catalog, name: str, names: list[Key]) -> BoundedQuery:
    stream = catalog.streams["net"]
    form = bounded_form(catalog.queries[name], stream)
    step = CurrentStep(form.step, form.linear)
    query = BoundedQuery(form, Matrix(step, form.linear.signals), COLUMNS)
    query.matrix.extend(entries(step, names, 0, stream.key), len(names))
    return query


def told_mirror(count: int, value: float = 5.0) -> tuple[Mirror, list[Key]]:
    """Keys of two columns, each of an agent of its own, of width 20."""
    names: list[Key] = [(f"h{i}", f"r{i % 2}", i + 1) for i in range(count)]
    mirror = Mirror(2, SECOND)
    for i, name in enumerate(names):
        mirror.take(life(1 + i, "joined", f"x{i}", T[0], keys=0))
        mirror.take({**keys(50 + i, f"x{i}", T[0], [i]), "keys": [list(name)]})
        mirror.take({**grant(100 + 2 * i, T[1], 20.0, key=i)})
        row = batch(200 + i, f"x{i}", [(i, T[2], value)], narrowed={"position": [100 + 2 * i], "at": [T[2]]})
        mirror.take({**row, "values": [[value, value]]})
    advanced(mirror, T[5])
    return mirror, names


def random_belief(rng: np.random.Generator, names: list[Key], gone: float, scale: float = 1.0) -> Belief:
    belief = Belief(2)
    belief.grow(len(names))
    for number in range(len(names)):
        values = rng.normal(0, 50, 2) * scale
        values[rng.random(2) < gone] = np.nan
        belief.row(number, values, values, np.zeros(2), BEGIN)
    belief.width[:] = rng.choice([0.0, 1.0, 7.0], len(belief.width)) * scale
    return belief


MORE = {
    "offset": Asked(
        "SELECT SUM(a + 1) - SUM(2 * b - 3) AS o FROM LATEST(net)",
        {"o": lambda rows: _difference(rows)},
    ),
    "by_count": Asked(
        "SELECT rack, MAX(b) * (COUNT(*) - 3) AS c FROM LATEST(net) GROUP BY rack",
        {"c": lambda rows: _times_count(rows)},
        grouped=True,
    ),
}


def _difference(rows: list[dict[str, Any]]) -> float | None:
    first, second = (
        [r["a"] + 1 for r in rows if r["a"] is not None],
        [2 * r["b"] - 3 for r in rows if r["b"] is not None],
    )
    return math.fsum(first) - math.fsum(second) if first and second else None


def _times_count(rows: list[dict[str, Any]]) -> float | None:
    found = [r["b"] for r in rows if r["b"] is not None]
    return max(found) * (len(rows) - 3) if found else None


@pytest.mark.parametrize("name", [*QUERIES, *MORE])
@pytest.mark.parametrize(("gone", "scale"), [(0.0, 1.0), (0.3, 1.0), (0.95, 1.0), (0.1, 1e12), (0.1, 1e-9)])
def test_intervals_hold_all_that_the_bounds_allow_and_no_more(name: str, gone: float, scale: float) -> None:
    """Every choice of values in their bounds gives an answer within, and both ends are reached."""
    asked = {**QUERIES, **MORE}[name]
    catalog = Catalog.from_sql(DECLARED + f"CREATE QUERY q AS {asked.sql} WITH PRECISION 5", Functions())
    rng = np.random.default_rng(len(name))
    names: list[Key] = [(f"h{i}", f"r{i % 3}", int(k)) for i, k in enumerate(rng.choice([-2, -1, 1, 3], 7))]
    query = made_query(catalog, "q", names)
    for _ in range(4):
        belief = random_belief(rng, names, gone, scale)
        query.weigh(belief)
        low, high = belief.bounds(slice(None), BEGIN)
        groups = query.matrix.groups.columns[0].to_pylist() if asked.grouped else [None]
        for place, item in enumerate(query.outputs()):
            found = query.intervals(place, np.arange(query.matrix.size), low, high)
            seen = [
                [asked.truth[item.name](rows) for rows in _corners(rng, belief, names, low, high, asked, g)]
                for g in groups
            ]
            for row, truths in enumerate(seen):
                if truths[0] is None:
                    assert np.isnan(found.low[row])
                    continue
                assert all(found.low[row] <= t <= found.high[row] for t in truths)
                size = 1e-12 * max(1.0, scale) * 1e3 if scale >= 1 else 1e-9 * 1e-9
                assert min(truths) == pytest.approx(found.low[row], abs=size, rel=1e-9)
                assert max(truths) == pytest.approx(found.high[row], abs=size, rel=1e-9)


def _corners(
    rng: np.random.Generator,
    belief: Belief,
    names: list[Key],
    low: Any,
    high: Any,
    asked: Asked,
    group: str | None,
) -> list[list[dict[str, Any]]]:
    """Rows with values anywhere in their bounds: all that matters is at the ends, of each column alike by sign."""
    picks = [rng.random((len(names), 2)) < 0.5 for _ in range(20)]
    picks += [
        np.tile(pick, (len(names), 1))
        for pick in ([False, False], [True, True], [True, False], [False, True])
    ]
    signs = np.array([[k < 0, False] for _, _, k in names])
    picks += [p ^ signs for p in picks[-4:]]
    found = []
    for pick in picks:
        rows = []
        for number, name in enumerate(names):
            row: dict[str, Any] = dict(zip(("host", "rack", "k"), name, strict=True))
            if not asked.chosen(row) or (group is not None and name[1] != group):
                continue
            for column, label in enumerate(COLUMNS):
                place = 2 * number + column
                end = high[place] if pick[number, column] else low[place]
                row[label] = None if np.isnan(belief.value[place]) else float(end)
            rows.append(row)
        found.append(rows)
    return found


def test_who_has_no_value_and_no_bound_may_have_come_back() -> None:
    catalog = Catalog.from_sql(
        DECLARED + "CREATE QUERY q AS SELECT SUM(a) AS s FROM LATEST(net) WITH PRECISION 5", Functions()
    )
    names: list[Key] = [("h0", "r", 1), ("h1", "r", 1)]
    query = made_query(catalog, "q", names)
    belief = random_belief(np.random.default_rng(1), names, 0.0)
    belief.row(1, np.full(2, np.nan), np.full(2, np.nan), np.zeros(2), BEGIN)
    query.weigh(belief)

    def ends() -> tuple[float, float]:
        found = query.intervals(0, np.array([0]), *belief.bounds(slice(None), BEGIN))
        return float(found.low[0]), float(found.high[0])

    assert all(map(math.isfinite, ends()))
    belief.unsure[1] = BEGIN
    assert ends() == (-math.inf, math.inf)
    belief.unsure[1], belief.width[2] = 0, math.inf
    assert ends() == (-math.inf, math.inf)


def test_counts_alone_ask_that_keys_are_told_and_averages_ask_for_groups_to_come() -> None:
    sql = "CREATE QUERY n AS SELECT rack, COUNT(*) AS n FROM LATEST(net) GROUP BY rack WITH PRECISION 1;"
    sql += "CREATE QUERY m AS SELECT rack, AVG(a) AS m FROM LATEST(net) GROUP BY rack WITH PRECISION 1"
    catalog = Catalog.from_sql(DECLARED + sql, Functions())
    names: list[Key] = [("h0", "r0", 1), ("h1", "r0", 1), ("h2", "r1", 1), ("h3", "r1", 1)]
    belief = Belief(2)
    belief.grow(4)
    # those of one group have spoken, and one of them has no value any more
    belief.row(0, np.array([1.0, 1.0]), np.array([1.0, 1.0]), np.zeros(2), BEGIN)
    belief.row(1, np.full(2, np.nan), np.full(2, np.nan), np.zeros(2), BEGIN)
    for name, columns in (("n", 2), ("m", 1)):
        query = made_query(catalog, name, names)
        query.weigh(belief)
        coordinator = Coordinator(Adjusting(), np.random.default_rng(1))
        coordinator.ask([query], belief, everything=False)
        constraints = coordinator.constraints
        assert constraints is not None
        asked = (constraints.shared | np.isfinite(constraints.ceiling)).reshape(4, 2)
        assert asked[:, :columns].all()


def test_counts_are_said_by_group_as_keys_come() -> None:
    catalog = Catalog.from_sql(
        DECLARED
        + "CREATE QUERY n AS SELECT rack, COUNT(*) AS n FROM LATEST(net) GROUP BY rack WITH PRECISION 1",
        Functions(),
    )
    mirror, names = told_mirror(3)
    query = made_query(catalog, "n", names)
    query.named = {"rack": query.matrix.groups.columns[0]}
    evaluator = Evaluator([query], None)
    evaluator.weigh(mirror.belief)
    manner = Adjusting(tolerance=SECOND)
    (said,) = evaluator.advance(mirror, T[6], manner, NOW)
    assert dict(zip(said.keys["rack"].to_pylist(), said.low.to_pylist(), strict=True)) == {
        "r0": 2.0,
        "r1": 1.0,
    }
    # what has been said is not said again
    assert evaluator.advance(mirror, T[7], manner, NOW) == []


def test_where_no_value_is_left_that_is_said_once() -> None:
    catalog = Catalog.from_sql(
        DECLARED + "CREATE QUERY q AS SELECT SUM(a) AS s FROM LATEST(net) WITH PRECISION 100", Functions()
    )
    mirror, names = told_mirror(2)
    query = made_query(catalog, "q", names)
    evaluator = Evaluator([query], None)
    evaluator.weigh(mirror.belief)
    manner = Adjusting(tolerance=SECOND)
    (said,) = evaluator.advance(mirror, T[6], manner, NOW)
    assert said.low.to_pylist() == [pytest.approx(-10.0)]
    for i in range(2):
        row = batch(300 + i, f"x{i}", [(i, T[7], 0.0)])
        mirror.take({**row, "values": [[None, 1.0]]})
    (said,) = evaluator.advance(mirror, T[9], manner, NOW)
    assert (said.low.to_pylist(), said.value.to_pylist(), said.met.tolist()) == ([None], [None], [True])
    mirror.take({**batch(310, "x0", [(0, T[10], 0.0)]), "values": [[None, 2.0]]})
    assert evaluator.advance(mirror, T[12], manner, NOW) == []


def test_padding_keeps_what_shrinks_and_moves_as_it_was() -> None:
    """Rows that shrinking causes are on their way too, however slowly values change."""
    belief = Belief(1)
    belief.grow(1)
    belief.row(0, np.array([0.0]), np.array([0.0]), np.array([2.0]), BEGIN)
    belief.width[0], belief.start[0], belief.shrink[0], belief.period[0] = 8.0, BEGIN, 0.5, 4 * SECOND
    boundary = (BEGIN // (4 * SECOND) + 1) * 4 * SECOND
    low, high = belief.bounds(np.array([0]), boundary, SECOND)
    before = belief.bounds(np.array([0]), boundary - 1)
    after = belief.bounds(np.array([0]), boundary)
    assert low[0] <= min(before[0][0], after[0][0])
    assert high[0] >= max(before[1][0], after[1][0])


def test_with_a_largest_rate_an_answer_is_as_wide_as_bounds_were_a_moment_ago() -> None:
    catalog = Catalog.from_sql(
        DECLARED + "CREATE QUERY q AS SELECT SUM(a) AS s FROM LATEST(net) WITH PRECISION 100", Functions()
    )
    names: list[Key] = [("h0", "r", 1)]
    mirror = Mirror(2, SECOND, rates=(0.1, 0.1))
    mirror.take(life(1, "joined", "x", T[0], keys=0))
    mirror.take({**keys(2, "x", T[0], [0]), "keys": [list(names[0])]})
    mirror.take(grant(3, T[1], 8.0, shrink=0.5))
    row = batch(4, "x", [(0, T[2], 0.0)], narrowed={"position": [3], "at": [T[2]]})
    mirror.take({**row, "values": [[0.0, 0.0]]})
    advanced(mirror, T[3])
    query = made_query(catalog, "q", names)
    evaluator = Evaluator([query], None)
    evaluator.weigh(mirror.belief)
    manner = Adjusting(tolerance=SECOND, rates=(0.1, 0.1))
    boundary = (T[3] // PERIOD + 1) * PERIOD
    (said,) = evaluator.advance(mirror, boundary, manner, NOW)
    assert believed(mirror.belief, boundary) == 4.0
    # the row that this shrinking causes is still to come
    assert said.high.to_pylist()[-1] - said.low.to_pylist()[-1] >= 8.0 + 2 * 0.1


def test_keys_that_a_filter_leaves_out_are_no_zeros() -> None:
    sql = "CREATE QUERY q AS SELECT MAX(b) FILTER (WHERE k > 0) AS x FROM LATEST(net) WITH PRECISION 5"
    catalog = Catalog.from_sql(DECLARED + sql, Functions())
    names: list[Key] = [("h0", "r", 1), ("h1", "r", -1)]
    query = made_query(catalog, "q", names)
    belief = Belief(2)
    belief.grow(2)
    for number in range(2):
        belief.row(number, np.full(2, -5.0), np.full(2, -5.0), np.zeros(2), BEGIN)
    belief.width[:] = 2.0
    query.weigh(belief)
    found = query.intervals(0, np.array([0]), *belief.bounds(slice(None), BEGIN))
    assert (found.low[0], found.high[0]) == (pytest.approx(-6.0), pytest.approx(-4.0))


def test_the_width_of_many_large_numbers_is_still_known() -> None:
    """A sum of many values is not off by so much that a precision is never met."""
    count = 20_000
    rng = np.random.default_rng(3)
    names: list[Key] = [(f"h{i}", "r", 1) for i in range(count)]
    catalog = Catalog.from_sql(
        DECLARED + "CREATE QUERY q AS SELECT SUM(a) AS s FROM LATEST(net) WITH PRECISION 1000", Functions()
    )
    query = made_query_of_ones(catalog, names)
    belief = Belief(2)
    belief.grow(count)
    belief.known[:] = True
    belief.value[:] = belief.centre[:] = rng.uniform(0, 1e6, 2 * count)
    belief.width[:] = query.granted_width(query.contract.width) / count * (1 - 1e-12)
    query.weigh(belief)
    found = query.intervals(0, np.array([0]), *belief.bounds(slice(None), BEGIN))
    assert found.high[0] - found.low[0] <= 1000
    assert found.low[0] <= math.fsum(belief.value[::2]) <= found.high[0]


def made_query_of_ones(catalog: Catalog, names: list[Key]) -> BoundedQuery:
    """A query over many keys, each of weight 1."""
    form = bounded_form(catalog.queries["q"], catalog.streams["net"])
    query = BoundedQuery(form, Matrix(CurrentStep(form.step, form.linear), form.linear.signals), COLUMNS)
    ones = pa.array(np.ones(len(names)))
    table = pa.table({"key": pa.array(np.arange(len(names))), "n": ones, "n0": ones, "w0_0": ones})
    query.matrix.extend(table, len(names))
    return query


def test_an_agent_that_joined_before_the_stream_was_declared_is_not_trusted_when_it_starts_anew() -> None:
    mirror = Mirror(2, SECOND)
    mirror.take(life(1, "joined", "x0", T[0], keys=0))
    mirror.take(
        {
            "position": 2,
            "kind": "declared",
            "received": T[0],
            "key": ["host", "rack", "k"],
            "columns": ["a", "b"],
        }
    )
    mirror.take({**keys(3, "x0", T[0], [0]), "keys": [["h0", "r0", 1]]})
    mirror.take(grant(10, T[1], 20.0, key=0))
    mirror.take(batch(20, "x0", [(0, T[2], 5.0)], narrowed={"position": [10], "at": [T[2]]}))
    advanced(mirror, T[4])
    assert not mirror.belief.unsure.any()
    mirror.take(life(30, "lost", "x0", T[4], since=T[4]))
    mirror.take(life(31, "joined", "x0", T[5], incarnation="another", keys=0))
    mirror.take(batch(32, "x0", [], caught_up=True, sent=T[5] + 1))
    advanced(mirror, T[7])
    # it has told nothing yet of what it has
    assert mirror.belief.unsure.all()
