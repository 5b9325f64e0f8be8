"""What the keys said at the latest ticks: extremes are taken of it, and rows that come late repair it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from slackwater.errors import RunError
from slackwater.runtime.current.matrix import Values
from slackwater.statistics.diffusion import Floats
from slackwater.statistics.series import LONG_BEFORE, Bools, Ints, Series

BYTES_AT_MOST = 4_000_000_000
"""What the values of all keys over the longest window may take."""


def standing(times: Ints, at: int) -> int:
    """The place of the tick whose values stand at a time; 0 where there is none yet.

    >>> [standing(np.array([10, 20, 30]), at) for at in (5, 10, 19, 20, 99)]
    [0, 0, 0, 1, 2]
    """
    return max(0, int(np.searchsorted(times, at, side="right")) - 1)


class History:
    """The values of all keys at each tick of the last ``span`` microseconds, and at no fewer than some ticks.

    Arrays hold up to twice as many ticks as are kept, so that they are moved seldom and a window is a slice.
    """

    def __init__(self, signals: int, span: int, ticks_at_least: int) -> None:
        self.signals = signals
        self.span = span
        self.ticks_at_least = ticks_at_least
        self.count = 0
        self.time: Ints = np.empty(0, np.int64)
        self.item: Ints = np.empty((0, 0), np.int64)
        """By tick and key: the time of the item that was the current one."""
        self.value: Floats = np.empty((0, signals, 0))
        self.there: Bools = np.empty((0, signals, 0), bool)

    @property
    def times(self) -> Ints:
        """The ticks that are kept, oldest first."""
        return self.time[: self.count]

    def push(self, now: int, series: Series) -> None:
        """Keep what the keys say at a tick."""
        self._make_room(now, series.size)
        place = self.count
        self.time[place] = now
        self.item[place] = series.time
        self.value[place] = series.value
        self.there[place] = series.there
        self.count += 1

    def begin(self, now: int, series: Series) -> None:
        """Know what stands since the last tick, also of signals that are new."""
        if not self.count or self.times[-1] < now:
            self.push(now, series)
            return
        self.grow(series.size)
        place = self.count - 1
        self.item[place], self.value[place], self.there[place] = series.time, series.value, series.there

    @property
    def reach(self) -> int:
        """The first tick that can be read; long before where nothing was let go of."""
        if self.count < max(1, self.ticks_at_least):
            return int(LONG_BEFORE)
        return int(self.times[self._reach()])

    def _reach(self) -> int:
        """The first tick that is sure to be kept: how far the past reaches must not depend on memory."""
        if not self.count:
            return 0
        spanned = standing(self.times, int(self.times[-1]) - self.span)
        return max(0, min(spanned, self.count - self.ticks_at_least))

    def _make_room(self, now: int, keys: int) -> None:
        if self.count == len(self.time):
            first = standing(self.times, now - self.span)
            kept = slice(max(0, min(first, self.count - self.ticks_at_least)), self.count)
            held = kept.stop - kept.start
            capacity = max(16, 2 * (held + 1))
            self._check(capacity, keys)
            for name, fill in (("time", 0), ("item", LONG_BEFORE), ("value", np.nan), ("there", False)):
                old = getattr(self, name)
                new = np.full((capacity, *old.shape[1:]), fill, old.dtype)
                new[:held] = old[kept]
                setattr(self, name, new)
            self.count = held
        self.grow(keys)

    def grow(self, keys: int) -> None:
        """Make places for more keys."""
        more = keys - self.item.shape[1]
        if more > 0:
            self._check(len(self.time), keys)
            for name, fill in (("item", LONG_BEFORE), ("value", np.nan), ("there", False)):
                old = getattr(self, name)
                added = np.full((*old.shape[:-1], more), fill, old.dtype)
                setattr(self, name, np.concatenate([old, added], axis=-1))

    def _check(self, ticks: int, keys: int) -> None:
        size = ticks * keys * (8 + 9 * self.signals)
        if size > BYTES_AT_MOST:
            raise RunError(
                f"extremes over time need {ticks:,} ticks of {keys:,} keys, which is {size / 1e9:.1f} GB; "
                "declare the stream with a longer TICK, or take them over a shorter time"
            )

    def repair(self, key: int, times: Ints, values: Floats, there: Bools) -> bool:
        """Put items of one key that came late into the ticks that they belong to; whether there were any."""
        if not self.count or key >= self.item.shape[1]:
            return False
        changed = False
        ticks, reach = self.times, self._reach()
        for index in np.argsort(times, kind="stable"):
            first = max(reach, int(np.searchsorted(ticks, times[index])))
            old = self.item[first : self.count, key] <= times[index]
            if old.any():
                place = np.flatnonzero(old) + first
                self.item[place, key] = times[index]
                self.value[place, :, key] = values[:, index]
                self.there[place, :, key] = there[:, index]
                changed = True
        return changed

    def window(self, low: int, high: int) -> tuple[Ints, Values]:
        """The ticks from low to high, both included, and the one before them unless there is one at low.

        What was said then still stood at low. By signal, key and tick: what the keys said.
        """
        first = max(self._reach(), standing(self.times, low))
        stop = int(np.searchsorted(self.times, high, side="right"))
        known = self.item[first:stop].T > LONG_BEFORE
        value = np.moveaxis(self.value[first:stop], 0, -1)
        return self.time[first:stop], Values(value, np.moveaxis(self.there[first:stop], 0, -1), known)

    def carry(self, before: History, origin: Sequence[int]) -> None:
        """Take over the ticks of another history; ``origin`` says where each signal was in it, or -1."""
        arrays = dict(before.to_arrays())
        ticks, keys = arrays["item"].shape
        for name, fill in (("value", np.nan), ("there", False)):
            old, kind = arrays[name], np.float64 if name == "value" else np.bool_
            new: npt.NDArray[np.generic] = np.full((ticks, len(origin), keys), fill, kind)
            for place, source in enumerate(origin):
                if source >= 0:
                    new[:, place] = old[:, source]
            arrays[name] = new
        self.load(arrays)

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """All of it, to be kept."""
        return {name: getattr(self, name)[: self.count] for name in ("time", "item", "value", "there")}

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Go on from what was kept."""
        for name in ("time", "item", "value", "there"):
            setattr(self, name, np.array(arrays[name]))
        self.count = len(self.time)
