"""The walks keep their promises: repeatable, ordered, as wild as asked for, together in part, silent on demand."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy import stats

from slackwater import walks as module
from slackwater.language.parse import parse
from slackwater.language.statements import CreateStream
from slackwater.spark.trace import GeneratedTrace, blocks_between, first_block, rows_between
from slackwater.walks import SCHEMA, Silence, Walks, from_options

SECOND = 1_000_000
CALM = Walks(keys=50, sigma=1.0, correlation=0.0, tail=30.0, swing=0.0)


def rows_of(walks: Walks, seconds: int, width: int = SECOND) -> pa.Table:
    """The rows of the first seconds without their numbers, put together from slices."""
    count = -(-seconds * SECOND // width)
    table = pa.concat_tables([walks.slice(index, width) for index in range(count)])
    end = pa.scalar(walks.origin + timedelta(seconds=seconds), SCHEMA.field("ts").type)
    return table.filter(pc.less(table["ts"], end)).drop_columns(["seq"]).combine_chunks()


def increments(walks: Walks, steps: int) -> np.ndarray:
    """Changes of the values from step to step, by step and key."""
    table = walks.slice(0, (steps + 1) * walks.every)
    return np.diff(table["value"].to_numpy().reshape(-1, walks.keys), axis=0)


def micros(table: pa.Table) -> np.ndarray:
    return table["ts"].cast("int64").to_numpy()


def numbers(table: pa.Table) -> np.ndarray:
    return np.array([int(key[1:]) for key in table["key"].to_pylist()])


# --- addresses ------------------------------------------------------------------------------------


def test_schema_first_values_and_empty_slices() -> None:
    table = Walks(keys=12).slice(0, SECOND)
    assert table.schema == SCHEMA
    assert all(column.null_count == 0 for column in table.columns)
    assert table["key"].to_pylist() == [f"k{n}" for n in range(12)]
    assert set(table["value"].to_pylist()) == {100.0}
    empty = Walks().slice(3, SECOND // 2)
    assert empty.num_rows == 0
    assert empty.schema == SCHEMA


@pytest.mark.parametrize("jitter", [0.0, 1.0])
def test_slices_are_the_same_in_any_order(jitter: float) -> None:
    walks = Walks(seed=3, keys=2000, jitter=jitter)  # many chunks of 131 steps
    indexes = [0, 700, 3, 350, 699, 1, 700, 131, 130, 262, 0]
    first_pass = {index: walks.slice(index, SECOND) for index in sorted(set(indexes))}
    module._paths.cache_clear()
    assert all(walks.slice(index, SECOND).equals(first_pass[index]) for index in indexes)
    module._paths.cache_clear()
    assert walks.slice(350, SECOND).equals(first_pass[350])


def test_slices_are_the_same_when_few_ends_of_chunks_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    walks = Walks(seed=4, keys=5000)  # chunks of 52 steps
    indexes = [500, 20, 900, 60, 1, 300, 301, 352, 353, 901]
    expected = {index: walks.slice(index, SECOND) for index in sorted(indexes)}
    monkeypatch.setattr(module, "_KEPT_VALUES", 5 * walks.keys)
    module._paths.cache_clear()
    assert all(walks.slice(index, SECOND).equals(expected[index]) for index in indexes)
    assert len(module._paths(walks)._ends) <= 5
    module._paths.cache_clear()


@pytest.mark.parametrize("jitter", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("every", [SECOND, 70_001, 2_500_000])
def test_rows_are_the_same_whatever_the_width(jitter: float, every: int) -> None:
    walks = Walks(seed=5, keys=7, every=every, jitter=jitter, silent=(Silence("k2", 3.3, 4),))
    whole = rows_of(walks, 12, 12 * SECOND)
    assert whole.num_rows == pytest.approx(12 * SECOND / every * 7, abs=7 + 4 * SECOND / every + 7)
    for width in (SECOND, 333_333, 5 * SECOND):
        assert rows_of(walks, 12, width).equals(whole)


@pytest.mark.parametrize("jitter", [0.0, 0.001, 1.0])
@pytest.mark.parametrize("width", [100_000, SECOND // 3, 7 * SECOND])
def test_rows_are_in_order_and_within_bounds(jitter: float, width: int) -> None:
    origin = datetime(2025, 6, 1, 12, tzinfo=UTC)
    walks = Walks(keys=300, every=200_000, jitter=jitter, origin=origin)
    begin = (origin - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    last = -1
    for index in range(6):
        table = walks.slice(index, width)
        stamps, key, seq = micros(table), numbers(table), table["seq"].to_numpy()
        low = begin + index * width
        assert ((stamps >= low) & (stamps < low + width)).all()
        later, same = np.diff(stamps) > 0, np.diff(stamps) == 0
        assert (later | (same & (np.diff(key) > 0))).all()
        assert np.array_equal(seq, (index << 32) + np.arange(table.num_rows))
        assert table.num_rows == 0 or seq[0] > last
        last = seq[-1] if table.num_rows else last


def test_concurrent_slices_equal_sequential_ones() -> None:
    walks = Walks(seed=11, keys=3000)
    indexes = [index for far in range(12) for index in (far, 40 * far + 1)]
    sequential = [walks.slice(index, SECOND) for index in indexes]
    module._paths.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        concurrent = list(pool.map(lambda index: walks.slice(index, SECOND), indexes))
    assert all(a.equals(b) for a, b in zip(sequential, concurrent, strict=True))


def test_walks_are_a_plain_value() -> None:
    walks = Walks(seed=4, silent=(Silence("k1", 2, 3),))
    walks.slice(1, SECOND)
    copy = pickle.loads(pickle.dumps(walks))
    assert copy == walks
    assert hash(copy) == hash(walks)
    assert copy.slice(7, SECOND).equals(walks.slice(7, SECOND))


def test_seeds_chunks_and_keys_differ() -> None:
    one, other = (increments(Walks(seed=seed, keys=3), 3000) for seed in (1, 2))
    assert not np.isclose(one, other).any()
    assert not np.isclose(one[1024:1500], one[:476]).any()
    assert not np.isclose(one[:, 0], one[:, 1]).any()


# --- statistics of the increments -----------------------------------------------------------------


@pytest.mark.parametrize(("every", "sigma"), [(SECOND, 0.1), (250_000, 2.0), (4 * SECOND, 0.5)])
def test_sigma_and_drift_are_per_second_however_often_values_come(every: int, sigma: float) -> None:
    walks = Walks(keys=200, every=every, sigma=sigma, drift=0.25, correlation=0, tail=8, swing=0)
    found, seconds = increments(walks, 2000), every / SECOND
    assert found.var() == pytest.approx(sigma**2 * seconds, rel=0.02)
    assert found.mean() == pytest.approx(0.25 * seconds, abs=4 * sigma * seconds**0.5 / found.size**0.5)
    # a walk: the variance over a minute is that of its seconds together
    minutes = found[:1920].reshape(-1, round(60 / seconds), 200).sum(axis=1)
    assert minutes.var() == pytest.approx(60 * sigma**2, rel=0.15)


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("tail", [6.0, 30.0])
def test_keys_share_the_variance_that_is_asked_for(correlation: float, tail: float) -> None:
    walks = Walks(seed=2, keys=40, correlation=correlation, tail=tail, swing=0, sigma=1)
    found = increments(walks, 6000)
    between = np.corrcoef(found.T)[np.triu_indices(40, 1)]
    assert between.mean() == pytest.approx(correlation, abs=0.04)
    assert found.var() == pytest.approx(1, rel=0.06)


def test_increments_follow_student_t() -> None:
    found = increments(Walks(keys=100, sigma=1, correlation=0, tail=4, swing=0), 2000).ravel()
    assert stats.kstest(found * np.sqrt(2), stats.t(4).cdf).pvalue > 0.01
    assert stats.kstest(found, stats.norm.cdf).pvalue < 1e-9
    normal = increments(CALM, 2000).ravel()
    assert stats.kstest(normal, stats.norm.cdf).pvalue > 0.01
    assert (np.abs(found) > 5).mean() > 100 * (np.abs(normal) > 5).mean()


def test_common_shocks_are_heavy_tailed_too() -> None:
    together = increments(Walks(keys=3, sigma=1, correlation=1, tail=4, swing=0), 20_000)
    assert np.allclose(together[:, 0], together[:, 2])
    assert stats.kstest(together[:, 0] * np.sqrt(2), stats.t(4).cdf).pvalue > 0.01


def test_volatility_swings_with_its_period() -> None:
    walks = Walks(keys=200, sigma=1, correlation=0, tail=30, swing=0.5, period=60 * SECOND)
    found = increments(walks, 6000).reshape(100, 60, 200)  # the first change is that of second 1
    spread = found.std(axis=(0, 2))
    expected = 1 + 0.5 * np.sin(2 * np.pi * np.arange(1, 61) / 60)
    assert spread == pytest.approx(expected, rel=0.03)
    assert increments(walks, 6000).var() == pytest.approx(1 + 0.5**2 / 2, rel=0.02)


def test_times_scatter_and_changes_are_for_the_time_that_has_passed() -> None:
    walks = Walks(keys=100, every=2 * SECOND, jitter=0.5, sigma=1, correlation=0, tail=30, swing=0, drift=3)
    table = walks.slice(0, 4000 * SECOND).sort_by([("key", "ascending"), ("ts", "ascending")])
    time, value = (each.reshape(100, 2000) for each in (micros(table) / 1e6, table["value"].to_numpy()))
    late = (time - time[0, 0] // 2 * 2) % 2
    assert stats.kstest(late.ravel(), stats.uniform(0, 1).cdf).pvalue > 0.01
    gaps, changes = np.diff(time), np.diff(value) - 3 * np.diff(time)
    assert gaps.min() > 1
    assert stats.kstest((changes / np.sqrt(gaps)).ravel(), stats.norm.cdf).pvalue > 0.01
    short, long = changes[gaps < 1.5], changes[gaps > 2.5]
    assert long.var() / short.var() == pytest.approx(
        gaps[gaps > 2.5].mean() / gaps[gaps < 1.5].mean(), rel=0.05
    )


def test_volumes_are_positive_and_follow_the_volatility() -> None:
    walks = Walks(keys=100, swing=0.9, period=100 * SECOND)
    volume = walks.slice(0, 1000 * SECOND)["volume"].to_numpy().reshape(10, 100, 100)
    assert volume.min() >= 1
    assert np.median(volume[:, [0, 50]]) == pytest.approx(100, rel=0.06)
    assert np.median(volume[:, 25]) == pytest.approx(190, rel=0.1)
    assert np.median(volume[:, 75]) == pytest.approx(10, abs=2)


# --- interruptions --------------------------------------------------------------------------------


def test_a_silent_key_has_no_rows_and_wanders_on() -> None:
    walks = Walks(seed=6, keys=5)
    silenced = Walks(
        seed=6, keys=5, silent=(Silence("k3", 10, 5), Silence("k3", 20.5, 1), Silence("k0", 10, 1))
    )
    whole, found = rows_of(walks, 30), rows_of(silenced, 30)
    second = (micros(whole) - micros(whole)[0]) // SECOND
    gone = (numbers(whole) == 3) & (((second >= 10) & (second < 15)) | (second == 21))
    gone |= (numbers(whole) == 0) & (second == 10)
    assert gone.sum() == 7
    assert found.equals(whole.filter(pa.array(~gone)).combine_chunks())


def test_a_trace_of_walks_may_have_files_without_rows(tmp_path: Path) -> None:
    trace = GeneratedTrace(Walks(keys=1, silent=(Silence("k0", 0, 1500),)), tmp_path, 3000)
    empty, half, full = trace.segments(trace.start, trace.start + 3000 * SECOND)
    assert (first_block(empty.path), first_block(half.path), first_block(full.path)) == (-1, 1 << 32, 2 << 32)
    assert blocks_between(trace, trace.start, trace.start + 3000 * SECOND) == [
        (1 << 32, 500),
        (2 << 32, 1000),
    ]
    assert rows_between(trace, trace.start + 1490 * SECOND, trace.start + 1510 * SECOND) == 10
    assert trace.advance(trace.start, 1500) == trace.start + 1000 * SECOND
    assert trace.advance(trace.start, 10_000) == trace.end


@pytest.mark.parametrize(
    ("walks", "rows"),
    [(Walks(), 1000), (Walks(keys=1), 1000), (Walks(keys=1, every=2**45), 1), (Walks(keys=5000), 5000)],
)
def test_files_have_rows_and_can_be_many(walks: Walks, rows: int) -> None:
    assert walks.slice(0, walks.segment_us).num_rows == rows
    assert walks.segment_us * 2**11 < module.HORIZON_US


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seed": -1}, "seed: expected a whole number from 0"),
        ({"keys": 0}, "keys: expected a whole number from 1 to 1000000, got 0"),
        ({"keys": True}, "keys: .* got True"),
        ({"every": 0}, "every: expected a whole number from 1"),
        ({"every": 1.5}, "every: .* got 1.5"),
        ({"start": float("nan")}, "start: .* got nan"),
        ({"sigma": -0.1}, "sigma: expected a number from 0 to"),
        ({"drift": float("inf")}, "drift: .* got inf"),
        ({"correlation": 1.1}, "correlation: expected a number from 0 to 1, got 1.1"),
        ({"tail": 2}, "tail: expected a number from 2.01 to .*, got 2"),
        ({"swing": 1.5}, "swing: expected a number from 0 to 1"),
        ({"period": 0}, "period: expected a whole number from 1"),
        ({"jitter": -1}, "jitter: expected a number from 0 to 1"),
        ({"silent": [Silence("k0", 1, 1)]}, "silent: expected a tuple of Silence"),
        ({"silent": (Silence("k100", 1, 1),)}, "silent: there is no key 'k100', the keys are k0 to k99"),
        ({"silent": (Silence("k07", 1, 1),)}, "silent: there is no key 'k07'"),
        ({"silent": (Silence("x1", 1, 1),)}, "silent: there is no key 'x1'"),
        ({"keys": 1, "silent": (Silence("k1", 1, 1),)}, "no key 'k1', the keys are k0 only"),
        ({"origin": datetime(2026, 1, 1)}, "origin: expected a datetime with time zone"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Walks(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("index", "width"), [(-1, 10), (0, 0), (2**31, 1), (1.0, 10), (2**30, 2**40)])
def test_wrong_slices_are_refused(index: int, width: int) -> None:
    with pytest.raises(ValueError, match=r"(index|width_us): expected a whole number from"):
        Walks().slice(index, width)


def test_options_become_walks() -> None:
    options = {
        "seed": "7", "Keys": " 20 ", "every": "250ms", "start": "-3", "sigma": "0.5", "drift": "-0.01",
        "correlation": "0", "tail": "30", "swing": "0", "period": "1 minute 30 seconds", "jitter": "0.2",
        "silent": "k3:60:30, k7:60:30.5", "origin": "2026-02-01T00:00:00Z",
    }  # fmt: skip
    assert from_options(options) == Walks(
        seed=7,
        keys=20,
        every=250_000,
        start=-3.0,
        sigma=0.5,
        drift=-0.01,
        correlation=0.0,
        tail=30.0,
        swing=0.0,
        period=90 * SECOND,
        jitter=0.2,
        silent=(Silence("k3", 60.0, 30.0), Silence("k7", 60.0, 30.5)),
        origin=datetime(2026, 2, 1, tzinfo=UTC),
    )
    assert from_options({}) == Walks()
    assert from_options({"silent": ""}) == Walks()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sgima": "3"}, "unknown walks option 'sgima': did you mean 'sigma'?"),
        ({"xyzzy": "3"}, "unknown walks option 'xyzzy': expected one of seed, keys, start"),
        ({"keys": "many"}, "walks option keys: expected a whole number, got 'many'"),
        ({"sigma": "wild"}, "walks option sigma: expected a number, got 'wild'"),
        ({"sigma": "nan"}, "sigma: expected a number from 0 to 1000000000, got nan"),
        ({"every": "soon"}, "walks option every: expected a length of time such as '1 second', got 'soon'"),
        ({"every": "1 month"}, "walks option every: .*'month' in '1 month' is not a unit of fixed length"),
        ({"every": "0 seconds"}, "walks option every: .*got '0 seconds' .it must be longer than 0"),
        ({"period": "10"}, "walks option period: expected a length of time"),
        ({"silent": "k3:60"}, "walks option silent: expected key:start:length.*got 'k3:60'"),
        ({"silent": "k3:60:x"}, "walks option silent: expected key:start:length.*got 'k3:60:x'"),
        ({"silent": "k3:60:0"}, "walks option silent: .*silent length_s: expected a number from"),
        ({"keys": "5", "silent": "k4:1:1,k5:1:1"}, "silent: there is no key 'k5', the keys are k0 to k4"),
        ({"origin": "yesterday"}, "walks option origin: expected a time like"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_options(options)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (
            "(ts TIMESTAMP, price DOUBLE) USING walks",
            "walks has no column price; it has ts, key, value, volume",
        ),
        ("(ts TIMESTAMP, seq BIGINT) USING walks", "walks has no column seq"),
        (
            "(ts TIMESTAMP) USING walks OPTIONS (keys 3, silent 'k3:1:1')",
            "stream w: silent: there is no key 'k3'",
        ),
        ("(ts TIMESTAMP) USING walks OPTIONS (length 'long')", "stream w: .*long"),
        ("(ts TIMESTAMP) USING Walks OPTIONS (speed 'fast')", "stream w: speed is event seconds per second"),
        ("(ts TIMESTAMP, value DOUBLE) USING walks FORMAT json", "walks delivers columns; leave FORMAT out"),
    ],
)
def test_streams_that_cannot_be_are_refused(declared: str, message: str) -> None:
    from slackwater.errors import SourceError
    from slackwater.spark.sources import check_source

    statement = parse(f"CREATE STREAM w {declared} TIMESTAMP BY ts")[0]
    assert isinstance(statement, CreateStream)
    with pytest.raises(SourceError, match=message):
        check_source(statement)
