"""What has been measured of the load, as the API tells it."""

from __future__ import annotations

import math
from collections.abc import Collection

from slackwater.runtime.insight import Insight, StreamInsight
from slackwater.service.api_models import (
    DropOut,
    Level,
    OperatorOut,
    QueryStatisticsOut,
    Statistics,
    StreamLevel,
    StreamStatisticsOut,
)
from slackwater.service.models import Frame


def statistics_of(insight: Insight, ended: Collection[str] = (), quiet: Collection[str] = ()) -> Statistics:
    """All streams; ``ended``: the names, in lower case, of those that have no batches any more.

    ``quiet``: of those that are no load, since they are idle or have ended.
    """
    streams = [_stream(stream, stream.stream.lower() in ended) for stream in insight.streams]
    return Statistics(
        capacity=_finite(insight.capacity),
        correction=insight.correction,
        load=sum(stream.load for stream in streams if stream.stream.lower() not in quiet),
        streams=streams,
    )


def level_of(frame: Frame) -> Level:
    """The level of a frame."""
    return Level(
        level=frame.level,
        load=frame.load,
        kept_load=frame.kept_load,
        capacity=frame.capacity,
        streams=[StreamLevel(stream=s.name, level=s.level, kept=s.kept) for s in frame.streams],
    )


def _stream(stream: StreamInsight, ended: bool) -> StreamStatisticsOut:
    return StreamStatisticsOut(
        stream=stream.stream,
        ended=ended,
        measured=stream.measured,
        rate=stream.rate,
        size=stream.size,
        level=stream.level,
        share=stream.share,
        load=stream.load,
        kept_load=stream.kept_load,
        costs={name: float(value) for name, value in stream.costs.items() if math.isfinite(value)},
        operators=[
            OperatorOut(
                label=o.label,
                kind=o.kind,
                parent=o.parent,
                rows_in=_finite(o.rows_in),
                rows_out=_finite(o.rows_out),
                selectivity=_finite(o.selectivity),
                seconds=_finite(o.seconds),
                passes=_finite(o.passes),
                queries=list(o.queries),
                shared=o.shared,
            )
            for o in stream.operators
        ],
        queries=[
            QueryStatisticsOut(
                query=q.query,
                contract=q.contract,
                share=_finite(q.share),
                groups=q.groups,
                rate=q.rate,
                error=_finite(q.error),
                suspended=q.suspended,
            )
            for q in stream.queries
        ],
        drops=[
            DropOut(queries=list(d.point.members), share=d.share, shut=d.shut, needed=_finite(d.needed))
            for d in stream.drops
        ],
    )


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
