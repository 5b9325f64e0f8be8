"""Kept rows of a block are found whatever the blocks' numbers are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from slackwater.runtime.sampled_windows import _samples
from slackwater.runtime.samples import SlotBatches


def test_numbers_of_blocks_may_fall_from_one_batch_to_the_next() -> None:
    # two partitions of a topic: the blocks of the second have larger numbers, in every batch
    blocks = np.array([0, 1, 1 << 32, 2, 3, (1 << 32) + 1])
    count = len(blocks)
    ones, batch = np.ones(count), np.array([1, 1, 1, 2, 2, 2])
    kept = np.array([10, 20, 30, 40, 50, 60])
    batches = SlotBatches(
        batch=batch,
        block=blocks,
        arrived=np.full(count, 300),
        kept=kept,
        rate=ones / 2,
        share=ones / 3,
        tau=0 * ones,
        low=np.zeros(count, dtype=np.int64),
        high=batch * 10,
    )
    rows = pa.table({"batch": batch, "block": blocks})
    entry, nothing = np.arange(count), np.zeros(count, dtype=np.int64)
    found = _samples(1, nothing, rows, entry, batches, np.array([0]), 100, np.array([0]))
    assert found.kept.tolist() == kept.tolist()
    assert found.kept_total.tolist() == [60, 60, 60, 150, 150, 150]
