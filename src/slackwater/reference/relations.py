"""What a step reads and hands on: timed rows under named fields, and lookups against tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from slackwater.errors import LanguageError, SourceError
from slackwater.reference.values import Value, compare


@dataclass(frozen=True)
class Event:
    """A row: its values in field order, and its event time in microseconds."""

    time: int
    values: tuple[Value, ...]
    arrival: int = 0
    """Its number among rows that do not come in order of arrival."""


@dataclass(frozen=True)
class Field:
    """A named place in a row; a hidden one is found only under its table's name."""

    qualifier: str
    name: str
    hidden: bool = False


@dataclass(frozen=True)
class Relation:
    """Rows, and the time before which no more will come.

    They come in order of arrival; current values come in order of their keys.
    """

    fields: tuple[Field, ...]
    rows: tuple[Event, ...]
    time: str
    """Name of the time column."""
    watermark: float
    """Microseconds: an infinity where everything has come, or nothing has."""

    @property
    def time_place(self) -> int:
        """The index of the time column: the first of its name, since lookups add theirs behind."""
        return [field.name.lower() for field in self.fields].index(self.time.lower())

    def called(self, qualifier: str) -> Relation:
        """The same rows under another name."""
        return replace(self, fields=tuple(replace(f, qualifier=qualifier) for f in self.fields))


@dataclass(frozen=True)
class Table:
    """A table to look up in: a name, columns and rows in column order."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


def place(fields: Sequence[Field], column: exp.Column) -> int:
    """The index of the field that a column names; names match in any case."""
    name, qualifier = column.name.lower(), column.table.lower()
    found = [
        index
        for index, field in enumerate(fields)
        if field.name.lower() == name
        and (field.qualifier.lower() == qualifier if qualifier else not field.hidden)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise LanguageError(f"column {column.sql('spark')} is ambiguous: {len(found)} columns have that name")
    known = ", ".join(f"{f.qualifier}.{f.name}" for f in fields if not f.hidden)
    raise LanguageError(f"there is no column {column.sql('spark')} here; there are {known}")


def star(fields: Sequence[Field], qualifier: str = "") -> list[int]:
    """The indices that ``*`` stands for, or ``t.*``."""
    chosen = [
        index
        for index, field in enumerate(fields)
        if (field.qualifier.lower() == qualifier.lower() if qualifier else not field.hidden)
    ]
    if not chosen:
        raise LanguageError(f"{qualifier}.* names nothing that is read here")
    return chosen


Condition = Callable[[Sequence[Field], Sequence[Value]], bool]


def look_up(
    relation: Relation,
    table: Table,
    qualifier: str,
    using: Sequence[str],
    on: Condition | None,
    left: bool,
    many: bool = False,
) -> Relation:
    """Each row with the one row of the table that it refers to, or with each of them where there may be many.

    A row that refers to none is dropped, or kept with NULLs by a LEFT JOIN.
    """
    shared = {name.lower() for name in using}
    added = tuple(Field(qualifier, name, hidden=name.lower() in shared) for name in table.columns)
    fields = relation.fields + added
    if on is None:
        on = _same_columns(relation.fields, added, using)
    rows: list[Event] = []
    for event in relation.rows:
        matches = [row for row in table.rows if on(fields, event.values + row)]
        if len(matches) > 1 and not many:
            raise SourceError(
                f"a lookup finds at most one row, {len(matches)} rows of {table.name} match {event.values}"
            )
        if left and not matches:
            matches = [(None,) * len(added)]
        rows.extend(replace(event, values=event.values + match) for match in matches)
    return replace(relation, fields=fields, rows=tuple(rows))


def _same_columns(read: Sequence[Field], added: Sequence[Field], using: Iterable[str]) -> Condition:
    shown = [replace(field, hidden=False) for field in added]
    columns = [exp.column(name) for name in using]
    pairs = [(place(read, column), len(read) + place(shown, column)) for column in columns]
    return lambda fields, values: all(compare(values[i], values[j]) == 0 for i, j in pairs)
