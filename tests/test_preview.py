"""What another query set would do to load and errors, before it is there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.operators import operators_of
from slackwater.plan.slots import slots_of
from slackwater.plan.tables import Plan
from slackwater.planners.forecast import Forecast
from slackwater.planners.preview import as_it_is, previewed, under
from slackwater.planners.terms import StreamLoad
from slackwater.statistics.snapshot import QueryStatistics, StreamStatistics
from test_forecast import MACHINE, QUERIES, STREAM, load_of, named

MAIL = """
CREATE QUERY mail AS SELECT SUM(size) AS s FROM p WHERE port = 25 GROUP BY window(ts, '10 seconds') WITH ERROR 5%;
"""


def capacity_of(fixed: float, streams: int) -> float:
    return MACHINE.capacity()


def after(sql: str, load: StreamLoad) -> Plan:
    """The plan of a run to which statements are applied."""
    catalog = load.plan.catalog
    return extend(load.plan, Catalog.from_sql(STREAM + QUERIES + sql, Functions()) if sql else catalog)


def overloaded() -> StreamLoad:
    return load_of(rate=250_000.0)


def tried(sql: str, **known: QueryStatistics) -> dict[str, tuple[StreamStatistics, Plan]]:
    """What a trial of new queries alone has found."""
    trial = extend(Plan(), Catalog.from_sql(STREAM + sql, Functions()))
    nodes = operators_of(trial, "p", slots_of(trial, "p"))
    passed = {place: 0.02 for place, node in enumerate(nodes) if node.parent >= 0}
    return {"p": (StreamStatistics("p", 3, 100.0, 100.0, passed=passed, queries=known), trial)}


def told(found: Forecast) -> list[Any]:
    return [(q.query, pytest.approx(q.rate), pytest.approx(q.error), q.met) for q in found.queries]


def test_without_a_change_it_is_the_forecast() -> None:
    load = overloaded()
    now, then = as_it_is([load], MACHINE, capacity_of), previewed([load], load.plan, {}, MACHINE, capacity_of)
    assert now.load > now.capacity
    assert told(then) == told(now)
    assert (then.load, then.level) == (pytest.approx(now.load), pytest.approx(now.level))


def test_one_more_query_is_more_load_and_takes_from_the_others() -> None:
    load = overloaded()
    found = tried(MAIL, mail=QueryStatistics(0.02, 1.5))
    now, then = (
        as_it_is([load], MACHINE, capacity_of),
        previewed([load], after(MAIL, load), found, MACHINE, capacity_of),
    )
    assert then.load > now.load
    assert then.capacity == pytest.approx(now.capacity)
    assert named(then)["mail"].error > 0
    assert named(then)["web"].error >= named(now)["web"].error


def test_what_a_trial_has_found_counts_for_new_queries_alone() -> None:
    load = overloaded()
    calm, wild = (
        named(
            previewed(
                [load],
                after(MAIL, load),
                tried(MAIL, mail=QueryStatistics(0.02, second)),
                MACHINE,
                capacity_of,
            )
        )
        for second in (1.0, 50.0)
    )
    assert wild["mail"].error > calm["mail"].error
    lying = tried(MAIL, mail=QueryStatistics(0.02, 1.0), web=QueryStatistics(0.5, 1e6))
    assert (
        named(previewed([load], after(MAIL, load), lying, MACHINE, capacity_of))["web"].error
        == calm["web"].error
    )


def test_without_a_trial_something_is_said_all_the_same() -> None:
    load = overloaded()
    mail = named(previewed([load], after(MAIL, load), {}, MACHINE, capacity_of))["mail"]
    assert 0 < mail.rate < 1
    assert mail.error > 0


def test_fewer_queries_are_less_load() -> None:
    load = overloaded()
    catalog = load.plan.catalog
    fewer = Catalog.from_sql(STREAM + QUERIES + "DROP QUERY dns; DROP QUERY big;", Functions())
    assert catalog.queries.keys() - fewer.queries.keys() == {"dns", "big"}
    now, then = (
        as_it_is([load], MACHINE, capacity_of),
        previewed([load], extend(load.plan, fewer), {}, MACHINE, capacity_of),
    )
    assert then.load < now.load
    assert set(named(then)) == set(named(now)) - {"dns", "big"}
    assert named(then)["web"].error <= named(now)["web"].error


def test_a_contract_that_allows_more_is_predicted_with_its_own_error() -> None:
    load = overloaded()
    looser = Catalog.from_sql(STREAM + QUERIES + "ALTER QUERY web WITH ERROR 50%;", Functions())
    now, then = (
        named(f)
        for f in (
            as_it_is([load], MACHINE, capacity_of),
            previewed([load], extend(load.plan, looser), {}, MACHINE, capacity_of),
        )
    )
    assert then["web"].error > now["web"].error
    assert then["dns"].error <= now["dns"].error


def test_operators_keep_what_was_counted_wherever_they_stand() -> None:
    load = load_of()
    place = next(i for i, node in enumerate(load.nodes) if node.label == "port = 53")
    load = replace(load, statistics=replace(load.statistics, passed={place: 0.05}))
    changed = under(load, after(MAIL, load), {})
    again = next(i for i, node in enumerate(changed.nodes) if node.label == "port = 53")
    assert changed.statistics.passed == {again: 0.05}
    assert "mail" not in changed.statistics.queries


DEAR = """
CREATE QUERY scored AS SELECT COUNT(*) AS n FROM p WHERE score(size) > 0 GROUP BY window(ts, '10 seconds') WITH ERROR 5%;
"""
FUNCTIONS = Functions().with_scalar("score", "int")


def tried_with(sql: str, costs: dict[str, float]) -> dict[str, tuple[StreamStatistics, Plan]]:
    """A trial of queries with Python functions, and what a row takes in each of them, by query."""
    trial = extend(Plan(), Catalog.from_sql(STREAM + sql, FUNCTIONS))
    slots = slots_of(trial, "p")
    named = {f"python {slots.by_step[query].id}": seconds for query, seconds in costs.items()}
    return {"p": (StreamStatistics("p", 3, 100.0, 100.0, costs=named), trial)}


def test_a_row_takes_the_time_that_a_trial_has_found_for_its_function() -> None:
    load = load_of()
    plan = extend(load.plan, Catalog.from_sql(STREAM + QUERIES + DEAR, FUNCTIONS))
    found = tried_with(DEAR, {"scored": 1e-3})
    now, then = as_it_is([load], MACHINE, capacity_of), previewed([load], plan, found, MACHINE, capacity_of)
    assert then.load - now.load == pytest.approx(10.0, rel=0.1), "10,000 rows of a millisecond each"
    untried = previewed([load], plan, {}, MACHINE, capacity_of)
    assert now.load + 0.02 < untried.load < now.load + 1, "what functions usually take"


def test_what_the_run_has_measured_of_a_function_counts_before_a_trial() -> None:
    plan = extend(Plan(), Catalog.from_sql(STREAM + QUERIES + DEAR, FUNCTIONS))
    slots = slots_of(plan, "p")
    load = load_of()
    known = {f"python {slots.by_step['scored'].id}": 1e-4}
    statistics = replace(load.statistics, costs={**load.statistics.costs, **known})
    load = replace(load, plan=plan, nodes=operators_of(plan, "p", slots), slots=slots, statistics=statistics)
    now = as_it_is([load], MACHINE, capacity_of)
    lying = tried_with(DEAR, {"scored": 1.0})
    assert previewed([load], plan, lying, MACHINE, capacity_of).load == pytest.approx(now.load)
