"""What leaving windows out saves, as the load equation asks it: the demands of window drops.

A drop that leaves out a share m of its windows needs the part 1 - g·m of the rows of a path. The gain g is 1
for windows one after the other and less where they overlap, 0 where every row is in some window that is kept.
It is counted on the schedule itself, not by the paper's formulas, which are here to be shown beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from slackwater.language.contracts import Subset
from slackwater.plan.panes import AFTER_ALL, BEFORE_ALL
from slackwater.plan.slots import Slots
from slackwater.plan.tables import Plan
from slackwater.planners.window_coins import Run, decide
from slackwater.planners.window_needs import Needs, complement, need_bits, part_needed
from slackwater.planners.window_rules import DropPoint, DropWindow
from slackwater.planners.window_schedule import QuerySchedule, Range, Schedule, joined

COUNTED = 200
"""Batches of windows that a gain is counted on."""
NEARLY = 0.9
"""Of the rows that the longest run of left-out windows saves, what a shorter one must save."""
NOT_QUITE = 0.98
"""Of the largest share: there what is owed would never be paid back."""


@dataclass(frozen=True)
class WindowDemand:
    """What a window drop can give up, and what that saves."""

    point: str
    gains: Mapping[str, float]
    """By slot that its queries read: the part of the rows that is saved for each share that is left out."""
    most: float
    """The largest share that may be left out: B/(B + 1)."""
    weight: float
    """The loss of leaving all out: of its queries the largest, each over what its gap allows."""
    worth: float
    """The sum of its queries' weights."""
    queries: int = 1
    members: tuple[str, ...] = ()
    """Names of the queries in lower case."""
    priority: int | None = None
    after: float = 0.0
    """Seconds in a batch for what comes after the first aggregates: nested steps, windows made by Spark."""


def window_demands(
    plan: Plan,
    points: Mapping[str, DropPoint],
    gains: Mapping[str, Mapping[str, float]],
    after: Mapping[str, float],
) -> tuple[WindowDemand, ...]:
    """The demands of all drops of a stream; ``gains`` by drop and slot, ``after`` in seconds by drop."""
    found = []
    for id_, point in points.items():
        contracts = [plan.catalog.contracts[name] for name in point.members]
        subsets = [c for c in contracts if isinstance(c, Subset)]
        gap = point.drop.gap
        found.append(
            WindowDemand(
                id_,
                gains.get(id_, {}),
                gap / (gap + 1),
                max(c.weight * (c.gap + 1) / c.gap for c in subsets),
                sum(c.weight for c in subsets),
                len(subsets),
                point.members,
                point.priority,
                after.get(id_, 0.0),
            )
        )
    return tuple(found)


def least_run(drop: DropWindow) -> int:
    """How many windows should be left out in a row, so that rows are saved: at most the gap.

    The fewer, the fewer are also kept in a row, and while windows are kept batches take long. But where
    windows overlap only long runs save rows: as many as it takes for nine tenths of what the longest saves.

    >>> least_run(DropWindow(1, 1, 10)), least_run(DropWindow(10, 1, 60)), least_run(DropWindow(10, 1, 5))
    (1, 39, 5)
    """

    # of a run of n windows the part 1 - overlap/n of the rows is needed by none that is kept
    overlap = max(0.0, drop.size / drop.slide - 1)
    most = 1 - overlap / drop.gap
    if most <= 0:
        return drop.gap
    return min(drop.gap, max(1, math.ceil(overlap / (1 - NEARLY * most) - 1e-9)))


def gains_of(plan: Plan, slots: Slots, points: Mapping[str, DropPoint]) -> dict[str, dict[str, float]]:
    """By drop and slot: what part of the slot's rows a share of left-out windows saves.

    Guarantee: counted, on the needs of a schedule with random coins; exact for windows that repeat.
    """
    droppable = need_bits(plan, slots)
    everyone = [name for point in points.values() for name in point.members]
    found: dict[str, dict[str, float]] = {}
    for id_, point in points.items():
        found[id_] = {}
        if point.kind != "time":
            continue
        out, share, (low, high) = counted(point.drop)
        nothing = QuerySchedule(AFTER_ALL, out=((BEFORE_ALL, AFTER_ALL),))
        queries = dict.fromkeys(everyone, nothing)
        queries |= dict.fromkeys(point.members, QuerySchedule(AFTER_ALL, out=out))
        needs = Needs(plan, Schedule(queries))
        for slot in slots.all:
            if slot.id in droppable and any(leads_to(plan, name, point.members) for name in slot.steps):
                rows = joined([r for name in slot.steps for r in needs.rows(name)])
                found[id_][slot.id] = (1 - part_needed(rows, low, high)) / share
    return found


def counted(drop: DropWindow, most: float = 1.0) -> tuple[tuple[Range, ...], float, Range]:
    """A long schedule of a drop: what it leaves out, which share that is, and where to look at it."""
    random = Random(1)
    coins: dict[int, float] = {}
    units = COUNTED * drop.gap
    share = NOT_QUITE * most * drop.gap / (drop.gap + 1)
    left_out, _ = decide(Run(0), drop.gap, share, units, lambda b: coins.setdefault(b, random.random()))
    out = joined((u * drop.slide, (u + 1) * drop.slide) for u in left_out)
    edge = -(-drop.size // drop.slide) * drop.slide
    low, high = edge, max(2 * edge, units * drop.slide - edge)
    return out, 1 - part_needed(complement(out), low, high), (low, high)


def leads_to(plan: Plan, name: str, members: Sequence[str]) -> bool:
    """Whether a step is one of some queries, or read by one of them, at any depth."""
    return name in members or any(leads_to(plan, r.step.name.lower(), members) for r in plan.steps_on(name))


def selectivities(drop: DropWindow, share: float) -> tuple[float, float]:
    """sel_w1 and sel_w2 of the paper: rows that stay normal, and rows kept only for the mark they carry.

    Reference: Tatbul, Zdonik (VLDB 2006), section 3.6, with one row per time unit. They count a batch as
    (B - 1)·δ + ω rows though it advances by B·δ, and hold for B >= ω/δ: shown, not planned with.

    >>> selectivities(DropWindow(10, 10, 10), 0.5)
    (0.5, 0.05)
    """
    alone = (drop.gap + 1) * drop.slide - drop.size
    if not drop.early or alone <= 0:
        return 1.0, 0.0
    held = (drop.gap - 1) * drop.slide + drop.size
    fakes = (drop.gap + 1 - drop.size // drop.slide) / alone
    return 1 - share * alone / held, share * fakes
