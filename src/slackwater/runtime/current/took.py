"""How long evaluations really take: the costs and the budget of the next batch."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from slackwater.planners.deferring import Rules, UnitCosts
from slackwater.runtime.current.values import Effort

STEADINESS = 0.8
"""The share of what was known in what is known next."""
FASTEST, SLOWEST = 0.1, 20.0
LEAST = 0.05
"""Of the time of a batch, what evaluations get whatever else takes it all."""
ENOUGH = 1e-3
"""Seconds of work below which times say nothing."""


@dataclass
class Took:
    """Learns from turns; all times are seconds."""

    scale: float = 1.0
    """Evaluations take so many times what the default costs say."""
    answer: float = UnitCosts().answer
    rest: float = 0.0
    """What a turn takes beside evaluations."""
    ticks: float = 1.0
    """In a turn."""
    _before: Effort = field(default_factory=Effort)
    _spent: float = 0.0
    _answers: int = 0

    @property
    def costs(self) -> UnitCosts:
        plain, scale = UnitCosts(), self.scale
        return UnitCosts(plain.entry * scale, plain.look * scale, plain.solve * scale, self.answer)

    def begin(self, effort: Effort) -> None:
        self._before = replace(effort)

    def end(self, effort: Effort, rules: Rules, answers: int) -> None:
        """Take note of the ticks of a turn."""
        seconds = effort.seconds - self._before.seconds
        predicted = effort.predicted - self._before.predicted - answers * rules.costs.answer
        self._spent, self._answers = seconds, answers
        ticks = effort.ticks - self._before.ticks
        if ticks:
            self.ticks += (1 - STEADINESS) * (ticks - self.ticks)
        if predicted > ENOUGH and seconds > ENOUGH:
            found = rules.costs.entry / UnitCosts().entry * seconds / predicted
            found = min(max(found, FASTEST), SLOWEST)
            self.scale += (1 - STEADINESS) * (found - self.scale)

    def turn(self, seconds: float, delivering: float, answers: int) -> None:
        """Take note of a whole turn: how long it took, and how long its answers were delivered."""
        if answers > 1000:
            self.answer += (1 - STEADINESS) * (delivering / answers - self.answer)
        own = self._spent + delivering * min(1.0, self._answers / max(answers, 1))
        self.rest += (1 - STEADINESS) * (max(0.0, seconds - own) - self.rest)

    def budget(self, seconds: float | None) -> float | None:
        """What the evaluations of a tick may take, of a batch that may take so long."""
        if seconds is None:
            return None
        return max(seconds - self.rest, LEAST * seconds) / max(self.ticks, 1.0)
