"""Answers for the eye: rounded numbers, short times, nothing that could upset a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal

from slackwater.runtime.answers import Answer
from slackwater.runtime.json_values import exact_text

_DIGITS = 6


def show_number(value: int | float | Decimal, *, decimals: int | None = None) -> str:
    """A number with thousands marked, to six digits unless the decimals are given; integers in full.

    >>> show_number(1234567), show_number(1234567.891), show_number(3.14159265), show_number(2.50)
    ('1,234,567', '1,234,568', '3.14159', '2.5')
    >>> show_number(72.0)
    '72'
    >>> show_number(1.5e-9), show_number(2e18), show_number(-math.inf), show_number(2.5, decimals=3)
    ('1.5e-09', '2e+18', '−∞', '2.500')
    """
    if isinstance(value, int):
        return f"{value:,}"
    number = float(value)
    if not math.isfinite(number):
        return "not a number" if number != number else ("∞" if number > 0 else "−∞")
    if number and not 1e-4 <= abs(number) < 1e15:
        return f"{number:.{_DIGITS}g}"
    if decimals is None:
        text = f"{number:,.{max(0, _DIGITS - _integer_digits(number))}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{number:,.{decimals}f}"


def show_value(value: object) -> str:
    """Any value in a few characters, numbers as `show_number` has them."""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return show_number(value)
    if isinstance(value, datetime):
        return show_time(value)
    return "–" if value is None else printable(exact_text(value))


def show_estimate(answer: Answer) -> str:
    """The value with its interval, rounded to what the interval leaves meaningful; bare if exact.

    Where the answer moves until the next one, it says by how much a second.
    """
    value, low, high = answer.value, answer.low, answer.high
    known = show_value(value)
    moves = f", {answer.slope:+.3g}/s" if answer.slope and math.isfinite(answer.slope) else ""
    # what is no number equals nothing, not even itself
    if (low is None and high is None) or all(end is value or end == value for end in (low, high)):
        return known + moves
    trust = f" ({show_number(answer.confidence * 100)}%)" if answer.confidence < 1 else ""
    trust += moves
    if not (_finite(value) and _finite(low) and _finite(high)):
        return f"{known} [{show_value(low)}, {show_value(high)}]{trust}"
    middle, bottom, top = float(value), float(low), float(high)  # type: ignore[arg-type]
    half = (top - bottom) / 2
    # two digits of the half-width: more would claim to know the error better than it is known
    decimals = min(12, max(0, 2 - _integer_digits(half))) if half > 0 else 0
    known = show_number(middle, decimals=decimals)
    if abs(middle - (top + bottom) / 2) <= 0.01 * half:
        return f"{known} ± {show_number(half, decimals=decimals)}{trust}"
    return f"{known} [{show_number(bottom, decimals=decimals)}, {show_number(top, decimals=decimals)}]{trust}"


def show_time(moment: datetime, *, day: bool = True) -> str:
    """A time in UTC, seconds with a fraction only if there is one.

    >>> show_time(datetime(2024, 1, 2, 3, 4, 5, 250000, tzinfo=UTC), day=False)
    '03:04:05.25'
    """
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC)
    text = f"{moment:%H:%M:%S}"
    if moment.microsecond:
        text += f".{moment.microsecond:06}".rstrip("0")
    return f"{moment:%Y-%m-%d} {text}" if day else text


def show_when(answer: Answer) -> str:
    """The window of an answer, or the time it speaks of; the day only where it matters."""
    start, end = answer.window_start, answer.window_end
    if start is None or end is None:
        moment = answer.at or end or start
        return "" if moment is None else show_time(moment, day=False)
    if start.astimezone(UTC).date() == end.astimezone(UTC).date():
        return f"{show_time(start, day=False)}–{show_time(end, day=False)}"
    return f"{show_time(start)}–{show_time(end)}"


def show_keys(keys: Iterable[tuple[str, object]]) -> str:
    """Group keys as `name=value`, one space between.

    >>> show_keys((("host", "a"), ("port", 80)))
    'host=a port=80'
    """
    return " ".join(
        f"{printable(name)}={printable(exact_text(value)) if isinstance(value, int) else show_value(value)}"
        for name, value in keys
    )


def compact(number: float) -> str:
    """A count, or a rate, in about five characters; the page writes it alike.

    >>> compact(0), compact(950), compact(1234), compact(45_600), compact(1_234_567), compact(999_999)
    ('0', '950', '1.23k', '45.6k', '1.23M', '1.00M')
    >>> compact(0.5), compact(0.08432), compact(-0.4), compact(2.5), compact(159.7), compact(1e22)
    ('0.5', '0.0843', '-0.4', '2.50', '160', '1e+22')
    """
    if not math.isfinite(number):
        return "–"
    whole = float(number).is_integer()
    if 0 < abs(number) < 1:
        return show_number(float(f"{number:.3g}"))
    units = iter("kMGTPE")
    unit = ""
    while abs(number) >= 999.5 and (following := next(units, "")):
        number, unit = number / 1000, following
    if abs(number) >= 999.5:
        # beyond the last unit
        return f"{number * 1000.0 ** len('kMGTPE'):.3g}"
    decimals = 0 if whole and not unit else max(0, 3 - _integer_digits(round(number, 2)))
    return f"{number:.{decimals}f}{unit}"


def duration(seconds: float | None) -> str:
    """A length of time with its two leading digits or units.

    >>> duration(0.25), duration(1.62), duration(75), duration(7300), duration(None)
    ('250 ms', '1.6 s', '1 min 15 s', '2 h 1 min', '–')
    """
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def printable(text: str) -> str:
    r"""The text with control characters spelt out: keys come from the stream, and a terminal obeys.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )


def _integer_digits(number: float) -> int:
    return math.floor(math.log10(abs(number))) + 1 if number else 1


def _finite(value: object) -> bool:
    number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return number and math.isfinite(float(value))  # type: ignore[arg-type]
