"""Current values without Spark: rows in, answers out, queries given by their matrices."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.plan.catalog import Catalog
from slackwater.plan.current import CurrentStep, current_plan
from slackwater.plan.functions import Functions
from slackwater.planners.deferring import Rules
from slackwater.planners.manner import Manner
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import Answer
from slackwater.runtime.current.places import Places
from slackwater.runtime.current.values import CurrentValues, Turned

SECOND = 1_000_000


class DirectAsking:
    """Answers for Spark: keys are numbers, and each query weighs key k by a given table (group, key, weight)."""

    def __init__(self, weights: Sequence[tuple[int, int, float]] | None = None) -> None:
        self.weights = weights
        self.taken: list[AnswerBatch] = []
        self.emitted_at = datetime(2026, 1, 1, tzinfo=UTC)

    def flush(self, answers: Any) -> None:
        self.taken.extend(answers(self.emitted_at, self))

    def entries(self, step: CurrentStep, keys: Places, first: int) -> pa.Table:
        names = keys.columns[0].to_pylist()[first:] if keys.columns else []
        place = {name: first + i for i, name in enumerate(names)}
        weights = self.weights if self.weights is not None else [(0, name, 1.0) for name in names]
        rows = [(g, place[k], w) for g, k, w in weights if k in place]
        if not rows:
            return pa.table({})
        group, key, weight = (np.array(c) for c in zip(*rows, strict=True))
        columns: dict[str, Any] = {"key": key, "n": np.ones(len(rows))}
        if step.step.keys:
            columns["g0"] = group
        for index, call in enumerate(step.linear.calls):  # type: ignore[union-attr]
            columns[f"n{index}"] = np.ones(len(rows))
            for term in range(len(call.terms)):
                columns[f"w{index}_{term}"] = weight
        return pa.table(columns)

    def placed(self, matrix: Any) -> Any:
        return matrix

    def items(self, step: Any, finished: pa.Table) -> pa.Table:
        raise AssertionError("Arrow computes all items of these tests")

    def group_items(self, step: Any, groups: pa.Table, outputs: Any) -> pa.Table:
        raise AssertionError("Arrow computes all items of these tests")

    def types(self, step: CurrentStep) -> list[pa.DataType]:
        return [pa.int64() if c.function == "count" else pa.float64() for c in step.step.calls]


def values_of(sql: str, manner: Manner = Manner()) -> CurrentValues:  # noqa: B008 - it is frozen
    catalog = Catalog.from_sql(sql, Functions())
    plan = current_plan(catalog, next(iter(catalog.streams)))
    assert plan is not None
    return CurrentValues(plan, manner=manner)


def items(rows: Sequence[tuple[float, int, float | None]], tick: int = SECOND) -> pa.Table:
    """Rows (seconds, key, value) as Spark would hand them over."""
    time = np.array([round(t * SECOND) for t, _, _ in rows], np.int64)
    key = pa.array([k for _, k, _ in rows], pa.int64())
    value = pa.array([v for _, _, v in rows], pa.float64())
    row = pa.StructArray.from_arrays([pa.array(time), key, value], ["ts", "k", "x"])
    return pa.table({"k0": key, "cell": time + (-time) % tick, "t": time, "v0": value, "r": row})


def run(
    values: CurrentValues,
    ask: DirectAsking,
    table: pa.Table | None,
    before: float,
    after: float,
    rules: Rules | None = None,
) -> list[Answer]:
    """The answers of one turn, with watermarks in seconds before and after it."""
    ask.taken = []
    turned = Turned(table, round(before * SECOND), round(after * SECOND), rules or Rules())
    values.turn(turned, ask)  # type: ignore[arg-type]
    ask.flush(values.answers)
    return [answer for batch in ask.taken for answer in batch.answers()]
