"""Recording a run and auditing it: coverage, exact answers, gaps, kills, tampering, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from slackwater.cli import app
from slackwater.errors import StateError
from slackwater.planners.ruling import FixedRates
from slackwater.runtime.answers import Answer
from slackwater.runtime.clocks import Clocks
from slackwater.runtime.recording import ANSWERS, TURNS, Recording
from slackwater.runtime.testing import Killed, abandon, killer, scripted_session, take_turns
from slackwater.terminal.audit import audit

ORIGIN = 1_700_000_000_000_000
SQL = """
CREATE STREAM p (ts TIMESTAMP, size INT, port INT) USING scripted TIMESTAMP BY ts LATENESS 1 SECOND;
CREATE QUERY web AS SELECT COUNT(*) AS n, AVG(size) AS mean FROM p WHERE port = 80
  GROUP BY window(ts, '4 seconds') WITH ERROR 20%;
CREATE QUERY ports AS SELECT port, SUM(size) AS bytes FROM p GROUP BY port, window(ts, '4 seconds') WITH ERROR 20%;
CREATE QUERY big AS SELECT size, port FROM p WHERE size > 1000 WITH ERROR 20%;
CREATE QUERY sure AS SELECT COUNT(*) AS n, MAX(size) AS m FROM p WHERE port = 53
  GROUP BY window(ts, '4 seconds') WITH EXACT;
CREATE QUERY some AS SELECT COUNT(*) AS n FROM p WHERE port = 443
  GROUP BY window(ts, '2 seconds') WITH SUBSET GAP 2;
"""
RATES = FixedRates({"web": 0.3, "ports": 0.5, "big": 0.4})
runner = CliRunner()


def batches(count: int = 4, rows: int = 1500) -> list[pa.Table]:
    """About half a minute, each batch somewhat mixed up, so that some rows are late."""
    random = np.random.default_rng(4)
    made = []
    for part in range(count):
        times = part * 7_500_000 + random.integers(-2_000_000, 7_500_000, rows)
        columns = {
            "ts": pa.array(ORIGIN + times, pa.timestamp("us", "UTC")),
            "size": pa.array(random.integers(40, 1500, rows).astype("int32")),
            "port": pa.array(random.choice([80, 443, 53], rows, p=[0.6, 0.3, 0.1]).astype("int32")),
        }
        made.append(pa.table(columns))
    return made


BATCHES = {"p": batches()}


def record(spark: Any, folder: Path, **options: Any) -> None:
    session = scripted_session(spark, SQL, BATCHES, ruler=RATES, **options)
    session.start(manual=True, record=folder)
    try:
        take_turns(session, BATCHES)
    finally:
        session.stop()


def audited(spark: Any, folder: Path, work: Path, *queries: str) -> Any:
    work.mkdir()
    return audit(Recording.open(folder), spark, lambda session: None, queries, work)


@pytest.fixture(scope="module")
def recorded(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "recording"
    record(spark, folder)
    return folder


# --- recorded runs on Spark -----------------------------------------------------------------------


def test_a_sampled_run_is_audited(spark: Any, recorded: Path, tmp_path: Path) -> None:
    report = audited(spark, recorded, tmp_path / "work")
    found = {column.name: column for column in report.columns}
    assert report.passed, report.problems
    assert set(found) == {"web.n", "web.mean", "ports.bytes", "big.*", "sure.n", "sure.m", "some.n"}
    for name in ("web.n", "web.mean", "ports.bytes"):
        coverage = found[name].coverage
        assert coverage is not None
        assert coverage.of == found[name].hows["sampled"] == found[name].true >= 7
        assert coverage.claimed == pytest.approx(0.95)
        assert coverage.share > 0.7
        assert 0 < found[name].errors.median < 0.2
    for name in ("sure.n", "sure.m", "some.n"):
        assert found[name].coverage is None
        assert (found[name].missing, found[name].differing) == (0, 0)
        assert found[name].compared == found[name].true == found[name].answers > 5
    rows = found["big.*"]
    assert (rows.differing, rows.coverage) == (0, None)
    assert rows.missing / rows.true == pytest.approx(0.6, abs=0.06)
    assert found["some.n"].gap == 0
    assert json.loads(json.dumps(report.as_dict()))["passed"] is True


def test_late_rows_are_the_same_though_a_sample_saw_less(recorded: Path) -> None:
    turns = Recording.open(recorded).turns
    assert [t.kind for t in turns] == ["batch"] * 4 + ["end"]
    assert [t.batch for t in turns] == [0, 1, 2, 3, None]
    assert sum(t.arrived for t in turns) == 6000
    assert sum(t.answers or 0 for t in turns) == Recording.open(recorded).recorded_answers > 0
    assert all(t.rates for t in turns if t.kind == "batch")
    assert [t.watermark for t in turns[1:4]] == [t.closed for t in turns[:3]]


def test_a_run_that_was_killed_goes_on_recording(spark: Any, recorded: Path, tmp_path: Path) -> None:
    options = {"state": tmp_path / "state", "ruler": RATES}
    folder = tmp_path / "recording"
    first = scripted_session(spark, SQL, BATCHES, fault=killer("answers", 6), **options)
    first.start(manual=True, record=folder)
    with pytest.raises(Killed):
        take_turns(first, BATCHES)
    abandon(first)
    recorder = first.engine._recorder
    assert recorder is not None
    recorder.close()
    whole = len(Recording.open(folder).turns)
    second = scripted_session(spark, SQL, BATCHES, **options)
    second.start(manual=True, record=folder)
    assert len(Recording.open(folder).turns) <= whole < 4
    take_turns(second, BATCHES)
    second.stop()
    turns, expected = Recording.open(folder), Recording.open(recorded)
    assert [(t.kind, t.batch, t.closed) for t in turns.turns] == [
        (t.kind, t.batch, t.closed) for t in expected.turns
    ]

    def told(recording: Recording) -> list[Any]:
        return [(a.query, a.column, a.window_start, a.at, a.keys, a.value) for a in recording.answers()]

    assert sorted(told(turns), key=repr) == sorted(told(expected), key=repr)
    # another life of the run that is not recorded leaves a hole
    third = scripted_session(spark, SQL, BATCHES, **options)
    third.start(manual=True)
    third.stop()
    fourth = scripted_session(spark, SQL, BATCHES, **options)
    with pytest.raises(StateError, match="begun without recording"):
        fourth.start(manual=True, record=folder)


def test_the_command_tells_of_an_answer_that_was_tampered_with(
    spark: Any, recorded: Path, tmp_path: Path
) -> None:
    path = recorded / ANSWERS
    kept = path.read_bytes()
    lines = kept.decode().splitlines()
    place = next(i for i, line in enumerate(lines) if '"sure"' in line and '"m"' in line)
    answer = Answer.from_json(lines[place])
    assert isinstance(answer.value, int)
    lines[place] = replace(answer, value=answer.value + 100_000).to_json_line()
    try:
        path.write_text("".join(line + "\n" for line in lines))
        options = ["--json", str(tmp_path / "report.json"), "--query", "Sure"]
        said = runner.invoke(app, ["audit", str(recorded), *options])
        unknown = runner.invoke(app, ["audit", str(recorded), "--query", "unsure"])
    finally:
        path.write_bytes(kept)
    assert said.exit_code == 1, said.output
    assert "sure.m: 1 answers claim to be exact and are none of the true ones" in " ".join(
        said.stdout.split()
    )
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["passed"] is False
    assert [(c["query"], c["column"], c["differing"]) for c in report["columns"]] == [
        ("sure", "n", 0),
        ("sure", "m", 1),
    ]
    assert unknown.exit_code == 1
    assert "there is no query called unsure in the recording; there are web, ports" in unknown.stderr


def test_a_changed_query_set_and_functions_are_replayed(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    functions = {"twice": (lambda x: 2 * x, "INT")}
    sql = SQL + "CREATE QUERY own AS SELECT MAX(twice(size)) AS m FROM p GROUP BY window(ts, '4 seconds');"
    session = scripted_session(spark, sql, BATCHES, ruler=RATES, functions=functions)
    session.start(manual=True, record=folder)
    take_turns(session, {"p": BATCHES["p"][:2]})
    session.sql(
        "DROP QUERY web; CREATE QUERY later AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '2 seconds');"
        "CREATE QUERY surely AS SELECT SUM(size) AS s FROM p GROUP BY window(ts, '2 seconds') WITH EXACT"
    )
    take_turns(session, BATCHES)
    session.stop()
    recording = Recording.open(folder)
    work = tmp_path / "work"
    work.mkdir()
    with pytest.raises(StateError, match=r"not registered here: twice; give the audit the same --import"):
        audit(recording, spark, lambda session: None, (), work)
    report = audit(recording, spark, lambda s: s.function("twice", functions["twice"][0], "INT"), (), work)
    assert report.passed, report.problems
    found = {c.name: c for c in report.columns}
    assert found["later.n"].compared == found["later.n"].true > 3
    assert found["surely.s"].compared == found["surely.s"].true > 3
    assert found["own.m"].compared == found["own.m"].true > 5


def test_ticks_tables_and_several_streams_are_replayed(spark: Any, tmp_path: Path) -> None:
    folder, names = tmp_path / "recording", tmp_path / "names.csv"
    names.write_text("80,web\n443,tls\n")
    sql = f"""
    CREATE STREAM p (ts TIMESTAMP, size INT, port INT) USING scripted TIMESTAMP BY ts IDLE 1 SECOND;
    CREATE STREAM r (ts TIMESTAMP, size INT, port INT) USING scripted TIMESTAMP BY ts;
    CREATE TABLE names (port INT, name STRING) USING csv OPTIONS (path '{names}');
    CREATE QUERY named AS SELECT n.name, COUNT(*) AS n FROM p JOIN names n ON p.port = n.port
      GROUP BY window(ts, '4 seconds'), n.name WITH EXACT;
    CREATE QUERY other AS SELECT COUNT(*) AS n FROM r WHERE port = 80 GROUP BY window(ts, '4 seconds') WITH ERROR 5%;
    CREATE QUERY peak AS SELECT MAX(size) AS m FROM r GROUP BY window(ts, '4 seconds') WITH EXACT;
    """
    given = {"p": BATCHES["p"][:2], "r": BATCHES["p"][:3]}
    now = [0.0]
    session = scripted_session(
        spark, sql, given, ruler=FixedRates({"other": 0.5}), clocks=Clocks(seconds=lambda: now[0]), ends=False
    )
    session.start(manual=True, record=folder)
    take_turns(session, given)
    now[0] = 100.0
    assert session.engine.tick("p")
    session.stop()
    names.unlink()
    assert [t.kind for t in Recording.open(folder).turns] == ["batch"] * 5 + ["tick"]
    report = audited(spark, folder, tmp_path / "work")
    assert report.passed, report.problems
    found = {c.name: c for c in report.columns}
    assert found["named.n"].compared == found["named.n"].true == found["named.n"].answers == 10
    assert found["other.n"].coverage.of == found["other.n"].true > 3


# --- what is refused ------------------------------------------------------------------------------


def test_a_folder_of_something_else_is_refused(spark: Any, recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to-aunt.txt").write_text("dear")
    with pytest.raises(StateError, match="holds something else than a recording"):
        record(spark, tmp_path / "letters")
    assert [p.name for p in (tmp_path / "letters").iterdir()] == ["to-aunt.txt"]
    with pytest.raises(StateError, match="holds the recording of another run"):
        record(spark, recorded)
    assert len(Recording.open(recorded).turns) == 5


def test_what_is_no_recording_is_not_audited(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        said = runner.invoke(app, ["audit", str(place)])
        assert said.exit_code == 1
        assert "there is no recording in" in said.stderr
    (tmp_path / "recording.json").write_text('{"format": 99}')
    said = runner.invoke(app, ["audit", str(tmp_path)])
    assert "has format 99, this version reads 1" in said.stderr
    (tmp_path / "recording.json").write_text('{"format": 1, "settings": {}, "functions": []}')
    assert "no turn came to its end" in runner.invoke(app, ["audit", str(tmp_path)]).stderr
    (tmp_path / "mark.json").write_text('{"turns": 3, "answers": 0}')
    (tmp_path / TURNS).write_text("")
    assert "has 0 of 3 turns" in runner.invoke(app, ["audit", str(tmp_path)]).stderr


def words(*arguments: str) -> str:
    """What a command prints, without the frames and line breaks of a narrow terminal."""
    return " ".join(runner.invoke(app, list(arguments)).stdout.replace("│", " ").split())


def test_help_says_what_it_costs_and_when_it_fails() -> None:
    said = words("run", "--help")
    assert "full read of every batch" in said
    said = words("audit", "--help")
    assert "Exit code 1" in said
    assert "--query" in said
