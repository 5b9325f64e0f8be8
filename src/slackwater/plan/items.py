"""The items of an aggregating SELECT: window, keys, calls and what is made of them."""

from __future__ import annotations

from sqlglot import exp

from slackwater.language.dialect import SparkText
from slackwater.language.durations import parse_duration
from slackwater.plan.calls import UnsupportedAggregate, extract, is_aggregate, raw_call, written_name
from slackwater.plan.functions import Functions
from slackwater.plan.model import Call, Key, Move, Output, Step, TimeWindow, TupleWindow, Window
from slackwater.plan.moves import take_moves
from slackwater.plan.scope import Scope, canonical, item_name, source_column


def aggregate_step(select: exp.Select, name: str, scope: Scope, functions: Functions) -> Step:
    """The step of a SELECT with GROUP BY or aggregates."""
    builder = _Builder(select, scope, functions)
    outputs = tuple(builder.output(item) for item in select.expressions if not _is_window_item(item))
    seen: set[str] = set()
    for output in outputs:
        if output.name.lower() in seen:
            raise scope.error(f"two columns are called {output.name}", hint="name one of them with AS")
        seen.add(output.name.lower())
    having = select.args.get("having")
    having_sql = builder.over_calls(builder.unaliased(having.this)) if having is not None else None
    return Step(
        name,
        scope.stream,
        scope.time,
        scope.path,
        builder.window,
        builder.keys,
        tuple(builder.calls),
        outputs,
        having_sql,
        scope.current,
        moves=tuple(builder.moves),
    )


def _is_window_item(item: exp.Expr) -> bool:
    bare = item.unalias()
    if isinstance(bare, exp.Anonymous) and str(bare.this).lower() in ("window", "tuples"):
        return True
    if not isinstance(bare, exp.Column) or item.alias:
        return False
    return [p.name.lower() for p in bare.parts] in (["window"], ["window", "start"], ["window", "end"])


class _Builder:
    """Collects window, keys and calls while the items are read."""

    def __init__(self, select: exp.Select, scope: Scope, functions: Functions) -> None:
        self.scope = scope
        self.functions = functions
        self.window: Window | None = None
        self.calls: list[Call] = []
        self.moves: list[Move] = []
        self._items: dict[str, exp.Expr] = {
            i.alias.lower(): i.unalias() for i in select.expressions if i.alias
        }
        self._selected = list(select.expressions)
        self._names = {
            canonical_or_none(scope, i.unalias(), functions): item_name(i) for i in select.expressions
        }
        keys: list[Key] = []
        group = select.args.get("group")
        for node in group.expressions if group is not None else ():
            self._group(node, keys)
        if group is not None and (
            group.args.get("all") or any(group.args.get(k) for k in ("cube", "rollup", "grouping_sets"))
        ):
            raise scope.error(
                "GROUP BY takes a window and expressions", group, hint="GROUP BY window(ts, '1 minute'), host"
            )
        self.keys = tuple(keys)
        self._key_index = {key.sql: index for index, key in enumerate(keys)}
        if self.window is None and not scope.current:
            raise scope.error(
                "an aggregate over a stream needs a window",
                group,
                hint=f"add GROUP BY window({scope.time}, '1 minute') or tuples(1000), or read LATEST(stream)",
            )
        if scope.current and self.window is not None:
            raise scope.error(
                "LATEST(…) holds one row per key and takes no window", group, hint="leave window() out"
            )

    def _group(self, node: exp.Expr, keys: list[Key]) -> None:
        node = self._unaliased(node)
        if isinstance(node, exp.Anonymous) and str(node.this).lower() in ("window", "tuples"):
            if self.window is not None:
                raise self.scope.error("a query has one window, found a second", node)
            make = self._time_window if str(node.this).lower() == "window" else self._tuple_window
            try:
                self.window = make(node)
            except ValueError as error:
                raise self.scope.error(str(error), node) from None
            return
        if any(is_aggregate(n, self.functions) for n in node.walk()):
            raise self.scope.error("an aggregate cannot be a group key", node)
        text = self.scope.sql(node)
        label = self._names.get(text) or (node.name if isinstance(node, exp.Column) else node.sql(SparkText))
        if text not in (k.sql for k in keys):
            keys.append(Key(label, text))

    def _unaliased(self, node: exp.Expr) -> exp.Expr:
        """GROUP BY may name a select item by its alias or its number, as in Spark."""
        if isinstance(node, exp.Literal) and node.is_int:
            index = int(node.this)
            if not 1 <= index <= len(self._selected):
                raise self.scope.error(f"GROUP BY {index}: there are {len(self._selected)} items", node)
            numbered: exp.Expr = self._selected[index - 1].unalias()
            return numbered
        if (
            isinstance(node, exp.Column)
            and not node.table
            and node.name.lower() in self._items
            and node.name.lower() not in (c.lower() for c in self.scope.columns)
        ):
            return self._items[node.name.lower()]
        return node

    def _time_window(self, node: exp.Anonymous) -> TimeWindow:
        arguments = list(node.expressions)
        if not 2 <= len(arguments) <= 4:
            raise ValueError(
                f"window() takes a time column, a size, and maybe a slide and an offset; got {len(arguments)}"
            )
        time = arguments[0]
        if (
            not isinstance(time, exp.Column)
            or time.name.lower() != self.scope.time.lower()
            or self.scope.sql(time) != canonical(source_column(self.scope.time))
        ):
            raise self.scope.error(
                f"windows run over the time of {self.scope.path.source}, which is {self.scope.time}; "
                f"found {time.sql(SparkText)}",
                time,
                hint=f"write window({self.scope.time}, …), or declare another TIMESTAMP BY",
            )
        lengths = [_length(a) for a in arguments[1:3]]
        size = lengths[0]
        slide = lengths[1] if len(lengths) > 1 else size
        offset = _offset(arguments[3]) if len(arguments) > 3 else 0
        return TimeWindow(size, slide, offset % slide if slide > 0 else offset)

    def _tuple_window(self, node: exp.Anonymous) -> TupleWindow:
        numbers = [int(a.this) for a in node.expressions if isinstance(a, exp.Literal) and a.is_int]
        if len(numbers) != len(node.expressions) or not 1 <= len(numbers) <= 2:
            raise ValueError(
                "tuples() takes a size and maybe a slide, whole numbers of rows: tuples(1000, 100)"
            )
        return TupleWindow(numbers[0], numbers[-1])

    def output(self, item: exp.Expr) -> Output:
        bare = item.unalias()
        if isinstance(bare, exp.Star):
            raise self.scope.error("SELECT * cannot stand beside GROUP BY", bare, hint="name the columns")
        sql = self.over_calls(bare)
        name = item_name(item)
        whole = int(sql[1:]) if sql[:1] == "a" and sql[1:].isdigit() else None
        aggregated = any(is_aggregate(node, self.functions) for node in bare.walk())
        return Output(name, sql, aggregated, whole)

    def unaliased(self, condition: exp.Expr) -> exp.Expr:
        """HAVING may name an item by its alias; a group key of that name goes before it, as in Spark."""
        grouped = {key.sql for key in self.keys}
        own = {n.lower() for n, c in self.scope.columns.items() if canonical(c) in grouped}

        def replaced(node: exp.Expr) -> exp.Expr:
            if is_aggregate(node, self.functions):
                return node  # inside an aggregate names are those of the source
            if isinstance(node, exp.Column) and not node.table and node.name.lower() not in own:
                item = self._items.get(node.name.lower())
                return exp.Paren(this=item.copy()) if item is not None else node
            for key, value in list(node.args.items()):
                if isinstance(value, exp.Expr):
                    node.set(key, replaced(value))
                elif isinstance(value, list):
                    node.set(key, [replaced(v) if isinstance(v, exp.Expr) else v for v in value])
            return node

        return replaced(condition.copy())

    def over_calls(self, root: exp.Expr) -> str:
        """An item as SQL over ``a0…``, ``m0…``, ``k0…``, ``window_start`` and ``window_end``."""
        replaced = extract(root, self.functions, self._call)
        return canonical(take_moves(self._keyed(replaced), self.scope, self.moves))

    def _keyed(self, node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and node.args.get("call"):
            return exp.column(node.name)
        if not any(isinstance(n, exp.Column) and n.args.get("call") for n in node.walk()):
            parts = [p.name.lower() for p in node.parts] if isinstance(node, exp.Column) else []
            if parts in (["window", "start"], ["window", "end"]):
                return exp.column(f"window_{parts[1]}")
            text = canonical_or_none(self.scope, node, self.functions)
            if text in self._key_index:
                return exp.column(f"k{self._key_index[text]}")
            if isinstance(node, exp.Column):
                self.scope.resolve(node)  # an unknown column is the better complaint
                raise self.scope.error(
                    f"column {node.sql(SparkText)} is neither in GROUP BY nor inside an aggregate",
                    node,
                    hint=f"add it to GROUP BY, or write MAX({node.sql(SparkText)})",
                )
        for key, value in list(node.args.items()):
            if isinstance(value, exp.Expr):
                node.set(key, self._keyed(value))
            elif isinstance(value, list):
                node.set(key, [self._keyed(v) if isinstance(v, exp.Expr) else v for v in value])
        return node

    def _call(self, node: exp.Expr) -> exp.Expr:
        try:
            raw = raw_call(node, self.functions)
        except UnsupportedAggregate as error:
            raise self.scope.error(str(error), node, hint=error.hint) from None
        for argument in (*raw.arguments, *([raw.condition] if raw.condition is not None else [])):
            nested = next((n for n in argument.walk() if is_aggregate(n, self.functions)), None)
            if nested is not None:
                raise self.scope.error(
                    "an aggregate of an aggregate needs a step between",
                    nested,
                    hint="make the inner one a VIEW",
                )
        call = Call(
            raw.function,
            tuple(self.scope.sql(a) for a in raw.arguments),
            self.scope.sql(raw.condition) if raw.condition is not None else None,
            raw.parameter,
            written_name(node, self.scope.source.text),
        )
        if call not in self.calls:
            self.calls.append(call)
        marked = exp.column(f"a{self.calls.index(call)}")
        marked.set("call", True)
        return marked


def canonical_or_none(scope: Scope, node: exp.Expr, functions: Functions) -> str | None:
    """Canonical text of an expression over the source's columns, None where it is not one."""
    from slackwater.errors import LanguageError

    if isinstance(node, exp.Star) or any(is_aggregate(n, functions) for n in node.walk()):
        return None
    try:
        return scope.sql(node)
    except LanguageError:
        return None


def _offset(node: exp.Expr) -> int:
    """A length of time that may be below 0."""
    if isinstance(node, exp.Literal) and node.is_string and node.this.lstrip().startswith("-"):
        return -parse_duration(node.this.lstrip()[1:])
    return _length(node)


def _length(node: exp.Expr) -> int:
    if isinstance(node, exp.Literal) and node.is_string:
        return parse_duration(node.this)
    if isinstance(node, exp.Interval):
        unit = node.args.get("unit")
        return parse_duration(f"{node.this.name} {unit.name if unit is not None else ''}")
    raise ValueError(f"expected a length of time such as '10 seconds', found {node.sql(SparkText)}")
