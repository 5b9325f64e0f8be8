"""An audit beside a run: `slackwater audit` as a process of its own, which yields to the pipeline."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import psutil

from slackwater.service.api_models import Audit
from slackwater.service.problems import Refusal

logger = logging.getLogger(__name__)
RESULT = "audit.json"
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
                self._failed = ""
                self._start(self._recording)
        return self.told()

    def _start(self, recording: Path) -> None:
        # what one that was interrupted has left must not pass for the report of this one
        (recording / f"{RESULT}.tmp").unlink(missing_ok=True)
        self._process = subprocess.Popen(
            command_of(recording, self._imports),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        with contextlib.suppress(psutil.Error):
            psutil.Process(self._process.pid).nice(NICE)
        threading.Thread(target=self._wait, args=(self._process, recording), daemon=True).start()

    def _wait(self, process: subprocess.Popen[str], recording: Path) -> None:
        _, said = process.communicate()
        made = recording / f"{RESULT}.tmp"
        with self._lock:
            if process.returncode in (0, 1) and made.exists():
                made.replace(recording / RESULT)
            else:
                self._failed = said.strip()[-TOLD:] or f"it ended with code {process.returncode}"
            self._process = None

    def told(self) -> Audit:
        """How it stands."""
        with self._lock:
            running, failed, folder = self._process is not None, self._failed, self._recording
        if folder is None:
            return Audit(state="none", recording=None, message="this run is not recorded")
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
        """End the one that runs, with the service."""
        with self._lock:
            process = self._process
        if process is not None:
            logger.warning("the audit was interrupted; slackwater audit %s runs it again", self._recording)
            process.terminate()


def command_of(recording: Path, imports: Sequence[Path]) -> list[str]:
    """What is run, as somebody would at a terminal."""
    command = [sys.executable, "-m", "slackwater.cli", "audit", str(recording)]
    command += ["--json", str(recording / f"{RESULT}.tmp")]
    for path in imports:
        command += ["--import", str(path)]
    return command
