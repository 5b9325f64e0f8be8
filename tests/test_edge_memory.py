"""What an agent takes: memory by key while rows wait, and that rows which wait come out as they went in."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from edge_clients import HOSTS, SECOND
from slackwater.edge import arrays, waiting
from slackwater.edge.agent_state import AgentState
from slackwater.edge.keys import Keys
from slackwater.edge.messages import Declared
from slackwater.edge.rows import Rows
from slackwater.edge.shapes import keys_of
from slackwater.edge.waiting import Waiting

NOW = 1_000 * SECOND
KEYS = 1 << 16
GRANTS = 10_000


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All memory is seen: mappings are not traced, so that nothing may have one."""
    monkeypatch.setattr(arrays, "LARGE", 1 << 62)
    tracemalloc.start()
    yield
    tracemalloc.stop()


def ready(shape: Declared = HOSTS) -> AgentState:
    state = AgentState(outbox_limit=10_000)
    hub = {"received": 0, "keys": 0, "log": "log", "declared": shape.message(), "time": NOW}
    assert state.welcome(hub, NOW)
    return state


def grant_everything(state: AgentState, keys: int, width: float) -> None:
    for first in range(0, keys, GRANTS):
        some = range(first, min(first + GRANTS, keys))
        message: dict[str, Any] = {"key": list(some), "column": [0] * len(some)}
        message |= {"position": [1 + n for n in some], "width": [width] * len(some)}
        message |= {"start": [NOW] * len(some), "shrink": [0.0] * len(some), "period": [SECOND] * len(some)}
        state.grants(message | {"keys": some[-1] + 1}, NOW)


def test_a_key_whose_rows_wait_takes_few_bytes_also_where_all_come_in_one_call(traced: None) -> None:
    random = np.random.default_rng(3)
    names = [f"k{n:07d}" for n in range(KEYS)]
    values = random.normal(size=(KEYS, 1))
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    state = ready()
    state.offer_many(names, values, NOW)
    grant_everything(state, KEYS, 0.0)
    # what one connection takes, though nothing is acknowledged
    while state.next_message(NOW) is not None:
        pass
    for second in range(1, 3):
        values[:] = random.normal(size=(KEYS, 1))
        state.offer_many(names, values, NOW + second * SECOND)
    now, peak = tracemalloc.get_traced_memory()
    assert state.outbox.superseded > KEYS / 2
    assert state.outbox.waiting <= 1.25 * KEYS + GRANTS
    # bounds and tracks 276; the name 28; rows 40; batches under way 70
    assert (now - before) / KEYS < 430
    # beside them what is worked on at a time, of a size that does not grow with the keys
    assert (peak - before) / KEYS < 490


def test_rows_that_wait_come_out_as_they_went_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "ROWS_PER_BLOCK", 8)
    random = np.random.default_rng(5)
    for _ in range(30):
        held, expected = Waiting(columns=2), []
        now = 0
        for _ in range(40):
            now += int(random.choice([0, 1, 10**6, 1 << 31, 1 << 33]))
            count = int(random.integers(0, 12))
            rows = _rows(random, count, now)
            held.put(rows)
            expected += _listed(rows)
            if random.random() < 0.5:
                count = int(random.integers(0, 15))
                assert _listed(held.take(count)) == expected[:count]
                expected = expected[count:]
            if random.random() < 0.2:
                last = {row[0]: place for place, row in enumerate(expected)}
                kept = [row for place, row in enumerate(expected) if last[row[0]] == place]
                gone = [row for place, row in enumerate(expected) if last[row[0]] != place]
                assert held.thin() == (len(gone), min((row[1] for row in gone), default=None))
                expected = kept
        assert _listed(held.take(10_000)) == expected
        assert not held.blocks


def _rows(random: np.random.Generator, count: int, now: int) -> Rows:
    """Some bounds are around their values, some lean or climb, some keys have no value or are gone."""
    key = random.integers(0, 9, count)
    at = np.sort(now + random.choice([0, 1 << 33], count)) if random.random() < 0.1 else np.full(count, now)
    values = np.where(random.random((count, 2)) < 0.1, np.nan, random.normal(size=(count, 2)))
    centre, slope = values.copy(), np.zeros((count, 2))
    if random.random() < 0.3:
        centre += random.normal(size=(count, 2))
        slope = random.choice([0.0, 0.5, np.nan], (count, 1)) * np.ones((1, 2))
    return Rows(key, at, values, centre, slope)


def _listed(rows: Rows) -> list[tuple[Any, ...]]:
    """By row, in a form in which NaN equals NaN."""
    parts = (rows.values, rows.centre, rows.slope)
    texts = [[str(row) for row in part.tolist()] for part in parts]
    return list(zip(rows.key.tolist(), rows.at.tolist(), *texts, strict=True))


def test_blocks_that_were_emptied_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "ROWS_PER_BLOCK", 64)
    random = np.random.default_rng(6)
    held = Waiting(columns=2)
    for turn in range(200):
        rows = _rows(random, 11, NOW)
        held.put(Rows(rows.key, np.full(11, NOW + turn), rows.values, rows.centre, rows.slope))
        held.thin()
        assert held.blocks == 1


def test_keys_that_are_as_they_are_held_are_not_copied() -> None:
    pairs = Declared(("host", "port"), ("load",), ("text", "whole"))
    given: list[Any] = [("a", 1), ("b", 2)]
    assert keys_of(given, pairs) is given
    assert keys_of([("a", np.int64(1))], pairs) == [("a", 1)]
    assert keys_of(np.array(["x", "y"]), HOSTS) == ["x", "y"]
    wide: list[Any] = ["é", 7, 1.5]
    assert keys_of(wide, HOSTS) is wide
    with pytest.raises(ValueError, match="expected a key of one part"):
        keys_of(["x", None], HOSTS)
    with pytest.raises(ValueError, match="expected a key of one part"):
        keys_of(["x", "y" * 5_000], HOSTS)


def test_many_numbers_are_those_of_one_key_after_the_other() -> None:
    given: list[Any] = ["a", 1, ("a", 2), "b", 1.0, "a", *(f"n{n}" for n in range(300)), "b", ("a", 2)]
    one, many = Keys(), Keys()
    assert many.numbers(given).tolist() == [one.number(key) for key in given]
    assert many.numbers(reversed(given)).tolist() == [one.number(key) for key in reversed(given)]
    assert many.message(0) == one.message(0)


def test_a_bad_value_among_many_changes_nothing() -> None:
    for keys, values in (
        (["a", "b"], [1.0, float("inf")]),
        (["a", "b"], [1.0, "x"]),
        (["a", None], [1.0, 2.0]),
        (["a", "b"], [1.0]),
    ):
        state = ready()
        with pytest.raises(ValueError, match="expected"):
            state.offer_many(keys, values, NOW)
        assert (state.keys, state.offered) == (0, 0)
