"""A whole system without latency: real filters, real planners, every message counted in both directions.

Each object is a key of its own at a source of its own, as in the paper: no message is shared. What the
coordinator believes is kept apart from the filters, made of nothing but the messages; at every step each
answer is checked against the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from slackwater.edge.filters import Filters
from slackwater.edge.following import Following, moved
from slackwater.edge.tracks import Tracks
from slackwater.edge.widths import Grants, width_at
from slackwater.experiments.precision_schemes import PERIOD, Burden, ByCurves, Granted, Scheme, Static
from slackwater.planners.precision_constraints import Constraints, Floats, Ints, uniform

__all__ = ["STEP", "Burden", "ByCurves", "Counted", "Granted", "Results", "Scheme", "Static", "simulated"]

STEP = 1_000_000
"""Microseconds between two values of an object."""
ROUNDING = 1e-12
"""A share that sums of floats may be off when an answer is compared with the truth."""
Placing = Literal["centred", "following"]
"""Where bounds are put: around the value always, as in the paper, or by what has been found to send least."""


@dataclass
class Results:
    figures: dict[str, float] = field(default_factory=dict)
    series: dict[str, Any] = field(default_factory=dict)


@dataclass
class Counted:
    """Cost of messages by step: rows up, grants down, acknowledgements of narrowing up."""

    updates: Floats
    grants: Floats
    acknowledged: Floats
    violations: int = 0
    """Answers that did not hold the truth, or were wider than allowed; at every step one for each query."""
    answers: int = 0
    of_object: Floats | None = None
    """All messages by step and object, where that was asked for."""

    @property
    def total(self) -> Floats:
        return self.updates + self.grants + self.acknowledged

    def a_step(self, warm_up: int = 0) -> float:
        """All messages in a step, after a time to warm up."""
        return float(self.total[warm_up:].mean())

    def updates_a_step(self, warm_up: int = 0) -> float:
        """Updates alone, which is what the paper counts in sections 3.3 and 5.2.1."""
        return float(self.updates[warm_up:].mean())


class _Never(Following):
    """Bounds are always put around the value."""

    def _choose(self, slots: Ints, sent: Floats) -> None:
        """There is no choice."""


class _CentredTracks(Tracks):
    def __init__(self, period: float) -> None:
        super().__init__(period)
        self._following = _Never()


class _CentredFilters(Filters):
    """Filters that run shadows, but put every bound around its value."""

    def __init__(self, columns: int, *, period: float) -> None:
        super().__init__(columns, period=period)
        self._watching = _CentredTracks(period)
        self._tracks = self._watching

    def told_beside(self, keys: Ints, now: int) -> list[dict[str, Any] | None]:
        """The curves of keys that are not sent themselves, to ride on the row of another."""
        objects = self.objects(keys)
        told = self._watching.curves(objects, np.full(objects.shape, now))
        return [None if curve is None else {"r": curve} for curve in told.lists()]


class _Believed:
    """The bounds as the coordinator knows them, from rows and grants alone."""

    def __init__(self, constraints: Constraints, shrink: Floats) -> None:
        objects = constraints.objects
        self._constraints, self._shrink = constraints, shrink.copy()
        self._centre, self._slope = np.full(objects, np.nan), np.zeros(objects)
        self._since, self._start = np.zeros(objects, np.int64), np.zeros(objects, np.int64)
        self._width = np.full(objects, np.inf)
        self._period = np.full(objects, PERIOD * STEP)
        self._asked = np.flatnonzero(constraints.shared | np.isfinite(constraints.ceiling))

    def granted(self, grants: Grants, now: int) -> None:
        objects = grants.key
        self._width[objects], self._start[objects] = grants.width, now
        self._shrink[objects], self._period[objects] = grants.shrink, grants.period

    def heard(self, objects: Ints, values: Floats, riders: Sequence[dict[str, Any] | None], now: int) -> None:
        self._centre[objects], self._slope[objects], self._since[objects] = values, 0.0, now
        for place, rider in zip(objects.tolist(), riders, strict=True):
            if rider is not None and "c" in rider:
                self._centre[place] = rider["c"][0]
            if rider is not None and "s" in rider:
                self._slope[place] = rider["s"][0]

    def wrong(self, values: Floats, now: int) -> int:
        """How many answers do not hold the truth of this step, or are too wide."""
        asked = self._asked
        widths = np.zeros(len(values))
        widths[asked] = width_at(
            self._width[asked], self._start[asked], self._shrink[asked], self._period[asked], now
        )
        off = np.zeros(len(values))
        centre = moved(self._centre[asked], self._slope[asked], self._since[asked], now)
        off[asked] = values[asked] - centre
        matrix = self._constraints.matrix
        used = matrix @ widths
        # written so that what is not a number is wrong too
        within = np.abs(matrix @ off) <= used / 2 + ROUNDING * (matrix @ np.abs(off))
        queries = int((~(within & (used <= self._constraints.limit))).sum())
        alone = np.flatnonzero(np.isfinite(self._constraints.ceiling))
        # an object with a ceiling answers a query by itself
        held = (np.abs(off[alone]) <= widths[alone] / 2) & (widths[alone] <= self._constraints.ceiling[alone])
        return queries + int((~held).sum())


def simulated(
    values: Floats,
    constraints: Constraints,
    scheme: Scheme,
    start: Floats | None = None,
    *,
    placing: Placing = "centred",
    costs: Floats | None = None,
    by_object: bool = False,
    source: Ints | None = None,
    every: int = STEP,
) -> Counted:
    """Run a scheme over values by step and object; weights above 0. It begins with equal widths, or others.

    The grants that it begins with are not counted: every scheme needs as many. ``source`` is that of each
    object: whatever a source sends brings the curves of all its objects along, where bounds are centred.
    Without it each object has its own. Values come ``every`` so many microseconds.
    """
    steps, objects = values.shape
    each, weighs = np.arange(objects), np.ones(objects) if costs is None else costs
    filters = _filters(scheme, placing)
    filters.add(objects)
    believed = _Believed(constraints, scheme.shrink)
    counted = Counted(np.zeros(steps), np.zeros(steps), np.zeros(steps))
    if by_object:
        counted.of_object = np.zeros((steps, objects))

    def grant(granted: Granted, now: int) -> None:
        chosen = granted.objects
        zero, period = np.zeros(len(chosen), np.int64), np.full(len(chosen), round(scheme.period * 1e6))
        grants = Grants(chosen, zero, granted.widths, zero + now, scheme.shrink[chosen], period)
        filters.grant(grants, now)
        believed.granted(grants, now)

    def sent(keys: Ints, step: int) -> None:
        if not len(keys):
            return
        counted.updates[step] += weighs[keys].sum()
        if counted.of_object is not None:
            counted.of_object[step, keys] += weighs[keys]
        riders = filters.response(keys) if scheme.listens or placing == "following" else [None] * len(keys)
        believed.heard(keys, filters.value[keys], riders, step * every)
        if source is not None and isinstance(filters, _CentredFilters):
            beside = np.setdiff1d(np.flatnonzero(np.isin(source, source[keys])), keys)
            riders = [*riders, *filters.told_beside(beside, step * every)]
            keys = np.concatenate([keys, beside])
        scheme.heard(
            step * every / 1e6, keys, [None if r is None or "r" not in r else r["r"][0] for r in riders]
        )

    asked = int((constraints.sizes > 0).sum() + np.isfinite(constraints.ceiling).sum())
    grant(Granted(each, uniform(constraints) if start is None else start), 0)
    for step in range(steps):
        now = step * every
        period = round(scheme.period * 1e6)
        if step and now // period > (now - every) // period:
            sent(filters.review(now), step)
            granted = scheme.adjusted(now / 1e6, filters.widths(slice(None), now))
            if len(granted.objects):
                grant(granted, now)
                counted.grants[step] += weighs[granted.objects].sum()
                narrowed = granted.objects[: granted.narrowing]
                counted.acknowledged[step] += weighs[narrowed].sum()
                if counted.of_object is not None:
                    counted.of_object[step, granted.objects] += weighs[granted.objects]
                    counted.of_object[step, narrowed] += weighs[narrowed]
                sent(filters.review(now), step)
        sent(each[filters.offer(each, values[step][:, None], now)], step)
        counted.violations += believed.wrong(values[step], now)
        counted.answers += asked
    return counted


def _filters(scheme: Scheme, placing: Placing) -> Filters:
    if placing == "following":
        return Filters(1)
    if scheme.listens:
        return _CentredFilters(1, period=float(PERIOD))
    return Filters(1, period=float(PERIOD), follow=False)
