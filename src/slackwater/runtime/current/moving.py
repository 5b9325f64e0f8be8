"""Extremes over time of exact answers: sliding windows and landmarks over what a query said at each tick."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from slackwater.errors import RunError
from slackwater.plan.model import Move
from slackwater.runtime.current.history import BYTES_AT_MOST, standing
from slackwater.statistics.diffusion import Floats
from slackwater.statistics.series import Ints

LANDMARK_TICKS = 256
"""Ticks that rows which come late can still repair, where an extreme is taken since a landmark."""


def begins(move: Move, at: Ints) -> Ints:
    """When the time begins that an extreme is taken of, by the ticks that it is taken at."""
    return at - move.size if move.size is not None else np.full(at.shape, move.since or 0)


class Moving:
    """What one item of a query said at the latest ticks, by group, and the extreme of it.

    NaN is "nothing said". ``before`` is the extreme of the ticks that are not kept any more, which only a
    landmark needs.
    """

    def __init__(self, move: Move) -> None:
        self.move = move
        self._best = np.fmax if move.extreme == "max" else np.fmin
        self.count = 0
        self.time: Ints = np.empty(0, np.int64)
        self.said: Floats = np.empty((0, 0))
        """By tick and group."""
        self.before: Floats = np.empty(0)

    def push(self, now: int, said: Floats) -> Floats:
        """Take what all groups say at a tick; the extremes at that tick."""
        self._make_room(now, len(said))
        self.time[self.count] = now
        self.said[self.count, : len(said)] = said
        self.count += 1
        return self.extremes(now)[: len(said)]

    def extremes(self, now: int) -> Floats:
        """The extreme of each group over the time that the move is taken over."""
        size, since = self.move.size, self.move.since
        low = now - size if size is not None else since
        assert low is not None
        # what stood at the beginning counts; before a landmark nothing does
        first = standing(self.time[: self.count], low) if now >= (since or now) else self.count
        found: Floats = self._best.reduce(self.said[first : self.count], axis=0, initial=np.nan)
        return found if size is not None else self._best(found, self.before)

    def begin(self, extremes: Floats) -> None:
        """Go on from extremes that are known of the time before the ticks that are kept."""
        self._widen(len(extremes))
        self.before[: len(extremes)] = self._best(self.before[: len(extremes)], extremes)

    def settled(self, reach: int) -> Floats:
        """The extreme since a landmark of the ticks before one, which can be read elsewhere from there on."""
        times = self.time[: self.count]
        older = self.said[standing(times, self.move.since or 0) : int(np.searchsorted(times, reach))]
        found: Floats = self._best(self.before, self._best.reduce(older, axis=0, initial=np.nan))
        return found

    def renew(self, times: Ints, said: Floats) -> None:
        """Take what was said at ticks that are kept anew: rows that came late have changed it."""
        self._widen(said.shape[1])
        places = np.searchsorted(self.time[: self.count], times)
        inside = (places < self.count) & np.isin(times, self.time[: self.count])
        self.said[places[inside], : said.shape[1]] = said[inside]

    def _make_room(self, now: int, groups: int) -> None:
        if self.count == len(self.time):
            size = self.move.size
            times = self.time[: self.count]
            first = max(0, self.count - LANDMARK_TICKS) if size is None else standing(times, now - size)
            if size is None and first:
                gone = self.said[standing(times, self.move.since or 0) : first]
                self.before = self._best(self.before, self._best.reduce(gone, axis=0, initial=np.nan))
            held = self.count - first
            capacity = max(16, 2 * (held + 1))
            if 8 * capacity * groups > BYTES_AT_MOST:
                raise RunError(
                    f"{self.move.function}() of {groups:,} groups needs {8e-9 * capacity * groups:.1f} GB; "
                    "take a shorter time, declare a longer TICK, or use DRIFT, which keeps only keys' values"
                )
            time, said = np.zeros(capacity, np.int64), np.full((capacity, self.said.shape[1]), np.nan)
            time[:held], said[:held] = self.time[first : self.count], self.said[first : self.count]
            self.time, self.said, self.count = time, said, held
        self._widen(groups)

    def _widen(self, groups: int) -> None:
        more = groups - self.said.shape[1]
        if more > 0:
            # by half as many more, so that copies are few
            more = max(more, self.said.shape[1] // 2)
            self.said = np.concatenate([self.said, np.full((len(self.time), more), np.nan)], axis=1)
            self.before = np.concatenate([self.before, np.full(more, np.nan)])

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """All of it, to be kept."""
        return {"time": self.time[: self.count], "said": self.said[: self.count], "before": self.before}

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Go on from what was kept."""
        self.time, self.said = np.array(arrays["time"]), np.array(arrays["said"])
        self.before = np.array(arrays["before"])
        self.count = len(self.time)
