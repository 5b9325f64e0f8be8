"""Whether Spark's answers are the reference's."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from slackwater.reference.evaluate import ReferenceAnswer
from slackwater.runtime.answers import Answer

Identity = tuple[Any, ...]


def rounded(value: Any) -> Any:
    """Values that are equal but for the order of a floating-point sum become equal."""
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return float(f"{value:.9g}") + 0.0
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return value


def identity(answer: Answer | ReferenceAnswer) -> Identity:
    keys = tuple(sorted((name, repr(rounded(value))) for name, value in answer.keys))
    value = rounded(answer.value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = float(f"{value:.15g}")
    return (answer.query, answer.column, answer.window_start, answer.window_end, answer.at, keys, repr(value))


def differences(found: Iterable[Answer], expected: Iterable[ReferenceAnswer]) -> str:
    """What one side has and the other has not; empty where they agree."""
    left, right = Counter(map(identity, found)), Counter(map(identity, expected))
    lines = [f"only on Spark: {a} x{n}" for a, n in sorted((left - right).items(), key=repr)[:8]]
    lines += [f"only expected: {a} x{n}" for a, n in sorted((right - left).items(), key=repr)[:8]]
    return "\n".join(lines)


def tables_of(
    batches: Mapping[str, Sequence[Sequence[dict[str, Any]]]], schema: pa.Schema
) -> dict[str, list[pa.Table]]:
    return {
        name: [pa.Table.from_pylist(list(b), schema=schema) for b in listed]
        for name, listed in batches.items()
    }
