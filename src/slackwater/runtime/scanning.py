"""Rows to partials: every pass over the rows of a source in a turn."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plan.panes import AFTER_ALL
from slackwater.plan.scope import safe_name
from slackwater.plan.tables import StepPlan
from slackwater.runtime.delivery import handed_on, handed_on_sql, read_results, row_answers
from slackwater.runtime.work import Work
from slackwater.spark.compile import BASE, Statement
from slackwater.spark.execute import DataFrame


@dataclass(frozen=True)
class Scan:
    """The first half of a turn: what arrived goes to the pane log, and is counted."""

    work: Work

    def rows(self, source: str, frame: DataFrame, since: int, *, cheap: bool) -> None:
        """All passes over the rows of a source."""
        compiled = self.work.compiled[source.lower()]
        view = f"{safe_name(source)}__batch"
        passes = len(compiled.statements) + len(compiled.emits)
        passes += sum("row_number()" in s.sql for s in compiled.statements)
        with self.work.executor.batch_view(self.work.session, frame, view, keep=passes > 1 and not cheap):
            for part, statement in enumerate(compiled.statements):
                self._pass(statement, part, view, since)
            for name, sql in compiled.emits.items():
                self._emit(name, Statement(name, sql).bind(view, (since, 0)))

    def _pass(self, statement: Statement, part: int, view: str, since: int) -> None:
        table_id = statement.table
        if table_id == BASE:
            self._count(self.work.executor.collect(self.work.session, statement.bind(view, (since, 0))))
            return
        table = self.work.plan.tables[table_id]
        sql = statement.bind(view, (since, self.work.state.counted.get(table_id, 0)))
        if table.kind != "partials" or table_id in self.work.decision.spread:
            folder = self.work.log.folder(table_id, self.work.step, part)
            aggregate = (
                self.work.plan.catalog.functions.aggregate(table.aggregate) if table.aggregate else None
            )
            merging = aggregate if table.kind == "states" else None
            self.work.executor.write(self.work.session, sql, folder, merging, table)
            before = sum(f.rows for f in self.work.log.files(table_id))
            self.work.log.added_folder(table_id, folder)
            self.work.state.sizes[table_id] = sum(f.rows for f in self.work.log.files(table_id)) - before
            if table.tuples:
                self._counted_in_files(table_id, folder)
            return
        rows = self.work.executor.collect(self.work.session, sql)
        if statement.counts:
            self._count(rows)
            rows = rows.drop_columns(["__arrived", "__readable", "__latest"])
        self.work.state.sizes[table_id] = rows.num_rows
        if table.tuples and rows.num_rows:
            self._counted(table_id, rows)
        self.work.log.add_rows(table_id, self.work.step, part, rows)

    def _counted(self, table_id: str, rows: pa.Table) -> None:
        """Rows numbered so far: those of this batch come on top."""
        presence = next(
            c.id for c in self.work.plan.columns[table_id] if c.argument is None and c.condition is None
        )
        seen = pc.sum(rows[presence]).as_py() or 0
        self.work.state.counted[table_id] = self.work.state.counted.get(table_id, 0) + seen

    def _counted_in_files(self, table_id: str, folder: Path) -> None:
        table = self.work.plan.tables[table_id]
        if not folder.exists():
            return
        for rows in read_results(folder):
            if table.kind == "partials" or table.kind == "values":
                self._counted(table_id, rows)
            else:
                seen = rows.num_rows if table.kind == "rows" else pc.sum(rows["n"]).as_py() or 0
                self.work.state.counted[table_id] = self.work.state.counted.get(table_id, 0) + seen

    def _count(self, rows: pa.Table) -> None:
        arrived = pc.sum(rows["__arrived"]).as_py() or 0
        readable = pc.sum(rows["__readable"]).as_py() or 0
        if "__late" in rows.column_names:
            late = pc.sum(rows["__late"]).as_py() or 0
        else:
            late = pc.sum(rows.filter(pc.is_null(rows["pane"]))["__readable"]).as_py() or 0
        self.work.counts.arrived += arrived
        self.work.counts.unreadable += arrived - readable
        self.work.counts.late += late
        self.work.counts.latest = pc.max(rows["__latest"]).as_py()

    def _emit(self, name: str, sql: str) -> None:
        """Rows of a set-valued query, in order of arrival; however many, they pass the driver in pieces."""
        plan = self.work.plan.steps[name.lower()]
        folder = self.work.output(name)
        self.work.executor.write(self.work.session, f"{sql} ORDER BY s.__part, s.__seq", folder, None, None)
        at = self.work.now()
        self.work.answers.append(
            lambda: chain.from_iterable(row_answers(plan.step, rows, at) for rows in read_results(folder))
        )

    def handed(self, plan: StepPlan, rows: pa.Table | Path) -> None:
        name = plan.step.name
        view = f"{safe_name(name)}__handed"
        if isinstance(rows, Path):
            frame = self.work.executor.frame_of_files(self.work.session, rows, handed_on_sql(plan.step))
        elif rows.num_rows == 0:
            return
        else:
            frame = self.work.executor.view_of(self.work.session, handed_on(plan.step, rows), view)
        # a result of ours: on the driver already, or in columns on disk
        self.rows(name, frame, -AFTER_ALL, cheap=True)
