"""One evaluation of a deferred item: its value, how it moves, and when it must be evaluated again."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.special import ndtri

from slackwater.language.contracts import Drift
from slackwater.planners.deferral_budget import belief_at_least
from slackwater.planners.next_evaluation import next_crossing, next_evaluation
from slackwater.runtime.current.extremes import said
from slackwater.runtime.current.linear import depends, motion, spread
from slackwater.runtime.current.matrix import Matrix
from slackwater.runtime.current.tick import Asked, Evaluated, Sharded, Tick, bound_of
from slackwater.statistics.diffusion import Floats
from slackwater.statistics.series import Bools

UNPLANNED_TICKS = 128
"""The longest that an extreme is put off."""
FEW, EARLIER = 1_000, 0.25
"""Where more groups than these are evaluated at once, extremes that wait for what leaves their window are due
up to this share earlier."""


def evaluate(asked: Asked, matrix: Matrix) -> Evaluated:
    """Evaluate all rows of a matrix at a tick."""
    aggregate, move, contract, tick = asked.aggregate, asked.move, asked.contract, asked.tick
    weights = aggregate.weights(matrix, tick.values)
    drift, variance = motion(weights, tick.series, matrix.size)
    value, known, latest, edge = said(asked, matrix, edges=True)
    bound = bound_of(contract, value)
    scaled = (drift * np.sqrt(asked.factor), variance * asked.factor)
    manner = tick.manner
    if move is None:
        wait, longest = waits(contract, tick, bound, *scaled)
    else:
        sign = 1.0 if move.extreme == "max" else -1.0
        mode: Literal["reflection", "marginal"] = "reflection" if manner.reflection else "marginal"
        room = sign * (value - latest) + bound
        wait = next_crossing(room, sign * scaled[0], scaled[1], contract.belief, mode=mode)
        longest = wait
    # what is not planned again waits for less long
    limit = tick.longest if move is None else min(tick.longest, UNPLANNED_TICKS * tick.gap)
    # groups that begin together do not all end together: some a little earlier than they could
    part = np.modf(asked.rows * 0.6180339887498949)[0]
    earlier = 1 - EARLIER * part if asked.count > FEW else 1.0
    scanned = np.minimum(edge * earlier, limit / 1e6 * (0.75 + 0.5 * part))
    modelled = matrix.rows_with(tick.silent) if tick.silent.any() else np.zeros(matrix.size, bool)
    width = bound
    if modelled.any():
        doubt = spread(weights, np.nan_to_num(tick.spread), tick.unheard, matrix.size)
        # of a key that was hardly heard nobody knows how far it is
        doubt[depends(weights, np.isnan(tick.spread) & tick.silent, matrix.size)] = np.inf
        width = np.where(modelled, ndtri((1 + contract.belief) / 2) * np.sqrt(doubt), bound)
        scanned = np.where(modelled, np.minimum(tick.resting / 1e6, scanned), scanned)
    scanned = np.where(np.isnan(value), 0.0, scanned)
    counted = matrix.rows_of(tick.values).astype(np.float64)
    return Evaluated(value, known, drift, variance, wait, longest, scanned, width, modelled, counted)


def waits(
    contract: Drift, tick: Tick, bound: Floats, drift: Floats, variance: Floats
) -> tuple[Floats, Floats]:
    """How long an answer may stand at its belief, and at the least belief of a single interval."""
    manner, left = tick.manner, drift
    mode: Literal["end", "average"] = "average" if manner.average else "end"
    if contract.extrapolate:
        # what the reader extrapolates has no drift left (equation 8), but that of a slope which is itself
        # known from so many seconds only
        left = np.zeros(drift.shape)
        first = next_evaluation(bound, left, variance, contract.belief, mode=mode)
        variance = variance * (1 + np.minimum(first / tick.span, 10.0))
    wait = next_evaluation(bound, left, variance, contract.belief, mode=mode)
    if not manner.budget:
        return wait, wait
    least = belief_at_least(contract.belief)
    return wait, next_evaluation(bound, left, variance, least, mode=mode)


def evaluated(matrix: Matrix, asked: Asked) -> tuple[Evaluated, Bools]:
    """Evaluate some rows of a matrix, wherever it is; and which of them have a key that is there."""
    if isinstance(matrix, Sharded):
        return matrix.evaluated(asked)
    part = matrix if asked.count == matrix.size else matrix.chosen(asked.rows)
    return evaluate(asked, part), part.present(asked.tick.values)


def planned(matrix: Matrix, asked: Asked) -> tuple[Floats, Floats]:
    """How long cached answers may stand by what is known now, without a look at them."""
    if isinstance(matrix, Sharded):
        return matrix.planned(asked)
    return plan(asked, matrix.chosen(asked.rows))


def plan(asked: Asked, matrix: Matrix) -> tuple[Floats, Floats]:
    """The same for all rows of a matrix."""
    tick = asked.tick
    drift, variance = motion(asked.aggregate.weights(matrix, tick.values), tick.series, matrix.size)
    bound = bound_of(asked.contract, asked.cached)
    return waits(asked.contract, tick, bound, drift * np.sqrt(asked.factor), variance * asked.factor)
