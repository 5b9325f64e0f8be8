"""The time of this machine."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

SET_BACK = 1_000_000
"""Microseconds by which a clock may be set back unmentioned."""

logger = logging.getLogger(__name__)


def now_micros() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1_000


class SteadyClock:
    """A clock that stands while another one, which was set back, is behind; for one thread at a time.

    >>> times = iter([5, 3, 6])
    >>> clock = SteadyClock(lambda: next(times))
    >>> clock(), clock(), clock()
    (5, 5, 6)
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._latest = 0
        self.behind = False
        """Whether the other one was set back by so much that waiting for it will not do."""

    def __call__(self) -> int:
        now = self._clock()
        back = self._latest - now
        if back > SET_BACK and not self.behind:
            logger.warning("the clock was set back by %.1f s", back / 1e6)
        self.behind = back > SET_BACK
        self._latest = max(self._latest, now)
        return self._latest

    def go_back(self) -> int:
        """The time of the other clock, from which this one goes on."""
        self._latest, self.behind = self._clock(), False
        return self._latest
