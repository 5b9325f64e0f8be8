"""The picture of a run that is watched: load, streams, queries, agents and alerts in a terminal's size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from slackwater.runtime.show import compact, duration, printable, show_keys, show_time
from slackwater.runtime.status import StreamStatus
from slackwater.service.models import AlertFrame, Frame, Moment, QueryFrame, StreamFrame, is_late
from slackwater.terminal.following import Place, Seen
from slackwater.terminal.view import HOW_STYLES, Column, as_table, fitting, numbers, sparkline, streams_table
from slackwater.terminal.watch_agents import agents_line, width_lines

_TIDE = 60
"""Moments of the line of the load."""
_LINES = 10_000
"""Rows of a table where there is no screen to fit in."""
_FEWEST = 5
"""Lines that a table is worth being shown in."""
_PHASES = {"running": "green", "failed": "bold red", "starting": "yellow"}


def picture_of(seen: Seen, place: Place, console: Console) -> RenderableType:
    """What is known of a run, for a console; all of it where that is no terminal."""
    return _Picture(seen, place.url, console.height if console.is_terminal else _LINES)


@dataclass(frozen=True)
class _Picture:
    seen: Seen
    url: str
    height: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield picture(self.seen, self.url, width=options.max_width, height=self.height)


def picture(seen: Seen, url: str, *, width: int, height: int) -> RenderableType:
    """The run as it fits into a terminal of this size."""
    frame = seen.frame
    if frame is None:
        return Text(printable(seen.words), "yellow")
    head: list[RenderableType] = [_heading(frame, url, width)]
    if seen.trouble:
        head.append(_line(Text(printable(seen.words), "bold yellow")))
    head += [*_tide(frame, seen.moments, width), Text("")]
    tail: list[RenderableType] = []
    if frame.agents:
        tail.append(_line(agents_line(frame)))
    if frame.alerts:
        tail.append(_line(_alerts(frame.alerts)))
    if frame.message:
        tail.append(_line(Text(printable(frame.message), "red" if frame.phase == "failed" else "")))
    # the last line of a terminal stays free: writing into it may scroll the picture away
    room = max(height - 1, 6) - len(head)
    if room < len(tail) + 1 + _FEWEST:
        tail = []
    room -= len(tail) + 1 if tail else 0
    if tail and frame.agents:
        # after the line of the agents, where that leaves enough for queries and streams
        widths = width_lines(frame.agents, room - 4 * _FEWEST)
        tail[1:1] = [_line(line) for line in widths]
        room -= len(widths)
    body: list[RenderableType] = []
    # where there is little room it is for queries
    if room > 2 * _FEWEST:
        streams_room = max(2, min(len(frame.streams) + 1, room // 3))
        body += [streams_table([_status(s) for s in frame.streams], width, streams_room, live=True), Text("")]
        room -= streams_room + 1
    body.append(_queries(frame, width, max(2, room)))
    return Group(*head, *body, *([Text("")] if tail else []), *tail)


def _heading(frame: Frame, url: str, width: int) -> Text:
    met = sum(query.met is True for query in frame.queries)
    unmet = sum(query.met is False for query in frame.queries)
    text = Text("slackwater ", "bold").append(frame.phase, _PHASES.get(frame.phase, "dim"))
    text.append(f"  {show_time(frame.at, day=width >= 100).split('.')[0]} UTC")
    text.append(f"  {len(frame.queries):,} queries: {met:,} met")
    text.append(f", {unmet:,} not", "red" if unmet else "")
    return _line(text.append(f"  {printable(url)}", "dim"))


def _tide(frame: Frame, moments: Sequence[Moment], width: int) -> list[RenderableType]:
    """Load against capacity, and the level."""
    recent = list(moments)[-_TIDE:]
    capacity = frame.capacity
    load = Text("load   ", "dim")
    if frame.load is None:
        rows = [moment.rows_per_second for moment in recent]
        load.append(f"{compact(rows[-1] if rows else 0)} rows/s, not measured yet  ")
        load.append(_scaled(rows, width - load.cell_len), "cyan")
    else:
        over = capacity is not None and frame.load > capacity
        load.append(duration(frame.load), "bold red" if over else "bold")
        load.append(f" of {duration(capacity)} a batch, {duration(frame.kept_load)} kept  ")
        _append_load(load, recent, capacity, width - load.cell_len)
    words, style = _level_words(frame.level, is_late(frame.load, frame.capacity))
    level = Text("level  ", "dim").append(f"ℓ {frame.level:.2f}", style).append(f" {words}  ")
    level.append(_scaled([moment.level for moment in recent], width - level.cell_len), "yellow")
    return [_line(load), _line(level)]


def _level_words(level: float, over: bool) -> tuple[str, str]:
    if level <= 0 and over:
        # what is left out would not make it quick enough: what must be exact, or Spark itself, takes too long
        return "late: nothing is shed, it would not help", "bold red"
    if level <= 0:
        return "slack water", "bold green"
    return ("shedding", "bold yellow") if level <= 1 else ("flood: contracts are not kept", "bold red")


def _scaled(values: Sequence[float], width: int) -> str:
    """A line of bars that begin at 0; nothing where all of it is 0."""
    shown = list(values)[-max(0, width) :] if width > 0 else []
    # the 0 before them gives the scale its foot
    return sparkline([0.0, *shown], len(shown) + 1)[1:] if any(shown) else ""


def _append_load(text: Text, moments: Sequence[Moment], capacity: float | None, width: int) -> None:
    """The load as bars, those above the capacity in red."""
    shown = list(moments)[-max(0, width) :] if width > 0 else []
    loads = [float("nan") if moment.load is None else moment.load for moment in shown]
    bars = _scaled(loads, width)
    for bar, moment in zip(bars, shown, strict=False):
        most = moment.capacity if moment.capacity is not None else capacity
        over = moment.load is not None and most is not None and moment.load > most
        text.append(bar, "red" if over else "cyan")


def _queries(frame: Frame, width: int, room: int) -> RenderableType:
    shown, more = fitting(sorted(frame.queries, key=_worst_first), room)
    away = {stream.stream.lower() for stream in frame.agents if stream.there < stream.known}
    hows = [_how(query, away) for query in shown]
    names = [Text(printable(q.name), "red" if _fails(q) else "bold") for q in shown]
    for name, query in zip(names, shown, strict=True):
        if query.keys:
            name.append(f" {show_keys(query.keys.items())}", "dim")
    marks = [Text({True: "✓", False: "✗", None: " "}[q.met], "green" if q.met else "red") for q in shown]
    how = [Text(words, HOW_STYLES.get(words, "")) for words in hows]
    columns = [
        Column("query", names, least=10),
        Column("contract", [Text(printable(q.contract), "dim") for q in shown], least=8),
        Column("", marks),
        Column("last answer", [Text(_last(q)) for q in shown], least=12, right=True),
        numbers("kept", [_share(q.rate) for q in shown]),
        numbers("error", [_error(q) for q in shown]),
    ]
    if width >= 90:
        columns.insert(4, Column("how", how))
        columns.append(numbers("answers", [compact(q.answers) for q in shown]))
    if any(q.missed for q in shown):
        columns.append(numbers("missed", [compact(q.missed) for q in shown]))
    left = width - sum(column.natural + 2 for column in columns)
    if left >= 8:
        lines = [sparkline(_values(q), min(left, 40)) for q in shown]
        columns.append(Column("history", [Text(line, "cyan") for line in lines]))
    return as_table(columns, width, more)


def _worst_first(query: QueryFrame) -> tuple[int, float, str]:
    state = 0 if _fails(query) else 2 if query.met is None else 1
    return state, -(query.error or 0.0), query.name.lower()


def _fails(query: QueryFrame) -> bool:
    return query.met is False or query.suspended


def _how(query: QueryFrame, away: set[str]) -> str:
    """How the last answer was obtained, as the page says it; ``away``: streams of which some agent is."""
    if query.suspended:
        return "suspended"
    if _is_open(query):
        return "interrupted" if query.stream.lower() in away else "waiting"
    return query.how or "waiting"


def _last(query: QueryFrame) -> str:
    return "no interval" if _is_open(query) else printable(query.last_text) or "–"


def _is_open(query: QueryFrame) -> bool:
    """Whether the last answer is one that bounds make, and has no interval."""
    last = query.points[-1] if query.points else None
    return last is not None and last.how == "bounded" and not last.met and last.value is None


def _values(query: QueryFrame) -> list[float]:
    return [float("nan") if point.value is None else point.value for point in query.points]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}" if value >= 0.1 or value == 0 else f"{value:.1%}"


def _error(query: QueryFrame) -> str:
    if query.error is None:
        return "–" if query.expected_error is None else f"≈{query.expected_error:.2%}"
    return "none" if query.error == 0 else f"{query.error:.2%}"


def _alerts(alerts: Sequence[AlertFrame]) -> Text:
    raised = [alert for alert in alerts if alert.raised]
    waiting = sum(alert.waiting for alert in alerts)
    text = Text("alerts ", "dim")
    text.append(f"{len(raised):,} of {len(alerts):,} raised", "red" if raised else "")
    if raised:
        text.append(f": {', '.join(_raised(alert) for alert in raised)}")
    if waiting:
        text.append(f"  {waiting:,} events not taken yet", "yellow")
    trouble = next((alert.trouble for alert in alerts if alert.trouble), "")
    return text.append(f"  {printable(trouble)}", "yellow") if trouble else text


def _raised(alert: AlertFrame) -> str:
    """An alert that is raised, and where: some groups by name, and how many more."""
    name = printable(alert.name)
    groups = [" ".join(f"{k}={printable(str(v))}" for k, v in keys.items()) for keys in alert.groups]
    if not groups:
        return name
    more = alert.raised - len(groups)
    return f"{name} ({', '.join(groups)}{f' and {more:,} more' if more > 0 else ''})"


def _status(stream: StreamFrame) -> StreamStatus:
    """A stream as the view of a run has it."""
    return StreamStatus(
        name=stream.name,
        batch=stream.batch,
        rows=stream.rows,
        rate=stream.rows_per_second,
        lag_s=stream.lag_seconds,
        batch_ms=None if stream.batch_seconds is None else stream.batch_seconds * 1000,
        running_s=stream.running_seconds,
        late=stream.late,
        unreadable=stream.unreadable,
        watermark=stream.watermark,
        progress=stream.progress,
        state=stream.state,
        kept=stream.kept,
        level=stream.level,
        updates=stream.updates,
        update_rate=stream.updates_per_second or 0.0,
    )


def _line(text: Text) -> Text:
    """One line, cut where the terminal ends."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
