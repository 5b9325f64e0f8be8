"""What a schedule of windows needs: which windows of every step, and so which rows of every source.

A window of a nested step needs the windows of the step below that start in it, and those need the rows from
the start of the first to the end of the last. Both follow from the windows alone, so the needs are exact,
where the paper takes the worst case of an aggregate that starts a window at every time there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd

import numpy as np
import numpy.typing as npt

from slackwater.language.contracts import Subset
from slackwater.plan.model import TimeWindow, TupleWindow, Window
from slackwater.plan.panes import AFTER_ALL, BEFORE_ALL, Ints
from slackwater.plan.scope import digest
from slackwater.plan.slots import Slots
from slackwater.plan.tables import Plan, StepPlan
from slackwater.planners.window_rules import DropNode, DropPoint, drop_points
from slackwater.planners.window_schedule import QuerySchedule, Range, Schedule, joined

ALL: tuple[Range, ...] = ((BEFORE_ALL, AFTER_ALL),)
BITS = 62
"""Of a number: so many needs can be told apart."""
CELLS_AT_MOST = 4096
"""Of a batch: where windows change more often than that, some rows are kept that nobody needs."""


def points_of(plan: Plan, stream: str) -> dict[str, DropPoint]:
    """The window drops of a stream, by name."""
    tick = tick_of(plan, stream)
    points = drop_points(DropNode(stream.lower(), readers=_readers(plan, stream, tick)))
    found = {}
    for point in points:
        scale = tick if point.kind == "time" else 1
        drop = replace(point.drop, size=point.drop.size * scale, slide=point.drop.slide * scale)
        found["d_" + digest(*point.members, drop, length=10)] = replace(point, drop=drop)
    return found


def tick_of(plan: Plan, stream: str) -> int:
    """The time unit of a stream's windows: all of them start and end at multiples of it."""
    windows = [s.step.window for s in plan.steps_of_stream(stream)]
    return gcd(*(w.pane for w in windows if isinstance(w, TimeWindow))) or 1


def _readers(plan: Plan, source: str, tick: int) -> tuple[DropNode, ...]:
    return tuple(_node(plan, s, tick) for s in plan.steps_on(source) if s.step.window is not None)


def _node(plan: Plan, step: StepPlan, tick: int) -> DropNode:
    window, name = step.step.window, step.step.name.lower()
    assert window is not None
    scale = tick if isinstance(window, TimeWindow) else 1
    contract = plan.catalog.contracts.get(name)
    subset = contract if isinstance(contract, Subset) and step.step.published else None
    if isinstance(window, TupleWindow) and plan.steps_on(name):
        # those who read it need all of it
        subset = None
    return DropNode(
        name,
        window.size // scale,
        window.slide // scale,
        "rows" if isinstance(window, TupleWindow) else "time",
        tuple(sorted(key.name for key in step.step.keys)),
        subset.gap if subset is not None else None,
        subset.priority if subset is not None else None,
        _readers(plan, step.step.name, tick),
    )


def may_leave_out(plan: Plan, step: StepPlan) -> bool:
    """Whether windows of a step can be left out: by its own contract, and by those of all that read it."""
    contract = plan.catalog.contracts.get(step.step.name.lower())
    readers = plan.steps_on(step.step.name)
    if step.step.window is None or (step.step.published and not isinstance(contract, Subset)):
        return False
    if isinstance(step.step.window, TupleWindow) and readers:
        # the times of its windows are known only when they have been counted
        return False
    if not step.step.published and not readers:
        return False
    return all(may_leave_out(plan, r) and not isinstance(r.step.window, TupleWindow) for r in readers)


def kept(schedule: QuerySchedule | None) -> tuple[Range, ...]:
    """Where windows of a query start that are kept, or not decided.

    >>> kept(QuerySchedule(20, out=((0, 5),), shut=((10, 20),)))[1:-1]
    ((5, 10),)
    """
    return ALL if schedule is None else complement(joined([*schedule.out, *schedule.shut]))


def complement(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """What lies between ranges that are in order."""
    edges = [BEFORE_ALL, *(edge for r in ranges for edge in r), AFTER_ALL]
    return tuple((low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high)


def inside(ranges: Sequence[Range], at: Ints) -> npt.NDArray[np.bool_]:
    """Which of some points lie in ranges that are in order.

    >>> inside(((0, 2), (5, 6)), np.array([-1, 0, 2, 5])).tolist()
    [False, True, False, True]
    """
    edges = np.array([edge for r in ranges for edge in r], dtype=np.int64)
    found: npt.NDArray[np.bool_] = np.searchsorted(edges, at, side="right") % 2 == 1
    return found


def spanned(window: Window, starts: Sequence[Range], *, tick: int | None = None) -> tuple[Range, ...]:
    """The stretches that windows cover which start in some ranges; with a ``tick``: at every tick in them.

    >>> spanned(TimeWindow(3, 2), [(1, 4)]), spanned(TimeWindow(3, 2), [(1, 4)], tick=1)
    (((2, 5),), ((1, 6),))
    >>> spanned(TimeWindow(3, 2), [(1, 2)])
    ()
    """
    found = []
    for low, high in starts:
        first, last = low, high - (tick or 1)
        if tick is None and low > BEFORE_ALL:
            first = -((window.offset - low) // window.slide) * window.slide + window.offset
        if tick is None and high < AFTER_ALL:
            last = (high - 1 - window.offset) // window.slide * window.slide + window.offset
        if first <= last:
            found.append((first, last + window.size if high < AFTER_ALL else AFTER_ALL))
    return joined(found)


@dataclass
class Needs:
    """What is needed under one schedule; worked out once for each step that is asked for."""

    plan: Plan
    schedule: Schedule
    _windows: dict[str, tuple[Range, ...]] = field(default_factory=dict)

    def delivered(self, name: str) -> tuple[Range, ...]:
        """Where windows of a query start that are delivered."""
        return kept(self.schedule.queries.get(name.lower()))

    def windows(self, name: str) -> tuple[Range, ...]:
        """Where windows of a step start that must be computed, delivered or not."""
        name = name.lower()
        if name not in self._windows:
            self._windows[name] = self._computed(self.plan.steps[name])
        return self._windows[name]

    def _computed(self, step: StepPlan) -> tuple[Range, ...]:
        name = step.step.name.lower()
        if not may_leave_out(self.plan, step):
            # rows of left-out windows over rows are gone, whoever has come to read them since
            return self.delivered(name) if isinstance(step.step.window, TupleWindow) else ALL
        readers = self.plan.steps_on(name)
        placing = self.schedule.placing
        if readers and (placing == "last" or (placing == "first" and _over_stream(step))):
            return ALL
        own_windows = self.delivered(name) if step.step.published else ()
        return joined([*own_windows, *self.handed(name)])

    def rows(self, name: str) -> tuple[Range, ...]:
        """The times of its source's rows that a step needs; all of them for windows over rows."""
        plan, placing = self.plan.steps[name.lower()], self.schedule.placing
        window = plan.step.window
        if window is None or isinstance(window, TupleWindow) or placing == "last":
            return ALL
        if placing == "first" and _over_stream(plan):
            return ALL
        if placing == "conservative" and may_leave_out(self.plan, plan):
            tick = tick_of(self.plan, plan.step.stream)
            own_windows = self.delivered(name) if plan.step.published else ()
            return joined([*spanned(window, own_windows), *spanned(window, self.handed(name), tick=tick)])
        return spanned(window, self.windows(name))

    def numbers(self, name: str) -> tuple[Range, ...]:
        """The numbers of the rows that a step with windows over rows needs."""
        window = self.plan.steps[name.lower()].step.window
        assert isinstance(window, TupleWindow)
        return ALL if self.schedule.placing == "last" else spanned(window, self.windows(name))

    def handed(self, name: str) -> tuple[Range, ...]:
        """Where windows of a step start whose rows are handed on to those that read it."""
        return joined([r for reader in self.plan.steps_on(name) for r in self.rows(reader.step.name)])


def _over_stream(step: StepPlan) -> bool:
    return step.step.path.source.lower() == step.step.stream.lower()


def need_bits(plan: Plan, slots: Slots) -> dict[str, int]:
    """By slot whose windows may be left out: its bit. Where there are too many, the last share one."""
    found: dict[str, int] = {}
    for slot in slots.all:
        steps = [plan.steps[name] for name in slot.steps]
        over_time = all(not isinstance(s.step.window, TupleWindow) for s in steps)
        if over_time and all(may_leave_out(plan, s) for s in steps):
            found[slot.id] = min(len(found), BITS - 1)
    return found


def bit_needs(needs: Needs, slots: Slots, bits: Mapping[str, int]) -> list[tuple[Range, ...]]:
    """By bit: the times that its slots need."""
    found: list[list[Range]] = [[] for _ in range(max(bits.values(), default=-1) + 1)]
    for slot in slots.all:
        if slot.id in bits:
            found[bits[slot.id]] += [r for name in slot.steps for r in needs.rows(name)]
    return [joined(ranges) for ranges in found]


@dataclass(frozen=True)
class Cells:
    """Needs of several kinds as bits, by cells of one width: what a row needs to know of its time."""

    base: int
    width: int
    bits: tuple[int, ...]
    """By cell; outside of the cells all bits are set."""


def cells_of(needs: Sequence[Sequence[Range]], low: int) -> Cells | None:
    """Bit k of a cell says whether the k-th need has a part in it; None where all is needed from ``low`` on.

    >>> cells_of([[(0, 4), (8, AFTER_ALL)], [(2, AFTER_ALL)]], 0)
    Cells(base=0, width=2, bits=(1, 3, 2, 2))
    """
    edges = {edge for need in needs for r in need for edge in r if low < edge < AFTER_ALL}
    if not edges:
        return None
    base, high = max(low, min(edges)) if low <= BEFORE_ALL else low, max(edges)
    if low <= BEFORE_ALL:
        # nothing is known of what lies before: all of it is needed
        edges.discard(base)
        if not edges:
            return None
    first_edge = min(edges)
    width = int(np.gcd.reduce(np.array([edge - first_edge for edge in edges], dtype=np.int64)))
    width = width or max(1, first_edge - base)
    # edges lie at the ends of cells, so that they need be no finer
    base -= (base - first_edge) % width
    width = max(width, -(-(high - base) // CELLS_AT_MOST))
    bits = np.zeros(-(-(high - base) // width), dtype=np.int64)
    # where cells are coarser, the last one reaches further than the last edge
    high = base + len(bits) * width
    for number, need in enumerate(needs):
        for first, end in need:
            if end > base and first < high:
                bits[max(first - base, 0) // width : -(-(min(end, high) - base) // width)] |= 1 << number
    return Cells(base, width, tuple(bits.tolist()))


def part_needed(needs: Iterable[Range], low: int, high: int) -> float:
    """Which part of a stretch of time is needed.

    >>> part_needed([(BEFORE_ALL, 2), (4, 6)], 0, 8)
    0.5
    """
    if high <= low:
        return 1.0
    held = sum(max(0, min(end, high) - max(first, low)) for first, end in needs)
    return held / (high - low)
