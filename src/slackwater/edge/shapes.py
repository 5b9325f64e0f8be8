"""Keys and values that an agent is given, brought into the shape of its stream.

What does not fit is a ValueError that says what was expected and what came: it is the caller's to mend.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from slackwater.edge.messages import Declared, Key, Message, parts_of, scalar

KEYS_PER_MESSAGE = 10_000
BYTES_PER_MESSAGE = 1 << 20


class Keys:
    """The keys of an agent, numbered from 0 in the order in which they came."""

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}
        self._names: list[Key] = []

    def __len__(self) -> int:
        return len(self._names)

    def number(self, key: Key) -> int:
        """The number of a key, a new one if it is new."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._names)
            self._names.append(key)
        return number

    def find(self, key: Key) -> int | None:
        return self._numbers.get(key)

    def message(self, first: int) -> Message:
        """The names of keys from a number on, as the hub is told: as many as make a message."""
        count = size = 0
        for key in self._names[first : first + KEYS_PER_MESSAGE]:
            size += len(key) if isinstance(key, str) else len(repr(key))
            count += 1
            if size > BYTES_PER_MESSAGE:
                break
        return {
            "type": "keys",
            "first": first,
            "keys": [parts_of(k) for k in self._names[first : first + count]],
        }


def key_of(key: Any, declared: Declared) -> Key:
    """A key in the form in which it is held.

    >>> shape = Declared(("host", "interface"), ("load",))
    >>> key_of(("web-1", "eth0"), shape)
    ('web-1', 'eth0')
    >>> key_of("web-1", shape)
    Traceback (most recent call last):
    ValueError: expected a key of 2 parts, texts or numbers (host, interface), got 'web-1'
    """
    given = key if isinstance(key, tuple) else (key,)
    parts = tuple(p.item() if isinstance(p, np.generic) else p for p in given)
    if len(parts) != len(declared.key) or any(scalar(p) is None for p in parts):
        count = (
            "one part, a text or number"
            if len(declared.key) == 1
            else f"{len(declared.key)} parts, texts or numbers"
        )
        raise ValueError(f"expected a key of {count} ({', '.join(declared.key)}), got {key!r}")
    return parts if len(parts) > 1 else parts[0]


def row_of(value: Any, declared: Declared, current: Callable[[], list[float]]) -> list[float]:
    """A number for every column, NaN where there is none; what a mapping leaves out stays as it is.

    >>> shape = Declared(("host",), ("load", "free"))
    >>> row_of({"free": 3}, shape, lambda: [1.0, 2.0])
    [1.0, 3.0]
    """
    columns = declared.columns
    if not isinstance(value, Mapping):
        if len(columns) != 1:
            raise ValueError(f"expected a mapping with the columns {', '.join(columns)}, got {value!r}")
        return [number_of(value)]
    if unknown := set(value) - set(columns):
        names = ", ".join(map(repr, sorted(unknown, key=str)))
        raise ValueError(f"expected the columns {', '.join(columns)}, got {names}")
    if len(value) == len(columns):
        return [number_of(value[name]) for name in columns]
    held = current()
    return [number_of(value[n]) if n in value else h for n, h in zip(columns, held, strict=True)]


def number_of(value: Any) -> float:
    """A finite number; NaN for None, which is no value."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise ValueError(f"expected a number, or None for no value, got {value!r}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if math.isinf(found):
        raise ValueError(f"expected a finite number, got {value!r}")
    return found
