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
from collections import deque
from collections.abc import Sequence

import numpy as np

from slackwater.edge.sums import SCALE, exact
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

    Guarantee: the double nearest to the exact mean, however many changes there were and however much of them
    cancels; infinite where a value was in the window that no double can hold. It is known from a window after
    the first step that began.

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
        self._part = [0 for _ in row]
        """Of the open step, by column: each value times how long it stood, exactly."""
        self._steps: list[deque[int]] = [deque() for _ in row]
        """Of the steps that have ended, the last ones: what they come to."""
        self._total = [0 for _ in row]
        """What those come to together."""
        self._beyond = [-1 for _ in row]
        """Until when there was a value that no double can hold."""
        self._begun = -(-at // self.step) * self.step
        self._end = (at // self.step + 1) * self.step

    def change(self, row: Sequence[float], at: int) -> None:
        """Other values from a time on; steps that ended before it have been asked for."""
        self._stand(at)
        self._row = [0.0 if v != v else v for v in row]

    def _stand(self, at: int) -> None:
        if at > self._since:
            for column, value in enumerate(self._row):
                if math.isinf(value):
                    self._beyond[column] = at
                elif value:
                    self._part[column] += exact(value) * (at - self._since)
            self._since = at

    def at_end(self, now: int) -> list[float] | None:
        """The mean at the last end of a step up to a time; None while it is not known, or none has ended."""
        ended = False
        while self._end <= now:
            self._stand(self._end)
            for column, steps in enumerate(self._steps):
                steps.append(self._part[column])
                self._total[column] += self._part[column]
                self._part[column] = 0
                if len(steps) > self._window // self.step:
                    self._total[column] -= steps.popleft()
            self._end += self.step
            ended = True
        since = self._end - self.step - self._window
        if not ended or since < self._begun:
            return None
        pairs = zip(self._total, self._beyond, strict=True)
        return [math.inf if beyond > since else total / (SCALE * self._window) for total, beyond in pairs]

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
