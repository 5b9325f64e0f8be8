"""What comes out of a SELECT: the rows that it hands on, and its answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sqlglot import exp

from slackwater.reference.answers import ReferenceAnswer
from slackwater.reference.current import CurrentGrouping
from slackwater.reference.expressions import interpret
from slackwater.reference.grouping import Registry, output_name
from slackwater.reference.relations import Event, Field, Relation, place, star
from slackwater.reference.values import Value, from_micros
from slackwater.reference.windowed import WindowGrouping


@dataclass(frozen=True)
class Outcome:
    """What a step hands on, and what it answers if it is a query."""

    relation: Relation
    answers: tuple[ReferenceAnswer, ...]


def projected(select: exp.Select, relation: Relation, registry: Registry, tick: int | None) -> Outcome:
    """A set-valued step: every row that passes, with the selected columns.

    An answer is of its row's time, or of the tick at which current values are looked at.
    """
    items: list[tuple[str, exp.Expr | int]] = []
    for item in select.expressions:
        plain = item.unalias()
        if item.is_star:
            chosen = star(relation.fields, item.table if isinstance(item, exp.Column) else "")
            items.extend((relation.fields[index].name, index) for index in chosen)
        elif isinstance(plain, exp.Column):
            items.append((output_name(item), place(relation.fields, plain)))
        else:
            items.append((output_name(item), plain))
    rows: list[tuple[Event, tuple[tuple[str, Value], ...]]] = []
    for row in relation.rows:
        env = registry.row_environment(relation.fields, row.values)
        values = (row.values[i] if isinstance(i, int) else interpret(i, env) for _, i in items)
        rows.append((row, tuple(zip([name for name, _ in items], values, strict=True))))
    fields = tuple(Field("", name) for name, _ in items)
    timed = (relation.time.lower(), relation.time_place) in [(name.lower(), i) for name, i in items]
    handed_on = [
        replace(row, values=tuple(v for _, v in shown) + (() if timed else (from_micros(row.time),)))
        for row, shown in rows
    ]
    return Outcome(
        replace(
            relation,
            fields=fields if timed else (*fields, Field("", relation.time)),
            rows=tuple(handed_on),
        ),
        tuple(_element(row.time if tick is None else tick, shown) for row, shown in rows),
    )


def _element(at: int, shown: tuple[tuple[str, Value], ...]) -> ReferenceAnswer:
    """The answer that a row of a set-valued query is."""
    return ReferenceAnswer("", "*", None, None, from_micros(at), shown, None)


def windowed(grouping: WindowGrouping) -> Outcome:
    """A windowed step: one row per window and group."""
    relation = grouping.relation
    names = [output_name(item) for item in grouping.items]
    fields = tuple(Field("", name) for name in (*names, relation.time, "window_start", "window_end"))
    rows: list[Event] = []
    answers: list[ReferenceAnswer] = []
    for window, result in grouping.results():
        start, end = from_micros(window.start), from_micros(window.end)
        time = grouping.windows.time_of(window)
        values = tuple(value for _, value in result.items)
        rows.append(Event(time, (*values, from_micros(time), start, end)))
        answers.extend(
            ReferenceAnswer("", name, start, end, None, result.keys, value) for name, value in result.columns
        )
    watermark = grouping.windows.handed_on(relation.watermark)
    return Outcome(Relation(fields, tuple(rows), relation.time, watermark), tuple(answers))


def current(grouping: CurrentGrouping) -> Outcome:
    """An aggregating step over current values: one row per group.

    It hands on the tick under the name of the stream's time, where no item has that name.
    """
    time, at = grouping.relation.time, from_micros(grouping.tick)
    names = [output_name(item) for item in grouping.items]
    timed = time.lower() in [name.lower() for name in names]
    rows: list[Event] = []
    answers: list[ReferenceAnswer] = []
    for result in grouping.results():
        values = tuple(value for _, value in result.items)
        rows.append(Event(grouping.tick, values if timed else (*values, at)))
        answers.extend(
            ReferenceAnswer("", name, None, None, at, result.keys, value) for name, value in result.columns
        )
    fields = tuple(Field("", name) for name in (names if timed else [*names, time]))
    return Outcome(Relation(fields, tuple(rows), time, math.inf), tuple(answers))
