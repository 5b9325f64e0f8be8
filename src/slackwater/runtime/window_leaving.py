"""What is learnt of leaving windows out: what later steps cost, and whether enough is left out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from slackwater.plan.slots import Slots
from slackwater.plan.tables import Plan
from slackwater.planners.window_level import WindowDemand, gains_of, leads_to, window_demands
from slackwater.planners.window_rules import DropPoint
from slackwater.runtime.pace import Pace
from slackwater.runtime.shedding import Took

REMEMBERED = 10
"""Batches that feedback takes to set in fully, at least."""
CYCLES = 3
"""Times that a drop's gap goes by meanwhile: a kept window is followed by left-out ones."""
LEAST_KEPT = 0.1
"""What is left of windows tells what all of them would cost, if it is at least so much."""
GAIN = 0.5
"""How fast less or more is planned for, where batches take longer or shorter than they may: over so many
batches as are averaged. The same both ways: long ones and short ones take turns while all is well."""
PATIENCE = 0.2
"""How fast all of the capacity is planned for again once no window is left out, over as many."""
LEAST, MOST = 0.25, 1.2
"""Of the capacity, how little and how much may be planned for."""
SHUT_AFTER = 3
"""Plans in a row without capacity for a drop before its queries are shut by the next: nothing is learnt of
them meanwhile, and what rows of a burst cost is hardly known at first."""
SETTLED = 3
"""Measured batches before windows are left out: what a batch costs is not known before."""


@dataclass
class WindowLeaving:
    """One stream's window drops. Their effect is seen over several windows, not in the next batch.

    While a window is kept, all its rows are taken and batches may take longer than they should; those of
    windows that are left out make up for it. So it is corrected by what adds up over many batches.
    """

    shares: dict[str, float] = field(default_factory=dict)
    """By drop: what is left out now."""
    after: dict[str, float] = field(default_factory=dict)
    """By drop: seconds in a batch for what comes after the first aggregates, if no window were left out."""
    factor: float = 1.0
    """Of the capacity, how much is planned for."""
    wall: float = 0.0
    """Seconds of the last batch."""
    before: float = 0.0
    """Seconds of the one before it."""
    lost: dict[str, int] = field(default_factory=dict)
    """By drop that the last plan had no capacity for at all: how many plans in a row had none."""
    stretch: float = 1.0
    """Seconds of event time in a batch, on average."""
    _for: Plan | None = None
    _gains: dict[str, dict[str, float]] = field(default_factory=dict)
    _points: Mapping[str, DropPoint] = field(default_factory=dict)

    def demands(self, plan: Plan, slots: Slots, points: Mapping[str, DropPoint]) -> tuple[WindowDemand, ...]:
        """The demands of all drops; what they save is counted once for a query set."""
        if self._for is not plan:
            self._for, self._points, self._gains = plan, points, gains_of(plan, slots, points)
        return window_demands(plan, points, self._gains, self.after)

    @property
    def hopeless(self) -> frozenset[str]:
        """Drops whose queries are shut if the next plan has no capacity for them either."""
        return frozenset(id_ for id_, times in self.lost.items() if times >= SHUT_AFTER)

    @property
    def leaves_out(self) -> bool:
        """Whether windows are being left out, or queries given up."""
        return bool(self.lost) or any(self.shares.values())

    def usual(self, size: float, interval: float, *, told: bool) -> float:
        """The rows of a batch if the one before had kept to its interval: more have come while it did not.

        Windows are decided for longer than a batch, and mostly right after others have been kept. Where
        nobody is ``told`` how many rows come, the size is that of the last batch.
        """
        return size * interval / max(interval, self.wall if told else self.before)

    @property
    def memory(self) -> float:
        """Batches that feedback takes to set in fully; costs of later steps are averaged over as many."""
        longest = max((p.drop.slide * (p.drop.gap + 1) / 1e6 for p in self._points.values()), default=0.0)
        return max(REMEMBERED, CYCLES * longest / max(self.stretch, 1e-3))

    def learn(self, plan: Plan, later: Mapping[str, float], took: Took, pace: Pace) -> None:
        """Take note of a batch: seconds of later steps by the step they are for, and how long it took.

        A long batch after a longer one catches up; so it is held to the time since the one before it began.
        """
        new = 1 / self.memory
        self.stretch += (took.stretch - self.stretch) / REMEMBERED if took.stretch > 0 else 0.0
        for id_, point in self._points.items():
            mine = sum(s for name, s in later.items() if leads_to(plan, name, point.members))
            kept = max(1.0 - self.shares.get(id_, 0.0), LEAST_KEPT)
            known = self.after.get(id_)
            whole = mine / kept
            self.after[id_] = whole if known is None else known + new * (whole - known)
        meant = pace.utilisation * max(pace.interval, self.wall)
        self.before, self.wall = self.wall, took.wall
        if any(self.shares.values()):
            over = (took.wall - meant) / (pace.utilisation * pace.interval)
            self.factor = min(MOST, max(LEAST, self.factor * math.exp(-GAIN * new * over)))
        else:
            self.factor = min(1.0, self.factor + PATIENCE * new)
