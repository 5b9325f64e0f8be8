"""Widths that never change, chosen by somebody who knows all that comes: what online schemes are measured by.

What an object sends at each width is counted over the whole trace, on a ladder four times as fine as that of
the agents and as wide as the data. The widths of least cost over the hulls of these curves are then the best
that stay, but for the ladder's steps and for one object of each query that lies between two of them.
"""

from __future__ import annotations

import numpy as np

from slackwater.edge.following import LEAN, LEVEL_PACE
from slackwater.planners.precision_allocation import allocate
from slackwater.planners.precision_constraints import Bools, Constraints, Floats
from slackwater.planners.precision_curves import Curves, hulls

RUNGS_AN_OCTAVE = 4
EVERYTHING = 10**9
"""However large the linear program is, it is solved as it is."""
NUDGE = 1e-9
"""The share by which a width that is to hold a whole number of steps is more: sums of steps round."""


def sent(values: Floats, widths: Floats, lean: float | Floats = 0.0) -> Floats:
    """How often each object sends in all, at each of its widths (by rung and object, or by object alone).

    ``lean`` as agents do it: a bound that is placed leans so far towards a level that follows the value.

    >>> sent(np.array([[0.0], [1.0], [3.0], [2.5]]), np.array([[0.0], [2.0], [9.0]])).ravel().tolist()
    [4.0, 2.0, 1.0]
    """
    half = np.asarray(widths, dtype=np.float64) / 2
    leaning = bool(np.any(np.asarray(lean) > 0))
    reach = half * lean if leaning else np.zeros(half.shape)
    centre = np.full(half.shape, np.nan)
    counts = np.zeros(half.shape)
    level = np.broadcast_to(values[0], half.shape).copy()
    for now in values:
        left = ~(np.abs(now - centre) <= half)
        counts += left
        if leaning:
            level += LEVEL_PACE * np.clip(now - level, -half, half)
            centre = np.where(left, np.clip(level, now - reach, now + reach), centre)
        else:
            centre = np.where(left, now, centre)
    return counts


def ladder(values: Floats) -> Floats:
    """Widths from 0 to what holds everything, for all objects."""
    spread = values.max(axis=0) - values.min(axis=0)
    moves = np.abs(np.diff(values, axis=0))
    least = float(moves[moves > 0].min()) if (moves > 0).any() else 1.0
    low = max(np.log2(least), np.log2(max(spread.max(), 1e-9)) - 22)
    high = np.log2(max(spread.max(), 1e-9)) + 1.1
    rungs = np.exp2(np.arange(low, high + 1 / RUNGS_AN_OCTAVE, 1 / RUNGS_AN_OCTAVE))
    return np.concatenate([[0.0], rungs])


class Clairvoyant:
    """The response curves of a whole trace, and the best widths that stay for any constraints."""

    def __init__(self, values: Floats) -> None:
        self._values = values
        rungs = ladder(values)
        self._widths = np.repeat(rungs[:, None], values.shape[1], axis=1)
        self._centred = sent(values, self._widths)
        self._leaning = sent(values, self._widths, LEAN)

    def a_step(self, constraints: Constraints, *, may_lean: bool = False) -> float:
        """Messages a step with the best widths that stay; with ``may_lean`` each object's bound leans where
        that sends less."""
        counts = np.minimum(self._centred, self._leaning) if may_lean else self._centred
        widths = best_static(constraints, self._curves(counts), np.ones(constraints.objects))
        centred = sent(self._values, widths)
        if may_lean:
            return float(np.minimum(centred, sent(self._values, widths, LEAN)).sum()) / len(self._values)
        return float(centred.sum()) / len(self._values)

    def widths(self, constraints: Constraints) -> Floats:
        """The best widths that stay, for bounds that are centred."""
        return best_static(constraints, self._curves(self._centred), np.ones(constraints.objects))

    def _curves(self, counts: Floats) -> Curves:
        falling = np.minimum.accumulate(counts, axis=0)
        return hulls(np.ascontiguousarray(self._widths.T), np.ascontiguousarray(falling.T))


def best_static(constraints: Constraints, curves: Curves, costs: Floats) -> Floats:
    """Widths of least cost over curves that are known."""
    return allocate(constraints, curves, costs, program_at_most=EVERYTHING).widths


def walking_curves(steps: Floats, most: float, used: Bools) -> Curves:
    """The exact response of walks of ±s: a bound of 2·k·s is left after (k+1)² steps on average.

    >>> walking_curves(np.array([3.0]), 13.0, np.array([True])).rates.round(4).tolist()
    [[1.0, 0.25, 0.1111, 0.0625]]
    """
    number = int(np.ceil(most / (2 * float(steps[used].min())))) + 1
    places = np.arange(max(number, 2))
    widths = 2 * places * steps[:, None] * (1 + NUDGE)
    return Curves(widths, np.broadcast_to(1.0 / (places + 1.0) ** 2, widths.shape).copy())
