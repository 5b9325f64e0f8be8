"""Variances and quantiles of windows of which a sample was kept, with confidence limits.

Guarantee: variances are unbiased to second order, their roots to first; limits are positive, and hold as
often as they claim as far as the extremes given are those of all rows (heavy tails show in no sample).
Variant: the variance of the variance is that of the sum of residuals (v - mean)² - variance, which needs the
fourth power; limits as of any sum (see ``limits``), the lower one bent away from zero. Quantiles have the
limits of Clopper and Pearson on their rank, for as many rows as the weights are worth, or the blocks that the
rows came in.
Reference: Särndal, Swensson, Wretman, Model Assisted Survey Sampling (1992), section 5.5; Woodruff,
Confidence intervals for medians and other position measures (1952); Korn and Graubard (1998).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from slackwater.statistics.estimates import Blocks, Known, extremes, fitted, nothing_known
from slackwater.statistics.limits import Estimate, deviations, stretch
from slackwater.statistics.samples import Floats, Samples, scatter, strata

Kind = Literal["var_pop", "var_samp", "stddev_pop", "stddev_samp"]
BEYOND = 3.0
"""The square of the farthest deviation over what the fourth and second powers alone tell of it."""


@dataclass(frozen=True)
class Moments:
    """Counts, means, and sums of powers of deviations from the mean: by entry its own, by cell of exact rows.

    NaN stands for zero. The third and fourth powers of exact rows are not needed.
    """

    n: Floats
    mean: Floats
    m2: Floats
    m3: Floats
    m4: Floats


def spread(
    kind: Kind,
    samples: Samples,
    kept: Moments,
    exact: Moments,
    confidence: float,
    ends: tuple[Floats, Floats] | None = None,
    known: Known | None = None,
) -> Estimate:
    """VAR_POP, VAR_SAMP, STDDEV_POP and STDDEV_SAMP; ``ends`` are the smallest and largest value by entry.

    A mean that was fitted to the kept rows is nearer to them than the true one, by its own variance on
    average: that much is added. A root is too small by an eighth of the variance's squared error, relative
    to the root: so is that. Without any row the value is NaN, with too few rows no limits.
    """
    groups = strata(samples)
    n, mean, m2, m3, m4 = (
        np.nan_to_num(np.asarray(part, dtype=float))
        for part in (kept.n, kept.mean, kept.m2, kept.m3, kept.m4)
    )
    exact_n, exact_mean, exact_m2 = (np.nan_to_num(part) for part in (exact.n, exact.mean, exact.m2))
    weighed = groups.estimate(n)
    size = exact_n + weighed
    some = np.where(size > 0, size, 1.0)
    middle = (exact_n * exact_mean + groups.estimate(n * mean)) / some
    sampled = weighed / some
    d = mean - middle[samples.cell]
    first, second = n * d, m2 + n * d * d
    fourth = np.maximum(m4 + 4 * d * m3 + 6 * d * d * m2 + n * d**4, 0.0)
    plain = (exact_m2 + exact_n * (exact_mean - middle) ** 2 + groups.estimate(second)) / some
    residuals, free = fitted(groups, n, first, second, sampled)
    of_mean = groups.cell_sums(residuals.variance) / some**2
    variance = plain + of_mean
    v = variance[samples.cell]
    residuals, free = fitted(groups, n, second - v * n, fourth - 2 * v * second + v * v * n, sampled)
    if ends is None:
        # rows far out make the ratio of the powers large; the farthest lie some way beyond it
        squares = groups.estimate(second)
        ratio = groups.estimate(fourth) / np.where(squares > 0, squares, np.inf)
        farthest = np.sqrt(BEYOND * ratio)
        if known is not None:
            farthest = np.fmax(farthest, np.fmax(np.abs(known[0] - middle), np.abs(known[1] - middle)))
    else:
        low_value, high_value = extremes(samples, n, *ends, known)
        farthest = np.maximum(np.abs(low_value - middle), np.abs(high_value - middle))
    around = deviations(
        samples,
        groups,
        residuals,
        -variance,
        np.maximum(farthest**2 - variance, 0.0),
        free,
        confidence,
    )
    rows = np.bincount(samples.cell, n, samples.cells).astype(float)
    positive = np.where(variance > 0, variance, 1.0) * some
    relative = groups.cell_sums(residuals.variance) / positive**2
    # the square of the mean's error is no part of the residuals, but all there is between two equal peaks
    curved = of_mean * special.ndtri((1 + confidence) / 2) ** 2
    low = variance * _shrunk((np.hypot(around.below / some, curved) + of_mean) / (positive / some))
    high = variance + around.above / some + of_mean
    unsure = nothing_known(samples, rows, exact_n, known)
    low, high = np.where(unsure, 0.0, low), np.where(unsure, np.inf, high)
    if kind.endswith("samp"):
        factor = np.where(size > 1, some / np.where(size > 1, some - 1, 1.0), np.nan)
        variance, low = variance * factor, np.where(size > 1, low * factor, 0.0)
        high = np.where(size > 1, high * factor, np.inf)
    value = np.where(size > 0, variance, np.nan)
    if kind.startswith("stddev"):
        value, low, high = np.sqrt(value) * (1 + np.minimum(relative, 1.0) / 8), np.sqrt(low), np.sqrt(high)
    return Estimate(value, np.fmin(low, value), np.fmax(high, value), exact_n + rows)


def _shrunk(x: Floats) -> Floats:
    """A lower limit over its estimate, given how far below it lies: 1 - x, but never 0.

    >>> _shrunk(np.array([0.0, 0.25, 0.5, 1.0])).round(3).tolist()
    [1.0, 0.75, 0.5, 0.184]
    """
    return np.where(x < 0.5, 1 - x, 0.5 * np.exp(1 - 2 * np.maximum(x, 0.5)))


def quantile_ranks(
    p: Floats,
    weight_total: Floats,
    weight_squares: Floats,
    rows: Floats,
    fpc: Floats,
    confidence: float,
    worth: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Ranks in the weighted sample between which the true quantile lies.

    Weights unlike each other make a sample worth fewer rows than it has (Kish 1965); ``fpc`` is the share of
    rows that was not kept. ``worth`` is what a sample of blocks is worth (see ``rows_worth``): limits are
    never narrower for it. A rank of 0 or 1 says that the sample has too few rows for a limit on that
    side: the quantile may lie beyond all kept values.

    >>> half, ten = np.array([0.5]), np.array([10.0])
    >>> [x.round(3).tolist() for x in quantile_ranks(half, ten, ten, ten, half * 2, 0.95)]
    [[0.187], [0.813]]
    """
    p, fpc = np.clip(np.asarray(p, dtype=float), 0.0, 1.0), np.clip(np.asarray(fpc, dtype=float), 0.0, 1.0)
    squares = np.where(weight_squares > 0, weight_squares, 1.0)
    effective = np.where(rows > 0, np.minimum(weight_total**2 / squares, rows), 0.0)
    size = np.clip(effective / np.maximum(fpc, 1e-12), 0.0, 1e12)
    if worth is not None:
        size = np.minimum(size, worth)
    tail = (1 - confidence) / 2
    below, above = size * p, size * (1 - p)
    low = special.betaincinv(np.maximum(below, 1e-9), above + 1, tail)
    high = special.betaincinv(below + 1, np.maximum(above, 1e-9), 1 - tail)
    # the chance that all kept values lie on one side of the quantile
    low = np.where((1 - p) ** size > tail, 0.0, np.minimum(low, p))
    high = np.where(p**size > tail, 1.0, np.maximum(high, p))
    whole = (fpc <= 0) & (rows > 0)
    return np.where(whole, p, low), np.where(whole, p, high)


def rows_worth(
    samples: Samples,
    n: Floats,
    below: Sequence[Floats],
    exact_n: Floats,
    exact_below: Sequence[Floats],
    confidence: float,
) -> Floats:
    """By cell: as how many rows, each drawn by itself, tell as much about the share of rows below a value.

    By entry ``n`` are the kept rows with a value and ``below`` those of them below it, for one value or more,
    of which the least counts; ``exact_…`` are the same by cell. The variance of the share is formed between
    blocks, and Student's quantile for as many blocks as have rows stands for the normal one (Korn and
    Graubard 1998). Infinite where no blocks were read, and 0 where all rows came in one. Where all lie on
    one side nothing shows how alike the rows of a block are: then a block counts as a row.
    """
    groups = strata(samples)
    weighed = groups.estimate(n)
    total = np.maximum(exact_n + weighed, 1e-12)
    blocks = Blocks.of(groups, n, weighed / total)
    found = np.full(samples.cells, np.inf)
    varied = np.zeros(samples.cells, dtype=bool)
    for part, exact_part in zip(below, exact_below, strict=True):
        share = np.clip((exact_part + groups.estimate(part)) / total, 0.0, 1.0)
        own = share[samples.cell]
        # a row deviates by 1 - share or by -share
        spread = scatter(groups, part - own * n, part * (1 - 2 * own) + own * own * n)
        wide = stretch(blocks.freedom(groups, spread.variance), (1 + confidence) / 2)
        variance = groups.cell_sums(spread.variance) * blocks.fit / total**2
        varies = share * (1 - share)
        worth = np.divide(varies, variance, out=np.full(samples.cells, np.inf), where=variance > 0)
        found = np.where(varies > 1e-12, np.minimum(found, worth / wide**2), found)
        varied |= varies > 1e-12
    found = np.where(blocks.left > 0, np.where(varied, found, blocks.seen), 0.0)
    return np.where(groups.cell_sums(groups.blocks) > 0, found, np.inf)
