"""The current values of many keys, and the latest items that their drift and diffusion are learnt from.

All state is arrays with a place for each key, so that a million keys are a few arrays. Times are
microseconds since the epoch. An item is what a key said last within one tick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from slackwater.statistics.diffusion import Floats, estimate, next_estimate

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

NEVER = np.int64(2**62)
LONG_BEFORE = np.int64(-(2**62))
GAPS_AT_LEAST = 5
"""Fewer gaps between items tell nothing of what is usual."""
OVERDUE_GAPS = 3
"""A key is interrupted when it has been silent for so many times its longest usual gap."""


class Series:
    """Signals by key: what each is now, and what its ``kept`` latest items were (0: none are kept)."""

    def __init__(self, signals: int, kept: int) -> None:
        self.signals = signals
        self.kept = kept
        self.size = 0
        self.time: Ints = np.empty(0, np.int64)
        """Of the latest item of each key."""
        self.value: Floats = np.empty((signals, 0))
        """NaN where there is none, or where it is NULL."""
        self.there: Bools = np.empty((signals, 0), bool)
        """Whether the latest item has a value: NaN may be one."""
        self.drift: Floats = np.empty((signals, 0))
        self.variance: Floats = np.empty((signals, 0))
        """Per second; NaN while too few items have come."""
        self.estimated: Ints = np.empty(0, np.int64)
        self.due: Ints = np.empty(0, np.int64)
        """When drift and variance are to be estimated again."""
        self.limit: Ints = np.empty(0, np.int64)
        """How long a silence is usual, as far as is known."""
        self.items: Ints = np.empty(0, np.int64)
        self.item_time: Ints = np.empty((0, kept), np.int64)
        self.item_value: Floats = np.empty((signals, 0, kept))
        self.item_broken: Bools = np.empty((0, kept), bool)
        """Whether the key was interrupted before the item."""

    def grow(self, size: int) -> None:
        """Make places for at least so many keys; by half as many more, so that copies are few."""
        if size <= self.size:
            return
        more = max(size - self.size, self.size // 2)
        fills: dict[str, object] = {
            "time": LONG_BEFORE, "value": np.nan, "there": False, "drift": 0.0, "variance": np.nan,
            "estimated": LONG_BEFORE, "due": LONG_BEFORE, "limit": NEVER, "items": 0,
        }  # fmt: skip
        for name, fill in fills.items():
            old = getattr(self, name)
            added = np.full((*old.shape[:-1], more), fill, old.dtype)
            setattr(self, name, np.concatenate([old, added], axis=-1))
        kept, signals = self.kept, self.signals
        self.item_time = np.concatenate([self.item_time, np.zeros((more, kept), np.int64)])
        self.item_value = np.concatenate([self.item_value, np.full((signals, more, kept), np.nan)], axis=1)
        self.item_broken = np.concatenate([self.item_broken, np.zeros((more, kept), bool)])
        self.size += more

    @property
    def known(self) -> Bools:
        """Whether a key has had an item."""
        return self.time > LONG_BEFORE

    def take(self, keys: Ints, times: Ints, values: Floats, there: Bools) -> None:
        """Take the next item of some keys, each later than what it had; ``values`` by signal and key."""
        if self.kept:
            broken = self.overdue_at(keys, times)
            place = self.items[keys] % self.kept
            self.item_time[keys, place] = times
            self.item_value[:, keys, place] = values
            self.item_broken[keys, place] = broken
            self.items[keys] += 1
        self.time[keys] = times
        self.value[:, keys] = values
        self.there[:, keys] = there

    def overdue_at(self, keys: Ints, times: Ints) -> Bools:
        """Whether keys are silent for longer than is usual, at a time of each."""
        late: Bools = times - self.time[keys] > self.limit[keys]
        return late & (self.time[keys] > LONG_BEFORE)

    def overdue(self, now: int, declared: int | None = None) -> Bools:
        """The keys that are interrupted: their next item is overdue, by what is declared or was learnt."""
        limit = self.limit if declared is None else np.int64(declared)
        found: Bools = self.known & (now - self.time > limit)
        return found

    def next_overdue(self, declared: int | None = None) -> int:
        """The first time at which a key that is not silent yet would be, or one is already."""
        limit = self.limit if declared is None else np.int64(declared)
        known = self.known & self.there.any(axis=0) if self.signals else self.known
        if not known.any():
            return int(NEVER)
        usual = np.broadcast_to(np.minimum(limit, NEVER // 2), self.time.shape)
        return int((self.time + usual)[known].min()) + 1

    def repair(self, key: int, times: Ints, values: Floats, there: Bools) -> None:
        """Put items of one key where they belong in time; of the same time the one that came last counts.

        ``values`` and ``there`` are by signal and item.
        """
        newest = int(np.flatnonzero(times == times.max())[-1])
        if times[newest] >= self.time[key]:
            self.time[key] = times[newest]
            self.value[:, key] = values[:, newest]
            self.there[:, key] = there[:, newest]
        if not self.kept:
            return
        held = self._in_order(np.array([key]))[0]
        old_times, old_values = self.item_time[key][held], self.item_value[:, key][:, held]
        broken = np.concatenate([self.item_broken[key][held], np.zeros(len(times), bool)])
        all_times = np.concatenate([old_times, times])
        all_values = np.concatenate([old_values, values], axis=1)
        order = np.argsort(all_times, kind="stable")
        all_times, all_values, broken = all_times[order], all_values[:, order], broken[order]
        last = np.append(all_times[1:] != all_times[:-1], True)
        all_times, all_values = all_times[last][-self.kept :], all_values[:, last][:, -self.kept :]
        # where the items of an interruption have come it is none any more
        gaps = np.diff(all_times, prepend=all_times[0])
        broken = broken[last][-self.kept :] & (gaps > self.limit[key])
        count = len(all_times)
        self.item_time[key, :count] = all_times
        self.item_value[:, key, :count] = all_values
        self.item_broken[key] = False
        self.item_broken[key, :count] = broken
        self.items[key] = count
        self.due[key] = LONG_BEFORE

    def _in_order(self, keys: Ints) -> list[Ints]:
        """The places of the items of each key, oldest first."""
        found = []
        for key in keys:
            count, kept = int(self.items[key]), self.kept
            found.append(np.arange(max(0, count - kept), count) % kept)
        return found

    def buffers(self, keys: Ints) -> tuple[Ints, Floats, Bools, Bools]:
        """Times, values, breaks and which are there, by key: oldest first, empty places at the left."""
        place = (self.items[keys][:, None] + np.arange(self.kept)[None, :]) % self.kept
        filled = np.arange(self.kept)[None, :] >= self.kept - np.minimum(self.items[keys], self.kept)[:, None]
        times = np.take_along_axis(self.item_time[keys], place, axis=1)
        values = np.take_along_axis(self.item_value[:, keys], place[None], axis=2)
        broken = np.take_along_axis(self.item_broken[keys], place, axis=1)
        return times, np.where(filled[None], values, np.nan), broken, filled

    def estimate(self, now: int, longest: int, resting: int) -> Ints:
        """Estimate anew what is due (Algorithm 2); the keys that were.

        ``longest`` is t_max, ``resting`` the T after which a key that is interrupted is looked at again:
        its parameters stay as they are.
        """
        if not self.kept:
            return np.empty(0, np.int64)
        due = np.flatnonzero((self.due <= now) & (self.items >= 2))
        if not len(due):
            return due
        silent = self.overdue_at(due, np.full(len(due), now))
        self.due[due[silent]] = now + resting
        keys = due[~silent]
        times, values, broken, filled = self.buffers(keys)
        self._learn_limits(keys, times, broken, filled)
        seconds = np.where(filled, (times - now) / 1e6, np.nan)
        since = np.where(self.estimated[keys] == LONG_BEFORE, now - resting, self.estimated[keys])
        wildest = np.full(len(keys), np.inf)
        for signal in range(self.signals):
            before = self.variance[signal, keys]
            drift, variance = estimate(seconds, values[signal])
            self.drift[signal, keys], self.variance[signal, keys] = drift, variance
            again = next_estimate(0.0, (since - now) / 1e6, before, variance, longest / 1e6)
            wildest = np.minimum(wildest, again)
        if not self.signals:
            wildest[:] = longest / 1e6
        self.estimated[keys] = now
        self.due[keys] = now + np.round(wildest * 1e6).astype(np.int64)
        return keys

    def _learn_limits(self, keys: Ints, times: Ints, broken: Bools, filled: Bools) -> None:
        counts = filled[:, :-1] & ~broken[:, 1:]
        usual = np.where(counts, np.diff(times, axis=1), 0).max(axis=1, initial=0) * OVERDUE_GAPS
        self.limit[keys] = np.where(counts.sum(axis=1) >= GAPS_AT_LEAST, usual, self.limit[keys])

    def resignalled(self, origin: Sequence[int], kept: int) -> Series:
        """The same keys with other signals; ``origin`` says where each was in this one, or -1."""
        after = Series(len(origin), kept)
        after.grow(self.size)
        for name in ("time", "limit", "estimated", "due"):
            getattr(after, name)[:] = getattr(self, name)
        same = kept == self.kept
        if same:
            after.items[:], after.item_time[:] = self.items, self.item_time
            after.item_broken[:] = self.item_broken
        for place, source in enumerate(origin):
            for name in ("value", "there", "drift", "variance") if source >= 0 else ():
                getattr(after, name)[place] = getattr(self, name)[source]
            if source >= 0 and same:
                after.item_value[place] = self.item_value[source]
        return after

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """All of it, to be kept."""
        return {name: getattr(self, name) for name in _ARRAYS}

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        """Go on from what was kept."""
        for name in _ARRAYS:
            setattr(self, name, np.array(arrays[name]))
        self.size = len(self.time)


_ARRAYS = (
    "time", "value", "there", "drift", "variance", "estimated", "due", "limit", "items",
    "item_time", "item_value", "item_broken",
)  # fmt: skip
