"""The value, drift and variance of what is linear in the signals, for some rows of a matrix (equation 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from slackwater.plan.linear import computed
from slackwater.runtime.current.matrix import Called, Matrix, Values
from slackwater.statistics.diffusion import Floats
from slackwater.statistics.series import Bools, Ints


@dataclass(frozen=True)
class Aggregate:
    """An item, or what an extreme is taken of: SQL over the calls, of which some move with the signals."""

    sql: str
    moving: tuple[int, ...]
    """The calls that move."""

    def value(self, matrix: Matrix, values: Values) -> Floats:
        """Its value for each row, or row and time; NaN where it has none."""
        calls = [matrix.call(index, values) for index in range(len(matrix.form.calls))]
        found = computed(self.sql, _columns(calls))
        return np.where(matrix.present(values), found, np.nan)

    def weights(self, matrix: Matrix, values: Values) -> list[csr_array]:
        """By signal: how each row weighs each key, now that keys have or have not a value.

        What it is made of may itself be divided by calls that stay, such as SUM(qty * price) / SUM(qty).
        """
        calls = [matrix.call(index, values) for index in range(len(matrix.form.calls))]
        still = _columns(calls) | {f"a{index}": np.zeros(matrix.size) for index in self.moving}
        base = computed(self.sql, still) if still else np.zeros(matrix.size)
        lengths = matrix.lengths()
        data = [np.zeros(matrix.entries) for _ in range(matrix.signals)]
        for index in self.moving:
            call = matrix.form.calls[index]
            factor = computed(self.sql, still | {f"a{index}": np.ones(matrix.size)}) - base
            if call.function == "avg":
                counted = matrix.counted(index, values)
                factor = np.divide(factor, counted, out=np.zeros(matrix.size), where=counted > 0)
            spread = np.repeat(np.nan_to_num(factor), lengths)
            for place, term in enumerate(call.terms):
                if term.signal is not None:
                    weighed = matrix.weights(f"w{index}_{place}").data
                    data[matrix.place_of(term.signal)] += spread * weighed * matrix.counts(index, values)
        return [matrix.with_data(column) for column in data]


def _columns(calls: list[Called]) -> dict[str, Floats]:
    return {f"a{i}": np.where(c.there, c.value, np.nan) for i, c in enumerate(calls)}


@dataclass(frozen=True)
class Motions:
    """How the keys move: when each was heard last, and by signal and key its drift and variance a second."""

    time: Ints
    drift: Floats
    variance: Floats
    loadings: Floats | None = None
    """By signal, key and factor: how much keys move together; None: each by itself."""
    own: Floats | None = None
    """By signal and key: the share of its variance that is its own."""


def motion(weights: list[csr_array], motions: Motions, rows: int) -> tuple[Floats, Floats]:
    """Drift and variance per second of each row, from those of its keys (equation 6).

    NaN variance where nothing is known yet of one of its keys.
    """
    drift = np.zeros(rows)
    for signal, matrix in enumerate(weights):
        drift += matrix @ motions.drift[signal]
    variance = spread(weights, np.sqrt(np.nan_to_num(motions.variance)), motions, rows)
    variance[depends(weights, np.isnan(motions.variance), rows)] = np.nan
    return drift, variance


def spread(weights: list[csr_array], sigma: Floats, motions: Motions, rows: int) -> Floats:
    """The variance of each row, given the standard deviations of its keys, which may move together."""
    alone = np.zeros(rows)
    common = np.zeros((rows, 0 if motions.loadings is None else motions.loadings.shape[-1]))
    for signal, matrix in enumerate(weights):
        squared = csr_array((np.square(matrix.data), matrix.indices, matrix.indptr), shape=matrix.shape)
        square = np.square(sigma[signal])
        if motions.loadings is None or motions.own is None:
            alone += squared @ square
        else:
            common += matrix @ (motions.loadings[signal] * sigma[signal][:, None])
            alone += squared @ (motions.own[signal] * square)
    return np.asarray(np.square(common).sum(axis=1) + alone)


def depends(weights: list[csr_array], chosen: Bools, rows: int) -> Bools:
    """Which rows weigh any of the chosen signals of keys."""
    found = np.zeros(rows, bool)
    for signal, matrix in enumerate(weights):
        if chosen[signal].any():
            size = csr_array((np.abs(matrix.data), matrix.indices, matrix.indptr), shape=matrix.shape)
            found |= size @ chosen[signal].astype(np.float64) > 0
    return found
