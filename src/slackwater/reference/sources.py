"""Streams as they arrive: batches of rows, and which of them come too late."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlglot

from slackwater.errors import SourceError
from slackwater.language.statements import Column, CreateStream, CreateTable
from slackwater.reference.expressions import Environment, Functions, interpret
from slackwater.reference.relations import Event, Field, Relation, Table, place
from slackwater.reference.values import Value, cast, to_micros

Row = Mapping[str, object]
Batches = Sequence[Sequence[Row]]


@dataclass(frozen=True)
class Intake:
    """What became of a stream's rows."""

    relation: Relation
    late: int
    unreadable: int
    """Rows without an event time."""


def take_in(stream: CreateStream, batches: Batches, functions: Functions, end: bool) -> Intake:
    """All rows of a stream that are in time, in order of arrival.

    Late is an event time below the watermark, which is the largest event time of earlier batches
    less the LATENESS; a batch does not make its own rows late.
    """
    fields = fields_of(stream)
    taken: list[Event] = []
    late = unreadable = 0
    watermark = largest = -math.inf
    for batch in batches:
        for row in batch:
            event = event_of(stream, row, functions)
            if event is None:
                unreadable += 1
                continue
            largest = max(largest, event.time)
            if event.time < watermark:
                late += 1
            else:
                taken.append(event)
        watermark = largest - stream.lateness
    relation = Relation(fields, tuple(taken), stream.time, math.inf if end else watermark)
    return Intake(relation, late, unreadable)


def fields_of(stream: CreateStream) -> tuple[Field, ...]:
    """The declared columns of a stream, and its time where that is none of them."""
    fields = tuple(Field(stream.name, column.name) for column in stream.columns)
    return fields if stream.time_expression is None else (*fields, Field(stream.name, stream.time))


def event_of(stream: CreateStream, row: Row, functions: Functions) -> Event | None:
    """A row with its event time; None where it has none."""
    fields = fields_of(stream)
    values = list(declared(stream.columns, row))
    if stream.time_expression is None:
        time = cast(values[[f.name for f in fields].index(stream.time)], "TIMESTAMP")
    else:
        known = fields[: len(values)]
        env = Environment(lambda column: values[place(known, column)], functions)
        time = cast(interpret(sqlglot.parse_one(stream.time_expression, dialect="spark"), env), "TIMESTAMP")
        values.append(time)
    return None if time is None else Event(to_micros(time), tuple(values))


def declared(columns: Sequence[Column], row: Row) -> tuple[Value, ...]:
    """A row's values in the order and types declared; a column that it lacks is NULL."""
    found = {name.lower(): value for name, value in row.items()}
    unknown = found.keys() - {column.name.lower() for column in columns}
    if unknown:
        raise SourceError(f"a row has columns that are not declared: {', '.join(sorted(unknown))}")
    return tuple(_typed(found.get(column.name.lower()), column.type.upper()) for column in columns)


def _typed(value: Value, type_name: str) -> Value:
    if type_name in ("DOUBLE", "FLOAT", "TIMESTAMP"):
        return cast(value, type_name)
    return value


def table_of(statement: CreateTable, rows: Sequence[Row]) -> Table:
    """A table's rows in the order and types declared."""
    names = tuple(column.name for column in statement.columns)
    return Table(statement.name, names, tuple(declared(statement.columns, row) for row in rows))
