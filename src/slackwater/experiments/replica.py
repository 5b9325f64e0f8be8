"""Many repetitions of one run: its sampling in numpy, with the rates that the planner chose for its batches.

The rows, the thresholds and the estimators are those of the run; only the salt is another. With the run's own
salt the replica gives the run's own answers, which is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from slackwater.benchmarks.workload import SECOND
from slackwater.experiments.hashing import Words, identity, numbers
from slackwater.experiments.packets import Landed
from slackwater.experiments.runs import Answers, Floats, Ints
from slackwater.experiments.workload import CONFIDENCE, Bools, Watch, Workload
from slackwater.plan.functions import Functions
from slackwater.plan.tables import StepPlan
from slackwater.runtime.estimating import estimate_call
from slackwater.runtime.sampled_windows import SampledWindows
from slackwater.runtime.shedding import UNTOLD, threshold
from slackwater.runtime.shedding import _fraction as fraction
from slackwater.spark.statement import WHOLE
from slackwater.statistics.samples import Samples


@dataclass(frozen=True)
class Passing:
    """The packets of one query: their places among all rows, and what is summed of them."""

    place: Ints
    value: Floats


@dataclass(frozen=True)
class Stream:
    """All rows of a landed stream as the replica needs them, in order of time."""

    identity: Words
    entry: Ints
    """By row: which stretch of one batch and one second it lies in."""
    first: Ints
    """By batch: its first row; one more at the end."""
    entries_of: Ints
    """By batch: its first entry; one more at the end."""
    pane: Ints
    """By entry: its second."""
    slices: Ints
    """By batch: from when to when it goes."""
    passing: Mapping[str, Passing]
    queries: Mapping[str, Watch]

    @property
    def arrived(self) -> Ints:
        return np.diff(self.first)

    @cached_property
    def batch(self) -> Ints:
        """By row."""
        return np.repeat(np.arange(len(self.arrived)), self.arrived)


def stream_of(landed: Landed, workload: Workload) -> Stream:
    """A landed stream under the eyes of a workload."""
    rows = landed.rows()
    time = rows["__t"].to_numpy()
    slices = np.array(landed.slices, dtype=np.int64)
    first = np.searchsorted(time, [*slices[:, 0], slices[-1, 1]])
    batch = np.repeat(np.arange(len(slices)), np.diff(first))
    keys, entry = np.unique(batch * (1 << 40) + time // SECOND, return_inverse=True)
    sizes = rows["size"].to_numpy().astype(float)
    passing = {}
    for name, mask in workload.masks(rows).items():
        place = np.flatnonzero(mask)
        passing[name] = Passing(place, sizes[place])
    return Stream(
        identity=identity(rows["__part"].to_numpy(), rows["__seq"].to_numpy()),
        entry=entry,
        first=first,
        entries_of=np.searchsorted(keys, np.arange(len(slices) + 1) * (1 << 40)),
        pane=keys % (1 << 40) * SECOND,
        slices=slices,
        passing=passing,
        queries={q.name: q for q in workload.queries},
    )


@dataclass(frozen=True)
class Rates:
    """How one query was sampled, by batch."""

    own: Floats
    root: Floats
    """The largest rate of all queries."""
    tau: Floats
    """Above 0 where rows were kept in proportion to their size."""
    calibrated: bool
    alone: bool
    """The query has a table of panes of its own, in which only its own rows are."""


@dataclass(frozen=True)
class _Windows(SampledWindows):
    """Windows that were closed by different batches, each with what was known by then."""

    bounds: tuple[Floats, Floats] | None = None

    def known(self, name: str) -> tuple[Floats, Floats] | None:
        return self.bounds


@dataclass(frozen=True)
class Replica:
    """One query of a run: how it was sampled in each batch, and the windows that are asked for."""

    stream: Stream
    query: Watch
    rates: Rates
    plan: StepPlan
    ends: Ints

    @cached_property
    def _cells(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Pairs of a window and a batch that meet, each with the batch's entries in the window."""
        stream, starts = self.stream, self.ends - self.query.seconds * SECOND
        low, high = stream.slices[:, 0], stream.slices[:, 1] - 1
        cell, batch = np.nonzero((low[None, :] < self.ends[:, None]) & (high[None, :] >= starts[:, None]))
        first, last = stream.entries_of[batch], stream.entries_of[batch + 1]
        # entries are in order of batch, then of time: shifted by batch they are sorted as a whole
        shift = int(stream.pane.max()) + 1
        by_batch = np.repeat(np.arange(len(stream.arrived)), np.diff(stream.entries_of))
        keys = by_batch * shift + stream.pane
        begin = np.clip(np.searchsorted(keys, batch * shift + np.maximum(starts[cell], 0)), first, last)
        end = np.clip(np.searchsorted(keys, batch * shift + self.ends[cell]), first, last)
        return cell, batch, begin, end

    def answers(self, u: Ints) -> Answers:
        """Estimates and intervals of the windows, for the numbers that a salt gives the rows."""
        place, value = self._kept(u)
        cell, batch, begin, end = self._cells
        parts = self._partials(place, value, begin, end)
        drawn = (self.rates.own < 1)[batch]
        # what a batch kept nothing of is not there, and is estimated as such
        seen = drawn & ((parts["_n"] if self.rates.alone else self._looked_at(u, begin, end)) > 0)
        cells = len(self.ends)
        bounds = self._known(place, value)
        column = next(iter(self.plan.calls[0].columns.values()))
        kept = {f"{column}{name}": part[seen] for name, part in parts.items()}
        kept |= {f"{column}_l": bounds[0][cell[seen]], f"{column}_h": bounds[1][cell[seen]]}
        exact = np.bincount(cell[~drawn], parts[""][~drawn], cells).astype(float)
        windows = _Windows(
            start=self.ends - self.query.seconds * SECOND,
            size=self.query.seconds * SECOND,
            keys=(),
            samples=self._samples(u, drawn, seen),
            rows=pa.table(kept),
            exact={column: exact},
            tau=self.rates.tau[batch[seen]],
            extremes={},
            bounds=bounds,
        )
        found = estimate_call(self.plan, 0, windows, CONFIDENCE, Functions())
        # a window that no sampled batch has a part in is answered exactly
        whole = np.bincount(cell[drawn], minlength=cells) == 0
        ends = (np.where(whole, exact, part) for part in (found.value, found.low, found.high))
        return Answers(self.ends, *ends)

    def _kept(self, u: Ints) -> tuple[Ints, Floats]:
        """The query's packets that are kept, and what is summed of them."""
        passing = self.stream.passing[self.query.name]
        mine = u[passing.place] < self._below
        return passing.place[mine], passing.value[mine]

    @cached_property
    def _below(self) -> Ints | Floats:
        """By packet of the query: the number that its own must be below for it to be kept."""
        passing = self.stream.passing[self.query.name]
        batch = self.stream.batch[passing.place]
        limits = self._limits(self.rates.own)[batch]
        if not (self.rates.tau > 0).any():
            return limits
        tau = self._tau[batch]
        sized = np.minimum(WHOLE, np.abs(passing.value) / np.where(tau > 0, tau, 1.0) * WHOLE)
        return np.where(tau > 0, sized, limits)

    @cached_property
    def _below_rate(self) -> Ints:
        """By row of the stream: what its number is below where it counts as kept."""
        return self._limits(self.rates.own)[self.stream.batch]

    @cached_property
    def _below_root(self) -> Ints:
        return self._limits(self.rates.root)[self.stream.batch]

    @cached_property
    def _tau(self) -> Floats:
        """By batch, as Spark is told it."""
        return np.array([float(a) / b for a, b in map(fraction, self.rates.tau.tolist())])

    def _limits(self, rates: Floats) -> Ints:
        return np.array([threshold(rate) for rate in rates], dtype=np.int64)

    def _partials(self, place: Ints, value: Floats, begin: Ints, end: Ints) -> dict[str, Floats]:
        """What Spark keeps of the packets, by window and batch, under the ends of its names."""
        stream = self.stream
        entry = stream.entry[place]
        if not self.query.sums:
            n = _between(entry, None, len(stream.pane), begin, end)
            return {"": n, "_n": n}
        wanted: dict[str, Floats | None] = {"": value, "_n": None, "_q": value * value}
        if (self.rates.tau > 0).any():
            tau = self._tau[stream.batch[place]]
            weighed = np.maximum(np.abs(value), tau)
            chance = np.minimum(1.0, np.abs(value) / np.where(tau > 0, tau, 1.0))
            wanted["_z"] = np.sign(value) * weighed
            wanted["_y"] = weighed * weighed * np.where(tau > 0, 1 - chance, 0.0)
        return {n: _between(entry, w, len(stream.pane), begin, end) for n, w in wanted.items()}

    def _looked_at(self, u: Ints, begin: Ints, end: Ints) -> Floats:
        """Rows that any query saw, by window and batch."""
        stream = self.stream
        if (self.rates.root >= 1).all():
            return np.asarray(end - begin, dtype=np.float64)
        entry = stream.entry[u < self._below_root]
        return _between(entry, None, len(stream.pane), begin, end)

    def _samples(self, u: Ints, drawn: Bools, seen: Bools) -> Samples:
        """As ``runtime.sampled_windows`` says it, of batches that were read whole."""
        stream, cells = self.stream, len(self.ends)
        all_cells, all_batches, _, _ = self._cells
        arrived, rates = stream.arrived, self.rates.own
        below = u < self._below_rate
        kept = np.add.reduceat(below, stream.first[:-1], dtype=np.int64)
        if not self.rates.calibrated:
            arrived = arrived * UNTOLD
            kept = np.round(arrived * rates).astype(np.int64)
        heaviest = np.ones(cells)
        cell, batch = all_cells[drawn], all_batches[drawn]
        np.maximum.at(heaviest, cell, 1 / np.maximum(rates[batch], 1e-12))
        unseen = np.bincount(cell, np.maximum(arrived - kept, 0)[batch], cells).astype(float)
        cell, batch = all_cells[seen], all_batches[seen]
        none = np.full(len(cell), -1, dtype=np.int64)
        return Samples(
            cells=cells,
            cell=cell,
            batch=batch,
            arrived=arrived[batch],
            kept=kept[batch],
            rate=rates[batch],
            block=none,
            blocks=none + 1,
            share=np.ones(len(cell)),
            kept_total=kept[batch],
            kept_squares=kept[batch].astype(float) ** 2,
            heaviest=heaviest,
            unseen=unseen,
        )

    def _known(self, place: Ints, value: Floats) -> tuple[Floats, Floats]:
        """By window: the smallest and largest value that any batch has shown up to the one that closes it."""
        stream = self.stream
        first = np.searchsorted(place, stream.first)
        least, most = np.full(len(stream.arrived), np.inf), np.full(len(stream.arrived), -np.inf)
        some = np.flatnonzero(np.diff(first) > 0)
        if len(some):
            least[some] = np.minimum.reduceat(value, first[:-1][some])
            most[some] = np.maximum.reduceat(value, first[:-1][some])
        closing = np.minimum(np.searchsorted(stream.slices[:, 1], self.ends), len(stream.arrived) - 1)
        return np.minimum.accumulate(least)[closing], np.maximum.accumulate(most)[closing]


def _between(entry: Ints, weights: Floats | None, entries: int, begin: Ints, end: Ints) -> Floats:
    """Sums over runs of entries; all addends are whole numbers, so that nothing is lost in the sums."""
    sums = np.concatenate([[0.0], np.cumsum(np.bincount(entry, weights, entries))])
    found: Floats = sums[end] - sums[begin]
    return found


def draw(stream: Stream, salt: int) -> Ints:
    """The number of every row under a salt."""
    return numbers(stream.identity, salt)
