"""One item of a deferred query for all its groups, in arrays: what was answered, and when it is due again."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from slackwater.plan.linear import Linear
from slackwater.plan.model import Move, Output, Step
from slackwater.planners.deferral_budget import HORIZON_S, Budget, Clock
from slackwater.runtime.current.landmarks import Landmarks
from slackwater.runtime.current.linear import Aggregate
from slackwater.runtime.current.moving import LANDMARK_TICKS
from slackwater.runtime.current.tick import Evaluated, Tick
from slackwater.statistics.calibration import Calibration, time_out
from slackwater.statistics.diffusion import Floats
from slackwater.statistics.series import LONG_BEFORE, Bools, Ints


class DeferredItem:
    """One item of a query for all its groups: what was answered last, and when it is due again."""

    def __init__(self, output: Output, step: Step, form: Linear, belief: float) -> None:
        self.output = output
        self.belief = belief
        self.move: Move | None = None
        sql = output.sql
        if sql[0] == "m" and sql[1:].isdigit():
            self.move = step.moves[int(sql[1:])]
            sql = self.move.sql
        self.aggregate = Aggregate(sql, tuple(i for i, call in enumerate(form.calls) if call.moves))
        self.value: Floats = np.empty(0)
        """The cached answer."""
        self.at: Ints = np.empty(0, np.int64)
        self.due: Ints = np.empty(0, np.int64)
        self.drift: Floats = np.empty(0)
        self.variance: Floats = np.empty(0)
        self.late: Bools = np.empty(0, bool)
        """Whether an evaluation was due and could not be had."""
        self.modelled: Bools = np.empty(0, bool)
        """Whether the cached answer rests on keys that were silent."""
        self.landmarks = Landmarks() if self.move is not None and self.move.since is not None else None
        self.clock = Clock.fresh(0)
        self.budget = Budget.fresh(0)
        self.calibration = Calibration.fresh(0)
        self.missed = 0
        self.evaluated = 0

    def grow(self, size: int) -> None:
        """Make places for more groups; each is due at once."""
        more = size - len(self.value)
        if more <= 0:
            return
        for name, fill in _FILLS.items():
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.full(more, fill, old.dtype)]))
        if self.landmarks is not None:
            self.landmarks.grow(size)
        fresh = Clock.fresh(more)
        for name in ("used", "interval", "since"):
            joined = np.concatenate([getattr(self.clock, name), getattr(fresh, name)])
            setattr(self.clock, name, joined)
        self.budget.level = np.concatenate([self.budget.level, np.full(more, np.nan)])
        self.calibration = self.calibration.extended(size)

    def learn(self, rows: Ints, value: Floats, bound: Floats, tick: Tick, *, extrapolated: bool) -> None:
        """Learn from an evaluation how far the cached answers had really drifted."""
        after = (tick.now - self.at[rows]).astype(np.float64) / 1e6
        moved = value - self.value[rows]
        if extrapolated:
            moved = moved - self.drift[rows] * after
        # what was modelled says nothing of how answers drift
        known = np.isfinite(moved) & np.isfinite(self.variance[rows]) & ~self.modelled[rows]
        known &= (after > 0) & (self.at[rows] > LONG_BEFORE)
        rows, moved, after, bound = rows[known], moved[known], after[known], bound[known]
        if not len(rows):
            return
        if tick.manner.average:
            variance = self.variance[rows] * self.calibration.factor(rows)
            missed = time_out(bound, variance, after, moved, tick.gap / 1e6)
        else:
            missed = (np.abs(moved) > bound).astype(np.float64)
        self.calibration.learn(rows, missed, 1 - self.belief, after)

    def soon_forgotten(self, tick: Tick) -> Ints:
        """Extremes since a landmark whose last look is so many ticks ago that it is time for another."""
        history = tick.history
        if self.landmarks is None or history is None or history.count <= LOOKED_AT:
            return np.empty(0, np.int64)
        oldest, at = history.times[history.count - LOOKED_AT], self.landmarks.at[0]
        return np.flatnonzero((at < oldest) & (at > LONG_BEFORE))

    def look(self, rows: Ints, known: Floats, modelled: Bools, tick: Tick) -> None:
        """Take note of extremes since a landmark, of what keys have said.

        While something is modelled the look before it stays, so that what is modelled goes on from there, as
        long as all since then can be read.
        """
        if self.landmarks is None:
            return
        settled = ~modelled
        if modelled.any():
            settled |= np.isin(rows, self.soon_forgotten(tick)) | (self.landmarks.at[0, rows] == LONG_BEFORE)
        self.landmarks.note(rows[settled], known[settled], tick.now, tick.gap)

    def plan(self, rows: Ints, found: Evaluated, tick: Tick) -> None:
        """Set when rows that were evaluated are due again."""
        wait = self._stretched(rows, found.wait, found.longest, found.scanned, tick)
        self.clock.begin(rows, wait, tick.now / 1e6)
        self._set_due(rows, np.minimum(wait, found.scanned), tick.now)

    def plan_again(self, rows: Ints, wait: Floats, longest: Floats, tick: Tick) -> None:
        """Set when rows are due that were not evaluated, by what is known now."""
        limit = np.full(len(rows), tick.longest / 1e6)
        wait = self._stretched(rows, wait, longest, limit, tick)
        self.clock.again(rows, wait, tick.now / 1e6)
        left = self.clock.due(rows) - tick.now / 1e6
        over = (self.at[rows] + tick.longest - tick.now).astype(np.float64) / 1e6
        self._set_due(rows, np.minimum(left, over), tick.now)

    def _stretched(self, rows: Ints, wait: Floats, longest: Floats, scanned: Floats, tick: Tick) -> Floats:
        if not tick.manner.budget or self.move is not None:
            return wait
        # over a day, or, where ticks are days apart, a year
        self.budget.horizon_s = max(HORIZON_S, YEARLY * tick.gap / 1e6)
        chosen = self.budget.stretched(rows, wait, longest)
        if tick.manner.calibration:
            # nothing has shown yet whether a young query is right
            seen = np.minimum(self.calibration.seen[rows] / TRIED, 1.0)
            chosen = chosen * (CAREFUL + (1 - CAREFUL) * seen)
        seen = np.minimum(np.minimum(chosen, scanned), REPLANNED * tick.gap / 1e6)
        self.budget.note(rows, wait, seen)
        return chosen

    def _set_due(self, rows: Ints, seconds: Floats, now: int) -> None:
        ahead = np.clip(np.nan_to_num(seconds, posinf=1e12), 0.0, 1e12) * 1e6
        self.due[rows] = now + ahead.astype(np.int64)

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        kept: dict[str, npt.NDArray[np.generic]] = {name: getattr(self, name) for name in _FILLS}
        kept |= {f"clock.{name}": getattr(self.clock, name) for name in ("used", "interval", "since")}
        kept |= {f"budget.{name}": array for name, array in self.budget.to_arrays().items()}
        kept |= {f"calibration.{name}": array for name, array in self.calibration.to_arrays().items()}
        if self.landmarks is not None:
            kept |= {f"landmarks.{name}": array for name, array in self.landmarks.to_arrays().items()}
        return kept | {"counts": np.array([self.missed, self.evaluated])}

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        for name in _FILLS:
            setattr(self, name, np.array(arrays[name]))

        def below(prefix: str) -> dict[str, Floats]:
            return {
                n.removeprefix(prefix): np.array(a, np.float64)
                for n, a in arrays.items()
                if n.startswith(prefix)
            }

        self.clock = Clock(**below("clock."))
        self.budget = Budget.from_arrays(below("budget."))
        self.calibration = Calibration.from_arrays(below("calibration."))
        self.missed, self.evaluated = (int(n) for n in arrays["counts"])
        if self.landmarks is not None:
            prefix = "landmarks."
            kept = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
            self.landmarks.load(kept)


_FILLS = {
    "value": np.nan,
    "at": LONG_BEFORE,
    "due": LONG_BEFORE,
    "drift": 0.0,
    "variance": np.nan,
    "late": False,
    "modelled": False,
}
LOOKED_AT = LANDMARK_TICKS * 3 // 4
"""Ticks after which an extreme since a landmark is looked at whatever the load."""
TRIED, CAREFUL = 20.0, 0.4
"""Until so many evaluations have shown what is right, intervals are shorter, at first by this factor."""
YEARLY = 365
"""Ticks over which misses are spent where that is longer than a day."""
REPLANNED = 10
"""Ticks after which intervals that have not ended are planned again."""
