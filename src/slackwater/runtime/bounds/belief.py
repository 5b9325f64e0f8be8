"""What the coordinator believes of every object: its bound at any time, and whether somebody vouches for it.

Guarantee: at every time the believed width of an object is at least the one its agent uses. A grant counts as
the wider of what was and what is granted from its start on, and as what is granted alone from when the agent
says that it has narrowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    "max_rate": (np.nan, np.float64),
}
"""What is kept by object, what it is before anything is known, and its type."""

_BY_KEY: dict[str, tuple[float, type[np.generic]]] = {
    "known": (False, np.bool_),
    "unsure": (0, np.int64),
    "summed": (False, np.bool_),
    "withdrawn": (0, np.int64),
    "begun": (0, np.int64),
    "left": (0, np.int64),
    "forgotten": (False, np.bool_),
}


@dataclass(frozen=True, eq=False)
class LiveSum:
    """A sum that tells what its members are together."""

    members: Ints
    scope: str = ""
    """The one row of a query that it is for; empty: any."""
    window: int = 0
    """Over how many microseconds it is the mean; 0: it is what its members are now."""


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
    max_rate: Floats
    """The most that a value changes in a second, as its agent has said; NaN: it has not."""

    def __init__(
        self, columns: int, widening: int | None = None, rates: Sequence[float] | None = None
    ) -> None:
        self.columns = columns
        self._rates = None if rates is None else np.array(rates, np.float64)
        """By column: the most that a value changes in a second where its agent does not say; None: any."""
        self._paces: Floats | None = None
        self._widening = widening
        """How often bounds are looked at that widen while nobody vouches for them; None: they do not."""
        self.size = 0
        for name, (_, kind) in _FILLS.items():
            setattr(self, name, np.empty(0, kind))
        self.known: Bools = np.empty(0, bool)
        """By key: whether it has had a row."""
        self.unsure: Ints = np.empty(0, np.int64)
        """By key: since when nobody vouches for its bounds; 0: its agent does."""
        self.live: dict[int, LiveSum] = {}
        """The sums that have told what they are, by key: their members."""
        self.summed: Bools = np.empty(0, bool)
        """By key: whether it is a sum, and no key of the stream."""
        self.withdrawn: Ints = np.empty(0, np.int64)
        """By key: the position at which it was withdrawn; 0: it is there."""
        self.begun: Ints = np.empty(0, np.int64)
        """By key: when it was first told of, from which on it counts."""
        self.left: Ints = np.empty(0, np.int64)
        """By key: when it was withdrawn, or was there again."""
        self.forgotten: Bools = np.empty(0, bool)
        """By key: whether it was withdrawn by somebody at the hub, since nobody has it any more."""
        self._periods: set[int] | None = None
        """With which bounds shrink; None: it is to be looked for."""
        self._climbs = False
        """Whether bounds move."""
        self.unwatched = False
        """Whether it is left open where bounds are that move, or widen."""
        self.flipped = False
        """Whether a key, or a value, has come or gone since this was last set."""

    def grow(self, size: int) -> None:
        """Make places for more keys."""
        more = size - self.size
        if more <= 0:
            return
        self.size = size
        self._paces = None
        for name, (fill, kind) in _FILLS.items():
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.full(more * self.columns, fill, kind)]))
        for name, (fill, kind) in _BY_KEY.items():
            setattr(self, name, np.concatenate([getattr(self, name), np.full(more, fill, kind)]))

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
        if not self.known[key]:
            self.known[key], self.begun[key] = True, at
        return objects

    def sum_up(self, key: int, told: LiveSum) -> None:
        """A sum tells from now on what its members are together; their own rows are not needed for it."""
        if key not in self.live:
            self.live[key] = told
            self._paces = None
            fresh = told.members[~self.known[told.members]]
            self.known[fresh], self.begun[fresh] = True, self.since[key * self.columns]
            self.flipped = True

    def end_sum(self, key: int) -> None:
        """A sum tells nothing any more."""
        if self.live.pop(key, None) is not None:
            self.flipped = True

    def absent(self, key: int, absent: list[list[int]]) -> Ints:
        """Which members of a sum have no value, by column; the sum's objects."""
        if key in self.live:
            members = self.live[key].members
            for column, places in enumerate(absent):
                objects = members * self.columns + column
                gone = np.zeros(len(members), bool)
                gone[places] = True
                # where it is does not matter: it is told in the sum, and by itself once it is asked for
                there = np.where(np.isnan(self.centre[objects]), 0.0, self.centre[objects])
                there = np.where(np.isnan(self.value[objects]), there, self.value[objects])
                now = np.where(gone, np.nan, there)
                self.flipped |= bool((np.isnan(now) != np.isnan(self.value[objects])).any())
                self.value[objects] = now
        return np.arange(key * self.columns, (key + 1) * self.columns)

    def change_at_most(self, keys: Ints, rates: Floats) -> None:
        """An agent has said how fast the values of keys can change, by key and column; NaN: it has not."""
        objects = self.objects(keys)
        if not np.array_equal(self.max_rate[objects], rates, equal_nan=True):
            self.max_rate[objects] = rates
            self._paces = None
            self.flipped = True

    def paces(self, more: Mapping[int, LiveSum] | None = None) -> Floats:
        """By object: the most that its value changes in a second; infinite where that is not known.

        Of a sum, what its members change together; so of sums that are still to tell, the ``more``.
        """
        if self._paces is None:
            self._paces = np.full(self.size * self.columns, np.inf)
            if self._rates is not None:
                usual = np.tile(self._rates, self.size)
                self._paces = np.where(np.isnan(self.max_rate), usual, self.max_rate)
                self._add_up(self._paces, self.live)
        if not more or self._rates is None:
            return self._paces
        found = self._paces.copy()
        self._add_up(found, {key: told for key, told in more.items() if key not in self.live})
        return found

    def _add_up(self, paces: Floats, sums: Mapping[int, LiveSum]) -> None:
        by_key = paces.reshape(self.size, self.columns)
        for key, told in sums.items():
            by_key[key] = by_key[told.members].sum(axis=0)

    def withdraw(self, keys: Ints, position: int, at: int, *, forgotten: bool = False) -> None:
        """Keys are there no more, from a position of the log and a time on; 0: they are there again."""
        self.flipped |= bool((self.forgotten[keys] != forgotten).any())
        self.left[keys], self.forgotten[keys] = at, forgotten
        self.flipped |= bool(((self.withdrawn[keys] > 0) != (position > 0)).any())
        self.withdrawn[keys] = position

    @property
    def here(self) -> Bools:
        """By key: whether it was not withdrawn."""
        found: Bools = self.withdrawn == 0
        return found

    @property
    def may_return(self) -> Bools:
        """By key: whether its agent has withdrawn it, and would say so if it came back."""
        found: Bools = (self.withdrawn > 0) & ~self.forgotten
        return found

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

    def widths(self, objects: Ints | slice, now: int | Ints) -> Floats:
        """Believed widths at a time, or each at a time of its own."""
        return width_at(
            self.width[objects], self.start[objects], self.shrink[objects], self.period[objects], now
        )

    def asked_widths(self, now: int) -> Floats:
        """What objects have at a time where their agents use the newest grants."""
        return width_at(self.asked_width, self.asked_start, self.asked_shrink, self.asked_period, now)

    def bounds(self, objects: Ints | slice, now: int, lag: int = 0) -> tuple[Floats, Floats]:
        """Both ends of the bounds at a time; infinite where nobody vouches for them.

        Where it is known how fast values change, how long an agent has been away bounds how far they can have
        gone. With a ``lag``, rows of that last time may be missing: bounds are those before it, or as they
        were placed since, and what values can have moved by then is left to whoever pads them. What has no
        value has a bound about 0, and none while its agent is away, however slowly values change: one may
        come. What has a value that it never told has no bound.
        """
        since = self.since[objects]
        then: Any = np.maximum(since, now - lag) if lag else now
        half = self.widths(objects, then) / 2
        half = np.where(np.isnan(self.centre[objects]) & ~np.isnan(self.value[objects]), np.inf, half)
        centre = moved(self.centre[objects], self.slope[objects], since, then)
        centre = np.where(np.isnan(centre), 0.0, centre)
        if isinstance(objects, slice):
            objects = np.arange(self.size * self.columns)[objects]
        keys = objects // self.columns
        half = np.where(self.withdrawn[keys] > 0, 0.0, half)
        unsure = self.unsure[keys]
        away = unsure > 0
        if self.unwatched:
            half = np.where(away | (self.slope[objects] != 0), np.inf, half)
        if away.any():
            gone: Any = np.inf
            if self._rates is not None:
                gone = self.paces()[objects] * np.maximum(now - unsure, 0) / 1e6
                gone = np.where(self._lacking()[objects], np.inf, gone)
            half = np.where(away, half + gone, half)
        return centre - half, centre + half

    def _lacking(self) -> Bools:
        """By object: whether it has no value, or is a sum of which some member has none."""
        found: Bools = np.isnan(self.value).reshape(self.size, self.columns)
        for key, told in self.live.items():
            found[key] |= np.isnan(self.value.reshape(self.size, self.columns)[told.members]).any(axis=0)
        return found.ravel()

    def changes_after(self, now: int) -> int | None:
        """The next time at which a bound may change by itself: it shrinks, moves with its trend, or widens.

        What nobody vouches for widens all the time where a rate bounds it: that is looked at once a period.
        """
        if self._periods is None:
            finite = np.isfinite(self.width) & ~np.isnan(self.centre)
            self._periods = set(np.unique(self.period[finite & (self.shrink > 0)]).tolist())
            self._climbs = bool(self.slope[finite].any())
        times = [next_epoch(self._periods, now), next_step(now) if self._climbs else None]
        if self._widening is not None and (self.known & self.here & (self.unsure > 0)).any():
            times.append(next_epoch([self._widening], now))
        return min((t for t in times if t is not None), default=None)

    def look_anew(self) -> None:
        """Find out again which bounds change by themselves: until then some are added, and none taken off."""
        self._periods = None

    def _shrinking(self, objects: Ints) -> None:
        if self._periods is not None:
            self._periods.update(np.unique(self.period[objects][self.shrink[objects] > 0]).tolist())

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        return {name: getattr(self, name) for name in (*_FILLS, *_BY_KEY)}

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        self.size, self._paces = len(arrays["known"]), None
        for by, size in ((_FILLS, self.size * self.columns), (_BY_KEY, self.size)):
            for name, (fill, kind) in by.items():
                # snapshots of earlier versions know of less
                setattr(self, name, np.array(arrays.get(name, np.full(size, fill, kind)), kind))
        self.look_anew()
