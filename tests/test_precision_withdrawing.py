"""Keys without a value, and keys that are there no more: told, withdrawn, forgotten, and back again."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_clients import HOSTS, SECOND, AgentClient, CoordinatorClient, TestClock
from precision_world import World
from slackwater.edge.agent import Agent
from slackwater.edge.agent_state import AgentState
from slackwater.edge.coordinator_link import CoordinatorLink
from slackwater.edge.hub_thread import HubThread
from slackwater.edge.measures import MovingRate
from slackwater.edge.messages import Refused
from slackwater.edge.operator_link import OperatorLink
from slackwater.edge.readings import LineReader
from slackwater.edge.widths import Grants
from slackwater.runtime.bounds.mirror import Mirror
from waiting import wait_for

NOW = 1_000 * SECOND


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubThread]:
    with HubThread(tmp_path / "hub", clock=TestClock()) as running:
        yield running


def declared() -> AgentState:
    state = AgentState(outbox_limit=1_000)
    message = {"received": 0, "keys": 0, "log": "log", "declared": HOSTS.message(), "time": NOW}
    assert state.welcome(message, NOW)
    return state


def grant(state: AgentState, width: float | None, position: int, now: int = NOW) -> None:
    law = {"width": [width], "start": [now], "shrink": [0.0], "period": [SECOND]}
    state.grants({"key": [0], "column": [0], "position": [position], **law}, now)


def rows(state: AgentState, now: int = NOW) -> list[tuple[list[Any], bool]]:
    """Values of rows that are sent, and whether they say that their key is gone."""
    found = []
    while (message := state.next_message(now)) is not None:
        if message["type"] == "batch":
            sent = json.loads(json.dumps(message["rows"]))
            riders = sent.get("curve") or [None] * len(sent["key"])
            found += [(v, bool(r and r.get("g"))) for v, r in zip(sent["values"], riders, strict=True)]
    return found


# the agent


def test_that_a_key_has_no_value_is_told_where_it_is_asked_for() -> None:
    for many in (False, True):
        state = declared()
        if many:
            state.offer_many(["x"], [None], NOW)
        else:
            state.offer("x", None, NOW)
        assert rows(state) == []
        grant(state, 4.0, 1)
        assert rows(state) == [([None], False)]
        state.offer("x", None, NOW)
        state.review(NOW + 5 * SECOND)
        assert rows(state) == []


def test_a_value_that_goes_before_anybody_asks_is_told_as_none() -> None:
    state = declared()
    state.offer("x", 3.0, NOW)
    state.offer("x", None, NOW)
    grant(state, 4.0, 1)
    assert rows(state) == [([None], False)]


def test_a_key_that_is_withdrawn_is_told_once_and_its_return_at_any_width() -> None:
    state = declared()
    state.offer("x", 3.0, NOW)
    assert state.withdraw("x", NOW)
    assert rows(state) == [([None], True)]
    assert state.withdraw("x", NOW)
    assert not state.withdraw("never", NOW)
    assert rows(state) == []
    # nothing is granted, yet it is owed that it is back
    state.offer("x", 4.0, NOW)
    assert rows(state) == [([4.0], False)]
    state.withdraw("x", NOW)
    state.offer_many(["x"], [5.0], NOW)
    assert rows(state) == [([None], True), ([5.0], False)]


def test_a_new_incarnation_says_again_what_is_gone() -> None:
    state = declared()
    state.offer("x", 3.0, NOW)
    state.withdraw("x", NOW)
    rows(state)
    state.start_anew(NOW)
    assert state.welcome(
        {"received": 0, "keys": 0, "log": "log", "declared": HOSTS.message(), "time": NOW}, NOW
    )
    grant(state, 4.0, 1)
    assert rows(state) == [([None], True)]


def test_what_is_withdrawn_before_the_stream_is_declared_is_dropped() -> None:
    agent = Agent("hosts", hub="ws://127.0.0.1:1", name="a")
    agent.update("x", 1.0)
    assert agent.withdraw("x")
    assert not agent.withdraw("x")
    assert agent.counters.keys == 0
    with pytest.raises(ValueError, match="expected a key of texts or numbers"):
        agent.withdraw(["x"])


def test_lines_withdraw_keys() -> None:
    told: list[str] = []
    reader = LineReader(HOSTS, told.append)
    lines = [
        '{"withdrawn":{"host":"x"}}',
        '{"host":"x","load":1}',
        '{"withdrawn":{"host":"x"},"load":1}',
        '{"withdrawn":{"hots":"x"}}',
        '{"withdrawn":true,"host":"x"}',
    ]
    assert list(reader.read(lines)) == [("x", None), ("x", {"load": 1})]
    assert len(told) == 3
    assert 'expected {"withdrawn":{…}} with the key columns host and nothing else' in told[0]
    assert "expected one of the columns load, got 'withdrawn'" in told[2]


def test_no_rates_are_told_of_a_key_that_is_forgotten() -> None:
    rate = MovingRate(columns=1, window=2 * SECOND)
    for key in ("x", "y", "z"):
        rate.add(key, [float(ord(key))], at=0)
    rate.forget("y")
    rate.forget("never")
    [(_, keys, values)] = rate.steps(SECOND)
    assert keys == ["x", "z"]
    assert values.tolist() == [[ord("x") / 2], [ord("z") / 2]]
    rate.add("y", [4.0], at=SECOND)
    [(_, keys, values)] = rate.steps(2 * SECOND)
    assert keys == ["x", "z", "y"]
    assert values.tolist()[2] == [2.0]


# the hub


def entries(link: CoordinatorLink, kind: str) -> list[dict[str, Any]]:
    return [e for e in link.read(1, link.end().position, 10_000)[0] if e["kind"] == kind]


def test_an_operator_withdraws_what_nobody_answers_for(hub: HubThread) -> None:
    with CoordinatorLink(hub.url, "hosts", HOSTS) as link:
        with Agent("hosts", hub=hub.url, name="a") as agent:
            assert agent.declared(20)
            agent.update_many(["x", "y"], [1.0, 2.0])
            assert agent.flush(20)
            with OperatorLink(hub.url, "hosts") as operator:
                # a process that is connected answers for its keys
                assert operator.withdraw("a") == (0, True)
                with pytest.raises(Refused, match="has had no agent 'b'; it has: a"):
                    operator.withdraw("b")
        with Agent("hosts", hub=hub.url, name="a") as again:
            assert again.declared(20)
            again.update("y", 2.0)
            assert again.flush(20)
            with OperatorLink(hub.url, "hosts") as operator:
                # but not for those that it has not seen since it started
                assert operator.withdraw("a") == (1, True)
                assert operator.withdraw("a") == (0, True)
        wait_for(lambda: link.status()["agents"] == 0)
        with OperatorLink(hub.url, "hosts") as operator:
            assert operator.withdraw("a") == (1, False)
        assert [e["numbers"] for e in entries(link, "withdrawn")] == [[0], [1]]
        # nobody was fenced off
        assert link.generation == 1
        link.grant(Grants(*(np.array([v]) for v in (0, 0, 1.0, 0, 0.0, SECOND))))


def test_what_was_withdrawn_is_known_after_a_restart_and_announced_again(tmp_path: Path) -> None:
    clock = TestClock()
    with HubThread(tmp_path, clock=clock) as hub, CoordinatorClient(hub.url):
        client = AgentClient(hub.url, "a", "i1")
        client.welcome()
        client.keys("x", "y")
        client.batch(1, {0: 1.0, 1: 2.0})
        client.received(1)
        client.close()
        with CoordinatorLink(hub.url, "hosts", HOSTS) as link:
            wait_for(lambda: link.status()["agents"] == 0)
        with OperatorLink(hub.url, "hosts") as operator:
            assert operator.withdraw("a") == (2, False)
    with HubThread(tmp_path, clock=clock) as hub:
        with OperatorLink(hub.url, "hosts") as operator:
            assert operator.withdraw("a") == (0, False)
        # the same process was only cut off: it announces its keys again, under the same numbers
        client = AgentClient(hub.url, "a", "i1")
        assert client.welcome()["keys"] == 0
        client.keys("x", "y")
        client.batch(2, {1: 3.0})
        client.received(2)
        with CoordinatorLink(hub.url, "hosts", HOSTS) as link:
            assert [e["numbers"] for e in entries(link, "keys")] == [[0, 1], [0, 1]]
        client.close()


def test_an_operator_is_refused_what_is_not_there(hub: HubThread) -> None:
    with pytest.raises(Refused, match="there is no stream 'hosts' at this hub; there are: none"):
        OperatorLink(hub.url, "hosts").__enter__()


def test_the_command_says_what_it_did(hub: HubThread) -> None:
    from typer.testing import CliRunner

    from slackwater.cli import app

    with CoordinatorLink(hub.url, "hosts", HOSTS) as link:
        with Agent("hosts", hub=hub.url, name="a") as agent:
            assert agent.declared(20)
            agent.update("x", 1.0)
            assert agent.flush(20)
        wait_for(lambda: link.status()["agents"] == 0)
        result = CliRunner().invoke(app, ["forget", "--hub", hub.url, "--stream", "hosts", "--agent", "a"])
        assert result.exit_code == 0
        assert "withdrew 1 key(s) of agent 'a' of stream 'hosts', which is not connected" in result.stdout
        result = CliRunner().invoke(app, ["forget", "--hub", hub.url, "--stream", "hosts", "--agent", "z"])
        assert result.exit_code == 1
        assert "has had no agent 'z'" in result.stderr


# the coordinator


def small() -> tuple[World, Any, Any]:
    """A world of two sites with two keys each, and a sum and counts over them."""
    world = World(41, sites=2, follow=True, sums="never")
    keys = [world.add_key(site) for site in world.sites for _ in range(2)]
    world.ask("apart", 40)
    world.ask("counted", 40)
    world.start_batches()
    world.run(10)
    return world, keys, world.sites


def counted(world: World) -> float:
    return next(s.low for s in reversed(world.said) if s.query == "apart" and s.column == "n")


def true(world: World) -> bool:
    return not [said for said in world.said if world.wrong(said) and not world.excused(said)]


def widths_of(world: World, key: Any) -> list[float]:
    mirror = world.driver.mirror
    number = mirror.names.index(list(key))
    return mirror.belief.widths(slice(None), world.now).reshape(-1, 2)[number].tolist()


def test_a_withdrawn_key_counts_no_longer_needs_no_width_and_may_come_back() -> None:
    world, keys, sites = small()
    assert counted(world) == 4
    sites[0].withdraw(keys[0])
    world.run(10)
    assert counted(world) == 3
    assert widths_of(world, keys[0]) == [math.inf, math.inf]
    world.restart_driver()
    world.run(5)
    assert counted(world) == 3
    sites[0].bring_back(keys[0], [1.0, 2.0])
    world.run(10)
    assert counted(world) == 4
    assert max(widths_of(world, keys[0])) <= 40
    last = {(s.query, s.column, s.keys): s for s in world.said}
    assert all(s.met for s in last.values())
    assert true(world)


def test_the_last_key_of_a_group_says_that_there_is_none() -> None:
    world, keys, sites = small()
    for key in keys:
        site = next(s for s in sites if key in s.keys)
        site.withdraw(key)
    world.run(10)
    last = {(s.query, s.column): s for s in world.said}
    assert (last["apart", "n"].low, last["apart", "n"].rows, last["apart", "n"].met) == (0, 0, True)
    assert (last["apart", "d"].low, last["apart", "d"].met) == (None, True)
    count = len(world.said)
    world.run(10)
    assert len(world.said) == count


def test_keys_of_an_agent_that_never_comes_back_are_forgotten_and_back_with_it() -> None:
    world, _, sites = small()
    sites[1].die()
    world.run(10)
    assert not world.said[-1].met
    world.forget(sites[1])
    world.run(6)
    assert counted(world) == 2
    last = {(s.query, s.column): s for s in world.said}
    assert last["apart", "d"].met
    sites[1].start()
    world.run(15)
    assert counted(world) == 4
    last = {(s.query, s.column): s for s in world.said}
    assert all(s.met for s in last.values())


def test_an_agent_that_was_only_cut_off_has_its_keys_back() -> None:
    world, _, sites = small()
    sites[1].cut()
    world.run(10)
    world.forget(sites[1])
    world.run(6)
    assert counted(world) == 2
    sites[1].connect()
    world.run(15)
    assert counted(world) == 4
    last = {(s.query, s.column): s for s in world.said}
    assert all(s.met for s in last.values())


def standing(world: World) -> dict[tuple[str, str], Any]:
    return {(s.query, s.column): s for s in world.said}


@pytest.mark.parametrize("returns", [True, False])
def test_a_withdrawn_key_may_come_back_while_its_agent_is_away(returns: bool) -> None:
    world = World(41, sites=2, follow=True, sums="never")
    alone, _ = world.add_key(world.sites[0]), world.add_key(world.sites[1])
    world.ask("apart", 40)
    world.start_batches()
    world.run(10)
    site = world.sites[0]
    site.withdraw(alone)
    world.run(10)
    assert all(s.met for s in standing(world).values())
    site.cut()
    if returns:
        site.bring_back(alone, [1.0, 2.0])
    world.run(12)
    # it is nobody's word that the key has not come back
    assert not any(s.met for s in standing(world).values())
    site.connect()
    world.run(12)
    assert all(s.met for s in standing(world).values())
    assert counted(world) == (2 if returns else 1)
    assert true(world)


@pytest.mark.parametrize("how", ["killed", "forgotten"])
def test_what_was_withdrawn_does_not_keep_answers_open_for_ever(how: str) -> None:
    world, keys, sites = small()
    for key in keys[:2]:
        sites[0].withdraw(key)
    world.run(10)
    if how == "killed":
        world.kill(sites[0], 1.0)
    else:
        sites[0].die()
        world.run(8)
        world.forget(sites[0])
    world.run(15)
    assert all(s.met for s in standing(world).values())
    assert counted(world) == 2
    assert true(world)


@pytest.mark.parametrize("sums", ["never", "measured"])
def test_no_rate_bounds_what_a_key_without_a_value_may_come_to(sums: str) -> None:
    world = World(43, sites=2, follow=True, rate=0.5, sums=sums)
    keys = [world.add_key(site) for site in world.sites for _ in range(3)]
    world.ask("plain", 60)
    world.start_batches()
    world.run(12)
    world.sites[0].change(keys[0], [math.nan, math.nan])
    world.run(8)
    assert standing(world)["plain", "s"].met
    world.sites[0].cut()
    world.sites[0].change(keys[0], [500.0, 0.0])
    world.run(12)
    assert standing(world)["plain", "s"].low is None
    world.sites[0].connect()
    world.run(12)
    assert standing(world)["plain", "s"].met
    assert true(world)


def test_a_process_that_starts_anew_vouches_for_what_has_no_value() -> None:
    world, keys, sites = small()
    sites[0].change(keys[0], [math.nan, math.nan])
    world.kill(sites[0], 1.0)
    world.run(20)
    assert not world.driver.mirror.belief.unsure.any()
    last = {(s.query, s.column): s for s in world.said}
    assert last["apart", "d"].met
    assert counted(world) == 4
    assert true(world)


def test_a_snapshot_of_before_keys_could_be_withdrawn_has_all_of_them() -> None:
    world, _, _ = small()
    arrays, kept = world.driver.mirror.to_parts()
    older = Mirror(2, SECOND)
    older.load({n: a for n, a in arrays.items() if n != "belief.withdrawn"}, json.loads(json.dumps(kept)))
    assert older.belief.here.tolist() == [True] * 4


def test_what_was_told_after_a_key_was_forgotten_counts() -> None:
    mirror = Mirror(1, SECOND)
    agent = {"agent": "x", "received": NOW}
    for entry in (
        {"position": 1, "kind": "declared", "key": ["k"], "columns": ["v"], "received": NOW},
        {"position": 2, "kind": "joined", "incarnation": "i", "keys": 0, **agent},
        {"position": 3, "kind": "keys", "keys": [["a"], ["b"]], "numbers": [0, 1], **agent},
        {"position": 4, "kind": "withdrawn", "numbers": [0, 1], **agent, "received": NOW + 2 * SECOND},
        # its clock is behind: in the log it comes after
        {
            "position": 5,
            "kind": "batch",
            "key": [0],
            "at": [NOW + 1],
            "values": [[1.0]],
            "sent": NOW,
            **agent,
        },
    ):
        mirror.take(entry)
    for _ in mirror.advance(NOW + 10 * SECOND):
        pass
    assert mirror.belief.here.tolist() == [True, False]
