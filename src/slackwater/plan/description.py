"""A plan as its readers see it: a neutral, frozen tree, and the phrases that all its forms share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Literal

Kind = Literal["filter", "lookup", "constants", "aggregate", "rows", "latest", "view"]
SHARED = "shared pass"
FILTERED = "filtered first"
JOINED = "constants join"
EMITTED = "rows emitted"
CURRENT = "current values"
LOOKED_THROUGH = "looked through"
PARTIALS = "partials"
NAMED_AT_MOST = 4


@dataclass(frozen=True)
class Member:
    """One of many queries that differ only in constants."""

    name: str
    constants: tuple[str, ...]
    """Those in which the members differ."""


@dataclass(frozen=True)
class StepNote:
    """What a step computes, and from which panes."""

    role: str
    contract: str | None
    outputs: tuple[str, ...]
    window: str | None = None
    keys: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    having: str | None = None
    tables: tuple[str, ...] = ()
    panes: tuple[str, ...] = ()
    """Widths of the panes, one for each table."""
    reason: str | None = None
    """Why its rows are filtered before anything else."""
    shares: tuple[str, ...] = ()
    """Other steps that read one of the same tables."""
    warm_from: tuple[str, ...] = ()
    """Earlier steps that fill every column it reads: panes are there when it comes."""
    read_by: tuple[str, ...] = ()
    alerts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Item:
    """An operator or a step, and what hangs below it."""

    kind: Kind
    title: str
    how: tuple[str, ...] = ()
    """The ways in which the steps here and below get their rows."""
    python: bool = False
    step: StepNote | None = None
    alike: int = 0
    """Of a constants join: the number of its members."""
    members: tuple[Member, ...] = ()
    children: tuple[Item, ...] = ()


@dataclass(frozen=True)
class TableNote:
    """One pane table: what it holds, and who reads it."""

    id: str
    source: str
    holds: str
    width: str
    keys: tuple[str, ...]
    columns: int
    how: str
    passes: int
    steps: tuple[str, ...]


@dataclass(frozen=True)
class StreamNote:
    """A stream and all that is computed from it."""

    name: str
    format: str
    payload: str | None
    time: str
    lateness: str | None
    key: tuple[str, ...]
    tick: str | None
    interrupted_after: str | None
    passes: int
    """Over the stream itself."""
    counts_apart: bool
    queries: int
    current: int
    """How many of the queries read current values instead of panes."""
    tables: tuple[TableNote, ...]
    looked_through: tuple[str, ...]
    children: tuple[Item, ...]


@dataclass(frozen=True)
class Description:
    streams: tuple[StreamNote, ...]

    def as_dict(self) -> dict[str, object]:
        """The whole as plain dictionaries, lists and scalars; what is empty is left out."""
        found = _plain(self)
        assert isinstance(found, dict)
        return found


def _plain(value: object) -> object:
    # loops: comprehensions take frames of their own, and a plan is as deep as a query has conditions
    if is_dataclass(value):
        found: dict[str, object] = {}
        for field in fields(value):
            item = _plain(getattr(value, field.name))
            if item not in (None, [], False, ""):
                found[field.name] = item
        return found
    if isinstance(value, tuple):
        listed = []
        for item in value:
            listed.append(_plain(item))
        return listed
    return value


def count(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun.

    >>> count(1, "query", "queries"), count(3, "pass", "passes"), count(0, "column")
    ('one query', '3 passes', 'no columns')
    """
    several = plural or noun + "s"
    return {0: f"no {several}", 1: f"one {noun}"}.get(number, f"{number} {several}")


def some(names: Sequence[str], at_most: int = NAMED_AT_MOST) -> str:
    """The first few names, and how many more there are.

    >>> some(["a", "b"]), some(["a", "b", "c", "d", "e", "f"])
    ('a, b', 'a, b, c and 3 more')
    """
    if len(names) <= at_most:
        return ", ".join(names)
    return f"{', '.join(names[: at_most - 1])} and {len(names) - at_most + 1} more"


def stream_facts(stream: StreamNote) -> list[str]:
    """How a stream is read, in short pieces."""
    facts = [" ".join(filter(None, (stream.format, stream.payload))), f"time {stream.time}"]
    facts += [f"lateness {stream.lateness}"] if stream.lateness else []
    facts += [f"key {', '.join(stream.key)}"] if stream.key else []
    facts += [f"tick {stream.tick}"] if stream.tick else []
    return facts + ([f"interrupted after {stream.interrupted_after}"] if stream.interrupted_after else [])


def stream_lines(stream: StreamNote) -> list[str]:
    """What a batch of a stream costs and gives."""
    lines = []
    answered = stream.queries - stream.current
    if stream.passes:
        verb = "answers" if stream.passes == 1 else "answer"
        line = f"{count(stream.passes, 'pass', 'passes')} over a batch {verb} "
        line += count(answered, "query", "queries")
        if stream.tables:
            line += f" from {count(len(stream.tables), 'pane table')}"
        lines.append(line)
    nested = [t for t in stream.tables if t.source.lower() != stream.name.lower()]
    if nested and lines:
        sources = list(dict.fromkeys(t.source for t in nested))
        are = "one of them is" if len(nested) == 1 else f"{len(nested)} of them are"
        lines[-1] += f"; {are} filled from the answers of {some(sources)}"
    if stream.counts_apart:
        lines.append("one of the passes only counts the rows that arrive")
    if stream.current:
        reads = "reads" if stream.current == 1 else "read"
        lines.append(f"{count(stream.current, 'query', 'queries')} {reads} current values")
    if stream.looked_through:
        noun = "view" if len(stream.looked_through) == 1 else "views"
        lines.append(f"looked through, at no cost: {noun} {some(stream.looked_through)}")
    return lines if lines or stream.children else ["nothing is computed from it"]


def headline(item: Item) -> str:
    """The first line of an item: what it is called, and what it promises."""
    if item.kind == "constants":
        return f"{item.title} · {JOINED}, {count(item.alike, 'member')}"
    if item.step is None:
        tags = ["Python function, tested last"] if item.python else []
        tags += [FILTERED] if item.how == (FILTERED,) else []
        return " · ".join([item.title, *tags])
    name = f"{item.step.role} {item.title}"
    if len(item.members) > 1:
        name = f"{item.title}: {some([m.name for m in item.members])}"
    elif item.members:
        name += f" ({', '.join(item.members[0].constants)})"
    return name + (f" · {item.step.contract}" if item.step.contract else "")


def details(item: Item, numbers: dict[str, int]) -> list[str]:
    """The further lines of an item; ``numbers`` are those of the pane tables."""
    step = item.step
    if step is None:
        return []
    if item.kind == "view":
        return [f"rows: {', '.join(step.outputs)}", "its readers look through it: it costs nothing by itself"]
    if item.kind == "rows":
        how = (
            "one for each key, as it is now" if item.how == (CURRENT,) else f"{EMITTED} by a pass of its own"
        )
        return [f"rows: {', '.join(step.outputs)}", how]
    over = step.window or "current values"
    over += f" by {', '.join(step.keys)}" if step.keys else ""
    lines = [f"{over}: {', '.join(step.outputs)}" if step.outputs else over]
    if step.having:
        lines.append(f"having {step.having}")
    if step.tables:
        lines.append(_panes(item, step, numbers))
    if step.warm_from:
        lines.append(f"warm start from the panes of {some(step.warm_from)}")
    if step.read_by and not item.children:
        lines.append(f"read by {some(step.read_by)}")
    return [*lines, *step.alerts]


def _panes(item: Item, step: StepNote, numbers: dict[str, int]) -> str:
    how = ", ".join(item.how) + (f" ({step.reason})" if step.reason else "")
    widths = list(dict.fromkeys(step.panes))
    tables = "table" if len(step.tables) == 1 else "tables"
    where = " and ".join(str(numbers[t]) for t in step.tables)
    line = f"panes of {' and '.join(widths)} in {tables} {where} · {how}"
    return line + (f", shared with {some(step.shares)}" if step.shares and JOINED not in item.how else "")


def table_row(number: int, table: TableNote) -> tuple[str, ...]:
    """A pane table in the cells of a list."""
    keys = f"by {', '.join(table.keys)}" if table.keys else ""
    return (
        str(number),
        table.id,
        table.source,
        _cut(" ".join(filter(None, (table.width, keys))), 32),
        table.holds
        if table.holds != PARTIALS
        else f"{table.columns} column{'s' if table.columns > 1 else ''}",
        table.how,
        _cut(some(table.steps), 40),
    )


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


TABLE_HEADINGS = ("", "pane table", "of", "panes", "holds", "filled by", "read by")
