"""Closed windows that sampled batches have a part in: their rows, cell by cell, for estimates to be made of.

A *cell* is a window and a group. What exact batches brought is merged in the panes already; what sampled
batches brought is looked up row by row, with what their batches say about how much was kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plan.model import Window
from slackwater.plan.panes import Ints, candidates, starts
from slackwater.plan.slots import rare
from slackwater.plan.tables import StepPlan, Table
from slackwater.runtime.samples import SampleLog, SlotBatches
from slackwater.runtime.store import PaneStore, one_nan
from slackwater.statistics.samples import Floats, Samples

_PANES_AT_MOST = 20_000
"""Panes of one stretch of time that are looked at though no row in them was kept."""


@dataclass(frozen=True)
class BySize:
    """By cell: of the sampled batches that overlap it, those that kept rows by their size and the others."""

    largest_tau: Floats
    """0 where no batch kept rows by their size."""
    unseen: Floats
    """Rows that arrived but were not kept, over the other batches."""


@dataclass(frozen=True)
class SampledWindows:
    """The windows of one step that rest on a sample, as cells and as entries of what was kept."""

    start: Ints
    """By cell."""
    size: int
    keys: tuple[pa.Array, ...]
    """By cell."""
    samples: Samples
    rows: pa.Table
    """The kept partials, by entry."""
    exact: dict[str, Floats]
    """By cell: the merged partials of the batches that were not sampled."""
    tau: Floats
    """By entry: above 0 where rows were kept in proportion to their size."""
    extremes: Mapping[str, tuple[float, float]]
    """By partial: the smallest and largest value that any batch has shown."""
    overlapping: BySize | None = None
    """Of all batches that overlap a cell; None where only those with entries are known."""

    @cached_property
    def by_size(self) -> BySize:
        """What batches that overlap a cell say about rows kept by size, as far as they are known."""
        if self.overlapping is not None:
            return self.overlapping
        largest = np.zeros(self.samples.cells)
        np.maximum.at(largest, self.samples.cell, self.tau)
        return BySize(largest, self.samples.unseen * (self.tau <= 0).any())

    def known(self, name: str) -> tuple[Floats, Floats] | None:
        """What values a partial may have, by cell; None where nothing has been seen."""
        if name not in self.extremes:
            return None
        low, high = self.extremes[name]
        return np.full(self.samples.cells, low), np.full(self.samples.cells, high)

    def column(self, name: str) -> Floats:
        """A partial by entry, 0 where there was no value."""
        if name not in self.rows.column_names:
            return np.zeros(self.rows.num_rows)
        values = pc.cast(self.rows[name], pa.float64(), safe=False)
        numbers: Floats = np.nan_to_num(np.asarray(values.fill_null(0.0).to_numpy(), dtype=float))
        return numbers

    def merged(self, name: str) -> Floats:
        """A partial of the exact batches by cell, 0 where there was none."""
        return self.exact.get(name, np.zeros(self.samples.cells))


def sampled_starts(
    window: Window, batches: SlotBatches | None, panes: Ints, width: int, closed: int, watermark: int
) -> Ints:
    """Starts of the windows that close between two watermarks and that a sampled batch has a part in."""
    if batches is None:
        return np.empty(0, dtype=np.int64)
    indices = candidates(window, panes, width, closed, watermark)
    begun = starts(window, indices)
    found, _ = batches.overlapping(begun, begun + window.size)
    return begun[np.unique(found)]


def touched(batches: SlotBatches | None, width: int, closed: int, watermark: int) -> Ints:
    """Panes that sampled batches may have had rows in, kept or not, as many as tell which windows close.

    A window that closes ends after ``closed``. If it meets a batch before that, it also holds the pane of
    ``closed``, or the last one of a batch that ends earlier: one pane stands for the past, whatever the
    window's size. Where the watermark has moved very far, as one row with a wrong time can make it, the
    middle of a batch is left out: windows there without a row in any batch are not answered.
    """
    spans: list[tuple[int, int]] = []
    known = set(zip(batches.low.tolist(), batches.high.tolist(), strict=True)) if batches is not None else ()
    for low, high in sorted(known):
        # batches overlap by the lateness of their stream: a pane is listed once
        if spans and low <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(high, spans[-1][1]))
        else:
            spans.append((low, high))
    parts = [np.empty(0, dtype=np.int64)]
    for low, high in spans:
        first, last = max(low, min(high, closed)), min(high, watermark - 1)
        first, last = first - first % width, last - last % width
        half = _PANES_AT_MOST // 2 * width
        parts.append(np.arange(first, min(first + half, last + 1), width, dtype=np.int64))
        parts.append(np.arange(max(first, last - half), last + 1, width, dtype=np.int64))
    return np.unique(np.concatenate(parts))


def read_sampled(
    plan: StepPlan,
    table: Table,
    store: PaneStore | None,
    log: SampleLog,
    slot_id: str,
    begun: Ints,
    names: Sequence[str],
    extremes: Mapping[str, tuple[float, float]],
    merged_rows: pa.Table | None = None,
) -> SampledWindows | None:
    """The cells of the given windows of a step; None where there are none.

    A window without groups is a cell even where nothing was kept of it: its count is 0 with an upper limit.
    What exact batches brought comes from the driver's panes, or, where those are too many, from rows that
    Spark has merged by window (``w``) and group.
    """
    window = plan.step.window
    batches = log.slot(slot_id)
    assert window is not None
    assert plan.presence is not None
    assert batches is not None
    rows = _rows(log.partials(plan.presence[0]), plan, table, batches)
    groups = _Groups(store, plan.member)
    group = groups.of(rows, table)
    pane = rows["pane"].to_numpy() if rows.num_rows else np.empty(0, dtype=np.int64)
    first = np.searchsorted(begun, pane - window.size, side="right")
    last = np.searchsorted(begun, pane, side="right")
    times = np.maximum(last - first, 0)
    entry = np.repeat(np.arange(len(pane)), times)
    offset = np.arange(len(entry)) - np.repeat(np.cumsum(times) - times, times)
    place = np.repeat(first, times) + offset
    if merged_rows is not None:
        merged, exact_cells = _merged(merged_rows, table, window, names, plan.presence[1], begun, groups)
    else:
        merged, exact_cells = _exact(store, names, plan.presence[1], begun, window.size, groups)
    width = max(1, len(groups))
    cells = np.concatenate([place * width + group[entry], exact_cells])
    if not table.keys and not len(groups):
        return None
    if not table.keys:
        cells = np.concatenate([cells, np.arange(len(begun)) * width + groups.only])
    known, index = np.unique(cells, return_inverse=True)
    if not len(known):
        return None
    by_window, by_group = known // width, known % width
    cell = index[: len(entry)]
    samples = _samples(len(known), cell, rows, entry, batches, begun, window.size, by_window)
    rarely = log.slot(rare(slot_id))
    if rarely is not None and f"stratum_{slot_id}" in rows.column_names:
        other = _samples(len(known), cell, rows, entry, rarely, begun, window.size, by_window)
        column = rows[f"stratum_{slot_id}"].fill_null(0).to_numpy()[entry] > 0
        samples = _of_strata(samples, other, column)
    exact = {name: values[by_window, by_group] for name, values in merged.items()}
    keys, kept = groups.keys(by_group, table), rows.take(pa.array(entry))
    own = f"{plan.presence[0]}."
    seen = {n.removeprefix(own): ends for n, ends in extremes.items() if n.startswith(own)}
    tau = _taus(batches, samples.batch)
    sizes = _by_size(batches, begun, window.size, by_window)
    return SampledWindows(begun[by_window], window.size, keys, samples, kept, exact, tau, seen, sizes)


def _by_size(batches: SlotBatches, begun: Ints, size: int, by_window: Ints) -> BySize:
    """What all batches that overlap a window say, those of which nothing was kept in it too."""
    window, row = batches.overlapping(begun, begun + size)
    largest, unseen = np.zeros(len(begun)), np.zeros(len(begun))
    np.maximum.at(largest, window, batches.tau[row])
    # a batch that was read in blocks has a row for each, in order: it arrived once
    once = np.diff(batches.batch, prepend=-1) != 0
    left = np.where(batches.tau > 0, 0, np.where(once, batches.arrived, 0) - batches.kept)
    np.add.at(unseen, window, left[row])
    return BySize(largest[by_window], np.maximum(unseen, 0.0)[by_window])


def _taus(batches: SlotBatches, of: Ints) -> Floats:
    number, first = np.unique(batches.batch, return_index=True)
    found: Floats = batches.tau[first][np.searchsorted(number, of)]
    return found


def _of_strata(frequent: Samples, rarely: Samples, is_rare: npt.NDArray[np.bool_]) -> Samples:
    """Entries of rare groups as their own batches tell, all others as those of the frequent ones do."""
    by_entry = ("kept", "rate", "kept_total", "kept_squares")
    chosen: dict[str, Any] = {
        name: np.where(is_rare, getattr(rarely, name), getattr(frequent, name)) for name in by_entry
    }
    of_rare = np.zeros(frequent.cells, dtype=bool)
    of_rare[frequent.cell[is_rare]] = True
    for name in ("heaviest", "unseen"):
        chosen[name] = np.where(of_rare, getattr(rarely, name), getattr(frequent, name))
    return replace(frequent, **chosen)


def _rows(partials: pa.Table | None, plan: StepPlan, table: Table, batches: SlotBatches) -> pa.Table:
    """The kept partials of a step: those of batches in which its own slot was sampled."""
    if partials is None:
        return pa.table({"pane": pa.array([], pa.int64())})
    assert plan.presence is not None
    mine = np.isin(partials["batch"].to_numpy(), batches.batch)
    if plan.member is not None:
        mine &= pc.equal(partials["q"], plan.member).to_numpy()
    presence = plan.presence[1]
    if presence not in partials.column_names:
        mine[:] = False
    elif table.keys:
        # other paths may have rows of groups that this one has none of
        mine &= partials[presence].fill_null(0).to_numpy() > 0
    return partials if mine.all() else partials.filter(pa.array(mine))


class _Groups:
    """Group keys of exact and sampled partials under one numbering."""

    def __init__(self, store: PaneStore | None, member: int | None) -> None:
        self.known: dict[tuple[Any, ...], int] = dict(store.groups) if store is not None else {}
        self._types: dict[str, pa.DataType] = dict(store.key_types) if store is not None else {}
        self._member = member

    def __len__(self) -> int:
        return len(self.known)

    @property
    def only(self) -> int:
        """The group of a step without keys: all rows, or those of its member."""
        return self.known.setdefault(() if self._member is None else (self._member,), len(self.known))

    def of(self, rows: pa.Table, table: Table) -> Ints:
        """The group of each row."""
        names = (["q"] if table.signature is not None else []) + [f"k{i}" for i in range(len(table.keys))]
        if not names or (self._member is not None and not table.keys):
            return np.full(rows.num_rows, self.only, dtype=np.int64)
        present = [n for n in names if n in rows.column_names]
        for name in present:
            self._types.setdefault(name, rows[name].type)
        columns = [one_nan(rows[n]) for n in present]
        index = np.empty(rows.num_rows, dtype=np.int64)
        for i, key in enumerate(zip(*columns, strict=True) if rows.num_rows else ()):
            index[i] = self.known.setdefault(key, len(self.known))
        return index

    def keys(self, group: Ints, table: Table) -> tuple[pa.Array, ...]:
        """Key columns by cell."""
        if not table.keys:
            return ()
        listed = list(self.known)
        offset = 1 if table.signature is not None else 0
        distinct, inverse = np.unique(group, return_inverse=True)
        return tuple(
            pa.array([listed[g][i + offset] for g in distinct], type=self._types.get(f"k{i}")).take(
                pa.array(inverse)
            )
            for i in range(len(table.keys))
        )


def _exact(
    store: PaneStore | None, names: Sequence[str], presence: str, begun: Ints, size: int, groups: _Groups
) -> tuple[dict[str, npt.NDArray[np.float64]], Ints]:
    """Merged partials of exact batches, windows by groups, and the cells that have rows in them."""
    shape = (len(begun), max(1, len(groups)))
    filled: dict[str, npt.NDArray[np.float64]] = {}
    nothing = np.empty(0, dtype=np.int64)
    if store is None or not store.panes:
        return filled, nothing
    panes = np.array(store.panes, dtype=np.int64)
    low, high = np.searchsorted(panes, begun), np.searchsorted(panes, begun + size)
    some = np.flatnonzero(high > low)
    if not len(some):
        return filled, nothing
    folded = store.fold(list(names), low[some], high[some])
    known = len(store.groups)
    for name in names:
        if name in folded:
            values = np.zeros(shape)
            values[np.ix_(some, np.arange(known))] = _floats(folded[name][:, :known])
            filled[name] = values
    if presence not in filled:
        return filled, nothing
    present = filled[presence].copy()
    if groups._member is not None:
        mine = np.array([k[0] == groups._member for k in groups.known], dtype=bool)
        present[:, : len(mine)] *= mine
    return filled, np.flatnonzero(present)


def _merged(
    rows: pa.Table,
    table: Table,
    window: Window,
    names: Sequence[str],
    presence: str,
    begun: Ints,
    groups: _Groups,
) -> tuple[dict[str, npt.NDArray[np.float64]], Ints]:
    """The same from rows that Spark has merged by window and group."""
    start = rows["w"].to_numpy() * window.slide + window.offset
    group = groups.of(rows, table)
    place = np.searchsorted(begun, start)
    mine = (place < len(begun)) & (begun[np.minimum(place, len(begun) - 1)] == start)
    filled: dict[str, npt.NDArray[np.float64]] = {}
    for name in names:
        if name in rows.column_names:
            values = np.zeros((len(begun), max(1, len(groups))))
            column = pc.cast(rows[name], pa.float64(), safe=False).fill_null(0.0).to_numpy()
            values[place[mine], group[mine]] = column[mine]
            filled[name] = values
    return filled, np.flatnonzero(filled[presence]) if presence in filled else np.empty(0, dtype=np.int64)


def _floats(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    if values.dtype == object:
        return np.array([[float(v) if v is not None else 0.0 for v in row] for row in values])
    numbers: npt.NDArray[np.float64] = np.nan_to_num(np.asarray(values, dtype=float))
    return numbers


def _samples(
    cells: int,
    cell: Ints,
    rows: pa.Table,
    entry: Ints,
    batches: SlotBatches,
    begun: Ints,
    size: int,
    by_window: Ints,
) -> Samples:
    """What the batches say about each entry, and about each cell."""
    number, first, inverse = np.unique(batches.batch, return_index=True, return_inverse=True)
    total = np.bincount(inverse, batches.kept, len(number))
    squares = np.bincount(inverse, batches.kept.astype(float) ** 2, len(number))
    blocks = np.bincount(inverse, batches.block >= 0, len(number)).astype(np.int64)
    arrived, rate, share = batches.arrived[first], batches.rate[first], batches.share[first]
    # by the rate: arrived over kept is large by chance where few are kept
    weight = 1 / np.maximum(rate * share, 1e-12)
    window, row = batches.overlapping(begun, begun + size)
    heaviest, unseen = np.ones(len(begun)), np.zeros(len(begun))
    np.maximum.at(heaviest, window, weight[inverse[row]])
    pairs = np.unique(window * len(number) + inverse[row])
    np.add.at(unseen, pairs // len(number), np.maximum(arrived - total, 0)[pairs % len(number)])
    if rows.num_rows:
        its_batch, its_block = rows["batch"].to_numpy()[entry], rows["block"].to_numpy()[entry]
    else:
        its_batch = its_block = np.empty(0, dtype=np.int64)
    at = np.searchsorted(number, its_batch)
    # a row of the batch table for every block: sorted by batch, then block
    named, rank = np.unique(batches.block, return_inverse=True)
    keys = inverse * len(named) + rank
    exactly = np.searchsorted(keys, at * len(named) + np.searchsorted(named, its_block))
    return Samples(
        cells=cells,
        cell=cell,
        batch=its_batch,
        arrived=arrived[at],
        kept=batches.kept[np.minimum(exactly, len(keys) - 1)],
        rate=rate[at],
        block=its_block,
        blocks=blocks[at],
        share=share[at],
        kept_total=total[at].astype(np.int64),
        kept_squares=squares[at],
        heaviest=heaviest[by_window],
        unseen=unseen[by_window],
    )
