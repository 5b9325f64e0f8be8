"""What users give an agent: keys with awkward texts, numbers of all sizes, times; and what that costs."""

from __future__ import annotations

import json
import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_clients import HOSTS, PATIENCE_S, SECOND, AgentClient, CoordinatorClient, TestClock
from slackwater.edge.agent import Agent
from slackwater.edge.agent_state import AgentState
from slackwater.edge.clock import SteadyClock
from slackwater.edge.hub_thread import HubThread
from slackwater.edge.keys import Keys
from slackwater.edge.messages import BadMessage, Declared, decode, number
from slackwater.edge.outbox import Outbox
from slackwater.edge.rows import Rows

NOW = 1_000 * SECOND
WIDE = Declared(("host",), ("load", "free"))

AWKWARD: list[Any] = [
    "",
    " ",
    "a\x00b",
    "a\nb",
    "\u2028",
    "é",
    "e\u0301",
    "🦀",
    'say "x"',
    "\\ud800",
    "1",
    1,
    1.5,
    -1,
    (1 << 63) - 1,
    -(1 << 63),
    1e300,
    5e-324,
    "t",
    "x" * 4_096,
]


def declared(shape: Declared = HOSTS, limit: int = 10_000) -> AgentState:
    state = AgentState(outbox_limit=limit)
    hub = {"received": 0, "keys": 0, "log": "log", "declared": shape.message(), "time": NOW}
    assert state.welcome(hub, NOW)
    return state


def granted(state: AgentState, count: int, width: float = 1.0, position: int = 1, now: int = NOW) -> None:
    things = range(count * state.filters.columns)
    columns = state.filters.columns
    message: dict[str, Any] = {"key": [t // columns for t in things], "column": [t % columns for t in things]}
    message |= {"position": [position + t for t in things], "width": [width] * len(things)}
    message |= {"start": [now] * len(things), "shrink": [0.0] * len(things), "period": [SECOND] * len(things)}
    state.grants(message, now)


def batches(state: AgentState) -> list[dict[str, Any]]:
    found = []
    while (message := state.next_message(NOW)) is not None:
        if message["type"] == "batch":
            state.outbox.acknowledge(message["number"])
            found.append(message)
    return found


# --- keys


def test_keys_are_numbered_as_a_dict_would() -> None:
    rng = np.random.default_rng(1)
    pool: list[Any] = [
        *AWKWARD,
        *(f"host-{n}" for n in range(3_000)),
        *range(-500, 500),
        *np.arange(0, 9, 0.5),
    ]
    keys, plain = Keys(), {}
    for place in rng.integers(0, len(pool), 12_000).tolist():
        key = pool[place]
        assert keys.find(key) == plain.get(key)
        assert keys.number(key) == plain.setdefault(key, len(plain))
        assert len(keys) == len(plain)
    told = keys.message(0)["keys"]
    assert [key for [key] in told] == list(plain), "the names that the hub hears are the same"
    assert keys.message(len(plain) - 1)["keys"] == [[list(plain)[-1]]]


def test_numbers_that_are_equal_are_one_key() -> None:
    keys = Keys()
    for one, other in ((1, 1.0), (0, -0.0), (1 << 53, 2.0**53), ((1 << 62), 2.0**62)):
        assert keys.number(one) == keys.number(other)
        assert keys.number(("x", one)) == keys.number(("x", other))
    assert keys.number("1") != keys.number(1)
    assert keys.number(("1",)) != keys.number((1,))


def test_awkward_keys_reach_the_hub_as_they_are(tmp_path: Path) -> None:
    with HubThread(tmp_path) as hub, CoordinatorClient(hub.url):
        with Agent("hosts", hub=hub.url, name="a") as agent:
            assert agent.declared(PATIENCE_S)
            agent.update_many(AWKWARD, [1.0] * len(AWKWARD))
            assert agent.flush(PATIENCE_S)
            assert not agent.trouble
        assert hub._hub.streams["hosts"].registry.names == AWKWARD


@pytest.mark.parametrize(
    "key", ["\ud800", "a\udfffb", 1 << 63, 10**400, math.nan, math.inf, None, b"x", ["x"]]
)
def test_keys_that_cannot_be_written_are_refused_at_once(key: Any) -> None:
    state = declared()
    with pytest.raises(ValueError, match="expected a key of one part, a text or number"):
        state.offer(key, 1.0, NOW)
    assert state.keys == 0
    with pytest.raises(ValueError, match="expected a key"):
        AgentState(outbox_limit=1).offer(["x"], 1.0, NOW)


def test_what_cannot_be_written_is_refused_by_the_hub_and_harms_nobody(tmp_path: Path) -> None:
    with HubThread(tmp_path) as hub, CoordinatorClient(hub.url):
        for key in ("\ud800", 10**400, 1 << 63):
            with AgentClient(hub.url) as agent:
                agent.welcome()
                agent.send("keys", first=0, keys=[[key]])
                assert "expected" in agent.refusal()
        with AgentClient(hub.url) as agent:
            agent.welcome()
            agent.keys("x")
            agent.send("batch", number=1, sent=NOW, rows={"key": [0], "at": [NOW], "values": [[10**400]]})
            assert "batch.rows.values: expected 1 number(s) or null" in agent.refusal()
        with AgentClient(hub.url) as agent:
            agent.welcome()
            agent.keys("y")


def test_texts_of_messages_are_such_as_can_be_written() -> None:
    assert decode('{"type":"x","a":"\\ud83e\\udd80"}')["a"] == "🦀"
    assert decode('{"type":"x","a":"\\\\ud800"}')["a"] == "\\ud800"
    with pytest.raises(BadMessage, match="surrogates come in pairs"):
        decode('{"type":"x","a":{"b":["\\uD800"]}}')
    assert not number(10**400)
    assert number(10**300)


# --- values


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ((1 << 53) + 1, "expected a number that a double can hold, got 9007199254740993"),
        (np.int64((1 << 53) + 1), "expected a number that a double can hold"),
        (10**400, "expected a finite number"),
        (-math.inf, "expected a finite number, got -inf"),
        (np.float32(np.inf), "expected a finite number"),
        (1j, "expected a number, or None for no value"),
        (np.complex128(1), "expected a number, or None for no value"),
    ],
)
def test_numbers_that_a_bound_cannot_hold_are_refused(value: Any, reason: str) -> None:
    state = declared()
    for offer in (
        lambda: state.offer("x", value, NOW),
        lambda: state.offer_many(["x", "y"], [1.0, value], NOW),
    ):
        with pytest.raises(ValueError) as error:
            offer()
        assert reason in str(error.value)
    assert (state.keys, state.offered) == (0, 0)


def test_arrays_are_looked_at_as_closely_as_single_values() -> None:
    state = declared(WIDE)
    refused: list[tuple[Any, str]] = [
        (np.array([[1.0, np.inf]]), "expected finite numbers, or NaN for no value"),
        (np.array([[1, (1 << 53) + 1]]), "expected a number that a double can hold"),
        (np.array([[1, (1 << 64) - 1]], np.uint64), "expected a number that a double can hold"),
        (np.array([1.0, 2.0]), "expected an array of 1 rows and 2 columns, got (2,)"),
        (np.array([["1", "2"]]), "expected a mapping with the columns"),
        ([{"load": 1}, {"load": 2}], "expected as many values as keys, 1, got 2"),
    ]
    for values, reason in refused:
        with pytest.raises(ValueError) as error:
            state.offer_many(["x"], values, NOW)
        assert reason in str(error.value)
    assert (state.keys, state.offered) == (0, 0)
    state.offer_many(["x", "y"], np.array([[1, 1 << 60], [2, -3]]), NOW)
    granted(state, 2)
    [batch] = batches(state)
    assert batch["rows"]["values"] == [[1.0, float(1 << 60)], [2.0, -3.0]]


def test_a_key_that_comes_twice_keeps_what_each_of_its_values_says() -> None:
    state = declared(WIDE)
    state.offer_many(["x", "x", "x"], [{"load": 1}, {"free": 2}, {"load": 3}], NOW)
    granted(state, 1)
    assert batches(state)[0]["rows"]["values"] == [[3.0, 2.0]]


def test_values_come_and_go() -> None:
    state = declared()
    state.offer("x", math.nan, NOW)
    granted(state, 1)
    # that there is none is told where somebody asks
    assert [v for batch in batches(state) for v in batch["rows"]["values"]] == [[None]]
    for value in (1.0, None, math.nan, 1.0):
        state.offer("x", value, NOW)
    assert [v for batch in batches(state) for v in batch["rows"]["values"]] == [[1.0], [None], [1.0]]


# --- times


def test_times_of_values_are_whole_and_not_to_come() -> None:
    clock = TestClock()
    agent = Agent("hosts", hub="ws://127.0.0.1:1", name="a", clock=clock)
    agent._state.declare(HOSTS, clock())
    for wrong in (1.5, "now", True, -1):
        with pytest.raises(ValueError, match="expected a time in whole microseconds since the epoch"):
            agent.update("x", 1.0, at=wrong)  # type: ignore[arg-type]
    agent.update("x", 0.0)
    granted(agent._state, 1, now=clock())
    batches(agent._state)

    def told() -> list[tuple[int, float]]:
        rows = [batch["rows"] for batch in batches(agent._state)]
        return [(at, v[0]) for r in rows for at, v in zip(r["at"], r["values"], strict=True)]

    start = clock()
    clock.advance(10)
    agent.update("x", 5.0, at=start + 4)
    agent.update("x", 9.0, at=np.int64(start + 2))
    assert told() == [(start + 4, 5.0), (start + 4, 9.0)], "what comes late does not go before"
    agent.update("x", 20.0, at=10**18)
    assert told() == [(start + 10, 20.0)], "nothing is known of what is to come"
    clock.advance(-8)
    agent.update("x", 30.0)
    assert told() == [(start + 10, 30.0)], "a clock that is set back stands"
    clock.advance(9)
    agent.update("x", 40.0)
    assert told() == [(start + 11, 40.0)]


def test_a_clock_that_is_set_back_far_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    times = iter([10 * SECOND, 5 * SECOND, 6 * SECOND, 11 * SECOND, 2 * SECOND])
    clock = SteadyClock(lambda: next(times))
    assert [clock() for _ in range(5)] == [10 * SECOND] * 3 + [11 * SECOND] * 2
    assert [record.message for record in caplog.records] == [
        "the clock was set back by 5.0 s",
        "the clock was set back by 9.0 s",
    ]


def test_grants_that_come_again_change_nothing() -> None:
    state = declared()
    state.offer("x", 5.0, NOW)
    granted(state, 1, 2.0, position=7)
    assert batches(state)[0]["narrowed"]["position"] == [7]
    state.offer("x", 5.5, NOW + 1)
    for _ in range(2):
        granted(state, 1, 2.0, position=7, now=NOW + 2)
        assert not batches(state)
    assert state.applied == 7


def test_after_a_long_sleep_all_is_made_up_for_at_once() -> None:
    state = declared()
    state.offer("x", 0.0, NOW)
    message = {"key": [0], "column": [0], "position": [1], "width": [8.0], "start": [NOW]}
    state.grants(message | {"shrink": [0.5], "period": [SECOND]}, NOW)
    state.offer("x", 3.9, NOW)
    batches(state)
    year = 365 * 86_400 * SECOND
    state.offer("x", 3.9, NOW + year)
    [batch] = batches(state)
    assert batch["rows"]["at"] == [NOW + SECOND], "as of when it left its bound"
    assert state.next_review() == NOW + year + SECOND


# --- what it costs


def test_a_key_costs_an_agent_some_hundred_bytes() -> None:
    keys = 1 << 15

    def names(first: int) -> list[str]:
        return [f"host-{n:07d}" for n in range(first, first + 4_096)]

    state = declared()
    rng = np.random.default_rng(1)
    tracemalloc.start()
    try:
        for _ in range(2):
            for first in range(0, keys, 4_096):
                state.offer_many(names(first), rng.normal(0, 1, 4_096), NOW)
        offered = tracemalloc.get_traced_memory()[0] / keys
        assert offered < 140
        granted(state, keys, 4.0)
        while batches(state):
            pass
        for second in range(1, 4):
            for first in range(0, keys, 4_096):
                state.offer_many(names(first), rng.normal(0, 1, 4_096), NOW + second * SECOND)
            batches(state)
        assert tracemalloc.get_traced_memory()[0] / keys < 400
    finally:
        tracemalloc.stop()


def test_rows_that_wait_one_by_one_are_put_together() -> None:
    outbox = Outbox(columns=1, limit=100_000)
    one = np.ones((1, 1))
    for key in range(5_000):
        outbox.put(Rows(np.array([key]), np.array([NOW]), one * key, one, one))
    assert outbox.waiting == 5_000
    assert outbox._waiting.blocks == 1
    found: list[int] = []
    while (batch := outbox.next_batch(NOW)) is not None:
        found += json.loads(json.dumps(batch.message()["rows"]["key"]))
        outbox.acknowledge(batch.number)
    assert found == list(range(5_000))


def test_what_is_left_of_many_rows_is_put_together() -> None:
    outbox = Outbox(columns=1, limit=1_000)
    for turn in range(40):
        keys = np.append(np.arange(300), 1_000 + turn)
        values = np.full((301, 1), float(turn))
        outbox.put(Rows(keys, np.full(301, NOW), values, values, 0 * values))
    assert outbox.waiting <= 1_000
    assert outbox._waiting.blocks == 1
    found = [batch.message()["rows"] for batch in iter(lambda: outbox.next_batch(NOW), None)]
    last = {key: v[0] for rows in found for key, v in zip(rows["key"], rows["values"], strict=True)}
    assert last == {**dict.fromkeys(range(300), 39.0), **{1_000 + turn: float(turn) for turn in range(40)}}
