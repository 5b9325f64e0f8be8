"""Time and kills as arguments of a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True)
class Clocks:
    """Time as an argument: seconds that only grow, and the time of day."""

    seconds: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


def no_fault(point: str) -> None:
    """Where tests stop a run: called with the name of each point that a kill may fall between."""
