"""How much of an interval the batches of a run may use: the feedback of the closed loop.

A batch takes some time whatever is dropped of it: Spark's own, and that of each pass. Only the rest, what its
rows take, is left to dropping; so only that is corrected, and never by more than a part of it. Otherwise a
machine on which an empty batch is late would make the loop drop all, and gain nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from slackwater.statistics.costs import FORGETTING, Observation, fit_costs

LATE = 0.99
"""Of the batches that are shed, so many are to end within their interval, as far as their times scatter."""
SPARE = 1.05
SCATTERED = 15
"""Batches that tell how much times scatter."""
REMEMBERED = 100
GAIN = 0.2
HASTE = 0.5
"""Of what a batch took too long (or too short), by how much the next ones are planned shorter: most for a
batch that was late."""
IDLE, BUSY = 0.5, 1.1
"""What a second of executor time takes of a batch: at least half a core's part, at most a little more."""
LEAST = 0.25
"""Of the time that a batch leaves for its rows, what neither caution nor feedback takes away."""
MORE = 0.15
"""Of that time, what feedback may add."""
CROWDED, HOPELESS = 0.1, 0.25
"""For rows, so much of what an empty batch takes: where that fills the budget, and where it is late."""
LEFT = 0.1
"""Of an interval, what a batch may take however long Spark itself takes for it."""


def seconds_for_batch(interval: float, utilisation: float, around: float) -> float:
    """Seconds that a batch may take, ``around`` being those that Spark itself takes for it.

    Always some: on a busy machine, and for the first batches of a run, Spark alone may take longer than the
    interval. A budget of nothing, or of less, would turn feedback round: the later batches are, the less
    would be dropped of them.

    >>> round(seconds_for_batch(1.0, 0.8, 0.2), 3), seconds_for_batch(1.0, 0.8, 1.5)
    (0.6, 0.1)
    """
    return max(interval * utilisation - around, LEFT * interval)


@dataclass(frozen=True)
class Aim:
    """What a batch was meant to take, of which ``floor`` whatever is dropped of it."""

    floor: float
    seconds: float
    steers: bool = True
    """Whether dropping more or less would have changed it."""
    settled: bool = True
    """Whether the batch before it was like it: the first ones of a burst say little of those to come."""


@dataclass
class Pace:
    """Seconds of a batch from executor seconds and back, as fitted to the last batches and corrected.

    ``budget`` gives the seconds that a batch may take, Spark's own part in it left out, and always more than
    0; ``cores`` how many work at a time. ``utilisation`` is what the budget is of an interval: the rest is
    for batches that take longer.
    """

    budget: Callable[[], float]
    cores: int
    utilisation: float = 0.8
    correction: float = 0.0
    """Seconds more (or less) that batches are planned for than the target, so that they take the target."""
    excess: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """Of the last batches that were shed: by how many seconds they took longer than they were meant to."""
    _walls: deque[Observation] = field(default_factory=lambda: deque(maxlen=40))
    _learnt: int = 0
    batch: float = 0.15
    """Seconds of a batch whatever its rows."""
    executor: float = 0.0
    """Seconds of a batch for each one of executor time."""

    def __post_init__(self) -> None:
        self.executor = self.executor or 1.0 / self.cores

    @property
    def fitted(self) -> Mapping[str, float]:
        return {"batch": self.batch, "executor": self.executor}

    @property
    def interval(self) -> float:
        return self.budget() / self.utilisation

    def floor(self, fixed: float, streams: int = 1) -> float:
        """Seconds that all streams take if all is dropped, ``fixed`` being executor seconds."""
        return streams * self.batch + fixed * self.executor

    def target(self, floor: float) -> float:
        """Seconds that batches are to take: less than the budget where times scatter much.

        So much less that all but a few of them end within the interval, going by the last ones.
        """
        budget = self.budget()
        if len(self.excess) < SCATTERED:
            return budget
        longest = sorted(self.excess)[int(LATE * len(self.excess))]
        return min(budget, max(floor + 0.5 * (budget - floor), self.interval / SPARE - longest))

    def capacity(self, fixed: float, streams: int = 1) -> float:
        """Executor seconds that the batches of all streams may take where rows are dropped.

        >>> pace = Pace(lambda: 0.8, 2, batch=0.2)
        >>> round(pace.capacity(0.4), 3), round(pace.enough(0.4), 3)
        (1.2, 1.2)
        >>> pace.correction = -9.0
        >>> round(pace.capacity(0.4), 3), round(pace.enough(0.4), 3)
        (0.6, 1.2)
        """
        floor = self.floor(fixed, streams)
        left = self.budget() - floor
        rows = min(max(self.target(floor) - floor + self.correction, LEAST * left), (1 + MORE) * left)
        return fixed + max(rows, self._least(floor)) / self.executor

    def fits(self, streams: int = 1) -> float:
        """Executor seconds that fit into the budget, whatever must be taken: what a reader calls capacity.

        >>> round(Pace(lambda: 0.8, 2, batch=0.2).fits(), 3)
        1.2
        """
        return max(self.budget() - streams * self.batch, LEFT * self.interval) / self.executor

    def enough(self, fixed: float, streams: int = 1) -> float:
        """Executor seconds that fit into the budget: whoever needs no more is taken whole."""
        floor = self.floor(fixed, streams)
        return fixed + max(self.budget() - floor, self._least(floor)) / self.executor

    def _least(self, floor: float) -> float:
        """Seconds for rows however little an empty batch leaves of an interval."""
        budget, floor = self.budget(), max(floor, 0.05)
        lost = min(max((floor - budget) / max(self.interval - budget, 1e-9), 0.0), 1.0)
        return (CROWDED + (HOPELESS - CROWDED) * lost) * floor

    def aim(
        self, mine: float, my_fixed: float, all_fixed: float, streams: int, *, settled: bool = True
    ) -> Aim:
        """What the batch of one stream is meant to take, given executor seconds as planned."""
        floor = self.floor(my_fixed)
        rows = max(mine - my_fixed, 0.0) * self.executor
        whole = self.floor(all_fixed, streams)
        planned = (self.capacity(all_fixed, streams) - all_fixed) * self.executor
        wanted = self.target(whole) - whole
        steers = whole < self.budget() and wanted > 0 and planned > 0
        return Aim(floor, floor + (rows * wanted / planned if steers else rows), steers, settled)

    def learn(self, spent: float, wall: float) -> None:
        """Take note of how long a batch took that took so many executor seconds."""
        self._learnt += 1
        self._walls.append(Observation(self._learnt, {"batch": 1.0, "executor": spent}, wall))
        base = {"batch": 0.12, "executor": 1.0 / self.cores}
        self.executor = fit_costs(list(self._walls), base, ridge=0.02)["executor"]
        # batches that are all alike say nothing of what a second less would save: it is more than nothing,
        # and hardly more than a second
        self.executor = min(max(self.executor, IDLE / self.cores), BUSY)
        ages = FORGETTING ** np.arange(len(self._walls) - 1, -1, -1)
        around = [o.seconds - o.terms["executor"] * self.executor for o in self._walls]
        self.batch = max(float(np.average(around, weights=ages)), 0.0)

    def correct(self, aim: Aim, wall: float) -> None:
        """Plan the next batches shorter or longer, after one that was shed."""
        if not aim.steers:
            return
        over = wall - aim.seconds
        if aim.settled:
            self.excess.append(over)
        gain = HASTE if wall > self.interval else GAIN
        left = self.budget() - aim.floor
        # further than it can act it would only take longer to come back
        self.correction = min(MORE * left, max((LEAST - 1) * left, self.correction - gain * over))

    def relax(self) -> None:
        """Forget some of the correction, after a batch that was taken whole."""
        self.correction *= 0.8
