"""An audit beside a run: `slackwater audit` as a process of its own, which yields to the pipeline.

It goes on where the service is killed. So it holds a lock on a file of the recording for as long as it lives:
whoever serves the recording then finds it running, and what it has found once it is done.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from slackwater.service.api_models import Audit
from slackwater.service.problems import Refusal

logger = logging.getLogger(__name__)
RESULT = "audit.json"
LOCK = "audit.lock"
"""Locked while an audit runs; it says to which file that one writes."""
NICE = 10
TOLD = 2_000
"""Characters of what a failed audit has said."""


class AuditJob:
    """At most one audit at a time of one recording; None where the run is not recorded."""

    def __init__(self, recording: Path | None, imports: Sequence[Path] = ()) -> None:
        self._recording = recording
        self._imports = imports
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._failed = ""
        self._at_failure = 0
        """When the report was written that was there as one failed; a newer one is another's."""

    def begin(self) -> Audit:
        """Start an audit, or tell of the one that runs."""
        if self._recording is None:
            raise Refusal(
                409,
                "this run is not recorded, so there is nothing to audit",
                hint="slackwater run FILE --record DIR",
            )
        with self._lock:
            if self._process is None:
                self._start(self._recording)
        return self.told()

    def _start(self, recording: Path) -> None:
        """Start one, unless another service, or one that was killed, has one running."""
        try:
            held = os.open(recording / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise Refusal(409, f"{recording / LOCK} cannot be written: {error.strerror or error}") from None
        try:
            if not _locked(held, fcntl.LOCK_EX):
                return
            self._failed = ""
            _adopt(recording, held)
            # what one that was interrupted has left must not pass for the report of another
            for left in recording.glob(f"{RESULT}.*tmp"):
                left.unlink(missing_ok=True)
            made = recording / f"{RESULT}.{secrets.token_hex(8)}.tmp"
            os.ftruncate(held, 0)
            os.pwrite(held, made.name.encode(), 0)
            self._process = subprocess.Popen(
                command_of(recording, made, self._imports),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                text=True,
                # the lock is held by whoever of the two lives longer
                pass_fds=(held,),
            )
            kept = os.dup(held)
        finally:
            os.close(held)
        with contextlib.suppress(psutil.Error):
            psutil.Process(self._process.pid).nice(NICE)
        waiting = threading.Thread(target=self._wait, args=(self._process, recording, kept), daemon=True)
        waiting.start()

    def _wait(self, process: subprocess.Popen[str], recording: Path, held: int) -> None:
        _, said = process.communicate()
        with self._lock:
            try:
                if not (process.returncode in (0, 1) and _adopt(recording, held)):
                    self._failed = said.strip()[-TOLD:] or f"it ended with code {process.returncode}"
            except OSError as error:
                self._failed = f"{recording / RESULT} cannot be written: {error.strerror or error}"
            self._at_failure = _written(recording / RESULT)
            self._process = None
            os.close(held)

    def _runs(self, recording: Path) -> bool:
        """Whether one runs, whoever has begun it; what one that is done has found is kept."""
        if self._process is not None:
            return True
        try:
            held = os.open(recording / LOCK, os.O_RDONLY)
        except OSError:
            return False
        try:
            # shared: others may look at the same time
            if not _locked(held, fcntl.LOCK_SH):
                return True
            # of a folder that cannot be written nothing more is to be had
            with contextlib.suppress(OSError):
                _adopt(recording, held)
            return False
        finally:
            os.close(held)

    def told(self) -> Audit:
        """How it stands."""
        folder = self._recording
        if folder is None:
            return Audit(state="none", recording=None, message="this run is not recorded")
        with self._lock:
            running = self._runs(folder)
            if self._failed and _written(folder / RESULT) != self._at_failure:
                # another service has had one since that did not fail
                self._failed = ""
            failed = self._failed
        where = str(folder)
        if running:
            return Audit(state="running", recording=where)
        if failed:
            return Audit(state="failed", recording=where, message=failed)
        path = folder / RESULT
        if not path.exists():
            return Audit(state="none", recording=where, message="no audit has been run; POST begins one")
        try:
            report = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            return Audit(state="failed", recording=where, message=f"{path} cannot be read: {error}")
        if not isinstance(report, dict):
            return Audit(state="failed", recording=where, message=f"{path} is not the report of an audit")
        return Audit(state="done", recording=where, passed=bool(report.get("passed")), report=report)

    def stop(self) -> None:
        """End the one that this service has begun, with it."""
        with self._lock:
            process = self._process
        if process is not None:
            logger.warning("the audit was interrupted; slackwater audit %s runs it again", self._recording)
            process.terminate()


def _written(path: Path) -> int:
    """When a file was written; 0 where there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _locked(held: int, how: int) -> bool:
    """Take a lock; False where another process has it."""
    try:
        fcntl.flock(held, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _adopt(recording: Path, held: int) -> bool:
    """Keep the report of the audit that a lock file names, where there is a whole one."""
    name = os.pread(held, 200, 0).decode(errors="replace")
    made = recording / name
    if not name.startswith(f"{RESULT}.") or made.parent != recording or not made.exists():
        return False
    if _report(made) is None:
        # it was interrupted while it wrote
        made.unlink(missing_ok=True)
        return False
    with contextlib.suppress(FileNotFoundError):
        # another service may have been quicker
        made.replace(recording / RESULT)
    return True


def _report(path: Path) -> dict[str, Any] | None:
    """What a file has of an audit; None where that is no report."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def command_of(recording: Path, made: Path, imports: Sequence[Path]) -> list[str]:
    """What is run, as somebody would at a terminal; the report goes to a file of its own."""
    command = [sys.executable, "-m", "slackwater.cli", "audit", str(recording), "--json", str(made)]
    for path in imports:
        command += ["--import", str(path)]
    return command
