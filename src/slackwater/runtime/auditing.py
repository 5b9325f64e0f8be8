"""Answers of a run beside the true ones: whether intervals held, how large errors were, what is missing."""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from slackwater.language.contracts import Contract, Drift, Error, Exact, Subset
from slackwater.plan.catalog import Catalog
from slackwater.plan.model import TimeWindow
from slackwater.runtime.answers import Answer
from slackwater.runtime.audit_drift import CACHED, CLOSE, DriftColumn, number
from slackwater.runtime.audit_report import AuditReport, ColumnAudit, Difference
from slackwater.statistics.coverage import Coverage, Errors

EXAMPLES = 5
WHOLE = ("exact", "subset")
"""Answers that claim to be the truth itself."""

Place = tuple[object, ...]
Window = tuple[datetime | None, datetime | None]


@dataclass(frozen=True)
class Promise:
    """What the reader of a query was promised, and how many of its windows a row is in."""

    contract: Contract
    overlap: float = 1.0
    slide: timedelta | None = None
    """Between the starts of two windows; None for windows over rows."""
    earlier: tuple[Drift, ...] = ()
    """What it was under DRIFT in versions before."""

    @property
    def drifts(self) -> tuple[Drift, ...]:
        """All DRIFT contracts that the query had; none where every answer is for a time of its own."""
        own = (self.contract,) if isinstance(self.contract, Drift) else ()
        return tuple(dict.fromkeys((*self.earlier, *own)))


def promises(catalogs: Iterable[Catalog]) -> dict[str, Promise]:
    """By name of the query, the latest of several versions."""
    found: dict[str, Promise] = {}
    for catalog in catalogs:
        for name, step in catalog.queries.items():
            window = step.window
            overlap, slide = 1.0, None
            if isinstance(window, TimeWindow):
                overlap, slide = window.size / window.slide, timedelta(microseconds=window.slide)
            earlier = found[step.name].drifts if step.name in found else ()
            found[step.name] = Promise(catalog.contracts[name], overlap, slide, earlier)
    return found


@dataclass
class _Column:
    """What is counted of one column of one query."""

    hows: Counter[str] = field(default_factory=Counter)
    met: int = 0
    compared: int = 0
    inside: int = 0
    intervals: int = 0
    claimed: float = 0.0
    errors: list[float] = field(default_factory=list)
    within: int = 0
    said: int = 0
    """Estimates that say that the contract was kept, and what they claim of it."""
    said_within: int = 0
    said_claimed: float = 0.0
    true: int = 0
    missing: int = 0
    suspended: int = 0
    extra: int = 0
    differing: int = 0
    examples: list[Difference] = field(default_factory=list)
    delivered: dict[str, list[tuple[datetime, bool]]] = field(default_factory=lambda: defaultdict(list))
    """By group: the windows that there are, and whether an answer came."""
    drift: DriftColumn | None = None


def compare(
    recorded: Iterable[Answer], truth: Iterable[Answer], promised: Mapping[str, Promise]
) -> AuditReport:
    """What an audit finds. Answers are matched by query, column, window and group.

    Under DRIFT an answer stands for all ticks up to the next one of its group.
    """
    columns: dict[tuple[str, str], _Column] = {}
    waiting: dict[Place, deque[Answer]] = defaultdict(deque)
    silent: dict[tuple[str, str], set[Window]] = defaultdict(set)
    for answer in recorded:
        if answer.query not in promised:
            continue
        name = (answer.query, answer.column)
        column = _column(columns, name, promised)
        column.hows[answer.how] += 1
        column.met += answer.met
        if answer.how == "suspended":
            # it speaks for all groups of its window
            silent[name].add((answer.window_start, answer.window_end))
        elif column.drift is not None and answer.how in CACHED and answer.at is not None:
            column.drift.take(answer)
        else:
            waiting[_place(answer)].append(answer)
    for column in columns.values():
        if column.drift is not None:
            column.drift.settle()
    for true in truth:
        if true.query not in promised:
            continue
        name = (true.query, true.column)
        column = _column(columns, name, promised)
        column.true += 1
        found = waiting.get(_place(true))
        answer_ = found.popleft() if found else None
        given_up = answer_ is None and _in_silence(true, silent[name])
        if true.window_start is not None and isinstance(promised[true.query].contract, Subset):
            # what is modelled is not delivered; what was given up has been said to be
            delivered = given_up or (answer_ is not None and answer_.how in WHOLE)
            column.delivered[repr(true.keys)].append((true.window_start, delivered))
        if answer_ is not None:
            _judge(column, answer_, true, promised[true.query].contract)
            if column.drift is not None:
                column.drift.exact(true)
        elif column.drift is not None:
            column.missing += not column.drift.look(true)
        elif given_up:
            column.suspended += 1
        else:
            column.missing += 1
    for left in waiting.values():
        for answer in left:
            _unfounded(columns[(answer.query, answer.column)], answer)
    ranks = {name: rank for rank, name in enumerate(promised)}
    in_order = sorted(columns.items(), key=lambda item: ranks[item[0][0]])
    return AuditReport(tuple(_audit(*name, column, promised[name[0]]) for name, column in in_order))


def _column(
    columns: dict[tuple[str, str], _Column], name: tuple[str, str], promised: Mapping[str, Promise]
) -> _Column:
    if name not in columns:
        drifts = promised[name[0]].drifts
        columns[name] = _Column(drift=DriftColumn(drifts) if drifts else None)
    return columns[name]


def _in_silence(true: Answer, silent: set[Window]) -> bool:
    """Whether the run has said that it has no answer: of a window, or of the time of a row."""
    if true.at is None or true.window_start is not None:
        return (true.window_start, true.window_end) in silent
    # batches that are suspended are few
    return any(low is None or high is None or low <= true.at < high for low, high in silent)


def _place(answer: Answer) -> Place:
    # keys may be lists or maps, which a dictionary does not take
    window = (answer.window_start, answer.window_end)
    return (answer.query, answer.column, *window, answer.at, repr(answer.keys))


def _judge(column: _Column, answer: Answer, true: Answer, contract: Contract) -> None:
    """Count an answer that has its counterpart."""
    column.compared += 1
    if answer.how in WHOLE:
        if not _same(answer.value, true.value):
            _differs(column, answer, true.value)
        return
    if answer.column == "*":
        # a row that was delivered and is a true one
        return
    value, truth = number(answer.value), number(true.value)
    if value is None or truth is None:
        return
    low, high = number(answer.low), number(answer.high)
    slack = CLOSE * abs(truth)
    column.intervals += 1
    column.claimed += answer.confidence
    column.inside += (low is None or low <= truth + slack) and (high is None or truth - slack <= high)
    error = abs(value - truth) / abs(truth) if truth else (0.0 if value == 0 else math.inf)
    column.errors.append(error)
    if isinstance(contract, Error):
        column.within += error <= contract.bound
        if answer.met:
            column.said += 1
            column.said_within += error <= contract.bound + CLOSE
            column.said_claimed += answer.confidence


def _unfounded(column: _Column, answer: Answer) -> None:
    """Count an answer for which the exact run has none.

    An estimate may be of a window that has no rows: it then says so with an interval from 0. What claims to
    be exact, and a row that is none of the true ones, is wrong.
    """
    if answer.how in WHOLE or answer.column == "*":
        _differs(column, answer, None)
    else:
        column.extra += 1


def _differs(column: _Column, answer: Answer, truth: object) -> None:
    column.differing += 1
    if len(column.examples) < EXAMPLES:
        column.examples.append(
            Difference(answer.window_start or answer.at, answer.keys, answer.value, truth, answer.how)
        )


def _same(found: object, true: object) -> bool:
    """Whether an exact value is the true one.

    >>> _same(0.1 + 0.2, 0.3), _same(7, 8), _same(math.nan, math.nan), _same("a", "a")
    (True, False, True, True)
    """
    if isinstance(found, float) and isinstance(true, float | int) and not isinstance(true, bool):
        return math.isclose(found, true, rel_tol=CLOSE, abs_tol=1e-300) or (found != found and true != true)
    if isinstance(found, list) and isinstance(true, list):
        return len(found) == len(true) and all(map(_same, found, true))
    return bool(found == true)


def longest_gap(windows: Iterable[tuple[datetime, bool]], slide: timedelta | None = None) -> int:
    """The most answers in a row that are missing, windows in order of their start.

    A window between them that has no answer even without drops ends a run: nothing is missing there.
    """
    longest = run = 0
    last: datetime | None = None
    for start, delivered in sorted(windows):
        apart = slide is not None and last is not None and start - last > slide
        run = 0 if delivered else 1 if apart else run + 1
        longest, last = max(longest, run), start
    return longest


def _audit(query: str, name: str, column: _Column, promise: Promise) -> ColumnAudit:
    contract = promise.contract
    claimed = column.claimed / column.intervals if column.intervals else 0.0
    subset = isinstance(contract, Subset)
    return ColumnAudit(
        query=query,
        column=name,
        contract=str(contract),
        answers=sum(column.hows.values()),
        true=column.true,
        compared=column.compared + (column.drift.compared if column.drift is not None else 0),
        hows=dict(column.hows),
        coverage=(
            Coverage(column.inside, column.intervals, claimed, promise.overlap) if column.intervals else None
        ),
        errors=Errors.of(column.errors),
        within=column.within / column.intervals if column.intervals and isinstance(contract, Error) else None,
        kept=(
            Coverage(column.said_within, column.said, column.said_claimed / column.said, promise.overlap)
            if column.said
            else None
        ),
        met=column.met / total if (total := sum(column.hows.values())) else None,
        missing=column.missing,
        may_miss=not isinstance(contract, Exact | Drift),
        suspended=column.suspended,
        extra=column.extra + (column.drift.extra if column.drift is not None else 0),
        differing=column.differing,
        examples=tuple(column.examples),
        gap=(
            max((longest_gap(w, promise.slide) for w in column.delivered.values()), default=0)
            if subset
            else None
        ),
        gap_allowed=contract.gap if isinstance(contract, Subset) else None,
        drift=column.drift.audit() if column.drift is not None else None,
    )
