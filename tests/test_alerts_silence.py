"""Alerts on queries without groups whose windows close without rows: nothing comes, and that is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from agreement import tables_of
from alert_turns import DECLARED, NOW, Turns, alert, answers
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.model import TimeWindow
from slackwater.plan.panes import AFTER_ALL, BEFORE_ALL
from slackwater.planners.ruling import FixedRates
from slackwater.planners.window_needs import ALL
from slackwater.runtime.alerts.silence import Stretch
from slackwater.runtime.clocks import Clocks
from slackwater.runtime.recording import Recording
from slackwater.runtime.replaying import replay
from slackwater.runtime.samples import BATCHES
from slackwater.runtime.session import Session
from slackwater.runtime.state import LogFile, StreamState
from slackwater.runtime.stretches import stretch_of
from slackwater.runtime.testing import Killed, ListSink, abandon, killer, scripted_session, take_turns
from webhook_server import Receiver, receiving

COUNTED = """
CREATE QUERY counted AS SELECT COUNT(*) AS n, SUM(size) AS bytes, COUNT(*) * 2 AS twice
  FROM p GROUP BY window(ts, '10 seconds');
CREATE QUERY enough AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '10 seconds') HAVING COUNT(*) > 5;
"""
WINDOW = TimeWindow(10_000_000, 10_000_000)


def turns_of(folder: Path, *alerts: str) -> Turns:
    folder.mkdir(exist_ok=True)
    return Turns(folder, Catalog.from_sql(DECLARED + COUNTED + ";\n".join(alerts), Functions()))


class Watched:
    """One alert on a query; windows are named by the second they end at."""

    def __init__(self, turns: Turns, query: str = "counted", column: str = "n") -> None:
        self.turns, self.query, self.column = turns, query, column

    def turn(
        self, closed: tuple[int | None, int], values: dict[int, Any] | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        """A turn that closes windows from one to another, of which some have answers."""
        first, last = closed
        stretch = Stretch(self.query, WINDOW, None if first is None else first // 10 - 1, last // 10 - 1, NOW)
        made = (
            [
                answers(
                    list(values.values()), query=self.query, column=self.column, ends=list(values), **options
                )
            ]
            if values
            else []
        )
        return self.turns.turn(*made, stretches={self.query: stretch})

    def said(self, *arguments: Any, **options: Any) -> list[tuple[str, int, Any, str]]:
        return [
            (e["state"], second(e["window_end"]), e["value"], e["reason"])
            for e in self.turn(*arguments, **options)
        ]


def second(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp())


def test_a_count_is_0_in_a_window_without_rows(tmp_path: Path) -> None:
    watched = Watched(turns_of(tmp_path, alert("n < 10", on="counted")))
    assert watched.said((10, 20), {10: 50, 20: 60}) == []
    (event,) = watched.turn((30, 50))
    assert (event["state"], event["reason"], event["how"]) == ("raised", "missing", "exact")
    assert (event["value"], event["low"], event["high"], event["rows"]) == (0, 0, 0, 0)
    assert (second(event["window_start"]), second(event["window_end"])) == (20, 30), "the first one of them"
    assert watched.said((60, 60)) == [], "it is raised already"
    watched.turns = watched.turns.restarted()
    assert watched.said((70, 80), {80: 11}) == [("cleared", 80, 11, "answer")]


def test_silence_within_a_turn_has_its_place_among_the_answers(tmp_path: Path) -> None:
    watched = Watched(turns_of(tmp_path, alert("n < 10", on="counted")))
    assert watched.said((10, 80), {10: 50, 40: 60, 50: 5, 80: 70}) == [
        ("raised", 20, 0, "missing"),
        ("cleared", 40, 60, "answer"),
        ("raised", 50, 5, "answer"),
        ("cleared", 80, 70, "answer"),
    ]
    assert watched.said((90, 10**15), {100: 60})[-1] == ("raised", 110, 0, "missing"), "a leap costs nothing"


def test_a_count_that_is_raised_is_cleared_by_0(tmp_path: Path) -> None:
    watched = Watched(turns_of(tmp_path, alert("n > 10", on="counted")))
    assert watched.said((10, 10), {10: 50}) == [("raised", 10, 50, "answer")]
    assert watched.said((20, 40)) == [("cleared", 20, 0, "missing")]


def test_of_other_columns_nothing_is_known_and_what_is_raised_clears(tmp_path: Path) -> None:
    for number, column in enumerate(("bytes", "twice")):
        turns = turns_of(tmp_path / str(number), alert(f"{column} > 10", on="counted"))
        watched = Watched(turns, column=column)
        assert watched.said((10, 20)) == [], "nothing is above a limit"
        assert watched.said((30, 30), {30: 11}) == [("raised", 30, 11, "answer")]
        (event,) = watched.turn((40, 60))
        assert (event["state"], event["reason"], event["keys"]) == ("cleared", "missing", {})
        assert (event["value"], event["low"], event["high"], event["rows"]) == (None, None, None, 0)
        assert second(event["window_end"]) == 40
        assert turns.status().raised == 0
        assert watched.said((70, 90), {70: 12, 90: 13}) == [("raised", 70, 12, "answer")], (
            "it is back at last"
        )


def test_below_a_limit_it_is_given_up_after_long(tmp_path: Path) -> None:
    watched = Watched(turns_of(tmp_path, alert("bytes < 10", on="counted")), column="bytes")
    assert watched.said((10, 10), {10: 5}) == [("raised", 10, 5, "answer")]
    assert watched.said((20, 5_000)) == []
    assert watched.said((5_010, 5_010), {5_010: 6}) == []
    assert watched.said((5_020, 10_000)) == [], "it counts anew from the last answer on"
    watched.turns = watched.turns.restarted()
    # the thousandth since the last answer, however many close together
    assert [s[:2] for s in watched.said((10_010, 25_010), {10_030: 7})] == [("cleared", 20_030)]


def test_what_having_leaves_out_is_not_0(tmp_path: Path) -> None:
    low = Watched(turns_of(tmp_path / "low", alert("n < 10", on="enough")), "enough")
    assert low.said((10, 30), {10: 50}) == []
    high = Watched(turns_of(tmp_path / "high", alert("n > 10", on="enough")), "enough")
    high.turn((10, 10), {10: 50})
    (event,) = high.turn((20, 30))
    assert (event["state"], event["value"], event["rows"]) == ("cleared", None, None)


def test_a_window_that_is_given_up_is_no_silence(tmp_path: Path) -> None:
    watched = Watched(turns_of(tmp_path, alert("n < 10", on="counted")))
    watched.turn((10, 10), {10: 50})
    assert watched.said((20, 30), {20: None, 30: None}, how="suspended") == []
    above = Watched(turns_of(tmp_path / "above", alert("bytes > 1", on="counted")), column="bytes")
    above.turn((10, 10), {10: 50})
    assert above.said((20, 30), {20: None, 30: None}, how="suspended") == []
    assert above.said((40, 50), {40: None}, how="suspended") == [("cleared", 50, None, "missing")]


def test_before_the_first_answer_there_are_no_windows(tmp_path: Path) -> None:
    watched = Watched(turns_of(tmp_path, alert("n < 10", on="counted")))
    assert watched.said((None, 50)) == []
    assert watched.said((None, 50), {20: 60, 30: 70}) == [("raised", 40, 0, "missing")]


# --- on Spark ------------------------------------------------------------------------------------

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("port", pa.int32()), ("size", pa.int32())])
SQL = """
CREATE STREAM p (ts TIMESTAMP, port INT, size INT) USING scripted TIMESTAMP BY ts IDLE 5 SECONDS;
CREATE QUERY web AS SELECT COUNT(*) AS n, SUM(size) AS bytes FROM p WHERE port = 80 GROUP BY window(ts, '10 seconds');
"""
PORTS = [80, 80, 22, 22, 22, 80, 22, 22]
"""One row every ten seconds: the web is silent twice, and in the window that the stream ends in."""
ROWS = {
    "p": [
        [{"ts": EPOCH + timedelta(seconds=10 * b), "port": port, "size": 7}] for b, port in enumerate(PORTS)
    ]
}
TABLES = tables_of(ROWS, SCHEMA)
EXPECTED = [
    ("quiet", "raised", 30, 0),
    ("busy", "raised", 10, 7),
    ("busy", "cleared", 30, None),
    ("quiet", "cleared", 60, 1),
    ("busy", "raised", 60, 7),
    ("quiet", "raised", 70, 0),
    ("busy", "cleared", 70, None),
]


def quiet_and_busy(url: str) -> str:
    return f"{SQL}CREATE ALERT quiet ON web WHEN n < 1 TO '{url}'; CREATE ALERT busy ON web WHEN bytes > 5 TO '{url}';"


def told(receiver: Receiver) -> list[tuple[str, str, int, Any]]:
    events = [got.event for got in receiver.got]
    return [
        (e["alert"], e["state"], second(e["window_end"]) - round(EPOCH.timestamp()), e["value"])
        for e in events
    ]


def deliver(session: Session) -> None:
    session.engine.alerts.delivery.deliver()


@pytest.mark.parametrize(("point", "occurrence"), [("none", 1), ("alerts", 4), ("committed", 4)])
def test_a_query_whose_rows_stop_is_told_of_once_whatever_is_killed(
    spark: Any, tmp_path: Path, point: str, occurrence: int
) -> None:
    state = tmp_path / "state"
    with receiving() as receiver:
        first = scripted_session(
            spark, quiet_and_busy(receiver.url), TABLES, state=state, fault=killer(point, occurrence)
        )
        first.start(manual=True)
        try:
            take_turns(first, TABLES)
            deliver(first)
            first.stop()
        except Killed:
            abandon(first)
            second_ = scripted_session(spark, quiet_and_busy(receiver.url), TABLES, state=state)
            second_.start(manual=True)
            take_turns(second_, TABLES)
            deliver(second_)
            second_.stop()
        assert sorted(told(receiver)) == sorted(EXPECTED)
        assert len({g.headers["Idempotency-Key"] for g in receiver.got}) == len(EXPECTED)


def test_a_stream_that_falls_silent_is_told_of_by_the_clock_and_once(spark: Any, tmp_path: Path) -> None:
    seconds = [100.0]
    clocks = Clocks(seconds=lambda: seconds[0], now=lambda: EPOCH)
    with receiving() as receiver:
        session = scripted_session(
            spark, quiet_and_busy(receiver.url), TABLES, clocks=clocks, ends=False, state=tmp_path / "state"
        )
        sink = ListSink()
        session.start(sink, manual=True, record=tmp_path / "recorded")
        take_turns(session, {"p": TABLES["p"][:2]})
        ticks = []
        for silent in range(0, 120, 3):
            if session.engine.tick("p"):
                ticks.append(silent)
            seconds[0] += 3.0
        deliver(session)
        assert told(receiver) == [
            ("busy", "raised", 10, 7),
            ("quiet", "raised", 30, 0),
            ("busy", "cleared", 30, None),
        ]
        assert len(ticks) == 2, "the window that was open, and one without rows: more change nothing"
        session.stop()
    again = ListSink()
    replay(Recording.open(tmp_path / "recorded"), spark, again, state=tmp_path / "replayed")
    assert [(a.window_end, a.column, a.value) for a in again.answers] == [
        (a.window_end, a.column, a.value) for a in sink.answers
    ]


def test_an_alert_that_is_made_while_all_is_silent_is_told_of_it(spark: Any) -> None:
    seconds = [100.0]
    clocks = Clocks(seconds=lambda: seconds[0], now=lambda: EPOCH)
    with receiving() as receiver:
        session = scripted_session(spark, SQL, TABLES, clocks=clocks, ends=False)
        session.start(manual=True)
        take_turns(session, {"p": TABLES["p"][:2]})
        while seconds[0] < 160:
            session.engine.tick("p")
            seconds[0] += 3.0
        session.sql(f"CREATE ALERT quiet ON web WHEN n < 1 TO '{receiver.url}'")
        ticks = 0
        for _ in range(20):
            ticks += session.engine.tick("p")
            seconds[0] += 3.0
        deliver(session)
        session.stop()
        assert [(alert, state, value) for alert, state, _, value in told(receiver)] == [
            ("quiet", "raised", 0)
        ]
        assert ticks == 1


def test_windows_from_before_the_stream_began_are_none_however_late_rows_may_be(spark: Any) -> None:
    sql = SQL.replace("IDLE", "LATENESS 35 SECONDS IDLE")
    with receiving() as receiver:
        sql += f"CREATE ALERT quiet ON web WHEN n < 1 TO '{receiver.url}';"
        session = scripted_session(spark, sql, TABLES, ends=False)
        session.start(manual=True)
        take_turns(session, TABLES)
        deliver(session)
        session.stop()
        # the watermark is at 35 seconds at last: two windows with rows, and one without
        assert told(receiver) == [("quiet", "raised", 30, 0)]


def test_without_an_alert_the_clock_closes_no_more_than_what_is_open(spark: Any) -> None:
    seconds = [100.0]
    clocks = Clocks(seconds=lambda: seconds[0], now=lambda: EPOCH)
    session = scripted_session(spark, SQL, TABLES, clocks=clocks, ends=False)
    session.start(manual=True)
    take_turns(session, {"p": TABLES["p"][:2]})
    ticks = 0
    for _ in range(40):
        ticks += session.engine.tick("p")
        seconds[0] += 3.0
    session.stop()
    assert ticks == 1


def test_while_rows_are_sampled_estimates_speak_for_themselves(spark: Any) -> None:
    with receiving() as receiver:
        sql = SQL.replace("'10 seconds')", "'10 seconds') WITH ERROR 5%")
        sql += f"CREATE ALERT quiet ON web WHEN n < 1 POSSIBLY TO '{receiver.url}';"
        session = scripted_session(spark, sql, TABLES, ruler=FixedRates({"web": 0.5}), ends=False)
        session.start(manual=True)
        take_turns(session, TABLES)
        deliver(session)
        session.stop()
        assert told(receiver)[0] == ("quiet", "raised", 30, 0.0)
        assert {(got.event["how"], got.event["reason"]) for got in receiver.got} == {("sampled", "answer")}


def test_windows_of_which_rows_may_be_missing_are_none_to_go_by() -> None:
    catalog = Catalog.from_sql(DECLARED + COUNTED, Functions())
    seconds = 1_000_000

    def closed(
        query: str = "counted",
        since: int = BEFORE_ALL,
        low: int = 20 * seconds,
        high: int = 55 * seconds,
        *,
        sampled_to: int | None = None,
        delivered: Any = ALL,
        begun: int | None = None,
    ) -> tuple[int | None, int] | None:
        files = {} if sampled_to is None else {BATCHES: [LogFile("f", 1, 0, sampled_to - 1)]}
        work: Any = SimpleNamespace(
            plan=SimpleNamespace(catalog=catalog),
            decision=SimpleNamespace(stream="p"),
            samples=SimpleNamespace(empty=not files, slot=lambda id_: "some"),
            slots=SimpleNamespace(by_step={"counted": SimpleNamespace(id="s")}),
            drops=SimpleNamespace(idle=delivered == ALL, delivered=lambda name: delivered),
            state=StreamState(files=files, latest=47 * seconds, begun=begun),
            now=lambda: NOW,
        )
        found = stretch_of(work, catalog.steps[query], since, low, high)
        return None if found is None else (found.first, found.last)

    assert closed() == (2, 4), "the windows from 20 and 30 to 50 seconds"
    assert closed(high=29 * seconds) is None
    assert closed(low=BEFORE_ALL) == (None, 4)
    assert closed(since=31 * seconds) == (4, 4), "a new query has not seen all of the others"
    assert closed(begun=30 * seconds) == (3, 4), "the stream began with this one"
    assert closed(low=BEFORE_ALL, begun=30 * seconds) == (None, 4)
    assert closed(sampled_to=33 * seconds) == (4, 4)
    assert closed(sampled_to=45 * seconds) is None
    assert closed("total", sampled_to=45 * seconds) == (2, 4), "one that is not sampled goes on"
    assert closed(high=AFTER_ALL) == (2, 3), "the stream has ended within the window after these"
    assert closed(delivered=((0, 5),)) is None
    assert closed("q") is closed("rows") is closed("now") is None, "groups, windows over rows, current values"
