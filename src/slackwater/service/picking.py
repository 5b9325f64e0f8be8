"""Single answers out of a batch, without making a batch of them: most queries have one answer at a time."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import Answer
from slackwater.runtime.groups import Places
from slackwater.runtime.json_values import from_micros, plain
from slackwater.runtime.show import show_estimate, show_keys
from slackwater.service.models import Point

ROW = "*"
"""The column of answers that are rows: of a query without aggregates, whose columns are the keys."""
LONGEST = 300
"""Characters of a row that are shown of it."""
_POINT = set(Point.model_fields)
"""That all fields are there is said by one set for all points: there may be many of them."""
_AS_THEY_ARE = frozenset((pa.float64(), pa.int64(), pa.int32(), pa.string(), pa.bool_()))


def answer_at(batch: AnswerBatch, place: int) -> Answer:
    """One answer of a batch, as `AnswerBatch.answers` would give it."""
    value = _value(batch.value, place)
    return Answer(
        query=batch.query if isinstance(batch.query, str) else _value(batch.query, place),
        column=batch.column,
        window_start=None if batch.window_start is None else from_micros(int(batch.window_start[place])),
        window_end=None if batch.window_end is None else from_micros(int(batch.window_end[place])),
        at=None if batch.at is None else from_micros(int(batch.at[place])),
        keys=tuple((name, _value(column, place)) for name, column in batch.keys.items()),
        value=value,
        low=value if batch.low is None else _value(batch.low, place),
        high=value if batch.high is None else _value(batch.high, place),
        confidence=batch.confidence,
        how=batch.how,
        rate=_rate(batch, place),
        rows=None if batch.rows is None else int(batch.rows[place]),
        met=met_at(batch, place),
        emitted_at=batch.emitted_at,
        slope=None if batch.slope is None else float(batch.slope[place]),
    )


def answer_text(answer: Answer) -> str:
    """An answer with its interval for the eye; of one that is a row, its columns."""
    if answer.column != ROW or answer.how == "suspended":
        return show_estimate(answer)
    text = show_keys(answer.keys)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def point_at(batch: AnswerBatch, place: int) -> Point:
    """One answer of a batch that has times, as a point of a chart."""
    ends = ends_of(batch)
    assert ends is not None
    value = _number(_value(batch.value, place))
    return Point.model_construct(
        _POINT,
        at=from_micros(int(ends[place])),
        value=value,
        low=value if batch.low is None else _number(_value(batch.low, place)),
        high=value if batch.high is None else _number(_value(batch.high, place)),
        how=batch.how,
        met=met_at(batch, place),
        rate=_rate(batch, place),
        slope=None if batch.slope is None else _number(float(batch.slope[place])),
        gap=None,
    )


def ends_of(batch: AnswerBatch) -> Places | None:
    """When the windows of answers end, or of what time they speak; None where they have neither."""
    return batch.window_end if batch.window_end is not None else batch.at


def met_at(batch: AnswerBatch, place: int) -> bool:
    """Whether an answer keeps the contract."""
    return bool(batch.met[place]) if isinstance(batch.met, np.ndarray) else bool(batch.met)


def _rate(batch: AnswerBatch, place: int) -> float:
    return float(batch.rate[place]) if isinstance(batch.rate, np.ndarray) else float(batch.rate)


def _value(column: pa.Array, place: int) -> Any:
    if column.type in _AS_THEY_ARE:
        return column[place].as_py()
    if pa.types.is_dictionary(column.type):
        index = column.indices[place].as_py()
        return None if index is None else _value(column.dictionary, index)
    return plain(column.slice(place, 1))[0].as_py()


def _number(value: Any) -> float | None:
    """A value as JSON has numbers; None for what is not one, or is not finite.

    >>> _number(3), _number(Decimal("0.5")), _number(math.nan), _number("3"), _number(True), _number(None)
    (3.0, 0.5, None, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    number = float(value)
    return number if math.isfinite(number) else None
