"""How evaluations are put off: as the paper does it, or with what goes beyond it."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Manner:
    """Extensions of the paper's scheme; the setting ``deferral`` names those that are on.

    >>> Manner.of("paper") == Manner(False, False, False, False, False, False)
    True
    >>> Manner.of("covariance,average").calibration
    False
    """

    covariance: bool = True
    """The variance of a sum from how its keys move together, instead of the sum of their variances."""
    calibration: bool = True
    """Belief by what evaluations reveal, and what silences are like by pretending some."""
    average: bool = True
    """The chance to be within the bound on average over an interval, instead of that at its end."""
    budget: bool = True
    """More of the misses that a belief allows in wild times, when an evaluation buys little."""
    replanned: bool = True
    """Intervals that have not ended are planned again as estimates change."""
    reflection: bool = True
    """Whether an extreme is passed at any time of an interval, instead of at its end."""

    @classmethod
    def of(cls, text: str) -> Manner:
        """The manner that a setting names: ``all``, ``paper``, or extensions with commas between them."""
        names = [f.name for f in fields(cls)]
        if text.strip().lower() == "all":
            return cls()
        wanted = [] if text.strip().lower() == "paper" else [w.strip().lower() for w in text.split(",")]
        unknown = [w for w in wanted if w not in names]
        if unknown:
            known = ", ".join(names)
            raise ValueError(f"expected all, paper, or some of {known}; got {unknown[0]!r}")
        return cls(**{name: name in wanted for name in names})
