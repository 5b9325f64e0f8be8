"""What is shown of each query: one series of points, its last answer, how many groups, whether it is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.runtime.alerts.groups import group_texts
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import Answer
from slackwater.runtime.board import places_by_query
from slackwater.runtime.groups import Places, places_of_group
from slackwater.runtime.json_values import double_column, to_micros
from slackwater.service.folding import GAP, KEPT_POINTS, newest
from slackwater.service.models import Point
from slackwater.service.picking import ROW, answer_at, answer_text, ends_of, point_at

Told = tuple[AnswerBatch, Places]
"""Answers of a query: a batch, and where in it they are."""
GROUPS_KNOWN = 100_000
"""Groups of current values that are counted, of one query."""
STALE = 5
"""After so many looks at answers without the shown group, another one is shown."""


@dataclass
class Shown:
    """One query. The series is of its first column and, where it has groups, of one that stays.

    Of a query whose answers are rows there is no series, and the newest row is the last answer.
    """

    name: str
    slide_seconds: float | None = None
    """How far apart its windows are; None without windows of time."""
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
    _known: set[int] = field(default_factory=set)
    """Marks of the groups that current values were told of."""
    _end: int | None = None
    """Of the newest answers so far, in any column and group."""
    _last_end: int = 0
    """Of the last answer of the series."""

    def take(self, told: Sequence[Told]) -> None:
        """Answers that have come together: a large result, and several columns, are several batches."""
        self.column = self.column or told[0][0].column
        mine = [(batch, places) for batch, places in told if batch.column == self.column]
        ends = [end for batch, places in told if (end := _end_of(batch, places)) is not None]
        end = max(ends, default=None)
        # batches are in no order: what is said of an older window is not the last word
        current = end is None or self._end is None or end >= self._end
        if current:
            newest = [(batch, _at(batch, places, end)) for batch, places in told]
            self._end = end
            self.met = all(_all_met(batch, places) for batch, places in newest)
            self.groups = sum(len(places) for batch, places in newest if self._grouped(batch))
        # current values are answered one by one, where each has changed
        for batch, places in mine:
            if batch.window_end is None and batch.at is not None and self._grouped(batch):
                self._known |= _marks(batch, places[: GROUPS_KNOWN - len(self._known)])
        self.groups = len(self._known) or self.groups
        for batch, places in self._chosen(mine):
            self._show(batch, places, current)

    def _grouped(self, batch: AnswerBatch) -> bool:
        # rows that are delivered as they are have a key each, and are no groups
        if batch.column == ROW or batch.how == "suspended":
            return False
        return batch.column == self.column and bool(batch.keys)

    def _chosen(self, told: Sequence[Told]) -> list[Told]:
        """Where the answers of the series are: all, or those of the shown group."""
        alone = [(batch, places) for batch, places in told if not self._grouped(batch)]
        grouped = [(batch, places) for batch, places in told if self._grouped(batch)]
        if not grouped:
            return alone
        found = _of(grouped, self.keys) if self.keys else []
        self._missing = 0 if found else self._missing + 1
        if not found and (not self.keys or self._missing >= STALE):
            # another one where it has not been there for a while: the largest, where most is to be seen, of
            # the oldest window, so that it is the same however many windows are looked at together
            oldest = min(
                (e for b, p in grouped if (e := _end_of(b, p, first=True)) is not None), default=None
            )
            there = [(batch, _at(batch, places, oldest)) for batch, places in grouped]
            self.keys = _largest_of([(batch, places) for batch, places in there if len(places)]).group
            self._missing = 0
            self.points.clear()
            self.fresh.clear()
            found = _of(grouped, self.keys)
        return alone + found

    def _show(self, batch: AnswerBatch, places: Places, current: bool) -> None:
        ends = ends_of(batch)
        if ends is not None and len(places) > 1:
            places = places[np.argsort(ends[places], kind="stable")]
        last = int(places[-1])
        if current and (ends is None or self._end is None or int(ends[last]) >= self._last_end):
            self._last_end = 0 if ends is None else int(ends[last])
            self.last = answer_at(batch, last)
            self.text = answer_text(self.last)
        # rows have no value that could be drawn
        if ends is not None and batch.column != ROW:
            first = max(0, len(places) - KEPT_POINTS)
            points = [point_at(batch, place) for place in places[first:].tolist()]
            if first:
                points[0] = points[0].model_copy(update={"gap": self._left_out(ends[places[: first + 1]])})
            for point in points:
                self._push(point)

    def _left_out(self, ends: Places) -> bool:
        """Whether windows were left out between the last point and some answers, or between these."""
        if self.slide_seconds is None:
            return False
        before = [to_micros(self.points[-1].at)] if self.points else []
        return bool((np.diff([*before, *ends]) > GAP * self.slide_seconds * 1e6).any())

    def _push(self, point: Point) -> None:
        _put(self.points, point)
        if len(self.fresh) >= 2 * KEPT_POINTS:
            self.fresh = newest(self.fresh, KEPT_POINTS, self.slide_seconds)
        _put(self.fresh, point)

    def told(self) -> list[Point]:
        """What the next frame tells."""
        fresh, self.fresh = self.fresh, []
        return newest(fresh, KEPT_POINTS, self.slide_seconds)

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
    told: dict[str, list[Told]] = {}
    for batch in batches:
        for name, places in places_by_query(batch):
            if name in shown and len(places):
                told.setdefault(name, []).append((batch, np.asarray(places, dtype=np.int64)))
    for name, together in told.items():
        shown[name].take(together)
    return set(told)


def _end_of(batch: AnswerBatch, places: Places, *, first: bool = False) -> int | None:
    """The newest time that some answers speak of, or the oldest; None where they have none."""
    ends = ends_of(batch)
    if ends is None:
        return None
    return int(ends[places].min() if first else ends[places].max())


def _at(batch: AnswerBatch, places: Places, end: int | None) -> Places:
    """Those of some answers that speak of a time."""
    ends = ends_of(batch)
    return places if ends is None or end is None else places[ends[places] == end]


def _marks(batch: AnswerBatch, places: Places) -> set[int]:
    """A number for each group."""
    return set(map(hash, group_texts(batch.keys, places).to_pylist()))


def _all_met(batch: AnswerBatch, places: Places) -> bool:
    if not len(places):
        return True
    return bool(batch.met[places].all() if isinstance(batch.met, np.ndarray) else batch.met)


def _of(told: Sequence[Told], keys: Mapping[str, Any]) -> list[Told]:
    """Where the answers of one group are."""
    found = [(batch, places_of_group(batch.keys, keys, places)) for batch, places in told]
    return [(batch, places) for batch, places in found if len(places)]


def _largest_of(told: Sequence[Told]) -> Answer:
    """The answer with the largest value; the last where none is a number."""
    best: tuple[float, AnswerBatch, int] | None = None
    for batch, places in told:
        numbers = double_column(batch.value.take(pa.array(places)))
        sizes = np.abs(np.asarray(pc.fill_null(numbers, np.nan), dtype=np.float64))
        sizes = np.where(np.isfinite(sizes), sizes, -1.0)
        place = int(np.argmax(sizes)) if (sizes >= 0).any() else len(sizes) - 1
        if best is None or sizes[place] > best[0]:
            best = (float(sizes[place]), batch, int(places[place]))
    assert best is not None
    return answer_at(best[1], best[2])
