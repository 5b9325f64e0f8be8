"""One evaluation of a deferred item: its value, how it moves, and when it must be evaluated again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from scipy.sparse import csr_array
from scipy.special import ndtri

from slackwater.language.contracts import Drift
from slackwater.plan.model import Move
from slackwater.planners.next_evaluation import next_crossing, next_evaluation, trailing_edge
from slackwater.runtime.current.history import History
from slackwater.runtime.current.linear import Aggregate, motion
from slackwater.runtime.current.matrix import Matrix, Values
from slackwater.runtime.current.moving import LANDMARK_TICKS
from slackwater.statistics.diffusion import Floats
from slackwater.statistics.series import Bools, Ints

CELLS_AT_A_TIME = 4_000_000
"""Rows times ticks of a window that are worked on at once."""


@dataclass(frozen=True)
class Motions:
    """How the keys move: when each was heard last, and by signal and key its drift and variance a second."""

    time: Ints
    drift: Floats
    variance: Floats


@dataclass(frozen=True)
class Tick:
    """What is known at a tick."""

    now: int
    gap: int
    """Microseconds to the tick after it, as far as the last ones tell."""
    series: Motions
    values: Values
    """With what is modelled of keys that are interrupted."""
    silent: Bools
    """The keys that are interrupted."""
    history: History | None
    longest: int
    """The longest that an evaluation is put off."""
    resting: int
    """How often a query is evaluated while a key of it is interrupted: the paper's T."""


@runtime_checkable
class Sharded(Protocol):
    """A matrix whose rows are evaluated elsewhere."""

    def evaluated(
        self,
        aggregate: Aggregate,
        move: Move | None,
        contract: Drift,
        tick: Tick,
        rows: Ints,
        best: Floats,
        since: int,
    ) -> tuple[Evaluated, Bools]: ...

    def value_of(self, aggregate: Aggregate, values: Values) -> Floats: ...


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation found, by row."""

    value: Floats
    drift: Floats
    variance: Floats
    wait: Floats
    """Seconds until the next one."""
    width: Floats
    """Half of the interval that holds the truth with the belief."""
    modelled: Bools
    counted: Floats
    """Current rows that it rests on."""


def evaluate(
    aggregate: Aggregate,
    move: Move | None,
    contract: Drift,
    matrix: Matrix,
    tick: Tick,
    best: Floats,
    since: int,
) -> Evaluated:
    """Evaluate all rows of a matrix at a tick.

    ``best`` is the extreme up to the tick ``since``, which an extreme since a landmark goes on from.
    """
    weights = aggregate.weights(matrix, tick.values)
    drift, variance = motion(weights, tick.series.drift, tick.series.variance)
    latest = aggregate.value(matrix, tick.values)
    value, edge = latest, np.full(matrix.size, np.inf)
    if move is not None:
        value, edge = _extremes(aggregate, move, contract, matrix, tick, latest, best, since)
    bound = bound_of(contract, value)
    wait = _wait(contract, move, bound, value, latest, drift, variance)
    longest = tick.longest
    if move is not None and move.size is None:
        # the ticks since the last evaluation must still be there at the next
        longest = min(longest, tick.gap * (LANDMARK_TICKS // 2))
    wait = np.minimum(np.minimum(wait, edge), longest / 1e6)
    modelled = matrix.rows_with(tick.silent) if tick.silent.any() else np.zeros(matrix.size, bool)
    width = bound
    if modelled.any():
        doubt = _doubt(weights, tick)
        width = np.where(modelled, ndtri((1 + contract.belief) / 2) * np.sqrt(doubt), bound)
        wait = np.where(modelled, np.minimum(tick.resting / 1e6, wait), wait)
    wait = np.where(np.isnan(value), 0.0, wait)
    counted = matrix.rows_of(tick.values).astype(np.float64)
    return Evaluated(value, drift, variance, wait, width, modelled, counted)


def evaluated(
    matrix: Matrix,
    aggregate: Aggregate,
    move: Move | None,
    contract: Drift,
    tick: Tick,
    rows: Ints,
    best: Floats,
    since: int,
) -> tuple[Evaluated, Bools]:
    """Evaluate some rows of a matrix, wherever it is; and which of them have a key that is there."""
    if isinstance(matrix, Sharded):
        return matrix.evaluated(aggregate, move, contract, tick, rows, best, since)
    part = matrix if len(rows) == matrix.size else matrix.chosen(rows)
    return evaluate(aggregate, move, contract, part, tick, best, since), part.present(tick.values)


def bound_of(contract: Drift, value: Floats) -> Floats:
    """How far from a cached answer the truth may be."""
    if contract.relative:
        return contract.bound * np.abs(value)
    return np.full(value.shape, contract.bound)


def _wait(
    contract: Drift,
    move: Move | None,
    bound: Floats,
    value: Floats,
    latest: Floats,
    drift: Floats,
    variance: Floats,
) -> Floats:
    if move is None:
        # what the reader extrapolates has no drift left (equation 8)
        left = np.zeros(drift.shape) if contract.extrapolate else drift
        return next_evaluation(bound, left, variance, contract.belief)
    sign = 1.0 if move.extreme == "max" else -1.0
    return next_crossing(sign * (value - latest) + bound, sign * drift, variance, contract.belief)


def _extremes(
    aggregate: Aggregate,
    move: Move,
    contract: Drift,
    matrix: Matrix,
    tick: Tick,
    latest: Floats,
    best: Floats,
    since: int,
) -> tuple[Floats, Floats]:
    """The extreme of each row, and the seconds until items that leave the window may change it (φ1)."""
    assert tick.history is not None
    sign = 1.0 if move.extreme == "max" else -1.0
    low = tick.now - move.size if move.size is not None else max(move.since or 0, since)
    times, values = tick.history.window(low, tick.now)
    values = _modelled(times, values, tick)
    value, edge = np.empty(matrix.size), np.full(matrix.size, np.inf)
    pace = max(1, CELLS_AT_A_TIME // max(1, len(times)))
    seconds = np.append((times - tick.now) / 1e6, 0.0)
    for first in range(0, matrix.size, pace):
        rows = np.arange(first, min(first + pace, matrix.size))
        part = matrix if len(rows) == matrix.size else matrix.chosen(rows)
        said = sign * aggregate.value(part, values)
        said = np.concatenate([said, sign * latest[rows][:, None]], axis=1)
        found = np.fmax.reduce(said, axis=1, initial=np.nan)
        if move.size is not None:
            bound = bound_of(contract, found)
            edge[rows] = trailing_edge(seconds, said, 0.0, move.size / 1e6, np.nan_to_num(bound))
        else:
            there = tick.now >= (move.since or 0)
            found = np.fmax(found if there else np.full(len(rows), np.nan), sign * best[rows])
        value[rows] = sign * found
    return value, edge


def _modelled(times: Ints, values: Values, tick: Tick) -> Values:
    """What keys said at ticks, with the drift of those that are interrupted since their last items."""
    if not tick.silent.any():
        return values
    keys = np.flatnonzero(tick.silent)
    since = np.maximum(times[None, :] - tick.series.time[keys][:, None], 0) / 1e6
    value = values.value.copy()
    value[:, keys] += tick.series.drift[:, keys][:, :, None] * since[None]
    return Values(value, values.there, values.known)


def _doubt(weights: list[csr_array], tick: Tick) -> Floats:
    """The variance of each row up to its next evaluation, of interrupted keys since they fell silent."""
    ahead = tick.resting / 1e6
    since = np.where(tick.silent, (tick.now - tick.series.time) / 1e6, 0.0) + ahead
    total = np.zeros(weights[0].shape[0]) if weights else np.zeros(0)
    for signal, matrix in enumerate(weights):
        squared = matrix.copy()
        squared.data = np.square(matrix.data)
        total += squared @ (np.nan_to_num(tick.series.variance[signal]) * since)
    return total
