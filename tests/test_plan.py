"""The plan without a JVM: trees, panes, signatures, layout, contracts and the catalog."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import parse_one

from slackwater.errors import LanguageError
from slackwater.language.aggregates import UserAggregate
from slackwater.language.contracts import Error, Exact
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.layout import ALIKE_ENOUGH, extend
from slackwater.plan.model import Lookup, Path, Step, TimeWindow, TupleWindow
from slackwater.plan.panes import AFTER_ALL, BEFORE_ALL, candidates
from slackwater.plan.passes import orders
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
from slackwater.plan.tables import Plan
from slackwater.plan.tree import Node, Operator, shared_tree

DECLARED = """\
CREATE STREAM p (ts TIMESTAMP, src STRING, sport INT, dport INT, size INT)
  USING kafka FORMAT json TIMESTAMP BY ts;
CREATE STREAM load (ts TIMESTAMP, host STRING, pps DOUBLE) USING agents KEY host TIMESTAMP BY ts;
CREATE STREAM ticks (ts TIMESTAMP, symbol STRING, price DOUBLE) USING rate KEY symbol TIMESTAMP BY ts;
CREATE TABLE sites (host STRING, site STRING) USING parquet OPTIONS (path 'sites');
CREATE TABLE holdings (account STRING, symbol STRING, qty DOUBLE) USING parquet OPTIONS (path 'holdings');
"""
LINES = DECLARED.count("\n")
MINUTE = "GROUP BY window(ts, '1 minute')"
LONGEST = UserAggregate(init=str, incr=lambda state, _: state, final=lambda state: state)
FUNCTIONS = Functions(frozenset({"risky"}), {"longest": LONGEST})


def ordered_path(node: Node, step: str) -> tuple[Operator, ...] | None:
    """The operators from a node of a tree to a step, None where it is not below."""
    if step in node.steps:
        return ()
    for child in node.children:
        below = ordered_path(child, step)
        if below is not None:
            assert child.operator is not None
            return (child.operator, *below)
    return None


def catalog(text: str) -> Catalog:
    return Catalog.from_sql(DECLARED + text, FUNCTIONS)


def query(select: str, name: str = "q") -> Step:
    return catalog(f"CREATE QUERY {name} AS {select}").steps[name]


def refusal(text: str) -> str:
    """The message of the error that a text is refused with; it must say where."""
    with pytest.raises(LanguageError) as caught:
        catalog(text)
    message = str(caught.value)
    assert caught.value.position is not None
    assert re.match(r"line \d+, column \d+: ", message), message
    assert caught.value.position.line > LINES
    return message


# Trees


LOOKUPS = (
    Lookup("sites", "l_sites_000001", "s.`a` = l_sites_000001.`host`", ("host",), True),
    Lookup("areas", "l_areas_000002", "l_sites_000001.`site` = l_areas_000002.`site`", ("site",), True),
)
PLAIN = ("a", "b", "c", "d")
COSTLY = ("risky(a)", "risky(b)")
READING = ("l_sites_000001.`site` = 1", "l_areas_000002.`area` = 2")


@st.composite
def some_paths(draw: st.DrawFn) -> dict[str, Path]:
    found = {}
    for number in range(draw(st.integers(0, 7))):
        joined = draw(st.integers(0, 2))
        allowed = [*PLAIN, *COSTLY, *READING[:joined]]
        predicates = draw(st.lists(st.sampled_from(allowed), unique=True, max_size=5))
        found[f"q{number}"] = Path("p", LOOKUPS[:joined], tuple(predicates))
    return found


def every_node(node: Node) -> list[Node]:
    return [node, *(below for child in node.children for below in every_node(child))]


@given(some_paths())
def test_the_way_to_a_step_holds_just_its_operators(paths: dict[str, Path]) -> None:
    tree = shared_tree(paths, frozenset(COSTLY))
    for name, path in paths.items():
        way = ordered_path(tree, name)
        assert len(way) == len(path.lookups) + len(path.predicates)
        assert set(way) == {*path.lookups, *path.predicates}
        for place, operator in enumerate(way):
            text = operator.on if isinstance(operator, Lookup) else operator
            later = [o for o in way[place + 1 :] if isinstance(o, Lookup)]
            assert not any(f"{lookup.alias}." in text for lookup in later)
            if operator in COSTLY:
                assert set(way[place:]) <= set(COSTLY)


@given(some_paths())
def test_siblings_differ_and_every_leaf_has_a_step(paths: dict[str, Path]) -> None:
    tree = shared_tree(paths, frozenset(COSTLY))
    nodes = every_node(tree)
    assert sorted(name for node in nodes for name in node.steps) == sorted(paths)
    for node in nodes:
        # two siblings may share an operator only where it must wait in one of them
        cheap = [c.operator for c in node.children if c.operator not in COSTLY]
        assert len(set(cheap)) == len(cheap)
        assert node.children or node.steps or node is tree


@given(st.lists(st.sampled_from(PLAIN), unique=True), some_paths())
def test_what_all_paths_have_comes_first_and_once(common: list[str], paths: dict[str, Path]) -> None:
    shared = {
        name: Path("p", path.lookups, tuple(dict.fromkeys((*path.predicates, *common))))
        for name, path in paths.items()
    }
    nodes = every_node(shared_tree(shared, frozenset(COSTLY)))
    in_all: set[Operator] = {o for o in common if paths}
    for operator in in_all:
        assert sum(1 for node in nodes if node.operator == operator) == 1


def test_equal_paths_meet_in_one_node() -> None:
    path = Path("p", LOOKUPS[:1], ("a", "b"))
    nodes = every_node(shared_tree({"q1": path, "q2": Path("p", LOOKUPS[:1], ("b", "a"))}))
    assert [node.steps for node in nodes if node.steps] == [("q1", "q2")]


def test_a_costly_predicate_waits_even_where_another_path_has_nothing_else() -> None:
    tree = shared_tree({"q1": Path("p", (), ("r",)), "q2": Path("p", (), ("r", "a"))}, frozenset({"r"}))
    assert ordered_path(tree, "q1") == ("r",)
    assert ordered_path(tree, "q2") == ("a", "r")


def test_orders_are_those_of_the_tree() -> None:
    plan = extend(
        Plan(),
        catalog(
            f"CREATE QUERY q1 AS SELECT COUNT(*) AS n FROM p WHERE size > 1 AND sport = 80 {MINUTE};"
            f"CREATE QUERY q2 AS SELECT COUNT(*) AS n FROM p WHERE sport = 80 AND risky(size) {MINUTE};"
        ),
    )
    assert orders(plan, "p") == {
        plan.steps["q1"].step.path: ("s.`sport` = 80", "s.`size` > 1"),
        plan.steps["q2"].step.path: ("s.`sport` = 80", "risky(s.`size`)"),
    }


# Panes


@st.composite
def some_windows(draw: st.DrawFn) -> TimeWindow | TupleWindow:
    size = draw(st.integers(1, 24))
    if draw(st.booleans()):
        return TupleWindow(size, draw(st.integers(1, 30)))
    slide = draw(st.integers(1, size))
    return TimeWindow(size, slide, draw(st.integers(0, slide - 1)))


@given(
    some_windows(),
    st.lists(st.integers(-40, 40), unique=True, max_size=12),
    st.integers(-60, 60) | st.just(BEFORE_ALL),
    st.integers(-60, 60) | st.just(AFTER_ALL),
)
def test_candidates_are_the_windows_that_close_and_hold_a_pane(
    window: TimeWindow | TupleWindow, places: list[int], closed: int, watermark: int
) -> None:
    width = window.pane
    panes = np.array(sorted(place * width for place in places), dtype=np.int64)
    found = candidates(window, panes, width, closed, watermark)
    expected = []
    for index in range(-60 * 24, 60 * 24):
        start = index * window.slide + window.offset
        end = start + window.size
        if isinstance(window, TupleWindow) and start < 0:
            continue  # rows are numbered from 0, and no window of rows begins before the first
        if closed < end <= watermark and any(start <= pane and pane + width <= end for pane in panes):
            expected.append(index)
    assert found.tolist() == expected


def test_a_finer_pane_serves_as_well() -> None:
    window = TimeWindow(60, 20)
    assert candidates(window, np.array([30, 35]), 5, BEFORE_ALL, AFTER_ALL).tolist() == [-1, 0, 1]


def test_windows_refuse_sizes_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="above 0"):
        TimeWindow(0, 1)
    with pytest.raises(ValueError, match="would belong to none"):
        TimeWindow(5_000_000, 6_000_000)
    with pytest.raises(ValueError, match="above 0"):
        TupleWindow(5, 0)


# Signatures


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


# Layout


def ports(*numbers: int, template: str = "dport = {}") -> str:
    return "".join(
        f"CREATE QUERY port_{n} AS SELECT COUNT(*) AS n FROM p WHERE {template.format(n)} {MINUTE};\n"
        for n in numbers
    )


EVERYTHING = f"""
CREATE QUERY web AS SELECT SUM(size) AS b, STDDEV(size) AS d FROM p WHERE sport = 80
  GROUP BY window(ts, '1 minute', '5 seconds');
CREATE QUERY hosts AS SELECT src, MEDIAN(size) AS m FROM p {MINUTE}, src;
CREATE QUERY risk AS SELECT COUNT(*) AS n FROM p WHERE risky(size) {MINUTE};
CREATE QUERY names AS SELECT longest(src) AS n FROM p {MINUTE} WITH EXACT;
CREATE QUERY runs AS SELECT COUNT(*) AS n FROM p GROUP BY tuples(100, 10);
CREATE QUERY here AS SELECT COUNT(*) AS n FROM p JOIN sites ON src = host {MINUTE};
CREATE QUERY there AS SELECT COUNT(*) AS n FROM p LEFT JOIN sites ON src = host {MINUTE};
CREATE QUERY raw AS SELECT ts, size FROM p WHERE size > 5;
CREATE QUERY now AS SELECT AVG(pps) AS a FROM LATEST(load);
""" + ports(*range(10))


def test_the_same_catalog_gives_the_same_plan_again() -> None:
    plan = extend(Plan(), catalog(EVERYTHING))
    assert extend(plan, catalog(EVERYTHING)) == plan


def test_what_is_there_stays_where_it_is() -> None:
    plan = extend(Plan(), catalog(EVERYTHING))
    added = extend(
        plan, catalog(EVERYTHING + ports(77) + f"CREATE QUERY new AS SELECT MAX(size) AS m FROM p {MINUTE};")
    )
    for name, step in plan.steps.items():
        assert added.steps[name] == step
        for table in step.tables:
            assert added.tables[table] == plan.tables[table]
            assert set(plan.columns[table]) <= set(added.columns[table])
    assert added.steps["port_77"].tables == plan.steps["port_3"].tables
    assert added.steps["port_77"].member is not None
    assert extend(added, catalog(EVERYTHING)).steps == plan.steps


def test_a_drop_takes_only_its_own_columns() -> None:
    kept = f"CREATE QUERY one AS SELECT SUM(size) AS s FROM p {MINUTE};"
    gone = f"CREATE QUERY two AS SELECT MAX(size) AS m FROM p {MINUTE};"
    both = extend(Plan(), catalog(kept + gone))
    (table,) = both.tables
    assert len(both.columns[table]) == 3
    after = extend(both, catalog(kept + gone + "DROP QUERY two;"))
    assert len(after.columns[table]) == 2
    assert after == extend(Plan(), catalog(kept))


def test_a_drop_takes_a_member_and_leaves_the_rest() -> None:
    plan = extend(Plan(), catalog(ports(*range(10))))
    after = extend(plan, catalog(ports(*range(10)) + "DROP QUERY port_3;"))
    (table,) = after.tables
    assert len(plan.members[table]) == 10
    assert len(after.members[table]) == 9


def test_a_query_made_anew_under_an_old_name_is_planned_anew() -> None:
    before = extend(Plan(), catalog(f"CREATE QUERY q AS SELECT SUM(size) AS s FROM p {MINUTE};"))
    after = extend(
        before, catalog(f"CREATE QUERY q AS SELECT SUM(size) AS s FROM p WHERE sport = 1 {MINUTE};")
    )
    assert before.steps["q"].presence != after.steps["q"].presence


def test_an_altered_contract_changes_no_panes() -> None:
    text = f"CREATE QUERY q AS SELECT SUM(size) AS s FROM p {MINUTE};"
    before = extend(Plan(), catalog(text))
    after = extend(before, catalog(text + "ALTER QUERY q WITH EXACT;"))
    assert (after.steps, after.tables) == (before.steps, before.tables)


def test_alike_queries_become_one_table_from_enough_of_them_on() -> None:
    few = extend(Plan(), catalog(ports(*range(ALIKE_ENOUGH - 1))))
    assert not few.members
    many = extend(Plan(), catalog(ports(*range(ALIKE_ENOUGH))))
    assert [len(members) for members in many.members.values()] == [ALIKE_ENOUGH]


def test_coarser_windows_use_finer_panes_that_are_there() -> None:
    plan = extend(
        Plan(),
        catalog(
            "CREATE QUERY a AS SELECT SUM(size) AS s FROM p GROUP BY window(ts, '10 seconds', '5 seconds');"
            "CREATE QUERY b AS SELECT SUM(size) AS s FROM p GROUP BY window(ts, '1 minute');"
            "CREATE QUERY c AS SELECT SUM(size) AS s FROM p GROUP BY window(ts, '12 seconds');"
            "CREATE QUERY d AS SELECT SUM(size) AS s FROM p GROUP BY window(ts, '1 day');"
        ),
    )
    tables = [step.tables for step in plan.steps.values()]
    assert tables[0] == tables[1]
    assert len(set(tables)) == 3


def test_inner_and_left_lookups_are_counted_apart() -> None:
    plan = extend(Plan(), catalog(EVERYTHING))
    assert plan.steps["here"].presence != plan.steps["there"].presence


# Contracts


REFUSED = {
    "MIN under ERROR": (
        f"SELECT MIN(size) AS m FROM p {MINUTE} WITH ERROR 5%",
        "MIN cannot be estimated",
        "SUBSET GAP 10 or EXACT",
    ),
    "distinct under ERROR": (
        f"SELECT COUNT(DISTINCT src) AS m FROM p {MINUTE} WITH ERROR",
        "COUNT(DISTINCT) cannot be estimated",
        "use SUBSET GAP 10 or EXACT",
    ),
    "user aggregate under ERROR": (
        f"SELECT longest(src) AS m FROM p {MINUTE} WITH ERROR",
        "LONGEST cannot be estimated",
        "EXACT",
    ),
    "HAVING under ERROR": (
        f"SELECT src, SUM(size) AS m FROM p {MINUTE}, src HAVING SUM(size) > 5 WITH ERROR",
        "HAVING on an estimate",
        "EXACT",
    ),
    "nested under ERROR": (
        f"SELECT SUM(m) AS m FROM (SELECT SUM(size) AS m FROM p {MINUTE}) x "
        "GROUP BY window(ts, '1 hour') WITH ERROR",
        "it reads q.x, which aggregates already",
        "EXACT",
    ),
    "LATEST under ERROR": (
        "SELECT AVG(pps) AS m FROM LATEST(load) WITH ERROR",
        "ERROR samples rows",
        "DRIFT e BELIEF p",
    ),
    "LATEST under SUBSET": (
        "SELECT AVG(pps) AS m FROM LATEST(load) WITH SUBSET GAP 3",
        "LATEST has none",
        "DRIFT",
    ),
    "rows under SUBSET": (
        "SELECT size FROM p WITH SUBSET GAP 3",
        "delivers single rows",
        "use ERROR 5%, or EXACT",
    ),
    "windows under PRECISION": (
        f"SELECT AVG(size) AS m FROM p {MINUTE} WITH PRECISION 5",
        "PRECISION bounds current values",
        "read FROM LATEST(p)",
    ),
    "no agents under PRECISION": (
        "SELECT AVG(price) AS m FROM LATEST(ticks) WITH PRECISION 5",
        "stream ticks has no agents (it is USING rate)",
        "DRIFT e BELIEF p",
    ),
    "STDDEV under PRECISION": (
        "SELECT STDDEV(pps) AS m FROM LATEST(load) WITH PRECISION 5",
        "no interval follows for STDDEV_SAMP",
        "use SUM, AVG, COUNT, MIN or MAX",
    ),
    "IMMEDIATE from the start": (
        "SELECT AVG(pps) AS m FROM LATEST(load) WITH PRECISION 5 IMMEDIATE",
        "IMMEDIATE goes with ALTER QUERY",
        "",
    ),
    "windows under DRIFT": (
        f"SELECT AVG(size) AS m FROM p {MINUTE} WITH DRIFT 1%",
        "DRIFT defers the evaluation of current values",
        "read FROM LATEST(p)",
    ),
    "MAX under DRIFT": (
        "SELECT MAX(price) AS m FROM LATEST(ticks) WITH DRIFT 1%",
        "MAX over keys has no drift",
        "PRECISION d with agents, or EXACT",
    ),
    "MEDIAN under DRIFT": (
        "SELECT MEDIAN(price) AS m FROM LATEST(ticks) WITH DRIFT 1%",
        "PERCENTILE is not linear",
        "use SUM, AVG or COUNT",
    ),
}


@pytest.mark.parametrize(("text", "reason", "instead"), REFUSED.values(), ids=REFUSED)
def test_a_contract_that_cannot_be_honoured_is_refused(text: str, reason: str, instead: str) -> None:
    statement = f"CREATE QUERY q AS {text}"
    message = refusal(statement)
    assert reason in message
    assert instead in message
    column = statement.rindex(" WITH ") + len(" WITH ") + 1
    assert message.startswith(f"line {LINES + 1}, column {column}: ")


def test_an_altered_contract_is_held_to_the_same() -> None:
    text = f"CREATE QUERY q AS SELECT MIN(size) AS m FROM p {MINUTE};\nALTER QUERY q WITH ERROR 5%;"
    message = refusal(text)
    assert f"line {LINES + 2}, column 1: query q cannot honour ERROR: MIN cannot be estimated" in message


def test_without_a_contract_a_query_gets_the_one_of_its_kind() -> None:
    found = catalog(
        f"""
        CREATE QUERY sums AS SELECT SUM(size) AS s FROM p {MINUTE};
        CREATE QUERY tops AS SELECT MAX(size) AS s FROM p {MINUTE} WITH PRIORITY 2;
        CREATE QUERY raw AS SELECT size FROM p WITH WEIGHT 3;
        CREATE QUERY now AS SELECT AVG(pps) AS a FROM LATEST(load);
        CREATE QUERY deep AS SELECT SUM(s) AS s FROM sums GROUP BY window(ts, '1 hour');
        """
    ).contracts
    assert found == {
        "sums": Error(),
        "tops": Exact(priority=2),
        "raw": Error(weight=3),
        "now": Exact(),
        "deep": Exact(),
    }


# Catalog


@pytest.mark.parametrize(
    "text",
    [
        "",
        EVERYTHING,
        f"CREATE QUERY q AS SELECT SUM(size) AS s FROM p {MINUTE};"
        "ALTER QUERY q WITH SUBSET GAP 3 FILL last WEIGHT 2;",
        "CREATE QUERY q AS SELECT AVG(pps) AS s FROM LATEST(load) WITH PRECISION 5;"
        "ALTER QUERY q WITH PRECISION 1 IMMEDIATE",
        f"CREATE QUERY `my query` AS SELECT SUM(size) AS s FROM p {MINUTE};",
        "CREATE VIEW v AS SELECT ts, size FROM p;"
        f"CREATE QUERY q AS /* how much */ SELECT SUM(size) AS s FROM v {MINUTE}; -- done",
        f"CREATE QUERY q AS WITH w AS (SELECT MAX(size) AS m FROM p {MINUTE}) "
        "SELECT SUM(m) AS m FROM w GROUP BY window(ts, '1 hour')",
    ],
)
def test_a_catalog_is_the_same_after_a_trip_through_sql(text: str) -> None:
    found = catalog(text)
    assert Catalog.from_sql(found.sql(), FUNCTIONS) == found


def test_names_are_taken_once() -> None:
    message = refusal("CREATE VIEW P AS SELECT size FROM p")
    assert "there is a stream called p already" in message
    assert "DROP STREAM p first" in message


@pytest.mark.parametrize(
    ("made", "dropped", "readers"),
    [
        ("", "STREAM p", "q"),
        (f"CREATE VIEW v AS SELECT MAX(size) AS size FROM p {MINUTE};", "VIEW v", "q"),
        ("CREATE VIEW v AS SELECT ts, size FROM p;", "VIEW v", "q"),
    ],
)
def test_what_is_read_cannot_be_dropped(made: str, dropped: str, readers: str) -> None:
    source = "v" if made else "p"
    text = f"{made} CREATE QUERY q AS SELECT SUM(size) AS s FROM {source} GROUP BY window(ts, '1 hour');"
    text += f"DROP {dropped}"
    assert f"is read by {readers}" in refusal(text)


def test_a_view_read_inside_a_sub_query_cannot_be_dropped() -> None:
    for select in (
        "SELECT SUM(size) AS s FROM (SELECT * FROM v)",
        "WITH w AS (SELECT * FROM v) SELECT SUM(size) AS s FROM w",
    ):
        text = f"CREATE VIEW v AS SELECT ts, size FROM p; CREATE QUERY q AS {select} {MINUTE}; DROP VIEW v;"
        assert "view v is read by q" in refusal(text)


def test_a_table_that_is_joined_cannot_be_dropped() -> None:
    assert "table sites is read by here" in refusal(EVERYTHING + "DROP QUERY there; DROP TABLE sites;")


def test_dropping_takes_the_inner_steps_along() -> None:
    inner = f"SELECT MAX(size) AS m FROM p {MINUTE}"
    text = f"CREATE QUERY q AS SELECT SUM(m) AS s FROM ({inner}) x GROUP BY window(ts, '1 hour');"
    assert set(catalog(text).steps) == {"q.x", "q"}
    assert catalog(text + "DROP QUERY q;") == catalog("")


def test_dropping_what_is_not_there() -> None:
    assert catalog("DROP QUERY IF EXISTS nothing;") == catalog("")
    assert "there is no query called load" in refusal("DROP QUERY load;")
    assert "did you mean ticks?" in refusal("DROP STREAM tick;")
    assert "there is no query called q" in refusal("ALTER QUERY q WITH EXACT;")


# Taking a SELECT apart


def test_a_view_is_looked_through_and_keeps_its_meaning() -> None:
    text = f"""
    CREATE VIEW v AS SELECT ts, size + sport AS x, size > 5 OR sport = 1 AS y FROM p WHERE dport = 80;
    CREATE QUERY q AS SELECT SUM(x * 2) AS s FROM v WHERE y AND x > 3 {MINUTE}"""
    step = catalog(text).steps["q"]
    assert step.path == Path(
        "p", (), ("s.`dport` = 80", "(s.`size` > 5 OR s.`sport` = 1)", "(s.`size` + s.`sport`) > 3")
    )
    assert step.calls[0].arguments == ("(s.`size` + s.`sport`) * 2",)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_inlining_keeps_the_value_of_an_expression(data: st.DataObject) -> None:
    """Whatever the operators, a view's column means the same inside as outside."""
    inner = data.draw(
        st.sampled_from(["size + sport", "size - sport", "-size", "size * 2", "size", "size % 3"])
    )
    outer = data.draw(st.sampled_from(["x * 2", "2 - x", "-x", "x % 5", "10 - x - x", "x * x"]))
    text = f"CREATE VIEW v AS SELECT ts, {inner} AS x FROM p;"
    text += f"CREATE QUERY q AS SELECT SUM({outer}) AS s FROM v {MINUTE}"
    (argument,) = catalog(text).steps["q"].calls[0].arguments
    values = {"size": data.draw(st.integers(-9, 9)), "sport": data.draw(st.integers(-9, 9))}
    merged = argument.replace("s.", "").replace("`", "")
    assert eval(merged, {}, values) == eval(outer, {}, {"x": eval(inner, {}, values)})


def test_ctes_and_sub_queries_nest() -> None:
    hour = "GROUP BY window(ts, '1 hour')"
    for text in (
        f"WITH w AS (SELECT MAX(size) AS m FROM p {MINUTE}) SELECT SUM(m) AS s FROM w WHERE m > 3 {hour}",
        f"SELECT SUM(m) AS s FROM (SELECT MAX(size) AS m FROM p {MINUTE}) w WHERE m > 3 {hour}",
    ):
        steps = catalog(f"CREATE QUERY q AS {text}").steps
        assert list(steps) == ["q.w", "q"]
        assert not steps["q.w"].published
        assert steps["q"].path == Path("q.w", (), ("s.`m` > 3",))
        assert steps["q"].stream == "p"


def test_a_cte_without_an_aggregate_is_no_step() -> None:
    step = catalog(
        f"CREATE QUERY q AS WITH w AS (SELECT ts, size AS z FROM p WHERE sport = 1) "
        f"SELECT SUM(z) AS s FROM w {MINUTE}"
    ).steps
    assert list(step) == ["q"]
    assert step["q"].path == Path("p", (), ("s.`sport` = 1",))


def test_inner_steps_of_one_label_are_kept_apart() -> None:
    text = f"""CREATE QUERY q AS WITH w AS (SELECT MAX(size) AS m FROM p {MINUTE})
      SELECT SUM(x) AS s FROM (SELECT MAX(m) AS x FROM w GROUP BY window(ts, '1 hour')) w
      GROUP BY window(ts, '1 day')"""
    steps = catalog(text).steps
    assert [(s.name, s.path.source) for s in steps.values()] == [("q.w", "p"), ("q.w2", "q.w"), ("q", "q.w2")]


@pytest.mark.parametrize("key", ["host", "1", "src", "p.src"])
def test_keys_may_be_named_by_alias_or_number(key: str) -> None:
    step = query(f"SELECT src AS host, SUM(size) AS s FROM p {MINUTE}, {key}")
    assert [(k.name, k.sql) for k in step.keys] == [("host", "s.`src`")]
    assert [o.sql for o in step.outputs] == ["k0", "a0"]


def test_items_are_written_over_calls_and_keys() -> None:
    step = query(
        f"SELECT window.start AS begins, upper(src) AS u, MAX(size) - MIN(size) AS d, MAX(size) / 2 AS h "
        f"FROM p {MINUTE}, upper(src) HAVING COUNT(*) > 5"
    )
    assert [str(call) for call in step.calls] == ["max(size)", "min(size)", "count(*)"]
    assert [o.sql for o in step.outputs] == ["window_start", "k0", "a0 - a1", "a0 / 2"]
    assert step.having == "a2 > 5"


@pytest.mark.parametrize(
    ("written", "call"),
    [
        ("COUNT(1)", "count(*)"),
        ("COUNT(*) FILTER (WHERE size > 3)", "count(*) where size > 3"),
        ("COUNT_IF(size > 3)", "count(*) where size > 3"),
        ("COUNT(DISTINCT src, dport)", "count_distinct(src, dport)"),
        ("MEAN(size)", "avg(size)"),
        ("STD(size)", "stddev_samp(size)"),
        ("VAR_POP(size)", "var_pop(size)"),
        ("MEDIAN(size)", "percentile(size, 0.5)"),
        ("PERCENTILE(size, 0.9)", "percentile(size, 0.9)"),
        ("PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY size)", "percentile(size, 0.25)"),
        ("BOOL_AND(size > 3)", "bool_and(size > 3)"),
        ("ANY(size > 3)", "bool_or(size > 3)"),
        ("longest(src)", "longest(src)"),
    ],
)
def test_aggregates_go_by_one_name(written: str, call: str) -> None:
    step = query(f"SELECT {written} AS x FROM p {MINUTE}")
    assert [str(c) for c in step.calls] == [call]


def test_windows_are_read_from_the_group() -> None:
    assert query(
        "SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '10 minutes', '1 minute', '15 seconds')"
    ).window == (TimeWindow(600_000_000, 60_000_000, 15_000_000))
    assert query("SELECT COUNT(*) AS n FROM p GROUP BY tuples(100)").window == TupleWindow(100, 100)
    assert query("SELECT COUNT(*) AS n FROM p GROUP BY window(ts, INTERVAL 5 MINUTES)").window == (
        TimeWindow(300_000_000, 300_000_000)
    )


def test_a_lookup_names_its_keys() -> None:
    step = query(f"SELECT site, COUNT(*) AS n FROM p JOIN sites AS x ON p.src = x.host {MINUTE}, site")
    (lookup,) = step.path.lookups
    assert (lookup.table, lookup.keys, lookup.inner) == ("sites", ("host",), True)
    assert str(lookup) == "lookup sites on src = sites.host"
    using = query(
        "SELECT account, SUM(qty * price) AS w FROM LATEST(ticks) JOIN holdings USING (symbol) "
        "GROUP BY account"
    )
    assert using.path.lookups[0].keys == ("symbol",)
    assert using.current


def test_expressions_in_canonical_form_parse_again() -> None:
    for step in catalog(EVERYTHING).steps.values():
        for predicate in step.path.predicates:
            parse_one(predicate, dialect="spark")


WRONG = {
    "unknown stream": ("SELECT 1 AS x FROM nowhere", "no stream, view or query called nowhere", "nowhere"),
    "table alone": ("SELECT host FROM sites", "sites is a table", "sites"),
    "unknown column": (f"SELECT SUM(sice) AS s FROM p {MINUTE}", "no column sice in p", "sice"),
    "near column": (f"SELECT SUM(sice) AS s FROM p {MINUTE}", "did you mean size?", "sice"),
    "aggregate in WHERE": (
        f"SELECT COUNT(*) AS n FROM p WHERE SUM(size) > 3 {MINUTE}",
        "put the condition into HAVING",
        None,
    ),
    "no window": ("SELECT COUNT(*) AS n FROM p", "needs a window", None),
    "two windows": (f"SELECT COUNT(*) AS n FROM p {MINUTE}, tuples(5)", "found a second", None),
    "other time": (
        "SELECT COUNT(*) AS n FROM p GROUP BY window(size, '1 minute')",
        "which is ts; found size",
        "size, '1",
    ),
    "no length": (
        "SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 month')",
        "not a unit of fixed length",
        None,
    ),
    "long slide": (
        "SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '1 minute', '2 minutes')",
        "would belong to none",
        None,
    ),
    "no tuples": ("SELECT COUNT(*) AS n FROM p GROUP BY tuples(0)", "above 0", None),
    "fractions of tuples": (
        "SELECT COUNT(*) AS n FROM p GROUP BY tuples(1.5)",
        "whole numbers of rows",
        None,
    ),
    "stray column": (f"SELECT src, COUNT(*) AS n FROM p {MINUTE}", "neither in GROUP BY nor inside", "src"),
    "star": (f"SELECT *, COUNT(*) AS n FROM p {MINUTE}", "SELECT * cannot stand beside GROUP BY", None),
    "nested aggregate": (f"SELECT SUM(MAX(size)) AS n FROM p {MINUTE}", "needs a step between", None),
    "aggregate key": (f"SELECT COUNT(*) AS n FROM p {MINUTE}, SUM(size)", "cannot be a group key", None),
    "ordinal": (f"SELECT COUNT(*) AS n FROM p {MINUTE}, 7", "GROUP BY 7: there are 1 items", None),
    "twice": (f"SELECT COUNT(*) AS n, SUM(size) AS n FROM p {MINUTE}", "two columns are called n", None),
    "twice in rows": ("SELECT size, sport AS size FROM p", "two columns are called size", None),
    "unsupported": (
        f"SELECT COLLECT_LIST(size) AS n FROM p {MINUTE}",
        "is not an aggregate that Slackwater keeps",
        None,
    ),
    "share": (f"SELECT PERCENTILE(size, 90) AS n FROM p {MINUTE}", "a number from 0 to 1", None),
    "ORDER BY": ("SELECT size FROM p ORDER BY size", "ORDER BY has no meaning", None),
    "LIMIT": ("SELECT size FROM p LIMIT 5", "LIMIT has no meaning", None),
    "DISTINCT": ("SELECT DISTINCT size FROM p", "SELECT DISTINCT is not supported", None),
    "HAVING alone": ("SELECT size FROM p HAVING size > 3", "HAVING needs GROUP BY", None),
    "UNION": ("SELECT size FROM p UNION ALL SELECT size FROM p", "one SELECT, found UNION", "SELECT"),
    "no FROM": ("SELECT 1 AS x", "needs FROM", None),
    "two streams": ("SELECT size FROM p JOIN load ON src = host", "load is none", "load"),
    "cross join": ("SELECT size FROM p CROSS JOIN sites", "is not a lookup", "sites"),
    "right join": (
        "SELECT size FROM p RIGHT JOIN sites ON src = host",
        "RIGHT JOIN is not a lookup",
        "sites",
    ),
    "join without equality": (
        "SELECT size FROM p JOIN sites ON src > host",
        "equates no column of sites",
        "sites",
    ),
    "join without ON": ("SELECT size FROM p JOIN sites", "equates no column of sites", "sites"),
    "ambiguous": (
        "SELECT symbol FROM LATEST(ticks) JOIN holdings ON ticks.symbol = holdings.symbol",
        "column symbol is in ticks and in holdings",
        "symbol",
    ),
    "LATEST without key": ("SELECT size FROM LATEST(p)", "p has no KEY", None),
    "LATEST of nothing": ("SELECT size FROM LATEST(q)", "none called q", None),
    "LATEST with window": (
        "SELECT AVG(pps) AS x FROM LATEST(load) GROUP BY window(ts, '1 minute')",
        "takes no window",
        None,
    ),
    "table function": ("SELECT 1 AS x FROM range(5)", "there is one such form: LATEST(stream)", None),
}


@pytest.mark.parametrize(("text", "said", "at"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_planned_is_refused_in_its_place(text: str, said: str, at: str | None) -> None:
    statement = f"CREATE QUERY q AS {text}"
    message = refusal(statement)
    assert said in message
    if at is not None:
        assert message.startswith(f"line {LINES + 1}, column {statement.index(at) + 1}: ")


# --- what cannot be honoured ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ("SELECT * FROM p WHERE rand() < 0.5", "rand() changes from run to run"),
        ("SELECT uuid() AS u FROM p", "uuid() changes from run to run"),
        ("SELECT now() AS n FROM p", "now() is the clock's"),
        ("SELECT monotonically_increasing_id() AS n FROM p", "depends on how Spark cuts the work"),
        ("SELECT AVG(size) OVER (PARTITION BY src) AS a FROM p", "window functions (OVER) are not supported"),
        ("SELECT size FROM p WHERE size IN (SELECT size FROM p)", "a sub-query stands only after FROM"),
        (
            "SELECT COUNT(*) AS n FROM p GROUP BY ROLLUP(src), window(ts, '1 second')",
            "ROLLUP is not supported",
        ),
        ("SELECT COUNT(*) AS n FROM p GROUP BY session_window(ts, '1 second')", "session windows are not"),
        ("SELECT try_sum(size) AS s FROM p GROUP BY window(ts, '1 second')", "TRY_SUM is not an aggregate"),
        (
            "SELECT max_by(src, size) AS s FROM p GROUP BY window(ts, '1 second')",
            "MAX_BY is not an aggregate",
        ),
        (
            "SELECT percentile(size, 0.5, size) AS s FROM p GROUP BY window(ts, '1 second')",
            "found 3 arguments",
        ),
        ("SELECT MEDIAN(DISTINCT size) AS s FROM p GROUP BY window(ts, '1 second')", "(DISTINCT …) is not"),
    ],
)
def test_what_cannot_be_honoured_is_refused_where_it_stands(select: str, said: str) -> None:
    stream = "CREATE STREAM p (ts TIMESTAMP, src STRING, size INT) USING rate TIMESTAMP BY ts;\n"
    with pytest.raises(LanguageError) as caught:
        Catalog.from_sql(stream + f"CREATE QUERY q AS {select};", Functions())
    assert said in str(caught.value)
    assert caught.value.position is not None
    assert caught.value.position.line == 2
