"""The filters at a source: which rows leave their bounds and must be sent.

Guarantee: after every call the current value of each object that has a finite width lies in its bound, as
whoever knows the grants and the rows that were handed on computes it; if a call returns a row, that row was
not in its bound, or widths have shrunk past it. Times never go back from call to call. Reference: sections
1.2.3 and 3.1 of the precision paper.

Objects are numbered ``key * columns + column``. Arrays, not Python objects: an agent may have a million. They
are worked through in pieces, so that what is needed beside them is little.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slackwater.edge.arrays import with_room
from slackwater.edge.bounds import UNTOLD, Bounds
from slackwater.edge.curves import Curve, ToldCurves, riders
from slackwater.edge.following import TREND_STEP, climbing, moved, next_step
from slackwater.edge.rows import Rows
from slackwater.edge.tracks import Tracks
from slackwater.edge.widths import Bools, Floats, Grants, Ints, next_epoch, one_width_at, width_at

PERIOD_S = 10.0
"""The paper's adjustment period, in which what is counted fades."""
_PIECE = 8_192
"""Keys that are worked through at a time."""


class Filters(Bounds):
    """The bounds of all objects of one agent. Without a grant a width is infinite: nothing is sent.

    ``period``: in seconds; without one what is counted fades by the periods that grants come with.
    """

    def __init__(self, columns: int, *, period: float | None = None, follow: bool = True) -> None:
        super().__init__(columns)
        self._tracks = Tracks(PERIOD_S if period is None else period) if follow else None
        self._fits = period is None
        """Whether periods are those that grants come with."""
        self._waiting = Grants.none()
        self._periods: set[int] = set()
        """With which widths shrink; some may have gone since the last review."""
        self._climbs = False
        """Whether bounds move; they may have ceased to since the last review."""
        self._watched: Bools = np.zeros(0, bool)
        """By key, as far as there are any: whether it is watched though nobody asks for it yet."""
        self._gone: Bools = np.empty(0, bool)

    def add(self, count: int) -> None:
        """Make places for more keys, which have no value yet."""
        before = self.size
        super().add(count)
        self._gone = with_room(self._gone, before, self.size)
        self._gone[before : self.size] = False
        if self._tracks is not None:
            self._tracks.grow(self.size * self.columns)

    @property
    def gone(self) -> Bools:
        """By key: whether it was withdrawn, and has not come back since."""
        return self._gone[: self.size]

    def withdraw(self, key: int, now: int) -> bool:
        """A key is there no more: whether that is to be sent. It is back with its next value."""
        if self._gone[key]:
            return False
        self._begin_waiting(now)
        self._gone[key] = True
        objects = np.arange(key * self.columns, (key + 1) * self.columns)
        self.value[objects] = np.nan
        self._place(objects, now)
        return True

    def grant(self, grants: Grants, now: int) -> Bools:
        """Take grants; which of them narrowed a bound, and must be acknowledged.

        What is narrower is used at once, what is wider not before its start. `review` is to follow. Of an
        object that is named twice the last one counts. Acknowledged is too what only was narrower when it
        began, and what is narrower than a wider one that had not begun: whoever granted it took it for
        narrower.
        """
        self._begin_waiting(now)
        every = grants.key * self.columns + grants.column
        chosen = np.sort(len(every) - 1 - np.unique(every[::-1], return_index=True)[1])
        some, objects = grants.part(chosen), every[chosen]
        granted = width_at(some.width, some.start, some.shrink, some.period, now)
        used: Bools = granted < self.widths(objects, now)
        narrower = used | (some.width < self.widths(objects, some.start))
        if len(self._waiting):
            # a grant replaces what its object was still waiting for
            waiting = self._waiting.key * self.columns + self._waiting.column
            replaced = np.isin(waiting, objects)
            order = np.argsort(objects)
            places = order[np.searchsorted(objects[order], waiting[replaced])]
            narrower[places] |= some.width[places] < self._waiting.width[replaced]
            self._waiting = self._waiting.part(~replaced)
        later = ~used & (some.start > now)
        if later.any():
            self._waiting = Grants.joined([self._waiting, some.part(later)])
        self._use(some.part(~later))
        acknowledged = np.zeros(len(every), bool)
        acknowledged[chosen] = narrower
        return acknowledged

    def _use(self, grants: Grants) -> None:
        self.take(grants)
        self._periods.update(np.unique(grants.period[grants.shrink > 0]).tolist())
        if self._fits and self._tracks is not None and len(grants):
            # whoever grants last knows the time scale of the data best
            self._tracks.fit(int(grants.period[np.argmax(grants.start)]))

    def _begin_waiting(self, now: int) -> None:
        if len(self._waiting):
            due = self._waiting.start <= now
            self._use(self._waiting.part(due))
            self._waiting = self._waiting.part(~due)

    def offer(self, key: Ints, values: Floats, now: int) -> Ints:
        """New values of keys, by column (NaN: none); the places of those rows that must be sent.

        Each key comes once. A row is sent when one of its objects is outside its bound, and all of its bounds
        are placed anew. What is back after it was withdrawn is sent at any width.
        """
        self._begin_waiting(now)
        pieces = range(0, len(key), _PIECE)
        found = [f + self._offer(key[f : f + _PIECE], values[f : f + _PIECE], now) for f in pieces]
        return np.concatenate([np.empty(0, np.int64), *found])

    def _offer(self, key: Ints, values: Floats, now: int) -> Ints:
        objects, new = self.objects(key).ravel(), values.ravel()
        before = self.value[objects]
        self.value[objects] = new
        if (none := np.isnan(new)).any():
            empty = objects[none]
            self.since[empty[self.since[empty] == 0]] = UNTOLD
        widths = self.widths(objects, now)
        if self._tracks is not None:
            # what somebody asks for is watched, and what somebody may
            some = np.isfinite(widths) & np.isfinite(new)
            if len(self._watched):
                beside = np.flatnonzero(key < len(self._watched))
                beside = beside[self._watched[key[beside]]]
                places = self._columns_of(beside)
                some[places] = np.isfinite(new[places])
            if some.any():
                before = np.where(np.isinf(before), np.nan, before)
                self._tracks.offer(objects[some], before[some], new[some], widths[some], now)
        back = self._gone[key]
        self._gone[key] = False
        places = np.flatnonzero(self._outside(objects, widths, now) | back)
        self._place(self.objects(key[places]).ravel(), now)
        return places

    def offer_one(self, key: int, values: list[float], now: int) -> bool:
        """`offer` of one key: whether it must be sent."""
        self._begin_waiting(now)
        outside = bool(self._gone[key])
        self._gone[key] = False
        first = key * self.columns
        for place, value in enumerate(values, first):
            before = self.value.item(place)
            self.value[place] = value
            if value != value and not self.since.item(place):
                self.since[place] = UNTOLD
            width = self.width.item(place)
            if width == math.inf:
                # the watched are sums, which come many at a time
                continue
            if (shrink := self.shrink.item(place)) > 0:
                width = one_width_at(width, self.start.item(place), shrink, self.period.item(place), now)
            centre = self.centre.item(place)
            if value != value:
                outside |= centre == centre or self.since.item(place) == UNTOLD
                continue
            if self._tracks is not None:
                self._tracks.offer_one(place, before, value, width, now)
            if slope := self.slope.item(place):
                centre += slope * (now // TREND_STEP - self.since.item(place) // TREND_STEP)
            outside |= not abs(value - centre) <= width / 2
        if outside:
            self._place(np.arange(first, first + self.columns), now)
        return outside

    def _columns_of(self, rows: Ints) -> Ints:
        """The places of the columns of some rows."""
        found: Ints = (rows[:, None] * self.columns + np.arange(self.columns)).ravel()
        return found

    def watch(self, key: Ints, *, watched: bool = True) -> None:
        """Find out what keys would send, though nobody asks for them; or no longer."""
        if not len(key):
            return
        if int(key.max()) >= len(self._watched):
            self._watched = np.concatenate(
                [self._watched, np.zeros(int(key.max()) + 1 - len(self._watched), bool)]
            )
        self._watched[key] = watched

    def asked_for(self, key: Ints) -> Bools:
        """Of which keys somebody has asked for a column."""
        found: Bools = np.any(np.isfinite(self.width[self.objects(key)]), axis=1)
        return found

    def place(self, key: Ints, now: int) -> None:
        """Place the bounds of keys anew, which are sent whatever their values are."""
        self._place(self.objects(key).ravel(), now)

    def beside(self, now: int) -> tuple[Ints, list[list[Curve]]]:
        """The response curves of keys that are watched and not asked for; of each at most once a period."""
        keys = np.flatnonzero(self._watched)
        keys = keys[~self.asked_for(keys)]
        if self._tracks is None or not len(keys):
            return keys[:0], []
        objects = self.objects(keys)
        told = self._tracks.curves(objects, np.full(objects.shape, now))
        return keys[told.rows], [curve for curve in told.lists() if curve is not None]

    def review(self, now: int, key: Ints | None = None) -> Ints:
        """The keys that must be sent as they are, since widths have shrunk or bounds have moved on.

        Of some keys, each named once, or of all.
        """
        self._begin_waiting(now)
        found = [np.empty(0, np.int64)]
        periods: set[int] = set()
        climbs = False
        for first in range(0, self.size if key is None else len(key), _PIECE):
            last = min(first + _PIECE, self.size) if key is None else first + _PIECE
            some = np.arange(first, last) if key is None else key[first:last]
            objects = self.objects(some).ravel()
            left = some[self._outside(objects, self.widths(objects, now), now)]
            self._place(self.objects(left).ravel(), now)
            found.append(left)
            if key is None:
                climbs = climbs or bool(climbing(self.slope[objects][np.isfinite(self.width[objects])]).any())
                shrinking = (self.shrink[objects] > 0) & np.isfinite(self.width[objects])
                periods.update(np.unique(self.period[objects][shrinking]).tolist())
        if key is None:
            self._periods, self._climbs = periods, climbs
        return np.concatenate(found)

    def next_review(self, now: int) -> int | None:
        """The next time at which a bound changes by itself; None: never."""
        times = [next_epoch(self._periods, now), next_step(now) if self._climbs else None]
        times += [int(self._waiting.start.min())] if len(self._waiting) else []
        return min((t for t in times if t is not None), default=None)

    def _outside(self, objects: Ints, widths: Floats, now: int) -> Bools:
        """Which of some whole rows are not in their bounds."""
        values = self.value[objects]
        with np.errstate(over="ignore", invalid="ignore"):
            centre = moved(self.centre[objects], self.slope[objects], self.since[objects], now)
            # a value that has come or gone is told at any finite width, and so is that there never was one
            none = np.isnan(values) & np.isnan(centre) & (self.since[objects] != UNTOLD)
            # a sum that no double can hold has been told of where its centre is infinite too
            left = ~(np.abs(values - centre) <= widths / 2) & ~none & (values != centre)
        found: Bools = np.any((np.isfinite(widths) & left).reshape(-1, self.columns), axis=1)
        return found

    def _place(self, objects: Ints, now: int) -> None:
        """Put bounds around the current values."""
        if not len(objects):
            return
        values = self.value[objects]
        centre, slope = values, np.zeros(len(values))
        if self._tracks is not None:
            centre, slope = self._tracks.placed(objects, values, self.widths(objects, now))
            self._climbs = self._climbs or bool(climbing(slope).any())
        self.centre[objects], self.slope[objects], self.since[objects] = centre, slope, now

    def rows(self, key: Ints, at: int) -> Rows:
        """The rows of some keys, with their bounds as they are placed."""
        objects = self.objects(key)
        times = np.full(len(key), at, np.int64)
        slope = np.where(self._gone[key][:, None], np.nan, self.slope[objects])
        return Rows(key, times, self.value[objects], self.centre[objects], slope)

    def response(self, key: Ints, now: int | None = None) -> list[dict[str, Any] | None]:
        """What rides on the rows of some keys: where their bounds are, and their response curves."""
        objects = self.objects(key)
        return riders(self.value[objects], self.centre[objects], self.slope[objects], self.curves(key))

    def curves(self, key: Ints) -> list[list[Curve] | None]:
        """The response curves of some keys, by column; at most once a period."""
        return self.told_curves(key).lists()

    def told_curves(self, key: Ints) -> ToldCurves:
        """`curves` in arrays."""
        if self._tracks is None:
            return ToldCurves.none(len(key))
        objects = self.objects(key)
        return self._tracks.curves(objects, self.since[objects])
