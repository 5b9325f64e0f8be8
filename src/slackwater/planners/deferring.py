"""What is decided before a batch: how much its ticks may cost, and which items are better not deferred.

To multiply a sparse matrix once a tick is cheap. Where answers wait for a tick or two only, evaluating all of
them and delivering those that have drifted costs less than working out when each is due; where they wait
long, or where each evaluation is a scan of a window, deferring does. Delivery counts in both: an evaluation
of all delivers only what has left its bound, which is seldom, while a deferred answer is delivered each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

CLEARLY = 0.8
"""The other way must cost less than this share of the present one for a change."""
SCANS = 4.0
"""An evaluation by itself touches its entries so many times: value, drift, variance, and to choose them."""


@dataclass(frozen=True)
class UnitCosts:
    """Seconds: for an entry of a matrix, for a query that is looked at, one that is solved, one delivered."""

    entry: float = 1e-9
    look: float = 1e-9
    solve: float = 2e-7
    answer: float = 2e-6

    def evaluation(self, entries: Floats, ticks: Floats | float = 1.0) -> Floats:
        """What it costs to evaluate queries of so many entries, read at so many ticks."""
        found: Floats = entries * (SCANS - 1 + ticks) * self.entry + (self.solve + self.answer)
        return found


@dataclass(frozen=True)
class Rules:
    """What holds for the ticks of a batch; recorded, so that a batch which comes again is done alike."""

    budget: float | None = None
    """Seconds that the evaluations of a tick may take by these costs; None: as long as they take."""
    costs: UnitCosts = field(default_factory=UnitCosts)
    every: tuple[str, ...] = ()
    """Items that are evaluated at every tick, as query/item."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Rules:
        if not value:
            return cls()
        return cls(value["budget"], UnitCosts(**value["costs"]), tuple(value["every"]))


@dataclass(frozen=True)
class ItemLoad:
    """One item of a query, as far as what it costs goes; waits and bounds of a sample of its groups."""

    queries: int
    entries: float
    """Of a query, on average."""
    wait: Floats
    """Seconds that evaluations are put off."""
    leaving: Floats
    """How often a second answers leave their bound."""
    deferred_ticks: float = 1.0
    """Ticks that a deferred evaluation reads: those of a window, or since the last look."""
    every_ticks: float = 1.0
    """Ticks that one at every tick reads."""


def leaving(bound: Floats, drift: Floats, variance: Floats) -> Floats:
    """How often a second an aggregate leaves its bound.

    A Brownian motion leaves ±bound after bound²/variance on average, a drift after bound/drift.

    >>> leaving(np.array([2.0, 2.0]), np.array([0.0, 1.0]), np.array([1.0, 0.0]))
    array([0.25, 0.5 ])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = variance / np.square(bound) + np.abs(drift) / bound
    return found


def deferred_cost(load: ItemLoad, gap: float, costs: UnitCosts) -> float:
    """Seconds a tick if evaluations are put off; ``gap`` is the time between two ticks."""
    # an evaluation falls on the last tick before its time
    ticks = np.maximum(np.floor(load.wait / gap), 1.0)
    share = float(np.mean(1 / ticks)) if len(ticks) else 1.0
    each = float(costs.evaluation(np.array([load.entries]), load.deferred_ticks)[0])
    return load.queries * (costs.look + share * each)


def every_cost(load: ItemLoad, gap: float, costs: UnitCosts) -> float:
    """Seconds a tick if all are evaluated, and delivered where they have left their bound."""
    leaves = np.nan_to_num(np.minimum(load.leaving * gap, 1.0), nan=1.0)
    share = float(np.mean(leaves)) if len(leaves) else 1.0
    each = float(costs.evaluation(np.array([load.entries]), load.every_ticks)[0])
    look = load.entries * load.every_ticks * costs.entry + 2 * costs.look
    return load.queries * (look + share * each)


def evaluate_every(load: ItemLoad, gap: float, costs: UnitCosts, now: bool) -> bool:
    """Whether an item is better evaluated at every tick; ``now`` says whether it is.

    Guarantee: the way whose cost is less, but for a margin that keeps it from changing to and fro.

    >>> short, calm = np.full(9, 1.5), np.full(9, 500.0)
    >>> wild = ItemLoad(1_000_000, 9, short, np.full(9, 0.2))
    >>> evaluate_every(wild, 1.0, UnitCosts(), False)
    True
    >>> still = ItemLoad(1_000_000, 9, calm, np.full(9, 1e-3), deferred_ticks=1800, every_ticks=1800)
    >>> evaluate_every(still, 1.0, UnitCosts(), True)
    False
    """
    deferred, every = deferred_cost(load, gap, costs), every_cost(load, gap, costs)
    return deferred * CLEARLY >= every if not now else every * CLEARLY < deferred
