"""Aggregates, functions and expressions of the reference evaluator, against values worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from reference_answers import at, row, run
from slackwater.reference.evaluate import Row, UserAggregate


def one(expression: str, rows: Sequence[Row], **options: object) -> object:
    """The value of an aggregate over all rows in one window."""
    (answer,) = run(f"SELECT {expression} AS v FROM p GROUP BY window(ts, '1 hour')", rows, **options)  # type: ignore[arg-type]
    return answer.value


def scalar(expression: str, **columns: object) -> object:
    """The value of an expression over one row."""
    answers = run(f"SELECT {expression} AS v FROM p", [{"ts": at(0), **columns}])
    return answers[0].keys[0][1]


NULLS = [row(0, 4), row(1, None), row(2, 1), row(3, 1), row(4, 10)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("COUNT(*)", 5),
        ("COUNT(size)", 4),
        ("COUNT(size, host)", 4),
        ("COUNT(DISTINCT size)", 3),
        ("COUNT(DISTINCT host, size)", 3),
        ("COUNT_IF(size > 1)", 2),
        ("SUM(size)", 16),
        ("SUM(DISTINCT size)", 15),
        ("AVG(size)", 4.0),
        ("AVG(DISTINCT size)", 5.0),
        ("MIN(size)", 1),
        ("MAX(size)", 10),
        ("MEDIAN(size)", 2.5),
        ("PERCENTILE(size, 0.5)", 2.5),
        ("PERCENTILE(size, 0.9)", 8.2),  # position 2.7 in 1 1 4 10: 0.3 * 4 + 0.7 * 10
        ("percentile_cont(0.9) WITHIN GROUP (ORDER BY size)", 8.2),
        ("percentile_cont(0.1) WITHIN GROUP (ORDER BY size DESC)", 8.2),
        ("VAR_POP(size)", 13.5),  # deviations 0 3 3 6: 54 / 4
        ("VAR_SAMP(size)", 18.0),
        ("VARIANCE(size)", 18.0),
        ("STDDEV(size)", math.sqrt(18)),
        ("STDDEV_SAMP(size)", math.sqrt(18)),
        ("STDDEV_POP(size)", math.sqrt(13.5)),
        ("BOOL_AND(size > 0)", True),
        ("EVERY(size > 1)", False),
        ("BOOL_OR(size > 9)", True),
        ("ANY(size > 99)", False),
        ("SOME(size = 1)", True),
        ("SUM(size) FILTER (WHERE size > 1)", 14),
        ("COUNT(*) FILTER (WHERE size > 1)", 2),
        ("COUNT(DISTINCT size) FILTER (WHERE size < 9)", 2),
        ("MEDIAN(size) FILTER (WHERE size > 99)", None),
        ("PERCENTILE(size, 0.5) FILTER (WHERE size > 99)", None),
        ("MAX(size) - MIN(size)", 9),
        ("SUM(size) / COUNT(*)", 3.2),
        ("CASE WHEN COUNT(*) > 3 THEN 'many' ELSE 'few' END", "many"),
    ],
)
def test_aggregates(expression: str, expected: object) -> None:
    assert one(expression, NULLS) == pytest.approx(expected)


@pytest.mark.parametrize(
    "expression",
    ["SUM(size)", "AVG(size)", "MIN(size)", "MAX(size)", "MEDIAN(size)", "PERCENTILE(size, 0.5)",
     "STDDEV(size)", "VAR_POP(size)", "BOOL_AND(size > 0)", "BOOL_OR(size > 0)", "SUM(DISTINCT size)"],
)  # fmt: skip
def test_aggregates_of_nothing_are_null(expression: str) -> None:
    assert one(expression, [row(0, None), row(1, None)]) is None


def test_counts_of_nothing_are_zero() -> None:
    for expression in ("COUNT(size)", "COUNT(DISTINCT size)", "COUNT_IF(size > 0)"):
        assert one(expression, [row(0, None)]) == 0


def test_the_sample_deviation_of_one_value_is_null() -> None:
    assert one("STDDEV_SAMP(size)", [row(0, 3)]) is None
    assert one("STDDEV_POP(size)", [row(0, 3)]) == 0


def test_sums_of_doubles_are_rounded_once() -> None:
    rows = [{"ts": at(i), "load": v} for i, v in enumerate([1e16, 1.0, -1e16])]
    assert one("SUM(load)", rows) == 1.0


TRACE = UserAggregate(init=list, incr=lambda state, *args: [*state, args], final=tuple)


def test_user_aggregates_see_every_row_in_order_of_time_and_arrival() -> None:
    rows = [row(5, 1), row(3, None), row(5, 2), row(1, 3, "b")]
    traced = one("Trace(size, host)", rows, aggregates={"TRACE": TRACE})
    assert traced == ((3, "b"), (None, "a"), (1, "a"), (2, "a"))
    filtered = one("trace(size) FILTER (WHERE host = 'a')", rows, aggregates={"trace": TRACE})
    assert filtered == ((None,), (1,), (2,))


def test_user_aggregates_go_into_expressions() -> None:
    spread = UserAggregate(
        lambda: (math.inf, -math.inf), lambda s, v: (min(s[0], v), max(s[1], v)), lambda s: s[1] - s[0]
    )
    assert one("spread(size) * 2 + COUNT(*)", [row(0, 3), row(1, 8)], aggregates={"spread": spread}) == 12


def test_user_functions_take_nulls_and_any_case() -> None:
    rows = [row(0, None), row(1, 5)]
    assert one("SUM(or_one(size))", rows, functions={"Or_One": lambda v: 1 if v is None else v}) == 6


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("7 / 2", 3.5),
        ("7 / 0", None),
        ("7 % 0", None),
        ("-7 % 3", -1),
        ("-7 DIV 2", -3),
        ("'x' + 1", None),
        ("'3' + 1", 4.0),
        ("NULL AND FALSE", False),
        ("NULL OR TRUE", True),
        ("NOT (NULL = 1)", None),
        ("NULL <=> NULL", True),
        ("1 <=> NULL", False),
        ("1 IN (2, NULL)", None),
        ("1 NOT IN (1, NULL)", False),
        ("2 BETWEEN 1 AND NULL", None),
        ("3 BETWEEN 4 AND NULL", False),
        ("'abc' LIKE 'a_c'", True),
        ("'abc' NOT LIKE '%b%'", False),
        ("'abc' RLIKE '^b'", False),
        ("CASE WHEN NULL THEN 1 ELSE 2 END", 2),
        ("CASE 3 WHEN 3 THEN 'x' END", "x"),
        ("IF(1 > 2, 1, NULL)", None),
        ("COALESCE(NULL, 2)", 2),
        ("NVL(NULL, 3)", 3),
        ("NULLIF(1, 1)", None),
        ("ROUND(2.5)", 3.0),
        ("FLOOR(-1.5)", -2),
        ("CEIL(1.2)", 2),
        ("POWER(2, 3)", 8.0),
        ("SQRT(16)", 4.0),
        ("LENGTH('abc')", 3),
        ("SUBSTRING('abcd', 2, 2)", "bc"),
        ("SUBSTRING('abcd', -2)", "cd"),
        ("CONCAT('a', 1, TRUE)", "a1true"),
        ("'a' || NULL", None),
        ("CAST('12' AS INT)", 12),
        ("CAST('x' AS DOUBLE)", None),
        ("CAST(2.9D AS BIGINT)", 2),
        ("CAST(1.0D AS STRING)", "1.0"),
        ("CAST('no' AS BOOLEAN)", False),
        ("GREATEST(1, NULL, 3)", 3),
        ("LEAST(NULL, 2)", 2),
        ("ts = '2024-01-01 00:00:00'", True),
        ("ok IS NULL", True),
        ("p.size + SIZE", 14),
    ],
)
def test_expressions(expression: str, expected: object) -> None:
    value = scalar(expression, size=7)
    assert (value, type(value)) == (expected, type(expected))
