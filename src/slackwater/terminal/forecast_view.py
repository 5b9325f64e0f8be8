"""What `explain --load` says: the error of every query at a multiple of the load, and what would help."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slackwater.language.contracts import Subset
from slackwater.planners.forecast import Forecast, Machine, QueryForecast, forecast
from slackwater.planners.relief import CORES_AT_MOST, Relief, best_relief, least_cores
from slackwater.planners.terms import StreamLoad
from slackwater.runtime.show import compact, printable
from slackwater.terminal.insight_view import plain_table, seconds_text, share_text


def forecast_view(
    loads: Sequence[StreamLoad], machine: Machine, multiple: float, cores: int | None
) -> RenderableType:
    """The forecast, and what would bring the errors down where contracts are not met."""
    found = forecast(loads, machine, multiple, cores)
    parts: list[RenderableType] = [
        _streams(loads, multiple),
        _load(found),
        Text(""),
        _queries(found),
        Text(""),
    ]
    parts.append(_verdict(found))
    needed = least_cores(loads, machine, multiple)
    if needed is None:
        parts.append(Text(f"not even {CORES_AT_MOST:,} cores would do"))
    else:
        parts.append(Text(f"cores at which all contracts are met: {needed:,}"))
    if found.unmet:
        parts.append(_relief(best_relief(loads, machine, multiple, cores), found))
    return Group(*parts)


def _streams(loads: Sequence[StreamLoad], multiple: float) -> Text:
    """What was measured, and what is asked about."""
    each = [
        f"{printable(load.statistics.stream)} {compact(load.size)} → {compact(load.size * multiple)} rows"
        for load in loads
    ]
    return Text(f"{multiple:g} times the load, by batch: " + ", ".join(each), "bold")


def _load(found: Forecast) -> Text:
    times = f"{found.load / found.capacity:.2g} times" if found.capacity else "far beyond"
    cores = "1 core" if found.cores == 1 else f"{found.cores} cores"
    return Text(
        f"load {seconds_text(found.load)} of executor time, {times} the capacity of "
        f"{seconds_text(found.capacity)} on {cores}"
    )


def _queries(found: Forecast) -> Table:
    table = plain_table("query", "contract", "rate", "expected error", "allowed", "")
    table.columns[1].justify = "left"
    for query in found.queries:
        table.add_row(
            printable(query.query),
            Text(printable(str(query.contract)), "dim"),
            Text("suspended", "red") if query.suspended else share_text(query.rate),
            _error(query),
            share_text(query.allowed) if query.allowed else "none",
            Text("✓", "green") if query.met else Text("✗", "red"),
        )
    return table


def _error(query: QueryForecast) -> str:
    if query.suspended:
        return "no answers"
    if query.delivers_rows or isinstance(query.contract, Subset):
        return f"{share_text(query.error)} missing" if query.error else "none missing"
    return f"± {share_text(query.error)}" if query.error else "exact"


def _verdict(found: Forecast) -> Text:
    unmet = len(found.unmet)
    if not unmet:
        return Text("all contracts would be met", "green")
    return Text(f"{unmet} of {len(found.queries)} contracts would not be met", "red")


def _relief(relief: Relief | None, present: Forecast) -> Text:
    if relief is None:
        return Text("no single contract, relaxed, would help")
    after = relief.forecast
    left = len(after.unmet)
    gain = f"{left} instead of {len(present.unmet)} contracts would not be met"
    if left == len(present.unmet) and math.isfinite(after.worst):
        gain = f"the worst error would be {after.worst:.2g} times what is allowed, not {present.worst:.2g}"
    return Text(
        f"the one change that would help most: {printable(relief.query)} WITH {relief.after} "
        f"in place of {relief.before}; {gain}"
    )
