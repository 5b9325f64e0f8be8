"""Extremes over earlier ticks: ``max_over``, ``min_over``, ``max_since`` and ``min_since``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlglot import exp

from slackwater.errors import LanguageError
from slackwater.reference.values import Value, cast, sort_key, to_micros
from slackwater.reference.windows import read_duration

_NAMES = ("max_over", "min_over", "max_since", "min_since")


def is_history(node: exp.Expr) -> bool:
    """Whether a node is a call of one of the four."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in _NAMES


@dataclass(frozen=True)
class History:
    """The extreme that an expression over aggregates has had, within a length of time or since a time."""

    expression: exp.Expr
    highest: bool
    length: int | None
    since: int | None

    def first(self, now: int) -> int:
        """The earliest time that counts at a tick; both are in microseconds, and both ends belong to it."""
        if self.length is not None:
            return now - self.length
        assert self.since is not None
        return self.since

    def extreme(self, values: Iterable[Value]) -> Value:
        """The largest or smallest value, as MAX and MIN have it: NULLs are passed over."""
        present = [value for value in values if value is not None]
        choose = max if self.highest else min
        return choose(present, key=sort_key, default=None)


def read_history(node: exp.Expr) -> History:
    """What a call of one of the four says.

    >>> import sqlglot
    >>> history = read_history(sqlglot.parse_one("max_over(AVG(x), '2 seconds')", dialect="spark"))
    >>> history.first(now=5_000_000), history.extreme([1, None, 3])
    (3000000, 3)
    """
    name, operands = node.name.lower(), node.expressions
    if len(operands) != 2:
        raise LanguageError(f"expected {name}(expression, reach), got {node.sql('spark')}")
    expression, reach = operands
    highest = name.startswith("max")
    if name.endswith("since"):
        return History(expression, highest, None, _time(reach))
    return History(expression, highest, _length(reach), None)


def _length(node: exp.Expr) -> int:
    if not isinstance(node, exp.Interval) and not node.is_string:
        raise LanguageError(f"expected a length of time such as '30 minutes', got {node.sql('spark')}")
    length = read_duration(node)
    if length < 1:
        raise LanguageError(f"the length {node.sql('spark')} must be above 0")
    return length


def _time(node: exp.Expr) -> int:
    """A literal time; without a zone it is UTC."""
    literal = node.this if isinstance(node, exp.Cast | exp.TryCast) else node
    time = cast(literal.name, "TIMESTAMP") if literal.is_string else None
    if time is None:
        raise LanguageError(
            f"expected a time such as TIMESTAMP '2026-01-01 00:00:00', got {node.sql('spark')}"
        )
    return to_micros(time)
