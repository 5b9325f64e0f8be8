"""The scalar functions of SQL that need no special evaluation: NULL in, NULL out."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal

from sqlglot import exp

from slackwater.reference.values import Value, cast, from_micros, number, to_text


def divide(left: Value, right: Value) -> float | None:
    """``/``: always DOUBLE, NULL over zero."""
    left, right = number(left), number(right)
    if left is None or right is None or right == 0:
        return None
    try:
        return float(left) / float(right)
    except OverflowError:
        return math.inf if (left > 0) == (right > 0) else -math.inf


def integer_divide(left: Value, right: Value) -> int | None:
    """``DIV``: rounds towards zero.

    >>> integer_divide(-7, 2), integer_divide(7, 0)
    (-3, None)
    """
    whole, part = cast(number(left), "BIGINT"), cast(number(right), "BIGINT")
    if whole is None or part is None or part == 0:
        return None
    quotient: int = abs(whole) // abs(part)
    return quotient if (whole < 0) == (part < 0) else -quotient


def remainder(left: Value, right: Value) -> Value:
    """``%``: has the sign of the dividend.

    >>> remainder(-7, 3), remainder(7, -3), remainder(7, 0), remainder(-7.5, 2)
    (-1, 1, None, -1.5)
    """
    left, right = number(left), number(right)
    if left is None or right is None or right == 0:
        return None
    if isinstance(left, float) or isinstance(right, float):
        if math.isinf(left) or math.isnan(left) or math.isnan(right):
            return math.nan
        return math.fmod(left, right)
    magnitude = abs(left) % abs(right)
    return -magnitude if left < 0 else magnitude


def _numeric(function: Callable[..., Value]) -> Callable[..., Value]:
    """A function whose arguments are taken as numbers: text that is none makes it NULL."""

    def apply(*values: Value) -> Value:
        numbers = [number(value) for value in values]
        return None if any(n is None for n in numbers) else function(*numbers)

    return apply


def _arithmetic(operate: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    @_numeric
    def apply(left: Value, right: Value) -> Value:
        if isinstance(left, float) or isinstance(right, float):
            left, right = float(left), float(right)
        return operate(left, right)

    return apply


def round_half_up(value: Value, scale: int = 0) -> Value:
    """ROUND: halves go away from zero, and the type stays.

    >>> round_half_up(2.5), round_half_up(-2.5), round_half_up(1.005, 2), round_half_up(15, -1)
    (3.0, -3.0, 1.01, 20)
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            return value
        return float(_quantize(Decimal(repr(value)), scale))
    if isinstance(value, Decimal):
        return _quantize(value, scale)
    return value if scale >= 0 else int(_quantize(Decimal(value), scale))


def _quantize(value: Decimal, scale: int) -> Decimal:
    digits = value.as_tuple()
    assert isinstance(digits.exponent, int)
    if -digits.exponent <= scale:
        return value
    return (value.scaleb(scale).to_integral_value(rounding=ROUND_HALF_UP)).scaleb(-scale)


def _whole(rounding: Callable[[float], int]) -> Callable[[Value], int]:
    def apply(value: Value) -> int:
        if isinstance(value, float) and not math.isfinite(value):
            return int(cast(value, "BIGINT"))
        return rounding(value)

    return apply


def _sqrt(value: Value) -> float:
    root = float(value)
    return math.nan if root < 0 else math.sqrt(root)


def _power(base: Value, exponent: Value) -> float:
    low, high = float(base), float(exponent)
    try:
        return math.pow(low, high)
    except OverflowError:
        return -math.inf if low < 0 and high % 2 == 1 else math.inf
    except ValueError:
        # Zero to a negative power is an infinity in Java, a negative base to a fraction is NaN.
        if low != 0:
            return math.nan
        return math.copysign(math.inf, low) if high % 2 == 1 else math.inf


def _logarithm(value: Value) -> float | None:
    positive = float(value)
    return None if positive <= 0 else math.log(positive)


def _substring(value: Value, start: Value, length: Value = None) -> str:
    text = to_text(value)
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    end = len(text) if length is None else begin + length
    return text[max(begin, 0) : max(end, 0)]


def like(text: str, pattern: str, escape: str = "\\", *, fold: bool = False) -> bool:
    """LIKE: ``%`` is any text, ``_`` any character, and the escape takes the next one as it is.

    >>> like("abc", "a%"), like("a%c", "a!%c", "!"), like("abc", "a!%c", "!")
    (True, True, False)
    """
    expression = ""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            expression += re.escape(next(characters, escape))
        else:
            expression += {"%": ".*", "_": "."}.get(character, re.escape(character))
    return re.fullmatch(expression, text, re.DOTALL | (re.IGNORECASE if fold else 0)) is not None


def _moment(per_second: int) -> Callable[[Value], datetime]:
    return lambda value: from_micros(round(value * 1_000_000) // per_second)


STRICT: dict[type[exp.Expr], Callable[..., Value]] = {
    exp.Add: _arithmetic(lambda a, b: a + b),
    exp.Sub: _arithmetic(lambda a, b: a - b),
    exp.Mul: _arithmetic(lambda a, b: a * b),
    exp.Div: divide,
    exp.IntDiv: integer_divide,
    exp.Mod: remainder,
    exp.Neg: _numeric(lambda value: -value),
    exp.Abs: _numeric(abs),
    exp.Round: _numeric(round_half_up),
    exp.Floor: _numeric(_whole(math.floor)),
    exp.Ceil: _numeric(_whole(math.ceil)),
    exp.Sqrt: _numeric(_sqrt),
    exp.Pow: _numeric(_power),
    exp.Ln: _numeric(_logarithm),
    exp.Length: lambda value: len(to_text(value)),
    exp.Lower: lambda value: to_text(value).lower(),
    exp.Upper: lambda value: to_text(value).upper(),
    exp.Trim: lambda value: to_text(value).strip(" "),
    exp.Substring: _substring,
    exp.Concat: lambda *parts: "".join(map(to_text, parts)),
    exp.DPipe: lambda left, right: to_text(left) + to_text(right),
    exp.RegexpLike: lambda text, pattern: re.search(pattern, to_text(text)) is not None,
}
"""Functions by the node sqlglot reads them as; arguments come in the order of the node's own."""

STRICT_BY_NAME: dict[str, Callable[..., Value]] = {
    "timestamp_seconds": _numeric(_moment(1)),
    "timestamp_millis": _numeric(_moment(1_000)),
    "timestamp_micros": _numeric(_moment(1_000_000)),
}
"""Functions that sqlglot knows by name only."""
