"""Rows that wait for the hub, in the order in which they were put in.

They are in blocks of one size, filled one after the other, so that many take little beside themselves, and
what is left when some go is used again for what comes. Numbers of keys and times are held as they fit in four
bytes: times since the block's first. Values and bounds are in double precision, as they are promised; where
all bounds of a block are around their values and stand still, they take no memory.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from slackwater.edge.arrays import blank
from slackwater.edge.rows import Rows, joined
from slackwater.edge.widths import Bools, Floats

ROWS_PER_BLOCK = 1 << 15
"""Places of rows in a block fit in two bytes."""
_SPAN = 1 << 32
"""Microseconds that the times of a block may be apart."""


class _Block:
    """Rows from ``first`` to ``end``; times count from ``base``."""

    __slots__ = ("_at", "_centre", "_centred", "_key", "_slope", "_values", "base", "end", "first")

    def __init__(self, columns: int) -> None:
        self._key: NDArray[np.int32] = blank((ROWS_PER_BLOCK,), np.int32)
        self._at: NDArray[np.uint32] = blank((ROWS_PER_BLOCK,), np.uint32)
        self._values: Floats = blank((ROWS_PER_BLOCK, columns), np.float64)
        self._centre: Floats = blank((ROWS_PER_BLOCK, columns), np.float64)
        self._slope: Floats = blank((ROWS_PER_BLOCK, columns), np.float64)
        self.begin(0)

    def begin(self, base: int) -> None:
        """Hold nothing, and then rows from this time on."""
        self.base = base
        self.first = self.end = 0
        self._centred = True
        """Whether centres are the values and slopes 0: then neither is written down."""

    def __len__(self) -> int:
        return self.end - self.first

    @property
    def keys(self) -> NDArray[np.int32]:
        return self._key[self.first : self.end]

    def put(self, rows: Rows, start: int) -> int:
        """Take rows from a place on, as many as there is room for; how many."""
        count = min(ROWS_PER_BLOCK - self.end, len(rows) - start)
        here, there = slice(self.end, self.end + count), slice(start, start + count)
        self._key[here] = rows.key[there]
        self._at[here] = rows.at[there] - self.base
        self._values[here] = rows.values[there]
        if self._centred and not _centred(rows, there):
            self._centred = False
            self._centre[: self.end] = self._values[: self.end]
            self._slope[: self.end] = 0.0
        if not self._centred:
            self._centre[here] = rows.centre[there]
            self._slope[here] = rows.slope[there]
        self.end += count
        return count

    def first_time(self, chosen: Bools) -> int:
        """The earliest time of some of the rows."""
        return self.base + int(self._at[self.first : self.end][chosen].min())

    def rows(self, chosen: slice | Bools) -> Rows:
        """A copy of some of the rows, by their place after the first."""
        held = slice(self.first, self.end)
        at = self._at[held][chosen].astype(np.int64)
        at += self.base
        keys, values = self._key[held][chosen].astype(np.int64), self._values[held][chosen].copy()
        if self._centred:
            return Rows(keys, at, values, values, np.zeros(values.shape))
        return Rows(keys, at, values, self._centre[held][chosen].copy(), self._slope[held][chosen].copy())


def _centred(rows: Rows, some: slice) -> bool:
    """Whether bounds are around their values, and stand still."""
    values = rows.values[some]
    around = (rows.centre[some] == values) | (np.isnan(values) & np.isnan(rows.centre[some]))
    # a slope that is NaN says that its key is gone
    return bool(around.all()) and not rows.slope[some].any()


class Waiting:
    """A queue of rows.

    Guarantee: rows come out as they were put in, in that order, each once, but for those that `thin` has
    taken out.

    >>> from slackwater.edge.rows import Rows
    >>> one = np.array([[1.0], [2.0], [3.0]])
    >>> waiting = Waiting(columns=1)
    >>> waiting.put(Rows(np.array([7, 8, 7]), np.array([5, 5, 6]), one, one, 0 * one))
    >>> waiting.thin(), waiting.take(10).values.ravel().tolist()
    ((1, 5), [2.0, 3.0])
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._blocks: deque[_Block] = deque()
        self._spare: _Block | None = None
        """A block that was emptied: the next that is needed."""

    @property
    def blocks(self) -> int:
        """Blocks that hold rows."""
        return len(self._blocks)

    def put(self, rows: Rows) -> None:
        """Rows that come last."""
        count = len(rows)
        if not count:
            return
        low, high = int(rows.at.min()), int(rows.at.max())
        if high - low >= _SPAN:
            self.put(rows.part(slice(0, count // 2)))
            self.put(rows.part(slice(count // 2, None)))
            return
        done = 0
        while done < count:
            done += self._open(low, high).put(rows, done)

    def _open(self, low: int, high: int) -> _Block:
        """The block that rows of these times go into."""
        if self._blocks:
            last = self._blocks[-1]
            if last.end < ROWS_PER_BLOCK and last.base <= low and high < last.base + _SPAN:
                return last
        block = _Block(self._columns) if self._spare is None else self._spare
        self._spare = None
        block.begin(low)
        self._blocks.append(block)
        return block

    def take(self, count: int) -> Rows:
        """The first rows, at most so many."""
        parts: list[Rows] = []
        while self._blocks and count:
            block = self._blocks[0]
            parts.append(block.rows(slice(0, count)))
            block.first += len(parts[-1])
            count -= len(parts[-1])
            if not len(block):
                self._spare = self._blocks.popleft()
        return joined(parts, self._columns)

    def thin(self) -> tuple[int, int | None]:
        """Keep the newest row of every key; how many have gone, and the time of the first of them."""
        if not self._blocks:
            return 0, None
        keys = 1 + max(int(block.keys.max()) for block in self._blocks)
        newer = np.zeros(keys, bool)
        newest = np.empty(keys, np.uint16)
        every = np.arange(ROWS_PER_BLOCK, dtype=np.uint16)
        kept: list[Bools] = []
        # from the end, where the newest are
        for block in reversed(self._blocks):
            places = every[: len(block)]
            # of a key that comes twice the last place counts: numpy assigns in order
            newest[block.keys] = places
            kept.append((newest[block.keys] == places) & ~newer[block.keys])
            newer[block.keys] = True
        blocks, self._blocks = self._blocks, deque()
        gone, first = 0, None
        # a block at a time into those that were emptied: nothing large stands twice
        for _ in range(len(blocks)):
            block, here = blocks.popleft(), kept.pop()
            fewer = len(block) - int(np.count_nonzero(here))
            gone += fewer
            if fewer:
                at = block.first_time(~here)
                first = at if first is None else min(first, at)
            if not fewer and (not self._blocks or self._blocks[-1].end == ROWS_PER_BLOCK):
                self._blocks.append(block)
            else:
                self.put(block.rows(here))
                self._spare = block
        return gone, first
