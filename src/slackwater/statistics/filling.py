"""Values of windows that were left out, predicted from those around them, with how far off they may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from scipy.stats import t

from slackwater.language.contracts import Fill

CONFIDENCE = 0.95
ENOUGH = 4
"""Values without which nobody knows how much they change."""

Point = tuple[int, float]
"""The number of a window and its value."""


@dataclass(frozen=True)
class Change:
    """How far values lie apart: the mean square of the difference of two, h windows apart, is near + far·h.

    ``near`` is what scatters from window to window, ``far`` what drifts away with time.
    """

    near: float
    far: float
    values: int

    def square(self, apart: float) -> float:
        return self.near + self.far * apart


def change_of(points: Sequence[Point]) -> Change | None:
    """How values of windows change, fitted to all pairs of some; None where they are too few.

    >>> change_of([(0, 1.0), (1, 2.0), (2, 1.0)]) is None
    True
    >>> found = change_of([(n, float(n % 2)) for n in range(12)])
    >>> round(found.near, 2), round(found.far, 2)
    (0.79, 0.0)
    """
    if len(points) < ENOUGH:
        return None
    at = np.array([p[0] for p in points], dtype=np.float64)
    value = np.array([p[1] for p in points], dtype=np.float64)
    one, other = np.triu_indices(len(points), 1)
    apart, squares = np.abs(at[other] - at[one]), (value[other] - value[one]) ** 2
    # near pairs say most of near windows, and there are many far ones
    weight = 1 / apart
    scale = float(squares.max()) or 1.0
    matrix = np.column_stack([np.ones(len(apart)), apart]) * weight[:, None]
    fitted, _ = nnls(matrix, squares / scale * weight)
    return Change(float(fitted[0]) * scale, float(fitted[1]) * scale, len(points))


@dataclass(frozen=True)
class Filled:
    """A predicted value; without limits where nobody knows how much values change."""

    value: float
    low: float | None
    high: float | None


def filled(at: int, before: Point, after: Point | None, change: Change | None, kind: Fill) -> Filled:
    """The value of a window that was left out, from the last before it and, if linear, the first after it.

    Guarantee: the limits hold with the confidence if differences of values are about normal with the mean
    squares of ``change``. Variant: for an intrinsic random function the error of a·Z1 + b·Z2, a + b = 1, has
    the mean square a·D(d1) + b·D(d2) - a·b·D(d1 + d2); for values that drift it is a Brownian bridge's.
    Reference: Matheron, The intrinsic random functions and their applications (1973).

    >>> filled(2, (0, 10.0), (4, 30.0), Change(0.0, 1.0, 100), "linear").value
    20.0
    >>> found = filled(1, (0, 10.0), None, Change(0.0, 1.0, 100), "last")
    >>> found.value, round(found.high, 2)
    (10.0, 11.98)
    """
    if kind == "last" or after is None:
        value, square = before[1], change.square(at - before[0]) if change is not None else math.nan
    else:
        first, second = at - before[0], after[0] - at
        share = first / (first + second)
        value = (1 - share) * before[1] + share * after[1]
        square = math.nan
        if change is not None:
            whole = change.square(first + second)
            square = (1 - share) * change.square(first) + share * change.square(second)
            square = max(0.0, square - share * (1 - share) * whole)
    if change is None:
        return Filled(value, None, None)
    reach = float(t.ppf((1 + CONFIDENCE) / 2, change.values - 1)) * math.sqrt(square)
    return Filled(value, value - reach, value + reach)
