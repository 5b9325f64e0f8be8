"""Cached answers under DRIFT beside the truth at every tick: how often they were within their bound.

The answer of a group stands until its next one, moved by its slope. The ticks of such a stretch are right or
wrong together, so that a stretch counts as one trial, however many ticks it has.

While keys are interrupted the exact run goes by what they said last, and that is no truth for an answer that
models where they are now. It is known when they are back: the last modelled answer is held to that tick.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from slackwater.language.contracts import Drift
from slackwater.runtime.answers import Answer
from slackwater.runtime.audit_report import DriftAudit
from slackwater.runtime.json_values import to_micros
from slackwater.statistics.coverage import Coverage

CLOSE = 1e-9
"""Sums of floats in another order differ in their last digits: so much of a difference is none."""
CACHED = ("deferred", "modelled")
"""Answers that stand until the next one."""
_MODELLED, _LATE = 1, 2


def number(value: object) -> float | None:
    """A value as a float; None where it is no number."""
    return float(value) if isinstance(value, int | float | Decimal) else None


@dataclass
class _Tally:
    """Ticks at which an interval was to hold the truth, in bunches that are right or wrong together."""

    inside: int = 0
    of: int = 0
    claimed: float = 0.0
    squares: int = 0
    """The sum of the squared sizes of bunches."""

    def count(self, inside: bool, claimed: float, before: int) -> None:
        """Count a tick; ``before`` are those of its bunch that were counted already."""
        self.inside += inside
        self.of += 1
        self.claimed += claimed
        self.squares += 2 * before + 1

    def coverage(self) -> Coverage | None:
        """The share of them; None where there was no tick.

        Variant: a bunch is one trial. Where large and small ones are mixed it is less than one each: so many
        as bunches of one size would tell as much. Reference: Kish, Survey Sampling (1965).
        """
        if not self.of:
            return None
        return Coverage(self.inside, self.of, self.claimed / self.of, self.squares / self.of)


class _Group:
    """What was said of one group, as columns: answers are many."""

    __slots__ = ("at", "claimed", "current", "exact_at", "high", "kind", "low", "run", "seen", "slope")

    def __init__(self) -> None:
        self.at = array("q")
        self.low, self.high = array("d"), array("d")
        """NaN where the answer is that there is no value."""
        self.slope = array("d")
        """A microsecond."""
        self.claimed = array("d")
        self.kind = bytearray()
        self.seen = False
        """Whether the exact run knows the group."""
        self.exact_at: int | None = None
        """The last tick that an exact answer was given for."""
        self.current, self.run = -1, 0
        """The answer that the last tick was in the stretch of, and how many were before it there."""

    def settle(self) -> None:
        """Put the answers in order of time; of two for one time the later one holds."""
        at = self.at
        if all(at[i - 1] <= at[i] for i in range(1, len(at))):
            return
        order = sorted(range(len(at)), key=at.__getitem__)
        self.at = array("q", (at[i] for i in order))
        for name in ("low", "high", "slope", "claimed"):
            column = getattr(self, name)
            setattr(self, name, array("d", (column[i] for i in order)))
        self.kind = bytearray(self.kind[i] for i in order)

    def step(self, index: int) -> int:
        """How many ticks the stretch of an answer had before this one."""
        self.run = self.run + 1 if index == self.current else 0
        self.current = index
        return self.run

    def back(self, index: int) -> bool:
        """Whether an answer is the first after a modelled one, and came when it was due."""
        return index > 0 and not self.kind[index] and bool(self.kind[index - 1] & _MODELLED)

    def holds(self, index: int, at: int, truth: float | None) -> bool:
        """Whether the interval of an answer, moved up to a tick, holds the truth."""
        low, high = self.low[index], self.high[index]
        if truth is None or math.isnan(low):
            return truth is None and math.isnan(low)
        moved = self.slope[index] * (at - self.at[index])
        slack = CLOSE * abs(truth)
        return low + moved <= truth + slack and truth - slack <= high + moved


@dataclass
class DriftColumn:
    """One column of a query that is, or was, under DRIFT: ``take`` all answers, ``settle``, then ``look``."""

    promised: Sequence[Drift]
    """All contracts of this kind that the query had."""
    groups: dict[str, _Group] = field(default_factory=dict)
    names: frozenset[str] | None = None
    """Of the keys that answers have: an exact one may have more, made of the same."""
    late_until: float = -math.inf
    """The last answer that came late."""
    kept: _Tally = field(default_factory=_Tally)
    back: _Tally = field(default_factory=_Tally)
    """At ticks at which interrupted keys are back; groups that are back at the same one go together."""
    returns: Counter[int] = field(default_factory=Counter)
    modelled: int = 0
    late: int = 0
    late_within: int = 0

    def take(self, answer: Answer) -> None:
        """Keep an answer that the run has given.

        It is held to its own interval, and to the contract where that asks for more.
        """
        assert answer.at is not None
        if self.names is None:
            self.names = frozenset(name for name, _ in answer.keys)
        group = self.groups.setdefault(repr(answer.keys), _Group())
        value, low, high = number(answer.value), number(answer.low), number(answer.high)
        late, claimed = not answer.met, answer.confidence
        if value is None:
            low = high = math.nan
            late = late and answer.how == "deferred"
        else:
            bound = max(c.bound * abs(value) if c.relative else c.bound for c in self.promised)
            low, high = value - bound if low is None else low, value + bound if high is None else high
            if answer.how == "deferred":
                low, high = max(low, value - bound), min(high, value + bound)
                claimed = max(claimed, min(c.belief for c in self.promised))
            else:
                # a modelled answer that is too wide says so in the same way as one that came late
                late = late and high - low <= 2 * bound * (1 + CLOSE)
        slope = answer.slope if answer.slope is not None and math.isfinite(answer.slope) else 0.0
        at = to_micros(answer.at)
        group.at.append(at)
        group.low.append(low)
        group.high.append(high)
        group.slope.append(slope / 1e6)
        group.claimed.append(claimed)
        group.kind.append((_MODELLED if answer.how == "modelled" else 0) | (_LATE if late else 0))
        if late:
            self.late_until = max(at, self.late_until)

    def settle(self) -> None:
        """Make ready for the truth."""
        for group in self.groups.values():
            group.settle()

    def exact(self, true: Answer) -> None:
        """Take note that the run gave an exact answer of its own for a tick, before or after DRIFT."""
        group = self._of(true)
        if group is not None and true.at is not None:
            group.seen, group.exact_at = True, to_micros(true.at)

    def look(self, true: Answer) -> bool:
        """Count the truth at a tick; False where an answer for it is missing.

        The ticks of a group come in order of time. What was promised is what was said when it was said: a
        stretch that ends in an answer that came late has been said to be a broken promise. The last stretch
        of a group has no such end: where others came late meanwhile, it counts as one of them.
        """
        group = self._of(true)
        if group is None or true.at is None:
            return False
        group.seen = True
        at, truth = to_micros(true.at), number(true.value)
        truth = None if truth is not None and math.isnan(truth) else truth
        index = bisect_right(group.at, at) - 1
        if group.exact_at is not None and (index < 0 or group.at[index] < group.exact_at):
            # EXACT owes one at every tick
            return False
        late = self._late(group, index)
        if index < 0:
            self.late += late
            return late
        before = group.step(index)
        if group.kind[index] & _MODELLED:
            self.modelled += 1
        elif late:
            self.late += 1
            self.late_within += group.holds(index, at, truth)
        else:
            self.kept.count(group.holds(index, at, truth), group.claimed[index], before)
        if group.at[index] == at and group.back(index):
            self.back.count(group.holds(index - 1, at, truth), group.claimed[index - 1], self.returns[at])
            self.returns[at] += 1
        return True

    def _late(self, group: _Group, index: int) -> bool:
        if index + 1 < len(group.at):
            return bool(group.kind[index + 1] & _LATE)
        return group.at[index] < self.late_until

    def _of(self, true: Answer) -> _Group | None:
        names = self.names
        if names is None:
            return None
        keys = true.keys
        if len(keys) != len(names):
            keys = tuple((name, value) for name, value in keys if name in names)
        return self.groups.get(repr(keys))

    @property
    def extra(self) -> int:
        """Answers of groups that the exact run does not have."""
        return sum(len(group.at) for group in self.groups.values() if not group.seen)

    @property
    def compared(self) -> int:
        return self.kept.of + self.late

    def audit(self) -> DriftAudit:
        """What was found."""
        return DriftAudit(
            self.kept.coverage(), self.late, self.late_within, self.modelled, self.back.coverage()
        )
