"""Deferred maxima over a sliding window, tick by tick: Theorem 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slackwater.experiments.deferral_data import WARM_UP, Floats
from slackwater.experiments.deferral_simulation import LONGEST, Moving, Outcome, Scheme
from slackwater.planners.next_evaluation import next_crossing, trailing_edge

WINDOW_TICKS = 30


def sliding_maxima(values: Floats, ticks: int = WINDOW_TICKS) -> Floats:
    """The maximum of each column over [now - size, now], as far back as there are values.

    >>> sliding_maxima(np.array([[3.0], [1.0], [2.0], [0.0]]), 1).ravel()
    array([3., 3., 2., 2.])
    """
    padded = np.concatenate([np.full((ticks, values.shape[1]), -np.inf), values])
    return np.asarray(np.lib.stride_tricks.sliding_window_view(padded, ticks + 1, axis=0).max(axis=2))


def simulate_maxima(
    moving: Moving, scheme: Scheme, bounds: Sequence[float], beliefs: Sequence[float]
) -> Outcome:
    """A run of all queries under all bounds and beliefs, each a maximum over the latest ticks.

    The paper's own scheme looks ahead by the marginal at the end of the interval; ours (a scheme that knows
    of averages over intervals) by the chance that the line is not crossed in all of it.
    """
    number = moving.values.shape[1]
    grid = np.meshgrid(np.arange(number), np.array(bounds), np.array(beliefs), indexing="ij")
    query, bound, belief = (axis.ravel() for axis in grid)
    maxima = sliding_maxima(moving.values)
    ticks, size = len(maxima), WINDOW_TICKS * moving.tick_s
    times: Floats = np.arange(ticks, dtype=np.float64) * moving.tick_s
    cached, due = np.full(len(query), np.nan), np.full(len(query), WARM_UP)
    inside, wild_inside, evaluations = np.zeros((3, len(query)))
    wild = moving.wild()
    for tick in range(WARM_UP, ticks):
        which = np.flatnonzero(due <= tick)
        if len(which):
            of, limit = query[which], bound[which]
            cached[which] = maxima[tick, of]
            evaluations[which] += 1
            begin = tick - WINDOW_TICKS
            window = moving.values[begin : tick + 1, of].T
            leaves = trailing_edge(times[begin : tick + 1], window, times[tick], size, limit)
            crosses = next_crossing(
                cached[which] - moving.values[tick, of] + limit,
                moving.drift[tick, of],
                moving.variance[tick, of],
                belief[which],
                mode="reflection" if scheme.average else "marginal",
            )
            interval = np.minimum(np.minimum(leaves, crosses) / moving.tick_s, LONGEST)
            due[which] = tick + np.maximum(1, np.floor(interval + 1e-9)).astype(np.int64)
        right = np.abs(maxima[tick, query] - cached) <= bound
        inside += right
        wild_inside += right & wild[tick, query]
    shape = (number, len(bounds), len(beliefs))
    in_wild = wild[WARM_UP:].sum(axis=0)[query]
    found = (inside / (ticks - WARM_UP), evaluations, wild_inside / in_wild, evaluations)
    return Outcome(*(a.reshape(shape) for a in found))
