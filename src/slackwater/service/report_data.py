"""The numbers of a report: a recording gone through once, what is kept of it bounded however long it is."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from slackwater.plan.catalog import Catalog
from slackwater.plan.model import Step
from slackwater.runtime.answers import Answer
from slackwater.runtime.json_values import to_micros
from slackwater.runtime.show import show_keys
from slackwater.service.declared import kind_of, slide_seconds
from slackwater.service.keys import plain_keys
from slackwater.service.models import QueryFrame
from slackwater.service.picking import ROW, answer_text

HELD = 64
"""Answers of a series that may be out of order."""
POINTS = 1_000
"""Points that are drawn of one query at most."""
ALL_POINTS = 200_000
"""And of all of them, also while nobody knows yet which ones are drawn."""
FEWEST = 50
WHOLE = ("exact", "subset")
"""Answers that claim to be the truth itself."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """One answer as a point of a plot."""

    at: float
    value: float | None
    low: float | None
    high: float | None
    how: str
    met: bool
    rate: float
    after_gap: bool
    slope: float = 0.0
    """By how much it moves in a second until the next one."""

    @property
    def badness(self) -> tuple[bool, bool, float]:
        """What makes it worth being seen where not all can be."""
        return self.how == "suspended", not self.met, error_of(self.value, self.low, self.high) or 0.0


@dataclass
class Thinned:
    """A series of which at most so many points stay: of neighbours the worse one."""

    most: int = POINTS
    points: list[Drawn] = field(default_factory=list)
    together: int = 1
    """How many answers one point stands for."""
    _waiting: list[Drawn] = field(default_factory=list)

    def add(self, point: Drawn) -> None:
        self._waiting.append(point)
        if len(self._waiting) < self.together:
            return
        self.points.append(_worst(self._waiting))
        self._waiting = []
        if len(self.points) >= 2 * self.most:
            pairs = zip(self.points[::2], self.points[1::2], strict=True)
            self.points = [_worst(pair) for pair in pairs]
            self.together *= 2

    def ended(self) -> list[Drawn]:
        """All that stayed, in order of time; the last answer of a time is the one that counts."""
        left = [*self.points, *([_worst(self._waiting)] if self._waiting else [])]
        points = list({point.at: point for point in sorted(left, key=lambda point: point.at)}.values())
        size = math.ceil(len(points) / self.most)
        if size <= 1:
            return points
        self.together *= size
        return [_worst(points[start : start + size]) for start in range(0, len(points), size)]


@dataclass
class QueryNumbers:
    """What a report says of one query."""

    name: str
    contract: str
    stream: str = ""
    kind: str = "windows"
    sql: str = ""
    slide: float | None = None
    """Seconds between two windows; None where there are none of time."""
    column: str | None = None
    keys: Mapping[str, Any] = field(default_factory=dict)
    hows: Counter[str] = field(default_factory=Counter)
    met: int = 0
    largest_error: float | None = None
    least_rate: float = 1.0
    groups: int = 0
    missing: int = 0
    """Windows between two answers of the series that have none; of grouped answers they may have no rows."""
    longest_gap: int = 0
    missed: int = 0
    series: Thinned = field(default_factory=Thinned)
    _before: float | None = None
    _last: Answer | None = None
    _last_at: float = -math.inf
    _held: list[tuple[float, int, tuple[Any, ...]]] = field(default_factory=list)
    """Points that wait for earlier ones, the earliest first; in the order in which they came where equal."""
    _taken: int = 0

    @property
    def last(self) -> str:
        """The last answer with its interval."""
        return "" if self._last is None else answer_text(self._last)

    @property
    def answers(self) -> int:
        return self.hows.total()

    @property
    def met_share(self) -> float | None:
        return self.met / self.answers if self.answers else None

    @property
    def shown_of(self) -> str:
        """The column and the group of the plot."""
        if self.column == ROW:
            return "the last row"
        return " · ".join(filter(None, [self.column, show_keys(self.keys.items())]))

    @property
    def rank(self) -> tuple[float, float, str]:
        """Worst first: contracts that were not met, then large errors."""
        share = self.met_share
        return (1.0 if share is None else share, -(self.largest_error or 0.0), self.name)

    def take(self, answer: Answer) -> None:
        """Count an answer, and draw it if it is of the series that is shown."""
        self.hows[answer.how] += 1
        self.met += answer.met
        self.least_rate = min(self.least_rate, answer.rate)
        value, low, high = (number(v) for v in (answer.value, answer.low, answer.high))
        error = error_of(value, low, high)
        if error is not None:
            self.largest_error = max(error, self.largest_error or 0.0)
        moment = answer.window_end or answer.at
        if moment is None or not self._shows(answer):
            return
        at = to_micros(moment) / 1e6
        if answer.how != "suspended" and at >= self._last_at:
            self._last, self._last_at = answer, at
        slope = number(answer.slope) or 0.0
        # answers of a turn are in no order of time: a few are held back until they are
        self._taken += 1
        heapq.heappush(
            self._held,
            (at, self._taken, (value, low, high, answer.how, answer.met, answer.rate, slope)),
        )
        if len(self._held) > HELD:
            self._draw()

    def settle(self) -> None:
        """Draw what was held back: no answer follows."""
        while self._held:
            self._draw()

    def _draw(self) -> None:
        at, _, (value, low, high, how, met, rate, slope) = heapq.heappop(self._held)
        point = Drawn(at, value, low, high, how, met, rate, self._gap(at), slope)
        if value is not None or how == "suspended":
            self.series.add(point)

    def _shows(self, answer: Answer) -> bool:
        if answer.column != self.column:
            return False
        # of a window that was given up there is one answer for all groups; rows are no groups
        return answer.how == "suspended" or answer.column == ROW or plain_keys(answer.group) == self.keys

    def _gap(self, at: float) -> bool:
        before, self._before = self._before, max(at, self._before or at)
        if before is None or self.slide is None or at - before < 1.5 * self.slide:
            return False
        left_out = round((at - before) / self.slide) - 1
        self.missing += left_out
        self.longest_gap = max(self.longest_gap, left_out)
        return True


def numbers_of(
    catalogs: Iterable[Catalog], frames: Mapping[str, QueryFrame], answers: Iterable[Answer]
) -> list[QueryNumbers]:
    """All queries of all versions, worst first; ``frames`` say which series of each is shown."""
    found: dict[str, QueryNumbers] = {}
    for catalog in catalogs:
        for name, step in catalog.queries.items():
            found[step.name] = _empty(step, str(catalog.contracts[name]), catalog.declared[name].sql)
    for name, frame in frames.items():
        if name in found:
            found[name].column, found[name].keys = frame.column, plain_keys(frame.keys)
            found[name].groups, found[name].missed = frame.groups, frame.missed
    for each in found.values():
        each.series.most = points_of(len(found))
    for answer in answers:
        query = found.get(answer.query)
        if query is not None:
            if query.column is None:
                # of a query that was dropped: what its first answer is of
                query.column = answer.column
                grouped = answer.column != ROW and answer.how != "suspended"
                query.keys = plain_keys(answer.group) if grouped else {}
            query.take(answer)
    for query in found.values():
        query.settle()
    return sorted(found.values(), key=lambda query: query.rank)


def points_of(queries: int) -> int:
    """How many points are drawn of each of so many queries.

    >>> points_of(1), points_of(200), points_of(1_000), points_of(100_000)
    (1000, 1000, 200, 50)
    """
    return min(POINTS, max(FEWEST, ALL_POINTS // max(1, queries)))


def _empty(step: Step, contract: str, sql: str) -> QueryNumbers:
    return QueryNumbers(step.name, contract, step.stream, kind_of(step), sql, slide_seconds(step))


def error_of(value: float | None, low: float | None, high: float | None) -> float | None:
    """Half the width of an interval over its value; None where that is not a number.

    >>> error_of(10.0, 9.0, 11.0), error_of(0.0, 0.0, 0.0), error_of(0.0, 0.0, 1.0)
    (0.1, 0.0, None)
    """
    if value is None or low is None or high is None:
        return None
    half = (high - low) / 2
    return 0.0 if half == 0 else half / abs(value) if value else None


def number(value: object) -> float | None:
    """A number as a chart has it; None for all else."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def _worst(points: Iterable[Drawn]) -> Drawn:
    """The one of some neighbours that is shown; a gap before any of them is one before it."""
    neighbours = list(points)
    worst = max(neighbours, key=lambda point: point.badness)
    if worst.after_gap or not any(point.after_gap for point in neighbours):
        return worst
    return replace(worst, after_gap=True)
