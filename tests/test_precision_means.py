"""Means over a sliding time that agents tell: they hold the truth, and need far fewer messages."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import precision_world
from edge_clients import SECOND
from precision_world import BEGIN, Asked, Said, World
from slackwater.edge.means import Mean, step_of
from test_edge_agent import granted, sent, welcomed

SIZE = 8 * SECOND
LENIENT = {
    "mean": Asked("SELECT avg_over(SUM(a) * 2, '8 seconds') AS s FROM LATEST(net)", {}),
    "by_rack": Asked(
        "SELECT rack, avg_over(SUM(a), '8 seconds') AS s FROM LATEST(net) GROUP BY rack", {}, grouped=True
    ),
}
FACTOR = {"mean": 2.0, "by_rack": 1.0}


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3 * SECOND), st.floats(-1e6, 1e6)), min_size=1, max_size=30),
    st.integers(0, 2 * SECOND),
)
def test_a_mean_is_what_values_come_to(changes: list[tuple[int, float]], begin: int) -> None:
    window = 4 * SECOND
    mean = Mean(window, [1.0], begin)
    history, at = [(begin, 1.0)], begin
    for gap, value in changes:
        at += gap
        while mean.next_end <= at:
            end = mean.next_end
            found = mean.at_end(end)
            parts = [
                (min(until, end) - max(since, end - window), v)
                for (since, v), until in zip(history, [*(t for t, _ in history[1:]), end], strict=True)
                if min(until, end) > max(since, end - window)
            ]
            whole = -(-begin // step_of(window)) * step_of(window) <= end - window
            assert (found is not None) == whole
            if found is not None:
                expected = math.fsum(length * v for length, v in parts) / window
                scale = max(1.0, *(abs(v) for _, v in parts))
                assert found[0] == pytest.approx(expected, abs=1e-12 * scale)
        mean.change([value], at)
        history.append((at, value))


@pytest.mark.parametrize("seed", range(5))
def test_a_mean_is_exact_though_nearly_all_of_its_values_cancels(seed: int) -> None:
    rng = np.random.default_rng(seed)
    window = 10 * SECOND
    mean = Mean(window, [0.0], 0)
    history, value, at = [(0, 0.0)], 1e15 + 0.5, 0
    for _ in range(60):
        at += int(rng.integers(1, SECOND))
        found, end = mean.at_end(at), at // SECOND * SECOND
        if found is not None:
            until = [*(t for t, _ in history[1:]), end]
            parts = [
                Fraction(v) * max(0, min(b, end) - max(a, end - window))
                for (a, v), b in zip(history, until, strict=True)
            ]
            assert found == [float(sum(parts) / window)]
        value = -value + float(rng.integers(-3, 4))
        mean.change([value], at)
        history.append((at, value))


def test_a_mean_over_what_no_double_can_hold_is_infinite_until_that_is_past() -> None:
    mean = Mean(3 * SECOND, [1.0], 0)
    assert mean.at_end(3 * SECOND) == [1.0]
    mean.change([math.inf], 3 * SECOND + SECOND // 2)
    mean.change([-math.inf], 3 * SECOND + 2 * SECOND // 3)
    mean.change([4.0], 4 * SECOND)
    assert [mean.at_end(end * SECOND) for end in (4, 5, 6, 7)] == [[math.inf]] * 3 + [[4.0]]


def test_an_agent_tells_a_mean_once_it_knows_a_window_and_when_it_leaves_its_bound() -> None:
    state = welcomed()
    begin = 1_000 * SECOND
    state.offer("a", 1.0, begin)
    state.offer("b", 3.0, begin)
    state.make_sums({"sums": [[9, [0, 1], 4 * SECOND]]}, begin)
    sent(state)
    granted(state, {2: 1.0}, now=begin)
    state.review(begin + 3 * SECOND)
    # it has a width and says so, and no value yet
    assert [batch["rows"]["key"] for batch in sent(state, begin + 3 * SECOND)] == [[]]
    state.review(begin + 4 * SECOND)
    [batch] = sent(state, begin + 4 * SECOND)
    assert (batch["rows"]["key"], batch["rows"]["values"]) == ([2], [[4.0]])
    assert batch["rows"]["at"] == [begin + 4 * SECOND]
    # up and down within a step: nothing to tell
    state.offer("a", 101.0, begin + 4 * SECOND)
    state.offer("a", -99.0, begin + 4 * SECOND + SECOND // 2)
    state.offer("a", 1.0, begin + 5 * SECOND)
    state.review(begin + 6 * SECOND)
    assert sent(state, begin + 6 * SECOND) == []
    # what stays makes itself felt
    state.offer("a", 3.0, begin + 6 * SECOND)
    state.review(begin + 9 * SECOND)
    [batch] = sent(state, begin + 9 * SECOND)
    assert batch["rows"]["at"] == [begin + 8 * SECOND]
    assert batch["rows"]["values"] == [[5.0]]
    # a member that goes is told of at once
    state.offer("b", None, begin + 9 * SECOND)
    [batch] = sent(state, begin + 9 * SECOND)
    assert batch["absent"]["absent"] == [[[1]]]


# --- the whole


@pytest.fixture
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision_world, "QUERIES", dict(LENIENT))


def truth(world: World, said: Said) -> float:
    """The mean of the truth over a window, key by key, each since it was first told."""
    total = 0.0
    for key, noted in world.watched.items():
        if LENIENT[said.query].grouped and key[1] != said.keys[0]:
            continue
        known = min((t.at for t in noted.told), default=said.at)
        first = max(said.at - SIZE, known)
        if first >= said.at:
            continue
        changes = {*noted.times, *(t for t, _ in noted.gone)}
        times = [first, *sorted(t for t in changes if first < t < said.at), said.at]
        for begin, end in pairwise(times):
            value = noted.value(begin)[0]
            there = noted.here(begin) and not math.isnan(value)
            total += (end - begin) * value / SIZE if there else 0.0
    return total * FACTOR[said.query]


def peopled(seed: int, **how: Any) -> World:
    world = World(seed, skew=0, **how)
    for site in world.sites:
        for _ in range(3):
            world.add_key(site)
    return world


@pytest.mark.usefixtures("lenient")
@pytest.mark.parametrize(("seed", "name"), [(3, "mean"), (4, "by_rack")])
def test_answers_hold_the_mean_of_the_truth(seed: int, name: str) -> None:
    world = peopled(seed)
    world.ask(name, 6)
    world.start_batches()
    world.run(40)
    query = world.driver.evaluator.queries[0]
    assert query.lenient == SIZE
    assert query.ready
    live = world.driver.mirror.belief.live.values()
    assert {s.window for s in live} == {SIZE}
    # nothing is asked of moments any more
    belief = world.driver.mirror.belief
    widths = belief.widths(slice(None), world.now).reshape(-1, 2)
    assert np.isinf(widths[~belief.summed]).all()
    late = [s for s in world.said if s.at > BEGIN + 25 * SECOND]
    assert late
    for said in late:
        assert said.met
        assert said.low <= truth(world, said) <= said.high
    rows = sum(
        len(e["key"]) for e in world.hub.log if e["kind"] == "batch" and e["received"] > BEGIN + 25 * SECOND
    )
    # nine keys change twice a second
    assert rows < 0.3 * 15 * 18
    # a key that comes is told by itself until it is in a mean
    world.add_key(world.sites[0])
    world.run(6)
    assert query.ready
    world.run(20)
    assert query.ready
    assert all(s.met for s in world.said if s.at > BEGIN + 25 * SECOND)
    for said in [s for s in world.said if s.at > BEGIN + 50 * SECOND]:
        assert said.low <= truth(world, said) <= said.high
    # a driver that starts again goes on with them
    world.restart_driver()
    world.run(6)
    assert world.driver.evaluator.queries[0].ready
    late = [s for s in world.said if s.at > BEGIN + 66 * SECOND]
    assert late
    assert all(s.met and s.low <= truth(world, s) <= s.high for s in late)


def stood(world: World, said: Said) -> float:
    """For which share of a window some key counted."""
    known = min(t.at for noted in world.watched.values() for t in noted.told)
    return min(1.0, (said.at - known) / SIZE)


@pytest.mark.usefixtures("lenient")
@pytest.mark.parametrize("every", [1.5, 3.0])
def test_a_mean_holds_nothing_of_the_time_before_its_keys_counted(every: float) -> None:
    world = peopled(3)
    world.ask("mean", 6)

    def turned(end: int, time: int) -> None:
        world.driver.turn(end, time)
        world.driver.commit()

    # a slow driver: agents have values long before they are granted widths
    for _ in range(round(36 / every)):
        world.run(every)
        world.hub.request(turned, lambda: pytest.fail("the hub is there"))
    assert world.driver.evaluator.queries[0].ready
    whole = [said for said in world.said if said.met]
    assert min(stood(world, said) for said in whole) < 1
    for said in whole:
        assert said.low <= truth(world, said) / stood(world, said) <= said.high


@pytest.mark.usefixtures("lenient")
def test_who_is_away_is_not_vouched_for_and_comes_back_with_a_whole_window() -> None:
    world = peopled(5)
    world.ask("mean", 6)
    world.start_batches()
    world.run(30)
    world.kill(world.sites[0], 3.0)
    world.run(60)
    # between its death and when that is noticed nobody can know of it
    found = [s for s in world.said if s.low is not None and not 30 <= (s.at - BEGIN) / SECOND < 37]
    for said in found:
        if said.at > BEGIN + 25 * SECOND:
            assert said.low <= truth(world, said) <= said.high, said
    assert any(s.low is None and s.at > BEGIN + 28 * SECOND for s in world.said)
    last = [s for s in world.said if s.at > BEGIN + 80 * SECOND]
    assert last
    assert all(s.met for s in last)


@pytest.mark.usefixtures("lenient")
@pytest.mark.parametrize("seed", [0, 5, 7])
def test_keys_that_come_go_and_return_are_counted_for_as_long_as_they_were_there(seed: int) -> None:
    world = peopled(seed)
    rng = np.random.default_rng(seed)
    world.ask("mean", 20)
    world.start_batches()
    world.run(25)
    gone: list[Any] = []
    for _ in range(16):
        site = world.sites[int(rng.integers(len(world.sites)))]
        act = rng.random()
        if act < 0.3 and len(site.keys) > 1:
            key = list(site.keys)[int(rng.integers(len(site.keys)))]
            gone.append((site, key, site.keys[key]))
            site.withdraw(key)
        elif act < 0.6 and gone:
            site, key, values = gone.pop()
            site.bring_back(key, [v + 1 for v in values])
        elif act < 0.8:
            world.add_key(site)
        else:
            world.restart_driver()
        world.run(float(rng.choice([0.5, 2, 4, 10])))
    world.run(15)
    late = [s for s in world.said if s.low is not None and s.at > BEGIN + 25 * SECOND]
    assert len(late) > 50
    for said in late:
        assert said.low - 1e-9 <= truth(world, said) <= said.high + 1e-9, said
