"""What is shown of each query: one series of points, its last answer, how many groups, whether it is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import Answer
from slackwater.runtime.board import places_by_query
from slackwater.runtime.json_values import double_column
from slackwater.runtime.show import show_estimate
from slackwater.service.folding import KEPT_POINTS
from slackwater.service.models import Point
from slackwater.service.picking import Places, answer_at, ends_of, of_group, point_at

STALE = 5
"""After so many looks at answers without the shown group, another one is shown."""


@dataclass
class Shown:
    """One query. The series is of its first column and, where it has groups, of one that stays."""

    name: str
    column: str | None = None
    keys: dict[str, Any] = field(default_factory=dict)
    points: deque[Point] = field(default_factory=lambda: deque(maxlen=KEPT_POINTS))
    fresh: list[Point] = field(default_factory=list)
    """Points that no frame has told yet."""
    last: Answer | None = None
    groups: int = 0
    met: bool | None = None
    text: str = ""
    """The last answer with its interval, for the eye."""
    _missing: int = 0
    _end: int | None = None
    """Of the newest answers so far."""

    def take(self, batch: AnswerBatch, places: Sequence[int]) -> None:
        """Answers of the query in a batch."""
        self.column = self.column or batch.column
        if batch.column != self.column or not len(places):
            return
        mine: Places = np.asarray(places, dtype=np.int64)
        ends = ends_of(batch)
        newest = mine if ends is None else mine[ends[mine] == ends[mine].max()]
        grouped = bool(batch.keys) and batch.how != "suspended"
        # batches of a turn are in no order: what is said of an older window is not the last word
        end = None if ends is None else int(ends[newest[0]])
        current = end is None or self._end is None or end >= self._end
        if current:
            self._end = end
            self.groups = len(newest) if grouped else 0
            self.met = bool(batch.met[newest].all() if isinstance(batch.met, np.ndarray) else batch.met)
        if grouped:
            mine = self._group(batch, mine, newest)
        if not len(mine):
            return
        if ends is not None and len(mine) > 1:
            mine = mine[np.argsort(ends[mine], kind="stable")]
        if current:
            self.last = answer_at(batch, int(mine[-1]))
            self.text = show_estimate(self.last)
        if ends is not None:
            for place in mine[-KEPT_POINTS:].tolist():
                self._push(point_at(batch, place))

    def _group(self, batch: AnswerBatch, mine: Places, newest: Places) -> Places:
        """Where the shown group is; another one where it has not been there for a while."""
        found = of_group(batch.keys, self.keys, mine) if self.keys else mine[:0]
        if len(found):
            self._missing = 0
            return found
        self._missing += 1
        if self.keys and self._missing < STALE:
            return found
        self.keys = answer_at(batch, _largest(batch.value, newest)).group
        self._missing = 0
        self.points.clear()
        self.fresh.clear()
        return of_group(batch.keys, self.keys, mine)

    def _push(self, point: Point) -> None:
        _put(self.points, point)
        if len(self.fresh) >= KEPT_POINTS:
            del self.fresh[: KEPT_POINTS // 2]
        _put(self.fresh, point)

    @property
    def error(self) -> float | None:
        """Half the width of the last interval over its value."""
        last = self.points[-1] if self.points else None
        if last is None or last.low is None or last.high is None or last.value is None:
            return None
        half = (last.high - last.low) / 2
        return 0.0 if half == 0 else half / abs(last.value) if last.value else None


def _put(points: deque[Point] | list[Point], point: Point) -> None:
    """A point at its time: answers of a turn come in several batches, and these are in no order."""
    later = []
    while points and points[-1].at > point.at:
        later.append(points.pop())
    if points and points[-1].at == point.at:
        # an answer of the same time replaces what was said of it
        points.pop()
    points.append(point)
    points.extend(reversed(later))


def take_all(shown: Mapping[str, Shown], batches: Sequence[AnswerBatch]) -> set[str]:
    """Let queries take their answers; the names of those that had any."""
    told = set()
    for batch in batches:
        for name, places in places_by_query(batch):
            if name in shown and len(places):
                shown[name].take(batch, places)
                told.add(name)
    return told


def _largest(column: pa.Array, places: Places) -> int:
    """Where the largest of some values is: most is to be seen there; the last where none is a number."""
    numbers = double_column(column.take(pa.array(places)))
    sizes = np.abs(np.asarray(pc.fill_null(numbers, np.nan), dtype=np.float64))
    finite = np.isfinite(sizes)
    return int(places[int(np.argmax(np.where(finite, sizes, -1.0)))] if finite.any() else places[-1])
