"""What the engine tells the board of its streams: rates, lag, watermarks."""

from __future__ import annotations

from slackwater.plan.panes import AFTER_ALL
from slackwater.runtime.board import Board
from slackwater.runtime.bounds.showing import Told
from slackwater.runtime.clocks import Clocks
from slackwater.runtime.json_values import from_micros
from slackwater.runtime.status import StreamStatus
from slackwater.runtime.work import Work
from slackwater.spark.source import StreamSource

STEADINESS = 0.7
"""The share of the old rate in the new one: a rate that jumps cannot be read."""


class Reporter:
    """Keeps the rates of the streams."""

    def __init__(self, board: Board, clocks: Clocks) -> None:
        self._board = board
        self._clocks = clocks
        self._speeds: dict[str, tuple[float, float]] = {}
        self._fed: dict[str, float] = {}
        """By stream: when its last batch was done."""
        self._idle: dict[str, float] = {}
        """By stream that is idle: the rate that it had."""

    def note(self, turn: Work, source: StreamSource, began: float, told: Told | None = None) -> None:
        """Tell the board how a stream does after a turn; ``told`` is what agents have sent of it."""
        stream, state = turn.decision.stream, turn.state
        now = self._clocks.seconds()
        name, taken = stream.lower(), now - began
        if turn.decision.batch is not None:
            self._idle.pop(name, None)
            self._fed[name] = now
        # the clock closes windows of a stream that is idle, and it is idle still
        idle = name in self._idle
        rate = 0.0 if idle else self._rate(name, turn.counts.arrived, began, now)
        watermark = state.watermark(stream)
        offsets = state.offsets or {}
        lag = source.lag(offsets) if offsets else None
        if lag is None and state.latest is not None and not source.tells_time:
            lag = max(0.0, self._clocks.now().timestamp() - state.latest / 1e6)
        if idle:
            lag = 0.0
        if turn.decision.batch is not None:
            self._board.took(stream, taken)
        self._board.stream(
            StreamStatus(
                name=stream,
                batch=state.batch + 1,
                rows=state.arrived,
                rate=rate,
                lag_s=lag,
                batch_ms=taken * 1000,
                late=state.late if told is None or told.late is None else told.late,
                unreadable=state.unreadable,
                watermark=from_micros(watermark) if abs(watermark) < AFTER_ALL else None,
                progress=source.progress(offsets) if offsets else None,
                state="idle" if idle else "running",
                last_rate=self._idle.get(name, 0.0),
                kept=min(1.0, turn.counts.kept / turn.counts.arrived) if turn.counts.arrived else 1.0,
                level=turn.decision.level,
                updates=None if told is None else told.updates,
                update_rate=0.0 if told is None or idle else told.rate,
            )
        )

    def _rate(self, name: str, arrived: int, began: float, now: float) -> float:
        last, rate = self._speeds.get(name, (began, 0.0))
        present = arrived / max(now - last, 1e-6)
        rate = present if rate == 0.0 else STEADINESS * rate + (1 - STEADINESS) * present
        self._speeds[name] = (now, rate)
        return rate

    def rest(self, stream: str, after: float) -> bool:
        """Tell the board that a stream is idle where no batch of it has come for so many seconds.

        Whether it has become idle by that.
        """
        name = stream.lower()
        # of one that has had none since the run was started it counts from when this is first asked
        fed = self._fed.setdefault(name, self._clocks.seconds())
        if self._clocks.seconds() - fed < after or not self._board.idle(stream):
            return False
        # what comes after a silence is not spread over it
        self._idle[name] = self._speeds.pop(name, (0.0, 0.0))[1]
        return True

    def finished(self, stream: str) -> None:
        """Tell the board that a stream has ended."""
        self._board.ended(stream)
