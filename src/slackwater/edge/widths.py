"""How wide a bound is at a time: the one law that agent and coordinator both compute.

A grant is a width, the time from which it holds, and how it shrinks by itself. All times are microseconds
since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NEVER = np.iinfo(np.int64).max
"""A period in which nothing shrinks."""


def width_at(width: Floats, start: Ints, shrink: Floats, period: Ints, now: int) -> Floats:
    """Widths at a time, each shrunk by its share at every multiple of its period since it was granted.

    Guarantee: a function of the grant and the time alone (section 3.1, epochs instead of counted steps), so
    whoever knows the grant knows the width. Before its start a grant has its full width.

    >>> one = lambda x, kind: np.array([x], kind)
    >>> width_at(one(8, float), one(15, int), one(0.5, float), one(10, int), 31)
    array([2.])
    """
    epochs = np.maximum(now // period - start // period, 0)
    # what does not shrink stays as it is to the last bit, infinite widths too
    moved = (epochs > 0) & (shrink > 0)
    if not moved.any():
        return width
    kept: Floats = width.copy()
    kept[moved] = width[moved] * (1.0 - shrink[moved]) ** epochs[moved]
    return kept


def next_shrink(shrink: Floats, period: Ints, now: int) -> int | None:
    """The next time at which one of these widths shrinks; None: never."""
    periods = np.unique(period[shrink > 0])
    return min((int((now // p + 1) * p) for p in periods), default=None)


@dataclass(frozen=True)
class Grants:
    """Widths for objects, each a key and a column by number; arrays of one length."""

    key: Ints
    column: Ints
    width: Floats
    """Infinite: nothing is sent."""
    start: Ints
    shrink: Floats
    """The share that goes at every period; 0: it stays until the next grant."""
    period: Ints

    def __len__(self) -> int:
        return len(self.key)

    def part(self, places: Ints | Bools) -> Grants:
        """Some of them."""
        return Grants(*(getattr(self, f.name)[places] for f in fields(self)))

    @classmethod
    def joined(cls, parts: list[Grants]) -> Grants:
        """All of several, in order."""
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    @classmethod
    def none(cls) -> Grants:
        ints, floats = np.empty(0, np.int64), np.empty(0)
        return cls(ints, ints, floats, ints, floats, ints)
