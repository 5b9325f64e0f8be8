"""Which blocks of a batch are read."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

from sampling_data import STREAM
from slackwater.planners.ruling import choose_blocks, drawn_evenly
from slackwater.spark.kafka_blocks import blocks_of, readings, stretches

SCRIPTED = STREAM.format(using="scripted")
LATE = SCRIPTED.replace("BY ts", "BY ts LATENESS 20 SECONDS")
SECOND = 1_000_000
COUNT = "CREATE QUERY q AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '{0}') WITH ERROR 5%;"
BIG = "CREATE QUERY big AS SELECT size, host FROM p WHERE size > 700 WITH ERROR 5%;"


def offsets(**topic: int) -> dict[str, list[str]]:
    listed = ", ".join(f'"{name[1:]}": {offset}' for name, offset in topic.items())
    return {"spark": [f'{{"t": {{{listed}}}}}']}


def test_a_partition_that_is_new_is_read_from_its_beginning():
    found = stretches(offsets(p0=6400, p1=640), offsets(p0=0))
    assert found is not None
    assert [(s.partition, s.first, s.last) for s in found] == [(0, 0, 6400), (1, 0, 640)]
    blocks = blocks_of(found)
    assert [sum(rows for _, rows in partition) for partition in blocks] == [6400, 640]
    everything = readings(found, [number for partition in blocks for number, _ in partition])
    assert [r["endingOffsets"] for r in everything] == ['{"t": {"0": 6400, "1": 640}}']


def test_blocks_of_all_partitions_are_of_one_length():
    found = stretches(offsets(p0=64_000, p1=640, p2=3, p3=7), offsets(p0=0, p1=0, p2=0, p3=7))
    assert found is not None
    assert [len(b) for b in blocks_of(found)] == [64, 1, 1, 0]
    assert {s.length for s in found} == {1000}


def test_a_small_partition_does_not_keep_the_others_from_being_skipped():
    large = [[(1000 * p + n, 500) for n in range(64)] for p in range(2)]
    for small in ([], [(9000, 1)], [(9000 + n, 1) for n in range(8)]):
        chosen, share = choose_blocks([*large, small], 0.25, "1")
        assert share == pytest.approx(0.25, abs=0.03)
        assert len(chosen) == pytest.approx(0.25 * (128 + len(small)), abs=1)


@pytest.mark.parametrize(
    ("partitions", "share"),
    [
        ([10], 0.3),
        ([9, 11], 0.5),
        ([64, 64, 37], 0.25),
        ([64, 1, 0, 1, 33], 0.1),
        ([25], 0.4),
    ],
)
def test_every_block_has_the_same_chance(partitions, share):
    listed = [[(100 * p + n, 10) for n in range(size)] for p, size in enumerate(partitions)]
    total, times = sum(partitions), 8000
    found: Counter[int] = Counter()
    for salt in range(times):
        chosen, part = choose_blocks(listed, share, f"7/{salt}")
        assert len(chosen) == len(set(chosen)) == max(8, round(share * total))
        assert part == pytest.approx(len(chosen) / total)
        found.update(chosen)
    chance = max(8, round(share * total)) / total
    deviation = (chance * (1 - chance) / times) ** 0.5
    assert {n for p in listed for n, _ in p} == set(found)
    assert max(abs(n / times - chance) for n in found.values()) < 4.5 * deviation


def test_blocks_are_drawn_one_from_each_stretch():
    for seed in range(200):
        drawn = drawn_evenly(60, 12, Random(seed))
        assert [n // 5 for n in drawn] == list(range(12))
        gaps = np.diff(drawn_evenly(61, 12, Random(seed)))
        assert gaps.max() <= 11


def test_blocks_of_which_few_hold_most_rows_are_read_in_larger_numbers():
    listed = [[(n, 1000) for n in range(64)], [(1000 + n, 1) for n in range(500)]]
    shares = [choose_blocks(listed, 0.01, str(salt))[1] for salt in range(100)]
    assert min(shares) > 0.05
    assert np.mean(shares) == pytest.approx(8 / 64, abs=0.02)
