"""The window drop over ordered items: the paper's examples, decisions, and marks on their way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from random import Random

import pytest

from slackwater.planners.window_coins import Run, coin, decide
from slackwater.planners.window_rules import drop_points
from slackwater.reference.ordered import FUNCTIONS, VALUE, Aggregate, Condition, Item, Mark
from slackwater.reference.window_drop import (
    Coins,
    Drop,
    Network,
    Step,
    WinDrop,
    delivered,
    left_out,
    run,
    window_count,
)
from window_networks import drop_nodes, longest_run, random_stream

SUM = FUNCTIONS["sum"]


def numbered(count: int, first: int = 1) -> list[Item]:
    """The paper's streams: an item at every time; here its value is its time."""
    return [Item(time, {VALUE: time}) for time in range(first, first + count)]


def times(items: Iterable[Item]) -> list[int]:
    return [item.time for item in items if item.values is not None]


def answers(items: Iterable[Item]) -> list[tuple[int, int]]:
    return [(item.time, item.values[VALUE]) for item in items if item.values is not None]


def only(units: set[int]) -> Coins:
    """Drops some windows, where each is a batch of its own."""
    return lambda batch: batch in units


# The paper's examples


PIPELINE = Network(
    "s", (Step("a1", 3, 2, function="sum", readers=(Step("a2", 3, 3, function="sum", gap=1),)),), 1
)
FAN_OUT = Network("s", (Step("a1", 3, 2, function="sum", gap=3), Step("a2", 3, 3, function="sum", gap=2)), 1)
COMPOSITE = Network("s", (Step("a0", 4, 1, function="sum", readers=FAN_OUT.readers),), 1)
TWO_PIPELINES = Network(
    "s",
    (
        Step("b1", 4, 1, function="sum", readers=(FAN_OUT.readers[0],)),
        Step("b2", 4, 1, function="sum", readers=(FAN_OUT.readers[1],)),
    ),
    1,
)


@pytest.mark.parametrize(
    ("network", "size", "slide"),
    [
        pytest.param(PIPELINE, 5, 3, id="pipeline"),
        pytest.param(FAN_OUT, 7, 6, id="fan-out"),
        pytest.param(COMPOSITE, 10, 6, id="composite"),
        pytest.param(TWO_PIPELINES, 10, 6, id="two pipelines"),
    ],
)
def test_examples_of_the_paper(network: Network, size: int, slide: int) -> None:
    (point,) = drop_points(drop_nodes(network))
    assert (point.source, point.drop.size, point.drop.slide, point.drop.gap) == ("s", size, slide, 1)
    assert set(point.members) == {step.name for step in network.steps() if step.gap is not None}
    items = numbered(60)
    whole = run(network, items)
    for out in ({1}, {0, 2}, {1, 3, 5}, {0}):
        drop = Drop("s", point.members, size, slide, 1, only(out))
        found = run(network, items, [drop])
        for name in point.members:
            kept = [item for item in whole[name] if (item.time - 1) // slide not in out]
            assert found[name] == kept
            assert len(kept) < len(whole[name])
        # with one less, a window is lost somewhere
        short = run(network, items, [replace(drop, size=size - 1)])
        assert sum(map(len, short.values())) < sum(map(len, found.values()))


def test_values_of_the_pipeline_example_by_hand() -> None:
    # a1 adds [1,4) [3,6) [5,8) [7,10) [9,12): 6 12 18 24 30, with times 1 3 5 7 9, and 1 from [-1,2)
    # a2 adds those at 1 and 3, those at 5, those at 7 and 9; and at -2 the one of -1
    drop = Drop("s", ("a2",), 5, 3, 1, only({1}))
    assert answers(run(PIPELINE, numbered(11), [])["a2"]) == [(-2, 1), (1, 18), (4, 18), (7, 54), (10, 11)]
    assert answers(run(PIPELINE, numbered(11), [drop])["a2"]) == [(-2, 1), (1, 18), (7, 54), (10, 11)]


def test_table_3_as_printed_opens_a_window_that_is_left_out() -> None:
    marked = list(WinDrop(7, 6, 1, only({1}), origin=1).over(numbered(18)))
    assert times(marked) == [*range(1, 8), *range(13, 19)]
    assert [item.marks for item in marked if item.time in (1, 7)] == [
        (Mark(-5, 2), Mark(1, 8)),
        (Mark(7, None),),
    ]
    first, second = Aggregate(3, 2, (), SUM, 1), Aggregate(3, 3, (), SUM, 1)
    whole = answers(first.over(numbered(18)))
    literal = answers(first.over(marked, "literal"))
    assert (7, 24) in whole
    assert (7, 7) in literal, "[7, 10) is delivered from item 7 alone"
    marked_only = [answer for answer in answers(first.over(marked, "marks")) if answer[0] < 13]
    assert marked_only == [(-1, 1), (1, 6), (3, 12), (5, 18)]
    assert set(marked_only) <= set(whole)
    # the other branch has no overhang, and nothing to go wrong
    for decode in ("marks", "literal"):
        assert [a for a in answers(second.over(marked, decode)) if 1 <= a[0] < 13] == [(1, 6), (4, 15)]


def test_a_window_that_ends_at_zero_can_be_kept() -> None:
    # handed on by a1, the mark of [-3, 2) says "until 0"
    network = replace(PIPELINE, origin=0)
    found = run(network, numbered(12, 0), [Drop("s", ("a2",), 5, 3, 1, only({-1}), -9)])["a2"]
    kept = run(network, numbered(12, 0), [Drop("s", ("a2",), 5, 3, 1, only({1}), -9)])["a2"]
    assert -3 not in times(found)
    assert times(kept)[0] == -3


def test_a_sibling_does_not_deliver_what_is_left_out() -> None:
    # a2 needs items up to 10, and so a1's [6, 9) is complete, but starts in a unit that is left out
    network = Network("s", (Step("a1", 3, 2, gap=3), Step("a2", 7, 3, gap=2)))
    drop = Drop("s", ("a1", "a2"), 10, 6, 1, only({1}))
    found = run(network, numbered(30, 0), [drop])
    assert [t for t in times(found["a1"]) if 0 <= t < 18] == [0, 2, 4, 12, 14, 16]
    assert [t for t in times(found["a2"]) if 0 <= t < 18] == [0, 3, 12, 15]


def test_a_step_that_is_delivered_by_one_drop_is_read_by_another() -> None:
    network = Network("s", (Step("a", 2, 2, gap=1, readers=(Step("b", 4, 4, function="sum", gap=1),)),))
    own = Drop("s", ("a",), 2, 2, 1, only({0, 2, 5}))
    below = Drop("a", ("b",), 4, 4, 1, only({0}))
    found = run(network, numbered(12, 0), [own, below])
    assert times(found["a"]) == [2, 6, 8]
    assert answers(found["b"]) == [(4, 4), (8, 4)]


# Decisions, and early drops


def test_decisions_are_those_of_the_planner() -> None:
    random = Random(1)
    kept_against_coin = paid_back = 0
    for _ in range(2000):
        gap, share, first = random.randint(1, 6), random.random(), random.randint(-40, 40)
        to = first + random.randint(1, 80)
        coins = {batch: random.random() for batch in range(first // gap, to // gap + 1)}
        out, _ = decide(Run(first), gap, share, to, coins.__getitem__)

        state, pieces = Run(first), []
        while state.unit < to:
            more, state = decide(state, gap, share, random.randint(state.unit, to), coins.__getitem__)
            pieces += more

        rule = left_out(first, gap, lambda batch, c=coins, s=share: c[batch] < s)
        expected = [unit for unit, missing in enumerate(islice(rule, to - first), first) if missing]
        assert out == pieces == expected
        assert longest_run(expected, 1) <= gap
        kept_against_coin += sum(coins[u // gap] < share for u in set(range(first, to)) - set(out))
        paid_back += sum(coins[u // gap] >= share for u in out)
    assert kept_against_coin > paid_back > 1000


def test_window_count() -> None:
    random = Random(2)
    for _ in range(500):
        slide, first = random.randint(1, 9), random.randint(-20, 20)
        size = slide + random.randint(0, 25)
        for time in range(first, first + 3 * size + 2 * slide):
            holding = [s for s in range(first, time + 1, slide) if s <= time < s + size]
            assert window_count(time, first, size, slide) == len(holding)


def drops(share: float, salt: int, batch: int) -> bool:
    return coin(salt, "", batch) < share


def test_early_drop_takes_what_only_windows_hold_that_are_left_out() -> None:
    random = Random(3)
    early = spared = 0
    for _ in range(300):
        slide, gap = random.randint(1, 5), random.randint(1, 6)
        size, first = slide + random.randint(0, 12), random.randint(-3, 3)
        share, salt = random.choice((0.5, 0.9)), random.randrange(2**32)
        coins = partial(drops, share, salt)
        out = dict(enumerate(islice(left_out(first, gap, coins), 1500), first))
        # where windows that are before the first decision hold an item, it stays
        begin = first * slide + size
        stream = [item for item in random_stream(random) if item.time >= begin]
        kept = list(WinDrop(size, slide, gap, coins, first).over(stream))
        expected = []
        for item in stream:
            count = window_count(item.time, first * slide, size, slide)
            last = item.time // slide
            if not all(out[unit] for unit in range(last - count + 1, last + 1)):
                expected.append((item.time, item.values))
        assert [(item.time, item.values) for item in kept if item.values is not None] == expected
        early += len(stream) - len(expected)
        spared += len(expected)
        starts = [mark.start for mark in marks_of(kept)]
        if stream:
            assert starts == list(range(starts[0], stream[-1].time + 1, slide))
            assert starts[0] <= stream[0].time
    assert early > 1000
    assert spared > 1000


def test_before_the_first_decision_all_is_kept() -> None:
    kept = list(WinDrop(6, 2, 9, lambda batch: True, first_unit=5).over(numbered(30, 0)))
    # [8, 14) is the last that is kept; 9 in a row are left out, then [28, 34) is kept
    assert times(kept) == [*range(14), 28, 29]
    assert [m.until for m in marks_of(kept) if m.start in (8, 10, 26, 28)] == [14, None, None, 34]


# Marks on their way


def marks_of(items: Iterable[Item]) -> list[Mark]:
    return [mark for item in items for mark in item.marks]


def test_a_filter_hands_marks_on() -> None:
    # every item that carries a mark fails
    rows = [Item(time, {VALUE: time % 4}) for time in range(32)]
    where = Condition(VALUE, 4, 1)
    drop = Drop("s", ("a",), 4, 4, 1, only({1, 4}))
    network = Network("s", (Step("a", 4, 4, where=where, gap=1),))
    passed = list(where.passed(WinDrop(4, 4, 1, drop.coins).over(rows)))
    assert [item.time for item in passed if item.marks] == list(range(0, 32, 4))
    assert not any(item.values for item in passed if item.marks)
    assert answers(run(network, rows, [drop])["a"]) == [(t, 1) for t in (0, 8, 12, 20, 24, 28)]


def test_a_filter_between_aggregates_hands_marks_on() -> None:
    # of what a gives, at 0, 2, 4, …, all at multiples of 6 fail, where b's windows start
    rows = [Item(time, {VALUE: int(time % 6 < 2)}) for time in range(0, 60)]
    below = Step("b", 6, 6, where=Condition(VALUE, 2, 0), gap=1)
    network = Network("s", (Step("a", 2, 2, function="max", readers=(below,)),))
    (point,) = drop_points(drop_nodes(network))
    drop = Drop("s", ("b",), point.drop.size, point.drop.slide, 1, only({0, 3, 5}))
    assert answers(run(network, rows, [drop])["b"]) == [(6 * u, 2) for u in (1, 2, 4, 6, 7, 8, 9)]


def test_marks_survive_where_no_item_does() -> None:
    nothing = Condition(VALUE, 2, 1)
    rows = [Item(time, {VALUE: 2}) for time in (0, 1, 9, 30)]
    marked = list(WinDrop(5, 2, 2, only({1})).over(rows))
    passed = list(Aggregate(3, 3, (), SUM).over(nothing.passed(marked), "marks"))
    assert not any(item.values for item in passed)
    assert marks_of(passed) == [mark.handed_on(3) for mark in marks_of(marked)]
    assert [item.time for item in passed] == [mark.start for mark in marks_of(marked)]


def test_marks_go_on_once_and_in_order() -> None:
    random = Random(4)
    carried = 0
    for _ in range(200):
        slide, first = random.randint(1, 6), random.randint(-5, 5)
        drop = WinDrop(
            slide + random.randint(8, 16), slide, 2, only(set(random.sample(range(-3, 60), 30))), first
        )
        items = marked = list(drop.over(random_stream(random)))
        shift, keys = 0, random.choice(((), ("k",)))
        for _ in range(3):
            if random.random() < 0.5:
                items = list(Condition(VALUE, 2, random.randrange(2)).passed(items))
            step = random.randint(1, 4)
            aggregate = Aggregate(step + random.randint(0, 2), step, keys, SUM)
            items = list(aggregate.over(items, "marks"))
            shift += aggregate.size - 1
            assert [item.time for item in items] == sorted(item.time for item in items)
            assert all(item.time == mark.start for item in items for mark in item.marks)
            assert all(item.values is not None or item.marks for item in items)
            assert marks_of(items) == [mark.handed_on(shift + 1) for mark in marks_of(marked)]
            # of what has one time, the first has the mark
            assert not any(later.marks for item, later in pairwise(items) if item.time == later.time)
            carried += sum(bool(item.marks) and item.values is not None for item in items)
    assert carried > 1000


def test_a_window_closes_at_the_first_item_after_it_even_a_fake() -> None:
    read = []

    def stream() -> Iterator[Item]:
        for time in range(8):
            read.append(time)
            yield Item(time, None if time == 3 else {VALUE: 1}, (Mark(time, time + 3),))

    given = Aggregate(3, 3, (), SUM).over(stream(), "marks")
    assert [(read[-1], item.time) for item in given if item.values is not None] == [(3, 0), (6, 3), (7, 6)]


def test_delivered_without_a_mark_is_nothing() -> None:
    assert delivered([Item(1, {VALUE: 1})]) == []
