"""Estimates from samples held against the truth: populations are sampled over and over, a repetition is a cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest
from scipy import signal, special

from slackwater.statistics.estimates import Known, average, count, total, total_by_size
from slackwater.statistics.limits import Estimate
from slackwater.statistics.samples import Samples, scatter, strata
from slackwater.statistics.spreads import Moments, quantile_ranks, spread

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


@pytest.mark.parametrize("batches", [1, 5, 60])
@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5, 0.9])
def test_counts_cover(rate: float, batches: int) -> None:
    rng = np.random.default_rng([1, batches, int(rate * 100)])
    size = 500 if batches == 60 else int(max(100, 600 / rate / batches))
    rates = np.full(batches, rate)
    repetitions = 2_500 if batches == 60 else 5_000
    for expected in (0.5, 1, 3, 10):
        hits = rng.multinomial(max(1, round(expected / rate)), np.full(batches, 1 / batches))
        samples, n = counted(np.minimum(hits, size), size, rates, repetitions, rng)
        exact = np.full(repetitions, 7.0)
        truth = 7.0 + np.minimum(hits, size).sum()
        covers(lambda c, x=samples, n=n, e=exact: count(x, n, e, c), truth, f"{expected} expected")
    for share in (0.9, 1.0):
        hits = np.full(batches, round(share * size))
        samples, n = counted(hits, size, rates, repetitions, rng)
        none = np.zeros(repetitions)
        covers(lambda c, x=samples, n=n, e=none: count(x, n, e, c), float(hits.sum()), f"share {share}")


def test_counts_are_as_wide_as_the_exact_binomial_limits() -> None:
    """Clopper and Pearson's for one batch and few rows of many: within a few percent, never far inside."""
    kept, weight = 400, 1000
    n = np.arange(kept + 1, dtype=float)
    cell = np.arange(kept + 1)
    samples = whole_batches(
        cell,
        np.zeros_like(cell),
        np.full((kept + 1, 1), kept),
        np.array([kept * weight]),
        np.array([1 / weight]),
    )
    for confidence in CONFIDENCES:
        tail = (1 - confidence) / 2
        found = count(samples, n, np.zeros(kept + 1), confidence)
        low = special.betaincinv(np.maximum(n, 1e-9), kept - n + 1, tail) * kept * weight
        high = special.betaincinv(n + 1, np.maximum(kept - n, 1e-9), 1 - tail) * kept * weight
        room = 0.02 * (high - low)
        assert (found.low <= np.maximum(low, n) + room).all()
        assert (found.high[:-1] >= high[:-1] - room[:-1]).all()
        assert (found.high - found.low <= 1.1 * (high - low) + 1).all()


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("kind", ["lognormal", "bimodal", "pareto", "mixed", "negative"])
def test_sums_and_averages_cover_with_known_extremes(kind: str, rate: float) -> None:
    """Few rows: 15 to 40 are kept. What a window did not show of the largest values, earlier ones have."""
    rng = np.random.default_rng([2, len(kind), int(rate * 100)])
    for batches, share, expected in ((1, 1.0, 30), (5, 0.1, 15), (60, 0.5, 40)):
        size = max(4, round(expected / rate / share / batches))
        values = sizes(kind, (batches, size), rng)
        hits = rng.random(values.shape) < share
        kept = thinned(values, hits, np.full(batches, rate), 5_000, rng)
        rows, known, none = values[hits], ends_of(kept, values[hits]), np.zeros(5_000)
        given = (kept.samples, kept.n, kept.s, kept.q, kept.least, kept.most, none, none)
        covers(lambda c, g=given, k=known: total(*g, c, k), rows.sum(), f"sum, {batches} batches")
        covers(lambda c, g=given, k=known: average(*g, c, k), rows.mean(), f"average, {batches} batches")


@pytest.mark.parametrize("kind", ["lognormal", "bimodal", "pareto", "mixed"])
def test_sums_and_averages_cover_with_nothing_known(kind: str) -> None:
    """Some hundred kept rows at a low rate show what the rest is like; rates change and half is exact."""
    rng = np.random.default_rng([3, len(kind)])
    rates = np.array([0.02, 0.1, 0.05, 0.02, 0.2, 0.1])
    values = sizes(kind, (6, 2_000), rng)
    hits = rng.random(values.shape) < 0.7
    kept = thinned(values, hits, rates, 5_000, rng)
    exact = sizes(kind, (1, 5_000), rng)
    n, s = np.full(5_000, exact.size), np.full(5_000, exact.sum())
    rows = np.concatenate([values[hits], exact[0]])
    given = (kept.samples, kept.n, kept.s, kept.q, kept.least, kept.most)
    covers(lambda c: total(*given, s, n, c), rows.sum(), "sum")
    covers(lambda c: average(*given, n, s, c), rows.mean(), "average")
    covers(lambda c: count(kept.samples, kept.n, n, c), float(rows.size), "count")


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("kind", ["normal", "uniform", "exponential", "bimodal"])
def test_standard_deviations_cover(kind: str, rate: float) -> None:
    rng = np.random.default_rng([4, len(kind), int(rate * 100)])
    for batches, share, expected in ((1, 1.0, 50), (5, 0.5, 100), (60, 1.0, 200)):
        size = round(expected / rate / share / batches)
        values = sizes(kind, (batches, size), rng)
        hits = rng.random(values.shape) < share
        kept = thinned(values, hits, np.full(batches, rate), 5_000, rng)
        known, ends, truth = ends_of(kept, values[hits]), (kept.least, kept.most), values[hits].std(ddof=1)
        label = f"{batches} batches"
        covers(
            lambda c, k=kept, e=ends, x=known: spread(
                "stddev_samp", k.samples, k.moments, nothing(5_000), c, e, x
            ),
            truth,
            label,
        )
        found = spread("stddev_samp", kept.samples, kept.moments, nothing(5_000), 0.9)
        assert abs(found.value.mean() - truth) <= 0.1 * found.value.std() + 3 * found.value.std() / 5_000**0.5
        assert (found.low > 0).all()


def test_spreads_with_exact_rows_and_of_all_kinds() -> None:
    rng = np.random.default_rng(5)
    values = sizes("exponential", (4, 1_000), rng)
    hits = rng.random(values.shape) < 0.5
    kept = thinned(values, hits, np.array([0.1, 0.2, 0.1, 0.4]), 5_000, rng)
    other = rng.exponential(2, 3_000)
    exact = replace(
        nothing(5_000),
        n=np.full(5_000, 3_000.0),
        mean=np.full(5_000, other.mean()),
        m2=np.full(5_000, 3_000 * other.var()),
    )
    rows = np.concatenate([values[hits], other])
    truths = {
        "var_pop": rows.var(),
        "var_samp": rows.var(ddof=1),
        "stddev_pop": rows.std(),
        "stddev_samp": rows.std(ddof=1),
    }
    for kind, truth in truths.items():
        found = spread(kind, kept.samples, kept.moments, exact, 0.95, (kept.least, kept.most))
        assert abs(found.value.mean() - truth) <= 0.1 * found.value.std(), kind
        assert coverage(found, truth) >= 0.94, kind


@pytest.mark.parametrize("rate", [0.1, 1.0])
@pytest.mark.parametrize("blocks", [8, 16])
def test_blocks_cover(blocks: int, rate: float) -> None:
    """Neighbouring rows are alike, as far as about ten rows away; blocks are of fifty."""
    rng = np.random.default_rng([6, blocks, int(rate * 10)])
    noise = rng.normal(0, np.sqrt(1 - 0.9**2), (2, 5, 4_000))
    alike = signal.lfilter([1], [1, -0.9], noise, axis=2)
    values, hits = np.exp(5 + 0.7 * alike[0]), alike[1] < -0.5
    kept = read_in_blocks(values, hits, blocks, 50, rate, 5_000, rng)
    rows, none = values[hits], np.zeros(5_000)
    given = (kept.samples, kept.n, kept.s, kept.q, kept.least, kept.most, none, none)
    covers(lambda c: count(kept.samples, kept.n, none, c), float(rows.size), "count")
    covers(lambda c: total(*given, c), rows.sum(), "sum")
    covers(lambda c: average(*given, c), rows.mean(), "average")
    for found, truth in (
        (count(kept.samples, kept.n, none, 0.9), rows.size),
        (total(*given, 0.9), rows.sum()),
    ):
        assert abs(found.value.mean() - truth) <= 3 * found.value.std() / 5_000**0.5


def test_the_variance_of_blocks_is_that_of_repetitions() -> None:
    """Between and within blocks, at a share that matters: neither part may be counted twice or left out."""
    rng = np.random.default_rng(7)
    values = np.exp(signal.lfilter([1], [1, -0.9], rng.normal(0, 0.4, (1, 3_000)), axis=1))
    for rate, blocks in ((1.0, 30), (0.1, 30), (0.3, 48), (0.1, 60)):
        kept = read_in_blocks(values, np.ones(values.shape, dtype=bool), blocks, 50, rate, 2_000, rng)
        groups = strata(kept.samples)
        claimed = groups.cell_sums(scatter(groups, kept.s, kept.q).variance).mean()
        real = groups.estimate(kept.s).var()
        assert claimed == pytest.approx(real, rel=0.1, abs=1e-6 * values.sum() ** 2)


def test_counts_and_sums_are_unbiased() -> None:
    """Over 2,000 salts, for large batches and such of which often nothing is kept."""
    rng = np.random.default_rng(8)
    for batches, size, rate in ((3, 1_000, 0.05), (40, 12, 0.1), (60, 3, 0.2), (60, 1, 0.1)):
        values = sizes("lognormal", (batches, size), rng)
        hits = rng.random(values.shape) < 0.6
        kept = thinned(values, hits, np.full(batches, rate), 2_000, rng)
        none = np.zeros(2_000)
        sums = total(kept.samples, kept.n, kept.s, kept.q, kept.least, kept.most, none, none, 0.9)
        counts = count(kept.samples, kept.n, none, 0.9)
        for found, truth in ((sums, values[hits].sum()), (counts, hits.sum())):
            if found is counts and size == 1:
                continue  # never more than all rows there are
            assert abs(found.value.mean() - truth) <= 3 * found.value.std() / 2_000**0.5


@pytest.mark.parametrize(("p", "expected"), [(0.5, 10), (0.5, 40), (0.5, 300), (0.9, 100), (0.99, 1_000)])
def test_quantiles_cover(p: float, expected: int) -> None:
    rng = np.random.default_rng([9, expected])
    rate, repetitions = 0.1, 5_000
    values = np.sort(sizes("lognormal", (1, expected * 10), rng)[0])
    mask = rng.random((repetitions, values.size), dtype=np.float32) < rate
    n = mask.sum(axis=1)
    truth = values[int(np.ceil(p * values.size)) - 1]
    ranks = np.cumsum(mask, axis=1)

    def at(rank: Array) -> Array:
        return values[(ranks >= np.maximum(np.ceil(rank * n), 1)[:, None]).argmax(axis=1)]

    for confidence in CONFIDENCES:
        size = n.astype(float)
        low, high = quantile_ranks(
            np.full(repetitions, p), size, size, size, 1 - size / values.size, confidence
        )
        assert (low <= p).all()
        assert (high >= p).all()
        beneath = np.where(low > 0, at(low), -np.inf)
        above = np.where(high < 1, at(high), np.inf)
        assert np.mean((beneath <= truth) & (truth <= above)) >= confidence - 0.01
    if expected >= 100:
        middle = (at(np.full(repetitions, p) - 0.5 / n) + at(np.full(repetitions, p) + 0.5 / n)) / 2
        assert abs(middle.mean() - truth) <= 0.1 * middle.std()


@pytest.mark.parametrize("kind", ["lognormal", "pareto", "mixed", "negative"])
def test_sums_by_size_cover(kind: str) -> None:
    rng = np.random.default_rng([10, len(kind)])
    repetitions = 5_000
    for expected in (0.5, 3, 30, 200):
        values = sizes(kind, (1, 2_000), rng)[0]
        tau = np.abs(values).sum() / expected
        chance = np.minimum(1, np.abs(values) / tau)
        mask = (rng.random((repetitions, values.size), dtype=np.float32) < chance).astype(float)
        large = np.maximum(np.abs(values), tau)
        n, s, q = mask.sum(axis=1), mask @ (np.sign(values) * large), mask @ (large**2 * (1 - chance))
        cell = np.flatnonzero(n)
        samples = whole_batches(
            cell, 0 * cell, n.astype(int)[:, None], np.array([values.size]), np.array([0.1])
        )
        least = np.where(mask > 0, values, np.inf).min(axis=1)
        most = np.where(mask > 0, values, -np.inf).max(axis=1)
        by_entry = [x[cell] for x in (n, s, q, np.full(repetitions, tau), least, most)]
        none, top = np.zeros(repetitions), np.full(repetitions, tau)
        # one kept row would tell the sign of all
        known = (top * 0 + values.min(), top * 0 + values.max())

        def make(
            confidence: float,
            given: tuple[Any, ...] = (samples, *by_entry, top, none, none),
            known: Known = known,
        ) -> Estimate:
            return total_by_size(*given, confidence, known)

        covers(make, values.sum(), f"{expected} expected")
        found = make(0.9)
        assert abs(found.value.mean() - values.sum()) <= 3 * found.value.std() / repetitions**0.5


def test_real_packets(real_data: Path) -> None:
    """Packets seen by a firewall, in the order they came, as twenty batches: a group of each kind."""
    table = pq.read_table(real_data / "sotm34_packets.parquet", columns=["len", "proto", "dpt"]).slice(
        20_000, 40_000
    )
    size = table["len"].to_numpy().astype(float).reshape(20, 2_000)
    proto = table["proto"].to_numpy(zero_copy_only=False).reshape(size.shape)
    port = np.nan_to_num(table["dpt"].to_numpy(zero_copy_only=False).astype(float)).reshape(size.shape)
    rng = np.random.default_rng(11)
    none = np.zeros(1_000)
    for name, hits in (("TCP", proto == "TCP"), ("UDP", proto == "UDP"), ("web", port == 80)):
        kept = thinned(size, hits, np.tile([0.02, 0.05], 10), 1_000, rng)
        rows, known = size[hits], ends_of(kept, size)
        given = (kept.samples, kept.n, kept.s, kept.q, kept.least, kept.most, none, none)
        assert coverage(count(kept.samples, kept.n, none, 0.95), rows.size) >= 0.93, name
        assert coverage(total(*given, 0.95, known), rows.sum()) >= 0.93, name
        assert coverage(average(*given, 0.95, known), rows.mean()) >= 0.93, name
        ends = kept.least, kept.most
        found = spread("stddev_pop", kept.samples, kept.moments, nothing(1_000), 0.95, ends, known)
        assert coverage(found, rows.std()) >= 0.93, name


def one_batch(arrived: int, kept: int, rate: float, entries: int = 1) -> Samples:
    cell = np.zeros(entries, dtype=int)
    return whole_batches(cell, cell, np.array([[kept]]), np.array([arrived]), np.array([rate]))


def test_edges() -> None:
    """No entries, one kept row, all rows kept: numbers where there are some, and infinite where not."""
    no, one, ten = np.zeros(0), np.ones(1), np.full(1, 10.0)
    empty = one_batch(1_000, 100, 0.1, entries=0)
    found = count(empty, no, ten, 0.95)
    assert (found.value[0], found.low[0], found.rows[0]) == (10, 10, 10)
    assert 10 + 3.2 * 10 < found.high[0] < 10 + 3.8 * 10
    found = total(empty, no, no, no, no, no, ten, one, 0.95)
    assert (found.value[0], found.low[0], found.high[0]) == (10, -np.inf, np.inf)
    found = total(empty, no, no, no, no, no, ten, one, 0.95, (0 * one, 5 * one))
    assert found.low[0] == 10
    assert 10 + 3.2 * 50 < found.high[0] < 10 + 3.8 * 50
    for made in (
        average(empty, no, no, no, no, no, 0 * one, 0 * one, 0.95),
        spread("stddev_pop", empty, Moments(no, no, no, no, no), nothing(1), 0.95),
    ):
        assert np.isnan(made.value[0])
        assert made.low[0] in (-np.inf, 0)
        assert made.high[0] == np.inf
    # nothing was sampled at all: exact
    exact = replace(empty, heaviest=one, unseen=0 * one)
    found = count(exact, no, ten, 0.95)
    assert (found.low[0], found.high[0]) == (10, 10)
    found = average(exact, no, no, no, no, no, ten, 30 * one, 0.95)
    assert (found.low[0], found.value[0], found.high[0]) == (3, 3, 3)


@pytest.mark.parametrize(
    ("arrived", "kept", "rate"), [(50, 1, 0.02), (1, 1, 0.02), (7, 7, 0.5), (7, 7, 1.0), (2, 1, 0.5)]
)
def test_edges_of_small_batches(arrived: int, kept: int, rate: float) -> None:
    samples = one_batch(arrived, kept, rate)
    n, zero = np.full(1, float(kept)), np.zeros(1)
    moments = Moments(n, 3 * n / n, zero, np.full(1, np.nan), np.full(1, np.nan))
    made = [
        count(samples, n, zero, 0.95),
        total(samples, n, 3 * n, 9 * n, 3 + zero, 3 + zero, zero, zero, 0.95),
        average(samples, n, 3 * n, 9 * n, 3 + zero, 3 + zero, zero, zero, 0.95),
        spread("var_samp", samples, moments, nothing(1), 0.95),
        total_by_size(samples, n, 4 * n, 4 * n, 4 + zero, 3 + zero, 3 + zero, 4 + zero, zero, zero, 0.95),
    ]
    for found in made:
        coverage(found, 0.0)
    assert made[0].low[0] >= kept
    assert made[0].high[0] <= arrived
    assert made[1].low[0] >= 3 * kept
    if arrived == kept > 1:
        assert [x.value[0] for x in made[:3]] == [kept, 3 * kept, 3]


def test_panes_and_cells_in_any_order() -> None:
    """Panes of a batch are added before anything is squared, and cells do not mix."""
    rng = np.random.default_rng(12)
    values = sizes("lognormal", (4, 300), rng)
    kept = thinned(values, rng.random(values.shape) < 0.5, np.full(4, 0.2), 50, rng)
    none = np.zeros(50)
    whole = total(kept.samples, kept.n, kept.s, kept.q, kept.least, kept.most, none, none, 0.9)
    order = rng.permutation(np.repeat(np.arange(len(kept.n)), 2))
    by_entry = (
        "cell",
        "batch",
        "arrived",
        "kept",
        "rate",
        "block",
        "blocks",
        "share",
        "kept_total",
        "kept_squares",
    )
    panes = replace(kept.samples, **{name: getattr(kept.samples, name)[order] for name in by_entry})
    halves = [x[order] / 2 for x in (kept.n, kept.s, kept.q)]
    split = total(panes, *halves, kept.least[order], kept.most[order], none, none, 0.9)
    for a, b in (
        (whole.value, split.value),
        (whole.low, split.low),
        (whole.high, split.high),
        (whole.rows, split.rows),
    ):
        np.testing.assert_allclose(a, b, rtol=1e-9)
