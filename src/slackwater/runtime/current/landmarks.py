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
        at = self.at[:, rows]
        older = rows[(at[0] - at[1] >= APART_TICKS * gap) & (at[0] < now)]
        self.extreme[1:, older] = self.extreme[:-1, older]
        self.at[1:, older] = self.at[:-1, older]
        self.extreme[0, rows], self.at[0, rows] = extreme, now

    def back(self, rows: Bools, before: int, reach: int) -> None:
        """Forget what groups said from a tick on; ``reach`` is the first tick that can be read again.

        Where no generation is both older than that tick and young enough for all to be read after it, an
        extreme is kept that may have been taken of what was wrong, and all that can be is read again: nothing
        is lost, though a false peak may stay.
        """
        chosen = np.flatnonzero(rows)
        at = self.at[:, chosen]
        fits = (at < before) & (at >= reach)
        place = np.where(fits.any(axis=0), fits.argmax(axis=0), self._readable(at, reach))
        found, since = self.extreme[place, chosen], self.at[place, chosen]
        since = np.where(fits.any(axis=0), since, np.minimum(since, reach))
        for generation in range(GENERATIONS):
            younger = generation <= place
            self.extreme[generation, chosen[younger]] = found[younger]
            self.at[generation, chosen[younger]] = since[younger]

    def settled(self, reach: int) -> Floats:
        """By group: the oldest extreme after which all can be read again."""
        return self.extreme[self._readable(self.at, reach), np.arange(self.at.shape[1])]

    @staticmethod
    def _readable(at: Ints, reach: int) -> Ints:
        """The oldest generation after which all can be read again, or else the youngest."""
        return np.asarray(np.maximum((at >= reach).sum(axis=0) - 1, 0))

    def begin(self, extreme: Floats) -> None:
        """Go on from extremes that are known, whenever they were."""
        self.grow(len(extreme))
        self.extreme[:, : len(extreme)] = extreme

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        return {"extreme": self.extreme, "at": self.at}

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        self.extreme = np.array(arrays["extreme"], np.float64)
        self.at = np.array(arrays["at"], np.int64)
