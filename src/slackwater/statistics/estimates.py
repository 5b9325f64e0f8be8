"""Counts, sums and averages of windows of which a sample was kept, with confidence limits.

Guarantee: counts and sums are unbiased over the hash; limits hold at least as often as they claim, down to no
kept row at all for counts, for sums and averages as far as the kept rows show the largest values.
Variant: see ``samples`` for the weights and ``limits`` for the limits. Sums by entry are over kept rows that
pass the query's predicates and have a value; ``exact_…`` are by cell, over the batches that were not sampled.
Reference: Särndal, Swensson, Wretman, Model Assisted Survey Sampling (1992).

>>> one = np.array([0])
>>> kept = Samples(1, one, one, one + 1000, one + 100, one + 0.1, one - 1, one, one + 1.0, one + 100,
...                one + 0.0, one + 10.0, one + 900.0)
>>> some = count(kept, one + 5.0, one + 7.0, 0.95)
>>> some.value.round(3).tolist(), some.low.round(1).tolist(), some.high.round(1).tolist(), some.rows.tolist()
([57.0], [24.0], [118.0], [12.0])
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from slackwater.statistics.limits import Deviations, Estimate, deviations, freedom, quantile
from slackwater.statistics.samples import Floats, Samples, Scatter, Strata, scatter, strata

__all__ = ["Estimate", "Known", "average", "count", "total", "total_by_size"]

Bools = npt.NDArray[np.bool_]
Known = tuple[Floats, Floats]
"""By cell, the smallest and largest value that rows have had: in the exact batches, in earlier windows."""


def count(samples: Samples, n: Floats, exact_n: Floats, confidence: float) -> Estimate:
    """COUNT: never below what was seen, never above that and all rows that were not."""
    groups = strata(samples)
    n = np.asarray(n, dtype=float)
    seen = exact_n + np.bincount(samples.cell, n, samples.cells)
    spread = scatter(groups, n, n)
    # the variance of a share is known from the share, but not that between blocks
    free = np.where(groups.blocks > 0, np.maximum(groups.blocks - 1, 1), np.inf)
    around = deviations(
        samples,
        groups,
        spread,
        np.zeros(samples.cells),
        np.ones(samples.cells),
        freedom(groups, spread.variance, free),
        confidence,
    )
    ceiling = seen + np.maximum(samples.unseen, groups.cell_sums(groups.arrived - groups.kept))
    value = np.clip(exact_n + groups.estimate(n), seen, ceiling)
    # counts are whole, so the limits may be; few rows at high rates need it
    low = np.maximum(np.floor(value - around.below), seen)
    high = np.minimum(np.ceil(value + around.above), ceiling)
    return Estimate(value, low, high, seen)


def total(
    samples: Samples,
    n: Floats,
    s: Floats,
    q: Floats,
    least: Floats,
    most: Floats,
    exact_s: Floats,
    exact_n: Floats,
    confidence: float,
    known: Known | None = None,
) -> Estimate:
    """SUM: ``s`` and ``q`` are sums of values and squares, ``least`` and ``most`` the extremes, by entry.

    Where no kept value is below zero the sum is never below what was seen, and the other way round. With
    no kept row there are no limits, since nothing is known of the values, unless ``known`` tells.
    """
    groups = strata(samples)
    n, s, q = (np.asarray(part, dtype=float) for part in (n, s, q))
    low_value, high_value = extremes(samples, n, least, most, known)
    rows = np.bincount(samples.cell, n, samples.cells).astype(float)
    spread = scatter(groups, s, q)
    by_rows = degrees(groups, np.minimum(groups.kept - 1, groups.sums(n)))
    # rows without a value count as zero, so zero is one of the values
    around = deviations(
        samples,
        groups,
        spread,
        np.minimum(low_value, 0.0),
        np.maximum(high_value, 0.0),
        freedom(groups, spread.variance, by_rows),
        confidence,
    )
    value = exact_s + groups.estimate(s)
    seen = exact_s + np.bincount(samples.cell, s, samples.cells)
    low, high = value - around.below, value + around.above
    low = np.where(low_value >= 0, np.maximum(low, np.minimum(seen, value)), low)
    high = np.where(high_value <= 0, np.minimum(high, np.maximum(seen, value)), high)
    unknown = (rows == 0) & (samples.unseen > 0.5) & (known is None)
    return Estimate(value, np.where(unknown, -np.inf, low), np.where(unknown, np.inf, high), exact_n + rows)


def average(
    samples: Samples,
    n: Floats,
    s: Floats,
    q: Floats,
    least: Floats,
    most: Floats,
    exact_n: Floats,
    exact_s: Floats,
    confidence: float,
    known: Known | None = None,
) -> Estimate:
    """AVG: a ratio of two estimates, whose variance is that of the sum of residuals v - average.

    The average of no rows is NaN; without a kept row, or with one alone, there are no limits unless
    ``known`` tells what values there are.
    """
    groups = strata(samples)
    n, s, q = (np.asarray(part, dtype=float) for part in (n, s, q))
    low_value, high_value = extremes(samples, n, least, most, known)
    rows = np.bincount(samples.cell, n, samples.cells).astype(float)
    weighed = groups.estimate(n)
    size = exact_n + weighed
    some = np.where(size > 0, size, 1.0)
    value = (exact_s + groups.estimate(s)) / some
    mean = value[samples.cell]
    residuals, free = fitted(groups, n, s - mean * n, q - 2 * mean * s + mean * mean * n, weighed / some)
    around = deviations(
        samples,
        groups,
        residuals,
        np.minimum(low_value - value, 0.0),
        np.maximum(high_value - value, 0.0),
        free,
        confidence,
    )
    unsure = nothing_known(samples, rows, exact_n, known)
    return Estimate(
        np.where(size > 0, value, np.nan),
        np.where(unsure, -np.inf, value - around.below / some),
        np.where(unsure, np.inf, value + around.above / some),
        exact_n + rows,
    )


def total_by_size(
    samples: Samples,
    n: Floats,
    s: Floats,
    q: Floats,
    tau: Floats,
    least: Floats,
    most: Floats,
    largest_tau: Floats,
    exact_s: Floats,
    exact_n: Floats,
    confidence: float,
    known: Known | None = None,
) -> Estimate:
    """SUM where a row is kept with a chance in proportion to its size: u < |v|/tau.

    By entry ``s`` is the sum of sign(v)·max(|v|, tau) and ``q`` that of max(|v|, tau)²·(1 - |v|/tau), where
    that is above zero; ``largest_tau`` is by cell, of any batch that overlaps it. Large rows are all kept
    and the small ones all weigh tau, so few rows are needed and no extremes.
    """
    tau = np.maximum(np.asarray(tau, dtype=float), 1e-300)
    low_value, high_value = extremes(samples, n, least, most, known)
    rows, plain, variance, hidden, third = (
        np.bincount(samples.cell, part, samples.cells).astype(float)
        for part in (n, s, q, q / tau, 2 * tau * q)
    )
    positive, negative = (
        (side if known is not None else side & (rows > 0)) for side in (low_value >= 0, high_value <= 0)
    )
    tail = (1 - confidence) / 2
    # values of one sign skew the sum to that side only; of both signs, to either
    extra = np.maximum(largest_tau, 0.0)
    reaches = []
    for away in (positive, negative):
        more = np.where(away, 0.0, extra)
        skewed = np.where(away, -third, third) + 2 * more**3
        reaches.append(more + quantile(np.zeros(samples.cells), variance + more**2, skewed, 1 - tail))
    around = Deviations(*(np.maximum(reach, 0.0) for reach in reaches))
    value = exact_s + plain
    low, high = value - around.below, value + around.above
    # of a kept row |v| was seen, not tau
    low = np.where(positive, np.maximum(low, np.minimum(value - hidden, value)), low)
    high = np.where(negative, np.minimum(high, np.maximum(value + hidden, value)), high)
    return Estimate(value, low, high, exact_n + rows)


def nothing_known(samples: Samples, rows: Floats, exact_n: Floats, known: Known | None) -> Bools:
    """Cells whose kept rows, none or one alone, say nothing about the values of those that were not kept."""
    few: Bools = (samples.unseen > 0.5) & ((rows == 0) | (rows + exact_n < 2))
    return few if known is None else np.zeros_like(few)


@dataclass(frozen=True)
class Blocks:
    """By cell: the blocks that have rows of it; where rows were drawn, each row."""

    seen: Floats
    left: Floats
    """Those that remain when a share has been fitted to them."""
    fit: Floats
    """How much smaller for the fit the variance between them looks."""
    by_stratum: Floats
    """Degrees of freedom."""

    @classmethod
    def of(cls, groups: Strata, n: Floats, sampled: Floats) -> Blocks:
        """``sampled`` is how much of a cell's rows the fit was made to samples of, not to exact ones."""
        rows = groups.sums(n)
        has_rows = np.bincount(groups.cluster, n, len(groups.cluster_stratum)) > 0
        clusters = np.bincount(groups.cluster_stratum, has_rows, len(groups.cell))
        read = groups.blocks > 0
        with_rows = np.where(read, clusters, rows)
        seen, drawn = groups.cell_sums(with_rows), groups.cell_sums(np.where(read, groups.blocks, rows))
        left = np.where(seen - sampled > 1e-9, seen - sampled, 0.0)
        # scatter allows for one of all that were read, though some may have no rows of the cell
        allowed = 1 + 1 / np.maximum(drawn - 1, 1.0)
        fit = np.maximum(np.divide(seen, left, out=np.ones(groups.cells), where=left > 0) / allowed, 1.0)
        return cls(seen, left, fit, np.minimum(degrees(groups, rows), np.maximum(with_rows, 1.0)))

    def freedom(self, groups: Strata, variance: Floats) -> Floats:
        """By cell, at least a little: where nothing is left it is not asked for."""
        free = np.minimum(freedom(groups, variance, self.by_stratum) / self.fit, self.left)
        return np.maximum(free, 1e-2)


def fitted(groups: Strata, n: Floats, s: Floats, q: Floats, sampled: Floats) -> tuple[Scatter, Floats]:
    """How the sum of residuals scatters, and its degrees of freedom by cell.

    One row is used up by the fit, or one block where blocks were read, as far as (``sampled``) it was made to
    sampled rows, not to exact ones. A window shorter than its batch may have rows in one block alone: it fits
    that block wholly, and nothing is left to tell how blocks differ.
    """
    plain = scatter(groups, s, np.maximum(q, 0.0))
    rows = np.maximum(groups.cell_sums(groups.sums(n)), 1.0)
    left = np.maximum(rows - sampled, 0.0) / rows
    free = freedom(groups, plain.variance, degrees(groups, groups.sums(n))) * np.where(left > 0, left, 1.0)
    free = np.where(left > 0, free, 0.0)
    lost = 1 / np.where(left > 0, left, 1.0)
    read = groups.cell_sums(groups.blocks) > 0
    if read.any():
        blocks = Blocks.of(groups, n, sampled)
        by_block = np.where(blocks.left > 0, blocks.freedom(groups, plain.variance), 0.0)
        free, lost = np.where(read, by_block, free), np.where(read, blocks.fit, lost)
    return replace(plain, variance=plain.variance * lost[groups.cell]), free


def degrees(groups: Strata, rows: Floats) -> Floats:
    """Degrees of freedom by stratum: of blocks where blocks are drawn."""
    rows = np.maximum(rows, 1.0)
    return np.where(groups.blocks > 0, np.minimum(np.maximum(groups.blocks - 1, 1.0), rows), rows)


def extremes(
    samples: Samples, n: Floats, least: Floats, most: Floats, known: Known | None
) -> tuple[Floats, Floats]:
    """The smallest and largest value by cell, of kept rows and those known of, 0 where there is none."""
    kept = np.asarray(n) > 0
    smallest, largest = np.full(samples.cells, np.inf), np.full(samples.cells, -np.inf)
    np.minimum.at(smallest, samples.cell[kept], np.asarray(least, dtype=float)[kept])
    np.maximum.at(largest, samples.cell[kept], np.asarray(most, dtype=float)[kept])
    if known is not None:
        smallest, largest = np.fmin(smallest, known[0]), np.fmax(largest, known[1])
    some = np.isfinite(smallest) & np.isfinite(largest)
    return np.where(some, smallest, 0.0), np.where(some, largest, 0.0)
