"""The time of this machine."""

from __future__ import annotations

import time


def now_micros() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1_000
