"""The schedule: which windows of which queries are left out.

A schedule says of each query which of its windows are left out, by where they start. It is decided some way
ahead of the rows, recorded with the batch, and never changed: rows may have been dropped by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal

from slackwater.plan.panes import BEFORE_ALL
from slackwater.planners.window_coins import Run, coin, decide, spread
from slackwater.planners.window_rules import DropPoint

Range = tuple[int, int]
"""From where to where windows start, the end excluded: microseconds, or row numbers."""
Placing = Literal["needed", "conservative", "first", "last"]
"""What a left-out window saves: all that no other needs; what the paper's window leaves; nothing before
the handing on of rows (a drop in the middle); nothing before the last aggregate is done (a random drop)."""


@dataclass(frozen=True)
class QuerySchedule:
    """The windows of one query, by where they start. What is not decided yet is kept until it is."""

    decided: int
    """Windows that start before it are decided."""
    out: tuple[Range, ...] = ()
    """Left out."""
    shut: tuple[Range, ...] = ()
    """Given up for want of capacity: the query says so."""
    thinned: tuple[tuple[int, int, float], ...] = ()
    """Where windows are being left out, and which share of them."""

    def share_at(self, start: int) -> float:
        """Which share of windows was left out when one was decided that starts there."""
        return next((share for low, high, share in self.thinned if low <= start < high), 0.0)

    def since(self, low: int) -> QuerySchedule:
        """The same without what ends before a point."""
        return replace(
            self,
            out=tuple(r for r in self.out if r[1] > low),
            shut=tuple(r for r in self.shut if r[1] > low),
            thinned=tuple(r for r in self.thinned if r[1] > low),
        )


@dataclass(frozen=True)
class Schedule:
    """The schedules of all queries of a stream, and where each drop stands."""

    queries: Mapping[str, QuerySchedule] = field(default_factory=dict)
    """By name in lower case."""
    runs: Mapping[str, Run] = field(default_factory=dict)
    """By drop."""
    placing: Placing = "needed"
    always: bool = False
    """Test rows for being needed though all are: to see what it costs."""
    looks_first: bool = True
    """Whether the time of a row is looked at before anything else of it is."""
    dropped_to: int = BEFORE_ALL
    """No row after it has been dropped so far for want of a window that needs it."""

    def since(self, opened: Mapping[str, int]) -> Schedule:
        """The same without windows that have closed; by query, where its first open one starts."""
        queries = {n: q.since(opened[n]) if n in opened else q for n, q in self.queries.items()}
        return replace(self, queries=queries)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Schedule:
        """The schedule that was written down; an empty one where there is nothing."""
        pairs = {
            name: QuerySchedule(
                q["decided"],
                tuple((int(a), int(b)) for a, b in q["out"]),
                tuple((int(a), int(b)) for a, b in q["shut"]),
                tuple((int(a), int(b), float(s)) for a, b, s in q["thinned"]),
            )
            for name, q in value.get("queries", {}).items()
        }
        runs = {name: Run(**run) for name, run in value.get("runs", {}).items()}
        rest = {
            name: value[name] for name in ("placing", "always", "looks_first", "dropped_to") if name in value
        }
        return cls(pairs, runs, **rest)


@dataclass(frozen=True)
class Extent:
    """For one drop: from where on windows may be decided, and up to where; of which it leaves out a share."""

    point: DropPoint
    id: str
    low: int
    """Windows that start before it have rows already, and are kept."""
    high: int
    share: float = 0.0
    shut: frozenset[str] = frozenset()
    """Members that are given up meanwhile."""
    run: int | None = None
    """How many windows in a row are left out at least, where they are spread evenly; else coins decide."""


def extended(schedule: Schedule, extents: Sequence[Extent], salt: int) -> Schedule:
    """The schedule after deciding on more windows; what was decided stays as it was.

    Drops that are new, since the query set has changed, begin after what their queries had decided, with a
    window that is kept: nobody knows how many have been left out in a row by then. Windows of a query whose
    contract has changed stay left out: their rows are gone.
    """
    queries = dict(schedule.queries)
    runs: dict[str, Run] = {}
    dropped_to = schedule.dropped_to
    for extent in extents:
        drop, members = extent.point.drop, extent.point.members
        run = schedule.runs.get(extent.id)
        if run is None:
            known = [queries[n].decided for n in members if n in queries]
            first = -(-max([extent.low, *known]) // drop.slide)
            run = Run(first, drop.gap if known else 0)
        to = max(run.unit, -(-extent.high // drop.slide))
        begin, end = run.unit * drop.slide, to * drop.slide
        if extent.run is None:
            units, runs[extent.id] = decide(run, drop.gap, extent.share, to, _coins(salt, extent.id))
        else:
            # all drops start alike, so that they leave out the same windows: a row that one of them needs is
            # there for all
            start = partial(_start, salt, drop.slide)
            units, runs[extent.id] = spread(run, drop.gap, extent.share, extent.run, to, start)
        out = list(_ranges(units, drop.slide))
        if extent.point.kind == "time" and (units or extent.shut):
            # a row may be needed by a window that starts later, or a nested one, and by none of those here
            dropped_to = max(dropped_to, end + drop.size)
        for name in members:
            before = queries.get(name, QuerySchedule(begin))
            shut = name in extent.shut
            queries[name] = QuerySchedule(
                max(end, before.decided),
                joined([*before.out, *([] if shut else out)]),
                joined([*before.shut, *([(begin, end)] if shut and begin < end else [])]),
                _thinned(before.thinned, begin, end, 0.0 if shut else extent.share),
            )
    return replace(schedule, queries=queries, runs=runs, dropped_to=dropped_to)


def _start(salt: int, slide: int, unit: int) -> float:
    return coin(salt, "", unit * slide)


def _coins(salt: int, point: str) -> Callable[[int], float]:
    return lambda batch: coin(salt, point, batch)


def _ranges(units: Iterable[int], slide: int) -> Iterable[Range]:
    return joined((unit * slide, (unit + 1) * slide) for unit in units)


def joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Ranges in order, those that touch made one.

    >>> joined([(4, 6), (0, 2), (2, 3), (5, 9)])
    ((0, 3), (4, 9))
    """
    found: list[Range] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)


def _thinned(
    before: tuple[tuple[int, int, float], ...], begin: int, end: int, share: float
) -> tuple[tuple[int, int, float], ...]:
    if share <= 0.0 or begin >= end:
        return before
    if before and before[-1][1] == begin and before[-1][2] == share:
        return (*before[:-1], (before[-1][0], end, share))
    return (*before, (begin, end, share))
