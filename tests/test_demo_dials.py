"""The story and the sliders, on a clock that goes on only when told to."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from slackwater.errors import RunError
from slackwater.language.contracts import Drift, Error, Exact, Precision, Subset
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.service.models import KnobsWanted
from slackwater.terminal.demo_dials import (
    CALM_LEAST,
    CALM_MULTIPLE,
    CHAPTERS,
    DEBOUNCE_S,
    FINE,
    HIGHEST,
    LOWEST,
    RISE,
    SETTLING_S,
    STEP,
    WARM_BATCHES,
    WARM_FACTOR,
    WARM_PATIENCE_S,
    DemoDials,
)
from slackwater.terminal.demo_load import Batch
from slackwater.terminal.demo_stage import demo_sql
from slackwater.terminal.demo_story import OVER, STORY, WARMING, YOURS, length, moment
from slackwater.terminal.demo_tolerance import Tolerance, scaled

RATE, INTERVAL = 1_000.0, 2.0
HUB, WEBHOOK = "ws://127.0.0.1:7400", "http://127.0.0.1:8600"
BATCH = Batch(0, 0, 2_000_000, 3_000_000, 0.5, 100, 0.0, False, 0.2, 1.0)


class World:
    """A machine with batches as a test says, and dials that turn it."""

    def __init__(self, capacity: float = 8_000.0) -> None:
        self.now = 100.0
        self.last: Batch | None = None
        self.capacity = capacity
        """Rows of a batch that are as much as the machine can do."""
        self.known = True
        self.newest: float | None = None
        """When the newest row of a batch had come; None: just now."""
        self.loads: list[float] = []
        self.tolerances: list[float] = []
        self.interruptions: list[bool] = []
        self.dials = DemoDials(
            self,
            rate=RATE,
            interval=INTERVAL,
            set_load=self.loads.append,
            set_tolerance=self.tolerances.append,
            interrupt=self.interruptions.append,
            clock=lambda: self.now,
            now=lambda: int(self.now * 1e6),
        )

    def rows_for(self, multiple: float) -> float | None:
        return multiple * self.capacity if self.known else None

    def pass_(self, seconds: float, took: float = 0.5) -> None:
        """Let time pass, with a batch each interval."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + INTERVAL)
            number = 0 if self.last is None else self.last.number + 1
            newest = int((self.now if self.newest is None else self.newest) * 1e6)
            self.last = replace(BATCH, number=number, seconds=took, newest=newest)
            self.dials.tick()

    def warmed(self) -> World:
        self.pass_(INTERVAL * (WARM_BATCHES + 1))
        assert self.dials.knobs().chapter == STORY[0].text
        return self

    @property
    def chapter(self) -> str:
        return self.dials.knobs().chapter


def test_the_story_begins_when_batches_are_quick() -> None:
    world = World()
    world.dials.tick()
    assert world.loads == [WARM_FACTOR]
    assert world.chapter == WARMING.text
    world.pass_(20, took=1.9)
    assert world.chapter == WARMING.text
    world.pass_(2 * INTERVAL)
    assert world.chapter == WARMING.text
    world.pass_(INTERVAL)
    assert world.chapter == STORY[0].text
    assert world.dials.knobs().load == 1.0


def test_it_does_not_wait_for_ever() -> None:
    world = World()
    world.pass_(WARM_PATIENCE_S - INTERVAL, took=3.0)
    assert world.chapter == WARMING.text
    world.pass_(3 * INTERVAL, took=3.0)
    assert world.chapter == STORY[0].text


def test_nothing_begins_before_a_batch_has_come() -> None:
    world = World()
    world.now += 2 * WARM_PATIENCE_S
    world.dials.tick()
    assert world.chapter == WARMING.text


def test_chapters_in_order_each_for_its_time() -> None:
    world = World().warmed()
    world.pass_(length() + 10)
    names = [chapter.name for _, chapter in world.dials.chapters]
    assert names == ["warming up", *(c.name for c in STORY), "over"]
    begins = [at / 1e6 for at, _ in world.dials.chapters]
    told = [b - a for a, b in pairwise(begins[1:])]
    assert told == pytest.approx([c.seconds for c in STORY], abs=INTERVAL)
    assert world.dials.over
    assert world.interruptions == [True, False]
    assert world.dials.knobs().load == 1.0
    assert not world.dials.knobs().story


def test_a_burst_is_five_times_what_was_measured_step_by_step() -> None:
    world = World().warmed()
    world.pass_(STORY[0].seconds)
    assert world.chapter == STORY[1].text
    # 40,000 rows a batch are five times the capacity: 20 times as much as is usual
    assert world.loads[-1] == RISE
    world.pass_(INTERVAL)
    assert world.loads[-1] == pytest.approx(RISE * STEP)
    world.pass_(INTERVAL)
    assert world.loads[-1] == 20.0
    world.capacity = 4_000.0
    world.pass_(INTERVAL)
    assert world.loads[-1] == 10.0, "what was too much ends at once"
    world.pass_(SETTLING_S - 3 * INTERVAL)
    # by then it changes little
    world.capacity = 9_000.0
    world.pass_(INTERVAL)
    assert world.loads[-1] == pytest.approx(10.0 * FINE)
    world.capacity = 2_000.0
    world.pass_(INTERVAL)
    assert world.loads[-1] == pytest.approx(10.0)
    world.pass_(STORY[1].seconds - SETTLING_S)
    assert world.chapter == STORY[2].text
    assert world.loads[-1] == 1.0


def test_a_burst_rises_only_with_batches_that_have_seen_it() -> None:
    world = World().warmed()
    world.pass_(STORY[0].seconds)
    world.newest = world.now - 0.5
    world.pass_(2 * INTERVAL)
    assert world.loads[-1] == RISE, "these batches were of the calm"
    world.newest = None
    world.pass_(INTERVAL)
    assert world.loads[-1] == pytest.approx(RISE * STEP)


def test_a_burst_is_one_though_the_machine_has_no_capacity_left() -> None:
    world = World().warmed()
    world.pass_(STORY[0].seconds - INTERVAL)
    world.capacity = 10.0
    world.pass_(4 * INTERVAL)
    assert world.chapter == STORY[1].text
    assert world.loads[-1] == LOWEST


def test_a_burst_rises_by_steps_and_has_an_end() -> None:
    world = World(capacity=1e9).warmed()
    world.pass_(STORY[0].seconds + INTERVAL)
    assert world.loads[-2:] == pytest.approx([RISE, RISE * STEP])
    world.pass_(5 * INTERVAL)
    assert world.loads[-1] == HIGHEST


def test_calm_is_less_on_a_slow_machine_and_the_same_after_the_burst() -> None:
    world = World(capacity=1_500.0).warmed()
    assert world.loads[-1] == pytest.approx(CALM_MULTIPLE * 1_500 / (RATE * INTERVAL), rel=0.01)
    calm = world.loads[-1]
    world.pass_(STORY[0].seconds)
    world.capacity = 100.0
    world.pass_(STORY[1].seconds + 2)
    assert world.chapter == STORY[2].text
    assert world.loads[-1] == calm
    assert World(capacity=1.0).warmed().loads[-1] == CALM_LEAST


def test_calm_that_is_too_much_becomes_calmer_while_it_is_told_first() -> None:
    world = World().warmed()
    assert world.loads[-1] == 1.0
    world.capacity = 1_500.0
    world.pass_(INTERVAL)
    calm = world.loads[-1]
    assert calm == pytest.approx(1 / STEP)
    world.capacity = 1_300.0
    world.pass_(INTERVAL)
    assert world.loads[-1] == calm, "it fits"
    world.pass_(STORY[0].seconds)
    assert world.chapter == STORY[1].text
    world.capacity = 100.0
    world.pass_(STORY[1].seconds)
    assert world.chapter == STORY[2].text
    assert world.loads[-1] == calm


def test_without_anything_measured_it_stays_as_it_is() -> None:
    world = World()
    world.known = False
    world.warmed()
    world.pass_(STORY[0].seconds + 10)
    assert world.chapter == STORY[1].text
    assert world.loads[-1] == 1.0


def test_who_moves_the_load_has_it_in_hand() -> None:
    world = World().warmed()
    knobs = world.dials.turn(KnobsWanted(load=12.0))
    assert knobs.load == 12.0
    assert not knobs.story
    assert knobs.chapter == YOURS.text
    world.pass_(200)
    assert world.loads[-1] == 12.0
    assert world.chapter == YOURS.text
    assert not world.dials.over


def test_a_story_that_is_switched_off_brings_back_who_was_lost() -> None:
    world = World().warmed()
    world.pass_(sum(c.seconds for c in STORY[:3]) + 1)
    assert world.interruptions == [True]
    world.dials.turn(KnobsWanted(story=False))
    assert world.interruptions == [True, False]


def test_the_story_can_be_told_once_more() -> None:
    world = World().warmed()
    world.pass_(length() + 4)
    assert world.dials.knobs().chapter == OVER.text
    assert world.dials.turn(KnobsWanted(story=True)).story
    world.dials.tick()
    assert world.chapter == STORY[0].text
    assert not world.dials.over


def test_story_on_while_it_is_told_changes_nothing() -> None:
    world = World().warmed()
    world.pass_(STORY[0].seconds + 4)
    world.dials.turn(KnobsWanted(story=True))
    world.dials.tick()
    assert world.chapter == STORY[1].text


def test_tolerance_is_set_when_the_slider_has_come_to_rest() -> None:
    world = World().warmed()
    for factor in (1.5, 2.0, 2.5):
        assert world.dials.turn(KnobsWanted(tolerance=factor)).tolerance == factor
        world.dials.tick()
        world.now += DEBOUNCE_S / 2
    assert world.tolerances == []
    world.now += DEBOUNCE_S
    world.dials.tick()
    world.dials.tick()
    assert world.tolerances == [2.5]
    # the story goes on meanwhile
    assert world.dials.knobs().story


def test_a_moment_of_the_story() -> None:
    assert moment(0.0).chapter is STORY[0]
    assert moment(STORY[0].seconds).chapter is STORY[1]
    assert moment(length() - 0.01).chapter is STORY[-1]
    assert moment(length()).chapter is OVER
    assert STORY[1].multiple == 5.0


@pytest.mark.parametrize(
    ("contract", "factor", "wanted"),
    [
        (Exact(), 3.0, Exact()),
        (Error(0.05, confidence=0.99, weight=2), 2.0, Error(0.1, confidence=0.99, weight=2)),
        (Error(0.3), 20.0, Error(1.0)),
        (Subset(5, fill="last"), 2.5, Subset(12, fill="last")),
        (Subset(5), 0.1, Subset(1)),
        (Precision(8.0), 0.25, Precision(2.0)),
        (Drift(1.0, belief=0.9), 1.5, Drift(1.5, belief=0.9)),
    ],
)
def test_contracts_that_allow_more_or_less(contract: object, factor: float, wanted: object) -> None:
    assert scaled(contract, factor) == wanted  # type: ignore[arg-type]


def test_all_contracts_of_the_demo_can_be_altered() -> None:
    functions = Functions().with_scalar("network", "string")
    catalog = Catalog.from_sql(demo_sql(HUB, WEBHOOK), functions)
    kinds = {type(contract) for contract in catalog.contracts.values()}
    assert kinds == {Exact, Error, Subset, Precision, Drift}
    tolerance = Tolerance(catalog)
    assert tolerance.wanted(catalog, 1.0) == {}
    told: list[str] = []
    tolerance.set(2.0, catalog, told.append)
    altered = Catalog.from_sql(demo_sql(HUB, WEBHOOK) + told[0], functions)
    for name in catalog.queries:
        assert altered.contracts[name] == scaled(catalog.contracts[name], 2.0)
    tolerance.set(2.0, altered, told.append)
    assert len(told) == 1, "there is nothing left to alter"
    tolerance.set(1.0, altered, told.append)
    assert Catalog.from_sql(demo_sql(HUB, WEBHOOK) + "".join(told), functions).contracts == catalog.contracts


def test_contracts_that_could_not_be_altered_are_altered_later() -> None:
    functions = Functions().with_scalar("network", "string")
    catalog = Catalog.from_sql(demo_sql(HUB, WEBHOOK), functions)
    tolerance = Tolerance(catalog)

    def refuse(statements: str) -> None:
        raise RunError("not now")

    wanted = tolerance.wanted(catalog, 2.0)
    with pytest.raises(RunError):
        tolerance.set(2.0, catalog, refuse)
    assert tolerance.wanted(catalog, 2.0) == wanted
    assert len(wanted) > 5


def test_what_a_visitor_has_altered_or_dropped_is_left_alone() -> None:
    functions = Functions().with_scalar("network", "string")
    text = demo_sql(HUB, WEBHOOK)
    catalog = Catalog.from_sql(text, functions)
    tolerance = Tolerance(catalog)
    changed = Catalog.from_sql(
        text + "ALTER QUERY web_bytes WITH ERROR 1%; DROP QUERY dns_spread;"
        "CREATE QUERY mine AS SELECT COUNT(*) AS n FROM packets GROUP BY window(ts, '1 second') WITH ERROR 3%;",
        functions,
    )
    wanted = tolerance.wanted(changed, 3.0)
    assert not {"web_bytes", "dns_spread", "mine"} & set(wanted)
    assert str(wanted["office_bytes"]) == "ERROR 60%"


def test_a_slider_that_is_moved_again_and_again_begins_one_chapter() -> None:
    world = World().warmed()
    for load in range(1, 30):
        world.dials.turn(KnobsWanted(load=float(load)))
    assert [chapter.name for _, chapter in world.dials.chapters] == ["warming up", "calm", "yours"]
    for _ in range(CHAPTERS):
        world.dials.turn(KnobsWanted(story=True))
        world.dials.turn(KnobsWanted(load=2.0))
    assert len(world.dials.chapters) == CHAPTERS
    assert world.chapter == YOURS.text
