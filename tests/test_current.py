"""Queries over current values on Spark, against the reference: every tick, whatever the batches."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agreement import differences
from slackwater.language.parse import parse
from slackwater.language.statements import CreateQuery
from slackwater.planners.ruling import FixedRates
from slackwater.reference.evaluate import evaluate
from slackwater.runtime.answers import Answer
from slackwater.runtime.clocks import Clocks
from slackwater.runtime.settings import Settings
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
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("host", pa.string()),
        ("x", pa.float64()),
        ("n", pa.int32()),
        ("big", pa.int64()),
    ]
)
STREAM = """CREATE STREAM load (ts TIMESTAMP, host STRING, x DOUBLE, n INT, big BIGINT) USING scripted
  KEY host TIMESTAMP BY ts LATENESS 2 SECONDS{clauses};
"""
TABLE = (
    "CREATE TABLE holdings (host STRING, account INT, qty DOUBLE) USING parquet OPTIONS (path '{path}');\n"
)
HOLDINGS = [
    {"host": host, "account": account, "qty": qty}
    for host, account, qty in [
        ("h0", 1, 2.0), ("h0", 2, -1.0), ("h1", 1, 0.5), ("h1", 1, 1.5), ("h2", 3, 4.0), ("h3", 2, None),
        ("h4", 3, 1.0), ("h9", 9, 1.0),
    ]
]  # fmt: skip
QUERIES = """
CREATE QUERY plain AS SELECT AVG(x) AS a, SUM(n) AS s, COUNT(*) AS c, COUNT(x) AS cx, MIN(n) AS low, MAX(x) AS high
  FROM LATEST(load) WITH EXACT;
CREATE QUERY hosts AS SELECT host, SUM(x) AS s, MAX(n) AS m FROM LATEST(load) WHERE host <> 'h2' GROUP BY host;
CREATE QUERY worth AS SELECT account, SUM(qty * x) AS worth, AVG(qty * x) AS mean, COUNT(*) AS c, MIN(qty * x) AS low,
  MAX(qty * x) AS high, SUM(qty) AS held, SUM(qty * x) / SUM(qty) AS per
  FROM LATEST(load) JOIN holdings USING (host) GROUP BY account HAVING COUNT(*) > 0 WITH EXACT;
CREATE QUERY part AS SELECT SUM(x) FILTER (WHERE host < 'h2') AS s, COUNT_IF(host = 'h1') AS c FROM LATEST(load);
CREATE QUERY moving AS SELECT max_over(AVG(x), '3 seconds') AS m, min_over(SUM(n) - COUNT(*), '5 seconds') AS l,
  max_since(SUM(x), TIMESTAMP '2026-01-01 00:00:04') AS top, AVG(x) - min_over(AVG(x), '2 seconds') AS up FROM LATEST(load);
CREATE QUERY moved AS SELECT account, max_over(SUM(qty * x), '4 seconds') AS m FROM LATEST(load)
  JOIN holdings USING (host) GROUP BY account;
CREATE QUERY spread AS SELECT STDDEV(x) AS d, MEDIAN(x) AS m, SUM(big) AS b, COUNT(DISTINCT n) AS k FROM LATEST(load)
  WHERE x > 20;
CREATE QUERY busy AS SELECT host, x * 2 AS twice FROM LATEST(load) WHERE x > 50;
CREATE VIEW totals AS SELECT account, SUM(qty * x) AS total FROM LATEST(load) JOIN holdings USING (host) GROUP BY account;
CREATE QUERY top AS SELECT MAX(total) AS most, COUNT(*) AS accounts FROM totals;
CREATE QUERY unknown AS SELECT host, SUM(qty) AS q, COUNT(*) AS c FROM LATEST(load) LEFT JOIN holdings USING (host) GROUP BY host;
"""  # fmt: skip


def rows_of(seed: int, count: int = 120, disorder: float = 1.5) -> list[dict[str, Any]]:
    """Rows of a few hosts over some seconds, in order of arrival, some of them late."""
    random = Random(seed)
    made = []
    for number in range(count):
        at = number * 0.12
        made.append(
            {
                "ts": EPOCH + timedelta(seconds=round(max(0.0, at - random.random() * disorder), 3)),
                "host": random.choice(["h0", "h1", "h2", "h3", "h4", "h5"])
                if number > 20
                else f"h{number % 3}",
                "x": None if random.random() < 0.1 else round(random.gauss(50, 20), 3),
                "n": None if random.random() < 0.1 else random.randrange(100),
                "big": random.randrange(2**55, 2**60),
            }
        )
    return made


def cut(rows: list[dict[str, Any]], size: int) -> list[list[dict[str, Any]]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def tables(batches: list[list[dict[str, Any]]]) -> list[pa.Table]:
    return [pa.Table.from_pylist(batch, schema=SCHEMA) for batch in batches]


@pytest.fixture(scope="module")
def holdings(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("holdings") / "holdings.parquet"
    pq.write_table(pa.Table.from_pylist(HOLDINGS), path)
    return TABLE.format(path=path)


FEW = "".join(re.findall(r"CREATE QUERY (?:plain|moving|moved).*?;", QUERIES, flags=re.S))


@pytest.mark.parametrize(
    ("seed", "size", "disorder", "clauses", "queries"),
    [(2, 20, 6.0, "", QUERIES), (1, 40, 1.5, " TICK 500 MILLISECONDS", FEW)],
    ids=["all", "ticks"],
)
def test_every_tick_is_what_the_reference_says(spark, holdings, seed, size, disorder, clauses, queries):
    sql = STREAM.format(clauses=clauses) + holdings + queries
    batches = cut(rows_of(seed, disorder=disorder), size)
    expected = evaluate(sql, {"load": batches}, {"holdings": HOLDINGS})
    found = run_scripted(spark, sql, {"load": tables(batches)})
    assert differences(found, expected) == ""
    assert {a.query for a in found} == {s.name for s in parse(sql) if isinstance(s, CreateQuery)}


def test_a_silent_stream_is_answered_by_the_clock(spark):
    clock = [0.0]
    clocks = Clocks(seconds=lambda: clock[0], now=lambda: EPOCH + timedelta(seconds=clock[0]))
    sql = (
        STREAM.format(clauses=" IDLE 5 SECONDS")
        + """
      CREATE QUERY slow AS SELECT AVG(x) AS a FROM LATEST(load) WITH DRIFT 5 BELIEF 90%;
      CREATE QUERY now AS SELECT COUNT(*) AS c FROM LATEST(load);"""
    )
    rows = [
        {
            "ts": EPOCH + timedelta(seconds=t),
            "host": f"h{k}",
            "x": 50.0 + t + k + (7 * t + 13 * k) % 5,
            "n": 1,
            "big": 1,
        }
        for t in range(12)
        for k in range(3)
    ]
    session = scripted_session(spark, sql, {"load": tables([rows])}, clocks=clocks, ends=False)
    sink = ListSink()
    session.start(sink, manual=True)
    session.engine.batch("load", session.engine.executor.session.range(0), 0)
    before = max(a.at for a in sink.answers)
    assert not session.engine.tick("load"), "a moment of silence is none"
    for seconds in (8, 20, 40):
        clock[0] = float(seconds)
        assert session.engine.tick("load")
    session.stop()
    late = [a for a in sink.answers if a.at > before]
    assert [a.at for a in late if a.query == "now"] == [EPOCH + timedelta(seconds=t) for t in (9, 10, 11)], (
        "ticks that waited for LATENESS"
    )
    modelled = [a for a in late if a.how == "modelled"]
    assert len(modelled) >= 4
    assert modelled[-1].at <= EPOCH + timedelta(seconds=11 + 40)
    assert modelled[-1].high - modelled[-1].low > modelled[0].high - modelled[0].low


MIXED = """
CREATE QUERY now AS SELECT AVG(x) AS a, COUNT(*) AS c FROM LATEST(load) WITH EXACT;
CREATE QUERY slow AS SELECT AVG(x) AS a, max_over(SUM(n), '4 seconds') AS m FROM LATEST(load) WITH DRIFT 5 BELIEF 80%;
CREATE QUERY seconds AS SELECT COUNT(*) AS n FROM load WHERE n > 10 GROUP BY window(ts, '2 seconds') WITH ERROR 20%;
CREATE QUERY windows AS SELECT SUM(n) AS s FROM load WHERE n > 50 GROUP BY window(ts, '1 second') WITH SUBSET GAP 2;
"""


def test_load_that_is_shed_does_not_touch_current_values(spark):
    """Windows are sampled and left out beside them, and what each key said last stays what it is."""
    sql = STREAM.format(clauses="") + MIXED
    batches = cut(rows_of(5), 30)
    ruler = FixedRates({"seconds": 0.3}, drops={"windows": 0.6})
    found = run_scripted(spark, sql, {"load": tables(batches)}, ruler=ruler)
    expected = [a for a in evaluate(sql, {"load": batches}) if a.query == "now"]
    assert differences([a for a in found if a.query == "now"], expected) == ""
    truth = {(a.column, a.at): a.value for a in evaluate(sql, {"load": batches}) if a.query == "slow"}
    slow = [a for a in found if a.query == "slow" and a.how == "deferred"]
    assert slow
    assert all(a.value == pytest.approx(truth[a.column, a.at]) for a in slow)
    assert {a.how for a in found if a.query == "seconds"} == {"sampled"}


def killed_and_resumed(spark, sql: str, batches: list[pa.Table], state: Path) -> list[Answer]:
    """The answers of a run that is killed several times, at different points of a turn."""
    sink = ListSink()
    for point, occurrence in (("partials", 2), ("answers", 3), ("committed", 3), ("never", 1)):
        session = scripted_session(
            spark, sql, {"load": batches}, state=state, fault=killer(point, occurrence)
        )
        try:
            session.start(sink, manual=True)
            take_turns(session, {"load": batches})
            session.stop()
        except Killed:
            abandon(session)
    return sink.answers


def test_a_killed_run_goes_on_as_if_nothing_had_been(spark, holdings, tmp_path, monkeypatch):
    monkeypatch.setattr("slackwater.runtime.current.keeper.SNAPSHOT_EVERY", 3)
    sql = (
        STREAM.format(clauses="")
        + holdings
        + MIXED
        + """
    CREATE QUERY worth AS SELECT account, SUM(qty * x) AS w, max_since(SUM(qty * x), TIMESTAMP '2026-01-01') AS top
      FROM LATEST(load) JOIN holdings USING (host) GROUP BY account WITH DRIFT 2% BELIEF 90%;
    CREATE QUERY spread AS SELECT STDDEV(x) AS d FROM LATEST(load) WHERE x > 20;"""
    )
    batches = tables(cut(rows_of(6, disorder=4.0), 12))
    left_alone = run_scripted(spark, sql, {"load": batches})
    found = killed_and_resumed(spark, sql, batches, tmp_path / "state")
    assert [replace(a, emitted_at=EPOCH) for a in found] == [replace(a, emitted_at=EPOCH) for a in left_alone]


def test_a_query_that_comes_later_is_exact_from_its_first_tick(spark, holdings):
    sql = (
        STREAM.format(clauses=" INTERRUPTED AFTER 1 HOUR")
        + holdings
        + "CREATE QUERY first AS SELECT AVG(x) AS a FROM LATEST(load);"
    )
    late = """CREATE QUERY late AS SELECT account, SUM(qty * n) AS s FROM LATEST(load) JOIN holdings USING (host)
      GROUP BY account; CREATE QUERY slow AS SELECT SUM(n) AS s FROM LATEST(load) WITH DRIFT 0;"""
    batches = cut(rows_of(7), 20)
    session = scripted_session(spark, sql, {"load": tables(batches)})
    sink = ListSink()
    session.start(sink, manual=True)
    carrier = session.engine.executor.session.range(0)
    for number in range(len(batches)):
        if number == 3:
            session.sql(late)
        if number == 5:
            session.sql("DROP QUERY first;")
        session.engine.batch("load", carrier, number)
    session.stop()
    expected = evaluate(sql + late, {"load": batches}, {"holdings": HOLDINGS})
    for query in ("late", "slow"):
        mine = [a for a in sink.answers if a.query == query]
        begun = min(a.at for a in mine)
        assert begun < EPOCH + timedelta(seconds=9)
        assert differences(mine, [a for a in expected if a.query == query and a.at >= begun]) == ""


CHANGING = """CREATE QUERY moved AS SELECT upper(host) AS name, max_over(SUM(n), '4 seconds') AS m,
  max_since(SUM(n), TIMESTAMP '2026-01-01') AS top, SUM(n) AS s FROM LATEST(load) GROUP BY host WITH EXACT;"""


def test_extremes_go_on_under_another_contract(spark):
    """Under DRIFT 0 all answers are those of the exact query, and the one that stands is right at every tick."""
    sql = STREAM.format(clauses=" INTERRUPTED AFTER 1 HOUR") + CHANGING
    batches = cut([row | {"n": row["n"] or 0} for row in rows_of(9, count=100)], 20)
    session = scripted_session(spark, sql, {"load": tables(batches)})
    sink = ListSink()
    session.start(sink, manual=True)
    carrier = session.engine.executor.session.range(0)
    changes = {1: "DRIFT 0 BELIEF 90%", 2: "EXACT WEIGHT 2", 3: "DRIFT 0 BELIEF 80%", 4: "DRIFT 0"}
    for number in range(len(batches)):
        if number in changes:
            session.sql(f"ALTER QUERY moved WITH {changes[number]};")
        session.engine.batch("load", carrier, number)
    session.stop()
    assert {a.how for a in sink.answers} == {"exact", "deferred"}
    expected = evaluate(sql, {"load": batches})
    assert "only on Spark" not in differences(sink.answers, expected)
    said = {(a.column, a.group["host"], a.at): a.value for a in sink.answers}
    standing, wrong = {}, []
    for answer in sorted(expected, key=lambda a: a.at):
        item = (answer.column, dict(answer.keys)["host"])
        standing[item] = said.get((*item, answer.at), standing.get(item))
        wrong += [answer] if standing[item] != answer.value else []
    assert wrong == []


def test_a_matrix_in_shards_gives_the_same_answers(spark, holdings, monkeypatch):
    monkeypatch.setattr("slackwater.runtime.current.shards.ROWS_AT_LEAST", 1)
    sql = (
        STREAM.format(clauses="")
        + holdings
        + """
    CREATE QUERY worth AS SELECT account, SUM(qty * x) AS w, max_over(SUM(qty * x), '4 seconds') AS m FROM LATEST(load)
      JOIN holdings USING (host) GROUP BY account WITH EXACT;
    CREATE QUERY slow AS SELECT account, AVG(qty * x) AS w, max_over(SUM(qty * x), '4 seconds') AS m, COUNT(*) AS c
      FROM LATEST(load) JOIN holdings USING (host) GROUP BY account WITH DRIFT 20 BELIEF 80%;"""
    )
    batches = tables(cut(rows_of(8, count=60, disorder=4.0), 30))
    whole = run_scripted(spark, sql, {"load": batches})
    shards = run_scripted(spark, sql, {"load": batches}, settings=Settings(driver_entries=1))
    same = [sorted((replace(a, emitted_at=EPOCH) for a in found), key=repr) for found in (whole, shards)]
    assert same[0] == same[1]
    assert {a.query for a in whole} == {"worth", "slow"}
