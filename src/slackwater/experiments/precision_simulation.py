"""A whole system without latency: real filters, real planners, every message counted in both directions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from slackwater.edge.filters import Filters
from slackwater.edge.shadows import POINTS
from slackwater.edge.widths import Grants
from slackwater.planners.precision_allocation import allocate
from slackwater.planners.precision_burden import Watched, adjust, fitted_shrink
from slackwater.planners.precision_changes import HORIZON_PERIODS, worthwhile
from slackwater.planners.precision_constraints import Constraints, Floats, Ints, uniform
from slackwater.planners.precision_curves import Told, known_curves

STEP = 1_000_000
"""Microseconds between two values of an object."""
BETWEEN = 2
PERIOD = 10
"""Steps in an adjustment period, as in the paper."""


@dataclass
class Counted:
    """Messages by step: rows up, grants down, acknowledgements of narrowing up."""

    updates: Floats
    grants: Floats
    acknowledged: Floats
    violations: int = 0

    @property
    def total(self) -> Floats:
        return self.updates + self.grants + self.acknowledged

    def a_step(self, warm_up: int = 0) -> float:
        """Messages in a step, after a time to warm up."""
        return float(self.total[warm_up:].mean())


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

    def heard(self, step: int, objects: Ints, told: list[list[float] | None]) -> None:
        """Rows have come, some with response curves."""

    def adjusted(self, step: int, widths: Floats) -> Granted:
        """At the end of a period; ``widths`` have shrunk already."""


@dataclass
class Static:
    """Widths that stay."""

    constraints: Constraints
    shrink: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.shrink = np.zeros(self.constraints.objects)

    def heard(self, step: int, objects: Ints, told: list[list[float] | None]) -> None:
        """They do not listen."""

    def adjusted(self, step: int, widths: Floats) -> Granted:
        return NOTHING


class Burden:
    """The paper's allocation."""

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

    def heard(self, step: int, objects: Ints, told: list[list[float] | None]) -> None:
        np.add.at(self._updates, objects, 1)

    def adjusted(self, step: int, widths: Floats) -> Granted:
        before = widths / (1 - self.shrink)
        watched = Watched(before, self._updates, self._costs, float(PERIOD))
        found = adjust(self._constraints, watched, self.shrink, self._rng, last=self._targets)
        self._updates[:], self._targets = 0, found.targets
        return Granted(found.grown, found.widths[found.grown])


class ByCurves:
    """The allocation over response curves, which ride on the rows."""

    def __init__(self, constraints: Constraints, costs: Floats) -> None:
        objects = constraints.objects
        self._constraints = constraints
        self._costs = costs
        self.shrink = np.zeros(objects)
        self._lowest, self._seconds = np.zeros(objects, np.int64), np.zeros(objects)
        self._rates = np.zeros((objects, POINTS))
        self._at = np.zeros(objects)
        self._prices: Floats | None = None

    def heard(self, step: int, objects: Ints, told: list[list[float] | None]) -> None:
        self._at[objects] = step
        for place, curve in zip(objects.tolist(), told, strict=True):
            if curve is not None:
                self._lowest[place], self._seconds[place] = int(curve[0]), curve[1]
                self._rates[place] = curve[2:]

    def adjusted(self, step: int, widths: Floats) -> Granted:
        told = Told(self._lowest, self._seconds, self._rates, step - self._at)
        curves = known_curves(told, widths, float(PERIOD), BETWEEN)
        allocation = allocate(self._constraints, curves, self._costs, self._prices)
        self._prices = allocation.prices
        horizon = HORIZON_PERIODS * PERIOD
        found = worthwhile(self._constraints, curves, self._costs, widths, allocation, horizon)
        objects = np.concatenate([found.narrow, found.grow])
        return Granted(objects, found.widths[objects], len(found.narrow))


def simulated(
    values: Floats,
    constraints: Constraints,
    scheme: Scheme,
    start: Floats | None = None,
    *,
    follow: bool = False,
    check: Callable[[Floats, Floats, Floats], int] | None = None,
) -> Counted:
    """Run a scheme over values by step and object, each object a key of its own at a source of its own.

    ``check`` sees the values and both ends of all bounds after every step, and says how many answers were
    wrong or too wide.
    """
    steps, objects = values.shape
    every = np.arange(objects)
    filters = Filters(1, period=float(PERIOD), follow=follow)
    filters.add(objects)
    widths = uniform(constraints) if start is None else start
    _grant(filters, every, widths, scheme.shrink, 0)
    counted = Counted(np.zeros(steps), np.zeros(steps), np.zeros(steps))

    def sent(keys: Ints, step: int) -> None:
        counted.updates[step] += len(keys)
        told = [None if r is None or "r" not in r else r["r"][0] for r in filters.response(keys)]
        scheme.heard(step, keys, told)

    for step in range(steps):
        now = step * STEP
        if step and step % PERIOD == 0:
            sent(filters.review(now), step)
            granted = scheme.adjusted(step, filters.widths(slice(None), now))
            if len(granted.objects):
                _grant(filters, granted.objects, granted.widths, scheme.shrink[granted.objects], now)
                counted.grants[step] += len(granted.objects)
                counted.acknowledged[step] += granted.narrowing
                sent(filters.review(now), step)
        sent(every[filters.offer(every, values[step][:, None], now)], step)
        if check is not None:
            half = filters.widths(slice(None), now) / 2
            counted.violations += check(values[step], filters.centre - half, filters.centre + half)
    return counted


def _grant(filters: Filters, objects: Ints, widths: Floats, shrink: Floats, now: int) -> None:
    zero = np.zeros(len(objects), np.int64)
    period = np.full(len(objects), PERIOD * STEP)
    filters.grant(Grants(objects, zero, widths, zero + now, shrink, period), now)
