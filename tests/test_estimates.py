"""Estimates from samples held against the truth: limits hold as often as they claim, nothing is biased."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import signal, special

from populations import (
    CONFIDENCES,
    Array,
    counted,
    coverage,
    covers,
    ends_of,
    nothing,
    read_in_blocks,
    sizes,
    thinned,
    whole_batches,
)
from slackwater.statistics.estimates import Known, average, count, total, total_by_size
from slackwater.statistics.limits import Estimate
from slackwater.statistics.samples import scatter, strata
from slackwater.statistics.spreads import quantile_ranks, spread


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
