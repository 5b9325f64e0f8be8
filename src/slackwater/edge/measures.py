"""Values made of other values, where they arise: rates over a moving window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SECOND = 1_000_000
_LARGEST = float(np.finfo(np.float64).max)


class MovingRate:
    """For every key, what was summed up over the last ``window``, per second; told at every ``step``.

    A rate told at a time t (a multiple of the step) covers [t − window, t). Sums are formed per step and
    added anew each time, so that rounding does not add up. In the first window of a key, the time before it
    counts as 0: the rate begins low rather than wild. Window and step are microseconds; the window is a
    multiple of the step.

    Reference: Olston, Jiang, Widom (SIGMOD 2003), section 5: packets per second of hosts, over a moving
    window of one minute.

    >>> rate = MovingRate(columns=1, window=3 * SECOND)
    >>> rate.add("a", [6.0], at=0)
    >>> [(at // SECOND, values.tolist()) for at, keys, values in rate.steps(1_500_000)]
    [(1, [[2.0]])]
    >>> rate.add("a", [3.0], at=1_500_000)
    >>> [(at // SECOND, values.tolist()) for at, keys, values in rate.steps(5 * SECOND)]
    [(2, [[3.0]]), (3, [[3.0]]), (4, [[1.0]]), (5, [[0.0]])]
    """

    def __init__(self, *, columns: int, window: int, step: int = SECOND) -> None:
        if step <= 0 or window <= 0 or window % step:
            raise ValueError(f"expected a window that is a multiple of {step} microseconds, got {window}")
        self._step = step
        self._slots = window // step
        self._seconds = window / SECOND
        self._columns = columns
        self._numbers: dict[object, int] = {}
        self._sums = np.zeros((0, self._slots, columns))
        self._current: int | None = None
        """The step that values are added to: all before it have been told."""

    def add(self, key: object, values: Sequence[float], at: int) -> None:
        """Add to the sums of a key; what comes late, after its step was told, counts in the current one.

        Where a double cannot hold a window of such sums, nothing is added: an `OverflowError`.
        """
        step = at // self._step
        if self._current is None:
            self._current = step
        elif step > self._current:
            raise ValueError(f"ask for the steps up to {at} before adding to them")
        number = self._numbers.get(key, len(self._numbers))
        if number >= len(self._sums):
            grown = np.zeros((max(8, 2 * len(self._sums)), self._slots, self._columns))
            grown[: len(self._sums)] = self._sums
            self._sums = grown
        slot = self._sums[number, self._current % self._slots]
        with np.errstate(over="ignore"):
            # NaN is no value, and adds nothing
            summed = slot + np.nan_to_num(np.asarray(values, np.float64))
        if (np.abs(summed) > _LARGEST / self._slots).any():
            raise OverflowError(f"expected numbers whose sums a double can hold, got {list(values)}")
        slot[:] = summed
        self._numbers[key] = number

    def forget(self, key: object) -> None:
        """Tell no rates of a key any more; added to again, it begins anew."""
        number = self._numbers.pop(key, None)
        if number is not None:
            self._sums = np.delete(self._sums, number, axis=0)
            self._numbers = {other: place for place, other in enumerate(self._numbers)}

    def steps(self, now: int) -> list[tuple[int, list[object], NDArray[np.float64]]]:
        """Time, keys and rates of every step that has ended by ``now`` and was not told yet.

        After a pause of more than a window only the last window's steps are told: those before are 0.
        """
        if self._current is None:
            return []
        told = []
        last = now // self._step
        for ended in range(max(self._current, last - self._slots - 1), last):
            if ended > self._current:
                # nothing was added in between: the slot holds what is older than the window
                self._advance(ended)
            told.append(((ended + 1) * self._step, list(self._numbers), self._rates()))
            self._advance(ended + 1)
        return told

    def _advance(self, step: int) -> None:
        assert self._current is not None
        for passed in range(max(self._current + 1, step - self._slots + 1), step + 1):
            # what no key has is 0, and takes no memory until it is written to
            self._sums[: len(self._numbers), passed % self._slots] = 0.0
        self._current = step

    def _rates(self) -> NDArray[np.float64]:
        summed: NDArray[np.float64] = self._sums[: len(self._numbers)].sum(axis=1) / self._seconds
        return summed
