"""The process of an audit: begun, found again, interrupted, and what is kept of it. Its Spark is tested elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from slackwater.service import audit_job
from slackwater.service.audit_job import LOCK, RESULT, AuditJob
from slackwater.service.problems import Refusal
from waiting import wait_for


def test_a_run_that_is_not_recorded_has_no_audit() -> None:
    job = AuditJob(None)
    assert (job.told().state, job.told().message) == ("none", "this run is not recorded")
    with pytest.raises(Refusal, match="this run is not recorded") as refused:
        job.begin()
    assert (refused.value.status, refused.value.hint) == (409, "slackwater run FILE --record DIR")


def test_an_audit_that_fails_says_why_and_can_be_begun_again(tmp_path: Path) -> None:
    job = AuditJob(tmp_path)
    assert job.told().state == "none"
    assert job.begin().state in ("running", "failed")
    wait_for(lambda: job.told().state != "running")
    failed = job.told()
    assert (failed.state, failed.recording, failed.passed) == ("failed", str(tmp_path), None)
    assert "error:" in failed.message
    assert job.begin().state in ("running", "failed")
    job.stop()
    wait_for(lambda: job.told().state != "running")


def test_the_last_report_is_told_whatever_happened_to_it(tmp_path: Path) -> None:
    job = AuditJob(tmp_path)
    (tmp_path / RESULT).write_text('{"passed": true, "queries": []}')
    assert (job.told().state, job.told().passed) == ("done", True)
    (tmp_path / RESULT).write_text("[]")
    assert job.told().state == "failed"
    (tmp_path / RESULT).write_text("{")
    assert "cannot be read" in job.told().message


def test_what_an_interrupted_audit_has_left_is_no_report_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = [sys.executable, "-c", "import sys; sys.exit('error: no disk')"]
    monkeypatch.setattr("slackwater.service.audit_job.command_of", lambda *_: failing)
    (tmp_path / f"{RESULT}.tmp").write_text('{"passed": true}')
    job = AuditJob(tmp_path)
    job.begin()
    wait_for(lambda: job.told().state != "running")
    assert (job.told().state, job.told().message) == ("failed", "error: no disk")
    # what another service of the recording has found since is the last word
    (tmp_path / RESULT).write_text('{"passed": true}')
    assert (job.told().state, job.told().passed) == ("done", True)


def test_an_audit_yields_to_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = tmp_path / "waiting.py"
    waiting.write_text("import sys; sys.stdin.read(); import threading; threading.Event().wait(60)\n")
    real = sys.executable
    monkeypatch.setattr("slackwater.service.audit_job.command_of", lambda *_: [real, str(waiting)])
    job = AuditJob(tmp_path)
    assert job.begin().state == "running"
    assert job.begin().state == "running", "the same one"
    process = job._process
    assert process is not None
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == 10
    job.stop()
    wait_for(lambda: job.told().state == "failed")
    assert process.returncode == -15


# --- services that come and go ----------------------------------------------------------------------

AUDIT = """
import os, sys
folder, made = sys.argv[1:]
with open(f"{folder}/begun", "a") as file:
    file.write(f"{os.getpid()}\\n")
# until a test says what is to be found
with open(f"{folder}/found") as file:
    found = file.read()
with open(made, "w") as file:
    file.write(found)
"""
SERVICE = """
import os, sys
from pathlib import Path
from slackwater.service import audit_job
folder, script = sys.argv[1:]
audit_job.command_of = lambda recording, made, _: [sys.executable, script, str(recording), str(made)]
assert audit_job.AuditJob(Path(folder)).begin().state == "running"
# killed: nothing is put in order
os._exit(9)
"""


@dataclass
class Folder:
    """A recording whose audits find what a test says."""

    path: Path
    script: Path

    def killed(self) -> None:
        """A service that begins an audit and is killed."""
        command = [sys.executable, "-c", SERVICE, str(self.path), str(self.script)]
        assert subprocess.run(command, check=False).returncode == 9

    def begun(self) -> list[int]:
        """The audits that were begun, by their processes."""
        file = self.path / "begun"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def finds(self, report: str) -> None:
        """What the audit that runs has found; it ends with that."""
        (self.path / "found").write_text(report)

    def left(self) -> set[str]:
        return {path.name for path in self.path.glob("audit*")}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    found = Folder(tmp_path / "rec", tmp_path / "audit.py")
    found.path.mkdir()
    found.script.write_text(AUDIT)
    os.mkfifo(found.path / "found")
    monkeypatch.setattr(
        audit_job,
        "command_of",
        lambda recording, made, _: [sys.executable, str(found.script), str(recording), str(made)],
    )
    yield found
    for pid in found.begun():
        with_end(pid)


def over(pid: int) -> bool:
    """Whether a process has come to its end; nobody may have asked yet how."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def with_end(pid: int) -> None:
    """End a process of these tests that is still there."""
    try:
        process = psutil.Process(pid)
        if any("audit.py" in part for part in process.cmdline()):
            process.kill()
    except psutil.Error:
        pass


def test_an_audit_whose_service_was_killed_is_found_again(folder: Folder) -> None:
    folder.killed()
    wait_for(lambda: len(folder.begun()) == 1)
    job = AuditJob(folder.path)
    assert job.told().state == "running"
    assert job.begin().state == "running"
    # one that is served beside it finds it, too, and does not end it
    other = AuditJob(folder.path)
    other.stop()
    assert other.told().state == "running"
    folder.finds('{"passed": true, "columns": []}')
    wait_for(lambda: job.told().state != "running")
    assert (job.told().state, job.told().passed) == ("done", True)
    assert other.told().state == "done"
    assert len(folder.begun()) == 1, "no second one beside it"
    assert folder.left() == {RESULT, LOCK}


def test_an_audit_that_was_interrupted_leaves_no_report(folder: Folder) -> None:
    (folder.path / RESULT).write_text('{"passed": false}')
    folder.killed()
    wait_for(lambda: len(folder.begun()) == 1)
    job = AuditJob(folder.path)
    folder.finds('{"passed": tr')
    wait_for(lambda: job.told().state != "running")
    assert (job.told().state, job.told().passed) == ("done", False), "the one before it stands"
    assert job.begin().state == "running"
    wait_for(lambda: len(folder.begun()) == 2)
    folder.finds('{"passed": true}')
    wait_for(lambda: job.told().state != "running")
    assert (job.told().state, job.told().passed) == ("done", True)
    assert folder.left() == {RESULT, LOCK}


def test_two_services_of_a_recording_have_one_audit(folder: Folder) -> None:
    one, other = AuditJob(folder.path), AuditJob(folder.path)
    assert one.begin().state == "running"
    assert other.begin().state == "running"
    assert other.told().state == "running"
    wait_for(lambda: len(folder.begun()) == 1)
    folder.finds('{"passed": true}')
    wait_for(lambda: other.told().state == "done")
    wait_for(lambda: one.told().state == "done")
    assert len(folder.begun()) == 1


def test_each_audit_writes_to_a_file_of_its_own(folder: Folder) -> None:
    job, names = AuditJob(folder.path), []
    for number in (1, 2):
        assert job.begin().state == "running"
        names.append((folder.path / LOCK).read_text())
        wait_for(lambda number=number: len(folder.begun()) == number)
        folder.finds(f'{{"passed": true, "number": {number}}}')
        wait_for(lambda: job.told().state != "running")
        assert job.told().report == {"passed": True, "number": number}
    assert len(set(names)) == 2


def test_of_a_recording_that_is_begun_anew_no_old_audit_is_told(folder: Folder) -> None:
    folder.killed()
    wait_for(lambda: len(folder.begun()) == 1)
    # the run was started over, with all that its folder held taken away
    (folder.path / LOCK).unlink()
    job = AuditJob(folder.path)
    assert job.told().state == "none"
    folder.finds('{"passed": true}')
    wait_for(lambda: over(folder.begun()[0]))
    assert job.told().state == "none"


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    job = AuditJob(tmp_path / "nothing")
    with pytest.raises(Refusal, match=r"audit\.lock cannot be written: No such file"):
        job.begin()
    assert job.told().state == "none"
