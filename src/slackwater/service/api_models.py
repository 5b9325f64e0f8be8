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
    parent: int
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
    query: str
    contract: str
    share: float | None
    groups: int | None
    rate: float
    error: float | None
    suspended: bool


class DropOut(Model):
    """A window drop."""

    queries: list[str]
    share: float
    shut: bool
    needed: float | None


class StreamStatisticsOut(Model):
    stream: str
    ended: bool = Field(default=False, description="Whether it has no batches any more, and is no load.")
    measured: int
    rate: float
    size: float
    level: float
    share: float
    load: float
    kept_load: float
    costs: dict[str, float]
    operators: list[OperatorOut]
    queries: list[QueryStatisticsOut]
    drops: list[DropOut]


class Statistics(Model):
    """What has been measured of the load."""

    capacity: float | None
    correction: float
    load: float = Field(description="Of the streams that are neither idle nor have ended.")
    streams: list[StreamStatisticsOut]


class StreamLevel(Model):
    stream: str
    level: float
    kept: float


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
