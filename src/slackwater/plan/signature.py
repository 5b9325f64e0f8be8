"""Queries that differ only in constants: one signature, its constants a table (NiagaraCQ's idea).

A row finds its matching queries by one hash join: on the constants of equalities, or, for ranges,
on cells of a grid as coarse as the range is long, so that a range covers at most two cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp, parse_one

from slackwater.plan.model import Lookup, Path
from slackwater.plan.scope import canonical, digest

Constants = tuple[str, ...]
"""A member's constants as SQL literals; an IN list is one constant, joined by ``, ``."""


@dataclass(frozen=True)
class Probe:
    """The predicate that finds a row's matches: ``expression = ?`` or ``? <= expression < ?``."""

    expression: str
    constants: tuple[int, ...]
    """Positions: one for an equality or an IN list, two (low, high) for a range."""


@dataclass(frozen=True)
class Signature:
    """What alike queries share. ``{0}``, ``{1}``… stand for the constants."""

    source: str
    lookups: tuple[Lookup, ...]
    common: tuple[str, ...]
    """Predicates without varying constants."""
    varying: tuple[str, ...]
    """Predicates with holes, all of them; the probe's are tested again only where it is a range."""
    equalities: tuple[Probe, ...]
    range: Probe | None

    @property
    def residual(self) -> tuple[str, ...]:
        probes = {f"{p.expression} = {{{p.constants[0]}}}" for p in self.equalities}
        return tuple(v for v in self.varying if v not in probes and " IN ({" not in v)


def member_id(constants: Constants) -> int:
    """A stable 63-bit name for a member: equal constants are the same member."""
    return int(digest(constants, length=15), 16)


def shape(path: Path) -> tuple[tuple[object, ...], Constants]:
    """A path with its constants taken out, and the constants.

    >>> shape(Path("p", (), ("s.`dport` = 80", "s.`size` > 5")))[1]
    ('80', '5')
    """
    templates = []
    constants: list[str] = []
    for predicate in path.predicates:
        template, found = _holes(predicate)
        templates.append(template)
        constants += found
    return (path.source, path.lookups, tuple(templates)), tuple(constants)


def _holes(predicate: str) -> tuple[str, list[str]]:
    tree = parse_one(predicate, dialect="spark")
    found: list[str] = []
    if isinstance(tree, exp.In) and tree.expressions and all(isinstance(e, exp.Literal) for e in tree.expressions):
        values = sorted({canonical(e) for e in tree.expressions})
        return f"{canonical(tree.this)} IN (?)", [", ".join(values)]

    def hole(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
            found.append("-" + canonical(node.this))
            return exp.Placeholder()
        if isinstance(node, exp.Literal):
            found.append(canonical(node))
            return exp.Placeholder()
        return node

    return canonical(tree.transform(hole)), found


def signature_of(key: tuple[object, ...], members: Sequence[Constants]) -> Signature | None:
    """The signature of paths of one shape, None where no hash join finds the matches.

    ``members`` are at least two different sets of constants.
    """
    source, lookups, templates = key
    assert isinstance(source, str) and isinstance(lookups, tuple) and isinstance(templates, tuple)
    varies = [len(set(values)) > 1 for values in zip(*members, strict=True)]
    common, varying = [], []
    position = 0
    for template in templates:
        holes = template.count("?")
        places = range(position, position + holes)
        position += holes
        kept = [None if varies[p] else members[0][p] for p in places]
        filled = _fill(template, [k if k is not None else f"{{{p}}}" for k, p in zip(kept, places, strict=True)])
        (varying if any(k is None for k in kept) else common).append(filled)
    equalities = tuple(p for p in map(_equality, varying) if p is not None)
    range_ = None if equalities else _range(varying, members)
    if not equalities and range_ is None:
        return None
    return Signature(source, lookups, tuple(common), tuple(varying), equalities, range_)


def matches(signature: Signature, path: Path) -> Constants | None:
    """The constants with which a path is a member of a signature, None where it is none."""
    (source, lookups, templates), constants = shape(path)
    if (source, lookups) != (signature.source, signature.lookups):
        return None
    wanted = {*signature.common, *signature.varying}
    position = 0
    for template in templates:  # type: ignore[attr-defined]
        holes = template.count("?")
        places = range(position, position + holes)
        position += holes
        literal = _fill(template, [constants[p] for p in places])
        if literal in wanted:
            wanted.remove(literal)
            continue
        match = next((v for v in wanted if _same(v, template, places, constants)), None)
        if match is None:
            return None
        wanted.remove(match)
    return constants if not wanted else None


def _same(varying: str, template: str, places: range, constants: Constants) -> bool:
    filled = _fill(template, [f"{{{p}}}" if f"{{{p}}}" in varying else constants[p] for p in places])
    return filled == varying


def _fill(template: str, values: Sequence[str]) -> str:
    parts = template.split("?")
    return parts[0] + "".join(value + part for value, part in zip(values, parts[1:], strict=True))


def _equality(varying: str) -> Probe | None:
    left, _, right = varying.partition(" = {")
    if right and right.endswith("}") and right[:-1].isdigit() and "{" not in left:
        return Probe(left, (int(right[:-1]),))
    left, _, right = varying.partition(" IN ({")
    if right and right.endswith("})") and right[:-2].isdigit() and "{" not in left:
        return Probe(left, (int(right[:-2]),))
    return None


def _range(varying: Sequence[str], members: Sequence[Constants]) -> Probe | None:
    """A two-sided numeric range over one expression, from BETWEEN or a pair of comparisons."""
    lows: dict[str, int] = {}
    highs: dict[str, int] = {}
    for predicate in varying:
        left, _, right = predicate.partition(" BETWEEN {")
        if right and "{" not in left:
            low, _, high = right.partition("} AND {")
            if low.isdigit() and high.rstrip("}").isdigit():
                lows[left], highs[left] = int(low), int(high.rstrip("}"))
        for operator, side in ((" >= {", lows), (" > {", lows), (" <= {", highs), (" < {", highs)):
            left, _, right = predicate.partition(operator)
            if right.endswith("}") and right[:-1].isdigit() and "{" not in left:
                side.setdefault(left, int(right[:-1]))
    for expression in lows:
        if expression in highs:
            probe = Probe(expression, (lows[expression], highs[expression]))
            if all(_number(m[p]) is not None for m in members for p in probe.constants):
                return probe
    return None


def _number(literal: str) -> float | None:
    try:
        return float(literal)
    except ValueError:
        return None


def probe_rows(
    signature: Signature, members: Mapping[int, Constants]
) -> dict[float | None, list[tuple[int, int | None, Constants]]]:
    """The constants table by grid width (None for equalities): rows of (member, cell, constants).

    A range lies in at most two cells of the grid it is put on, whose width is the smallest power of
    four not below its length.

    >>> s = Signature("p", (), (), ("x >= {0}", "x < {1}"), (), Probe("x", (0, 1)))
    >>> probe_rows(s, {7: ("10", "13")})
    {4.0: [(7, 2, ('10', '13')), (7, 3, ('10', '13'))]}
    """
    rows: dict[float | None, list[tuple[int, int | None, Constants]]] = {}
    for member, constants in members.items():
        if signature.range is None:
            rows.setdefault(None, []).append((member, None, constants))
            continue
        low, high = (_number(constants[p]) for p in signature.range.constants)
        assert low is not None and high is not None
        if high < low:
            continue
        width = 4.0 ** math.ceil(math.log(max(high - low, 1e-12), 4))
        for cell in range(math.floor(low / width), math.floor(high / width) + 1):
            rows.setdefault(width, []).append((member, cell, constants))
    return rows
