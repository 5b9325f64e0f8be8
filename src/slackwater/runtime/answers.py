"""An answer and its certificate: the value, how wrong it may be, and how it was obtained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, get_args

from slackwater.runtime.json_values import Value, json_text, restore, time_text, type_name

How = Literal["exact", "sampled", "subset", "bounded", "deferred", "modelled", "suspended"]
HOWS: tuple[How, ...] = get_args(How)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One value of one aggregate column, for one window (or one time) and one group.

    With probability `confidence` the truth lies in [`low`, `high`]. `rate` is the effective sampling rate,
    `rows` what the estimate rests on, and `met` says whether the contract held. With a `slope` the answer
    moves until the next one, by so much a second.
    """

    query: str
    column: str
    window_start: datetime | None = None
    window_end: datetime | None = None
    at: datetime | None = None
    keys: tuple[tuple[str, Value], ...] = ()
    value: Value
    low: Value
    high: Value
    confidence: float
    how: How
    rate: float
    rows: int | None = None
    met: bool
    emitted_at: datetime
    slope: float | None = None

    def __post_init__(self) -> None:
        for moment in (self.window_start, self.window_end, self.at, self.emitted_at):
            if moment is not None and moment.tzinfo is None:
                raise ValueError(f"the times of an answer need a time zone, {moment.isoformat()} has none")
        if self.how not in HOWS:
            raise ValueError(f"an answer is one of {', '.join(HOWS)}, not {self.how!r}")

    @property
    def group(self) -> dict[str, Value]:
        """The group keys by name."""
        return dict(self.keys)

    def to_json_line(self) -> str:
        """The answer as one JSON object on one line, without the line's end.

        `slope` is there only if the answer has one. A last field `types` is there only if a value is of a
        type that JSON cannot show, such as a decimal.
        """
        keys = ",".join(f"{json_text(name)}:{json_text(value)}" for name, value in self.keys)
        fields = {
            "query": json_text(self.query),
            "column": json_text(self.column),
            "window_start": _time_json(self.window_start),
            "window_end": _time_json(self.window_end),
            "at": _time_json(self.at),
            "keys": f"{{{keys}}}",
            "value": json_text(self.value),
            "low": json_text(self.low),
            "high": json_text(self.high),
            "confidence": json_text(self.confidence),
            "how": json_text(self.how),
            "rate": json_text(self.rate),
            "rows": json_text(self.rows),
            "met": json_text(self.met),
            "emitted_at": _time_json(self.emitted_at),
        }
        if self.slope is not None:
            fields["slope"] = json_text(self.slope)
        value_type = type_name(self.value) or type_name(self.low) or type_name(self.high)
        key_types = {name: type_name(value) for name, value in self.keys}
        line = ",".join(f'"{name}":{text}' for name, text in fields.items())
        return "{" + line + types_json(value_type, key_types) + "}"

    @classmethod
    def from_json(cls, line: str | bytes) -> Answer:
        """The answer that a line of `to_json_line` holds."""
        fields: dict[str, Any] = json.loads(line, parse_float=Decimal)
        types = fields.get("types", {})
        value_type, key_types = types.get("value", ""), types.get("keys", {})
        return cls(
            query=fields["query"],
            column=fields["column"],
            window_start=restore(fields["window_start"], "timestamp"),
            window_end=restore(fields["window_end"], "timestamp"),
            at=restore(fields["at"], "timestamp"),
            keys=tuple((name, restore(v, key_types.get(name, ""))) for name, v in fields["keys"].items()),
            value=restore(fields["value"], value_type),
            low=restore(fields["low"], value_type),
            high=restore(fields["high"], value_type),
            confidence=float(fields["confidence"]),
            how=fields["how"],
            rate=float(fields["rate"]),
            rows=fields["rows"],
            met=fields["met"],
            emitted_at=restore(fields["emitted_at"], "timestamp"),
            slope=float(fields["slope"]) if fields.get("slope") is not None else None,
        )


def types_json(value_type: str, key_types: Mapping[str, str]) -> str:
    """The `types` field that follows the others, or nothing if all types are plain.

    >>> types_json("decimal", {"day": "date", "host": ""})
    ',"types":{"value":"decimal","keys":{"day":"date"}}'
    >>> types_json("", {"host": ""})
    ''
    """
    parts = [f'"value":"{value_type}"'] if value_type else []
    named = [f'{json_text(name)}:"{kind}"' for name, kind in key_types.items() if kind]
    if named:
        parts.append('"keys":{' + ",".join(named) + "}")
    return ',"types":{' + ",".join(parts) + "}" if parts else ""


def _time_json(moment: datetime | None) -> str:
    return "null" if moment is None else f'"{time_text(moment)}"'
