"""The messages between agents, hub and coordinator: how they are written, and how they are checked.

JSON texts, with columns as arrays. An infinite width is null, and so is a value that is missing; times are
whole microseconds since the epoch. What does not fit is refused by a `BadMessage` that says where, what was
expected and what came.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from slackwater.errors import SourceError

VERSION = 1
MAX_MESSAGE_BYTES = 16 << 20
"""The longest message that a hub takes: agents and links cut what they send to stay far below."""

LONGEST_TEXT = 4_096
"""Characters of a text in a key."""

T = TypeVar("T")
Message = dict[str, Any]
Scalar = str | int | float
KINDS = {"text": "a text", "whole": "a whole number", "number": "a number"}


@dataclass(frozen=True)
class SumName:
    """The name of a key that an agent makes, the sum of others; numbered by the position that defined it."""

    number: int


Key = Scalar | tuple[Scalar, ...] | SumName
"""A key as it is held: bare where the stream has one KEY column (a tuple costs 48 bytes), else a tuple."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class BadMessage(SourceError):
    """A message that is not what the protocol says."""


class Refused(SourceError):
    """The other side has refused, and said why."""


class Fenced(SourceError):
    """Another coordinator has taken over: this one may grant nothing any more."""


class OtherLog(SourceError):
    """The hub's log is not the one that was read before: what was made of that one does not hold."""


class Disconnected(SourceError):
    """The connection broke before the answer came: whether the request was carried out is not known."""


@dataclass(frozen=True)
class Declared:
    """The shape of a stream: the names of its KEY columns and of its value columns, in order."""

    key: tuple[str, ...]
    columns: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    """What the parts of a key are: text, whole or number; empty: any of them."""

    def message(self) -> Message:
        kinds = {"kinds": list(self.kinds)} if self.kinds else {}
        return {"key": list(self.key), "columns": list(self.columns), **kinds}

    def unfit(self, parts: Sequence[Scalar]) -> str | None:
        """What is wrong with the parts of a key, if anything is.

        >>> Declared(("host", "port"), ("load",), ("text", "whole")).unfit(["web-1", "http"])
        "port is a whole number, got 'http'"
        """
        for name, kind, part in zip(self.key, self.kinds, parts, strict=False):
            fits = {
                "text": isinstance(part, str),
                "whole": isinstance(part, int) or (isinstance(part, float) and part.is_integer()),
                "number": not isinstance(part, str),
            }[kind]
            if not fits:
                return f"{name} is {KINDS[kind]}, got {part!r}"
        return None

    @staticmethod
    def parse(value: Any, where: str = "declared") -> Declared:
        if not isinstance(value, dict):
            raise bad(where, "an object with key and columns", value)
        key = field(value, "key", names, "a list of distinct names", where)
        columns = field(value, "columns", names, "a list of distinct names", where)
        if set(key) & set(columns):
            raise bad(where, "key and value columns of different names", value)
        kinds = value.get("kinds", [])
        if (
            not isinstance(kinds, list)
            or len(kinds) not in (0, len(key))
            or any(k not in KINDS for k in kinds)
        ):
            raise bad(f"{where}.kinds", f"one of {', '.join(KINDS)} for each KEY column", kinds)
        return Declared(tuple(key), tuple(columns), tuple(kinds))


def bad(where: str, expected: str, got: object) -> BadMessage:
    """The error for what came at ``where``; a long text is cut."""
    shown = repr(got)
    return BadMessage(
        f"{where}: expected {expected}, got {shown if len(shown) <= 80 else shown[:77] + '...'}"
    )


def encode(message: Message) -> str:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def decode(text: str | bytes) -> Message:
    """A message, with a type that is a text; all else about it is still to be checked.

    >>> decode('{"type":"end","id":1}')
    {'type': 'end', 'id': 1}
    """
    if isinstance(text, bytes):
        raise bad("message", "JSON in a text frame", text)
    try:
        message = json.loads(text, parse_constant=_no_constant)
    except ValueError:
        raise bad("message", "a JSON object", text) from None
    except RecursionError:
        raise bad("message", "a JSON object without deep nesting", text) from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise bad("message", "a JSON object with a type", message)
    if _SURROGATE.search(text) and not _writable(json.dumps(message, ensure_ascii=False)):
        # in a log it could never be written, and whoever comes after it would wait for ever
        raise bad("message", "texts in which surrogates come in pairs", text)
    return message


def _no_constant(word: str) -> None:
    raise ValueError(word)


def field(message: Message, name: str, check: Callable[[Any], T | None], expected: str, where: str = "") -> T:
    """One field of a message; ``check`` gives what it stands for, or None where it does not fit."""
    place = f"{where or message.get('type', 'message')}.{name}"
    if name not in message:
        raise bad(place, expected, "nothing")
    found = check(message[name])
    if found is None:
        raise bad(place, expected, message[name])
    return found


# what a field may hold: each gives the value, or None where it does not fit


def whole(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def name_of(value: Any) -> str | None:
    """A name that may stand in a path: letters, digits, `_`, `-` and `.`, not beginning with the last two."""
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None


def label(value: Any) -> str | None:
    """A name of an agent: any text of up to 200 characters that a line of a log can show."""
    return value if isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() else None


def cost_of(value: Any) -> float | None:
    """What a message costs, relative to 1: within what sums and products of many such can hold.

    >>> cost_of(5), cost_of(0), cost_of("5"), cost_of(float("nan"))
    (5.0, None, None, None)
    """
    return float(value) if number(value) and 1e-9 <= value <= 1e9 else None


def flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def names(value: Any) -> list[str] | None:
    if not isinstance(value, list) or not value or not all(isinstance(n, str) and n for n in value):
        return None
    return value if len(set(value)) == len(value) else None


def wholes(value: Any) -> list[int] | None:
    fits = isinstance(value, list) and all(type(v) is int and v >= 0 for v in value)
    return value if fits else None


def number(value: Any) -> bool:
    """Whether it is a number that arithmetic can use; true and false are none."""
    if type(value) is float:
        return math.isfinite(value)
    return type(value) is int and value.bit_length() < 1024


def one_length(where: str, columns: Message) -> int:
    """The common length of arrays; an error names those that differ."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise BadMessage(f"{where}: expected arrays of one length, got {shown}")
    return next(iter(lengths.values()))


def scalar(value: Any) -> Scalar | None:
    """A part of a key: text or number. True equals 1 and null equals nothing, so neither is one.

    Texts are such as can be written, and whole numbers such as a column of them can hold.

    >>> scalar("web-1"), scalar(chr(0xD800)), scalar(1 << 63)
    ('web-1', None, None)
    """
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT and _writable(value) else None
    if type(value) is int:
        return value if -(1 << 63) <= value < 1 << 63 else None
    return value if number(value) else None


def _writable(value: str) -> bool:
    """Whether a text can be encoded: halves of pairs of surrogates cannot."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def key_parts(value: Any, declared: Declared, where: str) -> Key:
    """A key as it is held, from its parts; the error names the KEY columns.

    >>> shape = Declared(("host",), ("load",))
    >>> key_parts(["web-1"], shape, "keys"), key_parts({"sum": 7}, shape, "keys")
    ('web-1', SumName(number=7))
    """
    if isinstance(value, dict) and value.keys() == {"sum"}:
        return SumName(field(value, "sum", whole, "the number of a sum", where))
    if not isinstance(value, list | tuple) or len(value) != len(declared.key):
        parts = ", ".join(declared.key)
        raise bad(where, f"a key of {len(declared.key)} part(s) ({parts})", value)
    for part in value:
        if scalar(part) is None:
            raise bad(where, "texts and finite numbers as parts of a key", part)
    return value[0] if len(value) == 1 else tuple(value)


def parts_of(key: Key) -> list[Scalar] | dict[str, int]:
    """A key as messages have it: its parts, or what it is the sum of."""
    if isinstance(key, SumName):
        return {"sum": key.number}
    return list(key) if isinstance(key, tuple) else [key]


# arrays with infinity or missing values, as JSON has neither


def nullable(numbers: NDArray[np.float64]) -> list[Any]:
    """Numbers as JSON can hold them: what is not finite is null."""
    if np.isfinite(numbers).all():
        plain: list[Any] = numbers.tolist()
        return plain
    return _nulled(numbers.tolist())


def _nulled(values: Iterable[Any]) -> list[Any]:
    return [_nulled(v) if isinstance(v, list) else (v if math.isfinite(v) else None) for v in values]


def values_of(value: Any, columns: int, where: str) -> list[list[float | None]]:
    """Rows of values, as they came, checked: one number or null for every column."""
    if not isinstance(value, list):
        raise bad(where, "a list of rows", value)
    for row in value:
        fits = isinstance(row, list) and len(row) == columns and all(v is None or number(v) for v in row)
        if not fits:
            raise bad(where, f"{columns} number(s) or null in every row", row)
    return value
