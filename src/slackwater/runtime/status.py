"""What a run tells about itself at one moment: the facts behind the live view and the summary."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from slackwater.runtime.answers import How
from slackwater.runtime.json_values import Value

LONG_S = 3.0
LONG = 2.0
"""A batch is long beyond so many seconds, and so many times what the last one took."""
StreamPhase = Literal["running", "idle", "stopped", "ended"]


@dataclass(frozen=True, kw_only=True)
class StreamStatus:
    """How far a stream has been read, and how fast.

    `batch` (batches), `rows`, `late` and `unreadable` count since the start, and late and unreadable rows are
    among `rows`; `rate` is rows a second, `lag_s` how far the reading is behind the source. `progress` goes
    from 0 to 1 where the stream has an end. `kept` is the share of the last batch's rows that some query has
    seen, `level` the loss level that was planned for: 0 while nothing is shed. A stream is idle where its
    source was looked at and no batch has come for a while: it has no rate and no lag, and nothing is shed.
    """

    name: str
    batch: int = 0
    rows: int = 0
    rate: float = 0.0
    lag_s: float | None = None
    batch_ms: float | None = None
    late: int = 0
    unreadable: int = 0
    watermark: datetime | None = None
    progress: float | None = None
    state: StreamPhase = "running"
    kept: float = 1.0
    level: float = 0.0
    running_s: float | None = None
    """For how long the batch that runs has been running; None between batches."""
    updates: int | None = None
    """Of a stream that agents send: what they have told, of keys and of sums of keys, which are no rows."""
    update_rate: float = 0.0
    """Updates a second."""
    last_rate: float = 0.0
    """Of a stream that is idle or has ended: the `rate` it was read at, which is 0 from then on."""

    @property
    def long_batch_s(self) -> float | None:
        """For how long the batch that runs has been running, where that is unusual; None where it is not."""
        usual = max(LONG_S, LONG * (self.batch_ms or 0.0) / 1000)
        return self.running_s if self.running_s is not None and self.running_s > usual else None

    @property
    def sheds(self) -> bool:
        """Whether the last batch was thinned out."""
        return self.kept < 1.0 or self.level > 0.0


@dataclass(frozen=True, kw_only=True)
class QueryStatus:
    """The last answer of a query, how many there were, and its recent values, oldest first."""

    name: str
    contract: str
    last_value: Value = None
    last_window_end: datetime | None = None
    last_keys: tuple[tuple[str, Value], ...] = ()
    answers: int = 0
    history: tuple[float, ...] = ()
    how: How | None = None
    met: bool | None = None
    missed: int = 0
    """Evaluations under DRIFT that were due and could not be had in time."""
    evaluated: int = 0


@dataclass(frozen=True, kw_only=True)
class Status:
    """All streams and queries of a run at one moment."""

    at: datetime
    streams: tuple[StreamStatus, ...] = ()
    queries: tuple[QueryStatus, ...] = ()
    message: str = ""

    @property
    def ended(self) -> frozenset[str]:
        """Streams that have no batches any more, in lower case: they are no load."""
        return frozenset(stream.name.lower() for stream in self.streams if stream.state == "ended")

    @property
    def quiet(self) -> frozenset[str]:
        """Streams that are idle or have ended, in lower case: at this moment they are no load."""
        return frozenset(s.name.lower() for s in self.streams if s.state in ("idle", "ended"))
