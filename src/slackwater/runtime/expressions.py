"""Arithmetic on finished aggregates without a round trip to Spark: ``MAX(x) - MIN(x)``, ``n > 3``.

Only forms whose meaning is the same in Arrow and in Spark with ANSI off are done here; for any other
``evaluate`` says so by returning None, and Spark evaluates it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp, parse_one

from slackwater.language.dialect import SparkText

_ARITHMETIC: dict[type[exp.Expr], Callable[[pa.Array, pa.Array], pa.Array]] = {
    exp.Add: pc.add,
    exp.Sub: pc.subtract,
    exp.Mul: pc.multiply,
}
_COMPARISONS: dict[type[exp.Expr], Callable[[pa.Array, pa.Array], pa.Array]] = {
    exp.EQ: pc.equal,
    exp.NEQ: pc.not_equal,
    exp.GT: pc.greater,
    exp.GTE: pc.greater_equal,
    exp.LT: pc.less,
    exp.LTE: pc.less_equal,
    exp.And: pc.and_kleene,
    exp.Or: pc.or_kleene,
}


@cache
def _tree(sql: str) -> exp.Expr:
    return parse_one(sql, dialect=SparkText)


def evaluate(sql: str, columns: Mapping[str, pa.Array]) -> pa.Array | None:
    """The values of an expression over columns of one length; None where Spark must say.

    >>> evaluate("a0 / a1", {"a0": pa.array([6, 1]), "a1": pa.array([4, 0])}).to_pylist()
    [1.5, None]
    """
    try:
        return _node(_tree(sql), columns)
    except (_NotHereError, pa.ArrowInvalid):
        return None


class _NotHereError(Exception):
    pass


def _node(node: exp.Expr, columns: Mapping[str, pa.Array]) -> pa.Array:
    if isinstance(node, exp.Paren):
        return _node(node.this, columns)
    if isinstance(node, exp.Column) and not node.table and node.name in columns:
        return columns[node.name]
    if isinstance(node, exp.Literal):
        return _literal(node, columns)
    if isinstance(node, exp.Not):
        return pc.invert(_node(node.this, columns))
    if isinstance(node, exp.Div):
        return _divide(_node(node.left, columns), _node(node.right, columns))
    kind = type(node)
    if kind in _ARITHMETIC:
        left, right = _pair(node, columns)
        return _ARITHMETIC[kind](*_as_floats(left, right))
    if kind in _COMPARISONS:
        left, right = _node(node.args["this"], columns), _node(node.args["expression"], columns)
        if kind not in (exp.And, exp.Or):
            _same_family(left, right)
            left, right = _as_floats(left, right)
        return _COMPARISONS[kind](left, right)
    raise _NotHereError


def _literal(node: exp.Literal, columns: Mapping[str, pa.Array]) -> pa.Array:
    length = len(next(iter(columns.values())))
    if node.is_string or not node.is_int:
        # 0.5 is a DECIMAL in Spark, and its arithmetic has rules of its own
        raise _NotHereError
    value = int(node.this)
    if abs(value) >= 2**63:
        raise _NotHereError
    return pa.repeat(pa.scalar(value, pa.int32() if abs(value) < 2**31 else pa.int64()), length)


def _pair(node: exp.Expr, columns: Mapping[str, pa.Array]) -> tuple[pa.Array, pa.Array]:
    left, right = _node(node.args["this"], columns), _node(node.args["expression"], columns)
    for side in (left, right):
        if not (pa.types.is_integer(side.type) or pa.types.is_floating(side.type)):
            raise _NotHereError
    return left, right


def _same_family(left: pa.Array, right: pa.Array) -> None:
    numeric = [pa.types.is_integer(s.type) or pa.types.is_floating(s.type) for s in (left, right)]
    if not all(numeric) and left.type != right.type:
        raise _NotHereError
    if (
        any(pa.types.is_floating(s.type) for s in (left, right))
        and pc.any(pc.or_(_nan(left), _nan(right))).as_py()
    ):
        # Spark holds NaN to be equal to itself and larger than all else
        raise _NotHereError


def _as_floats(left: pa.Array, right: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Both as floats where one is, as Spark has it: whole numbers beyond 2^53 lose their last digits."""
    sides = (left, right)
    if any(pa.types.is_floating(s.type) for s in sides) and any(pa.types.is_integer(s.type) for s in sides):
        return tuple(pc.cast(s, pa.float64(), safe=False) for s in sides)
    return sides


def _nan(side: pa.Array) -> pa.Array:
    return pc.is_nan(side) if pa.types.is_floating(side.type) else pa.repeat(False, len(side))


def _divide(left: pa.Array, right: pa.Array) -> pa.Array:
    for side in (left, right):
        if not (pa.types.is_integer(side.type) or pa.types.is_floating(side.type)):
            raise _NotHereError
    divisor = pc.cast(right, pa.float64(), safe=False)
    safe = pc.if_else(pc.equal(divisor, 0.0), pa.scalar(None, pa.float64()), divisor)
    return pc.divide(pc.cast(left, pa.float64(), safe=False), safe)
