"""What can be looked at: a run, or the recording of one. The API and the page are written against this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from slackwater.language.statements import ExplainFormat
from slackwater.plan.catalog import Catalog
from slackwater.runtime.answers import Answer
from slackwater.runtime.insight import Insight
from slackwater.service.models import Frame, Knobs, Moment


@dataclass(frozen=True)
class Asked:
    """Which answers of a query are asked for; the newest ``limit`` of those that fit."""

    column: str | None = None
    keys: Mapping[str, str] | None = None
    """Values of group keys as text, as `str` has them in JSON; None: of all groups."""
    since: datetime | None = None
    """Answers whose window ends (or that speak of a time) at or after this."""
    until: datetime | None = None
    limit: int = 300


class Watched(Protocol):
    """A run or a recording; every method may be called from any thread and waits for no batch."""

    def frame(self) -> Frame:
        """The newest frame, whole."""
        ...

    def frames(self, after: int, limit: int) -> Sequence[bytes]:
        """JSON of frames with numbers above ``after``, oldest first, at most ``limit`` of the newest."""
        ...

    def moments(self, limit: int) -> Sequence[Moment]:
        """The tide line: the newest moments, oldest first."""
        ...

    def catalog(self) -> Catalog:
        """What is declared."""
        ...

    def answers(self, query: str, asked: Asked) -> Sequence[Answer]:
        """Answers of a query, oldest first; ``query`` is a name in any case that the catalog has."""
        ...

    def latest(self, query: str, limit: int) -> Sequence[Answer]:
        """The newest answer of every column and group, at most ``limit`` of them."""
        ...

    def explain(self, format: ExplainFormat, name: str | None) -> str:
        """The shared plan."""
        ...

    def insight(self) -> Insight:
        """What is known of operators, queries and load; empty where nothing was measured."""
        ...

    def decisions(self, stream: str | None, limit: int) -> Sequence[Mapping[str, Any]]:
        """The newest decisions, newest first, as JSON objects."""
        ...

    def knobs(self) -> Knobs | None:
        """The sliders of the demo; None elsewhere."""
        ...
