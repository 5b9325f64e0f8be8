"""The part of the API that only tells: frames, what is declared, answers, the plan, statistics, decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse

from slackwater.errors import PlanError
from slackwater.plan.catalog import Catalog
from slackwater.plan.model import Step
from slackwater.runtime.answers import Answer
from slackwater.service import api_models as out
from slackwater.service.bodies import told
from slackwater.service.events import MEDIA_TYPE, Readers, answers_for, frames_for
from slackwater.service.keeping import AnswerKeeper
from slackwater.service.models import AgentsFrame, AlertFrame, Frame, Moment, QueryFrame
from slackwater.service.parameters import (
    KEYS,
    After,
    LastEvent,
    Limit,
    Nulls,
    Search,
    Time,
    keys_of,
    number_after,
)
from slackwater.service.problems import Refusal
from slackwater.service.responses import (
    COUNTED,
    EVENTS,
    IN_A_RECORDING,
    MISSING,
    PLAN_TYPES,
    PLANS,
    RELATION,
    TOTAL,
)
from slackwater.service.statistics_out import level_of
from slackwater.service.watched import Asked, Watched


def reading(watched: Watched, readers: Readers, keeper: AnswerKeeper | None) -> APIRouter:
    """All that can be asked.

    What looks at a whole frame is no coroutine: making one may take a moment, in which the loop sends events.
    For the same reason what may be large is returned as bytes.
    """
    api = APIRouter(prefix="/api")

    @api.get("/health", tags=["run"])
    def health() -> out.Health:
        """Whether the run goes on."""
        frame = watched.frame()
        return out.Health(phase=frame.phase, mode=frame.mode, version=frame.version, number=frame.number)

    @api.get("/frame", tags=["run"], response_model=Frame)
    def frame() -> Response:
        """The run at this moment: streams, queries, load, level, agents, alerts."""
        return Response(watched.whole(), media_type="application/json")

    @api.get("/events", tags=["run"], responses=EVENTS, response_class=StreamingResponse)
    def events(after: After = None, last: LastEvent = None) -> StreamingResponse:
        """Frames as they come: events `frame`, one a second, the first of them whole."""
        readers.check()
        over = watched.mode == "recorded"
        news = frames_for(watched, number_after(after, last), None if over else readers.shared)
        return _stream(readers.follow(news, lambda: over, slow=over))

    @api.get("/moments", tags=["run"], response_model=list[Moment])
    def moments(limit: Annotated[int, Query(ge=1, le=3_600)] = 600) -> Response:
        """The tide line: load, what is kept of it, capacity and level by time."""
        return told(list[Moment], list(watched.moments(limit)))

    @api.get("/level", tags=["load"])
    def level() -> out.Level:
        """The loss level, load and capacity."""
        return level_of(watched.frame())

    @api.get("/statistics", tags=["load"], response_model=out.Statistics)
    def statistics(
        at: Annotated[Time | None, Query(description="As it was then; of recordings only.")] = None,
    ) -> Response:
        """What was measured: operators with cost and selectivity, shedders, rates, window drops."""
        if at is not None and watched.mode != "recorded":
            raise only_now("at")
        return told(out.Statistics, watched.statistics(at))

    @api.get("/decisions", tags=["load"], responses=MISSING, response_model=list[dict[str, Any]])
    def decisions(
        stream: Annotated[str | None, Query(max_length=200)] = None,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    ) -> Response:
        """What was decided for batches before they ran, the newest first."""
        there = watched.catalog().streams
        if stream is not None and stream.lower() not in there:
            raise missing("stream", stream, [s.name for s in there.values()])
        return told(list[dict[str, Any]], [dict(decision) for decision in watched.decisions(stream, limit)])

    @api.get("/plan", tags=["load"], responses=PLANS | MISSING, response_class=Response)
    def plan(
        format: Literal["text", "json", "dot", "svg"] = "text",
        name: Annotated[str | None, Query(max_length=200, description="A stream, view or query.")] = None,
    ) -> Response:
        """The shared plan."""
        try:
            said = watched.explain(format, name)
        except PlanError as error:
            raise Refusal(404, str(error)) from error
        return Response(said, media_type=PLAN_TYPES[format])

    @api.get("/agents", tags=["agents"], response_model=list[AgentsFrame])
    def agents() -> Response:
        """Agents by stream: messages a second, widths, who is away."""
        return told(list[AgentsFrame], watched.frame().agents)

    @api.get("/alerts", tags=["alerts"], response_model=list[AlertFrame])
    def alerts() -> Response:
        """Alerts, whether they are raised, and what waits to be delivered."""
        return told(list[AlertFrame], watched.frame().alerts)

    # before those of single queries: a name may have slashes in it
    _answers(api, watched, readers, keeper)
    _declared(api, watched)
    return api


def _declared(api: APIRouter, watched: Watched) -> None:
    @api.get("/streams", tags=["declared"])
    async def streams() -> list[out.StreamInfo]:
        """Streams as they are declared."""
        return [
            out.StreamInfo(
                name=s.name,
                format=s.format,
                columns=[out.ColumnInfo(name=c.name, type=c.type) for c in s.columns],
                time=s.time,
                key=list(s.key),
                lateness_seconds=s.lateness / 1e6,
            )
            for s in watched.catalog().streams.values()
        ]

    @api.get("/tables", tags=["declared"])
    async def tables() -> list[out.TableInfo]:
        """Tables as they are declared."""
        return [
            out.TableInfo(
                name=t.name,
                format=t.format,
                columns=[out.ColumnInfo(name=c.name, type=c.type) for c in t.columns],
            )
            for t in watched.catalog().tables.values()
        ]

    @api.get("/views", tags=["declared"])
    async def views() -> list[out.ViewInfo]:
        """Views as they are declared."""
        return [out.ViewInfo(name=v.name, sql=v.sql) for v in watched.catalog().views.values()]

    @api.get("/queries", tags=["queries"], response_model=list[out.QueryInfo])
    def queries() -> Response:
        """All queries."""
        frames = {frame.name: frame for frame in watched.frame().queries}
        # taken once: a query may be dropped meanwhile
        catalog = watched.catalog()
        found = [_query(catalog, step, frames) for step in catalog.queries.values()]
        return told(list[out.QueryInfo], found)

    @api.get("/queries/{name:path}", tags=["queries"], responses=MISSING)
    def query(
        name: str,
        version: Annotated[
            int | None,
            Query(ge=1, description="As it was in this version; of recordings only."),
        ] = None,
    ) -> out.QueryInfo:
        """One query; of a recording one that had been dropped at its end, too."""
        if version is not None and watched.mode != "recorded":
            raise only_now("version")
        frames = {frame.name: frame for frame in watched.frame().queries}
        catalog = watched.declaring(name, version)
        return _query(catalog, found_query(catalog, name), frames)


def _answers(api: APIRouter, watched: Watched, readers: Readers, keeper: AnswerKeeper | None) -> None:
    @api.get(
        "/queries/{name:path}/answers",
        tags=["answers"],
        responses=MISSING,
        response_model=list[out.AnswerOut],
        openapi_extra={"parameters": [KEYS]},
    )
    def answers(
        request: Request,
        name: str,
        column: Annotated[str | None, Query(max_length=200)] = None,
        since: Annotated[Time | None, Query(description="Windows that end at or after this.")] = None,
        until: Annotated[Time | None, Query(description="Windows that end at or before this.")] = None,
        null: Nulls = None,
        limit: Limit = 300,
    ) -> Response:
        """Answers of a query, oldest first: the newest that fit. `key.NAME=VALUE` chooses a group."""
        step = find_query(watched, name)
        keys, nulls = keys_of(request.query_params, null, step)
        known = [output.name for output in step.outputs if output.aggregated] if step.aggregates else ["*"]
        if column is not None and column not in known:
            hint = f"its columns are {', '.join(known)}"
            raise Refusal(422, f"query {step.name} has no column {column}", hint=hint)
        asked = Asked(column, keys or None, nulls, since, until, limit)
        return _json_of(watched.answers(step.name, asked))

    @api.get(
        "/queries/{name:path}/latest",
        tags=["answers"],
        responses=MISSING | COUNTED,
        response_model=list[out.AnswerOut],
    )
    def latest(
        name: str,
        search: Search = "",
        until: Annotated[Time | None, Query(description="Windows that end at or before this.")] = None,
        limit: Limit = 100,
    ) -> Response:
        """The newest answer of every column and group, the newest first, and then by column and group."""
        found = watched.latest(find_query(watched, name).name, limit, search, until)
        response = _json_of(found.answers)
        response.headers[TOTAL] = str(found.there)
        response.headers[RELATION] = "gte" if found.cut else "eq"
        return response

    @api.get(
        "/answers/events",
        tags=["answers"],
        responses=EVENTS | MISSING | IN_A_RECORDING,
        response_class=StreamingResponse,
    )
    async def answer_events(
        query: Annotated[str | None, Query(max_length=200)] = None,
        after: After = None,
        last: LastEvent = None,
    ) -> StreamingResponse:
        """Answers as they come: events `answers`, each an array; `lost` where a reader was too slow."""
        if keeper is None:
            raise Refusal(409, "a recording has no answers to come", hint="ask /api/queries/NAME/answers")
        if query is not None:
            find_query(watched, query)
        readers.check()
        news = answers_for(keeper, query, number_after(after, last))
        return _stream(readers.follow(news, lambda: False, slow=True))


def find_query(watched: Watched, name: str) -> Step:
    """A query by its name in any case; raises where there is none."""
    return found_query(watched.declaring(name), name)


def found_query(catalog: Catalog, name: str) -> Step:
    """The same, in one catalog."""
    found = catalog.queries.get(name.lower())
    if found is None:
        raise missing("query", name, [step.name for step in catalog.queries.values()])
    return found


def only_now(asked: str) -> Refusal:
    """That a run is told as it is, whatever else was asked for."""
    hint = f"leave out {asked}; slackwater open DIR shows a recorded run at any time"
    return Refusal(422, "a run that goes on tells only how it is now", hint=hint)


def missing(kind: str, name: str, there: Sequence[str]) -> Refusal:
    """That there is nothing of a name, and what there is."""
    some = ", ".join(there[:10]) + (f" and {len(there) - 10} more" if len(there) > 10 else "")
    return Refusal(404, f"there is no {kind} called {name}", hint=f"there are {some or 'none yet'}")


def _query(catalog: Catalog, step: Step, frames: dict[str, QueryFrame]) -> out.QueryInfo:
    declared = catalog.declared[step.name.lower()]
    return out.QueryInfo(
        name=step.name,
        stream=step.stream,
        contract=str(catalog.contracts[step.name.lower()]),
        columns=[output.name for output in step.outputs],
        sql=declared.sql,
        frame=frames.get(step.name),
    )


def _json_of(answers: Sequence[Answer]) -> Response:
    return Response("[" + ",".join(a.to_json_line() for a in answers) + "]", media_type="application/json")


def _stream(body: Any) -> StreamingResponse:
    return StreamingResponse(
        body, media_type=MEDIA_TYPE, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )
