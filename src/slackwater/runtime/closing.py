"""Windows that have closed, read from the driver's panes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slackwater.plan.algebra import algebra
from slackwater.plan.functions import Functions
from slackwater.plan.layout import FIRST_TIME, LAST_TIME
from slackwater.plan.model import TupleWindow, Window
from slackwater.plan.panes import Ints, candidates, starts
from slackwater.plan.tables import StepPlan, Table
from slackwater.planners.window_needs import ALL, inside
from slackwater.planners.window_schedule import Range
from slackwater.runtime.store import PaneStore, seen


@dataclass(frozen=True)
class Closed:
    """The closed windows of a step: one row per window and group. Times are microseconds."""

    window_start: Ints
    window_end: Ints
    keys: tuple[pa.Array, ...]
    calls: tuple[pa.Array, ...]
    rows: Ints
    owner: Ints
    """Which of the steps that were read together a row is of."""

    def __len__(self) -> int:
        return len(self.window_start)

    def without(self, starts: Sequence[Ints | None]) -> Closed | None:
        """The windows less those that start at given times, by step; None where none is left."""
        keep = np.ones(len(self), dtype=bool)
        for owner, taken in enumerate(starts):
            if taken is not None:
                keep &= (self.owner != owner) | ~np.isin(self.window_start, taken)
        if keep.all():
            return self
        chosen = pa.array(keep)
        return (
            Closed(
                self.window_start[keep],
                self.window_end[keep],
                tuple(key.filter(chosen) for key in self.keys),
                tuple(call.filter(chosen) for call in self.calls),
                self.rows[keep],
                self.owner[keep],
            )
            if keep.any()
            else None
        )


@dataclass(frozen=True)
class _Runs:
    """Closed windows of one length over a store: merged columns, windows by groups."""

    begin: Ints
    """Where they start in time, or in rows numbered."""
    start: Ints
    end: Ints
    columns: Mapping[str, npt.NDArray[Any]]


class Closing:
    """Reads the steps of a table for one advance of the watermark; equal windows share the work."""

    def __init__(
        self, table: Table, store: PaneStore, closed: int, watermark: int, functions: Functions
    ) -> None:
        self._table = table
        self._store = store
        self._closed = closed
        self._watermark = watermark
        self._functions = functions
        self._runs: dict[Window, _Runs | None] = {}
        self._members: dict[int, Ints] | None = None
        self.asked: Mapping[object, tuple[Range, ...]] = {}
        """By window: where those start that any step computes."""

    def read(
        self,
        plans: Sequence[StepPlan],
        names: Sequence[str],
        since: Sequence[int],
        computed: Sequence[tuple[Range, ...]],
    ) -> Closed | None:
        """The windows of alike steps that start at or after ``since`` of each; None where there are none.

        The steps differ in nothing but the member that they are. ``names`` are the columns that any
        step with this window reads. ``computed`` says of each step where windows start that are not left out.
        """
        plan = plans[0]
        window = plan.step.window
        assert window is not None
        assert plan.presence is not None
        if window not in self._runs:
            self._runs[window] = self._fold(window, names)
        runs = self._runs[window]
        needed = {plan.presence[1], *(name for call in plan.calls for name in call.columns.values())}
        if runs is None or not needed <= runs.columns.keys():
            # a partial that is new has no rows yet
            return None
        parts = [self._groups(p.member) for p in plans]
        groups = np.concatenate(parts)
        owners = np.repeat(np.arange(len(plans)), [len(part) for part in parts])
        present = runs.columns[plan.presence[1]][:, groups]
        window_index, position = np.nonzero(present)
        if not isinstance(window, TupleWindow):
            keep = runs.start[window_index] >= np.array(since, dtype=np.int64)[owners[position]]
            window_index, position = window_index[keep], position[keep]
        if any(ranges != ALL for ranges in computed):
            masks = np.array([inside(ranges, runs.begin) for ranges in computed])
            keep = masks[owners[position], window_index]
            window_index, position = window_index[keep], position[keep]
        if not len(window_index):
            return None
        cell = groups[position]
        return Closed(
            runs.start[window_index],
            runs.end[window_index],
            self._keys(cell, plan.member is not None),
            tuple(self._call(plan, i, runs, window_index, cell) for i in range(len(plan.calls))),
            present[window_index, position],
            owners[position],
        )

    def _fold(self, window: Window, names: Sequence[str]) -> _Runs | None:
        panes = np.array(self._store.panes, dtype=np.int64)
        indices = candidates(window, panes, self._table.width, self._closed, self._watermark)
        if self.asked.get(window, ALL) != ALL:
            indices = indices[inside(self.asked[window], starts(window, indices))]
        if not len(indices):
            return None
        start = starts(window, indices)
        low = np.searchsorted(panes, start)
        high = np.searchsorted(panes, start + window.size)
        tuples = isinstance(window, TupleWindow)
        wanted = [*names, *([FIRST_TIME.id, LAST_TIME.id] if tuples else [])]
        columns = self._store.fold(wanted, low, high)
        if tuples:
            width = len(self._store.groups)
            first = columns[FIRST_TIME.id][:, :width].min(axis=1)
            last = columns[LAST_TIME.id][:, :width].max(axis=1)
            return _Runs(start, first, last, columns)
        return _Runs(start, start, start + window.size, columns)

    def _groups(self, member: int | None) -> Ints:
        if member is None:
            return np.arange(max(1, len(self._store.groups)), dtype=np.int64)
        if self._members is None:
            found: dict[int, list[int]] = {}
            for key, index in self._store.groups.items():
                found.setdefault(key[0], []).append(index)
            self._members = {q: np.array(indices, dtype=np.int64) for q, indices in found.items()}
        return self._members.get(member, np.empty(0, dtype=np.int64))

    def _keys(self, cell: Ints, member: bool) -> tuple[pa.Array, ...]:
        names = self._store.keys[1:] if member else self._store.keys
        if not names:
            return ()
        groups = list(self._store.groups)
        distinct, inverse = np.unique(cell, return_inverse=True)
        offset = 1 if member else 0
        return tuple(
            pa.array([groups[g][i + offset] for g in distinct], type=self._store.key_types[name]).take(
                pa.array(inverse)
            )
            for i, name in enumerate(names)
        )

    def _call(self, plan: StepPlan, index: int, runs: _Runs, window: Ints, cell: Ints) -> pa.Array:
        where = plan.calls[index].columns
        final = algebra(plan.step.calls[index], self._functions).final
        merged = {role: runs.columns[name][window, cell] for role, name in where.items()}
        if final in ("total", "least", "largest"):
            known = runs.columns[seen(where[final])][window, cell]
            return self._store.columns[where[final]].write(merged[final], known)
        n = merged["n"]
        present = n > 0
        if final == "n":
            return pa.array(n)
        if final == "average":
            total = merged["total"]
            if total.dtype == object:
                total = np.array([float(t) if t is not None else np.nan for t in total])
            return pa.array(np.divide(total, n, out=np.zeros(len(n)), where=present), mask=~present)
        return _spread(final, n, merged["m2"])


def _spread(final: str, n: Ints, m2: npt.NDArray[np.float64]) -> pa.Array:
    """Variance or standard deviation; of one value there is no sample variance."""
    divisor = n - 1 if final.endswith("_samp") else n
    defined = divisor > 0
    variance = np.divide(np.maximum(m2, 0.0), divisor, out=np.zeros(len(n)), where=defined)
    return pa.array(np.sqrt(variance) if final.startswith("stddev") else variance, mask=~defined)
