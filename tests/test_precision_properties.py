"""What PRECISION promises, in worlds that hypothesis makes up: whatever is asked, and whatever happens.

At every time whose messages came within the tolerance the truth is in the answer that stands, an answer that
says so is as narrow as was asked for, and when everybody is back every query is met again. `EXAMPLES=5000
pytest tests/test_precision_properties.py` looks for more, at random.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from precision_scenarios import ACTS, KINDS, NAMES, SLID, WIDTHS, Act, Judge, Scenario, play
from precision_world import QUERIES, World


@pytest.fixture(autouse=True, scope="module")
def more_queries() -> Iterator[None]:
    """Queries over a sliding time too, in this file alone."""
    with pytest.MonkeyPatch.context() as patch:
        for name, asked in SLID.items():
            patch.setitem(QUERIES, name, asked)
        yield


EXAMPLES = int(os.environ.get("EXAMPLES", "0"))


def looked_for(examples: int) -> settings:
    """So many examples, always the same ones; or others, if more are asked for."""
    return settings(
        max_examples=EXAMPLES or examples,
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        # what fails is printed as it is: each step of making it smaller takes a second
        phases=tuple(Phase) if EXAMPLES else (Phase.explicit, Phase.generate),
    )


def seconds(longest: float) -> st.SearchStrategy[float]:
    return st.floats(0.05, longest).map(lambda s: round(s, 2))


ACT = st.builds(
    Act,
    after=seconds(6),
    kind=st.sampled_from(ACTS),
    which=st.integers(0, 11),
    size=seconds(6),
    flag=st.booleans(),
)


def scenarios(rate: float | None) -> st.SearchStrategy[Scenario]:
    return st.builds(
        Scenario,
        seed=st.integers(0, 1_000),
        allocation=st.sampled_from(["curves", "burden", "uniform"]),
        sums=st.sampled_from(["never", "measured"]),
        rate=st.just(rate),
        slow_disk=st.booleans(),
        rough=st.booleans(),
        keys=st.lists(st.sampled_from(KINDS), min_size=1, max_size=6).map(tuple),
        queries=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True).map(tuple),
        width=st.sampled_from(WIDTHS),
        acts=st.lists(ACT, max_size=6).map(tuple),
    )


def holds(scenario: Scenario) -> None:
    judge = Judge(play(scenario))
    assert judge.wrong() == [], scenario
    assert judge.unmet() == [], scenario
    assert judge.unanswered() == set(), scenario


@looked_for(30)
@given(scenarios(None))
# a value goes just before its query is altered
@example(Scenario(665331, "uniform", "never", keys=("flickers",), queries=("some",), width=5.0))
# an agent's mean is of a longer time than its keys are known
@example(Scenario(0, keys=("walks",) * 3, queries=("mean",), width=0.5))
# all keys of a mean go, and then their agent's process
@example(
    Scenario(
        417,
        keys=("stays",) * 2,
        queries=("mean_apart",),
        acts=(Act(4.9, "gone", 2), Act(1.5, "kill", 4, 2.3)),
    )
)
def test_answers_hold_whatever_happens(scenario: Scenario) -> None:
    holds(scenario)


@looked_for(12)
@given(scenarios(0.5))
# others grow by what has shrunk, while answers still count it
@example(Scenario(228897, "burden", rate=0.5, slow_disk=True, keys=("stays",) * 5, queries=("some",)))
def test_answers_of_now_hold_whatever_happens(scenario: Scenario) -> None:
    holds(scenario)


# the hub


@pytest.mark.parametrize("clean", [True, False])
def test_a_hub_that_starts_again_knows_what_its_disk_says(clean: bool) -> None:
    acts = (
        Act(2.0, "hub", size=1.25, flag=clean),
        Act(6.0, "hub", size=0.75, flag=clean),
        Act(0.3, "cut", which=1, size=2.0),
        Act(3.0, "hub", size=3.5, flag=clean),
        Act(3.0, "driver"),
    )
    scenario = Scenario(
        8, slow_disk=True, keys=("walks", "jumps", "swings", "drifts"), queries=("plain", "ends"), acts=acts
    )
    world = play(scenario)
    assert world.hub.stops == 3
    # some were connected each time
    assert sum(e["kind"] == "lost" for e in world.hub.log) >= 5
    judge = Judge(world)
    assert (judge.wrong(), judge.unmet()) == ([], [])


def test_what_was_not_on_disk_is_sent_again_and_is_in_the_log_once() -> None:
    world = World(3, sites=1, slow_disk=True)
    world.add_key(world.sites[0], "walks")
    world.ask("plain", 0.5)
    world.start_batches()
    world.run(8)
    # the disk is busy with a row when the hub stops
    while world.hub.stream.log.waiting_bytes == 0 or world.hub.log[-1]["kind"] != "batch":
        world.run(0.01)
    lost = world.hub.log[-1]
    world.restart_hub(1.0, torn=0.5)
    world.run(0.5)
    assert not world.hub.up
    world.run(5)
    batches = [e for e in world.hub.log if e["kind"] == "batch"]
    assert [e["number"] for e in batches] == list(range(1, len(batches) + 1))
    [again] = [e for e in batches if e["number"] == lost["number"]]
    assert again["at"] == lost["at"]
    assert again["position"] > lost["position"]
    assert Judge(world).wrong() == []


# what is said of values that go


@pytest.mark.parametrize("how", ["altered", "begun anew", "neither"])
@pytest.mark.parametrize("name", ["plain", "mean"])
def test_that_a_value_has_gone_is_said_by_whoever_says_it_next(how: str, name: str) -> None:
    world = World(5, sites=1, sums="never")
    key = world.add_key(world.sites[0], "stays")
    world.ask(name, 5)
    for _ in range(16):
        world.run(1)
        world.driver.turn(world.hub.end, world.now)
        world.driver.commit()
    assert world.said[-1].met
    assert world.said[-1].low is not None
    world.sites[0].change(key, [math.nan, math.nan])
    # the driver says nothing for a while
    world.run(9)
    if how == "altered":
        world.sql(f"ALTER QUERY {name} WITH PRECISION 9")
    elif how == "begun anew":
        world.restart_driver()
    world.driver.turn(world.hub.end, world.now)
    said = world.said[-1]
    assert (said.low, said.met) == (None, True)
    assert world.now - said.at < 9_000_000
    count = len(world.said)
    world.run(3)
    world.driver.turn(world.hub.end, world.now)
    assert len(world.said) == count
