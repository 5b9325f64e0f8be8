"""The bounds of objects, as arrays: values, where bounds are, and the grants by which they are as wide."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from slackwater.edge.arrays import with_room
from slackwater.edge.widths import Floats, Grants, Ints, width_at

_FILLS: dict[str, tuple[float, type[np.generic]]] = {
    "value": (np.nan, np.float64),
    "centre": (np.nan, np.float64),
    "slope": (0.0, np.float64),
    "since": (0, np.int64),
    "width": (np.inf, np.float64),
    "start": (0, np.int64),
    "shrink": (0.0, np.float64),
    "period": (1_000_000, np.int64),
}

UNTOLD = -1


class Bounds:
    """Objects are numbered ``key * columns + column``; all that is promised is in double precision."""

    value: Floats
    centre: Floats
    """NaN: none, as for what has no value."""
    slope: Floats
    since: Ints
    """When the bound was placed; 0: never, `UNTOLD`: never, though it was offered and has no value."""
    width: Floats
    start: Ints
    shrink: Floats
    period: Ints

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.size = 0
        """How many keys there are."""
        self._room: dict[str, NDArray[Any]] = {}
        for name, (_, kind) in _FILLS.items():
            self._room[name] = np.empty(0, kind)
            setattr(self, name, self._room[name])

    def add(self, count: int) -> None:
        """Make places for more keys, which have no value yet."""
        used = self.size * self.columns
        self.size += count
        size = self.size * self.columns
        for name, (fill, _) in _FILLS.items():
            room = self._room[name] = with_room(self._room[name], used, size)
            room[used:size] = fill
            setattr(self, name, room[:size])

    def objects(self, key: Ints) -> Ints:
        """The objects of some keys, by key and column."""
        found: Ints = key[:, None] * self.columns + np.arange(self.columns)
        return found

    def current(self, key: Ints) -> Floats:
        """The current values of some keys, by column."""
        return self.value[self.objects(key)]

    def widths(self, objects: Ints | slice, now: int | Ints) -> Floats:
        """The widths in use at a time, or each at a time of its own."""
        shrink = self.shrink[objects]
        return width_at(self.width[objects], self.start[objects], shrink, self.period[objects], now)

    def take(self, grants: Grants) -> None:
        """Be as wide as granted."""
        objects = grants.key * self.columns + grants.column
        self.width[objects], self.start[objects] = grants.width, grants.start
        self.shrink[objects], self.period[objects] = grants.shrink, grants.period
