"""The fields of an agent's batch, checked, as they are logged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slackwater.edge.messages import Message, bad, field, flag, one_length, values_of, whole, wholes


def batch_fields(message: Message, columns: int, numbers: Sequence[int]) -> Message:
    """The fields of a batch of a stream with so many value columns, its keys by the hub's ``numbers``.

    >>> rows = {"key": [1], "at": [7], "values": [[2.5]]}
    >>> batch_fields({"type": "batch", "sent": 8, "rows": rows}, 1, [40, 41])
    {'sent': 8, 'key': [41], 'at': [7], 'values': [[2.5]]}
    """
    rows = field(message, "rows", _object, "an object of arrays")
    local = field(rows, "key", wholes, "a list of whole numbers", "batch.rows")
    at = field(rows, "at", wholes, "a list of times in microseconds", "batch.rows")
    checked: Message = {"key": local, "at": at}
    checked["values"] = values_of(rows.get("values"), columns, "batch.rows.values")
    if "curve" in rows:
        checked["curve"] = field(rows, "curve", _list, "a list", "batch.rows")
    one_length("batch.rows", checked)
    if local and max(local) >= len(numbers):
        raise bad("batch.rows.key", f"numbers of announced keys, below {len(numbers)}", max(local))
    checked["key"] = [numbers[k] for k in local]
    fields: Message = {"sent": field(message, "sent", whole, "a time in microseconds"), **checked}
    for name, others in (("absent", ("at", "absent")), ("beside", ("curve",))):
        if name in message:
            fields[name] = _of_sums(message, name, others, numbers)
    if "narrowed" in message:
        fields["narrowed"] = _narrowed(message)
    if "caught_up" in message:
        fields["caught_up"] = field(message, "caught_up", flag, "true or false")
    if "superseded" in message:
        fields["superseded"] = field(message, "superseded", whole, "a whole number")
    if "missing" in message:
        fields["missing"] = field(message, "missing", whole, "a time in microseconds")
    return fields


def _of_sums(message: Message, name: str, others: Sequence[str], numbers: Sequence[int]) -> Message:
    """What is told of sums beside rows, which the hub passes on unread but for the keys."""
    where = f"batch.{name}"
    told = field(message, name, _object, "an object of arrays")
    local = field(told, "key", wholes, "a list of whole numbers", where)
    columns: Message = {"key": local, **{n: field(told, n, _list, "a list", where) for n in others}}
    one_length(where, columns)
    if local and max(local) >= len(numbers):
        raise bad(f"{where}.key", f"numbers of announced keys, below {len(numbers)}", max(local))
    return {**columns, "key": [numbers[k] for k in local]}


def _narrowed(message: Message) -> Message:
    narrowed = field(message, "narrowed", _object, "an object of arrays")
    columns: Message = {
        "position": field(narrowed, "position", wholes, "a list of positions", "batch.narrowed"),
        "at": field(narrowed, "at", wholes, "a list of times in microseconds", "batch.narrowed"),
    }
    one_length("batch.narrowed", columns)
    return columns


def _object(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def _list(value: Any) -> list[Any] | None:
    return value if isinstance(value, list) else None
