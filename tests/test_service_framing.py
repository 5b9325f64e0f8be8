"""Frames: what has changed, what is whole, and which part of the load is each query's."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest

from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.runtime.alerts.desk import AlertStatus
from slackwater.runtime.bounds.shown import AgentsShown
from slackwater.runtime.insight import Insight, OperatorInsight, QueryInsight, StreamInsight
from slackwater.runtime.status import QueryStatus, Status, StreamStatus
from slackwater.service.alerting import alert_frames
from slackwater.service.folding import fold
from slackwater.service.framing import POINTS_IN_ALL, Framer, Moving
from slackwater.service.loads import operator_seconds, query_loads
from test_service_shown import BEGAN, answers

STREAM = "CREATE STREAM p (ts TIMESTAMP, port INT, size INT) USING scripted TIMESTAMP BY ts;\n"
SUM = "CREATE QUERY {} AS SELECT SUM(size) AS n FROM p GROUP BY window(ts, '1 second') WITH ERROR 5%;\n"


def insight(*rates: float, kept: float = 1.0) -> Insight:
    """A stream of two queries behind a test each, the first of which is shed."""
    operators = (
        OperatorInsight("p", "stream", -1, 1.0, 1.0, 1e-6),
        OperatorInsight("port = 1", "test", 0, 1.0, 0.5, 1e-6, rates[0], ("a",)),
        OperatorInsight("port = 2", "test", 0, 1.0, 0.5, 3e-6, None, ("b",)),
    )
    queries = tuple(
        QueryInsight(n, "ERROR 5%", 0.5, 1.0, 1, r, 0.01) for n, r in zip("ab", rates, strict=True)
    )
    return Insight(
        (StreamInsight("p", 3, 1000.0, 1000.0, operators, queries, (), 0.4, 1.0, 2.0, kept, {}),), 1.5
    )


@pytest.mark.parametrize("kept", [1.0, 0.002, 0.0])
def test_the_loads_of_queries_sum_to_what_is_kept_of_the_load(kept: float) -> None:
    known = insight(0.5, 1.0, kept=kept)
    loads = query_loads(known)
    assert sum(loads.values()) == pytest.approx(kept)
    assert loads["a"] < loads["b"] or kept == 0, "what costs more and is not shed is the larger part"
    assert operator_seconds(known.streams[0]) == pytest.approx([0.001, 0.0005, 0.003])


def test_nothing_is_said_of_a_stream_that_was_not_measured() -> None:
    assert query_loads(Insight((replace(insight(1.0, 1.0).streams[0], measured=0),))) == {}
    assert query_loads(Insight((replace(insight(1.0, 1.0).streams[0], queries=()),))) == {}


@pytest.mark.parametrize("state", ["idle", "ended"])
def test_a_stream_that_has_ended_or_is_idle_is_no_load(state: Any) -> None:
    quiet = Status(at=BEGAN, streams=(StreamStatus(name="P", state=state),))
    framer, catalog = Framer(), declared("a", "b")
    before = framer.frame(moving(catalog, insight=insight(0.5, 1.0)), [])
    assert (before.load, before.kept_load, before.capacity) == (2.0, 1.0, 1.5)
    assert all(query.load for query in before.queries)
    after = framer.frame(moving(catalog, 1, insight=insight(0.5, 1.0), status=quiet), [])
    assert (after.load, after.kept_load, after.capacity) == (0.0, 0.0, 1.5)
    assert [query.load for query in after.queries] == [None, None]


def moving(catalog: Catalog, second: int = 0, **more: Any) -> Moving:
    at = BEGAN + timedelta(seconds=second)
    plain: dict[str, Any] = {"status": Status(at=at), "insight": Insight(), "level": 0.0}
    return Moving(at=at, phase="running", version=1, catalog=catalog, **(plain | more))


def declared(*names: str) -> Catalog:
    return Catalog.from_sql(STREAM + "".join(map(SUM.format, names)), Functions())


def test_a_frame_has_only_the_queries_that_have_changed() -> None:
    framer, catalog = Framer(name="traffic.sql"), declared("a", "b")
    first = framer.frame(moving(catalog), [])
    assert (first.name, [q.name for q in first.queries]) == ("traffic.sql", ["a", "b"])
    assert framer.frame(moving(catalog, 1), []).queries == []
    frame = framer.frame(moving(catalog, 2), [answers([7], 2, "b")])
    assert [(q.name, q.last_text, [p.value for p in q.points]) for q in frame.queries] == [("b", "7", [7])]
    assert (frame.number, frame.whole, frame.dropped) == (3, False, [])
    status = Status(at=BEGAN, queries=(QueryStatus(name="a", contract="", answers=5, missed=2, evaluated=9),))
    changed = framer.frame(moving(catalog, 3, status=status), []).queries
    assert [(q.name, q.answers, q.missed, q.evaluated) for q in changed] == [("a", 5, 2, 9)]


def test_how_far_apart_windows_end_is_said_of_those_of_time() -> None:
    sql = (
        STREAM
        + "CREATE QUERY sliding AS SELECT SUM(size) AS n FROM p "
        + "GROUP BY window(ts, '10 seconds', '4 seconds') WITH EXACT;\n"
        + "CREATE QUERY counted AS SELECT SUM(size) AS n FROM p GROUP BY tuples(100) WITH EXACT;\n"
        + "CREATE QUERY rows AS SELECT port FROM p WHERE size > 9 WITH EXACT;\n"
    )
    told = Framer().frame(moving(Catalog.from_sql(sql, Functions())), [])
    assert {query.name: (query.kind, query.slide_seconds) for query in told.queries} == {
        "sliding": ("windows", 4.0),
        "counted": ("windows", None),
        "rows": ("rows", None),
    }


def test_queries_come_and_go() -> None:
    framer = Framer()
    framer.frame(moving(declared("a", "b")), [answers([1], 0, "a")])
    frame = framer.frame(moving(declared("b", "c"), 1), [answers([2], 1, "a")])
    assert (frame.dropped, [q.name for q in frame.queries]) == (["a"], ["c"])
    assert [q.name for q in framer.whole(moving(declared("b", "c"), 1)).queries] == ["b", "c"]
    again = framer.frame(moving(declared("a"), 2), [])
    assert (sorted(again.dropped), again.queries[0].points, again.queries[0].answers) == (["b", "c"], [], 0)


def test_a_whole_frame_is_what_the_frames_until_then_come_to() -> None:
    framer, catalog, folded = Framer(), declared("a", "b"), None
    for second in range(12):
        batches = [answers([second], second, "a")] + ([answers([second], second, "b")] if second % 3 else [])
        known = insight(0.5 + second / 100, 1.0)
        frame = framer.frame(moving(catalog, second, insight=known), batches)
        folded = fold(folded, frame)
        whole = framer.whole(moving(catalog, second, insight=known))
        assert folded.model_dump() == whole.model_dump()
    assert whole.queries[0].rate == 0.61
    assert (whole.load, whole.kept_load, whole.capacity) == (2.0, 1.0, 1.5)
    assert sum(q.load or 0 for q in whole.queries) == pytest.approx(1.0)


def test_after_a_frame_that_could_not_be_made_comes_a_whole_one_with_the_next_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    framer, catalog = Framer(number=7), declared("a", "b")
    folded = fold(None, framer.frame(moving(catalog), [answers([1], 0, "a")]))
    with monkeypatch.context() as broken:
        broken.setattr("slackwater.service.framing._of_answers", Mock(side_effect=OverflowError))
        with pytest.raises(OverflowError):
            framer.frame(moving(declared("a"), 1), [answers([2], 1, "a")])
    assert framer.number == 8
    frame = framer.frame(moving(declared("a"), 2), [answers([3], 2, "a")])
    assert (frame.number, frame.whole, frame.dropped) == (9, True, ["b"])
    assert [p.value for p in fold(folded, frame).queries[0].points] == [1, 2, 3]
    assert framer.frame(moving(declared("a"), 2), []).whole is False


def test_a_whole_frame_of_many_queries_has_fewer_points_of_each() -> None:
    names = [f"q{i}" for i in range(200)]
    framer, catalog = Framer(), declared(*names)
    owner = pa.DictionaryArray.from_arrays(
        pa.array(np.repeat(np.arange(200), 300), pa.int32()), pa.array(names)
    )
    seconds = np.tile(np.arange(300), 200).tolist()
    framer.frame(moving(catalog), [answers(seconds, seconds, owner)])
    whole = framer.whole(moving(catalog))
    assert {len(q.points) for q in whole.queries} == {POINTS_IN_ALL // 200}
    assert whole.queries[7].points[-1].value == 299


def test_what_json_cannot_hold_is_null() -> None:
    status = Status(at=BEGAN, streams=(StreamStatus(name="p", rate=math.nan, lag_s=math.inf, batch_ms=12.5),))
    agents = AgentsShown("h", 0, 0, 0, 0, math.nan, 0.0, None, 0, (), ())
    made = Framer().frame(
        moving(
            declared("a"), status=status, level=math.inf, agents=(agents,), insight=insight(math.nan, 1.0)
        ),
        [],
    )
    stream = made.streams[0]
    assert (stream.rows_per_second, stream.lag_seconds, stream.batch_seconds) == (0.0, None, 0.0125)
    assert (made.level, made.agents[0].updates_per_second, made.queries[0].rate) == (0.0, 0.0, None)
    assert "NaN" not in made.model_dump_json()


def test_groups_of_an_alert_have_keys_that_javascript_can_hold() -> None:
    told = AlertStatus("a", "q", "n > 1", "certainly", (), 2, ({"id": 2**60 + 1}, {"id": 7}), 2, 0, 0, 0, "")
    engine: Any = SimpleNamespace(alerts=SimpleNamespace(status=lambda: (told,)))
    assert alert_frames(engine)[0].groups == [{"id": str(2**60 + 1)}, {"id": 7}]


def test_a_query_that_was_dropped_and_created_again_is_another_one() -> None:
    framer = Framer()
    framer.frame(moving(declared("a")), [answers([7], 1, "a")])
    other = "CREATE QUERY a AS SELECT COUNT(*) AS c FROM p GROUP BY window(ts, '2 seconds') WITH EXACT;\n"
    frame = framer.frame(moving(Catalog.from_sql(STREAM + other, Functions()), 1), [])
    assert frame.dropped == ["a"]
    assert [(q.name, q.last_text, q.column) for q in frame.queries] == [("a", "", None)]
    altered = SUM.format("a") + "ALTER QUERY a WITH EXACT;\n"
    framer = Framer()
    framer.frame(moving(declared("a")), [answers([7], 1, "a")])
    frame = framer.frame(moving(Catalog.from_sql(STREAM + altered, Functions()), 1), [])
    assert (frame.dropped, frame.queries[0].last_text) == ([], "7"), "a contract does not make another query"
