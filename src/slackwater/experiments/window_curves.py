"""What is delivered at a load: measured points of drop share, delivered share and seconds, and what they say.

A load is the input rate over the capacity: 1 is just what the machine can do, 1.25 an excess of 25 %. There
is time for 1/load of what the stream would take without drops, so the least share of windows is left out that
makes the run fit into that; what lies between two measured points is interpolated. Where no point fits, the
query is given up: nothing is delivered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from slackwater.experiments.runs import Answers, Ints


@dataclass(frozen=True)
class Point:
    """A run: the share of windows that was to be left out, the share delivered, and what it took."""

    share: float
    delivered: float
    seconds: float


def typical(seconds: Sequence[float]) -> float:
    """What a round takes while little else is going on: the mean of the faster half."""
    return mean(sorted(seconds)[: (len(seconds) + 1) // 2])


def delivered_at(points: Sequence[Point], load: float) -> float:
    """The share delivered at a load; the first point is the run without drops, shares rise.

    >>> curve = [Point(0.0, 1.0, 10.0), Point(0.5, 0.5, 6.0), Point(0.9, 0.1, 2.0)]
    >>> delivered_at(curve, 1.0), delivered_at(curve, 1.25), delivered_at(curve, 2.5), delivered_at(curve, 6)
    (1.0, 0.75, 0.3, 0.0)
    """
    capacity = points[0].seconds / load
    before = points[0]
    for point in points:
        if point.seconds <= capacity:
            span = before.seconds - point.seconds
            part = (before.seconds - capacity) / span if span > 0 else 1.0
            return before.delivered + part * (point.delivered - before.delivered)
        before = point
    return 0.0


def limit_of(points: Sequence[Point]) -> float:
    """The largest load at which anything is delivered.

    >>> limit_of([Point(0.0, 1.0, 10.0), Point(0.5, 0.5, 4.0)])
    2.5
    """
    return points[0].seconds / min(point.seconds for point in points)


@dataclass(frozen=True)
class Promise:
    """What a query may not break: how many of its windows may be missing in a row; its slide in seconds."""

    query: str
    gap: int
    slide: int


@dataclass(frozen=True)
class Check:
    """What a run delivered, held against the run without drops."""

    delivered: float
    """Share of the windows, on average over the queries."""
    wrong: int
    """Answers that the run without drops does not have, or has otherwise."""
    violations: int
    """Runs of missing windows that are longer than the gap."""


def checked(found: Mapping[str, Answers], truth: Mapping[str, Answers], promises: Sequence[Promise]) -> Check:
    """Hold the answers of a run against those of the run without drops."""
    shares, wrong, violations = [], 0, 0
    for promise in promises:
        mine, true = found[promise.query], truth[promise.query]
        known = dict(zip(true.end.tolist(), true.value.tolist(), strict=True))
        got = dict(zip(mine.end.tolist(), mine.value.tolist(), strict=True))
        wrong += len(mine.end) - len(got) + sum(known.get(end) != value for end, value in got.items())
        runs = missing_runs(true.end, mine.end, promise.slide * 1_000_000)
        violations += sum(length > promise.gap for length in runs)
        shares.append(len(got) / len(known))
    return Check(sum(shares) / len(shares), wrong, violations)


def missing_runs(everything: Ints, delivered: Ints, slide: int) -> list[int]:
    """How long the runs of adjacent windows are that are missing; windows by where they end.

    >>> missing_runs(np.array([2, 4, 6, 8, 12]), np.array([6]), 2)
    [2, 1, 1]
    """
    there = set(delivered.tolist())
    runs: list[int] = []
    last = None
    for end in (int(e) for e in np.sort(everything) if int(e) not in there):
        if last is not None and end == last + slide:
            runs[-1] += 1
        else:
            runs.append(1)
        last = end
    return runs


@dataclass
class Measurement:
    """The points of some alternatives, and what was wrong with any of their answers."""

    curves: dict[str, list[Point]]
    wrong: int = 0
    violations: int = 0

    def add(self, name: str, share: float, check: Check, seconds: float) -> None:
        self.curves[name].append(Point(share, check.delivered, seconds))
        self.wrong += check.wrong
        self.violations += check.violations

    def figures(self, loads: Iterable[float]) -> dict[str, float]:
        """What each alternative delivers at each load, and where it ends."""
        loads = list(loads)
        found: dict[str, float] = {}
        for name, points in self.curves.items():
            found |= {f"delivered.{name}.{load:g}": delivered_at(points, load) for load in loads}
            found[f"limit.{name}"] = limit_of(points)
        return {**found, "wrong_answers": self.wrong, "gap_violations": self.violations}

    def series(self) -> dict[str, list[tuple[float, float, float]]]:
        """The points for plots: share, delivered and seconds over those of the run without drops."""
        return {
            name: [(p.share, p.delivered, p.seconds / points[0].seconds) for p in points]
            for name, points in self.curves.items()
        }
