"""Widths as deadbands, for devices that filter by themselves and cannot run an agent.

A device sends a value when it is further than its deadband from the value that it sent last. That is a bound
of twice the deadband about the last value: what the coordinator believes, as long as the deadband is no more
than half of what was granted.
"""

from __future__ import annotations

import csv
import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TextIO

import numpy as np

from slackwater.edge.grant_table import grants_of
from slackwater.edge.messages import Declared, Message, nullable
from slackwater.edge.operator_link import OperatorLink
from slackwater.edge.widths import TOLD, width_at
from slackwater.errors import SourceError

ATTEMPTS = 20
logger = logging.getLogger(__name__)
NEVER = "never"


@dataclass(frozen=True)
class Deadband:
    """When one value column of one key is to be sent."""

    key: list[Any]
    column: str
    deadband: float | None
    """In the unit of the column; None: no change of it is sent."""
    shrink: float
    """The share that goes whenever the time is a multiple of the period; 0: it stays as it is."""
    period: float
    """In seconds, counted from the epoch."""


@dataclass(frozen=True)
class Exported:
    """All deadbands of a stream as they were at a time of the hub."""

    stream: str
    declared: Declared
    made: int
    deadbands: Iterator[Deadband]


def export(link: OperatorLink, stream: str, *, sleep: Callable[[float], None] = time.sleep) -> Exported:
    """The deadbands of a stream, of all keys and value columns.

    Guarantee: none is wider than half of what the hub has granted, and no grant is used before it begins:
    those that begin soon are waited for.
    """
    pages = link.widths()
    first = _begun(link, next(pages), sleep)

    def deadbands() -> Iterator[Deadband]:
        yield from _deadbands(first)
        for page in pages:
            yield from _deadbands(_begun(link, page, sleep))

    return Exported(stream, Declared.parse(first["declared"]), first["time"], deadbands())


def warned(exported: Exported) -> Iterator[Deadband]:
    """The deadbands; at their end it is told how many are never sent, as devices cannot make sums."""
    never = 0
    for found in exported.deadbands:
        never += found.deadband is None
        yield found
    if never:
        logger.warning(
            "%d of them are never sent, as nobody asks for them, they are only counted or agents tell their "
            "sums; a stream whose devices filter by themselves needs OPTIONS (sums 'never')",
            never,
        )


def _begun(link: OperatorLink, page: Message, sleep: Callable[[float], None]) -> Message:
    """A page whose grants have all begun: before that, an older and perhaps narrower one is in use."""
    for _ in range(ATTEMPTS):
        ahead = max(page["grants"]["start"], default=0) - page["time"]
        if ahead <= 0:
            return page
        sleep(ahead / 1e6)
        page = link.page(page["next"] - len(page["keys"]))
    raise SourceError("grants keep being made that have not begun yet: try again")


def _deadbands(page: Message) -> Iterator[Deadband]:
    columns = page["declared"]["columns"]
    grants = grants_of(page["grants"])
    widths = width_at(grants.width, grants.start, grants.shrink, grants.period, page["time"])
    # what is only counted, perhaps granted a hair less, says that it has a value and not which
    widths = np.where(grants.width > TOLD / 2, np.inf, widths)
    first = page["next"] - len(page["keys"])
    size = len(page["keys"]) * len(columns)
    objects = (grants.key - first) * len(columns) + grants.column
    half, shrink, period = np.full(size, np.inf), np.zeros(size), np.zeros(size)
    half[objects], shrink[objects] = widths / 2, np.where(np.isfinite(widths), grants.shrink, 0.0)
    period[objects] = grants.period / 1e6
    rows = zip(nullable(half), shrink.tolist(), period.tolist(), strict=True)
    for place, (deadband, share, seconds) in enumerate(rows):
        key = page["keys"][place // len(columns)]
        if isinstance(key, dict):
            # a sum that an agent makes, and no device has
            continue
        yield Deadband(key, columns[place % len(columns)], deadband, share, seconds if share else 0.0)


def write_json(exported: Exported, file: TextIO) -> int:
    """Write an object with a list of deadbands, one to a line; how many there were."""
    head = {
        "stream": exported.stream,
        "made": _time(exported.made),
        "key": list(exported.declared.key),
        "columns": list(exported.declared.columns),
    }
    file.write(json.dumps(head, ensure_ascii=False)[:-1] + ', "deadbands": [')
    count = 0
    for found in warned(exported):
        law = {"shrink": found.shrink, "period_seconds": found.period} if found.shrink else {}
        line = {"key": found.key, "column": found.column, "deadband": found.deadband, **law}
        file.write((",\n" if count else "\n") + json.dumps(line, ensure_ascii=False))
        count += 1
    file.write("\n]}\n")
    return count


def write_csv(exported: Exported, file: TextIO) -> int:
    """Write a row for every deadband; how many there were."""
    writer = csv.writer(file, lineterminator="\n")
    keys = [f"key.{name}" for name in exported.declared.key]
    writer.writerow([*keys, "column", "deadband", "shrink", "period_seconds", "made"])
    made, count = _time(exported.made), 0
    for found in warned(exported):
        shown = NEVER if found.deadband is None else found.deadband
        writer.writerow([*found.key, found.column, shown, found.shrink, found.period, made])
        count += 1
    return count


def _time(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="microseconds")
