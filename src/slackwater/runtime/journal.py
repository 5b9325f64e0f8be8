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

FORMAT = 1
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


class Journal:
    """The state directory of a run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.panes = root / "panes"
        self.outputs = root / "outputs"
        for folder in (
            root,
            self.panes,
            self.outputs,
            *(root / n for n in ("versions", "records", "commits")),
        ):
            folder.mkdir(parents=True, exist_ok=True)
        self._check_format()
        self._lock()

    def _lock(self) -> None:
        """Two processes that wrote one state would spoil it; the lock goes when the process does."""
        self._held: int | None = os.open(self.root / "lock", os.O_CREAT | os.O_RDWR)
        try:
            fcntl.lockf(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StateError(
                f"another run uses the state in {self.root}; stop it, or give this one another --state"
            ) from None

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


def discard_state(root: Path) -> None:
    """Delete the state of an earlier run, and nothing that is not one."""
    if any(root.iterdir()) and not (root / "format.json").exists():
        raise StateError(f"{root} is no state of a run, so it is not deleted; choose another --state")
    # renamed first: a kill while deleting must not leave half a state to go on from
    doomed = root.with_name(f".{root.name}.old")
    shutil.rmtree(doomed, ignore_errors=True)
    root.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
