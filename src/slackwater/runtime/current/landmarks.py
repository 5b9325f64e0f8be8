"""Extremes since a landmark that deferred answers go on from: of what keys have said, nothing modelled."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from slackwater.statistics.diffusion import Floats
from slackwater.statistics.series import LONG_BEFORE, Bools, Ints

GENERATIONS = 4
APART_TICKS = 64
"""Generations are no closer, so that the oldest is about as old as the ticks that are kept."""


class Landmarks:
    """By group: the extreme up to the tick of the last look at it, and what it was some time before.

    Rows that come late change ticks that have been looked at. The extreme is then taken anew, from the
    youngest generation that is older than they are.
    """

    def __init__(self) -> None:
        self.extreme: Floats = np.empty((GENERATIONS, 0))
        """By generation, youngest first, and group; NaN: nothing was said."""
        self.at: Ints = np.empty((GENERATIONS, 0), np.int64)
        """The tick that each reaches up to."""

    def grow(self, size: int) -> None:
        """Make places for more groups."""
        more = size - self.extreme.shape[1]
        if more > 0:
            blank = np.full((GENERATIONS, more), np.nan)
            self.extreme = np.concatenate([self.extreme, blank], axis=1)
            self.at = np.concatenate([self.at, np.full(blank.shape, LONG_BEFORE)], axis=1)

    def note(self, rows: Ints, extreme: Floats, now: int, gap: int) -> None:
        """Take the extremes of some groups up to a tick."""
        older = rows[self.at[0, rows] - self.at[1, rows] >= APART_TICKS * gap]
        self.extreme[1:, older] = self.extreme[:-1, older]
        self.at[1:, older] = self.at[:-1, older]
        self.extreme[0, rows], self.at[0, rows] = extreme, now

    def back(self, rows: Bools, before: int, reach: int) -> None:
        """Forget what groups said from a tick on; ``reach`` is the first tick that can be read again."""
        chosen = np.flatnonzero(rows)
        at = self.at[:, chosen]
        # the youngest that is old enough, or else the oldest after which all can be read again
        fits = at < before
        youngest = np.where(fits.any(axis=0), fits.argmax(axis=0), GENERATIONS - 1)
        readable = np.maximum((at >= reach).sum(axis=0) - 1, 0)
        place = np.minimum(youngest, readable)
        for generation in range(GENERATIONS):
            takes = place > generation
            source, into = place[takes], chosen[takes]
            self.extreme[generation, into] = self.extreme[source, into]
            self.at[generation, into] = self.at[source, into]

    def begin(self, extreme: Floats) -> None:
        """Go on from extremes that are known, whenever they were."""
        self.grow(len(extreme))
        self.extreme[:, : len(extreme)] = extreme

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        return {"extreme": self.extreme, "at": self.at}

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        self.extreme = np.array(arrays["extreme"], np.float64)
        self.at = np.array(arrays["at"], np.int64)
