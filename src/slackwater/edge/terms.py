"""What is known of single keys beforehand: what their messages cost, and how fast their values change.

An agent tells the terms of a key with its name, and only of those that have some. The paper's C_i and R_i.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slackwater.edge.messages import BadMessage, Declared, Message, cost_of
from slackwater.errors import SourceError

COST = "what a message costs relative to 1, from 1e-9 to 1e9"
RATE = "the most that a value changes in a second, at least 0"


@dataclass(frozen=True)
class Terms:
    """Of a key: the cost of its messages relative to 1, and the most that its values change in a second.

    ``max_rate`` is one number, or one for each value column by its name; where there is none the stream's
    ``MAX RATE`` holds. It counts only where the stream has that clause.

    >>> Terms(cost=5.0, max_rate={"rx": 100})
    Terms(cost=5.0, max_rate={'rx': 100})
    >>> Terms(cost=0)
    Traceback (most recent call last):
    slackwater.errors.SourceError: expected what a message costs relative to 1, from 1e-9 to 1e9, got 0
    """

    cost: float = 1.0
    max_rate: float | Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if cost_of(self.cost) is None:
            raise SourceError(f"expected {COST}, got {self.cost!r}")
        rates = self.max_rate.values() if isinstance(self.max_rate, Mapping) else [self.max_rate]
        for rate in rates:
            if rate is not None and rate_of(rate) is None:
                raise SourceError(f"expected {RATE}, got {rate!r}")

    def rates(self, declared: Declared) -> list[float | None] | None:
        """By value column; None where the stream's holds for all."""
        if self.max_rate is None:
            return None
        if not isinstance(self.max_rate, Mapping):
            return [float(self.max_rate)] * len(declared.columns)
        by_name = {name.lower(): float(rate) for name, rate in self.max_rate.items()}
        columns = [name.lower() for name in declared.columns]
        if unknown := [name for name in self.max_rate if name.lower() not in columns]:
            known = ", ".join(declared.columns)
            raise SourceError(f"max_rate: there is no value column {unknown[0]!r}; there are {known}")
        return [by_name.get(name) for name in columns]


TermsOf = Callable[[Any], Terms | None]
"""The terms of a key as `Agent.update` takes it; None: it has none."""


def terms_of(given: Mapping[Any, Terms] | TermsOf | None) -> TermsOf | None:
    return given.get if isinstance(given, Mapping) else given


def told_terms(keys: Sequence[Any], declared: Declared, terms: TermsOf) -> Message:
    """What a message that announces keys says of those that have terms: their places in it first.

    >>> declared = Declared(("host",), ("rx", "tx"))
    >>> told_terms([["a"], ["b"]], declared, {"b": Terms(5.0, {"rx": 2})}.get)
    {'terms': [[1, 5.0, [2.0, None]]]}
    """
    told = []
    for place, parts in enumerate(keys):
        if isinstance(parts, dict):
            # a sum has what its members have
            continue
        key = parts[0] if len(declared.key) == 1 else tuple(parts)
        try:
            found = terms(key)
            if found is not None:
                told.append([place, float(found.cost), found.rates(declared)])
        except Exception as error:  # it is the user's own
            raise SourceError(f"terms of key {key!r}: {error}") from error
    return {"terms": told} if told else {}


def checked_terms(message: Message, columns: int) -> Message:
    """What a hub logs of the terms that an agent has told; a `BadMessage` where they cannot be."""
    if "terms" not in message:
        return {}
    told, count = message["terms"], len(message["keys"])
    if not isinstance(told, list):
        raise BadMessage(f"keys.terms: expected a list, got {told!r:.80}")
    for one in told:
        fits = isinstance(one, list) and len(one) == 3 and _is_place(one[0], count)
        if not fits or cost_of(one[1]) is None or not _are_rates(one[2], columns):
            expected = f"a place below {count}, {COST}, and null or {columns} times {RATE} or null"
            raise BadMessage(f"keys.terms: expected {expected}, got {one!r:.80}")
    return {"terms": told}


def rate_of(value: Any) -> float | None:
    """A largest change in a second; None where it cannot be one.

    >>> rate_of(2), rate_of(-1), rate_of("2"), rate_of(True), rate_of(float("inf"))
    (2.0, None, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if value >= 0 and math.isfinite(value) else None


def _is_place(value: Any, count: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count


def _are_rates(value: Any, columns: int) -> bool:
    if value is None:
        return True
    return (
        isinstance(value, list)
        and len(value) == columns
        and all(one is None or rate_of(one) is not None for one in value)
    )


def read_terms(path: Path) -> dict[Any, Terms]:
    """The terms in a file of JSON lines: a ``key``, and its ``cost``, its ``max_rate`` or both."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"--terms: cannot read {path}: {error}") from None
    found: dict[Any, Terms] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"--terms: {path}, line {number}"
            try:
                key, terms = _parsed(json.loads(line))
            except json.JSONDecodeError as error:
                raise SourceError(f"{where}: no JSON: {error}") from None
            except SourceError as error:
                raise SourceError(f"{where}: {error}") from None
            if key in found:
                raise SourceError(f"{where}: {key!r} is there twice")
            found[key] = terms
    return found


def _parsed(line: Any) -> tuple[Any, Terms]:
    expected = '{"key": "web-1", "cost": 5, "max_rate": 2.5}'
    if not isinstance(line, dict) or "key" not in line:
        raise SourceError(f"expected an object such as {expected}, got {line!r:.80}")
    if unknown := [name for name in line if name not in ("key", "cost", "max_rate")]:
        raise SourceError(f"expected key, cost and max_rate, got {unknown[0]!r}")
    key = line["key"]
    parts = key if isinstance(key, list) else [key]
    if not parts or not all(isinstance(p, str | int | float) and not isinstance(p, bool) for p in parts):
        raise SourceError(f"expected a key as a text or number, or a list of them, got {key!r:.80}")
    rate = line.get("max_rate")
    if not (rate is None or isinstance(rate, dict | int | float)):
        raise SourceError(f"expected max_rate as a number, or an object by column, got {rate!r:.80}")
    return (tuple(parts) if len(parts) > 1 else parts[0]), Terms(line.get("cost", 1.0), rate)
