"""A schedule of windows at work in one turn: the numbers that statements test, and the windows that close."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from slackwater.plan.model import TimeWindow
from slackwater.plan.panes import AFTER_ALL, Ints, first_start, last_closed, starts
from slackwater.plan.slots import Slots, slots_of
from slackwater.plan.tables import Plan, StepPlan
from slackwater.planners.window_needs import (
    ALL,
    Cells,
    Needs,
    bit_needs,
    cells_of,
    inside,
    need_bits,
    part_needed,
)
from slackwater.planners.window_schedule import QuerySchedule, Range, Schedule, joined

NO_CELLS = (AFTER_ALL, 1)
"""Numbers of a batch all of whose rows are needed: its cells begin after all times."""
SAID_AT_MOST = 10_000
"""Windows that are said to be given up in one turn."""


@dataclass
class WindowDrops:
    """What is left out in a turn. Without drops nothing is tested and every window is delivered."""

    plan: Plan
    stream: str = ""
    schedule: Schedule = field(default_factory=Schedule)
    tested: bool = False
    """Whether statements test rows for being needed."""
    low: int = -AFTER_ALL
    """No row before it counts: the watermark."""
    _cells: dict[str, Cells | None] = field(default_factory=dict)

    @cached_property
    def needs(self) -> Needs:
        return Needs(self.plan, self.schedule)

    @property
    def idle(self) -> bool:
        """Whether no query has a schedule."""
        return not self.schedule.queries

    def of(self, name: str) -> QuerySchedule | None:
        return self.schedule.queries.get(name.lower())

    def delivered(self, name: str) -> tuple[Range, ...]:
        """Where windows of a query start that are delivered."""
        return ALL if self.idle else self.needs.delivered(name)

    def computed(self, name: str) -> tuple[Range, ...]:
        """Where windows of a step start that are computed."""
        return ALL if self.idle else self.needs.windows(name)

    def handed(self, name: str) -> tuple[Range, ...]:
        """Where windows of a step start that those who read it need."""
        return ALL if self.idle else self.needs.handed(name)

    def needed(self, slots: Slots) -> dict[str, tuple[Range, ...]]:
        """By slot whose windows may be left out: the times that it needs."""
        if self.idle:
            return {}
        bits = need_bits(self.plan, slots)
        return {
            s.id: joined([r for n in s.steps for r in self.needs.rows(n)]) for s in slots.all if s.id in bits
        }

    def parts(self, slots: Slots, low: int, high: int) -> dict[str, float]:
        """By slot whose windows may be left out: which part of a stretch of time it needs."""
        return {slot: part_needed(ranges, low, high) for slot, ranges in self.needed(slots).items()}

    def root(self, slots: Slots) -> Cells | None:
        """The times that any slot of a stream needs, as bit 0; None where that is all of them.

        Slots that are sampled do not count: their rows are found by their thresholds.
        """
        ranges = joined([r for need in self.needed(slots).values() for r in need])
        return cells_of([ranges], self.low)

    def numbers(self, source: str) -> tuple[int, ...]:
        """What a source's statements test the times of rows against."""
        if not self.tested:
            return ()
        if source not in self._cells:
            slots = slots_of(self.plan, source)
            needs = bit_needs(self.needs, slots, need_bits(self.plan, slots))
            low = self.low if source.lower() == self.stream.lower() else -AFTER_ALL
            self._cells[source] = cells_of(needs, low)
        return _numbers(self._cells[source])

    def row_numbers(self, table_id: str, counted: int) -> tuple[int, ...]:
        """What the statement of windows over rows tests the numbers of rows against."""
        if not self.tested:
            return ()
        steps = [s for s in self.plan.steps.values() if table_id in s.tables]
        ranges = joined([r for s in steps for r in self.needs.numbers(s.step.name)])
        return _numbers(cells_of([ranges], counted))

    def mask(self, ranges: tuple[Range, ...], at: Ints) -> npt.NDArray[np.bool_]:
        return np.ones(len(at), dtype=np.bool_) if ranges == ALL else inside(ranges, at)

    def shut(self, plan: StepPlan, closed: int, watermark: int) -> Ints:
        """Starts of the windows that close between two watermarks, or numbers of rows, and were given up."""
        schedule = self.of(plan.step.name)
        return self._closing(plan, schedule.shut if schedule is not None else (), closed, watermark)

    def out(self, plan: StepPlan, closed: int, watermark: int) -> Ints:
        """Starts of the windows over time that close between two watermarks and were left out."""
        schedule = self.of(plan.step.name)
        if not isinstance(plan.step.window, TimeWindow):
            return np.empty(0, dtype=np.int64)
        return self._closing(plan, schedule.out if schedule is not None else (), closed, watermark)

    def _closing(self, plan: StepPlan, ranges: tuple[Range, ...], closed: int, watermark: int) -> Ints:
        window = plan.step.window
        assert window is not None
        found: list[Ints] = []
        for low, high in ranges:
            first = max(-((window.offset - low) // window.slide), last_closed(window, closed) + 1)
            last = min((high - 1 - window.offset) // window.slide, last_closed(window, watermark))
            found.append(starts(window, np.arange(max(first, last - SAID_AT_MOST), last + 1)))
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)

    def rest(self, watermarks: Mapping[str, int], counted: Mapping[str, int]) -> Schedule:
        """The schedule without the windows that have closed; by source, up to where it is complete."""
        there = {n: q for n, q in self.schedule.queries.items() if n in self.plan.steps}
        return replace(self.schedule, queries=there).since(dict(self._opened(watermarks, counted)))

    def _opened(self, watermarks: Mapping[str, int], counted: Mapping[str, int]) -> Iterator[tuple[str, int]]:
        for name in self.schedule.queries:
            plan = self.plan.steps.get(name)
            if plan is None or plan.step.window is None:
                continue
            window = plan.step.window
            if isinstance(window, TimeWindow):
                reached = watermarks.get(plan.step.path.source.lower(), -AFTER_ALL)
            else:
                reached = min((counted.get(t, 0) for t in plan.tables), default=0)
            if abs(reached) < AFTER_ALL:
                yield name, first_start(window, reached)


def _numbers(cells: Cells | None) -> tuple[int, ...]:
    return NO_CELLS if cells is None else (cells.base, cells.width, *cells.bits)
