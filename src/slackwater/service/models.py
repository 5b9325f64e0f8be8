"""What the API says and takes, as types: the OpenAPI document is made of these, and the page reads them.

A **frame** is the run at one moment. One is made each second, kept for a while, sent to whoever listens, and
written to a recording; the page, `slackwater watch` and a recorded run that is opened later all show frames.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Phase = Literal["starting", "running", "ended", "stopped", "failed"]
Mode = Literal["live", "recorded"]
EXAMPLE = "CREATE QUERY dns AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '5 seconds') WITH ERROR 5%"


class Model(BaseModel):
    """What is sent is frozen; what is taken has no field that nobody knows."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Point(Model):
    """One answer as a point of a band chart; numbers that JSON cannot hold are null."""

    at: datetime = Field(description="The end of the window, or the time that the answer speaks of.")
    value: float | None
    low: float | None
    high: float | None
    how: str
    met: bool
    rate: float
    slope: float | None = Field(
        None, description="By how much the answer and its interval move in a second until the next one."
    )
    gap: bool | None = Field(
        None,
        description="Whether windows were left out before it; null where its distance from the point before "
        "it says so: there are none between them that are not shown.",
    )


class StreamFrame(Model):
    """A stream at one moment."""

    name: str
    state: Literal["running", "idle", "stopped", "ended"] = Field(
        description="Idle: its source had nothing and no batch has come for a while. It is read at 0 rows a "
        "second, is not behind, and is no load."
    )
    batch: int
    rows: int
    rows_per_second: float
    lag_seconds: float | None
    batch_seconds: float | None
    running_seconds: float | None = Field(
        None, description="For how long the batch that runs has been running."
    )
    late: int
    unreadable: int
    watermark: datetime | None
    progress: float | None
    kept: float = Field(description="The share of the last batch's rows that some query has seen.")
    level: float
    updates: int | None = None
    updates_per_second: float | None = None


class QueryFrame(Model):
    """A query at one moment: its contract, its last answer, and the points that came since the frame before.

    The points are of one series: one column and, where answers are grouped, one group.
    """

    name: str
    stream: str
    contract: str
    kind: Literal["windows", "rows", "current"]
    slide_seconds: float | None = Field(
        None, description="How far apart windows are, in seconds; null without windows of time."
    )
    columns: list[str]
    answers: int
    groups: int = Field(description="How many groups the last answers were of; 0 without GROUP BY.")
    how: str | None
    met: bool | None
    rate: float | None = Field(description="The share of rows (of windows, under SUBSET) that is kept.")
    error: float | None = Field(
        description="Half the width of the last interval over its value; null where that is not a number."
    )
    expected_error: float | None = Field(description="What is to be expected at the present rate.")
    load: float | None = Field(description="Its part of the load: executor seconds of a batch.")
    suspended: bool
    missed: int
    evaluated: int
    column: str | None = Field(description="The column of the points.")
    keys: dict[str, Any] = Field(description="The group of the points.")
    last_text: str = Field(description="The last answer with its interval, for the eye.")
    points: list[Point]


class Away(Model):
    """A time that is over in which an agent was away."""

    since: datetime
    until: datetime


class AgentFrame(Model):
    """One agent of a stream."""

    name: str
    there: bool
    keys: int
    updates: int = Field(description="Rows that it has sent so far.")
    offered_per_second: float | None = Field(
        description="Messages a second if it sent every value; null while it has not said."
    )
    since: datetime | None = Field(description="Since when it is away; null while it is there.")
    interruptions: int = Field(0, description="How often it was away so far.")
    last_away: Away | None = Field(None, description="When it was away the last time, where it is back.")


class WidthFrame(Model):
    """The widths that agents hold for one column of a query under PRECISION."""

    query: str
    column: str
    smallest: float | None
    median: float | None
    largest: float | None
    used: float | None = Field(description="The width of the widest interval now; null where one has none.")
    allowed: float


class AgentsFrame(Model):
    """The agents of one stream."""

    stream: str
    there: int
    known: int
    interruptions: int = Field(0, description="How often agents were away so far, all together.")
    keys: int
    updates_per_second: float
    grants_per_second: float
    offered_per_second: float | None = Field(
        description="Messages a second if every value were sent; null while no agent has said."
    )
    late: int
    agents: list[AgentFrame]
    widths: list[WidthFrame]

    @property
    def messages_per_second(self) -> float:
        """What goes over the wire: updates of the agents, and grants to them."""
        return self.updates_per_second + self.grants_per_second

    @property
    def saved(self) -> float | None:
        """The share of messages that are not sent, of those that sending every value would take."""
        offered = self.offered_per_second
        return max(0.0, 1 - self.messages_per_second / offered) if offered else None


class AlertFrame(Model):
    """An alert at one moment."""

    name: str
    query: str
    condition: str
    url: str
    raised: int = Field(description="In how many groups it is raised now; 1 without groups.")
    groups: list[dict[str, Any]] = Field([], description="The keys of some of these groups.")
    events: int
    waiting: int = Field(description="Events that some webhook has not taken yet.")
    lost: int = Field(0, description="Events that were dropped, since too many waited.")
    failed: int = Field(0, description="Attempts to tell a webhook that have failed.")
    trouble: str = Field(description="Why the webhook did not take the last one; empty where it did.")


class Knobs(Model):
    """The sliders of the demo."""

    load: float = Field(ge=0.1, le=100, description="Times the rate that the stream has by itself.")
    tolerance: float = Field(ge=0.1, le=20, description="Times the loss that contracts were declared with.")
    story: bool = Field(description="Whether the demo moves the load by itself.")
    chapter: str = Field("", description="What the demo shows at present, in a sentence.")


class KnobsWanted(Model):
    """Sliders to be moved; those that are left out stay."""

    load: float | None = Field(None, ge=0.1, le=100)
    tolerance: float | None = Field(None, ge=0.1, le=20)
    story: bool | None = None


class Frame(Model):
    """The run at one moment. A frame that is not whole has only the queries that have changed."""

    number: int
    at: datetime
    mode: Mode
    phase: Phase
    run: str = Field("", description="Of the run: the same when it goes on after a stop.")
    name: str = Field("", description="The file that is run, or the folder of a recording; no path.")
    whole: bool
    version: int = Field(description="Of the query set; the plan is another one when it changes.")
    message: str
    load: float | None = Field(description="Executor seconds that a batch would take whole.")
    kept_load: float | None = Field(description="The same with what is shed now.")
    capacity: float | None = Field(description="Executor seconds that a batch may take.")
    level: float
    streams: list[StreamFrame]
    queries: list[QueryFrame]
    dropped: list[str] = Field(description="Queries that are no more since the frame before.")
    agents: list[AgentsFrame]
    alerts: list[AlertFrame]
    knobs: Knobs | None = None
    room: int = Field(
        300, description="Points that a whole frame has of a query at most; one with fewer of them has all."
    )


class Moment(Model):
    """One frame of the tide line: what the load chart shows."""

    number: int
    at: datetime
    load: float | None
    kept_load: float | None
    capacity: float | None
    level: float
    rows_per_second: float
    lag_seconds: float | None


class Statements(Model):
    """SQL, one statement or several."""

    sql: str = Field(min_length=1, max_length=100_000, examples=[EXAMPLE])


class ContractWanted(Model):
    """What a query shall promise, as SQL writes it after WITH."""

    contract: str = Field(min_length=1, max_length=1_000, examples=["ERROR 5%", "EXACT", "SUBSET GAP 3"])


class Predicted(Model):
    """What a query would get if the statements were applied."""

    query: str
    contract: str
    fresh: bool = Field(description="Whether the statements create it or change its contract.")
    rate: float | None = Field(description="The share of rows (of windows) that would be kept.")
    error: float | None = Field(description="The error to be expected; null where nothing can be said.")
    error_before: float | None = Field(description="The same as things are; null for a new one.")
    met: bool | None
    suspended: bool = False


class Preview(Model):
    """What statements would do. Nothing has been changed."""

    creates: list[str]
    alters: list[str]
    drops: list[str]
    plan: str = Field(description="The shared plan with the change, as text.")
    plan_svg: str = Field(description="The same as a picture.")
    queries: list[Predicted] = Field(description="Those of the change first, then those it would harm most.")
    load: float | None
    load_before: float | None
    capacity: float | None
    level: float | None
    level_before: float | None
    notes: list[str] = Field(description="What could not be predicted and why, and warnings, in sentences.")


class Problem(BaseModel):
    """An error after RFC 9457, with the text of the command line."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    line: int | None = None
    column: int | None = None
    offset: int | None = None
    hint: str | None = None
    message: str | None = None
    """Of SQL: the detail without the place and the line."""


def is_late(load: float | None, capacity: float | None) -> bool:
    """Whether a batch that is taken whole takes clearly longer than it may: 1.1 times as long.

    >>> is_late(1.2, 1.0), is_late(1.05, 1.0), is_late(None, 1.0)
    (True, False, False)
    """
    return load is not None and capacity is not None and load > 1.1 * capacity
