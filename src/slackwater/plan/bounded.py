"""Queries whose answers are intervals: items that are linear in what agents send, or extremes of it.

An *object* is a value column of a key. An item of a query is a constant plus weights times objects (a tight
interval follows: appendix D), or the least or largest of objects (appendix A).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from sqlglot import exp, parse_one

from slackwater.language.dialect import SparkText
from slackwater.language.statements import CreateStream
from slackwater.plan.linear import (
    ONE,
    WEIGH,
    Linear,
    LinearCall,
    NotLinear,
    affine,
    arithmetic,
    computed,
    linear_form,
    reads,
)
from slackwater.plan.model import Call, Move, Output, Step, plain

NUMBERS = (
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "REAL",
    "INTEGER",
    "LONG",
    "SHORT",
    "BYTE",
)
APART = "select what it is made of as columns of their own"


def value_columns(stream: CreateStream) -> tuple[str, ...]:
    """The columns whose values agents send: all but keys and the time."""
    keys = {k.lower() for k in stream.key}
    return tuple(
        c.name for c in stream.columns if c.name.lower() not in keys and c.name.lower() != stream.time.lower()
    )


@dataclass(frozen=True)
class BoundedItem:
    """An aggregated item: its place among the outputs, and the one extreme that it is made of, if any."""

    output: int
    extreme: int | None
    sql: str
    """Over the calls: what it is at a moment."""
    move: Move | None = None
    """Over which sliding time it is taken, and how."""
    whole: bool = False
    """Whether it is a whole number: a count, and nothing else."""


@dataclass(frozen=True)
class Bounded:
    """A query under PRECISION: its calls as sums of terms, its items, and what its signals are of columns."""

    step: Step
    linear: Linear
    items: tuple[BoundedItem, ...]
    signals: Mapping[str, tuple[Mapping[str, float], float]]
    """By signal: the weight of each value column, and a constant."""


def bounded_form(step: Step, stream: CreateStream) -> Bounded:
    """A query as intervals follow for it; raises NotLinear with the reason where none do."""
    form = linear_form(step, stream)
    if step.having is not None:
        raise NotLinear(
            "HAVING would be decided by an interval",
            "having",
            instead="leave HAVING out and select where the answers are read",
        )
    columns = value_columns(stream)
    signals = {sql: signal_weights(sql, columns) for sql in _summed(form)}
    # what is counted weighs nothing: whether it is there depends on whether its columns are
    counted = {s for call in form.calls if call.function == "count" for s in call.signals}
    signals |= {sql: (dict.fromkeys(counted_columns(sql, columns), 0.0), 1.0) for sql in counted}
    moving = [f"a{i}" for i, call in enumerate(form.calls) if call.moves]
    counts = [f"a{i}" for i, call in enumerate(form.calls) if call.function == "count"]
    extremes = [i for i, call in enumerate(form.calls) if call.function in ("min", "max")]
    items = []
    for place, output in enumerate(step.outputs):
        if not output.aggregated:
            continue
        sql, move = _moment(step, output)
        if not arithmetic(sql) or not affine(sql, moving):
            raise NotLinear(f"{output.name} is not linear in the values", output.name, instead=APART)
        used = [i for i in extremes if reads(sql, [f"a{i}"])]
        others = [a for a in moving if reads(sql, [a])]
        if used and not _one_value(form.calls[used[0]], signals):
            raise NotLinear(
                f"{output.name} is an extreme of more than one weighted value",
                output.name,
                instead="take the extreme of one value, times a constant or a weight",
            )
        if used and len(others) > 1:
            apart = " and ".join(_written(step.calls[int(a[1:])]) for a in others)
            raise NotLinear(
                f"{output.name} mixes an extreme with other aggregates of values",
                output.name,
                instead=f"ask for {apart} as columns of their own",
            )
        whole = sql in counts and move is None
        items.append(BoundedItem(place, used[0] if used else None, sql, move, whole))
    if not items:
        example = f"AVG({columns[0] if columns else 'x'})"
        raise NotLinear(
            "it aggregates nothing",
            step.outputs[0].name,
            instead=f"ask for an aggregate, such as {example}, and GROUP BY the rest",
        )
    return Bounded(step, form, tuple(items), signals)


def _written(call: Call) -> str:
    """A call as a SELECT would have it."""
    shown = f"{call.label}({', '.join(map(plain, call.arguments)) or '*'})"
    return f"{shown} FILTER (WHERE {plain(call.condition)})" if call.condition is not None else shown


def _summed(form: Linear) -> tuple[str, ...]:
    """The signals whose values matter, not only whether they are there."""
    return tuple(dict.fromkeys(s for call in form.calls if call.function != "count" for s in call.signals))


def counted_columns(sql: str, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The value columns that must be there for a counted signal to be: all that it reads.

    >>> counted_columns("CASE WHEN (s.`rx` * s.`tx`) IS NOT NULL THEN 1.0D END", ("rx", "tx", "up"))
    ('rx', 'tx')
    """
    asked = parse_one(sql, dialect=SparkText).find(exp.Is)
    assert asked is not None
    tree = _without_casts(asked.this)
    named = {c.lower(): c for c in columns}
    read = dict.fromkeys(c.name.lower() for c in tree.find_all(exp.Column))
    shown = plain(tree.sql(dialect=SparkText))
    for name in read:
        if name not in named:
            raise NotLinear(f"{shown} reads {name}, which is no value that agents send", shown)
    for node in tree.walk():
        divided = isinstance(node, exp.Div) and not _nonzero(node.right)
        if divided or not isinstance(node, _NEVER_NULL):
            reason = f"whether {shown} is there depends on values, not only on whether they are there"
            raise NotLinear(reason, shown, instead="count the value alone")
    return tuple(named[name] for name in read)


_NEVER_NULL = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Paren, exp.Neg),
    *(exp.Add, exp.Sub, exp.Mul, exp.Div),
)
"""What is there wherever its inputs are; a quotient only by a number that is not 0."""


def _nonzero(node: exp.Expr) -> bool:
    while isinstance(node, exp.Paren | exp.Neg):
        node = node.this
    return isinstance(node, exp.Literal) and not node.is_string and float(node.this) != 0


def _moment(step: Step, output: Output) -> tuple[str, Move | None]:
    """What an item is at a moment, and over which time it is taken; raises NotLinear for more than that."""
    places = [f"m{i}" for i in range(len(step.moves))]
    if not reads(output.sql, places):
        return output.sql, None
    if output.sql not in places:
        raise NotLinear(
            f"{output.name} is computed from {step.readable(output.sql)}; such a call is an item of its own",
            output.name,
            instead=APART,
        )
    move = step.moves[places.index(output.sql)]
    if move.size is None:
        reason = f"{move.function} would have to know all bounds since then; take {move.extreme}_over"
        raise NotLinear(reason, output.name, instead=f"take {move.extreme}_over(…, '1 hour')")
    return move.sql, move


def _one_value(call: LinearCall, signals: Mapping[str, tuple[Mapping[str, float], float]]) -> bool:
    """Whether an extreme is of one value column, and no constant is weighed with it."""
    (term,) = call.terms
    columns, constant = signals[term.signal] if term.signal is not None else ({}, 1.0)
    return len(columns) <= 1 and (not constant or term.weight == ONE)


def signal_weights(sql: str, columns: tuple[str, ...]) -> tuple[dict[str, float], float]:
    """What a signal is of the value columns: their weights, and a constant.

    >>> signal_weights("s.`rx` * 8 - s.`tx` / 2 + 1", ("rx", "tx"))
    ({'rx': 8.0, 'tx': -0.5}, 1.0)
    """
    tree = _without_casts(parse_one(sql, dialect=SparkText))
    named = {c.lower(): f"a{i}" for i, c in enumerate(columns)}
    for column in list(tree.find_all(exp.Column)):
        if column.name.lower() not in named:
            reason = f"{plain(sql)} reads {column.name}, which is no value that agents send"
            raise NotLinear(reason, plain(sql))
        place = exp.column(named[column.name.lower()])
        if column is tree:
            tree = place
        else:
            column.replace(place)
    text = tree.sql(dialect=SparkText)
    names = list(named.values())
    if not arithmetic(text) or not affine(text, names):
        raise NotLinear(f"{plain(sql)} is not linear in the values", plain(sql), instead=WEIGH)
    # an affine function is known by what it is at 0 and at each unit
    count = len(names)
    points = np.concatenate([np.zeros((1, count)), np.eye(count)])
    found = computed(text, {name: points[:, i] for i, name in enumerate(names)})
    weights = {c: float(found[i + 1] - found[0]) for i, c in enumerate(columns)}
    return {c: w for c, w in weights.items() if w != 0}, float(found[0])


def _without_casts(node: exp.Expr) -> exp.Expr:
    """A number stays the same number as a double, which is what values are here."""
    changed: exp.Expr = node.transform(
        lambda n: n.this if isinstance(n, exp.Cast) and n.to.this.name in ("DOUBLE", "FLOAT") else n
    )
    return changed
