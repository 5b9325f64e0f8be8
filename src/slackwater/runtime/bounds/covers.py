"""What tells each row of a query its keys: the keys themselves, or sums that agents make of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from slackwater.edge.widths import Floats, Ints
from slackwater.planners.precision_sums import Entries, covered
from slackwater.runtime.bounds.belief import LiveSum
from slackwater.runtime.current.matrix import Matrix


def scope_of(query: str, row: int) -> str:
    """The scope of a sum that is for one row of a query alone."""
    return f"{row}:{query}"


def entries_of(matrix: Matrix) -> Entries:
    """The entries of a query's matrix; of one kind are those that have all weights in common."""
    keys = matrix.with_data(np.zeros(matrix.entries))
    row = np.repeat(np.arange(matrix.size), matrix.lengths())
    return Entries(row, keys.indices.astype(np.int64), matrix.kinds())


@dataclass(frozen=True, eq=False)
class Cover:
    """By entry of a matrix, in its order: the key of the sum that tells it, or -1."""

    row: Ints
    key: Ints
    told: Ints
    width: int
    """Keys, and so the factor by which rows and keys make one number."""

    @staticmethod
    def made(query: str, entries: Entries, sums: Mapping[int, LiveSum], width: int) -> Cover:
        """The cover of a query's entries by sums, given by their keys."""
        chosen = [k for k, s in sums.items() if not s.scope or s.scope.split(":", 1)[1] == query]
        numbers = np.array(chosen, np.int64)
        scopes = [sums[k].scope for k in chosen]
        rows = np.array([int(s.split(":", 1)[0]) if s else -1 for s in scopes], np.int64)
        place = covered(entries, [sums[k].members for k in chosen], rows)
        told = np.where(place >= 0, numbers[place], -1) if len(numbers) else place
        return Cover(entries.row, entries.key, told, width)

    @property
    def sums(self) -> Ints:
        """The keys of the sums that are used."""
        return np.unique(self.told[self.told >= 0])

    def entries(self) -> set[tuple[int, int]]:
        """The rows and keys that sums tell."""
        told = self.told >= 0
        return set(zip(self.row[told].tolist(), self.key[told].tolist(), strict=True))

    def keys(self) -> tuple[Ints, Ints]:
        """Rows, and the keys or sums that tell them, each once."""
        teller = np.where(self.told >= 0, self.told, self.key)
        codes = np.unique(self.row * self.width + teller)
        return codes // self.width, codes % self.width

    def applied(self, weights: csr_array, columns: int) -> csr_array:
        """Weights of objects with those of keys that a sum tells put on the sum, once.

        All members of a sum weigh alike in a row, but for those that have no value and weigh nothing.
        """
        if not (self.told >= 0).any():
            return weights
        entries = weights.tocoo()
        row = entries.coords[0].astype(np.int64)
        key, column = np.divmod(entries.coords[1].astype(np.int64), columns)
        codes = self.row * self.width + self.key
        place = np.searchsorted(codes, row * self.width + key)
        found = np.minimum(place, len(codes) - 1)
        told = np.where(codes[found] == row * self.width + key, self.told[found], -1)
        teller = np.where(told >= 0, told, key) * columns + column
        order = np.lexsort((-np.abs(entries.data), teller, row))
        row, teller, data = row[order], teller[order], entries.data[order]
        first = np.ones(len(row), bool)
        first[1:] = (row[1:] != row[:-1]) | (teller[1:] != teller[:-1])
        start = np.searchsorted(row[first], np.arange(weights.shape[0] + 1))
        values: Floats = data[first]
        return csr_array((values, teller[first], start), shape=weights.shape)


def differ(first: Cover | None, second: Cover | None) -> bool:
    """Whether two covers of one query tell any row by something else."""
    if first is None or second is None:
        return first is not second
    return not np.array_equal(first.told, second.told)
