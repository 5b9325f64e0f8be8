"""How long evaluations really take: the costs and the budget of the next batch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from slackwater.planners.deferring import Rules, UnitCosts
from slackwater.runtime.current.values import Effort

STEADINESS = 0.8
"""The share of what was known in what is known next."""
FASTEST, SLOWEST = 0.3, 10.0
"""Evaluations take between so many times what the default costs say, whatever was measured."""
LEAST_S = 0.05
"""Seconds that evaluations get whatever else takes the time of a batch."""
ENOUGH = 0.02
"""Seconds of evaluations below which what they took is mostly something else."""
MANY = 1000
"""Answers of which delivery takes a time that says something."""


@dataclass
class Took:
    """Learns from turns; all times are seconds. What evaluations are not predicted to take is the rest."""

    scale: float = 1.0
    """Evaluations take so many times what the default costs say."""
    answer: float = UnitCosts().answer
    rest: float | None = None
    """What a turn takes beside evaluations and their delivery."""
    ticks: float = 1.0
    """In a turn."""
    _before: Effort = field(default_factory=Effort)
    _predicted: float = 0.0
    _begins: bool = True
    """Whether queries are set up in this turn, which says nothing of later ones."""

    @property
    def costs(self) -> UnitCosts:
        plain, scale = UnitCosts(), self.scale
        return UnitCosts(plain.entry * scale, plain.look * scale, plain.solve * scale, self.answer)

    def begin(self, effort: Effort, *, begins: bool) -> None:
        """A turn begins; ``begins``: with queries that are new."""
        self._before, self._begins = replace(effort), begins

    def end(self, effort: Effort, rules: Rules, answers: int) -> None:
        """Take note of the ticks of a turn."""
        self._predicted = effort.predicted - self._before.predicted
        ticks = effort.ticks - self._before.ticks
        if ticks:
            self.ticks += (1 - STEADINESS) * (ticks - self.ticks)
        evaluating = self._predicted - answers * rules.costs.answer
        if evaluating > ENOUGH and not self._begins:
            seconds = effort.seconds - self._before.seconds
            found = rules.costs.entry / UnitCosts().entry * seconds / evaluating
            self.scale += (1 - STEADINESS) * (min(max(found, FASTEST), SLOWEST) - self.scale)

    def turn(self, seconds: float, delivering: float, answers: int) -> None:
        """Take note of a whole turn: how long it took, and how long its answers were delivered."""
        if self._begins:
            return
        if answers > MANY:
            self.answer += (1 - STEADINESS) * (delivering / answers - self.answer)
        rest = max(0.0, seconds - self._predicted)
        self.rest = rest if self.rest is None else self.rest + (1 - STEADINESS) * (rest - self.rest)

    def budget(self, seconds: float | None) -> float | None:
        """What the evaluations of a tick may take, of a batch that may take so long."""
        if seconds is None:
            return None
        rest = self.rest if self.rest is not None else seconds / 2
        return max(seconds - rest, LEAST_S) / max(self.ticks, 1.0)
