"""Estimates of batches of which only blocks were read, or only the large rows were likely to be kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import signal

from populations import CONFIDENCES, Array
from sampling_data import ORIGIN, STREAM, batches, by_key
from slackwater.planners.ruling import FixedRates, Ruling
from slackwater.runtime.json_values import to_micros
from slackwater.runtime.sampled_windows import _by_size
from slackwater.runtime.samples import SlotBatches
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.testing import ListSink, run_scripted
from slackwater.runtime.weighted_values import quantiles
from slackwater.statistics.estimates import average
from slackwater.statistics.samples import Samples
from slackwater.statistics.spreads import rows_worth

BLOCK = 60


def alike(batches: int, rows: int, by: float, rng: np.random.Generator) -> Array:
    """Numbers by batch, each row like the one before it."""
    noise = rng.normal(0, np.sqrt(1 - by**2), (batches, rows))
    return np.asarray(signal.lfilter([1], [1, -by], noise, axis=1))


def values_in_blocks(
    values: Array, hits: Array, blocks: int, rate: float, repetitions: int, rng: np.random.Generator
) -> tuple[pa.Table, Array, Samples]:
    """Rows as they come from the log, a value each; their cells, a repetition each; what was kept of batches."""
    every, parts = values.shape[1] // BLOCK, []
    for batch, (row, passes) in enumerate(zip(values, hits, strict=True)):
        chosen = rng.random((repetitions, every)).argsort(axis=1)[:, :blocks]
        mask = rng.random((repetitions, blocks, BLOCK), dtype=np.float32) < rate
        kept = mask.sum(axis=2)
        mask &= passes.reshape(every, BLOCK)[chosen]
        v = row.reshape(every, BLOCK)[chosen]
        cell, block, _ = place = np.nonzero(mask)
        total, squares = kept.sum(axis=1)[cell], (kept**2).sum(axis=1)[cell]
        parts.append([cell, np.full(len(cell), batch), block, v[place], kept[cell, block], total, squares])
    cell, batch, block, v, kept, total, squares = (np.concatenate(p) for p in zip(*parts, strict=True))
    one = np.ones(len(cell))
    samples = Samples(
        cells=repetitions,
        cell=cell,
        batch=batch,
        arrived=np.full(len(cell), values.shape[1]),
        kept=kept,
        rate=rate * one,
        block=block,
        blocks=np.full(len(cell), blocks),
        share=one * blocks / every,
        kept_total=total,
        kept_squares=squares.astype(float),
        heaviest=np.ones(repetitions),
        unseen=np.zeros(repetitions),
    )
    weight = values.shape[1] / total
    rows = {"v0": v, "batch": batch, "block": block, "n": one, "weight": weight, "squares": weight**2}
    return pa.table(rows), cell, samples


@pytest.mark.parametrize("batches", [1, 4])
@pytest.mark.parametrize("p", [0.5, 0.9])
@pytest.mark.parametrize("kind", ["all", "some", "tied"])
def test_quantiles_of_blocks_cover(kind: str, p: float, batches: int) -> None:
    """Rows are alike far beyond their block, so that twelve blocks are worth little more than twelve rows."""
    rng = np.random.default_rng([20, len(kind), int(10 * p), batches])
    slow, other = (alike(batches, 100 * BLOCK, 0.99, rng) for _ in range(2))
    values = np.digitize(slow, [-1.0, -0.2, 0.7, 1.6]) * 100.0 if kind == "tied" else np.exp(5 + 0.7 * slow)
    hits = other < -0.3 if kind == "some" else np.ones(values.shape, dtype=bool)
    rows, cell, samples = values_in_blocks(values, hits, 12, 0.5, 1_000, rng)
    truth = [np.quantile(values[hits], p, method=m) for m in ("lower", "higher")]
    for confidence in CONFIDENCES:
        found = quantiles(rows, cell, 1_000, p, confidence, samples)
        inside = (found.low <= truth[1]) & (truth[0] <= found.high)
        # 1,000 repetitions tell to a point or so
        assert inside.mean() >= confidence - 0.02, f"{inside.mean():.3f} at {confidence}"
        plain = quantiles(rows, cell, 1_000, p, confidence)
        assert (found.value == plain.value).all()
        assert (found.low <= plain.low).all()
        assert (found.high >= plain.high).all()
        if kind != "tied":
            ignored = (plain.low <= truth[1]) & (truth[0] <= plain.high)
            assert ignored.mean() < 0.7


def test_quantiles_of_blocks_are_not_much_wider_where_rows_are_not_alike() -> None:
    rng = np.random.default_rng(21)
    values = np.exp(rng.normal(5, 0.7, (2, 100 * BLOCK)))
    rows, cell, samples = values_in_blocks(values, values > 0, 16, 0.5, 500, rng)
    found, plain = (quantiles(rows, cell, 500, 0.5, 0.95, drawn) for drawn in (samples, None))
    assert (found.high - found.low).mean() < 1.25 * (plain.high - plain.low).mean()


def test_values_of_several_blocks_are_ranked_as_one() -> None:
    """The same values by block and together, beside exact ones: the quantile is the same."""
    rng = np.random.default_rng(22)
    values = np.floor(alike(1, 100 * BLOCK, 0.9, rng) * 3)
    rows, cell, samples = values_in_blocks(values, np.ones(values.shape, dtype=bool), 12, 0.3, 40, rng)
    exact = pa.table({"v0": np.repeat([-1.0, 0.0, 9.0], 40), "n": np.full(120, 200.0)})
    exact = exact.append_column("weight", exact["n"]).append_column("squares", exact["n"])
    both = pa.concat_tables([rows, exact], promote_options="default")
    cells = np.concatenate([cell, np.tile(np.arange(40), 3)])
    found = quantiles(both, cells, 40, 0.5, 0.95, samples)
    by = both.append_column("cell", pa.array(cells)).group_by(["cell", "v0"])
    together = by.aggregate([("n", "sum"), ("weight", "sum"), ("squares", "sum")])
    merged = together.rename_columns({n: n.removesuffix("_sum") for n in together.column_names})
    plain = quantiles(merged, merged["cell"].to_numpy(), 40, 0.5, 0.95)
    np.testing.assert_allclose(found.value, plain.value)
    np.testing.assert_allclose(found.rows, plain.rows)
    assert (found.low <= plain.low).all()
    assert (found.high >= plain.high).all()


def test_what_blocks_are_worth_at_the_edges() -> None:
    rng = np.random.default_rng(23)
    values = np.ones((1, 100 * BLOCK))
    rows, cell, samples = values_in_blocks(values, values > 0, 8, 1.0, 5, rng)
    n, none = np.ones(len(cell)), np.zeros(5)
    # all rows on one side: nothing shows how alike those of a block are
    assert rows_worth(samples, n, [n, 0 * n], none, [none, none], 0.95).tolist() == [8.0] * 5
    assert quantiles(rows, cell, 5, 0.5, 0.95, samples).high.tolist() == [1.0] * 5
    assert quantiles(rows, cell, 5, 0.9, 0.95, samples).high.tolist() == [np.inf] * 5
    # one block alone: it may be unlike all others
    first = samples.block == 0
    half = np.where(np.arange(len(n)) % 2, n, 0.0)
    found = rows_worth(samples, np.where(first, n, 0), [np.where(first, half, 0)], none, [none], 0.95)
    assert found.tolist() == [0.0] * 5
    # batches that were looked at as a whole are worth what their rows are
    whole = replace(samples, block=np.full(len(n), -1), blocks=0 * samples.blocks, share=n)
    assert rows_worth(whole, n, [half], none, [none], 0.95).tolist() == [np.inf] * 5


def test_medians_of_blocks_of_a_trace_hold_the_truth(spark, tmp_path: Path) -> None:
    """Rows of a page are alike: what was kept of them says less than as many rows from all over."""
    whole = pa.concat_tables(batches(8, 25_000, seed=3))
    slow = alike(1, whole.num_rows, 0.9998, np.random.default_rng(24))[0]
    sizes, times = (500 * np.exp(0.5 * slow)).astype("int32"), whole["ts"].cast(pa.int64()).to_numpy()
    pq.write_table(whole.set_column(1, "size", pa.array(sizes)), tmp_path / "trace.parquet")
    sql = STREAM.format(using=f"replay OPTIONS (path '{tmp_path / 'trace.parquet'}', speed 'max')") + (
        "CREATE QUERY middle AS SELECT MEDIAN(size) AS m FROM p GROUP BY window(ts, '20 seconds', '4 seconds')"
        " WITH ERROR 5%;"
    )
    sink = ListSink()
    ruler = FixedRates({"middle": 0.5}, share=0.3)
    session = Session(spark, tmp_path / "state", Settings(rows_per_batch=100_000), ruler=ruler)
    session.sql(sql)
    session.start(sink)
    try:
        assert session.wait(120)
    finally:
        session.stop()
    assert len(sink.answers) >= 18
    inside = []
    for answer in sink.answers:
        assert answer.how == "sampled"
        start, end = (to_micros(t) for t in (answer.window_start, answer.window_end))
        truth = np.median(sizes[(times >= start) & (times < end)])
        # a window of which one block was read has no limits
        low = -np.inf if answer.low is None else answer.low
        high = np.inf if answer.high is None else answer.high
        inside.append(low <= truth <= high)
    assert np.mean(inside) >= 0.9, f"{np.mean(inside):.2f} of {len(inside)}"
    assert sum(a.low is not None for a in sink.answers) >= 12


def slot_batches(**changes: object) -> SlotBatches:
    fields = {
        "batch": [1, 2, 2, 3],
        "block": [-1, 4, 7, -1],
        "arrived": [100, 90, 90, 80],
        "kept": [10, 5, 6, 0],
        "rate": [0.1, 0.1, 0.1, 0.1],
        "share": [1.0, 0.5, 0.5, 1.0],
        "tau": [0.0, 0.0, 0.0, 7.0],
        "low": [0, 10, 10, 20],
        "high": [9, 19, 19, 29],
    }
    return SlotBatches(**{name: np.array(values) for name, values in (fields | changes).items()})


def test_batches_of_which_nothing_was_kept_count_for_what_they_may_have_had() -> None:
    found = _by_size(slot_batches(), np.array([0, 10, 20]), 15, np.array([0, 1, 2, 1]))
    assert found.largest_tau.tolist() == [0, 7, 7, 7]
    # all of the first two, and all that were read of the second
    assert found.unseen.tolist() == [90 + 79, 79, 0, 79]


class BySize:
    """Keeps rows of ``bytes`` in proportion to their size."""

    paced = False

    def __init__(self, tau: float) -> None:
        self.tau = tau

    def rule(self, coming):
        slot = coming.slots.by_step["bytes"]
        assert slot.summed is not None
        return Ruling({slot.id: 0.01}, 1.0, sizes={slot.id: self.tau})


@pytest.mark.parametrize("large", [0, 1_000_000_000])
def test_a_sum_of_which_nothing_was_kept_has_an_upper_limit(spark, large: int) -> None:
    """In one window a row is so large that it is kept, or nowhere; of others no row is."""
    times, sizes = np.arange(0, 60, 2), np.ones(30)
    sizes[0] = max(large, 1)
    table = pa.table(
        {
            "ts": pa.array(ORIGIN + times * 1_000_000, pa.timestamp("us", "UTC")),
            "size": pa.array(sizes.astype("int32")),
            "port": pa.array(np.full(30, 80, dtype="int32")),
            "host": pa.array(["a"] * 30),
        }
    )
    sql = STREAM.format(using="scripted") + (
        "CREATE QUERY bytes AS SELECT SUM(size) AS s FROM p WHERE known(host) "
        "GROUP BY window(ts, '20 seconds') WITH ERROR 5%;"
    )
    options = {"functions": {"known": (lambda host: host != "c", "boolean")}}
    found = run_scripted(spark, sql, {"p": [table]}, ruler=BySize(1e8), **options)
    truth = by_key(run_scripted(spark, sql, {"p": [table]}, **options))
    empty = [a for a in found if a.rows == 0]
    assert len(empty) >= 2
    assert {a.how for a in found} == {"sampled"}
    for answer in empty:
        assert answer.value == 0
        assert answer.high is not None
        # the sum may be 3.7 tau, and still nothing of it is kept once in forty times
        assert 3e8 < answer.high < 5e8
        assert not answer.met
    assert all(a.low <= truth[k].value <= a.high for k, a in by_key(found).items() if k in truth)


@pytest.mark.parametrize("part", [0.125, 0.25, 1.0])
def test_averages_of_windows_shorter_than_their_batch_cover(part: float) -> None:
    """Such a window has rows in a few of the blocks, or in one alone, which its average fits wholly."""
    rng = np.random.default_rng([24, int(8 * part)])
    values = np.exp(5 + 0.3 * alike(1, 96 * BLOCK, 0.99, rng))
    hits = (np.arange(values.shape[1]) < part * values.shape[1])[None, :]
    rows, cell, samples = values_in_blocks(values, hits, 12, 0.5, 1_000, rng)
    v, none = rows["v0"].to_numpy(), np.zeros(1_000)
    bounds = (np.full(1_000, values.min()), np.full(1_000, values.max()))
    seen = np.bincount(cell, minlength=1_000) > 0
    found = average(samples, np.ones(len(v)), v, v * v, v, v, none, none, 0.95, bounds)
    truth = values[hits].mean()
    inside = ((found.low <= truth) & (truth <= found.high))[seen]
    assert inside.mean() >= 0.93
    assert not np.isnan(found.low[seen]).any()
