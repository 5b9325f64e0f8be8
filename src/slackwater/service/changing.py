"""The part of the API that changes a run: queries, contracts, alerts, the demo's sliders, audits."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.responses import Response

from slackwater.errors import LanguageError, Position
from slackwater.language.parse import parse, parse_one
from slackwater.language.render import alter_query, drop_alert, drop_query, drop_table, drop_view
from slackwater.language.statements import (
    AnyStatement,
    CreateAlert,
    CreateQuery,
    CreateStream,
    CreateTable,
    CreateView,
    Explain,
)
from slackwater.plan.catalog import Declared
from slackwater.service.api_models import Applied, Audit
from slackwater.service.audit_job import AuditJob
from slackwater.service.bodies import told
from slackwater.service.guard import TRUSTED
from slackwater.service.models import ContractWanted, Knobs, KnobsWanted, Preview, Statements
from slackwater.service.problems import Refusal
from slackwater.service.reading import find_query, missing
from slackwater.service.responses import MISSING
from slackwater.service.watched import Control, Watched

WAITING_AT_MOST = 8
IN_A_RECORDING = "this is a recording: nothing in it can be changed"
PARTS = ("/answers", "/latest")
"""What of a query can be read by itself."""
WRONG: dict[int | str, dict[str, Any]] = {
    **MISSING,
    409: {"description": "It cannot be done now, or not with a recording."},
    422: {"description": "The SQL or the request is wrong; `line` and `column` say where."},
    429: {"description": "Too many changes wait already."},
}


class Changes:
    """One change at a time, and not too many that wait."""

    def __init__(self, control: Control | None) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._waiting = threading.BoundedSemaphore(WAITING_AT_MOST)

    @contextmanager
    def one(self) -> Iterator[Control]:
        """The control, for one at a time."""
        if self._control is None:
            raise Refusal(409, IN_A_RECORDING)
        if not self._waiting.acquire(blocking=False):
            raise Refusal(
                429, f"{WAITING_AT_MOST} changes wait already: try again", headers={"Retry-After": "2"}
            )
        try:
            with self._lock:
                yield self._control
        finally:
            self._waiting.release()


def changing(watched: Watched, control: Control | None, audits: AuditJob) -> APIRouter:
    """All that can be changed."""
    api = APIRouter(prefix="/api", responses=WRONG)
    changes = Changes(control)
    # a look may wait for rows, and no change waits for it
    looks = Changes(control)

    def applied(sql: str) -> Applied:
        with changes.one() as run:
            names = [_name(statement) for statement in parse(sql)]
            explained = run.apply(sql)
            named = [name for name in names if name]
            return Applied(applied=named, explained=explained, version=run.version)

    def dropped(sql: str) -> Applied:
        try:
            return applied(sql)
        except LanguageError as error:
            # nobody has written that SQL, and no place of it says anything
            raise Refusal(422, error.message, hint=error.hint) from None

    @api.post("/queries", status_code=201, tags=["queries"])
    def create(wanted: Statements) -> Applied:
        """Create queries, and the views, tables and alerts beside them, from SQL: all of it or none."""
        for statement in _some(wanted.sql):
            allowed = CreateQuery | CreateView | CreateTable | CreateAlert | Explain
            if not isinstance(statement, allowed):
                raise statement.source.error(
                    "only CREATE can be sent here",
                    hint="PATCH alters a query, DELETE drops it, as well as a view, a table or an alert"
                    if not isinstance(statement, CreateStream)
                    else "streams are declared in the file, before the run starts",
                )
        return applied(wanted.sql)

    def whole(name: str) -> None:
        """Refuses what is a part of a query, like its answers: names may have any character, `/` too."""
        if name.endswith(PARTS) and name.lower() not in watched.catalog().queries:
            raise HTTPException(405)

    @api.patch("/queries/{name:path}", tags=["queries"], dependencies=[Depends(whole)])
    def alter(name: str, wanted: ContractWanted) -> Applied:
        """Give a query another contract."""
        sql = alter_query(find_query(watched, name).name, wanted.contract)
        try:
            # no other statement may ride along behind a semicolon
            parse_one(sql)
            return applied(sql)
        except LanguageError as error:
            raise _within(error, wanted.contract, len(sql) - len(wanted.contract)) from None

    @api.delete("/queries/{name:path}", tags=["queries"], dependencies=[Depends(whole)])
    def drop(name: str) -> Applied:
        """Drop a query."""
        return dropped(drop_query(find_query(watched, name).name))

    @api.post("/preview", tags=["queries"], response_model=Preview)
    def preview(wanted: Statements, request: Request) -> Response:
        """What statements would do to the plan, the load and the errors; nothing is changed.

        Without the token Spark is given none of it: what is there is planned, but no type is checked, and
        nothing is tried on rows.
        """
        with looks.one() as run:
            found = run.preview(wanted.sql, trusted=bool(request.scope.get(TRUSTED)))
        return told(Preview, found)

    @api.post("/alerts", status_code=201, tags=["alerts"])
    def create_alert(wanted: Statements) -> Applied:
        """Create alerts from SQL."""
        for statement in _some(wanted.sql):
            if not isinstance(statement, CreateAlert):
                raise statement.source.error("expected CREATE ALERT", hint="queries go to /api/queries")
        return applied(wanted.sql)

    @api.delete("/alerts/{name:path}", tags=["alerts"])
    def end_alert(name: str) -> Applied:
        """Drop an alert."""
        return dropped(drop_alert(_found("alert", watched.catalog().alerts, name)))

    @api.delete("/views/{name:path}", tags=["declared"])
    def drop_a_view(name: str) -> Applied:
        """Drop a view that nothing reads any more."""
        return dropped(drop_view(_found("view", watched.catalog().views, name)))

    @api.delete("/tables/{name:path}", tags=["declared"])
    def drop_a_table(name: str) -> Applied:
        """Drop a table that nothing reads any more."""
        return dropped(drop_table(_found("table", watched.catalog().tables, name)))

    @api.get("/knobs", tags=["demo"])
    async def knobs() -> Knobs:
        """The sliders of the demo."""
        found = watched.knobs()
        if found is None:
            raise Refusal(404, "there are no sliders: this is no demo")
        return found

    @api.put("/knobs", tags=["demo"])
    def turn(wanted: KnobsWanted) -> Knobs:
        """Move the sliders of the demo."""
        if control is None:
            raise Refusal(409, IN_A_RECORDING)
        # sliders know themselves how to be moved by many
        found = control.turn(wanted)
        if found is None:
            raise Refusal(404, "there are no sliders: this is no demo")
        return found

    @api.get("/audit", tags=["audit"], response_model=Audit)
    def audit() -> Response:
        """The last audit of the recording: whether intervals held the truth."""
        return told(Audit, audits.told())

    @api.post("/audit", status_code=202, tags=["audit"])
    def begin_audit() -> Audit:
        """Replay the recording exactly, beside the run and behind it, and compare."""
        return audits.begin()

    return api


def _found(kind: str, there: Mapping[str, Declared], name: str) -> str:
    """What is called by a name in any case, as it was declared; raises where there is nothing."""
    found = there.get(name.lower())
    if found is None:
        raise missing(kind, name, [declared.name for declared in there.values()])
    return found.name


def _some(sql: str) -> Sequence[AnyStatement]:
    """Statements; raises where there is none."""
    found = parse(sql)
    if not found:
        raise Refusal(422, "expected a statement, found none", hint="CREATE QUERY name AS SELECT …")
    return found


def _within(error: LanguageError, contract: str, before: int) -> LanguageError:
    """An error in an ALTER as one in the contract alone, which is all that was sent."""
    at = error.position
    if at is None:
        return error
    offset = min(max(0, at.offset - before), len(contract))
    ahead = contract[:offset]
    place = Position(ahead.count("\n") + 1, offset - (ahead.rfind("\n") + 1) + 1, offset)
    return LanguageError(error.message, text=contract, position=place, hint=error.hint)


def _name(statement: AnyStatement) -> str | None:
    return None if isinstance(statement, Explain) else statement.name
