"""Times that are not what they should be: clocks that are off, rows that never come, a driver long away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from edge_clients import HOSTS, PATIENCE_S, TestClock
from precision_entries import PERIOD, T, batch, bounded_mirror, grant
from precision_world import SECOND, World
from slackwater.edge.agent import Agent
from slackwater.edge.agent_state import AgentState
from slackwater.edge.coordinator_link import CoordinatorLink
from slackwater.edge.hub_thread import HubThread
from slackwater.edge.widths import Grants
from slackwater.runtime.bounds import mirror as mirrors
from slackwater.runtime.bounds.mirror import Mirror
from slackwater.runtime.bounds.weighing import Weighed
from waiting import wait_for

HOUR = 3600 * SECOND


def ends(mirror: Mirror, at: int) -> list[tuple[float, float]]:
    low, high = mirror.belief.bounds(slice(None), at)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def carried(mirror: Mirror, time: int) -> None:
    for _ in mirror.advance(time):
        """All up to then."""


# clocks


def test_what_a_clock_far_ahead_says_holds_from_when_it_was_received() -> None:
    ahead = batch(12, "x", [(0, T[6] + HOUR, 50.0)], received=T[6])
    near = batch(13, "x", [(1, T[8], 70.0)], received=T[7])
    mirror = bounded_mirror(ahead, near)
    carried(mirror, T[7] + SECOND // 2)
    assert ends(mirror, T[7]) == [(48.0, 52.0), (18.0, 22.0)], "a clock may be ahead by the tolerance"
    assert mirror.queue.late == 1
    carried(mirror, T[9])
    assert ends(mirror, T[8])[1] == (68.0, 72.0)


def test_where_a_bound_is_that_moves_by_a_clock_far_ahead_nobody_knows() -> None:
    moving = {"curve": [{"c": [50.0], "s": [1.0]}]}
    for at, known in ((T[6] + HOUR, False), (T[6], True)):
        mirror = bounded_mirror(batch(12, "x", [(0, at, 50.0)], received=T[6], **moving))
        carried(mirror, T[9])
        low, high = ends(mirror, T[8])[0]
        assert (np.isfinite(low) and np.isfinite(high)) == known


def grant_all(link: CoordinatorLink, width: float, keys: int) -> None:
    zero = np.zeros(keys, np.int64)
    law = (np.full(keys, width), zero, np.zeros(keys), np.full(keys, PERIOD))
    link.grant(Grants(np.arange(keys), zero, *law))


def logged(link: CoordinatorLink, kind: str) -> list[dict[str, Any]]:
    entries, _ = link.read(1, link.end().position)
    return [entry for entry in entries if entry["kind"] == kind]


def test_an_agent_whose_clock_is_set_back_begins_anew(tmp_path: Path) -> None:
    hubs, own = TestClock(), TestClock(now=1_000 * SECOND + HOUR)
    with (
        HubThread(tmp_path / "hub", clock=hubs) as hub,
        CoordinatorLink(hub.url, "hosts", HOSTS) as link,
        Agent("hosts", hub=hub.url, name="a", clock=own, random=lambda: 0.0) as agent,
    ):
        agent.update("x", 5.0)
        wait_for(lambda: bool(logged(link, "keys")), seconds=PATIENCE_S)
        grant_all(link, 8.0, 1)
        # a batch without rows may come first
        wait_for(lambda: any(b["at"] for b in logged(link, "batch")), seconds=PATIENCE_S)
        own.advance(-HOUR)
        # within its bound: told all the same, by a process that knows of no bound
        agent.update("x", 5.5)
        wait_for(lambda: len(logged(link, "joined")) == 2, seconds=PATIENCE_S)
        wait_for(lambda: agent.flush(0.1), seconds=PATIENCE_S)
        rows = [(at, v[0]) for b in logged(link, "batch") for at, v in zip(b["at"], b["values"], strict=True)]
        assert rows == [(1_000 * SECOND + HOUR, 5.0), (1_000 * SECOND, 5.5)]
        assert len({entry["incarnation"] for entry in logged(link, "joined")}) == 2
        # and it goes on by the time that is right
        own.advance(SECOND)
        agent.update("x", 99.0)
        assert agent.flush(PATIENCE_S)
        assert logged(link, "batch")[-1]["at"] == [1_001 * SECOND]


# rows that never come


def test_what_was_superseded_is_told_and_all_is_caught_up_after_it() -> None:
    state = AgentState(outbox_limit=4)
    message = {"received": 0, "keys": 0, "log": "log", "declared": HOSTS.message(), "time": T[0]}
    assert state.welcome(message, T[0])
    state.offer("x", 0.0, T[0])
    state.grants(
        {
            "key": [0],
            "column": [0],
            "width": [0.0],
            "position": [9],
            "start": [T[0]],
            "shrink": [0.0],
            "period": [PERIOD],
            "keys": 1,
        },
        T[0],
    )
    first = [state.next_message(T[0]) for _ in range(2)]
    assert [m and m.get("caught_up") for m in first] == [None, True]
    for n in range(1, 7):
        state.offer("x", float(n), T[n])
    batches = []
    while (told := state.next_message(T[9])) is not None:
        batches.append(told)
    # of the first five rows the last has stayed
    assert [(b.get("superseded"), b.get("missing"), b["rows"]["at"]) for b in batches] == [
        (4, T[1], [T[5], T[6]])
    ]
    assert batches[0]["caught_up"]


def test_nobody_vouches_for_what_was_superseded() -> None:
    told = batch(12, "x", [(0, T[8], 30.0)], received=T[8], superseded=3, missing=T[6])
    mirror = bounded_mirror(told)
    carried(mirror, T[5])
    assert ends(mirror, T[4]) == [(8.0, 12.0), (18.0, 22.0)]
    carried(mirror, T[9])
    assert ends(mirror, T[8]) == [(-np.inf, np.inf)] * 2
    assert mirror.queue.late == 3, "what never comes is late, if it would have been"
    mirror.take(batch(13, "x", [], received=T[9], caught_up=True))
    carried(mirror, T[11])
    assert ends(mirror, T[10]) == [(28.0, 32.0), (18.0, 22.0)]


# a driver that was away for long


def test_where_moving_bounds_were_while_nobody_looked_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrors, "AT_MOST", 5)
    moving = batch(12, "x", [(0, T[4], 10.0)], received=T[4], curve=[{"c": [10.0], "s": [2.0]}])
    for others in (False, True):
        # what shrinks by itself meanwhile does so at the same times
        shrinking = [grant(13, T[4], 4.0, key=1, shrink=0.5)] if others else []
        mirror = bounded_mirror(moving, *shrinking)
        carried(mirror, T[6])
        seen = {at: ends(mirror, at) for at, _ in mirror.advance(T[60])}
        times = sorted(seen)
        assert [at for at in times if seen[at][0] == (-np.inf, np.inf)] == [times[-2]]
        assert all(np.isfinite(seen[at][1]).all() for at in times), "what stands is known at all times"
        # each look holds until the next: the one after the open one is the last before what was released
        assert times[-1] == mirror.queue.released
        assert seen[times[-1]][0] == (8.0 + 2 * 55, 12.0 + 2 * 55)


# keys that are announced


@pytest.mark.parametrize("sums", ["never", "measured"])
def test_answers_do_not_keep_their_contract_while_keys_have_told_nothing(sums: str) -> None:
    world = World(4, sums=sums)
    for site in world.sites:
        for _ in range(4):
            world.add_key(site)
    world.ask("plain", 40)
    world.ask("racks", 30)
    world.start_batches()
    world.run(30)
    assert all(not said.met for said in world.said if world.awaits(said))
    some = [said for said in world.said if said.query == "plain" and said.rows < 12]
    assert some
    assert not any(said.met for said in some)
    assert all(said.met for said in world.said[-10:])


# numbers at their ends


def weighed(weights: list[float], constant: float, *, least: bool | None = None) -> Weighed:
    extreme = None if least is None else np.array([least])
    matrix = csr_array(np.array([weights]))
    # of extremes both are kept, the same or not
    others = None if least is None else matrix.copy()
    return Weighed(matrix, np.array([constant]), least=extreme, others=others)


ROW = np.zeros(1, np.int64)


@pytest.mark.parametrize(
    ("weights", "constant", "values", "least", "exact"),
    [
        ([1.0, 1.0, 1.0], 0.0, [3.0, 4.0, 1e15], None, True),
        ([2.0, -3.0], 7.0, [3.0, 4.0], None, True),
        ([1.0, 1.0], 0.0, [0.1, 0.2], None, False),
        ([1.0, 1.0], 0.0, [2.0**53, 1.0], None, False),
        ([1.0], 0.0, [0.1], None, True),
        ([-1.0], 0.0, [0.1], None, True),
        ([3.0], 0.0, [0.1], None, False),
        # products that are rounded to whole numbers are none
        ([3.0, 1.0], 0.0, [1 / 3, 2.0], None, False),
        ([0.1, 1.0], 0.0, [10.0, 2.0], None, False),
        ([1.0], 0.3, [0.1], None, False),
        ([1.0, 1.0], 0.0, [0.1, 0.7], True, True),
        ([1.0, -1.0], 0.0, [0.1, 0.7], False, True),
        ([1.0, 0.3], 0.0, [0.1, 0.7], False, False),
    ],
)
def test_what_is_known_without_width_is_exact_where_floats_are(
    weights: list[float], constant: float, values: list[float], least: bool | None, exact: bool
) -> None:
    at = np.array(values)
    low, high = weighed(weights, constant, least=least).ends(ROW, at, at)
    assert (low[0] == high[0]) == exact
    assert low[0] <= high[0]


@pytest.mark.parametrize("least", [None, True])
def test_what_is_beyond_all_floats_has_no_interval(least: bool | None) -> None:
    large = np.array([1.7e308, 1.7e308])
    found = weighed([2.0, 2.0], 0.0, least=least).ends(ROW, large, large)
    assert [end.tolist() for end in found] == [[-np.inf], [np.inf]]
    # that there is no value is another thing
    none = weighed([2.0, 2.0], np.nan, least=least).ends(ROW, large / 4, large / 4)
    assert np.isnan(none).all()
