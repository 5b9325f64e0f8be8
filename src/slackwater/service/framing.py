"""Frames: the run at one moment, made of what was captured; only what has changed since the frame before."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

from slackwater.plan.catalog import Catalog
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.bounds.shown import AgentsShown
from slackwater.runtime.insight import Insight, QueryInsight
from slackwater.runtime.json_values import from_micros
from slackwater.runtime.status import QueryStatus, Status, StreamStatus
from slackwater.service.declared import declared
from slackwater.service.definitions import Definitions
from slackwater.service.folding import KEPT_POINTS
from slackwater.service.keys import plain_keys
from slackwater.service.loads import query_loads
from slackwater.service.models import (
    AgentFrame,
    AgentsFrame,
    AlertFrame,
    Away,
    Frame,
    Knobs,
    Mode,
    Phase,
    Point,
    QueryFrame,
    StreamFrame,
    WidthFrame,
)
from slackwater.service.shown import Shown, take_all

POINTS_IN_ALL = 20_000
"""Points that a whole frame has of all queries; a reader can ask for more of one."""


@dataclass(frozen=True)
class Moving:
    """All of a run that a frame is made of, beside its answers."""

    at: datetime
    phase: Phase
    version: int
    catalog: Catalog
    status: Status
    insight: Insight
    level: float
    run: str = ""
    """The same when it goes on after a stop."""
    agents: Sequence[AgentsShown] = ()
    alerts: Sequence[AlertFrame] = ()
    knobs: Knobs | None = None
    message: str = ""


@dataclass
class Framer:
    """Makes one frame after the other; used by one thread."""

    mode: Mode = "live"
    number: int = 0
    name: str = ""
    """Of what is run, for who looks at it."""
    shown: dict[str, Shown] = field(default_factory=dict)
    definitions: Definitions = field(default_factory=Definitions)
    """Of the queries that are declared."""
    _before: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By query: what the last frame says of it, beside its points."""
    _catalog: Catalog | None = None
    _declared: list[dict[str, Any]] = field(default_factory=list)
    """By query: what its declaration says; made once for each catalog."""
    _gone: list[str] = field(default_factory=list)
    """Queries that are no more since the last frame."""
    _torn: bool = False
    """Whether something of the last frame is lost: it could not be made, or not be sent."""
    _loads: tuple[Insight, dict[str, float]] = field(default_factory=lambda: (Insight(), {}))
    """What was known of the load, and by query its part of it."""

    def frame(self, moving: Moving, batches: Sequence[AnswerBatch]) -> Frame:
        """The next frame, with the queries that have changed; whole where the one before was lost."""
        torn, self._torn = self._torn, True
        queries = self._changed(moving, batches)
        # a number that no frame has would be waited for
        self.number += 1
        dropped, self._gone, self._torn = self._gone, [], False
        if torn:
            return self.whole(moving).model_copy(update={"dropped": dropped})
        return self._made(moving, queries, whole=False, dropped=dropped)

    def tear(self) -> None:
        """The last frame does not get to its readers: the next one is whole."""
        self._torn = True

    def declare(self, catalog: Catalog) -> list[str]:
        """Take what is declared from now on: the queries that are no more, or are others than before."""
        if catalog is self._catalog:
            return []
        self._catalog, self._declared = catalog, declared(catalog)
        # one that was dropped and created again is another query, whatever its name
        gone = self.definitions.take(catalog)
        self._gone += gone
        for name in gone:
            del self.shown[name]
            self._before.pop(name, None)
        for said in self._declared:
            self.shown.setdefault(said["name"], Shown(said["name"], said["slide_seconds"]))
        return gone

    def _changed(self, moving: Moving, batches: Sequence[AnswerBatch]) -> list[QueryFrame]:
        """The queries that have changed; those that are no more are noted."""
        self.declare(moving.catalog)
        told = take_all(self.shown, batches)
        queries = []
        for said in self._queries(moving):
            name = said["name"]
            points = self.shown[name].told()
            if name in told or self._before.get(name) != said:
                self._before[name] = said
                queries.append(QueryFrame.model_construct(**said, points=points))
        return queries

    def whole(self, moving: Moving) -> Frame:
        """The same moment, with all queries and the newest points of each."""
        room = min(KEPT_POINTS, max(2, POINTS_IN_ALL // max(1, len(self.shown))))
        queries = [
            QueryFrame.model_construct(**said, points=_newest(self.shown[name].points, room))
            for name, said in self._before.items()
        ]
        return self._made(moving, queries, whole=True, room=room)

    def _made(
        self,
        moving: Moving,
        queries: list[QueryFrame],
        *,
        whole: bool,
        dropped: Iterable[str] = (),
        room: int = KEPT_POINTS,
    ) -> Frame:
        measured = [stream for stream in moving.insight.streams if stream.measured]
        quiet = moving.status.quiet
        running = [stream for stream in measured if stream.stream.lower() not in quiet]
        return Frame.model_construct(
            number=self.number,
            at=moving.at,
            mode=self.mode,
            phase=moving.phase,
            run=moving.run,
            name=self.name,
            whole=whole,
            version=moving.version,
            message=moving.message,
            load=_short(sum(s.load for s in running)) if measured else None,
            kept_load=_short(sum(s.kept_load for s in running)) if measured else None,
            capacity=_short(moving.insight.capacity) if measured else None,
            level=_short(moving.level) or 0.0,
            streams=[_stream(s) for s in moving.status.streams],
            queries=queries,
            dropped=list(dropped),
            agents=[_agents(a) for a in moving.agents],
            alerts=list(moving.alerts),
            knobs=moving.knobs,
            room=room,
        )

    def _queries(self, moving: Moving) -> Iterator[dict[str, Any]]:
        """What there is to say of each query, beside its points."""
        status = {query.name: query for query in moving.status.queries}
        known = {q.query: q for stream in moving.insight.streams for q in stream.queries}
        if moving.insight is not self._loads[0]:
            self._loads = (moving.insight, query_loads(moving.insight))
        loads, quiet = self._loads[1], moving.status.quiet
        for said in self._declared:
            name = said["name"]
            yield {
                **said,
                **_of_status(status.get(name)),
                **_of_answers(self.shown[name], known.get(name)),
                "load": None if said["stream"].lower() in quiet else _short(loads.get(name)),
            }


def _of_status(status: QueryStatus | None) -> dict[str, Any]:
    if status is None:
        return {"answers": 0, "missed": 0, "evaluated": 0}
    return {"answers": status.answers, "missed": status.missed, "evaluated": status.evaluated}


def _of_answers(shown: Shown, insight: QueryInsight | None) -> dict[str, Any]:
    last = shown.last
    said = {
        "groups": shown.groups,
        "how": last.how if last is not None else None,
        "met": shown.met,
        "error": _short(shown.error),
        "column": shown.column,
        "keys": plain_keys(shown.keys),
        "last_text": shown.text,
    }
    if insight is not None:
        return said | {
            "rate": _short(insight.rate),
            "expected_error": _short(insight.error),
            "suspended": insight.suspended,
        }
    return said | {
        "rate": last.rate if last is not None else None,
        "expected_error": None,
        "suspended": last is not None and last.how == "suspended",
    }


def _newest(points: deque[Point], room: int) -> list[Point]:
    return list(islice(points, max(0, len(points) - room), None))


def _stream(status: StreamStatus) -> StreamFrame:
    return StreamFrame.model_construct(
        name=status.name,
        state=status.state,
        batch=status.batch,
        rows=status.rows,
        rows_per_second=_short(status.rate) or 0.0,
        lag_seconds=_short(status.lag_s),
        batch_seconds=_short(status.batch_ms / 1000) if status.batch_ms is not None else None,
        running_seconds=_short(status.running_s),
        late=status.late,
        unreadable=status.unreadable,
        watermark=status.watermark,
        progress=_short(status.progress),
        kept=_short(status.kept) or 0.0,
        level=_short(status.level) or 0.0,
        updates=status.updates,
        updates_per_second=_short(status.update_rate) if status.updates is not None else None,
    )


def _agents(shown: AgentsShown) -> AgentsFrame:
    return AgentsFrame.model_construct(
        stream=shown.stream,
        there=shown.there,
        known=shown.known,
        interruptions=shown.interruptions,
        keys=shown.keys,
        updates_per_second=_short(shown.updates_per_second) or 0.0,
        grants_per_second=_short(shown.grants_per_second) or 0.0,
        offered_per_second=_short(shown.offered_per_second),
        late=shown.late,
        agents=[
            AgentFrame.model_construct(
                name=agent.name,
                there=not agent.away_since,
                keys=agent.keys,
                updates=agent.updates,
                offered_per_second=_short(agent.offered_per_second),
                since=from_micros(agent.away_since) if agent.away_since else None,
                interruptions=agent.interruptions,
                last_away=_away(*agent.last_away),
            )
            for agent in shown.agents
        ],
        widths=[
            WidthFrame.model_construct(
                query=w.query,
                column=w.column,
                smallest=_short(w.smallest),
                median=_short(w.median),
                largest=_short(w.largest),
                used=_short(w.used),
                allowed=w.allowed,
            )
            for w in shown.widths
        ],
    )


def _away(since: int, until: int) -> Away | None:
    return Away(since=from_micros(since), until=from_micros(until)) if until else None


def _short(value: float | None) -> float | None:
    """Six digits, so that what has hardly moved is no change; null for what JSON cannot hold."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")
