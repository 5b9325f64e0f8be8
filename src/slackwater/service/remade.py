"""Frames of a recording that has none: made of its turns and answers, one for each second of the run.

A run without the service, or one of an older version, leaves no frames. What was never recorded is not there:
the load and the capacity, agents, alerts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slackwater.plan.catalog import Catalog
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import Answer
from slackwater.runtime.insight import Insight
from slackwater.runtime.json_values import FIRST_MICROS, LAST_MICROS, exact_text, from_micros, to_micros
from slackwater.runtime.recording import RecordedTurn
from slackwater.runtime.status import QueryStatus, Status, StreamStatus
from slackwater.service.frame_log import FrameLog
from slackwater.service.framing import Framer, Moving
from slackwater.service.models import Phase

SECOND = 1_000_000
QUIET = 60
"""Seconds without a turn that have frames of their own; a run that was away for longer has none meanwhile."""


@dataclass
class _Stream:
    """What turns have said of a stream."""

    status: StreamStatus
    level: float = 0.0
    at: int | None = None

    def take(self, turn: RecordedTurn, at: int) -> None:
        before = self.status
        rate = before.rate
        if turn.kind == "batch":
            # of the first batch nobody knows how long its rows took to come
            passed = SECOND if self.at is None else max(SECOND, at - self.at)
            rate, self.at = turn.arrived * SECOND / passed, at
        has_date = FIRST_MICROS < turn.closed < LAST_MICROS
        self.level = turn.level
        self.status = StreamStatus(
            name=before.name,
            batch=before.batch + (turn.kind == "batch"),
            rows=before.rows + turn.arrived,
            rate=0.0 if turn.kind == "end" else rate,
            watermark=from_micros(turn.closed) if has_date else before.watermark,
            state="ended" if turn.kind == "end" else "running",
            kept=turn.share,
            level=turn.level,
        )


@dataclass
class Remade:
    """Goes through a recording once, and gives its frames to a log."""

    log: FrameLog
    catalog_of: Callable[[int], Catalog]
    """The query set of a version."""
    framer: Framer = field(default_factory=lambda: Framer(mode="recorded"))
    _streams: dict[str, _Stream] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)
    _pending: list[Answer] = field(default_factory=list)
    _version: int = 0
    _at: int = 0

    def make(self, turns: Iterable[tuple[RecordedTurn, int]], answers: Iterator[Answer]) -> None:
        """``turns`` come with their times, and both in the order in which they were recorded."""
        waiting = next(answers, None)
        for turn, at in turns:
            if self._version and at // SECOND > self._at // SECOND:
                self._frame("running")
                for second in self._quiet(at):
                    self._at = second * SECOND
                    self._frame("running")
            elif self._version and turn.version != self._version:
                # what follows may be of other queries of the same names
                self._frame("running")
            self._at = max(self._at, at)
            self._version = turn.version
            name = turn.stream.lower()
            if name not in self._streams:
                self._streams[name] = _Stream(StreamStatus(name=turn.stream))
            self._streams[name].take(turn, at)
            # the answers of a turn were made before it was over
            while waiting is not None and to_micros(waiting.emitted_at) <= at:
                self._pending.append(waiting)
                waiting = next(answers, None)
        if waiting is not None:
            self._pending += [waiting, *answers]
        if self._version:
            ended = all(stream.status.state == "ended" for stream in self._streams.values())
            self._frame("ended" if ended else "stopped")
        self.log.flush()

    def _quiet(self, at: int) -> range:
        """The whole seconds between the last frame and a time, unless these are many."""
        seconds = range(self._at // SECOND + 1, at // SECOND)
        return seconds if len(seconds) <= QUIET else range(0)

    def _frame(self, phase: Phase) -> None:
        taken, self._pending = self._pending, []
        catalog = self.catalog_of(self._version)
        for name in self.framer.declare(catalog):
            del self._counts[name]
        self._counts.update(answer.query for answer in taken)
        streams = [stream.status for stream in self._streams.values()]
        moving = Moving(
            at=from_micros(self._at),
            phase=phase,
            version=self._version,
            catalog=catalog,
            status=Status(at=from_micros(self._at), streams=tuple(streams), queries=self._queries(catalog)),
            insight=Insight(),
            level=max((stream.level for stream in self._streams.values()), default=0.0),
        )
        frame = self.framer.frame(moving, list(batches_of(taken)))
        self.log.append(frame.model_dump_json().encode())

    def _queries(self, catalog: Catalog) -> tuple[QueryStatus, ...]:
        return tuple(
            QueryStatus(name=step.name, contract=str(step.contract), answers=self._counts[step.name])
            for step in catalog.queries.values()
        )


def remake(
    folder: Path,
    turn_lines: Iterable[bytes],
    answers: Callable[[], Iterator[Answer]],
    catalog_of: Callable[[int], Catalog],
) -> None:
    """Write frames to ``folder`` for turns and answers that were recorded."""
    turns = list(read_turns(turn_lines))
    Remade(FrameLog(folder), catalog_of).make(zip(turns, times_of(turns, answers), strict=True), answers())


def times_of(turns: Sequence[RecordedTurn], answers: Callable[[], Iterator[Answer]]) -> list[int]:
    """When turns were carried out; where they do not say, when answers up to their watermark came."""
    ends: npt.NDArray[np.int64] = np.empty(0, np.int64)
    emitted = ends
    if any(turn.at is None for turn in turns):
        found = [(_end_of(answer), to_micros(answer.emitted_at)) for answer in answers()]
        pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
        ends, emitted = np.maximum.accumulate(pairs, axis=0).T
    times: list[int] = []
    for turn in turns:
        at = turn.at
        if at is None:
            place = int(np.searchsorted(ends, turn.closed, side="right"))
            at = int(emitted[max(0, place - 1)]) if len(emitted) else turn.turn * SECOND
        times.append(max(at, times[-1]) if times else at)
    return times


def _end_of(answer: Answer) -> int:
    moment = answer.window_end or answer.at
    return FIRST_MICROS if moment is None else to_micros(moment)


def batches_of(answers: Iterable[Answer]) -> Iterator[AnswerBatch]:
    """Answers as columns: those that follow each other and are of one query, column and kind together."""
    part: list[Answer] = []
    for answer in answers:
        if part and _kind(part[0]) != _kind(answer):
            yield _batch(part)
            part = []
        part.append(answer)
    if part:
        yield _batch(part)


def _kind(answer: Answer) -> tuple[object, ...]:
    names = tuple(name for name, _ in answer.keys)
    times = (answer.window_start is None, answer.window_end is None, answer.at is None, answer.slope is None)
    return answer.query, answer.column, answer.how, answer.confidence, answer.emitted_at, names, times


def _batch(part: Sequence[Answer]) -> AnswerBatch:
    first = part[0]

    def times(name: str) -> npt.NDArray[np.int64] | None:
        if getattr(first, name) is None:
            return None
        return np.array([to_micros(getattr(answer, name)) for answer in part], dtype=np.int64)

    return AnswerBatch(
        query=first.query,
        column=first.column,
        window_start=times("window_start"),
        window_end=times("window_end"),
        at=times("at"),
        keys={name: _column([a.keys[i][1] for a in part]) for i, (name, _) in enumerate(first.keys)},
        value=_column([answer.value for answer in part]),
        low=_column([answer.low for answer in part]),
        high=_column([answer.high for answer in part]),
        confidence=first.confidence,
        how=first.how,
        rate=np.array([answer.rate for answer in part]),
        met=np.array([answer.met for answer in part]),
        emitted_at=first.emitted_at,
        slope=None if first.slope is None else np.array([answer.slope for answer in part], dtype=np.float64),
    )


def _column(values: list[object]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        # values of several types: as text they can at least be seen
        return pa.array([None if value is None else exact_text(value) for value in values], pa.string())


def read_turns(lines: Iterable[bytes]) -> Iterator[RecordedTurn]:
    """Turns of a file of them; lines that are none are passed over."""
    for line in lines:
        try:
            yield RecordedTurn.from_json(line.decode())
        except (ValueError, KeyError, TypeError):
            continue
