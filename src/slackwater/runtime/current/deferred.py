"""Answers that are evaluated only when they have probably drifted: one for each group and item of a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slackwater.plan.linear import Linear
from slackwater.plan.model import Move, Output, Step
from slackwater.planners.deferring import UnitCosts
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import How
from slackwater.runtime.current.evaluating import Evaluated, Tick, bound_of, evaluated
from slackwater.runtime.current.exact import typed
from slackwater.runtime.current.linear import Aggregate
from slackwater.runtime.current.matrix import Matrix
from slackwater.runtime.expressions import evaluate as expression
from slackwater.statistics.diffusion import Floats
from slackwater.statistics.series import LONG_BEFORE, NEVER, Bools, Ints


class DeferredItem:
    """One item of a query for all its groups: what was answered last, and when it is due again."""

    def __init__(self, output: Output, step: Step, form: Linear) -> None:
        self.output = output
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
        self.missed = 0
        self.evaluated = 0

    def grow(self, size: int) -> None:
        """Make places for more groups; each is due at once."""
        more = size - len(self.value)
        if more > 0:
            for name, fill in _FILLS.items():
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.full(more, fill, old.dtype)]))

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        kept: dict[str, npt.NDArray[np.generic]] = {name: getattr(self, name) for name in _FILLS}
        return kept | {"counts": np.array([self.missed, self.evaluated])}

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        for name in _FILLS:
            setattr(self, name, np.array(arrays[name]))
        self.missed, self.evaluated = (int(n) for n in arrays["counts"])


_FILLS = {
    "value": np.nan,
    "at": LONG_BEFORE,
    "due": LONG_BEFORE,
    "drift": 0.0,
    "variance": np.nan,
    "late": False,
}


class DeferredQuery:
    """One query under DRIFT: its items for all its groups."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self.step = matrix.step.step
        contract = matrix.step.drift
        assert contract is not None
        self.contract = contract
        self.types: list[pa.DataType] = []
        self.items = [DeferredItem(o, self.step, matrix.form) for o in self.step.outputs if o.aggregated]
        self._held: list[tuple[DeferredItem, int, Ints, Evaluated, Bools]] = []

    def wake(self, rows: Bools) -> None:
        """Have rows evaluated at the next tick: something has changed that is no drift."""
        for item in self.items:
            item.grow(self.matrix.size)
            item.due[: len(rows)][rows] = LONG_BEFORE

    def costs(self, item: DeferredItem, tick: Tick, units: UnitCosts, rows: Ints) -> Floats:
        """What evaluating each of some rows takes, in seconds."""
        ticks = 1
        if item.move is not None and tick.history is not None:
            ticks = 1 + int((tick.history.times >= tick.now - (item.move.size or 0)).sum())
        return units.evaluation((self.matrix.lengths()[rows] * ticks).astype(np.float64))

    def evaluate(self, item: DeferredItem, tick: Tick, rows: Ints) -> None:
        """Evaluate some groups of an item at a tick; each is then due at a time of its own."""
        since = int(item.at[rows].min())
        found, present = evaluated(
            self.matrix, item.aggregate, item.move, self.contract, tick, rows, item.value[rows], since
        )
        item.evaluated += len(rows)
        # of those that no key is there for nothing can be said, and that there is no value is said once
        known = ~np.isnan(found.value) | ~np.isnan(item.value[rows]) | (item.at[rows] == LONG_BEFORE)
        there = present & known
        on_time = ~item.late[rows]
        self._held.append((item, tick.now, rows[there], _only(found, there), on_time[there]))
        item.value[rows], item.at[rows] = found.value, tick.now
        item.drift[rows], item.variance[rows] = found.drift, found.variance
        item.late[rows] = False
        wait = np.minimum(found.wait * 1e6, float(NEVER // 4))
        item.due[rows] = tick.now + wait.astype(np.int64)

    def answers(self, emitted_at: datetime) -> Iterator[AnswerBatch]:
        """What has been evaluated since the last call, as answers."""
        held, self._held = self._held, []
        for item in self.items:
            mine = [h for h in held if h[0] is item and len(h[2])]
            for modelled in (False, True):
                batch = self._batch(item, mine, modelled, emitted_at)
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
        met = on_time & there & (width <= bound_of(self.contract, value) * (1 + 1e-9))
        return AnswerBatch(
            query=self.step.name,
            column=item.output.name,
            at=at,
            keys=self._keys(rows),
            value=typed(value, there, self._type(item)),
            low=pa.array(value - width, mask=~there),
            high=pa.array(value + width, mask=~there),
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
        columns = {f"k{i}": c.take(chosen) for i, c in enumerate(self.matrix.groups.columns)}
        named = {key.name: columns[f"k{i}"] for i, key in enumerate(self.step.keys)}
        for output in self.step.outputs:
            if not output.aggregated and columns:
                made = expression(output.sql, columns)
                if made is not None:
                    named[output.name] = made
        return named

    def discard(self) -> None:
        self._held = []

    @property
    def held(self) -> int:
        return sum(len(rows) for _, _, rows, _, _ in self._held)

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        return {f"{i}.{n}": a for i, item in enumerate(self.items) for n, a in item.to_arrays().items()}

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        for index, item in enumerate(self.items):
            prefix = f"{index}."
            own = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
            if own:
                item.load(own)


def _only(found: Evaluated, rows: Bools) -> Evaluated:
    return (
        found if rows.all() else Evaluated(*(getattr(found, n)[rows] for n in Evaluated.__dataclass_fields__))
    )
