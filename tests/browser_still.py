"""Something to look at in the browser that tells frames when a test says so; no Spark runs for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from frames import frame, point, query, stream
from service_still import Still, StillControl
from slackwater.errors import LanguageError, Position
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.service import events
from slackwater.service.models import (
    AgentFrame,
    AgentsFrame,
    AlertFrame,
    Frame,
    Knobs,
    KnobsWanted,
    Preview,
    QueryFrame,
    WidthFrame,
)
from slackwater.service.server import Address, serving
from waiting import PATIENCE_S

TOKEN = "a-token-of-the-tests"
SQL = """\
CREATE STREAM p (ts TIMESTAMP, port INT, size INT) USING scripted TIMESTAMP BY ts;
CREATE QUERY calm AS SELECT SUM(size) AS n FROM p GROUP BY window(ts, '1 second') WITH ERROR 5%;
CREATE QUERY late AS SELECT SUM(size) AS n FROM p WHERE port = 80 GROUP BY window(ts, '1 second') WITH ERROR 1%;
CREATE QUERY picked AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 second') WITH SUBSET GAP 4;
CREATE QUERY wide AS SELECT SUM(size) AS n FROM p WHERE port = 53 GROUP BY window(ts, '1 second') WITH ERROR 50%;
CREATE ALERT busy ON calm WHEN n > 1e9 TO 'http://127.0.0.1:9/';
"""

ALERT = AlertFrame(
    name="busy",
    query="calm",
    condition="n > 1e9 CERTAINLY",
    url="http://127.0.0.1:9/",
    raised=0,
    events=0,
    waiting=0,
    trouble="",
)


@dataclass
class Told(Still):
    """`Watched`: one whole frame, then those that are told."""

    shown: Frame = field(default_factory=lambda: frame(1, a_few(), whole=True))
    declared: Catalog = field(default_factory=lambda: Catalog.from_sql(SQL, Functions()))

    def tell(self, queries: list[QueryFrame] | None = None, **more: Any) -> None:
        """The next frame: what is not given is as in the one before."""
        fields = {name: getattr(self.shown, name) for name in Frame.model_fields}
        fields |= {"number": self.number + 1, "whole": False, "queries": queries or [], **more}
        self.kept.append(Frame(**fields))
        self.shown = Frame(**{**fields, "whole": True, "queries": queries or self.shown.queries})

    def knobs(self) -> Knobs | None:
        return self.shown.knobs


@dataclass
class Turned(StillControl):
    """`Control` that remembers how its sliders were moved."""

    watched: Told = field(default_factory=Told)
    wanted: list[KnobsWanted] = field(default_factory=list)

    def turn(self, wanted: KnobsWanted) -> Knobs | None:
        self.wanted.append(wanted)
        before = self.watched.shown.knobs
        assert before is not None
        return before.model_copy(update=wanted.model_dump(exclude_none=True))


@dataclass
class Waiting(StillControl):
    """`Control` whose preview is quick, and whose changes wait until a test lets them go."""

    asked: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    broken: bool = False

    def preview(self, sql: str, *, trusted: bool = True) -> Preview:
        name = sql.split()[2]
        drawn = self.watched.explain("svg", None)
        return super().preview(sql).model_copy(update={"creates": [name], "plan_svg": drawn})

    def apply(self, sql: str) -> list[str]:
        self.asked.set()
        assert self.go_on.wait(PATIENCE_S)
        if self.broken:
            raise LanguageError("not now", text=sql, position=Position(1, 8, 7))
        return super().apply(sql)


def a_few() -> list[QueryFrame]:
    """Four queries, each with something that sets it apart."""
    return [
        query("wide", [point(s, 50, half=20) for s in range(1, 9)], error=0.4, load=0.2, contract="ERROR 50%"),
        query("calm", [point(s, 100) for s in range(1, 9)], load=0.1, last_text="100"),
        query("late", [point(s, 70, half=7, how="sampled") for s in range(1, 9)], error=0.1, load=0.4, met=False, how="sampled", contract="ERROR 1%", last_text="70 ± 7 (95%)"),
        query("picked", [point(s, 9, how="subset") for s in (1, 2, 5, 6)], load=0.3, how="subset", contract="SUBSET GAP 4"),
    ]  # fmt: skip


def many(count: int, value: float, second: float) -> list[QueryFrame]:
    """Queries by number, each with a point at a second."""
    return [
        query(f"q{i:04}", [point(second, value + i)], last_text=f"{value + i:g}", answers=int(second))
        for i in range(count)
    ]


def some_agents() -> AgentsFrame:
    """Two agents that are there and one that is away."""
    agents = [
        AgentFrame(name=name, there=True, keys=4, updates=100, offered_per_second=50.0, since=None)
        for name in ("north", "south")
    ]
    away = AgentFrame(
        name="west", there=False, keys=4, updates=7, offered_per_second=None, since=stream().watermark
    )
    width = WidthFrame(
        query="sum_of_all", column="s", smallest=0.5, median=1.0, largest=2.0, used=36.0, allowed=40.0
    )
    return AgentsFrame(
        stream="sensors",
        there=2,
        known=3,
        keys=12,
        updates_per_second=8.0,
        grants_per_second=2.0,
        offered_per_second=100.0,
        late=0,
        agents=[*agents, away],
        widths=[width],
    )


@contextmanager
def served(watched: Told, control: StillControl | None = None) -> Iterator[Address]:
    """The service around it; whoever listens looks again ten times a second."""
    with pytest.MonkeyPatch.context() as patch:
        # only a run wakes its readers; others look again when they say that they are still there
        patch.setattr(events, "QUIET_S", 0.1)
        with serving(watched, control or StillControl(watched), port=0, token=TOKEN) as address:
            yield address
