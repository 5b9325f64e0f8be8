"""The operators of a stream as a flat list: what is counted, costed and shown of each.

The tree of shared prefixes, its root first and a node after its parent. Members of a signature hang on one
node, the join that finds them, since a row is tested against all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slackwater.plan.layout import calls_python
from slackwater.plan.model import Lookup
from slackwater.plan.passes import operator_tree
from slackwater.plan.slots import Slots
from slackwater.plan.tables import Plan
from slackwater.plan.tree import Node, Operator

OperatorKind = Literal["stream", "test", "lookup", "python", "members"]


@dataclass(frozen=True)
class OperatorNode:
    """One operator with what comes before it, and the slots whose path ends here."""

    parent: int
    """-1 for the stream itself."""
    kind: OperatorKind
    label: str
    prefix: tuple[Operator, ...]
    """The operators up to and including this one."""
    slots: tuple[str, ...] = ()
    """By id."""
    table: str = ""
    """Of a signature's members."""
    countable: bool = False
    """Whether its rows can be counted in the pass that counts arrivals: nothing costly is before it."""


def operators_of(plan: Plan, stream: str, slots: Slots) -> tuple[OperatorNode, ...]:
    """The operators of a stream in preorder, then the signatures'."""
    nodes: list[OperatorNode] = []
    functions = plan.catalog.functions

    def visit(node: Node, parent: int, prefix: tuple[Operator, ...], plain: bool) -> None:
        operator = node.operator
        kind: OperatorKind = "stream"
        if isinstance(operator, Lookup):
            kind = "lookup"
        elif operator is not None:
            kind = "python" if calls_python(operator, functions) else "test"
        before = prefix if operator is None else (*prefix, operator)
        ends = dict.fromkeys(slots.by_step[name.lower()].id for name in node.steps)
        place = len(nodes)
        # what comes after a Python function or a lookup cannot be counted without doing it
        plain = plain and kind in ("stream", "test")
        label = str(node) or stream
        nodes.append(OperatorNode(parent, kind, label, before, tuple(ends), "", plain and kind == "test"))
        for child in node.children:
            visit(child, place, before, plain)

    visit(operator_tree(plan, stream), -1, (), True)
    for id_, table in plan.tables_on(stream):
        if table.signature is not None:
            members = tuple(slot.id for slot in slots.all if slot.place[1] == id_)
            nodes.append(OperatorNode(0, "members", "members of a signature", (), members, id_))
    return tuple(nodes)


def counted(nodes: tuple[OperatorNode, ...], at_most: int = 32) -> tuple[int, ...]:
    """Which operators are counted: those that branch or lead to something costly first, then the others."""
    able = [i for i, node in enumerate(nodes) if node.countable]
    children = {i: sum(n.parent == i for n in nodes) for i in able}
    costly = {n.parent for n in nodes if n.kind == "python"}
    able.sort(key=lambda i: (i not in costly, children[i] < 2, i))
    return tuple(sorted(able[:at_most]))
