"""Many groups never pass the driver, and a long run does not grow: not on disk, not in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from agreement import differences
from slackwater.reference.evaluate import evaluate
from slackwater.runtime import journal, log
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.session import Settings
from slackwater.runtime.testing import ListSink, scripted_session, take_turns
from slackwater.spark.execute import Executor

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
EPOCH_US = int(EPOCH.timestamp()) * 1_000_000
GROUPS = 300_000


class CountingSink:
    """Adds answers up as they come by, and keeps none."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}
        self.sums: dict[tuple[str, str], float] = {}

    def open(self, resume: Mapping[str, object] | None) -> None:
        """There is nothing to go on from."""

    def write(self, step: int, batches: Iterable[AnswerBatch]) -> None:
        for batch in batches:
            for answer in batch.answers():
                key = (answer.query, answer.column)
                self.counts[key] = self.counts.get(key, 0) + 1
                self.sums[key] = self.sums.get(key, 0) + answer.value

    def mark(self) -> dict[str, object]:
        return {}

    def close(self) -> None:
        """There is nothing to let go of."""


def test_groups_by_the_hundred_thousand_stay_in_spark(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "RESIDENT_ROWS", 10_000)
    collected: list[int] = []
    collect = Executor.collect

    def counted(self: Executor, session: Any, sql: str) -> pa.Table:
        rows = collect(self, session, sql)
        collected.append(rows.num_rows)
        return rows

    monkeypatch.setattr(Executor, "collect", counted)
    draw = np.random.default_rng(17)
    batches = []
    for index in range(2):
        # every group once in the first batch, every other one again in the second; a few seconds each
        keys = draw.permutation(np.arange(0, GROUPS, 1 + index, dtype=np.int64))
        times = EPOCH_US + index * 6_000_000 + draw.integers(0, 4_000_000, len(keys))
        size = draw.integers(0, 1500, len(keys), dtype=np.int32)
        ts = pa.array(times.view("datetime64[us]"), pa.timestamp("us", "UTC"))
        batches.append(pa.table({"ts": ts, "k": keys, "size": size}))
    sql = (
        "CREATE STREAM p (ts TIMESTAMP, k BIGINT, size INT) USING scripted TIMESTAMP BY ts;"
        "CREATE QUERY q AS SELECT k, SUM(size) AS s, COUNT(*) AS n FROM p GROUP BY window(ts, '20 seconds'), k;"
    )
    tables = {"p": batches}
    session = scripted_session(spark, sql, tables, settings=Settings(driver_rows=1000))
    sink = CountingSink()
    session.start(sink, manual=True)
    try:
        take_turns(session, {"p": batches[:1]})
        (table_id,) = session.plan.steps["q"].tables
        pane_log = session.engine._logs["p"]
        assert sum(f.rows for f in pane_log.files(table_id)) == GROUPS
        assert pane_log.store(table_id) is None, "the driver does not hold such a table"
        take_turns(session, tables)
    finally:
        session.stop()
    assert sink.counts == {("q", "s"): GROUPS, ("q", "n"): GROUPS}
    assert sink.sums["q", "n"] == sum(b.num_rows for b in batches)
    assert sink.sums["q", "s"] == sum(pc.sum(b["size"]).as_py() for b in batches)
    assert max(collected) < 1000, "the driver has seen counts, not groups"


BATCHES, ROWS, STEP_MS = 40, 20, 250


def small_batch(index: int) -> list[dict[str, Any]]:
    """Five seconds of rows; each batch has hosts of its own, beside one that is always there."""
    return [
        {
            "ts": EPOCH + timedelta(milliseconds=STEP_MS * (ROWS * index + i)),
            "host": "always" if i % 2 else f"h{index}-{i}",
            "size": (31 * index + 7 * i) % 200,
        }
        for i in range(ROWS)
    ]


def files_below(folder: Path) -> int:
    return sum(f.is_file() and not f.name.startswith((".", "_")) for f in folder.rglob("*"))


def test_a_long_run_keeps_its_state_small(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "FILES_AT_MOST", 8)
    sql = (
        "CREATE STREAM p (ts TIMESTAMP, host STRING, size INT) USING scripted TIMESTAMP BY ts LATENESS 1 SECOND;"
        "CREATE QUERY sliding AS SELECT SUM(size) AS s FROM p GROUP BY window(ts, '20 seconds', '5 seconds');"
        "CREATE QUERY grouped AS SELECT host, COUNT(*) AS n FROM p GROUP BY window(ts, '10 seconds'), host;"
        "CREATE QUERY lasting AS SELECT MAX(size) AS m FROM p WHERE size < 150 GROUP BY window(ts, '1 hour', '20 seconds');"
        "CREATE QUERY rows AS SELECT host, size FROM p WHERE size > 190;"
    )
    rows = [small_batch(i) for i in range(BATCHES)]
    schema = pa.schema([("ts", pa.timestamp("us", "UTC")), ("host", pa.string()), ("size", pa.int32())])
    tables = {"p": [pa.Table.from_pylist(b, schema=schema) for b in rows]}
    root = tmp_path / "state"
    session = scripted_session(spark, sql, tables, state=root)
    sink = ListSink()
    session.start(sink, manual=True)
    files: list[int] = []
    groups: list[int] = []
    try:
        for index in range(BATCHES):
            session.engine.batch("p", spark.range(0), index)
            stores = session.engine._logs["p"]._stores
            files.append(files_below(root / "panes"))
            groups.append(max((len(s.groups) for s in stores.values()), default=0))
            assert not list((root / "outputs").iterdir()), "what was delivered is gone"
            for store in stores.values():
                assert len(store.panes) <= 130, "an hour of panes of 20 seconds is the most that is needed"
    finally:
        session.stop()
    assert not differences(sink.answers, evaluate(sql, {"p": rows}))
    kept = journal.KEPT + 2
    assert files_below(root / "records") <= kept
    assert files_below(root / "commits") <= kept
    assert files_below(root / "versions") == 1
    tables_in_log = len({t for step in session.plan.steps.values() for t in step.tables})
    assert max(files) <= (log.FILES_AT_MOST + 1) * tables_in_log
    assert max(files[26:]) <= max(files[:14]) + log.FILES_AT_MOST, "as many at the end as at the start"
    assert max(groups) <= 200, "hosts that are gone are forgotten"
    largest = max(f.stat().st_size for f in (root / "commits").iterdir())
    assert largest < 50_000
