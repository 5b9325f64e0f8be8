"""Aggregate calls found in sqlglot's trees, under one name each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from slackwater.language.dialect import SparkText
from slackwater.plan.aggregate_names import BY_NAME, INSTEAD, OTHERS, SUPPORTED
from slackwater.plan.functions import Functions

_BY_CLASS: dict[type[exp.Expr], str] = {
    exp.Count: "count",
    exp.CountIf: "count_if",
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
    exp.Stddev: "stddev_samp",
    exp.StddevSamp: "stddev_samp",
    exp.StddevPop: "stddev_pop",
    exp.Variance: "var_samp",
    exp.VariancePop: "var_pop",
    exp.Median: "percentile",
    exp.PercentileCont: "percentile",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
}


@dataclass(frozen=True)
class RawCall:
    """An aggregate as found: the arguments are still trees."""

    function: str
    arguments: tuple[exp.Expr, ...]
    condition: exp.Expr | None = None
    parameter: float | None = None


class UnsupportedAggregate(ValueError):
    """Raised with what to use instead."""

    def __init__(self, message: str, hint: str) -> None:
        self.hint = hint
        super().__init__(message)


def is_aggregate(node: exp.Expr, functions: Functions) -> bool:
    """Whether a node, taken by itself, is an aggregate call (with its FILTER or WITHIN GROUP)."""
    if isinstance(node, exp.Filter | exp.WithinGroup):
        return is_aggregate(node.this, functions)
    if isinstance(node, exp.Anonymous):
        name = str(node.this).lower()
        known = name in BY_NAME or name in INSTEAD or name in OTHERS
        return known or functions.aggregate(name) is not None
    return isinstance(node, exp.AggFunc) or (isinstance(node, exp.Any) and not _is_quantifier(node))


def _is_quantifier(node: exp.Any) -> bool:
    return isinstance(node.parent, exp.Predicate)


def raw_call(node: exp.Expr, functions: Functions) -> RawCall:
    """The call that an aggregate node makes."""
    if isinstance(node, exp.Filter):
        inner = raw_call(node.this, functions)
        condition = node.expression.this
        if functions.aggregate(inner.function) is not None:
            raise UnsupportedAggregate(
                f"FILTER does not go with {inner.function}, which is defined in Python",
                f"pass NULL for the other rows: {inner.function}(CASE WHEN … THEN x END)",
            )
        if inner.condition is not None:
            condition = exp.and_(inner.condition.copy(), condition.copy())
        return RawCall(inner.function, inner.arguments, condition, inner.parameter)
    if isinstance(node, exp.WithinGroup):
        return _within_group(node)
    if isinstance(node, exp.Anonymous):
        return _named(str(node.this).lower(), tuple(node.expressions), functions)
    if isinstance(node, exp.Any):
        return RawCall("bool_or", (node.this.unnest(),))
    function = _BY_CLASS.get(type(node))
    if function is None:
        raise _unsupported(node.sql_name() if isinstance(node, exp.Func) else type(node).__name__)
    if function == "count":
        return _count(node)
    if function == "count_if":
        if isinstance(node.this, exp.Distinct):
            raise UnsupportedAggregate("COUNT_IF(DISTINCT …) is not supported", "use COUNT_IF(condition)")
        return RawCall("count", (), node.this)
    if function == "percentile":
        return _of_values(RawCall("percentile", (node.this,), None, 0.5))
    argument = node.this
    if isinstance(argument, exp.Distinct):
        if function in ("sum", "avg"):
            return RawCall(f"{function}_distinct", (argument.expressions[0],))
        if function not in ("min", "max", "bool_and", "bool_or"):
            raise UnsupportedAggregate(
                f"{function.upper()}(DISTINCT …) is not an aggregate that Slackwater keeps",
                "there are COUNT, SUM and AVG of DISTINCT values",
            )
        argument = argument.expressions[0]
    return RawCall(function, (argument,))


def written_name(node: exp.Expr, text: str) -> str:
    """What an aggregate is called in the text that it was found in, for those who wrote it."""
    while isinstance(node, exp.Filter | exp.WithinGroup):
        node = node.this
    start, end = node.meta.get("start"), node.meta.get("end")
    name = node.sql(SparkText).split("(")[0] if start is None or end is None else text[start : end + 1]
    return name.upper() + ("(DISTINCT)" if node.find(exp.Distinct) is not None else "")


def _named(name: str, arguments: tuple[exp.Expr, ...], functions: Functions) -> RawCall:
    if functions.aggregate(name) is not None:
        return RawCall(name, arguments)
    if name == "percentile":
        if len(arguments) != 2:
            raise UnsupportedAggregate(
                f"percentile() takes a value and a share, found {len(arguments)} arguments",
                "percentile(x, 0.99)",
            )
        return _of_values(RawCall(name, arguments[:1], None, _percentile(arguments[1])))
    if name in BY_NAME and len(arguments) == 1:
        if name == "mean" and isinstance(arguments[0], exp.Distinct):
            return RawCall("avg_distinct", (arguments[0].expressions[0],))
        return _of_values(RawCall(BY_NAME[name], arguments))
    raise _unsupported(name)


def _of_values(call: RawCall) -> RawCall:
    """A call over all values: raises where it asks for the different ones."""
    if any(isinstance(a, exp.Distinct) for a in call.arguments):
        raise UnsupportedAggregate(
            f"{call.function.upper()}(DISTINCT …) is not an aggregate that Slackwater keeps",
            "there are COUNT, SUM and AVG of DISTINCT values",
        )
    return call


def _count(node: exp.Expr) -> RawCall:
    counted = node.this
    if isinstance(counted, exp.Distinct):
        return RawCall("count_distinct", tuple(counted.expressions))
    extra = node.args.get("expressions") or []
    if isinstance(counted, exp.Star) or (isinstance(counted, exp.Literal) and not extra):
        return RawCall("count", ())
    if extra:
        # count(a, b) counts the rows in which none is null
        present = [exp.not_(exp.Is(this=e.copy(), expression=exp.null())) for e in (counted, *extra)]
        return RawCall("count", (), exp.and_(*present))
    return RawCall("count", (counted,))


def _within_group(node: exp.WithinGroup) -> RawCall:
    function = node.this
    ordered = node.expression.expressions[0]
    if not isinstance(function, exp.PercentileCont):
        raise UnsupportedAggregate(
            f"{function.sql(SparkText)} WITHIN GROUP is not supported",
            "use percentile_cont(p) WITHIN GROUP (ORDER BY x)",
        )
    parameter = _percentile(function.this)
    return RawCall(
        "percentile", (ordered.this,), None, 1 - parameter if ordered.args.get("desc") else parameter
    )


def _percentile(share: exp.Expr | None) -> float:
    if share is None:
        return 0.5
    try:
        value = float(share.sql(SparkText))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UnsupportedAggregate(
            f"the percentile must be a number from 0 to 1, found {share.sql(SparkText)}",
            "percentile(x, 0.99)",
        )
    return value


def _unsupported(name: str) -> UnsupportedAggregate:
    instead = INSTEAD.get(name.lower())
    hint = f"use {instead}" if instead else f"there are {SUPPORTED}"
    return UnsupportedAggregate(f"{name.upper()} is not an aggregate that Slackwater keeps", hint)


def extract(root: exp.Expr, functions: Functions, replace: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """A copy of a tree with every aggregate (the outermost) replaced by what ``replace`` gives."""
    return root.copy().transform(lambda node: replace(node) if is_aggregate(node, functions) else node)
