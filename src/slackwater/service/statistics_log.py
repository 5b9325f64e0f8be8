"""What was measured of the load beside a recording, now and then: so that its plan can be seen as it was.

One line is one moment. They are written every other second while something changes, and less often where they
are long: a run of a thousand queries tells half a megabyte.
"""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_right
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from slackwater.runtime.json_values import to_micros
from slackwater.service.allowance import Allowance
from slackwater.service.api_models import Statistics
from slackwater.service.lines import Lines

STATISTICS = "statistics.jsonl"
EVERY_S = 2.0
AT_ONCE = 32 * 2**20
PER_SECOND = 4 * 2**10
"""Bytes a second beyond those: a third of a gigabyte a day at most."""
_HEAD = re.compile(rb'\{"at":(-?\d{1,18}),"statistics":')
_TAIL = 2**16


class StatisticsLog:
    """Appends to ``DIR/statistics.jsonl``; used by one thread. ``trouble`` says what could not be written."""

    def __init__(self, directory: Path, *, at_once: int = AT_ONCE, per_second: int = PER_SECOND) -> None:
        self.path = directory / STATISTICS
        self.trouble = ""
        self._allowance = Allowance(at_once, per_second)
        self._last: tuple[datetime, Statistics] | None = None
        self._whole = False
        """Whether the file is known to end with a whole line."""

    def due(self, now: datetime) -> bool:
        """Whether it is time to look again."""
        self._allowance.earn(now)
        # less than nothing has passed where the clock was set back
        early = self._last is not None and 0 <= (now - self._last[0]).total_seconds() < EVERY_S
        return not early and self._allowance.left > 0

    def append(self, now: datetime, statistics: Statistics) -> None:
        """Write down how it is, where that is not as it was."""
        if self._last is not None and self._last[1] == statistics:
            return
        line = b'{"at":%d,"statistics":%s}\n' % (to_micros(now), statistics.model_dump_json().encode())
        try:
            if not self._whole:
                _cut(self.path)
                self._whole = True
            with self.path.open("ab") as file:
                file.write(line)
        except OSError as error:
            self._whole = False
            self.trouble = f"statistics cannot be written to {self.path}: {error.strerror or error}"
            return
        self.trouble = ""
        self._last = (now, statistics)
        self._allowance.spend(len(line))


def _cut(path: Path) -> None:
    """Cut off a line that a kill or a full disk has left without its end."""
    if not path.exists():
        return
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - _TAIL)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        file.truncate(end)


class StatisticsLines:
    """Read back: the newest before a time. Lines that cannot be read are passed over."""

    def __init__(self, path: Path) -> None:
        self._lines = Lines(path)
        found = []
        for start, line in self._lines.scan():
            head = _HEAD.match(line)
            if head is not None and line.endswith(b"}"):
                found.append((int(head[1]), start + head.end(), start + len(line) - 1))
        # a clock may have been set back
        found.sort()
        self._at = array("q", [at for at, _, _ in found])
        self._places = [(start, end) for _, start, end in found]

    def at(self, time: datetime | None) -> Statistics | None:
        """What was measured until a time, None: at the end; nothing where it was not written down."""
        place = len(self._at) if time is None else bisect_right(self._at, to_micros(time))
        while place > 0:
            place -= 1
            try:
                return Statistics.model_validate_json(self._lines.between(*self._places[place]))
            except ValidationError:
                # damaged, or of another version: the one before it will do
                continue
        return None

    def close(self) -> None:
        self._lines.close()
