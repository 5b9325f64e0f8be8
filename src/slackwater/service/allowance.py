"""How much may be written beside a recording: so many bytes at once, and so many a second beyond that."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass
class Allowance:
    """Bytes that may be written; what is spent is earned again as time passes.

    >>> from datetime import timedelta
    >>> start, room = datetime(2026, 1, 1), Allowance(100, 10)
    >>> room.earn(start); room.spend(130); room.left
    -30.0
    >>> room.earn(start + timedelta(seconds=5)); room.left
    20.0
    """

    at_once: int
    per_second: int
    left: float = field(init=False)
    _until: datetime | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.left = float(self.at_once)

    def earn(self, now: datetime) -> None:
        """Time has passed."""
        if self._until is not None:
            passed = max(0.0, (now - self._until).total_seconds())
            self.left = min(self.at_once, self.left + passed * self.per_second)
        self._until = now

    def spend(self, size: int) -> None:
        """So many bytes were written."""
        self.left -= size
