"""What the coordinator believes of every object: its bound at any time, and whether somebody vouches for it.

Guarantee: at every time the believed width of an object is at least the one its agent uses. A grant counts as
the wider of what was and what is granted from its start on, and as what is granted alone from when the agent
says that it has narrowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from slackwater.edge.following import moved, next_step
from slackwater.edge.widths import Bools, Floats, Ints, next_epoch, width_at

LAW = ("width", "start", "shrink", "period")

_FILLS: dict[str, tuple[float, type[np.generic]]] = {
    "value": (np.nan, np.float64),
    "centre": (np.nan, np.float64),
    "slope": (0.0, np.float64),
    "since": (0, np.int64),
    "width": (np.inf, np.float64),
    "start": (0, np.int64),
    "shrink": (0.0, np.float64),
    "period": (1_000_000, np.int64),
    "asked_width": (np.inf, np.float64),
    "asked_start": (0, np.int64),
    "asked_shrink": (0.0, np.float64),
    "asked_period": (1_000_000, np.int64),
    "asked": (0, np.int64),
    "newest": (0, np.int64),
}


class Belief:
    """Arrays by object, numbered ``key * columns + column`` with the hub's numbers of keys, and by key."""

    value: Floats
    centre: Floats
    slope: Floats
    since: Ints
    width: Floats
    start: Ints
    shrink: Floats
    period: Ints
    asked_width: Floats
    asked_start: Ints
    asked_shrink: Floats
    asked_period: Ints
    asked: Ints
    """Position of a grant that narrows and that its agent has not acknowledged yet; 0: there is none."""
    newest: Ints
    """Position of the last grant; its law is what was asked."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.size = 0
        for name, (_, kind) in _FILLS.items():
            setattr(self, name, np.empty(0, kind))
        self.known: Bools = np.empty(0, bool)
        """By key: whether it has had a row."""
        self.unsure: Ints = np.empty(0, np.int64)
        """By key: since when nobody vouches for its bounds; 0: its agent does."""
        self._periods: set[int] | None = None
        """With which bounds shrink; None: it is to be looked for."""
        self._climbs = False
        """Whether bounds move."""
        self.flipped = False
        """Whether a key, or a value, has come or gone since this was last set."""

    def grow(self, size: int) -> None:
        """Make places for more keys."""
        more = size - self.size
        if more <= 0:
            return
        self.size = size
        for name, (fill, kind) in _FILLS.items():
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.full(more * self.columns, fill, kind)]))
        self.known = np.concatenate([self.known, np.zeros(more, bool)])
        self.unsure = np.concatenate([self.unsure, np.zeros(more, np.int64)])

    def objects(self, key: Ints) -> Ints:
        """The objects of some keys, by key and column."""
        found: Ints = key[:, None] * self.columns + np.arange(self.columns)
        return found

    def row(self, key: int, values: Floats, centre: Floats, slope: Floats, at: int) -> Ints:
        """A row of a key; its objects."""
        objects = np.arange(key * self.columns, (key + 1) * self.columns)
        came_or_went = np.isnan(self.value[objects]) != np.isnan(values)
        self.flipped |= not self.known[key] or bool(came_or_went.any())
        self.value[objects], self.centre[objects], self.slope[objects] = values, centre, slope
        self.since[objects] = at
        self._climbs |= bool(slope.any())
        self.known[key] = True
        return objects

    def granted(self, objects: Ints, law: Mapping[str, npt.NDArray[np.generic]], position: Ints) -> None:
        """Grants, from their start on: the wider of what was and what is granted."""
        start = np.asarray(law["start"], np.int64)
        was = self._law_at(objects, start)
        width, shrink = np.asarray(law["width"], np.float64), np.asarray(law["shrink"], np.float64)
        period = np.asarray(law["period"], np.int64)
        # it may cross the old one later: what shrinks less of the two, or not at all, stays above both
        slower = np.where(self.period[objects] == period, np.minimum(self.shrink[objects], shrink), 0.0)
        wider = width >= was
        plain = wider & ((self.shrink[objects] >= shrink) & (self.period[objects] == period) | (was == 0))
        # what is infinite or does not shrink needs no envelope
        plain |= wider & (shrink == 0)
        self.width[objects] = np.maximum(width, was)
        self.shrink[objects] = np.where(plain, shrink, slower)
        self.start[objects], self.period[objects] = start, period
        for name in LAW:
            getattr(self, f"asked_{name}")[objects] = law[name]
        self.asked[objects] = np.where(wider, 0, position)
        self.newest[objects] = position
        self._shrinking(objects)

    def narrowed(self, objects: Ints, position: Ints) -> Ints:
        """Agents use what was granted; the objects for which it was the newest grant."""
        newest: Ints = objects[self.asked[objects] == position]
        for name in LAW:
            getattr(self, name)[newest] = getattr(self, f"asked_{name}")[newest]
        self.asked[newest] = 0
        self._shrinking(newest)
        return newest

    def _law_at(self, objects: Ints, times: Ints) -> Floats:
        found = np.empty(len(objects))
        for time in np.unique(times):
            chosen = objects[times == time]
            found[times == time] = self.widths(chosen, int(time))
        return found

    def widths(self, objects: Ints | slice, now: int) -> Floats:
        """Believed widths at a time."""
        return width_at(
            self.width[objects], self.start[objects], self.shrink[objects], self.period[objects], now
        )

    def asked_widths(self, now: int) -> Floats:
        """What objects have at a time where their agents use the newest grants."""
        return width_at(self.asked_width, self.asked_start, self.asked_shrink, self.asked_period, now)

    def bounds(
        self, objects: Ints | slice, now: int, rate: float | None, lag: int = 0
    ) -> tuple[Floats, Floats]:
        """Both ends of the bounds at a time; infinite where nobody vouches for them.

        ``rate`` is the most that a value changes in a second, if that is known: then how long an agent has
        been away bounds how far its values can have gone. With a ``lag``, rows of that last time may be
        missing, also those that are due to bounds which have shrunk or moved in it: they count as they were.
        What has no value has a bound about 0.
        """
        half = self.widths(objects, now - lag) / 2
        since = self.since[objects]
        centre = moved(self.centre[objects], self.slope[objects], since, now)
        centre = np.where(np.isnan(centre), 0.0, centre)
        before = centre
        if lag:
            # each no earlier than it was placed
            then: Any = np.maximum(since, now - lag)
            before = moved(self.centre[objects], self.slope[objects], since, then)
            before = np.where(np.isnan(before), 0.0, before)
        if isinstance(objects, slice):
            objects = np.arange(self.size * self.columns)[objects]
        unsure = self.unsure[objects // self.columns]
        away = unsure > 0
        if away.any():
            gone = np.full(len(half), np.inf)
            if rate is not None:
                gone = rate * np.maximum(now - unsure, 0) / 1e6
            half = np.where(away, half + gone, half)
        return np.minimum(centre, before) - half, np.maximum(centre, before) + half

    def changes_after(self, now: int) -> int | None:
        """The next time at which a bound may change by itself: it shrinks, or moves with its trend."""
        if self._periods is None:
            finite = np.isfinite(self.width) & ~np.isnan(self.centre)
            self._periods = set(np.unique(self.period[finite & (self.shrink > 0)]).tolist())
            self._climbs = bool(self.slope[finite].any())
        times = [next_epoch(self._periods, now), next_step(now) if self._climbs else None]
        return min((t for t in times if t is not None), default=None)

    def look_anew(self) -> None:
        """Find out again which bounds change by themselves: until then some are added, and none taken off."""
        self._periods = None

    def _shrinking(self, objects: Ints) -> None:
        if self._periods is not None:
            self._periods.update(np.unique(self.period[objects][self.shrink[objects] > 0]).tolist())

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        return {name: getattr(self, name) for name in (*_FILLS, "known", "unsure")}

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        for name in (*_FILLS, "known", "unsure"):
            setattr(self, name, np.array(arrays[name]))
        self.size = len(self.known)
        self.look_anew()
