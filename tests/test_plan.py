"""The shared plan: trees of operators, panes, and the layout of tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from declared import EVERYTHING, LOOKUPS, MINUTE, catalog, ports
from slackwater.plan.layout import ALIKE_ENOUGH, extend
from slackwater.plan.model import Lookup, Path, TimeWindow, TupleWindow
from slackwater.plan.panes import AFTER_ALL, BEFORE_ALL, candidates
from slackwater.plan.passes import orders
from slackwater.plan.tables import Plan
from slackwater.plan.tree import Node, Operator, shared_tree


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


# Layout


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
