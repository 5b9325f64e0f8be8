"""A description as a picture: a tree from left to right, light or dark as the reader's screen is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

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

MARGIN = 28
LINE = 16
PAD_X, PAD_Y = 14, 9
GAP_X, GAP_Y = 44, 14
TEXT_WIDTH = 6.9
"""Of a character of the fixed-width face at 11.5 px."""
TITLE_WIDTH = 7.5
LONGEST = 46
"""Characters in a line of a box."""

_NAMES = {
    "filter": "filter",
    "lookup": "lookup",
    "constants": "constants join",
    "aggregate": "",
    "rows": "",
    "latest": "current values",
    "view": "",
}

_STYLE = """
  .page { fill: #ffffff }
  .box { fill: #f8fafc; stroke: #cbd5e1 }
  .edge { fill: none; stroke: #94a3b8; stroke-width: 1.4 }
  .rule { stroke: #e2e8f0 }
  text { font-family: ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace;
         font-size: 11.5px; fill: #334155 }
  .title { font-size: 12.5px; font-weight: 600; fill: #0f172a }
  .kind { font: 9px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; letter-spacing: .08em }
  .quiet { fill: #64748b }
  .stream { fill: #0f766e } .filter { fill: #64748b } .lookup { fill: #7c3aed } .constants { fill: #b45309 }
  .query { fill: #1d4ed8 } .step { fill: #0e7490 } .rows { fill: #be185d } .latest { fill: #15803d }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0f172a }
    .box { fill: #1e293b; stroke: #334155 }
    .edge { stroke: #64748b }
    .rule { stroke: #334155 }
    text { fill: #cbd5e1 }
    .title { fill: #f8fafc }
    .quiet { fill: #94a3b8 }
    .stream { fill: #2dd4bf } .filter { fill: #94a3b8 } .lookup { fill: #a78bfa } .constants { fill: #fbbf24 }
    .query { fill: #60a5fa } .step { fill: #22d3ee } .rows { fill: #f472b6 } .latest { fill: #4ade80 }
  }
"""


@dataclass
class _Box:
    """A box of the picture: its text, its size, and where it has been put."""

    colour: str
    kind: str
    title: list[str]
    lines: list[str]
    hover: str
    promise: list[str] = field(default_factory=list)
    children: list[_Box] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        widths = [len(self.kind) * 7.2, *(len(t) * TITLE_WIDTH for t in self.title)]
        return max(*widths, *(len(t) * TEXT_WIDTH for t in (*self.promise, *self.lines)), 60.0) + 2 * PAD_X

    @property
    def height(self) -> float:
        return 2 * PAD_Y + LINE * (len(self.title) + len(self.promise) + len(self.lines)) + 13


def svg(description: Description) -> str:
    """The picture, complete in itself: no scripts, no fonts or styles from elsewhere."""
    parts: list[str] = []
    width, y = 480.0, float(MARGIN)
    for stream in description.streams:
        right, y = _stream(stream, y, parts)
        width = max(width, right)
        y += 26
    if not description.streams:
        parts.append(_text(MARGIN, y + 12, "nothing is declared yet", "quiet"))
        y += 40
    size = f'width="{width + MARGIN:.0f}" height="{y:.0f}" viewBox="0 0 {width + MARGIN:.0f} {y:.0f}"'
    names = ", ".join(stream.name for stream in description.streams)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"<title>The shared plan of {escape(names) or 'nothing'}</title>",
            f"<style>{_STYLE}</style>",
            '<rect class="page" width="100%" height="100%"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _stream(stream: StreamNote, top: float, parts: list[str]) -> tuple[float, float]:
    """Draw one stream below ``top``; returns the right and the lower edge."""
    numbers = {table.id: number for number, table in enumerate(stream.tables, 1)}
    facts = [*stream_facts(stream), *stream_lines(stream)]
    lines = [part for fact in facts for part in _wrap(fact, 34)]
    root = _Box("stream", "STREAM", [stream.name], lines, f"stream {stream.name}")
    root.children = [_box(item, numbers) for item in stream.children]
    bottom = top + _place(root, MARGIN, top)
    parts += _edges(root)
    parts += _boxes(root)
    right = _right(root)
    if stream.tables:
        listed, bottom = _tables(stream, bottom + 30, parts)
        right = max(right, listed)
    return right, bottom


def _box(item: Item, numbers: dict[str, int]) -> _Box:
    step = item.step
    hover = "\n".join([headline(item), *details(item, numbers)])
    lines = [part for line in details(item, numbers) for part in _wrap(line, LONGEST)]
    if step is None:
        tags = ["Python function, tested last"] if item.python else []
        tags += [f"{item.alike} members"] if item.alike else []
        # the box says already that it is a lookup
        title = item.title.replace("lookup ", "", 1) if item.kind == "lookup" else item.title
        box = _Box(item.kind, _NAMES[item.kind].upper(), _wrap(title, LONGEST - 4), tags, hover)
    else:
        colour = "rows" if item.kind == "rows" else "query" if step.role == "query" else "step"
        kind = step.role if len(item.members) < 2 else f"{len(item.members)} × {step.role}"
        named = ", ".join(m.name for m in item.members[:3]) + (" …" if len(item.members) > 3 else "")
        contract = _wrap(step.contract, LONGEST) if step.contract else []
        box = _Box(colour, kind.upper(), _wrap(named or item.title, LONGEST - 4), lines, hover, contract)
        if len(item.members) > 1:
            box.hover = ", ".join(m.name for m in item.members)
    box.children = [_box(child, numbers) for child in item.children]
    return box


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def _place(box: _Box, left: float, top: float) -> float:
    """Put a box and all below it right of ``left`` and under ``top``; the height that they use.

    Every subtree has a band of its own, so a child stands right of its parent, however wide others are.
    """
    box.x, box.y = left, top
    used = 0.0
    for child in box.children:
        used += _place(child, left + box.width + GAP_X, top + used) + GAP_Y
    used = max(0.0, used - GAP_Y)
    if used <= box.height:
        for child in box.children:
            _shift(child, (box.height - used) / 2)
        return box.height
    middle = (_centre(box.children[0]) + _centre(box.children[-1])) / 2
    box.y = min(max(top, middle - box.height / 2), top + used - box.height)
    return used


def _right(box: _Box) -> float:
    return max([box.x + box.width, *map(_right, box.children)])


def _centre(box: _Box) -> float:
    return box.y + box.height / 2


def _shift(box: _Box, down: float) -> None:
    box.y += down
    for child in box.children:
        _shift(child, down)


def _edges(box: _Box) -> Iterator[str]:
    for child in box.children:
        x1, y1, x2, y2 = box.x + box.width, _centre(box), child.x, _centre(child)
        half = (x1 + x2) / 2
        curve = f"C{half:.1f} {y1:.1f} {half:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
        yield f'<path class="edge" d="M{x1:.1f} {y1:.1f} {curve}"/>'
        yield from _edges(child)


def _boxes(box: _Box) -> Iterator[str]:
    x, y = box.x, box.y
    yield f"<g><title>{escape(box.hover)}</title>"
    yield _rect("box", x, y, box.width, box.height, 7)
    yield _rect(box.colour, x, y + 7, 3, box.height - 14, 1.5)
    at = y + PAD_Y + 9
    yield _text(x + PAD_X, at, box.kind, f"kind {box.colour}")
    at += 2
    for line in box.title:
        at += LINE
        yield _text(x + PAD_X, at, line, "title")
    for line in box.promise:
        at += LINE
        yield _text(x + PAD_X, at, line, box.colour)
    for line in box.lines:
        at += LINE
        yield _text(x + PAD_X, at, line, "")
    yield "</g>"
    for child in box.children:
        yield from _boxes(child)


def _tables(stream: StreamNote, top: float, parts: list[str]) -> tuple[float, float]:
    rows = [TABLE_HEADINGS, *(table_row(number, table) for number, table in enumerate(stream.tables, 1))]
    widths = [max(map(len, column)) * TEXT_WIDTH + 20 for column in zip(*rows, strict=True)]
    y = top
    for number, row in enumerate(rows):
        x = float(MARGIN)
        for cell, width in zip(row, widths, strict=True):
            parts.append(_text(x, y, cell, "quiet" if number == 0 else ""))
            x += width
        if number == 0:
            parts.append(f'<line class="rule" x1="{MARGIN}" y1="{y + 6:.1f}" x2="{x:.1f}" y2="{y + 6:.1f}"/>')
            y += 4
        y += LINE + 2
    return MARGIN + sum(widths), y


def _rect(style: str, x: float, y: float, width: float, height: float, radius: float) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{style}" {place} rx="{radius}"/>'


def _text(x: float, y: float, text: str, style: str) -> str:
    named = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}>{escape(text)}</text>' if text else ""
