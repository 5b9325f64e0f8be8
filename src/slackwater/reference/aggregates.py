"""Aggregates, each computed from the whole list of a group's rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sqlglot import exp

from slackwater.language.aggregates import UserAggregate
from slackwater.reference.expressions import arguments, call_names, truth, unknown
from slackwater.reference.values import Value, identity, number, sort_key

R = TypeVar("R")

_NAMES = {
    "mean": "avg",
    "std": "stddev",
    "stddev_samp": "stddev",
    "var_samp": "variance",
    "every": "bool_and",
    "logical_and": "bool_and",
    "some": "bool_or",
    "any": "bool_or",
    "logical_or": "bool_or",
    "quantile": "percentile",
    "percentile_cont": "percentile",
    "variance_pop": "var_pop",
}


def is_aggregate(node: exp.Expr, users: Mapping[str, UserAggregate]) -> bool:
    """Whether a node computes over a group: an aggregate call, or its FILTER or WITHIN GROUP."""
    if isinstance(node, exp.Filter | exp.WithinGroup | exp.AggFunc | exp.Any):
        return True
    names = call_names(node)
    return any(name in users or _NAMES.get(name) in _OVER_VALUES for name in names)


def aggregate(
    node: exp.Expr,
    rows: Sequence[R],
    value_of: Callable[[exp.Expr, R], Value],
    users: Mapping[str, UserAggregate],
) -> Value:
    """The value of an aggregate over rows, which come in order of event time and arrival."""
    if isinstance(node, exp.Filter):
        condition = node.expression.this
        kept = [row for row in rows if truth(value_of(condition, row)) is True]
        return aggregate(node.this, kept, value_of, users)
    if isinstance(node, exp.WithinGroup):
        return _within_group(node, rows, value_of)
    for name in call_names(node):
        if name in users:
            return users[name].over([tuple(value_of(a, row) for a in arguments(node)) for row in rows])
    name = _name(node)
    operands = arguments(node)
    distinct = len(operands) == 1 and isinstance(operands[0], exp.Distinct)
    if distinct:
        operands = list(operands[0].expressions)
    if name == "count" and isinstance(operands[0], exp.Star):
        return unknown(node) if distinct else len(rows)
    share: exp.Expr | None = None
    if name == "percentile" and len(operands) == 2:
        share = operands.pop()
    tuples = [tuple(value_of(operand, row) for operand in operands) for row in rows]
    present = [values for values in tuples if all(value is not None for value in values)]
    if distinct:
        present = list({tuple(map(identity, values)): values for values in present}.values())
    if name == "count":
        return len(present)
    flat = [values[0] for values in present]
    if name == "percentile" and share is not None and len(operands) == 1:
        return percentile(flat, value_of(share, rows[0]) if rows else 0.0)
    if name not in _OVER_VALUES or len(operands) != 1:
        unknown(node)
    return _OVER_VALUES[name](flat)


def _name(node: exp.Expr) -> str:
    if isinstance(node, exp.Any):
        return "bool_or"
    for name in call_names(node):
        name = _NAMES.get(name, name)
        if name in ("count", "percentile") or name in _OVER_VALUES:
            return name
    unknown(node)


def _within_group(
    node: exp.WithinGroup, rows: Sequence[R], value_of: Callable[[exp.Expr, R], Value]
) -> float | None:
    if not isinstance(node.this, exp.PercentileCont | exp.Quantile):
        unknown(node)
    (ordered,) = node.expression.expressions
    present = [value for row in rows if (value := value_of(ordered.this, row)) is not None]
    share = value_of(node.this.this, rows[0]) if rows else 0.0
    return percentile(present, 1 - share if ordered.args.get("desc") else share)


def percentile(values: Sequence[Value], share: float) -> float | None:
    """The value below which a share of all lies, interpolated between neighbours.

    >>> percentile([10, 20, 30, 40], 0.5), percentile([], 0.5)
    (25.0, None)
    """
    if not 0 <= share <= 1:
        raise ValueError(f"a percentile lies between 0 and 1, got {share}")
    ordered = sorted(_numbers(values), key=sort_key)
    if not ordered:
        return None
    position = (len(ordered) - 1) * share
    low, high = math.floor(position), math.ceil(position)
    if low == high or ordered[low] == ordered[high]:
        return float(ordered[low])
    return (high - position) * float(ordered[low]) + (position - low) * float(ordered[high])


def _numbers(values: Sequence[Value]) -> list[Value]:
    return [n for n in map(number, values) if n is not None]


def total(values: Sequence[Value]) -> Value:
    """SUM: whole numbers add up exactly, doubles are rounded once.

    >>> total([1, 2]), total([0.1] * 10), total([])
    (3, 1.0, None)
    """
    numbers = _numbers(values)
    if not numbers:
        return None
    if not any(isinstance(n, float) for n in numbers):
        return sum(numbers)
    # fsum refuses infinities of both signs, whose sum is NaN.
    return math.fsum(numbers) if all(map(math.isfinite, numbers)) else sum(map(float, numbers))


def mean(values: Sequence[Value]) -> float | None:
    numbers = _numbers(values)
    return float(total(numbers)) / len(numbers) if numbers else None


def _spread(values: Sequence[Value], fewer: int) -> float | None:
    """Squared deviations over the count less ``fewer``; NULL where that leaves nothing."""
    numbers = [float(n) for n in _numbers(values)]
    centre = mean(numbers)
    if centre is None or len(numbers) <= fewer:
        return None
    return float(total([(n - centre) ** 2 for n in numbers])) / (len(numbers) - fewer)


def _deviation(values: Sequence[Value], fewer: int) -> float | None:
    spread = _spread(values, fewer)
    return None if spread is None else math.sqrt(spread)


def _all(values: Sequence[Value]) -> bool | None:
    return all(map(truth, values)) if values else None


def _any(values: Sequence[Value]) -> bool | None:
    return any(map(truth, values)) if values else None


_OVER_VALUES: dict[str, Callable[[Sequence[Value]], Value]] = {
    "count_if": lambda values: sum(truth(value) is True for value in values),
    "sum": total,
    "avg": mean,
    "min": lambda values: min(values, key=sort_key, default=None),
    "max": lambda values: max(values, key=sort_key, default=None),
    "stddev": lambda values: _deviation(values, 1),
    "stddev_pop": lambda values: _deviation(values, 0),
    "variance": lambda values: _spread(values, 1),
    "var_pop": lambda values: _spread(values, 0),
    "median": lambda values: percentile(values, 0.5),
    "bool_and": _all,
    "bool_or": _any,
}
