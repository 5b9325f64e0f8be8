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

    def note(self, turn: Work, source: StreamSource, began: float, told: Told | None = None) -> None:
        """Tell the board how a stream does after a turn; ``told`` is what agents have sent of it."""
        stream, state = turn.decision.stream, turn.state
        now = self._clocks.seconds()
        taken = now - began
        last, rate = self._speeds.get(stream.lower(), (began, 0.0))
        present = turn.counts.arrived / max(now - last, 1e-6)
        rate = present if rate == 0.0 else STEADINESS * rate + (1 - STEADINESS) * present
        self._speeds[stream.lower()] = (now, rate)
        watermark = state.watermark(stream)
        offsets = state.offsets or {}
        lag = source.lag(offsets) if offsets else None
        if lag is None and state.latest is not None and not source.tells_time:
            lag = max(0.0, self._clocks.now().timestamp() - state.latest / 1e6)
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
                kept=min(1.0, turn.counts.kept / turn.counts.arrived) if turn.counts.arrived else 1.0,
                level=turn.decision.level,
                updates=None if told is None else told.updates,
                update_rate=0.0 if told is None else told.rate,
            )
        )

    def finished(self, stream: str) -> None:
        """Tell the board that a stream has ended."""
        self._board.ended(stream)
