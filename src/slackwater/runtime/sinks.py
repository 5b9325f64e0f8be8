"""Where answers go: what a sink owes the runtime, the sinks for people and pipes, and the choice of one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, Protocol

from rich.cells import cell_len
from rich.console import Console

from slackwater.errors import SinkError
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import Answer
from slackwater.runtime.file_sinks import JsonLinesSink, ParquetSink
from slackwater.runtime.iterator_sink import IteratorSink
from slackwater.runtime.show import printable, show_estimate, show_keys, show_number, show_when

__all__ = [
    "IteratorSink",
    "JsonLinesSink",
    "ParquetSink",
    "Sink",
    "StdoutJsonSink",
    "TerminalSink",
    "sink_for",
]

# one very long key must not push all later lines to the right
_WIDEST = 40
_JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")


class Sink(Protocol):
    """Takes the answers of each step, and can go on after a restart from what it marked.

    `mark` may be called right after `open` too: journalled then, it makes a crash in the first step one like
    any other. A step written again before it is marked replaces its first writing where the sink is durable.
    """

    def open(self, resume: Mapping[str, object] | None) -> None:
        """Begin: after what was marked at the last committed step, or afresh if that is None."""
        ...

    def write(self, step: int, batches: Iterable[AnswerBatch]) -> None:
        """Take all answers of one step; steps rise."""
        ...

    def mark(self) -> dict[str, object]:
        """Make what was written durable, and say in JSON terms where to go on from."""
        ...

    def close(self) -> None:
        """Let go of files and readers."""
        ...


class StdoutJsonSink:
    """JSON lines on standard output; at-least-once, since a pipe takes nothing back."""

    kind = "standard output"

    def __init__(self, stream: BinaryIO | None = None) -> None:
        self._stream = stream

    def open(self, resume: Mapping[str, object] | None) -> None:
        """Nothing to go on from."""

    def write(self, step: int, batches: Iterable[AnswerBatch]) -> None:
        """Print the answers of a step and flush them."""
        stream = self._stream or sys.stdout.buffer
        try:
            for batch in batches:
                stream.write(batch.json_lines())
            stream.flush()
        except BrokenPipeError as error:
            raise SinkError("the reader of standard output has gone away.") from error

    def mark(self) -> dict[str, object]:
        """Nothing to journal."""
        return {"sink": self.kind}

    def close(self) -> None:
        """Standard output stays open: it is not ours."""


class TerminalSink:
    """One line for each answer, for people; at-least-once. Times are UTC."""

    kind = "terminal"

    def __init__(self, console: Console) -> None:
        self._console = console
        # columns only ever grow, so that lines stay aligned without knowing what comes
        self._widths: dict[tuple[str, str], int] = {}

    def open(self, resume: Mapping[str, object] | None) -> None:
        """Nothing to go on from."""

    def write(self, step: int, batches: Iterable[AnswerBatch]) -> None:
        """Print the answers of a step."""
        for batch in batches:
            for answer in batch.answers():
                self._console.out(self._line(answer), highlight=False)

    def mark(self) -> dict[str, object]:
        """Nothing to journal."""
        return {"sink": self.kind}

    def close(self) -> None:
        """The console stays open: it is not ours."""

    def _line(self, answer: Answer) -> str:
        query = printable(answer.query)
        parts = [
            self._padded(show_when(answer), "when", ""),
            self._padded(query, "query", ""),
            self._padded(show_keys(answer.keys), "keys", query),
            self._padded(f"{printable(answer.column)} = {show_estimate(answer)}", "value", query),
            _how_text(answer),
        ]
        return "  ".join(part for part in parts if part)

    def _padded(self, text: str, column: str, query: str) -> str:
        length = cell_len(text)
        width = max(self._widths.get((column, query), 0), min(length, _WIDEST))
        self._widths[column, query] = width
        return text + " " * (width - length)


def _how_text(answer: Answer) -> str:
    sampled = f" {show_number(answer.rate * 100)}%" if answer.how == "sampled" else ""
    return f"{answer.how}{sampled}{'' if answer.met else ', contract not met'}"


def sink_for(target: str, *, overwrite: bool = False) -> Sink:
    """The sink that a target names: `-`, a file of JSON lines, or a directory of Parquet files.

    >>> type(sink_for("-")).__name__
    'StdoutJsonSink'
    """
    if target == "-":
        return StdoutJsonSink()
    if not target or "://" in target:
        raise SinkError(f"cannot write answers to {target!r}: name a local path, or - for standard output.")
    path = Path(target)
    is_directory = path.is_dir() or target.endswith(("/", os.sep))
    suffix = path.suffix.lower()
    if suffix in _JSON_SUFFIXES and not is_directory:
        _check_writable(path.parent, target)
        if path.exists() and not os.access(path, os.W_OK):
            raise SinkError(f"cannot write answers to {target}: the file may not be written to.")
        return JsonLinesSink(path, overwrite=overwrite)
    if suffix in ("", ".parquet") or is_directory:
        _check_writable(path, target)
        return ParquetSink(path, overwrite=overwrite)
    raise SinkError(
        f"cannot tell from {path.suffix!r} how to write answers to {target}. Use {', '.join(_JSON_SUFFIXES)} "
        f"for JSON lines, .parquet or a path that ends in / for a directory of Parquet files, or - for "
        f"standard output."
    )


def _check_writable(directory: Path, target: str) -> None:
    """Refuse a place that cannot be made or written to, before the run has begun."""
    nearest = directory
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise SinkError(f"cannot write answers to {target}: {nearest} is a file, not a directory.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise SinkError(f"cannot write answers to {target}: the directory {nearest} may not be written to.")
