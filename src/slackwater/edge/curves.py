"""What rides on the rows of an agent: where bounds are put, and response curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slackwater.edge.messages import nullable
from slackwater.edge.widths import Bools, Floats, Ints

Curve = list[Any]
"""The response curve of an object as it is told: its lowest rung, seconds watched, and rates by rung."""
SECONDS = 1
"""Which of a curve's numbers says for how long its object was watched."""
_TENS = np.array([float(f"1e{n}") for n in range(23)])
_LEAST = 1e-15


@dataclass(frozen=True)
class ToldCurves:
    """The curves that ride on some rows, as arrays: as lists they take six times as much.

    >>> told = ToldCurves(3, np.array([1]), np.array([[[-4.0, 2.5, 0.5]]]))
    >>> told.lists()
    [None, [[-4, 2.5, 0.5]], None]
    """

    count: int
    """How many rows there are."""
    rows: Ints
    """The places of those that a curve rides on."""
    curves: Floats
    """By such a row, column and entry."""

    def lists(self) -> list[list[Curve] | None]:
        """By row: its curves by column, None where it has none."""
        found: list[list[Curve] | None] = [None] * self.count
        for row, columns in zip(self.rows.tolist(), self.curves.tolist(), strict=True):
            found[row] = [[int(lowest), *rest] for lowest, *rest in columns]
        return found

    @staticmethod
    def none(count: int) -> ToldCurves:
        """No curves, on so many rows."""
        return ToldCurves(count, np.empty(0, np.int64), np.empty((0, 1, 0)))


def riders(
    values: Floats, centre: Floats, slope: Floats, curves: Sequence[list[Curve] | None]
) -> list[dict[str, Any] | None]:
    """By row: ``c`` centres and ``s`` slopes, where they are not the values and 0, and ``r`` the curves.

    ``g`` says of a key that it is gone: its slopes are NaN.

    >>> one = np.array([[1.0]])
    >>> riders(one, one + 0.5, 0 * one, [None]), riders(one, one, 0 * one, [None])
    ([{'c': [1.5]}], [None])
    """
    leaning = ((centre != values) & ~np.isnan(values)).any(axis=1)
    gone: Bools = np.asarray(np.isnan(slope).any(axis=1))
    climbing = (slope != 0).any(axis=1) & ~gone
    found: list[dict[str, Any] | None] = [None] * len(values)
    for place in np.flatnonzero(leaning | climbing).tolist():
        rider: dict[str, Any] = {}
        if leaning[place]:
            rider["c"] = nullable(centre[place])
        if climbing[place]:
            rider["s"] = slope[place].tolist()
        found[place] = rider
    for place in np.flatnonzero(gone).tolist():
        found[place] = {"g": True}
    for place, curve in enumerate(curves):
        if curve is not None and not gone[place]:
            found[place] = {**(found[place] or {}), "r": curve}
    return found


def rounded(numbers: Floats) -> Floats:
    """Numbers from 0 on to four digits, as short texts: what is very little is 0.

    >>> rounded(np.array([0.0, 0.123449, 123456.0, 7.0])).tolist()
    [0.0, 0.1234, 123500.0, 7.0]
    """
    some = numbers > _LEAST
    shown = np.where(some, numbers, 1.0)
    digits = np.clip(3 - np.floor(np.log10(shown)), -22, 22).astype(np.int64)
    below, above = _TENS[np.maximum(digits, 0)], _TENS[np.maximum(-digits, 0)]
    # whole numbers and powers of ten are exact, so the quotient is the double nearest to the decimal
    whole = np.rint(shown * below / above)
    found: Floats = np.where(some, whole / below * above, 0.0)
    return found
