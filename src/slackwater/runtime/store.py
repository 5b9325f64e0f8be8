"""The driver's cache of a pane table: panes by groups, one dense array per partial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plan.algebra import Merge
from slackwater.plan.panes import Ints
from slackwater.runtime.merge import Columns, fold_runs, merge_for, moments


class Values:
    """One partial as an array of panes by groups, with its type in Arrow remembered."""

    def __init__(self, merge: str, type_: pa.DataType) -> None:
        self.merge = merge
        self.type = type_
        self.kind = "seen" if merge == "any" else _kind(type_)
        self.empty: Any = _EMPTY[self.kind](merge)
        self.dtype: np.dtype[Any] = np.dtype(
            {"int": np.int64, "float": np.float64, "object": object, "seen": np.bool_}[self.kind]
        )

    def array(self, shape: tuple[int, int]) -> npt.NDArray[Any]:
        return np.full(shape, self.empty, dtype=self.dtype)

    def read(self, column: pa.ChunkedArray) -> npt.NDArray[Any]:
        """Values as numpy, nulls as what merges with anything."""
        if self.kind == "object":
            # one by one: numpy would make a table of lists that are equally long
            return np.fromiter(column.to_pylist(), dtype=object, count=len(column))
        if self.kind == "int":
            column = pc.cast(_as_int(column), pa.int64())
        else:
            column = pc.cast(column, pa.float64())
        values: npt.NDArray[Any] = column.fill_null(self.empty).to_numpy()
        return values

    def write(self, values: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> pa.Array:
        """Values back in their own type; null where nothing was merged."""
        if self.kind == "object":
            kept = [v if p else None for v, p in zip(values, present, strict=True)]
            if pa.types.is_decimal(self.type):
                # a sum that outgrows its type is NULL, as in Spark
                most = 10 ** (self.type.precision - self.type.scale)
                kept = [v if v is None or abs(v) < most else None for v in kept]
            return pa.array(kept, type=self.type)
        plain = pa.array(values, mask=~present)
        if pa.types.is_boolean(self.type):
            return pc.cast(plain, pa.bool_())
        if pa.types.is_date32(self.type) or pa.types.is_time32(self.type):
            plain = plain.cast(pa.int32())
        return plain.cast(self.type)


def _kind(type_: pa.DataType) -> str:
    if pa.types.is_floating(type_):
        return "float"
    if pa.types.is_integer(type_) or pa.types.is_boolean(type_) or pa.types.is_temporal(type_):
        return "int" if not pa.types.is_interval(type_) else "object"
    return "object"


def _as_int(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_date32(column.type) or pa.types.is_time32(column.type):
        return column.cast(pa.int32())
    if pa.types.is_boolean(column.type):
        return column.cast(pa.int8())
    return column


_EMPTY: dict[str, Any] = {
    "int": lambda merge: {"min": np.iinfo(np.int64).max, "max": np.iinfo(np.int64).min}.get(merge, 0),
    # a minimum passes over NaN and a maximum over -inf, so these stand for nothing
    "float": lambda merge: {"min": np.nan, "max": -np.inf}.get(merge, 0.0),
    "object": lambda merge: None,
    "seen": lambda merge: False,
}


def one_nan(column: pa.ChunkedArray) -> list[Any]:
    """Keys as Python values; all NaNs are one object, so that they are one group as in Spark."""
    values: list[Any] = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [np.nan if v is not None and v != v else v for v in values]
    return values


def seen(name: str) -> str:
    """The name of the array that says where a partial has had a value."""
    return name + "?"


class TooLargeError(Exception):
    """Panes times groups outgrew what the driver may hold."""


class PaneStore:
    """Panes of one table, sorted by start, for windows to be read from.

    ``keys`` are the names of the group columns in the partials' tables (``q``, ``k0`` …). For a
    partial in ``nullable`` a second array, under its name and a ``?``, says where there was a value.
    ``limit`` is how many cells, panes times groups, it may hold.
    """

    def __init__(
        self,
        keys: Sequence[str],
        merges: Mapping[str, Merge],
        triples: Mapping[str, tuple[str, str]] | None = None,
        nullable: frozenset[str] = frozenset(),
        limit: int | None = None,
    ) -> None:
        self._limit = limit
        self.keys = tuple(keys)
        self.merges: dict[str, str] = {**merges, **{seen(name): "any" for name in nullable}}
        self.nullable = nullable
        self.triples = dict(triples or {})
        """By mean: its count and its m2."""
        self.panes: list[int] = []
        self.groups: dict[tuple[Any, ...], int] = {}
        self.key_types: dict[str, pa.DataType] = {}
        self.columns: dict[str, Values] = {}
        self._data: dict[str, npt.NDArray[Any]] = {}
        self._row: dict[int, int] = {}

    @property
    def cells(self) -> int:
        return len(self.panes) * max(1, len(self.groups))

    def add(self, table: pa.Table) -> None:
        """Merge the partials of a batch into the panes."""
        table = table.filter(pc.is_valid(table["pane"]))
        if table.num_rows == 0:
            return
        panes = table["pane"].to_numpy()
        group = self._group_index(table)
        self._admit(np.unique(panes))
        if self._limit is not None and self.cells > self._limit:
            # before room is made: the arrays are dense
            raise TooLargeError
        names = [n for n in table.column_names if n in self.merges]
        for name in names:
            self._column(name, table[name].type)
            if name in self.nullable:
                self._column(seen(name), pa.bool_())
        self._grow()
        row = np.array([self._row[int(p)] for p in panes], dtype=np.int64)
        incoming = {n: self.columns[n].read(table[n]) for n in names}
        for name in self.nullable.intersection(names):
            incoming[seen(name)] = pc.is_valid(table[name]).to_numpy()
        # a cell may come several times where files were gathered; each time takes its turn
        rest = np.arange(len(row))
        cell = row * len(self.groups) + group
        while len(rest):
            _, first = np.unique(cell[rest], return_index=True)
            turn = rest[first] if len(first) < len(rest) else rest
            self._merge(row[turn], group[turn], {n: v[turn] for n, v in incoming.items()})
            rest = np.delete(rest, first) if len(first) < len(rest) else rest[:0]

    def _column(self, name: str, type_: pa.DataType) -> None:
        if name not in self.columns:
            self.columns[name] = Values(self.merges[name], type_)
            self._data[name] = self.columns[name].array((len(self._row), len(self.groups)))

    def _merge(self, row: Ints, group: Ints, incoming: Mapping[str, npt.NDArray[Any]]) -> None:
        for names in self._bundles(incoming):
            old = tuple(self._data[n][row, group] for n in names)
            new = tuple(incoming[n] for n in names)
            merge = moments if len(names) == 3 else merge_for(self.merges[names[0]], old[0].dtype)
            for name, merged in zip(names, merge(old, new), strict=True):
                if len(names) == 1 or self.merges[name] != "sum":
                    self._data[name][row, group] = merged

    def _bundles(self, present: Mapping[str, Any] | None = None) -> list[tuple[str, ...]]:
        """Columns that merge together: threes of count, mean and m2, and single ones."""
        names = list(self.columns if present is None else present)
        bundles: list[tuple[str, ...]] = []
        triples = [
            (self.triples[name][0], name, self.triples[name][1])
            for name in names
            if self.merges[name] == "mean"
        ]
        # threes first: they need the counts from before the batch
        bundles += triples
        bundles += [(name,) for name in names if self.merges[name] not in ("mean", "m2")]
        return bundles

    def fold(self, names: Sequence[str], low: Ints, high: Ints) -> dict[str, npt.NDArray[Any]]:
        """For runs [low, high) of the sorted panes, the merged columns: runs by groups."""
        order = np.array([self._row[p] for p in self.panes], dtype=np.int64)
        folded: dict[str, npt.NDArray[Any]] = {}
        wanted = [n for n in names if n in self.columns]
        wanted += [seen(n) for n in wanted if n in self.nullable]
        for bundle in self._bundles(dict.fromkeys(wanted)):
            columns: Columns = tuple(self._data[n][order] for n in bundle)
            merge = moments if len(bundle) == 3 else merge_for(self.merges[bundle[0]], columns[0].dtype)
            for name, values in zip(bundle, fold_runs(columns, low, high, merge), strict=True):
                folded[name] = values
        return folded

    def prune(self, before: int) -> None:
        """Forget the panes that start before a time, and the groups that are only in those."""
        if not self.panes or self.panes[0] >= before:
            return
        kept = [p for p in self.panes if p >= before]
        rows = np.array([self._row[p] for p in kept], dtype=np.int64)
        self._data = {n: d[rows] for n, d in self._data.items()}
        self.panes = kept
        self._row = {p: i for i, p in enumerate(kept)}
        self._forget_groups()

    def _forget_groups(self) -> None:
        counts = self._counts()
        if not self.keys or not counts or len(self.groups) < 64:
            return
        alive = np.zeros(len(self.groups), dtype=bool)
        for name in counts:
            alive |= (self._data[name][:, : len(self.groups)] != 0).any(axis=0)
        if alive.sum() * 2 > len(alive):
            return
        chosen = np.flatnonzero(alive)
        self._data = {n: np.ascontiguousarray(d[:, chosen]) for n, d in self._data.items()}
        old = list(self.groups)
        self.groups = {old[index]: new for new, index in enumerate(chosen)}

    def table(self) -> pa.Table:
        """All that is held, as partials to be added again: a snapshot."""
        present = self._counts()
        groups = list(self.groups)
        shape = (len(self.panes), len(groups))
        held = np.zeros(shape, dtype=bool)
        order = np.array([self._row[p] for p in self.panes], dtype=np.int64)
        for name in present:
            held |= self._data[name][order][:, : len(groups)] != 0
        pane_index, group_index = np.nonzero(held)
        arrays: dict[str, pa.Array] = {"pane": pa.array(np.array(self.panes, dtype=np.int64)[pane_index])}
        for position, key in enumerate(self.keys):
            arrays[key] = pa.array([groups[g][position] for g in group_index], type=self.key_types[key])
        everything = np.ones(len(pane_index), dtype=bool)
        for name, values in self.columns.items():
            if values.kind == "seen":
                continue
            data = self._data[name][order][:, : len(groups)][pane_index, group_index]
            mask = everything
            if name in self.nullable:
                mask = self._data[seen(name)][order][:, : len(groups)][pane_index, group_index]
            arrays[name] = values.write(data, mask)
        return pa.table(arrays)

    def _counts(self) -> list[str]:
        """Columns that count rows: a group is in a pane where one of them is not 0."""
        return [n for n in self.columns if self.merges[n] == "sum" and n not in self.nullable]

    def _group_index(self, table: pa.Table) -> Ints:
        for key in self.keys:
            self.key_types.setdefault(key, table[key].type)
        if not self.keys:
            self.groups.setdefault((), 0)
            return np.zeros(table.num_rows, dtype=np.int64)
        columns = [one_nan(table[key]) for key in self.keys]
        known = self.groups
        index = np.empty(table.num_rows, dtype=np.int64)
        for i, group in enumerate(zip(*columns, strict=True)):
            found = known.get(group)
            if found is None:
                found = known[group] = len(known)
            index[i] = found
        return index

    def _admit(self, panes: Ints) -> None:
        fresh = [int(p) for p in panes if int(p) not in self._row]
        for pane in fresh:
            self._row[pane] = len(self._row)
        if fresh:
            self.panes = sorted(self._row)

    def _grow(self) -> None:
        """Make room by doubling, so that a growing store copies each cell a bounded number of times."""
        for name, data in self._data.items():
            rows, groups = len(self._row), len(self.groups)
            if data.shape[0] >= rows and data.shape[1] >= groups:
                continue
            shape = (
                rows if data.shape[0] >= rows else max(rows, data.shape[0] * 2),
                groups if data.shape[1] >= groups else max(groups, data.shape[1] * 2),
            )
            bigger = self.columns[name].array((max(shape[0], data.shape[0]), max(shape[1], data.shape[1])))
            bigger[: data.shape[0], : data.shape[1]] = data
            self._data[name] = bigger
