"""From the plan and the statistics to rates: slots, strata, sizes and costs, without Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.operators import counted, operators_of
from slackwater.plan.slots import rare, slots_of
from slackwater.plan.tables import Plan
from slackwater.planners.sampling import heavy_tailed, plan_rates, worst_loss
from slackwater.planners.terms import StreamLoad, terms_of
from slackwater.statistics.costs import predicted
from slackwater.statistics.snapshot import GroupStrata, QueryStatistics, StreamStatistics

STREAM = "CREATE STREAM p (ts TIMESTAMP, src STRING, size INT, port INT) USING traffic TIMESTAMP BY ts;"
COSTS = {"pass": 0.01, "read": 3e-8, "block": 3e-8, "row": 6e-8, "test": 1e-8}
ROWS = 1_000_000


def load_of(
    queries: str, *, cheap: bool = True, python: float = 3e-6, **known: QueryStatistics
) -> StreamLoad:
    plan = extend(Plan(), Catalog.from_sql(STREAM + queries, Functions().with_scalar("net", "string")))
    slots = slots_of(plan, "p")
    nodes = operators_of(plan, "p", slots)
    costs = {**COSTS, **{f"python {slot.id}": python for slot in slots.all}}
    statistics = StreamStatistics("p", 10, ROWS, ROWS, {}, known, {}, costs)
    return StreamLoad(plan, nodes, slots, statistics, ROWS, cheap)


def whole(load: StreamLoad) -> float:
    return predicted(load.statistics.costs, terms_of(load, {}))


COUNT = "CREATE QUERY {0} AS SELECT COUNT(*) AS n FROM p WHERE port = {1} GROUP BY window(ts, '30 seconds') WITH {2};"


def test_what_fits_is_taken_whole():
    load = load_of(COUNT.format("a", 80, "ERROR 5%"), a=QueryStatistics(0.5))
    found = plan_rates([load], whole(load) * 1.01)
    assert found.by_stream == ({},)
    assert found.allocation.level == 0


def test_the_load_at_the_rates_found_fits():
    load = load_of(
        COUNT.format("a", 80, "ERROR 5%")
        + COUNT.format("b", 53, "ERROR 5%")
        + COUNT.format("c", 22, "ERROR 5%"),
        a=QueryStatistics(0.5),
        b=QueryStatistics(0.01),
        c=QueryStatistics(0.001),
    )
    for part in (0.9, 0.8, 0.7):
        found = plan_rates([load], whole(load) * part)
        assert (
            predicted(load.statistics.costs, terms_of(load, found.by_stream[0])) <= whole(load) * part * 1.001
        )
        assert 0 < found.allocation.level < 1


def test_queries_of_one_path_share_a_slot_and_an_exact_one_keeps_it_whole():
    text = (
        COUNT.format("a", 80, "ERROR 5%")
        + COUNT.format("b", 80, "ERROR 1%")
        + COUNT.format("c", 22, "ERROR 5%")
    )
    slots = load_of(text).slots
    assert [set(s.steps) for s in slots.all] == [{"a", "b"}, {"c"}]
    assert all(s.sheddable for s in slots.all)
    with_exact = load_of(text + COUNT.format("d", 80, "EXACT")).slots
    assert [s.sheddable for s in with_exact.all] == [False, True]


def test_predicates_in_another_order_are_the_same_slot():
    slots = load_of(
        "CREATE QUERY a AS SELECT COUNT(*) AS n FROM p WHERE port = 80 AND size > 9 GROUP BY window(ts, '1 minute');"
        "CREATE QUERY b AS SELECT SUM(size) AS n FROM p WHERE size > 9 AND port = 80 GROUP BY window(ts, '1 minute');"
    ).slots
    assert len(slots.all) == 1


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT COUNT(*) AS n FROM p GROUP BY tuples(100)", "windows over rows number all of them"),
        ("SELECT MAX(size) AS n FROM p GROUP BY window(ts, '1 minute')", "its contract is EXACT by default"),
    ],
)
def test_what_is_never_shed(query: str, why: str):
    (slot,) = load_of(f"CREATE QUERY q AS {query};").slots.all
    assert not slot.sheddable, why


def test_a_slot_behind_a_costly_function_is_thinned_out_more_than_a_cheap_one():
    text = (
        "CREATE QUERY dear AS SELECT COUNT(*) AS n FROM p WHERE net(src) <> 'x' GROUP BY window(ts, '1 minute');"
        "CREATE QUERY cheap AS SELECT COUNT(*) AS n FROM p WHERE port = 80 GROUP BY window(ts, '1 minute');"
    )
    load = load_of(text, dear=QueryStatistics(0.5), cheap=QueryStatistics(0.5))
    rates = plan_rates([load], whole(load) * 0.4).by_stream[0]
    dear, cheap = (rates.get(load.slots.by_step[n].id, 1.0) for n in ("dear", "cheap"))
    assert dear < 0.5 < cheap


GROUPED = "CREATE QUERY g AS SELECT port, COUNT(*) AS n FROM p GROUP BY port, window(ts, '30 seconds') WITH ERROR 5%;"


def test_rare_groups_get_a_higher_rate_than_frequent_ones():
    load = load_of(GROUPED, g=QueryStatistics(1e-6))
    slot = load.slots.by_step["g"]
    assert slot.keys == ("s.`port`",)
    told = GroupStrata((11, 22), share=0.98, least=0.3, rare_share=0.02, rare_least=1e-6)
    load = replace(load, statistics=replace(load.statistics, strata={slot.id: told}))
    capacity = whole(load) * 0.9
    rates = plan_rates([load], capacity).by_stream[0]
    assert rates[slot.id] < rates[rare(slot.id)]
    one_rate = plan_rates([replace(load, statistics=replace(load.statistics, strata={}))], capacity)
    assert plan_rates([load], capacity).allocation.level <= one_rate.allocation.level


def test_a_slot_whose_steps_group_differently_has_one_rate():
    text = (
        GROUPED
        + "CREATE QUERY h AS SELECT COUNT(*) AS n FROM p GROUP BY window(ts, '30 seconds') WITH ERROR 5%;"
    )
    (slot,) = load_of(text).slots.all
    assert slot.keys == ()


SUMMED = "CREATE QUERY s AS SELECT SUM(size) AS n FROM p WHERE net(src) <> 'x' GROUP BY window(ts, '1 minute') WITH ERROR 5%;"


def test_heavy_tails_are_sampled_by_size_where_that_lowers_the_level():
    heavy = load_of(SUMMED, s=QueryStatistics(0.5, second=40.0, mean=700.0))
    slot = heavy.slots.by_step["s"]
    assert slot.summed == "s.`size`"
    assert heavy_tailed(heavy) == {slot.id: 700.0}
    found = plan_rates([heavy], whole(heavy) * 0.4)
    assert found.sizes[0][slot.id] == pytest.approx(700.0 / found.by_stream[0][slot.id])
    level = plan_rates([heavy], whole(heavy) * 0.4, split="hoeffding")
    assert level.sizes == ({},), "the paper's split samples rows whatever their size"
    even = load_of(SUMMED, s=QueryStatistics(0.5, second=1.1, mean=700.0))
    assert plan_rates([even], whole(even) * 0.4).sizes == ({},)
    negative = load_of(SUMMED, s=QueryStatistics(0.5, second=40.0, mean=None))
    assert plan_rates([negative], whole(negative) * 0.4).sizes == ({},)
    parsed = replace(heavy, cheap=False)
    assert plan_rates([parsed], whole(parsed) * 0.4).sizes == ({},), "to know a size costs the parse"


def test_a_sum_beside_other_aggregates_is_not_sampled_by_size():
    text = SUMMED.replace("SUM(size) AS n", "SUM(size) AS n, COUNT(*) AS c")
    (slot,) = load_of(text).slots.all
    assert slot.summed is None


def test_reading_less_costs_less_and_loses_more():
    load = load_of(COUNT.format("a", 80, "ERROR 5%"), a=QueryStatistics(0.5))
    part = replace(load, share=0.1)
    assert whole(part) < whole(load)
    assert worst_loss(load, {}, 3.0) == 0
    assert worst_loss(part, {}, 3.0) > 0


def test_several_streams_share_one_level():
    load = load_of(COUNT.format("a", 80, "ERROR 5%"), a=QueryStatistics(0.5))
    other = load_of(COUNT.format("a", 80, "ERROR 5%"), a=QueryStatistics(0.01))
    found = plan_rates([load, other], (whole(load) + whole(other)) * 0.8)
    first, second = (next(iter(r.values()), 1.0) for r in found.by_stream)
    assert first < second, "the stream with more rows in its answer gives more"


def test_operators_are_counted_where_nothing_costly_is_before_them():
    load = load_of(
        "CREATE QUERY a AS SELECT COUNT(*) AS n FROM p WHERE port = 80 AND net(src) = 'x' AND size > 9 "
        "GROUP BY window(ts, '1 minute');"
        "CREATE QUERY b AS SELECT COUNT(*) AS n FROM p WHERE port = 80 GROUP BY window(ts, '1 minute');"
    )
    labels = [load.nodes[i].label for i in counted(load.nodes)]
    assert "port = 80" in labels
    assert not any("net" in label for label in labels)
