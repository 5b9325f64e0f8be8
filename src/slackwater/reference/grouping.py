"""The windowed step: rows into windows, windows into groups, groups into rows of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from slackwater.errors import LanguageError
from slackwater.language.aggregates import UserAggregate
from slackwater.reference.aggregates import aggregate, is_aggregate
from slackwater.reference.expressions import Environment, Functions, call_names, holds, interpret
from slackwater.reference.relations import Event, Field, Relation, place
from slackwater.reference.values import Value, from_micros, identity, sort_key
from slackwater.reference.windows import Window, Windows, read_windows


@dataclass(frozen=True)
class Registry:
    """What users have brought: functions and aggregates, by name in lower case."""

    functions: Functions
    aggregates: Mapping[str, UserAggregate]

    def is_aggregate(self, node: exp.Expr) -> bool:
        """Whether a node is an aggregate; a user's function hides a built-in aggregate of its name."""
        if any(name in self.functions for name in call_names(node)):
            return False
        return is_aggregate(node, self.aggregates)

    def aggregates_in(self, node: exp.Expr) -> bool:
        return any(self.is_aggregate(inner) for inner in node.walk())

    def row_environment(self, fields: Sequence[Field], values: Sequence[Value]) -> Environment:
        """Where an expression over one row is evaluated."""
        return Environment(
            lambda column: values[place(fields, column)], self.functions, None, self.is_aggregate
        )


@dataclass(frozen=True)
class Result:
    """One group of one window: its keys, its aggregates and all its items, by output name."""

    window: Window
    time: int
    keys: tuple[tuple[str, Value], ...]
    columns: tuple[tuple[str, Value], ...]
    items: tuple[tuple[str, Value], ...]


def output_name(item: exp.Expr) -> str:
    """The name of a selected item: its alias, or its column's name, or its SQL."""
    return str(item.alias or (item.name if isinstance(item, exp.Column) else item.sql("spark")))


class Grouping:
    """A SELECT with GROUP BY over a relation."""

    def __init__(self, select: exp.Select, relation: Relation, registry: Registry) -> None:
        self.relation = relation
        self.registry = registry
        group = select.args["group"]
        if any(value for name, value in group.args.items() if name != "expressions"):
            raise LanguageError(f"expected plain expressions in {group.sql('spark').strip()}")
        found = [(node, read_windows(node, relation)) for node in group.expressions]
        windows = [window for _, window in found if window is not None]
        if len(windows) != 1:
            raise LanguageError(
                f"expected one window(…) or tuples(…) in {group.sql('spark').strip()}, found {len(windows)}"
            )
        self.windows: Windows = windows[0]
        aliases = {item.alias.lower(): item.unalias() for item in select.expressions if item.alias}
        self.keys = [self._key(node, aliases) for node, window in found if window is None]
        self.canonical_keys = [self._canonical(key) for key in self.keys]
        self.items = [item for item in select.expressions if not self._is_window(item.unalias())]
        canonical = [self._canonical(item.unalias()) for item in self.items]
        self.selected = [canonical.index(key) if key in canonical else None for key in self.canonical_keys]
        """For each key the first item that selects it."""
        self.computed = [i for i, item in enumerate(self.items) if registry.aggregates_in(item)]
        """The items with an aggregate: each is a column of answers."""
        self.having: exp.Expr | None = select.args["having"].this if select.args.get("having") else None
        for item in self.items:
            self._check(item.unalias(), ())
        if self.having is not None:
            self._check(self.having, [output_name(item).lower() for item in self.items])

    def results(self) -> Iterator[Result]:
        """One result per group, by window and then keys."""
        for window in self.windows.closed(self.relation.rows, self.relation.watermark):
            groups: dict[tuple[Value, ...], list[Event]] = {}
            for row in window.rows:
                env = self.registry.row_environment(self.relation.fields, row.values)
                key = tuple(identity(interpret(key, env)) for key in self.keys)
                groups.setdefault(key, []).append(row)
            found = [result for rows in groups.values() if (result := self._result(window, rows))]
            yield from sorted(found, key=lambda result: [sort_key(value) for _, value in result.keys])

    def _result(self, window: Window, rows: list[Event]) -> Result | None:
        # Equal in all keys, so that any row stands for the group where no aggregate is asked.
        env = self._group_environment(window, sorted(rows, key=lambda row: row.time))
        items = [(output_name(item), interpret(item.unalias(), env)) for item in self.items]
        if self.having is not None and not holds(self.having, self._having_environment(env, dict(items))):
            return None
        keys = [
            (output_name(key), interpret(key, env)) if selected is None else items[selected]
            for key, selected in zip(self.keys, self.selected, strict=True)
        ]
        rest = [i for i in range(len(items)) if i not in self.computed and i not in self.selected]
        keys += [items[i] for i in rest]
        columns = [items[i] for i in self.computed] or [("*", None)]
        return Result(window, self.windows.time_of(window), tuple(keys), tuple(columns), tuple(items))

    def _group_environment(self, window: Window, rows: Sequence[Event]) -> Environment:
        def value_of(node: exp.Expr, row: Event) -> Value:
            return interpret(node, self.registry.row_environment(self.relation.fields, row.values))

        def column(node: exp.Column) -> Value:
            if self._is_window(node):
                if node.name.lower() == "window":
                    raise LanguageError(
                        "a window as a whole can only be selected: use window.start or window.end"
                    )
                return from_micros(window.start if node.name.lower() == "start" else window.end)
            return rows[0].values[place(self.relation.fields, node)]

        return Environment(
            column,
            self.registry.functions,
            lambda node: aggregate(node, rows, value_of, self.registry.aggregates),
            self.registry.is_aggregate,
        )

    def _having_environment(self, env: Environment, items: Mapping[str, Value]) -> Environment:
        """HAVING sees the selected items by name, where no key is the column of that name."""
        named = {name.lower(): value for name, value in items.items()}

        def column(node: exp.Column) -> Value:
            is_key = self._canonical(node) in self.canonical_keys
            if not is_key and not node.table and node.name.lower() in named:
                return named[node.name.lower()]
            return env.column(node)

        return Environment(column, env.functions, env.aggregate, env.is_aggregate)

    def _key(self, node: exp.Expr, aliases: Mapping[str, exp.Expr]) -> exp.Expr:
        """A key as an expression over columns: a name that no column has may be an item's alias."""
        if isinstance(node, exp.Literal):
            raise LanguageError(f"GROUP BY {node.sql('spark')} is a position: name the expression")
        if self.registry.aggregates_in(node):
            raise LanguageError(f"the key {node.sql('spark')} is an aggregate")
        name = node.name.lower() if isinstance(node, exp.Column) and not node.table else ""
        return aliases[name] if name in aliases and not self._has(name) else node

    def _is_window(self, node: exp.Expr) -> bool:
        """Whether a node is the step's window, its start or its end."""
        if isinstance(node, exp.Dot):
            return node.name.lower() in ("start", "end") and self._is_window(node.this)
        if isinstance(node, exp.Column):
            if node.table.lower() == "window":
                return node.name.lower() in ("start", "end")
            return not node.table and node.name.lower() == "window" and not self._has("window")
        return read_windows(node, self.relation) is not None

    def _has(self, name: str) -> bool:
        return any(field.name.lower() == name for field in self.relation.fields)

    def _canonical(self, node: exp.Expr) -> exp.Expr:
        """An expression in a form that is equal just when it means the same columns."""
        rename: Callable[[exp.Expr], exp.Expr] = self._canonical_node
        return node.copy().transform(rename)

    def _canonical_node(self, node: exp.Expr) -> exp.Expr:
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Column) and not self._is_window(node):
            try:
                return exp.Parameter(this=exp.Literal.number(place(self.relation.fields, node)))
            except LanguageError:
                # Not a column of the rows: HAVING may mean an item, anything else fails when evaluated.
                return node
        return node

    def _check(self, node: exp.Expr, known: Sequence[str]) -> None:
        """Refuse a column that is neither a key, nor in an aggregate, nor among the known names."""
        if isinstance(node, exp.Star):
            raise LanguageError("* cannot be selected beside GROUP BY")
        if self.registry.is_aggregate(node):
            return
        if isinstance(node, exp.Column):
            if self._is_window(node) or (not node.table and node.name.lower() in known):
                return
            place(self.relation.fields, node)
            if self._canonical(node) not in self.canonical_keys:
                raise LanguageError(f"{node.sql('spark')} is neither in GROUP BY nor in an aggregate")
            return
        if self._canonical(node) in self.canonical_keys:
            return
        for child in node.iter_expressions():
            self._check(child, known)
