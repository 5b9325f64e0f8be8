"""Intervals against a limit: beyond it, back from it, or neither; nothing is rounded on the way.

A limit is a decimal as it was written, answers are whole numbers, decimals or doubles. They are compared in
the type of the column, with the number of that type that divides it as the limit does.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.language.statements import CreateAlert
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.json_values import plain

Mask = npt.NDArray[np.bool_]
Verdicts = npt.NDArray[np.int8]

BEYOND, UNCLEAR, BACK = 1, 0, -1


def verdicts(batch: AnswerBatch, alert: CreateAlert) -> Verdicts:
    """What each answer says of an alert: BEYOND raises it, BACK clears it, UNCLEAR leaves it as it is.

    BEYOND is what the alert asks for: the whole interval beyond the limit, or under POSSIBLY some of it. BACK
    means the same for both: none of it is. NULL and NaN say nothing.
    """
    low = plain(batch.value if batch.low is None else batch.low)
    high = plain(batch.value if batch.high is None else batch.high)
    # the end of the interval that is furthest beyond the limit
    upward = alert.comparison in (">", ">=")
    outer, inner = (high, low) if upward else (low, high)
    possible = _meets(outer, alert)
    certain = possible if inner is outer else _meets(inner, alert)
    beyond = certain if alert.certainty == "certainly" else possible
    found = np.where(_there(outer) & ~possible & ~beyond, BACK, UNCLEAR).astype(np.int8)
    found[beyond] = BEYOND
    return found


def why_not_comparable(batch: AnswerBatch) -> str:
    """Why answers have no place on a line of numbers; empty where they have."""
    kind = plain(batch.value).type
    if _is_number(kind) or pa.types.is_null(kind):
        return ""
    return f"answers of {batch.column} are of type {kind}, and a limit is a number: no answer is beyond it"


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind))


def _there(column: pa.Array) -> Mask:
    """Where there is a number."""
    if not _is_number(column.type):
        return np.zeros(len(column), dtype=bool)
    there = _bools(column.is_valid())
    if pa.types.is_floating(column.type):
        there &= ~np.isnan(column.to_numpy(zero_copy_only=False))
    return there


def _meets(column: pa.Array, alert: CreateAlert) -> Mask:
    """Where a number is beyond the limit as the comparison says."""
    match alert.comparison:
        case ">":
            return _above(column, alert.limit, or_equal=False)
        case ">=":
            return _above(column, alert.limit, or_equal=True)
        case "<":
            return _there(column) & ~_above(column, alert.limit, or_equal=True)
        case "<=":
            return _there(column) & ~_above(column, alert.limit, or_equal=False)


def _above(column: pa.Array, limit: Decimal, *, or_equal: bool) -> Mask:
    kind = column.type
    if pa.types.is_floating(kind):
        return _above_double(column.to_numpy(zero_copy_only=False), limit, or_equal=or_equal)
    if pa.types.is_integer(kind):
        bits = 8 * kind.byte_width - 1
        return _above_whole(column, _last_not_above(limit, 0, or_equal), kind, -(2**bits), 2**bits - 1, 0)
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        last = _last_not_above(limit, kind.scale, or_equal)
        return _above_whole(column, last, kind, -most, most, kind.scale)
    return np.zeros(len(column), dtype=bool)


def _above_double(numbers: npt.NDArray[np.float64], limit: Decimal, *, or_equal: bool) -> Mask:
    nearest = float(limit)
    # no double lies between the limit and the nearest one
    meets = Decimal(nearest) >= limit if or_equal else Decimal(nearest) > limit
    return np.asarray(numbers >= nearest if meets else numbers > nearest, dtype=bool)


def _last_not_above(limit: Decimal, scale: int, or_equal: bool) -> int:
    """The largest number that is not above a limit, counted in units of ten to the minus ``scale``."""
    sign, digits, exponent = limit.as_tuple()
    assert isinstance(exponent, int)
    # made anew: `scaleb` would round to the digits of the context
    units = Decimal((sign, digits, exponent + scale))
    if or_equal:
        return int(units.to_integral_value(ROUND_CEILING)) - 1
    return int(units.to_integral_value(ROUND_FLOOR))


def _above_whole(column: pa.Array, last: int, kind: pa.DataType, least: int, most: int, scale: int) -> Mask:
    """Where whole units are above a number of them, which the type of the column may not hold."""
    if last >= most:
        return np.zeros(len(column), dtype=bool)
    if last < least:
        return _bools(column.is_valid())
    value = Decimal((0 if last >= 0 else 1, tuple(map(int, str(abs(last)))), -scale)) if scale else last
    return _bools(pc.greater(column, pa.scalar(value, kind)))


def _bools(column: pa.Array) -> Mask:
    return np.array(pc.fill_null(column, False), dtype=bool)
