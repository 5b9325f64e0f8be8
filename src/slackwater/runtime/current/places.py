"""Tuples of values and their places in arrays: keys of a stream, groups of a query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]

_FEW = 64
"""Up to so many tuples, looking each up costs less than encoding all that are known."""


class Places:
    """Tuples in the order in which they came first; a tuple's place never changes.

    >>> places = Places(1)
    >>> places.find([pa.array(["b", "a", "b", None])], add=True)
    array([0, 1, 0, 2])
    >>> places.find([pa.array(["c", "a"])])
    array([-1,  1])
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.columns: list[pa.Array] = []
        self._known: dict[tuple[Any, ...], int] | None = {}
        self.size = 0

    def find(self, columns: Sequence[pa.Array | pa.ChunkedArray], *, add: bool = False) -> Ints:
        """The place of each tuple; -1 where it is new and not to be added."""
        whole = [_whole(column) for column in columns]
        count = len(whole[0]) if whole else 0
        if self.width == 0:
            raise ValueError("tuples without values have no places of their own")
        if not self.columns:
            self.columns = [column[:0] for column in whole]
        if count <= _FEW or any(pa.types.is_nested(column.type) for column in whole):
            return self._one_by_one(whole, count, add)
        return self._together(whole, count, add)

    def _one_by_one(self, columns: Sequence[pa.Array], count: int, add: bool) -> Ints:
        known = self._dictionary()
        rows = list(zip(*(_values(column) for column in columns), strict=True))
        found = np.empty(count, np.int64)
        fresh: list[int] = []
        for index, row in enumerate(rows):
            place = known.get(row, -1)
            if place < 0 and add:
                place = known[row] = self.size + len(fresh)
                fresh.append(index)
            found[index] = place
        self._append(columns, np.array(fresh, np.int64))
        return found

    def _together(self, columns: Sequence[pa.Array], count: int, add: bool) -> Ints:
        """All at once: known ones before new ones, each distinct tuple by its first place."""
        codes = np.zeros(self.size + count, np.int64)
        for known, column in zip(self.columns, columns, strict=True):
            both = pa.concat_arrays([known.cast(column.type), column])
            encoded = both.dictionary_encode("encode")
            width = len(encoded.dictionary)
            codes = codes * width + encoded.indices.to_numpy()
            # small again, so that many columns do not outgrow a number
            codes = np.unique(codes, return_inverse=True)[1]
        _, first, code = np.unique(codes, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int64)
        rank[np.argsort(first, kind="stable")] = np.arange(len(first))
        places = rank[code][self.size :]
        new = places >= self.size
        if not add:
            return np.where(new, -1, places)
        fresh = np.sort(first[first >= self.size]) - self.size
        self._known = None
        self._append(columns, fresh)
        return places

    def _append(self, columns: Sequence[pa.Array], fresh: Ints) -> None:
        if not len(fresh):
            return
        chosen = pa.array(fresh)
        self.columns = [
            pa.concat_arrays([known.cast(column.type), column.take(chosen)])
            for known, column in zip(self.columns, columns, strict=True)
        ]
        self.size += len(fresh)

    def _dictionary(self) -> dict[tuple[Any, ...], int]:
        if self._known is None:
            rows = zip(*(_values(column) for column in self.columns), strict=True)
            self._known = {row: place for place, row in enumerate(rows)}
        return self._known

    def table(self) -> pa.Table:
        """The tuples in order, to be kept."""
        return pa.table({f"c{i}": column for i, column in enumerate(self.columns)})

    def load(self, table: pa.Table) -> None:
        """Go on from what was kept."""
        self.columns = [_whole(table[name]) for name in table.column_names]
        self.size = table.num_rows
        self._known = None


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_floating(column.type):
        # -0.0 and 0.0 are one key, as in Spark
        column = pc.if_else(pc.equal(column, 0.0), pa.scalar(0.0, column.type), column)
    return column


def _values(column: pa.Array) -> list[Any]:
    """Python values that a dictionary takes; all NaNs are one."""
    values: list[Any] = column.to_pylist()
    if pa.types.is_floating(column.type):
        return [np.nan if v is not None and v != v else v for v in values]
    if pa.types.is_nested(column.type):
        return [repr(v) for v in values]
    return values
