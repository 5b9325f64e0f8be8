"""Which work is one pass over a source: its operators in order, and the columns a pass fills."""

from __future__ import annotations

from collections.abc import Iterator

from slackwater.plan.layout import calls_python
from slackwater.plan.model import Path
from slackwater.plan.signature import probe_rows
from slackwater.plan.tables import Column, Plan, Table
from slackwater.plan.tree import Node, Operator, shared_tree

COLUMNS_AT_MOST = 256
"""Wider aggregates outgrow what HotSpot compiles well; they are split into several passes."""


def operator_tree(plan: Plan, source: str, *, current: bool = False) -> Node:
    """The tree in whose order the steps of a source test their paths.

    Members of a signature find their rows by a join, and views without an aggregate are looked
    through: neither is in the tree. ``current`` asks for the steps that read ``LATEST``.
    """
    paths = {
        s.step.name: s.step.path
        for s in plan.steps_on(source)
        if s.step.current == current and s.member is None and (s.step.aggregates or s.step.published)
    }
    predicates = {p for path in paths.values() for p in path.predicates}
    costly = frozenset(p for p in predicates if calls_python(p, plan.catalog.functions))
    return shared_tree(paths, costly)


def orders(plan: Plan, source: str) -> dict[Path, tuple[Operator, ...]]:
    """How the operators of each path of a source are ordered in its tree."""
    found: dict[Path, tuple[Operator, ...]] = {}

    def visit(node: Node, before: tuple[Operator, ...]) -> None:
        found.update({plan.steps[name.lower()].step.path: before for name in node.steps})
        for child in node.children:
            assert child.operator is not None
            visit(child, (*before, child.operator))

    visit(operator_tree(plan, source), ())
    return found


def chunks(columns: tuple[Column, ...]) -> Iterator[tuple[Column, ...]]:
    """Columns in runs of bounded length; a count, mean and m2 that merge together stay together."""
    start = 0
    while start < len(columns):
        stop = min(start + COLUMNS_AT_MOST, len(columns))
        while stop < len(columns) and columns[stop].merge in ("mean", "m2"):
            stop += 1
        yield columns[start:stop]
        start = stop


def passes_of(plan: Plan, table: Table) -> int:
    """How many passes over the source fill a table: one, as a rule.

    Ranges take one for each width of the grid that their constants lie on.
    """
    if table.signature is not None:
        return len(probe_rows(table.signature, plan.members[table.id]))
    if table.path is not None:
        return 1
    return len(list(chunks(plan.columns[table.id])))


def counts_apart(plan: Plan, source: str) -> bool:
    """Whether the rows that arrive are counted in a pass of its own: no other sees all of them."""
    return not any(
        table.path is None and table.signature is None and not table.keys and not table.values
        for _, table in plan.tables_on(source)
    )
