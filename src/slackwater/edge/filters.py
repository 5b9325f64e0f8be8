"""The filters at a source: which rows leave their bounds and must be sent.

Guarantee: after every call the current value of each object that has a finite width lies in its bound, as
whoever knows the grants and the rows that were handed on computes it; if a call returns a row, that row was
not in its bound, or widths have shrunk past it. Reference: sections 1.2.3 and 3.1 of the precision paper.

Objects are numbered ``key * columns + column``. Arrays, not Python objects: an agent may have a million.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slackwater.edge.following import Following, climbing, moved, next_step
from slackwater.edge.shadows import Shadows
from slackwater.edge.widths import Bools, Floats, Grants, Ints, next_shrink, width_at

PERIOD_S = 10.0
"""The paper's adjustment period, in which what is counted fades."""

_FILLS: dict[str, tuple[float, type[np.generic]]] = {
    "value": (np.nan, np.float64),
    "centre": (np.nan, np.float64),
    "slope": (0.0, np.float64),
    "since": (0, np.int64),
    "width": (np.inf, np.float64),
    "start": (0, np.int64),
    "shrink": (0.0, np.float64),
    "period": (1_000_000, np.int64),
    "seen": (-1, np.int64),
    "told": (0, np.int64),
}


class Filters:
    """The bounds of all objects of one agent. Without a grant a width is infinite: nothing is sent."""

    value: Floats
    centre: Floats
    slope: Floats
    since: Ints
    width: Floats
    start: Ints
    shrink: Floats
    period: Ints
    seen: Ints
    told: Ints

    def __init__(self, columns: int, *, period: float = PERIOD_S, follow: bool = True) -> None:
        self.columns = columns
        self.size = 0
        self._follow = follow
        self._period = period
        self._following = Following()
        self._shadows = Shadows(period)
        self._waiting = Grants.none()
        for name, (_, kind) in _FILLS.items():
            setattr(self, name, np.empty(0, kind))

    def add(self, count: int) -> None:
        """Make places for more keys, which have no value yet."""
        more = count * self.columns
        self.size += count
        for name, (fill, kind) in _FILLS.items():
            setattr(self, name, np.concatenate([getattr(self, name), np.full(more, fill, kind)]))
        self._following.grow(self.size * self.columns)
        self._shadows.grow(self.size * self.columns)

    def current(self, key: Ints) -> Floats:
        """The current values of some keys, by column."""
        return self.value[self._objects(key)]

    def widths(self, objects: Ints | slice, now: int) -> Floats:
        """The widths in use at a time."""
        shrink = self.shrink[objects]
        return width_at(self.width[objects], self.start[objects], shrink, self.period[objects], now)

    def grant(self, grants: Grants, now: int) -> Bools:
        """Take grants; which of them narrowed a bound, and must be acknowledged.

        What is narrower is used at once, what is wider not before its start. `review` is to follow.
        """
        self._begin_waiting(now)
        objects = grants.key * self.columns + grants.column
        granted = width_at(grants.width, grants.start, grants.shrink, grants.period, now)
        narrower: Bools = granted < self.widths(objects, now)
        later = ~narrower & (grants.start > now)
        if len(self._waiting):
            # a grant replaces what its object was still waiting for
            waiting = self._waiting.key * self.columns + self._waiting.column
            self._waiting = self._waiting.part(~np.isin(waiting, objects))
        if later.any():
            self._waiting = Grants.joined([self._waiting, grants.part(later)])
        self._use(grants.part(~later))
        return narrower

    def _use(self, grants: Grants) -> None:
        objects = grants.key * self.columns + grants.column
        self.width[objects], self.start[objects] = grants.width, grants.start
        self.shrink[objects], self.period[objects] = grants.shrink, grants.period

    def _begin_waiting(self, now: int) -> None:
        if len(self._waiting):
            due = self._waiting.start <= now
            self._use(self._waiting.part(due))
            self._waiting = self._waiting.part(~due)

    def offer(self, key: Ints, values: Floats, now: int) -> Ints:
        """New values of keys, by column (NaN: none); the places of those rows that must be sent.

        Each key comes once. A row is sent when one of its objects is outside its bound, and all of its bounds
        are placed anew.
        """
        self._begin_waiting(now)
        objects = self._objects(key)
        self.value[objects] = values
        if self._follow:
            self._watch(objects.ravel(), values.ravel(), now)
        outside = self._outside(objects.ravel(), now).reshape(objects.shape).any(axis=1)
        places = np.flatnonzero(outside)
        self._place(objects[places].ravel(), now)
        return places

    def review(self, now: int) -> Ints:
        """The keys that must be sent as they are, since widths have shrunk or bounds have moved on."""
        self._begin_waiting(now)
        every = np.arange(self.size * self.columns)
        outside = self._outside(every, now).reshape(self.size, self.columns).any(axis=1)
        keys = np.flatnonzero(outside)
        self._place(self._objects(keys).ravel(), now)
        return keys

    def next_review(self, now: int) -> int | None:
        """The next time at which a bound changes by itself; None: never."""
        finite = np.isfinite(self.width) & ~np.isnan(self.centre)
        times = [next_shrink(self.shrink[finite], self.period[finite], now)]
        times += [int(self._waiting.start.min())] if len(self._waiting) else []
        times += [next_step(now)] if climbing(self.slope[finite]).any() else []
        return min((t for t in times if t is not None), default=None)

    def _objects(self, key: Ints) -> Ints:
        """Objects by key and column."""
        found: Ints = key[:, None] * self.columns + np.arange(self.columns)
        return found

    def _outside(self, objects: Ints, now: int) -> Bools:
        widths, values = self.widths(objects, now), self.value[objects]
        centre = moved(self.centre[objects], self.slope[objects], self.since[objects], now)
        # a value that has come or gone is told at any finite width
        there = ~np.isnan(values)
        left = (there != ~np.isnan(centre)) | (there & (np.abs(values - centre) > widths / 2))
        found: Bools = np.isfinite(widths) & left
        return found

    def _place(self, objects: Ints, now: int) -> None:
        """Put bounds around the current values."""
        if not len(objects):
            return
        values = self.value[objects]
        centre, slope = values, np.zeros(len(values))
        if self._follow:
            centre, slope = self._following.placed(objects, values, self.widths(objects, now))
        self.centre[objects], self.slope[objects], self.since[objects] = centre, slope, now

    def _watch(self, objects: Ints, values: Floats, now: int) -> None:
        """Let shadow filters see values, of objects that somebody asks for."""
        some = np.isfinite(self.width[objects]) & ~np.isnan(values)
        objects, values = objects[some], values[some]
        if not len(objects):
            return
        before = self.seen[objects]
        seconds = np.where(before >= 0, now - before, 0) / 1e6
        self.seen[objects] = now
        widths = self.widths(objects, now)
        self._following.offer(objects, values, widths, seconds)
        seen = self._following.seen(objects, values)
        lean = self._following.lean(objects)
        self._shadows.offer(objects, seen, widths, self._following.level[objects], lean, seconds)

    def response(self, key: Ints, now: int | None = None) -> list[dict[str, Any] | None]:
        """What rides on the rows of some keys: where their bounds are, and their response curves.

        ``c`` centres and ``s`` slopes, where they are not the values and 0; ``r`` for each column the curve
        as lowest rung, seconds watched and rates, at most once a period.
        """
        told: list[dict[str, Any] | None] = []
        for row in self._objects(key):
            centre, slope, values = self.centre[row], self.slope[row], self.value[row]
            found: dict[str, Any] = {}
            if ((centre != values) & ~np.isnan(values)).any():
                found["c"] = [None if np.isnan(c) else float(c) for c in centre]
            if slope.any():
                found["s"] = slope.tolist()
            since = self.since[row[0]]
            if self._follow and since - self.told[row[0]] >= self._period * 1e6:
                self.told[row] = since
                curves = self._shadows.responses(row)
                if any(c.seconds for c in curves):
                    found["r"] = [[c.lowest, c.seconds, *c.rates] for c in curves]
            told.append(found or None)
        return told
