"""The form of a true answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from slackwater.reference.values import sort_key


@dataclass(frozen=True)
class ReferenceAnswer:
    """One true answer: a value of a group in a window or at a tick, or a row of a set-valued query."""

    query: str
    column: str
    window_start: datetime | None
    window_end: datetime | None
    at: datetime | None
    keys: tuple[tuple[str, object], ...]
    value: object

    @property
    def order(self) -> tuple[object, ...]:
        """Where the answer stands among those of its query; those of one time or tick stay as they come."""
        if self.window_end is None:
            return (self.at,)
        return (self.window_end, self.window_start, [sort_key(value) for _, value in self.keys])
