"""Exact answers of a query that is a sparse matrix, at every tick."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.plan.linear import computed
from slackwater.plan.model import Step
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.current.history import History
from slackwater.runtime.current.matrix import Called, Matrix, Values
from slackwater.runtime.current.moving import Moving, begins
from slackwater.runtime.expressions import evaluate
from slackwater.statistics.diffusion import Floats
from slackwater.statistics.series import LONG_BEFORE, Ints

AT_A_TIME = 500_000
"""Rows of finished groups that are held before they become answers."""

BySpark = Callable[[Step, pa.Table], pa.Table]
"""Makes the items of a step from finished calls, where only Spark can."""


class ExactQuery:
    """One standing query for each group, evaluated at every tick."""

    def __init__(self, matrix: Matrix) -> None:
        self.matrix = matrix
        self.step = matrix.step.step
        self.types: list[pa.DataType] = []
        """Of its calls, as Spark has them."""
        self.moving = [Moving(move) for move in self.step.moves]
        self.known_from = int(LONG_BEFORE)
        """The last tick before it was there: of extremes that reach further back not all is known."""
        self._held: list[pa.Table] = []

    def tick(self, now: int, values: Values) -> None:
        """Evaluate all groups at a tick."""
        matrix = self.matrix
        calls, present, counts = matrix.all_calls(values)
        rows = np.flatnonzero(present)
        columns = self.columns(calls, rows)
        moved = {}
        for index, moving in enumerate(self.moving):
            said = np.full(matrix.size, np.nan)
            said[rows] = _said(moving, calls)[rows]
            extremes = moving.push(now, said)[rows]
            moved[f"m{index}"] = pa.array(extremes, mask=np.isnan(extremes))
        if not len(rows):
            return
        counted = pa.array(counts[rows])
        at = pa.array(np.full(len(rows), now))
        self._held.append(pa.table({"at": at, "rows": counted, **columns, **moved}))

    def columns(self, calls: list[Called], rows: Ints) -> dict[str, pa.Array]:
        """Finished calls and group keys of some rows as Arrow, in Spark's types."""
        found = {f"k{i}": c.take(pa.array(rows)) for i, c in enumerate(self.matrix.groups.columns)}
        for index, (called, type_) in enumerate(zip(calls, self.types, strict=True)):
            found[f"a{index}"] = typed(called.value[rows], called.there[rows], type_)
        return found

    def remember(self, matrix: Matrix, times: Ints, values: Values) -> None:
        """Take the past of its extremes from what the keys said at ticks, by a matrix of its groups."""
        calls, present, _ = matrix.all_calls(values)
        for moving in self.moving:
            said = np.where(present, _said(moving, calls), np.nan)
            for place, now in enumerate(times.tolist()):
                moving.push(now, said[:, place])

    def repaired(self, history: History) -> None:
        """Evaluate the ticks that are kept anew, since rows that came late have changed them."""
        for moving in self.moving:
            if not moving.count:
                continue
            times, values = history.window(int(moving.time[0]), int(moving.time[moving.count - 1]))
            calls, present, _ = self.matrix.all_calls(values)
            said = np.where(present, _said(moving, calls), np.nan)
            moving.renew(times, said.T)

    def answers(self, emitted_at: datetime, by_spark: BySpark) -> Iterator[AnswerBatch]:
        """What has been evaluated since the last call, as answers."""
        held, self._held = self._held, []
        if held:
            finished = pa.concat_tables(held).combine_chunks()
            made = items(self.step, finished, by_spark)
            yield from answers_of(self.step, made, emitted_at, self.known_from)

    def discard(self) -> None:
        self._held = []

    @property
    def held(self) -> int:
        return sum(table.num_rows for table in self._held)

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        kept = {f"{i}.{n}": a for i, m in enumerate(self.moving) for n, a in m.to_arrays().items()}
        return kept | {"known_from": np.array(self.known_from)}

    def load(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
        self.known_from = int(arrays.get("known_from", LONG_BEFORE))
        for index, moving in enumerate(self.moving):
            prefix = f"{index}."
            own = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
            if own:
                moving.load(own)


def _said(moving: Moving, calls: list[Called]) -> Floats:
    """What an extreme is taken of, for all groups; NaN where a call has no value."""
    return computed(
        moving.move.sql, {f"a{i}": np.where(c.there, c.value, np.nan) for i, c in enumerate(calls)}
    )


def typed(value: Floats, there: npt.NDArray[np.bool_], type_: pa.DataType) -> pa.Array:
    """Numbers in the type that Spark would give them; NULL where there is none."""
    made = pa.array(value, mask=~there)
    if pa.types.is_integer(type_):
        return pa.array(np.where(there, np.rint(value), 0).astype(np.int64), mask=~there).cast(type_)
    return made if pa.types.is_decimal(type_) else made.cast(type_)


def items(step: Step, finished: pa.Table, by_spark: BySpark) -> pa.Table:
    """The items of a query from finished calls, keys and extremes; what Arrow cannot compute, Spark does."""
    columns = {name: finished[name].combine_chunks() for name in finished.column_names}
    found = {name: columns[name] for name in ("at", "rows", *(f"k{i}" for i in range(len(step.keys))))}
    for index, output in enumerate(step.outputs):
        values = evaluate(output.sql, columns)
        if values is None:
            return by_spark(step, finished)
        found[f"o{index}"] = values
    if step.having is None:
        return pa.table(found)
    passes = evaluate(step.having, columns)
    if passes is None:
        return by_spark(step, finished)
    return pa.table(found).filter(pc.fill_null(passes, False))


def answers_of(
    step: Step, result: pa.Table, emitted_at: datetime, known_from: int = int(LONG_BEFORE)
) -> Iterator[AnswerBatch]:
    """Exact answers: one for each tick, group and aggregated item, or one for each row of a set.

    What rests on an extreme over time that began before ``known_from`` says that it is not all of it.
    """
    if not result.num_rows:
        return
    at = result["at"].to_numpy()
    keys = key_columns(step, result)
    counted = result["rows"].to_numpy().astype(np.int64) if "rows" in result.column_names else None
    aggregated = [(f"o{i}", o.name) for i, o in enumerate(step.outputs) if o.aggregated]
    for column, name in aggregated or [("", "*")]:
        yield AnswerBatch(
            query=step.name,
            column=name,
            at=at,
            keys=keys,
            value=_whole(result[column]) if column else pa.nulls(result.num_rows),
            confidence=1.0,
            how="exact",
            met=_whole_time(step, column, at, known_from),
            rows=counted if counted is not None else np.ones(result.num_rows, np.int64),
            emitted_at=emitted_at,
        )


def _whole_time(step: Step, column: str, at: Ints, known_from: int) -> npt.NDArray[np.bool_]:
    """Where all of the time is known that the extremes of an item, and of HAVING, are taken of."""
    texts = [step.outputs[int(column[1:])].sql if column else "", step.having or ""]
    named = {int(n) for text in texts for n in re.findall(r"\bm(\d+)\b", text)}
    whole = np.ones(len(at), bool)
    for index in named:
        if index < len(step.moves):
            whole &= begins(step.moves[index], at) >= known_from
    return whole


def key_columns(step: Step, result: pa.Table) -> dict[str, pa.Array]:
    """Group keys and the items made of them, by name."""
    named = {key.name: _whole(result[f"k{i}"]) for i, key in enumerate(step.keys)}
    for index, output in enumerate(step.outputs):
        if not output.aggregated:
            named[output.name] = _whole(result[f"o{index}"])
    return named


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
