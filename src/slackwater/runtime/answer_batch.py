"""Many answers of one query and column as columns: what a step hands to the sinks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.runtime.answers import Answer, How, types_json
from slackwater.runtime.json_values import (
    FIRST_MICROS,
    LAST_MICROS,
    double_column,
    from_micros,
    json_column,
    json_text,
    plain,
    text_column,
    time_column,
    time_text,
    to_micros,
    type_column,
)

Micros = npt.NDArray[np.int64]

_TIME = pa.timestamp("us", "UTC")
ANSWER_SCHEMA = pa.schema(
    [
        ("query", pa.string()),
        ("column", pa.string()),
        ("window_start", _TIME),
        ("window_end", _TIME),
        ("at", _TIME),
        ("keys", pa.map_(pa.string(), pa.string())),
        ("value", pa.float64()),
        ("value_text", pa.string()),
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("confidence", pa.float64()),
        ("how", pa.string()),
        ("rate", pa.float64()),
        ("rows", pa.int64()),
        ("met", pa.bool_()),
        ("emitted_at", _TIME),
        ("slope", pa.float64()),
    ]
)
# rows turned into text at a time: enough to spread the cost of the calls, small beside the batch
_CHUNK = 16_384
# up to this many rows, making them one by one costs less than the calls on whole columns
_FEW = 8


@dataclass(frozen=True, eq=False, kw_only=True)
class AnswerBatch:
    """Answers of one column, as arrow and numpy arrays of one length.

    They are of one query, or each of its own: a thousand alike queries are one batch.

    Times are microseconds since the epoch. `low` and `high` stand for `value` itself where they are None.
    `rate` and `met` are one for all answers or one for each.
    """

    query: str | pa.Array
    column: str
    window_start: Micros | None = None
    window_end: Micros | None = None
    at: Micros | None = None
    keys: Mapping[str, pa.Array] = field(default_factory=dict)
    value: pa.Array
    low: pa.Array | None = None
    high: pa.Array | None = None
    confidence: float
    how: How
    rate: float | npt.NDArray[np.float64] = 1.0
    rows: Micros | None = None
    met: bool | npt.NDArray[np.bool_] = True
    emitted_at: datetime
    slope: npt.NDArray[np.float64] | None = None
    """By how much each answer moves in a second until the next one."""

    def __post_init__(self) -> None:
        expected = len(self.value)
        for name, column in self._columns():
            if len(column) != expected:
                raise ValueError(f"{name} has {len(column)} entries where value has {expected}")
        for name in ("window_start", "window_end", "at"):
            moments = getattr(self, name)
            if moments is not None and len(moments) and not _has_dates(moments):
                object.__setattr__(self, name, np.clip(moments, FIRST_MICROS, LAST_MICROS))

    def __len__(self) -> int:
        return len(self.value)

    @property
    def queries(self) -> frozenset[str]:
        """The names of the queries that the answers are of."""
        if isinstance(self.query, str):
            return frozenset((self.query,))
        return frozenset(plain(pc.unique(self.query)).to_pylist())

    def slice(self, start: int, stop: int | None = None) -> AnswerBatch:
        """The answers from start up to stop, sharing memory with this batch."""
        part = slice(start, stop)
        columns: dict[str, Any] = {name: column[part] for name, column in self._columns() if "." not in name}
        return replace(self, keys={name: column[part] for name, column in self.keys.items()}, **columns)

    def take(self, places: Sequence[int]) -> AnswerBatch:
        """The answers at some places, in a batch that shares no memory with this one."""
        chosen = np.asarray(places, dtype=np.int64)
        index = pa.array(chosen)

        def part(column: Any) -> Any:
            return column[chosen] if isinstance(column, np.ndarray) else column.take(index)

        columns: dict[str, Any] = {name: part(column) for name, column in self._columns() if "." not in name}
        return replace(self, keys={name: part(column) for name, column in self.keys.items()}, **columns)

    def answers(self) -> Iterator[Answer]:
        """The answers one by one; only a part of the batch is held as Python objects at any time."""
        for start in range(0, len(self), _CHUNK):
            yield from self.slice(start, start + _CHUNK)._rows()

    def json_lines(self) -> bytes:
        """`Answer.to_json_line` of every answer, each with a line's end."""
        if len(self) <= _FEW:
            return "".join(answer.to_json_line() + "\n" for answer in self.answers()).encode()
        return b"".join(
            self.slice(start, start + _CHUNK)._json_lines() for start in range(0, len(self), _CHUNK)
        )

    def to_table(self) -> pa.Table:
        """The answers as a table of `ANSWER_SCHEMA`."""
        size = len(self)
        value = double_column(self.value)
        columns = {
            "query": pa.repeat(self.query, size) if isinstance(self.query, str) else plain(self.query),
            "column": pa.repeat(self.column, size),
            "window_start": _times(self.window_start, size),
            "window_end": _times(self.window_end, size),
            "at": _times(self.at, size),
            "keys": self._key_maps(),
            "value": value,
            "value_text": text_column(self.value),
            "low": value if self.low is None else double_column(self.low),
            "high": value if self.high is None else double_column(self.high),
            "confidence": pa.repeat(pa.scalar(self.confidence, pa.float64()), size),
            "how": pa.repeat(self.how, size),
            "rate": _spread(self.rate, pa.float64(), size),
            "rows": pa.nulls(size, pa.int64()) if self.rows is None else pa.array(self.rows, pa.int64()),
            "met": _spread(self.met, pa.bool_(), size),
            "emitted_at": pa.repeat(pa.scalar(to_micros(self.emitted_at), pa.int64()), size).cast(_TIME),
            "slope": pa.nulls(size, pa.float64()) if self.slope is None else pa.array(self.slope),
        }
        return pa.table(columns, schema=ANSWER_SCHEMA)

    @property
    def nbytes(self) -> int:
        """Bytes that the columns hold."""
        return sum(column.nbytes for _, column in self._columns())

    def _columns(self) -> Iterator[tuple[str, Any]]:
        names = (
            "query",
            "window_start",
            "window_end",
            "at",
            "value",
            "low",
            "high",
            "rate",
            "rows",
            "met",
            "slope",
        )
        for name in names:
            column = getattr(self, name)
            if isinstance(column, pa.Array | np.ndarray):
                yield name, column
        for name, column in self.keys.items():
            yield f"keys.{name}", column

    def _rows(self) -> Iterator[Answer]:
        size = len(self)
        value = plain(self.value).to_pylist()
        keys = [plain(column).to_pylist() for column in self.keys.values()]
        columns = zip(
            [self.query] * size if isinstance(self.query, str) else plain(self.query).to_pylist(),
            _datetimes(self.window_start, size),
            _datetimes(self.window_end, size),
            _datetimes(self.at, size),
            zip(*keys, strict=True) if keys else [()] * size,
            value,
            value if self.low is None else plain(self.low).to_pylist(),
            value if self.high is None else plain(self.high).to_pylist(),
            _spread(self.rate, pa.float64(), size).to_pylist(),
            [None] * size if self.rows is None else self.rows.tolist(),
            _spread(self.met, pa.bool_(), size).to_pylist(),
            [None] * size if self.slope is None else self.slope.tolist(),
            strict=True,
        )
        for query, start, end, at, group, value_, low, high, rate, rows, met, slope in columns:
            yield Answer(
                query=query,
                column=self.column,
                window_start=start,
                window_end=end,
                at=at,
                keys=tuple(zip(self.keys, group, strict=True)),
                value=value_,
                low=low,
                high=high,
                confidence=self.confidence,
                how=self.how,
                rate=rate,
                rows=rows,
                met=met,
                emitted_at=self.emitted_at,
                slope=slope,
            )

    def _json_lines(self) -> bytes:
        value = json_column(self.value)
        query = json_text(self.query) if isinstance(self.query, str) else json_column(self.query)
        pieces: list[Any] = ['{"query":', query, f',"column":{json_text(self.column)}']
        for name in ("window_start", "window_end", "at"):
            moments = getattr(self, name)
            if moments is None:
                pieces.append(f',"{name}":null')
            else:
                pieces += [f',"{name}":"', time_column(pa.array(moments, pa.int64())), 'Z"']
        pieces.append(',"keys":{')
        for index, (name, column) in enumerate(self.keys.items()):
            pieces += [f"{',' if index else ''}{json_text(name)}:", json_column(column)]
        pieces += ['},"value":', value]
        pieces += [',"low":', value if self.low is None else json_column(self.low)]
        pieces += [',"high":', value if self.high is None else json_column(self.high)]
        pieces += [f',"confidence":{json_text(self.confidence)},"how":{json_text(self.how)}']
        pieces += [',"rate":', _json_piece(self.rate), ',"rows":', _json_piece(self.rows)]
        pieces += [',"met":', _json_piece(self.met), f',"emitted_at":"{time_text(self.emitted_at)}"']
        if self.slope is not None:
            pieces += [',"slope":', _json_piece(self.slope)]
        pieces += [self._types_piece(), "}\n"]
        lines = pc.binary_join_element_wise(*_merged(pieces), "")
        offsets = np.frombuffer(lines.buffers()[1], np.int32)[: len(lines) + 1]
        return bytes(lines.buffers()[2][int(offsets[0]) : int(offsets[-1])])

    def _types_piece(self) -> Any:
        ends = [column for column in (self.value, self.low, self.high) if column is not None]
        value_types = [names for names in map(type_column, ends) if names is not None]
        key_types = {name: type_column(column) for name, column in self.keys.items()}
        if not value_types and not any(key_types.values()):
            return ""
        blank = [""] * len(self)
        rows = zip(
            zip(*(value_types or [blank]), strict=True),
            zip(*(names or blank for names in key_types.values()), strict=True) if key_types else blank,
            strict=True,
        )
        texts: dict[Any, str] = {}
        out = []
        for row in rows:
            text = texts.get(row)
            if text is None:
                first = next(filter(None, row[0]), "")
                text = texts[row] = types_json(first, dict(zip(key_types, row[1], strict=True)))
            out.append(text)
        return pa.array(out, pa.string())

    def _key_maps(self) -> pa.Array:
        size, width = len(self), len(self.keys)
        offsets = pa.array(np.arange(size + 1, dtype=np.int32) * np.int32(width))
        if not width:
            return pa.MapArray.from_arrays(offsets, pa.array([], pa.string()), pa.array([], pa.string()))
        names = pa.array(np.tile(np.arange(width), size)).cast(pa.int32())
        by_row = pa.array(np.arange(size * width).reshape(width, size).T.ravel())
        texts = pa.concat_arrays([text_column(column) for column in self.keys.values()]).take(by_row)
        return pa.MapArray.from_arrays(offsets, pa.array(list(self.keys), pa.string()).take(names), texts)


def _has_dates(moments: Micros) -> bool:
    return bool(moments.min() >= FIRST_MICROS and moments.max() <= LAST_MICROS)


def _times(moments: Micros | None, size: int) -> pa.Array:
    return pa.nulls(size, _TIME) if moments is None else pa.array(moments, pa.int64()).cast(_TIME)


def _datetimes(moments: Micros | None, size: int) -> list[datetime] | list[None]:
    return [None] * size if moments is None else [from_micros(moment) for moment in moments.tolist()]


def _spread(value: Any, kind: pa.DataType, size: int) -> pa.Array:
    return pa.array(value, kind) if isinstance(value, np.ndarray) else pa.repeat(pa.scalar(value, kind), size)


def _json_piece(value: Any) -> Any:
    return json_column(pa.array(value)) if isinstance(value, np.ndarray) else json_text(value)


def _merged(pieces: list[Any]) -> list[Any]:
    """The pieces with neighbouring constants made one: the join pays for each piece in each row."""
    merged: list[Any] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged
