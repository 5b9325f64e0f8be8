"""What a batch has to do, as the planner counts it: the terms that times are fitted to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend, waits_for_python
from slackwater.plan.operators import operators_of
from slackwater.plan.slots import slots_of
from slackwater.plan.tables import Plan
from slackwater.planners.relief import with_contracts
from slackwater.planners.sampling import plan_rates
from slackwater.planners.terms import StreamLoad, must_take, terms_of
from slackwater.statistics.snapshot import StreamStatistics

STREAM = """
CREATE STREAM p (ts TIMESTAMP, src STRING, size INT, port INT) USING traffic TIMESTAMP BY ts;
CREATE TABLE ports (port INT, service STRING) USING csv OPTIONS (path 'ports.csv');
"""


def load_of(queries: str, size: float = 1000.0, exactly: frozenset[str] = frozenset()) -> StreamLoad:
    plan = extend(Plan(), Catalog.from_sql(STREAM + queries, Functions().with_scalar("net", "string")))
    slots = slots_of(plan, "p", exactly)
    costs = {
        "pass": 0.01,
        "python pass": 0.05,
        "read": 1e-8,
        "row": 1e-7,
        "test": 1e-8,
        "emit": 1e-6,
        "lookup": 1e-6,
    }
    costs |= {f"python {slot.id}": 5e-6 for slot in slots.all}
    nodes = operators_of(plan, "p", slots)
    known = StreamStatistics("p", 1, size, size, dict.fromkeys(range(1, len(nodes)), 0.5), {}, {}, costs)
    return StreamLoad(plan, nodes, slots, known, size, True)


def one(name: str, select: str, rest: str = "") -> str:
    return f"CREATE QUERY {name} AS SELECT {select} AS x FROM p {rest} WITH ERROR 5%;"


WINDOW = "GROUP BY window(ts, '10 seconds')"


def test_rows_are_looked_up_at_the_rate_of_those_who_want_them():
    join = "JOIN ports USING (port) WHERE service = "
    load = load_of(
        one("a", "SUM(size)", f"{join}'web' {WINDOW}") + one("b", "COUNT(*)", f"{join}'mail' {WINDOW}")
    )
    a, b = (load.slots.by_step[name].id for name in "ab")
    assert terms_of(load, {})["lookup"] == pytest.approx(1000)
    assert terms_of(load, {a: 0.1, b: 0.1})["lookup"] == pytest.approx(100)
    many = replace(load, size=1e6)
    assert plan_rates([many], 2.0).allocation.level == 0.0
    assert plan_rates([many], 0.5).allocation.level > 0.0, "a second of looking up does not fit"


def test_rows_that_are_delivered_are_looked_up_too():
    load = load_of("CREATE QUERY rows AS SELECT service FROM p JOIN ports USING (port) WITH ERROR 5%;")
    assert terms_of(load, {})["lookup"] == pytest.approx(1000)


@pytest.mark.parametrize(
    "query",
    [
        one("q", "SUM(length(net(src)))", f"WHERE port = 80 {WINDOW}"),
        one("q", "COUNT(*)", f"WHERE port = 80 {WINDOW}, net(src)"),
        one("q", "net(src)", "WHERE port = 80"),
    ],
)
def test_a_python_function_after_the_tests_costs_what_passes_them(query: str):
    load = load_of(query)
    slot = load.slots.by_step["q"]
    assert slot.python_last
    assert terms_of(load, {slot.id: 0.5})[f"python {slot.id}"] == pytest.approx(250)
    tables = [id_ for id_, _ in load.plan.tables_on("p")]
    assert all(waits_for_python(load.plan, id_) for id_ in tables or ["q"])


def test_a_pass_that_waits_for_python_is_told_from_one_that_does_not():
    python, plain = "WHERE port = 80 AND net(src) = 'x'", "WHERE port = 80"
    for query in (one("q", "COUNT(*)", "{} " + WINDOW), one("q", "size", "{}")):
        waiting, other = load_of(query.format(python)), load_of(query.format(plain))
        assert terms_of(waiting, {}).keys() >= {"python pass", f"python {waiting.slots.by_step['q'].id}"}
        assert "python pass" not in terms_of(other, {})
        assert must_take(waiting, 1.0) >= waiting.statistics.costs["python pass"]
        assert not waits_for_python(other.plan, "q")


def test_what_is_never_sampled_stays_so_under_another_contract():
    load = load_of(
        one("a", "SUM(size)", WINDOW) + one("b", "COUNT(*)", f"WHERE port = 80 {WINDOW}"),
        exactly=frozenset("a"),
    )
    changed = with_contracts(load, {})
    assert [slot.steps for slot in changed.slots.sheddable] == [("b",)]


def test_what_windows_need_of_rows_that_are_all_read_is_counted_once():
    """Counted twice, what must be taken would seem more than there is, and the others would be given up."""
    load = load_of(
        f"CREATE QUERY sure AS SELECT COUNT(*) AS x FROM p {WINDOW} WITH EXACT;"
        f"CREATE QUERY some AS SELECT COUNT(DISTINCT src) AS x FROM p WHERE size > 9 {WINDOW} WITH SUBSET GAP 4;"
        + one("few", "COUNT(*)", f"WHERE port = 80 {WINDOW}")
    )
    load = replace(load, size=1e6, parts={load.slots.by_step["some"].id: 0.5})
    found = plan_rates([load], 1.01 * must_take(load, 1.0))
    assert not found.overrun
    assert not found.allocation.suspended
