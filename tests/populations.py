"""Populations that the tests of estimates share: sampled over and over, a repetition is a cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slackwater.statistics.estimates import Known
from slackwater.statistics.limits import Estimate
from slackwater.statistics.samples import Samples
from slackwater.statistics.spreads import Moments

Array = npt.NDArray[np.float64]
CONFIDENCES = (0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Kept:
    """What the repetitions kept: the samples, and sums over kept rows by entry."""

    samples: Samples
    n: Array
    s: Array
    q: Array
    least: Array
    most: Array
    moments: Moments


def sizes(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Values such as the sizes of packets."""
    if kind == "lognormal":
        return np.exp(rng.normal(5, 1, shape))
    if kind == "bimodal":
        return np.where(rng.random(shape) < 0.6, 40.0, 1500.0)
    if kind == "pareto":
        return (1 - rng.random(shape)) ** (-1 / 2.5)
    if kind == "mixed":
        return rng.normal(0.3, 1, shape)
    if kind == "negative":
        return -np.exp(rng.normal(3, 0.7, shape))
    if kind == "normal":
        return rng.normal(1000, 5, shape)
    if kind == "exponential":
        return rng.exponential(1, shape)
    assert kind == "uniform"
    return rng.random(shape)


def counted(
    hits: Array, size: int, rates: Array, repetitions: int, rng: np.random.Generator
) -> tuple[Samples, Array]:
    """Batches of one size of which ``hits`` rows count: only how many are kept matters."""
    n = rng.binomial(hits.astype(int), rates, (repetitions, len(hits)))
    kept = n + rng.binomial(size - hits.astype(int), rates, n.shape)
    cell, batch = np.nonzero(n)
    return whole_batches(cell, batch, kept, np.full(len(hits), size), rates), n[cell, batch].astype(float)


def whole_batches(cell: Array, batch: Array, kept: Array, arrived: Array, rates: Array) -> Samples:
    """Entries of batches all of whose rows were looked at; ``kept`` by repetition and batch."""
    size = len(cell)
    return Samples(
        cells=len(kept),
        cell=cell,
        batch=batch,
        arrived=arrived[batch],
        kept=kept[cell, batch],
        rate=rates[batch],
        block=np.full(size, -1),
        blocks=np.zeros(size, dtype=int),
        share=np.ones(size),
        kept_total=kept[cell, batch],
        kept_squares=np.zeros(size),
        heaviest=np.full(len(kept), (1 / rates).max()),
        unseen=(arrived - kept).sum(axis=1).astype(float),
    )


def thinned(values: Array, hits: Array, rates: Array, repetitions: int, rng: np.random.Generator) -> Kept:
    """Rows by batch, of which some pass the predicate, kept by the rates of their batches."""
    kept = np.empty((repetitions, len(values)), dtype=int)
    parts = []
    for batch, (row, passes, rate) in enumerate(zip(values, hits, rates, strict=True)):
        v = np.sort(row[passes]) if passes.any() else row[:1]
        mask = rng.random((repetitions, len(v)), dtype=np.float32) < rate * passes.any()
        n = mask.sum(axis=1)
        kept[:, batch] = n + rng.binomial(len(row) - passes.sum(), rate, repetitions)
        cell = np.flatnonzero(n)
        mask, n = mask[cell], n[cell].astype(float)
        middle = v.mean()
        powers = mask.astype(float) @ np.stack([(v - middle) ** k for k in (1, 2, 3, 4)], axis=1)
        d = powers[:, 0] / n
        m2 = powers[:, 1] - n * d**2
        m3 = powers[:, 2] - 3 * d * powers[:, 1] + 2 * n * d**3
        m4 = powers[:, 3] - 4 * d * powers[:, 2] + 6 * d**2 * powers[:, 1] - 3 * n * d**4
        sums = mask.astype(float) @ np.stack([v, v * v], axis=1)
        last = len(v) - 1 - mask[:, ::-1].argmax(axis=1)
        ends = v[mask.argmax(axis=1)], v[last]
        parts.append([cell, np.full(len(cell), batch), n, *sums.T, *ends, middle + d, m2, m3, m4])
    cell, batch, n, s, q, least, most, mean, m2, m3, m4 = (
        np.concatenate(p) for p in zip(*parts, strict=True)
    )
    samples = whole_batches(cell, batch, kept, np.full(len(values), values.shape[1]), rates)
    return Kept(samples, n, s, q, least, most, Moments(n, mean, np.maximum(m2, 0), m3, np.maximum(m4, 0)))


def read_in_blocks(
    values: Array,
    hits: Array,
    blocks: int,
    size: int,
    rate: float,
    repetitions: int,
    rng: np.random.Generator,
) -> Kept:
    """Some contiguous blocks of every batch are read, and rows in them kept by the rate."""
    every = values.shape[1] // size
    unseen = np.zeros(repetitions)
    parts = []
    for batch, (row, passes) in enumerate(zip(values, hits, strict=True)):
        chosen = rng.random((repetitions, every)).argsort(axis=1)[:, :blocks]
        mask = rng.random((repetitions, blocks, size), dtype=np.float32) < rate
        kept = mask.sum(axis=2)
        mask &= passes.reshape(every, size)[chosen]
        v = row.reshape(every, size)[chosen]
        n, s, q = mask.sum(axis=2), np.where(mask, v, 0).sum(axis=2), np.where(mask, v * v, 0).sum(axis=2)
        mean = s / np.maximum(n, 1)
        d = np.where(mask, v - mean[..., None], 0)
        ends = np.where(mask, v, np.inf).min(axis=2), np.where(mask, v, -np.inf).max(axis=2)
        cell, block = np.nonzero(n)
        unseen += values.shape[1] - kept.sum(axis=1)
        by_block = [
            x[cell, block] for x in (kept, n, s, q, *ends, mean, *((d**k).sum(axis=2) for k in (2, 3, 4)))
        ]
        squares = (kept.astype(float) ** 2).sum(axis=1)
        parts.append(
            [cell, np.full(len(cell), batch), block, kept.sum(axis=1)[cell], squares[cell], *by_block]
        )
    cell, batch, block, total, squares, kept, n, *rest = (np.concatenate(p) for p in zip(*parts, strict=True))
    s, q, least, most, mean, m2, m3, m4 = rest
    same = np.ones(len(cell))
    share = blocks / every
    samples = Samples(
        cells=repetitions,
        cell=cell,
        batch=batch,
        arrived=(same * values.shape[1]).astype(int),
        kept=kept,
        rate=same * rate,
        block=block,
        blocks=(same * blocks).astype(int),
        share=same * share,
        kept_total=total,
        kept_squares=squares,
        heaviest=np.full(repetitions, 1 / (rate * share)),
        unseen=unseen,
    )
    n = n.astype(float)
    return Kept(samples, n, s, q, least, most, Moments(n, mean, m2, m3, m4))


def nothing(cells: int) -> Moments:
    """No exact rows."""
    return Moments(*(np.zeros(cells) for _ in range(5)))


def coverage(estimate: Estimate, truth: float) -> float:
    """How often the limits hold; they are numbers, and in order."""
    assert not np.isnan(estimate.low).any()
    assert not np.isnan(estimate.high).any()
    known = ~np.isnan(estimate.value)
    assert (estimate.low[known] <= estimate.value[known]).all()
    assert (estimate.value[known] <= estimate.high[known]).all()
    # sums in another order differ by rounding
    slack = 1e-9 * abs(truth)
    return float(np.mean((estimate.low <= truth + slack) & (truth - slack <= estimate.high)))


def covers(make: Callable[[float], Estimate], truth: float, label: str) -> None:
    """Limits hold as often as claimed, less one point; noise is below half a point at 5,000 repetitions."""
    for confidence in CONFIDENCES:
        found = coverage(make(confidence), truth)
        assert found >= confidence - 0.01, f"{label}: {found:.4f} at {confidence}"


def ends_of(kept: Kept, values: Array) -> Known:
    """The extremes of all rows, by cell, as an engine knows them from earlier windows."""
    return np.full(kept.samples.cells, values.min()), np.full(kept.samples.cells, values.max())
