"""How fast values wander: drift and variance of series as Brownian motions, from their latest items."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def estimate(times: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Drift per second and variance per second of each row, as far as its items tell.

    ``times`` (in seconds) and ``values`` are buffers of one shape, a row for each series, ascending in time,
    with NaN at the left where there are fewer items than columns. A row of fewer than 2 items has drift 0 and
    a variance of NaN, one of 2 items a drift and a variance of NaN: nothing is known of how far such a series
    wanders, and `next_evaluation` takes NaN as "evaluate at once". Of items with the same time the last one
    counts.

    Guarantee: both are unbiased if the increments are independent and normal, however unequal the gaps.
    Variant: the unbiased variance of footnote 2. Reference: equations 15 and 16 of Zhu and Ravishankar.

    >>> drift, variance = estimate(np.array([[np.nan, 0.0, 1.0, 3.0]]), np.array([[np.nan, 5.0, 6.0, 11.0]]))
    >>> drift, variance
    (array([2.]), array([1.5]))
    """
    times, values = np.asarray(times, np.float64), np.asarray(values, np.float64)
    gaps = np.diff(times, axis=1)
    together = (gaps <= 0).any(axis=1)
    if together.any():
        times, values = times.copy(), values.copy()
        times[together], values[together] = _last_of_each_time(times[together], values[together])
        gaps = np.diff(times, axis=1)
    steps = np.diff(values, axis=1)
    known = np.isfinite(gaps) & np.isfinite(steps)
    gaps = np.where(known, gaps, 0.0)
    steps = np.where(known, steps, 0.0)
    increments = known.sum(axis=1)
    elapsed = gaps.sum(axis=1)
    drift = np.divide(steps.sum(axis=1), elapsed, out=np.zeros(len(times)), where=elapsed > 0)
    # in place: a buffer of a hundred items for each of 100,000 series is 80 MB
    steps -= gaps * drift[:, None]
    np.square(steps, out=steps)
    np.divide(steps, gaps, out=steps, where=known)
    variance = np.full(len(times), np.nan)
    np.divide(steps.sum(axis=1), increments - 1, out=variance, where=increments >= 2)
    return drift, variance


def _last_of_each_time(times: Floats, values: Floats) -> tuple[Floats, Floats]:
    """The items that no other of the same time follows, moved to the right again."""
    followed = np.zeros(times.shape, bool)
    followed[:, :-1] = times[:, :-1] >= times[:, 1:]
    times = np.where(followed, np.nan, times)
    order = np.argsort(~np.isnan(times), axis=1, kind="stable")
    return np.take_along_axis(times, order, axis=1), np.take_along_axis(
        np.where(followed, np.nan, values), order, axis=1
    )


def next_estimate(
    now: ArrayLike,
    last: ArrayLike,
    variance_before: ArrayLike,
    variance_now: ArrayLike,
    longest: ArrayLike,
) -> Floats:
    """When series should be estimated again: later while they calm down, sooner while they grow wilder.

    The time since the last estimate times the ratio of the standard deviations, at most ``longest``. Where
    both variances are 0, or one of them is unknown, the ratio is 1. Never before ``now``; a caller looks once
    a tick, so that the time since the last estimate is at least a tick, and an interval of 0 does not stay 0.

    Reference: Algorithm 2 of Zhu and Ravishankar.

    >>> next_estimate(100.0, 90.0, [4.0, 1.0, 0.0, 1.0, np.nan], [1.0, 4.0, 0.0, 0.0, 1.0], 60.0)
    array([120., 105., 110., 160., 110.])
    """
    now, last = np.asarray(now, np.float64), np.asarray(last, np.float64)
    before, after = np.asarray(variance_before, np.float64), np.asarray(variance_now, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sqrt(before / after)
        interval = np.where(np.isnan(ratio), 1.0, ratio) * (now - last)
    # a ratio without end times no time at all: nothing has been learnt since
    interval = np.where(np.isnan(interval), 0.0, interval)
    return np.asarray(now + np.clip(interval, 0.0, np.asarray(longest, np.float64)))
