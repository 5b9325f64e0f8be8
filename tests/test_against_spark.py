"""Expressions and aggregates as plain Spark has them: the same SELECT over the same rows, as one batch."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from slackwater.language.dialect import SparkText
from slackwater.plan.scope import canonical
from slackwater.runtime.session import Settings
from slackwater.runtime.testing import run_scripted

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
COLUMNS = (
    "ts TIMESTAMP, s STRING, i INT, l BIGINT, x DOUBLE, b BOOLEAN, d DATE, dec DECIMAL(38, 10), "
    "arr ARRAY<INT>, txt STRING"
)
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("s", pa.string()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("x", pa.float64()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("dec", pa.decimal128(38, 10)),
        ("arr", pa.list_(pa.int32())),
        ("txt", pa.string()),
    ]
)
ROWS = [
    {
        "ts": EPOCH + timedelta(seconds=n / 2),
        "s": None if n % 11 == 0 else "abc"[n % 3],
        "i": None if n % 7 == 0 else n % 5 - 2,
        "l": 2**60 + n,
        "x": math.nan if n % 13 == 0 else n / 7 - 3,
        "b": n % 2 == 0,
        "d": date(1969, 12, 20) + timedelta(days=n),
        "dec": Decimal("1234567890123456789012345.0123456789") + n,
        "arr": [n % 3, n % 2],
        "txt": f"0{n % 4}",
    }
    for n in range(60)
]
TABLE = pa.Table.from_pylist(ROWS, SCHEMA)
SELECTS = {
    "sums": "SUM(dec) AS a, SUM(l) / COUNT(*) AS b, MAX(l) / 3 AS c, SUM(i) AS d",
    "nested": "MAX(struct(i, s)) AS a, MIN(arr) AS b, MAX(arr) AS c",
    "kinds": "MEAN(DISTINCT i) AS a, COUNT(DISTINCT s, i) AS b, COUNT_IF(b) AS c, EVERY(b) AS e, ANY(b) AS f",
    "extremes": "MIN(s) AS a, MAX(d) AS b, MIN(x) AS c, MAX(x) AS d, MAX(ts) - MIN(ts) AS e",
    "shares": "PERCENTILE(i, 0.25) AS a, MEDIAN(x) AS b, percentile_cont(0.9) WITHIN GROUP (ORDER BY i) AS c",
    "spreads": "STDDEV(i) AS a, VAR_POP(i) AS b, STDDEV_POP(i) AS c, VARIANCE(i) AS d",
    "calls": "MAX(to_char(d, 'yyyy')) AS a, MAX(instr('abcabc', 'b', 1, 2)) AS b, MAX(array(1, 2)[0]) AS c, "
    "MAX(timestampdiff(HOUR, ts, ts + INTERVAL 3 HOURS)) AS d, MAX(nvl(s, '?')) AS e, MAX(left(txt, 1)) AS f",
    "filters": "SUM(i) FILTER (WHERE b) AS a, COUNT(i) FILTER (WHERE s = 'a') AS b, SUM(CASE WHEN b THEN i END) AS c",
}
HAVING = {
    "of_sum": ("SUM(x) AS x", "SUM(x) > 1"),
    "of_mixed": ("COUNT(*) AS n", "SUM(l) > AVG(i)"),
    "of_large": ("COUNT(*) AS n", "COUNT(*) > 99999999999999999999"),
}
WHERE = [
    *(f"i IN ('{k}', '0{k}')" for k in range(-4, 5)),
    *(f"txt IN ({k}, {k + 1})" for k in range(9)),
    *(f"ts IN ('2024-01-01', '2024-01-01 00:00:0{k}')" for k in range(9)),
    *(f"txt = {k}" for k in range(9)),
    *(f"i >= {k} AND i < {k + 1}" for k in range(-4, 5)),
    "d < DATE '1970-01-02' AND x <=> x AND s RLIKE '^[ab]'",
]


def settled(value: Any) -> Any:
    """Numbers that differ in the order of a sum become equal; NaN equals itself."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else f"{value:.9g}"
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, dict):
        return [settled(v) for v in value.values()]
    if isinstance(value, list | tuple):
        return [settled(v) for v in value]
    return repr(value)


def statements() -> dict[str, tuple[str, str, str]]:
    """By name: items, condition, HAVING."""
    found = {name: (items, "true", "") for name, items in SELECTS.items()}
    found |= {name: (items, "true", f" HAVING {test}") for name, (items, test) in HAVING.items()}
    return found | {f"where_{n}": ("COUNT(*) AS n, MAX(x) AS m", test, "") for n, test in enumerate(WHERE)}


@pytest.mark.parametrize(
    ("window", "driver_rows"),
    [
        ("window(ts, '10 seconds')", 100_000),
        ("window(ts, '10 seconds', '4 seconds', '-1 second')", 1),
    ],
)
def test_windows_are_those_of_plain_spark(spark: Any, window: str, driver_rows: int) -> None:
    sql = f"CREATE STREAM p ({COLUMNS}) USING scripted TIMESTAMP BY ts;"
    for name, (items, where, having) in statements().items():
        sql += f"CREATE QUERY {name} AS SELECT {items} FROM p z WHERE {where} GROUP BY {window}{having};"
    batches = {"p": [TABLE.slice(0, 25), TABLE.slice(25, 10), TABLE.slice(35)]}
    found: dict[str, dict[Any, dict[str, Any]]] = {}
    for answer in run_scripted(spark, sql, batches, settings=Settings(driver_rows=driver_rows)):
        found.setdefault(answer.query, {}).setdefault(answer.window_start, {})[answer.column] = answer.value
    spark.createDataFrame(TABLE).selectExpr(
        *(f"CAST({c.split()[0]} AS {c.split(' ', 1)[1]}) AS {c.split()[0]}" for c in split_columns())
    ).createOrReplaceTempView("plain_rows")
    for name, (items, where, having) in statements().items():
        rows = spark.sql(
            f"SELECT window.start AS w, {items} FROM plain_rows z WHERE {where} GROUP BY {window}{having}"
        ).toArrow()
        expected = {r.pop("w"): {k: settled(v) for k, v in r.items()} for r in rows.to_pylist()}
        answered = {w: {k: settled(v) for k, v in r.items()} for w, r in found.get(name, {}).items()}
        assert answered == expected, f"{name}: {items} WHERE {where}{having}"


def split_columns() -> list[str]:
    """The declared columns one by one; a comma inside a type does not part them."""
    return [c.strip() for c in COLUMNS.replace("38, 10", "38,10").split(", ")]


@pytest.mark.parametrize(
    "text",
    [
        "to_char(s.`ts`, 'yyyy')",
        "instr('abcabc', 'b', 1, 2)",
        "parse_json(s.`x`)",
        "array(1, 2)[0]",
        "named_struct('a', 1).a",
        "date_format(s.`ts`, 'HH:mm')",
        "regexp_extract(s.`s`, '(\\\\d+)', 1)",
        "transform(s.`arr`, x -> x + 1)",
        "substring(s.`s`, 2, 3)",
        "s.`x` DIV 2",
        "s.`a` LIKE 'x%' ESCAPE '/'",
        "CASE WHEN s.`a` THEN 1 ELSE 2 END",
        "if(s.`a`, nvl(s.`b`, 0), coalesce(s.`c`, 1))",
        "EXTRACT(HOUR FROM s.`ts`)",
    ],
)
def test_expressions_go_to_spark_as_they_stand(text: str) -> None:
    assert canonical(SparkText().parse(f"SELECT {text}")[0].expressions[0]) == text
