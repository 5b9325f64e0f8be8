"""An audit of a recorded run, begun through its service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from service_run import batches, running
from waiting import wait_for


def test_a_recorded_run_is_audited_beside_it(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    with running(spark, tmp_path / "state", tables=batches(4), record=folder) as run:
        assert run.client.get("/api/audit").ok()["state"] == "none"
        run.client.ask("POST", "/api/audit").problem(401)
        run.turn(4)
        assert run.client.change("POST", "/api/audit").ok(202)["state"] == "running"
        # a Spark of its own, behind all else that this machine has to do
        wait_for(lambda: run.client.get("/api/audit").ok()["state"] != "running", seconds=500)
        found = run.client.get("/api/audit").ok()
    assert (found["state"], found["passed"], found["message"]) == ("done", True, "")
    assert found["recording"] == str(folder)
    assert {column["query"] for column in found["report"]["columns"]} == {"total", "by_port", "web"}
