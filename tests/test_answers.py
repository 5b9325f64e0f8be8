"""Answers: the JSON form reads back as it was, and batches say the same as their answers one by one."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.runtime import answer_batch
from slackwater.runtime.answer_batch import ANSWER_SCHEMA, AnswerBatch
from slackwater.runtime.answers import HOWS, Answer
from slackwater.runtime.json_values import exact_text, json_column, json_text, to_micros

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def an_answer(value: Any = 1, **changes: Any) -> Answer:
    fields: dict[str, Any] = {
        "query": "web_bytes",
        "column": "bytes",
        "window_start": NOON,
        "window_end": NOON + timedelta(minutes=1),
        "value": value,
        "low": value,
        "high": value,
        "confidence": 0.99,
        "how": "exact",
        "rate": 1.0,
        "met": True,
        "emitted_at": NOON + timedelta(seconds=61, microseconds=5),
    }
    return Answer(**(fields | changes))


def a_batch(value: pa.Array, **changes: Any) -> AnswerBatch:
    starts = to_micros(NOON) + np.arange(len(value), dtype=np.int64) * 1_000_000
    fields: dict[str, Any] = {
        "query": "web_bytes",
        "column": "bytes",
        "window_start": starts,
        "window_end": starts + 60_000_000,
        "value": value,
        "confidence": 0.99,
        "how": "exact",
        "emitted_at": NOON,
    }
    return AnswerBatch(**(fields | changes))


def test_a_line_is_plain_json_with_native_numbers() -> None:
    line = an_answer(1234567, keys=(("host", "a"), ("port", 80)), rows=12).to_json_line()
    assert line == (
        '{"query":"web_bytes","column":"bytes","window_start":"2024-05-01T12:00:00.000000Z",'
        '"window_end":"2024-05-01T12:01:00.000000Z","at":null,"keys":{"host":"a","port":80},'
        '"value":1234567,"low":1234567,"high":1234567,"confidence":0.99,"how":"exact","rate":1.0,"rows":12,'
        '"met":true,"emitted_at":"2024-05-01T12:01:01.000005Z"}'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**70, '"value":1180591620717411303424,'),
        (Decimal("12345678901234567890.10"), '"value":12345678901234567890.10,'),
        (0.1, '"value":0.1,'),
        (math.inf, '"value":"Infinity",'),
        (math.nan, '"value":"NaN",'),
        (None, '"value":null,'),
        (True, '"value":true,'),
        ('a "b"\n', '"value":"a \\"b\\"\\n",'),
        (NOON, '"value":"2024-05-01T12:00:00.000000Z",'),
        (date(2024, 5, 1), '"value":"2024-05-01",'),
        (b"\x00\xff", '"value":"AP8=",'),
        ([1, Decimal("2.50"), None], '"value":[1,2.50,null],'),
    ],
)
def test_values_are_written_exactly(value: Any, text: str) -> None:
    line = an_answer(value).to_json_line()
    assert text in line
    json.loads(line)


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**80), 2**80),
    st.floats(allow_nan=False),
    st.decimals(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
)


@given(value=values, key=values, low=st.floats(allow_nan=False), how=st.sampled_from(HOWS))
def test_a_line_reads_back_as_the_same_answer(value: Any, key: Any, low: float, how: Any) -> None:
    ends = {"low": low, "high": math.inf} if type(value) in (int, float) else {}
    answer = an_answer(value, keys=(("k", key), ("value", "v")), how=how, **ends)
    again = Answer.from_json(answer.to_json_line())
    assert again == answer
    assert type(again.value) is type(value)
    assert type(again.keys[0][1]) is type(key)
    assert "\n" not in answer.to_json_line()


def test_not_a_number_reads_back() -> None:
    again = Answer.from_json(an_answer(math.nan, low=-math.inf, high=math.inf).to_json_line())
    assert isinstance(again.value, float)
    assert math.isnan(again.value)
    assert (again.low, again.high) == (-math.inf, math.inf)


def test_a_text_that_looks_like_a_number_stays_text() -> None:
    assert Answer.from_json(an_answer("NaN").to_json_line()).value == "NaN"


def test_other_zones_are_written_in_utc() -> None:
    moment = NOON.astimezone(timezone(timedelta(hours=2)))
    assert '"at":"2024-05-01T12:00:00.000000Z"' in an_answer(at=moment).to_json_line()


def test_an_answer_refuses_times_without_zone_and_unknown_ways() -> None:
    with pytest.raises(ValueError, match="time zone"):
        an_answer(at=datetime(2024, 1, 1))
    with pytest.raises(ValueError, match="guessed"):
        an_answer(how="guessed")


ARRAYS = {
    "int": pa.array([1, None, -(2**62)]),
    "uint": pa.array([0, 2**64 - 1, None], pa.uint64()),
    "float": pa.array([1.0, 0.1, 1e22]),
    "float, odd": pa.array([None, math.inf, math.nan]),
    "float32": pa.array([0.1, None, 2.0], pa.float32()),
    "decimal": pa.array([Decimal("1.10"), None, Decimal("-0.01")], pa.decimal128(38, 2)),
    "decimal, fine": pa.array([Decimal(0), Decimal("1E-18"), Decimal("12.5")], pa.decimal128(38, 18)),
    "decimal, coarse": pa.array([Decimal(0), Decimal(100), Decimal("-1E+4")], pa.decimal128(10, -2)),
    "string": pa.array(["a", 'quote " and \\', "line\n\x00 ü 🌊 "]),
    "string, nulls": pa.array(["a", None, ""], pa.large_string()),
    "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
    "bool": pa.array([True, None, False]),
    "timestamp": pa.array([0, None, -1], pa.timestamp("us", "UTC")),
    "timestamp, zone": pa.array([0, 1, None], pa.timestamp("ms", "Europe/Paris")),
    "timestamp, naive": pa.array([0, 1_500, None], pa.timestamp("ns")),
    "date": pa.array([date(2024, 1, 2), None, date(1969, 1, 1)]),
    "binary": pa.array([b"\x00", None, b""]),
    "list": pa.array([[1, 2], None, []]),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
    "null": pa.nulls(3),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_a_batch_writes_the_lines_of_its_answers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    array = ARRAYS[kind]
    batch = a_batch(
        array,
        keys={"k": array, 'the "other"': pa.array([1, 2, 3])},
        at=np.array([0, -1, 10**15]),
        rate=np.array([0.5, 1.0, 0.25]),
        rows=np.array([1, 2, 3]),
        met=np.array([True, False, True]),
        how="sampled",
    )
    expected = "".join(answer.to_json_line() + "\n" for answer in batch.answers()).encode()
    monkeypatch.setattr(answer_batch, "_FEW", 0)
    assert batch.json_lines() == expected
    for line in expected.splitlines():
        Answer.from_json(line)


@given(st.lists(st.one_of(st.none(), st.decimals(-(10**18), 10**18, places=9)), min_size=1))
def test_columns_of_decimals_are_written_as_decimals_are(decimals: list[Decimal | None]) -> None:
    array = pa.array(decimals, pa.decimal128(38, 9))
    assert json_column(array).to_pylist() == [json_text(value) for value in array.to_pylist()]


@given(st.lists(st.one_of(st.none(), st.floats()), min_size=1))
def test_columns_of_floats_are_written_as_floats_are(floats: list[float | None]) -> None:
    assert json_column(pa.array(floats, pa.float64())).to_pylist() == [json_text(value) for value in floats]


def test_intervals_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = a_batch(
        pa.array([1.0, 2.0, None]),
        low=pa.array([0.5, -math.inf, None]),
        high=pa.array([1.5, 9.0, math.inf]),
        how="bounded",
    )
    answers = list(batch.answers())
    assert [(a.low, a.value, a.high) for a in answers] == [
        (0.5, 1.0, 1.5),
        (-math.inf, 2.0, 9.0),
        (None, None, math.inf),
    ]
    monkeypatch.setattr(answer_batch, "_FEW", 0)
    assert [Answer.from_json(line) for line in batch.json_lines().splitlines()] == answers


def test_a_long_batch_is_written_in_order() -> None:
    size = 2 * answer_batch._CHUNK + 3
    batch = a_batch(pa.array(range(size)))
    assert [json.loads(line)["value"] for line in batch.json_lines().splitlines()] == list(range(size))
    assert sum(1 for _ in batch.answers()) == len(batch) == size


def test_an_empty_batch() -> None:
    batch = a_batch(pa.array([], pa.int64()), keys={"k": pa.array([], pa.string())})
    assert batch.json_lines() == b""
    assert list(batch.answers()) == []
    assert batch.to_table().num_rows == 0


@pytest.mark.parametrize("kind", ARRAYS)
def test_every_batch_is_a_table_of_the_one_schema(kind: str) -> None:
    array = ARRAYS[kind]
    table = a_batch(array, keys={"k": array, "n": pa.array([7, 8, 9])}).to_table()
    assert table.schema.equals(ANSWER_SCHEMA)
    table.validate(full=True)
    texts = [None if a.value is None else exact_text(a.value) for a in a_batch(array).answers()]
    assert table["value_text"].to_pylist() == texts
    expected_keys = [[("k", text), ("n", str(n))] for text, n in zip(texts, (7, 8, 9), strict=True)]
    assert table["keys"].to_pylist() == expected_keys


def test_table_of_numbers() -> None:
    batch = a_batch(
        pa.array([Decimal("1.5"), None], pa.decimal128(10, 1)),
        high=pa.array([2**60 + 1, 3]),
        rows=np.array([4, 5]),
        met=False,
    )
    table = batch.to_table()
    assert table["value"].to_pylist() == [1.5, None]
    assert table["low"].to_pylist() == [1.5, None]
    assert table["high"].to_pylist() == [float(2**60), 3.0]
    assert table["value_text"].to_pylist() == ["1.5", None]
    assert table["window_start"].to_pylist() == [NOON, NOON + timedelta(seconds=1)]
    assert table["at"].to_pylist() == [None, None]
    assert table["rows"].to_pylist() == [4, 5]
    assert table["met"].to_pylist() == [False, False]
    assert table["emitted_at"].to_pylist() == [NOON, NOON]
    assert table["keys"].to_pylist() == [[], []]


def test_what_is_no_number_has_no_double() -> None:
    table = a_batch(pa.array(["a", "1"])).to_table()
    assert table["value"].null_count == table["low"].null_count == 2


def test_a_slice_is_the_batch_of_those_answers() -> None:
    batch = a_batch(
        pa.array([1.0, 2.0, 3.0, 4.0]),
        low=pa.array([0.0, 1.0, 2.0, 3.0]),
        rate=np.array([0.1, 0.2, 0.3, 0.4]),
        keys={"k": pa.array(["a", "b", "c", "d"])},
    )
    assert list(batch.slice(1, 3).answers()) == list(batch.answers())[1:3]
    assert batch.slice(1, 3).json_lines().splitlines() == batch.json_lines().splitlines()[1:3]
    assert batch.slice(1, 3).to_table().equals(batch.to_table().slice(1, 2))


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"keys\.k has 1 entries where value has 2"):
        a_batch(pa.array([1, 2]), keys={"k": pa.array(["a"])})
