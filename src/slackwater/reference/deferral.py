"""When deferred answers have drifted too far: one at a time, by root finding and scans, as the paper says.

Zhu and Ravishankar, equations 7, 11, 15 and 16. Slow on purpose; `next_evaluation` and `diffusion` are
checked against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr


def within(bound: float, drift: float, variance: float, after: float) -> float:
    """The chance that a motion is within ±bound of where it began: the integral of equation 7.

    >>> within(1.0, 0.0, 1.0, 1.0).__round__(4)
    0.6827
    """
    if after == 0:
        return 1.0
    spread = math.sqrt(variance * after)
    if spread == 0:
        return float(abs(drift) * after <= bound)
    high, low = (bound - drift * after) / spread, (-bound - drift * after) / spread
    return float(ndtr(high) - ndtr(low))


def within_on_average(bound: float, drift: float, variance: float, after: float) -> float:
    """The average of that chance over the interval."""
    # the chance bends where the drift alone would have reached the bound
    turn = bound / abs(drift) if drift else after
    spread = math.sqrt(variance * turn) / abs(drift) if drift else 0.0
    points = sorted(x for x in (turn + k * spread for k in (-6, -3, -1, 0, 1, 3, 6)) if 0 < x < after)
    total = 0.0
    for begin, end in pairwise([0.0, *points, after]):
        part = quad(lambda x: within(bound, drift, variance, x), begin, end, epsabs=1e-9 * after, limit=200)
        total += part[0]
    return total / after


def below_at_end(headroom: float, drift: float, variance: float, after: float) -> float:
    """The chance that a motion has not risen by more than the headroom at the end of an interval."""
    return float(ndtr((headroom - drift * after) / math.sqrt(variance * after)))


def always_below(headroom: float, drift: float, variance: float, after: float) -> float:
    """The chance that a motion has not risen by more than the headroom at any time of an interval."""
    spread = math.sqrt(variance * after)
    direct = ndtr((headroom - drift * after) / spread)
    mirrored = log_ndtr((-headroom - drift * after) / spread) + 2 * drift * headroom / variance
    return float(direct - math.exp(min(mirrored, 0.0)))


Chance = Callable[[float, float, float, float], float]


def falls_to(
    chance: Chance, bound: float, drift: float, variance: float, belief: float, fine: int = 40
) -> float:
    """The first time at which a chance has fallen to the belief; infinity if it never does.

    Looked for from early to late on a grid of so many times a decade, and between two of them by Brent's
    method. Of the chances only that at the end of an interval can rise again, and needs a fine grid.

    >>> falls_to(within, 1.0, 0.0, 0.01, 0.9).__round__(3), falls_to(always_below, 1.0, -1.0, 1.0, 0.8)
    (36.961, inf)
    """
    scales = [bound * bound / variance] if variance else []
    scales += [bound / abs(drift)] if drift else []
    early, late = min(scales) * 1e-3, max(scales) * 1e6
    steps = fine * math.ceil(math.log10(late / early))

    def excess(after: float) -> float:
        return chance(bound, drift, variance, after) - belief

    before = early
    for step in range(1, steps + 1):
        after = early * (late / early) ** (step / steps)
        if excess(after) <= 0:
            return float(brentq(excess, before, after, xtol=1e-14 * after, rtol=1e-13))
        before = after
    return math.inf


def leaves(times: Sequence[float], values: Sequence[float], now: float, size: float, bound: float) -> float:
    """φ1 of Theorem 1: when all of a window that is left is at or below its maximum less the bound.

    >>> leaves([0, 1, 2, 3, 4], [9, 5, 8, 6, 4], 4, 4, 2)
    2
    """
    window = [(t, v) for t, v in zip(times, values, strict=True) if now - size <= t <= now]
    largest = max(v for _, v in window)
    first_of_it = min(t for t, v in window if v == largest)
    for leaving, _ in window:
        rest = [v for t, v in window if t > leaving]
        # before the maximum itself has left, nothing can have fallen
        if leaving >= first_of_it and rest and max(rest) <= largest - bound and max(rest) < largest:
            return leaving - (now - size)
    return size


def drift_and_variance(items: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Equations 15 and 16 for (time, value) pairs; of a time the last value counts.

    >>> drift_and_variance([(0, 5), (1, 6), (3, 11)])
    (2.0, 1.5)
    """
    latest = sorted(dict(items).items())
    if len(latest) < 2:
        return 0.0, math.nan
    (begin, first), (end, last) = latest[0], latest[-1]
    drift = (last - first) / (end - begin)
    if len(latest) < 3:
        return drift, math.nan
    total = 0.0
    for (t0, v0), (t1, v1) in pairwise(latest):
        total += (v1 - v0 - (t1 - t0) * drift) ** 2 / (t1 - t0)
    return drift, total / (len(latest) - 2)
