"""The newest grant of every object of a stream, in arrays: forty bytes each.

Beside them, which object the grant at a position is of, as long as it is the newest and for a while after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slackwater.edge.arrays import with_room
from slackwater.edge.messages import Message, nullable
from slackwater.edge.widths import Grants, Ints

_FIELDS: tuple[tuple[str, Any], ...] = (
    ("position", np.int64),
    ("width", np.float64),
    ("start", np.int64),
    ("shrink", np.float64),
    ("period", np.int64),
)


def widths(column: list[float | None]) -> NDArray[np.float64]:
    """Widths from a message, where null is infinite.

    >>> widths([1.5, None])
    array([1.5, inf])
    """
    return np.array([np.inf if w is None else w for w in column], dtype=np.float64)


def grants_of(message: Message) -> Grants:
    """Grants from a message to an agent."""
    whole = {name: np.array(message[name], np.int64) for name in ("key", "column", "start", "period")}
    shrink = np.array(message["shrink"], np.float64)
    return Grants(width=widths(message["width"]), shrink=shrink, **whole)


class GrantTable:
    """Objects are places in the table: number of the key times the number of columns, plus the column."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self._data = {name: np.zeros(0, dtype) for name, dtype in _FIELDS}
        self._noted = 0
        self._made: Ints = np.empty((0, 2), np.int64)
        """Positions of grants, in their order, and their objects; those that were replaced go in time."""

    def _reach(self, places: int) -> None:
        held = len(self._data["position"])
        if places <= held:
            return
        # by half at a time, so that growing key by key stays cheap
        size = max(places, held + held // 2, 64)
        for name, column in self._data.items():
            grown = np.zeros(size, column.dtype)
            grown[:held] = column
            self._data[name] = grown

    def set(self, position: int, grants: Message) -> None:
        """The grants of an entry: the one at index i has the position ``position + i``."""
        objects = np.array(grants["key"], np.int64) * self.columns + np.array(grants["column"], np.int64)
        if not len(objects):
            return
        self._reach(int(objects.max()) + 1)
        # of an object named twice the last counts: numpy assigns in order
        self._data["position"][objects] = position + np.arange(len(objects))
        self._data["width"][objects] = widths(grants["width"])
        for name in ("start", "shrink", "period"):
            self._data[name][objects] = grants[name]
        self._note(position + np.arange(len(objects)), objects)

    def _note(self, position: Ints, objects: Ints) -> None:
        if self._noted + len(objects) > 2 * len(self._data["position"]):
            made = self._made[: self._noted]
            kept = made[self._data["position"][made[:, 1]] == made[:, 0]]
            self._noted = len(kept)
            self._made[: self._noted] = kept
        used, self._noted = self._noted, self._noted + len(objects)
        self._made = with_room(self._made, used, self._noted)
        self._made[used : self._noted, 0], self._made[used : self._noted, 1] = position, objects

    def of(self, positions: Ints) -> Ints:
        """The objects that grants at these positions are of; -1: it was replaced long ago, or never was.

        >>> table = GrantTable(1)
        >>> law = {"width": [1.0], "start": [0], "shrink": [0.0], "period": [1]}
        >>> table.set(7, {"key": [3], "column": [0], **law})
        >>> table.of(np.array([6, 7, 8])).tolist()
        [-1, 3, -1]
        """
        if not self._noted:
            return np.full(len(positions), -1)
        made = self._made[: self._noted]
        place = np.minimum(np.searchsorted(made[:, 0], positions), self._noted - 1)
        found: Ints = np.where(made[place, 0] == positions, made[place, 1], -1)
        return found

    def objects(self, numbers: Ints) -> Ints:
        """The objects of keys that have a grant."""
        places = (numbers[:, None] * self.columns + np.arange(self.columns)).ravel()
        places = places[places < len(self._data["position"])]
        granted: Ints = places[self._data["position"][places] > 0]
        return granted

    def positions(self, objects: Ints) -> Ints:
        positions: Ints = self._data["position"][objects]
        return positions

    def message(self, objects: Ints, local: Ints) -> Message:
        """The grants of objects as an agent is told: ``local`` are the numbers of their keys at the agent."""
        chosen = {name: column[objects] for name, column in self._data.items()}
        return {
            "key": local.tolist(),
            "column": (objects % self.columns).tolist(),
            **{name: nullable(c) if name == "width" else c.tolist() for name, c in chosen.items()},
        }

    def freeze(self) -> Callable[[], Message]:
        """The table as it is now, to be rendered later."""
        held = np.flatnonzero(self._data["position"])
        chosen = {name: column[held] for name, column in self._data.items()}

        def render() -> Message:
            columns = {name: nullable(c) if name == "width" else c.tolist() for name, c in chosen.items()}
            return {"object": held.tolist(), **columns}

        return render

    def restore(self, frozen: Message) -> None:
        objects = np.array(frozen["object"], np.int64)
        if not len(objects):
            return
        self._reach(int(objects.max()) + 1)
        for name, _ in _FIELDS:
            column = widths(frozen[name]) if name == "width" else frozen[name]
            self._data[name][objects] = column
        objects = objects[np.argsort(self._data["position"][objects])]
        self._note(self._data["position"][objects], objects)
