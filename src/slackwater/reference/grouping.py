"""An aggregating SELECT: rows into groups, and each group into a row of results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from slackwater.errors import LanguageError
from slackwater.language.aggregates import UserAggregate
from slackwater.reference.aggregates import aggregate, is_aggregate
from slackwater.reference.expressions import Environment, Functions, call_names, holds, interpret
from slackwater.reference.history import is_history
from slackwater.reference.relations import Event, Field, Relation, place
from slackwater.reference.values import Value, identity, sort_key
from slackwater.reference.windows import read_windows

Key = tuple[Value, ...]
"""What the rows of a group share."""


@dataclass(frozen=True)
class Registry:
    """What users have brought: functions and aggregates, by name in lower case."""

    functions: Functions
    aggregates: Mapping[str, UserAggregate]

    def is_aggregate(self, node: exp.Expr) -> bool:
        """Whether a node is an aggregate, or an extreme that one has had.

        A user's function hides what is built in under its name.
        """
        if any(name in self.functions for name in call_names(node)):
            return False
        return is_history(node) or is_aggregate(node, self.aggregates)

    def is_history(self, node: exp.Expr) -> bool:
        """Whether a node is an extreme that an aggregate has had, over earlier ticks."""
        return self.is_aggregate(node) and is_history(node)

    def aggregates_in(self, node: exp.Expr) -> bool:
        return any(self.is_aggregate(inner) for inner in node.walk())

    def row_environment(self, fields: Sequence[Field], values: Sequence[Value]) -> Environment:
        """Where an expression over one row is evaluated."""
        return Environment(
            lambda column: values[place(fields, column)], self.functions, None, self.is_aggregate
        )


@dataclass(frozen=True)
class Result:
    """One group: its keys, its aggregates and all its items, by output name."""

    keys: tuple[tuple[str, Value], ...]
    columns: tuple[tuple[str, Value], ...]
    items: tuple[tuple[str, Value], ...]


def in_order(results: Iterable[Result]) -> list[Result]:
    """Results by the values of their keys."""
    return sorted(results, key=lambda result: [sort_key(value) for _, value in result.keys])


def output_name(item: exp.Expr) -> str:
    """The name of a selected item: its alias, or its column's name, or its SQL."""
    return str(item.alias or (item.name if isinstance(item, exp.Column) else item.sql("spark")))


class Grouping:
    """A SELECT with aggregates over a relation; what is computed over are groups of any of its rows."""

    def __init__(self, select: exp.Select, relation: Relation, registry: Registry) -> None:
        self.relation = relation
        self.registry = registry
        group = select.args.get("group") or exp.Group(expressions=[])
        if any(value for name, value in group.args.items() if name != "expressions"):
            raise LanguageError(f"expected plain expressions in {group.sql('spark').strip()}")
        aliases = {item.alias.lower(): item.unalias() for item in select.expressions if item.alias}
        nodes = [node for node in group.expressions if read_windows(node, relation) is None]
        self.keys = [self._key(node, aliases) for node in nodes]
        self.canonical_keys = [self._canonical(key) for key in self.keys]
        self.items = [item for item in select.expressions if not self.is_window(item.unalias())]
        canonical = [self._canonical(item.unalias()) for item in self.items]
        self.selected = [canonical.index(key) if key in canonical else None for key in self.canonical_keys]
        """For each key the first item that selects it."""
        self.computed = [i for i, item in enumerate(self.items) if registry.aggregates_in(item)]
        """The items with an aggregate: each is a column of answers."""
        having = select.args.get("having")
        self.having: exp.Expr | None = None if having is None else self._with_items(having.this.copy())
        for item in self.items:
            self.check(item.unalias())
        if self.having is not None:
            self.check(self.having)

    def is_window(self, node: exp.Expr) -> bool:
        """Whether a node is the window of the groups, its start or its end; here they have none."""
        return False

    def groups(self, rows: Iterable[Event]) -> dict[Key, list[Event]]:
        """The rows of each group, in order of event time and arrival."""
        found: dict[Key, list[Event]] = {}
        for row in sorted(rows, key=lambda row: (row.time, row.arrival)):
            env = self.registry.row_environment(self.relation.fields, row.values)
            found.setdefault(tuple(identity(interpret(key, env)) for key in self.keys), []).append(row)
        return found

    def environment(self, rows: Sequence[Event]) -> Environment:
        """Where an expression over a group is evaluated."""

        def value_of(node: exp.Expr, row: Event) -> Value:
            return interpret(node, self.registry.row_environment(self.relation.fields, row.values))

        return Environment(
            # Equal in all keys, so that any row stands for the group where no aggregate is asked.
            lambda node: rows[0].values[place(self.relation.fields, node)],
            self.registry.functions,
            lambda node: aggregate(node, rows, value_of, self.registry.aggregates),
            self.registry.is_aggregate,
        )

    def result(self, env: Environment) -> Result | None:
        """What the SELECT makes of a group; None where HAVING does not let it pass."""
        items = [(output_name(item), interpret(item.unalias(), env)) for item in self.items]
        if self.having is not None and not holds(self.having, env):
            return None
        keys = [
            (output_name(key), interpret(key, env)) if selected is None else items[selected]
            for key, selected in zip(self.keys, self.selected, strict=True)
        ]
        rest = [i for i in range(len(items)) if i not in self.computed and i not in self.selected]
        keys += [items[i] for i in rest]
        columns = [items[i] for i in self.computed] or [("*", None)]
        return Result(tuple(keys), tuple(columns), tuple(items))

    def _key(self, node: exp.Expr, aliases: Mapping[str, exp.Expr]) -> exp.Expr:
        """A key as an expression over columns: a name that no column has may be an item's alias."""
        if isinstance(node, exp.Literal):
            raise LanguageError(f"GROUP BY {node.sql('spark')} is a position: name the expression")
        name = node.name.lower() if isinstance(node, exp.Column) and not node.table else ""
        key = aliases[name] if name in aliases and not self.has(name) else node
        if self.registry.aggregates_in(key):
            raise LanguageError(f"the key {node.sql('spark')} is an aggregate")
        return key

    def has(self, name: str) -> bool:
        """Whether the relation has a column of a name in lower case."""
        return any(field.name.lower() == name for field in self.relation.fields)

    def _with_items(self, node: exp.Expr) -> exp.Expr:
        """HAVING with the items in place of their names, where no key is the column of that name."""
        if self.registry.is_aggregate(node) and not self.registry.is_history(node):
            return node  # inside an aggregate names are those of the rows
        if isinstance(node, exp.Column):
            named = {output_name(item).lower(): item.unalias() for item in self.items}
            item = None if node.table else named.get(node.name.lower())
            if item is None or self._canonical(node) in self.canonical_keys:
                return node
            return exp.Paren(this=item.copy())
        for child in list(node.iter_expressions()):
            child.replace(self._with_items(child))
        return node

    def _canonical(self, node: exp.Expr) -> exp.Expr:
        """An expression in a form that is equal just when it means the same columns."""
        rename: Callable[[exp.Expr], exp.Expr] = self._canonical_node
        return node.copy().transform(rename)

    def _canonical_node(self, node: exp.Expr) -> exp.Expr:
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Column) and not self.is_window(node):
            try:
                return exp.Parameter(this=exp.Literal.number(place(self.relation.fields, node)))
            except LanguageError:
                # Not a column of the rows: HAVING may mean an item, anything else fails when evaluated.
                return node
        return node

    def check(self, node: exp.Expr) -> None:
        """Refuse a column that is neither a key nor in an aggregate."""
        if isinstance(node, exp.Star):
            raise LanguageError("* cannot be selected beside GROUP BY or an aggregate")
        if self.registry.is_aggregate(node):
            if self.registry.is_history(node):
                self.check_history(node)
            return
        if isinstance(node, exp.Column):
            if self.is_window(node):
                return
            place(self.relation.fields, node)
            if self._canonical(node) not in self.canonical_keys:
                raise LanguageError(f"{node.sql('spark')} is neither in GROUP BY nor in an aggregate")
            return
        if self._canonical(node) in self.canonical_keys:
            return
        for child in node.iter_expressions():
            self.check(child)

    def check_history(self, node: exp.Expr) -> None:
        """Refuse an extreme over ticks: groups of windows have none."""
        raise LanguageError(f"{node.sql('spark')} goes over current values: read FROM LATEST(stream)")
