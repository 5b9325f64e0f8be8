"""What single resources of the API look like; the frame and what it holds are in `models`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from slackwater.service.models import Mode, Model, Phase, QueryFrame


class Health(Model):
    """Whether the run goes on."""

    phase: Phase
    mode: Mode
    version: int = Field(description="Of the query set.")
    number: int = Field(description="Of the newest frame.")


class ColumnInfo(Model):
    name: str
    type: str


class StreamInfo(Model):
    """A stream as it is declared. Options may hold secrets and are not told."""

    name: str
    format: str
    columns: list[ColumnInfo]
    time: str
    key: list[str]
    lateness_seconds: float


class TableInfo(Model):
    """A table as it is declared."""

    name: str
    format: str
    columns: list[ColumnInfo]


class ViewInfo(Model):
    """A view as it is declared."""

    name: str
    sql: str


class QueryInfo(Model):
    """A query as it is declared, and as it is now."""

    name: str
    stream: str
    contract: str
    columns: list[str]
    sql: str
    frame: QueryFrame | None = Field(description="Null until the first frame after it was created.")


class Applied(Model):
    """Statements that were applied."""

    applied: list[str] = Field(description="The names that were created, altered or dropped.")
    explained: list[str] = Field(description="What EXPLAIN among them asked for.")
    version: int


class AnswerOut(Model):
    """One answer with its certificate; `types` is there only where JSON cannot show the type of a value."""

    query: str
    column: str
    window_start: datetime | None
    window_end: datetime | None
    at: datetime | None
    keys: dict[str, Any]
    value: Any
    low: Any
    high: Any
    confidence: float
    how: str
    rate: float
    rows: int | None
    met: bool
    emitted_at: datetime
    slope: float | None = None
    types: dict[str, Any] | None = None


class OperatorOut(Model):
    """One operator; rows are for each row that arrives, seconds for each row that it sees."""

    label: str
    kind: str
    parent: int = Field(description="The place of the operator before it in the list; -1 for the stream.")
    rows_in: float | None
    rows_out: float | None
    selectivity: float | None
    seconds: float | None
    passes: float | None = Field(
        description="What the shedder before it lets pass; null where none stands there."
    )
    queries: list[str]
    shared: bool = Field(
        default=False,
        description="Whether seconds are the mean of all filters (or of all lookups) of the stream: what "
        "each of them takes by itself is not measured.",
    )


class QueryStatisticsOut(Model):
    """One query: what its rows are like, and what it gets at present."""

    query: str
    contract: str
    share: float | None = Field(
        description="Its rows (those of its smallest group) for each row that arrives."
    )
    groups: int | None
    rate: float = Field(description="The share of its rows that is kept.")
    error: float | None = Field(
        description="Half the width to be expected over the value; null for what is not estimated."
    )
    suspended: bool


class DropOut(Model):
    """A window drop."""

    queries: list[str]
    share: float = Field(description="Of their windows, how many are left out.")
    shut: bool = Field(description="Whether none is delivered.")
    needed: float | None = Field(
        description="The share of rows that the others need; null where rows are counted."
    )


class StreamStatisticsOut(Model):
    stream: str
    ended: bool = Field(default=False, description="Whether it has no batches any more, and is no load.")
    measured: int = Field(description="Batches that the numbers rest on.")
    rate: float = Field(
        description="Rows for each second of the stream's own time, which a replay may let pass faster."
    )
    size: float = Field(description="Rows of a batch.")
    level: float
    share: float = Field(description="How much of the last batch was read.")
    load: float = Field(description="Executor seconds that the last batch would take whole.")
    kept_load: float = Field(description="The same at the present rates.")
    costs: dict[str, float] = Field(description="Seconds that are fitted: by pass, row, test and so on.")
    operators: list[OperatorOut]
    queries: list[QueryStatisticsOut]
    drops: list[DropOut]


class Statistics(Model):
    """What has been measured of the load."""

    capacity: float | None = Field(
        description="Executor seconds that a batch may take; null where nothing governs the load."
    )
    correction: float = Field(
        description="Seconds by which feedback plans batches longer, or shorter, than they are to take."
    )
    load: float = Field(description="Of the streams that are neither idle nor have ended.")
    streams: list[StreamStatisticsOut]


class StreamLevel(Model):
    stream: str
    level: float
    kept: float = Field(description="The share of the last batch's rows that some query has seen.")


class Level(Model):
    """The loss level, and what it comes from."""

    level: float
    load: float | None
    kept_load: float | None
    capacity: float | None
    streams: list[StreamLevel]


class Audit(Model):
    """The audit of a recorded run: what it found, or how far it is."""

    state: Literal["none", "running", "done", "failed"]
    recording: str | None = Field(description="The folder; null where the run is not recorded.")
    passed: bool | None = None
    report: dict[str, Any] | None = None
    message: str = ""
