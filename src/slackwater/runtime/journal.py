"""The run's memory on disk: versions of the query set, decision records, commits.

Every file is written under a temporary name, synced and renamed, so that a kill at any point leaves
either the old state or the new one. The order of a turn is: record, partials, answers, commit.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slackwater.errors import StateError
from slackwater.planners.decision import Decision

FORMAT = 2
"""Of the state directory; a state of another one is refused with a word, not misread."""
KEPT = 20
"""Old records and commits kept for reading back what happened."""


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a file that is either there whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Put a file, or the names in a folder, on disk: a commit must not outlive what it lists."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def kept_script(root: Path) -> list[str]:
    """The statements that a run in a folder began with, whoever works there now; none where none has."""
    files = sorted((root / "versions").glob("*.json"))
    return list(json.loads(files[-1].read_text()).get("script", [])) if files else []


class Journal:
    """The state directory of a run; with ``fresh`` what an earlier run left there is deleted first."""

    def __init__(self, root: Path, *, fresh: bool = False) -> None:
        self.root = root
        self.panes = root / "panes"
        self.outputs = root / "outputs"
        check_root(root)
        root.mkdir(parents=True, exist_ok=True)
        # before anything is deleted: another run may be at work here
        self._lock()
        try:
            self._discard(fresh)
            self._check_format()
            for folder in (self.panes, self.outputs, *(root / n for n in ("versions", "records", "commits"))):
                folder.mkdir(exist_ok=True)
        except BaseException:
            self.close()
            raise

    def _lock(self) -> None:
        """Two processes that wrote one state would spoil it; the lock goes when the process does."""
        self._held: int | None = os.open(self.root / "lock", os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise StateError(
                f"another run uses the state in {self.root}; stop it, or give this one another --state"
            ) from None

    def _discard(self, fresh: bool) -> None:
        """Delete an earlier run's state; a kill meanwhile leaves a mark, and the next start goes on."""
        mark = self.root / "discarding"
        if not fresh and not mark.exists():
            return
        mark.touch()
        sync(self.root)
        for path in self.root.iterdir():
            if path.name not in ("lock", "discarding", "format.json"):
                remove(path)
        (self.root / "format.json").unlink(missing_ok=True)
        self._check_format()
        mark.unlink()

    def _check_format(self) -> None:
        path = self.root / "format.json"
        if not path.exists():
            write_json(path, {"format": FORMAT})
        found = json.loads(path.read_text()).get("format")
        if found != FORMAT:
            raise StateError(
                f"the state in {self.root} has format {found}, this version reads {FORMAT}; "
                "start over with --fresh, or use the version that wrote it"
            )

    def close(self) -> None:
        """Let another run have the state."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def checkpoint(self, stream: str) -> Path:
        """Where Spark keeps its own checkpoint of a stream."""
        return self.root / "spark" / stream.lower()

    def spark_offsets(self, stream: str, batch: int) -> dict[str, Any]:
        """The offsets that Spark has written for a batch before handing it on."""
        path = self.checkpoint(stream) / "offsets" / str(batch)
        # the file has a version and the batch's metadata before one line for each source
        return {"spark": path.read_text().splitlines()[2:]} if path.exists() else {}

    def source(self, stream: str) -> Path:
        """Where a source may keep what it needs to be read again."""
        return self.root / "sources" / stream.lower()

    def write_version(self, number: int, value: Mapping[str, Any]) -> None:
        write_json(self.root / "versions" / f"{number:08d}.json", value)

    def versions(self) -> dict[int, dict[str, Any]]:
        files = sorted((self.root / "versions").glob("*.json"))
        return {int(f.stem): json.loads(f.read_text()) for f in files}

    def _record(self, stream: str, turn: int) -> Path:
        return self.root / "records" / f"{stream.lower()}-{turn:010d}.json"

    def write_record(self, decision: Decision) -> None:
        write_json(self._record(decision.stream, decision.turn), decision.to_json())

    def record(self, stream: str, turn: int) -> Decision | None:
        path = self._record(stream, turn)
        return Decision.from_json(json.loads(path.read_text())) if path.exists() else None

    def forget_records(self, stream: str, turn: int) -> None:
        """Drop old records: what is committed is never replayed."""
        self._record(stream, turn - KEPT).unlink(missing_ok=True)

    def write_commit(self, step: int, state: Mapping[str, Any]) -> None:
        write_json(self.root / "commits" / f"{step:012d}.json", state)
        (self.root / "commits" / f"{step - KEPT:012d}.json").unlink(missing_ok=True)

    def last_commit(self) -> dict[str, Any] | None:
        files = sorted((self.root / "commits").glob("*.json"))
        return json.loads(files[-1].read_text()) if files else None

    def write_statistics(self, value: Mapping[str, Any]) -> None:
        write_json(self.root / "statistics.json", value)

    def statistics(self) -> dict[str, Any] | None:
        """What an earlier run had learnt of its load."""
        path = self.root / "statistics.json"
        return json.loads(path.read_text()) if path.exists() else None

    def sweep(self, live: set[str]) -> None:
        """Delete what a broken turn left in the pane log: all that no commit knows."""
        for table in self.panes.iterdir() if self.panes.exists() else ():
            for file in table.iterdir():
                if str(file.relative_to(self.root)) not in live:
                    remove(file)
        for leftover in self.outputs.iterdir():
            remove(leftover)
        for folder in ("versions", "records", "commits"):
            for temporary in (self.root / folder).glob("*.tmp"):
                temporary.unlink()


def check_root(root: Path) -> None:
    """Refuse a folder that holds something else: a fresh start would delete it."""
    if not root.exists():
        return
    held = set() if root.is_file() else {path.name for path in root.iterdir()}
    if root.is_file() or (held - {"lock"} and not held & {"format.json", "discarding"}):
        raise StateError(
            f"{root} is there and is no state of a run; give --state a folder that is new, empty or one's own"
        )


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
