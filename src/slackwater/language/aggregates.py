"""Aggregates that users bring: three or four Python functions behind a name in SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class UserAggregate:
    """A user-defined aggregate: a state, how a row enters it, and what it amounts to.

    ``incr(state, *args)`` is called once per row, NULLs included, in order of event time and then
    arrival; ``merge(left, right)`` joins the states of two stretches of rows, the earlier one first,
    and without it the rows themselves must be kept. ``scalable`` says that the result grows in
    proportion to the rows, so that a sample can be scaled up to an estimate of it.

    >>> longest = UserAggregate(
    ...     init=lambda: 0, incr=lambda state, text: max(state, len(text or "")), final=lambda state: state
    ... )
    >>> longest.over([("ab",), (None,), ("abc",)])
    3
    """

    init: Callable[[], Any]
    incr: Callable[..., Any]
    final: Callable[[Any], object]
    merge: Callable[[Any, Any], Any] | None = None
    scalable: bool = False
    returns: str = "DOUBLE"
    """The Spark SQL type of what ``final`` gives."""

    def over(self, rows: list[tuple[Any, ...]]) -> object:
        """The result over rows of arguments, in the order given."""
        state = self.init()
        for arguments in rows:
            state = self.incr(state, *arguments)
        return self.final(state)
