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


def never_back(clock: Callable[[], int]) -> Callable[[], int]:
    """A clock that stands while another one, which was set back, is behind; for one thread at a time.

    >>> times = iter([5, 3, 6])
    >>> clock = never_back(lambda: next(times))
    >>> clock(), clock(), clock()
    (5, 5, 6)
    """
    latest = 0
    behind = False

    def steady() -> int:
        nonlocal latest, behind
        now = clock()
        back = latest - now
        if back > SET_BACK and not behind:
            logger.warning(
                "the clock was set back by %.1f s: time stands until it is there again", back / 1e6
            )
        behind = back > SET_BACK
        latest = max(latest, now)
        return latest

    return steady
