"""The live view of a run in the terminal, and the summary at its end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from slackwater.runtime.show import (
    compact,
    duration,
    printable,
    show_keys,
    show_number,
    show_time,
    show_value,
)
from slackwater.runtime.status import QueryStatus, Status, StreamStatus

_REFRESHES_PER_SECOND = 4
_SUMMARY_ROWS = 20
_GAP = 2
_BAR_WIDTH = 10
_LEVELS = "▁▂▃▄▅▆▇█"
HOW_STYLES = {"modelled": "yellow", "suspended": "red"}
"""Answers that do not rest on rows: their data is missing, or there is none."""
_Row = TypeVar("_Row")


class LiveView:
    """Shows the status of a run in place while its context is open, and clears it away at the end.

    `read` is called from the view's own thread, a few times a second. Where the console is no terminal,
    nothing is shown.
    """

    def __init__(self, console: Console, read: Callable[[], Status]) -> None:
        self._console = console
        self._live = Live(
            get_renderable=lambda: _Screen(read()),
            console=console,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=True,
        )

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


def screen(status: Status, *, width: int, height: int) -> RenderableType:
    """The live view for a terminal of this size."""
    # the last line of a terminal stays free: writing into it may scroll the view away
    room = max(height - 1, 6)
    streams_room = max(2, min(len(status.streams) + 1, room // 3))
    parts = [streams_table(status.streams, width, streams_room, live=True), Text("")]
    # what is left after a blank line on either side of the queries, and the message
    queries_room = max(2, room - streams_room - 3)
    parts += [_queries_table(status.queries, width, queries_room), Text(""), _footer(status)]
    return Group(*parts)


def summary(status: Status) -> RenderableType:
    """What a run has done, for printing at its end."""
    return _Summary(status)


def sparkline(values: Sequence[float], width: int) -> str:
    """The last values as a line of bars, lowest to highest; a blank for what is not a finite number.

    >>> sparkline([1, 2, 3, 4, 5, 6, 7, 8], 8)
    '▁▂▃▄▅▆▇█'
    >>> sparkline([9, 0, math.nan, 4], 3), sparkline([5, 5, 5], 8), sparkline([], 8)
    ('▁ █', '▄▄▄', '')
    """
    shown = list(values)[-width:] if width > 0 else []
    finite = [value for value in shown if math.isfinite(value)]
    if not finite:
        return " " * len(shown)
    low, high = min(finite), max(finite)
    # halves, so that the span of the largest floats does not overflow
    span = high / 2 - low / 2
    if not span:
        return "".join("▄" if math.isfinite(value) else " " for value in shown)
    top = len(_LEVELS) - 1
    return "".join(
        _LEVELS[round((value / 2 - low / 2) / span * top)] if math.isfinite(value) else " " for value in shown
    )


@dataclass(frozen=True)
class _Screen:
    status: Status

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield screen(self.status, width=options.max_width, height=console.height)


@dataclass(frozen=True)
class _Summary:
    status: Status

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        yield streams_table(self.status.streams, width, _SUMMARY_ROWS + 1, live=False)
        yield Text("")
        yield _queries_table(self.status.queries, width, _SUMMARY_ROWS + 1)
        if missed := _missed(self.status):
            evaluated = sum(query.evaluated for query in self.status.queries)
            yield Text("")
            yield Text(f"{missed}, {show_number(evaluated)} run", "red")
        if self.status.message:
            yield Text("")
            yield Text(printable(self.status.message), no_wrap=False)


@dataclass(frozen=True)
class Column:
    """A column of a table: the least width it may shrink to, None for all that it needs."""

    title: str
    cells: Sequence[Text]
    least: int | None = None
    right: bool = False

    @property
    def natural(self) -> int:
        return max([cell_len(self.title), *(cell.cell_len for cell in self.cells)])


def streams_table(streams: Sequence[StreamStatus], width: int, room: int, *, live: bool) -> RenderableType:
    shown, more = fitting(streams, room)
    columns = [Column("stream", [Text(printable(s.name), _stream_style(s)) for s in shown], least=6)]
    # sums of keys that agents tell are no rows: without these such a stream would seem to stand still
    told = any(s.updates is not None for s in shown)
    if live:
        columns.append(numbers("rows/s", [compact(s.rate) for s in shown]))
        if told:
            columns.append(numbers("updates/s", [_told(s, compact(s.update_rate)) for s in shown]))
        columns.append(numbers("lag", [duration(s.lag_s) for s in shown]))
        batch_times = [duration(None if s.batch_ms is None else s.batch_ms / 1000) for s in shown]
        columns.append(numbers("batch", batch_times))
    if not live or width >= 100:
        columns.append(numbers("rows", [show_number(s.rows) for s in shown]))
        if told:
            columns.append(numbers("updates", [_told(s, show_number(s.updates or 0)) for s in shown]))
    if not live:
        columns.append(numbers("batches", [show_number(s.batch) for s in shown]))
    if live and any(s.sheds for s in shown):
        columns.append(numbers("kept", [f"{s.kept:.0%}" for s in shown]))
        columns.append(numbers("level", [f"{s.level:.2f}" for s in shown]))
    columns.append(numbers("late", [compact(s.late) if live else show_number(s.late) for s in shown]))
    if any(s.unreadable for s in shown):
        columns.append(numbers("unreadable", [compact(s.unreadable) for s in shown]))
    day = not live or width >= 100
    marks = ["–" if s.watermark is None else show_time(s.watermark, day=day).split(".")[0] for s in shown]
    columns.append(Column("watermark", [Text(mark) for mark in marks]))
    if live:
        columns.append(Column("progress", [_progress(s) for s in shown]))
    else:
        columns.append(Column("state", [Text(s.state) for s in shown]))
    return as_table(columns, width, more)


def _queries_table(queries: Sequence[QueryStatus], width: int, room: int) -> RenderableType:
    if len(queries) > room - 1:
        # what does not fit is what needs least attention
        queries = sorted(queries, key=lambda query: (query.met is not False, not query.missed))
    shown, more = fitting(queries, room)
    names = [Text(printable(q.name), "red" if q.met is False else "bold") for q in shown]
    for name, query in zip(names, shown, strict=True):
        if query.last_keys:
            name.append(f" {show_keys(query.last_keys)}", "dim")
    marks = [Text({True: "✓", False: "✗", None: " "}[q.met], "green" if q.met else "red") for q in shown]
    ends = [
        "–" if q.last_window_end is None else show_time(q.last_window_end, day=width >= 100) for q in shown
    ]
    columns = [
        Column("query", names, least=12),
        Column("contract", [Text(printable(q.contract), "dim") for q in shown], least=10),
        Column("", marks),
        Column("last value", [Text(show_value(q.last_value)) for q in shown], least=10, right=True),
        Column("until", [Text(end.split(".")[0]) for end in ends]),
        numbers("answers", [compact(q.answers) for q in shown]),
    ]
    if any(q.missed for q in shown):
        columns.append(numbers("missed", [compact(q.missed) for q in shown]))
    if width >= 100:
        columns.insert(5, Column("how", [Text(q.how or "", HOW_STYLES.get(q.how or "", "")) for q in shown]))
    left = width - sum(column.natural + _GAP for column in columns)
    line = max(8, min(left, 60))
    columns.append(Column("history", [Text(sparkline(q.history, line), "cyan") for q in shown]))
    return as_table(columns, width, more)


def as_table(columns: Sequence[Column], width: int, more: int) -> RenderableType:
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    for column, size in zip(columns, _widths(columns, width), strict=True):
        table.add_column(
            column.title,
            width=size,
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if column.right else "left",
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    return Group(table, Text(f"… and {more:,} more", "dim")) if more else table


def _widths(columns: Sequence[Column], width: int) -> list[int]:
    """Widths that fit: the widest of those that may shrink gives way first."""
    widths = [column.natural for column in columns]
    least = [column.natural if column.least is None else column.least for column in columns]
    excess = sum(widths) + _GAP * (len(columns) - 1) - width
    for _ in range(excess):
        widest = max(range(len(columns)), key=lambda i: widths[i] if widths[i] > least[i] else 0)
        if widths[widest] <= least[widest]:
            break
        widths[widest] -= 1
    return widths


def fitting(rows: Sequence[_Row], room: int) -> tuple[Sequence[_Row], int]:
    if len(rows) <= room - 1:
        return rows, 0
    kept = max(0, room - 2)
    return rows[:kept], len(rows) - kept


def numbers(title: str, texts: Sequence[str]) -> Column:
    return Column(title, [Text(text) for text in texts], right=True)


def _told(stream: StreamStatus, text: str) -> str:
    """What agents have told; nothing where a stream has none."""
    return "–" if stream.updates is None else text


def _progress(stream: StreamStatus) -> Text:
    if (running := stream.long_batch_s) is not None:
        return Text(f"in a batch for {duration(running)}", "yellow")
    if stream.progress is None or stream.state == "ended":
        return Text(stream.state, _stream_style(stream))
    share = min(1.0, max(0.0, stream.progress))
    done = round(share * _BAR_WIDTH)
    bar = Text("━" * done, "green").append("─" * (_BAR_WIDTH - done), "dim")
    return bar.append(f" {math.floor(share * 100):3}%")


def _stream_style(stream: StreamStatus) -> str:
    return "dim" if stream.state != "running" else "bold"


def _footer(status: Status) -> Text:
    text = Text(f"{show_time(status.at).split('.')[0]} UTC", "dim", no_wrap=True, overflow="ellipsis")
    if missed := _missed(status):
        text.append(f"  {missed}", "red")
    return text.append(f"  {printable(status.message)}") if status.message else text


def _missed(status: Status) -> str:
    """How many evaluations under DRIFT were due and not had in time, in words; nothing if none."""
    missed = sum(query.missed for query in status.queries)
    return f"{show_number(missed)} evaluation{'s' * (missed != 1)} missed" if missed else ""
