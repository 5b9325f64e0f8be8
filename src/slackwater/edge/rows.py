"""Rows of an agent as arrays, and as the hub gets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from slackwater.edge.curves import Curve, riders
from slackwater.edge.messages import Message, nullable
from slackwater.edge.widths import Bools, Floats, Ints


@dataclass(frozen=True)
class Rows:
    """Rows as arrays of one length: the number of the key, the time, and by column values and bounds.

    Of a key that was withdrawn slopes are NaN. A sum that no double can hold is infinite.
    """

    key: Ints
    at: Ints
    values: Floats
    centre: Floats
    slope: Floats

    def __len__(self) -> int:
        return len(self.key)

    def part(self, chosen: slice | Ints | Bools) -> Rows:
        """Some of the rows."""
        return Rows(*(getattr(self, f.name)[chosen] for f in fields(self)))

    def message(self, curves: Sequence[list[Curve] | None]) -> Message:
        """The rows as the hub gets them, with what rides on them.

        What is infinite is told as the largest double with no centre: it has a value, and no bound.
        """
        values, centre = self.values, self.centre
        if (beyond := np.isinf(values)).any():
            values, centre = np.nan_to_num(values, nan=np.nan), np.where(beyond, np.nan, centre)
        rows = {"key": self.key.tolist(), "at": self.at.tolist(), "values": nullable(values)}
        told = riders(values, centre, self.slope, curves)
        return rows if all(rider is None for rider in told) else {**rows, "curve": told}


def joined(parts: list[Rows], columns: int) -> Rows:
    """Rows one after the other."""
    if len(parts) == 1:
        return parts[0]
    ints, floats = np.zeros(0, np.int64), np.zeros((0, columns))
    parts = [Rows(ints, ints, floats, floats, floats), *parts]
    return Rows(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Rows)))
