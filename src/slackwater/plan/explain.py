"""EXPLAIN: the plan as text for the terminal, JSON, Graphviz or a picture."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Mapping

from slackwater.errors import PlanError
from slackwater.language.statements import ExplainFormat
from slackwater.plan.describe import describe
from slackwater.plan.description import (
    TABLE_HEADINGS,
    Description,
    Item,
    StreamNote,
    details,
    headline,
    stream_facts,
    stream_lines,
    table_row,
)
from slackwater.plan.explain_dot import dot
from slackwater.plan.explain_svg import svg
from slackwater.plan.tables import Plan

__all__ = ["Description", "describe", "explain", "explain_dot", "explain_json", "explain_svg", "explain_text"]

WIDTH = 100
NARROWEST = 40
"""Deep in a tree a line may go over the edge rather than be broken every few words."""


def explain(plan: Plan, format: ExplainFormat = "text", name: str | None = None) -> str:
    """A plan, or what concerns one stream, view or query, in one of the four forms."""
    if format not in _FORMS:
        raise PlanError(f"there is no plan as {format!r}; there are {', '.join(_FORMS)}")
    return _FORMS[format](plan, name)


def explain_text(plan: Plan, name: str | None = None) -> str:
    """The plan as an indented tree; equal plans give equal texts."""
    streams = describe(plan, name).streams
    return "\n".join("\n".join(_stream(stream)) + "\n" for stream in streams) or "nothing is declared yet\n"


def explain_json(plan: Plan, name: str | None = None) -> str:
    """The plan as JSON: the fields of `Description`, those that are empty left out."""
    return json.dumps(describe(plan, name).as_dict(), indent=2, ensure_ascii=False) + "\n"


def explain_dot(plan: Plan, name: str | None = None) -> str:
    """The plan as a Graphviz digraph."""
    return dot(describe(plan, name))


def explain_svg(plan: Plan, name: str | None = None) -> str:
    """The plan as a picture that needs nothing but a browser."""
    return svg(describe(plan, name))


_FORMS: Mapping[str, Callable[[Plan, str | None], str]] = {
    "text": explain_text,
    "json": explain_json,
    "dot": explain_dot,
    "svg": explain_svg,
}


def _stream(stream: StreamNote) -> Iterator[str]:
    yield from _wrapped(" · ".join([f"stream {stream.name}", *stream_facts(stream)]), "", "")
    numbers = {table.id: number for number, table in enumerate(stream.tables, 1)}
    bar = "│  " if stream.children else "   "
    for line in stream_lines(stream):
        yield from _wrapped(line, bar, bar)
    yield from _below(stream.children, "", numbers)
    if stream.tables:
        yield ""
        yield from _tables(stream)


def _below(items: tuple[Item, ...], prefix: str, numbers: dict[str, int]) -> Iterator[str]:
    for index, item in enumerate(items):
        last = index == len(items) - 1
        rest = prefix + ("   " if last else "│  ")
        body = rest + ("│  " if item.children else "  ")
        yield from _wrapped(headline(item), prefix + ("└─ " if last else "├─ "), body)
        for line in details(item, numbers):
            yield from _wrapped(line, body, body + "  ")
        yield from _below(item.children, rest, numbers)


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    width = max(WIDTH, len(rest) + NARROWEST)
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


def _tables(stream: StreamNote) -> Iterator[str]:
    rows = [TABLE_HEADINGS, *(table_row(number, table) for number, table in enumerate(stream.tables, 1))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [row[0].rjust(widths[0]), *(c.ljust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
        yield "  ".join(cells).rstrip()
