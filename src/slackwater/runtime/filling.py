"""FILL: answers for windows that were left out, modelled from those that were delivered around them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.language.contracts import Fill
from slackwater.plan.model import Step, TimeWindow
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import Answer
from slackwater.runtime.json_values import to_micros
from slackwater.statistics.filling import CONFIDENCE, Point, change_of, filled

KEPT = 12
"""Values of a group that are remembered, to know how much they change."""
WAITING_AT_MOST = 1_000
"""Windows that wait for the next delivered one."""
GROUPS_AT_MOST = 2_000
"""Of a query: further groups are not modelled."""

Keys = tuple[tuple[str, Any], ...]


@dataclass
class Filling:
    """One query's delivered values, by column and group, and the windows that wait for the next of them."""

    step: Step
    kind: Fill
    values: dict[tuple[str, str], list[Point]] = field(default_factory=dict)
    """By column and group (its keys as JSON)."""
    keys: dict[str, Keys] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)
    """Starts of windows that were left out, of which the next delivered one is not there yet."""
    last: int | None = None
    """The number of the window that was delivered last."""

    @property
    def window(self) -> TimeWindow:
        assert isinstance(self.step.window, TimeWindow)
        return self.step.window

    def number(self, start: int) -> int:
        return (start - self.window.offset) // self.window.slide

    def turn(
        self, delivered: Iterable[Answer], left_out: Iterable[int], now: datetime, *, ended: bool
    ) -> Iterator[AnswerBatch]:
        """The answers modelled in a turn, given what it has delivered and left out."""
        by_start: dict[int, list[Answer]] = {}
        for answer in delivered:
            number = isinstance(answer.value, int | float | Decimal) and not isinstance(answer.value, bool)
            if answer.window_start is not None and number:
                by_start.setdefault(to_micros(answer.window_start), []).append(answer)
        missing = {*left_out} - by_start.keys()
        events = sorted([*((s, True) for s in by_start), *((s, False) for s in missing)])
        made: list[tuple[str, str, int, Any]] = []
        for start, there in events:
            if there:
                before = {name: points[-1] for name, points in self.values.items()}
                self._remember(start, by_start[start])
                made += self._between(before, self.number(start))
                self.waiting = []
            elif self.kind == "last":
                made += self._from_last([start])
            else:
                self.waiting.append(start)
                # windows without any answer between them would let it grow for ever
                del self.waiting[:-WAITING_AT_MOST]
        if ended:
            made += self._from_last(self.waiting)
            self.waiting = []
        yield from self._answers(made, now)

    def _remember(self, start: int, answers: Sequence[Answer]) -> None:
        for answer in answers:
            group = json.dumps(json.loads(answer.to_json_line())["keys"])
            if group not in self.keys and len(self.keys) >= GROUPS_AT_MOST:
                continue
            self.keys[group] = answer.keys
            points = self.values.setdefault((answer.column, group), [])
            points.append((self.number(start), float(answer.value)))  # type: ignore[arg-type]
            del points[:-KEPT]
        self.last = self.number(start)
        # a group that has not been seen for long is forgotten
        old = [name for name, points in self.values.items() if points[-1][0] < self.last - 10 * KEPT]
        for name in old:
            del self.values[name]
        self.keys = {
            group: keys for group, keys in self.keys.items() if any(g == group for _, g in self.values)
        }

    def _between(
        self, before: dict[tuple[str, str], Point], number: int
    ) -> Iterator[tuple[str, str, int, Any]]:
        """What waited for a window that is now there: groups that are on both sides of the gap."""
        for name, earlier in before.items():
            points = self.values.get(name)
            if points is None or points[-1][0] != number or not self.waiting:
                continue
            # a group that was not in the window right before the gap has not waited
            if any(earlier[0] < p < self.number(self.waiting[0]) for p in self._delivered(before)):
                continue
            change = change_of(points)
            for start in self.waiting:
                yield *name, start, filled(self.number(start), earlier, points[-1], change, "linear")

    def _delivered(self, before: dict[tuple[str, str], Point]) -> set[int]:
        return {point[0] for point in before.values()}

    def _from_last(self, starts: Sequence[int]) -> Iterator[tuple[str, str, int, Any]]:
        for start in starts:
            for name, points in self.values.items():
                if points[-1][0] == self.last:
                    found = filled(self.number(start), points[-1], None, change_of(points), "last")
                    yield *name, start, found

    def _answers(self, made: Sequence[tuple[str, str, int, Any]], now: datetime) -> Iterator[AnswerBatch]:
        for column in dict.fromkeys(name for name, _, _, _ in made):
            mine = [(self.keys[group], start, found) for name, group, start, found in made if name == column]
            names = [name for name, _ in mine[0][0]]
            starts = np.array([start for _, start, _ in mine], dtype=np.int64)
            yield AnswerBatch(
                query=self.step.name,
                column=column,
                window_start=starts,
                window_end=starts + self.window.size,
                keys={name: pa.array([keys[i][1] for keys, _, _ in mine]) for i, name in enumerate(names)},
                value=pa.array([f.value for _, _, f in mine], pa.float64()),
                low=pa.array([f.low for _, _, f in mine], pa.float64()),
                high=pa.array([f.high for _, _, f in mine], pa.float64()),
                confidence=CONFIDENCE,
                how="modelled",
                rate=0.0,
                rows=np.zeros(len(mine), dtype=np.int64),
                emitted_at=now,
            )

    def to_json(self) -> dict[str, Any]:
        """What a commit keeps of it; keys go as an answer writes them, with their types."""
        return {
            "values": [[column, group, points] for (column, group), points in self.values.items()],
            "keys": {group: _written(keys) for group, keys in self.keys.items()},
            "waiting": self.waiting,
            "last": self.last,
        }

    @classmethod
    def from_json(cls, step: Step, kind: Fill, kept: dict[str, Any] | None) -> Filling:
        if kept is None:
            return cls(step, kind)
        values = {
            (column, group): [(int(n), float(v)) for n, v in points]
            for column, group, points in kept["values"]
        }
        keys = {group: Answer.from_json(line).keys for group, line in kept["keys"].items()}
        return cls(step, kind, values, keys, list(kept["waiting"]), kept["last"])


def _written(keys: Keys) -> str:
    at = datetime.fromisoformat("2000-01-01T00:00:00+00:00")
    empty = Answer(
        query="",
        column="",
        keys=keys,
        value=None,
        low=None,
        high=None,
        confidence=1.0,
        how="exact",
        rate=1.0,
        met=True,
        emitted_at=at,
    )
    return empty.to_json_line()
