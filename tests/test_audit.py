"""Recording a run and auditing it: coverage, exact answers, gaps, kills, tampering, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from slackwater.cli import app
from slackwater.errors import StateError
from slackwater.language.contracts import Contract, Error, Exact, Subset
from slackwater.planners.ruling import FixedRates
from slackwater.runtime.answers import Answer
from slackwater.runtime.auditing import Promise, compare, longest_gap
from slackwater.runtime.clocks import Clocks
from slackwater.runtime.recording import ANSWERS, TURNS, Recording
from slackwater.runtime.testing import Killed, abandon, killer, scripted_session, take_turns
from slackwater.statistics.coverage import Coverage
from slackwater.terminal.audit import audit

ORIGIN = 1_700_000_000_000_000
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
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


# --- comparing, without Spark ---------------------------------------------------------------------


def answer(place: int, value: Any, *, how: Any = "exact", half: float = 0.0, **more: Any) -> Answer:
    fields: dict[str, Any] = {
        "query": "q",
        "column": "n",
        "window_start": EPOCH + timedelta(seconds=place),
        "window_end": EPOCH + timedelta(seconds=place + 1),
        "value": value,
        "low": None if value is None else value - half,
        "high": None if value is None else value + half,
        "confidence": 1.0 if how == "exact" else 0.95,
        "how": how,
        "rate": 1.0,
        "met": True,
        "emitted_at": EPOCH,
    }
    return Answer(**{**fields, **more})


def report_of(found: list[Answer], true: list[Answer], contract: Contract, overlap: float = 1.0) -> Any:
    report = compare(found, true, {"q": Promise(contract, overlap)})
    return report, report.columns[0]


def test_intervals_that_hold_too_seldom_are_told() -> None:
    truth = [answer(i, 100) for i in range(200)]
    good = [answer(i, 100 if i % 20 else 90, how="sampled", half=5) for i in range(200)]
    report, column = report_of(good, truth, Error(0.05))
    assert report.passed
    assert column.coverage == Coverage(190, 200, pytest.approx(0.95))
    assert (column.errors.median, column.errors.worst, column.within) == (0.0, 0.1, 0.95)
    bad = [answer(i, 100 if i % 8 else 90, how="sampled", half=5) for i in range(200)]
    report, column = report_of(bad, truth, Error(0.05))
    assert not report.passed
    assert "87.5% of 200 intervals hold the truth, 95% is claimed" in report.problems[0]
    # windows that share nine of ten rows say no more than a tenth as many
    assert report_of(bad, truth, Error(0.05), overlap=10)[0].passed


def test_what_is_exact_must_be_there_and_be_true() -> None:
    truth = [answer(i, i + 0.1) for i in range(5)]
    assert report_of([answer(i, i + 0.1 + 1e-13) for i in range(5)], truth, Exact())[0].passed
    report, column = report_of([answer(0, 0.1), answer(1, 1.2), answer(9, 1.0)], truth, Exact())
    assert (column.differing, column.missing, column.compared) == (2, 3, 2)
    assert len(report.problems) == 2
    assert "3 answers are missing, and the contract is EXACT" in report.problems[1]


def test_a_subset_may_miss_answers_as_far_as_its_gap() -> None:
    truth = [answer(i, i) for i in range(10)]
    found = [answer(i, i, how="subset") for i in (0, 3, 4, 5, 7, 8, 9)]
    report, column = report_of(found, truth, Subset(2))
    assert report.passed
    assert (column.missing, column.gap, column.gap_allowed) == (3, 2, 2)
    report, _ = report_of(found, truth, Subset(1))
    assert report.problems == ("q.n: 2 answers in a row are missing, 1 are allowed",)
    report, _ = report_of([answer(0, 7, how="subset")], truth, Subset(20))
    assert len(report.problems) == 1


def test_gaps_are_those_of_windows_in_order() -> None:
    assert longest_gap([]) == 0
    moments = [EPOCH + timedelta(seconds=i) for i in range(6)]
    assert longest_gap(zip(moments[::-1], [True, False, False, True, False, True], strict=True)) == 2


def test_rows_are_compared_as_a_multiset() -> None:
    def row(size: int, how: Any = "sampled") -> Answer:
        return answer(
            0, None, how=how, column="*", window_start=None, window_end=None, at=EPOCH, keys=(("s", size),)
        )

    truth = [row(1, "exact"), row(1, "exact"), row(2, "exact")]
    report, column = report_of([row(1), row(1)], truth, Error(0.05))
    assert report.passed
    assert (column.missing, column.coverage) == (1, None)
    report, column = report_of([row(2), row(2)], truth, Error(0.05))
    assert (column.differing, column.missing) == (1, 2)
    assert "1 rows are none of the true ones" in report.problems[0]


def test_suspended_windows_speak_for_all_their_groups() -> None:
    truth = [answer(i, i, keys=(("k", k),)) for i in range(3) for k in "ab"]
    found = [answer(i, i, keys=(("k", k),)) for i in range(2) for k in "ab"]
    found.append(answer(2, None, how="suspended", keys=(("k", None),), met=False))
    report, column = report_of(found, truth, Exact())
    assert report.passed
    assert (column.suspended, column.missing, column.met) == (2, 0, 0.8)


def test_an_estimate_of_nothing_is_extra_and_not_wrong() -> None:
    report, column = report_of([answer(0, 0.0, how="sampled", half=3)], [], Error(0.05))
    assert report.passed
    assert (column.extra, column.differing) == (1, 0)


def test_an_answer_that_says_that_its_contract_was_kept_is_held_to_it() -> None:
    truth = [answer(i, 100) for i in range(200)]
    # the intervals hold, but say of wide ones that they are within 5 %
    wide = [answer(i, 100 if i % 3 else 92, how="sampled", half=20) for i in range(200)]
    report, column = report_of(wide, truth, Error(0.05))
    assert column.coverage.share == 1.0
    assert len(report.problems) == 1
    assert "of 200 answers that say that ERROR 5% was kept, it was by 66.5%" in report.problems[0]
    honest = [replace(one, met=False) for one in wide]
    report, column = report_of(honest, truth, Error(0.05))
    assert report.passed
    assert column.kept is None


def test_rows_of_a_time_for_which_rows_were_suspended_are_not_missing() -> None:
    def row(second: int, **more: Any) -> Answer:
        at = EPOCH + timedelta(seconds=second)
        return answer(0, None, **{"column": "*", "window_start": None, "window_end": None, "at": at, **more})

    truth = [row(second) for second in range(6)]
    silence = row(2, how="suspended", at=None, met=False)
    silence = replace(
        silence, window_start=EPOCH + timedelta(seconds=2), window_end=EPOCH + timedelta(seconds=5)
    )
    _, column = report_of([row(0), silence], truth, Error(0.05))
    assert (column.suspended, column.missing) == (3, 2)
