"""What each aggregate is made of: its partial sums, how they merge, whether they scale.

*Mergeable*: the partials of two panes give the partials of both, so windows come from panes.
*Holistic*: a window needs the values themselves; panes then hold each value with its count.
*Scalable*: an unbiased estimate comes from a random sample, so ``ERROR`` can be honoured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slackwater.plan.functions import Functions
from slackwater.plan.model import Call

Merge = Literal["sum", "min", "max", "mean", "m2"]
Kind = Literal["partials", "values", "states", "rows"]


@dataclass(frozen=True)
class Partial:
    """One column of a pane: ``sql`` over the conditional argument ``{x}``, and how two of them merge.

    ``mean`` and ``m2`` go in threes with a count before them and merge by Chan's update, since a
    plain sum of squares loses all digits where the mean is large.
    """

    role: str
    sql: str
    merge: Merge


@dataclass(frozen=True)
class Algebra:
    kind: Kind
    scalable: bool
    partials: tuple[Partial, ...] = ()
    final: str = ""
    """Over the merged partials, by role."""


_COUNT = Partial("n", "count({x})", "sum")
_SUM = Partial("total", "sum({x})", "sum")
_MOMENTS = (
    # a count of its own: the three must be merged together, and written by one pass
    Partial("n", "count(cast({x} as double))", "sum"),
    Partial("mean", "avg(cast({x} as double))", "mean"),
    Partial("m2", "var_pop(cast({x} as double)) * count({x})", "m2"),
)


def _moments(final: str) -> Algebra:
    return Algebra("partials", True, _MOMENTS, final)


_ALGEBRAS: dict[str, Algebra] = {
    "count": Algebra("partials", True, (_COUNT,), "n"),
    "sum": Algebra("partials", True, (_SUM,), "total"),
    # as a double, as Spark does: a sum of large whole numbers would overflow
    "avg": Algebra(
        "partials", True, (_COUNT, Partial("total", "sum(cast({x} as double))", "sum")), "average"
    ),
    "min": Algebra("partials", False, (Partial("least", "min({x})", "min"),), "least"),
    "max": Algebra("partials", False, (Partial("largest", "max({x})", "max"),), "largest"),
    "bool_and": Algebra("partials", False, (Partial("least", "min({x})", "min"),), "least"),
    "bool_or": Algebra("partials", False, (Partial("largest", "max({x})", "max"),), "largest"),
    "stddev_samp": _moments("stddev_samp"),
    "stddev_pop": _moments("stddev_pop"),
    "var_samp": _moments("var_samp"),
    "var_pop": _moments("var_pop"),
    "percentile": Algebra("values", True),
    "count_distinct": Algebra("values", False),
    "sum_distinct": Algebra("values", False),
    "avg_distinct": Algebra("values", False),
}


def algebra(call: Call, functions: Functions) -> Algebra:
    """The algebra of a call.

    >>> algebra(Call("max", ("s.`x`",)), Functions()).scalable
    False
    """
    known = _ALGEBRAS.get(call.function)
    if known is not None:
        return known
    user = functions.aggregate(call.function)
    if user is None:
        raise KeyError(f"no aggregate called {call.function}")
    return Algebra("states" if user.merge is not None else "rows", user.scalable)
