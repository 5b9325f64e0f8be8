"""Values as text: one exact form for the scalars of an answer, and the same form for whole columns.

Numbers are bare JSON numbers, integers and decimals with all their digits. What JSON has no notation for is a
string, and a type name goes beside it so that a reader gets back what was written. The column functions give
byte for byte what the scalar functions give for each element.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Value: TypeAlias = (
    bool
    | int
    | float
    | str
    | bytes
    | Decimal
    | datetime
    | date
    | timedelta
    | list[Any]
    | dict[str, Any]
    | None
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
FIRST_MICROS = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
LAST_MICROS = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
"""The times that have a date: a window over the last day of the year 9999 ends after them."""


def to_micros(moment: datetime) -> int:
    """Whole microseconds since the epoch.

    >>> to_micros(datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC))
    1000005
    """
    return (moment - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The UTC time at this many microseconds since the epoch, or the calendar's edge where it is beyond.

    >>> from_micros(10**18).year
    9999
    """
    return EPOCH + timedelta(microseconds=min(max(micros, FIRST_MICROS), LAST_MICROS))


def time_text(moment: datetime) -> str:
    """ISO 8601 in UTC with microseconds; a time without a zone stays without one.

    >>> time_text(datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC))
    '2024-01-02T03:04:05.000000Z'
    """
    if moment.tzinfo is None:
        return moment.isoformat(timespec="microseconds")
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def float_text(value: float) -> str:
    """The shortest text that reads back as the same float.

    >>> float_text(0.1), float_text(1e22), float_text(-math.inf)
    ('0.1', '1e+22', '-Infinity')
    """
    if math.isfinite(value):
        return float.__repr__(value)
    return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")


def exact_text(value: object) -> str:
    """The value as text, nothing rounded and nothing quoted.

    >>> exact_text(Decimal("1.10")), exact_text(2**70), exact_text(True), exact_text([1, "a"])
    ('1.10', '1180591620717411303424', 'true', '[1,"a"]')
    """
    match value:
        case np.generic():
            return exact_text(value.item())
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | Decimal():
            return str(value)
        case float():
            return float_text(value)
        case datetime():
            return time_text(value)
        case date():
            return value.isoformat()
        case timedelta():
            return f"{Decimal(value // _MICROSECOND).scaleb(-6):f}"
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case None:
            return "null"
        case list() | tuple():
            return "[" + ",".join(map(json_text, value)) + "]"
        case dict():
            fields = (f"{encode_basestring(str(key))}:{json_text(field)}" for key, field in value.items())
            return "{" + ",".join(fields) + "}"
    return str(value)


def json_text(value: object) -> str:
    """The value as JSON.

    >>> json_text(1.5), json_text(Decimal("1.10")), json_text('say "hi"'), json_text(math.nan)
    ('1.5', '1.10', '"say \\\\"hi\\\\""', '"NaN"')
    """
    match value:
        case np.generic():
            return json_text(value.item())
        case float():
            bare = math.isfinite(value)
        case Decimal():
            bare = value.is_finite()
        case _:
            bare = value is None or isinstance(value, bool | int | list | tuple | dict)
    text = exact_text(value)
    return text if bare else encode_basestring(text)


def type_name(value: object) -> str:
    """The type of a value where its JSON form does not say it, else nothing.

    >>> type_name(Decimal(1)), type_name(1.5), type_name(math.inf), type_name(timedelta(seconds=1))
    ('decimal', '', 'float', 'interval')
    """
    match value:
        case float():
            return "" if math.isfinite(value) else "float"
        case Decimal():
            return "decimal"
        case datetime():
            return "timestamp"
        case date():
            return "date"
        case timedelta():
            return "interval"
        case bytes():
            return "bytes"
    return ""


def restore(parsed: Any, name: str) -> Any:
    """The value behind parsed JSON (fractions parsed as Decimal) and its type name.

    >>> restore(Decimal("1.10"), "decimal"), restore(Decimal("1.10"), ""), restore("NaN", "float")
    (Decimal('1.10'), 1.1, nan)
    """
    if parsed is None:
        return None
    read = _READERS.get(name)
    if read is not None and (name == "decimal" or isinstance(parsed, str)):
        return read(parsed)
    match parsed:
        case Decimal():
            return float(parsed)
        case list():
            return [restore(element, "") for element in parsed]
        case dict():
            return {key: restore(element, "") for key, element in parsed.items()}
    return parsed


_READERS: dict[str, Callable[[Any], Value]] = {
    "float": float,
    "decimal": Decimal,
    "timestamp": datetime.fromisoformat,
    "date": date.fromisoformat,
    "interval": lambda seconds: int(Decimal(seconds).scaleb(6)) * _MICROSECOND,
    "bytes": base64.b64decode,
}


def plain(array: pa.Array) -> pa.Array:
    """The same values in the few types that the rest of this module tells apart."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return plain(array.dictionary_decode())
    if pa.types.is_floating(kind):
        return array.cast(pa.float64())
    if pa.types.is_timestamp(kind):
        # finer than a microsecond is more than a datetime can hold
        return array.cast(pa.timestamp("us", None if kind.tz is None else "UTC"), safe=False)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return array.cast(pa.string())
    return array


def time_column(array: pa.Array) -> pa.Array:
    """ISO 8601 texts, without a zone, of an int64 array of microseconds."""
    texts = array.cast(pa.timestamp("us")).cast(pa.string())
    return pc.utf8_replace_slice(texts, 10, 11, "T")


def text_column(array: pa.Array) -> pa.Array:
    """The `exact_text` of every element, null where the element is."""
    array = plain(array)
    kind = array.type
    if pa.types.is_string(kind):
        return array
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return array.cast(pa.string())
    if pa.types.is_timestamp(kind):
        texts = time_column(array.cast(pa.int64()))
        return texts if kind.tz is None else pc.binary_join_element_wise(texts, "Z", "")
    values = array.to_pylist()
    if _all_finite(array):
        return pa.array(list(map(float.__repr__, values)), pa.string())
    return pa.array([None if value is None else exact_text(value) for value in values], pa.string())


def json_column(array: pa.Array) -> pa.Array:
    """The `json_text` of every element."""
    array = plain(array)
    kind = array.type
    bare = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind)
    if bare or _all_finite(array):
        return text_column(array).fill_null("null")
    if pa.types.is_timestamp(kind):
        return pc.binary_join_element_wise('"', text_column(array), '"', "").fill_null("null")
    values = array.to_pylist()
    if pa.types.is_string(kind) and array.null_count == 0:
        return pa.array(list(map(encode_basestring, values)), pa.string())
    return pa.array(list(map(json_text, values)), pa.string())


def type_column(array: pa.Array) -> Sequence[str] | None:
    """The `type_name` of every element; None where no element needs one."""
    array = plain(array)
    kind = array.type
    bare = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind)
    if bare or pa.types.is_null(kind) or _all_finite(array):
        return None
    names = list(map(type_name, array.to_pylist()))
    return names if any(names) else None


def double_column(array: pa.Array) -> pa.Array:
    """Numbers as doubles, rounded where they must be; null for what is not a number."""
    array = plain(array)
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return array.cast(pa.float64(), safe=False)
    return pa.nulls(len(array), pa.float64())


def _all_finite(array: pa.Array) -> bool:
    return (
        pa.types.is_float64(array.type)
        and array.null_count == 0
        and bool(np.isfinite(array.to_numpy(zero_copy_only=False)).all())
    )
