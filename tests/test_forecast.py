"""What a load would cost every query, before it comes: rates, errors, cores, and what would help."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from slackwater.cli import app
from slackwater.language.contracts import Error, Exact
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.operators import operators_of
from slackwater.plan.slots import slots_of
from slackwater.plan.tables import Plan
from slackwater.planners.forecast import Machine, forecast, half_width, scaled
from slackwater.planners.relief import best_relief, least_cores
from slackwater.planners.terms import StreamLoad
from slackwater.statistics.snapshot import QueryStatistics, StreamStatistics

STREAM = "CREATE STREAM p (ts TIMESTAMP, size INT, port INT) USING scripted TIMESTAMP BY ts;"
QUERIES = """
CREATE QUERY web AS SELECT SUM(size) AS s FROM p WHERE port = 80 GROUP BY window(ts, '10 seconds') WITH ERROR 5%;
CREATE QUERY dns AS SELECT COUNT(*) AS n FROM p WHERE port = 53 GROUP BY window(ts, '10 seconds') WITH ERROR 10%;
CREATE QUERY big AS SELECT size FROM p WHERE size > 1000 WITH ERROR 5%;
CREATE QUERY sure AS SELECT SUM(size) AS s, COUNT(*) AS n FROM p WHERE port = 443
  GROUP BY window(ts, '10 seconds') WITH EXACT;
CREATE VIEW seconds AS SELECT COUNT(*) AS n FROM p WHERE port = 22 GROUP BY window(ts, '1 second');
CREATE QUERY busy AS SELECT MAX(n) AS n FROM seconds GROUP BY window(ts, '10 seconds');
"""
COSTS = {"pass": 0.01, "read": 1e-8, "block": 1e-8, "row": 5e-7, "test": 1e-6, "emit": 1e-6}
MACHINE = Machine(budget=0.8, overhead=0.1, executor=0.5, cores=2)


def load_of(
    sql: str = STREAM + QUERIES, rate: float = 10_000.0, costs: dict[str, float] | None = None
) -> StreamLoad:
    plan = extend(Plan(), Catalog.from_sql(sql, Functions()))
    slots = slots_of(plan, "p")
    shares = {"web": 0.5, "dns": 0.05, "big": 0.3, "sure": 0.2, "busy": 0.01}
    queries = {name: QueryStatistics(share, 1.5) for name, share in shares.items()}
    statistics = StreamStatistics("p", 9, rate, rate, queries=queries, costs=costs or COSTS)
    return StreamLoad(plan, operators_of(plan, "p", slots), slots, statistics, rate, False)


def named(found: Any) -> dict[str, Any]:
    return {q.query: q for q in found.queries}


def test_within_the_capacity_every_answer_is_exact() -> None:
    found = forecast([load_of()], MACHINE)
    assert found.load < found.capacity == pytest.approx(1.4)
    assert {(q.rate, q.error, q.met, q.excess) for q in found.queries} == {(1.0, 0.0, True, 0.0)}
    assert list(named(found)) == ["web", "dns", "big", "sure", "busy"]
    assert not found.unmet
    assert best_relief([load_of()], MACHINE, 1.0) is None


def test_beyond_it_errors_are_those_of_the_rates() -> None:
    load = load_of()
    found = forecast([load], MACHINE, 25.0)
    assert found.load > found.capacity
    queries = named(found)
    assert (queries["sure"].rate, queries["busy"].rate) == (1.0, 1.0)
    web = queries["web"]
    assert 0 < web.rate < 1
    spread = load.statistics.queries["web"].spread("total", 250_000 * 10, 250_000)
    assert web.error == pytest.approx(half_width(spread, web.rate, 0.95))
    assert queries["big"].error == pytest.approx(1 - queries["big"].rate)
    assert queries["big"].delivers_rows


def test_more_cores_are_less_error_and_the_least_number_is_enough() -> None:
    loads = [load_of()]
    errors = [named(forecast(loads, MACHINE, 60.0, cores))["dns"].error for cores in (2, 4, 8, 64)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] == 0.0
    needed = least_cores(loads, MACHINE, 60.0)
    assert needed is not None
    assert needed > 2
    assert not forecast(loads, MACHINE, 60.0, needed).unmet
    assert forecast(loads, MACHINE, 60.0, needed - 1).unmet
    assert least_cores(loads, MACHINE, 1e6) is None


def test_where_reading_takes_the_time_a_part_is_read() -> None:
    sql = STREAM + QUERIES[: QUERIES.index("CREATE QUERY sure")]
    loads = [load_of(sql, costs={**COSTS, "read": 1e-6, "block": 1e-6})]
    whole = forecast(loads, MACHINE, 140.0)
    assert all(q.suspended for q in whole.queries)
    skipping = replace(MACHINE, skipping=frozenset({"p"}), shares=(0.5, 0.2, 0.1), alike=3.0)
    part = forecast(loads, skipping, 140.0)
    assert all(0 < q.rate <= 0.5 and q.error < math.inf for q in part.queries)
    # somebody who must see every row forbids it
    loads = [load_of(costs={**COSTS, "read": 1e-6, "block": 1e-6})]
    assert all(q.suspended for q in forecast(loads, skipping, 140.0).queries)


def test_a_query_that_gets_nothing_is_suspended() -> None:
    found = forecast([load_of(costs={**COSTS, "read": 1e-3, "block": 1e-3})], MACHINE, 100.0)
    assert {q.query for q in found.unmet} == {"web", "dns", "big", "sure", "busy"}
    assert all(q.suspended and q.error == math.inf == q.excess for q in found.queries)


def test_the_contract_that_helps_most_is_the_costly_exact_one() -> None:
    sql = STREAM + QUERIES.replace("WHERE port = 443", "")
    loads = [load_of(sql)]
    present = forecast(loads, MACHINE, 35.0)
    assert present.unmet
    relief = best_relief(loads, MACHINE, 35.0)
    assert relief is not None
    assert (relief.query, relief.before, relief.after) == ("sure", Exact(), Error(0.05))
    assert (len(relief.forecast.unmet), relief.forecast.worst) < (len(present.unmet), present.worst)
    # the file itself is as it was
    assert loads[0].plan.catalog.contracts["sure"] == Exact()


def test_a_contract_that_cannot_be_relaxed_is_not_proposed() -> None:
    sql = (
        STREAM
        + "CREATE QUERY top AS SELECT MAX(size) AS m FROM p GROUP BY window(ts, '1 second') WITH EXACT;"
    )
    loads = [load_of(sql)]
    assert forecast(loads, MACHINE, 1000.0).unmet
    assert best_relief(loads, MACHINE, 1000.0) is None


def test_a_grown_stream_has_larger_batches_and_windows() -> None:
    grown = scaled(load_of(rate=100.0), 3.0)
    assert (grown.size, grown.statistics.rate, grown.statistics.size) == (300.0, 300.0, 100.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--load", "lots"], "--load lots: expected a multiple of the measured load, such as 4x"),
        (["--load", "2x", "--live"], "--live and --load stand alone"),
        (["--live", "web"], "--live and --load stand alone"),
        (["--cores", "4"], "go with --live or --load"),
        (["--live", "--cores", "4"], "--cores goes with --load"),
        (["--for", "5s"], "go with --live or --load"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path: Any, arguments: list[str], said: str) -> None:
    path = tmp_path / "f.sql"
    path.write_text(STREAM + QUERIES)
    result = CliRunner().invoke(app, ["explain", str(path), *arguments])
    assert result.exit_code == 1
    assert said in result.stderr


# --- on Spark ---------------------------------------------------------------------------------------

TRAFFIC = """
CREATE STREAM packets (ts TIMESTAMP, dport INT, size INT)
  USING traffic OPTIONS (seed '1', rate '2000', speed '1') TIMESTAMP BY ts;
CREATE QUERY web AS SELECT SUM(size) AS s FROM packets WHERE dport = 80 GROUP BY window(ts, '2 seconds') WITH ERROR 5%;
CREATE QUERY sure AS SELECT MAX(size) AS m FROM packets GROUP BY window(ts, '2 seconds') WITH EXACT;
"""


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--live"], ["stream packets", "dport = 80", "share of rows", "capacity", "nothing is shed"]),
        (["--load", "3x", "--cores", "1"], ["3 times the load", "on 1 core", "cores at which all contracts"]),
    ],
)
def test_a_file_is_measured_by_running_it(
    spark: Any, tmp_path: Any, options: list[str], shown: list[str]
) -> None:
    path = tmp_path / "traffic.sql"
    path.write_text(TRAFFIC)
    result = CliRunner().invoke(
        app, ["explain", str(path), *options, "--for", "6s", "--set", "trigger_ms=400"]
    )
    assert result.exit_code == 0, result.output
    for words in shown:
        assert words in result.stdout
    assert "web" in result.stdout
    assert not (tmp_path / ".slackwater").exists()


def test_a_stream_that_ends_while_it_is_measured_comes_as_fast_as_it_came(spark: Any, tmp_path: Any) -> None:
    path = tmp_path / "traffic.sql"
    path.write_text(TRAFFIC.replace("speed '1'", "speed 'max', length '60 seconds'"))
    options = ["--load", "1000000x", "--for", "60s", "--set", "rows_per_batch=12000"]
    result = CliRunner().invoke(app, ["explain", str(path), *options])
    assert result.exit_code == 0, result.output
    found = re.search(r"by batch: packets (\S+) → (\S+) rows", result.stdout)
    assert found is not None, result.stdout
    assert "0" not in found.groups(), "no batch of nothing"
    assert "contracts would not be met" in result.stdout
