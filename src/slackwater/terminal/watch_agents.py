"""Agents in the picture of a run that is watched: what they send, who is away, and the widths they hold."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from slackwater.runtime.show import compact, duration, printable, show_number
from slackwater.service.models import AgentsFrame, Frame, WidthFrame

_NAMED = 3
"""Agents that are away and told by name, of each stream."""
_WIDTHS = 6
"""Columns whose widths are shown, of all streams; the page shows as many of each."""
_LABEL = "widths "


def agents_line(frame: Frame) -> Text:
    """How many agents are there, who is not, and what their messages save."""
    text = Text("agents ", "dim")
    for place, stream in enumerate(frame.agents):
        text.append("; " if place else "").append(printable(stream.stream), "bold")
        all_there = stream.there == stream.known
        text.append(f" {stream.there:,} of {stream.known:,} there", "" if all_there else "yellow")
        text.append(_away(stream, frame), "yellow")
        text.append(f", {compact(stream.keys)} keys, {compact(stream.messages_per_second)} messages/s")
        if stream.saved is not None:
            text.append(f" of {compact(stream.offered_per_second or 0.0)} ({stream.saved:.0%} saved)")
    return text


def _away(stream: AgentsFrame, frame: Frame) -> str:
    """Who is away: those that have been for longest by name and for how long, and how many more."""
    away = [agent for agent in stream.agents if not agent.there]
    away.sort(key=lambda agent: math.inf if agent.since is None else agent.since.timestamp())
    named = []
    for agent in away[:_NAMED]:
        long = None if agent.since is None else (frame.at - agent.since).total_seconds()
        named.append(printable(agent.name) + ("" if long is None else f" for {duration(max(1.0, long))}"))
    if not named:
        return ""
    # not all agents are told one by one
    more = max(len(away), stream.known - stream.there) - len(named)
    return f" (away: {', '.join(named)}{f' and {more:,} more' if more > 0 else ''})"


def width_lines(agents: Sequence[AgentsFrame], room: int) -> list[Text]:
    """The widths that agents hold for columns of queries, one line each: as many as there is room for."""
    widths = [width for stream in agents for width in stream.widths]
    shown = widths[: max(0, min(_WIDTHS, room))]
    lines = []
    for place, width in enumerate(shown):
        line = Text(" " * len(_LABEL) if place else _LABEL, "dim")
        line.append(f"{printable(width.query)}.{printable(width.column)}", "bold")
        sizes = ((width.smallest, "least"), (width.median, "middle"), (width.largest, "most"))
        line.append(f"  {', '.join(f'{name} {_short(size)}' for size, name in sizes)}; ")
        line.append(f"{_short(width.used)} of {_short(width.allowed)} used", "red" if _over(width) else "")
        lines.append(line)
    if lines and len(widths) > len(lines):
        lines[-1].append(f"  … and {len(widths) - len(lines):,} more", "dim")
    return lines


def _over(width: WidthFrame) -> bool:
    return width.used is not None and width.used > width.allowed


def _short(value: float | None) -> str:
    """Three digits, as the page has them."""
    return "–" if value is None else show_number(float(f"{value:.3g}"))
