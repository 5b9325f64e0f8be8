"""One evaluation of a deferred item: its value, how it moves, and when it must be evaluated again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from scipy.special import ndtri

from slackwater.language.contracts import Drift
from slackwater.plan.model import Move
from slackwater.planners.deferral_budget import belief_at_least
from slackwater.planners.manner import Manner
from slackwater.planners.next_evaluation import next_crossing, next_evaluation, trailing_edge
from slackwater.runtime.current.history import History
from slackwater.runtime.current.linear import Aggregate, Motions, motion, spread
from slackwater.runtime.current.matrix import Matrix, Values
from slackwater.statistics.diffusion import Floats
from slackwater.statistics.series import Bools, Ints

UNPLANNED_TICKS = 128
"""The longest that an extreme is put off."""
CELLS_AT_A_TIME = 4_000_000
"""Rows times ticks of a window that are worked on at once."""


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
    gone: Floats
    """By signal and key: how far it has gone while it was silent."""
    spread: Floats
    """By signal and key: its standard deviation up to the next evaluation of an interrupted query."""
    manner: Manner = field(default_factory=Manner)
    number: int = 0
    """How many ticks there have been."""
    span: float = 1.0
    """Seconds from which drifts are known."""


@dataclass(frozen=True)
class Asked:
    """What is asked of some rows of a matrix: an item of a query, at a tick."""

    aggregate: Aggregate
    move: Move | None
    contract: Drift
    tick: Tick
    cached: Floats
    """By row: the answer that stands, which an extreme since a landmark goes on from."""
    factor: Floats
    """By row: what variances are multiplied by, as evaluations have shown."""
    since: int
    """The tick of the oldest of the cached answers."""


@runtime_checkable
class Sharded(Protocol):
    """A matrix whose rows are evaluated elsewhere."""

    def evaluated(self, asked: Asked, rows: Ints) -> tuple[Evaluated, Bools]: ...

    def planned(self, asked: Asked, rows: Ints) -> tuple[Floats, Floats]: ...

    def value_of(self, aggregate: Aggregate, values: Values) -> Floats: ...


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation found, by row."""

    value: Floats
    drift: Floats
    variance: Floats
    wait: Floats
    """Seconds until the next one."""
    longest: Floats
    """Seconds that it may be put off where more misses are to be spent."""
    scanned: Floats
    """Seconds after which it must be whatever is known of how it moves: what leaves a window, a limit."""
    width: Floats
    """Half of the interval that holds the truth with the belief."""
    modelled: Bools
    counted: Floats
    """Current rows that it rests on."""


def evaluate(asked: Asked, matrix: Matrix) -> Evaluated:
    """Evaluate all rows of a matrix at a tick."""
    aggregate, move, contract, tick = asked.aggregate, asked.move, asked.contract, asked.tick
    weights = aggregate.weights(matrix, tick.values)
    drift, variance = motion(weights, tick.series, matrix.size)
    latest = aggregate.value(matrix, tick.values)
    value, edge = latest, np.full(matrix.size, np.inf)
    if move is not None:
        value, edge = _extremes(asked, move, matrix, latest)
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
    # groups that begin together do not all end together
    spreading = 0.75 + 0.5 * np.modf(np.arange(matrix.size) * 0.6180339887498949)[0]
    scanned = np.minimum(edge, limit / 1e6 * spreading)
    modelled = matrix.rows_with(tick.silent) if tick.silent.any() else np.zeros(matrix.size, bool)
    width = bound
    if modelled.any():
        doubt = np.zeros(matrix.size)
        for signal, of in enumerate(weights):
            doubt += spread(of, np.nan_to_num(tick.spread[signal]), tick.series, signal)
            unknown = np.isnan(tick.spread[signal]) & tick.silent
            if unknown.any():
                # of a key that was hardly heard nobody knows how far it is
                doubt[np.asarray(abs(of) @ unknown.astype(np.float64)) > 0] = np.inf
        width = np.where(modelled, ndtri((1 + contract.belief) / 2) * np.sqrt(doubt), bound)
        scanned = np.where(modelled, np.minimum(tick.resting / 1e6, scanned), scanned)
    scanned = np.where(np.isnan(value), 0.0, scanned)
    counted = matrix.rows_of(tick.values).astype(np.float64)
    return Evaluated(value, drift, variance, wait, longest, scanned, width, modelled, counted)


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


def evaluated(matrix: Matrix, asked: Asked, rows: Ints) -> tuple[Evaluated, Bools]:
    """Evaluate some rows of a matrix, wherever it is; and which of them have a key that is there."""
    if isinstance(matrix, Sharded):
        return matrix.evaluated(asked, rows)
    part = matrix if len(rows) == matrix.size else matrix.chosen(rows)
    return evaluate(asked, part), part.present(asked.tick.values)


def planned(matrix: Matrix, asked: Asked, rows: Ints) -> tuple[Floats, Floats]:
    """How long cached answers may stand by what is known now, without a look at them."""
    if isinstance(matrix, Sharded):
        return matrix.planned(asked, rows)
    return plan(asked, matrix.chosen(rows))


def plan(asked: Asked, matrix: Matrix) -> tuple[Floats, Floats]:
    """The same for all rows of a matrix."""
    tick = asked.tick
    drift, variance = motion(asked.aggregate.weights(matrix, tick.values), tick.series, matrix.size)
    bound = bound_of(asked.contract, asked.cached)
    return waits(asked.contract, tick, bound, drift * np.sqrt(asked.factor), variance * asked.factor)


def bound_of(contract: Drift, value: Floats) -> Floats:
    """How far from a cached answer the truth may be."""
    if contract.relative:
        return contract.bound * np.abs(value)
    return np.full(value.shape, contract.bound)


def _extremes(asked: Asked, move: Move, matrix: Matrix, latest: Floats) -> tuple[Floats, Floats]:
    """The extreme of each row, and the seconds until items that leave the window may change it (φ1)."""
    aggregate, tick = asked.aggregate, asked.tick
    assert tick.history is not None
    sign = 1.0 if move.extreme == "max" else -1.0
    low = tick.now - move.size if move.size is not None else max(move.since or 0, asked.since)
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
            bound = bound_of(asked.contract, found)
            edge[rows] = trailing_edge(seconds, said, 0.0, move.size / 1e6, np.nan_to_num(bound))
        else:
            there = tick.now >= (move.since or 0)
            found = np.fmax(found if there else np.full(len(rows), np.nan), sign * asked.cached[rows])
        value[rows] = sign * found
    return value, edge


def _modelled(times: Ints, values: Values, tick: Tick) -> Values:
    """What keys said at ticks, with what those that are interrupted have gone since their last items."""
    if not tick.silent.any():
        return values
    keys = np.flatnonzero(tick.silent)
    heard = tick.series.time[keys][:, None]
    # straight from where they were to where they are taken to be now
    share = np.maximum(times[None, :] - heard, 0) / np.maximum(tick.now - heard, 1)
    gone = tick.gone[:, keys]
    value = values.value.copy()
    value[:, keys] += gone[:, :, None] * share[None]
    return Values(value, values.there, values.known)
