"""Pane and window arithmetic, pure: which windows a pane belongs to, which have closed.

Numbers are microseconds for windows over time and row numbers for windows over tuples; a *pane* is
named by where it starts, a *window* by its index: window k is [k·slide + offset, … + size).

    panes    |--|--|--|--|--|--|      width 2
    window 0 [--------)               size 6
    window 1       [--------)         slide 4
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from slackwater.plan.model import TupleWindow, Window

Ints = npt.NDArray[np.int64]

BEFORE_ALL = -(2**62)
AFTER_ALL = 2**62
"""A watermark below and above every time there is."""


def last_closed(window: Window, watermark: int) -> int:
    """The index of the last window that ends at or before the watermark.

    >>> from slackwater.plan.model import TimeWindow, TupleWindow
    >>> last_closed(TimeWindow(6, 4), 14)
    2
    >>> last_closed(TupleWindow(6, 4), 1)
    -1
    """
    index = (watermark - window.offset - window.size) // window.slide
    # rows are numbered from 0, and no window of rows begins before the first
    return max(index, -1) if isinstance(window, TupleWindow) else index


def first_start(window: Window, watermark: int) -> int:
    """Where the first window starts that has not closed: panes before it are needed no more."""
    return (last_closed(window, watermark) + 1) * window.slide + window.offset


def starts(window: Window, indices: Ints) -> Ints:
    return indices * window.slide + window.offset


def candidates(window: Window, panes: Ints, width: int, closed: int, watermark: int) -> Ints:
    """Indices of the windows that close between two watermarks and hold at least one of the panes.

    ``panes`` are sorted starts. Gaps in the data cost nothing: only windows around panes are looked at.

    >>> from slackwater.plan.model import TimeWindow
    >>> candidates(TimeWindow(6, 4), np.array([0, 2, 100]), 2, BEFORE_ALL, 14).tolist()
    [-1, 0]
    """
    if not len(panes):
        return np.empty(0, dtype=np.int64)
    low = -((-(panes + width - window.size - window.offset)) // window.slide)
    high = (panes - window.offset) // window.slide
    low = np.maximum(low, last_closed(window, closed) + 1)
    high = np.minimum(high, last_closed(window, watermark))
    # both bounds grow with the pane, so a window counted for an earlier pane is never below
    low[1:] = np.maximum(low[1:], np.maximum.accumulate(high)[:-1] + 1)
    counts = np.maximum(high - low + 1, 0)
    total = int(counts.sum())
    if total == 0:
        return np.empty(0, dtype=np.int64)
    offsets = np.repeat(np.cumsum(counts) - counts, counts)
    indices: Ints = np.repeat(low, counts) + (np.arange(total, dtype=np.int64) - offsets)
    return indices
