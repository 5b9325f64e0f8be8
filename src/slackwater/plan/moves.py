"""Extremes over time of what is aggregated over current values: ``max_over``, ``max_since`` and their like.

``max_over(AVG(x), '30 minutes')`` is the largest value that the average had within the last half hour,
``max_since(AVG(x), TIMESTAMP '2026-01-01')`` the largest since a landmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlglot import exp

from slackwater.language.dialect import SparkText
from slackwater.language.durations import parse_duration
from slackwater.plan.model import Extreme, Move
from slackwater.plan.scope import Scope, canonical

_KINDS: dict[str, tuple[Extreme, bool]] = {
    "max_over": ("max", True),
    "min_over": ("min", True),
    "max_since": ("max", False),
    "min_since": ("min", False),
}
"""By name: which extreme, and whether over a sliding window (else since a landmark)."""


def is_move(node: exp.Expr) -> bool:
    """Whether a node is a call of one of the four."""
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in _KINDS


def take_moves(root: exp.Expr, scope: Scope, moves: list[Move]) -> exp.Expr:
    """A tree over ``a0…`` and ``k0…`` with its moves replaced by ``m0…``, which ``moves`` then holds."""

    def replaced(node: exp.Expr) -> exp.Expr:
        if not is_move(node):
            return node
        move = _move(node, scope)
        if move not in moves:
            moves.append(move)
        return exp.column(f"m{moves.index(move)}")

    return root.transform(replaced)


def _move(node: exp.Expr, scope: Scope) -> Move:
    name = str(node.this).lower()
    if not scope.current:
        raise scope.error(
            f"{name}() goes over current values, and this query reads windows or rows",
            node,
            hint=f"read FROM LATEST({scope.stream}), or use MAX with GROUP BY window(…)",
        )
    extreme, sliding = _KINDS[name]
    example = f"{name}(AVG(x), {chr(39)}30 minutes{chr(39)})" if sliding else f"{name}(AVG(x), TIMESTAMP '…')"
    arguments: Sequence[exp.Expr] = node.expressions
    if len(arguments) != 2:
        raise scope.error(f"{name}() takes two arguments, found {len(arguments)}", node, hint=example)
    moved, reach = arguments
    if any(is_move(n) for n in moved.walk()):
        raise scope.error(f"{name}() cannot be taken of another such extreme", node)
    if not any(
        isinstance(n, exp.Column) and n.name[:1] == "a" and n.name[1:].isdigit() for n in moved.walk()
    ):
        raise scope.error(f"{name}() takes an aggregate", node, hint=example)
    sql = canonical(moved)
    try:
        if sliding:
            return Move(extreme, sql, size=_length(reach))
        return Move(extreme, sql, since=_moment(reach))
    except ValueError as error:
        raise scope.error(f"{name}(): {error}", node, hint=example) from None


def _length(node: exp.Expr) -> int:
    if isinstance(node, exp.Interval):
        unit = node.args.get("unit")
        length = parse_duration(f"{node.this.name} {unit.name if unit is not None else ''}")
    elif isinstance(node, exp.Literal) and node.is_string:
        length = parse_duration(node.this)
    else:
        raise ValueError(f"expected a length of time such as '30 minutes', found {node.sql(SparkText)}")
    if length <= 0:
        raise ValueError("the length of time must be above 0")
    return length


def _moment(node: exp.Expr) -> int:
    """A time literal in microseconds since the epoch; without a zone it is UTC.

    >>> _moment(exp.maybe_parse("TIMESTAMP '1970-01-01 00:00:01'", dialect=SparkText))
    1000000
    """
    literal = node.this if isinstance(node, exp.Cast) else node
    if not isinstance(literal, exp.Literal) or not literal.is_string:
        raise ValueError(
            f"expected a time such as TIMESTAMP '2026-01-31 09:00:00', found {node.sql(SparkText)}"
        )
    try:
        found = datetime.fromisoformat(str(literal.this).strip())
    except ValueError:
        raise ValueError(f"{literal.this!r} is not a time such as '2026-01-31 09:00:00'") from None
    at = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // _MICROSECOND


_MICROSECOND = datetime.resolution
