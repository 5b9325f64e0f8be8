"""One turn of one stream: rows to partials, partials to panes, closed windows to answers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plan.model import TupleWindow
from slackwater.plan.panes import AFTER_ALL, first_start, last_closed
from slackwater.plan.scope import digest
from slackwater.plan.tables import Plan, StepPlan
from slackwater.planners.decision import Decision
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.closing import Closing
from slackwater.runtime.delivery import (
    answers_of,
    handed_on,
    handed_on_sql,
    read_results,
    result_of,
    row_answers,
)
from slackwater.runtime.journal import Journal
from slackwater.runtime.log import PaneLog
from slackwater.runtime.state import StreamState
from slackwater.spark.compile import BASE, PARAMETERS, Compiled, Statement, compile_source
from slackwater.spark.execute import DataFrame, Executor, SparkSession
from slackwater.spark.finish import finish_sql, having_sql, outputs_sql
from slackwater.statistics.counts import Counts


@dataclass
class Turn:
    """Executes a decision. All that it changes is in ``state`` and ``log``, for the commit to keep."""

    plan: Plan
    compiled: dict[str, Compiled]
    decision: Decision
    step: int
    state: StreamState
    log: PaneLog
    journal: Journal
    executor: Executor
    session: SparkSession
    now: Callable[[], datetime]
    lateness: int
    cheap: bool
    """Whether reading the batch again costs less than keeping it."""
    counts: Counts = field(default_factory=Counts)
    answers: list[Callable[[], Iterator[AnswerBatch]]] = field(default_factory=list)
    """Each reads its answers anew, so that every sink can, and none need be held."""
    _handed: dict[str, pa.Table | Path] = field(default_factory=dict)

    def run(self, frame: DataFrame | None) -> None:
        """Do the turn; ``delivered`` gives its answers."""
        stream = self.decision.stream
        if frame is not None:
            self._scan(stream, frame, self.decision.watermark, cheap=self.cheap)
        if self.counts.latest is not None:
            self.state.latest = max(self.counts.latest, self.state.latest or self.counts.latest)
        self._close(stream, self._watermark())
        for plan in self.plan.steps_of_stream(stream):
            name = plan.step.name
            if not plan.step.aggregates or not self.plan.steps_on(name):
                continue
            rows = self._handed.pop(name.lower(), None)
            if rows is not None:
                self._scan_handed(plan, rows)
            below = self.state.watermark(plan.step.path.source)
            self._close(name, self._handed_watermark(plan, below))

    def delivered(self) -> Iterator[AnswerBatch]:
        """The answers of the turn, from the first, each time it is called."""
        return chain.from_iterable(read() for read in self.answers)

    def _watermark(self) -> int:
        """Up to where the stream is complete after this turn; it never goes back."""
        before = self.state.watermark(self.decision.stream)
        if self.decision.kind != "batch":
            return max(before, self.decision.watermark)
        reached = before if self.state.latest is None else self.state.latest - self.lateness
        promised = self.decision.offsets.get("to")
        if promised is not None and self.state.latest is not None:
            # a trace is read in order: nothing before the end of its slice is still to come
            reached = max(reached, int(promised) - self.lateness)
        return max(before, reached)

    def _handed_watermark(self, plan: StepPlan, below: int) -> int:
        window = plan.step.window
        if below >= AFTER_ALL or isinstance(window, TupleWindow):
            return below
        assert window is not None
        return first_start(window, below) if below > -AFTER_ALL else below

    def _scan(self, source: str, frame: DataFrame, since: int, *, cheap: bool) -> None:
        """All passes over the rows of a source."""
        compiled = self.compiled[source.lower()]
        view = f"{_safe(source)}__batch"
        passes = len(compiled.statements) + len(compiled.emits)
        passes += sum("row_number()" in s.sql for s in compiled.statements)
        with self.executor.batch_view(self.session, frame, view, keep=passes > 1 and not cheap):
            for part, statement in enumerate(compiled.statements):
                self._pass(statement, part, view, since)
            for name, sql in compiled.emits.items():
                self._emit(name, Statement(name, sql).bind(view, (since, 0)))

    def _pass(self, statement: Statement, part: int, view: str, since: int) -> None:
        table_id = statement.table
        if table_id == BASE:
            self._count(self.executor.collect(self.session, statement.bind(view, (since, 0))))
            return
        table = self.plan.tables[table_id]
        sql = statement.bind(view, (since, self.state.counted.get(table_id, 0)))
        if table.kind != "partials" or table_id in self.decision.spread:
            folder = self.log.folder(table_id, self.step, part)
            aggregate = self.plan.catalog.functions.aggregate(table.aggregate) if table.aggregate else None
            merging = aggregate if table.kind == "states" else None
            self.executor.write(self.session, sql, folder, merging, table)
            before = sum(f.rows for f in self.log.files(table_id))
            self.log.added_folder(table_id, folder)
            self.state.sizes[table_id] = sum(f.rows for f in self.log.files(table_id)) - before
            if table.tuples:
                self._counted_in_files(table_id, folder)
            return
        rows = self.executor.collect(self.session, sql)
        if statement.counts:
            self._count(rows)
            rows = rows.drop_columns(["__arrived", "__readable", "__latest"])
        self.state.sizes[table_id] = rows.num_rows
        if table.tuples and rows.num_rows:
            self._counted(table_id, rows)
        self.log.add_rows(table_id, self.step, part, rows)

    def _counted(self, table_id: str, rows: pa.Table) -> None:
        """Rows numbered so far: those of this batch come on top."""
        presence = next(
            c.id for c in self.plan.columns[table_id] if c.argument is None and c.condition is None
        )
        seen = pc.sum(rows[presence]).as_py() or 0
        self.state.counted[table_id] = self.state.counted.get(table_id, 0) + seen

    def _counted_in_files(self, table_id: str, folder: Path) -> None:
        table = self.plan.tables[table_id]
        if not folder.exists():
            return
        for rows in read_results(folder):
            if table.kind == "partials" or table.kind == "values":
                self._counted(table_id, rows)
            else:
                seen = rows.num_rows if table.kind == "rows" else pc.sum(rows["n"]).as_py() or 0
                self.state.counted[table_id] = self.state.counted.get(table_id, 0) + seen

    def _count(self, rows: pa.Table) -> None:
        arrived = pc.sum(rows["__arrived"]).as_py() or 0
        readable = pc.sum(rows["__readable"]).as_py() or 0
        if "__late" in rows.column_names:
            late = pc.sum(rows["__late"]).as_py() or 0
        else:
            late = pc.sum(rows.filter(pc.is_null(rows["pane"]))["__readable"]).as_py() or 0
        self.counts.arrived += arrived
        self.counts.unreadable += arrived - readable
        self.counts.late += late
        self.counts.latest = pc.max(rows["__latest"]).as_py()

    def _emit(self, name: str, sql: str) -> None:
        """Rows of a set-valued query, in order of arrival; however many, they pass the driver in pieces."""
        plan = self.plan.steps[name.lower()]
        folder = self.journal.outputs / f"{self.step:012d}-{_safe(name)}"
        self.executor.write(self.session, f"{sql} ORDER BY s.__part, s.__seq", folder, None, None)
        at = self.now()
        self.answers.append(
            lambda: chain.from_iterable(row_answers(plan.step, rows, at) for rows in read_results(folder))
        )

    def _scan_handed(self, plan: StepPlan, rows: pa.Table | Path) -> None:
        name = plan.step.name
        view = f"{_safe(name)}__handed"
        if isinstance(rows, Path):
            frame = self.executor.frame_of_files(self.session, rows, handed_on_sql(plan.step))
        elif rows.num_rows == 0:
            return
        else:
            frame = self.executor.view_of(self.session, handed_on(plan.step, rows), view)
        # a result of ours: on the driver already, or in columns on disk
        self._scan(name, frame, -AFTER_ALL, cheap=True)

    def _close(self, source: str, watermark: int) -> None:
        """Close the windows of all steps on a source that end at or before the watermark."""
        closed = self.state.watermark(source)
        by_table: dict[str, list[StepPlan]] = defaultdict(list)
        for plan in self.plan.steps_on(source):
            if plan.step.window is not None and not plan.step.current:
                store = [self.log.store(t) for t in plan.tables]
                if all(s is not None for s in store):
                    by_table[plan.tables[0]].append(plan)
                else:
                    self._close_by_spark(plan, closed, watermark)
        for table_id, plans in by_table.items():
            self._close_on_driver(table_id, plans, closed, watermark)
        self.state.watermarks[source.lower()] = watermark
        self._forget(source, watermark)

    def _bounds(self, table_id: str, closed: int, watermark: int) -> tuple[int, int]:
        """From where to where windows close: in time, or in rows numbered."""
        if self.plan.tables[table_id].tuples:
            counted = self.state.counted.get(table_id, 0)
            return self.state.closed_tuples.get(table_id, 0), counted
        return closed, watermark

    def _close_on_driver(self, table_id: str, plans: list[StepPlan], closed: int, watermark: int) -> None:
        store = self.log.store(table_id)
        assert store is not None
        low, high = self._bounds(table_id, closed, watermark)
        if low >= high or not store.panes:
            return
        functions = self.plan.catalog.functions
        reader = Closing(self.plan.tables[table_id], store, low, high, functions)
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
            alone = plan.member is None or not step.published or bool(self.plan.steps_on(step.name))
            calls = tuple(tuple(call.columns.items()) for call in plan.calls)
            form = (step.window, step.keys, step.outputs, step.having, calls)
            families[step.name if alone else form].append(plan)
        return list(families.values())

    def _by_spark(self, plan: StepPlan, columns: pa.Table) -> pa.Table:
        """Items that only Spark can compute, over finished aggregates."""
        view = "finished__windows"
        self.executor.view_of(self.session, columns, view)
        carried = ["owner"] if "owner" in columns.column_names else []
        items = outputs_sql(plan, plan.step.keys, *carried)
        return self.executor.collect(self.session, f"SELECT {items} FROM {view}{having_sql(plan)}")

    def _close_by_spark(self, plan: StepPlan, closed: int, watermark: int) -> None:
        window = plan.step.window
        assert window is not None
        functions = self.plan.catalog.functions
        views: dict[str, str] = {}
        first, last = 0, -1
        for table_id in plan.tables:
            low, high = self._bounds(table_id, closed, watermark)
            first, last = last_closed(window, low) + 1, last_closed(window, high)
            if not isinstance(window, TupleWindow):
                since = self._since(plan)
                first = max(first, -((window.offset - since) // window.slide))
            reach = (first * window.slide + window.offset, last * window.slide + window.offset + window.size)
            paths = [f.path for f in self.log.files(table_id) if f.high >= reach[0] and f.low < reach[1]]
            if first > last or not paths:
                return
            table = self.plan.tables[table_id]
            name = f"panes_{table_id}"
            columns = (
                [c.id for c in self.plan.columns[table_id]] if table.kind in ("partials", "values") else []
            )
            roots = [str(self.journal.root / p) for p in paths]
            self.executor.panes(self.session, roots, name, columns)
            bind = partial(_bind, first=first, last=last)
            if table.aggregate is not None:
                aggregate = functions.aggregate(table.aggregate)
                assert aggregate is not None
                name = self.executor.user_windows(self.session, table, window, name, aggregate, bind)
            views[table_id] = name
        sql = finish_sql(plan, dict(self.plan.tables), dict(self.plan.columns), views, functions)
        folder = self.journal.outputs / f"{self.step:012d}-{_safe(plan.step.name)}"
        self.executor.write(self.session, _bind(sql, first=first, last=last), folder, None, None)
        self._deliver([plan], folder)

    def _deliver(self, plans: list[StepPlan], result: pa.Table | Path) -> None:
        step = plans[0].step
        names = [plan.step.name for plan in plans] if len(plans) > 1 else []
        if step.published:
            at = self.now()
            self.answers.append(
                lambda: chain.from_iterable(
                    answers_of(step, table, at, names)
                    for table in ([result] if isinstance(result, pa.Table) else read_results(result))
                )
            )
        if self.plan.steps_on(step.name):
            self._handed[step.name.lower()] = result

    def _since(self, plan: StepPlan) -> int:
        return self.state.since.get(plan.step.name.lower(), -AFTER_ALL)

    def _forget(self, source: str, watermark: int) -> None:
        """Drop panes that no open window of any step needs."""
        horizons: dict[str, int] = {}
        for plan in self.plan.steps_on(source):
            window = plan.step.window
            for table_id in plan.tables:
                assert window is not None
                _, reached = self._bounds(table_id, watermark, watermark)
                needed = first_start(window, reached) if abs(reached) < AFTER_ALL else reached
                horizons[table_id] = min(needed, horizons.get(table_id, needed))
        for table_id, horizon in horizons.items():
            if self.plan.tables[table_id].tuples:
                self.state.closed_tuples[table_id] = self.state.counted.get(table_id, 0)
            self.state.kept_from[table_id] = max(horizon, self.state.kept_from.get(table_id, horizon))
            self.log.prune(table_id, horizon)
            self.log.compact(table_id, self.step, partial(self.executor.gather, self.session, before=horizon))


def compile_stream(plan: Plan, stream: str) -> dict[str, Compiled]:
    """The statements of a stream and of every step over it that others read."""
    compiled = {stream.lower(): compile_source(plan, stream, stream=True)}
    for step in plan.steps_of_stream(stream):
        if step.step.aggregates and plan.steps_on(step.step.name):
            compiled[step.step.name.lower()] = compile_source(plan, step.step.name, stream=False)
    return compiled


def _safe(name: str) -> str:
    """A name that may stand in a path or be a view's, whatever was between its back quotes."""
    plain = re.sub(r"\W", "_", name.lower())
    return plain if plain == name.lower() else f"{plain}_{digest(name)}"


def _bind(sql: str, first: int, last: int) -> str:
    return sql.replace(PARAMETERS, f"'{first},{last}'")
