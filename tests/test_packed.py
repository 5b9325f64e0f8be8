"""Answers that are kept for a while: whatever they hold, they come out as they went in."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import Answer
from slackwater.runtime.packed import AS_TEXT, Packed

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
COLUMNS = {
    "whole": pa.array([1, -(2**62), None]),
    "doubles": pa.array([0.1, -0.0, float("inf")]),
    "narrow doubles": pa.array([0.1, 2.5, None], pa.float32()),
    "decimals": pa.array([Decimal("1.10"), Decimal("-3.00"), None], pa.decimal128(20, 2)),
    "texts": pa.array(['a"\n\r\u2028b', "", None]),
    "truths": pa.array([True, False, None]),
    "dates": pa.array([date(2026, 1, 2), date(1, 1, 1), None]),
    "times": pa.array([NOW, NOW + timedelta(microseconds=1), None], pa.timestamp("us", "UTC")),
    "bytes": pa.array([b"\x00\xff", b"", None]),
    "lists": pa.array([[1, None], [], None], pa.list_(pa.int64())),
    "lists of decimals": pa.array([[Decimal("1.10")], [], None], pa.list_(pa.decimal128(20, 2))),
    "lists of times": pa.array([[NOW], [], None], pa.list_(pa.timestamp("us", "UTC"))),
    "structs": pa.array([{"a": 1, "b": "x"}, {"a": None, "b": ""}, None]),
    "structs of dates": pa.array([{"a": date(2026, 1, 2)}, None, None]),
    "codes": pa.array(["x", "y", None]).dictionary_encode(),
}


def packed(column: pa.Array, copies: int = 1) -> tuple[AnswerBatch, Packed]:
    column = pa.concat_arrays([column] * copies)
    batch = AnswerBatch(
        query="q",
        column="c",
        window_end=np.arange(len(column), dtype=np.int64),
        keys={"k": column},
        value=column,
        confidence=0.95,
        how="sampled",
        rate=np.linspace(0.1, 1.0, len(column)),
        rows=np.arange(len(column), dtype=np.int64),
        met=np.arange(len(column)) % 2 == 0,
        emitted_at=NOW,
    )
    return batch, Packed.of(batch)


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("copies", [1, AS_TEXT])
def test_answers_come_out_as_they_went_in(kind: str, copies: int) -> None:
    batch, kept = packed(COLUMNS[kind], copies)
    assert isinstance(kept.held, bytes) == (copies == 1 and not pa.types.is_nested(COLUMNS[kind].type))
    assert list(kept.answers()) == list(batch.answers())
    # -0.0 is 0.0 and 1 is 1.0 for Python, and 1 is True
    assert [_types(a) for a in kept.answers()] == [_types(a) for a in batch.answers()]
    assert b"".join(line + b"\n" for line in kept.lines()) == batch.json_lines()
    assert list(kept.slice(2).answers()) == list(batch.answers())[2:]
    assert kept.lines([2, 0]) == [kept.lines()[2], kept.lines()[0]]
    assert len(kept.slice(1)) == len(kept) - 1 == len(batch) - 1


def _types(answer: Answer) -> list[tuple[type, str]]:
    return [(type(value), "" if isinstance(value, datetime) else str(value)) for value in _values(answer)]


def _values(answer: Answer) -> list[object]:
    return [answer.value, answer.low, answer.high, *answer.group.values()]
