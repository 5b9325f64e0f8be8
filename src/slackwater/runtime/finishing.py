"""Panes to answers: the windows that close in a turn, on the driver where they are few, else by Spark."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow as pa

from slackwater.plan.model import TupleWindow
from slackwater.plan.panes import AFTER_ALL, first_start, last_closed
from slackwater.plan.tables import StepPlan
from slackwater.runtime.closing import Closing
from slackwater.runtime.delivery import answers_of, read_results, result_of
from slackwater.runtime.work import Work
from slackwater.spark.compile import PARAMETERS
from slackwater.spark.finish import finish_sql, having_sql, outputs_sql


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
                store = [self.work.log.store(t) for t in plan.tables]
                if all(s is not None for s in store):
                    by_table[plan.tables[0]].append(plan)
                else:
                    self._close_by_spark(plan, closed, watermark)
        for table_id, plans in by_table.items():
            self._close_on_driver(table_id, plans, closed, watermark)
        self.work.state.watermarks[source.lower()] = watermark
        self._forget(source, watermark)

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
        if low >= high or not store.panes:
            return
        functions = self.work.plan.catalog.functions
        reader = Closing(self.work.plan.tables[table_id], store, low, high, functions)
        wanted: dict[object, set[str]] = defaultdict(set)
        for plan in plans:
            assert plan.presence is not None
            wanted[plan.step.window] |= {
                plan.presence[1],
                *(n for c in plan.calls for n in c.columns.values()),
            }
        for family in self._families(plans):
            since = [self._since(plan) for plan in family]
            windows = reader.read(family, sorted(wanted[family[0].step.window]), since)
            if windows is not None:
                self._deliver(family, result_of(family, windows, partial(self._by_spark, family[0])))

    def _families(self, plans: list[StepPlan]) -> list[list[StepPlan]]:
        """Steps that differ in nothing but their constants, together; others each by itself."""
        families: dict[object, list[StepPlan]] = defaultdict(list)
        for plan in plans:
            step = plan.step
            alone = plan.member is None or not step.published or bool(self.work.plan.steps_on(step.name))
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
        return self.work.executor.collect(self.work.session, f"SELECT {items} FROM {view}{having_sql(plan)}")

    def _close_by_spark(self, plan: StepPlan, closed: int, watermark: int) -> None:
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
            bind = partial(bind_windows, first=first, last=last)
            if table.aggregate is not None:
                aggregate = functions.aggregate(table.aggregate)
                assert aggregate is not None
                name = self.work.executor.user_windows(
                    self.work.session, table, window, name, aggregate, bind
                )
            views[table_id] = name
        sql = finish_sql(plan, dict(self.work.plan.tables), dict(self.work.plan.columns), views, functions)
        folder = self.work.output(plan.step.name)
        self.work.executor.write(
            self.work.session, bind_windows(sql, first=first, last=last), folder, None, None
        )
        self._deliver([plan], folder)

    def _deliver(self, plans: list[StepPlan], result: pa.Table | Path) -> None:
        step = plans[0].step
        names = [plan.step.name for plan in plans] if len(plans) > 1 else []
        if step.published:
            at = self.work.now()
            self.work.answers.append(
                lambda: chain.from_iterable(
                    answers_of(step, table, at, names)
                    for table in ([result] if isinstance(result, pa.Table) else read_results(result))
                )
            )
        if self.work.plan.steps_on(step.name):
            self.work.handed[step.name.lower()] = result

    def _since(self, plan: StepPlan) -> int:
        return self.work.state.since.get(plan.step.name.lower(), -AFTER_ALL)

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
            work.log.compact(
                table_id,
                work.step,
                partial(work.executor.gather, work.session, before=horizon),
            )


def bind_windows(sql: str, first: int, last: int) -> str:
    """A statement for the windows from the first to the last."""
    return sql.replace(PARAMETERS, f"'{first},{last}'")
