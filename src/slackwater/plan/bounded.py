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
    Linear,
    LinearCall,
    NotLinear,
    affine,
    arithmetic,
    computed,
    linear_form,
    reads,
)
from slackwater.plan.model import Step, plain

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
    if step.moves:
        raise NotLinear("an extreme over time has no interval of its own here")
    if step.having is not None:
        raise NotLinear("HAVING would be decided by an interval")
    columns = value_columns(stream)
    signals = {sql: signal_weights(sql, columns) for sql in form.signals}
    moving = [f"a{i}" for i, call in enumerate(form.calls) if call.moves]
    extremes = [i for i, call in enumerate(form.calls) if call.function in ("min", "max")]
    items = []
    for place, output in enumerate(step.outputs):
        if not output.aggregated:
            continue
        if not arithmetic(output.sql) or not affine(output.sql, moving):
            raise NotLinear(f"{output.name} is not linear in the values")
        used = [i for i in extremes if reads(output.sql, [f"a{i}"])]
        others = [a for a in moving if reads(output.sql, [a])]
        if used and not _one_value(form.calls[used[0]], signals):
            raise NotLinear(f"{output.name} is an extreme of more than one weighted value")
        if used and len(others) > 1:
            raise NotLinear(f"{output.name} mixes an extreme with other aggregates of values")
        items.append(BoundedItem(place, used[0] if used else None))
    if not items:
        raise NotLinear("it aggregates nothing")
    return Bounded(step, form, tuple(items), signals)


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
            raise NotLinear(f"{plain(sql)} reads {column.name}, which is no value that agents send")
        place = exp.column(named[column.name.lower()])
        if column is tree:
            tree = place
        else:
            column.replace(place)
    text = tree.sql(dialect=SparkText)
    names = list(named.values())
    if not arithmetic(text) or not affine(text, names):
        raise NotLinear(f"{plain(sql)} is not linear in the values")
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
