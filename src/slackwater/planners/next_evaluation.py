"""When a query must be evaluated again: the interval after which its answer may have drifted too far.

An answer A(t) is taken to move as a Brownian motion with a drift and a variance per second. Everything here
works on arrays, a million queries at a time, and returns seconds from now: 0 where nothing is known of how
the answer moves (NaN), infinity where it cannot leave its bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from slackwater.planners.deferral_tables import (
    Z_LEAST,
    Floats,
    Law,
    along,
    at_end,
    ever_above,
    guess,
    on_average,
    solve,
    table,
)

BLOCK = 16_384
"""Queries at a time: what is worked out on the way stays in the cache."""


def next_evaluation(
    bound: ArrayLike,
    drift: ArrayLike,
    variance: ArrayLike,
    belief: ArrayLike,
    *,
    mode: Literal["end", "average"] = "end",
) -> Floats:
    """Seconds until the chance that an answer is still within ±bound of its value falls to the belief.

    Mode ``end`` takes the chance at the end of the interval: before it, it is higher. Mode ``average`` takes
    the average chance over the interval, which is the share of time that the answer is right; its intervals
    are longer.

    Guarantee: within 2e-4 of the exact solution for beliefs from 1 %; below they are solved exactly.
    Variant: one table for each mode, over the drift in units of the bound and the variance, and the belief.
    Reference: equation 7 of Zhu and Ravishankar (mode ``end``).

    >>> next_evaluation([1.0, 1.0, 1.0, 0.0, 1.0], [0.0, 0.1, 0.0, 0.1, 0.1], [0.01, 0, 0, 0, np.nan], 0.9)
    array([36.96..., 10.        ,         inf,  0.        ,  0.        ])
    >>> next_evaluation(1.0, 0.1, 0.01, [0.5, 0.9, 1.0]).round(2)
    array([10.  ,  6.69,  0.  ])
    >>> next_evaluation(1.0, 0.1, 0.01, 0.9, mode="average").round(2)
    np.float64(9.89)
    """
    law = at_end if mode == "end" else on_average

    def block(bound: Floats, drift: Floats, variance: Floats, belief: Floats) -> Floats:
        drift = np.abs(drift)
        found = _times(law, bound, drift, variance, 1 - belief)
        straight = bound / drift
        if mode == "average":
            straight /= belief
        found = np.where(variance > 0, found, np.where(drift > 0, straight, np.inf))
        moves = (drift > 0) | (variance > 0)
        return np.where((bound <= 0) & moves, 0.0, found)

    return _blockwise(block, bound, drift, variance, belief)


def next_crossing(
    headroom: ArrayLike,
    drift: ArrayLike,
    variance: ArrayLike,
    belief: ArrayLike,
    *,
    mode: Literal["reflection", "marginal"] = "reflection",
) -> Floats:
    """Seconds until the chance that a value rises by no more than the headroom has fallen to the belief.

    Mode ``reflection`` takes the chance that it was not above at any time of the interval, mode ``marginal``
    that it is not above at the end: over the whole interval that one keeps only 2·belief - 1 without a drift.
    The drift has a sign here: where it leads away from the line the chance may never fall so low, and the
    time is infinite.

    Guarantee: within 2e-4 of the exact solution. Variant: with a drift away from the line, one that crosses
    at all does so as if the drift led towards it; so one table serves both, at a chance that is larger by
    exp(2·drift·headroom/variance). Reference: φ2 of Theorem 1 of Zhu and Ravishankar (``marginal``), the
    inverse Gaussian distribution (``reflection``).

    >>> next_crossing(1.0, [0.0, 0.1, -0.1], 0.01, 0.9).round(2)
    array([36.96,  6.41,   inf])
    >>> next_crossing(1.0, [0.0, 0.1, -0.1], 0.01, 0.9, mode="marginal").round(2)
    array([60.89,  6.69,   inf])
    """

    def block(headroom: Floats, drift: Floats, variance: Floats, belief: Floats) -> Floats:
        if mode == "reflection":
            c = 1 - belief
            if (drift < 0).any():
                away = np.minimum(drift, 0.0) * headroom / variance
                c = c * np.exp(np.fmin(-2 * away, 700.0))
            found = _times(ever_above, headroom, np.abs(drift), variance, c)
        else:
            found = _marginal(headroom, drift, variance, belief)
        found = np.where(variance > 0, found, np.where(drift > 0, headroom / drift, np.inf))
        rises = (drift > 0) | (variance > 0)
        return np.where((headroom <= 0) & rises | (headroom < 0), 0.0, found)

    return _blockwise(block, headroom, drift, variance, belief)


def _times(law: Law, bound: Floats, drift: Floats, variance: Floats, c: Floats) -> Floats:
    """The times at which a law reaches c, for drifts of at least 0; wrong where a variance is 0."""
    z = np.abs(ndtri(np.clip(c, 0.0, 1.0) / 2))
    without_drift = np.square(bound / z) / variance
    without_variance = bound / drift
    w = guess(without_drift / without_variance)
    w = np.where(np.isnan(w), 1.0, w)
    laid_out = table(law)
    factor = along(laid_out.row(float(z[0])), w) if z.size == 1 else laid_out.at(z, w)
    # both are the guess w²/z²; each where it can be trusted
    found = factor * np.where(w < 0.5, without_variance * (1 - w), without_drift * np.square(w))
    low = np.broadcast_to(z < Z_LEAST, found.shape)
    if low.any():
        found[low] = _solved(
            law, *(np.broadcast_to(a, found.shape)[low] for a in (bound, drift, variance, c))
        )
    return found


def _solved(law: Law, bound: Floats, drift: Floats, variance: Floats, c: Floats) -> Floats:
    """The same without a table, and infinity where c is 1 or more."""
    r = drift * bound / variance
    found = np.full(r.shape, np.inf)
    inner = (c < 1) & np.isfinite(r)
    found[inner] = solve(law, r[inner], c[inner]) * np.square(bound[inner]) / variance[inner]
    return found


def _marginal(headroom: Floats, drift: Floats, variance: Floats, belief: Floats) -> Floats:
    """A quadratic in the root of the time: drift·τ + z·√(variance·τ) = headroom, its first root."""
    z = ndtri(np.clip(belief, 0.0, 1.0))
    spread = z * np.sqrt(variance)
    below = np.square(spread) + 4 * drift * headroom
    divisor = spread + np.sqrt(np.maximum(below, 0.0))
    root = 2 * headroom / divisor
    return np.where((below >= 0) & (divisor > 0), np.square(root), np.inf)


def _blockwise(
    block: Callable[[Floats, Floats, Floats, Floats], Floats],
    bound: ArrayLike,
    drift: ArrayLike,
    variance: ArrayLike,
    belief: ArrayLike,
) -> Floats:
    given = [np.asarray(a, np.float64) for a in (bound, drift, variance, belief)]
    shape = np.broadcast_shapes(*(a.shape for a in given))
    flat = [a.reshape(1) if a.size == 1 else np.broadcast_to(a, shape).reshape(-1) for a in given]
    found = np.empty(int(np.prod(shape)))
    with np.errstate(all="ignore"):
        for first in range(0, found.size, BLOCK):
            part = [a if a.size == 1 else a[first : first + BLOCK] for a in flat]
            there = block(*part)
            # nothing is known of how the answer moves
            for a in part:
                there = np.where(np.isnan(a), 0.0, there)
            found[first : first + BLOCK] = there
    return found.reshape(shape)


def trailing_edge(times: Floats, values: Floats, now: float, size: float, bound: ArrayLike) -> Floats:
    """Seconds until a maximum over a sliding window may fall by more than the bound, whatever comes.

    Each row of ``values`` is what one query saw at the shared ``times``, ascending; its maximum is over
    [now - size, now]. Items leave at the trailing edge. The time found is that at which the last item leaves
    that is above the maximum less the bound (or is the maximum, under a bound of 0); ``size`` where that is
    the latest item, 0 where a window is empty. A minimum is the same for negated values. NaN: no value.

    Guarantee: until then the maximum is not below max - bound. Variant: one scan from the right, for all rows
    at once. Reference: φ1 of Theorem 1 of Zhu and Ravishankar.

    >>> trailing_edge(np.arange(5.0), np.array([[9.0, 5, 8, 6, 4], [1, 2, 3, 4, 5]]), 4.0, 4.0, 2.0)
    array([2., 4.])
    """
    times, values = np.asarray(times, np.float64), np.atleast_2d(np.asarray(values, np.float64))
    inside = (times >= now - size) & (times <= now)
    times, values = times[inside], values[:, inside]
    rows = len(values)
    if times.size == 0:
        return np.zeros(rows)
    there = ~np.isnan(values)
    remaining = np.maximum.accumulate(np.where(there, values, -np.inf)[:, ::-1], axis=1)[:, ::-1]
    largest = remaining[:, :1]
    least = largest - np.broadcast_to(np.asarray(bound, np.float64), (rows,))[:, None]
    holds = there & ((remaining > least) | (remaining == largest))
    width = holds.shape[1]
    last: NDArray[np.intp] = width - 1 - np.argmax(holds[:, ::-1], axis=1)
    latest = width - 1 - np.argmax(there[:, ::-1], axis=1)
    found = np.where(last == latest, size, times[last] - (now - size))
    return np.where(there.any(axis=1), found, 0.0)
