"""Frames laid one on the other: a frame that is not whole says what has changed since those before it."""

from __future__ import annotations

from collections.abc import Sequence

from slackwater.service.models import Frame, Moment, Point, QueryFrame

KEPT_POINTS = 300
GAP = 1.5
"""Slides between two windows beyond which others between them were left out."""


def fold(before: Frame | None, frame: Frame, keep: int = KEPT_POINTS) -> Frame:
    """The run after a frame, whole; ``before`` is the run until then, None where nothing is known of it.

    Of each query the newest ``keep`` points stay, for as long as they are of the same series. What a frame
    says is dropped goes first: a query of that name in the same frame is another one.
    """
    known = _left(before, frame) if before is not None else {}
    told = {query.name: _joined(known.get(query.name), query, keep) for query in frame.queries}
    queries = told if frame.whole else {**known, **told}
    return frame.model_copy(
        update={
            "whole": True,
            "run": _run(before, frame),
            "queries": list(queries.values()),
            "dropped": [],
        }
    )


def joined(first: Frame, second: Frame, keep: int) -> Frame:
    """Two frames that follow each other as one: what has changed in either, as it is after the second."""
    if first.whole or second.whole:
        return fold(first, second, keep)
    known = _left(first, second)
    told = {query.name: _joined(known.get(query.name), query, keep) for query in second.queries}
    queries = {**known, **told}
    # one that is there again is dropped all the same: its points are not those of the one before
    dropped = dict.fromkeys((*first.dropped, *second.dropped))
    return second.model_copy(
        update={"run": _run(first, second), "queries": list(queries.values()), "dropped": list(dropped)}
    )


def moment_of(frame: Frame) -> Moment:
    """What the tide line shows of a frame."""
    lags = [stream.lag_seconds for stream in frame.streams if stream.lag_seconds is not None]
    return Moment(
        number=frame.number,
        at=frame.at,
        load=frame.load,
        kept_load=frame.kept_load,
        capacity=frame.capacity,
        level=frame.level,
        rows_per_second=sum(stream.rows_per_second for stream in frame.streams),
        lag_seconds=max(lags, default=None),
    )


def same_series(one: QueryFrame, other: QueryFrame) -> bool:
    """Whether the points of two frames of a query are of one column and one group."""
    return one.column == other.column and one.keys == other.keys


def _left(before: Frame, frame: Frame) -> dict[str, QueryFrame]:
    """By name: the queries of a frame that the next one does not drop; none where that is of another run."""
    # frames that are made before the run has begun do not know yet which one it is
    if before.run and frame.run and before.run != frame.run:
        return {}
    gone = set(frame.dropped)
    return {query.name: query for query in before.queries if query.name not in gone}


def _run(before: Frame | None, frame: Frame) -> str:
    """Which run two frames are of; a frame that does not know it is of the run before it."""
    return frame.run or (before.run if before is not None else "")


def _joined(before: QueryFrame | None, query: QueryFrame, keep: int) -> QueryFrame:
    if before is not None and query.column is None:
        # nothing has been answered since the run went on: until then it is of the series that was shown
        query = query.model_copy(update={"column": before.column, "keys": before.keys})
    earlier = before.points if before is not None and same_series(before, query) else ()
    if not earlier and len(query.points) <= keep:
        return query
    points = newest(_appended(earlier, query.points), keep, query.slide_seconds)
    return query.model_copy(update={"points": points})


def gap_before(point: Point, before: Point | None, slide_seconds: float | None) -> bool:
    """Whether windows were left out before a point, which follows another one."""
    if point.gap is not None:
        return point.gap
    if before is None or slide_seconds is None:
        return False
    return (point.at - before.at).total_seconds() > GAP * slide_seconds


def newest(points: Sequence[Point], keep: int, slide_seconds: float | None) -> list[Point]:
    """The last points. The first of them says whether windows were left out before it: its distance from
    what a reader has seen before says nothing where others between them are not told."""
    cut = len(points) - keep
    if cut <= 0 or not keep:
        return list(points) if keep else []
    before = [None, *points[:cut]]
    gap = any(
        gap_before(point, last, slide_seconds) for point, last in zip(points[: cut + 1], before, strict=True)
    )
    return [points[cut].model_copy(update={"gap": gap}), *points[cut + 1 :]]


def _appended(earlier: Sequence[Point], later: Sequence[Point]) -> list[Point]:
    """Points in order of time; of two of the same time the later one counts."""
    if not earlier or not later or earlier[-1].at < later[0].at:
        return [*earlier, *later]
    by_time = {point.at: point for point in (*earlier, *later)}
    return [by_time[at] for at in sorted(by_time)]
