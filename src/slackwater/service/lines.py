"""A file of lines, read from anywhere: only where its lines begin is in memory, not what they say."""

from __future__ import annotations

import os
import weakref
from array import array
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

_READ = 2**20


class Lines:
    """The lines of a file that have an end, up to ``most`` of them; may be used from any thread.

    A file that is not there has no lines. A line that a kill has cut is none, and what is written after the
    file was opened is not seen.
    """

    def __init__(self, path: Path, most: int | None = None) -> None:
        self.path = path
        self._most = most
        self._descriptor: int | None = None
        self._starts: array[int] | None = None
        with suppress(FileNotFoundError):
            self._descriptor = os.open(path, os.O_RDONLY)
            # closed with this object at the latest
            self._close = weakref.finalize(self, os.close, self._descriptor)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, place: int) -> bytes:
        """A line without its end."""
        starts = self._offsets
        return self.between(starts[place], starts[place + 1])

    def between(self, start: int, end: int) -> bytes:
        """The line from a byte to the one after its end."""
        if self._descriptor is None:
            return b""
        # reads of one file from several threads: each says where it reads
        return os.pread(self._descriptor, end - start, start).rstrip(b"\n")

    def scan(self) -> Iterator[tuple[int, bytes]]:
        """All lines one after the other, with the byte at which they begin."""
        if self._descriptor is None:
            return
        start, left, rest = 0, self._most, b""
        while left != 0 and (piece := os.pread(self._descriptor, _READ, start + len(rest))):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines[:left]:
                yield start, line
                start += len(line) + 1
            left = None if left is None else max(0, left - len(lines))

    def backwards(self) -> Iterator[bytes]:
        """The lines from the last one to the first."""
        for place in range(len(self) - 1, -1, -1):
            yield self[place]

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            self._descriptor = None
            self._close()

    @property
    def _offsets(self) -> array[Any]:
        """Where lines begin, and where the last one ends."""
        if self._starts is None:
            starts = array("Q", [0])
            for start, line in self.scan():
                starts.append(start + len(line) + 1)
            self._starts = starts
        return self._starts
