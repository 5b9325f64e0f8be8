"""Something to look at that does not move, for tests of the service that need no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from slackwater.language.parse import parse
from slackwater.language.statements import ExplainFormat
from slackwater.plan.catalog import Catalog
from slackwater.plan.explain import explain
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.tables import Plan
from slackwater.runtime.answers import Answer
from slackwater.runtime.batch_times import BatchTimes
from slackwater.runtime.insight import Insight
from slackwater.service.api_models import Statistics
from slackwater.service.models import Frame, Knobs, KnobsWanted, Mode, Moment, Preview
from slackwater.service.statistics_out import statistics_of
from slackwater.service.watched import Asked, Newest

AT = datetime(2026, 1, 1, tzinfo=UTC)
SQL = """\
CREATE STREAM p (ts TIMESTAMP, port INT, size INT) USING scripted TIMESTAMP BY ts;
CREATE QUERY q AS SELECT SUM(size) AS bytes FROM p GROUP BY window(ts, '1 second') WITH ERROR 5%;
"""


def a_frame(number: int = 1, **more: Any) -> Frame:
    """A frame with nothing in it but what is given."""
    nothing: dict[str, Any] = {
        "number": number,
        "at": AT,
        "mode": "live",
        "phase": "running",
        "whole": True,
        "version": 1,
        "message": "",
        "load": None,
        "kept_load": None,
        "capacity": None,
        "level": 0.0,
        "streams": [],
        "queries": [],
        "dropped": [],
        "agents": [],
        "alerts": [],
    }
    return Frame(**(nothing | more))


@dataclass
class Still:
    """`Watched`: one frame, or those that a test puts here."""

    shown: Frame = field(default_factory=a_frame)
    kept: list[Frame] = field(default_factory=list)
    """The frames of `frames`, oldest first."""
    took: Mapping[str, BatchTimes] = field(default_factory=dict)
    declared: Catalog = field(default_factory=lambda: Catalog.from_sql(SQL, Functions()))

    @property
    def mode(self) -> Mode:
        return self.shown.mode

    @property
    def number(self) -> int:
        return self.shown.number

    def frame(self) -> Frame:
        return self.shown

    def whole(self) -> bytes:
        return self.shown.model_dump_json().encode()

    def kept_from(self) -> int:
        return self.kept[0].number if self.kept else self.number + 1

    def frames(self, after: int, limit: int) -> Sequence[bytes]:
        return [f.model_dump_json().encode() for f in self.kept if f.number > after][:limit]

    def moments(self, limit: int) -> Sequence[Moment]:
        return []

    def catalog(self) -> Catalog:
        return self.declared

    def declaring(self, query: str, version: int | None = None) -> Catalog:
        return self.declared

    def answers(self, query: str, asked: Asked) -> Sequence[Answer]:
        return []

    def latest(self, query: str, limit: int, search: str = "", until: datetime | None = None) -> Newest:
        return Newest([], 0)

    def explain(self, format: ExplainFormat, name: str | None) -> str:
        return explain(extend(Plan(), self.declared), format, name)

    def statistics(self, at: datetime | None = None) -> Statistics:
        return statistics_of(Insight())

    def decisions(self, stream: str | None, limit: int) -> Sequence[Mapping[str, Any]]:
        return []

    def batch_times(self) -> Mapping[str, BatchTimes]:
        return self.took

    def knobs(self) -> Knobs | None:
        return None


@dataclass
class StillControl:
    """`Control` of a catalog and no more."""

    watched: Still = field(default_factory=Still)
    version: int = 1

    def apply(self, sql: str) -> list[str]:
        catalog = self.watched.declared
        for statement in parse(sql):
            catalog = catalog.apply(statement)
        self.watched.declared = catalog
        self.version += 1
        return []

    def preview(self, sql: str, *, trusted: bool = True) -> Preview:
        parse(sql)
        nothing: dict[str, Any] = dict.fromkeys(
            ("load", "load_before", "capacity", "level", "level_before"), None
        )
        return Preview(creates=[], alters=[], drops=[], plan="", plan_svg="", queries=[], notes=[], **nothing)

    def turn(self, wanted: KnobsWanted) -> Knobs | None:
        return None
