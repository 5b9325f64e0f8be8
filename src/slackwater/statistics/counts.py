"""What a batch held, counted in the pass that answers its queries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counts:
    """Rows of a batch. Late and unreadable ones have arrived too, and reach no query."""

    arrived: int = 0
    late: int = 0
    """Their time is below the watermark."""
    unreadable: int = 0
    """They have no time that could be read."""
    latest: int | None = None
    """The largest event time, in microseconds."""
    kept: int = 0
    """Those that passed the root's threshold: all of them where nothing is shed."""
