"""What is known at each tick of how queries move: drifts and variances, from nothing but the ticks before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from slackwater.experiments.deferral_data import Floats, Series
from slackwater.statistics.covariance import Factors
from slackwater.statistics.diffusion import estimate, next_estimate

BLOCK = 1000
"""Ticks whose buffers are estimated at a time."""
LONGEST_ESTIMATE = 10
"""Ticks after which a series is estimated again at the latest (t_max of Algorithm 2)."""


@dataclass(frozen=True)
class Estimates:
    """Of each series at each tick: drift and variance per second, as they were last estimated."""

    drift: Floats
    """(ticks, series)"""
    variance: Floats

    def sums(self, weights: csr_array[Any]) -> tuple[Floats, Floats]:
        """Drifts and variances of queries (ticks, queries), as if series were independent. Equation 6."""
        return self.drift @ weights.T, self.variance @ weights.power(2).T


def estimates(series: Series, items: int) -> Estimates:
    """Equations 15 and 16 over the latest items of each series, when Algorithm 2 asks for them."""
    ticks, width = series.values.shape
    times: Floats = np.arange(ticks, dtype=np.float64) * series.tick_s
    drift, variance = np.zeros((ticks, width)), np.full((ticks, width), np.nan)
    padded = np.concatenate([np.full((items - 1, width), np.nan), series.values])
    padded_times = np.concatenate([np.full(items - 1, np.nan), times])
    for first in range(0, ticks, BLOCK):
        last = min(first + BLOCK, ticks)
        values = np.lib.stride_tricks.sliding_window_view(padded[first : last + items - 1], items, axis=0)
        at = np.lib.stride_tricks.sliding_window_view(padded_times[first : last + items - 1], items)
        stamps = np.broadcast_to(at[:, None, :], values.shape).reshape(-1, items)
        found = estimate(stamps, values.reshape(-1, items))
        drift[first:last], variance[first:last] = (a.reshape(last - first, width) for a in found)
    held = _held(times, variance, LONGEST_ESTIMATE * series.tick_s)
    return Estimates(np.take_along_axis(drift, held, axis=0), np.take_along_axis(variance, held, axis=0))


def _held(times: Floats, variance: Floats, longest: float) -> NDArray[np.intp]:
    """At each tick and for each series, the tick at which it was last estimated. Algorithm 2."""
    ticks, width = variance.shape
    held = np.zeros((ticks, width), np.intp)
    due, last = np.zeros(width), np.zeros(width, np.intp)
    columns = np.arange(width)
    for tick in range(ticks):
        now = times[tick]
        turn = columns[due <= now]
        if len(turn):
            before, after = variance[last[turn], turn], variance[tick, turn]
            due[turn] = next_estimate(now, times[last[turn]], before, after, longest)
            last[turn] = tick
        held[tick] = last
    return held


def together(series: Series, known: Estimates, weights: csr_array[Any]) -> Floats:
    """Variances of queries (ticks, queries) with what was learnt of how series move together."""
    ticks, width = series.values.shape
    factors = Factors.fresh(width)
    sigma = np.sqrt(known.variance)
    found = np.full((ticks, weights.shape[0]), np.nan)
    arrived = np.full(width, 0)
    for tick in range(1, ticks):
        fresh = series.fresh[tick]
        elapsed = (tick - arrived) * series.tick_s
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = (series.values[tick] - series.values[arrived, np.arange(width)]) / np.sqrt(elapsed)
            factors.observe(np.where(fresh & (sigma[tick - 1] > 0), moved / sigma[tick - 1], np.nan))
        arrived[fresh] = tick
        found[tick] = factors.variance_of(weights, sigma[tick])
    return found
