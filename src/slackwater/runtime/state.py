"""What a run knows between two turns, as values that a commit holds whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from slackwater.plan.panes import BEFORE_ALL

CURRENT = "current"
"""What the files of a stream's current values are listed under."""
BOUNDS = "bounds"
"""What the files of a stream's bounds are listed under."""


@dataclass
class LogFile:
    """Partials of one turn: a file or folder below the state directory, and the panes in it."""

    path: str
    rows: int
    low: int
    high: int


@dataclass
class StreamState:
    """Where one stream stands."""

    turn: int = 0
    batch: int = -1
    version: int = 0
    offsets: dict[str, Any] | None = None
    latest: int | None = None
    """The largest event time seen."""
    begun: int | None = None
    """No row that came with the first ones lies before this, as far as is known; None before them."""
    seen_to: int = BEFORE_ALL
    """Every row lies before this that had come when the query set last changed, though it was dropped."""
    filtered_to: int = BEFORE_ALL
    """Of what agents have filtered rows may be missing before this."""
    unfiltered: bool = False
    """Whether agents have been found to send every change, since a query has asked for that."""
    watermarks: dict[str, int] = field(default_factory=dict)
    """By source: up to where windows have been closed."""
    counted: dict[str, int] = field(default_factory=dict)
    """By table of tuple windows: rows numbered so far."""
    closed_tuples: dict[str, int] = field(default_factory=dict)
    partial_since: dict[str, int] = field(default_factory=dict)
    """By table and partial: from when on it has seen every row."""
    since: dict[str, int] = field(default_factory=dict)
    """By step: the earliest start of a window that it can answer exactly."""
    kept_from: dict[str, int] = field(default_factory=dict)
    """By table: panes before this have been forgotten."""
    files: dict[str, list[LogFile]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    """Rows that a grouped table had in its last batch."""
    large: list[str] = field(default_factory=list)
    """Tables whose panes times groups outgrew the driver: Spark reads them."""
    extremes: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By partial: the smallest and largest value seen, so that limits allow for what a sample misses."""
    schedule: dict[str, Any] = field(default_factory=dict)
    """Which windows are left out, as far as that has been decided."""
    filling: dict[str, Any] = field(default_factory=dict)
    """By query with FILL: the values that were delivered last."""
    arrived: int = 0
    late: int = 0
    unreadable: int = 0
    answers: dict[str, int] = field(default_factory=dict)
    ended: bool = False

    def watermark(self, source: str) -> int:
        return self.watermarks.get(source.lower(), BEFORE_ALL)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamState:
        files = {t: [LogFile(**f) for f in listed] for t, listed in value.get("files", {}).items()}
        extremes = {n: (float(low), float(high)) for n, (low, high) in value.get("extremes", {}).items()}
        return cls(**{**value, "files": files, "extremes": extremes})


@dataclass
class RunState:
    """All streams of a run, and how far its sinks are written."""

    step: int = 0
    streams: dict[str, StreamState] = field(default_factory=dict)
    marks: dict[str, Any] = field(default_factory=dict)
    alerts: str = ""
    """Where alerts are raised, as JSON."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RunState:
        streams = {name: StreamState.from_json(s) for name, s in value.get("streams", {}).items()}
        return cls(value["step"], streams, dict(value.get("marks", {})), str(value.get("alerts", "")))
