"""What can be looked at: a run, or the recording of one. The API and the page are written against this."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from slackwater.language.statements import ExplainFormat
from slackwater.plan.catalog import Catalog
from slackwater.runtime.answers import Answer
from slackwater.runtime.batch_times import BatchTimes
from slackwater.service.api_models import Statistics
from slackwater.service.models import Frame, Knobs, KnobsWanted, Mode, Moment, Preview


@dataclass(frozen=True)
class Asked:
    """Which answers of a query are asked for; the newest ``limit`` of those that fit."""

    column: str | None = None
    keys: Mapping[str, str] | None = None
    """Values of group keys as text, as `str` has them in JSON; None: of all groups."""
    nulls: Collection[str] | None = None
    """Group keys that are NULL, told from empty texts; None: an empty text stands for both."""
    since: datetime | None = None
    """Answers whose window ends (or that speak of a time) at or after this."""
    until: datetime | None = None
    limit: int = 300


@dataclass(frozen=True)
class Newest:
    """The newest answer of each column and group, the newest first and then by column and group."""

    answers: Sequence[Answer]
    """As many as were asked for."""
    there: int
    """How many there are."""
    cut: bool = False
    """Whether there may be more: of the newest ones not all are kept."""


class Watched(Protocol):
    """A run or a recording; every method may be called from any thread and waits for no batch."""

    @property
    def mode(self) -> Mode:
        """What its frames say of themselves, without one of them."""
        ...

    @property
    def number(self) -> int:
        """Of the newest frame."""
        ...

    def frame(self) -> Frame:
        """The newest frame, whole."""
        ...

    def whole(self) -> bytes:
        """The same as JSON."""
        ...

    def kept_from(self) -> int:
        """The number of the oldest frame that `frames` has."""
        ...

    def frames(self, after: int, limit: int) -> Sequence[bytes]:
        """JSON of the frames that follow number ``after``, oldest first, at most ``limit`` of them."""
        ...

    def moments(self, limit: int) -> Sequence[Moment]:
        """The tide line: the newest moments, oldest first."""
        ...

    def catalog(self) -> Catalog:
        """What is declared."""
        ...

    def declaring(self, query: str, version: int | None = None) -> Catalog:
        """The newest query set that has a query, or that of a version; a run that goes on has one."""
        ...

    def answers(self, query: str, asked: Asked) -> Sequence[Answer]:
        """Answers of a query, oldest first; ``query`` is a name in any case that the catalog has."""
        ...

    def latest(self, query: str, limit: int, search: str = "", until: datetime | None = None) -> Newest:
        """The newest answer of every column and group, at most ``limit`` of them.

        ``search``: of those that have each of its words (`has_words`); ``until``: as it was then.
        """
        ...

    def explain(self, format: ExplainFormat, name: str | None) -> str:
        """The shared plan."""
        ...

    def statistics(self, at: datetime | None = None) -> Statistics:
        """What is known of operators, queries and load; without streams where nothing was measured.

        ``at``: as it was then, which only a recording knows.
        """
        ...

    def decisions(self, stream: str | None, limit: int) -> Sequence[Mapping[str, Any]]:
        """The newest decisions, newest first, as JSON objects."""
        ...

    def batch_times(self) -> Mapping[str, BatchTimes]:
        """By stream: how long batches took since the run was started; nothing of a recording."""
        ...

    def knobs(self) -> Knobs | None:
        """The sliders of the demo; None elsewhere."""
        ...


class Control(Protocol):
    """What can be changed in a run; a recording has none.

    Calls may take seconds. Changes come one at a time and so do previews, but these beside those.
    """

    @property
    def version(self) -> int:
        """Of the query set, with the last change."""
        ...

    def apply(self, sql: str) -> list[str]:
        """Statements, all or none, as `Session.sql` takes them; raises SlackwaterError where one is wrong."""
        ...

    def preview(self, sql: str, *, trusted: bool = True) -> Preview:
        """What statements would do to the plan and to errors; nothing is changed.

        ``trusted``: whether Spark may have the text. It runs parts of one already while it says of what type
        they are, and new queries on rows that come do whatever they say.
        """
        ...

    def turn(self, wanted: KnobsWanted) -> Knobs | None:
        """Move the sliders of the demo; None where there are none."""
        ...


class Dials(Protocol):
    """The sliders of the demo, for a run that has them; both may be called from any thread."""

    def knobs(self) -> Knobs:
        """Where they stand."""
        ...

    def turn(self, wanted: KnobsWanted) -> Knobs:
        """Move those that are given; raises SlackwaterError where that cannot be."""
        ...
