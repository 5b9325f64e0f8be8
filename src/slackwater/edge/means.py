"""Means over a sliding time, where the values are: what a bound is kept of instead of the values themselves.

A query that averages over a window needs no narrow bound of every moment: "bounds wider than δ are acceptable
as long as they are compensated for by bounds narrower than δ within the same time-averaged window" (Olston,
Jiang, Widom, SIGMOD 2003, section 2, left to future work). An agent that keeps the mean over the window in a
bound uses all of that leniency: what happens within a window cancels before anything is sent, and the mean
moves slowly.

Time is cut into steps, of which a window holds a whole number; the mean changes at their ends. All times are
microseconds since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from slackwater.edge.widths import Floats, Ints

STEPS = 60
"""At most so many steps in a window, each of a second at least."""


def step_of(size: int) -> int:
    """How long the steps of a window are: a divisor of it.

    >>> [step_of(seconds * 1_000_000) for seconds in (900, 10, 61)], step_of(1_500)
    ([15000000, 1000000, 1220000], 1500)
    """
    most = min(STEPS, max(1, size // 1_000_000))
    return size // next(count for count in range(most, 0, -1) if size % count == 0)


class Mean:
    """The mean of one row of values over a sliding time; what has no value counts as 0.

    Guarantee: within a few roundings of the exact mean, however many changes there were. It is known from a
    window after the first step that began.

    >>> mean = Mean(3_000_000, [6.0], at=500_000)
    >>> [mean.at_end(end * 1_000_000) for end in (1, 2, 3)]
    [None, None, None]
    >>> mean.change([0.0], at=3_000_000)
    >>> [mean.at_end(end * 1_000_000) for end in (4, 5)]
    [[4.0], [2.0]]
    """

    def __init__(self, window: int, row: Sequence[float], at: int) -> None:
        self.step = step_of(window)
        self._window = window
        self._row = [0.0 if v != v else v for v in row]
        self._since = at
        self._parts: list[list[float]] = [[] for _ in row]
        """Of the open step, by column: each value times how long it stood."""
        self._steps: list[list[float]] = [[] for _ in row]
        """Of the steps that have ended, the last ones: what they come to."""
        self._begun = -(-at // self.step) * self.step
        self._end = (at // self.step + 1) * self.step

    def change(self, row: Sequence[float], at: int) -> None:
        """Other values from a time on; steps that ended before it have been asked for."""
        self._stand(at)
        self._row = [0.0 if v != v else v for v in row]

    def _stand(self, at: int) -> None:
        if at > self._since:
            for parts, value in zip(self._parts, self._row, strict=True):
                if value:
                    parts.append(value * (at - self._since))
                    if len(parts) > 1_000:
                        parts[:] = [math.fsum(parts)]
            self._since = at

    def at_end(self, now: int) -> list[float] | None:
        """The mean at the last end of a step up to a time; None while it is not known, or none has ended."""
        ended = False
        while self._end <= now:
            self._stand(self._end)
            for parts, steps in zip(self._parts, self._steps, strict=True):
                steps.append(math.fsum(parts))
                del steps[: max(0, len(steps) - self._window // self.step)]
                parts.clear()
            self._end += self.step
            ended = True
        known = self._end - self.step >= self._begun + self._window
        return [math.fsum(steps) / self._window for steps in self._steps] if ended and known else None

    @property
    def next_end(self) -> int:
        return self._end


class Means:
    """The means of one agent, by the numbers of their keys."""

    def __init__(self) -> None:
        self._held: dict[int, Mean] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._held

    def __len__(self) -> int:
        return len(self._held)

    def begin(self, number: int, window: int, row: Sequence[float], at: int) -> None:
        self._held[number] = Mean(window, row, at)

    def end(self, number: int) -> None:
        self._held.pop(number, None)

    def change(self, number: int, row: Sequence[float], at: int) -> None:
        self._held[number].change(row, at)

    def next_end(self) -> int | None:
        """When a mean next changes; it may have passed."""
        return min((mean.next_end for mean in self._held.values()), default=None)

    def at_end(self, now: int) -> tuple[Ints, Floats] | None:
        """The means that have changed by a time, with their numbers; None: there are none."""
        found = {n: row for n, mean in self._held.items() if (row := mean.at_end(now)) is not None}
        if not found:
            return None
        return np.array(list(found), np.int64), np.array(list(found.values()), np.float64)
