"""What operations that tell answer with, as the document says it."""

from __future__ import annotations

from typing import Any

from slackwater.service.events import MEDIA_TYPE

EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events.", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}
}
MISSING: dict[int | str, dict[str, Any]] = {404: {"description": "There is nothing of that name."}}
IN_A_RECORDING: dict[int | str, dict[str, Any]] = {
    409: {"description": "A recording has no answers to come."}
}
TOTAL, RELATION = "X-Total-Count", "X-Total-Count-Relation"
COUNTED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The first of them, up to the limit.",
        "headers": {
            TOTAL: {"description": "How many there are.", "schema": {"type": "integer"}},
            RELATION: {
                "description": "Whether there are so many (eq) or may be more (gte): of the newest answers "
                "not all are kept.",
                "schema": {"type": "string", "enum": ["eq", "gte"]},
            },
        },
    }
}
"""An answer that may be cut off, as the document tells it."""
PLANS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The plan in the form that was asked for.",
        "content": {
            kind: {"schema": {"type": "string"} if kind != "application/json" else {}}
            for kind in ("text/plain", "application/json", "text/vnd.graphviz", "image/svg+xml")
        },
    }
}
PLAN_TYPES = {
    "text": "text/plain; charset=utf-8",
    "json": "application/json",
    "dot": "text/vnd.graphviz; charset=utf-8",
    "svg": "image/svg+xml",
}
