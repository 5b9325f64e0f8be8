"""A description as a Graphviz digraph, for those who have Graphviz."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from slackwater.plan.description import (
    Description,
    Item,
    StreamNote,
    TableNote,
    details,
    headline,
    stream_facts,
    stream_lines,
    table_row,
)

_SHAPES = {
    "filter": 'shape=box, style="rounded"',
    "lookup": "shape=cds",
    "constants": "shape=hexagon",
    "aggregate": 'shape=box, style="filled", fillcolor="#e8effc"',
    "rows": 'shape=box, style="filled", fillcolor="#fbe7f0"',
    "latest": 'shape=box, style="rounded,dashed"',
    "view": 'shape=box, style="dashed"',
}


def dot(description: Description) -> str:
    """The digraph: an edge from what is read to what reads it, dotted ones from steps to their panes."""
    numbers = count()
    lines = [
        "digraph plan {",
        "  rankdir=LR;",
        '  node [fontname="Helvetica", fontsize=11];',
        '  edge [color="#64748b"];',
    ]
    for stream in description.streams:
        lines += _stream(stream, numbers)
    return "\n".join([*lines, "}"]) + "\n"


def _stream(stream: StreamNote, numbers: Iterator[int]) -> Iterator[str]:
    root = f"n{next(numbers)}"
    tables = {table.id: number for number, table in enumerate(stream.tables, 1)}
    label = [f"stream {stream.name}", " · ".join(stream_facts(stream)), *stream_lines(stream)]
    yield f'  {root} [label={_label(label)}, shape=box, style="filled", fillcolor="#dff3ef"];'
    boxes = {table.id: f"{root}_t{number}" for number, table in enumerate(stream.tables, 1)}
    for number, table in enumerate(stream.tables, 1):
        yield f"  {boxes[table.id]} [label={_label(_table(number, table))}, shape=cylinder];"
    yield from _below(root, stream.children, numbers, tables, boxes)


def _table(number: int, table: TableNote) -> list[str]:
    _, id_, _, panes, holds, how, _ = table_row(number, table)
    return [f"table {number}", id_, f"panes of {panes}, {holds}", how]


def _below(
    parent: str,
    items: tuple[Item, ...],
    numbers: Iterator[int],
    tables: dict[str, int],
    boxes: dict[str, str],
) -> Iterator[str]:
    for item in items:
        node = f"n{next(numbers)}"
        yield f"  {node} [label={_label([headline(item), *details(item, tables)])}, {_SHAPES[item.kind]}];"
        yield f"  {parent} -> {node};"
        for id_ in item.step.tables if item.step is not None else ():
            yield f"  {node} -> {boxes[id_]} [style=dotted, arrowhead=none];"
        yield from _below(node, item.children, numbers, tables, boxes)


def _label(lines: list[str]) -> str:
    r"""Lines as a quoted string, aligned left.

    >>> print(_label(['say "a\\b"', "c"]))
    "say \"a\\b\"\lc\l"
    """
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for line in lines)
    return '"' + "".join(f"{line}\\l" for line in escaped) + '"'
