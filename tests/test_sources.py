"""Streams as Spark reads them by name: directories that grow, sockets; and what is refused."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agreement import differences
from slackwater.errors import SourceError
from slackwater.language.parse import parse_one
from slackwater.language.statements import CreateTable
from slackwater.reference.evaluate import evaluate
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.testing import ListSink
from slackwater.spark.files import table_options
from slackwater.spark.landing import land
from slackwater.spark.sources import open_source
from traces import COLUMNS, LOST, PATIENCE_S, ROWS, Row, arrow, stream_of, write_csv
from waiting import until


@pytest.fixture
def lines() -> Iterator[tuple[int, Callable[[str], None]]]:
    """A port that Spark's socket source can read, and a function that sends it a line."""
    server = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []
    connected = threading.Event()

    def accept() -> None:
        try:
            connections.append(server.accept()[0])
        except OSError:
            return
        connected.set()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()

    def send(line: str) -> None:
        assert connected.wait(PATIENCE_S)
        connections[0].sendall(line.encode() + b"\n")

    yield server.getsockname()[1], send
    if not connected.is_set():
        # accept() does not notice that its socket is closed
        socket.create_connection(server.getsockname()).close()
    for connection in connections:
        connection.close()
    server.close()
    thread.join(10)


def write_json(path: Path, rows: Sequence[Row], broken: str = "") -> None:
    """Rows as JSON lines that appear at once."""
    listed = [json.dumps(r, default=lambda t: t.isoformat()) for r in rows]
    temporary = path.with_name("." + path.name)
    temporary.write_text("\n".join([*listed, *filter(None, [broken])]) + "\n")
    temporary.rename(path)


def test_directories_grow_while_they_are_read(spark: Any, tmp_path: Path, lines: Any) -> None:
    port, send = lines
    first, second = ROWS[:120], ROWS[120:]
    for name in ("j", "c", "q", "x"):
        (tmp_path / name).mkdir()
    write_json(tmp_path / "j" / "1.json", first)
    write_csv(tmp_path / "c" / "1.csv", first)
    pq.write_table(arrow(first, pa.timestamp("ns")), tmp_path / "q" / "1.parquet")
    write_json(tmp_path / "x" / "1.txt", first, broken='{"ts": "2026-01-01T00:00:01Z", "host"')
    sources = {
        "j": f"USING json OPTIONS (path '{tmp_path / 'j'}')",
        "c": f"USING csv OPTIONS (path '{tmp_path / 'c'}', header 'true')",
        "q": f"USING parquet OPTIONS (path '{tmp_path / 'q'}')",
        "x": f"USING text OPTIONS (path '{tmp_path / 'x'}', pathGlobFilter '*.txt') FORMAT json",
        "k": f"USING socket OPTIONS (host '127.0.0.1', port '{port}') FORMAT json",
    }
    sql = "".join(
        f"CREATE STREAM {name} {COLUMNS} {using} TIMESTAMP BY ts LATENESS 2 SECONDS IDLE 1 HOUR;"
        f"CREATE QUERY q{name} AS SELECT host, COUNT(*) AS n, SUM(size) AS s FROM {name} "
        "GROUP BY window(ts, '10 seconds'), host;"
        for name, using in sources.items()
    )
    sql += "CREATE QUERY tj AS SELECT SUM(size) AS s FROM j GROUP BY tuples(50);"
    sql += (
        "CREATE STREAM r (timestamp TIMESTAMP, value BIGINT) USING rate OPTIONS (rowsPerSecond 50) "
        "TIMESTAMP BY timestamp;"
        "CREATE QUERY qr AS SELECT COUNT(*) AS n, MAX(value) - MIN(value) + 1 AS span FROM r "
        "GROUP BY window(timestamp, '1 second');"
    )
    session = Session(spark, settings=Settings(trigger_ms=100))
    session.sql(sql)
    sink = ListSink()
    session.start(sink)
    try:
        state = session.engine.state.streams
        for row in first:
            send(json.dumps(row, default=lambda t: t.isoformat()))
        until(lambda: all(state[n].arrived >= len(first) for n in sources), session)
        write_json(tmp_path / "j" / "2.json", second, broken="not JSON at all")
        write_csv(tmp_path / "c" / "_2.csv", second)
        (tmp_path / "c" / "_2.csv").rename(tmp_path / "c" / "2.csv")
        pq.write_table(arrow(second, pa.timestamp("ns")), tmp_path / "q" / "_2.parquet")
        (tmp_path / "q" / "_2.parquet").rename(tmp_path / "q" / "2.parquet")
        write_json(tmp_path / "x" / "2.txt", second)
        send("{]")
        for row in second:
            send(json.dumps(row, default=lambda t: t.isoformat()))
        expected_rows = {"j": 241, "c": 240, "q": 240, "x": 241, "k": 241}
        until(lambda: all(state[n].arrived >= expected_rows[n] for n in sources), session)
        until(lambda: any(a.query == "qr" for a in sink.answers), session)
    finally:
        session.stop()
    unreadable = {name: state[name].unreadable for name in sources}
    assert unreadable == {"j": 1, "c": 0, "q": 0, "x": 1, "k": 1}
    assert {name: state[name].arrived for name in sources} == expected_rows
    assert all(state[name].late == 0 for name in sources)
    # batches fall as they may; in order and in time, rows give the same answers however they are cut
    streams = {name: [first, second] for name in sources}
    declared = sql[: sql.index("CREATE STREAM r")]
    expected = evaluate(declared, streams, end=False)
    assert not differences([a for a in sink.answers if a.query != "qr"], expected)
    rate = [a for a in sink.answers if a.query == "qr"]
    counts = {a.window_start: a.value for a in rate if a.column == "n"}
    assert counts == {a.window_start: a.value for a in rate if a.column == "span"}, (
        "no row is missing or twice"
    )


def test_two_sessions_may_read_streams_of_one_name(spark: Any, tmp_path: Path) -> None:
    pq.write_table(arrow(ROWS), tmp_path / "t.parquet")
    sql = (
        f"CREATE STREAM p {COLUMNS} USING replay OPTIONS (path '{tmp_path / 't.parquet'}', speed 'max') "
        "TIMESTAMP BY ts; CREATE QUERY q AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '60 seconds');"
    )
    sessions = [Session(spark), Session(spark)]
    sinks = [ListSink(), ListSink()]
    try:
        for session, sink in zip(sessions, sinks, strict=True):
            session.sql(sql)
            session.start(sink)
        assert all(session.wait(PATIENCE_S) for session in sessions)
    finally:
        for session in sessions:
            session.stop()
    expected = evaluate(sql, {"p": [ROWS]})
    assert not differences(sinks[0].answers, expected)
    assert not differences(sinks[1].answers, expected)


# --- what cannot be read --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wrecks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces that have something wrong with them."""
    folder = tmp_path_factory.mktemp("wrecks")
    pq.write_table(arrow(ROWS[:5]), folder / "good.parquet")
    pq.write_table(arrow([]), folder / "empty.parquet")
    pq.write_table(arrow(LOST), folder / "timeless.parquet")
    pq.write_table(pa.table({"when": ["noon"], "size": [1]}), folder / "other.parquet")
    (folder / "torn.parquet").write_bytes(b"PAR1 and then nothing")
    (folder / "other.csv").write_text("ts,size\n2026-01-01T00:00:00Z,1\n")
    (folder / "bare").mkdir()
    (folder / "twins").mkdir()
    (folder / "twins" / "1.csv").write_text("ts,host,size\n2026-01-01T00:00:00Z,a,1\n")
    (folder / "twins" / "2.csv").write_text("host,ts,size\na,2026-01-01T00:00:00Z,1\n")
    (folder / "mixed").mkdir()
    (folder / "mixed" / "1.csv").write_text("ts,host,size\n")
    pq.write_table(arrow(ROWS[:5]), folder / "mixed" / "2.parquet")
    (folder / "notes.docx").write_text("dear diary")
    return folder


REFUSED = {
    "no path": ("USING replay", ["replay needs the option path", "write USING replay OPTIONS (path"]),
    "nothing there": ("USING replay OPTIONS (path '{}/nope.csv')", ["nothing at", "nope.csv", "looked from"]),
    "no files": ("USING replay OPTIONS (path '{}/bare')", ["bare", "holds no files"]),
    "no rows": ("USING replay OPTIONS (path '{}/empty.parquet')", ["empty.parquet", "holds no rows"]),
    "no times": (
        "USING replay OPTIONS (path '{}/timeless.parquet')",
        ["no row of the trace", "has a time in ts", "timestampFormat"],
    ),
    "other columns": (
        "USING replay OPTIONS (path '{}/other.parquet')",
        ["has no column ts, host", "it has when, size"],
    ),
    "other header": (
        "USING replay OPTIONS (path '{}/other.csv')",
        ["has no column host", "it has ts, size", "header 'false'"],
    ),
    "headers that differ": (
        "USING replay OPTIONS (path '{}/twins')",
        ["Spark cannot read the trace", "twins/2.csv", "CSV header does not conform"],
    ),
    "torn": (
        "USING replay OPTIONS (path '{}/torn.parquet')",
        ["Spark cannot read the trace", "torn.parquet", "not a Parquet file"],
    ),
    "two kinds": (
        "USING replay OPTIONS (path '{}/mixed')",
        ["all of one kind", "csv, parquet", "the option format"],
    ),
    "unknown kind": (
        "USING replay OPTIONS (path '{}/notes.docx')",
        [".parquet, .csv, .tsv or .jsonl", "found notes.docx"],
    ),
    "speed in words": (
        "USING replay OPTIONS (path '{}/good.parquet', speed 'fast')",
        ["event seconds per second", "above 0 or 'max'", "'fast'"],
    ),
    "speed of zero": ("USING replay OPTIONS (path '{}/good.parquet', speed 0)", ["above 0 or 'max'", "'0'"]),
    "speed without end": ("USING replay OPTIONS (path '{}/good.parquet', speed 'inf')", ["'inf'"]),
    "traffic column": ("USING traffic", ["traffic has no column host", "it has ts, src, dst"]),
    "traffic option": (
        "USING traffic OPTIONS (rats 5)",
        ["unknown traffic option 'rats'", "did you mean 'rate'?"],
    ),
    "traffic length": ("USING traffic OPTIONS (length 'long')", ["long"]),
    "agents": ("USING agents", ["option hub is missing", "ws://host:7400"]),
    "no such format": ("USING kafak OPTIONS (subscribe 'x')", ["cannot read USING kafak", "kafak"]),
    "no such folder": ("USING json OPTIONS (path '{}/nope')", ["cannot read USING json", "nope"]),
    "columns of files": (
        "USING parquet OPTIONS (path '{}/other.parquet')",
        ["parquet delivers when, size", "ts, host is declared", "rename the columns"],
    ),
    "header of files": (
        "USING csv OPTIONS (path '{}/other.csv', header true)",
        ["has no column host", "it has ts, size"],
    ),
    "columns of rate": ("USING rate", ["rate delivers timestamp, value", "ts, host, size is declared"]),
    "payload of nothing": (
        "USING parquet OPTIONS (path '{}/good.parquet') FORMAT json",
        ["cannot read USING parquet"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_told_and_leaves_nothing(
    spark: Any, tmp_path: Path, wrecks: Path, case: str
) -> None:
    using, expected = REFUSED[case]
    stream = stream_of(f"CREATE STREAM p {COLUMNS} {using.replace('{}', str(wrecks))} TIMESTAMP BY ts")
    folder = tmp_path / "sources" / "p"
    with pytest.raises(SourceError) as caught:
        open_source(spark, stream, folder, rows_per_batch=10)
    message = str(caught.value)
    assert message.startswith("stream p: ")
    assert [part for part in expected if part not in message] == [], message
    assert "\tat " not in message, "no Java stack"
    assert [f for f in tmp_path.rglob("*") if f.is_file()] == []


@pytest.mark.parametrize(
    ("using", "missing"),
    [
        ("csv OPTIONS (Path 'file://{}/nope.csv')", True),
        ("parquet OPTIONS (path 'file:{}/nope')", True),
        ("csv OPTIONS (path 'file://{}/bare')", False),
        ("csv OPTIONS (path '{}/nope*.csv')", False),
        ("csv OPTIONS (path 's3a://bucket/nope.csv')", False),
        ("jdbc OPTIONS (path '{}/nope')", False),
        ("csv OPTIONS (header true)", False),
    ],
)
def test_only_tables_on_this_machine_are_looked_for(wrecks: Path, using: str, missing: bool) -> None:
    table = parse_one(f"CREATE TABLE t (a INT) USING {using.replace('{}', str(wrecks))}")
    assert isinstance(table, CreateTable)
    # none of these needs Spark to tell where its files are
    session: Any = None
    if missing:
        with pytest.raises(SourceError, match="table t: there is nothing at"):
            table_options(session, table)
    else:
        assert table_options(session, table) == dict(table.options)


@pytest.mark.parametrize("using", ["USING json OPTIONS (path '{}')", "USING replay OPTIONS (path '{}')"])
def test_a_mistake_in_a_source_can_be_mended_without_starting_over(
    spark: Any, tmp_path: Path, using: str
) -> None:
    """The wrong declaration never becomes a version, so the right one is no change of it."""
    query = "CREATE QUERY q AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '60 seconds');"
    state = tmp_path / "state"
    wrong = Session(spark, state)
    wrong.sql(
        f"CREATE STREAM p {COLUMNS} {using.replace('{}', str(tmp_path / 'wrong'))} TIMESTAMP BY ts;{query}"
    )
    with pytest.raises(SourceError, match="wrong"):
        wrong.start(manual=True)
    for folder in ("versions", "records", "commits", "sources", "outputs", "panes"):
        assert [f for f in (state / folder).rglob("*") if f.is_file()] == []
    write_json(tmp_path / "right.json", ROWS)
    right = Session(spark, state)
    right.sql(
        f"CREATE STREAM p {COLUMNS} {using.replace('{}', str(tmp_path / 'right.json'))} TIMESTAMP BY ts;{query}"
    )
    right.start(manual=True)
    right.stop()


def test_relative_paths_are_looked_up_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stream = stream_of(f"CREATE STREAM p {COLUMNS} USING replay OPTIONS (path 'no.csv') TIMESTAMP BY ts")
    with pytest.raises(SourceError) as caught:
        land(None, stream, tmp_path / "landed")  # type: ignore[arg-type]
    assert os.getcwd() in str(caught.value)
