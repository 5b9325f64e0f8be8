"""Frames laid one on the other: a frame that is not whole says what has changed since those before it."""

from __future__ import annotations

from collections.abc import Sequence

from slackwater.service.models import Frame, Moment, Point, QueryFrame

KEPT_POINTS = 300


def fold(before: Frame | None, frame: Frame, keep: int = KEPT_POINTS) -> Frame:
    """The run after a frame, whole; ``before`` is the run until then, None where nothing is known of it.

    Of each query the newest ``keep`` points stay, for as long as they are of the same series.
    """
    known = {query.name: query for query in before.queries} if before is not None else {}
    told = {query.name: _joined(known.get(query.name), query, keep) for query in frame.queries}
    if frame.whole:
        queries = told
    else:
        gone = set(frame.dropped)
        queries = {name: query for name, query in known.items() if name not in gone}
        queries.update(told)
    return frame.model_copy(update={"whole": True, "queries": list(queries.values()), "dropped": []})


def joined(first: Frame, second: Frame, keep: int) -> Frame:
    """Two frames that follow each other as one: what has changed in either, as it is after the second."""
    if first.whole or second.whole:
        return fold(first, second, keep)
    known = {query.name: query for query in first.queries}
    gone = set(second.dropped)
    queries = {name: query for name, query in known.items() if name not in gone}
    queries.update({q.name: _joined(known.get(q.name), q, keep) for q in second.queries})
    # one that was dropped and is there again is dropped for no reader: its new frame says all of it
    dropped = dict.fromkeys(name for name in (*first.dropped, *second.dropped) if name not in queries)
    return second.model_copy(update={"queries": list(queries.values()), "dropped": list(dropped)})


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


def _joined(before: QueryFrame | None, query: QueryFrame, keep: int) -> QueryFrame:
    earlier = before.points if before is not None and same_series(before, query) else ()
    if not earlier and len(query.points) <= keep:
        return query
    return query.model_copy(update={"points": _appended(earlier, query.points)[-keep:] if keep else []})


def _appended(earlier: Sequence[Point], later: Sequence[Point]) -> list[Point]:
    """Points in order of time; a later one replaces those that are not before it."""
    if not later:
        return list(earlier)
    first = later[0].at
    kept = len(earlier)
    while kept and earlier[kept - 1].at >= first:
        kept -= 1
    return [*earlier[:kept], *later]
