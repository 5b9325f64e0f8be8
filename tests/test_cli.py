"""The command line as a user meets it: what it says, where it says it, and what a kill leaves behind."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

from slackwater.cli import app
from slackwater.errors import StateError
from slackwater.reference.evaluate import evaluate
from slackwater.runtime.journal import FORMAT
from slackwater.service.frame_log import FrameLog
from slackwater.service.models import Frame
from slackwater.terminal.run import run_file
from waiting import wait_for

PATIENCE_S = 240.0
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = [
    {"ts": EPOCH + timedelta(milliseconds=200 * i), "host": "abc"[i % 3], "size": (37 * i) % 101}
    for i in range(500)
]
STREAM = """-- packets of a small office
CREATE STREAM p (ts TIMESTAMP, host STRING, size INT)
  USING replay OPTIONS (path 'trace.parquet', speed 'max') TIMESTAMP BY ts;
"""
QUERIES = """
CREATE QUERY sliding AS SELECT COUNT(*) AS n, SUM(size) AS s FROM p GROUP BY window(ts, '20 seconds', '10 seconds');
CREATE QUERY middle AS SELECT host, MEDIAN(size) AS m FROM p GROUP BY window(ts, '30 seconds'), host;
CREATE QUERY tuple AS SELECT MAX(size) AS m FROM p WHERE size > 50 GROUP BY tuples(40, 30);
"""
runner = CliRunner()


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a file of SQL and the trace it replays."""
    pq.write_table(pa.Table.from_pylist(ROWS[::-1]), tmp_path / "trace.parquet")
    (tmp_path / "office.sql").write_text(STREAM + QUERIES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(*arguments: str) -> str:
    """What a command that must fail says on stderr."""
    result = runner.invoke(app, list(arguments))
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    return result.stderr.removeprefix("error: ")


# --- check and explain -----------------------------------------------------------------------------


def test_check_counts_what_a_file_declares_and_shows_contracts(spark: Any, office: Path) -> None:
    result = runner.invoke(app, ["check", "office.sql"])
    assert result.exit_code == 0
    first, *listed = result.stdout.splitlines()
    assert first == "office.sql: 1 stream, 0 tables, 3 queries, all in order"
    assert [line.split(":")[0] for line in listed] == ["  sliding", "  middle", "  tuple"]
    assert listed[0] == "  sliding: ERROR 5%"
    assert listed[2] == "  tuple: EXACT"


def test_a_mistake_is_shown_where_it_stands(office: Path) -> None:
    (office / "wrong.sql").write_text(
        STREAM + "CREATE QUERY q AS\n  SELECT SUM(sice) AS s FROM p GROUP BY window(ts, '1 second');\n"
    )
    for command in ("check", "explain", "run"):
        lines = told(command, "wrong.sql").splitlines()
        assert lines[0].startswith("wrong.sql: line 5, column 14: ")
        assert "sice" in lines[0]
        assert lines[1].strip().startswith("SELECT SUM(sice)")
        assert lines[2].index("^") == lines[1].index("sice")
        assert "hint: did you mean size?" in lines
    assert not (office / ".slackwater").exists(), "told before anything is written"


def test_check_asks_spark_and_points_at_what_it_refuses(spark: Any, office: Path) -> None:
    (office / "wrong.sql").write_text(STREAM + "CREATE QUERY q AS\n  SELECT size, foo(size) AS f FROM p;\n")
    quick = runner.invoke(app, ["check", "wrong.sql", "--quick"])
    assert quick.exit_code == 0, "whether there is such a function only Spark can tell"
    lines = told("check", "wrong.sql").splitlines()
    assert lines[0].startswith("wrong.sql: line 5, column 16: Spark refuses q: ")
    assert lines[2].index("^") == lines[1].index("foo")
    assert "pos " not in lines[0]


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_table_whose_file_is_missing_is_told_with_its_place(
    spark: Any, office: Path, sigterm: None, command: str
) -> None:
    text = (
        STREAM + "CREATE TABLE owners (host STRING, owner STRING)\n  USING csv OPTIONS (path 'owners.csv');\n"
    )
    text += "CREATE QUERY q AS SELECT owner, size FROM p JOIN owners USING (host);\n"
    (office / "joined.sql").write_text(text)
    first, line, caret, hint = told(command, "joined.sql").splitlines()
    assert first.startswith("joined.sql: line 5, column 27: table owners: there is nothing at 'owners.csv'")
    assert first.endswith(f"(looked from {office})")
    assert caret.index("^") == line.index("'owners.csv'")
    assert hint.startswith("hint: put its file there, or correct the path")
    (office / "owners.csv").write_text("a,ann\nb,bob\nc,cid\n")
    if command == "check":
        assert "all in order" in runner.invoke(app, ["check", "joined.sql"]).stdout
    else:
        # found from where the command runs, wherever Spark was started
        run = runner.invoke(app, ["run", "joined.sql", "--answers", "out.jsonl"])
        assert run.exit_code == 0, run.stderr
        assert len((office / "out.jsonl").read_text().splitlines()) == len(ROWS)


def test_a_contract_that_cannot_be_honoured_is_refused_with_the_one_that_can(office: Path) -> None:
    (office / "wrong.sql").write_text(
        STREAM
        + "CREATE QUERY q AS SELECT MIN(size) AS m FROM p GROUP BY window(ts, '1 second') WITH ERROR 1%;"
    )
    message = told("check", "wrong.sql")
    assert "MIN" in message.upper()
    assert "line 4" in message
    assert "EXACT" in message or "SUBSET" in message


@pytest.mark.parametrize("format_", ["text", "json", "dot", "svg"])
def test_explain_draws_the_plan_in_every_form(office: Path, format_: str) -> None:
    result = runner.invoke(app, ["explain", "office.sql", "--format", format_])
    assert result.exit_code == 0
    starts = {"text": "stream p", "json": "{", "dot": "digraph", "svg": "<svg"}
    assert result.stdout.lstrip().startswith(starts[format_])
    for name in ("sliding", "middle", "tuple"):
        assert name in result.stdout
    if format_ == "json":
        json.loads(result.stdout)


def test_explain_shows_one_query_and_knows_no_other(office: Path) -> None:
    one = runner.invoke(app, ["explain", "office.sql", "middle"])
    assert one.exit_code == 0
    assert "middle" in one.stdout
    assert "sliding" not in one.stdout
    assert "p, sliding, middle, tuple" in told("explain", "office.sql", "median")
    unknown = runner.invoke(app, ["explain", "office.sql", "--format", "yaml"])
    assert unknown.exit_code == 2
    assert "yaml" in unknown.stderr


# --- what the arguments may be ---------------------------------------------------------------------


def test_a_file_that_is_not_there_or_no_text(office: Path) -> None:
    assert told("check", "nope.sql") == "cannot read nope.sql: No such file or directory\n"
    assert "Is a directory" in told("run", ".")
    assert "expected SQL as UTF-8 text" in told("check", "trace.parquet")


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        ("trigger_ms", "--set trigger_ms: expected key=value"),
        ("trigger_ms=soon", "--set trigger_ms: expected a whole number above 0, got 'soon'"),
        ("rows_per_batch=0", "--set rows_per_batch: expected a whole number above 0, got '0'"),
        ("driver_rows=-1", "--set driver_rows: expected a whole number above 0, got '-1'"),
        ("margin=much", "--set margin: expected a number such as 0.01, got 'much'"),
        ("deferral=faster", "setting deferral: expected all, paper, or some of covariance"),
        ("margin=-1", "setting margin: expected a number of at least 0, such as 0.01, got -1.0"),
        (
            "triger_ms=5",
            "there is no such setting; there are deferral, deferral_estimate_ticks, deferral_items",
        ),
    ],
)
def test_a_setting_that_cannot_be(office: Path, pair: str, expected: str) -> None:
    assert expected in told("run", "office.sql", "--set", pair)


def test_a_length_of_time_that_is_none(office: Path) -> None:
    assert "--for: expected a length of time such as '10 seconds', got 'soon'" in told(
        "run", "office.sql", "--for", "soon"
    )


def test_functions_come_from_python_files(spark: Any, office: Path) -> None:
    query = (
        "CREATE QUERY q AS SELECT doubled(size) AS d FROM p WHERE odd(size) GROUP BY window(ts, '1 second');"
    )
    (office / "mine.sql").write_text(STREAM + query)
    assert "doubled" in told("check", "mine.sql")
    (office / "mine.py").write_text(
        "from slackwater.language.aggregates import UserAggregate\n"
        "def register(session):\n"
        "    session.function('odd', lambda n: n % 2 == 1, 'BOOLEAN')\n"
        "    session.aggregate('doubled', UserAggregate(init=int, incr=lambda s, v: s + 2 * v, final=int,"
        " merge=lambda a, b: a + b, returns='BIGINT'))\n"
    )
    result = runner.invoke(app, ["check", "mine.sql", "--import", "mine.py"])
    assert result.exit_code == 0, result.stderr
    (office / "empty.py").write_text("odd = 1\n")
    assert "empty.py: expected a function register(session) in it" in told(
        "check", "mine.sql", "--import", "empty.py"
    )
    (office / "broken.py").write_text("x = 1\nraise ValueError('no such thing')\n")
    broken = told("check", "mine.sql", "--import", "broken.py")
    assert "--import broken.py, line 2: ValueError: no such thing" in broken
    assert "expected a Python file" in told("check", "mine.sql", "--import", "nope.py")
    assert "expected a Python file" in told("check", "mine.sql", "--import", "office.sql")


@pytest.mark.parametrize("fresh", [True, False])
def test_a_folder_that_is_no_state_is_never_deleted(office: Path, fresh: bool) -> None:
    (office / "thesis").mkdir()
    (office / "thesis" / "final.tex").write_text("years of work")
    with pytest.raises(StateError, match=r"thesis is there and is no state of a run"):
        run_file(
            "", file="x.sql", root=office / "thesis", seconds=None, answers=None, settings={},
            spark_settings={}, fresh=fresh, register=lambda session: None, console=Console(),
        )  # fmt: skip
    assert (office / "thesis" / "final.tex").read_text() == "years of work"


# --- real runs -------------------------------------------------------------------------------------


@pytest.fixture
def sigterm() -> Iterator[None]:
    """``run`` sets a handler for SIGTERM; here it runs inside the tests."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


class Command:
    """``slackwater run``, as a process of its own that takes all it started with it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        # Spark's JVM is a child of the command: a group of its own lets both be ended
        self.process = subprocess.Popen(
            [sys.executable, "-m", "slackwater.cli", "run", *arguments],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=PATIENCE_S)

    def finish(self) -> tuple[str, str]:
        """Wait until it ends well; its stdout and stderr."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, err
        return out, err

    def kill_when(self, condition: Callable[[], bool]) -> None:
        def alive() -> None:
            assert self.process.poll() is None, f"it ended before it could be killed: {self.process.stderr}"

        wait_for(condition, alive, seconds=PATIENCE_S)
        self.process.kill()
        self.process.wait(PATIENCE_S)


def answers_in(text: str) -> list[str]:
    """Answers, each as a line without what no two runs have alike."""
    listed = [json.loads(line) for line in text.splitlines()]
    for answer in listed:
        del answer["emitted_at"]
    return sorted(json.dumps(answer, sort_keys=True) for answer in listed)


def commits(state: Path) -> list[Path]:
    return sorted((state / "commits").glob("*.json"))


SMALL = ("--set", "rows_per_batch=80")


def test_answers_can_be_piped(office: Path) -> None:
    with Command(office, "office.sql", "--answers", "-", *SMALL) as command:
        out, err = command.finish()
    found = [json.loads(line) for line in out.splitlines()]
    expected = evaluate(STREAM + QUERIES, {"p": [ROWS]})
    assert len(found) == len(expected), "nothing but answers is on stdout"
    assert "sliding" in err, "the summary is for people, on stderr"
    for query, column in {(a.query, a.column) for a in expected}:
        values = [a["value"] for a in found if (a["query"], a["column"]) == (query, column)]
        assert sorted(values) == sorted(a.value for a in expected if (a.query, a.column) == (query, column))
    last = json.loads(commits(office / ".slackwater" / "office")[-1].read_text())["streams"]["p"]
    assert last["ended"]
    assert last["arrived"] == len(ROWS)
    assert last["batch"] > 3, "small batches were asked for"


def test_a_killed_run_goes_on_and_a_finished_one_starts_over(spark: Any, office: Path, sigterm: None) -> None:
    state, out = office / "mine", office / "out.jsonl"
    arguments = ("office.sql", "--answers", "out.jsonl", "--state", "mine", *SMALL)
    with Command(office, *arguments) as command:
        command.kill_when(lambda: len(commits(state)) > 2 and out.stat().st_size > 0)
    assert not (state / "finished").exists()
    assert not json.loads(commits(state)[-1].read_text())["streams"]["p"]["ended"], "killed on its way"
    # only the kill needs a process of its own
    said = runner.invoke(app, ["run", *arguments])
    assert said.exit_code == 0, said.output
    assert "going on from the state in mine" in said.stdout
    resumed = answers_in(out.read_text())
    said = runner.invoke(app, ["run", *arguments])
    assert said.exit_code == 0, said.output
    assert "going on" not in said.stdout, "what has ended starts over"
    assert answers_in(out.read_text()) == resumed, "an uninterrupted run gives the same answers"
    assert len(resumed) == len(evaluate(STREAM + QUERIES, {"p": [ROWS]}))


def test_a_stream_that_cannot_be_read_ends_the_run_with_one_error(
    spark: Any, office: Path, sigterm: None
) -> None:
    (office / "trace.parquet").unlink()
    result = runner.invoke(
        app, ["run", "office.sql", "--answers", "out.jsonl", "--state", str(office / "mine")]
    )
    assert result.exit_code == 1
    assert "error: stream p: there is nothing at 'trace.parquet'" in result.stderr
    assert "Traceback" not in result.output
    assert not (office / "out.jsonl").exists()


def test_starting_over_spares_the_answers_of_another_run(spark: Any, office: Path, sigterm: None) -> None:
    """A finished run may write over what it wrote, and not over a file that it is told of for the first time."""
    (office / "state").mkdir()
    (office / "state" / "format.json").write_text(json.dumps({"format": FORMAT}))
    (office / "state" / "finished").write_text("out.jsonl")
    (office / "other.jsonl").write_text("precious\n")
    result = runner.invoke(
        app, ["run", "office.sql", "--answers", "other.jsonl", "--state", str(office / "state")]
    )
    assert result.exit_code == 1
    assert "other.jsonl already holds 9 bytes" in result.stderr
    assert (office / "other.jsonl").read_text() == "precious\n"


def test_what_could_not_be_recorded_is_told_at_the_end(
    spark: Any, office: Path, sigterm: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full ends no run, but what is looked at later has not all of it."""

    lines = []

    def full(log: FrameLog, line: bytes) -> None:
        lines.append(line)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(FrameLog, "_write", full)
    arguments = ["run", "office.sql", "--no-serve", "--answers", "out.jsonl", "--record", "seen"]
    result = runner.invoke(app, [*arguments, "--state", str(office / "state")])
    assert result.exit_code == 0, result.output
    assert "warning: frames cannot be written to seen/frames.jsonl: No space left on device" in result.stderr
    assert {Frame.model_validate_json(line).name for line in lines} == {"office.sql"}
    assert (office / "out.jsonl").read_text()
