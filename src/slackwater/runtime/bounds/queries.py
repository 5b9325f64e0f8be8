"""Intervals of a query's groups from the bounds of its objects, and what the query asks of their widths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import csc_array, csr_array

from slackwater.edge.widths import Bools, Floats, Ints
from slackwater.language.contracts import Precision
from slackwater.plan.bounded import Bounded, BoundedItem
from slackwater.plan.linear import LinearCall, computed, reads
from slackwater.plan.model import Output, Step
from slackwater.runtime.bounds.belief import Belief
from slackwater.runtime.current.matrix import Matrix, Values
from slackwater.runtime.expressions import evaluate as expression

EPSILON = float(np.finfo(np.float64).eps)
IN_TURN = 40.0
"""Roundings of a sum beside those of its pairs: of up to 128 numbers in turn, of products and of ends."""
KEPT_BACK = 1e-6
"""The share of a width that is not given away: what sums of floats may lose is told as part of the answer."""
TOLD = 2.0**800
"""A width at which an object says only that it has a value, or none any more."""


@dataclass(frozen=True)
class Intervals:
    """Some groups of an item at a time: both ends, and the rows that they rest on."""

    rows: Ints
    low: Floats
    high: Floats
    counted: Ints


class _Weighed:
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
            part = _part(self.absent, rows)
            found = np.concatenate([[0], np.cumsum(~np.isfinite(low[part.indices]))])
            open_ended = found[part.start[1:]] > found[part.start[:-1]]
            bottom, top = np.where(open_ended, -np.inf, bottom), np.where(open_ended, np.inf, top)
        return bottom, top

    def _ends(self, rows: Ints, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        part = _part(self.weights, rows)
        lengths = np.diff(part.start)
        filled = lengths > 0
        starts = part.start[:-1][filled]
        down, up = _products(part, low, high)
        bottom, top = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
        if self.least is not None:
            also = down, up
            if self.others is not self.weights:
                also = _products(_part(self.others, rows), low, high)
            if len(starts):
                least = self.least[rows][filled]
                bottom[filled] = _extreme(down, also[0], starts, least)
                top[filled] = _extreme(up, also[1], starts, least)
            lost = 4 * EPSILON * (np.maximum(np.abs(bottom), np.abs(top)) + np.abs(self.constant[rows]))
            return bottom + self.constant[rows] - lost, top + self.constant[rows] + lost
        bottom[~filled], top[~filled] = 0.0, 0.0
        # what rests on no value is exact
        lost = np.where(filled, EPSILON * np.abs(self.constant[rows]), 0.0)
        if len(starts):
            bottom[filled], top[filled] = np.add.reduceat(down, starts), np.add.reduceat(up, starts)
            # what the sum of so many floats may have lost: they are added in pairs, a few in turn
            size = np.add.reduceat(np.maximum(np.abs(down), np.abs(up)), starts)
            lost[filled] += EPSILON * (np.log2(lengths[filled]) + IN_TURN) * size
        return bottom + self.constant[rows] - lost, top + self.constant[rows] + lost


class _Part(NamedTuple):
    """Some rows of a sparse matrix."""

    data: Floats
    indices: npt.NDArray[np.integer[Any]]
    start: npt.NDArray[np.integer[Any]]


def _part(matrix: csr_array | csc_array, rows: Ints) -> _Part:
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


class BoundedQuery:
    """A query under PRECISION: one standing query for each group."""

    def __init__(self, form: Bounded, matrix: Matrix, columns: Sequence[str]) -> None:
        assert isinstance(form.step.contract, Precision)
        self.form = form
        self.matrix = matrix
        self.contract = form.step.contract
        self._columns = {name: place for place, name in enumerate(columns)}
        self.items: list[_Weighed] = []
        self._asked: list[_Weighed] = []
        self.counted: Ints = np.empty(0, np.int64)
        self.whole: Bools = np.empty(0, bool)
        self.named: dict[str, pa.Array] = {}
        self._members: csc_array | None = None

    @property
    def step(self) -> Step:
        return self.form.step

    def weigh(self, belief: Belief) -> None:
        """Weigh the objects anew: keys have come, or values have come or gone."""
        there = ~np.isnan(belief.value.reshape(belief.size, belief.columns))
        self.items = self._weighed(belief.known, there)
        values = self._values(belief.known, there)
        self.counted = self.matrix.rows_of(values)
        # what is granted to keys that have not spoken yet must be allowed for: with their weights, and with
        # the counts of those that have, which can only grow; without any, with those of all
        everyone = np.ones(belief.size, bool)
        self._asked = self._weighed(everyone, np.ones(there.shape, bool), values)
        # who comes and goes is told by any column of a key
        keys = self.matrix.with_data(np.ones(self.matrix.entries))
        placed = keys.indices.astype(np.int64) * len(self._columns)
        members = csr_array((keys.data, placed, keys.indptr), self._nothing().shape)
        for item in self.items:
            ones = csr_array(
                (np.ones(item.weights.nnz), item.weights.indices, item.weights.indptr), members.shape
            )
            members = csr_array(members + ones)
        self._members = csc_array(members)

    def _weighed(self, known: Bools, there: Bools, counted: Values | None = None) -> list[_Weighed]:
        values = self._values(known, there)
        sums = [
            self._call(i, call, values) if call.function in ("sum", "avg") else self._none()
            for i, call in enumerate(self.form.linear.calls)
        ]
        counts = [self.matrix.counted(i, values) for i in range(len(sums))]
        if counted is not None:
            found = [self.matrix.counted(i, counted) for i in range(len(sums))]
            counts = [np.where(f > 0, f, c) for f, c in zip(found, counts, strict=True)]
        items = [self._item(item, sums, counts, values) for item in self.form.items]
        for item, made in zip(self.form.items, items, strict=True):
            made.absent = self._absent(item, known, there)
        return items

    def _absent(self, item: BoundedItem, known: Bools, there: Bools) -> csr_array:
        """Objects of keys that are known, which count in a call of an item and have no value."""
        matrix, count = self.matrix, len(self._columns)
        total = self._nothing()
        sql = self.step.outputs[item.output].sql
        for index, call in enumerate(self.form.linear.calls):
            if not reads(sql, [f"a{index}"]):
                continue
            for column in {c: None for s in call.signals for c in self.form.signals[s][0]}:
                place = self._columns[column]
                weights = matrix.weights(f"n{index}")
                data = weights.data * (known & ~there[:, place])[weights.indices]
                placed = weights.indices.astype(np.int64) * count + place
                total = total + csr_array((data, placed, weights.indptr), shape=total.shape)
        total.eliminate_zeros()
        return csr_array(total)

    def _values(self, known: Bools, there: Bools) -> Values:
        """What the matrix asks: which keys count, by signal."""
        by_signal = np.ones((len(self.matrix.signal_names), len(known)), bool)
        for place, sql in enumerate(self.matrix.signal_names):
            columns, _ = self.form.signals.get(sql, ({}, 0.0))
            for column in columns:
                by_signal[place] &= there[:, self._columns[column]]
        return Values(np.zeros(by_signal.shape), by_signal, known)

    def _call(self, index: int, call: LinearCall, values: Values) -> tuple[csr_array, Floats]:
        """A sum's weights of objects, by group, and its constant."""
        matrix, count = self.matrix, len(self._columns)
        total, constant = self._nothing(), np.zeros(matrix.size)
        counts = matrix.counts(index, values)
        for place, term in enumerate(call.terms):
            weights = matrix.with_data(matrix.weights(f"w{index}_{place}").data * counts)
            columns, offset = self.form.signals[term.signal] if term.signal is not None else ({}, 1.0)
            constant += weights @ np.full(matrix.width, offset)
            for column, factor in columns.items():
                placed = weights.indices.astype(np.int64) * count + self._columns[column]
                part = (weights.data * factor, placed, weights.indptr)
                total = total + csr_array(part, shape=total.shape)
        return csr_array(total), constant

    def _none(self) -> tuple[csr_array, Floats]:
        """A call that weighs no object."""
        return self._nothing(), np.zeros(self.matrix.size)

    def _nothing(self) -> csr_array:
        return csr_array((self.matrix.size, self.matrix.width * len(self._columns)))

    def _extreme(
        self, item: BoundedItem, index: int, values: Values, factor: Floats, constant: Floats
    ) -> _Weighed:
        """The least or largest of objects, times a factor, plus a constant."""
        matrix, count = self.matrix, len(self._columns)
        call = self.form.linear.calls[index]
        (term,) = call.terms
        columns, offset = self.form.signals[term.signal] if term.signal is not None else ({}, 1.0)
        counts = (matrix.counts(index, values) > 0) & (matrix.weights(f"n{index}").data > 0)
        row = np.repeat(np.arange(matrix.size), matrix.lengths())[counts]
        start = np.searchsorted(row, np.arange(matrix.size + 1))
        made = []
        for name in ("high", "low"):
            weights = matrix.weights(f"{name}{index}")
            # a constant has no object: any will do, with the weight 0
            column, scale = next(iter(columns.items()), (next(iter(self._columns)), 0.0))
            placed = weights.indices[counts].astype(np.int64) * count + self._columns[column]
            data = weights.data[counts] * scale * factor[row]
            made.append(csr_array((data, placed, start), shape=self._nothing().shape))
        # a negative factor turns the least into the largest
        least = (factor >= 0) if call.function == "min" else ~(factor >= 0)
        return _Weighed(made[0], constant + factor * offset, least=least, others=made[1])

    def _item(
        self,
        item: BoundedItem,
        calls: list[tuple[csr_array, Floats]],
        counts: list[Floats],
        values: Values,
    ) -> _Weighed:
        """An item as a combination of calls: what it is at 0 and at each unit tells its weights."""
        functions = [call.function for call in self.form.linear.calls]
        names = [f"a{i}" for i in range(len(calls))]
        size = self.matrix.size
        base = {
            n: np.zeros(size) if f != "count" else c for n, f, c in zip(names, functions, counts, strict=True)
        }
        sql = self.step.outputs[item.output].sql
        start = computed(sql, base)
        constant = start
        weights = self._nothing()
        for index, (own, offset) in enumerate(calls):
            if functions[index] == "count":
                continue
            factor = computed(sql, {**base, names[index]: np.ones(size)}) - start
            if index == item.extreme:
                return self._extreme(item, index, values, factor, constant)
            if reads(sql, names[index : index + 1]):
                # an aggregate of nothing is NULL
                constant = np.where(counts[index] > 0, constant, np.nan)
            if functions[index] == "avg":
                factor = np.divide(factor, counts[index], out=np.zeros(size), where=counts[index] > 0)
            weights = csr_array(weights + csr_array(own.multiply(factor[:, None])))
            constant = constant + factor * offset
        weights.eliminate_zeros()
        weights.data[np.isnan(weights.data)] = 0.0
        return _Weighed(weights, constant)

    @property
    def granted_width(self) -> float:
        """What widths may add up to: a little less than is promised."""
        return self.contract.width * (1 - KEPT_BACK)

    def asks(self) -> tuple[list[tuple[Ints, Ints, Floats]], list[tuple[Ints, Floats]]]:
        """Entries (group, object, weight) by item, and the most that objects of extremes may have."""
        rows, ceilings = [], []
        width = self.granted_width
        for item in self._asked:
            entries = item.weights.tocoo()
            if item.least is not None:
                size = np.maximum(np.abs(entries.data), np.abs(item.others.data))
                most = np.divide(width, size, out=np.full(len(size), np.inf), where=size > 0)
                ceilings.append((entries.coords[1].astype(np.int64), most))
            else:
                rows.append(
                    (entries.coords[0].astype(np.int64), entries.coords[1].astype(np.int64), entries.data)
                )
        for index, call in enumerate(self.form.linear.calls):
            if call.function == "count":
                # what is counted must be told, however wide its bounds are
                counted = self.matrix.weights(f"n{index}")
                keys = np.unique(counted.indices[counted.data > 0]).astype(np.int64)
                told = (keys[:, None] * len(self._columns) + np.arange(len(self._columns))).ravel()
                ceilings.append((told, np.full(len(told), TOLD)))
        return rows, ceilings

    def touched(self, objects: Ints) -> Ints:
        """The groups that some objects are in."""
        if self._members is None or not len(objects):
            return np.empty(0, np.int64)
        found: Ints = np.unique(_part(self._members, objects).indices).astype(np.int64)
        return found

    def intervals(self, place: int, rows: Ints, low: Floats, high: Floats) -> Intervals:
        """An item for some groups."""
        bottom, top = self.items[place].ends(rows, low, high)
        return Intervals(rows, bottom, top, self.counted[rows])

    def outputs(self) -> list[Output]:
        return [self.step.outputs[item.output] for item in self.form.items]

    def keys(self, rows: Ints) -> dict[str, pa.Array]:
        """The group keys of some groups, and the items made of them."""
        chosen = pa.array(rows)
        columns = self.matrix.groups.columns
        named = {key.name: c.take(chosen) for key, c in zip(self.step.keys, columns, strict=False)}
        return named | {name: column.take(chosen) for name, column in self.named.items()}

    def name_groups(self, by_spark: Callable[[Step, pa.Table, Sequence[Output]], pa.Table]) -> None:
        """Make the items that are of the groups alone."""
        plain = [output for output in self.step.outputs if not output.aggregated]
        columns = {f"k{i}": c for i, c in enumerate(self.matrix.groups.columns)}
        if not plain or not columns:
            return
        made = {output.name: expression(output.sql, columns) for output in plain}
        rest = [output for output in plain if made[output.name] is None]
        if rest:
            found = by_spark(self.step, pa.table(columns), rest)
            made |= {output.name: found[f"o{i}"].combine_chunks() for i, output in enumerate(rest)}
        self.named = {name: column for name, column in made.items() if column is not None}
