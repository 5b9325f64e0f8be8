"""How wide a bound is at a time: the one law that agent and coordinator both compute.

A grant is a width, the time from which it holds, and how it shrinks by itself. All times are microseconds
since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NEVER = np.iinfo(np.int64).max
"""A period in which nothing shrinks."""
TOLD = 2.0**800
"""A width at which an object says only that it has a value, or none any more."""


def width_at(width: Floats, start: Ints, shrink: Floats, period: Ints, now: int | Ints) -> Floats:
    """Widths at a time, or at times, each shrunk by its share at every multiple of its period since granted.

    Guarantee: a function of the grant and the time alone (section 3.1, epochs instead of counted steps), so
    whoever knows the grant knows the width, to the last bit and on any machine. Before its start a grant has
    its full width, and what is infinite stays so.

    >>> one = lambda x, kind: np.array([x], kind)
    >>> width_at(one(8, float), one(15, int), one(0.5, float), one(10, int), 31)
    array([2.])
    """
    epochs = np.maximum(now // period - start // period, 0)
    moved = (epochs > 0) & (shrink > 0) & np.isfinite(width)
    if not moved.any():
        return width
    kept: Floats = width.copy()
    kept[moved] = width[moved] * _powers(1.0 - shrink[moved], epochs[moved])
    return kept


def _powers(base: Floats, exponent: Ints) -> Floats:
    """Powers by multiplication alone: those of mathematical libraries differ in the last bit by machine."""
    power = np.ones(len(base))
    while True:
        np.multiply(power, base, out=power, where=(exponent & 1) == 1)
        exponent = exponent >> 1
        if not exponent.any():
            return power
        base = base * base


def one_width_at(width: float, start: int, shrink: float, period: int, now: int) -> float:
    """The width of one grant at a time: `width_at` to the last bit, without the cost of arrays.

    >>> one_width_at(8.0, 15, 0.5, 10, 31)
    2.0
    """
    epochs = now // period - start // period
    if epochs <= 0 or shrink <= 0 or width == math.inf:
        return width
    power, base = 1.0, 1.0 - shrink
    while True:
        if epochs & 1:
            power *= base
        epochs >>= 1
        if not epochs:
            return width * power
        base *= base


def next_shrink(shrink: Floats, period: Ints, now: int) -> int | None:
    """The next time at which one of these widths shrinks; None: never."""
    return next_epoch(np.unique(period[shrink > 0]).tolist(), now)


def next_epoch(periods: Iterable[int], now: int) -> int | None:
    """The next time at which widths that shrink with one of these periods do; None: never.

    >>> next_epoch([10, 7], 14)
    20
    """
    return min(((now // period + 1) * period for period in periods), default=None)


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
