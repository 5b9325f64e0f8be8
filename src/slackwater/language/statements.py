"""What a SQL text says, statement by statement, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from sqlglot import exp

from slackwater.errors import LanguageError, Position
from slackwater.language.contracts import Contract, Standing

ExplainFormat = Literal["text", "json", "dot", "svg"]
Dropped = Literal["query", "view", "stream", "table", "alert"]
Comparison = Literal[">", ">=", "<", "<="]
Certainty = Literal["certainly", "possibly"]
"""Whether all of an interval must be beyond a limit, or some of it."""


@dataclass(frozen=True)
class Source:
    """The text a statement stands in, for errors that point into it."""

    text: str
    position: Position
    file: str = ""

    def error(self, message: str, *, hint: str = "", at: Position | None = None) -> LanguageError:
        """An error that points at ``at``, or at the start of the statement."""
        return LanguageError(message, text=self.text, position=at or self.position, hint=hint, file=self.file)


@dataclass(frozen=True)
class Column:
    name: str
    type: str


@dataclass(frozen=True)
class Statement:
    """What all statements share: ``sql`` is the statement's own text, which parses back to it."""

    sql: str
    source: Source = field(compare=False, repr=False)


@dataclass(frozen=True)
class CreateStream(Statement):
    name: str
    columns: tuple[Column, ...]
    format: str
    options: tuple[tuple[str, str], ...]
    payload: str | None
    payload_options: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    time: str
    """Name of the time column."""
    time_expression: str | None
    """Spark SQL that gives the time where it is not a declared column."""
    lateness: int = 0
    tolerance: int | None = None
    max_rate: float | None = None
    """Largest change per second of a value (the precision paper's change rate)."""
    idle: int | None = None
    tick: int | None = None
    """Microseconds between the times at which current values are looked at; None: the default."""
    interrupted: int | None = None
    """Microseconds after which a silent key counts as interrupted; None: learnt from its rate."""
    max_rates: tuple[tuple[str, float], ...] = ()
    """Largest changes of the values of single columns, which go before the one of all."""
    places: Mapping[str, Position] = field(default_factory=dict, compare=False, repr=False)
    """Where options stand, by their names in lower case, and clauses, by theirs in upper case."""

    def error(self, message: str, place: str, *, hint: str = "") -> LanguageError:
        """An error that points at an option or a clause, or at the statement where that is not in it."""
        return self.source.error(message, hint=hint, at=self.places.get(place))


@dataclass(frozen=True)
class CreateTable(Statement):
    name: str
    columns: tuple[Column, ...]
    format: str
    options: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class CreateView(Statement):
    name: str
    select: exp.Select = field(compare=False, repr=False)


@dataclass(frozen=True)
class CreateQuery(Statement):
    name: str
    select: exp.Select = field(compare=False, repr=False)
    contract: Contract | None
    standing: Standing = field(default_factory=Standing)
    """WEIGHT and PRIORITY that stand without a contract and go to the default one."""
    contract_at: Position | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class CreateAlert(Statement):
    """Events go to ``urls`` when answers of a query go beyond a limit, and when they come back."""

    name: str
    query: str
    column: str
    comparison: Comparison
    limit: Decimal
    certainty: Certainty
    urls: tuple[str, ...]
    written: str = field(compare=False)
    """The limit as it was written."""
    places: Mapping[str, Position] = field(default_factory=dict, compare=False, repr=False)
    """Where the query and the column stand."""

    @property
    def condition(self) -> str:
        return f"{self.column} {self.comparison} {self.written}"


@dataclass(frozen=True)
class AlterQuery(Statement):
    name: str
    contract: Contract | None
    standing: Standing = field(default_factory=Standing)


@dataclass(frozen=True)
class Drop(Statement):
    kind: Dropped
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class Explain(Statement):
    format: ExplainFormat
    name: str | None
    statement: CreateQuery | CreateView | None


AnyStatement = (
    CreateStream | CreateTable | CreateView | CreateQuery | CreateAlert | AlterQuery | Drop | Explain
)
