"""Confidence limits of a weighted sum of which a sample was seen, for few rows as for many.

Guarantee: for one batch and values 0 and 1 about the exact limits of Clopper and Pearson, for many batches
with rare rows those of Fay and Feuer; for many rows the normal ones, corrected for skewness on the safe
side. For other values they hold as far as the extremes given are those of all rows.
Variant: the uncertain sum has a shifted gamma distribution (Pearson III) with three matched cumulants. The
third is not known from sums and squares, but bounded by them and the extremes: given mean, variance and
largest value it is largest if all other rows are equal, and the upper limit takes that, the lower one its
mirror. For values 0 and 1 both are the truth, for rare rows the lower is Fay and Feuer's gamma.
A pseudo-row of the largest (smallest) value is added for the upper (lower) limit.
Reference: Fay and Feuer, Confidence intervals for directly standardized rates (1997); Hall, On the removal
of skewness by transformation (1992), for what it means to match the third cumulant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from slackwater.statistics.samples import Floats, Samples, Scatter, Strata


@dataclass(frozen=True)
class Estimate:
    """Arrays by cell. Limits are never NaN, but infinite where the sample says nothing about them."""

    value: Floats
    """NaN where SQL has NULL: an average of no rows."""
    low: Floats
    high: Floats
    rows: Floats
    """Kept and exact rows that the estimate rests on."""


@dataclass(frozen=True)
class Deviations:
    """By cell: how far the truth may lie from the estimate."""

    below: Floats
    above: Floats


def quantile(mean: Floats, variance: Floats, third: Floats, probability: float) -> Floats:
    """Of the distribution of Pearson's third type with these cumulants; the normal one for no skewness.

    >>> one = np.ones(1)
    >>> quantile(one, one, 2 * one, 0.5).round(3).tolist()  # exponential: ln 2
    [0.693]
    >>> quantile(0 * one, one, 0 * one, 0.975).round(3).tolist()
    [1.96]
    """
    deviation = np.sqrt(variance)
    cubed = variance * deviation
    usual = (cubed > 0) & np.isfinite(cubed) & np.isfinite(third)
    skew = np.clip(np.divide(third, cubed, out=np.zeros(len(mean)), where=usual), -1e3, 1e3)
    strong = np.abs(skew) > 1e-3
    shape = 4 / np.square(np.where(strong, skew, 1.0))
    tail = np.where(skew > 0, probability, 1 - probability)
    gamma = (special.gammaincinv(shape, tail) - shape) * np.where(strong, skew, 1.0) / 2
    result: Floats = mean + deviation * np.where(strong, gamma, special.ndtri(probability))
    return result


def stretch(freedom: Floats, probability: float) -> Floats:
    """How much farther out Student's quantile lies than the normal one; infinite for no freedom."""
    some = np.clip(freedom, 1e-2, 1e9)
    return np.where(freedom > 0, special.stdtrit(some, probability) / special.ndtri(probability), np.inf)


def freedom(strata: Strata, variance: Floats, by_stratum: Floats) -> Floats:
    """Degrees of freedom by cell of a sum of variances (Satterthwaite 1946).

    Two are added to each and taken from the sum: a variance of few degrees is often large by chance, and
    its square the more so.
    """
    squares = strata.cell_sums(variance**2 / (by_stratum + 2))
    total = strata.cell_sums(variance)
    result: Floats = np.divide(total**2, squares, out=np.full(strata.cells, np.inf), where=squares > 0) - 2
    return result


def deviations(
    samples: Samples,
    strata: Strata,
    scatter: Scatter,
    least: Floats,
    most: Floats,
    free: Floats,
    confidence: float,
) -> Deviations:
    """``least`` and ``most`` are by cell the smallest and largest value of a row that could be unseen.

    ``free`` are degrees of freedom by cell.
    """
    tail = (1 - confidence) / 2
    # batches that overlap the cell but have no entry: nothing was seen in them, all could be at the extreme
    other = samples.unseen - strata.cell_sums(strata.arrived - strata.kept) > 0.5
    up = _side(samples, strata, scatter, most[strata.cell], 1, np.where(other, np.maximum(most, 0), 0))
    down = _side(samples, strata, scatter, least[strata.cell], -1, np.where(other, np.maximum(-least, 0), 0))
    variance = strata.cell_sums(scatter.variance)
    wide = stretch(free, 1 - tail)
    nothing = np.zeros(strata.cells)
    out = []
    for shift, extra, third in (down, up):
        reach = quantile(nothing, variance + extra, third, 1 - tail)
        far = np.where((reach > 0) & np.isfinite(wide), reach * np.where(np.isfinite(wide), wide, 1), reach)
        far = np.where(~np.isfinite(wide) & (variance > 0), np.inf, far)
        out.append(np.maximum(shift + far, 0.0))
    return Deviations(out[0], out[1])


def _side(
    samples: Samples, strata: Strata, scatter: Scatter, extreme: Floats, sign: int, absent: Floats
) -> tuple[Floats, Floats, Floats]:
    """Of a pseudo-row by cell mean and variance, and the third cumulant with that of the sample.

    All looks upward: for the lower limit ``sign`` turns values over. ``absent`` is the value of a row in
    a batch without an entry. The unseen rows of weight w behind one that was seen are geometric with
    mean w - 1, variance w(w - 1) and third cumulant w(w - 1)(2w - 1).
    """
    m, w = strata.kept, strata.weight
    read = strata.blocks > 0
    total = sign * scatter.total
    room = np.maximum(sign * extreme - total / np.maximum(m, 1), 0.0)
    farthest = scatter.above if sign > 0 else scatter.below
    gap = np.where(read, farthest, room)
    narrowed = np.divide(scatter.unit, gap, out=np.zeros(len(m)), where=gap > 0)
    third = strata.cell_sums(scatter.variance * (2 * w - 1) * np.where(gap > 0, gap - narrowed, 0.0))
    size = np.maximum(m * sign * extreme - total, 0.0) / (m + 1)
    size = np.maximum(size, np.where(read, farthest * strata.blocks / (strata.blocks + 1), 0.0))
    heaviest = np.maximum(samples.heaviest, 1.0)
    out = []
    for cumulant, power in ((_first, 1), (_second, 2), (_third, 3)):
        with np.errstate(invalid="ignore"):
            start = np.where(absent > 0, cumulant(heaviest) * absent**power, 0.0)
            here = np.where(size > 0, cumulant(strata.usual) * size**power, 0.0)
        out.append(strata.cell_largest(here, start))
    return out[0], out[1], third + out[2]


def _first(w: Floats) -> Floats:
    return np.maximum(w - 1, 0.0)


def _second(w: Floats) -> Floats:
    return w * _first(w)


def _third(w: Floats) -> Floats:
    return (2 * w - 1) * _second(w)
