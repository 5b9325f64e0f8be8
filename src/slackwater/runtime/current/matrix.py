"""A query over current values as a sparse matrix: a row for each group, an entry for each key in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.sparse import csr_array

from slackwater.plan.current import CurrentStep
from slackwater.plan.linear import LinearCall
from slackwater.runtime.current.places import Places
from slackwater.statistics.diffusion import Floats
from slackwater.statistics.series import Bools, Ints


@dataclass(frozen=True)
class Values:
    """What the keys say: by signal and key, or by signal, key and time."""

    value: Floats
    there: Bools
    known: Bools
    """By key, or by key and time: whether it has had an item."""


@dataclass(frozen=True)
class Called:
    """A call's value for each group (or group and time), and where it has one."""

    value: Floats
    there: Bools


class Matrix:
    """The groups of one query and how they weigh the keys.

    Entries are in the order of rows; ``data`` holds the columns of `entries_sql` for them. A query without
    GROUP BY has one row, which is there even when no key is.
    """

    def __init__(self, step: CurrentStep, signals: Sequence[str]) -> None:
        assert step.linear is not None
        self.step = step
        self.form = step.linear
        self._signals = {sql: place for place, sql in enumerate(signals)}
        self.grouped = bool(step.step.keys)
        self.groups = Places(len(step.step.keys))
        self.width = 0
        self._row: Ints = np.empty(0, np.int64)
        self._key: Ints = np.empty(0, np.int64)
        self._data: dict[str, Floats] = {}
        self._start: Ints = np.zeros(2, np.int64)
        self._rows: int | None = None
        """Of a part: how many rows were chosen."""

    @property
    def size(self) -> int:
        """The number of rows."""
        if self._rows is not None:
            return self._rows
        return self.groups.size if self.grouped else 1

    @property
    def entries(self) -> int:
        return len(self._key)

    def extend(self, found: pa.Table, width: int) -> Ints:
        """Take the entries of new keys, ``width`` places of keys being there now; the rows they are in."""
        self.width = width
        if found.num_rows:
            columns = [found[f"g{i}"] for i in range(self.groups.width)]
            row = self.groups.find(columns, add=True) if self.grouped else np.zeros(found.num_rows, np.int64)
            key = found["key"].to_numpy().astype(np.int64)
            fresh = {n: _floats(found[n]) for n in found.column_names if n[0] != "g" and n != "key"}
            held = self._data or {n: np.empty(0) for n in fresh}
            self._row, self._key = np.concatenate([self._row, row]), np.concatenate([self._key, key])
            self._data = {n: np.concatenate([held[n], fresh[n]]) for n in fresh}
            order = np.lexsort((self._key, self._row))
            self._row, self._key = self._row[order], self._key[order]
            self._data = {n: d[order] for n, d in self._data.items()}
            touched = np.unique(row)
        else:
            touched = np.empty(0, np.int64)
        self._start = np.searchsorted(self._row, np.arange(self.size + 1))
        return touched

    def weights(self, name: str) -> csr_array:
        """One column of the entries as a matrix."""
        data = self._data.get(name, np.zeros(self.entries))
        return csr_array((data, self._key, self._start), shape=(self.size, self.width))

    def chosen(self, rows: Ints) -> Matrix:
        """The matrix of some rows alone; its groups are not."""
        part = Matrix(self.step, tuple(self._signals))
        length = self._start[rows + 1] - self._start[rows]
        part._start = np.concatenate([[0], np.cumsum(length)])
        place = np.repeat(self._start[rows] - part._start[:-1], length) + np.arange(part._start[-1])
        part._key, part.width, part._rows = self._key[place], self.width, len(rows)
        part._data = {name: data[place] for name, data in self._data.items()}
        return part

    @property
    def signals(self) -> int:
        return len(self._signals)

    def with_data(self, data: Floats) -> csr_array:
        """The entries with other numbers."""
        return csr_array((data, self._key, self._start), shape=(self.size, self.width))

    def counted(self, index: int, values: Values) -> Floats:
        """How many rows count in a call."""
        there = self._there(self.form.calls[index], values)
        found: Floats = self.weights(f"n{index}") @ there.astype(np.float64)
        return found

    def counts(self, index: int, values: Values) -> Floats:
        """For each entry 1 where its key counts in a call, else 0."""
        return self._there(self.form.calls[index], values)[self._key].astype(np.float64)

    def kinds(self) -> Ints:
        """A number for each entry: the same for those that have all weights in common."""
        columns = [self._data[name] + 0.0 for name in sorted(self._data)]
        if not self.entries or not columns:
            return np.zeros(self.entries, np.int64)
        order = np.lexsort(columns)
        other = np.zeros(self.entries, np.int64)
        for column in columns:
            found = column[order]
            other[1:] |= (found[1:] != found[:-1]) & ~(np.isnan(found[1:]) & np.isnan(found[:-1]))
        kinds = np.empty(self.entries, np.int64)
        kinds[order] = np.cumsum(other)
        return kinds

    def digest(self) -> Ints:
        """A number for each row that is another one if its keys or weights are."""
        mixed = (self._key + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        for name in sorted(self._data):
            bits = np.ascontiguousarray(self._data[name] + 0.0).view(np.uint64)
            mixed = (mixed ^ bits) * np.uint64(0xC2B2AE3D27D4EB4F)
            mixed ^= mixed >> np.uint64(29)
        total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
        found: Ints = (total[self._start[1:]] - total[self._start[:-1]]).view(np.int64)
        return found

    def lengths(self) -> Ints:
        """How many entries each row has."""
        return np.diff(self._start)

    def rows_with(self, keys: Bools) -> Bools:
        """The rows that some of the keys are in."""
        row = np.repeat(np.arange(self.size), self.lengths())
        found = np.zeros(self.size, bool)
        found[row[keys[self._key]]] = True
        return found

    def all_calls(self, values: Values) -> tuple[list[Called], Bools, Ints]:
        """All calls for all rows; which rows are there, and how many current rows each rests on."""
        calls = [self.call(index, values) for index in range(len(self.form.calls))]
        return calls, self.present(values), self.rows_of(values)

    @property
    def signal_names(self) -> tuple[str, ...]:
        return tuple(self._signals)

    def write(self, folder: Path) -> None:
        """Keep the entries as arrays that others can map into memory."""
        folder.mkdir(parents=True)
        np.save(folder / "key.npy", self._key)
        np.save(folder / "start.npy", self._start)
        np.save(folder / "shape.npy", np.array([self.size, self.width]))
        for name, data in self._data.items():
            np.save(folder / f"data-{name}.npy", data)

    @classmethod
    def read(cls, folder: Path, step: CurrentStep, signals: Sequence[str]) -> Matrix:
        """Rows that were written; their groups are not."""
        part = cls(step, signals)
        part._key = np.load(folder / "key.npy", mmap_mode="r")
        part._start = np.load(folder / "start.npy")
        part._rows, part.width = (int(n) for n in np.load(folder / "shape.npy"))
        for file in folder.glob("data-*.npy"):
            part._data[file.stem.removeprefix("data-")] = np.load(file, mmap_mode="r")
        return part

    @classmethod
    def joined(cls, parts: Sequence[Matrix], groups: Places, width: int) -> Matrix:
        """The rows of some matrices, one after the other."""
        whole = cls(parts[0].step, parts[0].signal_names)
        whole.groups, whole.width = groups, width
        lengths = np.concatenate([part.lengths() for part in parts])
        whole._row = np.repeat(np.arange(len(lengths)), lengths)
        whole._key = np.concatenate([part._key for part in parts])
        names = {name for part in parts for name in part._data}
        whole._data = {n: np.concatenate([p._data.get(n, np.zeros(p.entries)) for p in parts]) for n in names}
        whole._start = np.concatenate([[0], np.cumsum(lengths)])
        return whole

    def present(self, values: Values) -> Bools:
        """Which groups have a key that is there."""
        if not self.grouped:
            return np.ones((self.size, *values.known.shape[1:]), bool)
        found: Bools = self.weights("n") @ values.known.astype(np.float64) > 0
        return found

    def rows_of(self, values: Values) -> Ints:
        """How many rows of the current ones each group has, lookups included."""
        counted: Floats = self.weights("n") @ values.known.astype(np.float64)
        return counted.astype(np.int64)

    def call(self, index: int, values: Values) -> Called:
        """A call's value for all rows."""
        call = self.form.calls[index]
        there = self._there(call, values)
        if call.function in ("min", "max"):
            return self._extreme(index, call, values, there)
        counted: Floats = self.weights(f"n{index}") @ there.astype(np.float64)
        if call.function == "count":
            return Called(counted, np.ones(counted.shape, bool))
        total = np.zeros(counted.shape)
        for place, term in enumerate(call.terms):
            weights = self.weights(f"w{index}_{place}")
            total += weights @ self.signal(term.signal, values, there)
        some = counted > 0
        if call.function == "avg":
            total = np.divide(total, counted, out=np.full(total.shape, np.nan), where=some)
        return Called(total, some)

    def signal(self, sql: str | None, values: Values, there: Bools) -> Floats:
        """A signal with 0 where it is not there; a term without one is 1."""
        if sql is None:
            return there.astype(np.float64)
        return np.where(there, values.value[self._signals[sql]], 0.0)

    def place_of(self, sql: str) -> int:
        """Where a signal is among those of its stream."""
        return self._signals[sql]

    def _there(self, call: LinearCall, values: Values) -> Bools:
        """The keys whose row counts in a call: all its signals have a value."""
        there = values.known
        for sql in call.signals:
            there = there & values.there[self._signals[sql]]
        return there

    def _extreme(self, index: int, call: LinearCall, values: Values, there: Bools) -> Called:
        """MIN or MAX over keys: of the least and the largest weight of a key one gives its extreme."""
        # NaN is larger than any number, as in Spark: a minimum passes over it
        best, empty = (np.fmin, np.inf) if call.function == "min" else (np.maximum, -np.inf)
        shape = (self.size, *there.shape[1:])
        value, some = np.full(shape, np.nan), np.zeros(shape, bool)
        filled = self.lengths() > 0
        if not filled.any():
            return Called(value, some)
        starts = self._start[:-1][filled]
        flat = there.ndim == 1
        counts = self._data[f"n{index}"] > 0
        good = there[self._key] & (counts if flat else counts[:, None])
        (term,) = call.terms
        signal = 1.0 if term.signal is None else values.value[self._signals[term.signal]][self._key]
        ends = []
        for name in (f"low{index}", f"high{index}"):
            weight = self._data[name]
            ends.append((weight if flat else weight[:, None]) * signal)
        found = np.where(good, best(*ends), empty)
        value[filled] = best.reduceat(found, starts, axis=0)
        some[filled] = np.logical_or.reduceat(good, starts, axis=0)
        return Called(np.where(some, value, np.nan), some)


def _floats(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    cast: npt.NDArray[np.float64] = column.cast(pa.float64()).fill_null(0.0).to_numpy()
    return np.array(cast)
