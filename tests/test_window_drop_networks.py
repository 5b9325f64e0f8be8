"""Random networks of aggregates on Spark beside the reference operators, with the same coins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pyarrow as pa
import pytest

from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.tables import Plan
from slackwater.planners.ruling import FixedRates
from slackwater.planners.window_coins import coin
from slackwater.planners.window_needs import points_of
from slackwater.reference.ordered import Item, numbered
from slackwater.reference.window_drop import Drop, Network, Step, run
from slackwater.runtime.answers import Answer
from slackwater.runtime.session import Settings
from slackwater.runtime.testing import run_scripted
from window_networks import longest_run, plain_answers, random_network, random_rows_step, random_stream

SECOND = 1_000_000
EPOCH = 1_700_000_000 // 3600 * 3600
"""A time at which windows of all slides start: that of the items' 0."""
TOGETHER = 10
"""Networks on one stream, each of another priority, so that none shares its drops with another."""
RUNS = 6
FUNCTIONS = {"count": "COUNT(*)", "sum": "SUM(v)", "max": "MAX(v)", "spread": "MAX(v) - MIN(v)"}


def statements(network: Network, prefix: str, priority: int) -> Iterator[str]:
    """The network as views and queries."""

    def visit(step: Step, source: str) -> Iterator[str]:
        name = prefix + step.name
        keys = "".join(f"{key}, " for key in step.keys)
        where = step.where
        test = f" WHERE {where.column} % {where.modulus} = {where.remainder}" if where is not None else ""
        window = f"window(ts, '{step.size} seconds', '{step.slide} seconds')"
        # a query's group keys come with its answers
        select = f"SELECT {keys}{FUNCTIONS[step.function]} AS v FROM {source}{test} GROUP BY {keys}{window}"
        if step.gap is None:
            yield f"CREATE VIEW {name} AS {select};"
        else:
            yield f"CREATE QUERY {name} AS {select} WITH SUBSET GAP {step.gap} PRIORITY {priority};"
        for reader in step.readers:
            yield from visit(reader, name)

    for step in network.readers:
        yield from visit(step, "p")


def batches(items: Sequence[Item], random: Random) -> list[list[Item]]:
    """The items cut at a time at random; those of one time stay together."""
    times = sorted({item.time for item in items})
    edges = [times[0], random.choice(times[1:]), times[-1] + 1]
    return [[i for i in items if low <= i.time < high] for low, high in pairwise(edges)]


def table(items: Sequence[Item]) -> pa.Table:
    values = [item.values or {} for item in items]
    return pa.table(
        {
            "ts": pa.array([(EPOCH + i.time) * SECOND for i in items], pa.timestamp("us", "UTC")),
            **{name: pa.array([v[name] for v in values], pa.int64()) for name in ("k", "h", "v")},
        }
    )


def shown(answer: Answer) -> tuple[int, tuple[tuple[str, object], ...], object]:
    assert answer.window_start is not None
    return round(answer.window_start.timestamp()) - EPOCH, tuple(sorted(answer.keys)), answer.value


def given(step: Step, rows: Sequence[tuple[int, dict[str, int]]]) -> list[tuple[object, ...]]:
    keys = sorted(step.keys)
    return sorted((time, tuple((k, row[k]) for k in keys), row["v"]) for time, row in rows)


@pytest.mark.parametrize("number", range(1, RUNS + 1))
def test_spark_delivers_what_the_reference_operators_deliver(spark, number: int):
    random = Random(f"networks {number}")
    networks = [random_network(random) for _ in range(TOGETHER)]
    items = random_stream(random)
    share = random.choice((0.3, 0.5, 0.8, 1.0))
    sql = "CREATE STREAM p (ts TIMESTAMP, k BIGINT, h BIGINT, v BIGINT) USING scripted TIMESTAMP BY ts;"
    for place, network in enumerate(networks):
        sql += "".join(statements(network, f"n{place}_", place + 1))
    cut = batches(items, random)
    spans = [((EPOCH + b[0].time) * SECOND, (EPOCH + b[-1].time + 1) * SECOND) for b in cut]
    plan = extend(Plan(), Catalog.from_sql(sql, Functions()))
    drops = dict.fromkeys((name for name, step in plan.steps.items() if step.step.published), share)
    answers = run_scripted(
        spark,
        sql,
        {"p": [table(b) for b in cut]},
        ruler=FixedRates(drops=drops),
        spans={"p": spans},
        settings=Settings(salt=number),
    )
    found: dict[str, list[tuple[object, ...]]] = {}
    for answer in answers:
        found.setdefault(answer.query, []).append(shown(answer))
    reference = reference_drops(plan, spans[0][0], share, number)
    lost = 0
    for place, network in enumerate(networks):
        prefix = f"n{place}_"
        exact = plain_answers(network, items)
        own = [
            Drop(
                d.source.removeprefix(prefix) if d.source != "p" else network.stream,
                tuple(m.removeprefix(prefix) for m in d.members),
                d.size,
                d.slide,
                d.gap,
                d.coins,
                d.first_unit,
            )
            for d in reference
            if d.members[0].startswith(prefix)
        ]
        # the reference counts time from 0, and so do its units
        kept = run(network, [Item(EPOCH + i.time, i.values) for i in items], own)
        for step in network.steps():
            if step.gap is None:
                continue
            wanted = given(step, [(i.time - EPOCH, dict(i.values or {})) for i in kept[step.name]])
            assert sorted(found.get(prefix + step.name, [])) == wanted, (number, place, step)
            everything = given(step, exact[step.name])
            assert set(wanted) <= set(everything)
            missing = {a[0] for a in everything} - {a[0] for a in wanted}
            assert longest_run(missing, step.slide) <= step.gap
            lost += len(missing)
    assert lost > 0


def reference_drops(plan: Plan, first: int, share: float, salt: int) -> list[Drop]:
    """The drops of a plan, in seconds, as the reference takes them."""
    found = []
    for id_, point in points_of(plan, "p").items():
        drop = point.drop
        part = min(share, drop.gap / (drop.gap + 1))
        found.append(
            Drop(
                point.source,
                point.members,
                drop.size // SECOND,
                drop.slide // SECOND,
                drop.gap,
                lambda batch, id_=id_, part=part: coin(salt, id_, batch) < part,
                -(-(first - drop.size) // drop.slide),
            )
        )
    return found


def test_windows_over_rows_are_what_the_reference_delivers_of_numbered_items(spark):
    random = Random("rows")
    salt, share = 5, 0.6
    items = [Item(number * 2, item.values) for number, item in enumerate(random_stream(random) * 4)]
    steps = [random_rows_step(random, f"q{number}") for number in range(12)]
    sql = "CREATE STREAM p (ts TIMESTAMP, k BIGINT, h BIGINT, v BIGINT) USING scripted TIMESTAMP BY ts;"
    for place, step in enumerate(steps):
        sql += next(statements(Network("p", (step,)), "", place + 1)).replace(
            f"window(ts, '{step.size} seconds', '{step.slide} seconds')", f"tuples({step.size}, {step.slide})"
        )
    cut = batches(items, random)
    spans = [((EPOCH + b[0].time) * SECOND, (EPOCH + b[-1].time + 1) * SECOND) for b in cut]
    answers = run_scripted(
        spark,
        sql,
        {"p": [table(b) for b in cut]},
        ruler=FixedRates(drops={step.name: share for step in steps}),
        spans={"p": spans},
        settings=Settings(salt=salt),
    )
    plan = extend(Plan(), Catalog.from_sql(sql, Functions()))
    points = {point.members[0]: (id_, point.drop) for id_, point in points_of(plan, "p").items()}
    lost = 0
    for step in steps:
        rows = list(step.where.passed(items) if step.where is not None else items)
        id_, drop = points[step.name]
        part = min(share, drop.gap / (drop.gap + 1))
        network = Network("p", (replace(step, where=None),))
        reference = Drop(
            "p",
            (step.name,),
            drop.size,
            drop.slide,
            drop.gap,
            lambda batch, id_=id_, part=part: coin(salt, id_, batch) < part,
        )

        def complete(found: Sequence[Item], step: Step = step, rows: Sequence[Item] = rows) -> list[Item]:
            return [i for i in found if i.time >= 0 and i.time + step.size <= len(rows)]

        exact = complete(run(network, list(numbered(rows)))[step.name])
        wanted = complete(run(network, list(numbered(rows)), [reference])[step.name])
        found = [shown(answer) for answer in answers if answer.query == step.name]
        # a window over rows begins with the time of its first row
        times = [(rows[i.time].time, dict(i.values or {})) for i in wanted]
        assert sorted(found) == given(step, times), step
        missing = {i.time for i in exact} - {i.time for i in wanted}
        assert longest_run(missing, step.slide) <= step.gap
        lost += len(missing)
    assert lost > 0
