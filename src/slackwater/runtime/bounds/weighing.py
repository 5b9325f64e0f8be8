"""One item of a query over all objects: weights by group, and the interval that bounds of objects come to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, csr_array

from slackwater.edge.widths import Bools, Floats, Ints

EPSILON = float(np.finfo(np.float64).eps)
WHOLE = 2.0**53
"""Below this all whole numbers are floats."""
IN_TURN = 40.0
"""Roundings of a sum beside those of its pairs: of up to 128 numbers in turn, of products and of ends."""


class Weighed:
    """One item over all objects: weights by group, and a constant."""

    def __init__(
        self,
        weights: csr_array,
        constant: Floats,
        *,
        least: Bools | None = None,
        others: csr_array | None = None,
        absent: csr_array | None = None,
    ) -> None:
        self.weights = weights
        self.constant = constant
        self.absent = absent
        """Objects that would count if they had a value."""
        self.others = weights if others is None else others
        """Of an extreme, the least weights of keys that a lookup meets often; else the same."""
        self.least = least
        """By group: whether it is the least of its objects, or the largest; None: their sum."""

    def ends(self, rows: Ints, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Both ends for some groups (appendix D; of extremes appendix A)."""
        bottom, top = self._ends(rows, low, high)
        if self.absent is not None and self.absent.nnz:
            # whether what had no value has one now is not known where nobody vouches for it
            part = part_of(self.absent, rows)
            found = np.concatenate([[0], np.cumsum(~np.isfinite(low[part.indices]))])
            open_ended = found[part.start[1:]] > found[part.start[:-1]]
            bottom, top = np.where(open_ended, -np.inf, bottom), np.where(open_ended, np.inf, top)
        return bottom, top

    @np.errstate(over="ignore", invalid="ignore")
    def _ends(self, rows: Ints, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        part = part_of(self.weights, rows)
        lengths = np.diff(part.start)
        filled = lengths > 0
        starts = part.start[:-1][filled]
        down, up = _products(part, low, high)
        bottom, top = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
        if self.least is not None:
            others = part if self.others is self.weights else part_of(self.others, rows)
            also = _products(others, low, high)
            if len(starts):
                least = self.least[rows][filled]
                bottom[filled] = _extreme(down, also[0], starts, least)
                top[filled] = _extreme(up, also[1], starts, least)
            lost = 4 * EPSILON * (np.maximum(np.abs(bottom), np.abs(top)) + np.abs(self.constant[rows]))
            return self._certain(rows, (part, others), _Ends(bottom, top, lost), low)
        bottom[~filled], top[~filled] = 0.0, 0.0
        # what rests on no value is exact
        lost = np.where(filled, EPSILON * np.abs(self.constant[rows]), 0.0)
        if len(starts):
            bottom[filled], top[filled] = np.add.reduceat(down, starts), np.add.reduceat(up, starts)
            # what the sum of so many floats may have lost: they are added in pairs, a few in turn
            size = np.add.reduceat(np.maximum(np.abs(down), np.abs(up)), starts)
            lost[filled] += EPSILON * (np.log2(lengths[filled]) + IN_TURN) * size
        return self._certain(rows, (part,), _Ends(bottom, top, lost), low)

    def _certain(
        self, rows: Ints, parts: tuple[_Part, ...], ends: _Ends, low: Floats
    ) -> tuple[Floats, Floats]:
        """Both ends with their constants, apart by what roundings may have lost.

        Nothing is lost of whole numbers that floats hold exactly, nor of a single value or an extreme of
        values as they are: so what is asked for without any width can be had. What is beyond all floats is
        anywhere; a constant that is no number says that there is no value.
        """
        constant, lengths, lost = self.constant[rows], np.diff(parts[0].start), ends.lost
        filled = lengths > 0
        if (tight := filled & (ends.bottom == ends.top)).any():
            starts = parts[0].start[:-1][filled]
            whole, plain = np.mod(constant, 1) == 0, constant == 0
            size = np.abs(constant)
            for part in parts:
                values = low[part.indices]
                # of numbers that are not finite no remainder is known
                broken = (np.mod(part.data, 1) != 0) | (np.mod(values, 1) != 0)
                whole[filled] &= ~np.logical_or.reduceat(broken, starts)
                plain[filled] &= ~np.logical_or.reduceat(np.abs(part.data) != 1, starts)
                size[filled] += np.add.reduceat(np.abs(part.data * values), starts)
            # what is only looked at, and not added up, is what it is
            exact = (whole & (size < WHOLE)) | (plain & ((lengths == 1) | (self.least is not None)))
            lost = np.where(tight & exact, 0.0, lost)
        bottom, top = ends.bottom + constant - lost, ends.top + constant + lost
        beyond = filled & ~np.isnan(constant) & ~((bottom <= top) & (bottom < np.inf) & (top > -np.inf))
        return np.where(beyond, -np.inf, bottom), np.where(beyond, np.inf, top)


class _Ends(NamedTuple):
    """Both ends before their constants, and by how much roundings may have them wrong."""

    bottom: Floats
    top: Floats
    lost: Floats


class _Part(NamedTuple):
    """Some rows of a sparse matrix."""

    data: Floats
    indices: npt.NDArray[np.integer[Any]]
    start: npt.NDArray[np.integer[Any]]


def part_of(matrix: csr_array | csc_array, rows: Ints) -> _Part:
    """Some rows, or columns of what is kept by columns: what slicing gives, at a tenth of its cost."""
    if len(rows) == len(matrix.indptr) - 1:
        return _Part(matrix.data, matrix.indices, matrix.indptr)
    first = matrix.indptr[rows]
    start = np.concatenate([[0], np.cumsum(matrix.indptr[rows + 1] - first)])
    place = np.repeat(first - start[:-1], np.diff(start)) + np.arange(start[-1])
    return _Part(matrix.data[place], matrix.indices[place], start)


def _products(weights: _Part, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Each weight times the end of its object's bound that is lower then, and the one that is higher."""
    with np.errstate(invalid="ignore"):
        first, second = weights.data * low[weights.indices], weights.data * high[weights.indices]
    # 0 times a bound that nobody vouches for is 0
    first, second = np.where(weights.data == 0, 0.0, first), np.where(weights.data == 0, 0.0, second)
    return np.minimum(first, second), np.maximum(first, second)


def _extreme(first: Floats, second: Floats, starts: npt.NDArray[np.integer[Any]], least: Bools) -> Floats:
    """The least or the largest of stretches of numbers, which are there twice."""
    smallest = np.minimum.reduceat(np.minimum(first, second), starts)
    return np.where(least, smallest, np.maximum.reduceat(np.maximum(first, second), starts))
