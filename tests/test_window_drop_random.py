"""The window drop over ordered items in random networks, against what was decided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from slackwater.reference.window_drop import Drop, Network, Step, decoded, exact, run
from window_networks import depth, longest_run, plain_answers, random_case

CASES, CHUNK = 2000, 100


def steps_below(network: Network, drop: Drop) -> Iterator[tuple[Step, int]]:
    """The steps that a drop decides on, and by how much less than its size windows of each may start."""
    waiting = [(step, step.size - 1) for step in network.readers_of(drop.source)]
    while waiting:
        step, less = waiting.pop()
        if step.leads_to(drop.members):
            yield step, less
            waiting += [(reader, less + reader.size - 1) for reader in step.readers]


@pytest.mark.parametrize("first", range(0, CASES // 2, CHUNK))
def test_steps_of_random_networks_open_exactly_what_marks_allow(first: int) -> None:
    # delivery alone would not tell: a kept window reads nothing of what should not have been opened
    for number in range(first, first + CHUNK):
        case = random_case(number)
        given = exact(case.network, case.items)
        for point, drop in zip(case.points, case.drops(), strict=True):
            out = case.units_out(point)
            found = decoded(case.network, given[drop.source], drop)
            for step, less in steps_below(case.network, drop):
                reach = drop.size - less
                allowed = {
                    item.time
                    for item in given[step.name]
                    for unit in range((item.time - reach) // drop.slide + 1, item.time // drop.slide + 1)
                    if unit not in out
                }
                expected = [(i.time, i.values) for i in given[step.name] if i.time in allowed]
                real = [(i.time, i.values) for i in found[step.name] if i.values is not None]
                assert real == expected, (number, step.name)


@pytest.mark.parametrize("first", range(0, CASES, CHUNK))
def test_random_networks_deliver_exactly_what_is_kept(first: int) -> None:
    for number in range(first, first + CHUNK):
        case = random_case(number)
        steps = {step.name: step for step in case.network.steps()}
        plain = plain_answers(case.network, case.items)
        without = {
            name: [(i.time, i.values) for i in given] for name, given in run(case.network, case.items).items()
        }
        assert without == plain, number
        found = run(case.network, case.items, case.drops())
        assert sorted(name for point in case.points for name in point.members) == sorted(plain), number
        for point in case.points:
            out = case.units_out(point)
            for name in point.members:
                given = [(item.time, item.values) for item in found[name]]
                kept = [(time, row) for time, row in plain[name] if time // point.drop.slide not in out]
                assert given == kept, (number, name)
                step, last = steps[name], case.items[-1].time
                windows = range(-60 * step.slide, last + 1, step.slide)
                missing = [start for start in windows if start // point.drop.slide in out]
                assert longest_run(missing, step.slide) <= step.gap, (number, name)


def test_a_drop_of_the_wrong_size_may_lose_windows_but_delivers_no_other_values() -> None:
    random = Random(5)
    lost = 0
    for number in range(250):
        case = random_case(number)
        found = run(case.network, case.items, case.drops())
        larger = [replace(drop, size=drop.size + random.randint(1, 9)) for drop in case.drops()]
        assert run(case.network, case.items, larger) == found, number
        smaller = [
            replace(drop, size=max(drop.slide, drop.size - random.randint(1, 3))) for drop in case.drops()
        ]
        for name, given in run(case.network, case.items, smaller).items():
            assert [item for item in found[name] if item in given] == given, (number, name)
            lost += len(given) < len(found[name])
    assert lost > 100


def test_random_networks_are_of_all_kinds() -> None:
    seen = dict.fromkeys(("shared", "several", "inner", "early", "through", "read and delivered", "keys"), 0)
    deepest = widest = windows = left = 0
    for number in range(CASES):
        case = random_case(number)
        steps = {step.name: step for step in case.network.steps()}
        drops = [point.drop for point in case.points]
        seen["shared"] += any(len(point.members) > 1 for point in case.points)
        seen["several"] += len(case.points) > 1
        seen["inner"] += any(point.source != case.network.stream for point in case.points)
        seen["early"] += any(drop.early for drop in drops)
        seen["through"] += any(
            point.drop.size > max(steps[name].size for name in point.members) for point in case.points
        )
        seen["read and delivered"] += any(s.gap is not None and s.readers for s in steps.values())
        seen["keys"] += any(s.keys != reader.keys for s in steps.values() for reader in s.readers)
        deepest = max(deepest, depth(case.network.readers))
        widest = max(widest, len(case.network.readers), *(len(s.readers) for s in steps.values()))
        for point in case.points:
            to = case.items[-1].time // point.drop.slide + 1
            windows += to - case.items[0].time // point.drop.slide
            left += sum(unit >= case.items[0].time // point.drop.slide for unit in case.units_out(point))
    assert min(seen.values()) > 300, seen
    assert (deepest, widest) == (4, 4)
    assert 0.3 < left / windows < 0.8
