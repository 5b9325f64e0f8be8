"""The files of a log: lines with checksums, segments and snapshots.

A line is ``checksum position span durable json``. ``span`` is how many positions the entry takes.
``durable`` is the position below which everything was known to be on disk when the line was made. It tells
a torn tail from damage: what no valid line calls durable was never acknowledged, and may be missing after a
crash.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slackwater.errors import StateError


@dataclass(frozen=True)
class Line:
    """One entry in a segment, and where it lies."""

    position: int
    span: int
    durable: int
    offset: int
    """Of its first byte."""
    after: int
    """Of the first byte after it."""
    text: str
    """The entry as JSON."""

    @property
    def next(self) -> int:
        return self.position + self.span


@dataclass(frozen=True)
class Torn:
    """Where the good part of a segment ends, and how many bytes after it were never acknowledged."""

    offset: int
    lost_bytes: int


def render(position: int, span: int, durable: int, text: str) -> bytes:
    body = f"{position} {span} {durable} {text}".encode()
    return b"%08x " % zlib.crc32(body) + body + b"\n"


def parse(raw: bytes, offset: int) -> Line | None:
    """The line in these bytes; None where it is cut short or its checksum is wrong.

    >>> parse(render(3, 1, 2, "{}"), 0)
    Line(position=3, span=1, durable=2, offset=0, after=18, text='{}')
    >>> parse(render(3, 1, 2, "{}")[:-1], 0) is None
    True
    """
    if len(raw) < 10 or raw[-1:] != b"\n" or raw[8:9] != b" ":
        return None
    body = raw[9:-1]
    if raw[:8] != b"%08x" % zlib.crc32(body):
        return None
    position, span, durable, text = body.decode().split(" ", 3)
    return Line(int(position), int(span), int(durable), offset, offset + len(raw), text)


def lines(path: Path, offset: int, expected: int) -> Iterator[Line | Torn]:
    """The entries of a segment from an offset on, the first of them at position ``expected``.

    Ends with `Torn` where the rest was never acknowledged; damage before that is an error.
    """
    with path.open("rb") as file:
        file.seek(offset)
        for raw in file:
            line = parse(raw, offset)
            if line is None:
                _check_torn(path, file.readlines(), offset, expected)
                yield Torn(offset, path.stat().st_size - offset)
                return
            if line.position != expected:
                raise _damaged(path, offset, f"expected position {expected}, got {line.position}")
            yield line
            offset, expected = line.after, line.next


def _check_torn(path: Path, rest: list[bytes], offset: int, expected: int) -> None:
    for raw in rest:
        later = parse(raw, 0)
        if later is not None and later.durable > expected:
            raise _damaged(path, offset, f"the entry at position {expected} fails its checksum")


def _damaged(path: Path, offset: int, what: str) -> StateError:
    return StateError(
        f"{path} is damaged at byte {offset}: {what}, though it was once written in full. "
        f"Put back a copy of the file as it was last, or move {path.parent} away: agents then start anew by "
        "themselves; a run that has read the log is to be started over with --fresh, and says so"
    )


def segment_path(directory: Path, first: int) -> Path:
    return directory / f"{first:020d}.log"


def snapshot_path(directory: Path, first: int) -> Path:
    return directory / f"{first:020d}.snapshot"


def first_positions(directory: Path) -> list[int]:
    """The first positions of the segments of a directory, in order."""
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def write_snapshot(directory: Path, first: int, content: dict[str, Any]) -> None:
    """Write the state before the entry at ``first``, durable and whole or not at all."""
    path = snapshot_path(directory, first)
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(render(first, 0, first, json.dumps(content, separators=(",", ":"))))
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    sync_directory(directory)


def read_snapshot(directory: Path, first: int) -> dict[str, Any]:
    path = snapshot_path(directory, first)
    try:
        line = parse(path.read_bytes(), 0)
    except FileNotFoundError:
        raise StateError(f"{path} is missing: the log cannot be read without it") from None
    if line is None or line.position != first:
        raise _damaged(path, 0, "it fails its checksum")
    content: dict[str, Any] = json.loads(line.text)
    return content


def drop_leftovers(directory: Path, firsts: list[int]) -> None:
    """Remove snapshots whose segment was never begun, or is gone: a crash came between the two."""
    for path in [*directory.glob("*.partial"), *directory.glob("*.snapshot")]:
        if path.suffix == ".partial" or int(path.stem) not in firsts:
            path.unlink()


def sync_directory(directory: Path) -> None:
    """Make names that were made or removed in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(directory: Path) -> int:
    """Keep every other hub away from a directory, until what this gives is closed or the process ends."""
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise StateError(f"{directory} is in use: another hub writes its log there") from None
    return descriptor
