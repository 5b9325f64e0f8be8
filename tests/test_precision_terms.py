"""What agents say of single keys: what their messages cost, and how fast their values can change."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from precision_world import World
from slackwater.edge.messages import BadMessage, Declared
from slackwater.edge.terms import Terms, checked_terms, read_terms, terms_of, told_terms
from slackwater.errors import SlackwaterError, SourceError
from slackwater.language.parse import parse
from slackwater.language.statements import CreateStream
from slackwater.plan.adjusting import adjusting
from slackwater.runtime.bounds.belief import Belief, LiveSum
from slackwater.runtime.bounds.mirror import Mirror

SHAPE = Declared(("host",), ("rx", "tx"))


# costs


def costly(allocation: str) -> World:
    """One site with keys that wander alike; the messages of every second one cost more."""
    world = World(21, allocation=allocation, sites=1, follow=True, sums="never")
    for number in range(6):
        # an agent tells the terms of a key together with its name
        key = world.add_key(world.sites[0])
        world._walks[key] = ((2.0, 2.0), (0.0, 0.0), (10.0, 10.0))
        if number % 2:
            world.terms[key] = Terms(cost=30.0)
    world.ask("plain", 30)
    world.start_batches()
    return world


@pytest.mark.parametrize("allocation", ["curves", "burden"])
def test_dear_keys_get_the_wider_bounds(allocation: str) -> None:
    world = costly(allocation)
    world.run(150)
    mirror = world.driver.mirror
    assert sorted(set(mirror.costs().tolist())) == [1.0, 30.0]
    widths = mirror.belief.widths(slice(None), world.now).reshape(-1, 2)[:, 0]
    assert widths[mirror.cost == 30].mean() > 1.5 * widths[mirror.cost == 1].mean()
    assert [s for s in world.said if world.wrong(s) and not world.excused(s)] == []


def test_terms_outlive_the_driver_and_go_by_the_last_process() -> None:
    world = costly("curves")
    world.run(10)
    np.testing.assert_array_equal(world.driver.again().mirror.costs(), world.driver.mirror.costs())
    world.terms.clear()
    world.kill(world.sites[0], 1.0)
    world.run(10)
    assert (world.driver.mirror.costs() == 1).all()


def test_a_sum_costs_what_its_dearest_member_does() -> None:
    mirror = Mirror(1, 1)
    mirror.take({"position": 1, "kind": "declared", "key": ["k"], "columns": ["v"], "received": 1})
    agent = {"agent": "x", "received": 2}
    mirror.take({"position": 2, "kind": "joined", "incarnation": "i", "cost": 2.0, "keys": 0, **agent})
    names = {"keys": [["a"], ["b"], ["c"]], "numbers": [0, 1, 2], "terms": [[1, 5.0, None], [2, 7.0, None]]}
    mirror.take({"position": 3, "kind": "keys", **agent, **names})
    defined = {"members": [[0, 1]], "scope": [""], "dropped": [], "window": [0]}
    mirror.take({"position": 4, "kind": "sums", **agent, **defined})
    mirror.take({"position": 5, "kind": "keys", **agent, "keys": [{"sum": 4}], "numbers": [3]})
    for _ in mirror.advance(10):
        pass
    assert mirror.costs().tolist() == [2.0, 10.0, 14.0, 10.0]


# rates


@pytest.mark.parametrize(("seed", "sums"), [(3, "never"), (4, "measured"), (5, "measured")])
def test_keys_that_change_faster_than_others_are_padded_by_what_they_say(seed: int, sums: str) -> None:
    world = World(seed, rate=0.2, sums=sums)
    for site in world.sites:
        for number in range(3):
            key = world.add_key(site)
            if number == 0:
                world.terms[key] = Terms(max_rate={"a": 4.0})
    for name, width in (("plain", 32), ("racks", 50), ("ends", 12)):
        world.ask(name, width)
    world.start_batches()
    world.run(60)
    world.kill(world.sites[0], 8.0)
    world.run(40)
    assert set(world.driver.mirror.belief.max_rate[~np.isnan(world.driver.mirror.belief.max_rate)]) == {4.0}
    judged = [s for s in world.said if not world.excused(s)]
    assert len(judged) > 200
    assert sum(s.met for s in judged) > len(judged) / 2
    assert [s for s in judged if world.wrong(s)] == []


def test_without_their_own_rates_the_same_keys_would_be_outside() -> None:
    """The test above can fail: where the coordinator does not hear of rates, answers are wrong."""
    world = World(3, rate=0.2, sums="never")
    for site in 3 * world.sites:
        world.terms[world.add_key(site)] = Terms(max_rate={"a": 40.0})
    world.ask("plain", 20)
    world.driver.mirror.belief.change_at_most = lambda *_: None  # type: ignore[method-assign]
    world.start_batches()
    world.run(60)
    assert [s for s in world.said if world.wrong(s) and not world.excused(s)]


def test_paces_of_sums_are_those_of_their_members_together() -> None:
    belief = Belief(2, rates=(1.0, 2.0))
    belief.grow(4)
    belief.change_at_most(np.array([1]), np.array([[10.0, np.nan]]))
    some = LiveSum(np.array([0, 1]))
    assert belief.paces().tolist() == [1, 2, 10, 2, 1, 2, 1, 2]
    assert belief.paces({3: some}).tolist() == [1, 2, 10, 2, 1, 2, 11, 4]
    assert belief.paces().tolist() == [1, 2, 10, 2, 1, 2, 1, 2]
    belief.sum_up(2, some)
    assert belief.paces().tolist() == [1, 2, 10, 2, 11, 4, 1, 2]
    # what another process says, or does not say, of the key counts from then on
    belief.flipped = False
    belief.change_at_most(np.array([1]), np.array([[np.nan, np.nan]]))
    assert belief.flipped
    assert belief.paces().tolist() == [1, 2, 1, 2, 2, 4, 1, 2]


def stream(rate: str) -> CreateStream:
    sql = f"""CREATE STREAM s (ts TIMESTAMP, host STRING, rx DOUBLE, tx DOUBLE)
      USING agents OPTIONS (hub 'ws://x') KEY host TIMESTAMP BY ts {rate}"""
    [found] = parse(sql)
    assert isinstance(found, CreateStream)
    return found


@pytest.mark.parametrize(
    ("clause", "rates"),
    [
        ("", None),
        ("MAX RATE 6 PER MINUTE", (0.1, 0.1)),
        ("MAX RATE 2 PER SECOND OF TX, 30 PER MINUTE OF rx", (0.5, 2.0)),
        ("MAX RATE 2 PER SECOND, 5 PER SECOND OF tx TOLERANCE 2 SECONDS", (2.0, 5.0)),
    ],
)
def test_rates_by_column(clause: str, rates: tuple[float, ...] | None) -> None:
    assert adjusting(stream(clause)).rates == pytest.approx(rates)


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("MAX RATE 2 PER SECOND OF rx", "MAX RATE says nothing of tx: add one OF tx"),
        ("MAX RATE 2 PER SECOND OF host", "agents send rx, tx"),
        ("MAX RATE 2 PER SECOND OF up", "no column up is declared"),
        ("MAX RATE 2 PER SECOND OF rx, 3 PER SECOND OF rx", "given twice for rx"),
        ("MAX RATE 2 PER SECOND, 3 PER SECOND", "given twice for all columns"),
    ],
)
def test_rates_that_cannot_be(clause: str, message: str) -> None:
    with pytest.raises(SlackwaterError, match=message):
        adjusting(stream(clause))


# what is told, and what is read


def test_only_keys_that_have_terms_are_told_with_some() -> None:
    terms = terms_of({"b": Terms(3.0), "c": Terms(max_rate=2)})
    assert terms is not None
    told = told_terms([["a"], ["b"], {"sum": 7}, ["c"]], SHAPE, terms)
    assert told == {"terms": [[1, 3.0, None], [3, 1.0, [2.0, 2.0]]]}
    message = {"keys": [1, 2, 3, 4], **json.loads(json.dumps(told))}
    assert checked_terms(message, 2) == told
    assert told_terms([["a"]], SHAPE, terms) == {}
    assert checked_terms({"keys": [1]}, 2) == {}


def test_what_a_user_gives_is_named_where_it_is_wrong() -> None:
    with pytest.raises(SourceError, match=r"terms of key 'a': max_rate: there is no value column 'up'"):
        told_terms([["a"]], SHAPE, lambda key: Terms(max_rate={"up": 1}))
    with pytest.raises(SourceError, match=r"terms of key \('a', 1\): .*'a'"):
        told_terms([["a", 1]], Declared(("host", "port"), ("rx",)), lambda key: {}[key[0]])


@pytest.mark.parametrize(
    "terms",
    [
        {},
        [[0, 1.0]],
        [[2, 1.0, None]],
        [[True, 1.0, None]],
        [[0, 0, None]],
        [[0, 1.0, [1.0]]],
        [[0, 1.0, [1.0, -1]]],
        [[0, 1.0, 3]],
    ],
)
def test_a_hub_refuses_terms_that_cannot_be(terms: object) -> None:
    with pytest.raises(BadMessage, match=r"keys.terms: expected"):
        checked_terms({"keys": [["a"], ["b"]], "terms": terms}, 2)


def test_terms_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "terms.jsonl"
    file.write_text(
        '{"key": "a", "cost": 5}\n\n{"key": ["b", 2], "max_rate": {"rx": 3}}\n{"key": [3], "max_rate": 1}\n'
    )
    found = {"a": Terms(5), ("b", 2): Terms(max_rate={"rx": 3}), 3: Terms(max_rate=1)}
    assert read_terms(file) == found


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a", "no JSON"),
        ("[]", "expected an object such as"),
        ('{"cost": 5}', "expected an object such as"),
        ('{"key": "a", "price": 5}', "expected key, cost and max_rate, got 'price'"),
        ('{"key": true}', "expected a key as a text or number"),
        ('{"key": []}', "expected a key as a text or number"),
        ('{"key": "a", "cost": -1}', "what a message costs relative to 1, from 1e-9 to 1e9, got -1"),
        ('{"key": "a", "max_rate": "x"}', "expected max_rate as a number"),
        ('{"key": "a", "max_rate": {"rx": -1}}', "the most that a value changes in a second, at least 0"),
        ('{"key": "z"}', "'z' is there twice"),
    ],
)
def test_lines_that_cannot_be_terms(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "terms.jsonl"
    file.write_text(f'{{"key": "z", "cost": 2}}\n{line}\n')
    with pytest.raises(SourceError, match="line 2: .*" + message):
        read_terms(file)
    with pytest.raises(SourceError, match="--terms: cannot read"):
        read_terms(tmp_path / "none")
