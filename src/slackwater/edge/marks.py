"""How far a log was read, so that whoever reads on can tell whether it is still the same.

A hub whose directory was moved away begins another log; one that was restored from a copy goes on with the
same name from an earlier position, and gives positions a second time. In both cases what was read is no
beginning of what is there, and nothing that rests on it holds.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slackwater.edge.messages import OtherLog

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Mark:
    """A log and how far it is known to go."""

    log: str
    """Its random name; empty where what was kept does not say it."""
    end: int = 0
    """It was at least so long."""
    last: tuple[int, int] | None = None
    """The last entry that was read: its position, and a checksum of what it says, times and all."""

    def reached(self, end: int) -> Mark:
        return self if end <= self.end else replace(self, end=end)

    def after(self, entries: Sequence[Entry]) -> Mark:
        """The mark when these have been read too."""
        if not entries or (self.last is not None and entries[-1]["position"] <= self.last[0]):
            return self
        return replace(self, last=identified(entries[-1]))

    def strange(self, log: str, end: int) -> str | None:
        """What tells a log of this name and length from the one that was read, if something does.

        >>> Mark("5d0c", 12).strange("5d0c", 12)
        >>> Mark("5d0c", 12).strange("77aa", 40)
        "expected log '5d0c', known up to position 12, got log '77aa', which ends at position 40"
        >>> Mark("5d0c", 12).strange("5d0c", 7)
        "expected log '5d0c' to go up to position 12 at least, got one that ends at position 7"
        """
        if self.log and log != self.log:
            return f"expected log {self.log!r}, known up to position {self.end}, " + (
                f"got log {log!r}, which ends at position {end}"
            )
        if end < self.end:
            return f"expected log {log!r} to go up to position {self.end} at least, " + (
                f"got one that ends at position {end}"
            )
        return None

    def differs(self, found: Sequence[Entry]) -> str | None:
        """What is wrong with the entry at the place of the last one that was read, if something is."""
        if self.last is None or (found and identified(found[0]) == self.last):
            return None
        got = f"a {found[0]['kind']!r} received at {found[0]['received']}" if found else "none"
        return f"expected at position {self.last[0]} of log {self.log!r} the entry that was read, got {got}"


def identified(entry: Entry) -> tuple[int, int]:
    """What an entry is known by again: a clock that was set back may give the same times twice.

    >>> identified({"position": 3, "kind": "generation", "number": 1})
    (3, 1187420683)
    """
    text = json.dumps(entry, sort_keys=True, separators=(",", ":"))
    return entry["position"], zlib.crc32(text.encode())


def other_log(hub: str, stream: str, difference: str) -> OtherLog:
    """The error for a log that is not the one that was read."""
    return OtherLog(
        f"the hub at {hub} does not have the log of stream {stream!r} that this run has read: {difference}. "
        "Its directory was moved away, or restored from an older copy. Put the directory back as it was, or "
        "start the run over with --fresh (Session.start(fresh=True))"
    )
