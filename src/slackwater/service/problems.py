"""Errors as problem+json (RFC 9457), with the text that the command line would show."""

from __future__ import annotations

import logging
import re
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from slackwater.errors import LanguageError, RunError, SlackwaterError, StateError
from slackwater.service.models import Problem

MEDIA_TYPE = "application/problem+json"
logger = logging.getLogger(__name__)


class Refusal(SlackwaterError):
    """A request that is refused, with the status that says so."""

    def __init__(self, status: int, detail: str, *, hint: str = "", headers: dict[str, str] | None = None):
        super().__init__(detail)
        self.status = status
        self.hint = hint
        self.headers = headers or {}


def problem(status: int, detail: str, *, headers: dict[str, str] | None = None, **more: Any) -> Response:
    """A response that says what is wrong."""
    said = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, **more)
    body = said.model_dump_json(exclude_none=True)
    return Response(body, status_code=status, media_type=MEDIA_TYPE, headers=headers)


def problem_of(error: SlackwaterError) -> Response:
    """What the command line would say, as a response; with the place where SQL is wrong."""
    if isinstance(error, Refusal):
        return problem(error.status, str(error), hint=error.hint or None, headers=error.headers)
    if isinstance(error, LanguageError):
        at = error.position
        place: dict[str, Any] = {}
        if at is not None:
            place = {"line": at.line, "column": at.column, "offset": at.offset}
        return problem(422, str(error), hint=error.hint or None, message=error.message, **place)
    if isinstance(error, StateError):
        # nothing is wrong with the request: what was kept is damaged, and the text says where
        return problem(500, str(error))
    return problem(409 if isinstance(error, RunError) else 422, str(error))


def install(app: FastAPI) -> None:
    """Make every error of an app a problem."""

    @app.exception_handler(SlackwaterError)
    async def ours(request: Request, error: SlackwaterError) -> Response:
        return problem_of(error)

    @app.exception_handler(RequestValidationError)
    async def wrong(request: Request, error: RequestValidationError) -> Response:
        kind = request.headers.get("content-type", "")
        if request.method in ("POST", "PUT", "PATCH") and "json" not in kind.lower():
            sent = f"{kind!r} was sent" if kind else "nothing was said of its type"
            return problem(
                422, f"the body must be JSON with the header Content-Type: application/json; {sent}"
            )
        told = [_told(e) for e in error.errors()[:5]]
        return problem(422, "; ".join(told) or "the request is not as it should be")

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        detail = str(error.detail)
        headers = dict(error.headers or {})
        if error.status_code == 404 and detail == "Not Found":
            detail = f"there is nothing at {request.url.path}; /api/openapi.json says what there is"
        elif detail == "There was an error parsing the body":
            detail = "the body cannot be read: it must be JSON in UTF-8"
        elif error.status_code == 405:
            detail = f"{request.method} cannot be done with {request.url.path}"
            # the framework names the methods of one route, where several share a path
            headers = {"Allow": _allowed(app, request.url.path) or headers.get("Allow", "GET")}
        return problem(error.status_code, detail, headers=headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        logger.exception("%s %s failed", request.method, request.url.path)
        return problem(500, f"{type(error).__name__}: this should not happen; the log of the run says where")


def _allowed(app: FastAPI, path: str) -> str:
    """What can be done with a path of the API; empty for other paths."""
    paths = app.openapi()["paths"]
    fitting = [t for t in paths if re.fullmatch(re.sub(r"\{\w+\}", ".+", t), path)]
    # names may hold `/`: the answers of a query are no query called `NAME/answers`
    narrowest = max(fitting, key=len, default=None)
    return ", ".join(sorted(method.upper() for method in paths.get(narrowest, ())))


def _told(error: Any) -> str:
    """What is wrong with one field.

    >>> _told({"type": "missing", "loc": ("body", "sql"), "msg": "Field required"})
    'sql: field required'
    """
    if error["type"] == "json_invalid":
        return f"the body is not JSON: {error.get('ctx', {}).get('error', 'it cannot be read')}"
    where = ".".join(str(part) for part in error["loc"] if part != "body") or "the body"
    text = str(error["msg"])
    return f"{where}: {text[:1].lower()}{text[1:]}"
