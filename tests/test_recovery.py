"""A run that is killed anywhere goes on: answers are those of an uninterrupted run, none lost, none twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from agreement import identity, tables_of
from slackwater.runtime.answers import Answer
from slackwater.runtime.session import Settings
from slackwater.runtime.testing import (
    Killed,
    ListSink,
    abandon,
    killer,
    run_scripted,
    scripted_session,
    take_turns,
)

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("host", pa.string()), ("size", pa.int32())])
SQL = """
CREATE STREAM p (ts TIMESTAMP, host STRING, size INT) USING scripted TIMESTAMP BY ts LATENESS 1 SECOND;
CREATE QUERY sliding AS SELECT SUM(size) AS s, STDDEV(size) AS d FROM p GROUP BY window(ts, '6 seconds', '2 seconds');
CREATE QUERY grouped AS SELECT host, MAX(size) AS m FROM p GROUP BY window(ts, '4 seconds'), host;
CREATE QUERY middle AS SELECT MEDIAN(size) AS m FROM p GROUP BY window(ts, '5 seconds');
CREATE VIEW v AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '2 seconds');
CREATE QUERY nested AS SELECT SUM(n) AS n FROM v GROUP BY window(ts, '6 seconds');
CREATE QUERY tuple AS SELECT AVG(size) AS a FROM p GROUP BY tuples(7, 3);
CREATE QUERY rows AS SELECT host, size FROM p WHERE size > 45;
"""
BATCHES = {
    "p": [
        [
            {
                "ts": EPOCH + timedelta(milliseconds=400 * (10 * b + i)),
                "host": "abc"[i % 3],
                "size": (7 * b + 13 * i) % 50,
            }
            for i in range(10)
        ]
        for b in range(4)
    ]
}
TABLES = tables_of(BATCHES, SCHEMA)
POINTS = ("recorded", "partials", "answers", "committed")


@pytest.fixture(scope="module")
def uninterrupted(spark: Any) -> list[Answer]:
    return run_scripted(spark, SQL, TABLES, settings=Settings(driver_rows=2))


@pytest.mark.parametrize(("point", "occurrence"), [(p, n) for p in POINTS for n in (1, 3)])
def test_a_kill_changes_no_answer(
    spark: Any, tmp_path: Path, uninterrupted: list[Answer], point: str, occurrence: int
) -> None:
    kept: list[Answer] = []
    options = {"state": tmp_path / "state", "settings": Settings(driver_rows=2)}
    first = scripted_session(spark, SQL, TABLES, fault=killer(point, occurrence), **options)
    first.start(ListSink(kept), manual=True)
    with pytest.raises(Killed):
        take_turns(first, TABLES)
    abandon(first)
    second = scripted_session(spark, SQL, TABLES, **options)
    second.start(ListSink(kept), manual=True)
    take_turns(second, TABLES)
    second.stop()
    assert sorted(map(identity, kept), key=repr) == sorted(map(identity, uninterrupted), key=repr)


def test_a_replayed_batch_obeys_its_record_and_not_a_newer_query_set(spark: Any, tmp_path: Path) -> None:
    kept: list[Answer] = []
    state = tmp_path / "state"
    first = scripted_session(spark, SQL, TABLES, state=state, fault=killer("recorded", 2))
    first.start(ListSink(kept), manual=True)
    with pytest.raises(Killed):
        take_turns(first, TABLES)
    first.engine.error = None
    first.sql("DROP QUERY rows")
    abandon(first)
    second = scripted_session(spark, SQL, TABLES, state=state)
    second.start(ListSink(kept), manual=True)
    take_turns(second, {"p": TABLES["p"][:2]})
    answered = sum(a.query == "rows" for a in kept)
    expected = sum(r["size"] > 45 for batch in BATCHES["p"][:2] for r in batch)
    assert answered == expected, "batch 1 was decided while the query was there"
    take_turns(second, TABLES)
    second.stop()
    assert sum(a.query == "rows" for a in kept) == expected, "the drop holds from the next batch on"


def test_what_was_changed_while_running_survives_a_restart_with_the_same_file(
    spark: Any, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    first = scripted_session(spark, SQL, TABLES, state=state)
    first.start(manual=True)
    take_turns(first, {"p": TABLES["p"][:1]})
    first.sql(
        "DROP QUERY rows; CREATE QUERY later AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '2 seconds')"
    )
    first.sql("ALTER QUERY sliding WITH EXACT PRIORITY 1")
    take_turns(first, {"p": TABLES["p"][:2]})
    first.stop()
    second = scripted_session(spark, SQL, TABLES, state=state)
    second.start(manual=True)
    assert "rows" not in second.catalog.queries
    assert "later" in second.catalog.queries
    assert str(second.catalog.contracts["sliding"]) == "EXACT PRIORITY 1"
    second.stop()
