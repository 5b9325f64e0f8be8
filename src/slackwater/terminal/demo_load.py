"""How the demo's packets do: each batch with its load and capacity, and what another rate would be."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from slackwater.edge.clock import now_micros
from slackwater.planners.terms import StreamLoad, must_take, terms_of
from slackwater.runtime.engine import Engine
from slackwater.runtime.insight import Glimpse, going_of
from slackwater.runtime.pace import Pace
from slackwater.statistics.costs import predicted
from slackwater.terminal.demo_story import REMEMBERED

MOST = 100.0
LEAST = 0.1
"""Where the slider ends."""
_HALVINGS = 24


@dataclass(frozen=True)
class Batch:
    """One batch of the packets, when it was done; times in microseconds since the epoch."""

    number: int
    oldest: int
    newest: int
    """From when on and until when its rows had come."""
    ended: int
    seconds: float
    rows: int
    level: float
    sheds: bool
    """Whether some of its rows were left out."""
    load: float
    capacity: float | None
    """Executor seconds: what it would take whole, and what it may take."""

    @property
    def age(self) -> float:
        """How old its oldest row was when it was done, in seconds."""
        return (self.ended - self.oldest) / 1e6

    @property
    def multiple(self) -> float:
        """How many times the capacity its load was; 0 where nothing is known."""
        return self.load / self.capacity if self.capacity else 0.0


class BatchLog:
    """Keeps the newest batches of a stream: one of the engine's observers, called under its lock."""

    def __init__(self, stream: str, now: Callable[[], int] = now_micros) -> None:
        self._stream, self._now = stream.lower(), now
        self._lock = threading.Lock()
        self._batches: deque[Batch] = deque(maxlen=REMEMBERED)
        self._glimpse: Glimpse | None = None
        self._arrived = 0

    def __call__(self, engine: Engine) -> None:
        state = engine.state.streams[self._stream]
        decision = engine.decided.get(self._stream)
        if decision is None or state.offsets is None:
            return
        if self._batches and self._batches[-1].number == state.batch:
            # another stream's turn
            return
        glimpse = Glimpse.of(engine)
        # the board says when it was looked at, which nobody needs here
        looked = engine.board.status(datetime.fromtimestamp(0, UTC))
        status = next(s for s in looked.streams if s.name.lower() == self._stream)
        load, capacity = measured(glimpse) if glimpse is not None else (0.0, None)
        batch = Batch(
            number=state.batch,
            oldest=int(str(state.offsets["from"])),
            newest=int(str(state.offsets["to"])),
            ended=self._now(),
            seconds=(status.batch_ms or 0.0) / 1000,
            rows=state.arrived - self._arrived,
            level=decision.level,
            sheds=bool(decision.thresholds) or decision.share < 1,
            load=load,
            capacity=capacity,
        )
        self._arrived = state.arrived
        with self._lock:
            self._batches.append(batch)
            self._glimpse = glimpse

    @property
    def batches(self) -> Sequence[Batch]:
        with self._lock:
            return tuple(self._batches)

    @property
    def last(self) -> Batch | None:
        with self._lock:
            return self._batches[-1] if self._batches else None

    def rows_for(self, multiple: float) -> float | None:
        """Rows of a batch whose load would be so many times the capacity; None while nothing is known."""
        with self._lock:
            glimpse = self._glimpse
        if glimpse is None or not any(load.statistics.batches for load, _ in glimpse.loads):
            return None
        return rows_for(multiple, _loads(glimpse), self._stream, glimpse.pace)


def measured(glimpse: Glimpse) -> tuple[float, float]:
    """Load and capacity at present."""
    return _at(_loads(glimpse), glimpse.pace)


def _loads(glimpse: Glimpse) -> Sequence[StreamLoad]:
    return going_of([load for load, _ in glimpse.loads], glimpse.ended)


def rows_for(multiple: float, loads: Sequence[StreamLoad], stream: str, pace: Pace) -> float:
    """Rows of a stream's batch at which the load of all is so many times the capacity.

    The capacity may change with the rows too, by what cannot be shed of them. So it is searched for.
    """
    low, high = 0.0, 1e9

    def times(rows: float) -> float:
        resized = [replace(x, size=rows) if x.statistics.stream.lower() == stream else x for x in loads]
        load, capacity = _at(resized, pace)
        return load / capacity

    for _ in range(_HALVINGS):
        # in the middle of their logarithms: rows may be a hundred or a million
        middle = ((low + 1) * (high + 1)) ** 0.5 - 1
        low, high = (middle, high) if times(middle) < multiple else (low, middle)
    return low


def _at(loads: Sequence[StreamLoad], pace: Pace) -> tuple[float, float]:
    fixed = sum(must_take(load, 1.0) for load in loads)
    load = sum(predicted(x.statistics.costs, terms_of(x, {})) for x in loads)
    among = max(1, len(loads))
    # as the page shows it: what must be taken makes it no larger
    return load, min(pace.capacity(fixed, among), pace.fits(among))
