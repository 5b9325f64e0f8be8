"""What the reader of a query tolerates: the five contracts, as frozen values.

Each validates itself when built, and ``str()`` gives the SQL that parses back to an equal value.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

Fill = Literal["linear", "last"]


def _number(value: float, places: int = 0) -> str:
    """The shortest text that reads back as the same number, its point moved some places to the right."""
    return f"{Decimal(repr(float(value))).scaleb(places).normalize():f}"


def _percent(share: float) -> str:
    return f"{_number(share, 2)}%"


def _between(name: str, value: float, low: float, high: float, shown: str) -> None:
    if not low < value < high:
        raise ValueError(f"{name} must lie between {shown}, both excluded; got {_percent(value)}")


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a query stands among others when not all can have what they want."""

    weight: float = 1.0
    priority: int | None = None

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise ValueError(f"WEIGHT must be above 0, got {self.weight:g}")
        if self.priority is not None and self.priority < 1:
            raise ValueError(f"PRIORITY counts from 1, the highest; got {self.priority}")

    def _standing(self) -> str:
        weight = "" if self.weight == 1.0 else f" WEIGHT {_number(self.weight)}"
        return weight + ("" if self.priority is None else f" PRIORITY {self.priority}")


@dataclass(frozen=True)
class Exact(Standing):
    """The true answer, whatever the load.

    >>> str(Exact(priority=1))
    'EXACT PRIORITY 1'
    """

    def __str__(self) -> str:
        return "EXACT" + self._standing()


@dataclass(frozen=True)
class Error(Standing):
    """An unbiased estimate whose interval holds with probability ``confidence``.

    >>> str(Error(0.05, confidence=0.99, weight=2))
    'ERROR 5% CONFIDENCE 99% WEIGHT 2'
    """

    bound: float = 0.05
    confidence: float = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.bound > 0:
            raise ValueError(f"ERROR must be above 0%, got {_percent(self.bound)}; for no error, use EXACT")
        if self.bound > 1:
            raise ValueError(
                f"ERROR is at most 100%, got {_percent(self.bound)}; "
                "5% is ERROR 5% in SQL and Error(0.05) in Python"
            )
        _between("CONFIDENCE", self.confidence, 0, 1, "0% and 100%")

    def __str__(self) -> str:
        confidence = "" if self.confidence == 0.95 else f" CONFIDENCE {_percent(self.confidence)}"
        return f"ERROR {_percent(self.bound)}{confidence}{self._standing()}"


@dataclass(frozen=True)
class Subset(Standing):
    """Every delivered answer is exact; never more than ``gap`` in a row are missing.

    >>> str(Subset(10, fill="last"))
    'SUBSET GAP 10 FILL last'
    """

    gap: int
    fill: Fill | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gap < 1:
            raise ValueError(
                f"GAP counts missing answers and is at least 1, got {self.gap}; for none, use EXACT"
            )

    def __str__(self) -> str:
        fill = "" if self.fill is None else f" FILL {self.fill}"
        return f"SUBSET GAP {self.gap}{fill}{self._standing()}"


@dataclass(frozen=True)
class Precision:
    """An interval never wider than ``width`` that contains the truth at all times.

    >>> str(Precision(5)), str(Precision(5, immediate=True))
    ('PRECISION 5', 'PRECISION 5')
    """

    width: float
    immediate: bool = False
    """How ALTER QUERY has it reached: an instruction, and nothing that answers promise."""

    def __post_init__(self) -> None:
        if not 0 <= self.width < float("inf"):
            raise ValueError(f"PRECISION is the width of an interval and at least 0, got {self.width:g}")

    def __str__(self) -> str:
        return f"PRECISION {_number(self.width)}"


@dataclass(frozen=True)
class Drift:
    """The cached answer is within ``bound`` of the truth with probability ``belief``.

    >>> str(Drift(0.01, relative=True, belief=0.9))
    'DRIFT 1% BELIEF 90%'
    """

    bound: float
    relative: bool = False
    belief: float = 0.95
    extrapolate: bool = False

    def __post_init__(self) -> None:
        if not self.bound >= 0:
            raise ValueError(f"DRIFT is a distance and at least 0, got {self.bound:g}")
        _between("BELIEF", self.belief, 0, 1, "0% and 100%")

    def __str__(self) -> str:
        bound = _percent(self.bound) if self.relative else _number(self.bound)
        extrapolate = " EXTRAPOLATE" if self.extrapolate else ""
        return f"DRIFT {bound} BELIEF {_percent(self.belief)}{extrapolate}"


Contract = Exact | Error | Subset | Precision | Drift
