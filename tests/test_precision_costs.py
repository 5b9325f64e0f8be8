"""What messages of agents cost: dearer ones have the wider bounds, and the log says what they cost."""

from __future__ import annotations

import json

import numpy as np
import pytest

from precision_world import World
from slackwater.runtime.bounds.mirror import Mirror
from slackwater.runtime.bounds.seen import AgentSeen
from slackwater.runtime.bounds.showing import Rates, described


def walking(allocation: str, seed: int = 21) -> World:
    """Two sites with keys that wander alike; the messages of the second cost more."""
    world = World(seed, allocation=allocation, sites=2, follow=True, sums="never")
    world.sites[1].cost = 30.0
    for site in world.sites:
        for _ in range(3):
            key = world.add_key(site)
            world._walks[key] = ((2.0, 2.0), (0.0, 0.0), (10.0, 10.0))
    world.ask("plain", 30)
    world.start_batches()
    return world


def by_site(world: World) -> list[float]:
    """The mean width of the first column, by site."""
    mirror = world.driver.mirror
    widths = mirror.belief.widths(slice(None), world.now).reshape(-1, 2)[:, 0]
    places = [mirror.agents[site.name].place for site in world.sites]
    return [float(widths[mirror.owner == place].mean()) for place in places]


@pytest.mark.parametrize("allocation", ["curves", "burden"])
def test_dear_agents_get_the_wider_bounds(allocation: str) -> None:
    world = walking(allocation)
    world.run(150)
    cheap, dear = by_site(world)
    assert dear > 1.5 * cheap
    assert [s for s in world.said if world.wrong(s) and not world.excused(s)] == []


def test_costs_outlive_the_driver_and_go_by_the_last_process() -> None:
    world = walking("curves")
    world.run(10)
    again = world.driver.again()
    expected = np.repeat(np.where(again.mirror.owner == again.mirror.agents["site1"].place, 30.0, 1.0), 2)
    np.testing.assert_array_equal(again.mirror.costs(), expected)
    np.testing.assert_array_equal(world.driver.mirror.costs(), expected)
    # the same agent, started again at another cost
    world.sites[1].cost = 1.0
    world.kill(world.sites[1], 1.0)
    world.run(10)
    assert (world.driver.mirror.costs() == 1).all()


def test_agents_of_an_older_snapshot_and_keys_of_nobody_cost_one() -> None:
    mirror = Mirror(1, 1)
    mirror.take({"position": 1, "kind": "declared", "key": ["k"], "columns": ["v"], "received": 1})
    agents = {"agent": "x", "incarnation": "i", "received": 1}
    mirror.take({"position": 2, "kind": "joined", "cost": 4.0, "keys": 0, **agents})
    keys = {"keys": [["a"]], "numbers": [0]}
    mirror.take({"position": 3, "kind": "keys", "agent": "x", "received": 2, **keys})
    # announced, and not yet believed: nobody has it
    assert mirror.costs().tolist() == [1.0]
    for _ in mirror.advance(10):
        pass
    assert mirror.costs().tolist() == [4.0]
    arrays, kept = mirror.to_parts()
    kept = json.loads(json.dumps(kept))
    kept["agents"] = {name: seen[:3] for name, seen in kept["agents"].items()}
    older = Mirror(1, 1)
    older.load(arrays, kept)
    assert older.agents == {"x": AgentSeen(0, "i", 0)}
    assert older.costs().tolist() == [1.0]


def test_agents_that_are_away_are_named() -> None:
    mirror = Mirror(1, 1)
    mirror.take({"position": 1, "kind": "declared", "key": ["k"], "columns": ["v"], "received": 1})
    for place in range(8):
        agent = {"agent": f"x{place}", "incarnation": "i"}
        mirror.take({"position": 2 + 2 * place, "kind": "joined", "keys": 0, "received": 1, **agent})
        if place:
            lost = {"since": 2, "clean": False, "received": 2, **agent}
            mirror.take({"position": 3 + 2 * place, "kind": "lost", **lost})
    for _ in mirror.advance(10):
        pass
    first, away, *_ = described("load", mirror, [], Rates(), 10, "widths stand")
    assert first.startswith("agents of load: 1 of 8 there, 0 keys")
    assert away == "  away: x1, x2, x3, x4, x5 and 2 more"
