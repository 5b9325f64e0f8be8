"""How often intervals held the truth, beside how often they claim to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import beta

CHANCE = 0.05
"""A range leaves out the truth so often."""


def binomial_range(inside: float, of: float, chance: float = CHANCE) -> tuple[float, float]:
    """The shares that would not make so few (or so many) of a number of trials a surprise.

    Guarantee: holds the true share with at least 1 - chance. Reference: Clopper and Pearson, Biometrika 26
    (1934). Trials need not be whole: those that depend on each other count less than one each.

    >>> [round(end, 3) for end in binomial_range(90, 100)], binomial_range(0, 0)
    ([0.824, 0.951], (0.0, 1.0))
    """
    if of <= 0:
        return 0.0, 1.0
    low = float(beta.ppf(chance / 2, inside, of - inside + 1)) if inside > 0 else 0.0
    high = float(beta.ppf(1 - chance / 2, inside + 1, of - inside)) if inside < of else 1.0
    return low, high


@dataclass(frozen=True)
class Coverage:
    """Intervals of one column that held the truth."""

    inside: int
    of: int
    claimed: float
    """The confidence that they had, on average."""
    overlap: float = 1.0
    """How many windows a row is in: answers that share their rows are right or wrong together."""

    @property
    def share(self) -> float:
        return self.inside / self.of if self.of else math.nan

    def range(self, chance: float = CHANCE) -> tuple[float, float]:
        """Where the true share lies; answers of overlapping windows count as one."""
        trials = max(1.0, self.of / self.overlap) if self.of else 0.0
        return binomial_range(self.share * trials if self.of else 0.0, trials, chance)

    def short(self, tested: int = 1) -> bool:
        """Whether there are fewer than claimed by more than chance, where so many columns are looked at.

        >>> [Coverage(inside, 100, 0.95).short(tested) for inside, tested in ((90, 1), (80, 1), (80, 10**9))]
        [False, True, False]
        """
        return self.of > 0 and self.range(CHANCE / max(1, tested))[1] < self.claimed


@dataclass(frozen=True)
class Errors:
    """Relative errors: the middle, what nine of ten and 99 of 100 stay below, and the worst."""

    median: float
    most: float
    """90 %."""
    nearly_all: float
    """99 %."""
    worst: float

    @classmethod
    def of(cls, errors: Sequence[float]) -> Errors | None:
        """None where there are no errors to speak of.

        >>> Errors.of([0.1, 0.3, 0.2])
        Errors(median=0.2, most=0.3, nearly_all=0.3, worst=0.3)
        """
        if not errors:
            return None
        ranked = sorted(errors)
        chosen = (ranked[min(len(ranked) - 1, math.ceil(p * len(ranked)) - 1)] for p in (0.5, 0.9, 0.99, 1.0))
        return cls(*chosen)
