"""The frames of a recording, read back: an index of lines, the tide line, and frames thinned out for a page.

What a page can hold is bounded. Of a long recording neighbouring frames are put together until there are at
most 3,600 of them and about 64 MB, and of each query every second point is sent, or every third, and so on,
until there are at most 400,000 points in all.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from slackwater.runtime.json_values import from_micros, to_micros
from slackwater.service.folding import KEPT_POINTS, fold, gap_before, joined, moment_of, same_series
from slackwater.service.lines import Lines
from slackwater.service.models import Frame, Moment, Point, QueryFrame

SENT_FRAMES = 3_600
SENT_BYTES = 64 * 2**20
SENT_POINTS = 400_000
_ALL = 2**31
_LOOKED_BACK = 600
"""Lines behind the last one whose points are those of the newest frame."""
_LOOKED_BACK_BYTES = 16 * 2**20
"""And so much of them at most: of a thousand queries these are a few lines."""
_READ_AT_ONCE = 4 * 2**20
"""Bytes of lines that are read for frames that are sent at once: meanwhile their reader has nothing."""
_READERS = 16
_QUERIES = b',"queries":['
_POINT = b'"low":'
_NUMBERS = ("load", "kept_load", "capacity", "level", "rows_per_second", "lag_seconds")


class FrameLines:
    """Frames by their place in the recording: the first is number 1, whatever number it had in the run.

    Lines that cannot be read are passed over, and so are those after them up to the next whole frame:
    ``lost`` says how many.
    """

    def __init__(self, lines: Lines, name: str = "") -> None:
        self.lost = 0
        self._lines = lines
        self._name = name
        self._starts = array("Q")
        self._lengths = array("Q")
        self._whole = bytearray()
        self._at = array("q")
        self._numbers = {name: array("d") for name in _NUMBERS}
        self._points = 0
        self._lock = threading.Lock()
        self._thins: dict[int, _Thin] = {}
        """By the number of a frame: what has thinned out those up to it."""
        self._index()

    def __len__(self) -> int:
        return len(self._starts)

    def _index(self) -> None:
        known = False
        for start, line in self._lines.scan():
            head = _head(line)
            if head is None or not (known or head.whole):
                known = False
                self.lost += 1
                continue
            known = True
            self._starts.append(start)
            self._lengths.append(len(line))
            self._whole.append(head.whole)
            self._at.append(to_micros(head.at))
            moment = moment_of(head)
            for name, column in self._numbers.items():
                value = getattr(moment, name)
                column.append(math.nan if value is None else value)
            self._points += line.count(_POINT)

    @property
    def together(self) -> int:
        """How many lines are put together to one frame that is sent."""
        largest = max(self._lengths, default=0)
        # lines that are put together have every query: each is as large as a whole one
        too_large = len(self) * largest / SENT_BYTES if sum(self._lengths) > SENT_BYTES else 0
        return max(1, math.ceil(len(self) / SENT_FRAMES), math.ceil(too_large))

    def moments(self, limit: int) -> list[Moment]:
        """The tide line: the newest moments, oldest first."""
        return [self._moment(place) for place in range(max(0, len(self) - limit), len(self))]

    def thinned_moments(self, most: int) -> list[Moment]:
        """The tide line of all of the recording; of neighbours the one with the largest load stays."""
        step = max(1, math.ceil(len(self) / most))
        loads, levels = self._numbers["load"], self._numbers["level"]

        def worse(place: int) -> tuple[float, float]:
            return levels[place], 0.0 if math.isnan(loads[place]) else loads[place]

        parts = (range(start, min(start + step, len(self))) for start in range(0, len(self), step))
        return [self._moment(max(part, key=worse)) for part in parts]

    def newest(self) -> Frame | None:
        """The run at the end of the recording, whole."""
        state = None
        for place, frame in self._frames(self._looked_back(len(self)), len(self)):
            state = self._told(fold(state, frame, KEPT_POINTS), place)
        return state

    def sent(self, after: int, limit: int) -> list[bytes]:
        """JSON of the frames that follow a number, oldest first; the very first of the recording is whole.

        At most ``limit`` of them, and no more than are read within a moment: none is the end.
        """
        step = self.together
        thin = self._thin(after)
        found: list[bytes] = []
        pending: Frame | None = None
        for place, frame in self._frames(after, len(self), known=after > 0):
            frame = self._told(thin.out(frame), place)
            pending = frame if pending is None else joined(pending, frame, _ALL)
            if (place + 1) % step == 0:
                found.append(pending.model_dump_json().encode())
                pending = None
                if len(found) >= limit or self._bytes(after, place + 1) > _READ_AT_ONCE:
                    # whoever asks for what follows goes on from here
                    self._keep(place + 1, thin)
                    break
        if pending is not None:
            found.append(pending.model_dump_json().encode())
        return found

    def _thin(self, after: int) -> _Thin:
        """What thins out the frames after a number, and goes on from those before it."""
        with self._lock:
            known = self._thins.pop(after, None)
        if known is not None:
            return known
        thin = _Thin(math.ceil(self._points / SENT_POINTS))
        if after and thin.every > 1:
            for _, frame in self._frames(self._looked_back(after), after):
                thin.out(frame)
        return thin

    def _keep(self, after: int, thin: _Thin) -> None:
        """For a reader who has some frames, and will ask for those after them."""
        with self._lock:
            self._thins[after] = thin
            while len(self._thins) > _READERS:
                del self._thins[next(iter(self._thins))]

    def _frames(self, start: int, end: int, *, known: bool = False) -> Iterator[tuple[int, Frame]]:
        """Frames with their places; ``known`` says whether what the first one leaves out is known."""
        for place in range(start, end):
            begins = self._starts[place]
            try:
                frame = Frame.model_validate_json(self._lines.between(begins, begins + self._lengths[place]))
            except ValidationError:
                known = False
                continue
            known = known or frame.whole
            if known:
                yield place, frame

    def _told(self, frame: Frame, place: int) -> Frame:
        """A frame as one of this recording."""
        return frame.model_copy(update={"number": place + 1, "mode": "recorded", "name": self._name})

    def _bytes(self, start: int, end: int) -> int:
        """How long the lines of some places are together."""
        return sum(self._lengths[start:end])

    def _looked_back(self, end: int) -> int:
        """Where to begin to know how the run was before a place."""
        start = end
        while start > max(0, end - _LOOKED_BACK) and self._bytes(start, end) < _LOOKED_BACK_BYTES:
            start -= 1
        return self._whole_before(start)

    def _whole_before(self, place: int) -> int:
        """The last whole frame at a place or before it."""
        found = self._whole.rfind(1, 0, place + 1)
        return max(0, found)

    def _moment(self, place: int) -> Moment:
        numbers: dict[str, Any] = {
            name: None if math.isnan(column[place]) else column[place]
            for name, column in self._numbers.items()
        }
        return Moment(number=place + 1, at=from_micros(self._at[place]), **numbers)


class _Thin:
    """Leaves every query one point of so many, which says whether there was a gap before any of them."""

    def __init__(self, every: int) -> None:
        self.every = max(1, every)
        self._seen: dict[str, int] = {}
        self._lasts: dict[str, tuple[QueryFrame, Point, bool]] = {}
        """By query: its last frame with points, the last of these, and a gap that no point has told yet."""

    def out(self, frame: Frame) -> Frame:
        if self.every == 1:
            return frame
        return frame.model_copy(update={"queries": [self._query(query) for query in frame.queries]})

    def _query(self, query: QueryFrame) -> QueryFrame:
        seen = self._seen.get(query.name, 0)
        self._seen[query.name] = seen + len(query.points)
        known = self._lasts.get(query.name)
        last, gap = (known[1], known[2]) if known and same_series(known[0], query) else (None, False)
        kept = []
        for number, point in enumerate(query.points, seen):
            gap = gap_before(point, last, query.slide_seconds) or gap
            last = point
            if number % self.every == 0:
                kept.append(point.model_copy(update={"gap": gap}))
                gap = False
        if last is not None:
            self._lasts[query.name] = query, last, gap
        return query.model_copy(update={"points": kept})


def _head(line: bytes) -> Frame | None:
    """A frame without its queries: these are most of it, and are not needed for the index."""
    end = line.find(_QUERIES)
    if end < 0 or not line.endswith(b"}"):
        return None
    try:
        fields = from_json(line[:end] + b"}")
        return Frame.model_validate({**fields, "queries": [], "dropped": [], "agents": [], "alerts": []})
    except (ValidationError, ValueError, TypeError):
        return None
