"""The OpenAPI document: what the types say, errors as they come, and the token where it is needed."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from slackwater.service.guard import FREE_POSTS, READS
from slackwater.service.models import Problem
from slackwater.service.problems import MEDIA_TYPE

SUMMARY = "Standing queries over data streams, with a contract for every answer."
DESCRIPTION = """\
Reading is free on loopback; whatever changes state needs `Authorization: Bearer TOKEN`. Elsewhere all of it
does.

Every error is `application/problem+json` with the text that the command line shows; where SQL is wrong,
`line`, `column` and `offset` say where. Times are in UTC. Numbers that JSON cannot hold are null.
"""
TAGS = {
    "run": "The run at this moment, and as it goes on.",
    "declared": "Streams, tables and views as they are declared.",
    "queries": "Queries: created, altered and dropped while the run goes on.",
    "answers": "Answers, each with its interval.",
    "load": "The plan, what it costs, and what is shed of it.",
    "agents": "Agents, and what they send.",
    "alerts": "Alerts on answers.",
    "audit": "Whether intervals held the truth.",
    "demo": "The sliders of the demo.",
}
TOKEN = "token"
OTHERWISE = "What else can be wrong: the method, or the service itself."
OF_ALL = {
    "401": "The token is missing or another one.",
    "414": "The address is too long.",
    "421": "The service answers to other names.",
    "431": "The headers are too long.",
    "503": "There are too many connections, or readers of events.",
}
"""What any request can be told."""
OF_CHANGES = {"403": "A page of another place may not change anything."}
OF_BODIES = {
    "400": "The body cannot be read.",
    "408": "The body did not come in time.",
    "413": "The body is too large.",
}


def describe(app: FastAPI) -> None:
    """Let an app tell this document."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def document(app: FastAPI) -> dict[str, Any]:
    """The document of an app."""
    made = get_openapi(
        title=app.title,
        version=app.version,
        summary=SUMMARY,
        description=DESCRIPTION,
        routes=app.routes,
        tags=[{"name": name, "description": text} for name, text in TAGS.items()],
    )
    parts = made.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        # what the framework would say; here it says problems
        schemas.pop(name, None)
    schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    parts["securitySchemes"] = {
        TOKEN: {"type": "http", "scheme": "bearer", "description": "The token of the run."}
    }
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            _finish(path, method.upper(), operation)
    return made


def _finish(path: str, method: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    wrong = OF_ALL | (OF_CHANGES if method not in READS else {})
    wrong |= OF_BODIES if "requestBody" in operation else {}
    for status, description in wrong.items():
        responses.setdefault(status, {"description": description})
    responses["default"] = {"description": OTHERWISE}
    for status, response in responses.items():
        if status == "default" or int(status) >= 400:
            if response["description"] == "Validation Error":
                response["description"] = "The request is not as it should be."
            response["content"] = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    # an empty entry: on loopback there it can do without
    free = method in READS or path in FREE_POSTS
    operation["security"] = [{}, {TOKEN: []}] if free else [{TOKEN: []}]
