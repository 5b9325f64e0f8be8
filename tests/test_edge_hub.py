"""The hub, as light clients meet it: what is logged, what is passed on, what is refused, what a crash leaves."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed, InvalidStatus

from edge_clients import HOSTS, SECOND, AgentClient, Client, CoordinatorClient, TestClock
from slackwater.edge import refusals
from slackwater.edge.grant_table import GrantTable
from slackwater.edge.hub import Hub
from slackwater.edge.hub_thread import HubThread
from slackwater.edge.messages import Declared
from slackwater.edge.operator_link import OperatorLink
from slackwater.edge.shadows import POINTS
from slackwater.edge.streams import Stream
from slackwater.errors import SourceError, StateError

CURVE = [-3, 2.5, *[0.5] * POINTS]


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def hub(tmp_path: Path, clock: TestClock) -> Iterator[HubThread]:
    with HubThread(tmp_path, clock=clock) as running:
        yield running


def joined_agent(url: str, *names: Any, agent: str = "a", incarnation: str = "i1") -> AgentClient:
    """An agent that has announced its keys."""
    client = AgentClient(url, agent, incarnation)
    client.welcome()
    client.keys(*names)
    return client


# --- the life of a row and of a grant


def test_rows_keys_and_comings_are_in_the_log_in_order(hub: HubThread) -> None:
    with CoordinatorClient(hub.url) as coordinator:
        agent = joined_agent(hub.url, "x", "y")
        agent.batch(1, {0: 1.5, 1: 2.5}, at=7, caught_up=True)
        agent.received(1)
        agent.send("leave")
        agent.close()
        while not coordinator.entries("lost"):
            pass
        kinds = [(e["kind"], e["position"]) for e in coordinator.entries()]
        expected = ["generation", "declared", "joined", "keys", "batch", "lost"]
        assert kinds == [(kind, place + 1) for place, kind in enumerate(expected)]
        [batch] = coordinator.entries("batch")
        assert (batch["key"], batch["at"], batch["values"]) == ([0, 1], [7, 7], [[1.5], [2.5]])
        assert (batch["agent"], batch["number"], batch["caught_up"]) == ("a", 1, True)
        [keys] = coordinator.entries("keys")
        assert (keys["keys"], keys["numbers"]) == ([["x"], ["y"]], [0, 1])
        [lost] = coordinator.entries("lost")
        assert (lost["incarnation"], lost["clean"]) == ("i1", True)


def test_curves_narrowings_and_missing_values_pass_through(hub: HubThread) -> None:
    with CoordinatorClient(hub.url) as coordinator, joined_agent(hub.url, "x") as agent:
        rows = {"key": [0], "at": [7], "values": [[None]], "curve": [{"r": [CURVE]}]}
        narrowed = {"position": [4], "at": [6]}
        agent.send("batch", number=1, sent=8, rows=rows, narrowed=narrowed, superseded=3)
        agent.received(1)
        [batch] = coordinator.entries("batch")
        assert batch["values"] == [[None]]
        assert batch["curve"] == [{"r": [CURVE]}]
        assert batch["narrowed"] == narrowed
        assert (batch["sent"], batch["superseded"]) == (8, 3)
        assert "caught_up" not in batch


def test_local_and_global_numbers_are_translated_both_ways(hub: HubThread) -> None:
    with CoordinatorClient(hub.url) as coordinator:
        first = joined_agent(hub.url, "x", "y")
        second = joined_agent(hub.url, "z", agent="b")
        second.batch(1, {0: 9.0})
        second.received(1)
        assert coordinator.entries("batch")[0]["key"] == [2]
        granted = coordinator.grant({2: 4.0, 1: None})
        told = second.hear("grants")
        assert (told["key"], told["width"]) == ([0], [4.0])
        assert told["position"] == [granted["position"][0]]
        told = first.hear("grants")
        assert (told["key"], told["width"], told["position"]) == ([1], [None], [granted["position"][1]])
        first.close()
        second.close()


def test_each_grant_of_one_request_has_its_own_position(hub: HubThread) -> None:
    with CoordinatorClient(hub.url) as coordinator, joined_agent(hub.url, "x", "y"):
        end = coordinator.ask("end")["position"]
        answer = coordinator.grant({0: 1.0, 1: 2.0})
        assert answer["position"] == [end, end + 1]
        assert coordinator.ask("end")["position"] == end + 2
        [entry] = coordinator.entries("grants")
        assert entry["position"] == end


def test_a_grant_never_begins_before_its_time_in_the_log(hub: HubThread, clock: TestClock) -> None:
    with CoordinatorClient(hub.url) as coordinator, joined_agent(hub.url, "x", "y") as agent:
        early, later = clock() - 5 * SECOND, clock() + 7 * SECOND
        grants = {"key": [0, 1], "column": [0, 0], "width": [1, 1], "start": [early, later]}
        grants |= {"shrink": [0, 0], "period": [1, 1]}
        answer = coordinator.ask("grant", generation=1, grants=grants)
        [entry] = coordinator.entries("grants")
        assert entry["start"] == answer["start"] == [entry["received"], later]
        assert entry["received"] == clock()
        assert agent.hear("grants")["start"] == [entry["received"], later]


def test_the_hubs_time_never_goes_back(hub: HubThread, clock: TestClock) -> None:
    with CoordinatorClient(hub.url) as coordinator, joined_agent(hub.url, "x") as agent:
        clock.advance(3 * SECOND)
        # a time that was told, and is in no entry
        before = coordinator.ask("end")
        clock.advance(-50 * SECOND)
        agent.batch(1, {0: 1.0})
        agent.received(1)
        after = coordinator.ask("end")
        assert after["time"] >= before["time"]
        [batch] = coordinator.entries("batch")
        assert before["time"] <= batch["received"] <= after["time"]
        assert before["position"] <= batch["position"] < after["position"]


def test_a_hub_that_restarts_with_its_clock_set_back_goes_on_from_the_last_entry(tmp_path: Path) -> None:
    clock = TestClock()
    with HubThread(tmp_path, clock=clock) as hub, CoordinatorClient(hub.url):
        pass
    clock.advance(-50 * SECOND)
    with HubThread(tmp_path, clock=clock) as hub, CoordinatorClient(hub.url) as coordinator:
        times = [entry["received"] for entry in coordinator.entries()]
        assert times == sorted(times)
        assert coordinator.ask("end")["time"] >= times[-1]


# --- exactly once


def test_a_batch_whose_acknowledgement_was_lost_is_logged_once(hub: HubThread) -> None:
    with CoordinatorClient(hub.url) as coordinator:
        agent = joined_agent(hub.url, "x")
        agent.batch(1, {0: 1.0})
        agent.received(1)
        agent.cut()
        again = AgentClient(hub.url)
        welcome = again.welcome()
        assert (welcome["received"], welcome["keys"]) == (1, 1)
        # one that does not heed the welcome's number sends it once more all the same
        again.batch(1, {0: 1.0})
        again.batch(2, {0: 2.0})
        again.received(2)
        assert [b["values"] for b in coordinator.entries("batch")] == [[[1.0]], [[2.0]]]
        again.close()


def test_a_crash_after_the_disk_and_before_the_acknowledgement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Stream.when_durable

    def never_tell(self: Stream, end: int, callback: Any) -> None:
        # what waits for the disk is told, except the acknowledgement of a batch
        if self.registry.agents and any(r.received for r in self.registry.agents.values()):
            original(self, end, lambda: written.append(end))
        else:
            original(self, end, callback)

    written: list[int] = []
    monkeypatch.setattr(Stream, "when_durable", never_tell)
    with HubThread(tmp_path) as hub:
        coordinator = CoordinatorClient(hub.url)
        agent = joined_agent(hub.url, "x")
        agent.batch(1, {0: 1.0})
        deadline = time.monotonic() + 20
        while not written:
            assert time.monotonic() < deadline
        monkeypatch.undo()
        hub.crash()
        agent.ended()
        coordinator.cut()
    with HubThread(tmp_path) as hub, CoordinatorClient(hub.url) as coordinator:
        again = AgentClient(hub.url)
        assert again.welcome()["received"] == 1, "it was on disk, though the agent was never told"
        again.batch(1, {0: 1.0})
        again.batch(2, {0: 2.0})
        again.received(2)
        assert [b["number"] for b in coordinator.entries("batch")] == [1, 2]
        again.close()


def test_a_connection_cut_in_the_middle_of_a_batch_leaves_nothing_of_it(hub: HubThread) -> None:
    with CoordinatorClient(hub.url) as coordinator:
        agent = joined_agent(hub.url, "x")
        # a frame that promises 500 bytes, of which ten come
        agent.socket.socket.sendall(b"\x81\xfe\x01\xf4" + bytes(4) + b'{"type":"b')
        agent.cut()
        while not coordinator.entries("lost"):
            pass
        assert not coordinator.entries("batch")
        again = AgentClient(hub.url)
        assert again.welcome()["received"] == 0
        again.close()


# --- restarts


def test_a_hub_that_restarts_knows_keys_grants_and_batches(tmp_path: Path) -> None:
    with HubThread(tmp_path) as hub:
        with CoordinatorClient(hub.url) as coordinator:
            agent = joined_agent(hub.url, "x", "y")
            agent.batch(1, {1: 1.0})
            agent.received(1)
            position = coordinator.grant({1: 3.0}, shrink=0.25)["position"]
            identity = coordinator.welcome["log"]
            log = coordinator.entries()
        hub.crash()
    with HubThread(tmp_path) as hub, CoordinatorClient(hub.url) as coordinator:
        assert coordinator.welcome["generation"] == 2
        assert coordinator.welcome["log"] == identity
        after = coordinator.entries()
        assert after[: len(log)] == log
        assert [(e["kind"], e.get("clean")) for e in after[len(log) :]] == [
            ("lost", False),
            ("generation", None),
        ]
        assert after[len(log)]["since"] == log[-2]["received"], "its last sign of life: the batch"
        agent = AgentClient(hub.url)
        welcome = agent.welcome()
        assert (welcome["received"], welcome["keys"], welcome["log"]) == (1, 2, identity)
        assert welcome["declared"] == HOSTS.message()
        told = agent.hear("grants")
        assert (told["key"], told["width"], told["shrink"]) == ([1], [3.0], [0.25])
        assert (told["position"], told["keys"]) == (position, 2)
        agent.close()


def test_a_hub_restarts_from_a_log_with_a_torn_tail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with HubThread(tmp_path) as hub:
        with CoordinatorClient(hub.url):
            agent = joined_agent(hub.url, "x")
            agent.batch(1, {0: 1.0})
            agent.received(1)
        hub.crash()
    segment = max((tmp_path / "hosts").glob("*.log"))
    with segment.open("ab") as file:
        file.write(b'deadbeef 9 1 5 {"kind":"batch","key":[0')
    with HubThread(tmp_path) as hub:
        assert "cut off" in caplog.text
        agent = AgentClient(hub.url)
        assert agent.welcome()["received"] == 1
        agent.batch(2, {0: 2.0})
        agent.received(2)
        with CoordinatorClient(hub.url) as coordinator:
            assert [b["number"] for b in coordinator.entries("batch")] == [1, 2]
        agent.close()


def test_forgotten_segments_do_not_lose_what_the_hub_knows(tmp_path: Path) -> None:
    with HubThread(tmp_path, segment_bytes=2_000) as hub:
        with CoordinatorClient(hub.url) as coordinator:
            agent = joined_agent(hub.url, "x", "y")
            coordinator.grant({0: 1.0, 1: 2.0})
            for number in range(1, 60):
                agent.batch(number, {0: float(number)})
                agent.received(number)
            end = coordinator.ask("end")["position"]
            begin = coordinator.ask("forget", through=end)["begin"]
            assert begin > 10
            refused = coordinator.ask("read", **{"from": 1, "to": end, "limit": 10})
            assert f"position 1 has been forgotten: the log begins at {begin}" in refused["reason"]
            assert coordinator.entries("batch", start=begin), "the connection goes on"
        hub.crash()
    with HubThread(tmp_path, segment_bytes=2_000) as hub, CoordinatorClient(hub.url) as coordinator:
        assert coordinator.welcome["begin"] == begin
        agent = AgentClient(hub.url)
        assert agent.welcome()["received"] == 59
        assert agent.hear("grants")["width"] == [1.0, 2.0]
        agent.close()


def test_an_agent_gets_the_newest_grants_above_what_it_has_applied(hub: HubThread) -> None:
    with CoordinatorClient(hub.url) as coordinator:
        agent = joined_agent(hub.url, "x", "y")
        [applied] = coordinator.grant({0: 1.0})["position"]
        agent.cut()
        coordinator.grant({1: 2.0})
        coordinator.grant({1: 3.0})
        back = AgentClient(hub.url, applied=applied, keys=2)
        assert back.welcome()["keys"] == 2
        told = back.hear("grants")
        assert (told["key"], told["width"]) == ([1], [3.0])
        assert told["skipped"] == [0], "there was another one before, of which it never heard"
        back.cut()
        # a new start has applied nothing, and has other numbers
        fresh = AgentClient(hub.url, incarnation="i2")
        welcome = fresh.welcome()
        assert (welcome["received"], welcome["keys"]) == (0, 0)
        assert fresh.hear("grants")["key"] == []
        told = fresh.keys("y", "x")
        assert sorted(zip(told["key"], told["width"], strict=True)) == [(0, 3.0), (1, 1.0)]
        assert "skipped" not in told
        fresh.close()


def test_grants_of_keys_announced_late_are_sent_though_older_than_applied(hub: HubThread) -> None:
    with CoordinatorClient(hub.url) as coordinator:
        agent = joined_agent(hub.url, "x", "y")
        coordinator.grant({1: 2.0})
        [applied] = coordinator.grant({0: 1.0})["position"]
        agent.cut()
        # y was announced, but the grants message that covers it never arrived: the agent says keys=1
        back = AgentClient(hub.url, applied=applied, keys=1)
        back.welcome()
        assert back.hear("grants")["width"] == [2.0]
        back.close()


# --- who has a key, and who coordinates


def test_a_key_of_a_connected_agent_is_refused_to_another(hub: HubThread) -> None:
    with CoordinatorClient(hub.url), joined_agent(hub.url, "x"):
        other = AgentClient(hub.url, "b")
        other.welcome()
        other.send("keys", first=0, keys=[["w"], ["x"]])
        reason = other.refusal()
        assert "key 'x' belongs to agent 'a', which is connected" in reason


def test_a_key_of_a_lost_agent_is_taken_over_with_its_grants(hub: HubThread) -> None:
    with CoordinatorClient(hub.url) as coordinator:
        first = joined_agent(hub.url, "w", "x")
        coordinator.grant({1: 5.0})
        first.cut()
        while not coordinator.entries("lost"):
            pass
        other = AgentClient(hub.url, "b")
        other.welcome()
        assert other.keys("x")["width"] == [5.0]
        taken = coordinator.entries("keys")[-1]
        assert (taken["agent"], taken["numbers"]) == ("b", [1])
        coordinator.grant({1: 6.0})
        assert other.hear("grants")["width"] == [6.0]
        # the first comes back: of its keys one is another's now, and announcing it is refused
        back = AgentClient(hub.url, keys=2)
        assert back.welcome()["keys"] == 1
        back.send("keys", first=1, keys=[["x"]])
        assert "belongs to agent 'b'" in back.refusal()
        other.close()


def test_the_same_name_from_another_process_replaces_the_connection(hub: HubThread) -> None:
    with CoordinatorClient(hub.url) as coordinator:
        first = joined_agent(hub.url, "x")
        second = AgentClient(hub.url, incarnation="i2")
        second.welcome()
        assert "two agents need two names" in first.refusal()
        second.keys("x")
        kinds = [(e["kind"], e["incarnation"]) for e in coordinator.entries("joined", "lost")]
        assert kinds == [("joined", "i1"), ("lost", "i1"), ("joined", "i2")]
        second.close()


def test_an_old_coordinator_is_fenced(hub: HubThread) -> None:
    with CoordinatorClient(hub.url) as old:
        agent = joined_agent(hub.url, "x")
        with CoordinatorClient(hub.url) as new:
            assert (old.welcome["generation"], new.welcome["generation"]) == (1, 2)
            assert old.hear("fenced")["generation"] == 2
            old.ended()
            assert "generation 1 is fenced, the newest is 2" in new.grant({0: 1.0}, generation=1)["reason"]
            assert new.grant({0: 2.0})["type"] == "granted"
            assert agent.hear("grants")["width"] == [2.0]
            assert [e["number"] for e in new.entries("generation")] == [1, 2]
            # the old one cannot come back with its generation, and does not disturb the new one in trying
            with CoordinatorClient(hub.url, generation=1) as back:
                assert back.welcome["type"] == "fenced"
            assert new.ask("end")["type"] == "end"
        agent.close()


def test_a_coordinator_that_lost_its_connection_goes_on_with_its_generation(hub: HubThread) -> None:
    first = CoordinatorClient(hub.url)
    first.cut()
    with CoordinatorClient(hub.url, generation=1) as again:
        assert again.welcome["generation"] == 1
        assert [e["number"] for e in again.entries("generation")] == [1]


def test_generations_outlive_the_hub(tmp_path: Path) -> None:
    for generation in (1, 2, 3):
        with HubThread(tmp_path) as hub, CoordinatorClient(hub.url) as coordinator:
            assert coordinator.welcome["generation"] == generation


# --- the shape of a stream


def test_an_agent_that_came_first_is_told_the_shape_later(hub: HubThread) -> None:
    with AgentClient(hub.url) as agent:
        assert agent.welcome()["declared"] is None
        with CoordinatorClient(hub.url):
            told = agent.hear("declare")
            assert (told["key"], told["columns"]) == (["host"], ["load"])
            assert agent.keys("x")["keys"] == 1


def test_a_changed_shape_starts_the_stream_anew(hub: HubThread) -> None:
    with CoordinatorClient(hub.url) as coordinator:
        agent = joined_agent(hub.url, "x", "y")
        coordinator.grant({0: 1.0, 1: 2.0})
    wider = Declared(("host", "port"), ("load", "free"))
    with CoordinatorClient(hub.url, wider) as coordinator:
        assert agent.hear("declare")["columns"] == ["load", "free"]
        agent.ended()
        back = AgentClient(hub.url)
        welcome = back.welcome()
        assert (welcome["keys"], welcome["declared"]) == (0, wider.message())
        assert back.keys(("x", 80))["width"] == [], "grants of the old shape are gone"
        assert coordinator.entries("keys")[-1]["numbers"] == [0]
        back.close()


# --- refusals


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"token": "wrong"}, "the token is wrong"),
        ({"token": 5}, "hello.token: expected the token, got 5"),
        ({"version": 2}, "this hub speaks version 1 of the protocol, not 2"),
        ({"role": "spy"}, "hello.role: expected agent, coordinator or operator, got 'spy'"),
        ({"role": "operator", "token": "wrong"}, "the token is wrong"),
        ({"role": "operator", "stream": "none"}, "there is no stream 'none' at this hub; there are: none"),
        ({"cost": 0}, "hello.cost: expected what a message costs relative to 1, from 1e-9 to 1e9, got 0"),
        ({"stream": "../etc"}, "hello.stream: expected the name of a stream"),
        ({"agent": ""}, "hello.agent: expected a name"),
        ({"applied": -1}, "hello.applied: expected the position of a grant, or 0, got -1"),
        ({"type": "batch"}, "message.type: expected hello first, got 'batch'"),
    ],
)
def test_a_wrong_hello_is_refused(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    hello = {"type": "hello", "role": "agent", "version": 1, "token": "secret", "stream": "hosts"}
    hello |= {"agent": "a", "incarnation": "i1", "applied": 0}
    with HubThread(tmp_path, token="secret") as hub:
        with Client(hub.url) as client:
            client.socket.send(json.dumps(hello | changed))
            assert reason in client.refusal()
        with Client(hub.url) as client:
            client.socket.send(json.dumps(hello))
            assert client.hear()["type"] == "welcome"


BATCH = {"type": "batch", "number": 1, "sent": 1, "rows": {"key": [0], "at": [1], "values": [[1.0]]}}


def ridden(rider: Any) -> dict[str, Any]:
    """A row with something that rides on it."""
    return {"rows": {"key": [0], "at": [1], "values": [[1.0]], "curve": [rider]}}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("nonsense", "message: expected a JSON object, got 'nonsense'"),
        ('{"type":"batch","number":NaN}', "expected a JSON object"),
        ("[1]", "message: expected a JSON object with a type, got [1]"),
        ({"type": "grant"}, "message.type: expected one of keys, batch, leave, got 'grant'"),
        ({"type": "keys", "first": 0}, "keys.keys: expected a list of keys, got 'nothing'"),
        ({"type": "keys", "first": 5, "keys": []}, "keys.first: expected 1, the number of keys"),
        (
            {"type": "keys", "first": 1, "keys": [["p", 80]]},
            "expected a key of 1 part(s) (host), got ['p', 80]",
        ),
        (
            {"type": "keys", "first": 1, "keys": [[True]]},
            "expected texts and finite numbers as parts of a key",
        ),
        ({"type": "keys", "first": 1, "keys": [["x"]]}, "'x' is announced twice"),
        ({"number": 2}, "batch.number: expected 1, got 2"),
        ({"rows": {"key": [0], "at": [1], "values": [[1, 2]]}}, "expected 1 number(s) or null in every row"),
        ({"rows": {"key": [0], "at": [1], "values": [["1"]]}}, "expected 1 number(s) or null in every row"),
        ({"rows": {"key": [3], "at": [1], "values": [[1]]}}, "expected numbers of announced keys, below 1"),
        (
            {"rows": {"key": [0], "at": [1, 2], "values": [[1]]}},
            "arrays of one length, got key 1, at 2, values 1",
        ),
        ({"rows": {"key": [0], "at": [1.5], "values": [[1]]}}, "batch.rows.at: expected a list of times"),
        ({"narrowed": {"position": [1], "at": []}}, "batch.narrowed: expected arrays of one length"),
        ({"rows": {"key": [0], "at": [1 << 62], "values": [[1]]}}, "batch.rows.at: expected a list of times"),
        (ridden({"c": ["x"]}), "batch.rows.curve: expected null, or an object of c, s, r and g"),
        (ridden({"c": [1, 2]}), "batch.rows.curve: expected null"),
        (ridden({"s": [None]}), "batch.rows.curve: expected null"),
        (ridden({"g": 1}), "batch.rows.curve: expected null"),
        (ridden({"x": 1}), "batch.rows.curve: expected null"),
        (ridden(5), "batch.rows.curve: expected null"),
        (ridden({"r": [[1, 2]]}), "batch.rows.curve: expected null"),
        (ridden({"r": [[0.5, *CURVE[1:]]]}), "batch.rows.curve: expected null"),
        (ridden({"r": [[5_000, *CURVE[1:]]]}), "batch.rows.curve: expected null"),
        (ridden({"r": [[*CURVE[:-1], -1]]}), "batch.rows.curve: expected null"),
        (ridden({"r": [[*CURVE[:-1], True]]}), "batch.rows.curve: expected null"),
        (ridden({"r": [CURVE, CURVE]}), "batch.rows.curve: expected null"),
        (json.dumps(BATCH | ridden({"c": [7]})).replace("7", "1e999"), "batch.rows.curve: expected null"),
        (
            {"beside": {"key": [0], "curve": [[[1]]]}},
            "batch.beside.curve: expected for every column a lowest",
        ),
        (
            {"beside": {"key": [0], "curve": [CURVE]}},
            "batch.beside.curve: expected for every column a lowest",
        ),
        ({"absent": {"key": [0], "at": [1], "absent": [[0]]}}, "batch.absent.absent: expected for every col"),
        ({"absent": {"key": [0], "at": [1], "absent": [[[-1]]]}}, "batch.absent.absent: expected for every"),
        (
            {"absent": {"key": [0], "at": ["1"], "absent": [[[]]]}},
            "batch.absent.at: expected a list of times",
        ),
        (
            {"absent": {"key": [0], "at": [1], "absent": [[[]]]}},
            "batch.absent.key: expected keys that are sums",
        ),
        ({"caught_up": 1}, "batch.caught_up: expected true or false, got 1"),
        ({"sent": "now"}, "batch.sent: expected a time in microseconds, got 'now'"),
    ],
)
def test_a_malformed_message_is_refused_and_leaves_nothing(
    hub: HubThread, message: dict[str, Any] | str, reason: str
) -> None:
    with CoordinatorClient(hub.url) as coordinator:
        agent = joined_agent(hub.url, "x")
        before = len(coordinator.entries("keys", "batch"))
        if isinstance(message, dict) and "type" not in message:
            message = BATCH | message
        agent.socket.send(message if isinstance(message, str) else json.dumps(message))
        assert reason in agent.refusal()
        assert len(coordinator.entries("keys", "batch")) == before


def test_grants_of_another_agents_keys_are_not_acknowledged(tmp_path: Path, clock: TestClock) -> None:
    own, foreign, refused = [], [], []
    for again in (False, True):
        # what a hub knows of grants outlives it
        with HubThread(tmp_path, clock=clock) as hub, CoordinatorClient(hub.url) as coordinator:
            first = joined_agent(hub.url, "x", "y", incarnation=f"i{again}")
            second = joined_agent(hub.url, "z", agent="b", incarnation=f"i{again}")
            if not again:
                old = coordinator.grant({0: 4.0})["position"]
                made = coordinator.grant({2: 4.0, 0: 2.0})["position"]
                own, foreign = [*old, made[1]], made[:1]
            first.batch(1, {}, narrowed={"position": own, "at": [5] * len(own)})
            first.received(1)
            first.batch(2, {}, narrowed={"position": foreign, "at": [5]})
            refused.append(first.refusal())
            second.batch(1, {}, narrowed={"position": foreign, "at": [5]})
            second.received(1)
            second.close()
    expected = (
        f"batch.narrowed.position: expected positions of grants of the agent's own keys, got {foreign[0]}"
    )
    assert [expected in reason for reason in refused] == [True, True]


def test_grants_are_known_by_their_positions_while_they_are_the_newest() -> None:
    table, rng = GrantTable(2), np.random.default_rng(1)
    newest: dict[int, int] = {}
    position = 1
    for _ in range(300):
        objects = rng.integers(0, 90, int(rng.integers(1, 20)))
        law = {"width": [1.0], "start": [0], "shrink": [0.0], "period": [1]}
        law = {name: value * len(objects) for name, value in law.items()}
        table.set(position, {"key": (objects // 2).tolist(), "column": (objects % 2).tolist(), **law})
        newest |= {int(o): position + place for place, o in enumerate(objects)}
        position += len(objects) + int(rng.integers(0, 3))
        if rng.random() < 0.1:
            frozen, table = table.freeze()(), GrantTable(2)
            table.restore(frozen)
        assert table.of(np.array(list(newest.values()))).tolist() == list(newest)
        others = np.setdiff1d(np.arange(position + 5), list(newest.values()))
        assert (table.of(others) >= 0).sum() < 400


def test_places_of_members_that_a_sum_does_not_have_are_refused(hub: HubThread) -> None:
    with CoordinatorClient(hub.url) as coordinator, joined_agent(hub.url, "x", "y") as agent:
        form = {"agent": "a", "members": [[0, 1]], "scope": [""], "window": [0], "dropped": []}
        [number] = coordinator.ask("form", generation=1, **form)["sums"]
        agent.send("keys", first=2, keys=[{"sum": number}])
        agent.batch(1, {2: 3.0}, absent={"key": [2], "at": [5], "absent": [[[1]]]})
        agent.received(1)
        agent.batch(2, {2: 3.0}, absent={"key": [2], "at": [5], "absent": [[[2]]]})
        assert "batch.absent.absent: expected places below 2, got [[2]]" in agent.refusal()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"key": [7]}, "grant.grants.key: expected numbers below 1, got 7"),
        ({"column": [1]}, "grant.grants.column: expected numbers below 1, got 1"),
        ({"width": [-1]}, "grant.grants.width: expected a list of numbers from 0 on, or null"),
        ({"shrink": [1]}, "grant.grants.shrink: expected a list of numbers from 0 to below 1"),
        ({"period": [0]}, "grant.grants.period: expected a list of microseconds above 0"),
        ({"start": []}, "grant.grants: expected arrays of one length"),
    ],
)
def test_a_wrong_grant_is_refused_and_the_connection_goes_on(
    hub: HubThread, changed: dict[str, Any], reason: str
) -> None:
    with CoordinatorClient(hub.url) as coordinator, joined_agent(hub.url, "x"):
        grants = {"key": [0], "column": [0], "width": [1], "start": [0], "shrink": [0], "period": [1]}
        answer = coordinator.ask("grant", generation=1, grants=grants | changed)
        assert answer["type"] == "refused"
        assert reason in answer["reason"]
        assert not coordinator.entries("grants")


def test_a_binary_frame_is_refused(hub: HubThread) -> None:
    with Client(hub.url) as client:
        client.socket.send(b"\x00\x01")
        assert "expected JSON in a text frame" in client.refusal()


def test_a_page_in_a_browser_is_refused(hub: HubThread) -> None:
    from websockets.sync.client import connect

    with pytest.raises(InvalidStatus, match="403"):
        connect(hub.url, origin="https://example.org", proxy=None, legacy=True)  # type: ignore[arg-type]


def test_without_a_token_only_this_machine_is_served(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"'0\.0\.0\.0' is open to others"):
        Hub(tmp_path, host="0.0.0.0")


# --- load and trouble


def test_a_directory_has_one_hub_before_it_holds_a_stream_too(tmp_path: Path) -> None:
    with HubThread(tmp_path):
        for _ in range(2):
            with pytest.raises(StateError, match="is in use: another hub writes its log there"):
                HubThread(tmp_path).__enter__()
    first = HubThread(tmp_path)
    first.__enter__()
    first.crash()
    with HubThread(tmp_path) as hub, CoordinatorClient(hub.url) as coordinator:
        assert coordinator.welcome["type"] == "welcome"


def test_a_slow_agent_gets_only_the_newest_grant_of_each_object(hub: HubThread) -> None:
    with CoordinatorClient(hub.url) as coordinator, joined_agent(hub.url, "x", "y") as agent:
        rounds = 300
        for width in range(1, rounds + 1):
            coordinator.grant({0: float(width), 1: float(width)})
        newest: dict[int, float] = {}
        was: dict[int, float] = {}
        seen = last = 0
        while newest != {0: float(rounds), 1: float(rounds)}:
            told = agent.hear("grants")
            assert told["position"] == sorted(told["position"])
            assert told["position"][0] > last
            last = told["position"][-1]
            newest |= dict(zip(told["key"], told["width"], strict=True))
            seen += len(told["key"])
            # what was skipped is said, of all that was skipped and of nothing else
            before = {key: told["width"][n] - was.get(key, 0.0) for n, key in enumerate(told["key"])}
            assert [told["key"][n] for n in told.get("skipped", [])] == [
                k for k, b in before.items() if b > 1
            ]
            was = dict(newest)
        assert seen <= 2 * rounds
        assert coordinator.ask("status")["grants_queued"] == 0


def test_status_counts(hub: HubThread) -> None:
    with CoordinatorClient(hub.url) as coordinator, joined_agent(hub.url, "x", "y") as agent:
        agent.batch(1, {0: 1.0})
        agent.received(1)
        status = coordinator.ask("status")
        assert (status["agents"], status["keys"], status["messages_up"]) == (1, 2, 2)
        assert status["messages_down"] >= 3, "a welcome, grants and an acknowledgement"
        assert status["bytes_up"] > 0
        assert status["unwritten_bytes"] == 0
        assert status["log_bytes"] > 0


def test_streams_have_logs_of_their_own(hub: HubThread) -> None:
    with CoordinatorClient(hub.url) as hosts:
        with Client(hub.url) as other:
            hello = {"type": "hello", "role": "coordinator", "version": 1, "stream": "ports"}
            other.socket.send(json.dumps(hello | {"declared": HOSTS.message()}))
            assert other.hear()["generation"] == 1
        assert [e["kind"] for e in hosts.entries()] == ["generation", "declared"]


def test_a_silent_agent_that_is_gone_is_noticed_by_pings(tmp_path: Path) -> None:
    with HubThread(tmp_path, ping_s=0.1) as hub, CoordinatorClient(hub.url) as coordinator:
        agent = joined_agent(hub.url, "x")
        agent.batch(1, {0: 1.0})
        agent.received(1)
        [batch] = coordinator.entries("batch")
        deadline = time.monotonic() + 20
        # a living one answers pings: its last sign of life is later than its last message
        while True:
            status = coordinator.ask("status")
            if status["time"] - batch["received"] > SECOND // 2:
                break
            assert time.monotonic() < deadline
        assert not coordinator.entries("lost")
        # its socket stays open, and nobody answers any more
        agent.socket.protocol.receive_data = lambda data: None  # type: ignore[method-assign]
        while not (lost := coordinator.entries("lost")):
            assert time.monotonic() < deadline
        assert lost[0]["since"] > batch["received"]
        agent.cut()


def test_a_log_that_cannot_be_written_stops_the_hub_and_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = HubThread(tmp_path)
    hub.__enter__()
    with CoordinatorClient(hub.url):
        agent = joined_agent(hub.url, "x")

        def full(*_: object) -> None:
            raise OSError(28, os.strerror(28))

        monkeypatch.setattr("slackwater.edge.log.Log.write", full)
        agent.batch(1, {0: 1.0})
        # the connection ends, or the hub says why; an acknowledgement does not come
        with pytest.raises((ConnectionClosed, AssertionError)):
            agent.received(1)
    with pytest.raises(StateError, match=r"cannot write the log of stream 'hosts'.*No space left"):
        hub.__exit__(None, None, None)


def test_a_thousand_agents(tmp_path: Path) -> None:
    entries = asyncio.run(asyncio.wait_for(_crowd(tmp_path, 1_000), 120))
    assert len(entries) == 1_000
    assert sorted(e["key"][0] for e in entries) == list(range(1_000))


async def _crowd(directory: Path, size: int) -> list[dict[str, Any]]:
    """So many agents with one key each: all connect, get a grant and send a row; gives the batches logged."""
    options: dict[str, Any] = {"compression": None, "proxy": None, "max_size": None}
    async with Hub(directory) as hub, connect_async(hub.url, **options) as coordinator:
        await _tell(
            coordinator, type="hello", role="coordinator", version=1, stream="s", declared=HOSTS.message()
        )
        await _hear(coordinator, "welcome")
        limit = asyncio.Semaphore(200)
        announced = asyncio.Barrier(size + 1)
        agents = [asyncio.create_task(_member(hub.url, n, limit, announced)) for n in range(size)]
        await announced.wait()
        every = list(range(size))
        grants = {"key": every, "column": [0] * size, "width": [1.0] * size, "start": [0] * size}
        grants |= {"shrink": [0.0] * size, "period": [1] * size}
        await _tell(coordinator, type="grant", id=1, generation=1, grants=grants)
        assert (await _hear(coordinator, "granted"))["position"][0] > 0
        await asyncio.gather(*agents)
        await _tell(coordinator, type="end", id=2)
        end = await _hear(coordinator, "end")
        await _tell(coordinator, type="read", id=3, to=end["position"], limit=100_000, **{"from": 1})
        entries: list[dict[str, Any]] = (await _hear(coordinator, "entries"))["entries"]
    return [entry for entry in entries if entry["kind"] == "batch"]


async def _member(url: str, number: int, limit: asyncio.Semaphore, announced: asyncio.Barrier) -> None:
    options: dict[str, Any] = {"compression": None, "proxy": None, "ping_interval": None, "open_timeout": 60}
    await limit.acquire()
    async with connect_async(url, **options) as socket:
        hello = {"role": "agent", "version": 1, "stream": "s", "agent": f"a{number}", "incarnation": "i"}
        await _tell(socket, type="hello", applied=0, **hello)
        await _hear(socket, "welcome")
        await _tell(socket, type="keys", first=0, keys=[[f"k{number}"]])
        while (await _hear(socket, "grants"))["keys"] < 1:
            pass
        limit.release()
        await announced.wait()
        assert (await _hear(socket, "grants"))["width"] == [1.0]
        rows = {"key": [0], "at": [1], "values": [[float(number)]]}
        await _tell(socket, type="batch", number=1, sent=1, rows=rows)
        await _hear(socket, "received")


async def _tell(socket: Any, **message: Any) -> None:
    await socket.send(json.dumps(message))


async def _hear(socket: Any, kind: str) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(await socket.recv())
    assert message["type"] == kind, message
    return message


def test_an_agent_that_joined_before_the_declaration_keeps_its_incarnation(tmp_path: Path) -> None:
    with HubThread(tmp_path) as hub:
        agent = AgentClient(hub.url)
        agent.welcome()
        with CoordinatorClient(hub.url):
            agent.hear("declare")
            agent.keys("x")
            agent.batch(1, {0: 1.0})
            agent.received(1)
        hub.crash()
    with HubThread(tmp_path) as hub, AgentClient(hub.url) as again:
        welcome = again.welcome()
        assert (welcome["received"], welcome["keys"]) == (1, 1)


def test_who_comes_and_goes_is_told_and_what_they_say_is_not(
    hub: HubThread, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "slackwater.edge")
    with CoordinatorClient(hub.url) as coordinator:
        agent = joined_agent(hub.url, "x", "y")
        for number in range(1, 4):
            agent.batch(number, {0: float(number)})
            agent.received(number)
        coordinator.grant({0: 1.0})
        agent.cut()
        again = AgentClient(hub.url)
        again.welcome()
        again.send("leave")
        again.close()
        while len(coordinator.entries("lost")) < 2:
            pass
    with CoordinatorClient(hub.url, Declared(("host", "port"), ("load", "free"))) as coordinator:
        assert coordinator.welcome["generation"] == 2
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.INFO] == [
        "stream hosts: a coordinator has taken over, generation 1",
        "stream hosts: declared with key host and values load",
        "stream hosts: agent 'a' has joined",
        "stream hosts: agent 'a' is lost",
        "stream hosts: agent 'a' has joined again, with 2 key(s)",
        "stream hosts: agent 'a' has left",
        "stream hosts: a coordinator has taken over, generation 2",
        "stream hosts: declared with key host, port and values load, free",
    ]


def told(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_who_is_refused_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with HubThread(tmp_path, token="secret") as hub, CoordinatorClient(hub.url, token="secret"):
        for _ in range(2):
            with AgentClient(hub.url, token="wrong") as stranger:
                stranger.refusal()
            with AgentClient(hub.url, token="secret") as agent:
                agent.welcome()
                agent.send("nonsense")
                agent.refusal()
        first = AgentClient(hub.url, token="secret")
        first.welcome()
        with AgentClient(hub.url, incarnation="i2", token="secret") as second:
            second.welcome()
            first.refusal()
    token, kind, replaced = told(caplog)
    assert token.startswith("refused 127.0.0.1: the token is wrong")
    assert "secret" not in token
    assert kind.startswith(
        "refused agent 'a' of stream hosts at 127.0.0.1: message.type: expected one of keys"
    )
    assert replaced.endswith("two agents need two names")


def test_refusals_fill_neither_log_nor_memory(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "REMEMBERED", 3)
    now = [0.0]
    known = refusals.Refusals(lambda: now[0])
    for number in range(10):
        known.tell("h1", f"reason {number}")
    assert len(told(caplog)) == 4
    assert told(caplog)[-1].startswith("so many were refused that no more are told")
    now[0] = refusals.AGAIN_S
    known.tell("h1", "another")
    assert told(caplog)[-1] == "refused h1: another"


@pytest.mark.parametrize(
    ("off", "how"), [(3, "3.0 s ahead of the hub's;"), (-2, "2.0 s behind the hub's, or")]
)
def test_a_clock_that_is_off_is_told_once_a_connection(
    hub: HubThread, clock: TestClock, caplog: pytest.LogCaptureFixture, off: int, how: str
) -> None:
    with CoordinatorClient(hub.url), joined_agent(hub.url, "x") as agent:
        # within a second, and sent again after long: neither says anything about a clock
        agent.batch(1, {0: 1.0}, at=clock() + SECOND)
        agent.batch(2, {0: 1.0}, at=clock() - 60 * SECOND)
        agent.batch(3, {0: 1.0}, at=clock() - SECOND, caught_up=True)
        agent.received(3)
        assert told(caplog) == []
        for number in (4, 5):
            agent.batch(number, {0: 1.0}, at=clock() + off * SECOND)
        agent.received(5)
        [said] = told(caplog)
        assert said.startswith(f"stream hosts: the clock of agent 'a' is {how}")


def test_sums_are_no_keys_where_keys_are_counted(hub: HubThread, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "slackwater.edge")
    with CoordinatorClient(hub.url) as coordinator:
        agent = joined_agent(hub.url, "x", "y")
        form = {"agent": "a", "members": [[0, 1]], "scope": [""], "window": [0], "dropped": []}
        [number] = coordinator.ask("form", generation=1, **form)["sums"]
        agent.send("keys", first=2, keys=[{"sum": number}])
        while len(coordinator.entries("keys")) < 2:
            pass
        agent.cut()
        with AgentClient(hub.url) as again:
            assert again.welcome()["keys"] == 3
        while len(coordinator.entries("lost")) < 2:
            pass
        with OperatorLink(hub.url, "hosts") as operator:
            assert operator.withdraw("a") == (2, False)
    news = told(caplog, logging.INFO)
    assert "stream hosts: agent 'a' has joined again, with 2 key(s)" in news
    assert "stream hosts: 2 key(s) of agent 'a' are forgotten" in news
