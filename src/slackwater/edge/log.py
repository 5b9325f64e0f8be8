"""A durable log of one stream: entries at positions, in segments, with a snapshot at the start of each.

Guarantees. An entry has a position, given once and never again. What `write` has returned for is on disk
and survives any crash; what it has not returned for may be missing after one, and then so is all that came
after. An entry of n grants takes n positions, so that each grant has a position of its own: that of the
entry plus its index. Positions begin at 1: 0 is before everything.

Many entries are appended, then written together with one fsync (group commit). `append` and `take` belong
to one thread, `write` to one other at a time; `read` may be called from any.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slackwater.edge import segments
from slackwater.errors import StateError

Entry = dict[str, Any]
Frozen = Callable[[], dict[str, Any]]
"""A state as it was at one moment, to be rendered later and in another thread."""

SEGMENT_BYTES = 64 << 20
READ_BYTES = 4 << 20
_CURSORS = 64

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Roll:
    """A new segment begins here, with this state before it."""

    first: int
    state: Frozen


@dataclass(frozen=True)
class Pending:
    """Entries on their way to the disk: all below ``end``."""

    pieces: tuple[bytes | _Roll, ...]
    end: int
    size: int


class Log:
    """The log in one directory, locked against others; ``freeze`` gives the state of what was appended."""

    def __init__(
        self,
        directory: Path,
        *,
        freeze: Callable[[], Frozen],
        segment_bytes: int = SEGMENT_BYTES,
        sync: Callable[[int], None] = os.fsync,
    ) -> None:
        self.directory = directory
        self._freeze = freeze
        self._segment_bytes = segment_bytes
        self._sync = sync
        self._pieces: list[bytes | _Roll] = []
        self._appended_bytes = 0
        self._active_bytes = 0
        self._cursors: OrderedDict[int, tuple[int, int]] = OrderedDict()
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = segments.lock(directory)
        self._firsts = segments.first_positions(directory)
        self.end = self._firsts[-1] if self._firsts else 1
        """The position that the next entry will get."""
        self.durable = self.end
        """All entries below are on disk."""
        self.identity = ""
        """A random name, given when the log was made: another log has another."""
        self.waiting_bytes = 0
        """Appended and not yet on disk."""
        self._file = -1

    def recover(self, restore: Callable[[dict[str, Any]], None], apply: Callable[[Entry], None]) -> None:
        """Bring a state to the end of the log: from the newest snapshot, then entry by entry.

        A tail that was never acknowledged is cut off, with a warning; damage before it is a `StateError`, and
        the log is closed.
        """
        try:
            self._recover(restore, apply)
        except BaseException:
            self.close()
            raise

    def _recover(self, restore: Callable[[dict[str, Any]], None], apply: Callable[[Entry], None]) -> None:
        if not self._firsts:
            self.identity = secrets.token_hex(8)
            self._open_segment(1, self._freeze())
            return
        first = self._firsts[-1]
        segments.drop_leftovers(self.directory, self._firsts)
        snapshot = segments.read_snapshot(self.directory, first)
        self.identity = snapshot["log"]
        restore(snapshot["state"])
        path = segments.segment_path(self.directory, first)
        for line in segments.lines(path, 0, first):
            if isinstance(line, segments.Torn):
                logger.warning(
                    "%s: cut off %d bytes at its end that were being written when the hub stopped; "
                    "none of it had been acknowledged",
                    path,
                    line.lost_bytes,
                )
                os.truncate(path, line.offset)
                break
            apply(json.loads(line.text))
            self.end, self._active_bytes = line.next, line.after
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        # what was read may still be in the page cache only: from here on it is passed on as durable
        self._sync(self._file)
        self.durable = self.end

    def append(self, entry: Entry, span: int = 1) -> int:
        """Give an entry its position; it is on disk once `durable` is above that."""
        if self._active_bytes >= self._segment_bytes:
            self._pieces.append(_Roll(self.end, self._freeze()))
            self._active_bytes = 0
        position = self.end
        entry = {"position": position, **entry}
        text = json.dumps(entry, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        raw = segments.render(position, span, self.durable, text)
        self._pieces.append(raw)
        self._active_bytes += len(raw)
        self._appended_bytes += len(raw)
        self.waiting_bytes += len(raw)
        self.end += span
        return position

    def take(self) -> Pending | None:
        """What is to be written next, None when there is nothing."""
        if not self._pieces:
            return None
        pending = Pending(tuple(self._pieces), self.end, self._appended_bytes)
        self._pieces, self._appended_bytes = [], 0
        return pending

    def write(self, pending: Pending) -> None:
        """Put entries on disk: when this returns, `durable` is their end."""
        together: list[bytes] = []
        for piece in pending.pieces:
            if isinstance(piece, _Roll):
                self._write_all(b"".join(together))
                together = []
                self._sync(self._file)
                os.close(self._file)
                self._open_segment(piece.first, piece.state)
            else:
                together.append(piece)
        self._write_all(b"".join(together))
        self._sync(self._file)
        self.durable = pending.end
        self.waiting_bytes -= pending.size

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    def _open_segment(self, first: int, state: Frozen) -> None:
        # the snapshot first: a segment without one could not be recovered
        segments.write_snapshot(self.directory, first, {"log": self.identity, "state": state()})
        path = segments.segment_path(self.directory, first)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        segments.sync_directory(self.directory)
        if first not in self._firsts:
            self._firsts = [*self._firsts, first]

    @property
    def begin(self) -> int:
        """The oldest position that can still be read."""
        return self._firsts[0]

    def size(self) -> int:
        """Bytes on disk."""
        return sum(path.stat().st_size for path in self.directory.iterdir())

    def read(self, start: int, to: int, limit: int, max_bytes: int = READ_BYTES) -> tuple[list[str], int]:
        """Durable entries as JSON from ``start`` on and below ``to``, and where to read on.

        At most ``limit`` entries; after ``max_bytes`` no further one.
        """
        firsts = self._firsts
        if start < self.begin:
            raise StateError(f"position {start} has been forgotten: the log begins at {self.begin}")
        to = min(to, self.durable)
        found: list[str] = []
        size = 0
        position = start
        while position < to and len(found) < limit and size < max_bytes:
            place = bisect_right(firsts, position) - 1
            segment, offset, expected = firsts[place], 0, firsts[place]
            if (cursor := self._cursors.get(position)) is not None and cursor[0] == segment:
                offset, expected = cursor[1], position
            before = position
            for line in segments.lines(segments.segment_path(self.directory, segment), offset, expected):
                if isinstance(line, segments.Torn):
                    if position < to:
                        raise StateError(f"{self.directory}: the entry at position {position} cannot be read")
                    break
                if line.position >= to:
                    break
                if line.next <= position:
                    continue
                if line.position >= start:
                    found.append(line.text)
                    size += len(line.text)
                position, offset = line.next, line.after
                if len(found) >= limit or size >= max_bytes:
                    break
            self._remember(position, segment, offset)
            if position == before:
                break
        return found, max(position, start)

    def _remember(self, position: int, segment: int, offset: int) -> None:
        # reading goes on where it ended, as a rule: no need to look for the place again
        self._cursors[position] = (segment, offset)
        while len(self._cursors) > _CURSORS:
            self._cursors.popitem(last=False)

    def forget(self, through: int) -> None:
        """Delete whole segments in which all positions are below ``through``; never the newest."""
        while len(self._firsts) > 1 and self._firsts[1] <= through:
            oldest, self._firsts = self._firsts[0], self._firsts[1:]
            segments.segment_path(self.directory, oldest).unlink()
            segments.snapshot_path(self.directory, oldest).unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the directory; entries that were not written are gone."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        os.close(self._lock)
