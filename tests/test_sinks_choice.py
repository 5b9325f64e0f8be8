"""Answers handed out one by one, and which sink a name stands for."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slackwater.errors import SinkError
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.json_values import to_micros
from slackwater.runtime.sinks import (
    IteratorSink,
    JsonLinesSink,
    ParquetSink,
    StdoutJsonSink,
    sink_for,
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


class TestIterator:
    def test_a_subscriber_gets_all_answers_and_the_end(self) -> None:
        sink = IteratorSink(capacity=4)
        answers = sink.answers()

        def write() -> None:
            sink.write(1, step_batches(1))
            sink.close()

        writer = threading.Thread(target=write)
        writer.start()
        got = [(answer.query, answer.value) for answer in answers]
        writer.join()
        assert got == [(a.query, a.value) for b in step_batches(1) for a in b.answers()]

    def test_a_subscriber_to_one_query_does_not_take_from_the_others(self) -> None:
        sink = IteratorSink()
        jumps, everything = sink.answers("jumps"), sink.answers()
        sink.write(1, step_batches(1))
        sink.close()
        assert [answer.query for answer in jumps] == ["jumps", "jumps"]
        assert sum(1 for _ in everything) == 22

    def test_without_a_subscriber_only_the_latest_are_kept(self) -> None:
        sink = IteratorSink(capacity=5)
        for step in range(10):
            sink.write(step, [batch(step)])
        sink.close()
        assert [answer.value for answer in sink.answers()] == [801, 802, 900, 901, 902]

    def test_write_waits_for_a_slow_reader(self) -> None:
        sink = IteratorSink(capacity=3)
        answers = sink.answers()
        sink.write(1, [batch(1)])
        writer = threading.Thread(target=sink.write, args=(2, [batch(2)]))
        writer.start()
        writer.join(0.1)
        assert writer.is_alive()
        assert next(answers).value == 100
        writer.join(10)
        assert not writer.is_alive()

    @pytest.mark.parametrize("leave", ["close", "forget", "close the sink"])
    def test_write_does_not_wait_for_a_reader_that_left(self, leave: str) -> None:
        sink = IteratorSink(capacity=3)
        readers = [sink.answers()]
        sink.write(1, [batch(1)])
        writer = threading.Thread(target=sink.write, args=(2, [batch(2)]))
        writer.start()
        writer.join(0.05)
        if leave == "close":
            readers[0].close()
            assert list(readers[0]) == []
        elif leave == "forget":
            readers.clear()
        else:
            sink.close()
        writer.join(10)
        assert not writer.is_alive()


class TestChoice:
    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("a.jsonl", JsonLinesSink),
            ("a.json", JsonLinesSink),
            ("A.NDJSON", JsonLinesSink),
            ("a.parquet", ParquetSink),
            ("answers", ParquetSink),
            ("new/answers.v1/", ParquetSink),
            (".", ParquetSink),
        ],
    )
    def test_by_suffix(self, tmp_path: Path, name: str, kind: type) -> None:
        assert type(sink_for(f"{tmp_path}/{name}")) is kind

    def test_standard_output(self) -> None:
        assert type(sink_for("-")) is StdoutJsonSink

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("a.csv", r"cannot tell from '.csv' .* Use .jsonl, .json, .ndjson for JSON lines"),
            ("file", "file is a file, not a directory"),
            ("file/a.jsonl", "file is a file, not a directory"),
        ],
    )
    def test_what_cannot_be_written(self, tmp_path: Path, name: str, message: str) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(SinkError, match=message):
            sink_for(str(tmp_path / name))

    @pytest.mark.parametrize("target", ["", "s3://bucket/answers"])
    def test_what_is_no_local_path(self, target: str) -> None:
        with pytest.raises(SinkError, match="name a local path"):
            sink_for(target)

    def test_a_directory_without_permission(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # asked of the system, not set on the directory: root may write anywhere
        monkeypatch.setattr(os, "access", lambda path, mode: False)
        with pytest.raises(SinkError, match="may not be written to"):
            sink_for(str(tmp_path / "a.jsonl"))
