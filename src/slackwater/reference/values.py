"""SQL values as plain Python ones: comparison, three-valued logic and casts, as Spark without ANSI mode.

NULL is None, timestamps are datetimes in UTC, DOUBLE is float, whole numbers are int of any size.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from slackwater.errors import LanguageError

Value = Any
Truth = bool | None

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_INTEGRAL_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_INTEGER = re.compile(r"([+-]?)(\d*)(?:\.\d*)?")
_TRUE = {"t", "true", "y", "yes", "1"}
_FALSE = {"f", "false", "n", "no", "0"}


def to_micros(time: datetime) -> int:
    """Microseconds since the epoch; a time without a zone is taken as UTC.

    >>> to_micros(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    1000000
    """
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The time that many microseconds after the epoch, in UTC."""
    return EPOCH + timedelta(microseconds=micros)


def negate(truth: Truth) -> Truth:
    """NOT: unknown stays unknown."""
    return None if truth is None else not truth


def conjunction(left: Truth, right: Truth) -> Truth:
    """AND: false wins over unknown.

    >>> conjunction(None, False), conjunction(None, True)
    (False, None)
    """
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def disjunction(left: Truth, right: Truth) -> Truth:
    """OR: true wins over unknown."""
    return negate(conjunction(negate(left), negate(right)))


def compare(left: Value, right: Value) -> int | None:
    """-1, 0 or 1, and None beside NULL; NaN equals itself and is above every number.

    >>> compare(1, 2.5), compare("10", 9), compare(None, 1), compare(math.nan, math.inf)
    (-1, 1, None, 1)
    """
    if isinstance(left, str) and not isinstance(right, str):
        left = _like_other(left, right)
    elif isinstance(right, str) and not isinstance(left, str):
        right = _like_other(right, left)
    if left is None or right is None:
        return None
    if is_nan(left) or is_nan(right):
        return is_nan(left) - is_nan(right)
    try:
        return int(left > right) - int(left < right)
    except TypeError:
        raise LanguageError(f"cannot compare {left!r} with {right!r}") from None


def _like_other(text: str, other: Value) -> Value:
    """A text as the type that it is compared with."""
    if other is None or isinstance(other, str):
        return text
    if isinstance(other, bool):
        return cast(text, "BOOLEAN")
    if isinstance(other, datetime):
        return cast(text, "TIMESTAMP")
    return cast(text, "BIGINT" if isinstance(other, int) else "DOUBLE")


def is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def identity(value: Value) -> Value:
    """What two values share just when GROUP BY and DISTINCT take them as the same.

    >>> identity(-0.0) == identity(0.0), identity(float("nan")) == identity(math.nan)
    (True, True)
    """
    if is_nan(value):
        return ("NaN",)
    return 0.0 if isinstance(value, float) and value == 0 else value


def sort_key(value: Value) -> tuple[Any, ...]:
    """A key that puts values of any type in one order: NULL first, NaN after the numbers."""
    if value is None:
        return (0,)
    if is_nan(value):
        return (2,)
    if isinstance(value, int | float | Decimal):
        return (1, value)
    return (3, type(value).__name__, value if isinstance(value, str | date | tuple) else repr(value))


def number(value: Value) -> Value:
    """A value as arithmetic takes it: text becomes DOUBLE, or NULL where it is no number."""
    if isinstance(value, str):
        return cast(value, "DOUBLE")
    if value is None or isinstance(value, int | float | Decimal):
        return value
    raise LanguageError(f"expected a number, got {value!r}")


def cast(value: Value, type_name: str) -> Value:
    """``CAST(value AS type)``; NULL where it fails.

    >>> cast("12.7", "INT"), cast("x", "INT"), cast(1e10, "INT"), cast(1e7, "STRING"), cast("yes", "BOOLEAN")
    (12, None, 2147483647, '1.0E7', True)
    """
    if value is None:
        return None
    if type_name in _INTEGRAL_BITS:
        return _to_integer(value, _INTEGRAL_BITS[type_name])
    if type_name in ("DOUBLE", "FLOAT"):
        return _to_double(value)
    if type_name == "STRING":
        return to_text(value)
    if type_name == "BOOLEAN":
        if isinstance(value, str):
            word = value.strip().lower()
            return True if word in _TRUE else False if word in _FALSE else None
        return bool(value)
    if type_name in ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"):
        return _to_timestamp(value)
    raise LanguageError(f"the reference cannot cast to {type_name}")


def _to_integer(value: Value, bits: int) -> int | None:
    limit = 1 << (bits - 1)
    if isinstance(value, str):
        match = _INTEGER.fullmatch(value.strip())
        if match is None or value.strip() in ("", "+", "-"):
            return None
        whole = int(match.group(1) + (match.group(2) or "0"))
        return whole if -limit <= whole < limit else None
    if isinstance(value, datetime):
        value = to_micros(value) // 1_000_000
    if isinstance(value, float):
        # Java narrows a double to the nearest end of the range, and NaN to 0.
        if math.isnan(value):
            return 0
        return int(max(-limit, min(limit - 1, value if math.isinf(value) else int(value))))
    return (int(value) + limit) % (2 * limit) - limit


def _to_double(value: Value) -> float | None:
    if isinstance(value, datetime):
        return to_micros(value) / 1e6
    if isinstance(value, str) and "_" in value:
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _to_timestamp(value: Value) -> datetime | None:
    if isinstance(value, datetime):
        return from_micros(to_micros(value))
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, str):
        try:
            return from_micros(to_micros(datetime.fromisoformat(value.strip())))
        except ValueError:
            return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return from_micros(int(value * 1_000_000))


def to_text(value: Value) -> str:
    """A value as Spark prints it.

    >>> to_text(1.0), to_text(0.00012), to_text(True), to_text(datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC))
    ('1.0', '1.2E-4', 'true', '2020-01-02 03:04:05')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _double_text(value)
    if isinstance(value, datetime):
        whole, fraction = f"{from_micros(to_micros(value)):%Y-%m-%d %H:%M:%S.%f}".split(".")
        return f"{whole}.{fraction}".rstrip("0") if fraction.strip("0") else whole
    return str(value)


def _double_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return format(Decimal(repr(value)), "f")
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits))
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{exponent + len(digits) - 1}"
