"""The beat of a stream's ticks: how far apart they are, which keys have fallen silent, when to look again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slackwater.plan.current import CurrentPlan
from slackwater.planners.manner import Manner
from slackwater.runtime.current.history import History
from slackwater.runtime.current.matrix import Values
from slackwater.runtime.current.model import Model
from slackwater.runtime.current.tick import Tick
from slackwater.statistics.diffusion import Floats
from slackwater.statistics.series import LONG_BEFORE, Bools, Ints, Series

GAPS = 9
"""Ticks whose distance tells how far the next one is."""
LONGEST_TICKS = 1000
"""No evaluation is put off for longer: how a stream moves may have changed."""
SILENT_TICKS_AT_MOST = 512
"""Evaluations of one turn while nothing comes."""


@dataclass(frozen=True)
class Pace:
    """How much is kept of keys, and how often it is looked at: the paper's k, t_max and T, in ticks."""

    items: int = 40
    estimate_ticks: int = 10
    resting_ticks: int = 5


class Pulse:
    """What the ticks of a stream have been like."""

    def __init__(self, plan: CurrentPlan, manner: Manner, pace: Pace) -> None:
        self._plan = plan
        self._pace = pace
        self.manner = manner
        self.last: int | None = None
        """The last tick."""
        self.number = 0
        self.gaps: list[int] = []
        self.silent: Bools = np.empty(0, bool)
        self.model = Model(len(plan.signals), manner)
        self._changed: Bools = np.empty(0, bool)

    @property
    def gap(self) -> int:
        """How far apart ticks are, as the last ones tell."""
        return int(np.median(self.gaps)) if self.gaps else self._plan.tick

    @property
    def resting(self) -> int:
        return self._pace.resting_ticks * self.gap

    def changed(self, keys: Ints, size: int) -> None:
        """Take note of keys whose past was repaired."""
        self._changed = _widened(self._changed, size)
        self._changed[keys] = True

    def repaired(self, keys: Ints, series: Series) -> None:
        """Take note of keys that were heard of later than was known."""
        if self.last is not None and len(keys):
            self.model.grow(series.size)
            self.model.repaired(keys, np.maximum(self.last - series.time[keys], 0) / self.gap)

    def tick(self, now: int, series: Series, history: History | None) -> tuple[Tick, Bools]:
        """What is known at a tick, and the keys of which something has changed that is no drift."""
        if self.last is not None and now > self.last:
            self.gaps = [*self.gaps, now - self.last][-GAPS:]
        self.last, self.number = now, self.number + 1
        changed, self._changed = _widened(self._changed, series.size), np.empty(0, bool)
        series.estimate(now, self._pace.estimate_ticks * self.gap, self.resting)
        silent = series.overdue(now, self._plan.stream.interrupted)
        if series.signals:
            # a key whose last row has no values has nothing that could go on
            silent &= series.there.any(axis=0)
        changed |= silent != _widened(self.silent, series.size)
        self.silent = silent
        model, gap = self.model, self.gap / 1e6
        model.grow(series.size)
        gone, spread = np.zeros(series.value.shape), np.zeros(series.value.shape)
        motions = unheard = model.motions(series)
        values = held = Values(series.value, series.there, series.known)
        if silent.any():
            gone = model.gone(series, silent, now, gap)
            unheard = model.unheard(series, silent, now, gap)
            spread = model.spread(series, silent, now, self.resting / 1e6, gap)
            values = Values(series.value + gone, series.there, series.known)
        found = Tick(
            now, self.gap, motions, unheard, values, held, silent, history, LONGEST_TICKS * self.gap,
            self.resting, gone, spread, self.manner, self.number,
            max(1, min(self.number, self._pace.items) - 1) * gap,
        )  # fmt: skip
        return found, changed

    def heard(self, series: Series, keys: Ints, before: tuple[Ints, Floats]) -> None:
        """Learn from items that were taken: ``before`` are times and values that their keys had."""
        self.model.grow(series.size)
        elapsed = (series.time[keys] - before[0]).astype(np.float64) / 1e6
        # a key that is new has not moved
        elapsed = np.where(before[0] == LONG_BEFORE, np.nan, elapsed)
        self.model.observe(series, keys, series.value[:, keys] - before[1], elapsed, self.gap / 1e6)

    def _next(self, until: int, series: Series) -> int | None:
        """The next time before ``until`` to look at keys that are interrupted; None where none is."""
        if self.last is None:
            return None
        onset = series.next_overdue(self._plan.stream.interrupted)
        width = self._plan.tick
        now = -(-max(self.last + self.resting, onset) // width) * width
        return now if now < until else None

    def wakes(self, until: int, series: Series) -> bool:
        """Whether there is such a time."""
        return self._next(until, series) is not None

    def between(self, until: int, series: Series) -> Iterator[int]:
        """Times before ``until`` at which nothing has come, and keys that are interrupted are looked at."""
        for _ in range(SILENT_TICKS_AT_MOST):
            now = self._next(until, series)
            if now is None:
                return
            gaps = self.gaps
            yield now
            # these are our own, and say nothing of the stream
            self.gaps = gaps

    def carry(self, before: Pulse) -> None:
        self.last, self.gaps, self.silent = before.last, before.gaps, before.silent
        self.number, self._changed = before.number, before._changed

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        last = [] if self.last is None else [self.last]
        return {
            "last": np.array(last, np.int64),
            "gaps": np.array(self.gaps, np.int64),
            "silent": self.silent,
            "number": np.array(self.number),
            "changed": self._changed,
            **{f"model.{n}": a for n, a in self.model.to_arrays().items()},
        }

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        self.last = int(arrays["last"][0]) if len(arrays["last"]) else None
        self.gaps = [int(g) for g in arrays["gaps"]]
        self.silent, self.number = np.array(arrays["silent"], bool), int(arrays["number"])
        self._changed = np.array(arrays["changed"], bool)
        kept = {n.removeprefix("model."): a for n, a in arrays.items() if n.startswith("model.")}
        self.model.load(kept)


def _widened(mask: Bools, size: int) -> Bools:
    return np.concatenate([mask, np.zeros(size - len(mask), bool)])
