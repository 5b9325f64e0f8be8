"""ALTER QUERY … WITH PRECISION: when another width is enforced, with IMMEDIATE and without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from precision_world import SECOND, World

PERIOD = 10


def steady(allocation: str, query: str = "plain", width: float = 40, **more: Any) -> World:
    """A world whose widths are in use, some seconds into a period."""
    world = World(31, allocation=allocation, period=PERIOD, sums="never", **more)
    for site in world.sites:
        for _ in range(2):
            world.add_key(site)
    world.ask(query, width)
    world.start_batches()
    world.run(3 * PERIOD + 3)
    return world


def spent(world: World) -> float:
    """What the widths of the first column add up to."""
    return float(world.driver.mirror.belief.widths(slice(None), world.now).reshape(-1, 2)[:, 0].sum())


def grants_since(world: World, time: int) -> list[tuple[int, Any]]:
    return [(at, grants) for at, grants in world.granted if at >= time]


def next_period(world: World) -> int:
    return (world.now // (PERIOD * SECOND) + 1) * PERIOD * SECOND


def true(world: World) -> bool:
    return not [said for said in world.said if world.wrong(said) and not world.excused(said)]


@pytest.mark.parametrize("allocation", ["curves", "uniform"])
def test_a_tighter_width_waits_for_the_adjustment_and_takes_one_grant(allocation: str) -> None:
    world = steady(allocation)
    altered, due = world.now, next_period(world)
    world.sql("ALTER QUERY plain WITH PRECISION 8")
    world.run((due - world.now) / SECOND - 0.1)
    assert grants_since(world, altered) == []
    assert spent(world) > 8
    assert not world.said[-1].met
    world.run(6)
    after = grants_since(world, altered)
    assert after[0][0] >= due
    narrowed = np.concatenate([grants.key for _, grants in after])
    # each once: what was narrowed is what is best, and is not narrowed again
    assert len(np.unique(narrowed)) == len(narrowed)
    assert spent(world) <= 8
    assert world.said[-1].met
    assert true(world)


@pytest.mark.parametrize("allocation", ["curves", "uniform", "burden"])
def test_immediate_narrows_at_once(allocation: str) -> None:
    world = steady(allocation)
    due = next_period(world)
    world.sql("ALTER QUERY plain WITH PRECISION 8 IMMEDIATE")
    world.run(5.5)
    assert world.now < due
    assert spent(world) <= 8
    assert world.said[-1].met
    assert true(world)


def test_where_widths_shrink_by_themselves_they_do_and_nothing_grows() -> None:
    world = steady("burden")
    altered, before = world.now, spent(world)
    world.sql("ALTER QUERY plain WITH PRECISION 25")
    last = before
    while spent(world) > 25 and world.now < altered + 400 * SECOND:
        world.run(PERIOD)
        assert spent(world) <= last
        last = spent(world)
        # the log knows of no grant: nothing is asked for explicitly, nothing grows
        if last > 25:
            assert grants_since(world, altered + 2 * SECOND) == []
            assert not world.said[-1].met
    assert world.now - altered > 2 * PERIOD * SECOND
    world.run(3 * PERIOD)
    # from then on the new width is what is shared out
    assert grants_since(world, altered + 2 * SECOND) != []
    assert 20 < spent(world) <= 25
    assert world.said[-1].met
    assert true(world)


def test_a_second_word_makes_it_immediate() -> None:
    world = steady("burden")
    world.sql("ALTER QUERY plain WITH PRECISION 8")
    world.run(3)
    assert spent(world) > 8
    world.sql("ALTER QUERY plain WITH PRECISION 8 IMMEDIATE")
    world.run(4)
    assert spent(world) <= 8


@pytest.mark.parametrize("allocation", ["curves", "burden"])
def test_a_looser_width_waits_for_the_next_period(allocation: str) -> None:
    world = steady(allocation, "ends", 10)
    altered, due = world.now, next_period(world)
    world.sql("ALTER QUERY ends WITH PRECISION 30 IMMEDIATE")
    world.run((due - world.now) / SECOND - 2)
    assert grants_since(world, altered) == []
    assert world.said[-1].met
    world.run(6)
    widths = world.driver.mirror.belief.widths(slice(None), world.now)
    assert widths == pytest.approx(np.tile([30.0, 15.0], len(widths) // 2), rel=1e-3)
    assert true(world)


def test_a_query_that_is_new_and_keys_that_come_are_begun_at_once() -> None:
    world = steady("burden")
    world.sql("ALTER QUERY plain WITH PRECISION 8")
    world.ask("ends", 5)
    world.add_key(world.sites[0])
    world.run(5)
    widths = world.driver.mirror.belief.widths(slice(None), world.now).reshape(-1, 2)
    # the ceilings of the new query are enforced, on all keys
    assert widths[:, 0].max() <= 5
    assert widths[:, 1].max() <= 2.5
    assert np.isfinite(widths).all()


def test_what_shares_nothing_is_narrowed_where_the_rest_shrinks() -> None:
    world = steady("burden", "ends", 30)
    world.sql("ALTER QUERY ends WITH PRECISION 10")
    world.run(5)
    assert world.driver.mirror.belief.widths(slice(None), world.now).max() <= 10


def test_a_driver_that_starts_again_enforces_what_is_promised() -> None:
    world = steady("burden")
    world.sql("ALTER QUERY plain WITH PRECISION 8")
    world.run(2)
    world.restart_driver()
    world.run(6)
    assert spent(world) <= 8
    assert true(world)
