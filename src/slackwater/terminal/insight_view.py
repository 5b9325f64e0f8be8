"""What `explain --live` shows: for each stream its operators as a tree, its queries, its load."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from slackwater.language.durations import format_duration
from slackwater.plan.model import plain
from slackwater.runtime.insight import DropInsight, Insight, OperatorInsight, QueryInsight, StreamInsight
from slackwater.runtime.show import compact, printable, show_number
from slackwater.runtime.status import QueryStatus

NOTHING = "nothing has been measured yet"
_ALIKE = {"lookup": "lookups"}
"""What operators that share a cost are called, where they are no filters."""


def insight_view(insight: Insight, current: Sequence[QueryStatus] = ()) -> RenderableType:
    """Everything that is known, as trees and tables; ``current`` are the queries over current values."""
    measured = [stream for stream in insight.streams if stream.measured]
    if not measured:
        return Text(NOTHING, "dim")
    answered = {query.name: query for query in current}
    return Group(*(part for stream in measured for part in _stream(stream, answered)), _load(insight))


def plain_table(*headings: str) -> Table:
    """A table without lines; all columns but the first are numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place == 0 else "right")
    return table


def seconds_text(seconds: float | None) -> str:
    """A short time, in the unit that suits it.

    >>> [seconds_text(seconds) for seconds in (2.5e-8, 3.21e-6, 0.0123, 1.5, None)]
    ['25 ns', '3.21 µs', '12.3 ms', '1.5 s', '–']
    """
    if seconds is None:
        return "–"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def share_text(share: float | None) -> str:
    """A share in percent, with three digits.

    >>> share_text(0.12345), share_text(1.0), share_text(math.inf), share_text(None), share_text(0.00001)
    ('12.3%', '100%', '∞', '–', '0.001%')
    """
    if share is None:
        return "–"
    return "∞" if math.isinf(share) else f"{float(f'{share * 100:.3g}'):g}%"


def _stream(stream: StreamInsight, answered: Mapping[str, QueryStatus]) -> Iterator[RenderableType]:
    facts = [
        f"{compact(stream.rate)} rows for each second of event time",
        f"{show_number(round(stream.size))} in the last batch",
        "1 batch measured" if stream.measured == 1 else f"{stream.measured} batches measured",
    ]
    if stream.share < 1:
        facts.append(f"{share_text(stream.share)} of it read")
    if stream.ended:
        facts.append("ended")
    yield Text(f"stream {printable(stream.stream)} · " + " · ".join(facts), "bold")
    yield _tree(stream.operators)
    yield Text("")
    if sampled := [q for q in stream.queries if q.query not in answered]:
        yield _queries(sampled)
        yield Text("")
    if current := [answered[q.query] for q in stream.queries if q.query in answered]:
        yield _evaluations(current)
        yield Text("")
    if stream.drops:
        yield _drops(stream.drops)
        yield Text("")


def _tree(operators: Sequence[OperatorInsight]) -> Tree:
    """The operators; rows are shares of those that arrive."""
    branches: list[Tree] = []
    for place, operator in enumerate(operators):
        label = _label(operator)
        branches.append(
            Tree(label, guide_style="dim") if place == 0 else branches[operator.parent].add(label)
        )
    return branches[0]


def _label(operator: OperatorInsight) -> Text:
    text = Text()
    if operator.passes is not None:
        text.append(f"shedder {share_text(operator.passes)} ▸ ", "yellow")
    text.append(printable(plain(operator.label)))
    facts = []
    if operator.kind == "stream":
        facts.append(f"{seconds_text(operator.seconds)} a row")
    else:
        rows_in, rows_out = share_text(operator.rows_in), share_text(operator.rows_out)
        facts.append(f"in {rows_in} → out {rows_out}")
        if operator.selectivity is not None:
            facts.append(f"passes {share_text(operator.selectivity)}")
        if operator.seconds is not None:
            whose = f", mean of the {_ALIKE.get(operator.kind, 'filters')}" if operator.shared else ""
            facts.append(f"{seconds_text(operator.seconds)} a row{whose}")
    return text.append("  " + " · ".join(facts), "dim")


def _queries(queries: Sequence[QueryInsight]) -> Table:
    table = plain_table("query", "contract", "share of rows", "groups", "m²/µ²", "rate", "expected error")
    table.columns[1].justify = "left"
    for query in queries:
        table.add_row(
            printable(query.query),
            Text(printable(query.contract), "dim"),
            share_text(query.share),
            "–" if query.groups is None else f"{query.groups:,}",
            "–" if query.second is None else f"{query.second:.3g}",
            Text("suspended", "red") if query.suspended else share_text(query.rate),
            "–" if query.error is None else share_text(query.error),
        )
    return table


def _evaluations(queries: Sequence[QueryStatus]) -> Table:
    """Queries over current values: no row of theirs is sampled, and what counts is how often they are run."""
    table = plain_table("current values", "contract", "answers", "evaluations", "missed")
    table.columns[1].justify = "left"
    for query in queries:
        deferred = query.contract.startswith("DRIFT")
        table.add_row(
            printable(query.name),
            Text(printable(query.contract), "dim"),
            show_number(query.answers),
            show_number(query.evaluated) if deferred else "every tick",
            Text(show_number(query.missed), "red" if query.missed else "") if deferred else "–",
        )
    return table


def _drops(drops: Sequence[DropInsight]) -> Table:
    """Window drops: the rows they need are counted, and beside them is what the paper's formulas say."""
    table = plain_table("window drop for", "behind", "window", "gap", "left out", "rows needed", "sel w1, w2")
    table.columns[1].justify = table.columns[2].justify = "left"
    for drop in drops:
        point, window = drop.point, drop.point.drop
        size, slide = (
            (format_duration(window.size), format_duration(window.slide))
            if point.kind == "time"
            else (f"{window.size:,} rows", f"{window.slide:,} rows")
        )
        table.add_row(
            printable(", ".join(point.members)),
            printable(point.source) + ("" if point.early else ", at the aggregate"),
            f"{size} every {slide}",
            str(window.gap),
            Text("shut", "red") if drop.shut else share_text(drop.share),
            share_text(drop.needed),
            "–" if drop.formula is None else ", ".join(map(share_text, drop.formula)),
        )
    return table


def _load(insight: Insight) -> Text:
    level = max((stream.level for stream in insight.going), default=0.0)
    kept = sum(stream.kept_load for stream in insight.going)
    parts = [f"load {seconds_text(insight.load)} of executor time for a batch"]
    if insight.capacity is not None:
        parts.append(f"capacity {seconds_text(insight.capacity)}")
    if level:
        parts += [f"{seconds_text(kept)} after shedding", f"level {level:.3g}"]
    else:
        parts.append("nothing is shed")
    if abs(insight.correction) > 0.005:
        parts.append(f"planned {insight.correction:+.2f} s by feedback")
    return Text(" · ".join(parts), "bold")
