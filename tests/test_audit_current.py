"""Recording and auditing queries over current values: exact ones, deferred ones, and changes of both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from slackwater.runtime.answers import Answer
from slackwater.runtime.recording import ANSWERS, Recording
from slackwater.runtime.testing import scripted_session, take_turns
from slackwater.terminal.audit import audit

ORIGIN = 1_700_000_000_000_000
SQL = """
CREATE STREAM load (ts TIMESTAMP, host STRING, x DOUBLE) USING scripted KEY host TIMESTAMP BY ts LATENESS 2 SECONDS;
CREATE STREAM other (ts TIMESTAMP, host STRING, x DOUBLE) USING scripted KEY host TIMESTAMP BY ts;
CREATE QUERY now AS SELECT host, SUM(x) AS s FROM LATEST(load) GROUP BY host WITH EXACT;
CREATE QUERY slow AS SELECT AVG(x) AS a, max_over(AVG(x), '20 seconds') AS m FROM LATEST(load)
  WITH DRIFT 2 BELIEF 80%;
CREATE QUERY hosts AS SELECT host, SUM(x) AS s FROM LATEST(load) GROUP BY host WITH DRIFT 2% BELIEF 90% EXTRAPOLATE;
CREATE QUERY turned AS SELECT SUM(x) AS s FROM LATEST(load) WITH DRIFT 10 BELIEF 80%;
"""
LATER = """
ALTER QUERY slow WITH DRIFT 1 BELIEF 80%;
ALTER QUERY turned WITH EXACT;
CREATE QUERY second AS SELECT AVG(x) AS a FROM LATEST(other) WITH DRIFT 3 BELIEF 80%;
"""


def walks(seed: int, seconds: int = 160, hosts: int = 5) -> list[pa.Table]:
    """Four batches of what hosts say every second, some of it too late."""
    random = np.random.default_rng(seed)
    x = 100 + np.cumsum(random.normal(0, 1, (seconds, hosts)), axis=0)
    order = np.arange(seconds * hosts)
    late = random.random(len(order)) < 0.02
    order = order[np.argsort(order // hosts + 6 * late, kind="stable")]
    second, host = order // hosts, order % hosts
    table = pa.table(
        {
            "ts": pa.array(ORIGIN + second * 1_000_000, pa.timestamp("us", "UTC")),
            "host": pa.array([f"h{h}" for h in host]),
            "x": pa.array(x[second, host]),
        }
    )
    return [table.slice(first, len(order) // 4) for first in range(0, len(order), len(order) // 4)]


def audited(spark: Any, folder: Path, work: Path) -> Any:
    work.mkdir()
    return audit(Recording.open(folder), spark, lambda session: None, (), work)


def test_current_values_are_audited(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    batches = {"load": walks(1), "other": walks(2)}
    session = scripted_session(spark, SQL, batches)
    session.start(manual=True, record=folder)
    take_turns(session, {"load": batches["load"][:2]})
    session.sql(LATER)
    take_turns(session, batches)
    session.stop()
    recording = Recording.open(folder)
    assert {t.stream for t in recording.turns if t.has_rows} == {"load", "other"}, (
        "though no window reads them"
    )
    report = audited(spark, folder, tmp_path / "work")
    assert report.passed, report.problems
    found = {column.name: column for column in report.columns}
    assert set(found) == {"now.s", "slow.a", "slow.m", "hosts.s", "turned.s", "second.a"}
    now = found["now.s"]
    assert (now.compared, now.answers, now.drift) == (now.true, now.true, None)
    assert now.true > 700
    for name in ("slow.a", "slow.m", "hosts.s", "second.a"):
        column = found[name]
        assert column.drift.fidelity.of + column.drift.modelled == column.true > 120
        assert (column.missing, column.extra, column.differing, column.drift.late) == (0, 0, 0, 0)
        # two minutes are few to learn from
        assert column.drift.fidelity.share >= column.drift.fidelity.claimed - 0.05
        assert 0 < column.saved < 1
    turned = found["turned.s"]
    assert turned.hows["exact"] > 50
    assert turned.hows["deferred"] > 5
    assert turned.compared == turned.true == turned.drift.fidelity.of + turned.hows["exact"]
    path = folder / ANSWERS
    answers = [Answer.from_json(line) for line in path.read_text().splitlines()]
    path.write_text("".join(moved(answer).to_json_line() + "\n" for answer in answers))
    report = audited(spark, folder, tmp_path / "again")
    assert not report.passed
    assert [p.split(":")[0] for p in report.problems] == ["now.s", "slow.a"]
    assert "the cached answer was within its bound at 0.0% of 1" in report.problems[1]


def moved(answer: Answer) -> Answer:
    """An answer that somebody has tampered with."""
    if (answer.query, answer.column) == ("slow", "a"):
        assert isinstance(answer.value, float)
        return replace(answer, value=answer.value + 50, low=answer.value + 40, high=answer.value + 60)
    if answer.query == "now" and answer.value == pytest.approx(100, abs=1):
        return replace(answer, value=1.0)
    return answer
