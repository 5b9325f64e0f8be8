"""Answers that are evaluated only when they have probably drifted: one for each group and item of a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slackwater.planners.deferring import UnitCosts
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import How
from slackwater.runtime.current.evaluating import evaluated, planned
from slackwater.runtime.current.exact import typed
from slackwater.runtime.current.item import REPLANNED, DeferredItem
from slackwater.runtime.current.matrix import Matrix
from slackwater.runtime.current.moving import begins
from slackwater.runtime.current.naming import BySpark, named_groups
from slackwater.runtime.current.tick import Asked, Evaluated, Tick, bound_of
from slackwater.statistics.diffusion import Floats
from slackwater.statistics.series import LONG_BEFORE, NEVER, Bools, Ints


class DeferredQuery:
    """One query under DRIFT: its items for all its groups."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self.step = matrix.step.step
        contract = matrix.step.drift
        assert contract is not None
        self.contract = contract
        self.types: list[pa.DataType] = []
        self.weighed: Ints = np.empty(0, np.int64)
        """By group: what its keys and weights were when the state was kept."""
        self.named: dict[str, pa.Array] = {}
        """By name: items that are of the groups alone."""
        self.items = [
            DeferredItem(o, self.step, matrix.form, contract.belief)
            for o in self.step.outputs
            if o.aggregated
        ]
        self.known_from = int(LONG_BEFORE)
        """The last tick before it was there, as of an exact query."""
        self._held: list[tuple[DeferredItem, int, Ints, Evaluated, Bools]] = []

    def compare(self) -> None:
        """Wake groups whose keys or weights are others than when the state was kept: a table has changed."""
        now = self.matrix.digest()
        before = np.zeros(len(now), np.int64)
        before[: len(self.weighed)] = self.weighed[: len(now)]
        self.wake(now != before)

    def wake(self, rows: Bools) -> None:
        """Have rows evaluated at the next tick: something has changed that is no drift."""
        for item in self.items:
            item.grow(self.matrix.size)
            item.due[: len(rows)][rows] = LONG_BEFORE

    def repaired(self, keys: Bools, before: int, reach: int) -> None:
        """Take extremes since a landmark anew where keys have said something else from a tick on."""
        taken = [item for item in self.items if item.landmarks is not None]
        rows = self.matrix.rows_with(keys) if taken else keys
        for item in taken:
            assert item.landmarks is not None
            item.grow(self.matrix.size)
            item.landmarks.back(rows, before, reach)

    def costs(self, item: DeferredItem, tick: Tick, units: UnitCosts, rows: Ints) -> Floats:
        """What evaluating each of some rows takes, in seconds."""
        return units.evaluation(self.matrix.lengths()[rows].astype(np.float64), self.reads(item, tick, rows))

    def reads(self, item: DeferredItem, tick: Tick, rows: Ints) -> Floats:
        """How many ticks an evaluation of each of some rows looks at."""
        if item.move is None or tick.history is None:
            return np.ones(len(rows))
        times = tick.history.times
        low = np.full(len(rows), tick.now - (item.move.size or 0))
        if item.landmarks is not None:
            low = item.landmarks.at[0, rows]
        first = np.searchsorted(times, np.maximum(low, tick.history.reach))
        return np.asarray(1.0 + len(times) - first, np.float64)

    def evaluate(self, item: DeferredItem, tick: Tick, rows: Ints, *, learns: bool = True) -> None:
        """Evaluate some groups of an item at a tick; each is then due at a time of its own.

        Without ``learns`` nothing is learnt of belief: they were chosen because they have drifted.
        """
        found, present = evaluated(self.matrix, self.asked(item, tick, rows))
        item.evaluated += len(rows)
        if learns and tick.manner.calibration and item.move is None:
            seen = ~found.modelled
            bound = bound_of(self.contract, item.value[rows])[seen]
            moving = self.contract.extrapolate
            item.learn(rows[seen], found.value[seen], bound, tick, extrapolated=moving)
        # that there is no value is said once
        known = ~np.isnan(found.value) | ~np.isnan(item.value[rows]) | (item.at[rows] == LONG_BEFORE)
        there = present & known
        on_time = ~item.late[rows]
        self._held.append((item, tick.now, rows[there], _only(found, there), on_time[there]))
        item.value[rows], item.drift[rows], item.variance[rows] = found.value, found.drift, found.variance
        item.at[rows[present]] = tick.now
        item.look(rows[present], found.known[present], found.modelled[present], tick)
        item.late[rows], item.modelled[rows] = False, found.modelled
        item.plan(rows, found, tick)
        # of a group that no key is there for nothing can be said until one comes, which wakes it
        item.due[rows[~present]] = NEVER

    def replan(self, item: DeferredItem, tick: Tick) -> None:
        """Plan a part of the groups again that wait, by what is known now; all in so many ticks."""
        if not tick.manner.replanned or item.move is not None:
            return
        part = np.arange(tick.number % REPLANNED, len(item.due), REPLANNED)
        waits = (item.due[part] > tick.now + tick.gap) & (item.due[part] < NEVER)
        rows = part[waits & (item.at[part] < tick.now) & ~item.modelled[part]]
        if not len(rows):
            return
        wait, longest = planned(self.matrix, self.asked(item, tick, rows))
        item.plan_again(rows, wait, longest, tick)

    def asked(self, item: DeferredItem, tick: Tick, rows: Ints) -> Asked:
        """What is to be known of some groups of an item."""
        cached, since = item.value[rows], int(LONG_BEFORE)
        if item.landmarks is not None:
            cached, since = item.landmarks.extreme[0, rows], int(item.landmarks.at[0, rows].min())
        factor = self._factor(item, rows, tick)
        return Asked(item.aggregate, item.move, self.contract, tick, cached, factor, rows, len(rows), since)

    def _factor(self, item: DeferredItem, rows: Ints, tick: Tick) -> Floats:
        if tick.manner.calibration and item.move is None:
            return item.calibration.factor(rows)
        return np.ones(len(rows))

    def answers(self, emitted_at: datetime) -> Iterator[AnswerBatch]:
        """What has been evaluated since the last call, as answers in order of time."""
        held, self._held = self._held, []
        for item in self.items:
            mine = [h for h in held if h[0] is item and len(h[2])]
            # as long as nothing is modelled, all ticks are one batch
            plain = not any(found.modelled.any() for _, _, _, found, _ in mine)
            for ticks in [mine] if plain else [[h] for h in mine]:
                for modelled in (False, True):
                    batch = self._batch(item, ticks, modelled, emitted_at)
                    if batch is not None:
                        yield batch

    def _batch(
        self,
        item: DeferredItem,
        held: list[tuple[DeferredItem, int, Ints, Evaluated, Bools]],
        modelled: bool,
        emitted_at: datetime,
    ) -> AnswerBatch | None:
        chosen = [found.modelled == modelled for _, _, _, found, _ in held]
        count = sum(int(c.sum()) for c in chosen)
        if not count:
            return None

        def column(name: str) -> Floats:
            parts = [getattr(found, name)[c] for (_, _, _, found, _), c in zip(held, chosen, strict=True)]
            return np.concatenate(parts)

        rows = np.concatenate([rows[c] for (_, _, rows, _, _), c in zip(held, chosen, strict=True)])
        on_time = np.concatenate([o[c] for (_, _, _, _, o), c in zip(held, chosen, strict=True)])
        at = np.concatenate(
            [np.full(int(c.sum()), now) for (_, now, _, _, _), c in zip(held, chosen, strict=True)]
        )
        value, width = column("value"), column("width")
        there = ~np.isnan(value)
        how: How = "modelled" if modelled else "deferred"
        if item.move is not None:
            on_time = on_time & (begins(item.move, at) >= self.known_from)
        met = on_time & there & (width <= bound_of(self.contract, value) * (1 + 1e-9))
        return AnswerBatch(
            query=self.step.name,
            column=item.output.name,
            at=at,
            keys=self._keys(rows),
            value=typed(value, there, self._type(item)),
            low=pa.array(value - width, mask=~(there & np.isfinite(width))),
            high=pa.array(value + width, mask=~(there & np.isfinite(width))),
            confidence=self.contract.belief,
            how=how,
            rows=column("counted").astype(np.int64),
            met=met if modelled else on_time,
            emitted_at=emitted_at,
            slope=column("drift") if self.contract.extrapolate and item.move is None else None,
        )

    def _type(self, item: DeferredItem) -> pa.DataType:
        """A count stays a whole number; all else is a double."""
        call = item.output.call
        whole = call is not None and self.matrix.form.calls[call].function == "count"
        return pa.int64() if whole else pa.float64()

    def _keys(self, rows: Ints) -> dict[str, pa.Array]:
        chosen = pa.array(rows)
        named = {
            key.name: c.take(chosen)
            for key, c in zip(self.step.keys, self.matrix.groups.columns, strict=False)
        }
        return named | {name: column.take(chosen) for name, column in self.named.items()}

    def name_groups(self, by_spark: BySpark) -> None:
        """Make the items that are of the groups alone, for all groups that there are."""
        found = named_groups(self.step, self.matrix.groups.columns, by_spark)
        self.named = self.named if found is None else found

    def discard(self) -> None:
        self._held = []

    @property
    def held(self) -> int:
        return sum(len(rows) for _, _, rows, _, _ in self._held)

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        kept = {f"{i}.{n}": a for i, item in enumerate(self.items) for n, a in item.to_arrays().items()}
        return kept | {"weighed": self.matrix.digest(), "known_from": np.array(self.known_from)}

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        for index, item in enumerate(self.items):
            prefix = f"{index}."
            own = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
            if own:
                item.load(own)
        self.known_from = int(arrays.get("known_from", LONG_BEFORE))
        if "weighed" in arrays:
            self.weighed = np.array(arrays["weighed"], np.int64)


def _only(found: Evaluated, rows: Bools) -> Evaluated:
    return (
        found if rows.all() else Evaluated(*(getattr(found, n)[rows] for n in Evaluated.__dataclass_fields__))
    )
