"""Where an agent's values come from: lines of JSON from a pipe, a command or a file, or network counters.

Each source is an iterator of readings that ends when the source does. It blocks, so `Pump` runs it in a
thread.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from slackwater.edge.messages import Declared, Key, key_parts
from slackwater.edge.shapes import number_of
from slackwater.errors import SourceError

COUNTERS = ("bytes_recv", "bytes_sent", "packets_recv", "packets_sent")
POLL_S = 0.2
LONGEST_LINE = 1 << 20

Reading = tuple[Key, dict[str, float | None] | None]
"""A key and its values; None: it is withdrawn."""
WITHDRAWN = "withdrawn"
Pause = Callable[[float], bool]
"""Wait for so many seconds; True if it is time to end."""


class LineReader:
    """Lines of JSON to readings. What is wrong with a line is counted and told, and never the end."""

    def __init__(self, declared: Declared, complain: Callable[[str], None]) -> None:
        self._declared = declared
        self._complain = complain
        self.lines = 0
        self.bad = 0

    def read(self, lines: Iterable[str | bytes]) -> Iterator[Reading]:
        for line in lines:
            self.lines += 1
            if not line.strip():
                continue
            try:
                reading = self._reading(line)
            except (ValueError, SourceError, RecursionError) as error:
                self.pass_over(error)
            else:
                yield reading

    def pass_over(self, error: Exception) -> None:
        """Count the line that was read last among those that could not be used, and tell why."""
        self.bad += 1
        self._complain(f"line {self.lines}: {error}")

    def _reading(self, line: str | bytes) -> Reading:
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"expected a JSON object, got {_shown(line)} ({error})") from None
        if not isinstance(row, dict):
            raise ValueError(f"expected a JSON object, got {_shown(line)}")
        gone = row.get(WITHDRAWN)
        if isinstance(gone, dict):
            # no column holds an object: this can be nothing else
            if len(row) > 1 or set(gone) != set(self._declared.key):
                columns = ", ".join(self._declared.key)
                raise ValueError(
                    f'expected {{"{WITHDRAWN}":{{…}}}} with the key columns {columns} and nothing else, '
                    f"got {_shown(line)}"
                )
            return self._key(gone, WITHDRAWN), None
        if missing := [name for name in self._declared.key if name not in row]:
            raise ValueError(f"expected the key column {missing[0]!r}, got only {', '.join(map(repr, row))}")
        key = self._key(row, "key")
        values = {name: _value(row[name], name) for name in self._declared.columns if name in row}
        if not values:
            others = ", ".join(repr(name) for name in row if name not in self._declared.key) or "none"
            raise ValueError(f"expected one of the columns {', '.join(self._declared.columns)}, got {others}")
        return key, values

    def _key(self, row: Mapping[str, Any], where: str) -> Key:
        parts = [row[name] for name in self._declared.key]
        key = key_parts(parts, self._declared, where)
        if (wrong := self._declared.unfit(parts)) is not None:
            raise ValueError(f"{where}: {wrong}")
        return key


def _value(value: Any, column: str) -> float | None:
    """A value of a line, such as an agent takes."""
    if value is None:
        return None
    with suppress(ValueError):
        if not math.isnan(found := number_of(value)):
            return found
    what = "a number that a double can hold" if type(value) in (int, float) else "a number"
    raise ValueError(f"{column}: expected {what} or null, got {_shown(value)}")


def _shown(what: Any) -> str:
    shown = repr(what.rstrip() if isinstance(what, str | bytes) else what)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def command_words(command: str) -> list[str]:
    """A command and its arguments, as a shell would take them apart."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise SourceError(f"--command: cannot take {command!r} apart: {error}") from None
    if not words:
        raise SourceError("--command: expected a command, got nothing")
    return words


def command_lines(
    command: str, every: float | None, pause: Pause, complain: Callable[[str], None]
) -> Iterator[bytes]:
    """What a command prints: run again ``every`` so many seconds, or whenever it ends if it is long-lived.

    The command runs without a shell. When the iterator is closed, so is the command.
    """
    words = command_words(command)
    while True:
        try:
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        except OSError as error:
            raise SourceError(f"--command {words[0]}: {error.strerror}") from None
        with process:
            assert process.stdout is not None
            try:
                yield from process.stdout
                # what has said all has not ended yet
                if not _ended(process, pause):
                    return
            finally:
                if process.poll() is None:
                    process.terminate()
        if process.returncode < 0:
            complain(f"the command was ended by signal {-process.returncode}")
        elif process.returncode:
            complain(f"the command ended with exit code {process.returncode}")
        if pause(1.0 if every is None else every):
            return


def _ended(process: subprocess.Popen[bytes], pause: Pause) -> bool:
    """Wait for the end of a process; False if it is time to end before."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_S)
            return True
        if pause(0.0):
            return False


class _Whole:
    """Puts lines together: one counts once its end has come; one that never ends is dropped."""

    def __init__(self) -> None:
        self._held = b""

    def lines(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._held += piece
            if self._held.endswith(b"\n"):
                yield self._held
                self._held = b""
            elif len(self._held) > LONGEST_LINE:
                self._held = b""


def tail_lines(
    path: Path, pause: Pause, complain: Callable[[str], None], *, from_start: bool = False
) -> Iterator[bytes]:
    """Lines as they are appended to a file, through rotation (another file by its name) and truncation.

    A file that is not there yet is waited for, which is said, and then read from its start. A line counts
    once it is whole.
    """
    at_end = not from_start and path.exists()
    if not path.exists():
        complain(f"--tail: there is no file {path} yet; waiting for it")
    while True:
        while not path.exists():
            if pause(POLL_S):
                return
        with suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(0, os.SEEK_END if at_end else os.SEEK_SET)
            at_end = False
            whole = _Whole()
            while not _replaced(path, file.fileno()):
                yield from whole.lines(file)
                if os.fstat(file.fileno()).st_size < file.tell():
                    file.seek(0)
                    whole = _Whole()
                elif pause(POLL_S):
                    return
            # what was written between the last look and the rotation
            yield from whole.lines(file)


def _replaced(path: Path, descriptor: int) -> bool:
    """Whether the name now stands for another file; while it stands for none, the old one may still grow."""
    try:
        now, held = path.stat(), os.fstat(descriptor)
    except FileNotFoundError:
        return False
    return (now.st_dev, now.st_ino) != (held.st_dev, held.st_ino)


def counter_readings(
    declared: Declared,
    pause: Pause,
    *,
    clock: Callable[[], int],
    every: float = 1.0,
    per_second: bool = True,
    look: Callable[[], Mapping[str, Any]] = lambda: psutil.net_io_counters(pernic=True),
) -> Iterator[list[Reading]]:
    """Network counters, as rates since the last look, or what was added if not ``per_second``.

    With one KEY column the key is the host, and its interfaces are summed, the loopback left out; with two
    it is (host, interface). A counter that was reset, as with an interface that comes back, is skipped
    once. What has been told of and has no interface any more is withdrawn; it is back when one comes.
    """
    if unknown := set(declared.columns) - set(COUNTERS):
        raise SourceError(f"--counters: there are {', '.join(COUNTERS)}, and no {', '.join(sorted(unknown))}")
    if len(declared.key) > 2:
        keys = ", ".join(declared.key)
        raise SourceError(f"--counters: expected KEY host or KEY (host, interface), got {keys}")
    host = platform.node()
    before, then = look(), clock()
    told: set[Key] = set()
    while not pause(every):
        after, now = look(), clock()
        seconds = max(1, now - then) / 1e6 if per_second else 1.0
        added: dict[Key, dict[str, float | None]] = {}
        there: set[Key] = set()
        for interface, counters in after.items():
            if len(declared.key) == 1 and interface.startswith("lo"):
                continue
            key = host if len(declared.key) == 1 else (host, interface)
            there.add(key)
            if interface not in before:
                continue
            gone = {c: getattr(counters, c) - getattr(before[interface], c) for c in declared.columns}
            if min(gone.values()) < 0:
                continue
            sums = added.setdefault(key, {})
            for column, amount in gone.items():
                sums[column] = (sums.get(column) or 0.0) + amount / seconds
        withdrawn = sorted(told - there, key=str)
        told = told & there | added.keys()
        yield [*added.items(), *((key, None) for key in withdrawn)]
        before, then = after, now


class Pump:
    """Runs a source in a thread and hands on what it gives, in order, with a bound on what waits."""

    def __init__(self, source: Callable[[], Iterator[Any]], limit: int = 10_000) -> None:
        self._source = source
        self._limit = limit
        self._items: list[Any] = []
        self._changed = threading.Condition()
        self._ended = False
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="readings", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for item in self._source():
                with self._changed:
                    self._changed.wait_for(lambda: len(self._items) < self._limit)
                    self._items.append(item)
                    self._changed.notify_all()
        except BaseException as error:  # it is raised where the items are taken
            self.error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def take(self, timeout: float) -> list[Any] | None:
        """What has come, waiting up to ``timeout`` seconds for some; None when the source has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended, timeout)
            items, self._items = self._items, []
            self._changed.notify_all()
            if items or not self._ended:
                return items
        if self.error is not None:
            raise self.error
        return None
