"""Merging partials over runs of panes, for all groups at once.

Guarantee: exactly the fold of the merge over each run, in pane order; O((panes + windows)·log(run))
merges, without an inverse, so that minima, maxima and floating-point sums are as right as sums of
whole numbers. Variant: binary decomposition of every run over blocks of doubling length.
Reference: the sparse table of Bentley and Saxe's decomposable searching (1980).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from slackwater.plan.panes import Ints

Columns = tuple[npt.NDArray[Any], ...]
MergeFunction = Callable[[Columns, Columns], Columns]


def fold_runs(columns: Columns, low: Ints, high: Ints, merge: MergeFunction) -> Columns:
    """For every run [low, high) of rows, at least one long, the merge of its rows.

    >>> total, = fold_runs((np.array([[1], [2], [4]]),), np.array([0, 1]), np.array([3, 3]), add)
    >>> total.tolist()
    [[7], [6]]
    """
    lengths = high - low
    position = low.copy()
    blocks = columns
    result: Columns | None = None
    filled = np.zeros(len(low), dtype=bool)
    step = 1
    while True:
        chosen = (lengths & step) != 0
        if chosen.any():
            part = tuple(b[position[chosen]] for b in blocks)
            if result is None:
                result = tuple(np.empty((len(low), *b.shape[1:]), dtype=b.dtype) for b in blocks)
            fresh = chosen & ~filled
            for target, source in zip(result, part, strict=True):
                target[fresh] = source[fresh[chosen]]
            both = chosen & filled
            if both.any():
                merged = merge(tuple(r[both] for r in result), tuple(p[both[chosen]] for p in part))
                for target, source in zip(result, merged, strict=True):
                    target[both] = source
            filled |= chosen
            position[chosen] += step
        if not (lengths >= 2 * step).any():
            assert result is not None
            return result
        blocks = merge(tuple(b[:-step] for b in blocks), tuple(b[step:] for b in blocks))
        step *= 2


def add(left: Columns, right: Columns) -> Columns:
    return tuple(a + b for a, b in zip(left, right, strict=True))


def either(left: Columns, right: Columns) -> Columns:
    return tuple(a | b for a, b in zip(left, right, strict=True))


def least(left: Columns, right: Columns) -> Columns:
    """Spark holds NaN to be above all numbers, so a minimum passes over it …"""
    return tuple(np.fmin(a, b) for a, b in zip(left, right, strict=True))


def largest(left: Columns, right: Columns) -> Columns:
    """… and a maximum is it where there is one."""
    return tuple(np.maximum(a, b) for a, b in zip(left, right, strict=True))


def moments(left: Columns, right: Columns) -> Columns:
    """Count, mean and sum of squared deviations of two sets together (Chan, Golub, LeVeque 1983)."""
    n1, mean1, m1 = left
    n2, mean2, m2 = right
    n = n1 + n2
    share = np.divide(n2, n, out=np.zeros(n.shape, dtype=float), where=n > 0)
    gap = mean2 - mean1
    return n, mean1 + gap * share, m1 + m2 + gap * gap * n1 * share


def _either(choose: Callable[[Any, Any], Any]) -> MergeFunction:
    """A merge of single values of any type, in which None is nothing."""

    def merge_one(a: Any, b: Any) -> Any:
        if a is None:
            return b
        return a if b is None else choose(a, b)

    vectorised = np.frompyfunc(merge_one, 2, 1)
    return lambda left, right: tuple(vectorised(a, b) for a, b in zip(left, right, strict=True))


_WIDE = Context(prec=100)
"""Spark's DECIMAL has 38 digits, Python's default context 28."""


def _plus(a: Decimal, b: Decimal) -> Decimal:
    return _WIDE.add(a, b)


def _order(value: Any) -> Any:
    """What Spark sorts a value by: in structs and arrays NULL comes first and NaN last.

    >>> _order({"a": None, "b": 2}) < _order({"a": 1, "b": 0}) < _order({"a": math.nan, "b": 0})
    True
    """
    if isinstance(value, dict):
        return [_order(v) for v in value.values()]
    if isinstance(value, list):
        return [_order(v) for v in value]
    if value is None:
        return (0,)
    return (2,) if isinstance(value, float) and math.isnan(value) else (1, value)


def _less(a: Any, b: Any) -> Any:
    return b if _order(b) < _order(a) else a


def _more(a: Any, b: Any) -> Any:
    return b if _order(b) > _order(a) else a


OBJECTS: dict[str, MergeFunction] = {"sum": _either(_plus), "min": _either(_less), "max": _either(_more)}
NUMBERS: dict[str, MergeFunction] = {"sum": add, "min": least, "max": largest, "any": either}


def merge_for(merge: str, dtype: np.dtype[Any]) -> MergeFunction:
    """The merge of a single column by the name its algebra gives."""
    return (OBJECTS if dtype.hasobject else NUMBERS)[merge]
