"""Means over a sliding time that agents tell: what a query makes of them.

Where a query is a mean over a window of plain sums, agents may tell the means of their keys over that window
instead of what they are at every moment (`edge/means.py`). A row is then what the means come to, plus what
keys come to by their own bounds that are in no mean yet: they are new, so before they came they added
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from slackwater.edge.widths import Bools, Floats, Ints
from slackwater.plan.model import Move
from slackwater.runtime.bounds.covers import Cover
from slackwater.runtime.bounds.sliding import Sliding
from slackwater.runtime.bounds.weighing import Weighed

Ends = tuple[Floats, Floats, Floats]
"""Both ends, and a constant that is to be added to them."""


@dataclass(frozen=True, eq=False)
class Means:
    """A query's items by what means tell of them, and by what keys tell that are in none."""

    cover: Cover
    told: list[Weighed]
    """By item, for every row."""
    inside: Ints
    """The keys that are in a mean."""
    row: Ints
    key: Ints
    """Rows and keys of the entries that are known and in none."""
    rest: list[Weighed]
    """By item, for every one of these entries."""

    @staticmethod
    def made(
        cover: Cover, items: Sequence[Weighed], asked: Sequence[Weighed], known: Bools, columns: int
    ) -> Means:
        """From the items as they are now, and as they are if all keys have values."""
        outside = (cover.told < 0) & known[cover.key]
        row, key = cover.row[outside], cover.key[outside]
        codes = row * cover.width + key
        told, rest = [], []
        for item, whole in zip(items, asked, strict=True):
            # a member that has no value now may have had one in the window
            weights = cover.applied(whole.weights, columns)
            entries = weights.tocoo()
            by_mean = np.isin(entries.coords[1] // columns, cover.sums)
            at = (entries.coords[0][by_mean], entries.coords[1][by_mean])
            told.append(Weighed(csr_array((entries.data[by_mean], at), shape=weights.shape), item.constant))
            entries = item.weights.tocoo()
            code = entries.coords[0].astype(np.int64) * cover.width + entries.coords[1] // columns
            place = np.searchsorted(codes, code)
            found = np.minimum(place, max(len(codes) - 1, 0))
            alone = (codes[found] == code) if len(codes) else np.zeros(len(code), bool)
            at = (found[alone], entries.coords[1][alone])
            shape = (len(codes), weights.shape[1])
            rest.append(Weighed(csr_array((entries.data[alone], at), shape=shape), np.zeros(len(codes))))
        return Means(cover, told, np.unique(cover.key[cover.told >= 0]), row, key, rest)

    def young(self, begun: Ints, since: int) -> Ints:
        """Rows with a key that counts only after a time: its agent may have taken it in before."""
        inside = self.cover.told >= 0
        found: Ints = np.unique(self.cover.row[inside & (begun[self.cover.key] > since)])
        return found


class Rest:
    """What keys come to over the window that are in no mean yet, each by itself and since it came.

    Guarantee: once a mean tells a key, which it does of a whole window, nothing is left of it here.
    """

    def __init__(self, moves: Sequence[Move]) -> None:
        self._slidings = [Sliding(move) for move in moves]
        self._places: dict[tuple[int, int], int] = {}
        """By row and key: its place in them."""
        self._was: set[int] | None = None
        """The keys that have been in means since all were; None: they never were, or one is no longer."""
        self._used = 0

    def weighed(self, means: Means | None) -> bool:
        """Others are in means now; whether means tell all there is, but for what is new."""
        outside = set() if means is None else set(means.key.tolist())
        if means is None or (self._was is not None and outside & self._was):
            self._was = None
        if means is not None and (self._was is not None or not outside):
            self._was = (self._was or set()) | set(means.inside.tolist())
        there, told = dict[tuple[int, int], None](), set[tuple[int, int]]()
        if means is not None:
            there = dict.fromkeys(zip(means.row.tolist(), means.key.tolist(), strict=True))
            told = means.cover.entries()
        # one that is neither has gone, and may have been there within the window
        gone = [
            entry for entry in self._places if entry in told or (entry not in there and self._past(entry))
        ]
        for sliding in self._slidings:
            if gone and len(sliding.low):
                places = np.array([self._places[entry] for entry in gone])
                sliding.forget(places[places < len(sliding.low)])
        for entry in gone:
            del self._places[entry]
        fresh = [entry for entry in there if entry not in self._places]
        taken = set(self._places.values())
        free = (place for place in count() if place not in taken)
        self._places |= dict(zip(fresh, free, strict=False))
        self._used = max(self._used, *(place + 1 for place in self._places.values()), 0)
        return self._was is not None

    def _past(self, entry: tuple[int, int]) -> bool:
        """Whether nothing is left of an entry in the window."""
        place = self._places[entry]
        return not any(s.sizes[:, place].any() for s in self._slidings if place < len(s.low))

    def take(self, means: Means, low: Floats, high: Floats, at: int) -> None:
        """Bounds have changed at a time."""
        entries = list(zip(means.row.tolist(), means.key.tolist(), strict=True))
        others = self._places.keys() - set(entries)
        places = np.array([self._places[entry] for entry in (*entries, *others)], np.int64)
        every, none = np.arange(len(entries)), np.full(len(others), np.nan)
        for sliding, item in zip(self._slidings, means.rest, strict=True):
            if len(places) or sliding.begun >= 0:
                bottom, top = item.ends(every, low, high)
                sliding.take(at, places, np.concatenate([bottom, none]), np.concatenate([top, none]))

    def over(self, means: Means, item: int, until: int, rows: int, bounds: tuple[Floats, Floats]) -> Ends:
        """Both ends of what an item is over the window that ends at a time, without its constant."""
        told = means.told[item]
        bottom, top = told.ends(np.arange(rows), *bounds)
        sliding = self._slidings[item]
        row = np.array([entry[0] for entry in self._places], np.int64)
        places = np.array(list(self._places.values()), np.int64)
        below, above = np.zeros(self._used), np.zeros(self._used)
        for _ in sliding.ends(until):
            below, above = sliding.total(self._used)
        for end, rest in ((bottom, below), (top, above)):
            np.add.at(end, row, rest[places])
        return bottom - told.constant[:rows], top - told.constant[:rows], told.constant[:rows]

    def to_parts(self) -> tuple[dict[str, npt.NDArray[np.generic]], list[Any]]:
        """All of it, to be kept."""
        arrays: dict[str, npt.NDArray[np.generic]] = {}
        times = []
        for number, sliding in enumerate(self._slidings):
            own, noted = sliding.to_parts()
            arrays |= {f"{number}.{name}": array for name, array in own.items()}
            times.append(noted)
        places = [[*entry, place] for entry, place in self._places.items()]
        return arrays, [None if self._was is None else sorted(self._was), places, self._used, times]

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]], noted: list[Any]) -> None:
        was, places, self._used, times = noted
        self._was = None if was is None else set(was)
        self._places = {(row, key): place for row, key, place in places}
        for number, (sliding, own) in enumerate(zip(self._slidings, times, strict=True)):
            prefix = f"{number}."
            sliding.load({n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}, own)
