"""Sums of keys that agents make: that they are exact, found where they may be, and serve without a gap."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import precision_world
from edge_clients import HOSTS, SECOND, AgentClient, CoordinatorClient
from precision_entries import T, bounded_mirror
from precision_world import Asked, World, total
from slackwater.edge.hub_thread import HubThread
from slackwater.edge.sums import ANEW_UP_TO, Sums
from slackwater.planners.precision_sums import Entries, covered, structured
from slackwater.runtime.bounds import choosing, summing
from slackwater.runtime.bounds.belief import LiveSum
from slackwater.runtime.bounds.mirror import Mirror
from slackwater.runtime.bounds.summing import _ready
from test_edge_agent import granted, sent, welcomed
from test_precision_guarantee import settled, unexcused

NUMBERS = st.floats(allow_nan=True, allow_infinity=False, width=64).map(
    lambda v: v if abs(v) < 1e300 else math.nan
)


def made(members: list[int], keys: int) -> tuple[Sums, int]:
    """One sum of some keys, and its number here."""
    sums = Sums()
    fresh, _ = sums.set([[7, members, 0]], lambda name: keys)
    assert fresh.tolist() == [keys]
    return sums, keys


def nearest(values: list[float]) -> float:
    there = [Fraction(v) for v in values if not math.isnan(v)]
    return float(sum(there)) if there else math.nan


def same(first: float, second: float) -> bool:
    return first == second or (math.isnan(first) and math.isnan(second))


# --- sums


@settings(deadline=None)
@given(
    st.lists(NUMBERS, min_size=1, max_size=12), st.lists(st.tuples(st.integers(0, 11), NUMBERS), max_size=20)
)
@pytest.mark.parametrize("large", [False, True])
def test_a_sum_is_the_double_nearest_to_the_exact_one(
    large: bool, values: list[float], changes: list[tuple[int, float]]
) -> None:
    # large ones are carried on by what has changed
    padding = [0.25] * (ANEW_UP_TO if large else 0)
    held = np.array([*values, *padding]).reshape(-1, 1)
    sums, number = made(list(range(len(held))), len(held))
    assert same(sums.rows(np.array([number]), held)[0, 0], nearest(held[:, 0].tolist()))
    for place, value in changes:
        key = place % len(values)
        before = held[key].tolist()
        held[key] = value
        found = sums.changed(key, before, [value], held)
        assert same(found[0, 0], nearest(held[:, 0].tolist()))


@pytest.mark.parametrize("members", [3, ANEW_UP_TO + 1])
def test_a_sum_that_no_double_can_hold_has_a_value_and_no_bound(members: int) -> None:
    state, now = welcomed(), 1_000 * SECOND
    names = [f"h{n}" for n in range(members)]
    state.offer_many(names, [1.0] * members, now)
    state.make_sums({"sums": [[9, list(range(members)), 0]]}, now)
    granted(state, {members: 2.0})
    told = [m["rows"] for m in sent(state, now) if m["type"] == "batch"]
    for name, value in (("h0", 1.7e308), ("h1", 1.7e308), ("h2", 1.6e308), ("h2", 1.5e308), ("h0", -1.7e308)):
        now += SECOND
        state.offer(name, value, now)
        state.review(now)
        told += [m["rows"] for m in sent(state, now)]
    # while it is beyond what can be told nothing more is
    largest = float(np.finfo(np.float64).max)
    assert [rows["values"] for rows in told] == [[[float(members)]], [[1.7e308]], [[largest]], [[1.5e308]]]
    assert [rows["curve"][0]["c"] for rows in told[2:3]] == [[None]]
    mirror = Mirror(1, SECOND)
    begun = [
        {"kind": "declared", "key": ["host"], "columns": ["load"]},
        {"kind": "joined", "agent": "x", "incarnation": "i", "keys": 0},
        {"kind": "keys", "agent": "x", "keys": [["h0"]], "numbers": [0]},
        {"kind": "grants", "key": [0], "column": [0], "width": [2.0], "shrink": [0.0], "period": [SECOND]}
        | {"start": [990 * SECOND]},
    ]
    batches = [
        {"kind": "batch", "agent": "x", "number": n, "sent": rows["at"][0], **rows, "key": [0]}
        | {"narrowed": {"position": [4], "at": rows["at"]}}
        for n, rows in enumerate(told)
    ]
    found = []
    for position, entry in enumerate([*begun, *batches], 1):
        at = entry.get("sent", 990 * SECOND)
        mirror.take({"position": position, "received": at, **entry})
        list(mirror.advance(at + SECOND))
        found.append(np.concatenate(mirror.belief.bounds(slice(None), at)))
    assert found[-2].tolist() == [-math.inf, math.inf]
    assert np.isfinite([found[-4], found[-1]]).all()


def test_keys_know_the_sums_that_they_are_in() -> None:
    sums = Sums()
    numbers = iter(range(100, 110))
    fresh, ended = sums.set([[1, [0, 2], 0], [2, [2], 0]], lambda name: next(numbers))
    assert (fresh.tolist(), ended.tolist()) == ([100, 101], [])
    assert [sums.of(np.array([key])).tolist() for key in (0, 1, 2, 50)] == [[100], [], [100, 101], []]
    assert sums.of(np.array([0, 1, 2])).tolist() == [100, 101]
    fresh, ended = sums.set([[2, [2], 0], [3, [1], 0]], lambda name: next(numbers))
    assert (fresh.tolist(), ended.tolist()) == ([102], [100])
    assert [sums.of(np.array([key])).tolist() for key in (0, 1, 2)] == [[], [102], [101]]


def test_only_what_the_sum_leaves_is_sent_and_who_is_missing_is_told() -> None:
    state = welcomed()
    for host, value in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
        state.offer(host, value, 1_000 * SECOND)
    sent(state)
    state.make_sums({"sums": [[9, [0, 1], 0]]}, 1_000 * SECOND)
    [announced] = sent(state)
    assert announced["keys"] == [{"sum": 9}]
    granted(state, {3: 2.0})
    [batch] = [m for m in sent(state) if m["type"] == "batch"]
    assert (batch["rows"]["key"], batch["rows"]["values"]) == ([3], [[3.0]])
    assert batch["absent"] == {"key": [3], "at": [1_000 * SECOND], "absent": [[[]]]}
    # one up and one down: the sum stays where it is
    now = 1_001 * SECOND
    state.offer_many(["a", "b"], [6.0, -3.5], now)
    state.offer("c", 100.0, now)
    assert sent(state) == []
    state.offer("a", 8.0, now)
    [batch] = sent(state)
    assert (batch["rows"]["key"], batch["rows"]["values"]) == ([3], [[4.5]])
    assert "absent" not in batch
    # a member that is gone is told at once, though the sum hardly moves
    state.offer("b", None, now)
    state.offer("b", -3.5, now)
    [batch] = sent(state)
    assert batch["rows"]["values"] == [[8.0], [4.5]]
    assert batch["absent"]["absent"] == [[[1]], [[]]]


def test_a_sum_that_is_only_watched_sends_nothing_but_its_curve_beside_others() -> None:
    state = welcomed()
    for host in ("a", "b", "c"):
        state.offer(host, 0.0, 1_000 * SECOND)
    state.make_sums({"sums": [[9, [0, 1], 0]]}, 1_000 * SECOND)
    granted(state, {2: 0.0})
    sent(state)
    for step in range(1, 40):
        state.offer("a", float(step % 5), (1_000 + step) * SECOND)
    assert sent(state) == []
    state.offer("c", 5.0, 1_050 * SECOND)
    [batch] = sent(state, 1_050 * SECOND)
    assert batch["rows"]["key"] == [2]
    assert batch["beside"]["key"] == [3]
    [[[_, seconds, most, *rates]]] = batch["beside"]["curve"]
    assert seconds > 30
    assert most == pytest.approx(1.0, rel=0.2)
    assert sorted(rates, reverse=True) == rates


def test_an_agent_that_meets_another_log_forgets_the_sums_of_the_first() -> None:
    state = welcomed()
    for host in ("a", "b"):
        state.offer(host, 4.0, 1_000 * SECOND)
    state.make_sums({"sums": [[9, [0, 1], 0]]}, 1_000 * SECOND)
    state.offer("c", 5.0, 1_000 * SECOND)
    sent(state)
    assert state.hello()["sums"] == 1
    message = {"received": 0, "keys": 0, "log": "other", "declared": HOSTS.message(), "time": 0}
    assert not state.welcome(message, 1_001 * SECOND)
    assert "sums" not in state.hello()
    assert state.welcome(message, 1_001 * SECOND)
    [announced] = sent(state)
    assert announced["keys"] == [["a"], ["b"], ["c"]]
    granted(state, {0: 1.0, 1: 1.0, 2: 1.0}, now=1_001 * SECOND)
    [batch] = sent(state, 1_001 * SECOND)
    assert batch["rows"]["values"] == [[4.0], [4.0], [5.0]]


# --- the hub


def test_a_hub_tells_an_agent_its_sums_once_it_has_all_their_keys(tmp_path: Path) -> None:
    with HubThread(tmp_path) as hub, CoordinatorClient(hub.url) as coordinator:
        agent = AgentClient(hub.url)
        agent.welcome()
        agent.keys("x", "y")
        form = {"generation": 1, "agent": "a", "scope": ["", "0:q"], "window": [0, 0], "dropped": []}
        first = coordinator.ask("form", members=[[0, 1], [1]], **form)["sums"]
        assert agent.hear("sums")["sums"] == [[first[0], [0, 1], 0], [first[1], [1], 0]]
        agent.send("keys", first=2, keys=[{"sum": first[0]}])
        agent.batch(1, {2: 3.0})
        agent.received(1)
        [keys] = coordinator.entries("keys")[1:]
        assert (keys["keys"], keys["numbers"]) == ([{"sum": first[0]}], [2])
        coordinator.ask("form", **{**form, "members": [], "scope": [], "window": [], "dropped": first[1:]})
        assert agent.hear("sums")["sums"] == [[first[0], [0, 1], 0]]
        agent.cut()
    # the hub and the agent start again: it is told when it has announced all that it needs
    with HubThread(tmp_path) as hub, CoordinatorClient(hub.url) as coordinator:
        agent = AgentClient(hub.url, incarnation="i2")
        agent.welcome()
        agent.keys("y")
        agent.send("keys", first=1, keys=[["x"]])
        assert agent.hear("sums")["sums"] == [[first[0], [1, 0], 0]]
        agent.close()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"agent": "b"}, "there is no agent 'b'"),
        ({"members": [[0, 0]]}, "expected distinct numbers of keys"),
        ({"members": [[]]}, "expected distinct numbers of keys"),
        ({"members": [[5]]}, "expected distinct numbers of keys"),
        ({"scope": []}, "expected arrays of one length"),
        ({"generation": 0}, "generation 0 is fenced"),
        ({"members": [["x"]]}, "expected a list of lists of numbers of keys"),
    ],
)
def test_a_sum_that_cannot_be_is_refused_and_the_connection_goes_on(
    tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    with HubThread(tmp_path) as hub, CoordinatorClient(hub.url) as coordinator, AgentClient(hub.url) as agent:
        agent.welcome()
        agent.keys("x", "y")
        form = {
            "generation": 1,
            "agent": "a",
            "members": [[0, 1]],
            "scope": [""],
            "window": [0],
            "dropped": [],
        }
        answer = coordinator.ask("form", **{**form, **changed})
        assert (answer["type"], reason in answer["reason"]) == ("refused", True), answer
        assert coordinator.entries("sums") == []
        assert coordinator.ask("form", **form)["type"] == "formed"


# --- groups and covers


ENTRIES = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 7), st.integers(0, 1)),
    max_size=30,
    unique_by=lambda e: e[:2],
).map(sorted)


def entries_of(found: list[tuple[int, int, int]]) -> Entries:
    row, key, kind = (np.array([e[i] for e in found], np.int64) for i in range(3))
    return Entries(row, key, kind)


@settings(deadline=None)
@given(
    ENTRIES,
    st.lists(st.integers(-1, 1), min_size=8, max_size=8),
    st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_groups_are_the_keys_that_no_row_tells_apart(
    found: list[tuple[int, int, int]], owner: list[int], apart: list[bool]
) -> None:
    structure = structured(entries_of(found), np.array(owner), np.array(apart))
    alike = defaultdict(list)
    for key in range(8):
        read = tuple(sorted((row, kind) for row, k, kind in found if k == key))
        if read and owner[key] >= 0 and not apart[key]:
            alike[(owner[key], read)].append(key)
    assert sorted(structure.members(g).tolist() for g in range(structure.groups.groups)) == sorted(
        alike.values()
    )
    slots = defaultdict(list)
    for row, key, kind in found:
        if owner[key] >= 0 and not apart[key]:
            slots[(row, kind, owner[key])].append(key)
    told = [structure.slot_members(s).tolist() for s in range(structure.groups.slots)]
    assert told == [slots[slot] for slot in sorted(slots)]
    assert structure.slot_row.tolist() == [slot[0] for slot in sorted(slots)]


@settings(deadline=None)
@given(ENTRIES, st.lists(st.integers(-1, 1), min_size=8, max_size=8), st.integers(1, 4))
def test_large_groups_are_cut_and_make_up_the_same_slots(
    found: list[tuple[int, int, int]], owner: list[int], at_most: int
) -> None:
    entries, apart = entries_of(found), np.zeros(8, bool)
    whole, cut = (structured(entries, np.array(owner), apart, most) for most in (8, at_most))
    assert (cut.sizes <= at_most).all()
    assert (cut.sizes > 0).all()
    for group in range(cut.groups.groups):
        assert len(set(whole.group_of[cut.members(group)].tolist())) == 1
    for structure in (whole, cut):
        told = [structure.slot_members(s).tolist() for s in range(structure.groups.slots)]
        assert told == [whole.slot_members(s).tolist() for s in range(whole.groups.slots)]


@settings(deadline=None)
@given(
    ENTRIES,
    st.lists(st.tuples(st.sets(st.integers(0, 7), min_size=1, max_size=4), st.integers(-1, 4)), max_size=6),
)
def test_a_cover_tells_every_row_whole_and_nothing_twice(
    found: list[tuple[int, int, int]], sums: list[tuple[set[int], int]]
) -> None:
    members = [np.array(sorted(m), np.int64) for m, _ in sums]
    told = covered(entries_of(found), members, np.array([row for _, row in sums], np.int64))
    used = defaultdict(set)
    for (row, key, _), place in zip(found, told.tolist(), strict=True):
        if place >= 0:
            used[(row, place)].add(key)
    kinds = {(row, key): kind for row, key, kind in found}
    for (row, place), keys in used.items():
        assert keys == sums[place][0]
        assert len({kinds[(row, key)] for key in keys}) == 1
        assert sums[place][1] in (-1, row)
    # no sum that would do for a row is left unused while all of its keys tell themselves
    for row in range(5):
        for keys, scope in sums:
            alone = all(
                any((r, k) == (row, key) and p < 0 for (r, k, _), p in zip(found, told.tolist(), strict=True))
                for key in keys
            )
            alike = len({kinds.get((row, key)) for key in keys}) == 1
            assert not (alone and alike and scope in (-1, row))


# --- the whole


SUMMING = {
    "near": Asked(
        "SELECT SUM(a) AS s FROM LATEST(net) WHERE k > 0",
        {"s": lambda rows: total(rows, lambda r: r["a"])},
        chosen=lambda r: r["k"] > 0,
    ),
    "racked": Asked(
        "SELECT SUM(a) AS s FROM LATEST(net) WHERE rack = 'r0'",
        {"s": lambda rows: total(rows, lambda r: r["a"])},
        chosen=lambda r: r["rack"] == "r0",
    ),
}


@pytest.fixture
def only_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only queries that sum, so that keys need not be told apart."""
    kept = {name: precision_world.QUERIES[name] for name in ("plain", "racks", "apart", "shared", "weighed")}
    monkeypatch.setattr(precision_world, "QUERIES", kept | SUMMING)


def peopled(seed: int, **how: Any) -> World:
    world = World(seed, **how)
    for site in world.sites:
        for _ in range(4):
            world.add_key(site)
    return world


@pytest.mark.usefixtures("only_sums")
@pytest.mark.parametrize(
    ("seed", "allocation", "rate"),
    [(0, "curves", None), (1, "burden", None), (2, "uniform", None), (2, "burden", 0.5), (9, "curves", 0.5)],
)
def test_every_answer_holds_the_truth_through_sums(seed: int, allocation: str, rate: float | None) -> None:
    world = peopled(seed, allocation=allocation, rate=rate)
    for name in ("plain", "racks"):
        world.ask(name, 20)
    world.start_batches()
    world.run(8)
    world.trouble(30)
    world.run(40)
    assert unexcused(world) == []
    settled(world)
    assert world.driver.mirror.belief.live


@pytest.mark.usefixtures("only_sums")
@pytest.mark.parametrize("seed", [1, 6])
def test_clocks_that_are_off_by_less_than_the_tolerance_do_no_harm(seed: int) -> None:
    world = peopled(seed, skew=700_000)
    for name in ("plain", "racks", "weighed"):
        world.ask(name, 20)
    world.start_batches()
    world.run(40)
    assert unexcused(world) == []
    settled(world)
    assert world.driver.mirror.belief.live


@pytest.mark.usefixtures("only_sums")
def test_sums_of_many_keys_are_told_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summing, "structured", partial(structured, at_most=3))
    monkeypatch.setattr(choosing, "MEMBERS_AT_MOST", 3)
    world = peopled(12, sites=2)
    for _ in range(8):
        world.add_key(world.sites[0])
    world.ask("plain", 40)
    world.ask("near", 20)
    world.start_batches()
    world.run(10)
    world.trouble(20)
    world.run(40)
    assert unexcused(world) == []
    settled(world)
    live = [told for told in world.driver.mirror.belief.live.values() if not told.window]
    assert len(live) > 2
    assert max(len(told.members) for told in live) <= 3


@pytest.mark.usefixtures("only_sums")
def test_what_is_cheaper_is_found_and_revised() -> None:
    world = peopled(3)
    world.ask("near", 4)
    world.ask("racked", 60)
    world.start_batches()
    world.run(120)
    scopes = {s.scope for s in world.driver.mirror.belief.live.values()}
    # groups would have to share what is asked for narrowly
    assert any(scopes), scopes
    world.sql("ALTER QUERY racked WITH PRECISION 4")
    world.run(160)
    assert unexcused(world) == []
    settled(world)


def test_a_sum_that_served_before_and_has_no_width_replaces_nothing() -> None:
    mirror = bounded_mirror()
    belief = mirror.belief
    for _ in mirror.advance(T[4]):
        """Two keys have told their values."""
    belief.sum_up(1, LiveSum(np.array([0])))
    both = np.array([0, 1])
    assert _ready(mirror, both).tolist() == [True, True]
    belief.width[1] = np.inf
    assert _ready(mirror, both).tolist() == [True, False], "it was given up, and its row is old"
    belief.width[1] = 3.0
    belief.unsure[1] = T[3]
    assert _ready(mirror, both).tolist() == [True, False]
