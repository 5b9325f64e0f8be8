"""Parameters that several parts of the API take: limits, numbers of events, times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Header, Query
from pydantic import AfterValidator, BeforeValidator
from starlette.datastructures import QueryParams

from slackwater.plan.model import Step
from slackwater.service.problems import Refusal

ANSWERS_AT_MOST = 5_000
NUMBER_AT_MOST = 2**53


def _written(text: Any) -> Any:
    """A bare number is no time here, though it could be read as one."""
    if isinstance(text, str) and not re.match(r"\d{4}-\d\d-\d\d", text):
        raise ValueError("expected a time such as 2026-01-01T00:00:00Z")
    return text


def _zoned(moment: datetime) -> datetime:
    """A time without a zone is in UTC, as all times of answers are."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


Time = Annotated[datetime, BeforeValidator(_written), AfterValidator(_zoned)]
Limit = Annotated[int, Query(ge=1, le=ANSWERS_AT_MOST)]
After = Annotated[int | None, Query(ge=0, le=NUMBER_AT_MOST, description="Only what came after this number.")]
Nulls = Annotated[
    list[str] | None,
    Query(
        max_length=100,
        description="Group keys that are NULL. Where this is given, empty or not, an empty value of another "
        "key is an empty text; without it that stands for NULL too.",
    ),
]
Search = Annotated[
    str, Query(max_length=200, description="Only columns and groups that have each of these words.")
]
KEYS: dict[str, Any] = {
    "name": "key",
    "in": "query",
    "description": "Values of group keys, each as `key.NAME=VALUE`; only answers of groups that have them.",
    "style": "form",
    "explode": True,
    "schema": {
        "type": "object",
        "propertyNames": {"pattern": r"^key\..+$"},
        "additionalProperties": {"type": "string"},
    },
    "example": {"key.port": "80"},
}
"""Parameters whose names depend on the query, as the document tells them."""
LastEvent = Annotated[
    str | None,
    Header(alias="Last-Event-ID", description="As `after`, and before it: from a browser that comes back."),
]


def number_after(after: int | None, last: str | None) -> int | None:
    """The number that a reader has seen last: what its browser remembers, else what its address says.

    A browser that comes back does so with the address it began with, and has seen more since.

    >>> number_after(None, "7"), number_after(3, "7"), number_after(3, None), number_after(3, "x")
    (7, 7, 3, 3)
    >>> number_after(None, "1795032000123456"), number_after(None, "9" * 16)
    (1795032000123456, None)
    """
    if last is None or not (last.isascii() and last.isdigit() and len(last) < 20):
        return after
    number = int(last)
    return number if number <= NUMBER_AT_MOST else after


def keys_of(
    given: QueryParams, null: Sequence[str] | None, step: Step
) -> tuple[dict[str, str], frozenset[str] | None]:
    """The group that is asked for: texts by key, and which keys are NULL where these are told apart."""
    keys = {name[4:]: text for name, text in given.items() if name.startswith("key.")}
    nulls = None if null is None else frozenset(name for name in null if name)
    known = [key.name for key in step.keys]
    strange = [name for name in (*keys, *sorted(nulls or ())) if known and name not in known]
    if strange:
        raise Refusal(
            422,
            f"query {step.name} has no group key {strange[0]}",
            hint=f"its keys are {', '.join(known)}",
        )
    both = sorted(keys.keys() & (nulls or frozenset()))
    if both:
        raise Refusal(422, f"{both[0]} cannot be NULL and have a value", hint=f"send key.{both[0]} or null")
    if "key" in given:
        raise Refusal(422, "key has no name of a group key", hint="write key.NAME=VALUE")
    return keys, nulls
