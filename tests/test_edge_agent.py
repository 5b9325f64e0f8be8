"""The agent: what it decides step by step, and what it does against a real hub, through breaks and restarts."""

from __future__ import annotations

import json
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, cast

import numpy as np
import pytest

from edge_clients import HOSTS, PATIENCE_S, SECOND, AgentClient, CoordinatorClient, TestClock
from slackwater.edge import agent_run, agent_state
from slackwater.edge.agent import Agent
from slackwater.edge.agent_run import Connection
from slackwater.edge.agent_state import AgentState
from slackwater.edge.coordinator_link import CoordinatorLink
from slackwater.edge.hub_thread import HubThread
from slackwater.edge.measures import MovingRate
from slackwater.edge.messages import Declared, Disconnected, Fenced, Refused
from slackwater.edge.outbox import BATCHES_UNDER_WAY, Outbox
from slackwater.edge.readings import LineReader, command_lines, counter_readings, tail_lines
from slackwater.edge.rows import Rows
from slackwater.edge.terms import Terms
from slackwater.edge.uplink import STOPPED
from slackwater.edge.widths import Grants
from slackwater.errors import SourceError
from waiting import wait_for

NOW = 1_000 * SECOND


def wait(condition: Callable[[], object]) -> None:
    wait_for(lambda: bool(condition()), seconds=PATIENCE_S)


def welcomed(limit: int = 1_000, **more: Any) -> AgentState:
    """A state that the hub has welcomed, with the shape of hosts."""
    state = AgentState(outbox_limit=limit)
    message = {"received": 0, "keys": 0, "log": "log", "declared": HOSTS.message(), "time": NOW}
    assert state.welcome(message | more, NOW)
    return state


def granted(
    state: AgentState, widths: dict[int, float | None], position: int = 10, now: int = NOW, **more: Any
) -> None:
    count = len(widths)
    message = {"key": list(widths), "column": [0] * count, "width": list(widths.values())}
    message |= {"position": list(range(position, position + count)), "start": [now] * count}
    message |= {"shrink": [more.get("shrink", 0.0)] * count, "period": [more.get("period", SECOND)] * count}
    state.grants(message | ({"keys": more["keys"]} if "keys" in more else {}), now)


def sent(state: AgentState, now: int = NOW) -> list[dict[str, Any]]:
    """All messages that the state has for the hub now."""
    found = []
    while (message := state.next_message(now)) is not None:
        found.append(message)
    return found


def rows_of(messages: list[dict[str, Any]]) -> list[tuple[int, float]]:
    batches = [m["rows"] for m in messages if m["type"] == "batch"]
    return [(k, v[0]) for b in batches for k, v in zip(b["key"], b["values"], strict=True)]


# --- what an agent decides


def test_nothing_is_sent_for_keys_without_a_grant() -> None:
    state = welcomed()
    state.offer("x", 1.0, NOW)
    state.offer("x", 1e9, NOW)
    messages = sent(state)
    assert [m["type"] for m in messages] == ["keys"]
    assert messages[0]["keys"] == [["x"]]
    granted(state, {0: None})
    state.offer("x", -1e9, NOW)
    assert not rows_of(sent(state)), "an infinite width is as good as none"


def test_the_first_value_goes_out_with_the_first_grant_and_others_when_they_leave() -> None:
    state = welcomed()
    state.offer("x", 5.0, NOW)
    state.offer("y", 6.0, NOW)
    granted(state, {0: 2.0})
    assert rows_of(sent(state)) == [(0, 5.0)]
    state.offer("x", 5.9, NOW + 1)
    assert not rows_of(sent(state))
    state.offer("x", 6.5, NOW + 2)
    [batch] = sent(state, NOW + 9)
    assert (batch["rows"]["at"], batch["sent"], batch["number"]) == ([NOW + 2], NOW + 9, 2)


def test_a_narrowing_is_told_in_the_batch_of_the_rows_that_it_causes() -> None:
    state = welcomed()
    state.offer_many(["x", "y"], [0.0, 0.0], NOW)
    granted(state, {0: 10.0, 1: 10.0})
    sent(state)
    state.offer_many(["x", "y"], [4.0, 0.5], NOW + 1)
    assert not rows_of(sent(state))
    granted(state, {0: 2.0, 1: 20.0}, position=30, now=NOW + 5)
    [batch] = sent(state, NOW + 6)
    assert (batch["rows"]["key"], batch["rows"]["at"]) == ([0], [NOW + 5])
    assert batch["narrowed"] == {"position": [30], "at": [NOW + 5]}, "a growing one needs no word"
    granted(state, {1: 15.0}, position=40, now=NOW + 7)
    [batch] = sent(state, NOW + 8)
    assert batch["rows"]["key"] == []
    assert batch["narrowed"] == {"position": [40], "at": [NOW + 7]}


def test_a_grant_is_acknowledged_where_a_wider_one_before_it_never_came() -> None:
    state = welcomed()
    state.offer("x", 0.0, NOW)
    granted(state, {0: 3.0})
    sent(state)
    message = {"key": [0], "column": [0], "width": [4.0], "position": [30], "start": [NOW]}
    state.grants(message | {"shrink": [0.0], "period": [SECOND], "skipped": [0]}, NOW + 5)
    [batch] = sent(state)
    assert batch["narrowed"] == {"position": [30], "at": [NOW + 5]}


def test_narrowings_follow_the_last_of_many_rows() -> None:
    state = welcomed()
    state.outbox.rows_per_batch = 2
    state.offer_many(["a", "b", "c"], [1.0, 2.0, 3.0], NOW)
    granted(state, {0: 1.0, 1: 1.0, 2: 1.0})
    first, second, third = (m for m in sent(state) if m["type"] == "batch")
    assert "narrowed" not in first
    assert (second["rows"]["key"], second["narrowed"]["position"]) == ([2], [10, 11])
    assert (third["rows"]["key"], third["narrowed"]["position"]) == ([], [12])


def test_widths_that_shrink_are_reviewed_at_their_epochs() -> None:
    state = welcomed()
    state.offer("x", 0.0, NOW)
    granted(state, {0: 8.0}, shrink=0.5, period=10 * SECOND)
    sent(state)
    state.offer("x", 1.5, NOW + 1)
    assert not rows_of(sent(state))
    assert state.next_review() == NOW + 10 * SECOND
    state.review(NOW + 10 * SECOND)
    assert not rows_of(sent(state)), "4 wide: 1.5 is within 2"
    assert state.next_review() == NOW + 20 * SECOND
    state.review(NOW + 20 * SECOND)
    assert rows_of(sent(state)) == [(0, 1.5)], "2 wide: 1.5 is not within 1"


def test_the_last_grant_applied_is_said_at_hello() -> None:
    state = welcomed()
    state.offer_many(["x", "y"], [0.0, 0.0], NOW)
    granted(state, {1: 1.0}, position=70, keys=2)
    granted(state, {0: 1.0}, position=50)
    assert state.hello() == {"incarnation": state.incarnation, "applied": 70, "keys": 2}


def test_caught_up_is_said_after_the_grants_of_all_keys_and_their_rows() -> None:
    state = welcomed()
    state.offer("x", 1.0, NOW)
    message = {"received": 0, "keys": 0, "log": "log", "declared": HOSTS.message(), "time": NOW}
    assert state.welcome(message, NOW)
    granted(state, {}, keys=0)
    assert [m["type"] for m in sent(state)] == ["keys"], "the grants of x are still to come"
    granted(state, {0: 1.0}, keys=1)
    [batch] = sent(state)
    assert batch["caught_up"] is True
    assert batch["rows"]["key"] == [0]
    # that batch is lost with its connection: sent again on the next one, it does not speak for that one
    assert state.welcome(message | {"keys": 1}, NOW)
    [again] = sent(state)
    assert again["number"] == batch["number"]
    assert "caught_up" not in again
    granted(state, {}, keys=1)
    assert sent(state)[0]["caught_up"] is True


def test_batches_above_what_the_hub_has_are_sent_again_as_they_were() -> None:
    state = welcomed()
    state.offer("x", 0.0, NOW)
    granted(state, {0: 1.0}, keys=1)
    sent(state)
    for value in (10.0, 20.0, 30.0):
        state.offer("x", value, NOW)
        sent(state)
    message = {"received": 2, "keys": 1, "log": "log", "declared": HOSTS.message(), "time": NOW}
    assert state.welcome(message, NOW)
    again = sent(state, NOW + 99)
    assert [(m["number"], m["sent"]) for m in again] == [(3, NOW), (4, NOW)]
    assert rows_of(again) == [(0, 20.0), (0, 30.0)]


@pytest.mark.parametrize("changed", [{"log": "other"}, {"received": 0}, {"position": 1}])
def test_a_hub_that_has_forgotten_meets_a_new_incarnation(changed: dict[str, Any]) -> None:
    state = welcomed()
    state.offer("x", 5.0, NOW)
    granted(state, {0: 1.0}, keys=1)
    sent(state)
    state.outbox.acknowledge(1)
    before = state.incarnation
    message = {"received": 1, "keys": 1, "log": "log", "declared": HOSTS.message(), "time": NOW}
    assert not state.welcome(message | changed, NOW)
    assert state.incarnation != before
    assert state.hello() == {"incarnation": state.incarnation, "applied": 0, "keys": 0}
    assert state.welcome(message | {"received": 0, "keys": 0} | changed, NOW)
    assert [m["type"] for m in sent(state)] == ["keys"]
    granted(state, {0: 1.0}, keys=1)
    assert rows_of(sent(state)) == [(0, 5.0)], "its current value, as the first one"


def test_values_that_come_before_the_shape_are_held(caplog: pytest.LogCaptureFixture) -> None:
    state = AgentState(outbox_limit=100)
    state.offer("x", 1.0, NOW)
    state.offer("x", 2.0, NOW)
    state.offer(("too", "long"), 3.0, NOW)
    state.offer("y", {"free": 1}, NOW)
    assert state.declare(HOSTS, NOW)
    assert (state.offered, state.rejected, state.keys) == (4, 2, 1)
    assert "expected a key of one part" in caplog.text
    assert "expected the columns load, got 'free'" in caplog.text
    granted(state, {0: 1.0})
    assert rows_of(sent(state)) == [(0, 2.0)]


def test_a_changed_shape_begins_a_new_incarnation() -> None:
    state = welcomed()
    state.offer("x", 1.0, NOW)
    before = state.incarnation
    assert not state.declare(Declared(("host", "port"), ("load",)), NOW)
    assert state.incarnation != before
    state.offer(("x", 80), 1.0, NOW)
    assert state.keys == 1


def test_columns_that_a_mapping_leaves_out_stay_as_they_are() -> None:
    state = AgentState(outbox_limit=100)
    assert state.declare(Declared(("host",), ("load", "free")), NOW)
    state.offer("x", {"load": 1.0, "free": 2.0}, NOW)
    state.offer("x", {"free": 3.0}, NOW)
    state.offer("y", {"free": None, "load": 7}, NOW)
    granted(state, {0: 1.0, 1: 1.0})
    [batch] = [m for m in sent(state) if m["type"] == "batch"]
    assert batch["rows"]["values"] == [[1.0, 3.0], [7.0, None]]


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (("a", "b"), 1.0, "expected a key of one part, a text or number (host), got ('a', 'b')"),
        (None, 1.0, "expected a key of one part"),
        (True, 1.0, "expected a key of one part"),
        ("x", "1", "expected a number, or None for no value, got '1'"),
        ("x", True, "expected a number, or None for no value, got True"),
        ("x", float("inf"), "expected a finite number, got inf"),
        ("x", {"lod": 1}, "expected the columns load, got 'lod'"),
    ],
)
def test_what_does_not_fit_is_said_and_leaves_nothing(key: Any, value: Any, reason: str) -> None:
    state = welcomed()
    with pytest.raises(ValueError) as error:
        state.offer(key, value, NOW)
    assert reason in str(error.value)
    assert (state.keys, state.offered) == (0, 0)


@pytest.mark.parametrize("at_once", [1, 2, 4, 65_536])
def test_many_updates_at_once_are_as_one_after_the_other(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_state, "OFFERED_AT_ONCE", at_once)
    one, many = welcomed(), welcomed()
    keys = ["a", "b", "a", "c", "a", "b"]
    values = [1.0, 2.0, 9.0, 4.0, 1.5, 2.1]
    for state in (one, many):
        state.offer_many(["a", "b", "c"], [0.0, 0.0, 0.0], NOW)
        granted(state, {0: 1.0, 1: 1.0, 2: 100.0})
        sent(state)
    for key, value in zip(keys, values, strict=True):
        one.offer(key, value, NOW)
    many.offer_many(keys, np.array(values), NOW)
    expected = rows_of(sent(one))
    assert sorted(rows_of(sent(many))) == sorted(expected)
    assert expected == [(0, 1.0), (1, 2.0), (0, 9.0), (0, 1.5)]
    # of one time: whoever reads them takes them for one change
    many.offer_many(keys, [50.0 + place for place in range(len(keys))], NOW + 7)
    assert {at for batch in sent(many) for at in batch["rows"]["at"]} == {NOW + 7}


def test_what_mappings_leave_out_of_many_updates_is_what_was_said_last() -> None:
    state = AgentState(outbox_limit=100)
    wide = Declared(("host",), ("load", "free"))
    message = {"received": 0, "keys": 0, "log": "log", "declared": wide.message(), "time": NOW}
    assert state.welcome(message, NOW)
    both = {"load": 1.0, "free": 2.0}
    state.offer_many(["x", "y", "x", "y"], [both, both, {"free": 3.0}, {"load": 4.0}], NOW)
    assert state.filters.current(np.arange(2)).tolist() == [[1.0, 3.0], [4.0, 2.0]]
    state.offer_many(["x", "y"], [both, both], NOW)
    assert state.filters.current(np.arange(2)).tolist() == [[1.0, 2.0], [1.0, 2.0]]


# --- the outbox


def rows(*pairs: tuple[int, float]) -> Rows:
    keys, values = zip(*pairs, strict=True)
    column = np.array(values)[:, None]
    return Rows(np.array(keys), np.full(len(keys), NOW), column, column, np.zeros_like(column))


def test_above_its_limit_older_rows_of_a_key_are_superseded() -> None:
    outbox = Outbox(columns=1, limit=4)
    for value in range(4):
        outbox.put(rows((0, float(value))))
    assert (outbox.waiting, outbox.superseded) == (4, 0)
    outbox.put(rows((1, 9.0)))
    assert (outbox.waiting, outbox.superseded) == (2, 3)
    batch = outbox.next_batch(NOW)
    assert batch is not None
    assert batch.message()["rows"]["values"] == [[3.0], [9.0]], "the newest of each, in the order they came"
    assert batch.message()["superseded"] == 3


def test_the_outbox_is_bounded_by_its_limit_or_two_rows_a_key() -> None:
    outbox = Outbox(columns=1, limit=10)
    for value in range(200):
        outbox.put(rows(*((key, float(value)) for key in range(30))))
        assert outbox.waiting <= 60
    assert outbox.superseded + outbox.waiting == 200 * 30


def test_batches_under_way_are_never_superseded_and_bounded_in_number() -> None:
    outbox = Outbox(columns=1, limit=2, rows_per_batch=1)
    numbers = []
    for value in range(BATCHES_UNDER_WAY + 5):
        outbox.put(rows((0, float(value))))
        if (batch := outbox.next_batch(NOW)) is not None:
            numbers.append((batch.number, batch.rows.values[0, 0]))
    assert numbers == [(n + 1, float(n)) for n in range(BATCHES_UNDER_WAY)]
    outbox.acknowledge(3)
    assert outbox.under_way == BATCHES_UNDER_WAY - 3
    following = outbox.next_batch(NOW)
    assert following is not None
    assert following.number == BATCHES_UNDER_WAY + 1


def test_many_narrowings_go_in_several_batches_after_their_rows_and_before_caught_up() -> None:
    outbox = Outbox(columns=1, limit=100, rows_per_batch=2)
    outbox.put(rows((0, 1.0), (1, 1.0), (2, 1.0)))
    outbox.narrow(np.arange(10, 15), NOW)
    outbox.catch_up()
    outbox.put(rows((3, 1.0), (4, 1.0), (5, 1.0), (6, 1.0), (7, 1.0)))
    found = []
    while (batch := outbox.next_batch(NOW)) is not None:
        message = batch.message()
        positions = message.get("narrowed", {"position": []})["position"]
        found.append((message["rows"]["key"], positions, message.get("caught_up", False)))
    assert found == [
        ([0, 1], [], False),
        ([2, 3], [10, 11], False),
        ([4, 5], [12, 13], False),
        ([6, 7], [14], True),
    ]
    assert not outbox.done
    outbox.acknowledge(4)
    assert outbox.done


def test_what_is_superseded_takes_no_narrowing_ahead_of_its_row() -> None:
    outbox = Outbox(columns=1, limit=3, rows_per_batch=1)
    outbox.put(rows((0, 1.0)))
    outbox.put(rows((1, 1.0)))
    outbox.narrow(np.array([7]), NOW)
    outbox.put(rows((0, 2.0)))
    outbox.put(rows((0, 3.0)))
    assert (outbox.waiting, outbox.superseded) == (2, 2)
    first, second = outbox.next_batch(NOW), outbox.next_batch(NOW)
    assert first is not None
    assert second is not None
    assert "narrowed" not in first.message()
    assert second.message()["narrowed"]["position"] == [7]


def test_long_names_of_keys_make_short_messages() -> None:
    state = welcomed()
    state.offer_many([f"{n:04d}" * 1_000 for n in range(600)], [0.0] * 600, NOW)
    messages = sent(state)
    assert [m["first"] for m in messages] == [0, messages[1]["first"], messages[2]["first"]]
    assert sum(len(m["keys"]) for m in messages) == 600
    assert max(len(json.dumps(m)) for m in messages) < 2 << 20
    with pytest.raises(ValueError, match="expected a key of one part"):
        state.offer("x" * 5_000, 0.0, NOW)


# --- with a hub


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubThread]:
    with HubThread(tmp_path / "hub") as running:
        yield running


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


def link_to(url: str, **options: Any) -> CoordinatorLink:
    return CoordinatorLink(url, "hosts", HOSTS, sleep=lambda _: None, **options)


def all_entries(link: CoordinatorLink, *kinds: str) -> list[dict[str, Any]]:
    end = link.end().position
    found, position = [], 1
    while position < end:
        some, position = link.read(position, end)
        found += some
    return [entry for entry in found if entry["kind"] in kinds]


def grant(link: CoordinatorLink, widths: dict[int, float], **more: float) -> list[int]:
    count = len(widths)
    grants = Grants(
        key=np.array(list(widths)),
        column=np.zeros(count, np.int64),
        width=np.array(list(widths.values()), float),
        start=np.zeros(count, np.int64),
        shrink=np.full(count, more.get("shrink", 0.0)),
        period=np.full(count, int(more.get("period", SECOND))),
    )
    positions: list[int] = link.grant(grants).position.tolist()
    return positions


def new_agent(url: str, name: str = "a", **options: Any) -> Agent:
    return Agent("hosts", hub=url, name=name, random=lambda: 0.0, **options)


def logged_rows(link: CoordinatorLink) -> list[tuple[int, float]]:
    batches = all_entries(link, "batch")
    return [(k, v[0]) for b in batches for k, v in zip(b["key"], b["values"], strict=True)]


def test_an_agent_sends_first_values_then_what_leaves_its_bound(hub: HubThread) -> None:
    with link_to(hub.url) as link, new_agent(hub.url) as agent:
        agent.update_many(["x", "y"], [1.0, 2.0])
        wait(lambda: all_entries(link, "keys"))
        assert not logged_rows(link)
        grant(link, {0: 1.0})
        wait(lambda: logged_rows(link) == [(0, 1.0)])
        agent.update("x", 1.25)
        agent.update("y", 100.0)
        agent.update("x", 7.0)
        assert agent.flush(PATIENCE_S)
        assert logged_rows(link) == [(0, 1.0), (0, 7.0)]
        counters = agent.counters
        assert (counters.offered, counters.passed, counters.keys) == (5, 2, 2)
        assert counters.connected
    with link_to(hub.url) as link:
        [lost] = all_entries(link, "lost")
        assert lost["clean"], "a stop says so"


def test_an_agent_that_restarts_gets_the_newest_grants_and_sends_first_values(hub: HubThread) -> None:
    with link_to(hub.url) as link:
        with new_agent(hub.url) as agent:
            agent.update_many(["x", "y"], [1.0, 2.0])
            wait(lambda: all_entries(link, "keys"))
            grant(link, {0: 1.0, 1: 1.0})
            grant(link, {1: 50.0})
            wait(lambda: len(logged_rows(link)) == 2)
        with new_agent(hub.url) as agent:
            agent.update_many(["y", "x"], [2.0, 1.0])
            wait(lambda: len(logged_rows(link)) == 4)
            agent.update_many(["y", "x"], [12.0, 11.0])
            assert agent.flush(PATIENCE_S)
            assert logged_rows(link)[4:] == [(0, 11.0)], "y may go 25 either way"
        joined = all_entries(link, "joined")
        assert len({j["incarnation"] for j in joined}) == 2
        assert [b.get("caught_up") for b in all_entries(link, "batch")].count(True) >= 2


def test_rows_wait_while_the_hub_is_away_and_arrive_once(tmp_path: Path) -> None:
    port = 0
    with HubThread(tmp_path) as hub:
        port = int(hub.url.rpartition(":")[2])
        link = link_to(hub.url)
        agent = new_agent(hub.url).start()
        agent.update("x", 0.0)
        wait(lambda: all_entries(link, "keys"))
        grant(link, {0: 1.0})
        wait(lambda: logged_rows(link) == [(0, 0.0)])
        hub.crash()
    wait(lambda: not agent.connected)
    assert agent.trouble
    for value in (10.0, 10.2, 20.0):
        agent.update("x", value)
    assert agent.counters.waiting == 2
    with HubThread(tmp_path, port=port):
        assert agent.flush(PATIENCE_S)
        agent.update("x", 30.0)
        assert agent.flush(PATIENCE_S)
        assert logged_rows(link) == [(0, 0.0), (0, 10.0), (0, 20.0), (0, 30.0)]
        assert all_entries(link, "generation")[-1]["number"] == 1, "the link went on with its generation"
        caught_up = [b["values"][-1:] for b in all_entries(link, "batch") if b.get("caught_up")]
        assert caught_up[-1] in ([], [[20.0]]), "said with the last row of those that waited, or after it"
        assert agent.counters.connections == 2
        agent.stop()
        link.close()


def test_widths_shrink_on_an_agents_own_clock(hub: HubThread, clock: TestClock) -> None:
    with link_to(hub.url) as link, new_agent(hub.url, clock=clock) as agent:
        agent.update("x", 0.0)
        wait(lambda: all_entries(link, "keys"))
        # its clock is far behind the hub's: grants begin when it gets there
        clock.advance(link.end().time - clock() + SECOND)
        grant(link, {0: 8.0}, shrink=0.5, period=100 * SECOND)
        wait(lambda: logged_rows(link) == [(0, 0.0)])
        agent.update("x", 3.0)
        assert agent.flush(PATIENCE_S)
        assert len(logged_rows(link)) == 1
        clock.advance(100 * SECOND)
        wait(lambda: logged_rows(link) == [(0, 0.0), (0, 3.0)])
        [_, batch] = [b for b in all_entries(link, "batch") if b["key"]]
        assert batch["at"] == [clock() // (100 * SECOND) * (100 * SECOND)], "as of when its bound shrank"


def test_a_narrowing_and_its_row_are_one_entry(hub: HubThread) -> None:
    with link_to(hub.url) as link, new_agent(hub.url) as agent:
        agent.update("x", 0.0)
        wait(lambda: all_entries(link, "keys"))
        grant(link, {0: 10.0})
        wait(lambda: logged_rows(link) == [(0, 0.0)])
        agent.update("x", 4.0)
        [position] = grant(link, {0: 2.0})
        wait(lambda: len(logged_rows(link)) == 2)
        batch = all_entries(link, "batch")[-1]
        assert batch["narrowed"]["position"] == [position]
        assert batch["narrowed"]["at"] == batch["at"]


def test_a_key_of_another_agent_is_taken_over_when_that_one_is_gone(hub: HubThread) -> None:
    with link_to(hub.url) as link:
        first = new_agent(hub.url, "first").start()
        first.update("x", 1.0)
        wait(lambda: all_entries(link, "keys"))
        grant(link, {0: 1.0})
        wait(lambda: len(logged_rows(link)) == 1)
        second = new_agent(hub.url, "second").start()
        second.update("x", 5.0)
        wait(lambda: "belongs to agent 'first'" in second.trouble)
        first.stop()
        wait(lambda: logged_rows(link) == [(0, 1.0), (0, 5.0)])
        assert all_entries(link, "keys")[-1]["agent"] == "second"
        second.stop()


def test_an_agent_meets_a_hub_with_another_log(tmp_path: Path) -> None:
    with HubThread(tmp_path / "one") as hub:
        port = int(hub.url.rpartition(":")[2])
        link = link_to(hub.url)
        agent = new_agent(hub.url).start()
        agent.update("x", 1.0)
        wait(lambda: all_entries(link, "keys"))
        grant(link, {0: 1.0})
        wait(lambda: len(logged_rows(link)) == 1)
        link.close()
        hub.crash()
    with HubThread(tmp_path / "two", port=port) as hub, link_to(hub.url) as link:
        wait(lambda: all_entries(link, "keys"))
        assert not logged_rows(link)
        grant(link, {0: 1.0})
        wait(lambda: logged_rows(link) == [(0, 1.0)])
        agent.stop()


def test_a_changed_shape_is_taken_up_by_a_running_agent(hub: HubThread) -> None:
    with new_agent(hub.url) as agent:
        with link_to(hub.url) as link:
            agent.update("x", 1.0)
            wait(lambda: all_entries(link, "keys"))
        wider = Declared(("host",), ("load", "free"))
        with CoordinatorLink(hub.url, "hosts", wider) as link:
            wait(lambda: agent.declared() == wider)
            agent.update("x", {"load": 1.0, "free": 2.0})
            wait(lambda: len(all_entries(link, "keys")) == 2)
            grant(link, {0: 1.0})
            wait(lambda: all_entries(link, "batch")[-1]["values"] == [[1.0, 2.0]])


def test_many_threads_may_update_at_once(hub: HubThread) -> None:
    with link_to(hub.url) as link, new_agent(hub.url) as agent:
        agent.update_many([f"k{n}" for n in range(8)], [0.0] * 8)
        wait(lambda: all_entries(link, "keys"))
        grant(link, dict.fromkeys(range(8), 0.5))
        wait(lambda: len(logged_rows(link)) == 8)

        def work(number: int) -> None:
            for value in range(1, 51):
                agent.update(f"k{number}", float(value))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert agent.flush(PATIENCE_S)
        found = logged_rows(link)
        for key in range(8):
            assert [v for k, v in found if k == key] == [float(v) for v in range(51)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_agent_that_cannot_look_after_its_bounds_disconnects(
    hub: HubThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    with link_to(hub.url) as link:
        agent = new_agent(hub.url).start()
        agent.update("x", 1.0)
        wait(lambda: all_entries(link, "keys"))

        def fail() -> int:
            raise RuntimeError("a fault")

        monkeypatch.setattr(agent._state, "next_review", fail)
        wait(lambda: not agent.connected)
        wait(lambda: all_entries(link, "lost"))
        assert "stopped" in agent.trouble
        agent.stop(0.0)


def test_a_wrong_token_is_told_and_tried_again(tmp_path: Path) -> None:
    with HubThread(tmp_path, token="right") as hub:
        agent = new_agent(hub.url, token="wrong").start()
        wait(lambda: "the token is wrong" in agent.trouble)
        assert not agent.connected
        assert agent.stop(0.0)
        with pytest.raises(Refused, match="the token is wrong"):
            link_to(hub.url, token="wrong").connect()
        with link_to(hub.url, token="right") as link:
            assert link.status()["agents"] == 0


def test_an_agent_that_was_not_started_says_so(hub: HubThread) -> None:
    agent = new_agent(hub.url)
    agent.update("x", 1.0)
    assert agent.trouble == "the agent was not started"
    with agent:
        wait(lambda: agent.connected)
        assert agent.trouble == ""
    assert agent.trouble


def test_bad_arguments_of_an_agent_are_refused() -> None:
    with pytest.raises(SourceError, match="expected a hub such as ws://"):
        Agent("hosts", hub="http://x")
    with pytest.raises(SourceError, match="expected a stream's name"):
        Agent("../hosts", hub="ws://x")
    with pytest.raises(SourceError, match="expected an agent's name"):
        Agent("hosts", hub="ws://x", name="")
    for cost in (0, -1, float("nan"), True, "5", 1e12):
        with pytest.raises(SourceError, match="what a message costs relative to 1"):
            Agent("hosts", hub="ws://x", cost=cost)


def test_what_a_message_costs_is_in_the_log(hub: HubThread) -> None:
    with link_to(hub.url) as link, new_agent(hub.url, cost=5.0) as agent:
        wait(lambda: agent.connected)
        [joined] = all_entries(link, "joined")
        assert joined["cost"] == 5.0
        agent.stop()
        with new_agent(hub.url) as again:
            wait(lambda: again.connected)
            assert "cost" not in all_entries(link, "joined")[1]


def test_terms_of_keys_are_in_the_log(hub: HubThread) -> None:
    terms = {"b": Terms(cost=5.0), "c": Terms(max_rate=2.0)}
    with link_to(hub.url) as link, new_agent(hub.url, terms=terms) as agent:
        for key in ("a", "b", "c"):
            agent.update(key, 1.0)
        wait(lambda: sum(len(e["keys"]) for e in all_entries(link, "keys")) == 3)
        told = {
            entry["keys"][place][0]: rest
            for entry in all_entries(link, "keys")
            for place, *rest in entry.get("terms", [])
        }
        assert told == {"b": [5.0, None], "c": [1.0, [2.0]]}


def test_terms_that_do_not_fit_the_stream_are_trouble_that_is_told(hub: HubThread) -> None:
    with link_to(hub.url):
        agent = new_agent(hub.url, terms=lambda key: Terms(max_rate={"up": 1})).start()
        agent.update("a", 1.0)
        wait(lambda: "terms of key 'a': max_rate: there is no value column 'up'" in agent.trouble)
        agent.stop(0.0)


def test_tls_with_a_certificate_of_ones_own(tmp_path: Path) -> None:
    import ssl

    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {key} -out {cert}"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([openssl, *words.split(), *names], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    with HubThread(tmp_path / "hub", tls=tls) as hub:
        assert hub.url.startswith("wss://")
        with link_to(hub.url, ca=cert) as link, new_agent(hub.url, ca=cert) as agent:
            agent.update("x", 1.0)
            wait(lambda: all_entries(link, "keys"))
        stranger = new_agent(hub.url).start()
        wait(lambda: "its certificate is not trusted" in stranger.trouble)
        assert stranger.trouble.startswith(f"cannot connect to the hub at {hub.url}: ")
        assert "give --ca FILE" in stranger.trouble
        stranger.stop(0.0)
        plain = new_agent(hub.url.replace("wss:", "ws:")).start()
        wait(lambda: "a hub with --cert speaks wss://" in plain.trouble)
        plain.stop(0.0)


def test_why_there_is_no_connection_is_told_in_words(hub: HubThread, tmp_path: Path) -> None:
    with HubThread(tmp_path / "gone") as gone:
        nobody = gone.url
    reasons = {
        nobody: "nobody listens there (connection refused)",
        "ws://nowhere.invalid:7400": "",
        hub.url.replace("ws:", "wss:"): "a hub with --cert speaks wss://, one without speaks ws://",
    }
    for url, reason in reasons.items():
        agent = new_agent(url).start()
        wait(lambda agent=agent: agent.trouble)
        assert agent.trouble.startswith(f"cannot connect to the hub at {url}: ")
        assert agent.trouble.endswith(reason)
        agent.stop(0.0)


# --- the coordinator's link


def test_a_link_that_is_fenced_stays_so(hub: HubThread) -> None:
    old, new = link_to(hub.url), link_to(hub.url)
    assert (old.generation, new.generation) == (1, 2)
    for _ in range(2):
        with pytest.raises(Fenced, match="another run has taken over stream 'hosts'"):
            old.end()
    assert new.end().position > 0
    new.close()


def test_a_link_goes_on_after_the_hub_restarts_but_does_not_grant_twice(tmp_path: Path) -> None:
    with HubThread(tmp_path) as hub:
        port = int(hub.url.rpartition(":")[2])
        link = link_to(hub.url)
        link.connect()
        with AgentClient(hub.url) as agent:
            agent.welcome()
            agent.keys("x")
            end = link.end()
        hub.crash()
    with HubThread(tmp_path, port=port):
        with pytest.raises(Disconnected, match="during grant"):
            grant(link, {0: 1.0})
        assert link.end().position >= end.position
        assert not all_entries(link, "grants")
        grant(link, {0: 2.0})
        assert [e["width"] for e in all_entries(link, "grants")] == [[2.0]]
        link.close()


def test_a_link_gives_up_when_its_patience_ends(tmp_path: Path) -> None:
    with HubThread(tmp_path) as hub:
        url = hub.url
    with pytest.raises(Disconnected, match="cannot reach the hub at"):
        link_to(url, patience=0.0).connect()


class Waits:
    """A clock that goes on by what is slept, and something that happens after so many waits."""

    def __init__(self, after: int, what: Callable[[], None]) -> None:
        self.seconds, self.waits = 0.0, 0
        self._after, self._what = after, what

    def clock(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.waits += 1
        if self.waits == self._after:
            self._what()


def test_an_endless_link_waits_for_the_hub_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with HubThread(tmp_path) as hub:
        port = int(hub.url.rpartition(":")[2])
        again = HubThread(tmp_path, port=port)
        # twelve waits are more than the minute after which another link would give up
        waits = Waits(12, again.__enter__)
        options = {"random": lambda: 1.0, "clock": waits.clock, "sleep": waits.sleep}
        link = CoordinatorLink(hub.url, "hosts", HOSTS, endless=True, **options)
        generation, end = link.generation, link.end()
        hub.crash()
    try:
        assert link.end().position >= end.position
        assert waits.waits == 12
        assert waits.seconds > 120
        # it is the same coordinator still
        assert link.generation == generation
    finally:
        link.close()
        again.__exit__(None, None, None)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 13
    assert f"cannot reach the hub at {hub.url}" in messages[0]
    assert "trying again, 0 s so far" in messages[0]
    assert messages[-1] == f"the hub at {hub.url} is there again: going on"


def test_an_endless_link_gives_up_when_told_to_and_where_there_never_was_a_hub(tmp_path: Path) -> None:
    with HubThread(tmp_path) as hub:
        waits = Waits(5, lambda: link.give_up())
        options = {"random": lambda: 1.0, "clock": waits.clock, "sleep": waits.sleep}
        link = CoordinatorLink(hub.url, "hosts", HOSTS, endless=True, **options)
        link.connect()
        hub.crash()
    with pytest.raises(Disconnected, match="cannot reach the hub at"):
        link.end()
    assert waits.waits == 5
    with pytest.raises(Disconnected, match="cannot reach the hub at"):
        CoordinatorLink(hub.url, "hosts", HOSTS, endless=True, **options).connect()
    assert waits.seconds < 120


def test_a_hub_that_stops_is_asked_again_when_it_is_back(tmp_path: Path) -> None:
    with HubThread(tmp_path) as hub:
        port = int(hub.url.rpartition(":")[2])
        again = HubThread(tmp_path, port=port)

        def restart() -> None:
            hub.crash()
            again.__enter__()

        waits = Waits(1, restart)
        link = CoordinatorLink(hub.url, "hosts", HOSTS, endless=True, clock=waits.clock, sleep=waits.sleep)
        link.connect()
        # it is on its way down: nothing is acknowledged any more, and connections are still open
        done = threading.Event()
        [stream] = hub._hub.streams.values()
        hub._loop.call_soon_threadsafe(lambda: (stream._give_up(), done.set()))
        assert done.wait(PATIENCE_S)
        assert link.end().position > 1
        assert waits.waits >= 1
    link.close()
    again.__exit__(None, None, None)


def test_a_link_may_be_used_by_many_threads(hub: HubThread) -> None:
    with link_to(hub.url) as link:
        found: list[int] = []
        threads = [threading.Thread(target=lambda: found.append(link.end().position)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [found[0]] * 8
        assert link.forget(1) == 1


def test_many_grants_go_out_in_several_requests(hub: HubThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slackwater.edge.coordinator_link.GRANTS_PER_REQUEST", 3)
    with link_to(hub.url) as link, AgentClient(hub.url) as agent:
        agent.welcome()
        agent.keys(*(f"k{n}" for n in range(8)))
        first = link.end().position
        assert grant(link, dict.fromkeys(range(8), 1.0)) == list(range(first, first + 8))
        assert [len(e["key"]) for e in all_entries(link, "grants")] == [3, 3, 2]
        assert grant(link, {}) == []


# --- readings


def test_bad_lines_are_told_with_number_and_reason_and_are_not_the_end() -> None:
    told: list[str] = []
    reader = LineReader(HOSTS, told.append)
    lines = ['{"host":"a","load":1}', "nonsense", "", '{"load":2}', '{"host":"b"}', '{"host":"c","load":"x"}']
    lines += ['{"host":null,"load":1}', '{"host":"d","load":3,"more":0}', "[1]", '{"host":"e","load":NaN}']
    assert list(reader.read(lines)) == [("a", {"load": 1}), ("d", {"load": 3})]
    assert (reader.lines, reader.bad) == (10, 7)
    assert told[0].startswith("line 2: expected a JSON object, got 'nonsense'")
    assert told[1] == "line 4: expected the key column 'host', got only 'load'"
    assert told[2] == "line 5: expected one of the columns load, got none"
    assert told[3] == "line 6: load: expected a number or null, got 'x'"
    assert list(reader.read(['{"host":"b","lod":3}'])) == []
    assert told[-1] == "line 11: expected one of the columns load, got 'lod'"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"host":"a","load":9007199254740993}', "load: expected a number that a double can hold or null"),
        ('{"host":"a","load":1' + "0" * 400 + "}", "load: expected a number that a double can hold or null"),
        ('{"host":"a","load":1e999}', "load: expected a number that a double can hold or null, got inf"),
        ('{"host":"a","load":true}', "load: expected a number or null, got True"),
        ('{"host":5,"load":1}', "key: host is a text, got 5"),
        ('{"withdrawn":{"host":5}}', "withdrawn: host is a text, got 5"),
        ('{"withdrawn":{"host":[]}}', "withdrawn: expected texts and finite numbers as parts of a key"),
    ],
)
def test_whatever_an_agent_would_refuse_is_a_bad_line(line: str, reason: str) -> None:
    told: list[str] = []
    shape = Declared(("host",), ("load",), ("text",))
    reader, agent = LineReader(shape, told.append), welcomed(declared=shape.message())
    for key, values in reader.read(
        [line, '{"host":"b","load":9007199254740992}', '{"withdrawn":{"host":"b"}}']
    ):
        if values is None:
            assert agent.withdraw(key, NOW)
        else:
            agent.offer(key, values, NOW)
    assert (reader.lines, reader.bad) == (3, 1)
    assert f"line 1: {reason}" in told[0]
    assert len(told[0]) < 200


def test_numbers_whose_sums_no_double_holds_are_passed_over() -> None:
    rate = MovingRate(columns=1, window=2 * SECOND)
    rate.add("a", [8e307], at=0)
    with pytest.raises(OverflowError, match="whose sums a double can hold"):
        rate.add("a", [8e307], at=0)
    with pytest.raises(OverflowError):
        rate.add("b", [1.7e308], at=0)
    [(_, keys, values)] = rate.steps(SECOND)
    assert (keys, values.tolist()) == (["a"], [[4e307]])


def test_a_command_that_has_closed_its_output_may_end_by_itself() -> None:
    told: list[str] = []
    ends = iter([False, True])
    slow = "import os, time; print(1, flush=True); os.close(1); time.sleep(0.3)"

    def lines(code: str) -> list[bytes]:
        command = shlex.join([sys.executable, "-c", code])
        return list(command_lines(command, 0.01, lambda seconds: bool(seconds) and next(ends), told.append))

    assert lines(slow) == [b"1\n", b"1\n"]
    assert told == [], "it was ended in the middle, and its exit code called wrong"
    ends = iter([True] * 2)
    assert lines("import os; os._exit(3)") == []
    assert lines("import os; os.kill(os.getpid(), 15)") == []
    assert told == ["the command ended with exit code 3", "the command was ended by signal 15"]
    stuck = shlex.join([sys.executable, "-c", "import os, time; os.close(1); time.sleep(600)"])
    assert list(command_lines(stuck, None, lambda seconds: True, told.append)) == []
    assert len(told) == 2, "it was told to end, which is nothing to tell of"


def test_a_file_is_followed_through_rotation_and_truncation(tmp_path: Path) -> None:
    path = tmp_path / "values.jsonl"
    path.write_text("old\n")
    steps: list[Callable[[], object]] = [
        lambda: append(path, "one\ntw"),
        lambda: append(path, "o\n"),
        # what is written just before the rotation counts, and what the new file holds
        lambda: (append(path, "three\n"), path.rename(tmp_path / "rotated"), path.write_text("four\n")),
        lambda: path.write_text("5\n"),
        lambda: (path.unlink(), path.write_text("six\n")),
        lambda: append(path, "unfinished"),
    ]

    def pause(_: float) -> bool:
        if not steps:
            return True
        steps.pop(0)()
        return False

    assert [line.decode().strip() for line in tail_lines(path, pause, pytest.fail)] == [
        "one",
        "two",
        "three",
        "four",
        "5",
        "six",
    ]


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_file_that_comes_later_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "values.jsonl"
    looks = iter([lambda: None, lambda: path.write_text("one\n"), lambda: None])
    said: list[str] = []
    found = list(tail_lines(path, lambda _: next(looks, lambda: True)() is True, said.append))
    assert found == [b"one\n"]
    # it had to be looked for twice, and that is said once
    assert said == [f"--tail: there is no file {path} yet; waiting for it"]


def test_counters_become_rates_by_host_or_interface() -> None:
    def counters(recv: int, sent: int) -> SimpleNamespace:
        return SimpleNamespace(bytes_recv=recv, bytes_sent=sent, packets_recv=0, packets_sent=0)

    looks = [
        {"eth0": counters(0, 0), "eth1": counters(100, 0), "lo": counters(0, 0)},
        {"eth0": counters(10, 4), "eth1": counters(120, 0), "lo": counters(99, 99)},
        {"eth0": counters(5, 5), "eth1": counters(130, 0), "wlan": counters(7, 7)},
    ]
    for declared, expected in (
        (Declared(("host",), ("bytes_recv",)), [[15.0], [5.0]]),
        (
            Declared(("host", "nic"), ("bytes_recv", "bytes_sent")),
            [[5.0, 2.0, 10.0, 0.0, 49.5, 49.5], [5.0, 0.0]],
        ),
    ):
        clock, shown, pauses = TestClock(), iter(looks), iter([False, False, True])

        def pause(_: float, clock: TestClock = clock, pauses: Iterator[bool] = pauses) -> bool:
            clock.advance(2 * SECOND)
            return next(pauses)

        readings = list(counter_readings(declared, pause, clock=clock, look=lambda shown=shown: next(shown)))
        assert [[v for _, row in found if row for v in row.values()] for found in readings] == expected
    assert isinstance(readings[0][0][0], tuple)
    with pytest.raises(
        SourceError, match="there are bytes_recv, bytes_sent, packets_recv, packets_sent, and no"
    ):
        next(counter_readings(HOSTS, lambda _: True, clock=TestClock()))


def test_an_interface_that_vanishes_is_withdrawn_and_comes_back() -> None:
    def counters(recv: int) -> SimpleNamespace:
        return SimpleNamespace(bytes_recv=recv, bytes_sent=0, packets_recv=0, packets_sent=0)

    looks = [
        {"eth0": counters(0), "tun0": counters(0), "lo": counters(0)},
        {"eth0": counters(10), "tun0": counters(50), "lo": counters(1)},
        {"lo": counters(2)},
        {"lo": counters(3)},
        {"tun0": counters(7), "lo": counters(4)},
        {"tun0": counters(9), "lo": counters(5)},
    ]
    found = {}
    for key in (("host",), ("host", "nic")):
        clock, shown, pauses = TestClock(), iter(looks), iter([False] * 5 + [True])

        def pause(_: float, clock: TestClock = clock, pauses: Iterator[bool] = pauses) -> bool:
            clock.advance(SECOND)
            return next(pauses)

        readings = counter_readings(
            Declared(key, ("bytes_recv",)), pause, clock=clock, look=lambda shown=shown: next(shown)
        )
        found[len(key)] = [
            {k if isinstance(k, str) else k[1]: v and v["bytes_recv"] for k, v in told} for told in readings
        ]
    host = platform.node()
    assert found[1] == [{host: 60.0}, {host: None}, {}, {}, {host: 2.0}]
    assert found[2] == [
        {"eth0": 10.0, "tun0": 50.0, "lo": 1.0},
        {"lo": 1.0, "eth0": None, "tun0": None},
        {"lo": 1.0},
        {"lo": 1.0},
        {"lo": 1.0, "tun0": 2.0},
    ]


def test_a_moving_rate_is_what_its_definition_says() -> None:
    rng = np.random.default_rng(3)
    window = 5
    rate = MovingRate(columns=2, window=window * SECOND)
    added: list[tuple[int, int, Any]] = []
    found: dict[tuple[int, int], Any] = {}

    def look(now: int) -> None:
        for at, keys, values in rate.steps(now):
            assert at not in {a for a, _ in found}
            found.update({(at, key): row for key, row in zip(keys, values, strict=True)})  # type: ignore[misc]

    now = 7 * SECOND
    for _ in range(400):
        now += int(rng.integers(0, SECOND // 2)) if rng.random() < 0.97 else 9 * SECOND
        look(now)
        key, values = int(rng.integers(0, 3)), rng.integers(0, 50, 2).astype(float)
        rate.add(key, values, now)
        added.append((now, key, values))
    look(now + 20 * SECOND)
    assert len(found) > 200
    for (at, key), row in found.items():
        summed = sum((v for t, k, v in added if k == key and at - window * SECOND <= t < at), np.zeros(2))
        np.testing.assert_allclose(row, summed / window)
    with pytest.raises(ValueError, match="a multiple of"):
        MovingRate(columns=1, window=SECOND + 1)


# --- the commands, as processes


Edge = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def edge() -> Iterator[Edge]:
    """Starts commands of the edge; what still runs at the end is killed."""
    with ExitStack() as stack:

        def start(*words: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "slackwater.edge", *words]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


def listening(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("listening on ws://127.0.0.1:"), line
    return line.split()[2].rstrip(",")


def ended(process: subprocess.Popen[str], number: int | None = None) -> tuple[int, str]:
    """Its exit code and what it said on stderr; pipes are closed."""
    if number is not None:
        process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE_S)
    return process.returncode, errors


def test_hub_and_agent_as_processes_through_kills(edge: Edge, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    shared = ("--token-file", str(tmp_path / "token"))
    directory = ("--directory", str(tmp_path / "hub"))
    hub = edge("hub", "--listen", "127.0.0.1:0", *directory, *shared)
    url = listening(hub)
    feed = ("agent", "--hub", url, "--stream", "hosts", "--name", "a", "--stdin", *shared)
    link = link_to(url, token="secret")
    agent = edge(*feed)
    assert agent.stdin is not None
    link.connect()
    agent.stdin.write('{"host":"x","load":1}\nnonsense\n')
    agent.stdin.flush()
    wait(lambda: all_entries(link, "keys"))
    grant(link, {0: 1.0})
    wait(lambda: logged_rows(link) == [(0, 1.0)])

    # the hub is killed and comes back at the same place: nothing is missing, nothing is twice
    ended(hub, signal.SIGKILL)
    agent.stdin.write('{"host":"x","load":5}\n')
    agent.stdin.flush()
    hub = edge("hub", "--listen", url.removeprefix("ws://"), *directory, *shared)
    assert listening(hub) == url
    wait(lambda: logged_rows(link) == [(0, 1.0), (0, 5.0)])

    # the agent is killed, and its successor begins with a first value
    assert agent.stderr is not None
    said = said_until(agent.stderr, f"connected to {url} again")
    assert ended(agent, signal.SIGKILL)[0] == -signal.SIGKILL
    assert said[0].startswith("line 2: expected a JSON object, got b'nonsense'")
    wait(lambda: len(all_entries(link, "lost")) == 2)
    agent = edge(*feed)
    out, errors = agent.communicate('{"host":"x","load":5}\n', timeout=PATIENCE_S)
    assert (agent.returncode, out) == (0, ""), errors
    assert logged_rows(link) == [(0, 1.0), (0, 5.0), (0, 5.0)], "the end of its input waits for the hub"
    assert [e["clean"] for e in all_entries(link, "lost")] == [False, False, True]
    link.close()
    code, errors = ended(hub, signal.SIGTERM)
    assert code == 0
    # the coordinator came back with its generation: nobody has taken over
    assert errors.splitlines() == [
        "stream hosts: agent 'a' is lost",
        "stream hosts: agent 'a' has joined again, with 1 key(s)",
        "stream hosts: agent 'a' is lost",
        "stream hosts: agent 'a' has joined",
        "stream hosts: agent 'a' has left",
    ]


def test_a_hub_pings_as_often_as_it_is_told_to(edge: Edge, tmp_path: Path) -> None:
    hub = edge("hub", "--listen", "127.0.0.1:0", "--directory", str(tmp_path), "--ping", "100ms")
    url = listening(hub)
    with link_to(url), AgentClient(url) as frozen:
        frozen.welcome()
        # its socket stays open, and nobody answers any more
        frozen.socket.protocol.receive_data = lambda data: None  # type: ignore[method-assign]
        assert hub.stderr is not None
        said_until(hub.stderr, "stream hosts: agent 'a' is lost")
        frozen.cut()


def said_until(lines: IO[str], last: str) -> list[str]:
    """What a process says, up to a line."""
    found = []
    for line in lines:
        found.append(line)
        if line == f"{last}\n":
            return found
    raise AssertionError(found)


def test_an_agent_process_stops_on_sigterm_and_follows_a_command(
    edge: Edge, hub: HubThread, tmp_path: Path
) -> None:
    script = tmp_path / "values.py"
    script.write_text('print(\'{"host":"x","load":3}\')')
    command = f"{sys.executable} {script}"
    with link_to(hub.url) as link:
        agent = edge("agent", "--hub", hub.url, "--stream", "hosts", "--command", command, "--every", "50ms")
        wait(lambda: all_entries(link, "keys"))
        grant(link, {0: 1.0})
        wait(lambda: logged_rows(link) == [(0, 3.0)])
        assert ended(agent, signal.SIGTERM) == (0, "")


def test_a_stream_that_is_awaited_is_told_of_and_so_is_its_declaration(
    hub: HubThread, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(agent_run, "UNDECLARED_S", 0.0)
    stopped, said = threading.Event(), []

    def look() -> bool:
        said.extend(capsys.readouterr().err.splitlines())
        return "connected; waiting until a query declares stream 'hosts'" in said

    choice = agent_run.Choice(False, f"{sys.executable} -c 1", None, False, None, None)
    options = {"stream": "hosts", "hub": hub.url, "name": "a", "token": "", "ca": None}
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(agent_run.run_agent, choice, stopped=stopped, **options)
        wait(look)
        with link_to(hub.url):
            wait(lambda: look() and said[-1] == "stream 'hosts' has been declared")
            stopped.set()
            assert running.result(PATIENCE_S)


def test_an_agent_process_sends_moving_rates(edge: Edge, hub: HubThread, tmp_path: Path) -> None:
    path = tmp_path / "values.jsonl"
    path.write_text('{"host":"x","load":3}\n' * 2)
    with link_to(hub.url) as link:
        agent = edge(
            *("agent", "--hub", hub.url, "--stream", "hosts", "--tail", str(path)),
            *("--from-start", "--moving-rate", "60s"),
        )
        wait(lambda: all_entries(link, "keys"))
        grant(link, {0: 0.01})
        wait(lambda: logged_rows(link))
        assert logged_rows(link)[0] == (0, pytest.approx(0.1))
        assert ended(agent, signal.SIGTERM) == (0, "")


def test_why_there_is_no_connection_is_said_once_and_that_there_is_one_again() -> None:
    said: list[str] = []
    agent = SimpleNamespace(trouble="", counters=SimpleNamespace(connected=False, connections=0))
    connection = Connection(cast(Agent, agent), "ws://h:7400", said.append)

    def looks(trouble: str, connections: int) -> None:
        agent.trouble = trouble
        agent.counters.connected, agent.counters.connections = not trouble, connections
        connection.tell()

    connection.tell()
    assert said == [], "nothing has gone wrong yet"
    for trouble in (STOPPED, "refused", "refused", "no route"):
        looks(trouble, 0)
    looks("", 1)
    looks("", 1)
    trials = ["refused; trying again", "no route; trying again"]
    assert said == [STOPPED, *trials, "connected to ws://h:7400"]
    looks("no route", 1)
    looks("", 2)
    assert said[4:] == ["no route; trying again", "connected to ws://h:7400 again"]
    looks("", 3)
    assert said[6:] == ["connected to ws://h:7400 again"], "a break that was over before it was seen"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ["hub", "--listen", "0.0.0.0:0", "--directory", "d"],
            "'0.0.0.0' is open to others: give it a token",
        ),
        (["hub", "--listen", "nowhere", "--directory", "d"], "--listen: expected host:port"),
        (["hub", "--directory", "d", "--ping", "often"], "--ping: expected a length of time such as 500ms"),
        (["hub", "--directory", "d", "--cert", "c"], "--cert and --key go together"),
        (["hub", "--directory", "d", "--token-file", "none"], "--token-file: cannot read none"),
        (
            ["agent", "--stream", "s"],
            "expected exactly one of --counters, --command, --tail, --stdin, got none",
        ),
        (["agent", "--stream", "s", "--stdin", "--counters"], "got --counters, --stdin"),
        (
            ["agent", "--stream", "s", "--stdin", "--cost", "-5"],
            "expected what a message costs relative to 1, from 1e-9 to 1e9, got -5.0",
        ),
        (
            ["hub", "--directory", "d", "--cert", "none.pem", "--key", "none.key"],
            "--cert none.pem: expected a file with a certificate (PEM), got: No such file or directory",
        ),
        (
            ["hub", "--directory", "d", "--cert", "/dev/null", "--key", "none.key"],
            "--key none.key: expected a file with its key (PEM), got: No such file or directory",
        ),
        (
            ["agent", "--stream", "s", "--command", "echo 'x"],
            """--command: cannot take "echo 'x" apart: No closing quotation""",
        ),
        (["agent", "--stream", "s", "--stdin", "--terms", "none"], "--terms: cannot read none"),
        (["agent", "--stream", "s", "--stdin", "--every", "1s"], "--every goes with --command or --counters"),
        (
            ["agent", "--stream", "s", "--stdin", "--moving-rate", "x"],
            "--moving-rate: expected a length of time",
        ),
    ],
)
def test_wrong_commands_are_refused_in_words(
    words: list[str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from typer.testing import CliRunner

    from slackwater.edge.commands import app

    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert reason in result.stderr


@pytest.mark.parametrize(
    "code",
    [
        "import slackwater.edge.agent, slackwater.edge.hub, slackwater.edge.coordinator_link",
        "from slackwater.cli import app; app(['agent', '--help'], standalone_mode=False)",
        "from slackwater.cli import app; app(['hub', '--help'], standalone_mode=False)",
        "from slackwater.cli import app; app(['deadbands', '--help'], standalone_mode=False)",
        "from slackwater.edge.commands import app; app(['agent', '--help'], standalone_mode=False)",
        "import slackwater.edge.agent_run",
    ],
)
def test_the_edge_loads_nothing_heavy(code: str) -> None:
    heavy = "('pyspark', 'py4j', 'sqlglot', 'pandas', 'scipy', 'pyarrow', 'duckdb')"
    program = f"import sys\n{code}\nprint([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_coordinator_can_be_a_light_client_too(hub: HubThread) -> None:
    with link_to(hub.url) as link:
        link.end()
        with CoordinatorClient(hub.url) as other:
            assert json.dumps(other.welcome["generation"]) == "2"
        with pytest.raises(Fenced):
            link.status()
