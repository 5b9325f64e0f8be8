"""JOIN with a stored table: every row of the stream finds at most one partner."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from slackwater.language.dialect import SparkText
from slackwater.language.statements import CreateTable
from slackwater.plan.model import Lookup
from slackwater.plan.scope import Scope, canonical, digest, safe_name


def add_lookup(scope: Scope, join: exp.Join, tables: Mapping[str, CreateTable]) -> Scope:
    """The scope after one JOIN; raises where the join is not a lookup by foreign key."""
    relation = join.this
    name = relation.name if isinstance(relation, exp.Table) else ""
    table = tables.get(name.lower())
    if table is None:
        known = ", ".join(t.name for t in tables.values()) or "none declared"
        raise scope.error(
            f"a stream is joined with a stored table, and {name or relation.sql(SparkText)} is none",
            relation,
            hint=f"tables are: {known}; two streams cannot be joined",
        )
    side = (join.side or "").upper()
    if side not in ("", "LEFT") or (join.kind or "").upper() in ("CROSS", "SEMI", "ANTI") or join.method:
        raise scope.error(
            f"{' '.join(filter(None, (join.method, side, join.kind)))} JOIN is not a lookup",
            relation,
            hint="use JOIN or LEFT JOIN with ON or USING",
        )
    columns = tuple(c.name for c in table.columns)
    alias = relation.alias or table.name
    # The condition names the table's alias; a provisional lookup makes its columns resolvable.
    provisional = Lookup(table.name, "l_", "", (), side != "LEFT")
    merged = frozenset(identifier.name for identifier in join.args.get("using") or ())
    seen = scope.with_lookup(provisional, alias, columns, merged)
    condition = _using(scope, seen, alias, merged) if merged else _on(seen, join)
    keys = _keys(condition)
    if not keys:
        raise scope.error(
            f"the condition of the JOIN with {table.name} equates no column of {table.name}",
            relation,
            hint=f"a lookup needs ON stream.column = {alias}.column",
        )
    text = canonical(condition)
    final = f"l_{safe_name(table.name)}_{digest(table.name, text, side)}"
    renamed = text.replace("l_.", final + ".")
    lookup = Lookup(table.name, final, renamed, keys, side != "LEFT")
    return scope.with_lookup(lookup, alias, columns, merged)


def _using(scope: Scope, seen: Scope, alias: str, merged: frozenset[str]) -> exp.Expr:
    return exp.and_(
        *(
            exp.EQ(
                this=scope.resolve(exp.column(name)), expression=seen.resolve(exp.column(name, table=alias))
            )
            for name in sorted(merged)
        )
    )


def _on(seen: Scope, join: exp.Join) -> exp.Expr:
    condition = join.args.get("on")
    if condition is None:
        raise seen.error("a JOIN needs ON or USING", join.this)
    return seen.resolve(condition)


def _keys(condition: exp.Expr) -> tuple[str, ...]:
    found = []
    for equality in condition.find_all(exp.EQ, exp.NullSafeEQ):
        if equality.find_ancestor(exp.Or, exp.Not, exp.Case):
            continue
        for side, other in ((equality.left, equality.right), (equality.right, equality.left)):
            if (
                isinstance(side, exp.Column)
                and side.table == "l_"
                and not any(c.table == "l_" for c in other.find_all(exp.Column))
            ):
                found.append(side.name)
    return tuple(dict.fromkeys(found))
