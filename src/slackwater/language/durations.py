"""Lengths of time as the language writes them, held as whole microseconds."""

from __future__ import annotations

import re

MICROS_PER_SECOND = 1_000_000

_UNITS = {
    "us": 1,
    "microsecond": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "s": MICROS_PER_SECOND,
    "second": MICROS_PER_SECOND,
    "min": 60 * MICROS_PER_SECOND,
    "m": 60 * MICROS_PER_SECOND,
    "minute": 60 * MICROS_PER_SECOND,
    "h": 3_600 * MICROS_PER_SECOND,
    "hour": 3_600 * MICROS_PER_SECOND,
    "d": 86_400 * MICROS_PER_SECOND,
    "day": 86_400 * MICROS_PER_SECOND,
    "week": 7 * 86_400 * MICROS_PER_SECOND,
}
_PART = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]+)\s*", re.IGNORECASE)


def unit_micros(unit: str) -> int | None:
    """Microseconds in one unit, singular or plural; None where the word is no unit.

    >>> unit_micros("SECONDS"), unit_micros("minute"), unit_micros("month")
    (1000000, 60000000, None)
    """
    word = unit.lower()
    return _UNITS.get(word) or _UNITS.get(word.removesuffix("s"))


def spelt_out(text: str) -> str | None:
    """A length of time without a space as clauses write it; None where it is none.

    >>> spelt_out("1s"), spelt_out("500ms"), spelt_out("1.5h"), spelt_out("5kB")
    ('1 SECOND', '500 MILLISECONDS', '1.5 HOURS', None)
    """
    part = _PART.fullmatch(text)
    micros = unit_micros(part.group(2)) if part is not None else None
    if part is None or micros is None:
        return None
    name = max((n for n, length in _UNITS.items() if length == micros), key=len)
    return f"{part.group(1)} {name.upper()}{'' if float(part.group(1)) == 1 else 'S'}"


def parse_duration(text: str) -> int:
    """Microseconds in a text such as ``'1 hour 30 minutes'`` or ``'250ms'``.

    Raises ValueError with the reason: months and years have no fixed length and are refused.

    >>> parse_duration("1 minute 30 seconds"), parse_duration("250ms")
    (90000000, 250000)
    """
    rest = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    total = 0
    position = 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None:
            raise ValueError(f"expected a length of time such as '10 seconds', got {text!r}")
        micros = unit_micros(part.group(2))
        if micros is None:
            raise ValueError(
                f"{part.group(2)!r} in {text!r} is not a unit of fixed length; "
                "use microseconds, milliseconds, seconds, minutes, hours, days or weeks"
            )
        whole, _, fraction = part.group(1).partition(".")
        total += int(whole or 0) * micros
        if fraction:
            total += round(float("0." + fraction) * micros)
        position = part.end()
    if position == 0:
        raise ValueError(f"expected a length of time such as '10 seconds', got {text!r}")
    return total


def format_duration(micros: int) -> str:
    """The shortest exact way to write a length of time.

    >>> format_duration(90_000_000), format_duration(60_000_000), format_duration(1_500)
    ('90 seconds', '1 minute', '1500 microseconds')
    """
    for name in ("week", "day", "hour", "minute", "second", "millisecond"):
        if micros and micros % _UNITS[name] == 0:
            count = micros // _UNITS[name]
            return f"{count} {name}{'' if count == 1 else 's'}"
    return f"{micros} microseconds"
