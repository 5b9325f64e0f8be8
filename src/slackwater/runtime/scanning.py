"""Rows to partials: every pass over the rows of a source in a turn."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.language.contracts import Error
from slackwater.plan.layout import waits_for_python
from slackwater.plan.panes import AFTER_ALL
from slackwater.plan.scope import safe_name
from slackwater.plan.tables import StepPlan, Table
from slackwater.runtime.delivery import handed_on, handed_on_sql, read_results, row_answers
from slackwater.runtime.shedding import Shed, threshold
from slackwater.runtime.work import Work
from slackwater.spark.execute import DataFrame
from slackwater.spark.shed import shed_frame
from slackwater.spark.statement import BASE, WHOLE, Statement, companions, key_names


@dataclass(frozen=True)
class Scan:
    """The first half of a turn: what arrived goes to the pane log, and is counted."""

    work: Work

    def rows(self, source: str, frame: DataFrame, since: int, *, cheap: bool) -> None:
        """All passes over the rows of a source."""
        work = self.work
        compiled = work.compiled[source.lower()]
        view = f"{safe_name(source)}__batch"
        passes = len(compiled.statements) + len(compiled.emits) + (compiled.latest is not None)
        passes += sum("row_number()" in s.sql for s in compiled.statements)
        shed = work.shed if source.lower() == work.decision.stream.lower() else None
        if shed is not None and (shed.tested or shed.needed):
            frame = shed_frame(frame, work.decision.salt, threshold(shed.root), shed.needed)
        with work.executor.batch_view(work.session, frame, view, keep=passes > 1 and not cheap):
            for part, statement in enumerate(compiled.statements):
                waits = waits_for_python(work.plan, statement.table)
                with work.measured(statement.table, python=waits):
                    if self._fetched(statement):
                        self._keep(statement, part, shed, *self._fetch(statement, view, since, shed))
                    else:
                        self._write(statement, part, view, since, shed)
            if compiled.latest is not None:
                with work.measured(compiled.latest.table):
                    work.latest = work.executor.collect(work.session, compiled.latest.bind(view, ()))
            for name, sql in compiled.emits.items():
                if shed is not None and shed.suspended(work.slots.by_step[name.lower()]):
                    continue
                with work.measured(name, python=waits_for_python(work.plan, name)):
                    numbers = self._numbers(since, 0, shed, work.drops.numbers(source))
                    self._emit(name, Statement(name, sql).bind(view, numbers), shed)

    def _collect(self, sql: str, shed: Shed | None) -> tuple[pa.Table, int | None]:
        """The rows of a counting pass, and how many came from the source, where only Spark knows that."""
        work = self.work
        if shed is None or shed.size is not None or shed.root >= 1.0:
            return work.executor.collect(work.session, sql), None
        return work.executor.collect_counted(work.session, sql)

    def _numbers(
        self, since: int, first: int, shed: Shed | None, needs: tuple[int, ...] = ()
    ) -> tuple[int, ...]:
        return (*(shed.parameters(since, first) if shed is not None else (since, first, WHOLE)), *needs)

    def _fetched(self, statement: Statement) -> bool:
        """Whether the rows of a pass come to the driver; otherwise Spark writes them."""
        table = self.work.plan.tables.get(statement.table)
        return table is None or (
            table.kind == "partials" and statement.table not in self.work.decision.spread
        )

    def _bound(self, statement: Statement, view: str, since: int, shed: Shed | None) -> str:
        return statement.bind(view, self._parameters(statement, since, shed))

    def _parameters(self, statement: Statement, since: int, shed: Shed | None) -> tuple[int, ...]:
        first = self.work.state.counted.get(statement.table, 0)
        table, drops = self.work.plan.tables.get(statement.table), self.work.drops
        if table is not None and table.tuples:
            if table.source.lower() != self.work.decision.stream.lower():
                # a reader that counts rows begins where none is missing any more
                begun = [
                    self.work.state.since.get(n, since) for n in self.work.plan.readers_of(statement.table)
                ]
                since = max([since, *begun])
            return self._numbers(since, first, shed, drops.row_numbers(statement.table, first))
        source = table.source if table is not None else self.work.decision.stream
        return self._numbers(since, first, shed, drops.numbers(source))

    def _fetch(
        self, statement: Statement, view: str, since: int, shed: Shed | None
    ) -> tuple[pa.Table, int | None]:
        """The rows of a pass, and how many came from the source."""
        sql = self._bound(statement, view, since, shed)
        if statement.table == BASE or statement.counts:
            return self._collect(sql, shed)
        return self.work.executor.collect(self.work.session, sql), None

    def _write(self, statement: Statement, part: int, view: str, since: int, shed: Shed | None) -> None:
        """A pass whose rows Spark writes to files itself."""
        work, table_id = self.work, statement.table
        table = work.plan.tables[table_id]
        sql = self._bound(statement, view, since, shed)
        if shed is not None and shed.draws(table_id):
            self._write_sampled(table, table_id, part, sql, shed)
            return
        folder = work.log.folder(table_id, work.step, part)
        aggregate = work.plan.catalog.functions.aggregate(table.aggregate) if table.aggregate else None
        merging = aggregate if table.kind == "states" else None
        work.executor.write(work.session, sql, folder, merging, table)
        before = sum(f.rows for f in work.log.files(table_id))
        work.log.added_folder(table_id, folder)
        work.state.sizes[table_id] = sum(f.rows for f in work.log.files(table_id)) - before
        if statement.numbering:
            counting = statement.bind_numbering(view, self._parameters(statement, since, shed))
            seen = work.executor.collect(work.session, counting)["n"][0].as_py()
            work.state.counted[table_id] = work.state.counted.get(table_id, 0) + seen
        elif table.tuples:
            self._counted_in_files(table_id, folder)

    def _keep(
        self, statement: Statement, part: int, shed: Shed | None, rows: pa.Table, read: int | None
    ) -> None:
        """Take what a pass has brought into the log and the counts."""
        work, table_id = self.work, statement.table
        if table_id == BASE or statement.counts:
            self._count(rows, read, shed)
        if table_id == BASE:
            return
        table = work.plan.tables[table_id]
        work.state.sizes[table_id] = rows.num_rows
        if shed is not None:
            shed.note(table_id, rows, work.state.extremes)
            exact, sampled = shed.split(table_id, rows, work.step)
            if sampled is not None:
                work.samples.add_partials(table_id, work.step, part, sampled)
            rows = exact
        elif statement.counts:
            rows = rows.drop_columns(["__arrived", "__readable", "__latest"])
        if rows is None:
            return
        if table.tuples and rows.num_rows:
            self._counted(table_id, rows)
        work.log.add_rows(table_id, work.step, part, rows)

    def _write_sampled(self, table: Table, table_id: str, part: int, sql: str, shed: Shed) -> None:
        """Let Spark write the partials of a sampled batch; those of exact paths go with the exact ones."""
        work = self.work
        keys = ["pane", *(["q"] if table.signature is not None else []), *key_names(table)]
        block = "block" if work.decision.blocks else "-1L AS block"
        exact, sampled = shed.columns(table_id)
        # what rows kept by size need beside them is there only where some may be
        sampled = [n for n in sampled if f"AS {n}" in sql]
        strata = [f"stratum_{s.id}" for s in work.slots.stratified if f"AS stratum_{s.id}" in sql]
        only_sampled = only_exact = ""
        if table.signature is not None:
            exact = [c.id for c in work.plan.columns[table_id]]
            sampled = [*exact, *(n for c in work.plan.columns[table_id] for n in companions(c))]
            listed = ", ".join(map(str, shed.members(table_id)))
            only_sampled, only_exact = f" WHERE q IN ({listed})", f" WHERE q NOT IN ({listed})"
        folder = work.log.folder(f"{table_id}_sampled", work.step, part)
        items = ", ".join([*keys, *strata, *sampled, block, f"{work.step}L AS batch"])
        work.executor.write(work.session, f"SELECT {items} FROM ({sql}){only_sampled}", folder, None, table)
        work.state.sizes[table_id] = work.samples.add_folder(table_id, folder)
        if exact:
            folder = work.log.folder(table_id, work.step, part)
            items = ", ".join([*keys, *exact])
            work.executor.write(work.session, f"SELECT {items} FROM ({sql}){only_exact}", folder, None, table)
            work.log.added_folder(table_id, folder)

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

    def _count(self, rows: pa.Table, read: int | None, shed: Shed | None) -> None:
        passed = pc.sum(rows["__arrived"]).as_py() or 0
        readable = pc.sum(rows["__readable"]).as_py() or 0
        if "__late" in rows.column_names:
            late = pc.sum(rows["__late"]).as_py() or 0
        else:
            late = pc.sum(rows.filter(pc.is_null(rows["pane"]))["__readable"]).as_py() or 0
        counts = self.work.counts
        counts.kept = counts.arrived = passed
        scale = 1.0
        if shed is not None:
            shed.count(rows, read)
            counts.arrived = shed.arrived
            # rows that were dropped unread are late as often as those that were read; late ones, and those
            # without a time, lie in no window that is left out
            scale = shed.arrived / passed if passed and not shed.needed else 1.0
        counts.unreadable += round((passed - readable) * scale)
        counts.late += round(late * scale)
        counts.latest = pc.max(rows["__latest"]).as_py()

    def _emit(self, name: str, sql: str, shed: Shed | None) -> None:
        """Rows of a set-valued query, in order of arrival; however many, they pass the driver in pieces."""
        plan = self.work.plan.steps[name.lower()]
        folder = self.work.output(name)
        self.work.executor.write(self.work.session, f"{sql} ORDER BY s.__part, s.__seq", folder, None, None)
        at = self.work.now()
        rate = 1.0 if shed is None else shed.rate(self.work.slots.by_step[name.lower()]) * shed.share
        contract = self.work.plan.catalog.contracts.get(name.lower())
        # what is missing of a set is its error
        met = rate >= 1.0 or (isinstance(contract, Error) and 1.0 - rate <= contract.bound)
        self.work.answers.append(
            lambda: chain.from_iterable(
                row_answers(plan.step, rows, at, rate, met=met) for rows in read_results(folder)
            )
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
