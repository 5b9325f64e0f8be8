"""The fields of an agent's batch, checked, as they are logged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from slackwater.edge.messages import Message, bad, field, flag, one_length, values_of, whole, wholes
from slackwater.edge.riding import ABSENT, CURVES, RIDER, absent_fits, curves_fit, rider_fits

FARTHEST = 1 << 62
"""Times and positions are below this, so that arrays of whole numbers hold them and what is made of them."""


def batch_fields(message: Message, columns: int, numbers: Sequence[int]) -> Message:
    """The fields of a batch of a stream with so many value columns, its keys by the hub's ``numbers``.

    >>> rows = {"key": [1], "at": [7], "values": [[2.5]]}
    >>> batch_fields({"type": "batch", "sent": 8, "rows": rows}, 1, [40, 41])
    {'sent': 8, 'key': [41], 'at': [7], 'values': [[2.5]]}
    """
    rows = field(message, "rows", _object, "an object of arrays")
    local = field(rows, "key", wholes, "a list of whole numbers", "batch.rows")
    at = field(rows, "at", _wholes, "a list of times in microseconds", "batch.rows")
    checked: Message = {"key": local, "at": at}
    checked["values"] = values_of(rows.get("values"), columns, "batch.rows.values")
    if "curve" in rows:
        checked["curve"] = riders = field(rows, "curve", _list, "a list", "batch.rows")
        for rider in riders:
            # most rows have none
            if rider is not None and not rider_fits(rider, columns):
                raise bad("batch.rows.curve", RIDER, rider)
    one_length("batch.rows", checked)
    if local and max(local) >= len(numbers):
        raise bad("batch.rows.key", f"numbers of announced keys, below {len(numbers)}", max(local))
    checked["key"] = [numbers[k] for k in local]
    fields: Message = {"sent": field(message, "sent", _whole, "a time in microseconds"), **checked}
    if "absent" in message:
        told = fields["absent"] = _of_sums(message, "absent", ("at", "absent"), numbers)
        if _wholes(told["at"]) is None:
            raise bad("batch.absent.at", "a list of times in microseconds", told["at"])
        _check("batch.absent.absent", told["absent"], absent_fits, columns, ABSENT)
    if "beside" in message:
        told = fields["beside"] = _of_sums(message, "beside", ("curve",), numbers)
        _check("batch.beside.curve", told["curve"], curves_fit, columns, CURVES)
    if "narrowed" in message:
        fields["narrowed"] = _narrowed(message)
    if "caught_up" in message:
        fields["caught_up"] = field(message, "caught_up", flag, "true or false")
    if "offered" in message:
        fields["offered"] = field(message, "offered", _whole, "a whole number")
    if "superseded" in message:
        fields["superseded"] = field(message, "superseded", whole, "a whole number")
    if "missing" in message:
        fields["missing"] = field(message, "missing", whole, "a time in microseconds")
    return fields


def _of_sums(message: Message, name: str, others: Sequence[str], numbers: Sequence[int]) -> Message:
    """What is told of sums beside rows, arrays of one length with the keys."""
    where = f"batch.{name}"
    told = field(message, name, _object, "an object of arrays")
    local = field(told, "key", wholes, "a list of whole numbers", where)
    columns: Message = {"key": local, **{n: field(told, n, _list, "a list", where) for n in others}}
    one_length(where, columns)
    if local and max(local) >= len(numbers):
        raise bad(f"{where}.key", f"numbers of announced keys, below {len(numbers)}", max(local))
    return {**columns, "key": [numbers[k] for k in local]}


def _check(
    where: str, told: list[Any], fits: Callable[[Any, int], bool], columns: int, expected: str
) -> None:
    for one in told:
        if not fits(one, columns):
            raise bad(where, expected, one)


def _narrowed(message: Message) -> Message:
    narrowed = field(message, "narrowed", _object, "an object of arrays")
    columns: Message = {
        "position": field(narrowed, "position", _wholes, "a list of positions", "batch.narrowed"),
        "at": field(narrowed, "at", _wholes, "a list of times in microseconds", "batch.narrowed"),
    }
    one_length("batch.narrowed", columns)
    return columns


def _whole(value: Any) -> int | None:
    return value if whole(value) is not None and value < FARTHEST else None


def _wholes(value: Any) -> list[int] | None:
    return value if wholes(value) is not None and max(value, default=0) < FARTHEST else None


def _object(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def _list(value: Any) -> list[Any] | None:
    return value if isinstance(value, list) else None
