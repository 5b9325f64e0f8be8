"""Durable sinks: files that hold each answer once, however often the run is killed and resumed."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from io import FileIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.errors import SinkError
from slackwater.runtime.answer_batch import ANSWER_SCHEMA, AnswerBatch
from slackwater.runtime.journal import sync

_NO_STEP = -1
_ROWS_PER_GROUP = 50_000
_PARQUET_NAME = re.compile(r"answers-(\d{12})\.parquet")
# hidden from the readers of a directory, which skip names with a leading dot
_TEMPORARY_NAME = re.compile(r"\.answers-\d{12}\.parquet\.tmp")


class JsonLinesSink:
    """One file of JSON lines, cut back to its journalled length on a restart.

    A step written again before it is marked replaces its first writing.
    """

    kind = "json lines"

    def __init__(self, path: str | Path, *, overwrite: bool = False) -> None:
        self.path = Path(path)
        self._overwrite = overwrite
        self._file: FileIO | None = None
        self._length = 0
        self._steps = _Steps(self.path)
        self._step_start = 0

    def check(self, resume: Mapping[str, object] | None) -> None:
        """Raise where `open` would for what the file holds; nothing is touched."""
        _, length = _journalled(resume, self.kind, self.path, "bytes")
        found = self._found()
        if resume is None and found and not self._overwrite:
            raise SinkError(
                f"{self.path} already holds {found:,} bytes. Choose another path, or pass --fresh "
                f"to overwrite it."
            )
        if (found or 0) < length:
            state = "is missing" if found is None else f"has {found:,} bytes"
            raise SinkError(
                f"{self.path} {state}, but the run to go on from has written {length:,} bytes to it. "
                f"Put the file back, or pass --fresh to start over."
            )

    def _found(self) -> int | None:
        """The length of the file; None: there is none."""
        with _writing(self.path):
            return self.path.stat().st_size if self.path.exists() else None

    def open(self, resume: Mapping[str, object] | None) -> None:
        """Go on after the marked length, or start a file that is new or empty (or may be overwritten)."""
        self.close()
        step, length = _journalled(resume, self.kind, self.path, "bytes")
        with _writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.check(resume)
            found = self._found()
            self._file = FileIO(self.path, "r+" if found is not None else "x")
            self._file.truncate(length)
            self._file.seek(length)
            os.fsync(self._file.fileno())
            sync(self.path.parent)
        self._length = self._step_start = length
        self._steps.resume(step)

    def write(self, step: int, batches: Iterable[AnswerBatch]) -> None:
        """Append the answers of a step; if that fails, the file is as before the step."""
        file = self._opened()
        if self._steps.begin(step):
            self._cut(file, self._step_start)
        self._step_start = self._length
        try:
            with _writing(self.path):
                for batch in batches:
                    rest = memoryview(batch.json_lines())
                    while rest:
                        rest = rest[file.write(rest) :]
                self._length = file.tell()
        except BaseException:
            self._cut(file, self._step_start)
            raise

    def mark(self) -> dict[str, object]:
        """The length and the last step, once all of it is on disk."""
        with _writing(self.path):
            os.fsync(self._opened().fileno())
        return {"sink": self.kind, "step": self._steps.mark(), "bytes": self._length}

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _cut(self, file: FileIO, length: int) -> None:
        with _writing(self.path):
            file.truncate(length)
            file.seek(length)
        self._length = length

    def _opened(self) -> FileIO:
        if self._file is None:
            raise SinkError(f"{self.path} is not open.")
        return self._file


class ParquetSink:
    """A directory with one Parquet file for each step that has answers, renamed into place when complete."""

    kind = "parquet"

    def __init__(self, directory: str | Path, *, overwrite: bool = False) -> None:
        self.directory = Path(directory)
        self._overwrite = overwrite
        self._steps = _Steps(self.directory)
        self._files = 0

    def check(self, resume: Mapping[str, object] | None) -> None:
        """Raise where `open` would for what the directory holds; nothing is touched."""
        step, files = _journalled(resume, self.kind, self.directory, "files")
        with _writing(self.directory):
            there = self.directory.is_dir()
            if files and not there:
                raise SinkError(
                    f"{self.directory} is missing, but the run to go on from has written {files:,} files "
                    f"to it. Put the directory back, or pass --fresh to start over."
                )
            later = self._later(step) if there else []
            foreign = [
                p.name for p in self.directory.glob("*.parquet") if not _PARQUET_NAME.fullmatch(p.name)
            ]
            if resume is None and foreign:
                raise SinkError(
                    f"{self.directory} holds Parquet files that are no answers ({min(foreign)}): a reader "
                    f"would mix them. Choose a folder that is new, empty or one's own."
                )
            if resume is None and later and not self._overwrite:
                raise SinkError(
                    f"{self.directory} already holds answers ({later[0].name}). Choose another path, or pass "
                    f"--fresh to overwrite them."
                )

    def _later(self, step: int) -> list[Path]:
        """Files of steps after one."""
        named = [(path, _PARQUET_NAME.fullmatch(path.name)) for path in self.directory.iterdir()]
        return [path for path, name in named if name is not None and int(name[1]) > step]

    def open(self, resume: Mapping[str, object] | None) -> None:
        """Drop what was written after the mark, or start a directory without answers in it."""
        step, files = _journalled(resume, self.kind, self.directory, "files")
        with _writing(self.directory):
            self.check(resume)
            self.directory.mkdir(parents=True, exist_ok=True)
            unfinished = [p for p in self.directory.iterdir() if _TEMPORARY_NAME.fullmatch(p.name)]
            for path in unfinished + self._later(step):
                path.unlink()
            sync(self.directory)
        self._files = files
        self._steps.resume(step)

    def write(self, step: int, batches: Iterable[AnswerBatch]) -> None:
        """Write the file of a step; it appears as a whole or not at all."""
        self._steps.begin(step)
        name = f"answers-{step:012}.parquet"
        path, temporary = self.directory / name, self.directory / f".{name}.tmp"
        with _writing(self.directory):
            if path.exists():
                path.unlink()
                self._files -= 1
            tables = _grouped(batches)
            first = next(tables, None)
            if first is None:
                return
            try:
                with temporary.open("wb") as file:
                    with pq.ParquetWriter(file, ANSWER_SCHEMA) as writer:
                        writer.write_table(first)
                        for table in tables:
                            writer.write_table(table)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
            self._files += 1

    def mark(self) -> dict[str, object]:
        """The last step and the number of files, once their names are on disk."""
        with _writing(self.directory):
            sync(self.directory)
        return {"sink": self.kind, "step": self._steps.mark(), "files": self._files}

    def close(self) -> None:
        """Nothing is held between steps."""


class _Steps:
    """The steps a sink has seen: they rise, and the last one may come again until it is marked."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._marked = self.last = _NO_STEP

    def resume(self, step: int) -> None:
        self._marked = self.last = step

    def mark(self) -> int:
        # a marked step stays: to cut it back would leave less than the journal says
        self._marked = self.last
        return self.last

    def begin(self, step: int) -> bool:
        """Take note of a step; True if it was written before."""
        again = step == self.last and step != self._marked
        if step <= self.last and not again:
            raise SinkError(
                f"{self._place} has the answers up to step {self.last}, step {step} is not after it."
            )
        self.last = step
        return again


def _journalled(resume: Mapping[str, object] | None, kind: str, place: Path, count: str) -> tuple[int, int]:
    if resume is None:
        return _NO_STEP, 0
    if resume.get("sink") != kind:
        raise SinkError(
            f"{place} takes {kind}, but the run to go on from wrote its answers as {resume.get('sink')}. "
            f"Name the same target as before, or pass --fresh to start over."
        )
    step, counted = resume.get("step"), resume.get(count)
    if not isinstance(step, int) or not isinstance(counted, int):
        raise SinkError(f"the journal's mark for {place} cannot be read: {dict(resume)!r}")
    return step, counted


def _grouped(batches: Iterable[AnswerBatch]) -> Iterator[pa.Table]:
    """The batches as tables of a good size for a row group: small batches together."""
    held: list[pa.Table] = []
    size = 0
    for batch in batches:
        if len(batch):
            held.append(batch.to_table())
            size += len(batch)
        if size >= _ROWS_PER_GROUP:
            yield pa.concat_tables(held).combine_chunks()
            held, size = [], 0
    if held:
        yield pa.concat_tables(held).combine_chunks()


@contextlib.contextmanager
def _writing(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SinkError(f"cannot write answers to {place}: {error.strerror or error}") from error
