"""A decision's thresholds at work in one batch: the numbers that statements test, and what came through."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plan.slots import Slot, Slots, rare
from slackwater.plan.tables import Plan
from slackwater.planners.decision import Decision
from slackwater.planners.window_schedule import Range, joined
from slackwater.runtime.samples import BATCH_SCHEMA, Span
from slackwater.runtime.window_drops import WindowDrops
from slackwater.spark.statement import FREQUENT_AT_MOST, WHOLE, companions

COUNTING = ("__arrived", "__readable", "__latest", "__earliest", "__kept_", "__node_", "__late", "__looked")
"""How the columns begin that count a batch and are no partials."""


LOOKOUT = 1 / 256
"""Of the rows that no window needs, how many are kept to tell how late it is."""
WORTH_A_LOOK = 0.35
"""The part of a batch that windows need, above which rows in a payload are parsed once and not twice."""
UNTOLD = 1_000_000
"""How much larger a batch is made for weights that its counts have no say in."""


def threshold(rate: float) -> int:
    """The largest number ``__u`` that a rate keeps, plus one.

    >>> threshold(1.0) == WHOLE, threshold(0.5) * 2 == WHOLE, threshold(0.0)
    (True, True, 0)
    """
    return min(WHOLE, max(0, round(rate * WHOLE)))


def tests_thresholds(decision: Decision, slots: Slots) -> bool:
    """Whether statements test thresholds; those that test windows do too, so that one text serves both."""
    return bool(decision.thresholds or decision.blocks or (decision.leaves_out and slots.sheddable))


@dataclass(frozen=True)
class Took:
    """How a batch went; times in seconds."""

    arrived: int
    """Rows."""
    stretch: float
    """Of event time."""
    wall: float
    times: Mapping[str, float] = field(default_factory=dict)
    """Of executors, by table, where they were measured."""


@dataclass
class Shed:
    """What is kept of one batch. ``arrived`` and the counts come from the first pass over it."""

    plan: Plan
    slots: Slots
    decision: Decision
    size: int | None = None
    """Rows that arrived, where the source knows; otherwise Spark's count of rows read."""
    arrived: int = 0
    passed: int = 0
    """Rows below the largest threshold: those that the passes see."""
    kept: dict[int, np.ndarray] = field(default_factory=dict)
    """By block (-1: there are none): rows below each of the counted thresholds."""
    nodes: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """Rows of each counted operator, among those that passed the root."""
    partials: dict[str, pa.Table] = field(default_factory=dict)
    """By table: what the passes brought, with the moments beside it."""
    earliest: int | None = None
    """The least time among the rows kept that are not late."""
    told: bool = True
    """Whether how many rows arrived is known; otherwise it is guessed from those that passed."""
    drops: WindowDrops | None = None
    """Which windows are left out, where some are."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """By slot whose windows may be left out: how much of the batch it needs."""

    @property
    def rates(self) -> Mapping[str, float]:
        return self.decision.thresholds

    @property
    def share(self) -> float:
        """How much of the batch is read."""
        return self.decision.share

    def rate(self, slot: Slot) -> float:
        return self.rates.get(slot.id, 1.0)

    def rare_rate(self, slot: Slot) -> float:
        """The rate of the groups that are not among its frequent ones."""
        return self.rates.get(rare(slot.id), self.rate(slot))

    def samples(self, slot: Slot) -> bool:
        """Whether a slot sees only a part of the batch."""
        return min(self.rate(slot), self.rare_rate(slot)) < 1.0 or bool(self.decision.blocks)

    def suspended(self, slot: Slot) -> bool:
        """Whether a slot sees nothing of the batch."""
        return max(self.rate(slot), self.rare_rate(slot)) <= 0.0

    @property
    def tested(self) -> bool:
        """Whether the statements test thresholds, though all of them may be 1."""
        return tests_thresholds(self.decision, self.slots)

    @property
    def drawn(self) -> bool:
        """Whether any slot sees only a part of the batch."""
        return bool(self.decision.blocks) or any(self.samples(slot) for slot in self.slots.sheddable)

    @property
    def sees_all(self) -> bool:
        """Whether the passes see every row of the batch, whatever the slots keep of it."""
        return self.root >= 1.0 and not self.decision.blocks

    @property
    def empty(self) -> bool:
        """Whether the batch surely had no row that a window could miss."""
        return self.earliest is None if self.sees_all else self.told and self.arrived == 0

    @cached_property
    def needed(self) -> tuple[int, ...]:
        """The times of which all rows are kept, as cells; none where rows of all times are.

        To know the time of a row in a payload it must be parsed, though for nothing else: that is worth it
        only where most rows are dropped. Otherwise each path finds the rows that it needs.
        """
        if self.drops is None or not self.drops.tested or not self.drops.schedule.looks_first:
            return ()
        cells = self.drops.root(self.slots)
        return () if cells is None else (cells.base, cells.width, *cells.bits)

    @property
    def times(self) -> tuple[Range, ...] | None:
        """The only times that anybody needs rows of; None where some are needed of all times."""
        if self.drops is None or not self.needed or self.slots.sheddable or self.root > LOOKOUT:
            # a sample is drawn from all times, however small it is
            return None
        return joined([r for ranges in self.drops.needed(self.slots).values() for r in ranges])

    @cached_property
    def root(self) -> float:
        """The largest rate of all: what the batch itself is cut to before anything is parsed.

        Slots whose windows may be left out need all rows of some times, whatever the rate. Some rows are kept
        all the same: they tell how late it is.
        """
        if self.decision.sizes:
            # a row's size is known only when it has been read
            return 1.0
        left_out = self.drops.needed(self.slots) if self.drops is not None and self.needed else {}
        rates = [
            max(self.rate(slot), self.rare_rate(slot)) for slot in self.slots.all if slot.id not in left_out
        ]
        return max([*rates, LOOKOUT] if left_out else rates, default=1.0)

    @property
    def distinct(self) -> list[float]:
        """The rates that are counted, rising."""
        rates = {self.rate(slot) for slot in self.slots.sheddable}
        return sorted(rates | {self.rare_rate(slot) for slot in self.slots.stratified})

    def parameters(self, since: int, first: int) -> tuple[int, ...]:
        """The numbers of the batch, in the order that statements look for them."""
        counted = [threshold(rate) for rate in self.distinct]
        counted += [WHOLE] * (self.slots.counters - len(counted))
        own = [threshold(self.rate(slot)) for slot in self.slots.sheddable]
        for slot in self.slots.stratified:
            hashes = list(self.decision.frequent.get(slot.id, ()))[:FREQUENT_AT_MOST]
            own += [threshold(self.rare_rate(slot)), *hashes, *([0] * (FREQUENT_AT_MOST - len(hashes)))]
        for slot in self.slots.sizable:
            own += _fraction(self.decision.sizes.get(slot.id, 0.0))
        return (since, first, WHOLE, *counted, *own)

    def count(self, rows: pa.Table, read: int | None) -> None:
        """Take note of what the counting pass saw; ``read`` is how many rows Spark got from the source.

        Where nobody knows how many arrived, a row that passed stands for one over the root's rate.
        """
        blocks = rows["block"].to_numpy() if "block" in rows.column_names else np.full(rows.num_rows, -1)
        # a batch that was only measured has kept all its rows, at every threshold there is
        names = [f"__kept_{i}" if self.tested else "__arrived" for i in range(self.slots.counters)]
        kept = [rows[name].to_numpy() for name in names]
        table = np.array(kept).reshape(len(kept), rows.num_rows)
        for block in np.unique(blocks):
            self.kept[int(block)] = table[:, blocks == block].sum(axis=1)
        self.passed = passed = int(pc.sum(rows["__arrived"]).as_py() or 0)
        names = sorted((n for n in rows.column_names if n.startswith("__node_")), key=lambda n: int(n[7:]))
        looked = pc.sum(rows["__looked"]).as_py() or 0 if "__looked" in rows.column_names else 0
        self.nodes = np.array([pc.sum(rows[n]).as_py() or 0 for n in names], dtype=float)
        # of few rows none may have been looked at: what they tell is nothing
        self.nodes = self.nodes * (passed / looked) if looked else np.zeros(0)
        # where nothing can be shed, nothing asks for it
        self.earliest = pc.min(rows["__earliest"]).as_py() if "__earliest" in rows.column_names else None
        if self.size is not None:
            self.arrived = self.size
        elif self.root >= 1.0:
            self.arrived = passed
        elif read is not None:
            self.arrived = read
        elif self.needed:
            self.told, self.arrived = False, passed
        else:
            self.told = False
            self.arrived = round(passed / self.root) if passed else 0

    @property
    def drawn_rows(self) -> int:
        """Rows that are there by chance, and not because a kept window needs them."""
        if not self.needed or not self.kept:
            return self.passed
        return int(sum(counts[len(self.distinct) - 1] for counts in self.kept.values()))

    def kept_of(self, slot: Slot) -> int:
        """Rows of the batch below a slot's threshold, in all blocks."""
        index = self.distinct.index(self.rate(slot))
        return int(sum(counts[index] for counts in self.kept.values()))

    def batches(self, step: int, span: Span, share: float = 1.0) -> pa.Table:
        """What the log keeps of the batch for every slot that was sampled; no rows where none was."""
        rates = self.distinct
        sampled = [slot for slot in self.slots.sheddable if self.samples(slot)]
        found = self.kept or {-1: np.zeros(len(rates), dtype=np.int64)}
        arrived, kept = self.arrived, {b: counts.tolist() for b, counts in found.items()}
        if not (self.decision.calibrated and self.told):
            # as of a batch so large that the number kept tells nothing: a row weighs one over its rate
            arrived = UNTOLD * (arrived if self.told else max(arrived, 1))
            kept = {b: [round(arrived * share * r / len(kept)) for r in rates] for b in kept}
        rows = [
            (
                step,
                name,
                block,
                arrived,
                int(counts[rates.index(rate)]),
                rate,
                share,
                self.decision.sizes.get(name, 0.0),
                span.low,
                span.high,
                span.seen,
            )
            for slot in sampled
            for name, rate in self._named(slot)
            for block, counts in kept.items()
        ]
        columns = zip(*rows, strict=True) if rows else [()] * len(BATCH_SCHEMA)
        return pa.table(
            {n: pa.array(c, t) for (n, t), c in zip(_named(BATCH_SCHEMA), columns, strict=True)},
            schema=BATCH_SCHEMA,
        )

    def _named(self, slot: Slot) -> list[tuple[str, float]]:
        """The rates of a slot, by the names that they go under."""
        own = [(slot.id, self.rate(slot))]
        return [*own, (rare(slot.id), self.rare_rate(slot))] if slot.keys else own

    def draws(self, table_id: str) -> bool:
        """Whether some of a table's partials are of a sample."""
        table = self.plan.tables[table_id]
        if table.signature is not None:
            return any(s.place[1] == table_id and self.samples(s) for s in self.slots.sheddable)
        paths = [c.path or table.path for c in self.plan.columns[table_id]]
        found = [self.slots.at(path) for path in paths]
        return any(slot is not None and self.samples(slot) for slot in found)

    def note(self, table_id: str, rows: pa.Table, extremes: dict[str, tuple[float, float]]) -> None:
        """Keep a batch's partials for the statistics, and widen what is known of their values."""
        self.partials[table_id] = rows
        for column in self.plan.columns[table_id]:
            if f"{column.id}_l" not in rows.column_names:
                continue
            low, high = pc.min(rows[f"{column.id}_l"]).as_py(), pc.max(rows[f"{column.id}_h"]).as_py()
            if low is not None and high is not None and math.isfinite(low) and math.isfinite(high):
                # tables of different paths have partials of one name
                name = f"{table_id}.{column.id}"
                known = extremes.get(name, (low, high))
                extremes[name] = (min(low, known[0]), max(high, known[1]))

    def members(self, table_id: str) -> list[int]:
        """The members of a signature that see only a part of the batch."""
        return sorted(
            slot.place[2]
            for slot in self.slots.sheddable
            if slot.place[1] == table_id and slot.place[2] is not None and self.samples(slot)
        )

    def columns(self, table_id: str) -> tuple[list[str], list[str]]:
        """The partials of a table that are exact, and those of a sample with what stands beside them."""
        table = self.plan.tables[table_id]
        exact, sampled = [], []
        for column in self.plan.columns[table_id]:
            slot = self.slots.at(column.path or table.path)
            if slot is not None and self.samples(slot):
                sampled += [column.id, *companions(column), f"{column.id}_z", f"{column.id}_y"]
            else:
                exact.append(column.id)
        return exact, sampled

    def split(self, table_id: str, rows: pa.Table, step: int) -> tuple[pa.Table | None, pa.Table | None]:
        """A batch's partials of a table: those that are exact, and those that are of a sample."""
        rows = rows.drop_columns([n for n in rows.column_names if n.startswith(COUNTING)])
        rows = rows.filter(pc.is_valid(rows["pane"]))
        there = rows.column_names
        keys = [n for n in there if n in ("pane", "q") or (n[0] in "kv" and n[1:].isdigit())]
        block = [n for n in ("block",) if n in there]
        if self.plan.tables[table_id].signature is not None:
            ids = [c.id for c in self.plan.columns[table_id]]
            drawn = pc.is_in(rows["q"], pa.array(self.members(table_id), pa.int64()))
            return rows.filter(pc.invert(drawn)).select([*keys, *ids]), _stamped(rows.filter(drawn), step)
        exact, sampled = ([n for n in names if n in there] for names in self.columns(table_id))
        strata = [n for n in there if n.startswith("stratum_")]
        whole = rows.select([*keys, *exact]) if exact or not sampled else None
        return whole, _stamped(rows.select([*keys, *block, *strata, *sampled]), step) if sampled else None


def _fraction(value: float) -> tuple[int, int]:
    """A positive number as a fraction of two whole ones, good to fifteen digits; 0 is 0/1.

    >>> _fraction(0.0), _fraction(2.5)
    ((0, 1), (2500000000000000, 1000000000000000))
    """
    if value <= 0:
        return 0, 1
    power = max(0, min(18, 15 - math.floor(math.log10(value))))
    return round(value * 10**power), 10**power


def _stamped(rows: pa.Table, step: int) -> pa.Table:
    if "block" not in rows.column_names:
        rows = rows.append_column("block", pa.array(np.full(rows.num_rows, -1, dtype=np.int64)))
    return rows.append_column("batch", pa.array(np.full(rows.num_rows, step, dtype=np.int64)))


def _named(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    return [(f.name, f.type) for f in schema]
