"""The interpreter of scalar expressions over sqlglot's tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp

from slackwater.errors import LanguageError
from slackwater.reference.functions import STRICT, STRICT_BY_NAME, like
from slackwater.reference.values import (
    Truth,
    Value,
    cast,
    compare,
    conjunction,
    disjunction,
    negate,
    sort_key,
    to_text,
)

Functions = Mapping[str, Callable[..., Value]]


@dataclass(frozen=True)
class Environment:
    """What an expression is evaluated in: the meaning of its columns, functions and aggregates."""

    column: Callable[[exp.Column], Value]
    functions: Functions
    """Users' scalar functions, by name in lower case."""
    aggregate: Callable[[exp.Expr], Value] | None = None
    """Computes an aggregate over the present group; None where there is no group."""
    is_aggregate: Callable[[exp.Expr], bool] = lambda node: False


def unknown(node: exp.Expr, why: str = "the reference cannot evaluate") -> NoReturn:
    """Refuse an expression, naming it."""
    raise LanguageError(f"{why} {node.sql('spark')} ({type(node).__name__})")


def arguments(node: exp.Expr) -> list[exp.Expr]:
    """The operands of a node, in order."""
    found: list[exp.Expr] = []
    for key in node.arg_types:
        value = node.args.get(key)
        found.extend(v for v in (value if isinstance(value, list) else [value]) if isinstance(v, exp.Expr))
    return found


def call_names(node: exp.Expr) -> list[str]:
    """The names, in lower case, under which a call may have been written."""
    if isinstance(node, exp.Anonymous):
        return [str(node.name).lower()]
    return [name.lower() for name in node.sql_names()] if isinstance(node, exp.Func) else []


def interpret(node: exp.Expr, env: Environment) -> Value:
    """The value of an expression."""
    if env.is_aggregate(node):
        if env.aggregate is None:
            unknown(node, "there is no group here for the aggregate")
        return env.aggregate(node)
    for name in call_names(node):
        if name in env.functions:
            return env.functions[name](*(interpret(a, env) for a in arguments(node)))
    form = _FORMS.get(type(node))
    if form is not None:
        value = form(node, env)
    elif type(node) in STRICT:
        value = _strict(STRICT[type(node)], node, env)
    elif isinstance(node, exp.Anonymous) and node.name.lower() in STRICT_BY_NAME:
        value = _strict(STRICT_BY_NAME[node.name.lower()], node, env)
    else:
        unknown(node)
    # sqlglot writes NOT LIKE as a flag on the LIKE.
    return negate(value) if node.args.get("negate") else value


def holds(condition: exp.Expr, env: Environment) -> bool:
    """Whether a condition is true: unknown does not pass."""
    return truth(interpret(condition, env)) is True


def truth(value: Value) -> Truth:
    if value is None or isinstance(value, bool):
        return value
    raise LanguageError(f"expected a condition, got the value {value!r}")


def _strict(function: Callable[..., Value], node: exp.Expr, env: Environment) -> Value:
    values = [interpret(a, env) for a in arguments(node)]
    if any(value is None for value in values):
        return None
    try:
        return function(*values)
    except TypeError as error:
        raise LanguageError(f"the reference cannot evaluate {node.sql('spark')} over {values}") from error


def _literal(node: exp.Expr, env: Environment) -> Value:
    text = str(node.this)
    if node.args.get("is_string"):
        return text
    # Spark reads 1.5 as DECIMAL and 1.5D as DOUBLE; here both are DOUBLE.
    return int(text) if text.isdigit() else float(text)


def _cast(node: exp.Expr, env: Environment) -> Value:
    return cast(interpret(node.this, env), node.args["to"].sql("spark").upper())


def _comparison(accept: Callable[[int], bool]) -> Callable[[exp.Expr, Environment], Truth]:
    def evaluate(node: exp.Expr, env: Environment) -> Truth:
        order = compare(interpret(node.this, env), interpret(node.args["expression"], env))
        return None if order is None else accept(order)

    return evaluate


def _null_safe_equal(node: exp.Expr, env: Environment) -> bool:
    left, right = interpret(node.this, env), interpret(node.args["expression"], env)
    if left is None or right is None:
        return left is None and right is None
    return compare(left, right) == 0


def _is(node: exp.Expr, env: Environment) -> bool:
    value, wanted = interpret(node.this, env), node.args["expression"]
    if isinstance(wanted, exp.Null):
        return value is None
    if isinstance(wanted, exp.Boolean):
        return truth(value) is bool(wanted.this)
    unknown(node)


def _in(node: exp.Expr, env: Environment) -> Truth:
    if not node.expressions:
        unknown(node)
    value = interpret(node.this, env)
    result: Truth = False
    for candidate in node.expressions:
        order = compare(value, interpret(candidate, env))
        result = disjunction(result, None if order is None else order == 0)
    return result


def _between(node: exp.Expr, env: Environment) -> Truth:
    value = interpret(node.this, env)
    above = compare(value, interpret(node.args["low"], env))
    below = compare(value, interpret(node.args["high"], env))
    return conjunction(None if above is None else above >= 0, None if below is None else below <= 0)


def _case(node: exp.Expr, env: Environment) -> Value:
    subject = node.this
    for branch in node.args["ifs"]:
        if subject is None:
            chosen = holds(branch.this, env)
        else:
            chosen = compare(interpret(subject, env), interpret(branch.this, env)) == 0
        if chosen:
            return interpret(branch.args["true"], env)
    return _otherwise(node.args.get("default"), env)


def _if(node: exp.Expr, env: Environment) -> Value:
    if holds(node.this, env):
        return interpret(node.args["true"], env)
    return _otherwise(node.args.get("false"), env)


def _otherwise(node: exp.Expr | None, env: Environment) -> Value:
    return None if node is None else interpret(node, env)


def _present(node: exp.Expr, env: Environment) -> Iterator[Value]:
    values = (interpret(a, env) for a in arguments(node))
    return (value for value in values if value is not None)


def _nullif(node: exp.Expr, env: Environment) -> Value:
    value = interpret(node.this, env)
    return None if compare(value, interpret(node.args["expression"], env)) == 0 else value


def _like(node: exp.Expr, env: Environment, escape: str = "\\") -> Truth:
    if isinstance(node.args["expression"], exp.Any | exp.All):
        unknown(node)
    text, pattern = interpret(node.this, env), interpret(node.args["expression"], env)
    if text is None or pattern is None:
        return None
    return like(to_text(text), pattern, escape, fold=isinstance(node, exp.ILike))


def _escape(node: exp.Expr, env: Environment) -> Truth:
    inner = node.this
    matched = _like(inner, env, interpret(node.args["expression"], env))
    return negate(matched) if inner.args.get("negate") else matched


def _connector(join: Callable[[Truth, Truth], Truth]) -> Callable[[exp.Expr, Environment], Truth]:
    return lambda node, env: join(
        truth(interpret(node.this, env)), truth(interpret(node.args["expression"], env))
    )


_FORMS: dict[type[exp.Expr], Callable[[exp.Expr, Environment], Value]] = {
    exp.Literal: _literal,
    exp.Boolean: lambda node, env: bool(node.this),
    exp.Null: lambda node, env: None,
    exp.Column: lambda node, env: env.column(node),  # type: ignore[arg-type]
    exp.Paren: lambda node, env: interpret(node.this, env),
    exp.Alias: lambda node, env: interpret(node.this, env),
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.EQ: _comparison(lambda order: order == 0),
    exp.NEQ: _comparison(lambda order: order != 0),
    exp.LT: _comparison(lambda order: order < 0),
    exp.LTE: _comparison(lambda order: order <= 0),
    exp.GT: _comparison(lambda order: order > 0),
    exp.GTE: _comparison(lambda order: order >= 0),
    exp.NullSafeEQ: _null_safe_equal,
    exp.NullSafeNEQ: lambda node, env: not _null_safe_equal(node, env),
    exp.And: _connector(conjunction),
    exp.Or: _connector(disjunction),
    exp.Not: lambda node, env: negate(truth(interpret(node.this, env))),
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: lambda node, env: next(_present(node, env), None),
    exp.Nullif: _nullif,
    exp.Greatest: lambda node, env: max(_present(node, env), key=sort_key, default=None),
    exp.Least: lambda node, env: min(_present(node, env), key=sort_key, default=None),
}
