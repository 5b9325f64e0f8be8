"""A SELECT taken apart into steps: path, window, keys, aggregate calls, items."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from slackwater.errors import LanguageError
from slackwater.language.dialect import SparkText
from slackwater.language.statements import CreateQuery, CreateStream, CreateTable, CreateView, Source
from slackwater.plan.calls import is_aggregate
from slackwater.plan.functions import Functions
from slackwater.plan.items import aggregate_step
from slackwater.plan.lookups import add_lookup
from slackwater.plan.model import Output, Path, Step
from slackwater.plan.moves import refuse_bare_moves
from slackwater.plan.refusals import refuse
from slackwater.plan.scope import Scope, canonical, item_name, source_column


@dataclass(frozen=True)
class Known:
    """What a SELECT may read: the catalog's content by lower-case name."""

    streams: Mapping[str, CreateStream]
    tables: Mapping[str, CreateTable]
    steps: Mapping[str, Step]
    functions: Functions


def analyse(statement: CreateQuery | CreateView, known: Known) -> tuple[Step, ...]:
    """The steps of a view or query, inner ones (sub-queries and CTEs that aggregate) first.

    The last one carries the statement's name.
    """
    inner: list[Step] = []
    step = _select(statement.select, statement.name, statement.source, known, {}, inner)
    published = isinstance(statement, CreateQuery)
    return (*inner, replace(step, published=published))


Locals = Mapping[str, Callable[[str], Step]]


def _select(
    select: exp.Select, name: str, source: Source, known: Known, local: Locals, inner: list[Step]
) -> Step:
    scopes = dict(local)
    with_clause = select.args.get("with_")
    for cte in with_clause.expressions if with_clause else ():
        scopes[cte.alias.lower()] = _cte(cte, name, source, known, dict(scopes), inner)
    refuse(select, source)
    scope = _from(select, name, source, known, scopes, inner)
    for join in select.args.get("joins") or ():
        scope = add_lookup(scope, join, known.tables)
    refuse_bare_moves(select, scope, known.functions)
    scope = _where(select, scope, known.functions)
    if select.args.get("group") is not None or any(
        is_aggregate(node, known.functions) for item in select.expressions for node in item.walk()
    ):
        return aggregate_step(select, name, scope, known.functions)
    if select.args.get("having") is not None:
        raise scope.error("HAVING needs GROUP BY", select.args["having"], hint="use WHERE")
    return _projection(select, name, scope)


def _cte(
    cte: exp.CTE, name: str, source: Source, known: Known, local: Locals, inner: list[Step]
) -> Callable[[str], Step]:
    if not isinstance(cte.this, exp.Select):
        raise source.error(f"WITH {cte.alias}: expected a SELECT")
    step = _select(cte.this, _inner_name(name, cte.alias, inner), source, known, local, inner)
    if step.aggregates:
        inner.append(step)
    return lambda _: step


def _inner_name(name: str, label: str, inner: list[Step]) -> str:
    """A name for an inner step; a CTE and a sub-query may have the same label."""
    taken = {step.name.lower() for step in inner}
    found, number = f"{name}.{label}", 2
    while found.lower() in taken:
        found, number = f"{name}.{label}{number}", number + 1
    return found


def _from(
    select: exp.Select, name: str, source: Source, known: Known, local: Locals, inner: list[Step]
) -> Scope:
    from_ = select.args.get("from_")
    if from_ is None:
        raise source.error("a query needs FROM: a stream, a view or another query")
    relation = from_.this
    alias = relation.alias_or_name
    if isinstance(relation, exp.Subquery):
        if not isinstance(relation.this, exp.Select):
            raise source.error("expected a SELECT in parentheses after FROM")
        label = relation.alias or "subquery"
        step = _select(relation.this, _inner_name(name, label, inner), source, known, local, inner)
        if step.aggregates:
            inner.append(step)
        return _step_scope(step, label, source)
    if not isinstance(relation, exp.Table):
        raise source.error(f"cannot read FROM {relation.sql(SparkText)}")
    if isinstance(relation.this, exp.Anonymous):
        return _latest(relation, source, known, local)
    wanted = relation.name.lower()
    if wanted in local:
        return _step_scope(local[wanted](wanted), alias, source)
    if wanted in known.streams:
        return _stream_scope(known.streams[wanted], alias, source)
    if wanted in known.steps:
        return _step_scope(known.steps[wanted], alias, source)
    raise _unknown(relation, source, known)


def _latest(relation: exp.Table, source: Source, known: Known, local: Locals) -> Scope:
    call = relation.this
    if str(call.this).upper() != "LATEST" or len(call.expressions) != 1:
        raise source.error(
            f"cannot read FROM {relation.sql(SparkText)}", hint="there is one such form: LATEST(stream)"
        )
    name = call.expressions[0].name
    stream = known.streams.get(name.lower())
    if stream is None:
        raise _no_stream(call.expressions[0], source, known, local)
    if not stream.key:
        raise source.error(
            f"LATEST({stream.name}) needs to know whose value is the latest: {stream.name} has no KEY",
            hint=f"declare it: CREATE STREAM {stream.name} (…) … KEY column",
        )
    return replace(_stream_scope(stream, relation.alias or stream.name, source), current=True)


def _no_stream(node: exp.Expr, source: Source, known: Known, local: Locals) -> LanguageError:
    """LATEST of something that is no stream, or of nothing."""
    at = Scope(source, "", "", Path(""), {}, {})
    name = node.name
    lower = name.lower()
    step = local[lower](lower) if lower in local else known.steps.get(lower)
    keyed = [s.name for s in known.streams.values() if s.key]
    streams = f"streams with a KEY are {', '.join(keyed)}" if keyed else "no stream with a KEY is declared"
    if lower in known.tables and step is None:
        return at.error(
            f"{name} is a table, and LATEST reads a stream with a KEY",
            node,
            hint=f"JOIN the table with LATEST(stream); {streams}",
        )
    if step is None:
        return at.error(f"LATEST reads a stream, and there is none called {name}", node, hint=streams)
    kind = "sub-query" if lower in local else "query" if step.published else "view"
    hint = f"it reads current values already: write FROM {name}" if step.current else streams
    return at.error(f"{name} is a {kind}, and LATEST reads a stream with a KEY", node, hint=hint)


def _unknown(relation: exp.Table, source: Source, known: Known) -> LanguageError:
    at = Scope(source, "", "", Path(""), {}, {})
    name = relation.name
    if name.lower() in known.tables:
        return at.error(
            f"{name} is a table, and a standing query reads a stream",
            relation,
            hint="read a stream and JOIN the table",
        )
    readable = [s.name for s in known.streams.values()] + [
        s.name for s in known.steps.values() if "." not in s.name
    ]
    hint = f"there are {', '.join(readable)}" if readable else "declare it first: CREATE STREAM …"
    return at.error(f"there is no stream, view or query called {name}", relation, hint=hint)


def _stream_scope(stream: CreateStream, alias: str, source: Source) -> Scope:
    columns: dict[str, exp.Expr] = {c.name: source_column(c.name) for c in stream.columns}
    columns.setdefault(stream.time, source_column(stream.time))
    return Scope(
        source,
        stream.name,
        stream.time,
        Path(stream.name),
        columns,
        {alias.lower(): columns},
    )


def _step_scope(step: Step, alias: str, source: Source) -> Scope:
    """Reading a step: a windowed one is a source of its own, a projection is looked through."""
    if step.aggregates:
        columns: dict[str, exp.Expr] = {name: source_column(name) for name in step.columns}
        path = Path(step.name)
    else:
        columns = {o.name: exp.maybe_parse(o.sql, dialect=SparkText) for o in step.outputs}
        columns.setdefault(step.time, source_column(step.time))
        path = step.path
    return Scope(
        source, step.stream, step.time, path, columns, {alias.lower(): columns}, step.aggregates, step.current
    )


def _where(select: exp.Select, scope: Scope, functions: Functions) -> Scope:
    where = select.args.get("where")
    if where is None:
        return scope
    found = next((n for n in where.walk() if is_aggregate(n, functions)), None)
    if found is not None:
        raise scope.error("an aggregate cannot stand in WHERE", found, hint="put the condition into HAVING")
    predicates = list(scope.path.predicates)
    for conjunct in where.this.flatten() if isinstance(where.this.unnest(), exp.And) else [where.this]:
        for part in _conjuncts(conjunct):
            text = canonical(scope.resolve(part))
            if text not in predicates:
                predicates.append(text)
    return replace(scope, path=Path(scope.path.source, scope.path.lookups, tuple(predicates)))


def _conjuncts(node: exp.Expr) -> list[exp.Expr]:
    node = node.unnest()
    if isinstance(node, exp.And):
        return [*_conjuncts(node.left), *_conjuncts(node.right)]
    return [node]


def _projection(select: exp.Select, name: str, scope: Scope) -> Step:
    outputs: list[Output] = []
    for item in select.expressions:
        if isinstance(item, exp.Star):
            outputs += [Output(n, canonical(e), False) for n, e in scope.columns.items()]
        elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            qualified = scope.aliases.get(item.table.lower())
            if qualified is None:
                raise scope.error(f"{item.table}.* names nothing in FROM", item)
            outputs += [Output(n, canonical(e), False) for n, e in qualified.items()]
        else:
            outputs.append(Output(item_name(item), scope.sql(item.unalias()), False))
    check_names(outputs, scope)
    return Step(name, scope.stream, scope.time, scope.path, None, (), (), tuple(outputs), None, scope.current)


def check_names(outputs: list[Output], scope: Scope) -> None:
    seen: set[str] = set()
    for output in outputs:
        if output.name.lower() in seen:
            raise scope.error(f"two columns are called {output.name}", hint="name one of them with AS")
        seen.add(output.name.lower())
