"""What queries over current values ask of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plan.catalog import Catalog
from slackwater.plan.current import CurrentPlan, CurrentStep
from slackwater.plan.model import Output, Step
from slackwater.plan.scope import safe_name
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.current.matrix import Matrix
from slackwater.runtime.current.places import Places
from slackwater.runtime.current.shards import ShardedMatrix
from slackwater.spark.execute import Executor, SparkSession
from slackwater.spark.latest import call_types, entries_sql, items_sql, ticks_sql

Answers = Callable[[datetime, "Asking"], Iterator[AnswerBatch]]


@dataclass
class Asking:
    """Spark, for one turn; ``taken`` gets the answers of ticks that are too many to be held."""

    plan: CurrentPlan
    catalog: Catalog
    executor: Executor
    session: SparkSession
    emitted_at: datetime
    folder: Path
    """Where matrices are kept that are too large for the driver."""
    entries_at_most: int = 50_000_000
    """Of a matrix on the driver."""
    taken: list[AnswerBatch] = field(default_factory=list)

    def flush(self, answers: Answers) -> None:
        """Make answers of what has been evaluated so far."""
        self.taken.extend(answers(self.emitted_at, self))

    def entries(self, step: CurrentStep, keys: Places, first: int) -> pa.Table:
        """How a query weighs the keys from a place on, by group."""
        if first >= keys.size:
            return pa.table({})
        names = self.plan.stream.key
        columns = {name: column[first:] for name, column in zip(names, keys.columns, strict=True)}
        table = pa.table({**columns, "__key": pa.array(np.arange(first, keys.size))})
        view = f"{safe_name(self.plan.stream.name)}__keys"
        self._view(table, view)
        found = self.executor.collect(self.session, entries_sql(step, view))
        # groups are placed in the order in which they come, and a restart must place them alike
        by = ["key", *(f"g{i}" for i in range(len(step.step.keys)))]
        by = [name for name in by if not pa.types.is_nested(found[name].type)]
        return found.take(pc.sort_indices(found, [(name, "ascending") for name in by]))

    def placed(self, matrix: Matrix) -> Matrix:
        """A matrix where it can be evaluated: on the driver, or in shards that Spark's tasks work on."""
        if isinstance(matrix, ShardedMatrix) or matrix.entries <= self.entries_at_most:
            return matrix
        session = self.executor.session
        folder = self.folder / safe_name(matrix.step.step.name)
        return ShardedMatrix(matrix, folder, session, 2 * session.sparkContext.defaultParallelism)

    def types(self, step: CurrentStep) -> list[pa.DataType]:
        """What Spark's types of a query's calls are in Arrow."""
        return call_types(self.session, self.plan, step.step, self.catalog)

    def signals(self, wanted: Sequence[str], rows: pa.Array) -> pa.Table:
        """Signals of rows that were kept whole, as ``v0…``."""
        columns = dict(zip([f.name for f in rows.type], rows.flatten(), strict=True))
        view = f"{safe_name(self.plan.stream.name)}__kept"
        self._view(pa.table({"__n": pa.array(np.arange(len(rows))), **columns}), view)
        items = ", ".join(f"CAST({sql} AS DOUBLE) AS v{i}" for i, sql in enumerate(wanted))
        sql = f"SELECT __n, {items or 'NULL'} FROM `{view}` s ORDER BY __n"
        found = self.executor.collect(self.session, sql)
        return found.select([f"v{i}" for i in range(len(wanted))])

    def over_rows(self, step: Step, rows: pa.Table, ticks: Sequence[int]) -> pa.Table:
        """A query over the current rows of several ticks."""
        view = f"{safe_name(self.plan.stream.name)}__current"
        self._view(rows, view)
        result = self.executor.collect(self.session, ticks_sql(step, self.catalog, view))
        if step.aggregates and not step.keys and step.having is None:
            missing = np.setdiff1d(np.array(ticks), result["__tick"].to_numpy())
            if len(missing):
                # over no row at all a count is 0, and the rest NULL
                nothing = self.executor.collect(self.session, ticks_sql(step, self.catalog, view, empty=True))
                filled = nothing.take(pa.array(np.zeros(len(missing), np.int64)))
                filled = filled.set_column(0, "__tick", pa.array(missing))
                result = pa.concat_tables([result, filled.cast(result.schema)])
        result = result.rename_columns(["at" if n == "__tick" else n for n in result.column_names])
        return result.take(pc.sort_indices(result["at"]))

    def items(self, step: Step, finished: pa.Table) -> pa.Table:
        """The items of a query that only Spark can compute, from finished calls."""
        self._view(finished, "finished__current")
        return self.executor.collect(self.session, items_sql(step, "finished__current", ["at", "rows"]))

    def group_items(self, step: Step, groups: pa.Table, outputs: Sequence[Output]) -> pa.Table:
        """Items of the groups alone that only Spark can compute, as ``o0…`` in the order of the groups."""
        view = "groups__current"
        self._view(groups.append_column("__n", pa.array(np.arange(groups.num_rows))), view)
        items = ", ".join(f"{output.sql} AS o{i}" for i, output in enumerate(outputs))
        return self.executor.collect(self.session, f"SELECT {items} FROM `{view}` ORDER BY __n")

    def _view(self, table: pa.Table, name: str) -> None:
        self.executor.view_of(self.session, table, name)
