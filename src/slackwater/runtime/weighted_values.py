"""Quantiles of windows that rest on a sample: values with the weights of the batches that they came in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slackwater.plan.model import Window
from slackwater.plan.panes import Ints
from slackwater.plan.tables import CallPlan, Table
from slackwater.runtime.samples import SlotBatches
from slackwater.runtime.store import one_nan
from slackwater.spark.finish import windows_sql
from slackwater.statistics.limits import Estimate
from slackwater.statistics.samples import Floats, Samples
from slackwater.statistics.spreads import quantile_ranks, rows_worth

Cell = tuple[int, tuple[Any, ...]]
"""Where a window starts, and the keys of a group."""


def values_sql(
    table: Table,
    where: CallPlan,
    window: Window,
    exact: str | None,
    sampled: str | None,
    weights: str,
    *,
    by_block: bool,
) -> str:
    """Values by window and group with their weights, from the panes of exact and of sampled batches.

    ``by_block`` keeps the values of a batch and of a block apart, under NULL those of exact batches.
    """
    keys = [f"k{i}" for i in range(len(table.keys))]
    n, present = where.columns["n"], where.columns["present"]
    values = ["w", *keys, "v0"]
    of_exact = ["CAST(NULL AS BIGINT) AS batch", "CAST(NULL AS BIGINT) AS block"] if by_block else []
    of_sampled = ["r.batch", "r.block"] if by_block else []
    parts = []
    if exact is not None:
        parts.append(
            f"SELECT {', '.join([*values, *of_exact])}, coalesce({n}, 0) AS n, {present} AS present, "
            f"1D AS weight FROM ({windows_sql(table, window, exact)})"
        )
    if sampled is not None:
        parts.append(
            f"SELECT {', '.join([*values, *of_sampled])}, coalesce({n}, 0) AS n, {present} AS present, "
            f"b.weight FROM ({windows_sql(table, window, sampled)}) r JOIN `{weights}` b ON r.batch = b.batch"
        )
    together = " UNION ALL ".join(parts)
    sums = (
        "sum(n) AS n, sum(present) AS present, sum(n * weight) AS weight, sum(n * weight * weight) AS squares"
    )
    by = ", ".join([*values, *(["batch", "block"] if by_block else [])])
    return f"SELECT {by}, {sums} FROM ({together}) GROUP BY {by} HAVING sum(present) > 0"


def batch_weights(batches: SlotBatches) -> pa.Table:
    """What a kept row of each batch weighs."""
    number, first, inverse = np.unique(batches.batch, return_index=True, return_inverse=True)
    kept = np.bincount(inverse, batches.kept, len(number))
    plain = 1 / np.maximum(batches.rate[first] * batches.share[first], 1e-12)
    weight = np.where(kept > 0, batches.arrived[first] / np.maximum(kept, 1), plain)
    return pa.table({"batch": pa.array(number), "weight": pa.array(weight)})


def cells_of(rows: pa.Table, keys: int, window: Window) -> list[Cell]:
    """The cell of each row."""
    start = rows["w"].to_numpy() * window.slide + window.offset
    columns = [one_nan(rows[f"k{i}"]) for i in range(keys)]
    groups: Sequence[tuple[Any, ...]] = list(zip(*columns, strict=True)) if keys else [()] * rows.num_rows
    return [(int(s), g) for s, g in zip(start, groups, strict=True)]


def quantiles(
    rows: pa.Table, cell: Ints, cells: int, p: float, confidence: float, drawn: Samples | None = None
) -> Estimate:
    """The weighted quantile of each cell with limits by its neighbours in rank.

    Guarantee: Woodruff's interval; a side on which too few values are known has no limit. Variant: the
    quantile is interpolated between the middles of the weights. Where blocks were read, ``drawn`` has an
    entry for each row that has a batch, in their order: limits then rest on how the share of values below
    differs between blocks, and are never narrower than those of rows drawn one by one.
    """
    value = np.asarray(rows["v0"].cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy(), dtype=float)
    n, weight, squares = (
        np.asarray(rows[name].fill_null(0).to_numpy(), dtype=float) for name in ("n", "weight", "squares")
    )
    n = np.where(np.isfinite(value), n, 0.0)
    some = n > 0
    count, spread = (np.bincount(cell[some], a[some], cells).astype(float) for a in (n, squares))
    if not some.any():
        nothing = np.full(cells, np.nan)
        return Estimate(nothing, np.full(cells, -np.inf), np.full(cells, np.inf), count)
    ordered = _Ordered.of(value[some], weight[some], cell[some], cells)
    total = ordered.total
    unkept = np.clip(1 - count / np.maximum(total, 1e-12), 0.0, 1.0)
    middling = ordered.between(p)

    def ranks(worth: Floats | None) -> tuple[Floats, Floats]:
        return quantile_ranks(np.full(cells, p), total, spread, count, unkept, confidence, worth)

    low_rank, high_rank = ranks(None)
    if drawn is not None:
        sampled = rows["batch"].is_valid().to_numpy()
        worth = _worth(value, n, cell, sampled, middling, drawn, confidence)
        low_rank, high_rank = ranks(worth)
        if p != 0.5:
            # beyond an outer quantile lie few blocks, too few to tell; the limit nearer the middle has more
            nearer = ordered.at(low_rank if p > 0.5 else high_rank)
            worth = np.minimum(worth, _worth(value, n, cell, sampled, nearer, drawn, confidence))
            low_rank, high_rank = ranks(worth)
    low = np.where(low_rank > 0, np.minimum(ordered.at(low_rank), middling), -np.inf)
    high = np.where(high_rank < 1, np.maximum(ordered.at(high_rank), middling), np.inf)
    known = count > 0
    return Estimate(
        np.where(known, middling, np.nan),
        np.where(known, low, -np.inf),
        np.where(known, high, np.inf),
        count,
    )


@dataclass(frozen=True)
class _Ordered:
    """The distinct values of each cell in order, cell after cell."""

    value: Floats
    weight: Floats
    ends: Floats
    """Weights added up to each value, all cells before it included."""
    total: Floats
    """By cell."""
    before: Floats
    """By cell: the weights of the cells before it."""
    first: Ints
    last: Ints

    @classmethod
    def of(cls, value: Floats, weight: Floats, cell: Ints, cells: int) -> _Ordered:
        """A value that came in several blocks is one: middles of weights are those of values."""
        order = np.lexsort((value, cell))
        value, cell = value[order], cell[order]
        new = np.ones(len(value), dtype=bool)
        new[1:] = (value[1:] != value[:-1]) | (cell[1:] != cell[:-1])
        weight = np.bincount(np.cumsum(new) - 1, weight[order]).astype(float)
        value, cell = value[new], cell[new]
        total = np.bincount(cell, weight, cells).astype(float)
        first = np.searchsorted(cell, np.arange(cells))
        last = np.maximum(np.searchsorted(cell, np.arange(cells), side="right") - 1, first)
        before = np.concatenate([[0.0], np.cumsum(total)])[:-1]
        return cls(value, weight, np.cumsum(weight), total, before, first, last)

    def at(self, rank: Floats) -> Floats:
        """By cell: the value that a rank falls on."""
        place = np.searchsorted(self.ends, self.before + rank * self.total - 1e-9 * self.total)
        found: Floats = self.value[self._within(place)]
        return found

    def between(self, p: float) -> Floats:
        """By cell: the quantile, interpolated between the middles of the weights."""
        middle, wanted = self.ends - self.weight / 2, self.before + p * self.total
        right = self._within(np.searchsorted(middle, wanted))
        left = np.maximum(right - 1, np.minimum(self.first, len(self.value) - 1))
        span = middle[right] - middle[left]
        part = np.divide(wanted - middle[left], span, out=np.ones(len(span)), where=span > 0)
        found: Floats = self.value[left] + np.clip(part, 0.0, 1.0) * (self.value[right] - self.value[left])
        return found

    def _within(self, place: Ints) -> Ints:
        """Places within their cells; any at all for cells without a value."""
        return np.clip(place, self.first, self.last).clip(0, len(self.value) - 1)


def _worth(
    value: Floats,
    n: Floats,
    cell: Ints,
    sampled: npt.NDArray[np.bool_],
    candidate: Floats,
    drawn: Samples,
    confidence: float,
) -> Floats:
    """By cell: what rows that came in blocks are worth as rows drawn one by one, for a candidate's rank.

    Values equal to the candidate count as below it, and then as not: the rank lies somewhere among them.
    """
    own = candidate[cell]
    below = [np.where(is_below, n, 0.0) for is_below in (value <= own, value < own)]
    exact_n, *exact = (
        np.bincount(cell[~sampled], a[~sampled], drawn.cells).astype(float) for a in (n, *below)
    )
    return rows_worth(drawn, n[sampled], [b[sampled] for b in below], exact_n, exact, confidence)
