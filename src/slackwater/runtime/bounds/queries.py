"""Intervals of a query's groups from the bounds of its objects, and what the query asks of their widths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy.sparse import csc_array, csr_array

from slackwater.edge.widths import TOLD, Bools, Floats, Ints
from slackwater.language.contracts import Precision
from slackwater.plan.bounded import Bounded, BoundedItem
from slackwater.plan.linear import LinearCall, computed, reads
from slackwater.plan.model import Output, Step
from slackwater.planners.precision_sums import Entries
from slackwater.runtime.bounds.belief import Belief, LiveSum
from slackwater.runtime.bounds.covers import Cover, entries_of
from slackwater.runtime.bounds.meaning import Means
from slackwater.runtime.bounds.weighing import Weighed, part_of
from slackwater.runtime.current.matrix import Matrix, Values
from slackwater.runtime.current.naming import BySpark, named_groups

KEPT_BACK = 1e-6
"""The share of a width that is not given away: what sums of floats may lose is told as part of the answer."""


@dataclass(frozen=True)
class Intervals:
    """Some groups of an item at a time: both ends, and the rows that they rest on."""

    rows: Ints
    low: Floats
    high: Floats
    counted: Ints


class BoundedQuery:
    """A query under PRECISION: one standing query for each group."""

    def __init__(self, form: Bounded, matrix: Matrix, columns: Sequence[str]) -> None:
        assert isinstance(form.step.contract, Precision)
        self.form = form
        self.matrix = matrix
        self.contract = form.step.contract
        self._columns = {name: place for place, name in enumerate(columns)}
        self.items: list[Weighed] = []
        self._asked: list[Weighed] = []
        self.counted: Ints = np.empty(0, np.int64)
        self.awaited: Ints = np.empty(0, np.int64)
        """By group: how many of its keys are announced, and have told nothing yet."""
        self.apart: Bools = np.empty(0, bool)
        """By key: whether no sum can tell it to this query."""
        self._here: Bools = np.empty(0, bool)
        """By key: whether it was not withdrawn."""
        self.named: dict[str, pa.Array] = {}
        self._members: csc_array | None = None
        self._entries: Entries | None = None
        self.cover: Cover | None = None
        """What tells the rows their keys, where sums do."""
        self.means: Means | None = None
        """What tells the rows their means over a sliding time, where agents tell means."""
        self.ready = False
        """Whether means tell all of it, so that no bound of a moment is needed."""

    @property
    def step(self) -> Step:
        return self.form.step

    @property
    def entries(self) -> Entries:
        """Which rows read which keys."""
        if self._entries is None or len(self._entries.row) != self.matrix.entries:
            self._entries = entries_of(self.matrix)
        return self._entries

    @property
    def sums_up(self) -> bool:
        """Whether sums of keys can tell its items: they are sums themselves."""
        return all(item.extreme is None for item in self.form.items)

    @property
    def lenient(self) -> int | None:
        """The window over which it needs no more than means: all items are means over it of plain sums."""
        moves = {(item.move.extreme, item.move.size) if item.move else None for item in self.form.items}
        counting = [f"a{i}" for i, call in enumerate(self.form.linear.calls) if call.function != "sum"]
        if len(moves) > 1 or any(reads(item.sql, counting) for item in self.form.items):
            return None
        (move,) = moves
        # where values count only together, who had both when is not known of a time that has passed; and
        # where something is added for each value, how many there were
        alone = all(len(columns) <= 1 for columns in self._together())
        terms = [term.signal for call in self.form.linear.calls for term in call.terms]
        alone &= None not in terms and all(not self.form.signals[s][1] for s in terms if s is not None)
        return move[1] if move is not None and move[0] == "avg" and self.sums_up and alone else None

    def _halves(self, there: Bools) -> Bools:
        """By key: whether it has only some of the values that count together, so that no sum can tell it."""
        found = np.zeros(len(there), bool)
        for columns in self._together():
            if len(columns) > 1:
                both = there[:, list(columns)]
                found |= both.any(axis=1) & ~both.all(axis=1)
        return found

    def _together(self) -> list[set[int]]:
        """By call: the columns that must all have a value for a key to count."""
        signals = self.form.signals
        return [
            {self._columns[c] for s in call.signals for c in signals[s][0]} for call in self.form.linear.calls
        ]

    def covered(self, sums: Mapping[int, LiveSum], window: int = 0) -> Cover | None:
        """What tells the rows their keys if there are these sums; None: the keys do.

        With a ``window``, what tells the means over it.
        """
        some = {key: told for key, told in sums.items() if told.window == window}
        if not window and self.apart.any():
            some = {key: told for key, told in some.items() if not self.apart[told.members].any()}
        if not some or not self.sums_up:
            return None
        cover = Cover.made(self.step.name, self.entries, some, self.matrix.width)
        return cover if len(cover.sums) else None

    def weigh(self, belief: Belief) -> None:
        """Weigh the objects anew: keys have come, or values have come or gone."""
        self._here = here = belief.here
        known = belief.known & here
        there = ~np.isnan(belief.value.reshape(belief.size, belief.columns)) & here[:, None]
        self.apart = self._halves(there)
        self.cover = self.covered(belief.live)
        self.items = self._weighed(known, there, returning=belief.known & belief.may_return)
        values = self._values(known, there)
        self.counted = self.matrix.rows_of(values)
        # what is granted to keys that have not spoken yet must be allowed for: with their weights, and with
        # the counts of those that have, which can only grow; without any, with those of all
        self._asked = self._weighed(here, np.broadcast_to(here[:, None], there.shape), values)
        # who comes and goes is told by any column of a key
        keys = self.matrix.with_data(np.ones(self.matrix.entries))
        self.awaited = self._awaited(here & ~belief.known)
        placed = keys.indices.astype(np.int64) * len(self._columns)
        members = csr_array((keys.data, placed, keys.indptr), self._nothing().shape)
        for item in self.items:
            ones = csr_array(
                (np.ones(item.weights.nnz), item.weights.indices, item.weights.indptr), members.shape
            )
            members = csr_array(members + ones)
        window = self.lenient
        over = None if window is None else self.covered(belief.live, window)
        self.means = None
        if over is not None:
            # what has gone may have been there within the window
            every = self._weighed(np.ones(belief.size, bool), np.ones(there.shape, bool))
            self.means = Means.made(over, self.items, every, known, len(self._columns))
        for cover in (c for c in (self.cover, over) if c is not None):
            row, teller = cover.keys()
            at = (row, teller * len(self._columns))
            members = csr_array(members + csr_array((np.ones(len(row)), at), shape=members.shape))
        if over is not None:
            told = [abs(over.applied(item.weights, len(self._columns))) for item in self.items]
            members = csr_array(sum(told, members))
        if self.cover is not None:
            for item in self.items:
                item.weights = item.others = self.cover.applied(item.weights, len(self._columns))
                if item.absent is not None:
                    item.absent = self.cover.applied(item.absent, len(self._columns))
                members = csr_array(members + abs(item.weights))
        self._members = csc_array(members)

    def _awaited(self, silent: Bools) -> Ints:
        """By group: how many of some keys count in it; what no call counts is never asked for."""
        asked = np.zeros(self.matrix.entries, bool)
        for index in range(len(self.form.linear.calls)):
            asked |= self.matrix.weights(f"n{index}").data > 0
        found: Ints = (self.matrix.with_data(asked.astype(np.float64)) @ silent).astype(np.int64)
        return found

    def _weighed(
        self, known: Bools, there: Bools, counted: Values | None = None, returning: Bools | None = None
    ) -> list[Weighed]:
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
            made.absent = self._absent(item, known if returning is None else known | returning, there)
        return items

    def _absent(self, item: BoundedItem, known: Bools, there: Bools) -> csr_array:
        """Objects of keys that are known, which count in a call of an item and have no value.

        Those that were withdrawn and may come back are among them.
        What is only counted weighs nothing, and is among them with a value too: it may have gone.
        """
        matrix, count = self.matrix, len(self._columns)
        total = self._nothing()
        sql = item.sql
        for index, call in enumerate(self.form.linear.calls):
            if not reads(sql, [f"a{index}"]):
                continue
            named = {self._columns[c]: None for s in call.signals for c in self.form.signals[s][0]}
            # whether a row is there at all is vouched for with any of its values
            for place in named or ({0: None} if call.function == "count" else {}):
                weights = matrix.weights(f"n{index}")
                open_ended = known if call.function == "count" else known & ~there[:, place]
                data = weights.data * open_ended[weights.indices]
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
    ) -> Weighed:
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
        return Weighed(made[0], constant + factor * offset, least=least, others=made[1])

    def _item(
        self,
        item: BoundedItem,
        calls: list[tuple[csr_array, Floats]],
        counts: list[Floats],
        values: Values,
    ) -> Weighed:
        """An item as a combination of calls: what it is at 0 and at each unit tells its weights."""
        functions = [call.function for call in self.form.linear.calls]
        names = [f"a{i}" for i in range(len(calls))]
        size = self.matrix.size
        base = {
            n: np.zeros(size) if f != "count" else c for n, f, c in zip(names, functions, counts, strict=True)
        }
        sql = item.sql
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
        return Weighed(weights, constant)

    def granted_width(self, width: float) -> float:
        """What widths may add up to: a little less than is promised."""
        return width * (1 - KEPT_BACK)

    def asks(
        self, cover: Cover | None = None, promised: float | None = None, *, sums_only: bool = False
    ) -> tuple[list[tuple[Ints, Ints, Floats]], list[tuple[Ints, Floats]]]:
        """Entries (group, object, weight) by item, and the most that objects of extremes may have.

        Where sums tell the rows their keys, by a cover, they are asked for in their place; ``sums_only``:
        only they are. ``promised`` is the width of answers, if it is not the one of the contract.
        """
        rows, ceilings = [], []
        width = self.granted_width(self.contract.width if promised is None else promised)
        for place, item in enumerate(self._asked):
            weights = item.weights
            if cover is not None:
                weights = cover.applied(weights, len(self._columns))
            if self.means is not None and cover is self.means.cover:
                # a mean is needed for as long as it is told, even if all of its keys have gone
                inside = np.isin(weights.indices // len(self._columns), cover.sums)
                own = (np.where(inside, 0.0, weights.data), weights.indices, weights.indptr)
                weights = csr_array(csr_array(own, shape=weights.shape) + self.means.told[place].weights)
                weights.eliminate_zeros()
            entries = weights.tocoo()
            if sums_only and cover is not None:
                by_sum = np.isin(entries.coords[1] // len(self._columns), cover.sums)
                at = (entries.coords[0][by_sum], entries.coords[1][by_sum])
                entries = csr_array((entries.data[by_sum], at), shape=weights.shape).tocoo()
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
                counts = (counted.data > 0) & self._here[counted.indices]
                rows_of, keys_of = counted.tocoo().coords
                some = csr_array(
                    (np.ones(int(counts.sum())), (rows_of[counts], keys_of[counts])), shape=counted.shape
                )
                if cover is not None:
                    some = cover.applied(some, 1)
                keys = np.unique(some.indices).astype(np.int64)
                # of rows any column tells
                named = [self._columns[c] for s in call.signals for c in self.form.signals[s][0]]
                places = np.array(named or range(len(self._columns)), np.int64)
                told = (keys[:, None] * len(self._columns) + places).ravel()
                ceilings.append((told, np.full(len(told), TOLD)))
        return rows, ceilings

    def touched(self, objects: Ints) -> Ints:
        """The groups that some objects are in."""
        if self._members is None or not len(objects):
            return np.empty(0, np.int64)
        found: Ints = np.unique(part_of(self._members, objects).indices).astype(np.int64)
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

    def name_groups(self, by_spark: BySpark) -> None:
        """Make the items that are of the groups alone, for all groups that there are."""
        found = named_groups(self.step, self.matrix.groups.columns, by_spark)
        self.named = self.named if found is None else found
