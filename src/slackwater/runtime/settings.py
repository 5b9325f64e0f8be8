"""How a run goes about its work."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from slackwater.errors import PlanError
from slackwater.planners.manner import Manner

SHEDDING = ("minimax", "hoeffding", "input", "off")
OBJECTIVES = ("minimax", "delivered")


@dataclass(frozen=True)
class Settings:
    """How a run goes about its work; ``--set name=value`` on the command line."""

    trigger_ms: int = 1000
    """Time between the starts of two batches, for sources that are not read as fast as it goes."""
    rows_per_batch: int = 500_000
    """Rows of a batch of a trace that is replayed at speed 'max'."""
    driver_rows: int = 100_000
    """Groups of a batch up to which partial aggregates go through the driver."""
    driver_entries: int = 50_000_000
    """Keys that a query over current values has in all its groups, up to which the driver evaluates it."""
    salt: int = 1
    """Which sample is drawn where one is: runs with different salts are independent repetitions."""

    utilisation: int = 80
    """Percent of the time between batches that one may take before load is shed."""
    shedding: str = "minimax"
    """How queries share the loss: minimax, hoeffding (the paper's split), input (one rate for all) or off."""
    margin: float = 0.0
    """Under hoeffding: the paper's margin, added to the bound of every query's relative error."""
    objective: str = "minimax"
    """How SUBSET queries share what is left out: minimax (least largest loss) or delivered (most in all)."""

    deferral: str = "all"
    """How DRIFT puts evaluations off: all, paper, or names of extensions with commas (`Manner`)."""

    deferral_items: int = 40
    """Latest items of each key that its drift and diffusion are learnt from (the paper's k)."""
    deferral_estimate_ticks: int = 10
    """Ticks after which they are estimated again at the latest (t_max)."""
    deferral_resting_ticks: int = 5
    """Ticks between two answers that rest on interrupted keys (T)."""

    def __post_init__(self) -> None:
        if self.shedding not in SHEDDING:
            raise PlanError(f"setting shedding: expected {', '.join(SHEDDING)}, got {self.shedding!r}")
        if self.objective not in OBJECTIVES:
            raise PlanError(f"setting objective: expected {', '.join(OBJECTIVES)}, got {self.objective!r}")
        try:
            Manner.of(self.deferral)
        except ValueError as error:
            raise PlanError(f"setting deferral: {error}") from None
        margin = self.margin
        if isinstance(margin, bool) or not isinstance(margin, int | float) or not 0 <= margin < math.inf:
            raise PlanError(f"setting margin: expected a number of at least 0, such as 0.01, got {margin!r}")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("shedding", "margin", "objective", "deferral"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise PlanError(f"setting {field.name}: expected a whole number above 0, got {value!r}")
