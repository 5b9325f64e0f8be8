"""Alerts of a run on Spark: told once the turn counts, whatever is killed, and changed while it goes on."""

from __future__ import annotations

import importlib.util
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from agreement import tables_of
from slackwater.cli import app
from slackwater.runtime.recording import Recording
from slackwater.runtime.replaying import replay
from slackwater.runtime.session import Session
from slackwater.runtime.testing import Killed, ListSink, abandon, killer, scripted_session, take_turns
from webhook_server import Receiver, Reply, receiving

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("host", pa.string()), ("size", pa.int32())])
SQL = """
CREATE STREAM p (ts TIMESTAMP, host STRING, size INT) USING scripted TIMESTAMP BY ts;
CREATE QUERY q AS SELECT host, SUM(size) AS bytes FROM p GROUP BY window(ts, '10 seconds'), host WITH EXACT;
"""
SIZES = [
    {"x": 5, "y": 20},
    {"x": 50, "y": 20},
    {"x": 60, "y": 2},
    {"x": 1},
    {"x": 2, "y": 70},
    {"x": 3, "y": 71},
]
BATCHES = {
    "p": [
        [
            {"ts": EPOCH + timedelta(seconds=10 * b), "host": host, "size": size}
            for host, size in sizes.items()
        ]
        for b, sizes in enumerate(SIZES)
    ]
}
TABLES = tables_of(BATCHES, SCHEMA)
EXPECTED = [
    ("raised", "y", 20),
    ("raised", "x", 50),
    ("cleared", "y", 2),
    ("cleared", "x", 1),
    ("raised", "y", 70),
]
"""Of bytes > 10."""


def alert(url: str, limit: int = 10, name: str = "heavy") -> str:
    return f"CREATE ALERT {name} ON q WHEN bytes > {limit} TO '{url}';"


def told(receiver: Receiver) -> list[tuple[str, str, Any]]:
    return [(g.event["state"], g.event["keys"]["host"], g.event["value"]) for g in receiver.got]


def deliver(session: Session) -> int:
    return session.engine.alerts.delivery.deliver()


@pytest.mark.parametrize(
    ("point", "occurrence"),
    [("answers", 2), ("alerts", 2), ("alerts", 4), ("committed", 2), ("committed", 5)],
)
def test_a_kill_loses_no_event_and_makes_no_other(
    spark: Any, tmp_path: Path, point: str, occurrence: int
) -> None:
    state = tmp_path / "state"
    with receiving() as receiver:
        first = scripted_session(
            spark, SQL + alert(receiver.url), TABLES, state=state, fault=killer(point, occurrence)
        )
        first.start(manual=True)
        with pytest.raises(Killed):
            take_turns(first, TABLES)
        assert not receiver.got
        abandon(first)
        second = scripted_session(spark, SQL + alert(receiver.url), TABLES, state=state)
        second.start(manual=True)
        deliver(second)
        take_turns(second, TABLES)
        deliver(second)
        (status,) = second.engine.alerts.status()
        second.stop()
        assert told(receiver) == EXPECTED
        assert len({g.headers["Idempotency-Key"] for g in receiver.got}) == len(EXPECTED)
        assert (status.raised, status.events, status.waiting, status.trouble) == (1, len(EXPECTED), 0, "")
        assert status.groups == ({"host": "y"},)
    assert not list((state / "alerts").iterdir())


def test_a_kill_between_the_commit_and_the_webhook_sends_it_later(spark: Any, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with receiving(lambda got: Reply(503)) as receiver:
        first = scripted_session(spark, SQL + alert(receiver.url), TABLES, state=state)
        first.start(manual=True)
        take_turns(first, {"p": TABLES["p"][:3]})
        assert deliver(first) == 1
        abandon(first)
        receiver.answer = lambda got: Reply()
        second = scripted_session(spark, SQL + alert(receiver.url), TABLES, state=state)
        second.start(manual=True)
        assert deliver(second) == 2
        second.stop()
        tried, *taken = receiver.got
        assert tried.headers["Idempotency-Key"] == taken[0].headers["Idempotency-Key"]
        assert told(receiver)[1:] == EXPECTED[:2]


def test_alerts_come_and_go_while_a_run_goes_on(spark: Any) -> None:
    with receiving() as receiver:
        session = scripted_session(spark, SQL, TABLES)
        session.start(manual=True)
        take_turns(session, {"p": TABLES["p"][:3]})
        session.sql(alert(receiver.url))
        session.alert("low", query="q", when="bytes < 2 POSSIBLY", url=receiver.url)
        take_turns(session, {"p": TABLES["p"][:5]})
        assert [s.name for s in session.engine.alerts.status()] == ["heavy", "low"]
        session.drop_alert("heavy")
        assert [s.raised for s in session.engine.alerts.status()] == [1]
        take_turns(session, TABLES)
        deliver(session)
        session.stop()
        # windows that ended before are not looked at; what the dropped one had to tell is told nobody
        assert [(g.event["alert"], g.event["state"], g.event["value"]) for g in receiver.got] == [
            ("low", "raised", 1),
            ("low", "cleared", 2),
        ]


def test_an_alert_of_another_file_is_there_after_a_restart(spark: Any, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with receiving() as receiver:
        first = scripted_session(spark, SQL + alert(receiver.url), TABLES, state=state)
        first.start(manual=True)
        take_turns(first, {"p": TABLES["p"][:4]})
        deliver(first)
        first.stop()
        assert told(receiver) == EXPECTED[:3]
        second = scripted_session(spark, SQL + alert(receiver.url, 65), TABLES, state=state)
        second.start(manual=True)
        take_turns(second, TABLES)
        deliver(second)
        second.stop()
        # x was raised above 10 and is cleared by the first answer that is not above 65
        assert told(receiver)[3:] == [("cleared", "x", 1), ("raised", "y", 70)]
        assert {g.event["condition"] for g in receiver.got[3:]} == {"bytes > 65"}


def test_a_run_that_ends_by_itself_has_told_everything(spark: Any) -> None:
    sql = """
    CREATE STREAM p (ts TIMESTAMP, size INT)
      USING traffic OPTIONS (rate '50', length '5 seconds', speed 'max') TIMESTAMP BY ts;
    CREATE QUERY n AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 second');
    """
    with receiving() as receiver, Session(spark) as session:
        session.sql(sql)
        session.alert("any", query="n", when="n > 0", url=receiver.url)
        session.start()
        assert session.wait(120)
        session.stop()
        (got,) = receiver.got
        assert (got.event["state"], got.event["query"], got.event["how"]) == ("raised", "n", "exact")


def test_what_is_replayed_or_tried_out_tells_nobody(spark: Any, tmp_path: Path) -> None:
    with receiving() as receiver:
        session = scripted_session(spark, SQL + alert(receiver.url), TABLES, state=tmp_path / "state")
        session.start(manual=True, record=tmp_path / "recording")
        take_turns(session, TABLES)
        assert deliver(session) == len(EXPECTED)
        session.stop()
        sink = ListSink()
        replay(Recording.open(tmp_path / "recording"), spark, sink, state=tmp_path / "replayed")
        assert sink.answers
        assert not (tmp_path / "replayed" / "alerts").exists()
        assert len(receiver.got) == len(EXPECTED)


def test_the_example_tells_of_its_burst(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("example_webhook", EXAMPLES / "webhook.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    with example.serving(0) as server, Session(spark) as session:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        text = (EXAMPLES / "alerts.sql").read_text().replace(":8600/", f":{server.server_port}/")
        session.sql(text.replace("speed '10'", "speed 'max'"))
        session.start()
        assert session.wait(120)
        session.stop()
        server.shutdown()
        thread.join(10)
    assert [line.split(" = ")[0] for line in sorted(capsys.readouterr().out.splitlines())] == [
        "2026-01-01T00:00:25.000000Z busy raised: packets",
        "2026-01-01T00:00:25.000000Z heavy raised: dport=80 bytes",
        "2026-01-01T00:00:45.000000Z busy cleared: packets",
        "2026-01-01T00:00:45.000000Z heavy cleared: dport=80 bytes",
    ]


def test_a_run_that_owes_events_is_gone_on_with_though_its_streams_have_ended(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "short.sql"
    options = "rate '50', length '3 seconds', speed 'max'"
    with receiving(lambda got: Reply(503)) as receiver:
        file.write_text(
            f"CREATE STREAM p (ts TIMESTAMP, size INT) USING traffic OPTIONS ({options}) TIMESTAMP BY ts;"
            "CREATE QUERY n AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 second');"
            f"CREATE ALERT a ON n WHEN n > 0 TO '{receiver.url}'"
        )
        command = [
            "run",
            str(file),
            "--answers",
            str(tmp_path / "a.jsonl"),
            "--state",
            str(tmp_path / "state"),
        ]
        first = CliRunner().invoke(app, command)
        assert first.exit_code == 0, first.output
        assert "webhooks have not taken all events of alerts: 1 of a" in first.stderr
        tried = len(receiver.got)
        assert tried
        assert not (tmp_path / "state" / "finished").exists()
        receiver.answer = lambda got: Reply()
        second = CliRunner().invoke(app, command)
        assert second.exit_code == 0, second.output
        assert "webhooks have not" not in second.stderr
        assert len(receiver.got) == tried + 1
        assert len({got.event["id"] for got in receiver.got}) == 1
        assert (tmp_path / "state" / "finished").exists()
