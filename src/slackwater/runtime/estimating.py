"""Windows that rest on a sample made answers: an estimate and an interval for every aggregate and item."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from slackwater.language.contracts import Contract, Error
from slackwater.plan.algebra import algebra
from slackwater.plan.functions import Functions
from slackwater.plan.model import Output, Step
from slackwater.plan.panes import Ints
from slackwater.plan.tables import StepPlan
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.expressions import evaluate
from slackwater.runtime.sampled_windows import SampledWindows
from slackwater.statistics.estimates import average, count, total, total_by_size
from slackwater.statistics.limits import Estimate
from slackwater.statistics.samples import Floats, entries_of
from slackwater.statistics.spreads import Moments, spread

CONFIDENCE = 0.95
"""Of an interval that no contract asks a confidence for: a query that was altered to be exact."""
CORNERS = 4
"""Aggregates of one item whose limits are tried in all combinations: two to the power of them."""
Items = Callable[[pa.Table], pa.Table]
"""Computes items that only Spark can, over finished aggregates, row by row."""

_CALL = re.compile(r"\ba(\d+)\b")


@dataclass(frozen=True)
class Estimated:
    """The cells of a step with an estimate for every call, at each confidence that is asked for."""

    step: Step
    start: Ints
    size: int
    keys: tuple[pa.Array, ...]
    calls: Mapping[float, tuple[Estimate, ...]]
    confidence: float
    rows: Floats
    rate: Floats


def confidences(step: Step, contract: Contract) -> tuple[float, set[float]]:
    """The confidence that is asked for, and all at which limits are needed.

    An item over several aggregates takes limits for each that hold together with the asked confidence
    (Bonferroni's inequality), so that its own interval is on the safe side.
    """
    confidence = contract.confidence if isinstance(contract, Error) else CONFIDENCE
    return confidence, {confidence} | {_apart(confidence, o) for o in step.outputs if o.call is None}


def estimate(plan: StepPlan, windows: SampledWindows, contract: Contract, functions: Functions) -> Estimated:
    """Estimates for all cells of a step whose aggregates are made of partials."""
    confidence, asked = confidences(plan.step, contract)
    calls = {
        c: tuple(estimate_call(plan, i, windows, c, functions) for i in range(len(plan.calls))) for c in asked
    }
    rows, rate = presence(plan, windows, confidence)
    return Estimated(plan.step, windows.start, windows.size, windows.keys, calls, confidence, rows, rate)


def presence(plan: StepPlan, windows: SampledWindows, confidence: float) -> tuple[Floats, Floats]:
    """By cell: the rows that an estimate rests on, and what share of all they are."""
    assert plan.presence is not None
    column = plan.presence[1]
    found = count(windows.samples, windows.column(column), windows.merged(column), confidence)
    rate = np.divide(found.rows, found.value, out=np.ones(len(found.rows)), where=found.value > 0)
    return found.rows, np.minimum(rate, 1.0)


def _apart(confidence: float, output: Output) -> float:
    used = len(set(_CALL.findall(output.sql)))
    return 1 - (1 - confidence) / max(1, used)


def estimate_call(
    plan: StepPlan, index: int, windows: SampledWindows, confidence: float, functions: Functions
) -> Estimate:
    """One aggregate of a step, by cell."""
    where = plan.calls[index].columns
    final = algebra(plan.step.calls[index], functions).final
    column, merged, samples = windows.column, windows.merged, windows.samples
    if final == "n":
        return count(samples, column(where["n"]), merged(where["n"]), confidence)
    if final in ("total", "average"):
        name = where["total"]
        n, least, most = column(f"{name}_n"), column(f"{name}_l"), column(f"{name}_h")
        sums, squares = column(name), column(f"{name}_q")
        if final == "total" and (windows.by_size.largest_tau > 0).any():
            return _partly_by_size(windows, name, confidence)
        if final == "total":
            # how many values the exact part has is known only where a count stands beside it
            seen = np.zeros(samples.cells)
            return total(
                samples, n, sums, squares, least, most, merged(name), seen, confidence, windows.known(name)
            )
        exact_n = merged(where["n"])
        return average(
            samples, n, sums, squares, least, most, exact_n, merged(name), confidence, windows.known(name)
        )
    n, mean, m2 = column(where["n"]), column(where["mean"]), column(where["m2"])
    skewness, kurtosis = column(f"{where['m2']}_3"), column(f"{where['m2']}_4")
    some = np.maximum(n, 1)
    kept = Moments(n, mean, m2, skewness * m2**1.5 / np.sqrt(some), (kurtosis + 3) * m2**2 / some)
    nothing = np.zeros(samples.cells)
    exact = Moments(merged(where["n"]), merged(where["mean"]), merged(where["m2"]), nothing, nothing)
    kind: Any = final
    ends = (column(f"{where['m2']}_l"), column(f"{where['m2']}_h"))
    return spread(kind, samples, kept, exact, confidence, ends, windows.known(where["m2"]))


def _partly_by_size(windows: SampledWindows, name: str, confidence: float) -> Estimate:
    """A sum of which some batches kept rows in proportion to their size, and others whatever it was.

    Batches of which nothing was kept in a cell leave it a limit all the same, for what they may have had.
    """
    column, samples, known = windows.column, windows.samples, windows.known(name)
    sized = windows.tau > 0
    n, least, most = column(f"{name}_n"), column(f"{name}_l"), column(f"{name}_h")
    nothing = np.zeros(samples.cells)
    by_size = total_by_size(
        entries_of(samples, sized),
        n[sized],
        column(f"{name}_z")[sized],
        column(f"{name}_y")[sized],
        windows.tau[sized],
        least[sized],
        most[sized],
        windows.by_size.largest_tau,
        nothing,
        nothing,
        confidence,
        known,
    )
    rest = ~sized
    others = total(
        replace(entries_of(samples, rest), unseen=windows.by_size.unseen),
        n[rest],
        column(name)[rest],
        column(f"{name}_q")[rest],
        least[rest],
        most[rest],
        windows.merged(name),
        nothing,
        confidence,
        known,
    )
    # the two parts are of different batches, so their deviations are independent
    value = by_size.value + others.value
    below = np.hypot(by_size.value - by_size.low, others.value - others.low)
    above = np.hypot(by_size.high - by_size.value, others.high - others.value)
    return Estimate(value, value - below, value + above, by_size.rows + others.rows)


def answers(
    estimated: Estimated, contract: Contract, emitted_at: datetime, by_spark: Items
) -> Iterator[AnswerBatch]:
    """Answers with their intervals: one for each window, group and aggregated item."""
    step, start = estimated.step, estimated.start
    end, size = start + estimated.size, len(start)
    fixed = _fixed(estimated)
    keys = {key.name: estimated.keys[i] for i, key in enumerate(step.keys)}
    for index, output in enumerate(step.outputs):
        if not output.aggregated:
            keys[output.name] = _item(estimated, index, [_columns(estimated, fixed, {})], by_spark)[0]
    for index, output in enumerate(step.outputs):
        if not output.aggregated:
            continue
        value, low, high = _interval(estimated, index, fixed, by_spark)
        yield AnswerBatch(
            query=step.name,
            column=output.name,
            window_start=start,
            window_end=end,
            keys=keys,
            value=_array(value),
            low=_array(low),
            high=_array(high),
            confidence=estimated.confidence,
            how="sampled",
            rate=estimated.rate,
            rows=estimated.rows.astype(np.int64),
            met=_met(contract, value, low, high),
            emitted_at=emitted_at,
        )
    if not any(o.aggregated for o in step.outputs):
        yield AnswerBatch(
            query=step.name,
            column="*",
            window_start=start,
            window_end=end,
            keys=keys,
            value=pa.nulls(size),
            confidence=estimated.confidence,
            how="sampled",
            rate=estimated.rate,
            rows=estimated.rows.astype(np.int64),
            met=False,
            emitted_at=emitted_at,
        )


def suspended_answers(step: Step, start: Ints, end: Ints, emitted_at: datetime) -> Iterator[AnswerBatch]:
    """Answers that say that there is none: for want of capacity the query was not run."""
    size = len(start)
    for name in [o.name for o in step.outputs if o.aggregated] or ["*"]:
        yield AnswerBatch(
            query=step.name,
            column=name,
            window_start=start,
            window_end=end,
            keys={key.name: pa.nulls(size) for key in step.keys},
            value=pa.nulls(size),
            confidence=0.0,
            how="suspended",
            rate=0.0,
            rows=np.zeros(size, dtype=np.int64),
            met=False,
            emitted_at=emitted_at,
        )


def _met(contract: Contract, value: Floats, low: Floats, high: Floats) -> np.ndarray:
    """Whether the whole interval lies within the error that the contract allows."""
    if not isinstance(contract, Error):
        return np.zeros(len(value), dtype=bool)
    allowed = contract.bound * np.abs(value)
    with np.errstate(invalid="ignore"):
        return (value - low <= allowed) & (high - value <= allowed)


def _array(values: Floats) -> pa.Array:
    """Numbers, null where there is none to give."""
    return pa.array(values, mask=~np.isfinite(values))


def _fixed(estimated: Estimated) -> dict[str, pa.Array]:
    """The columns of an item that are no aggregates."""
    stamp = pa.timestamp("us", tz="UTC")
    return {
        **{f"k{i}": key for i, key in enumerate(estimated.keys)},
        "window_start": pa.array(estimated.start).cast(stamp),
        "window_end": pa.array(estimated.start + estimated.size).cast(stamp),
    }


def _columns(
    estimated: Estimated, fixed: Mapping[str, pa.Array], changed: Mapping[int, Floats]
) -> dict[str, pa.Array]:
    calls = estimated.calls[estimated.confidence]
    values = {f"a{i}": _array(changed.get(i, call.value)) for i, call in enumerate(calls)}
    return {**fixed, **values}


def _interval(
    estimated: Estimated, index: int, fixed: Mapping[str, pa.Array], by_spark: Items
) -> tuple[Floats, Floats, Floats]:
    """An item's value and limits.

    Guarantee: for up to ``CORNERS`` aggregates, the least and the largest value at any combination of their
    limits, and with all at their estimates; so an item that only rises or only falls in each aggregate while
    the others stay, as sums, products and quotients of one sign do, lies within if they do. An item that
    is not monotone between the corners (``abs``, products of differences, a quotient whose divisor may be
    zero) is not covered: it may lie beyond them in between. Of more aggregates each is moved to its limits
    alone and the moves are added up, which holds for sums only; products and quotients may lie beyond.
    """
    output = estimated.step.outputs[index]
    if output.call is not None:
        call = estimated.calls[estimated.confidence][output.call]
        return call.value, call.low, call.high
    used = sorted({int(n) for n in _CALL.findall(output.sql)})
    calls = estimated.calls[_apart(estimated.confidence, output)]
    limits = {number: (calls[number].low, calls[number].high) for number in used}
    if len(used) <= CORNERS:
        moves = [dict(zip(used, corner, strict=True)) for corner in product(*limits.values())]
    else:
        moves = [{number: limit} for number in used for limit in limits[number]]
    moved = [_columns(estimated, fixed, changed) for changed in ({}, *moves)]
    values = [_numbers(v) for v in _item(estimated, index, moved, by_spark)]
    value, low, high = values[0], values[0].copy(), values[0].copy()
    if len(used) <= CORNERS:
        # without a value at some corner there is no limit
        return value, np.min(values, axis=0), np.max(values, axis=0)
    for place in range(1, len(values), 2):
        pair = np.array(values[place : place + 2])
        low -= np.maximum(0.0, value - pair.min(axis=0))
        high += np.maximum(0.0, pair.max(axis=0) - value)
    return value, low, high


def _numbers(values: pa.Array) -> Floats:
    """NaN for what is no number: such steps are not sampled, but a log may hold batches that were."""
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return np.full(len(values), np.nan)
    numbers = values.cast(pa.float64(), safe=False).fill_null(np.nan)
    return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)


def _item(
    estimated: Estimated, index: int, variants: Sequence[Mapping[str, pa.Array]], by_spark: Items
) -> list[pa.Array]:
    """An item of the SELECT over each of some sets of columns."""
    sql = estimated.step.outputs[index].sql
    found = [evaluate(sql, v) for v in variants]
    if all(f is not None for f in found):
        return [f for f in found if f is not None]
    size = len(estimated.start)
    bounds = {"ws": pa.array(estimated.start), "we": pa.array(estimated.start + estimated.size)}
    tables = [
        pa.table(
            {
                **bounds,
                "rows": pa.array(estimated.rows.astype(np.int64)),
                "owner": pa.array(np.arange(size, dtype=np.int64) + place * size),
                **variant,
            }
        )
        for place, variant in enumerate(variants)
    ]
    done = by_spark(pa.concat_tables(tables)).sort_by("owner")
    column = done[f"o{index}"].combine_chunks()
    return [column.slice(place * size, size) for place in range(len(variants))]
