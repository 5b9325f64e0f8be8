"""What an audit has found, and what of it is a broken promise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slackwater.runtime.json_values import time_text
from slackwater.runtime.show import printable, show_keys, show_value
from slackwater.statistics.coverage import Coverage, Errors


@dataclass(frozen=True)
class Difference:
    """An answer that claims to be exact, or a row that was delivered, and the truth beside it."""

    at: datetime | None
    keys: tuple[tuple[str, Any], ...]
    value: object
    truth: object
    how: str

    def __str__(self) -> str:
        when = time_text(self.at) if self.at is not None else ""
        where = " ".join(part for part in (when, show_keys(self.keys)) if part)
        return f"{where}: {show_value(self.value)} ({self.how}), in truth {show_value(self.truth)}"


BELIEVED_WITHIN = 0.02
"""A belief is that of a model: so far below it a share is no broken promise."""


@dataclass(frozen=True)
class DriftAudit:
    """Cached answers of a query under DRIFT, at all ticks of all groups."""

    fidelity: Coverage | None
    """Ticks at which the cached answer was within its bound, beside the belief; stretches count as one."""
    late: int
    """Ticks of stretches that the run has said to be a broken promise: the next answer came late."""
    late_within: int
    modelled: int
    """Ticks while keys were interrupted, when nobody knows the truth."""
    returns: Coverage | None
    """Times that they came back, and whether the last modelled interval held what was then found."""

    @property
    def tests(self) -> int:
        return (self.fidelity is not None) + (self.returns is not None)

    def problems(self, tested: int) -> Iterator[str]:
        """Promises that were not kept, where so many shares are tested."""
        for coverage, kept, of in (
            (self.fidelity, "the cached answer was within its bound at", "ticks"),
            (self.returns, "what was modelled held the truth at", "returns of interrupted keys"),
        ):
            if coverage is None or coverage.share >= coverage.claimed - BELIEVED_WITHIN:
                continue
            if coverage.short(tested):
                high = coverage.range()[1]
                yield (
                    f"{kept} {coverage.share:.1%} of {coverage.of:,} {of}, "
                    f"{coverage.claimed:.0%} is claimed; chance explains up to {high:.1%}"
                )

    def as_dict(self) -> dict[str, Any]:
        return {
            "fidelity": _coverage_json(self.fidelity),
            "late": self.late,
            "late_within": self.late_within,
            "modelled": self.modelled,
            "returns": _coverage_json(self.returns),
        }


@dataclass(frozen=True, kw_only=True)
class ColumnAudit:
    """One column of one query (``*``: the rows of a query that delivers rows)."""

    query: str
    column: str
    contract: str
    answers: int
    """That the run has given."""
    true: int
    """That the exact run has."""
    compared: int
    hows: Mapping[str, int]
    coverage: Coverage | None
    """Of estimates; None where all are exact."""
    errors: Errors | None
    within: float | None
    """The share of estimates that are no further from the truth than ERROR allows."""
    kept: Coverage | None
    """Of estimates that say that the contract was kept: those that are within what ERROR allows."""
    met: float | None
    """The share of answers that say that the contract was kept."""
    missing: int
    may_miss: bool
    suspended: int
    """True answers in whose place the run has said that there is none."""
    extra: int
    """Estimates of windows or groups that have no rows in truth."""
    differing: int
    examples: tuple[Difference, ...] = ()
    gap: int | None = None
    """Under SUBSET: the most answers in a row that are missing."""
    gap_allowed: int | None = None
    drift: DriftAudit | None = None
    """Of a query that is, or was, under DRIFT."""

    @property
    def name(self) -> str:
        return f"{self.query}.{self.column}"

    @property
    def tests(self) -> int:
        """Shares that are compared with what was claimed."""
        return (self.coverage is not None) + (self.drift.tests if self.drift is not None else 0)

    @property
    def saved(self) -> float | None:
        """Under DRIFT: the share of ticks that needed no answer."""
        return max(0.0, 1 - self.answers / self.true) if self.drift is not None and self.true else None

    def problems(self, tested: int) -> Iterator[str]:
        """Promises that were not kept, where so many shares are tested."""
        name = printable(self.name)
        if self.differing:
            kind = "rows are none of" if self.column == "*" else "answers claim to be exact and are none of"
            yield f"{name}: {self.differing:,} {kind} the true ones, such as {self.examples[0]}"
        if self.coverage is not None and self.coverage.short(tested):
            high = self.coverage.range()[1]
            yield (
                f"{name}: {self.coverage.share:.1%} of {self.coverage.of:,} intervals hold the truth, "
                f"{self.coverage.claimed:.0%} is claimed; chance explains up to {high:.1%}"
            )
        if self.kept is not None and self.kept.short(tested):
            high = self.kept.range()[1]
            yield (
                f"{name}: of {self.kept.of:,} answers that say that {self.contract} was kept, it was by "
                f"{self.kept.share:.1%}; {self.kept.claimed:.0%} is claimed; chance explains up to {high:.1%}"
            )
        if self.drift is not None:
            yield from (f"{name}: {problem}" for problem in self.drift.problems(tested))
        if self.missing and not self.may_miss:
            yield f"{name}: {self.missing:,} answers are missing, and the contract is {self.contract}"
        if self.gap is not None and self.gap_allowed is not None and self.gap > self.gap_allowed:
            yield f"{name}: {self.gap:,} answers in a row are missing, {self.gap_allowed:,} are allowed"

    def as_dict(self) -> dict[str, Any]:
        """The column as JSON has it."""
        errors, drift = self.errors, self.drift
        return {
            "query": self.query,
            "column": self.column,
            "contract": self.contract,
            "answers": self.answers,
            "true_answers": self.true,
            "compared": self.compared,
            "how": dict(self.hows),
            "coverage": _coverage_json(self.coverage),
            "relative_error": None
            if errors is None
            else {
                "median": _finite(errors.median),
                "p90": _finite(errors.most),
                "p99": _finite(errors.nearly_all),
                "max": _finite(errors.worst),
            },
            "within_error": self.within,
            "met": self.met,
            "met_and_within": None if self.kept is None else self.kept.share,
            "missing": self.missing,
            "suspended": self.suspended,
            "extra": self.extra,
            "differing": self.differing,
            "examples": [str(example) for example in self.examples],
            "longest_gap": self.gap,
            "allowed_gap": self.gap_allowed,
            "drift": None if drift is None else {**drift.as_dict(), "saved": self.saved},
        }


def _coverage_json(coverage: Coverage | None) -> dict[str, Any] | None:
    if coverage is None:
        return None
    return {
        "inside": coverage.inside,
        "of": coverage.of,
        "share": coverage.share,
        "claimed": coverage.claimed,
        "overlap": coverage.overlap,
        "range": list(coverage.range()),
        "short": coverage.short(),
    }


def _finite(error: float) -> float | None:
    """JSON has no infinity: an error where the truth is 0 has no size."""
    return error if math.isfinite(error) else None


@dataclass(frozen=True)
class AuditReport:
    """All columns, in the order of the queries."""

    columns: tuple[ColumnAudit, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """Every promise that was not kept, in words; of many columns one is short by chance."""
        tested = sum(column.tests for column in self.columns)
        return tuple(problem for column in self.columns for problem in column.problems(tested))

    @property
    def passed(self) -> bool:
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON has it."""
        return {
            "passed": self.passed,
            "problems": list(self.problems),
            "columns": [column.as_dict() for column in self.columns],
        }
