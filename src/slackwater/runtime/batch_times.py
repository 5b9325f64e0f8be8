"""How long batches of a stream have taken: how many of them at most so long, and all together."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Seconds; a batch that took longer than the last one is counted beyond them."""


@dataclass(frozen=True)
class BatchTimes:
    """A histogram, replaced and never changed, so that others may read it."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    """Batches that took at most a bound, and longer than the one before it; the last: longer than all."""
    seconds: float = 0.0
    """Of all batches."""

    def with_batch(self, seconds: float) -> BatchTimes:
        """One batch more.

        >>> BatchTimes().with_batch(0.05).with_batch(0.06).with_batch(1000.0).counts
        (1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1)
        """
        place = bisect_left(BOUNDS, seconds)
        counts = (*self.counts[:place], self.counts[place] + 1, *self.counts[place + 1 :])
        return BatchTimes(counts, self.seconds + seconds)

    def at_most(self) -> list[tuple[float, int]]:
        """By bound: how many batches took at most so long; infinity at the end.

        >>> BatchTimes().with_batch(0.2).with_batch(7.0).at_most()[-4:]
        [(10.0, 2), (30.0, 2), (60.0, 2), (inf, 2)]
        """
        found, sum_ = [], 0
        for bound, count in zip((*BOUNDS, float("inf")), self.counts, strict=True):
            sum_ += count
            found.append((bound, sum_))
        return found
