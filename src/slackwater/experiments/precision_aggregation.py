"""``reproduce precision-aggregation``: objects by measurement group or by query, Appendix G.

Three walks V0, V1, V2 of normal steps at a source, two sums: Q1 = V0 + V1 and Q2 = V0 + V2. Told by group,
three objects share two constraints; told by query, each sum has its own. *case1*: the constraints differ by
ten times. *case2*: V0 moves a hundred times as far as the others. *switching*: equal constraints; at first
all three move alike, then V1 and V2 hardly move, and so on in turns.

By formula: the rates of Appendix E, (2s)²/W², with the variances of a sum added up (where the paper prints
s·s₁ it means 2·s₁), and the best widths of the groups from scipy. By simulation: the same walks through real
filters, the widths of the groups by curves; every message counted. *adaptive*: the choice between the two is
made every five periods, from the curves of both kinds, and its changes are counted too. Curves of the
kind that is not in use are taken to be as fresh as if it were.

*system*: what runs, but for sockets and Spark (`precision_system.py`): agents that make sums, the coordinator
that forms and tries them and chooses; with ``sums 'never'``, told by group for good, and ``'measured'``.
Names of sums, their definitions and ends count as messages too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from slackwater.experiments.precision_schemes import PERIOD, ByCurves, Granted
from slackwater.experiments.precision_simulation import Counted, Results, simulated
from slackwater.experiments.precision_system import System, Total
from slackwater.experiments.precision_system import Told as Answered
from slackwater.planners.precision_changes import HORIZON_PERIODS
from slackwater.planners.precision_constraints import Bools, Constraints, Floats, constrained, extreme, total
from slackwater.planners.precision_curves import Curves, Told, known_curves, refinement
from slackwater.planners.precision_grouping import Groups, chosen, messages_to_change, priced
from slackwater.reference.precision_system import optimum

MEMBERS = np.array([[True, True, False], [True, False, True]])
"""Queries by walks."""


@dataclass(frozen=True)
class Case:
    """Steps of the three walks in each phase, and the constraints of the two sums."""

    steps: tuple[tuple[float, float, float], ...]
    within: tuple[float, float]


CASES = {
    "case1": Case(((1.0, 1.0, 1.0),), (100.0, 10.0)),
    "case2": Case(((1.0, 0.01, 0.01),), (10.0, 10.0)),
    "switching": Case(((1.0, 1.0, 1.0), (1.0, 0.01, 0.01)) * 2, (10.0, 10.0)),
}


@dataclass(frozen=True)
class Sizes:
    """How much is simulated."""

    sources: int
    steps: int
    phase: int
    """Steps in each phase, where there are several."""
    warm_up: int
    system: int
    """Steps of the whole system, or of each phase."""


FULL = Sizes(sources=4, steps=8000, phase=16_000, warm_up=2000, system=6000)
QUICK = Sizes(sources=3, steps=700, phase=300, warm_up=400, system=60)
DECIDED_EVERY = 5
"""Periods: counts that tell two kinds apart take longer than one."""


def precision_aggregation(spark: Any, folder: Path, sizes: Sizes, shown: Progress) -> Results:
    """All figures of the experiment; Spark has no part in it, and nothing is written."""
    results = Results()
    task = shown.add_task("cases", total=3 * len(CASES))
    violations = 0
    for name, case in CASES.items():
        if name != "switching":
            apart, summed = by_formula(case)
            results.figures[f"formula.aggregated_over_grouped.{name}"] = summed / apart
        world = _World(case, sizes)
        by_group, by_query = world.grouped(), world.aggregated()
        violations += by_group.counted.violations + by_query.counted.violations
        adaptive, kinds = world.adaptive(by_group, by_query)
        phases = {
            "grouped": world.phases(by_group.messages),
            "aggregated": world.phases(by_query.messages),
            "adaptive": world.phases(adaptive),
        }
        best = np.minimum(phases["grouped"], phases["aggregated"])
        for kind, costs in phases.items():
            results.figures[f"{kind}.{name}"] = float(costs.mean()) / sizes.sources
        results.figures[f"adaptive_over_best.{name}"] = float(phases["adaptive"].sum() / best.sum())
        ratio = float(phases["aggregated"].sum() / phases["grouped"].sum())
        results.figures[f"aggregated_over_grouped.{name}"] = ratio
        fixed = min(phases["grouped"].sum(), phases["aggregated"].sum())
        results.figures[f"adaptive_over_fixed.{name}"] = float(phases["adaptive"].sum() / fixed)
        results.figures[f"changes.{name}"] = float(np.abs(np.diff(kinds, axis=0)).sum()) / sizes.sources
        results.series[name] = world.drawn(by_group.messages, by_query.messages, adaptive, kinds)
        shown.advance(task)
        for sums in ("never", "measured"):
            # the last third of each phase: what it comes to, after it has found its way
            told = whole_system(case, sizes, sums)
            parts = np.split(np.array(told.messages) / sizes.sources, len(case.steps))
            settled = [float(part[-len(part) // 3 :].mean()) for part in parts]
            results.figures[f"system.{sums}.{name}"] = float(np.mean(settled))
            results.series[name][f"system_{sums}"] = settled
            violations += told.violations
            shown.advance(task)
        over = results.figures[f"system.measured.{name}"] / results.figures[f"system.never.{name}"]
        results.figures[f"system.measured_over_never.{name}"] = over
    results.figures["violations"] = violations
    return results


def by_formula(case: Case) -> tuple[float, float]:
    """Updates a step told by group and by query, by the law of random walks.

    >>> by_formula(Case(((1.0, 1e-6, 1e-6),), (20.0, 20.0)))[1].round(4)
    np.float64(0.02)
    """
    steps, within = np.array(case.steps[0]), np.array(case.within)
    widths = optimum(MEMBERS.astype(np.float64), within, steps.tolist(), [1.0] * len(steps))
    apart = (np.square(2 * steps) / np.square(widths)).sum()
    summed = (MEMBERS @ np.square(2 * steps) / np.square(within)).sum()
    return apart, summed


def whole_system(case: Case, sizes: Sizes, sums: str) -> Answered:
    """The same walks through what runs, each source an agent with three keys and two queries of its own."""
    rng = np.random.default_rng(3)
    steps = np.repeat(np.array(case.steps), sizes.system, axis=0)
    moves = rng.normal(0, 1, (len(steps), sizes.sources, 3)) * steps[:, None, :]
    agents = [[3 * source + key for key in range(3)] for source in range(sizes.sources)]
    queries = [
        Total(tuple(np.array(keys)[row].tolist()), within)
        for keys in agents
        for row, within in zip(MEMBERS, case.within, strict=True)
    ]
    system = System(agents, queries, sums=sums, period=PERIOD)
    for values in np.cumsum(moves, axis=0).reshape(len(steps), -1):
        system.step(values)
    return system.told


class _Told(ByCurves):
    """Curves, and what was known at the end of each period."""

    def __init__(self, constraints: Constraints) -> None:
        super().__init__(constraints, np.ones(constraints.objects))
        self.known_at: list[tuple[Told, Floats]] = []

    def adjusted(self, now: float, widths: Floats) -> Granted:
        told = Told(self._lowest.copy(), self._seconds.copy(), self._rates.copy(), now - self._at)
        self.known_at.append((told, widths.copy()))
        return super().adjusted(now, widths)


@dataclass(frozen=True)
class _Run:
    counted: Counted
    messages: Floats
    """By step and source."""
    known_at: list[tuple[Told, Floats]]

    def curves(self, period: int) -> Curves:
        told, widths = self.known_at[period]
        return known_curves(told, widths, float(PERIOD), refinement(len(widths)))


class _World:
    """Sources that are alike, each with its own two queries."""

    def __init__(self, case: Case, sizes: Sizes) -> None:
        self._case, self._sizes = case, sizes
        rng = np.random.default_rng(3)
        each = sizes.steps if len(case.steps) == 1 else sizes.phase
        steps = np.repeat(np.array(case.steps), each, axis=0)
        moves = rng.normal(0, 1, (len(steps), sizes.sources, 3)) * steps[:, None, :]
        self._walks = np.cumsum(moves, axis=0)
        slot, group = np.nonzero(np.kron(np.eye(sizes.sources), MEMBERS))
        self.groups = Groups(slot, group, 2 * sizes.sources, 3 * sizes.sources)
        self._shares = np.tile(np.array(case.within), sizes.sources)

    def grouped(self) -> _Run:
        sources = self._sizes.sources
        asked = [
            total(3 * source + np.flatnonzero(row), within)
            for source in range(sources)
            for row, within in zip(MEMBERS, self._case.within, strict=True)
        ]
        return self._run(self._walks.reshape(len(self._walks), -1), constrained(asked, 3 * sources))

    def aggregated(self) -> _Run:
        sums = self._walks @ MEMBERS.T.astype(np.float64)
        asked = [extreme([slot], share) for slot, share in enumerate(self._shares.tolist())]
        return self._run(sums.reshape(len(sums), -1), constrained(asked, len(asked)))

    def _run(self, values: Floats, constraints: Constraints) -> _Run:
        scheme = _Told(constraints)
        source = np.arange(constraints.objects) // (constraints.objects // self._sizes.sources)
        counted = simulated(values, constraints, scheme, by_object=True, source=source)
        assert counted.of_object is not None
        messages = counted.of_object.reshape(len(values), self._sizes.sources, -1).sum(axis=2)
        return _Run(replace(counted, of_object=None), messages, scheme.known_at)

    def adaptive(self, by_group: _Run, by_query: _Run) -> tuple[Floats, Bools]:
        """Messages by step and source, and by period whether each is told by query; by group at first."""
        of_source = self.groups.of_slot[::2]
        kind = np.zeros(self.groups.sets, bool)
        messages, kinds = by_group.messages.copy(), [kind[of_source]]
        to_groups, to_queries = messages_to_change(self.groups)
        since = np.zeros(self.groups.sets)
        for period in range(len(by_group.known_at)):
            new = kind
            if period % DECIDED_EVERY == DECIDED_EVERY - 1:
                costs = priced(self.groups, self._shares, by_group.curves(period), by_query.curves(period))
                horizon = np.maximum(HORIZON_PERIODS, period - since) * PERIOD
                new = chosen(self.groups, costs, kind, horizon)
                since[new != kind] = period
            changed = (new != kind)[of_source]
            kind = new
            part = slice((period + 1) * PERIOD, (period + 2) * PERIOD)
            messages[part] = np.where(kind[of_source], by_query.messages[part], by_group.messages[part])
            spent = np.where(kind, to_queries, to_groups)[of_source]
            messages[part.start] += np.where(changed, spent, 0.0)
            kinds.append(kind[of_source])
        return messages, np.array(kinds)

    def phases(self, messages: Floats) -> Floats:
        """Messages a step in each phase; where there is only one, after a time to warm up."""
        of_step = messages.sum(axis=1)
        split = np.split(of_step, len(self._case.steps))
        first = split[0][self._sizes.warm_up :] if len(split) == 1 else split[0]
        return np.array([first.mean(), *(part.mean() for part in split[1:])])

    def drawn(self, grouped: Floats, aggregated: Floats, adaptive: Floats, kinds: Bools) -> dict[str, Any]:
        """Messages a step and source over time, and the share of sources told by query."""
        every = max(PERIOD, len(grouped) // 100 // PERIOD * PERIOD)
        length = len(grouped) // every * every

        def thinned(messages: Floats) -> list[float]:
            found: list[float] = messages[:length].mean(axis=1).reshape(-1, every).mean(axis=1).tolist()
            return found

        share = np.repeat(kinds.mean(axis=1), PERIOD)[:length].reshape(-1, every).mean(axis=1)
        return {
            "at": (np.arange(length // every) * every).tolist(),
            "grouped": thinned(grouped),
            "aggregated": thinned(aggregated),
            "adaptive": thinned(adaptive),
            "by_query": share.tolist(),
        }
