"""The traffic generator keeps its promises: repeatable, ordered, on rate, self-similar, heavy-tailed."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow.compute as pc
import pytest

from slackwater import traffic as module
from slackwater.traffic import SCHEMA, Burst, Traffic, from_options

SECOND = 1_000_000


def counts_per_bin(traffic: Traffic, seconds: int, bin_us: int) -> np.ndarray:
    """Packets per bin over the first seconds, read in slices of 100 s so that few slices are needed."""
    counts = []
    for index in range(-(-seconds // 100)):
        table = traffic.slice(index, 100 * SECOND)
        origin = np.datetime64(traffic.origin.astimezone(UTC).replace(tzinfo=None), "us").astype(np.int64)
        offset = table["ts"].cast("int64").to_numpy() - origin - index * 100 * SECOND
        counts.append(np.bincount(offset // bin_us, minlength=100 * SECOND // bin_us))
    return np.concatenate(counts)[: seconds * SECOND // bin_us]


def hurst(counts: np.ndarray, scales: list[int]) -> float:
    """The aggregated variance estimate: the variance of means of m bins falls like m ** (2 H - 2)."""
    variances = []
    for scale in scales:
        whole = counts[: len(counts) // scale * scale].reshape(-1, scale)
        variances.append(whole.mean(axis=1).var())
    slope = np.polyfit(np.log(scales), np.log(variances), 1)[0]
    return float(1 + slope / 2)


def test_schema_and_empty_slices() -> None:
    table = Traffic().slice(0, SECOND)
    assert table.schema == SCHEMA
    assert all(column.null_count == 0 for column in table.columns)
    empty = Traffic(rate=1e-6).slice(5, 1)
    assert empty.num_rows == 0
    assert empty.schema == SCHEMA


def test_slices_are_the_same_in_any_order() -> None:
    forward = [Traffic(seed=3).slice(index, SECOND // 2) for index in range(40)]
    module._timelines.cache_clear()
    backward = [Traffic(seed=3).slice(index, SECOND // 2) for index in reversed(range(40))]
    assert all(a.equals(b) for a, b in zip(forward, reversed(backward), strict=True))


def test_slices_far_apart_and_many_chunks_are_the_same_in_any_order() -> None:
    settings = Traffic(seed=5, rate=50, sources=4, on_s=0.01, off_s=0.02)
    indexes = [0, 700, 3, 350, 699, 1, 700, 0]
    first_pass = {index: settings.slice(index, SECOND) for index in sorted(set(indexes))}
    module._timelines.cache_clear()
    assert all(settings.slice(index, SECOND).equals(first_pass[index]) for index in indexes)
    # A single slice that spans several chunks of every source.
    module._timelines.cache_clear()
    assert settings.slice(0, 700 * SECOND).num_rows == pytest.approx(50 * 700, rel=0.15)


def test_seeds_and_indexes_differ() -> None:
    base, other_seed, other_index = (
        Traffic(seed=seed).slice(index, SECOND)["size"].to_numpy() for seed, index in ((1, 2), (2, 2), (1, 3))
    )
    shared = min(len(base), len(other_seed), len(other_index))
    assert not np.array_equal(base[:shared], other_seed[:shared])
    assert not np.array_equal(base[:shared], other_index[:shared])


def test_the_timeline_does_not_repeat_itself() -> None:
    periods = module._Timelines(1, 1, 1.5, 0.01, 0.02).on_periods(0, 300 * SECOND)
    lengths = periods[:, 1] - periods[:, 0]
    chunk = module._CYCLES_PER_CHUNK
    assert len(lengths) > 3 * chunk
    assert (lengths[chunk : 2 * chunk] == lengths[2 * chunk : 3 * chunk]).mean() < 0.01


def test_concurrent_slices_equal_sequential_ones() -> None:
    settings = Traffic(seed=11, sources=2, on_s=0.001, off_s=0.001)
    indexes = [index for far in range(40) for index in (far, 2 * far + 1)]
    sequential = [settings.slice(index, SECOND) for index in indexes]
    module._timelines.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        concurrent = list(pool.map(lambda index: settings.slice(index, SECOND), indexes))
    assert all(a.equals(b) for a, b in zip(sequential, concurrent, strict=True))


def test_traffic_is_a_plain_value() -> None:
    settings = Traffic(seed=4, bursts=(Burst(1, 2, 3.0),))
    settings.slice(1, SECOND)
    copy = pickle.loads(pickle.dumps(settings))
    assert copy == settings
    assert hash(copy) == hash(settings)
    assert copy.slice(7, SECOND).equals(settings.slice(7, SECOND))


@pytest.mark.parametrize("width", [1000, SECOND // 3, 7 * SECOND])
def test_rows_are_in_order_and_within_bounds(width: int) -> None:
    origin = datetime(2025, 6, 1, 12, tzinfo=UTC)
    settings = Traffic(rate=5000, origin=origin, bursts=(Burst(0, 50, 3.0),))
    last_seq = -1
    for index in range(6):
        table = settings.slice(index, width)
        stamps = table["ts"].cast("int64").to_numpy()
        begin = int((origin - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1)) + index * width
        assert (np.diff(stamps) >= 0).all()
        assert ((stamps >= begin) & (stamps < begin + width)).all()
        seq = table["seq"].to_numpy()
        assert np.array_equal(seq, (index << 32) + np.arange(table.num_rows))
        assert table.num_rows == 0 or seq[0] > last_seq
        last_seq = seq[-1] if table.num_rows else last_seq


def test_mean_rate_over_a_long_stretch() -> None:
    counts = counts_per_bin(Traffic(seed=1, rate=300, sources=256), 5000, SECOND)
    assert counts.mean() == pytest.approx(300, rel=0.04)


def test_the_first_slice_already_has_the_mean_rate() -> None:
    rows = [Traffic(seed=seed, rate=1000).slice(0, SECOND // 10).num_rows for seed in range(80)]
    assert np.mean(rows) == pytest.approx(100, rel=0.06)


def test_on_and_off_periods_do_not_depend_on_the_width() -> None:
    settings = Traffic(seed=2, rate=10_000, sources=8)
    narrow = np.array([settings.slice(index, SECOND).num_rows for index in range(50)])
    wide = counts_per_bin(settings, 100, SECOND)[:50]
    assert np.corrcoef(narrow, wide)[0, 1] > 0.99


def test_a_burst_multiplies_the_rate_and_only_there() -> None:
    settings = Traffic(seed=6, rate=2000, sources=512)
    bursty = Traffic(seed=6, rate=2000, sources=512, bursts=(Burst(20.25, 10.5, 5.0), Burst(60, 10, 3.0)))
    quiet, loud = (counts_per_bin(each, 100, SECOND // 4) for each in (settings, bursty))
    inside, second = slice(81, 123), slice(240, 280)
    assert loud[inside].sum() / quiet[inside].sum() == pytest.approx(5, rel=0.05)
    assert loud[second].sum() / quiet[second].sum() == pytest.approx(3, rel=0.05)
    outside = np.r_[0:81, 123:240, 280:400]
    assert loud[outside].sum() / quiet[outside].sum() == pytest.approx(1, rel=0.03)


def test_a_burst_can_be_dominated_by_a_host_and_a_port() -> None:
    attack = Burst(10, 10, 8.0, port=53, host="10.200.0.1")
    table = Traffic(seed=1, bursts=(Burst(0, 5, 2.0), attack)).slice(1, 10 * SECOND)
    hit = table.filter(pc.equal(table["dst"], "10.200.0.1"))
    assert hit.num_rows / table.num_rows == pytest.approx(7 / 8, abs=0.02)
    assert set(hit["dport"].to_pylist()) == {53}
    assert set(hit["proto"].to_pylist()) == {"udp"}
    assert pc.min(hit["sport"]).as_py() >= 32768
    calm = Traffic(seed=1, bursts=(attack,)).slice(3, 10 * SECOND)
    assert "10.200.0.1" not in set(calm["dst"].to_pylist())


def test_overlapping_bursts_add_up() -> None:
    bursty = Traffic(seed=8, rate=5000, bursts=(Burst(0, 10, 3.0), Burst(0, 10, 4.0)))
    loud, quiet = (each.slice(0, 10 * SECOND).num_rows for each in (bursty, Traffic(seed=8, rate=5000)))
    assert loud / quiet == pytest.approx(1 + 2 + 3, rel=0.05)


def test_counts_are_self_similar() -> None:
    counts = counts_per_bin(Traffic(seed=1, rate=400), 4000, SECOND)
    scales = [2, 4, 8, 16, 32, 64]
    assert hurst(counts, scales) > 0.6
    poisson = np.random.default_rng(1).poisson(counts.mean(), len(counts))
    assert hurst(poisson, scales) < 0.6
    assert counts.var() > 5 * counts.mean()


@pytest.mark.parametrize("largest", [1500, 65535])
def test_sizes_are_heavy_tailed(largest: int) -> None:
    sizes = Traffic(rate=200_000, max_size=largest).slice(0, 2 * SECOND)["size"].to_numpy()
    assert sizes.min() == 40
    assert sizes.max() <= largest
    assert sizes.max() > 0.9 * largest
    assert (sizes == 40).mean() > 0.4
    # Far below the cut the tail of the Pareto part is a power law: P(size >= x) ~ (40 / x) ** 1.2.
    reach = 1 - (40 / (largest + 1)) ** 1.2
    for size in (100, 200, 400):
        expected = 0.6 * (1 - (1 - (40 / size) ** 1.2) / reach)
        assert (sizes >= size).mean() == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("column", ["src", "dst"])
@pytest.mark.parametrize("skew", [0.8, 1.2])
def test_hosts_follow_zipf(column: str, skew: float) -> None:
    table = Traffic(rate=200_000, skew=skew).slice(0, 2 * SECOND)
    counts = np.sort(pc.value_counts(table[column]).field("counts").to_numpy())[::-1]
    assert len(counts) > 900
    ranks = np.arange(1, 51)
    slope = np.polyfit(np.log(ranks), np.log(counts[:50]), 1)[0]
    assert slope == pytest.approx(-skew, abs=0.1)


def test_hosts_and_ports_are_plausible() -> None:
    table = Traffic(hosts=300).slice(0, 20 * SECOND)
    names = set(table["src"].to_pylist()) | set(table["dst"].to_pylist())
    assert names <= {f"10.0.{n >> 8}.{n & 255}" for n in range(1, 301)}
    sport, dport = table["sport"].to_numpy(), table["dport"].to_numpy()
    assert ((np.minimum(sport, dport) < 10_000) & (np.maximum(sport, dport) >= 32768)).all()
    assert {443, 80, 53, 22, 25} <= set(dport.tolist())
    assert set(table["proto"].to_pylist()) == {"tcp", "udp"}
    dns = table.filter(pc.equal(table["dport"], 53))
    assert set(dns["proto"].to_pylist()) == {"udp"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seed": -1}, "seed: expected a whole number from 0"),
        ({"seed": 1.5}, "seed: .* got 1.5"),
        ({"seed": True}, "seed: .* got True"),
        ({"rate": 0}, "rate: expected a number from"),
        ({"rate": float("nan")}, "rate: .* got nan"),
        ({"rate": "2000"}, "rate: .* got '2000'"),
        ({"sources": 0}, "sources"),
        ({"alpha": 2.0}, "alpha: expected a number from 1.01 to 1.99, got 2.0"),
        ({"on_s": 0}, "on_s"),
        ({"off_s": -1}, "off_s"),
        ({"hosts": 1}, "hosts"),
        ({"skew": -0.1}, "skew"),
        ({"max_size": 40}, "max_size: expected a whole number from 41 to 65535"),
        ({"bursts": [Burst(1, 1, 2.0)]}, "bursts: expected a tuple of Burst"),
        ({"bursts": ("1:1:2",)}, "bursts: expected a tuple of Burst"),
        ({"origin": datetime(2026, 1, 1)}, "origin: expected a datetime with time zone"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Traffic(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((-1, 1, 2), "burst start_s"),
        ((0, 0, 2), "burst length_s"),
        ((0, 1, 0.5), "burst factor: expected a number from 1"),
        ((0, 1, 2, 70_000), "burst port: expected a whole number from 0 to 65535, got 70000"),
        ((0, 1, 2, None, ""), "burst host: expected a host such as '10.0.3.17', got ''"),
    ],
)
def test_wrong_bursts_are_refused(wrong: tuple[float, float, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Burst(*wrong)


@pytest.mark.parametrize(("index", "width"), [(-1, 10), (0, 0), (2**31, 1), (1.0, 10), (2**30, 2**40)])
def test_wrong_slices_are_refused(index: int, width: int) -> None:
    with pytest.raises(ValueError, match=r"(index|width_us): expected a whole number from"):
        Traffic().slice(index, width)


def test_options_become_traffic() -> None:
    options = {
        "seed": "7", "Rate": " 2000 ", "sources": "32", "alpha": "1.3", "on_s": "0.5", "off_s": "1",
        "hosts": "50", "skew": "0.9", "max_size": "65535",
        "bursts": "60:20:5, 180:30:8:port=53:host=10.0.0.9",
        "origin": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    assert from_options(options) == Traffic(
        seed=7,
        rate=2000.0,
        sources=32,
        alpha=1.3,
        on_s=0.5,
        off_s=1.0,
        hosts=50,
        skew=0.9,
        max_size=65535,
        bursts=(Burst(60.0, 20.0, 5.0), Burst(180.0, 30.0, 8.0, 53, "10.0.0.9")),
        origin=datetime(2026, 1, 1, tzinfo=UTC),
    )
    assert from_options({}) == Traffic()
    assert from_options({"bursts": ""}) == Traffic()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sourcs": "3"}, "unknown traffic option 'sourcs': did you mean 'sources'?"),
        ({"xyzzy": "3"}, "unknown traffic option 'xyzzy': expected one of seed, rate, sources"),
        ({"seed": "seven"}, "traffic option seed: expected a whole number, got 'seven'"),
        ({"rate": "fast"}, "traffic option rate: expected a number, got 'fast'"),
        ({"rate": "-3"}, "rate: expected a number from 1e-06 to 1000000000, got -3.0"),
        ({"bursts": "60:20"}, "traffic option bursts: expected start:length:factor.*got '60:20'"),
        ({"bursts": "60:20:5:prt=3"}, "traffic option bursts: .*unknown: prt"),
        ({"bursts": "60:20:5:3"}, "traffic option bursts: "),
        ({"bursts": "60:20:0.1"}, "traffic option bursts: .*burst factor: expected a number from 1"),
        ({"origin": "yesterday"}, "traffic option origin: expected a time like"),
        ({"origin": "2026-01-01T00:00:00"}, "origin: expected a datetime with time zone"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_options(options)
