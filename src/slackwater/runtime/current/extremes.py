"""What the rows of a matrix say at a tick: an aggregate, or its extreme over a window or since a landmark."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from slackwater.plan.model import Move
from slackwater.planners.next_evaluation import trailing_edge
from slackwater.runtime.current.matrix import Matrix, Values
from slackwater.runtime.current.tick import Asked, Sharded, Tick, bound_of
from slackwater.statistics.diffusion import Floats
from slackwater.statistics.series import Ints

CELLS_AT_A_TIME = 4_000_000
"""Rows times ticks of a window that are worked on at once."""


class Said(NamedTuple):
    """By row."""

    value: Floats
    known: Floats
    """Of extremes since a landmark: without what is modelled of keys that are interrupted."""
    latest: Floats
    """The aggregate itself, of which a value may be the extreme."""
    edge: Floats
    """Seconds until items that leave the window may change the extreme (φ1); infinite where none does."""


def said_by(matrix: Matrix, asked: Asked) -> tuple[Floats, Floats]:
    """The values of all rows of a matrix, wherever it is: with what is modelled, and without."""
    if isinstance(matrix, Sharded):
        return matrix.said(asked)
    found = said(asked, matrix)
    return found.value, found.known


def said(asked: Asked, matrix: Matrix, *, edges: bool = False) -> Said:
    """What all rows of a matrix say; ``edges``: and until when their windows let them."""
    tick, move = asked.tick, asked.move
    latest = asked.aggregate.value(matrix, tick.values)
    if move is None:
        return Said(latest, latest, latest, np.full(matrix.size, np.inf))
    value, edge = _extremes(asked, move, matrix, latest, modelled=True, edges=edges)
    known = value
    if move.since is not None and tick.silent.any():
        held = asked.aggregate.value(matrix, tick.held)
        known, _ = _extremes(asked, move, matrix, held, modelled=False, edges=False)
    return Said(value, known, latest, edge)


def _extremes(
    asked: Asked, move: Move, matrix: Matrix, latest: Floats, *, modelled: bool, edges: bool
) -> tuple[Floats, Floats]:
    aggregate, tick = asked.aggregate, asked.tick
    assert tick.history is not None
    sign = 1.0 if move.extreme == "max" else -1.0
    low = tick.now - move.size if move.size is not None else max(move.since or 0, asked.since)
    times, values = tick.history.window(low, tick.now)
    values = _modelled(times, values, tick) if modelled else values
    value, edge = np.empty(matrix.size), np.full(matrix.size, np.inf)
    pace = max(1, CELLS_AT_A_TIME // max(1, len(times)))
    # what was said at a tick stands until the next one, and leaves the window with it
    ends = np.append(times[1:], tick.now)[: len(times)]
    seconds = np.append((ends - tick.now) / 1e6, 0.0)
    for first in range(0, matrix.size, pace):
        rows = np.arange(first, min(first + pace, matrix.size))
        part = matrix if len(rows) == matrix.size else matrix.chosen(rows)
        said = sign * aggregate.value(part, values)
        said = np.concatenate([said, sign * latest[rows][:, None]], axis=1)
        found = np.fmax.reduce(said, axis=1, initial=np.nan)
        if move.size is not None and edges:
            bound = bound_of(asked.contract, found)
            edge[rows] = trailing_edge(seconds, said, 0.0, move.size / 1e6, np.nan_to_num(bound))
        if move.size is None:
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
