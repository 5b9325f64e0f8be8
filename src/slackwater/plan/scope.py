"""What the names in a SELECT stand for: columns of the source and of its lookups."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from slackwater.errors import LanguageError, Position
from slackwater.language.dialect import SparkText
from slackwater.language.statements import Source
from slackwater.language.tokens import position_at
from slackwater.plan.model import Lookup, Path

_LOOSE = (exp.Binary, exp.Unary, exp.Between, exp.In, exp.Is, exp.Lambda)


def digest(*parts: object, length: int = 6) -> str:
    """A short stable name for a structure."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:length]


def safe_name(name: str) -> str:
    """A name that may stand in a path or be a view's, whatever was between its back quotes.

    >>> safe_name("Sites"), safe_name("my-table")
    ('sites', 'my_table_35fc66')
    """
    plain = re.sub(r"\W", "_", name.lower(), flags=re.ASCII)
    return plain if plain == name.lower() else f"{plain}_{digest(name)}"


def source_column(name: str) -> exp.Column:
    """Column ``name`` of the source a statement scans, in canonical form."""
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier("s"))


def canonical(node: exp.Expr) -> str:
    """The one text form of an expression whose columns are resolved."""
    return node.sql(dialect=SparkText, normalize_functions="lower", comments=False)


def position_of(node: exp.Expr, source: Source) -> Position | None:
    """Where a node stands in the text, as far as the parser kept it."""
    for candidate in node.walk():
        start = candidate.meta.get("start")
        if start is not None:
            return position_at(source.text, int(start))
    return None


@dataclass(frozen=True)
class Scope:
    """The names a SELECT may use. Values are trees in canonical form."""

    source: Source = field(repr=False)
    stream: str
    time: str
    path: Path
    columns: Mapping[str, exp.Expr]
    """Columns of the source by name as declared, in order."""
    aliases: Mapping[str, Mapping[str, exp.Expr]]
    """Columns by the lower-case alias that may qualify them."""
    nested: bool = False
    """The source is the output of a windowed step."""
    current: bool = False

    def error(self, message: str, node: exp.Expr | None = None, hint: str = "") -> LanguageError:
        at = position_of(node, self.source) if node is not None else None
        return self.source.error(message, at=at, hint=hint)

    def with_lookup(
        self, lookup: Lookup, alias: str, columns: tuple[str, ...], merged: frozenset[str]
    ) -> Scope:
        """The scope after a join; ``merged`` columns (USING) keep meaning the source's."""
        found = {
            name: exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(lookup.alias))
            for name in columns
        }
        path = Path(self.path.source, (*self.path.lookups, lookup), self.path.predicates)
        merged_names = {name.lower() for name in merged}
        named = {n: c for n, c in found.items() if n.lower() not in merged_names}
        return Scope(
            self.source,
            self.stream,
            self.time,
            path,
            {**{n: c for n, c in named.items() if n not in self.columns}, **self.columns},
            {**self.aliases, alias.lower(): found, "\0" + alias.lower(): named},
            self.nested,
            self.current,
        )

    def resolve(self, root: exp.Expr) -> exp.Expr:
        """A copy of a tree with every column in canonical form; raises where a name means nothing."""
        return root.copy().transform(
            lambda n: self._column(n) if isinstance(n, exp.Column) and not _is_unit(n) else n
        )

    def sql(self, root: exp.Expr) -> str:
        return canonical(self.resolve(root))

    def _column(self, column: exp.Column) -> exp.Expr:
        parts = [part.name for part in column.parts]
        if len(parts) > 1 and parts[0].lower() in self.aliases:
            return _dot(self._find(parts[1], self.aliases[parts[0].lower()], parts[0], column), parts[2:])
        sources = " or ".join([self.path.source, *(lookup.table for lookup in self.path.lookups)])
        return _dot(self._find(parts[0], self._unqualified(parts[0], column), sources, column), parts[1:])

    def _unqualified(self, name: str, column: exp.Column) -> Mapping[str, exp.Expr]:
        """All columns by plain name, after a check that the name is not to be had twice."""
        holders = [
            alias.lstrip("\0")
            for alias, columns in self.aliases.items()
            if (alias.startswith("\0") or "\0" + alias not in self.aliases)
            and any(c.lower() == name.lower() for c in columns)
        ]
        if len(holders) > 1:
            raise self.error(
                f"column {name} is in {' and in '.join(holders)}",
                column,
                hint=f"say which: {holders[0]}.{name}",
            )
        return self.columns

    def _find(self, name: str, columns: Mapping[str, exp.Expr], sources: str, at: exp.Column) -> exp.Expr:
        for known, expression in columns.items():
            if known.lower() == name.lower():
                found = expression.copy()
                # A view's expression takes the place of its name inside a larger one.
                return exp.Paren(this=found) if isinstance(found, _LOOSE) else found
        near = difflib.get_close_matches(name, list(columns), n=1)
        known_names = ", ".join(columns)
        hint = f"did you mean {near[0]}?" if near else f"there are {known_names}"
        raise self.error(f"no column {name} in {sources}", at, hint=hint)


_UNITS = frozenset(
    "microsecond millisecond second minute hour day dayofyear week month quarter year".split()  # noqa: SIM905
)
_TAKE_UNITS = ("timestampadd", "timestampdiff", "dateadd", "datediff", "date_add", "date_diff")


def _is_unit(column: exp.Column) -> bool:
    """Whether a name is the unit of ``timestampadd(HOUR, 1, ts)`` and its like, and no column."""
    call = column.parent
    return (
        isinstance(call, exp.Anonymous)
        and str(call.this).lower() in _TAKE_UNITS
        and len(call.expressions) == 3
        and call.expressions[0] is column
        and column.name.lower() in _UNITS
    )


def item_name(item: exp.Expr) -> str:
    """What a SELECT item is called: its alias, its column, else its text."""
    bare = item.unalias()
    named = item.alias or (bare.name if isinstance(bare, exp.Column | exp.Dot) else "")
    return named or str(bare.sql(SparkText, comments=False))


def _dot(root: exp.Expr, rest: list[str]) -> exp.Expr:
    for name in rest:
        root = exp.Dot(this=root, expression=exp.to_identifier(name, quoted=True))
    return root
