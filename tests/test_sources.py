"""Streams as they really arrive: traces, generated traffic, directories that grow, sockets; and what is refused."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agreement import differences
from slackwater.errors import SourceError
from slackwater.language.parse import parse
from slackwater.reference.evaluate import evaluate
from slackwater.runtime.answers import Answer
from slackwater.runtime.clocks import Clocks
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.testing import ListSink
from slackwater.spark.landing import land
from slackwater.spark.sources import open_source
from slackwater.spark.trace import RecordedTrace, Segment, TrafficTrace
from slackwater.spark.trace_source import TraceSource
from slackwater.traffic import Traffic
from waiting import until

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
PATIENCE_S = 120.0
COLUMNS = "(ts TIMESTAMP, host STRING, size INT)"
QUERIES = """
CREATE QUERY sliding AS SELECT COUNT(*) AS n, SUM(size) AS s FROM p GROUP BY window(ts, '20 seconds', '10 seconds');
CREATE QUERY middle AS SELECT host, MEDIAN(size) AS m FROM p GROUP BY window(ts, '30 seconds'), host;
CREATE QUERY tuple AS SELECT SUM(size) AS s FROM p WHERE host <> 'b' GROUP BY tuples(60, 40);
"""
Row = dict[str, Any]


def rows_in_order(count: int = 240, seed: int = 5) -> list[Row]:
    """Rows of two event minutes at times that differ, in order."""
    draw = random.Random(seed)
    times = sorted(draw.sample(range(120_000), count))
    return [
        {
            "ts": EPOCH + timedelta(milliseconds=t),
            "host": draw.choice("abc"),
            "size": draw.randrange(-50, 1500),
        }
        for t in times
    ]


ROWS = rows_in_order()
LOST = [{"ts": None, "host": "a", "size": n} for n in range(7)]


def shuffled(rows: Sequence[Row], seed: int = 11) -> list[Row]:
    return random.Random(seed).sample(list(rows), len(rows))


def arrow(rows: Sequence[Row], time_type: pa.DataType | None = None) -> pa.Table:
    """Rows with a column that nobody declared, between those that somebody did."""
    table = pa.Table.from_pylist(
        [{**r, "note": f"row {i}"} for i, r in enumerate(rows)],
        schema=pa.schema(
            [
                ("size", pa.int64()),
                ("note", pa.string()),
                ("ts", pa.timestamp("us", "UTC")),
                ("host", pa.string()),
            ]
        ),
    )
    return table if time_type is None else table.set_column(2, "ts", table["ts"].cast(time_type))


def write_csv(path: Path, rows: Sequence[Row], *, header: bool = True, sep: str = ",") -> None:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=sep)
    names = ["size", "note", "ts", "host"] if header else ["ts", "host", "size"]
    if header:
        writer.writerow(names)
    for row in rows:
        shown = {**row, "ts": row["ts"].isoformat() if row["ts"] else "", "note": "x"}
        writer.writerow([shown[n] for n in names])
    data = text.getvalue().encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def run(spark: Any, sql: str, **options: Any) -> tuple[list[Answer], Any]:
    """All answers of a run that ends by itself, and the states of its streams."""
    session = Session(spark, **options)
    session.sql(sql)
    sink = ListSink()
    session.start(sink)
    try:
        assert session.wait(PATIENCE_S), "the trace has an end, so the run has one"
        return sink.answers, session.engine.state.streams
    finally:
        session.stop()


# --- replay ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_replay_gives_the_answers_of_the_reference_and_ends_by_itself(
    spark: Any, tmp_path: Path, kind: str
) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    mixed = shuffled([*ROWS, *LOST])
    for number, part in enumerate((mixed[:90], mixed[90:100], mixed[100:])):
        if kind == "parquet":
            pq.write_table(arrow(part), trace / f"{number}.parquet")
        else:
            write_csv(trace / f"{number}.csv", part)
    sql = f"CREATE STREAM p {COLUMNS} USING replay OPTIONS (path '{trace}', speed 'max') TIMESTAMP BY ts;{QUERIES}"
    found, states = run(spark, sql, settings=Settings(rows_per_batch=80))
    assert not differences(found, evaluate(sql, {"p": [ROWS]}))
    state = states["p"]
    assert (state.arrived, state.unreadable, state.late) == (len(ROWS) + len(LOST), len(LOST), 0)
    assert state.batch > 0, "small batches were asked for"
    assert state.ended


def test_epoch_seconds_become_the_time_and_a_clock_sets_the_pace(spark: Any, tmp_path: Path) -> None:
    start = 1_700_000_000
    rows = [{"epoch_s": start + i // 3, "size": i} for i in range(180)]
    pq.write_table(pa.Table.from_pylist(shuffled(rows)), tmp_path / "t.parquet")
    sql = (
        "CREATE STREAM p (epoch_s BIGINT, size INT) "
        f"USING replay OPTIONS (path '{tmp_path / 't.parquet'}', speed 4) "
        "TIMESTAMP BY timestamp_seconds(epoch_s) AS ts;"
        "CREATE QUERY q AS SELECT COUNT(*) AS n, SUM(size) AS s FROM p GROUP BY window(ts, '20 seconds', '5 seconds');"
    )
    # a second passes whenever somebody looks at the clock
    clock = itertools.count(1000.0)
    clocks = Clocks(seconds=lambda: next(clock), now=lambda: EPOCH)
    found, states = run(spark, sql, clocks=clocks, settings=Settings(trigger_ms=10))
    assert not differences(found, evaluate(sql, {"p": [rows]}))
    assert states["p"].arrived == len(rows)
    assert {a.emitted_at for a in found} == {EPOCH}


class Hand:
    """A clock that goes when told to."""

    def __init__(self) -> None:
        self.seconds = 50.0

    def __call__(self) -> float:
        return self.seconds


def stream_of(sql: str) -> Any:
    return parse(sql)[0]


P = stream_of(f"CREATE STREAM p {COLUMNS} USING replay OPTIONS (path 'x') TIMESTAMP BY ts")


def test_speed_is_event_seconds_per_second_from_where_a_run_starts() -> None:
    trace = RecordedTrace([Segment("a", 1_000_000, 9_000_000, 10), Segment("b", 9_000_001, 40_000_000, 10)])
    clock = Hand()
    source = TraceSource(None, P, trace, 2.5, 1, clock)  # type: ignore[arg-type]
    first = source.offsets(0, None)
    assert first == {"from": 1_000_000, "to": 1_000_000}
    clock.seconds += 2
    second = source.offsets(1, first)
    assert second == {"from": 1_000_000, "to": 6_000_000}
    assert not source.ended(second)
    clock.seconds -= 1
    assert source.offsets(2, second) == {"from": 6_000_000, "to": 6_000_000}, "time never goes back"
    resumed = TraceSource(None, P, trace, 2.5, 1, clock)  # type: ignore[arg-type]
    assert resumed.offsets(2, second) == {"from": 6_000_000, "to": 6_000_000}, "nor jumps over a pause"
    clock.seconds += 1000
    last = source.offsets(3, second)
    assert last == {"from": 6_000_000, "to": 40_000_001}
    assert source.ended(last)
    assert source.progress(last) == 1.0


def test_as_fast_as_it_goes_takes_whole_segments_up_to_the_rows_of_a_batch() -> None:
    trace = RecordedTrace([Segment(str(i), 10 * i, 10 * i + 9, 100) for i in range(5)])
    assert trace.advance(0, 250) == 20
    assert trace.advance(0, 50) == 10, "at least one segment, or it would stand still"
    assert trace.advance(30, 1000) == trace.end == 50
    untimed = RecordedTrace([Segment("none", 0, 0, 500), Segment("a", 0, 9, 100), Segment("b", 10, 19, 100)])
    assert untimed.advance(0, 100) == 10, "rows without a time come with the first that have one"


def landed(spark: Any, sql: str, folder: Path, rows_per_batch: int = 1000) -> list[Row]:
    """The rows of a trace as its batches would read them, in order of arrival."""
    stream = stream_of(sql)
    trace = land(spark, stream, folder, rows_per_batch)
    source = TraceSource(spark, stream, trace, None, 1000)
    assert trace.end is not None
    frame = source.frame(spark, spark.range(0), {"from": trace.start, "to": trace.end})
    assert frame is not None
    return [r.asDict() for r in frame.orderBy("__part", "__seq").collect()]


def timed(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    return [(r["ts"].replace(tzinfo=UTC), r["host"], r["size"]) for r in rows if r["ts"] is not None]


@pytest.mark.parametrize(
    "kind", ["ns", "ns, UTC", "us", "ms, UTC", "csv.gz", "tsv", "no header", "jsonl", "named"]
)
def test_a_trace_is_read_however_it_was_written(spark: Any, tmp_path: Path, kind: str) -> None:
    rows = shuffled([*ROWS[:40], *LOST])
    options, path = "", tmp_path / "t.csv"
    if kind == "csv.gz":
        path = tmp_path / "t.csv.gz"
        write_csv(path, rows)
    elif kind == "tsv":
        path = tmp_path / "t.tsv"
        write_csv(path, rows, sep="\t")
    elif kind == "no header":
        write_csv(path, rows, header=False)
        options = ", header 'false'"
    elif kind == "jsonl":
        path = tmp_path / "t.jsonl"
        path.write_text("\n".join(json.dumps(r, default=lambda t: t.isoformat()) for r in rows))
    else:
        unit, _, zone = kind.partition(", ")
        path = tmp_path / "t.parquet"
        if kind == "named":
            unit, path, options = "us", tmp_path / "trace", ", format 'parquet'"
        time_type = pa.timestamp(unit, zone or None)
        pq.write_table(arrow(rows, time_type), path)
    sql = f"CREATE STREAM p {COLUMNS} USING replay OPTIONS (path '{path}'{options}) TIMESTAMP BY ts"
    found = landed(spark, sql, tmp_path / "landed")
    assert timed(found) == timed(ROWS[:40])
    assert sum(r["ts"] is None for r in found) == len(LOST)


def test_nanoseconds_before_the_epoch_round_down_like_those_after(spark: Any, tmp_path: Path) -> None:
    nanos = pa.array([-1, 1_999, -1_000_000_001], pa.timestamp("ns"))
    pq.write_table(pa.table({"ts": nanos}), tmp_path / "t.parquet")
    sql = f"CREATE STREAM p (ts TIMESTAMP) USING replay OPTIONS (path '{tmp_path / 't.parquet'}') TIMESTAMP BY ts"
    assert [r["__t"] for r in landed(spark, sql, tmp_path / "landed")] == [-1_000_001, -1, 1]


def test_rows_without_a_time_are_all_counted_however_many(spark: Any, tmp_path: Path) -> None:
    pq.write_table(arrow([*ROWS[:20], *(LOST * 30)]), tmp_path / "t.parquet")
    sql = f"CREATE STREAM p {COLUMNS} USING replay OPTIONS (path '{tmp_path / 't.parquet'}') TIMESTAMP BY ts"
    found = landed(spark, sql, tmp_path / "landed", rows_per_batch=10)
    assert sum(r["ts"] is None for r in found) == 210
    assert timed(found) == timed(ROWS[:20])


def test_a_landing_is_used_again_where_nothing_changed_even_when_moved(spark: Any, tmp_path: Path) -> None:
    trace = tmp_path / "t.parquet"
    pq.write_table(arrow(ROWS[:20]), trace)
    stream = stream_of(f"CREATE STREAM p {COLUMNS} USING replay OPTIONS (path '{trace}') TIMESTAMP BY ts")
    first = land(spark, stream, tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    second = land(None, stream, tmp_path / "b")  # type: ignore[arg-type]  # no Spark: nothing may be read
    assert (second.start, second.end, second.rows) == (first.start, first.end, 20)
    assert all(Path(s.path).exists() for s in second.segments(0, 1 << 62))
    pq.write_table(arrow(ROWS[:21]), trace)
    with pytest.raises(SourceError, match=r"has changed since this state was written.*--fresh"):
        land(spark, stream, tmp_path / "b")


# --- generated traffic -----------------------------------------------------------------------------


def test_traffic_is_the_same_however_it_is_cut(spark: Any, tmp_path: Path) -> None:
    sql = (
        "CREATE STREAM p (ts TIMESTAMP, src STRING, dport INT, size INT) "
        "USING traffic OPTIONS (seed 3, rate 60, sources 8, length '6500 milliseconds', speed 'max', "
        "origin '2026-01-01T00:00:00.000007+00:00') TIMESTAMP BY ts;"
        "CREATE QUERY q AS SELECT COUNT(*) AS n, SUM(size) AS s, COUNT(DISTINCT src) AS d "
        "FROM p GROUP BY window(ts, '2 seconds', '1 second');"
        "CREATE QUERY t AS SELECT MAX(size) AS m FROM p WHERE dport = 443 GROUP BY tuples(20);"
    )
    origin = EPOCH + timedelta(microseconds=7)
    traffic = Traffic(seed=3, rate=60.0, sources=8, origin=origin)
    made = [r for i in range(7) for r in traffic.slice(i, 1_000_000).to_pylist()]
    rows = [
        {k: r[k] for k in ("ts", "src", "dport", "size")}
        for r in made
        if r["ts"] < origin + timedelta(milliseconds=6500)
    ]
    expected = evaluate(sql, {"p": [rows]})
    for rows_per_batch in (100, 10_000):
        found, states = run(spark, sql, settings=Settings(rows_per_batch=rows_per_batch))
        assert not differences(found, expected)
        assert states["p"].arrived == len(rows)


def test_traffic_forgets_what_was_read_and_makes_it_again_alike(tmp_path: Path) -> None:
    trace = TrafficTrace(Traffic(seed=9, rate=30.0), tmp_path, None)
    before = pq.read_table(trace.segments(trace.start, trace.start + 1)[0].path)
    trace.segments(trace.start, trace.start + 8_000_000)
    trace.forget(trace.start + 6_000_000)
    assert sorted(int(f.stem) for f in tmp_path.glob("*.parquet")) == [5, 6, 7]
    assert pq.read_table(trace.segments(trace.start, trace.start + 1)[0].path).equals(before)
    assert trace.end is None


# --- what Spark reads by name ----------------------------------------------------------------------


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


# --- what cannot be read ---------------------------------------------------------------------------


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
    "agents": ("USING agents", ["agents", "no hub"]),
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
