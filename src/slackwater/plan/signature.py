"""Queries that differ only in constants: one signature, its constants a table (NiagaraCQ's idea).

A row finds its matching queries by one hash join: on the constants of equalities, or, for ranges,
on cells of a grid as coarse as the range is long, so that a range covers at most two cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp, parse_one

from slackwater.language.dialect import SparkText
from slackwater.plan.model import Lookup, Path
from slackwater.plan.scope import canonical, digest

_COMPARISONS = (
    exp.EQ,
    exp.NEQ,
    exp.NullSafeEQ,
    exp.GT,
    exp.GTE,
    exp.LT,
    exp.LTE,
    exp.Between,
    exp.In,
    exp.Like,
)

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
        """The varying predicates that a match of the probe leaves to be tested.

        An IN list is tested again: Spark compares its values as strings where one side is a string, and
        the join casts the string.
        """
        probes = {f"{p.expression} = {{{p.constants[0]}}}" for p in self.equalities}
        return tuple(v for v in self.varying if v not in probes)


def values_listed(constant: str) -> list[str]:
    """The values of a constant: several where it is an IN list.

    >>> values_listed("'a, b', 'c'"), values_listed("80")
    (["'a, b'", "'c'"], ['80'])
    """
    if ", " not in constant:
        return [constant]
    values = parse_one(f"x IN ({constant})", dialect=SparkText).expressions
    return [canonical(value) for value in values]


def member_id(constants: Constants) -> int:
    """A stable 63-bit name for a member: equal constants are the same member."""
    return int(digest(constants, length=15), 16)


@lru_cache(maxsize=100_000)
def shape(path: Path) -> tuple[tuple[object, ...], Constants]:
    """A path with its constants taken out, and the constants.

    >>> shape(Path("p", (), ("s.`dport` = 80", "s.`size` > 5")))[1]
    ('80', '5')
    """
    if not can_vary(path):
        return (path.source, path.lookups, path.predicates), ()
    templates = []
    constants: list[str] = []
    for predicate in path.predicates:
        template, found = _holes(predicate)
        templates.append(template)
        constants += found
    return (path.source, path.lookups, tuple(templates)), tuple(constants)


def can_vary(path: Path) -> bool:
    """Whether constants can be told from the text: not where it holds what stands for them."""
    return not any(mark in predicate for predicate in path.predicates for mark in "?{}")


def kinds(constants: Constants) -> tuple[bool, ...]:
    """Which constants are strings: a number and a string are compared in different ways."""
    return tuple(constant.startswith("'") for constant in constants)


def _holes(predicate: str) -> tuple[str, list[str]]:
    tree = parse_one(predicate, dialect=SparkText)
    found: list[str] = []
    if (
        isinstance(tree, exp.In)
        and tree.expressions
        and all(isinstance(e, exp.Literal) for e in tree.expressions)
    ):
        values = sorted({canonical(e) for e in tree.expressions})
        return f"{canonical(tree.this)} IN (?)", [", ".join(values)]

    def hole(node: exp.Expr) -> exp.Expr:
        negative = isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal)
        if (negative or isinstance(node, exp.Literal)) and _compared(node):
            found.append(canonical(node))
            return exp.Placeholder()
        return node

    return canonical(tree.transform(hole)), found


def _compared(node: exp.Expr) -> bool:
    """Whether a literal is a side of a comparison: elsewhere (a type, an INTERVAL, an argument that
    Spark wants constant) a column cannot take its place.
    """
    parent = node.parent
    while isinstance(parent, exp.Paren | exp.Cast) and parent.this is node:
        node, parent = parent, parent.parent
    return isinstance(parent, _COMPARISONS)


def signature_of(key: tuple[object, ...], members: Sequence[Constants]) -> Signature | None:
    """The signature of paths of one shape, None where no hash join finds the matches.

    ``members`` are at least two different sets of constants.
    """
    source, lookups, templates = key
    assert isinstance(source, str)
    assert isinstance(lookups, tuple)
    assert isinstance(templates, tuple)
    varies = [len(set(values)) > 1 for values in zip(*members, strict=True)]
    common: list[str] = []
    varying: list[str] = []
    equalities: list[Probe] = []
    lows: dict[str, int] = {}
    highs: dict[str, int] = {}
    position = 0
    for template in templates:
        holes = template.count("?")
        places = range(position, position + holes)
        position += holes
        kept = [None if varies[p] else members[0][p] for p in places]
        filled = _fill(
            template, [k if k is not None else f"{{{p}}}" for k, p in zip(kept, places, strict=True)]
        )
        (varying if any(k is None for k in kept) else common).append(filled)
        if kept and all(k is None for k in kept):
            _probes(template, places, equalities, lows, highs)
    range_ = None if equalities else _range(lows, highs, members)
    if not equalities and range_ is None:
        return None
    return Signature(source, lookups, tuple(common), tuple(varying), tuple(equalities), range_)


def matches(signature: Signature, path: Path) -> Constants | None:
    """The constants with which a path is a member of a signature, None where it is none."""
    if not can_vary(path):
        return None
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
    if wanted or (signature.range is not None and not _numeric(signature.range, [constants])):
        return None
    return constants


def _same(varying: str, template: str, places: range, constants: Constants) -> bool:
    filled = _fill(template, [f"{{{p}}}" if f"{{{p}}}" in varying else constants[p] for p in places])
    return filled == varying


def _fill(template: str, values: Sequence[str]) -> str:
    parts = template.split("?")
    return parts[0] + "".join(value + part for value, part in zip(values, parts[1:], strict=True))


def _probes(
    template: str, places: range, equalities: list[Probe], lows: dict[str, int], highs: dict[str, int]
) -> None:
    """Note what a predicate, all of whose constants vary, gives a probe: an equality or a bound."""
    tree = parse_one(template, dialect=SparkText)
    if not isinstance(tree, _COMPARISONS) or tree.this.find(exp.Placeholder) is not None:
        return
    # the text itself, since it must be found again in the predicate
    expression = template.removesuffix(" BETWEEN ? AND ?").removesuffix(" IN (?)")
    if isinstance(tree, exp.Between) and expression != template and len(places) == 2:
        lows[expression], highs[expression] = places
    elif isinstance(tree, exp.In) and expression != template and len(places) == 1:
        equalities.append(Probe(expression, (places[0],)))
    elif isinstance(tree, exp.EQ) and template.endswith(" = ?") and len(places) == 1:
        equalities.append(Probe(template.removesuffix(" = ?"), (places[0],)))
    for kind, sign, side in (
        (exp.GT, ">", lows),
        (exp.GTE, ">=", lows),
        (exp.LT, "<", highs),
        (exp.LTE, "<=", highs),
    ):
        if isinstance(tree, kind) and template.endswith(f" {sign} ?") and len(places) == 1:
            side.setdefault(template.removesuffix(f" {sign} ?"), places[0])


def _range(lows: Mapping[str, int], highs: Mapping[str, int], members: Sequence[Constants]) -> Probe | None:
    """A two-sided numeric range over one expression, from BETWEEN or a pair of comparisons."""
    for expression, low in lows.items():
        if expression in highs:
            probe = Probe(expression, (low, highs[expression]))
            if _numeric(probe, members):
                return probe
    return None


def _numeric(probe: Probe, members: Sequence[Constants]) -> bool:
    return all(_number(m[p]) is not None for m in members for p in probe.constants)


def _number(literal: str) -> float | None:
    try:
        number = float(literal)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def probe_rows(
    signature: Signature, members: Mapping[int, Constants]
) -> dict[float | None, list[tuple[int, int | None, Constants]]]:
    """The constants table by grid width (None for equalities): rows of (member, cell, constants).

    A range lies in at most two cells of the grid it is put on, whose width is the smallest power of
    four not below its length, or the next one where other ranges need that: a grid costs a pass over the
    rows, a coarser one only some matches more to be tested.

    >>> s = Signature("p", (), (), ("x >= {0}", "x < {1}"), (), Probe("x", (0, 1)))
    >>> probe_rows(s, {7: ("10", "13")})
    {4.0: [(7, 2, ('10', '13')), (7, 3, ('10', '13'))]}
    """
    if signature.range is None:
        return {None: [(member, None, constants) for member, constants in members.items()]}
    placed: list[tuple[int, int, Constants, float, float]] = []
    for member, constants in members.items():
        low, high = (_number(constants[p]) for p in signature.range.constants)
        assert low is not None
        assert high is not None
        if high >= low:
            # not so fine that the number of a cell would outgrow 64 bits
            finest = max(abs(low), abs(high), 1.0) / 2**50
            placed.append((math.ceil(math.log(max(high - low, finest), 4)), member, constants, low, high))
    grids = _grids({power for power, *_ in placed})
    rows: dict[float | None, list[tuple[int, int | None, Constants]]] = {}
    for power, member, constants, low, high in placed:
        width = 4.0 ** grids[power]
        for cell in range(math.floor(low / width), math.floor(high / width) + 1):
            rows.setdefault(width, []).append((member, cell, constants))
    return rows


def _grids(powers: set[int]) -> dict[int, int]:
    """Where grids of neighbouring widths are wanted, the coarser one serves both.

    >>> _grids({1, 2, 3, 7})
    {7: 7, 3: 3, 2: 3, 1: 1}
    """
    grids: dict[int, int] = {}
    for power in sorted(powers, reverse=True):
        coarser = grids.get(power + 1)
        grids[power] = power + 1 if coarser == power + 1 else power
    return grids
