"""Aggregates over current values as sums of weights times signals.

A *signal* is what a key's current row says: an expression over the columns of the stream that are no keys.
A *weight* is what does not change while the key stays: constants, key columns, columns of lookups. Where an
argument is a sum of products of the two, where rows are chosen and grouped by what does not change, a query
is a sparse matrix over the keys: a row for each group, an entry for each key (equation 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp, parse_one

from slackwater.language.dialect import SparkText
from slackwater.language.statements import CreateStream
from slackwater.plan.model import Call, Step, plain

Floats = NDArray[np.float64]
LINEAR = ("count", "sum", "avg")
ONE = "1"


class NotLinear(ValueError):
    """Why a query over current values is no sparse matrix, and what would do instead.

    ``parts`` say where in the SELECT that is, the first to be found there counts: an expression as `plain`
    shows it, the name of an item, or a clause as sqlglot calls it.
    """

    def __init__(self, reason: str, *parts: str, instead: str = "") -> None:
        self.parts = parts
        self.instead = instead
        super().__init__(reason)


BY_KEYS = "by key columns and columns of lookups only, which do not change"
CHOOSE = f"choose rows {BY_KEYS}; or select by values where the answers are read"
WEIGH = "multiply a value by constants, key columns or columns of lookups, or have agents send the result"


@dataclass(frozen=True)
class Term:
    """A weight times a signal, both SQL; without a signal the weight alone."""

    weight: str
    signal: str | None


@dataclass(frozen=True)
class LinearCall:
    """An aggregate whose argument is a sum of terms, over the rows that a condition holds for."""

    function: str
    terms: tuple[Term, ...] = ()
    """None: it counts rows."""
    condition: str | None = None

    @property
    def signals(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(t.signal for t in self.terms if t.signal is not None))

    @property
    def moves(self) -> bool:
        """Whether it changes while keys and lookups stay as they are."""
        return bool(self.signals) and self.function != "count"


@dataclass(frozen=True)
class Linear:
    """All calls of a step, in its order."""

    calls: tuple[LinearCall, ...]

    @property
    def signals(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(s for call in self.calls for s in call.signals))


def linear_form(step: Step, stream: CreateStream) -> Linear:
    """The calls of a step over current values as sums of terms.

    Raises NotLinear, with the reason, where some are not, or where which keys it reads depends on values.
    """
    if step.path.source.lower() != stream.name.lower():
        source = step.path.source
        raise NotLinear(
            f"it reads {source}, which aggregates already",
            source,
            instead=f"read LATEST({stream.name}) itself",
        )
    columns = _Columns(frozenset(k.lower() for k in stream.key))
    for what, texts, clause, instead in (
        ("chooses keys by", step.path.predicates, "where", CHOOSE),
        ("looks up by", [k.on for k in step.path.lookups], "joins", f"look up {BY_KEYS}"),
        ("groups by", [k.sql for k in step.keys], "group", f"group {BY_KEYS}"),
    ):
        for text in texts:
            if columns.moving(_tree(text)):
                reason = f"it {what} {plain(text)}, which changes with the values of {stream.name}"
                raise NotLinear(reason, plain(text), clause, instead=instead)
    return Linear(tuple(_call(call, columns) for call in step.calls))


def _call(call: Call, columns: _Columns) -> LinearCall:
    if call.function not in (*LINEAR, "min", "max"):
        raise NotLinear(f"{call.label} is not linear in the values")
    if call.condition is not None and columns.moving(_tree(call.condition)):
        condition = plain(call.condition)
        raise NotLinear(f"{condition} changes with the values", condition, instead=CHOOSE)
    if not call.arguments:
        return LinearCall(call.function, (), call.condition)
    argument = _tree(call.arguments[0])
    if call.function == "count":
        moving = columns.moving(argument)
        if moving and columns.looked_up(argument):
            mixed = plain(call.arguments[0])
            raise NotLinear(f"{mixed} mixes values with lookups", mixed, instead="count the value alone")
        text = _sql(argument)
        # of any type: only whether it is there counts
        there = f"CASE WHEN ({text}) IS NOT NULL THEN 1.0D END"
        return LinearCall("count", (Term(ONE, there) if moving else Term(there, None),), call.condition)
    terms = tuple(_terms(argument, columns))
    if call.function in ("min", "max") and len(terms) > 1:
        raise NotLinear(
            f"{call.function.upper()} of a sum of different signals is not kept by key",
            plain(call.arguments[0]),
            instead="take the extreme of one value, times a constant or a weight",
        )
    return LinearCall(call.function, terms, call.condition)


def _terms(node: exp.Expr, columns: _Columns) -> Iterable[Term]:
    """An argument as a sum of products of what stays and what moves."""
    if isinstance(node, exp.Paren):
        yield from _terms(node.this, columns)
    elif not columns.moving(node):
        yield Term(_sql(node), None)
    elif not columns.looked_up(node) and not columns.keyed(node):
        yield Term(ONE, _sql(node))
    elif isinstance(node, exp.Neg):
        yield from (_scaled(t, "-({})") for t in _terms(node.this, columns))
    elif isinstance(node, exp.Add):
        yield from _terms(node.left, columns)
        yield from _terms(node.right, columns)
    elif isinstance(node, exp.Sub):
        yield from _terms(node.left, columns)
        yield from (_scaled(t, "-({})") for t in _terms(node.right, columns))
    elif isinstance(node, exp.Mul) and not columns.moving(node.right):
        yield from (_scaled(t, f"({{}}) * ({_sql(node.right)})") for t in _terms(node.left, columns))
    elif isinstance(node, exp.Mul) and not columns.moving(node.left):
        yield from (_scaled(t, f"({_sql(node.left)}) * ({{}})") for t in _terms(node.right, columns))
    elif isinstance(node, exp.Div) and not columns.moving(node.right):
        yield from (_scaled(t, f"({{}}) / ({_sql(node.right)})") for t in _terms(node.left, columns))
    elif not columns.looked_up(node):
        yield Term(ONE, _sql(node))
    else:
        shown = plain(_sql(node))
        raise NotLinear(f"{shown} is no product of a value and a weight", shown, instead=WEIGH)


def _scaled(term: Term, form: str) -> Term:
    return Term(form.format(term.weight), term.signal)


@dataclass(frozen=True)
class _Columns:
    """Which columns stay while a key does."""

    keys: frozenset[str]

    def moving(self, node: exp.Expr) -> bool:
        """Whether an expression reads a column of the stream that is no key."""
        return any(c.table == "s" and c.name.lower() not in self.keys for c in node.find_all(exp.Column))

    def keyed(self, node: exp.Expr) -> bool:
        return any(c.table == "s" and c.name.lower() in self.keys for c in node.find_all(exp.Column))

    def looked_up(self, node: exp.Expr) -> bool:
        return any(c.table != "s" for c in node.find_all(exp.Column))


def affine(sql: str, moving: Sequence[str]) -> bool:
    """Whether an expression is a constant plus multiples of the columns that move.

    >>> affine("a0 / a1 * 100 + 1", ["a0"]), affine("a0 * a1", ["a0", "a1"]), affine("sqrt(a0)", ["a0"])
    (True, False, False)
    """
    return _affine(_tree(sql), frozenset(moving))


def _affine(node: exp.Expr, moving: frozenset[str]) -> bool:
    if not _reads(node, moving) or isinstance(node, exp.Column):
        return True
    if isinstance(node, exp.Paren | exp.Neg):
        return _affine(node.this, moving)
    if isinstance(node, exp.Add | exp.Sub):
        return _affine(node.left, moving) and _affine(node.right, moving)
    if isinstance(node, exp.Mul):
        alone = not _reads(node.left, moving) or not _reads(node.right, moving)
        return alone and _affine(node.left, moving) and _affine(node.right, moving)
    if isinstance(node, exp.Div):
        return not _reads(node.right, moving) and _affine(node.left, moving)
    return False


def reads(sql: str, names: Iterable[str]) -> bool:
    """Whether an expression reads one of some columns."""
    return _reads(_tree(sql), frozenset(names))


def _reads(node: exp.Expr, names: frozenset[str]) -> bool:
    return any(c.name in names for c in node.find_all(exp.Column))


def arithmetic(sql: str) -> bool:
    """Whether an expression is only sums, products and quotients of calls and numbers.

    >>> arithmetic("-(a0 + 1.5) / a1"), arithmetic("sqrt(a0)"), arithmetic("a0 * k0")
    (True, False, False)
    """
    return all(
        (isinstance(n, exp.Column) and n.name[:1] == "a" and n.name[1:].isdigit())
        or (isinstance(n, exp.Literal) and not n.is_string)
        or isinstance(n, exp.Identifier | exp.Paren | exp.Neg | exp.Add | exp.Sub | exp.Mul | exp.Div)
        for n in _tree(sql).walk()
    )


def computed(sql: str, columns: Mapping[str, Floats]) -> Floats:
    """The value of such an expression over doubles; NaN where a quotient has none, as Spark has NULL.

    >>> computed("a0 / a1", {"a0": np.array([6.0, 1.0]), "a1": np.array([4.0, 0.0])})
    array([1.5, nan])
    """
    return _computed(_tree(sql), columns)


def _computed(node: exp.Expr, columns: Mapping[str, Floats]) -> Floats:
    if isinstance(node, exp.Column):
        return columns[node.name]
    if isinstance(node, exp.Literal):
        return np.full(next(iter(columns.values())).shape, float(node.this))
    if isinstance(node, exp.Paren):
        return _computed(node.this, columns)
    if isinstance(node, exp.Neg):
        negated: Floats = -_computed(node.this, columns)
        return negated
    left, right = _computed(node.args["this"], columns), _computed(node.args["expression"], columns)
    found: Floats
    if isinstance(node, exp.Div):
        found = np.divide(left, right, out=np.full(left.shape, np.nan), where=right != 0)
    elif isinstance(node, exp.Mul):
        found = left * right
    else:
        found = left + right if isinstance(node, exp.Add) else left - right
    return found


@cache
def _tree(sql: str) -> exp.Expr:
    return parse_one(sql, dialect=SparkText)


def _sql(node: exp.Expr) -> str:
    return node.sql(dialect=SparkText, normalize_functions="lower", comments=False)
