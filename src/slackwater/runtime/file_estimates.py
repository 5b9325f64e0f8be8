"""Sampled windows of steps whose panes lie in files: quantiles, and groups too many for the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import gcd

import numpy as np
import pyarrow as pa

from slackwater.plan.model import TimeWindow
from slackwater.plan.panes import Ints
from slackwater.plan.tables import Column, StepPlan, Table
from slackwater.runtime.estimating import Estimated, confidences, estimate_call, presence
from slackwater.runtime.sampled_windows import (
    SampledWindows,
    _samples,
    read_sampled,
    sampled_starts,
    touched,
)
from slackwater.runtime.samples import SlotBatches
from slackwater.runtime.weighted_values import Cell, batch_weights, cells_of, quantiles, values_sql
from slackwater.runtime.work import Work
from slackwater.spark.finish import bind_windows, merged, windows_sql
from slackwater.statistics.limits import Estimate
from slackwater.statistics.samples import Floats, Samples


@dataclass(frozen=True)
class FileEstimates:
    """Reads one step's sampled windows from the log through Spark."""

    work: Work
    plan: StepPlan
    slot_id: str
    batches: SlotBatches

    def closing(self, closed: int, watermark: int, since: int) -> Ints:
        """Starts of the windows that close and that a sampled batch has a part in."""
        window = self.plan.step.window
        assert isinstance(window, TimeWindow)
        width = gcd(window.size, window.slide, window.offset)
        panes = touched(self.batches, width, closed, watermark)
        begun = sampled_starts(window, self.batches, panes, width, closed, watermark)
        return begun[begun >= since]

    def estimate(self, begun: Ints) -> Estimated | None:
        """Estimates of all aggregates in the given windows; None where nothing is known of any."""
        plan, step = self.plan, self.plan.step
        contract = self.work.plan.catalog.contracts[step.name.lower()]
        confidence, asked = confidences(step, contract)
        partials = self._partials(begun) if plan.presence is not None else None
        values = {
            i: self._values(i, begun)
            for i, call in enumerate(plan.calls)
            if self.work.plan.tables[call.table].kind == "values"
        }
        window = step.window
        assert window is not None
        cells: dict[Cell, int] = {}
        rows_of = {
            i: np.array(
                [cells.setdefault(c, len(cells)) for c in cells_of(r, len(step.keys), window)], dtype=np.int64
            )
            for i, r in values.items()
        }
        of_partials = self._places(partials, cells) if partials is not None else None
        if not cells:
            return None
        size = len(cells)
        start = np.array([s for s, _ in cells], dtype=np.int64)
        drawn = {i: self._drawn(r, rows_of[i], begun, start) for i, r in values.items()}

        def call(index: int, c: float) -> Estimate:
            if index in values:
                p = step.calls[index].parameter
                p = 0.5 if p is None else p
                return quantiles(values[index], rows_of[index], size, p, c, drawn[index])
            assert partials is not None
            assert of_partials is not None
            found = estimate_call(plan, index, partials, c, self.work.plan.catalog.functions)
            return _spread(found, of_partials, size)

        calls = {c: tuple(call(i, c) for i in range(len(plan.calls))) for c in asked}
        if partials is not None and of_partials is not None:
            rows, rate = np.zeros(size), np.zeros(size)
            rows[of_partials], rate[of_partials] = presence(plan, partials, confidence)
        else:
            first = next(iter(values))
            weight = np.bincount(rows_of[first], values[first]["weight"].to_numpy(), size)
            rows = calls[confidence][first].rows
            rate = np.minimum(np.divide(rows, weight, out=np.ones(size), where=weight > 0), 1.0)
        listed = list(cells)
        keys = tuple(
            pa.array([k[i] for _, k in listed], type=self._key_type(i, partials, values))
            for i in range(len(step.keys))
        )
        return Estimated(step, start, window.size, keys, calls, confidence, rows, rate)

    def _key_type(
        self, index: int, partials: SampledWindows | None, values: dict[int, pa.Table]
    ) -> pa.DataType:
        if partials is not None:
            return partials.keys[index].type
        return next(iter(values.values()))[f"k{index}"].type

    def _places(self, partials: SampledWindows, cells: dict[Cell, int]) -> Ints:
        groups = list(zip(*(k.to_pylist() for k in partials.keys), strict=True)) if partials.keys else None
        listed = [
            (int(s), groups[i] if groups is not None else ()) for i, s in enumerate(partials.start.tolist())
        ]
        return np.array([cells.setdefault(c, len(cells)) for c in listed], dtype=np.int64)

    def _partials(self, begun: Ints) -> SampledWindows | None:
        plan, work = self.plan, self.work
        assert plan.presence is not None
        table_id = plan.presence[0]
        table = work.plan.tables[table_id]
        names = sorted(
            {plan.presence[1], *(n for c in plan.calls if c.table == table_id for n in c.columns.values())}
        )
        store = work.log.store(table_id)
        rows = None
        if store is None:
            view = self._view(table_id, begun, sampled=False)
            by_id = {c.id: c for c in work.plan.columns[table_id]}
            rows = self._collect(_merged_sql(plan, table, by_id, names, view), begun) if view else None
        return read_sampled(
            plan, table, store, work.samples, self.slot_id, begun, names, work.state.extremes, rows
        )

    def _values(self, index: int, begun: Ints) -> pa.Table:
        where = self.plan.calls[index]
        table = self.work.plan.tables[where.table]
        window = self.plan.step.window
        assert window is not None
        weights = "sampled__weights"
        self.work.executor.view_of(self.work.session, batch_weights(self.batches), weights)
        exact = self._view(where.table, begun, sampled=False)
        sampled = self._view(where.table, begun, sampled=True)
        if exact is None and sampled is None:
            keys = {f"k{i}": pa.array([], pa.string()) for i in range(len(table.keys))}
            numbers = {n: pa.array([], pa.float64()) for n in ("v0", "n", "present", "weight", "squares")}
            whole = {n: pa.array([], pa.int64()) for n in ("w", "batch", "block")}
            return pa.table({**whole, **keys, **numbers})
        sql = values_sql(table, where, window, exact, sampled, weights, by_block=self._by_block)
        rows = self._collect(sql, begun)
        start = rows["w"].to_numpy() * window.slide + window.offset
        return rows.filter(pa.array(np.isin(start, begun)))

    @cached_property
    def _by_block(self) -> bool:
        """Whether of some batch only blocks were read, so that values of a block stay together."""
        return bool((self.batches.block >= 0).any())

    def _drawn(self, rows: pa.Table, cell: Ints, begun: Ints, start: Ints) -> Samples | None:
        """What batches and blocks say about each value of a sampled batch; ``start`` is by cell."""
        window = self.plan.step.window
        assert window is not None
        if not self._by_block:
            return None
        sampled = rows["batch"].is_valid().to_numpy()
        kept = rows.filter(pa.array(sampled))
        by_window = np.searchsorted(begun, start)
        entry = np.arange(kept.num_rows)
        return _samples(len(start), cell[sampled], kept, entry, self.batches, begun, window.size, by_window)

    def _view(self, table_id: str, begun: Ints, *, sampled: bool) -> str | None:
        """The panes of a table that the windows need, as a view; None where there are none."""
        work, window = self.work, self.plan.step.window
        assert window is not None
        low, high = int(begun[0]), int(begun[-1]) + window.size
        files = work.samples.files(table_id) if sampled else work.log.files(table_id)
        paths = [str(work.journal.root / f.path) for f in files if f.high >= low and f.low < high]
        if not paths:
            return None
        name = f"panes_{table_id}{'_sampled' if sampled else ''}"
        columns = [c.id for c in work.plan.columns[table_id]]
        work.executor.panes(work.session, paths, name, columns)
        return name

    def _collect(self, sql: str, begun: Ints) -> pa.Table:
        window = self.plan.step.window
        assert window is not None
        first, last = ((int(b) - window.offset) // window.slide for b in (begun[0], begun[-1]))
        bind = partial(bind_windows, first=first, last=last)
        return self.work.executor.collect(self.work.session, bind(sql))


def _merged_sql(
    plan: StepPlan, table: Table, columns: dict[str, Column], names: Sequence[str], view: str
) -> str:
    """Partials merged by window and group; a mean and a sum of squares by their count."""
    assert plan.step.window is not None
    triples = {
        c.columns["mean"]: (c.columns["n"], c.columns["m2"]) for c in plan.calls if "mean" in c.columns
    }
    by_m2 = {m2: (n, mean) for mean, (n, m2) in triples.items()}
    items = []
    for name in names:
        if name in triples:
            n = triples[name][0]
            items.append(f"sum({n} * {name}) / nullif(sum({n}), 0) AS {name}")
        elif name in by_m2:
            n, mean = by_m2[name]
            squares = f"sum({name} + {n} * {mean} * {mean})"
            items.append(f"{squares} - pow(sum({n} * {mean}), 2) / nullif(sum({n}), 0) AS {name}")
        else:
            items.append(f"{merged(columns[name], name)} AS {name}")
    keys = ["w", *(["q"] if table.signature is not None else []), *(f"k{i}" for i in range(len(table.keys)))]
    member = f" WHERE q = {plan.member}" if plan.member is not None else ""
    by = ", ".join(keys)
    source = windows_sql(table, plan.step.window, view)
    return f"SELECT {by}, {', '.join(items)} FROM ({source}){member} GROUP BY {by}"


def _spread(found: Estimate, places: Ints, size: int) -> Estimate:
    """An estimate by some cells as one by all; nothing is known of the others."""

    def wide(values: Floats, empty: float) -> Floats:
        result = np.full(size, empty)
        result[places] = values
        return result

    return Estimate(
        wide(found.value, np.nan), wide(found.low, -np.inf), wide(found.high, np.inf), wide(found.rows, 0.0)
    )
