"""How a window drop is set before several aggregates: the rules of the paper, and where drops are placed.

Reference: Tatbul, Zdonik: Window-Aware Load Shedding for Aggregation Queries over Data Streams (VLDB 2006),
table 2 and section 3.5. A *drop* decides on windows of ``size`` that start every ``slide``, at most ``gap``
of them in a row; sizes and slides are whole numbers of one unit (microseconds, or rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import Literal

WindowKind = Literal["time", "rows"]


@dataclass(frozen=True)
class DropWindow:
    """What a window drop divides its stream into, and how many of those windows it may leave out in a row."""

    size: int
    slide: int
    gap: int

    @property
    def early(self) -> bool:
        """Whether rows can be dropped, and not just windows: a run of dropped windows leaves some alone.

        >>> DropWindow(10, 1, 9).early, DropWindow(10, 1, 10).early
        (False, True)
        """
        return self.gap >= self.size // self.slide


def through(size: int, below: DropWindow) -> DropWindow:
    """The pipeline rule: a drop moved from behind an aggregate of a window size to before it.

    >>> through(3, DropWindow(3, 3, 1))
    DropWindow(size=5, slide=3, gap=1)
    """
    return replace(below, size=below.size + size - 1)


def shared(drops: Sequence[DropWindow]) -> DropWindow | None:
    """The fan-out rule: one drop for several branches; None where some branch cannot miss that much.

    When the shared drop slides once, a branch slides several times: its gap is scaled by that, and floored.

    >>> shared([DropWindow(3, 2, 3), DropWindow(3, 3, 2)])
    DropWindow(size=7, slide=6, gap=1)
    >>> shared([DropWindow(3, 2, 2), DropWindow(3, 3, 2)]) is None
    True
    """
    slide = lcm(*(drop.slide for drop in drops))
    gap = min(drop.gap // (slide // drop.slide) for drop in drops)
    size = slide + max(drop.size - drop.slide for drop in drops)
    return DropWindow(size, slide, gap) if gap >= 1 else None


@dataclass(frozen=True)
class DropNode:
    """An aggregate, or the stream itself (without a size), and all that reads its rows."""

    name: str
    size: int = 0
    slide: int = 0
    kind: WindowKind = "time"
    keys: tuple[str, ...] = ()
    gap: int | None = None
    """How many of its own answers may be missing in a row; None where it has no reader but other steps."""
    priority: int | None = None
    readers: tuple[DropNode, ...] = ()


@dataclass(frozen=True)
class DropPoint:
    """One window drop: where it stands, and the queries whose windows it decides on."""

    source: str
    """Whose rows it stands behind: the stream, or an aggregate."""
    drop: DropWindow
    members: tuple[str, ...]
    kind: WindowKind = "time"
    keys: tuple[str, ...] = ()
    priority: int | None = None

    @property
    def early(self) -> bool:
        """Whether it stands at the source, before any other operator; otherwise at the first aggregate."""
        return self.drop.early


def drop_points(stream: DropNode) -> tuple[DropPoint, ...]:
    """Where drops stand so that each is as early as it may be.

    Guarantee: every query with a gap is in one point; no run of dropped windows of a point is more than any
    of its queries allows. Variant: a drop moves towards the stream through aggregates over the same kind of
    window with the same keys. At a split, drops become one where the scaled gap leaves at least one window,
    early drops are not lost by it, and all have the same priority; else they stay below it.

    >>> leaf = DropNode("b", 3, 3, gap=2)
    >>> found = drop_points(DropNode("s", readers=(DropNode("a", 3, 2, readers=(leaf,)),)))
    >>> [(point.source, point.drop, point.members) for point in found]
    [('s', DropWindow(size=5, slide=3, gap=2), ('b',))]
    """
    settled: list[DropPoint] = []
    moving = _behind(stream, settled)
    return (*moving, *settled)


def _behind(node: DropNode, settled: list[DropPoint]) -> list[DropPoint]:
    """The drops that stand behind a node, where its rows go to all that reads it."""
    return _together([point for reader in node.readers for point in _before(reader, node.name, settled)])


def _before(node: DropNode, source: str, settled: list[DropPoint]) -> list[DropPoint]:
    """The drops that stand before an aggregate; those that cannot move through it are settled behind it."""
    found = []
    if node.gap is not None:
        own = DropWindow(node.size, node.slide, node.gap)
        found.append(DropPoint(source, own, (node.name,), node.kind, node.keys, node.priority))
    for point in _behind(node, settled):
        if node.kind == "time" and (point.kind, point.keys) == ("time", node.keys):
            found.append(replace(point, source=source, drop=through(node.size, point.drop)))
        else:
            settled.append(point)
    return _together(found)


def _together(points: list[DropPoint]) -> list[DropPoint]:
    """The drops at a split, as few as there can be: each joins the first that it fits."""
    found: list[DropPoint] = []
    for point in points:
        for place, other in enumerate(found):
            joined = _joined(other, point)
            if joined is not None:
                found[place] = joined
                break
        else:
            found.append(point)
    return found


def _joined(one: DropPoint, other: DropPoint) -> DropPoint | None:
    # windows over rows are counted by each aggregate for itself
    alike = one.kind == other.kind == "time" and (one.keys, one.priority) == (other.keys, other.priority)
    drop = shared([one.drop, other.drop]) if alike else None
    if drop is None or ((one.drop.early or other.drop.early) and not drop.early):
        return None
    return replace(one, drop=drop, members=(*one.members, *other.members))
