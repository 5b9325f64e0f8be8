"""Parameters that several parts of the API take: limits, numbers of events, times."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Header, Query
from pydantic import AfterValidator, BeforeValidator

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
LastEvent = Annotated[str | None, Header(alias="Last-Event-ID", description="As `after`, from a browser.")]


def number_after(after: int | None, last: str | None) -> int | None:
    """The number that a reader has seen last, by its address or by what its browser remembers.

    >>> number_after(None, "7"), number_after(3, "7"), number_after(None, "x"), number_after(None, None)
    (7, 3, None, None)
    """
    if after is not None or last is None:
        return after
    return int(last) if last.isascii() and last.isdigit() and len(last) < 16 else None
