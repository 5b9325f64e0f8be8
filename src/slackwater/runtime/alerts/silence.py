"""What a query without groups says by its silence: windows that close without an answer have no rows.

With groups, the answers of other groups tell which windows have closed. Without, nothing does but the
watermark. So a turn takes note of which windows it has closed, of the queries that alerts look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa

from slackwater.language.contracts import Standing
from slackwater.language.statements import CreateAlert
from slackwater.plan.catalog import Catalog
from slackwater.plan.model import Step, TimeWindow
from slackwater.plan.panes import Ints, starts
from slackwater.runtime.alerts.comparing import BEYOND, verdicts
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import Answer
from slackwater.runtime.json_values import from_micros

COUNTS = ("count", "count_if", "count_distinct")


@dataclass(frozen=True)
class Stretch:
    """The windows of a query that have closed in a turn, by number, and of which each row was seen."""

    query: str
    window: TimeWindow
    first: int | None
    """None where nothing had closed before: then windows count from the first one with an answer on."""
    last: int
    at: datetime

    def numbers(self, begun: Ints) -> Ints:
        """Which windows start at some times."""
        found: Ints = (begun - self.window.offset) // self.window.slide
        return found

    def silent(self, said: Ints) -> Ints:
        """The first of each run of windows without an answer; ``said`` are those that have one, in order."""
        begin = self.first if self.first is not None else int(said[0]) if len(said) else self.last + 1
        after = np.setdiff1d(np.concatenate([np.array([begin], dtype=np.int64), said + 1]), said)
        return after[(after >= begin) & (after <= self.last)]

    def _after(self, number: int | None) -> int | None:
        """The first window after one, or of the turn where that is None."""
        if number is None or self.first is None:
            return self.first if number is None else number + 1
        return max(self.first, number + 1)

    def without_answer(self, after: int | None, said: Ints) -> int:
        """How many windows after one have no answer; in all of the turn where that is None."""
        begin = self._after(after)
        if begin is None:
            return 0
        return max(0, self.last - begin + 1 - int(((said >= begin) & (said <= self.last)).sum()))

    def nth_without_answer(self, count: int, after: int | None, said: Ints) -> int:
        """The window with which so many after one have no answer; there are as many."""
        begin = self._after(after) or 0
        number = begin + count - 1
        for answered in said[said >= begin].tolist():
            if answered > number:
                break
            number += 1
        return number

    def zeros(self, column: str, numbers: Ints) -> AnswerBatch:
        """What a COUNT would say of windows that have no rows."""
        begun = starts(self.window, numbers)
        nothing = np.zeros(len(numbers), dtype=np.int64)
        return AnswerBatch(
            query=self.query,
            column=column,
            window_start=begun,
            window_end=begun + self.window.size,
            value=pa.array(nothing),
            confidence=1.0,
            how="exact",
            rows=nothing,
            emitted_at=self.at,
        )

    def nothing(self, column: str, number: int, rows: int | None) -> Answer:
        """What is known of another column in a window that has no answer."""
        begun = number * self.window.slide + self.window.offset
        return Answer(
            query=self.query,
            column=column,
            window_start=from_micros(begun),
            window_end=from_micros(begun + self.window.size),
            value=None,
            low=None,
            high=None,
            confidence=1.0,
            how="exact",
            rate=1.0,
            rows=rows,
            met=True,
            emitted_at=self.at,
        )


def tells_silence(catalog: Catalog, step: Step) -> bool:
    """Whether a window of a query without an answer has no rows, or none that HAVING lets pass."""
    contract = catalog.contracts.get(step.name.lower())
    # what agents promise under PRECISION, and what DRIFT puts off, comes in its own time
    return isinstance(contract, Standing) and isinstance(step.window, TimeWindow) and not step.keys


def is_zero(step: Step, column: str) -> bool:
    """Whether a column is a COUNT and nothing more, so that it is 0 where there are no rows."""
    call = next((output.call for output in step.outputs if output.name == column), None)
    # under HAVING a window without an answer may have rows
    return call is not None and step.calls[call].function in COUNTS and step.having is None


def awaited(catalog: Catalog, alert: CreateAlert, *, raised: bool) -> Sequence[TimeWindow]:
    """The window of which one without rows would change an alert: worth waiting for in a silence."""
    step = catalog.steps[alert.query.lower()]
    if not tells_silence(catalog, step) or step.path.source.lower() != step.stream.lower():
        return ()
    window = step.window
    assert isinstance(window, TimeWindow)
    if is_zero(step, alert.column):
        said = Stretch(step.name, window, 0, 0, datetime.min).zeros(alert.column, np.zeros(1, dtype=np.int64))
        changes = raised != bool(verdicts(said, alert)[0] == BEYOND)
    else:
        changes = raised and alert.comparison in (">", ">=")
    return (window,) if changes else ()
