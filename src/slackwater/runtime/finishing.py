"""Panes to answers: the windows that close in a turn, on the driver where they are few, else by Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.language.contracts import Subset
from slackwater.plan.model import TupleWindow
from slackwater.plan.panes import AFTER_ALL, Ints, first_start, last_closed, starts
from slackwater.plan.tables import StepPlan
from slackwater.planners.window_needs import ALL, inside
from slackwater.planners.window_schedule import Range, joined
from slackwater.runtime.closing import Closing
from slackwater.runtime.delivery import answers_of, read_results, result_of
from slackwater.runtime.estimating import Estimated, answers, estimate, suspended_answers
from slackwater.runtime.file_estimates import FileEstimates
from slackwater.runtime.sampled_windows import SampledWindows, read_sampled, sampled_starts, touched
from slackwater.runtime.samples import BATCHES, sampled_id
from slackwater.runtime.store import PaneStore
from slackwater.runtime.stretches import stretch_of
from slackwater.runtime.versions import sampled_to, whole_from
from slackwater.runtime.work import Work
from slackwater.spark.finish import bind_windows, finish_sql, having_sql, outputs_sql

CHOSEN_AT_MOST = 20_000
"""Windows that can be named one by one; of more all are computed, and those left out are not delivered."""


@dataclass(frozen=True)
class Finish:
    """The second half of a turn: closed windows are delivered, and panes that none needs forgotten."""

    work: Work

    def windows(self, source: str, watermark: int) -> None:
        """Close the windows of all steps on a source that end at or before the watermark."""
        closed = self.work.state.watermark(source)
        by_table: dict[str, list[StepPlan]] = defaultdict(list)
        for plan in self.work.plan.steps_on(source):
            if plan.step.window is not None and not plan.step.current:
                self._say_shut(plan, closed, watermark)
                store = [self.work.log.store(t) for t in plan.tables]
                if all(s is not None for s in store):
                    by_table[plan.tables[0]].append(plan)
                else:
                    self._close_from_files(plan, closed, watermark)
        for table_id, plans in by_table.items():
            self._close_on_driver(table_id, plans, closed, watermark)
        self._note_stretches(source, closed, watermark)
        self.work.closed[source.lower()] = (closed, watermark)
        self.work.state.watermarks[source.lower()] = watermark
        self._forget(source, watermark)

    def _note_stretches(self, source: str, closed: int, watermark: int) -> None:
        """Note which windows have closed, for alerts: those of a query without groups may have no answer."""
        catalog = self.work.plan.catalog
        watched = {alert.query.lower() for alert in catalog.alerts.values()}
        for plan in self.work.plan.steps_on(source) if watched else ():
            name = plan.step.name.lower()
            if name in watched and not plan.step.current and plan.step.window is not None:
                stretch = stretch_of(self.work, plan.step, self._since(plan), closed, watermark)
                if stretch is not None:
                    self.work.stretches[name] = stretch

    def _say_shut(self, plan: StepPlan, closed: int, watermark: int) -> None:
        """Tell the readers of a query which windows it has been given up for."""
        if isinstance(plan.step.window, TupleWindow):
            shut = self.work.drops.shut(plan, *self._bounds(plan.tables[0], closed, watermark))
            # of rows that nobody has looked at only their number is known
            nowhere = np.zeros(len(shut), dtype=np.int64)
            made = [
                replace(batch, window_start=None, window_end=None)
                for batch in suspended_answers(plan.step, nowhere, nowhere, self.work.now())
            ]
            if len(shut):
                self.work.answers.append(lambda: iter(made))
            return
        shut = self.work.drops.shut(plan, closed, watermark)
        shut = shut[shut >= self._since(plan)]
        if len(shut):
            self._deliver_suspended(plan, shut)

    def _bounds(self, table_id: str, closed: int, watermark: int) -> tuple[int, int]:
        """From where to where windows close: in time, or in rows numbered."""
        if self.work.plan.tables[table_id].tuples:
            counted = self.work.state.counted.get(table_id, 0)
            return self.work.state.closed_tuples.get(table_id, 0), counted
        return closed, watermark

    def _close_on_driver(self, table_id: str, plans: list[StepPlan], closed: int, watermark: int) -> None:
        store = self.work.log.store(table_id)
        assert store is not None
        low, high = self._bounds(table_id, closed, watermark)
        if low >= high:
            return
        estimates = {} if self.work.samples.empty else self._estimated(table_id, plans, store, low, high)
        if not store.panes:
            return
        functions = self.work.plan.catalog.functions
        reader = Closing(self.work.plan.tables[table_id], store, low, high, functions)
        wanted: dict[object, set[str]] = defaultdict(set)
        asked: dict[object, list[Range]] = defaultdict(list)
        for plan in plans:
            wanted[plan.step.window] |= columns_of(plan)
            asked[plan.step.window] += self.work.drops.computed(plan.step.name)
        reader.asked = {window: joined(ranges) for window, ranges in asked.items()}
        for family in self._families(plans):
            since = [self._since(plan) for plan in family]
            computed = [self.work.drops.computed(plan.step.name) for plan in family]
            windows = reader.read(family, sorted(wanted[family[0].step.window]), since, computed)
            if windows is not None and estimates:
                windows = windows.without([estimates.get(plan.step.name) for plan in family])
            if windows is not None:
                self._deliver(family, result_of(family, windows, partial(self._by_spark, family[0])))

    def _estimated(
        self, table_id: str, plans: list[StepPlan], store: PaneStore, low: int, high: int
    ) -> dict[str, Ints]:
        """Deliver the windows that sampled batches have a part in; their starts, by step."""
        work = self.work
        table = work.plan.tables[table_id]
        done: dict[str, Ints] = {}
        partials = work.samples.partials(table_id)
        held = np.unique(partials["pane"].to_numpy()) if partials is not None else np.empty(0, dtype=np.int64)
        for plan in plans:
            slot = work.slots.by_step.get(plan.step.name.lower())
            batches = work.samples.slot(slot.id) if slot is not None else None
            if slot is None or batches is None:
                continue
            window = plan.step.window
            assert window is not None
            panes = [np.array(store.panes, dtype=np.int64), held, touched(batches, table.width, low, high)]
            begun = sampled_starts(window, batches, np.unique(np.concatenate(panes)), table.width, low, high)
            begun = begun[begun >= self._since(plan)]
            begun = begun[work.drops.mask(work.drops.delivered(plan.step.name), begun)]
            if not len(begun):
                continue
            done[plan.step.name] = begun
            lost = batches.suspended(begun, begun + window.size)
            if lost.any():
                self._deliver_suspended(plan, begun[lost])
                begun = begun[~lost]
            if not len(begun):
                continue
            read = read_sampled(
                plan,
                table,
                store,
                work.samples,
                slot.id,
                begun,
                sorted(columns_of(plan)),
                work.state.extremes,
            )
            if read is not None:
                self._deliver_estimates(plan, read)
        return done

    def _deliver_suspended(self, plan: StepPlan, begun: Ints) -> None:
        """Windows that the query got no rows for, and that it therefore has no answer to."""
        window = plan.step.window
        assert window is not None
        made = list(suspended_answers(plan.step, begun, begun + window.size, self.work.now()))
        self.work.answers.append(lambda: iter(made))

    def _deliver_estimates(self, plan: StepPlan, windows: SampledWindows) -> None:
        contract = self.work.plan.catalog.contracts[plan.step.name.lower()]
        self._deliver_estimated(plan, estimate(plan, windows, contract, self.work.plan.catalog.functions))

    def _deliver_estimated(self, plan: StepPlan, estimated: Estimated) -> None:
        contract = self.work.plan.catalog.contracts[plan.step.name.lower()]
        made = list(answers(estimated, contract, self.work.now(), partial(self._by_spark, plan)))
        self.work.answers.append(lambda: iter(made))

    def _families(self, plans: list[StepPlan]) -> list[list[StepPlan]]:
        """Steps that differ in nothing but their constants, together; others each by itself."""
        families: dict[object, list[StepPlan]] = defaultdict(list)
        for plan in plans:
            step = plan.step
            contract = self.work.plan.catalog.contracts.get(step.name.lower())
            fills = isinstance(contract, Subset) and contract.fill is not None
            alone = plan.member is None or not step.published or fills
            alone = alone or bool(self.work.plan.steps_on(step.name))
            # windows that an earlier contract has left out
            drops = self.work.drops
            alone = alone or drops.delivered(step.name) != drops.computed(step.name)
            calls = tuple(tuple(call.columns.items()) for call in plan.calls)
            form = (step.window, step.keys, step.outputs, step.having, calls)
            families[step.name if alone else form].append(plan)
        return list(families.values())

    def _by_spark(self, plan: StepPlan, columns: pa.Table) -> pa.Table:
        """Items that only Spark can compute, over finished aggregates."""
        view = "finished__windows"
        self.work.executor.view_of(self.work.session, columns, view)
        carried = ["owner"] if "owner" in columns.column_names else []
        items = outputs_sql(plan, plan.step.keys, *carried)
        with self.work.measured(plan.step.name.lower()):
            sql = f"SELECT {items} FROM {view}{having_sql(plan)}"
            return self.work.executor.collect(self.work.session, sql)

    def _close_from_files(self, plan: StepPlan, closed: int, watermark: int) -> None:
        """Close the windows of a step by Spark, those that sampled batches have a part in as estimates."""
        work = self.work
        slot = work.slots.by_step.get(plan.step.name.lower()) if not work.samples.empty else None
        batches = work.samples.slot(slot.id) if slot is not None else None
        if slot is None or batches is None or isinstance(plan.step.window, TupleWindow):
            self._close_by_spark(plan, closed, watermark)
            return
        reader = FileEstimates(work, plan, slot.id, batches)
        begun = reader.closing(closed, watermark, self._since(plan))
        begun = begun[work.drops.mask(work.drops.delivered(plan.step.name), begun)]
        self._close_by_spark(plan, closed, watermark, begun)
        if not len(begun):
            return
        window = plan.step.window
        assert window is not None
        lost = batches.suspended(begun, begun + window.size)
        if lost.any():
            self._deliver_suspended(plan, begun[lost])
        estimated = reader.estimate(begun[~lost]) if not lost.all() else None
        if estimated is not None:
            self._deliver_estimated(plan, estimated)

    def _close_by_spark(
        self, plan: StepPlan, closed: int, watermark: int, sampled: Ints | None = None
    ) -> None:
        window = plan.step.window
        assert window is not None
        functions = self.work.plan.catalog.functions
        views: dict[str, str] = {}
        first, last = 0, -1
        for table_id in plan.tables:
            low, high = self._bounds(table_id, closed, watermark)
            first, last = last_closed(window, low) + 1, last_closed(window, high)
            if not isinstance(window, TupleWindow):
                since = self._since(plan)
                first = max(first, -((window.offset - since) // window.slide))
            reach = (first * window.slide + window.offset, last * window.slide + window.offset + window.size)
            paths = [f.path for f in self.work.log.files(table_id) if f.high >= reach[0] and f.low < reach[1]]
            if first > last or not paths:
                return
            table = self.work.plan.tables[table_id]
            name = f"panes_{table_id}"
            columns = (
                [c.id for c in self.work.plan.columns[table_id]]
                if table.kind in ("partials", "values")
                else []
            )
            roots = [str(self.work.journal.root / p) for p in paths]
            self.work.executor.panes(self.work.session, roots, name, columns)
            chosen = self._chosen(plan, first, last)
            bind = partial(bind_windows, first=first, last=last, chosen=chosen)
            if table.aggregate is not None:
                aggregate = functions.aggregate(table.aggregate)
                assert aggregate is not None
                name = self.work.executor.user_windows(
                    self.work.session, table, window, name, aggregate, bind
                )
            views[table_id] = name
        sql = finish_sql(plan, dict(self.work.plan.tables), dict(self.work.plan.columns), views, functions)
        folder = self.work.output(plan.step.name)
        python = any(self.work.plan.tables[t].aggregate is not None for t in plan.tables)
        with self.work.measured(plan.step.name.lower(), python=python):
            self.work.executor.write(self.work.session, bind(sql), folder, None, None)
        self._deliver([plan], folder, sampled)

    def _chosen(self, plan: StepPlan, first: int, last: int) -> Sequence[bool]:
        """Which of the windows from one to another are computed; none are named where all are."""
        ranges, window = self.work.drops.computed(plan.step.name), plan.step.window
        assert window is not None
        if ranges == ALL or last - first >= CHOSEN_AT_MOST:
            return ()
        return list(map(bool, inside(ranges, starts(window, np.arange(first, last + 1)))))

    def _deliver(self, plans: list[StepPlan], result: pa.Table | Path, without: Ints | None = None) -> None:
        """Hand a result on to readers, and to the sinks without the windows that start at given times."""
        step, drops = plans[0].step, self.work.drops
        names = [plan.step.name for plan in plans] if len(plans) > 1 else []
        # windows over rows have no time that they start at; those that are left out are not here
        delivered = ALL if isinstance(step.window, TupleWindow) or names else drops.delivered(step.name)
        schedules = [drops.of(plan.step.name) for plan in plans]
        contract = self.work.plan.catalog.contracts.get(step.name.lower())
        if isinstance(contract, Subset) and contract.fill is not None and not names:
            tables = [result] if isinstance(result, pa.Table) else read_results(result)
            made = [b for t in tables for b in answers_of(step, within(t, delivered), self.work.now())]
            self.work.to_fill.setdefault(step.name.lower(), []).extend(made)
        if step.published:
            at = self.work.now()
            self.work.answers.append(
                lambda: chain.from_iterable(
                    answers_of(step, less(within(table, delivered), without), at, names, schedules)
                    for table in ([result] if isinstance(result, pa.Table) else read_results(result))
                )
            )
        if self.work.plan.steps_on(step.name):
            self.work.handed[step.name.lower()] = self._needed(plans[0], self._whole(plans[0], result))

    def _needed(self, plan: StepPlan, result: pa.Table | Path) -> pa.Table | Path:
        """A result without the windows that nobody who reads it needs."""
        work, name = self.work, plan.step.name
        ranges = work.drops.handed(name)
        if isinstance(plan.step.window, TupleWindow) or ranges == ALL:
            return result
        if isinstance(result, pa.Table):
            return within(result, ranges)
        folder, view = work.output(f"{name} needed"), "handed__needed"
        work.executor.panes(work.session, [str(result)], view, [])
        tests = " OR ".join(f"(ws >= {low} AND ws < {high})" for low, high in ranges) or "false"
        work.executor.write(work.session, f"SELECT * FROM {view} WHERE {tests}", folder, None, None)
        return folder

    def _whole(self, plan: StepPlan, result: pa.Table | Path) -> pa.Table | Path:
        """A result without windows up to the last that a sampled batch may have a part in.

        Such a window is missing or too low, and readers that count rows go by their order: no gaps then.
        """
        work, window = self.work, plan.step.window
        if work.samples.empty or window is None or isinstance(window, TupleWindow):
            return result
        # what has lost rows because nobody needed them is not asked for by those who were there before
        since = min(whole_from(work.state.partial_since, plan), sampled_to(work.state))
        if first_start(window, work.state.watermark(plan.step.path.source)) >= since:
            return result
        if isinstance(result, pa.Table):
            return result.filter(pc.greater_equal(result["ws"], pa.scalar(since)))
        folder, view = work.output(f"{plan.step.name} whole"), "handed__whole"
        work.executor.panes(work.session, [str(result)], view, [])
        work.executor.write(work.session, f"SELECT * FROM {view} WHERE ws >= {since}", folder, None, None)
        return folder

    def _since(self, plan: StepPlan) -> int:
        since = self.work.state.since.get(plan.step.name.lower(), -AFTER_ALL)
        if isinstance(plan.step.window, TupleWindow):
            return since
        return max(since, self.work.state.filtered_to)

    def _forget(self, source: str, watermark: int) -> None:
        """Drop panes that no open window of any step needs."""
        work = self.work
        horizons: dict[str, int] = {}
        for plan in work.plan.steps_on(source):
            window = plan.step.window
            for table_id in plan.tables:
                assert window is not None
                _, reached = self._bounds(table_id, watermark, watermark)
                needed = first_start(window, reached) if abs(reached) < AFTER_ALL else reached
                horizons[table_id] = min(needed, horizons.get(table_id, needed))
        for table_id, horizon in horizons.items():
            if work.plan.tables[table_id].tuples:
                work.state.closed_tuples[table_id] = work.state.counted.get(table_id, 0)
            work.state.kept_from[table_id] = max(horizon, work.state.kept_from.get(table_id, horizon))
            work.log.prune(table_id, horizon)
            work.samples.prune(sampled_id(table_id), horizon)
            work.samples.compact(sampled_id(table_id), work.step)
            work.log.compact(
                table_id,
                work.step,
                partial(work.executor.gather, work.session, before=horizon),
            )
        if source.lower() == work.decision.stream.lower():
            # windows over rows are never sampled, and their horizons are no times
            times = [at for table_id, at in horizons.items() if not work.plan.tables[table_id].tuples]
            work.samples.prune(BATCHES, min(times, default=watermark))
            work.samples.compact(BATCHES, work.step)


def within(table: pa.Table, ranges: tuple[Range, ...]) -> pa.Table:
    """A result without the windows that start outside of ranges."""
    return table if ranges == ALL else table.filter(pa.array(inside(ranges, table["ws"].to_numpy())))


def less(table: pa.Table, starts: Ints | None) -> pa.Table:
    """A result without the windows that start at given times."""
    if starts is None or not len(starts):
        return table
    return table.filter(pa.array(~np.isin(table["ws"].to_numpy(), starts)))


def columns_of(plan: StepPlan) -> set[str]:
    """The partials that a step is read from."""
    assert plan.presence is not None
    return {plan.presence[1], *(n for call in plan.calls for n in call.columns.values())}
