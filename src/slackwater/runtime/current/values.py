"""The current values of one stream: rows come in, ticks complete, queries are evaluated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plan.current import CurrentPlan, CurrentStep
from slackwater.plan.panes import AFTER_ALL
from slackwater.planners.deferring import Rules
from slackwater.planners.manner import Manner
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.current.asking import Asking
from slackwater.runtime.current.carrying import carry, same_but_contract
from slackwater.runtime.current.deferred import DeferredQuery
from slackwater.runtime.current.exact import AT_A_TIME, ExactQuery
from slackwater.runtime.current.history import History
from slackwater.runtime.current.matrix import Matrix, Values
from slackwater.runtime.current.moving import LANDMARK_TICKS
from slackwater.runtime.current.places import Places
from slackwater.runtime.current.pulse import Pace, Pulse
from slackwater.runtime.current.rows import RowQueries
from slackwater.runtime.current.scheduling import run_due
from slackwater.statistics.series import LONG_BEFORE, Bools, Ints, Series

DEFAULT, PACE = Manner(), Pace()


@dataclass(frozen=True)
class Turned:
    """One turn as it is kept: what came, and up to where ticks are complete before and after it."""

    items: pa.Table | None
    before: int
    watermark: int
    rules: Rules = field(default_factory=Rules)


@dataclass
class Effort:
    """What ticks have taken since it was last asked for, and what they should have by the rules."""

    ticks: int = 0
    predicted: float = 0.0
    seconds: float = 0.0

    def add(self, predicted: float, seconds: float) -> None:
        self.ticks += 1
        self.predicted += predicted
        self.seconds += seconds


class CurrentValues:
    """All that is known of the keys of a stream, and the queries that read it."""

    def __init__(
        self,
        plan: CurrentPlan,
        pace: Pace = PACE,
        manner: Manner = DEFAULT,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.plan = plan
        self._pace = pace
        self._manner = manner
        self._clock = clock
        self.effort = Effort()
        self.keys = Places(len(plan.stream.key))
        self.series = Series(len(plan.signals), pace.items if plan.deferred else 0)
        span, ticks = _reach(plan.steps)
        self.history = History(len(plan.signals), span, ticks) if span or ticks else None
        self.rows = RowQueries(plan)
        linear = [step for step in plan.steps if step.linear is not None]
        self.exact = {_name(s): ExactQuery(Matrix(s, plan.signals)) for s in linear if s.drift is None}
        self.deferred = {
            _name(s): DeferredQuery(Matrix(s, plan.signals)) for s in linear if s.drift is not None
        }
        self.pulse = Pulse(plan, manner, pace)
        self._last = int(LONG_BEFORE)
        """The last tick."""
        self._pending: list[pa.Table] = []

    @property
    def _queries(self) -> dict[str, ExactQuery | DeferredQuery]:
        return {**self.exact, **self.deferred}

    def prepare(self, ask: Asking) -> None:
        """Ask how each query weighs the keys that are there; its groups may be known from before."""
        for query in self._queries.values():
            query.types = ask.types(query.matrix.step)
            query.matrix.extend(ask.entries(query.matrix.step, self.keys, 0), self.series.size)
            query.matrix = ask.placed(query.matrix)
            if isinstance(query, DeferredQuery):
                query.name_groups(ask.group_items)

    def turn(self, turned: Turned, ask: Asking) -> None:
        """Take the rows of a turn, and evaluate every tick that is complete after it."""
        if turned.items is not None and turned.items.num_rows:
            self._take_in(turned.items, turned.before, ask)
        closed = self._closed(turned.watermark)
        if closed is not None:
            cells = closed["cell"].to_numpy()
            starts = np.flatnonzero(np.append(True, cells[1:] != cells[:-1]))
            for start, stop in zip(starts, np.append(starts[1:], len(cells)), strict=True):
                self._silence(int(cells[start]), turned.rules)
                self._tick(int(cells[start]), closed.slice(start, stop - start), turned.rules)
                held = [query.held for query in self._queries.values()]
                if sum(held) > AT_A_TIME or self.rows.held > AT_A_TIME:
                    ask.flush(self.answers)
        if turned.watermark < AFTER_ALL:
            self._silence(turned.watermark, turned.rules)

    def wakes(self, watermark: int) -> bool:
        """Whether something would be evaluated if the watermark moved."""
        if any(pc.min(pending["cell"]).as_py() < watermark for pending in self._pending):
            return True
        return bool(self.deferred) and self.pulse.wakes(watermark, self.series)

    def _silence(self, until: int, rules: Rules) -> None:
        """Go on answering while keys are interrupted and nothing comes."""
        if not self.deferred:
            return
        for now in self.pulse.between(until, self.series):
            self._defer(now, np.zeros(self.series.size, bool), rules)

    def _take_in(self, items: pa.Table, before: int, ask: Asking) -> None:
        """Find the places of keys, ask for the weights of new ones, and let late rows repair the past."""
        known = self.keys.size
        key = self.keys.find([items[f"k{i}"] for i in range(self.keys.width)], add=True)
        items = items.drop_columns([f"k{i}" for i in range(self.keys.width)])
        items = items.append_column("key", pa.array(key))
        if self.keys.size > known:
            self.series.grow(self.keys.size)
            if self.history is not None:
                self.history.grow(self.series.size)
            for query in self._queries.values():
                matrix = query.matrix
                touched = matrix.extend(ask.entries(matrix.step, self.keys, known), self.series.size)
                query.matrix = ask.placed(matrix)
                if isinstance(query, DeferredQuery):
                    query.name_groups(ask.group_items)
                    query.wake(np.isin(np.arange(matrix.size), touched))
        late = pc.less(items["cell"], before)
        self._repair(items.filter(late))
        on_time = items.filter(pc.invert(late))
        if on_time.num_rows:
            self._pending.append(on_time)

    def _repair(self, late: pa.Table) -> None:
        """Rows that came after their tick was complete: they are known from the next one on."""
        if not late.num_rows:
            return
        times, key = late["t"].to_numpy(), late["key"].to_numpy()
        values, there = self._signals(late)
        repaired, before = False, self.series.time.copy()
        self.pulse.changed(np.unique(key), self.series.size)
        for one in np.unique(key):
            chosen = np.flatnonzero(key == one)
            own = (int(one), times[chosen], values[:, chosen], there[:, chosen])
            newest = chosen[np.flatnonzero(times[chosen] == times[chosen].max())[-1]]
            if times[newest] >= self.series.time[one]:
                self.rows.take(late.slice(int(newest), 1))
            self.series.repair(*own)
            repaired |= self.history is not None and self.history.repair(*own)
        self.pulse.repaired(np.flatnonzero(self.series.time != before), self.series)
        if repaired and self.history is not None:
            for query in self.exact.values():
                query.repaired(self.history)
            keys = np.zeros(self.series.size, bool)
            keys[key] = True
            for deferred in self.deferred.values():
                deferred.repaired(keys, int(times.min()), self.history.reach)

    def _signals(self, table: pa.Table) -> tuple[np.ndarray, Bools]:
        return self._as_signals(table, self.series.signals)

    @staticmethod
    def _as_signals(table: pa.Table, signals: int) -> tuple[np.ndarray, Bools]:
        """By signal and row: the values, and which are there."""
        columns = [table[f"v{i}"] for i in range(signals)]
        values = [c.fill_null(np.nan).to_numpy() for c in columns]
        there = [c.is_valid().to_numpy() for c in columns]
        empty = (0, table.num_rows)
        return (
            np.array(values, np.float64).reshape(-1, table.num_rows) if values else np.empty(empty),
            np.array(there, bool).reshape(-1, table.num_rows) if there else np.empty(empty, bool),
        )

    def _closed(self, watermark: int) -> pa.Table | None:
        """The items of the ticks that are complete, in order of tick; the last one of each key and tick."""
        if not self._pending:
            return None
        pending = pa.concat_tables(self._pending).combine_chunks()
        done = pc.less(pending["cell"], watermark) if watermark < AFTER_ALL else pa.repeat(True, len(pending))
        left = pending.filter(pc.invert(done))
        self._pending = [left] if left.num_rows else []
        closed = pending.filter(done)
        if not closed.num_rows:
            return None
        cell, key, time = (closed[n].to_numpy() for n in ("cell", "key", "t"))
        # in the order of arrival where times are equal: the sort is stable
        order = np.lexsort((time, key, cell))
        last = np.append((np.diff(cell[order]) != 0) | (np.diff(key[order]) != 0), True)
        return closed.take(pa.array(order[last])).combine_chunks()

    def _tick(self, now: int, items: pa.Table, rules: Rules) -> None:
        self._last = now
        key: Ints = items["key"].to_numpy()
        values, there = self._signals(items)
        flipped = np.zeros(self.series.size, bool)
        flipped[key] = (self.series.there[:, key] != there).any(axis=0) | ~self.series.known[key]
        before = (self.series.time[key], self.series.value[:, key])
        self.series.take(key, items["t"].to_numpy(), values, there)
        if self.deferred:
            self.pulse.heard(self.series, key, before)
        self.rows.take(items)
        if self.history is not None:
            self.history.push(now, self.series)
        current = Values(self.series.value, self.series.there, self.series.known)
        for query in self.exact.values():
            query.tick(now, current)
        self.rows.tick(now)
        if self.deferred:
            self._defer(now, flipped, rules)

    def _defer(self, now: int, flipped: Bools, rules: Rules) -> None:
        """Evaluate what is due; ``flipped`` are keys that have come, or whose values have come or gone."""
        tick, changed = self.pulse.tick(now, self.series, self.history)
        changed |= flipped
        if changed.any():
            for query in self.deferred.values():
                query.wake(query.matrix.rows_with(changed))
        self.effort.add(*run_due(list(self.deferred.values()), tick, rules, self._clock))

    def answers(self, emitted_at: datetime, ask: Asking) -> Iterator[AnswerBatch]:
        """What has been evaluated since the last call."""
        for query in self.exact.values():
            yield from query.answers(emitted_at, ask.items)
        for deferred in self.deferred.values():
            yield from deferred.answers(emitted_at)
        yield from self.rows.answers(emitted_at, ask)

    def discard(self) -> None:
        """Let go of what has been evaluated: it was delivered before."""
        for query in self._queries.values():
            query.discard()
        self.rows.discard()

    def carried(self, plan: CurrentPlan, ask: Asking) -> CurrentValues:
        """The same keys for another set of queries: what both know goes on, what is new begins here.

        Signals that are new are read from the current rows, so that a new query is exact from its first
        tick on; extremes over time begin with it.
        """
        after = CurrentValues(plan, self._pace, self._manner, self._clock)
        after.effort = self.effort
        after.keys = self.keys
        keys, rows = self.rows.table()
        after.rows.load(keys, rows)
        old = {sql: place for place, sql in enumerate(self.plan.signals)}
        fresh = [sql for sql in plan.signals if sql not in old]
        origin = [old.get(sql, -1) for sql in plan.signals]
        after.series = self.series.resignalled(origin, after.series.kept)
        if fresh and rows is not None:
            values, there = self._as_signals(ask.signals(fresh, rows), len(fresh))
            for sql, value, is_there in zip(fresh, values, there, strict=True):
                place = plan.signals.index(sql)
                after.series.value[place, keys], after.series.there[place, keys] = value, is_there
        if after.history is not None and self.history is not None:
            after.history.carry(self.history, origin)
        for name, query in after._queries.items():
            before = self._queries.get(name)
            if before is not None and same_but_contract(before.step, query.step):
                carry(before, query, self.history)
            else:
                query.known_from = self._last
        after._last = self._last
        after.pulse.carry(self.pulse)
        after.pulse.model.carry(self.pulse.model, origin)
        for pending in self._pending:
            kept = pending.select(["cell", "t", "key", "r"])
            signals = ask.signals(plan.signals, _whole(pending["r"]))
            for name in signals.column_names:
                kept = kept.append_column(name, signals[name])
            names = ["cell", "t", *signals.column_names, "r", "key"]
            after._pending.append(kept.select(names))
        after.prepare(ask)
        if self._last > LONG_BEFORE:
            after._begin(self._last)
        return after

    def known_from(self, time: int) -> None:
        """Nothing that was said before a time is known."""
        for query in self._queries.values():
            query.known_from = max(query.known_from, time)

    def _begin(self, last: int) -> None:
        """Let extremes that are new know what stands since the last tick."""
        series = self.series
        if self.history is not None:
            self.history.begin(last, series)
        values = Values(series.value[:, :, None], series.there[:, :, None], series.known[:, None])
        for query in self.exact.values():
            if any(not moving.count for moving in query.moving):
                query.remember(query.matrix, np.array([last]), values)

    def to_parts(self) -> tuple[dict[str, np.ndarray], dict[str, pa.Table]]:
        """All of it as arrays and tables, to be kept."""
        keys, rows = self.rows.table()
        arrays = {f"series.{n}": a for n, a in self.series.to_arrays().items()} | {"row_keys": keys}
        arrays["last"] = np.array(self._last)
        tables = {"keys": self.keys.table()} | ({"rows": pa.table({"r": rows})} if rows is not None else {})
        if self.history is not None:
            arrays |= {f"history.{n}": a for n, a in self.history.to_arrays().items()}
        arrays |= {f"pulse.{n}": a for n, a in self.pulse.to_arrays().items()}
        for name, query in self._queries.items():
            arrays |= {f"query.{name}/{n}": a for n, a in query.to_arrays().items()}
            if query.matrix.grouped:
                tables[f"groups.{name}"] = query.matrix.groups.table()
        if self._pending:
            tables["pending"] = pa.concat_tables(self._pending)
        return arrays, tables

    def load(self, arrays: Mapping[str, np.ndarray], tables: Mapping[str, pa.Table]) -> None:
        """Go on from what was kept."""
        if self.keys.width:
            self.keys.load(tables["keys"])
        self.rows.load(arrays["row_keys"], _whole(tables["rows"]["r"]) if "rows" in tables else None)
        self.series.load(_below("series.", arrays))
        self._last = int(arrays["last"])
        if self.history is not None:
            self.history.load(_below("history.", arrays))
        self.pulse.load(_below("pulse.", arrays))
        for name, query in self._queries.items():
            query.load(_below(f"query.{name}/", arrays))
            if f"groups.{name}" in tables:
                query.matrix.groups.load(tables[f"groups.{name}"])
        self._pending = [tables["pending"]] if "pending" in tables else []


def _name(step: CurrentStep) -> str:
    return step.step.name.lower()


def _below(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _reach(steps: Iterable[CurrentStep]) -> tuple[int, int]:
    """How far back values are needed: microseconds, and ticks at the least."""
    moves = [move for step in steps for move in step.step.moves]
    span = max((move.size or 0 for move in moves), default=0)
    return span, LANDMARK_TICKS if any(move.since is not None for move in moves) else 0
