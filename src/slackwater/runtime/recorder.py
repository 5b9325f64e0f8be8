"""Recording a run while it goes: rows as they arrive, turns and answers, so that an audit can repeat it.

A recorder is a sink as the others: its mark is in every commit, and a run that was killed goes on recording
where it was. The rows of a batch are written before its turn, and over what a killed turn has left.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

from slackwater.errors import StateError
from slackwater.plan.catalog import Catalog
from slackwater.planners.decision import Decision
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.file_sinks import JsonLinesSink
from slackwater.runtime.journal import sync, write_json
from slackwater.runtime.json_values import to_micros
from slackwater.runtime.recording import (
    ANSWERS,
    FORMAT,
    HEADER,
    MARK,
    TURNS,
    RecordedTurn,
    aggregate_facts,
    check_recording_folder,
    function_names,
    read_header,
    read_mark,
    rows_folder,
    table_folder,
    version_file,
)
from slackwater.runtime.settings import Settings
from slackwater.runtime.state import StreamState
from slackwater.spark.execute import DataFrame, Executor
from slackwater.spark.recorded import write_rows


class Recorder:
    """Writes one recording. ``state`` is the run's own folder: only its own recording is written over."""

    kind = "recording"

    def __init__(self, directory: Path, state: Path, settings: Settings, *, fresh: bool = False) -> None:
        check_recording_folder(directory)
        self.directory = directory
        self._state = state
        self._settings = settings
        self._fresh = fresh
        self._answers = JsonLinesSink(directory / ANSWERS, overwrite=True)
        self._turns = 0
        self._lines = 0
        self._turns_length = 0
        self._pending: RecordedTurn | None = None
        self._step_lines = 0
        self._has_rows = False
        self._versions: set[int] = set()
        self._steps_before = 0
        self._functions: list[str] = []
        self._aggregates: dict[str, dict[str, object]] = {}
        self._noted: dict[str, int] = {}
        """By stream: the version of the last turn."""

    def prepare(self, steps: int, catalog: Catalog) -> None:
        """Take note of how many steps the run has behind it, and of its functions; before ``open``."""
        self._steps_before = steps
        self._functions = function_names(catalog.functions)
        self._aggregates = aggregate_facts(catalog.functions)

    # --- a sink ----------------------------------------------------------------------------------

    def open(self, resume: Mapping[str, object] | None) -> None:
        """Go on after what was marked, or begin; raises where that would spoil another recording."""
        if resume is None:
            if self._steps_before:
                raise StateError(
                    f"this run has begun without recording to {self.directory}, and an audit needs it from "
                    "the start: start over with --fresh, or go on without --record"
                )
            self._begin()
            self._answers.open(None)
        else:
            if read_header(self.directory) is None:
                raise StateError(
                    f"the run to go on from was recorded in {self.directory}, and that is no recording any "
                    "more; put it back, or start over with --fresh"
                )
            answers = resume["written"]
            assert isinstance(answers, dict)
            self._answers.open(answers)
            self._turns, self._lines = int(str(resume["turns"])), int(str(resume["answers"]))
            self._turns_length = int(str(resume["bytes"]))
            self._cut()
        self._versions = {int(p.stem) for p in (self.directory / "versions").glob("*.sql")}
        self._mark()

    def _begin(self) -> None:
        header = read_header(self.directory) if self.directory.exists() else None
        if header is not None:
            own = header.get("state") == str(self._state)
            if not own or (not self._fresh and read_mark(self.directory)[0]):
                raise StateError(
                    f"{self.directory} holds the recording of another run, with its state in "
                    f"{header.get('state')}; give --record another folder, or delete that one"
                )
            for path in self.directory.iterdir():
                if path.name != HEADER:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        (self.directory / "versions").mkdir(parents=True, exist_ok=True)
        write_json(
            self.directory / HEADER,
            {
                "format": FORMAT,
                "state": str(self._state),
                "settings": asdict(self._settings),
                "functions": self._functions,
                "aggregates": self._aggregates,
            },
        )
        (self.directory / TURNS).touch()

    def write(self, step: int, batches: Iterable[AnswerBatch]) -> None:
        """Append the answers of a step and its turn."""
        turn = self._pending
        assert turn is not None
        assert turn.step == step
        self._cut()
        self._step_lines = 0
        self._answers.write(step, self._counted(batches))
        with (self.directory / TURNS).open("ab") as file:
            file.write(replace(turn, answers=self._step_lines).to_json_line().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _counted(self, batches: Iterable[AnswerBatch]) -> Iterator[AnswerBatch]:
        for batch in batches:
            self._step_lines += len(batch)
            yield batch

    def mark(self) -> dict[str, object]:
        """Where to go on from: the turn that was written last has come to its end."""
        if self._pending is not None:
            self._turns += 1
            self._lines += self._step_lines
            self._turns_length = (self.directory / TURNS).stat().st_size
            self._pending = None
        return self._mark()

    def _mark(self) -> dict[str, object]:
        written = self._answers.mark()
        counts: dict[str, object] = {"turns": self._turns, "answers": self._lines}
        write_json(self.directory / MARK, counts)
        return {"sink": self.kind, **counts, "bytes": self._turns_length, "written": written}

    def close(self) -> None:
        """Let go of the files."""
        self._answers.close()

    def _cut(self) -> None:
        """Drop turns that were written and not marked."""
        path = self.directory / TURNS
        if not path.exists() or path.stat().st_size < self._turns_length:
            raise StateError(f"{path} is shorter than the run to go on from has left it; put it back")
        os.truncate(path, self._turns_length)

    # --- what an audit needs beside answers ------------------------------------------------------

    def take(self, decision: Decision, frame: DataFrame | None) -> None:
        """Keep the rows of a batch as they have arrived."""
        assert decision.batch is not None
        folder = rows_folder(self.directory, decision.stream, decision.batch)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        self._has_rows = frame is not None
        if frame is not None:
            write_rows(frame, folder)
            sync(folder.parent)

    def note(
        self,
        decision: Decision,
        step: int,
        state: StreamState,
        arrived: int,
        now: datetime,
        catalog: Catalog,
        executor: Executor,
    ) -> None:
        """Take note of a turn that has been carried out; its answers come next."""
        if decision.version not in self._versions:
            self._version(decision.version, catalog, executor)
        self._pending = RecordedTurn(
            step=step,
            stream=decision.stream,
            turn=decision.turn,
            kind=decision.kind,
            version=decision.version,
            batch=decision.batch,
            offsets=decision.offsets,
            watermark=decision.watermark,
            closed=state.watermark(decision.stream),
            latest=state.latest,
            arrived=arrived,
            at=to_micros(now),
            has_rows=decision.kind == "batch" and self._has_rows,
            level=decision.level,
            share=decision.share,
            rates=decision.thresholds,
            suspended=decision.suspended,
            since=dict(state.since) if self._noted.get(decision.stream) != decision.version else {},
        )
        self._noted[decision.stream] = decision.version

    def _version(self, number: int, catalog: Catalog, executor: Executor) -> None:
        for table in catalog.tables.values():
            folder = table_folder(self.directory, table.name)
            if not folder.exists():
                folder.parent.mkdir(exist_ok=True)
                write_rows(executor.stored_table(table), folder)
        path = version_file(self.directory, number)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(catalog.sql())
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
        self._versions.add(number)
