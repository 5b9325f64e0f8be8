"""Quantiles of windows that rest on a sample: values with the weights of the batches that they came in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.plan.model import Window
from slackwater.plan.panes import Ints
from slackwater.plan.tables import CallPlan, Table
from slackwater.runtime.samples import SlotBatches
from slackwater.runtime.store import one_nan
from slackwater.spark.finish import windows_sql
from slackwater.statistics.limits import Estimate
from slackwater.statistics.samples import Floats
from slackwater.statistics.spreads import quantile_ranks

Cell = tuple[int, tuple[Any, ...]]
"""Where a window starts, and the keys of a group."""


def values_sql(
    table: Table, where: CallPlan, window: Window, exact: str | None, sampled: str | None, weights: str
) -> str:
    """Values by window and group with their weights, from the panes of exact and of sampled batches."""
    keys = [f"k{i}" for i in range(len(table.keys))]
    n, present = where.columns["n"], where.columns["present"]
    by = ", ".join(["w", *keys, "v0"])
    parts = []
    if exact is not None:
        parts.append(
            f"SELECT {by}, coalesce({n}, 0) AS n, {present} AS present, 1D AS weight "
            f"FROM ({windows_sql(table, window, exact)})"
        )
    if sampled is not None:
        parts.append(
            f"SELECT {by}, coalesce({n}, 0) AS n, {present} AS present, b.weight "
            f"FROM ({windows_sql(table, window, sampled)}) r JOIN `{weights}` b ON r.batch = b.batch"
        )
    together = " UNION ALL ".join(parts)
    sums = (
        "sum(n) AS n, sum(present) AS present, sum(n * weight) AS weight, sum(n * weight * weight) AS squares"
    )
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


def quantiles(rows: pa.Table, cell: Ints, cells: int, p: float, confidence: float) -> Estimate:
    """The weighted quantile of each cell with limits by its neighbours in rank.

    Guarantee: Woodruff's interval; a side on which too few values are known has no limit. Variant: the
    quantile is interpolated between the middles of the weights.
    """
    value = np.asarray(rows["v0"].cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy(), dtype=float)
    n = np.asarray(rows["n"].fill_null(0).to_numpy(), dtype=float)
    weight = np.asarray(rows["weight"].fill_null(0).to_numpy(), dtype=float)
    squares = np.asarray(rows["squares"].fill_null(0).to_numpy(), dtype=float)
    some = (n > 0) & np.isfinite(value)
    order = np.lexsort((value[some], cell[some]))
    value, n, weight, squares = (a[some][order] for a in (value, n, weight, squares))
    cell = cell[some][order]
    total, count, spread = (np.bincount(cell, a, cells).astype(float) for a in (weight, n, squares))
    unkept = np.clip(1 - count / np.maximum(total, 1e-12), 0.0, 1.0)
    low_rank, high_rank = quantile_ranks(np.full(cells, p), total, spread, count, unkept, confidence)
    ends = np.cumsum(weight)
    before = np.concatenate([[0.0], np.cumsum(total)])[:-1]
    first = np.searchsorted(cell, np.arange(cells))
    last = np.searchsorted(cell, np.arange(cells), side="right") - 1
    middle = ends - weight / 2

    def at(rank: Floats) -> Floats:
        place = np.searchsorted(ends, before + rank * total - 1e-9 * total)
        found: Floats = value[np.clip(place, first, np.maximum(last, first)).clip(0, len(value) - 1)]
        return found

    known = count > 0
    if not len(value):
        nothing = np.full(cells, np.nan)
        return Estimate(nothing, np.full(cells, -np.inf), np.full(cells, np.inf), count)
    wanted = before + p * total
    right = np.clip(np.searchsorted(middle, wanted), first, np.maximum(last, first)).clip(0, len(value) - 1)
    left = np.maximum(right - 1, np.minimum(first, len(value) - 1))
    span = middle[right] - middle[left]
    part = np.clip(np.divide(wanted - middle[left], span, out=np.ones(cells), where=span > 0), 0.0, 1.0)
    middling = value[left] + part * (value[right] - value[left])
    low = np.where(low_rank > 0, np.minimum(at(low_rank), middling), -np.inf)
    high = np.where(high_rank < 1, np.maximum(at(high_rank), middling), np.inf)
    return Estimate(
        np.where(known, middling, np.nan),
        np.where(known, low, -np.inf),
        np.where(known, high, np.inf),
        count,
    )
