"""What was kept of a window, and how far estimates from it scatter.

Guarantee: weighted sums are unbiased over the hash, for batches of any size; their variance is estimated
without bias for batches of two kept rows or more, to first order in 1/blocks where only blocks were read.
Variant: rows are weighed by arrived/kept of their batch (calibration), not by 1/rate; the entries of one
batch are added up before anything is squared, since the panes of a batch share its kept rows and covary.
Reference: Särndal, Swensson, Wretman, Model Assisted Survey Sampling (1992), sections 7.10 and 8.5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from slackwater.plan.panes import Ints

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Samples:
    """What was kept, entry by entry: an entry is one cell (a window and group) in one batch (and block).

    Entries come in any order, and a (cell, batch, block) may have several: the panes of a window.
    """

    cells: int
    cell: Ints
    """0 .. cells - 1."""
    batch: Ints
    arrived: Ints
    """Rows that arrived in the batch."""
    kept: Ints
    """Rows of the batch with u below the rate, before any predicate; of the block, where blocks are read."""
    rate: Floats
    block: Ints
    """-1: all rows of the batch were looked at; else the number of a contiguous block that was read."""
    blocks: Ints
    """How many blocks were read of the batch; 0 where block is -1."""
    share: Floats
    """Share of the batch's rows that lie in the blocks read; 1 where block is -1."""
    kept_total: Ints
    """Kept over all blocks of the batch; the same as kept where block is -1."""
    kept_squares: Floats
    """Sum over the blocks of kept², blocks without an entry included."""
    heaviest: Floats
    """By cell: the largest weight of any sampled batch that overlaps the cell.

    1/(rate·share) makes limits that hold over all outcomes; arrived/kept, much wider where batches are
    small, also such that hold given how much each batch has kept.
    """
    unseen: Floats
    """By cell: rows that arrived but were not kept, over all sampled batches that overlap the cell."""


def entries_of(samples: Samples, chosen: npt.NDArray[np.bool_]) -> Samples:
    """The same cells with some of the entries only."""
    by_entry = (
        "cell", "batch", "arrived", "kept", "rate", "block", "blocks", "share", "kept_total", "kept_squares",
    )  # fmt: skip
    return replace(samples, **{name: getattr(samples, name)[chosen] for name in by_entry})


@dataclass(frozen=True)
class Strata:
    """Entries by stratum: what one batch holds of one cell. Arrays are by stratum unless told otherwise."""

    cells: int
    cell: Ints
    arrived: Floats
    kept: Floats
    weight: Floats
    usual: Floats
    """The weight that is expected before the rows are drawn: 1/rate, for blocks over their share."""
    missed: Floats
    """The chance that the batch keeps no row at all."""
    blocks: Floats
    share: Floats
    kept_squares: Floats
    stratum: Ints
    """By entry."""
    cluster: Ints
    """By entry: its block in its stratum."""
    cluster_stratum: Ints
    """By cluster."""
    cluster_kept: Floats
    """By cluster."""

    def sums(self, values: Floats) -> Floats:
        """By stratum, of values by entry."""
        return np.bincount(self.stratum, values, len(self.cell)).astype(float)

    def cell_sums(self, values: Floats) -> Floats:
        """By cell, of values by stratum."""
        return np.bincount(self.cell, values, self.cells).astype(float)

    def cell_largest(self, values: Floats, start: Floats) -> Floats:
        """By cell, of values by stratum and one by cell."""
        largest = start.copy()
        np.maximum.at(largest, self.cell, values)
        return largest

    def estimate(self, values: Floats) -> Floats:
        """The weighted sum by cell, of values by entry."""
        return self.cell_sums(self.weight * self.sums(values))


@dataclass(frozen=True)
class Scatter:
    """By stratum: how the weighted sum of some value over the kept rows of a batch scatters."""

    total: Floats
    """The unweighted sum over kept rows."""
    variance: Floats
    """Of the weighted sum."""
    unit: Floats
    """Mean square deviation of what is drawn: a row, or a block where blocks are read."""
    above: Floats
    """The largest deviation of a block from its share; 0 where rows are drawn."""
    below: Floats
    """The same, below."""


def strata(samples: Samples) -> Strata:
    """Groups the entries and weighs them.

    Where nothing is kept of a batch its rows are lost from the estimate, so the others have to weigh a
    little more than arrived/kept: the surplus is zero if all rows were kept, and so large that the
    estimate is unbiased over all outcomes. It is felt only where about ten rows or fewer are expected.

    >>> i, x = np.array([0]), np.array([1.0])
    >>> few = Samples(1, i, i, i + 10, i + 2, x / 5, i - 1, i, x, i + 2, x, 5 * x, 8 * x)
    >>> strata(few).weight.round(3).tolist()
    [5.62]
    """
    _, batch = np.unique(samples.batch, return_inverse=True)
    keys = samples.cell * (int(batch.max(initial=0)) + 1) + batch
    _, first, stratum = np.unique(keys, return_index=True, return_inverse=True)
    _, block = np.unique(samples.block, return_inverse=True)
    keys = stratum * (int(block.max(initial=0)) + 1) + block
    _, first_of_block, cluster = np.unique(keys, return_index=True, return_inverse=True)
    arrived, kept = samples.arrived[first].astype(float), samples.kept_total[first].astype(float)
    whole = samples.block[first] < 0
    share = np.where(whole, 1.0, np.clip(samples.share[first], 1e-12, 1.0))
    rate = np.clip(samples.rate[first].astype(float), 1e-300, 1.0)
    looked = np.maximum(arrived * share, kept)
    with np.errstate(divide="ignore", invalid="ignore"):
        missed = np.where(rate < 1, np.exp(looked * np.log1p(-rate)), 0.0)
        surplus = (looked - kept) * missed / (1 - rate - missed)
        weight = (looked + np.where(missed > 0, surplus, 0.0)) / kept
        # a single row is kept or not: nothing to calibrate by
        weight = np.where((kept < 1) | (looked <= 1), 1 / rate, weight)
    return Strata(
        cells=samples.cells,
        cell=samples.cell[first],
        arrived=arrived,
        kept=kept,
        weight=weight / share,
        usual=1 / (rate * share),
        missed=missed,
        blocks=np.where(whole, 0, samples.blocks[first]).astype(float),
        share=share,
        kept_squares=samples.kept_squares[first].astype(float),
        stratum=stratum,
        cluster=cluster,
        cluster_stratum=stratum[first_of_block],
        cluster_kept=samples.kept[first_of_block].astype(float),
    )


def scatter(strata: Strata, s: Floats, q: Floats) -> Scatter:
    """From the sums of a value and of its square over the kept rows, by entry.

    Rows: V = w²·(1 - m/N)·m/(m - 1)·(Q - S²/m), without replacement, where w = N/m. Blocks: the deviations
    e = y - R·m of the blocks from their share hold the scatter between blocks and within, so
    w²·k/(k - 1)·Σe² would be right if both were drawn from infinitely many. Of the part between blocks
    only 1 - share remains; of the part within, which comes from the rate, all remains. So
    V = w²·((1 - share)·k/(k - 1)·Σe² + share·(1 - rate)·m/(m - 1)·(Q - S²/m)).
    """
    m, k, w = strata.kept, strata.blocks, strata.weight
    total, squares = strata.sums(s), strata.sums(q)
    some = np.maximum(m, 1)
    rest = np.maximum(squares - total * total / some, 0.0)
    looked = np.maximum(strata.arrived * strata.share, some)
    within = (1 - m / looked) * some / np.maximum(m - 1, 1) * rest
    # with one row kept there is no spread to be seen: as if rows were kept by the rate alone
    within = np.where(m > 1, within, (1 - 1 / np.maximum(w * strata.share, 1)) * squares)
    rows = w * w * (within + np.where(m > 1, strata.missed, 0.0) * total * total)
    if not (k > 0).any():
        nothing = np.zeros(len(m))
        return Scatter(total, rows, rest / some, nothing, nothing)
    ratio = total / some
    y = np.bincount(strata.cluster, s, len(strata.cluster_stratum))
    crossed, y_squares = (
        np.bincount(strata.cluster_stratum, part, len(m)) for part in (y * strata.cluster_kept, y * y)
    )
    between = np.maximum(y_squares - 2 * ratio * crossed + ratio * ratio * strata.kept_squares, 0.0)
    factor = np.where(k > 1, k / np.maximum(k - 1, 1) * between, total * total)
    blocks = w * w * ((1 - strata.share) * factor + strata.share * within)
    e = y - ratio[strata.cluster_stratum] * strata.cluster_kept
    # a block without an entry deviates by its share of the sum
    absent = np.where(
        np.bincount(strata.cluster_stratum, minlength=len(m)) < k, -total / np.maximum(k, 1), 0.0
    )
    above, below = np.maximum(absent, 0.0), np.maximum(-absent, 0.0)
    np.maximum.at(above, strata.cluster_stratum, e)
    np.maximum.at(below, strata.cluster_stratum, -e)
    read = k > 0
    return Scatter(
        total,
        np.where(read, blocks, rows),
        np.where(read, between / np.maximum(k, 1), rest / some),
        np.where(read, above, 0.0),
        np.where(read, below, 0.0),
    )
