"""Estimates at their edges: nothing kept, everything kept, small batches, panes in any order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from populations import coverage, nothing, sizes, thinned, whole_batches
from slackwater.statistics.estimates import average, count, total, total_by_size
from slackwater.statistics.samples import Samples
from slackwater.statistics.spreads import Moments, spread


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
