"""Sinks: durable ones hold each answer once through any crash, the others are bounded and readable."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from slackwater.errors import SinkError
from slackwater.runtime.answer_batch import ANSWER_SCHEMA, AnswerBatch
from slackwater.runtime.json_values import to_micros
from slackwater.runtime.sinks import (
    JsonLinesSink,
    ParquetSink,
    Sink,
    StdoutJsonSink,
    TerminalSink,
)

NOON = datetime(2024, 5, 1, 12, 0, 5, tzinfo=UTC)


def batch(step: int, size: int = 3, *, query: str = "web_bytes", **changes: Any) -> AnswerBatch:
    starts = to_micros(NOON) + np.arange(size, dtype=np.int64) * 1_000_000
    fields: dict[str, Any] = {
        "query": query,
        "column": "bytes",
        "window_start": starts,
        "window_end": starts + 60_000_000,
        "value": pa.array(range(100 * step, 100 * step + size), pa.int64()),
        "confidence": 0.99,
        "how": "exact",
        "emitted_at": NOON,
    }
    return AnswerBatch(**(fields | changes))


def step_batches(step: int) -> list[AnswerBatch]:
    return [batch(step, 20), batch(step, 2, query="jumps"), batch(step, 0)]


class Crash(Exception):
    """Stands for the end of the process in the middle of a step."""


def crashing(batches: Iterable[AnswerBatch]) -> Iterator[AnswerBatch]:
    yield next(iter(batches))
    raise Crash


def lines_in(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def rows_in(directory: Path) -> list[Any]:
    files = sorted(directory.iterdir())
    assert all(file.suffix == ".parquet" for file in files)
    return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]


# every durable sink, made on a path, with the function that reads what is in it
DURABLE: dict[str, tuple[Callable[..., Sink], Callable[[Path], list[Any]]]] = {
    "json lines": (JsonLinesSink, lines_in),
    "parquet": (ParquetSink, rows_in),
}


@pytest.fixture(params=DURABLE)
def durable(request: pytest.FixtureRequest) -> tuple[Callable[..., Sink], Callable[[Path], list[Any]]]:
    return DURABLE[request.param]


def uninterrupted(make: Callable[..., Sink], path: Path) -> None:
    sink = make(path)
    sink.open(None)
    for step in (1, 2, 3):
        sink.write(step, step_batches(step))
        sink.mark()
    sink.close()


class TestDurable:
    """What every durable sink owes."""

    @pytest.mark.parametrize(
        "crash", ["before", "in the step", "process dies in the step", "before the mark"]
    )
    def test_a_resumed_run_leaves_what_an_uninterrupted_one_does(
        self, durable: Any, tmp_path: Path, crash: str
    ) -> None:
        make, read = durable
        uninterrupted(make, tmp_path / "whole")
        sink = make(tmp_path / "torn")
        sink.open(None)
        for step in (1, 2):
            sink.write(step, step_batches(step))
            mark = json.loads(json.dumps(sink.mark()))
        if crash == "in the step":
            with pytest.raises(Crash):
                sink.write(3, crashing(step_batches(3)))
        elif crash == "process dies in the step":
            _leave_torn_write(tmp_path / "torn", step=3)
        elif crash == "before the mark":
            sink.write(3, step_batches(3))
            sink.write(4, step_batches(4))
        sink.close()

        again = make(tmp_path / "torn")
        again.open(mark)
        again.write(3, step_batches(3))
        again.mark()
        again.close()
        assert read(tmp_path / "torn") == read(tmp_path / "whole")

    def test_a_mark_taken_at_the_start_survives_a_crash_in_the_first_step(
        self, durable: Any, tmp_path: Path
    ) -> None:
        make, read = durable
        sink = make(tmp_path / "torn")
        sink.open(None)
        mark = sink.mark()
        sink.write(1, step_batches(1))
        sink.close()
        again = make(tmp_path / "torn")
        again.open(mark)
        again.close()
        assert read(tmp_path / "torn") == []

    def test_a_step_that_failed_can_be_written_again(self, durable: Any, tmp_path: Path) -> None:
        make, read = durable
        uninterrupted(make, tmp_path / "whole")
        sink = make(tmp_path / "retried")
        sink.open(None)
        for step in (1, 2, 3):
            with pytest.raises(Crash):
                sink.write(step, crashing(step_batches(step)))
            sink.write(step, step_batches(step)[:1])
            sink.write(step, step_batches(step))
            sink.mark()
        sink.close()
        assert read(tmp_path / "retried") == read(tmp_path / "whole")

    def test_marked_steps_are_not_written_again(self, durable: Any, tmp_path: Path) -> None:
        make, _ = durable
        sink = make(tmp_path / "out")
        sink.open(None)
        sink.write(5, step_batches(5))
        sink.mark()
        for step in (4, 5):
            with pytest.raises(SinkError, match=f"up to step 5, step {step} is not after it"):
                sink.write(step, step_batches(step))
        sink.close()

    def test_a_step_without_answers_leaves_nothing(self, durable: Any, tmp_path: Path) -> None:
        make, read = durable
        sink = make(tmp_path / "out")
        sink.open(None)
        sink.write(1, [])
        sink.write(2, [batch(2, 0)])
        assert sink.mark()["step"] == 2
        sink.close()
        assert read(tmp_path / "out") == []

    def test_answers_of_an_earlier_run_are_kept_unless_overwritten(
        self, durable: Any, tmp_path: Path
    ) -> None:
        make, read = durable
        uninterrupted(make, tmp_path / "out")
        before = read(tmp_path / "out")
        with pytest.raises(SinkError, match="Choose another path, or pass --fresh"):
            make(tmp_path / "out").open(None)
        assert read(tmp_path / "out") == before
        sink = make(tmp_path / "out", overwrite=True)
        sink.open(None)
        sink.write(1, step_batches(1))
        sink.close()
        assert len(read(tmp_path / "out")) == 22

    def test_resume_needs_what_was_written(self, durable: Any, tmp_path: Path) -> None:
        make, _ = durable
        sink = make(tmp_path / "out")
        sink.open(None)
        sink.write(1, step_batches(1))
        mark = sink.mark()
        sink.close()
        with pytest.raises(SinkError, match=r"is missing, but the run to go on from has written [\d,]+ "):
            make(tmp_path / "elsewhere").open(mark)

    def test_resume_needs_a_mark_of_its_own_kind(self, durable: Any, tmp_path: Path) -> None:
        make, _ = durable
        with pytest.raises(SinkError, match="wrote its answers as standard output"):
            make(tmp_path / "out").open(StdoutJsonSink().mark())
        with pytest.raises(SinkError, match="cannot be read"):
            make(tmp_path / "out").open({"sink": make.kind, "step": "1"})

    def test_a_place_that_cannot_be_written_is_a_sink_error(self, durable: Any, tmp_path: Path) -> None:
        make, _ = durable
        (tmp_path / "file").write_text("")
        with pytest.raises(SinkError, match="cannot write answers to"):
            make(tmp_path / "file" / "out").open(None)


def _leave_torn_write(path: Path, *, step: int) -> None:
    """What a killed process may leave of a step: half a line, or a temporary file and a complete one."""
    if path.is_dir():
        (path / f".answers-{step:012}.parquet.tmp").write_bytes(b"PAR1 torn")
        pq.write_table(batch(step + 1).to_table(), path / f"answers-{step + 1:012}.parquet")
    else:
        with path.open("ab") as file:
            file.write(batch(step).json_lines()[:-40])


def test_json_lines_shorter_than_journalled_are_refused(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "a.jsonl")
    sink.open(None)
    sink.write(1, [batch(1)])
    mark = sink.mark()
    sink.close()
    os.truncate(tmp_path / "a.jsonl", 10)
    with pytest.raises(SinkError, match=r"has 10 bytes, but .* has written \d+ bytes"):
        JsonLinesSink(tmp_path / "a.jsonl").open(mark)
    assert (tmp_path / "a.jsonl").stat().st_size == 10


def test_json_lines_are_on_disk_when_marked(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "new" / "a.jsonl")
    sink.open(None)
    sink.write(7, [batch(7)])
    written = (tmp_path / "new" / "a.jsonl").stat().st_size
    assert sink.mark() == {"sink": "json lines", "step": 7, "bytes": written}
    sink.close()


def test_parquet_files_are_named_by_step_and_have_the_answer_schema(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    sink.open(None)
    sink.write(1, (batch(1, 10, query=f"q{i}") for i in range(100)))
    (file,) = (tmp_path / "out").iterdir()
    assert file.name == "answers-000000000001.parquet"
    stored = pq.ParquetFile(file)
    assert stored.schema_arrow.equals(ANSWER_SCHEMA)
    assert (stored.metadata.num_rows, stored.num_row_groups) == (1000, 1)


def test_parquet_leaves_strangers_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    sink = ParquetSink(tmp_path, overwrite=True)
    sink.open(None)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_standard_output_gets_json_lines() -> None:
    stream = io.BytesIO()
    sink = StdoutJsonSink(stream)
    sink.open(None)
    sink.write(1, step_batches(1))
    sink.close()
    assert len(stream.getvalue().splitlines()) == 22


def test_a_closed_pipe_is_a_sink_error() -> None:
    class Closed(io.BytesIO):
        def flush(self) -> None:
            raise BrokenPipeError

    with pytest.raises(SinkError, match="has gone away"):
        StdoutJsonSink(Closed()).write(1, [batch(1)])


def test_terminal_lines() -> None:
    out = io.StringIO()
    sink = TerminalSink(Console(file=out, width=80))
    first = batch(1, 1, value=pa.array([1234567]))
    sampled = batch(
        1,
        2,
        query="hosts",
        keys={"host": pa.array(["a", "b\x1b[2J"])},
        value=pa.array([5120.44, 17.5]),
        low=pa.array([5000.44, 16.0]),
        high=pa.array([5240.44, 20.0]),
        how="sampled",
        rate=0.125,
        met=np.array([True, False]),
    )
    at = batch(1, 1, query="worth", window_start=None, window_end=None, at=np.array([to_micros(NOON)]))
    sink.write(1, [first, sampled, at])
    assert out.getvalue().splitlines() == [
        "12:00:05–12:01:05  web_bytes  bytes = 1,234,567  exact",
        "12:00:05–12:01:05  hosts      host=a  bytes = 5,120 ± 120 (99%)  sampled 12.5%",
        "12:00:06–12:01:06  hosts      host=b\\x1b[2J  bytes = 17.5 [16.0, 20.0] (99%)  "
        "sampled 12.5%, contract not met",
        "12:00:05           worth      bytes = 100  exact",
    ]
