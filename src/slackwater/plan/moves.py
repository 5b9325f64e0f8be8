"""Extremes over time of what is aggregated over current values: ``max_over``, ``max_since`` and their like.

``max_over(AVG(x), '30 minutes')`` is the largest value that the average had within the last half hour,
``max_since(AVG(x), TIMESTAMP '2026-01-01')`` the largest since a landmark, and ``avg_over(AVG(x),
'30 minutes')`` its mean over time.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlglot import exp

from slackwater.errors import LanguageError
from slackwater.language.dialect import SparkText
from slackwater.language.durations import parse_duration
from slackwater.plan.calls import is_aggregate
from slackwater.plan.functions import Functions
from slackwater.plan.model import Extreme, Move
from slackwater.plan.refusals import own_nodes
from slackwater.plan.scope import Scope, canonical

_KINDS: dict[str, tuple[Extreme, bool]] = {
    "max_over": ("max", True),
    "min_over": ("min", True),
    "avg_over": ("avg", True),
    "max_since": ("max", False),
    "min_since": ("min", False),
}
"""By name: which extreme, and whether over a sliding window (else since a landmark)."""


def is_move(node: exp.Expr) -> bool:
    """Whether a node is a call of one of them."""
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


def refuse_bare_moves(select: exp.Select, scope: Scope, functions: Functions) -> None:
    """Raise at an extreme over time that is taken of no aggregate.

    HAVING is left to ``take_moves``: there an aggregate may be named by the alias of its item.
    """
    for node in own_nodes(select):
        if (
            is_move(node)
            and not functions.is_scalar(str(node.this))
            and not any(is_aggregate(n, functions) for n in node.walk())
            and node.find_ancestor(exp.Having) is None
        ):
            moved, reach = _arguments(node, scope)
            written = f"{_name(node)}(AVG({moved.sql(SparkText)}), {reach.sql(SparkText)})"
            raise _of_no_aggregate(node, scope, written)


def _of_no_aggregate(node: exp.Expr, scope: Scope, written: str) -> LanguageError:
    source = scope.path.source
    nested = source.lower() != scope.stream.lower()
    hint = f"{source} aggregates already: take the extreme there" if nested else f"write {written}"
    return scope.error(f"{_name(node)}() is of an aggregate over time", node, hint=hint)


def _name(node: exp.Expr) -> str:
    return str(node.this).lower()


def _example(name: str) -> str:
    return f"{name}(AVG(x), " + ("'30 minutes')" if _KINDS[name][1] else "TIMESTAMP '2026-01-31 09:00:00')")


def _arguments(node: exp.Expr, scope: Scope) -> tuple[exp.Expr, exp.Expr]:
    """What an extreme is taken of, and how far back it goes."""
    name = _name(node)
    if not scope.current:
        raise scope.error(
            f"{name}() goes over current values, and this query reads windows or rows",
            node,
            hint=f"read FROM LATEST({scope.stream}), or use MAX with GROUP BY window(…)",
        )
    if len(node.expressions) != 2:
        raise scope.error(
            f"{name}() takes two arguments, found {len(node.expressions)}", node, hint=_example(name)
        )
    moved, reach = node.expressions
    if any(is_move(n) for n in moved.walk()):
        raise scope.error(f"{name}() cannot be taken of another such extreme", node)
    return moved, reach


def _move(node: exp.Expr, scope: Scope) -> Move:
    moved, reach = _arguments(node, scope)
    name = _name(node)
    if not any(
        isinstance(n, exp.Column) and n.name[:1] == "a" and n.name[1:].isdigit() for n in moved.walk()
    ):
        raise _of_no_aggregate(node, scope, _example(name))
    extreme, sliding = _KINDS[name]
    sql = canonical(moved)
    try:
        if sliding:
            return Move(extreme, sql, size=_length(reach))
        return Move(extreme, sql, since=_moment(reach))
    except ValueError as error:
        raise scope.error(f"{name}(): {error}", node, hint=_example(name)) from None


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
