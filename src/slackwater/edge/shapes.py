"""Keys and values that an agent is given, brought into the shape of its stream.

What does not fit is a ValueError that says what was expected and what came: it is the caller's to mend.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from operator import is_
from typing import Any

import numpy as np

from slackwater.edge.messages import LONGEST_TEXT, Declared, Key, scalar
from slackwater.edge.widths import Floats

_TEXTS = ((), ("text",))
EXACT = 1 << 53
"""Whole numbers up to here are doubles, all of them."""


def key_of(key: Any, declared: Declared) -> Key:
    """A key in the form in which it is held.

    >>> shape = Declared(("host", "interface"), ("load",))
    >>> key_of(("web-1", "eth0"), shape)
    ('web-1', 'eth0')
    >>> key_of("web-1", shape)
    Traceback (most recent call last):
    ValueError: expected a key of 2 parts, texts or numbers (host, interface), got 'web-1'
    """
    if type(key) is str and len(declared.key) == 1 and declared.kinds in _TEXTS and scalar(key) is not None:
        return key
    given: tuple[Any, ...] = key if isinstance(key, tuple) else (key,)
    parts = tuple(p.item() if isinstance(p, np.generic) else p for p in given)
    if len(parts) != len(declared.key) or any(scalar(p) is None for p in parts):
        count = (
            "one part, a text or number"
            if len(declared.key) == 1
            else f"{len(declared.key)} parts, texts or numbers"
        )
        raise ValueError(f"expected a key of {count} ({', '.join(declared.key)}), got {key!r}")
    if (wrong := declared.unfit(parts)) is not None:
        raise ValueError(f"expected a key of the types that the stream declares: {wrong}")
    if len(parts) > 1 and type(key) is tuple and all(map(is_, parts, given)):
        # of a million, others would take as much again
        return given
    return parts if len(parts) > 1 else parts[0]


def keys_of(keys: Collection[Any], declared: Declared) -> Collection[Key]:
    """Many keys in the form in which they are held; those that were given where all are in it already.

    >>> given = ["web-1", "web-2"]
    >>> keys_of(given, Declared(("host",), ("load",))) is given
    True
    """
    plain = len(declared.key) == 1 and declared.kinds in _TEXTS
    # as `key_of` and `scalar` have it, without the cost of asking them
    if plain and all(type(key) is str and len(key) <= LONGEST_TEXT and key.isascii() for key in keys):
        return keys
    if all(key_of(key, declared) is key for key in keys):
        return keys
    return [key_of(key, declared) for key in keys]


def hold(held: dict[Any, Any], key: Any, value: Any) -> None:
    """Keep a value until the shape of its stream is known; of each key, and of each column, the last."""
    try:
        before = held.get(key)
    except TypeError:
        raise ValueError(f"expected a key of texts or numbers, got {key!r}") from None
    if isinstance(value, Mapping) and isinstance(before, Mapping):
        value = {**before, **value}
    held[key] = value


def drop(held: dict[Any, Any], key: Any) -> bool:
    """Keep nothing of a key; whether there was something."""
    try:
        there = key in held
    except TypeError:
        raise ValueError(f"expected a key of texts or numbers, got {key!r}") from None
    if there:
        del held[key]
    return there


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


def rows_of(
    keys: Collection[Key], values: Any, declared: Declared, current: Callable[[Key], list[float]]
) -> Floats:
    """The values of many keys, a row for each; ``current`` are those of a key so far.

    What a mapping leaves out stays as it is after those before it, should a key come twice.

    >>> rows_of(["a", "b"], [1, None], Declared(("host",), ("load",)), lambda key: [0.0])
    array([[ 1.],
           [nan]])
    """
    columns = len(declared.columns)
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
        shape = (len(keys), columns)
        if values.shape != shape and not (columns == 1 and values.shape == shape[:1]):
            raise ValueError(
                f"expected an array of {len(keys)} rows and {columns} columns, got {values.shape}"
            )
        rows = values.astype(np.float64, copy=False).reshape(shape)
        if np.isinf(rows).any():
            raise ValueError("expected finite numbers, or NaN for no value, got an infinite one")
        if values.dtype.kind in "iu" and (np.abs(rows) >= EXACT).any():
            for value in values.ravel().tolist():
                number_of(value)
        return rows
    if len(keys) != len(values):
        raise ValueError(f"expected as many values as keys, {len(keys)}, got {len(values)}")
    if columns == 1 and all(type(value) is float for value in values):
        plain = np.fromiter(values, np.float64, len(keys))
        if not np.isinf(plain).any():
            return plain[:, None]
    rows = np.empty((len(keys), columns))
    latest: dict[Key, list[float]] = {}
    # only then it matters what was said before; for a million keys it would be more than all the rest
    some_left_out = any(isinstance(value, Mapping) and len(value) < columns for value in values)

    def held(key: Key) -> list[float]:
        return latest[key] if key in latest else current(key)

    for place, (key, value) in enumerate(zip(keys, values, strict=True)):
        row = row_of(value, declared, partial(held, key))
        rows[place] = row
        if some_left_out:
            latest[key] = row
    return rows


def number_of(value: Any) -> float:
    """A finite number; NaN for None, which is no value.

    Whole numbers that a double cannot hold are refused: a bound around another number promises nothing.
    """
    if type(value) is float and math.isfinite(value):
        return value
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ValueError(f"expected a number, or None for no value, got {value!r}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if math.isinf(found):
        raise ValueError(f"expected a finite number, got {value!r}")
    if isinstance(value, int | np.integer) and int(found) != int(value):
        raise ValueError(f"expected a number that a double can hold, got {value!r}")
    return found
