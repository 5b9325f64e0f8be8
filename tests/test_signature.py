"""Queries that differ only in constants: shapes, probes, cells of a grid."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from declared import LOOKUPS
from slackwater.plan.model import Path
from slackwater.plan.signature import (
    Probe,
    Signature,
    matches,
    member_id,
    probe_rows,
    shape,
    signature_of,
    values_listed,
)


def test_shapes_take_out_what_is_compared() -> None:
    template, constants = shape(Path("p", (), ("s.`a` = -5", "s.`b` BETWEEN 1 AND 2.5", "s.`c` % 10 <> 'x'")))
    assert template == ("p", (), ("s.`a` = ?", "s.`b` BETWEEN ? AND ?", "s.`c` % 10 <> ?"))
    assert constants == ("-5", "1", "2.5", "'x'")


@pytest.mark.parametrize(
    "predicate",
    [
        "s.`ts` > current_timestamp() - INTERVAL '5' MINUTES",
        "round(s.`x`, 2) > s.`y`",
        "CAST(s.`x` AS DECIMAL(10, 2)) = s.`y`",
    ],
)
def test_shapes_leave_constants_that_a_column_cannot_replace(predicate: str) -> None:
    assert shape(Path("p", (), (predicate,)))[1] == ()


def signature(*predicates: str) -> Signature | None:
    """The signature of two paths, their constants n standing for 1 and 2."""
    shapes = [shape(Path("p", (), tuple(re.sub(r"\bn\b", n, p) for p in predicates))) for n in ("1", "2")]
    assert shapes[0][0] == shapes[1][0]
    return signature_of(shapes[0][0], [constants for _, constants in shapes])


def test_equalities_and_lists_are_probed() -> None:
    found = signature("s.`a` = n", "s.`b` > n", "s.`c` = 7", "s.`d` IN (n, 8)")
    assert found is not None
    assert found.equalities == (Probe("s.`a`", (0,)), Probe("s.`d`", (3,)))
    assert found.common == ("s.`c` = 7",)
    assert found.residual == ("s.`b` > {1}", "s.`d` IN ({3})"), "an IN list compares in a way of its own"


def test_what_is_no_equality_is_tested_afterwards() -> None:
    found = signature("s.`a` = n", "NOT s.`b` IN (n, 5)", "s.`c` = 1 OR s.`d` = n", "NOT s.`e` = n")
    assert found is not None
    assert found.equalities == (Probe("s.`a`", (0,)),)
    assert found.residual == (
        "NOT s.`b` IN ({1}, 5)",
        "s.`c` = 1 OR s.`d` = {4}",
        "NOT s.`e` = {5}",
    )


@pytest.mark.parametrize(
    "predicates",
    [
        ("s.`a` > n",),
        ("NOT s.`a` BETWEEN n AND 9",),
        ("s.`a` <> n",),
        ("s.`a` LIKE 'n'",),
        ("s.`a` > 'n'", "s.`a` < 'n z'"),
        ("s.`c` = 1 OR s.`d` = n",),
        ("s.`a` > n", "s.`b` < n"),
    ],
)
def test_without_an_equality_or_a_range_there_is_no_signature(predicates: tuple[str, ...]) -> None:
    assert signature(*predicates) is None


def test_ranges_are_probed_where_no_equality_is() -> None:
    found = signature("s.`a` >= n", "s.`a` < n")
    assert found is not None
    assert found.range == Probe("s.`a`", (0, 1))
    assert found.residual == ("s.`a` >= {0}", "s.`a` < {1}")
    with_equality = signature("s.`b` = n", "s.`a` BETWEEN n AND n")
    assert with_equality is not None
    assert with_equality.range is None


def test_a_path_matches_the_signature_of_its_like() -> None:
    found = signature("s.`a` = n", "s.`b` > 5")
    assert found is not None
    assert matches(found, Path("p", (), ("s.`a` = 77", "s.`b` > 5"))) == ("77", "5")
    assert matches(found, Path("p", (), ("s.`a` = 77", "s.`b` > 6"))) is None
    assert matches(found, Path("p", (), ("s.`a` = 77",))) is None
    assert matches(found, Path("p", (), ("s.`a` = 77", "s.`b` > 5", "s.`c` = 1"))) is None
    assert matches(found, Path("other", (), ("s.`a` = 77", "s.`b` > 5"))) is None
    assert matches(found, Path("p", LOOKUPS[:1], ("s.`a` = 77", "s.`b` > 5"))) is None


def test_a_range_of_words_does_not_match_one_of_numbers() -> None:
    found = signature("s.`a` BETWEEN n AND 9", "s.`a` BETWEEN n AND n")
    assert found is not None
    assert matches(found, Path("p", (), ("s.`a` BETWEEN 'a' AND 9", "s.`a` BETWEEN 'a' AND 'b'"))) is None


def test_lists_are_split_at_the_right_commas() -> None:
    assert values_listed(r"'a, b', 'it\'s', 3") == ["'a, b'", r"'it\'s'", "3"]
    assert values_listed("'a, b'") == ["'a, b'"]
    assert shape(Path("p", (), ("s.`a` IN ('b, c', 'a', 'a')",)))[1] == ("'a', 'b, c'",)


def test_members_are_named_by_their_constants() -> None:
    assert member_id(("80", "5")) == member_id(("80", "5"))
    assert member_id(("80", "5")) != member_id(("805",))
    assert 0 <= member_id(("80",)) < 2**63


BOUNDS = st.integers(-(10**12), 10**12) | st.floats(-1e6, 1e6).map(lambda x: round(x, 4))


@st.composite
def some_ranges(draw: st.DrawFn) -> tuple[float, float]:
    low = draw(BOUNDS)
    length = draw(st.sampled_from([0, 1, 3, 4, 16, 63.5, 1000]) | st.floats(0, 1e6) | st.just(-1))
    return float(low), float(low) + length


@settings(max_examples=300)
@given(st.data(), st.lists(some_ranges(), min_size=1, max_size=8))
def test_the_cell_of_a_value_finds_the_ranges_around_it(
    data: st.DataObject, ranges: list[tuple[float, float]]
) -> None:
    """As the join does it: on every grid take the cell of the value, then test the range itself."""
    found = Signature("p", (), (), ("x >= {0}", "x <= {1}"), (), Probe("x", (0, 1)))
    members = {number: (repr(low), repr(high)) for number, (low, high) in enumerate(ranges)}
    rows = probe_rows(found, members)
    edges = [edge for pair in ranges for edge in pair]
    value = data.draw(st.sampled_from(edges) | BOUNDS.map(float))
    value = data.draw(
        st.sampled_from([value, math.nextafter(value, math.inf), math.nextafter(value, -math.inf)])
    )
    matched = []
    for width, cells in rows.items():
        assert width is not None
        assert all(cell is not None and abs(cell) < 2**62 for _, cell, _ in cells)
        assert len(cells) == len({(member, cell) for member, cell, _ in cells})
        matched += [member for member, cell, _ in cells if cell == math.floor(value / width)]
    tested = [member for member in matched if ranges[member][0] <= value <= ranges[member][1]]
    assert sorted(tested) == [n for n, (low, high) in enumerate(ranges) if low <= value <= high]


@given(st.lists(some_ranges(), max_size=8))
def test_a_range_lies_in_few_cells(ranges: list[tuple[float, float]]) -> None:
    found = Signature("p", (), (), ("x >= {0}", "x <= {1}"), (), Probe("x", (0, 1)))
    members = {number: (repr(low), repr(high)) for number, (low, high) in enumerate(ranges)}
    cells = [member for rows in probe_rows(found, members).values() for member, _, _ in rows]
    assert all(cells.count(member) <= 3 for member in members)
