"""Random queries over random streams: Spark's answers are the reference's, whatever the batch cuts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agreement import differences, tables_of
from slackwater.language.aggregates import UserAggregate
from slackwater.reference.evaluate import evaluate, late_rows
from slackwater.runtime.session import Settings
from slackwater.runtime.testing import ListSink, run_scripted, scripted_session, take_turns

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("host", pa.string()),
        ("port", pa.int32()),
        ("size", pa.int32()),
        ("x", pa.float64()),
    ]
)
STREAM = (
    "CREATE STREAM p (ts TIMESTAMP, host STRING, port INT, size INT, x DOUBLE) USING scripted TIMESTAMP BY ts "
    "LATENESS {lateness} SECONDS;\n"
)
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
HOSTS = ["a", "b", "c", None]
SITES = [{"host": "a", "site": "north", "load": 2}, {"host": "b", "site": "south", "load": 3}]

rows = st.fixed_dictionaries(
    {
        "ts": st.one_of(
            st.integers(0, 40_000).map(lambda ms: EPOCH + timedelta(milliseconds=ms)), st.just(None)
        ),
        "host": st.sampled_from(HOSTS),
        "port": st.one_of(st.integers(0, 5), st.none()),
        "size": st.one_of(st.integers(-50, 1500), st.none()),
        "x": st.one_of(st.integers(-8, 8).map(lambda n: n / 4), st.none()),
    }
)


@st.composite
def streams(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Batches of rows that come mostly in order, as streams do, and sometimes far too late."""
    listed = draw(st.lists(rows, min_size=1, max_size=60))
    jitter = draw(st.lists(st.integers(0, 6), min_size=len(listed), max_size=len(listed)))
    order = sorted(
        range(len(listed)),
        key=lambda i: ((listed[i]["ts"] or EPOCH) + timedelta(seconds=jitter[i]), i),
    )
    arranged = [listed[i] for i in order]
    cuts = sorted(draw(st.lists(st.integers(0, len(arranged)), max_size=3)))
    return [arranged[a:b] for a, b in zip([0, *cuts], [*cuts, len(arranged)], strict=True)]


conditions = st.sampled_from(
    ["port = 1", "port = 2", "size > 100", "size <= 900", "host = 'a'", "host <> 'b'", "x > 0", "port IN (1, 2, 3)",
     "size BETWEEN 0 AND 700", "host IS NOT NULL", "size % 2 = 0", "coalesce(port, 0) + 1 > 2", "host LIKE 'a%'"]
)  # fmt: skip
windows = st.sampled_from(
    ["window(ts, '5 seconds')", "window(ts, '10 seconds', '5 seconds')", "window(ts, '6 seconds', '4 seconds')",
     "window(ts, '9 seconds', '3 seconds', '1 second')", "window(ts, '700 milliseconds', '300 milliseconds')",
     "tuples(5)", "tuples(6, 4)", "tuples(2, 5)"]
)  # fmt: skip
aggregates = st.sampled_from(
    ["COUNT(*)", "COUNT(size)", "SUM(size)", "AVG(size)", "MIN(size)", "MAX(x)", "STDDEV(size)", "VAR_POP(x)",
     "MEDIAN(size)", "PERCENTILE(x, 0.9)", "COUNT(DISTINCT port)", "COUNT(DISTINCT host, port)", "SUM(x)",
     "MAX(size) - MIN(size)", "SUM(size) / COUNT(*)", "COUNT_IF(size > 10)", "SUM(size) FILTER (WHERE port = 1)",
     "MIN(host)", "BOOL_OR(size > 1000)", "SUM(DISTINCT port)", "doubled(size)", "lastly(size)",
     "coalesce(MAX(port), -1) + 1", "MEDIAN(size) FILTER (WHERE x > 0)"]
)  # fmt: skip
key_lists = st.sampled_from([[], [], ["host"], ["host", "port"], ["upper(host)"], ["port % 2"]])


@st.composite
def selects(draw: st.DrawFn, source: str = "p") -> str:
    chosen = draw(st.lists(conditions, max_size=2, unique=True))
    calls = draw(st.lists(aggregates, min_size=1, max_size=3, unique=True))
    keys = draw(key_lists)
    joined = draw(
        st.sampled_from(["", "", "", " JOIN sites USING (host)", " LEFT JOIN sites s ON s.host = p.host"])
    )
    if joined:
        keys = draw(st.sampled_from([[], ["site"]]))
        chosen = [c for c in chosen if "host" not in c]
        calls = [c for c in calls if "host" not in c] or ["COUNT(site)"]
    named = [f"{call} AS c{i}" for i, call in enumerate(calls)]
    where = f" WHERE {' AND '.join(chosen)}" if chosen else ""
    having = draw(st.sampled_from(["", "", "", " HAVING COUNT(*) > 1"]))
    group = ", ".join([draw(windows), *keys])
    return f"SELECT {', '.join([*keys, *named])} FROM {source}{joined}{where} GROUP BY {group}{having}"


@st.composite
def scripts(draw: st.DrawFn) -> str:
    """A few queries over one stream: plain, nested one or two deep, set-valued."""
    parts = [f"CREATE QUERY q{i} AS {draw(selects())};" for i in range(draw(st.integers(1, 3)))]
    size = draw(st.sampled_from(["'4 seconds'", "'6 seconds', '2 seconds'"]))
    keys = draw(st.sampled_from(["", ", host"]))
    where = draw(st.sampled_from(["", " WHERE size > 0"]))
    parts.append(
        f"CREATE VIEW v AS SELECT COUNT(*) AS n, SUM(size) AS s{keys} FROM p{where} GROUP BY window(ts, {size}){keys};"
    )
    outer = draw(st.sampled_from(["'10 seconds'", "'12 seconds', '6 seconds'"]))
    parts.append(
        f"CREATE QUERY n1 AS SELECT MAX(n) AS most, SUM(s) AS t, COUNT(*) AS w FROM v WHERE n > 1 GROUP BY window(ts, {outer});"
    )
    if draw(st.booleans()):
        parts.append(
            "CREATE QUERY n2 AS SELECT AVG(t) AS a, MEDIAN(most) AS m FROM n1 GROUP BY window(ts, '24 seconds');"
        )
    if draw(st.booleans()):
        parts.append("CREATE QUERY n3 AS SELECT SUM(n) AS t, COUNT(*) AS w FROM v GROUP BY tuples(3, 2);")
    if draw(st.booleans()):
        parts.append(
            f"CREATE QUERY s1 AS SELECT host, size * 2 AS twice, ts FROM p WHERE {draw(conditions)};"
        )
    return "\n".join(parts)


USER_AGGREGATES = {
    "doubled": UserAggregate(
        init=lambda: 0,
        incr=lambda s, v: s + 2 * (v or 0),
        final=lambda s: s,
        merge=lambda a, b: a + b,
        returns="BIGINT",
    ),
    "lastly": UserAggregate(
        init=lambda: None, incr=lambda s, v: v if v is not None else s, final=lambda s: s, returns="BIGINT"
    ),
}


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("tables") / "sites.parquet"
    pq.write_table(pa.Table.from_pylist(SITES), path)
    return f"CREATE TABLE sites (host STRING, site STRING, load INT) USING parquet OPTIONS (path '{path}');\n"


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    # shrinking would run Spark a thousand times; the failing example is small enough to read
    phases=[Phase.explicit, Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.function_scoped_fixture,
        HealthCheck.data_too_large,
    ],
)
@given(batches=streams(), script=scripts(), lateness=st.integers(0, 4))
def test_spark_agrees_with_the_reference(
    spark: Any, sites: str, batches: list[list[dict[str, Any]]], script: str, lateness: int
) -> None:
    sql = STREAM.format(lateness=lateness) + sites + script
    expected = evaluate(sql, {"p": batches}, {"sites": SITES}, aggregates=USER_AGGREGATES)
    tables = tables_of({"p": batches}, SCHEMA)
    session = scripted_session(
        spark, sql, tables, aggregates=USER_AGGREGATES, settings=Settings(driver_rows=3)
    )
    sink = ListSink()
    session.start(sink, manual=True)
    try:
        take_turns(session, tables)
        state = session.engine.state.streams["p"]
        assert state.late == late_rows(sql, {"p": batches})["p"]
    finally:
        session.stop()
    problem = differences(sink.answers, expected)
    if problem:
        pytest.fail(f"{problem}\n{script}")


def test_answers_do_not_depend_on_batch_cuts(spark: Any, sites: str) -> None:
    listed = [
        {"ts": EPOCH + timedelta(seconds=i), "host": HOSTS[i % 3], "port": i % 4, "size": i * 10, "x": i / 2}
        for i in range(30)
    ]
    sql = (
        STREAM.format(lateness=0)
        + "CREATE QUERY q AS SELECT host, SUM(size) AS s, MEDIAN(size) AS m FROM p GROUP BY window(ts, '8 seconds', '2 seconds'), host;"
    )
    expected = evaluate(sql, {"p": [listed]})
    for cut in (1, 7, 30):
        batches = [listed[i : i + cut * 5] for i in range(0, 30, cut * 5)]
        found = run_scripted(spark, sql, tables_of({"p": batches}, SCHEMA))
        assert not differences(found, expected)


UNLIKE = [
    "COUNT(*)", "SUM(size)", "AVG(size)", "MIN(size)", "MAX(x)", "STDDEV(size)", "VAR_POP(x)",
    "SUM(size) FILTER (WHERE port = 1)", "SUM(size * 2)", "STDDEV(x * x)", "MEDIAN(size)", "COUNT(DISTINCT port)", "MIN(host)",
]  # fmt: skip


def test_alike_and_unlike_queries_agree_with_the_reference(spark: Any) -> None:
    window = "window(ts, '6 seconds', '4 seconds')"
    sql = STREAM.format(lateness=1)
    for i, call in enumerate(UNLIKE):
        sql += f"CREATE QUERY u{i} AS SELECT {call} AS c FROM p WHERE size > {i * 5} AND length(host) > {i % 2} GROUP BY {window};"
    for i in range(9):
        items = "SUM(size) AS c, STDDEV(x) AS d, MAX(size) / 2 AS e, host"
        sql += f"CREATE QUERY e{i} AS SELECT {items} FROM p WHERE port = {i} GROUP BY {window}, host;"
        sql += f"CREATE QUERY i{i} AS SELECT COUNT(*) AS c FROM p WHERE port IN ({i}, {i + 2}) AND size > {i} GROUP BY {window};"
    for i in range(12):
        items = "SUM(size) AS c, round(AVG(x), 1) AS d"
        where = f"size >= {i * 100} AND size < {i * 100 + 40 + i * i * 10}"
        sql += f"CREATE QUERY r{i} AS SELECT {items} FROM p WHERE {where} GROUP BY {window};"
    listed = [
        {
            "ts": EPOCH + timedelta(milliseconds=300 * i),
            "host": HOSTS[i % 4],
            "port": i % 5,
            "size": (i * 37) % 1500 if i % 7 else None,
            "x": (i % 9) / 4,
        }
        for i in range(150)
    ]
    batches = {"p": [listed[:50], listed[50:90], listed[90:]]}
    found = run_scripted(spark, sql, tables_of(batches, SCHEMA))
    assert not differences(found, evaluate(sql, batches))
