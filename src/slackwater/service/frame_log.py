"""The frames of a run beside its recording, one on a line, so that it can be looked at later as it was.

Every sixtieth line is a whole frame: a reader can begin at any of these. What is written is bounded: a run
may write so many bytes at once and so many a second on average. Beyond that, frames are put together and one
line is what has changed in several seconds; of each query it has the last points only, all answers being in
the recording anyway.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ValidationError

from slackwater.service.allowance import Allowance
from slackwater.service.folding import fold, gap_before, joined, same_series
from slackwater.service.models import Frame, QueryFrame

FRAMES = "frames.jsonl"
WHOLE_EVERY = 60
AT_ONCE = 64 * 2**20
"""Bytes that a run may write before it has to put frames together: an hour of a hundred queries."""
PER_SECOND = 8 * 2**10
"""Bytes a second that it may write beyond that: 0.7 GB a day at most, however many queries there are."""
POINTS = 8
"""Points of a query that frames keep when they are put together."""
_TAIL = 2**16


class FrameLog:
    """Appends frames to ``DIR/frames.jsonl``; used by one thread.

    What cannot be written is told in ``trouble`` and tried again with the next frame: a full disk is no
    reason to end a run.
    """

    def __init__(self, directory: Path, *, at_once: int = AT_ONCE, per_second: int = PER_SECOND) -> None:
        self.path = directory / FRAMES
        self.trouble = ""
        self._allowance = Allowance(at_once, per_second)
        self._length: int | None = None
        """Of the file up to the end of its last line; None until it has been looked at."""
        self._before = 0
        """The number of the last frame of an earlier part of the run."""
        self._since_whole: int | None = None
        self._state: Frame | None = None
        """The run at present, without points."""
        self._pending: Frame | None = None
        """What has changed since the last line."""
        self._lasts: dict[str, QueryFrame] = {}
        """By query: its last frame that had a point, with that point only."""

    def append(self, frame_json: bytes, whole_every: int = WHOLE_EVERY) -> None:
        """Take note of the next frame, whole or not."""
        frame = self._news(Frame.model_validate_json(frame_json))
        self._state = fold(self._state, frame, 0)
        self._pending = frame if self._pending is None else joined(self._pending, frame, POINTS)
        self._allowance.earn(frame.at)
        if self._allowance.left > 0:
            self.flush(whole_every)

    def flush(self, whole_every: int = WHOLE_EVERY) -> None:
        """Write what is pending, whatever room it takes: at the end of a run."""
        pending, state = self._pending, self._state
        if pending is None or state is None:
            return
        try:
            self._open(pending.number)
            whole = pending.whole or self._since_whole is None or self._since_whole + 1 >= whole_every
            written = _with_points(state, pending) if whole else pending
            written = written.model_copy(update={"number": written.number + self._before})
            line = written.model_dump_json().encode() + b"\n"
            self._write(line)
        except OSError as error:
            self.trouble = f"frames cannot be written to {self.path}: {error.strerror or error}"
            return
        self.trouble = ""
        self._allowance.spend(len(line))
        self._since_whole = 0 if whole else (self._since_whole or 0) + 1
        self._pending = None

    def _news(self, frame: Frame) -> Frame:
        """A frame without the points that were there before it: a whole one has some of long ago."""
        there = {query.name for query in frame.queries}
        for name in [*frame.dropped, *(self._lasts.keys() - there if frame.whole else ())]:
            self._lasts.pop(name, None)
        queries = []
        for query in frame.queries:
            last = self._lasts.get(query.name)
            if last is not None and same_series(last, query):
                end = last.points[-1].at
                if query.points and query.points[0].at <= end:
                    query = query.model_copy(update={"points": [p for p in query.points if p.at > end]})
                if query.points:
                    first = query.points[0]
                    if gap_before(first, last.points[-1], query.slide_seconds):
                        # it says so itself: the line may leave out the points before it
                        first = first.model_copy(update={"gap": True})
                        query = query.model_copy(update={"points": [first, *query.points[1:]]})
            if query.points:
                self._lasts[query.name] = query.model_copy(update={"points": query.points[-1:]})
            queries.append(query)
        return frame.model_copy(update={"queries": queries})

    def _open(self, first: int) -> None:
        """Find the end of what an earlier part of the run has left; numbers go on after it."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if self._length is None or size < self._length:
            # never looked at, or somebody has cut or removed it meanwhile
            self._length, last = _end_of(self.path)
            self._before = last if last is not None and first <= last else 0
            self._since_whole = None

    def _write(self, line: bytes) -> None:
        assert self._length is not None
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            # a line that was cut by a kill or a full disk is written over
            os.ftruncate(descriptor, self._length)
            os.lseek(descriptor, self._length, os.SEEK_SET)
            view = memoryview(line)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)
        self._length += len(line)


def _end_of(path: Path) -> tuple[int, int | None]:
    """Where the last whole line of a file ends, and the number of the last frame that can be read."""
    if not path.exists():
        return 0, None
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        tail, start = b"", size
        end: int | None = None
        while True:
            lines = tail.split(b"\n")
            if end is None and len(lines) > 1:
                end = size - len(lines[-1])
            # the first one has its beginning in the tail only where that is all of the file
            for line in reversed(lines[1 if start else 0 : -1]):
                try:
                    return end or 0, Frame.model_validate_json(line).number
                except ValidationError:
                    # not ours, or of another version: the frame before it will do
                    continue
            if not start or (end is not None and size - start > AT_ONCE):
                return end or 0, None
            # a line may be long: further back until one can be read
            start = max(0, start - max(_TAIL, len(tail)))
            file.seek(start)
            tail = file.read(size - start)


def _with_points(state: Frame, pending: Frame) -> Frame:
    """The run at present, with the points that are new."""
    fresh = {query.name: query for query in pending.queries}
    return state.model_copy(update={"queries": [fresh.get(q.name, q) for q in state.queries]})
