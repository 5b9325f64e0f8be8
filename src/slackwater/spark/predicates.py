"""Predicates that many aggregates of one pass test: named, so that a row evaluates each of them once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

from sqlglot import exp, parse_one

from slackwater.language.dialect import SparkText
from slackwater.plan.tree import Operator

NAMED_FROM = 3
"""From so many aggregates on that test a predicate, its result is kept for the row."""
NAMED_AT_MOST = 64

_CHEAP = (
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Neg,
    exp.And, exp.Or, exp.Not, exp.Is, exp.Between, exp.In,
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE,
    exp.Add, exp.Sub, exp.Mul, exp.Mod,
)  # fmt: skip


def named_predicates(paths: Sequence[tuple[Operator, ...]]) -> dict[str, str]:
    """Names by predicate, for those worth one; ``paths`` has one entry for each aggregate.

    A costly predicate that others come before stays where it is: most rows never get to it. A hundred
    queries made of twenty predicates take half the time, or a fifth where the predicates are costly;
    naming what only two aggregates test costs more than it saves.

    >>> path = ("s.`proto` = 'tcp'", "upper(s.`src`) = 'A'")
    >>> named_predicates([path] * 3)
    {"s.`proto` = 'tcp'": 's.__q0'}
    """
    tests = [[p for p in path if isinstance(p, str)] for path in paths]
    used = Counter(p for test in tests for p in test)
    first = Counter(test[0] for test in tests if test)
    shared = [p for p, times in used.most_common() if times >= NAMED_FROM]
    chosen = [p for p in shared if first[p] >= NAMED_FROM or _is_cheap(p)]
    return {p: f"s.__q{i}" for i, p in enumerate(chosen[:NAMED_AT_MOST])}


@cache
def _is_cheap(predicate: str) -> bool:
    """Whether a predicate only compares and calculates."""
    return all(isinstance(node, _CHEAP) for node in parse_one(predicate, dialect=SparkText).walk())
