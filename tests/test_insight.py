"""What `explain --live` tells of a stream that is shed."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console
from tests.test_governor import SQL, Machine

from agreement import tables_of
from slackwater.planners.decision import Decision
from slackwater.planners.preview import as_it_is
from slackwater.planners.terms import must_take
from slackwater.runtime.engine import Engine
from slackwater.runtime.governor import Governor
from slackwater.runtime.insight import Glimpse, Insight, _stream
from slackwater.runtime.session import Settings
from slackwater.runtime.status import QueryStatus
from slackwater.runtime.testing import scripted_session
from slackwater.service.api_models import OperatorOut
from slackwater.service.statistics_out import statistics_of
from slackwater.terminal.demo_load import measured
from slackwater.terminal.insight_view import insight_view

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def test_shedders_stand_where_the_paper_places_them():
    machine = Machine()
    for _ in range(4):
        machine.batch(1000)
    statistician = machine.governor.known("p", machine.plan, machine.slots)
    load = machine.governor._load(statistician, 1000.0)
    rates = {name: machine.slots.by_step[name].id for name in ("volume", "rare", "large")}
    decision = Decision(
        "p", 1, "batch", 1, 0, thresholds={rates["volume"]: 0.1, rates["rare"]: 0.4, rates["large"]: 0.0}
    )
    stream = _stream(load, decision)
    standing = {o.label: o.passes for o in stream.operators if o.passes is not None}
    assert stream.operators[0].passes == 0.4, "one before all, at the largest rate"
    assert standing["port = 80"] == pytest.approx(0.25), "one before the branch that needs less"
    assert standing["size > 1000"] == 0.0
    assert "port = 53" not in standing
    ends = {name: o.label for o in stream.operators for name in o.queries}
    assert set(ends) == {q.query for q in stream.queries}, "every query hangs on one operator"
    assert ends["large"] == "size > 1000"
    assert not any("net" in label for label in standing), "none where the one above has done it"
    console = Console(width=160)
    with console.capture() as shown:
        console.print(insight_view(Insight((stream,), 1.0)))
    assert "shedder 40% ▸ " in shown.get()
    assert not any(o.passes for o in _stream(load, None).operators)


def test_queries_over_current_values_show_their_evaluations() -> None:
    machine = Machine()
    for _ in range(4):
        machine.batch(1000)
    statistician = machine.governor.known("p", machine.plan, machine.slots)
    stream = _stream(machine.governor._load(statistician, 1000.0), None)
    names = [q.query for q in stream.queries]
    current = [
        QueryStatus(name=names[0], contract="DRIFT 5 BELIEF 90%", answers=12, evaluated=1234, missed=7),
        QueryStatus(name=names[1], contract="EXACT", answers=40),
    ]
    console = Console(width=160)
    with console.capture() as captured:
        console.print(insight_view(Insight((stream,), 1.0), current))
    shown = [line.split() for line in captured.get().splitlines()]
    assert ["current", "values", "contract", "answers", "evaluations", "missed"] in shown
    assert [names[0], "DRIFT", "5", "BELIEF", "90%", "12", "1,234", "7"] in shown
    assert [names[1], "EXACT", "40", "every", "tick", "–"] in shown
    assert sum(line[:1] == [names[0]] for line in shown) == 1, "not among the sampled ones too"


TWO = (
    SQL
    + """
CREATE STREAM q (ts TIMESTAMP, v DOUBLE) USING traffic TIMESTAMP BY ts;
CREATE QUERY other AS SELECT SUM(v) AS s FROM q GROUP BY window(ts, '10 seconds') WITH EXACT;
"""
)

TWO_FILTERS = """
CREATE STREAM p (ts TIMESTAMP, host STRING, size INT) USING traffic TIMESTAMP BY ts;
CREATE STREAM q (ts TIMESTAMP, v DOUBLE) USING traffic TIMESTAMP BY ts;
CREATE QUERY matching AS SELECT COUNT(*) AS n FROM p WHERE host RLIKE '^a+b' GROUP BY window(ts, '10 seconds') WITH ERROR 5%;
CREATE QUERY one AS SELECT COUNT(*) AS n FROM p WHERE size > 80 GROUP BY window(ts, '10 seconds') WITH ERROR 5%;
CREATE QUERY two AS SELECT COUNT(*) AS n FROM p WHERE size < 7 GROUP BY window(ts, '10 seconds') WITH ERROR 5%;
CREATE QUERY above AS SELECT COUNT(*) AS n FROM q WHERE v > 1 GROUP BY window(ts, '10 seconds') WITH ERROR 5%;
"""


def glimpse_of(governor: Governor) -> Glimpse:
    engine: Any = SimpleNamespace(load=SimpleNamespace(ruler=governor), decided={}, sources={})
    found = Glimpse.of(engine)
    assert found is not None
    return found


def test_streams_that_have_ended_take_nothing_of_the_capacity() -> None:
    machine = Machine(TWO)
    for _ in range(6):
        machine.batch(1000)
        machine.batch(1000, stream="q")
    both = glimpse_of(machine.governor).insight()
    assert [s.ended for s in both.streams] == [False, False]
    machine.governor.rest("q")
    idle = glimpse_of(machine.governor).insight()
    assert [(s.idle, s.ended) for s in idle.streams] == [(False, False), (True, False)]
    machine.governor.end("Q")
    glimpse = glimpse_of(machine.governor)
    left = glimpse.insight()
    assert [(s.stream, s.ended) for s in left.streams] == [("p", False), ("q", True)], "it may be looked at"
    assert [s.stream for s in left.going] == ["p"]
    assert left.load == left.streams[0].load < both.load
    assert (idle.load, idle.capacity) == (left.load, left.capacity), "nor do those that are idle"
    p = glimpse.loads[0][0]
    pace = machine.governor.pace
    assert both.capacity is not None
    assert left.capacity is not None
    assert left.capacity == min(pace.capacity(must_take(p, 1.0), 1), pace.fits(1))
    assert left.capacity - both.capacity == pytest.approx(pace.batch / pace.executor, rel=0.5), (
        "the other one's batches take no time any more"
    )
    # a preview looks at those that go on, and says the same
    assert as_it_is([p], glimpse.machine, pace.capacity).capacity == pytest.approx(left.capacity)
    assert measured(glimpse) == (left.load, left.capacity)
    console = Console(width=160)
    with console.capture() as shown:
        console.print(insight_view(left))
    assert "measured · ended" in shown.get()


def test_what_streams_were_like_is_told_when_all_have_ended() -> None:
    machine = Machine()
    for _ in range(4):
        machine.batch(1000)
    before = glimpse_of(machine.governor).insight()
    machine.governor.end("p")
    after = glimpse_of(machine.governor).insight()
    assert (after.load, after.capacity) == (before.load, before.capacity)
    assert after.streams[0].ended


def failing(engine: Engine) -> None:
    raise ValueError("no picture")


def test_who_watches_sees_that_a_stream_has_ended_in_the_turn_that_ends_it(
    spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sql = """CREATE STREAM p (ts TIMESTAMP, v INT) USING scripted TIMESTAMP BY ts;
    CREATE STREAM q (ts TIMESTAMP, v INT) USING scripted TIMESTAMP BY ts;
    CREATE QUERY a AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 second');
    CREATE QUERY b AS SELECT COUNT(*) AS n FROM q GROUP BY window(ts, '1 second');"""
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("v", pa.int32())])
    tables = tables_of({"p": [[{"ts": BEGAN, "v": 1}]], "q": [[{"ts": BEGAN, "v": 1}]] * 2}, schema)
    session = scripted_session(spark, sql, tables, settings=Settings(shedding="minimax"))
    seen = []
    session.start(manual=True)
    try:
        session.engine.observers.append(failing)
        session.engine.observers.append(lambda engine: seen.append(Glimpse.of(engine)))
        carrier = session.engine.executor.session.range(0)
        for stream, number in (("p", 0), ("q", 0)):
            session.engine.batch(stream, carrier, number)
        # a batch, the end of p, and a batch of q
        assert [glimpse.ended for glimpse in seen if glimpse] == [frozenset(), {"p"}, {"p"}]
        assert session.status().ended == {"p"}
        assert session.engine.error is None, "who cannot look ends no run"
        assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["no picture"] * 3
    finally:
        session.stop()


def test_the_cost_of_several_filters_is_told_as_their_mean() -> None:
    machine = Machine(TWO_FILTERS)
    for _ in range(6):
        machine.batch(1000)
        machine.batch(1000, stream="q")
    found = glimpse_of(machine.governor).insight()
    several, alone = (
        {o.label: o for o in stream.operators if o.kind in ("test", "members")} for stream in found.streams
    )
    assert len(several) == 3
    assert len({o.seconds for o in several.values()}) == 1
    assert all(o.shared for o in several.values())
    assert [o.shared for o in alone.values()] == [False], "of one the cost is its own"
    assert not any(o.shared for s in found.streams for o in s.operators if o.kind == "stream")
    told = statistics_of(found)
    assert [[o.shared for o in s.operators] for s in told.streams] == [
        [False, True, True, True],
        [False, False],
    ]
    before = told.streams[0].operators[1].model_dump(exclude={"shared"})
    assert not OperatorOut.model_validate(before).shared, "recordings from before it was told are read"
    console = Console(width=200)
    with console.capture() as shown:
        console.print(insight_view(found))
    lines = shown.get().splitlines()
    assert sum("a row, mean of the filters" in line for line in lines) == 3
    (line,) = (line for line in lines if "v > 1" in line)
    assert line.endswith("a row")
