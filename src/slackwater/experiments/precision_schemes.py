"""How widths are adjusted in the simulated experiments: not at all, as the paper does, or by response curves.

The planners are those of the runtime; here they only meet the messages that they would see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from slackwater.edge.shadows import POINTS
from slackwater.planners.precision_allocation import PROGRAM_AT_MOST, allocate
from slackwater.planners.precision_burden import Watched, adjust, fitted_shrink
from slackwater.planners.precision_changes import horizons, worthwhile
from slackwater.planners.precision_constraints import Constraints, Floats, Ints
from slackwater.planners.precision_curves import Curves, Told, known_curves, refinement

PERIOD = 10
"""Seconds in an adjustment period, and steps where values come every second, as in the paper."""


@dataclass(frozen=True)
class Granted:
    """What a scheme decides at the end of a period: objects and their new widths."""

    objects: Ints
    widths: Floats
    narrowing: int = 0
    """How many of them, the first, are narrowed and must be acknowledged."""


NOTHING = Granted(np.empty(0, np.int64), np.empty(0))


class Scheme(Protocol):
    """How widths are adjusted."""

    shrink: Floats
    """By object: the share that goes by itself at every period."""
    listens: bool
    """Whether it wants the response curves."""
    period: float
    """Seconds between two adjustments."""

    def heard(self, now: float, objects: Ints, told: Sequence[Sequence[float] | None]) -> None:
        """Rows have come, some with response curves."""

    def adjusted(self, now: float, widths: Floats) -> Granted:
        """At the end of a period; ``widths`` have shrunk already."""


@dataclass
class Static:
    """Widths that stay."""

    constraints: Constraints
    shrink: Floats = field(init=False)
    listens: bool = False
    period: float = float(PERIOD)

    def __post_init__(self) -> None:
        self.shrink = np.zeros(self.constraints.objects)

    def heard(self, now: float, objects: Ints, told: Sequence[Sequence[float] | None]) -> None:
        """It makes no difference."""

    def adjusted(self, now: float, widths: Floats) -> Granted:
        return NOTHING


class Burden:
    """The paper's allocation, at a given shrink or at the one fitted to the number of objects."""

    listens = False
    period = float(PERIOD)

    def __init__(
        self, constraints: Constraints, costs: Floats, rng: np.random.Generator, shrink: float | None = None
    ) -> None:
        self._constraints = constraints
        self._costs = costs
        self._rng = rng
        fitted = fitted_shrink(constraints)
        self.shrink = fitted if shrink is None else np.where(fitted > 0, shrink, 0.0)
        self._updates = np.zeros(constraints.objects)
        self._targets: Floats | None = None

    def heard(self, now: float, objects: Ints, told: Sequence[Sequence[float] | None]) -> None:
        np.add.at(self._updates, objects, 1)

    def adjusted(self, now: float, widths: Floats) -> Granted:
        before = widths / (1 - self.shrink)
        watched = Watched(before, self._updates, self._costs, float(PERIOD))
        found = adjust(self._constraints, watched, self.shrink, self._rng, last=self._targets)
        self._updates[:], self._targets = 0, found.targets
        return Granted(found.grown, found.widths[found.grown])


class ByCurves:
    """The allocation over response curves, which ride on the rows."""

    listens = True
    period = float(PERIOD)

    def __init__(
        self, constraints: Constraints, costs: Floats, *, program_at_most: int = PROGRAM_AT_MOST
    ) -> None:
        objects = constraints.objects
        self._constraints = constraints
        self._costs = costs
        self._program_at_most = program_at_most
        self.shrink = np.zeros(objects)
        self._lowest, self._seconds = np.zeros(objects, np.int64), np.zeros(objects)
        self._rates = np.zeros((objects, POINTS))
        self._at, self._granted = np.zeros(objects), np.zeros(objects)
        self._prices: Floats | None = None

    def heard(self, now: float, objects: Ints, told: Sequence[Sequence[float] | None]) -> None:
        self._at[objects] = now
        for place, curve in zip(objects.tolist(), told, strict=True):
            if curve is not None:
                self._lowest[place], self._seconds[place] = int(curve[0]), curve[1]
                self._rates[place] = curve[2:]

    def known(self, now: float, widths: Floats) -> Curves:
        """The response curves, as far as the coordinator can know them."""
        told = Told(self._lowest, self._seconds, self._rates, now - self._at)
        return known_curves(told, widths, self.period, refinement(len(widths)))

    def adjusted(self, now: float, widths: Floats) -> Granted:
        constraints, costs, most = self._constraints, self._costs, self._program_at_most
        curves = self.known(now, widths)
        allocation = allocate(constraints, curves, costs, self._prices, program_at_most=most)
        self._prices = allocation.prices
        lasting = horizons(constraints, curves, widths, self.period, now - self._granted)
        found = worthwhile(constraints, curves, costs, widths, allocation, lasting)
        objects = np.concatenate([found.narrow, found.grow])
        self._granted[objects] = now
        return Granted(objects, found.widths[objects], len(found.narrow))
