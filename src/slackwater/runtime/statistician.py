"""The statistics manager: after every measured batch, what is known of its stream is brought up to date.

Counts and sums decay, so that what is old is forgotten; times are fitted anew over the last batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plan.algebra import algebra
from slackwater.plan.operators import OperatorNode
from slackwater.plan.slots import Slot, Slots
from slackwater.plan.tables import Plan, StepPlan
from slackwater.planners.terms import UNSHEDDABLE
from slackwater.runtime.shedding import Shed
from slackwater.spark.statement import FREQUENT_AT_MOST
from slackwater.statistics.costs import PYTHON_ROW, REMEMBERED, Costs, Observation, fit_costs
from slackwater.statistics.snapshot import QueryStatistics, StreamStatistics, strata_of

GROUPS_AT_MOST = 20_000
FORGOTTEN = 0.05
"""Groups with less left than this part of a row are forgotten."""
DECAY = 0.7
"""What is left of a batch's counts in the next one's."""

UNSTEADY = 1e4
"""The mean square of values over their squared mean, where the mean is about 0: no rate makes up for it."""

DEFAULTS: dict[str, float] = {
    "pass": 0.01,
    "python pass": 0.03,
    "read": 3e-8,
    "block": 6e-8,
    "row": 6e-8,
    "test": 6e-9,
    "emit": 1e-6,
    "lookup": 1e-7,
}
"""Seconds before anything has been measured; a payload that has to be parsed takes longer."""
SEEN, UNSEEN = 0.1, 0.04
"""Of the time of a batch, what a term must take to be seen well, and what cannot be told from noise."""
FOLLOWED, FADED = 0.1, 0.97
"""How far the calibration follows in one batch, and how fast it fades."""
STEPS, STEP_RIDGE = 4, 0.02
"""Steps of a calibration, and how much a departure weighs in each."""
PARSED_ROW = 1.5e-6


@dataclass
class _Sums:
    """Decayed: rows seen, of how many, and the moments of what is summed."""

    rows: float = 0.0
    of: float = 0.0
    values: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    negative: bool = False
    least_group: float | None = None
    groups: int = 1

    def decay(self) -> None:
        for name in ("rows", "of", "values", "total", "squares"):
            setattr(self, name, getattr(self, name) * DECAY)


@dataclass
class Statistician:
    """What is known of one stream under one version of the query set."""

    plan: Plan
    stream: str
    slots: Slots
    nodes: tuple[OperatorNode, ...]
    counted: tuple[int, ...]
    parses: bool = False
    batches: int = 0
    size: float = 0.0
    rate: float = 0.0
    _seconds: float = 1.0
    """Of event time that the rate is known from, as far as they are remembered."""
    _passed: dict[int, tuple[float, float]] = field(default_factory=dict)
    _sums: dict[str, _Sums] = field(default_factory=dict)
    _groups: dict[str, tuple[dict[int, float], float]] = field(default_factory=dict)
    """By slot: rows of each group, decayed, and of how many."""
    _observed: deque[Observation] = field(default_factory=deque)
    _probes: dict[tuple[str, str], tuple[Mapping[str, float], float]] = field(default_factory=dict)
    """By table and way of reading: what the last probe had to do, and how long it took."""
    calibration: dict[str, float] = field(default_factory=dict)
    costs: Costs = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.calibration = dict(DEFAULTS)
        if self.parses:
            self.calibration["row"] = PARSED_ROW
        for slot in self.slots.all:
            self.calibration[f"python {slot.id}"] = PYTHON_ROW
        self.costs = dict(self.calibration)

    def take_over(self, before: Statistician) -> None:
        """Go on from what was known under another plan: all of it where the slots are the same ones."""
        self.size, self.rate = before.size, before.rate
        self.calibration.update({n: v for n, v in before.costs.items() if n in self.calibration})
        self.costs = dict(self.calibration)
        if before.slots == self.slots and before.nodes == self.nodes:
            self.batches = before.batches
            self._passed = dict(before._passed)
        here = {slot.id for slot in self.slots.all}
        self._groups = {slot: known for slot, known in before._groups.items() if slot in here}
        self._sums = {name: replace(s) for name, s in before._sums.items() if name in self.plan.steps}

    def to_json(self) -> dict[str, Any]:
        """What a run that goes on from this one would otherwise have to learn again."""
        sums = {name: asdict(s) for name, s in self._sums.items()}
        return {"size": self.size, "rate": self.rate, "costs": dict(self.costs), "sums": sums}

    def go_on(self, kept: Mapping[str, Any]) -> None:
        """Start from what an earlier run has learnt of the stream."""
        self.size, self.rate = kept["size"], kept["rate"]
        self.calibration.update({n: v for n, v in kept["costs"].items() if n in self.calibration and v > 0})
        self.costs = dict(self.calibration)
        self._sums = {name: _Sums(**s) for name, s in kept["sums"].items() if name in self.plan.steps}

    def arrived(self, rows: int, seconds: float) -> None:
        """Take note of a batch that held so many rows over so long a stretch of event time."""
        self.size = float(rows)
        if seconds > 0:
            # by how long batches are: one of a few microseconds with a lump of rows says nothing of a second
            known = self._seconds * DECAY if self.rate else 0.0
            self.rate = (self.rate * known + rows) / (known + seconds)
            self._seconds = known + seconds

    def count(self, shed: Shed) -> None:
        """Learn from a measured batch how many rows get how far, and what their values are like."""
        self.batches += 1
        root = shed.passed
        for place, rows in zip(self.counted, shed.nodes, strict=False):
            old = self._passed.get(place, (0.0, 0.0))
            self._passed[place] = (old[0] * DECAY + float(rows), old[1] * DECAY + root)
        for slot in self.slots.stratified:
            self._count_groups(slot, shed)
        for slot in self.slots.all:
            kept = shed.kept_of(slot) if slot.sheddable else shed.passed
            for name in slot.steps:
                plan = self.plan.steps[name]
                if plan.presence is None:
                    continue
                partials = shed.partials.get(plan.presence[0])
                if partials is None:
                    continue
                sums = self._sums.setdefault(name, _Sums())
                sums.decay()
                if slot.id in shed.decision.sizes:
                    self._by_size(sums, plan, partials, shed.passed)
                else:
                    self._query(sums, plan, slot, partials, kept)

    def _by_size(self, sums: _Sums, plan: StepPlan, rows: pa.Table, of: int) -> None:
        """Rows that were kept in proportion to their size count for as many as their chance stands for."""
        column = plan.calls[0].columns["total"]
        there = _sum(rows[f"{column}_c"])
        sums.rows += there
        sums.of += of
        sums.values += there
        sums.total += _sum(rows[f"{column}_z"])
        sums.squares += _sum(rows[f"{column}_w"])

    def _query(self, sums: _Sums, plan: StepPlan, slot: Slot, rows: pa.Table, kept: int) -> None:
        assert plan.presence is not None
        if slot.place[2] is not None:
            rows = rows.filter(pc.equal(rows["q"], slot.place[2]))
        presence = rows[plan.presence[1]].fill_null(0).to_numpy()
        sums.rows += float(presence.sum())
        sums.of += kept
        keys = [n for n in rows.column_names if n.startswith("k") and n[1:].isdigit()]
        if keys and len(presence):
            of_group = (
                rows.append_column("__n", pa.array(presence)).group_by(keys).aggregate([("__n", "sum")])
            )
            counts = of_group["__n_sum"].to_numpy()
            counts = counts[counts > 0]
            if len(counts) and kept:
                least = float(counts.min()) / kept
                old = sums.least_group
                sums.least_group = least if old is None else DECAY * old + (1 - DECAY) * least
                sums.groups = len(counts)
        for call, where in zip(plan.step.calls, plan.calls, strict=True):
            final = algebra(call, self.plan.catalog.functions).final
            if final in ("total", "average") and where.table == plan.presence[0]:
                column = where.columns["total"]
                if f"{column}_q" not in rows.column_names:
                    continue
                sums.values += _sum(rows[f"{column}_n"])
                sums.total += _sum(rows[column])
                sums.squares += _sum(rows[f"{column}_q"])
                least = pc.min(rows[f"{column}_l"]).as_py()
                sums.negative = sums.negative or (least is not None and least < 0)

    def _count_groups(self, slot: Slot, shed: Shed) -> None:
        """How many rows each group has, by its hash; rows that were dropped are added in proportion."""
        plan = self.plan.steps[slot.steps[0]]
        assert plan.presence is not None
        rows = shed.partials.get(plan.presence[0])
        if rows is None or f"group_{slot.id}" not in rows.column_names:
            return
        counts, of = self._groups.get(slot.id, ({}, 0.0))
        counts = {h: n * DECAY for h, n in counts.items() if n * DECAY > FORGOTTEN}
        frequent = set(shed.decision.frequent.get(slot.id, ()))
        named = rows[f"group_{slot.id}"].to_numpy()
        present = rows[plan.presence[1]].fill_null(0).to_numpy()
        for h, n in zip(named.tolist(), present.tolist(), strict=True):
            rate = (shed.rate(slot) if h in frequent else shed.rare_rate(slot)) * shed.share
            if n and rate > 0:
                counts[h] = counts.get(h, 0.0) + n / rate
        if len(counts) > GROUPS_AT_MOST:
            counts = dict(sorted(counts.items(), key=lambda item: -item[1])[:GROUPS_AT_MOST])
        self._groups[slot.id] = (counts, of * DECAY + shed.arrived)

    def observe(self, table: str, terms: Mapping[str, float], seconds: float) -> None:
        """Take note of what the passes over one table had to do and how long they took."""
        self._observed.append(Observation(self.batches, dict(terms), seconds))

    def probe(self, table: str, way: str, terms: Mapping[str, float], seconds: float) -> None:
        """Take note of what the passes over one table took when all rows were dropped; it stays known."""
        self._probes[table, way] = (dict(terms), seconds)

    def fit(self) -> None:
        """Fit the costs to what has been observed lately."""
        while self._observed and self._observed[0].batch < self.batches - REMEMBERED:
            self._observed.popleft()
        self.costs = fit_costs(self._all_observed(), self.calibration)

    def follow(self) -> None:
        """Let the calibration follow what is seen of a term, and fade where next to nothing is.

        What is dropped is not timed. While code gets faster, or a machine less busy, a row would keep the
        price that it once had, and nobody would try to keep more of them.
        """
        latest = [o for o in self._observed if o.batch == self.batches]
        spent = sum(o.seconds for o in latest)
        for term in self.calibration if spent > 0 else ():
            share = self.costs[term] * sum(o.terms.get(term, 0.0) for o in latest) / spent
            if share >= SEEN:
                self.calibration[term] += FOLLOWED * (self.costs[term] - self.calibration[term])
            elif share < UNSEEN and term not in UNSHEDDABLE:
                self.calibration[term] = max(self.calibration[term] * FADED, self._least(term))

    def _least(self, term: str) -> float:
        return (PYTHON_ROW if term.startswith("python") else DEFAULTS[term]) / 4

    def _all_observed(self) -> list[Observation]:
        probes = [Observation(self.batches, terms, seconds) for terms, seconds in self._probes.values()]
        return [*self._observed, *probes]

    def calibrate(self) -> None:
        """Make what has been fitted so far the values that later fits are drawn to.

        In steps, each drawn to the one before it: a function may cost a hundred times what one usually does,
        and one step would leave most of that to whatever else a batch has.
        """
        observed = self._all_observed()
        for _ in range(STEPS):
            fitted = fit_costs(observed, self.calibration, ridge=STEP_RIDGE)
            self.calibration = {n: max(v, 1e-12) for n, v in fitted.items()}

    def snapshot(self) -> StreamStatistics:
        queries = {}
        for name, sums in self._sums.items():
            share = sums.rows / sums.of if sums.of else 0.1
            if sums.least_group is not None:
                share = sums.least_group
            second = 1.0
            if sums.values:
                mean_square = sums.total**2 / sums.values
                second = min(max(1.0, sums.squares / mean_square if mean_square else UNSTEADY), UNSTEADY)
            mean = sums.total / sums.values if sums.values and not sums.negative else None
            queries[name] = QueryStatistics(max(share, 1e-9), second, sums.groups, mean)
        found = {s: strata_of(counts, of, FREQUENT_AT_MOST) for s, (counts, of) in self._groups.items()}
        strata = {s: told for s, told in found.items() if told is not None}
        passed = {place: rows / of for place, (rows, of) in self._passed.items() if of}
        return StreamStatistics(
            self.stream, self.batches, self.size, self.rate, passed, queries, strata, dict(self.costs)
        )


def _sum(column: pa.ChunkedArray) -> float:
    values = pc.cast(column, pa.float64(), safe=False).fill_null(0.0).to_numpy()
    return float(np.nan_to_num(values).sum())
