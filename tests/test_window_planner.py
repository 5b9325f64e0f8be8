"""Window drops planned: needs, gains and cells against brute force, shares against the load, the gap always."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random

import numpy as np
import pytest

from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.operators import operators_of
from slackwater.plan.panes import AFTER_ALL, BEFORE_ALL
from slackwater.plan.slots import slots_of
from slackwater.plan.tables import Plan
from slackwater.planners import window_needs
from slackwater.planners.load import LoadTree
from slackwater.planners.most_delivered import DropDemand, most_delivered
from slackwater.planners.sampling import plan_rates
from slackwater.planners.terms import StreamLoad, with_windows
from slackwater.planners.window_coins import Run, coin, decide, spread
from slackwater.planners.window_level import gains_of
from slackwater.planners.window_needs import Needs, cells_of, inside, may_leave_out, need_bits, points_of
from slackwater.planners.window_rules import DropPoint, DropWindow
from slackwater.planners.window_schedule import Extent, QuerySchedule, Schedule, extended
from slackwater.runtime.window_drops import WindowDrops
from slackwater.statistics.snapshot import StreamStatistics

SECOND = 1_000_000
STREAM = "CREATE STREAM p (ts TIMESTAMP, size INT, host STRING) USING scripted TIMESTAMP BY ts;"


def planned(queries: str) -> Plan:
    return extend(Plan(), Catalog.from_sql(STREAM + queries, Functions()))


def loaded(
    queries: str, *, rows: float = 1e6, test: float = 1e-6, after: dict[str, float] | None = None
) -> StreamLoad:
    plan = planned(queries)
    slots = slots_of(plan, "p")
    statistics = StreamStatistics("p", 10, rows, rows, costs={"row": 1e-7, "test": test, "read": 1e-8})
    load = StreamLoad(plan, operators_of(plan, "p", slots), slots, statistics, rows, True)
    return with_windows(load, after)


def query(name: str, window: str, contract: str, where: str = "", source: str = "p") -> str:
    return (
        f"CREATE QUERY {name} AS SELECT COUNT(*) AS n FROM {source}{where} GROUP BY {window} WITH {contract};"
    )


def time(size: int, slide: int | None = None) -> str:
    return f"window(ts, '{size} seconds', '{slide or size} seconds')"


# --- the rule --------------------------------------------------------------------------------------


@pytest.mark.parametrize("gap", [1, 2, 3, 10])
@pytest.mark.parametrize("share", [0.1, 0.4, 0.8, 1.0])
def test_in_the_long_run_the_share_is_left_out_and_never_more_than_the_gap_in_a_row(gap: int, share: float):
    share = min(share, gap / (gap + 1))
    out, run = decide(Run(0), gap, share, 30_000, lambda batch: coin(3, "d", batch))
    assert len(out) / 30_000 == pytest.approx(share, abs=0.02)
    kept = sorted({-1, 30_000, *range(30_000)} - set(out))
    assert max(b - a - 1 for a, b in pairwise(kept)) <= gap
    assert run.unit == 30_000


@pytest.mark.parametrize("gap", [1, 2, 3, 10, 60])
@pytest.mark.parametrize("share", [0.1, 0.4, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("least", [1, 4, 39])
def test_windows_spread_evenly_keep_to_share_gap_and_runs(gap: int, share: float, least: int):
    share, least = min(share, gap / (gap + 1)), min(least, gap)
    state, out = Run(0), []
    # decided a few at a time, as batches come
    for to in range(7, 30_003, 7):
        more, state = spread(state, gap, share, least, to, lambda unit: coin(3, "d", unit))
        out += more
    assert len(out) / state.unit == pytest.approx(share, abs=0.005)
    kept = sorted({-1, state.unit, *range(state.unit)} - set(out))
    assert max(b - a - 1 for a, b in pairwise(kept)) <= gap
    runs = [b - a - 1 for a, b in pairwise(kept) if b - a > 1]
    assert min(runs[:-1]) >= least
    gone = sorted({-1, state.unit, *out})
    fewest = least * (1 - share) / share
    assert max(b - a - 1 for a, b in pairwise(gone)) <= fewest + 2, "no more are kept in a row than must be"


@pytest.mark.parametrize(("gap", "least"), [(10, 1), (10, 4), (60, 39)])
def test_a_share_that_changes_is_kept_to_on_average(gap: int, least: int):
    state, out = Run(0), 0
    shares = [0.3, 0.9, 0.5, 0.75] * 500
    for number, share in enumerate(shares, 1):
        more, state = spread(state, gap, share, least, 5 * number, lambda unit: 0.5)
        out += len(more)
    assert out / (5 * len(shares)) == pytest.approx(sum(shares) / len(shares), abs=0.01)


def test_a_pause_without_windows_does_not_forget_what_is_missing():
    out, run = decide(Run(0), 2, 0.6, 2, lambda batch: 0.0)
    assert out == [0, 1]
    assert decide(run, 2, 0.0, 2, lambda batch: 0.0) == ([], run)
    again, _ = decide(run, 2, 0.6, 4, lambda batch: 0.0)
    assert again == [3]


def point(name: str, slide: int, gap: int) -> DropPoint:
    return DropPoint("p", DropWindow(slide, slide, gap), (name,))


def test_what_is_decided_stays_and_a_new_drop_begins_with_a_window_that_is_kept():
    first = Extent(point("q", 10, 3), "a", 0, 500, 0.7)
    schedule = extended(Schedule(), [first], 1)
    decided = schedule.queries["q"]
    assert decided.decided == 500
    assert decided.out
    changed = Extent(point("q", 20, 2), "b", 0, 900, 0.6)
    after = extended(schedule, [changed], 1).queries["q"]
    assert after.out[: len(decided.out) - 1] == decided.out[:-1]
    assert all(low >= 520 or high <= 500 for low, high in after.out), "the first window of a new drop is kept"
    assert extended(schedule, [first], 1) == schedule


def test_a_query_that_is_given_up_has_its_own_ranges_and_comes_back():
    shut = Extent(point("q", 10, 3), "a", 0, 100, 0.5, frozenset({"q"}))
    schedule = extended(Schedule(), [shut], 1)
    assert schedule.queries["q"].shut == ((0, 100),)
    assert schedule.queries["q"].out == ()
    back = extended(schedule, [Extent(point("q", 10, 3), "a", 0, 200, 0.0)], 1).queries["q"]
    assert back.shut == ((0, 100),)
    assert Schedule.from_json(schedule.to_json()) == schedule


# --- needs -----------------------------------------------------------------------------------------


def brute_rows(plan: Plan, name: str, starts: set[int]) -> set[int]:
    """Seconds of the stream that windows of a step need which start at given seconds."""
    step = plan.steps[name].step
    size = step.window.size // SECOND
    held = {t for start in starts for t in range(start, start + size)}
    source = step.path.source.lower()
    if source == "p":
        return held
    slide = plan.steps[source].step.window.slide // SECOND
    return brute_rows(plan, source, {t for t in held if t % slide == 0})


@pytest.mark.parametrize("seed", range(40))
def test_needs_of_nested_windows_are_exact(seed: int):
    random = Random(seed)
    sql, source = "", "p"
    depth = random.randint(1, 4)
    for level in range(depth):
        slide = random.randint(1, 4)
        window = time(slide + random.randint(0, 4), slide)
        name = f"s{level}"
        if level == depth - 1:
            sql += query(name, window, "SUBSET GAP 3", source=source)
        else:
            sql += f"CREATE VIEW {name} AS SELECT COUNT(*) AS n FROM {source} GROUP BY {window};"
        source = name
    plan = planned(sql)
    slide = plan.steps[source].step.window.slide
    units = [unit for unit in range(60) if random.random() < 0.6]
    out = tuple((u * slide, (u + 1) * slide) for u in units)
    needs = Needs(plan, Schedule({source: QuerySchedule(60 * slide, out)}))
    kept = {u * slide // SECOND for u in range(-40, 100) if u not in units}
    wanted = brute_rows(plan, source, kept)
    low, high = 0, 60 * slide // SECOND
    seconds = np.arange(low, high) * SECOND
    found = set((seconds[inside(needs.rows("s0"), seconds)] // SECOND).tolist())
    assert found == {t for t in wanted if low <= t < high}
    conservative = Needs(plan, Schedule({source: QuerySchedule(60 * slide, out)}, placing="conservative"))
    more = set((seconds[inside(conservative.rows("s0"), seconds)] // SECOND).tolist())
    assert found <= more


@pytest.mark.parametrize("seed", range(30))
def test_cells_keep_all_that_is_needed(seed: int):
    random = Random(seed)
    needs = []
    for _ in range(random.randint(1, 5)):
        edges = sorted(random.sample(range(0, 400), 6))
        needs.append(
            [(BEFORE_ALL, edges[0]), (edges[1], edges[2]), (edges[3], edges[4]), (edges[5], AFTER_ALL)]
        )
    cells = cells_of(needs, 0)
    assert cells is not None
    for t in range(-5, 420):
        place = (t - cells.base) // cells.width if t >= cells.base else -1
        bits = cells.bits[place] if 0 <= place < len(cells.bits) else -1
        for number, need in enumerate(needs):
            needed = any(low <= t < high for low, high in need)
            # before the cells everything passes
            assert bool(bits >> number & 1) == (needed or t < cells.base)


@pytest.mark.parametrize("seed", range(60))
def test_coarse_cells_keep_more_and_never_less(monkeypatch, seed: int):
    monkeypatch.setattr(window_needs, "CELLS_AT_MOST", 16)
    random = Random(seed)
    low = random.randint(0, 50)
    needs = []
    for _ in range(random.randint(1, 3)):
        edges = sorted(random.sample(range(low, 900), 6))
        needs.append(
            [(BEFORE_ALL, edges[0]), (edges[1], edges[2]), (edges[3], edges[4]), (edges[5], AFTER_ALL)]
        )
    cells = cells_of(needs, low)
    assert cells is not None
    assert len(cells.bits) <= 17
    dropped = 0
    for t in range(low, 950):
        place = (t - cells.base) // cells.width
        bits = cells.bits[place] if place < len(cells.bits) else -1
        for number, need in enumerate(needs):
            if any(first <= t < end for first, end in need):
                assert bits >> number & 1, (t, cells)
        dropped += bits == 0
    assert dropped or len(needs) > 1 or cells.width > 20


def test_the_papers_window_is_kept_only_where_windows_nest():
    view = f"CREATE VIEW v AS SELECT COUNT(*) AS n FROM p GROUP BY {time(3, 2)};"
    plan = planned(view + query("q", time(3), "SUBSET GAP 5", source="v"))
    out = ((-30 * SECOND, 0), (3 * SECOND, 60 * SECOND))
    one = {"q": QuerySchedule(60 * SECOND, out)}
    assert [r for r in Needs(plan, Schedule(one)).rows("v") if r[1] < 50 * SECOND][-1] == (0, 5 * SECOND)
    paper = Needs(plan, Schedule(one, placing="conservative")).rows("v")
    # the pipeline rule: 3 + 3 - 1
    assert [r for r in paper if r[1] < 50 * SECOND][-1] == (0, 5 * SECOND)
    alone = planned(query("q", time(3), "SUBSET GAP 5"))
    assert Needs(alone, Schedule(one, placing="conservative")).rows("q") == Needs(alone, Schedule(one)).rows(
        "q"
    )


def test_steps_read_by_others_give_up_only_what_all_of_them_allow():
    view = f"CREATE VIEW v AS SELECT host, COUNT(*) AS n FROM p GROUP BY host, {time(2)};"
    sub = query("sub", time(10), "SUBSET GAP 2", source="v")
    plan = planned(view + sub)
    assert may_leave_out(plan, plan.steps["v"])
    assert list(need_bits(plan, slots_of(plan, "p")).values()) == [0]
    for other in (
        query("sure", time(4), "EXACT", source="v"),
        query("rows", "tuples(5)", "SUBSET GAP 2", source="v"),
    ):
        beside = planned(view + sub + other)
        assert not may_leave_out(beside, beside.steps["v"])
        assert need_bits(beside, slots_of(beside, "p")) == {}


# --- drops and shares ------------------------------------------------------------------------------


def test_queries_of_one_stream_share_a_drop_where_their_gaps_allow():
    two = query("a", time(2), "SUBSET GAP 4") + query("b", time(3), "SUBSET GAP 4")
    (shared,) = points_of(planned(two), "p").values()
    assert (shared.members, shared.drop) == (("a", "b"), DropWindow(6 * SECOND, 6 * SECOND, 1))
    tight = query("a", time(2), "SUBSET GAP 2") + query("b", time(3), "SUBSET GAP 4")
    assert [p.members for p in points_of(planned(tight), "p").values()] == [("a",), ("b",)]
    ranked = query("a", time(2), "SUBSET GAP 4 PRIORITY 1") + query("b", time(3), "SUBSET GAP 4 PRIORITY 2")
    assert len(points_of(planned(ranked), "p")) == 2


@pytest.mark.parametrize(("size", "slide", "gap"), [(1, 1, 3), (10, 1, 30), (10, 1, 5), (4, 2, 3)])
def test_gains_are_what_a_run_of_dropped_windows_leaves_alone(size: int, slide: int, gap: int):
    load = loaded(query("q", time(size, slide), f"SUBSET GAP {gap}"))
    ((gains,),) = [[g] for g in gains_of(load.plan, load.slots, points_of(load.plan, "p")).values()]
    # between two kept windows a run of B leaves (B + 1)·slide - size alone, if that is more than nothing
    alone = max(0, (gap + 1) * slide - size) / (gap * slide)
    assert next(iter(gains.values())) == pytest.approx(alone, abs=0.06)


def test_the_share_is_the_least_that_fits():
    load = loaded(query("q", time(1), "SUBSET GAP 9"))
    whole = plan_rates([load], 1e9)
    assert whole.missing == {next(iter(whole.missing)): 0.0}
    fixed = 0.01
    work = 1e6 * (1e-7 + 1e-6)
    half = plan_rates([load], fixed + work / 2)
    (share,) = half.missing.values()
    assert share == pytest.approx(0.5, abs=0.02)
    assert half.allocation.level == pytest.approx(share / 0.9, rel=0.02)


def test_weights_and_errors_share_one_level():
    load = loaded(
        query("dear", time(1), "SUBSET GAP 9 WEIGHT 3 PRIORITY 1", " WHERE size > 1")
        + query("cheap", time(1), "SUBSET GAP 9 PRIORITY 1", " WHERE size > 2")
        + query("drawn", time(1), "ERROR 5% PRIORITY 1", " WHERE size > 3")
    )
    found = plan_rates([load], 2.0)
    assert not found.allocation.suspended
    shared = points_of(load.plan, "p")
    assert len(shared) == 1, "one drop for both"
    (share,) = found.missing.values()
    assert share * 10 / 9 * 3 == pytest.approx(found.allocation.level, rel=0.05)
    assert 0 < found.by_stream[0][load.slots.by_step["drawn"].id] < 1


def test_where_the_gap_does_not_leave_enough_the_costliest_queries_are_shut():
    load = loaded(
        query("light", time(1), "SUBSET GAP 1 PRIORITY 1", " WHERE size > 1")
        + query("heavy", time(4), "SUBSET GAP 1 PRIORITY 1", " WHERE size > 2"),
        after={},
    )
    # windows that cannot share a drop
    points = points_of(load.plan, "p")
    assert len(points) == 2
    heavy = next(id_ for id_, p in points.items() if p.members == ("heavy",))
    load = with_windows(load, {heavy: 3.0})
    found = plan_rates([load], 1.0)
    assert found.missing[heavy] == 1.0
    assert all(share < 1.0 for id_, share in found.missing.items() if id_ != heavy)


def test_most_delivered_is_the_best_of_all_shares():
    random = np.random.default_rng(2)
    for _ in range(40):
        count = int(random.integers(1, 4))
        tree = LoadTree(
            (-1, *([0] * count)),
            tuple(random.uniform(0.5, 2, count + 1)),
            tuple(random.uniform(0.2, 1, count + 1)),
        )
        drops = [
            DropDemand(f"d{n}", {n + 1: float(random.uniform(0.3, 1))}, float(random.uniform(0.3, 0.9)))
            for n in range(count)
        ]
        whole = float(tree.costs.sum())
        capacity = whole * float(random.uniform(0.4, 1.0))
        found = most_delivered(tree, [], drops, capacity)
        grid = [np.linspace(0, d.most, 21) for d in drops]
        best = None
        for shares in product(*grid):
            rates = [1 - next(iter(d.nodes.values())) * m for d, m in zip(drops, shares, strict=True)]
            load = tree.costs[0] * max(rates) + sum(c * r for c, r in zip(tree.costs[1:], rates, strict=True))
            if load <= capacity and (best is None or sum(shares) < best):
                best = sum(shares)
        if found is None:
            assert best is None
            continue
        total = sum(found.values())
        rates = [1 - next(iter(d.nodes.values())) * found[d.point] for d in drops]
        load = tree.costs[0] * max(rates) + sum(c * r for c, r in zip(tree.costs[1:], rates, strict=True))
        assert load <= capacity * (1 + 1e-3)
        assert best is None or total <= best + 1e-3


def test_the_objective_can_be_the_most_delivered_in_all():
    load = loaded(
        query("cheap", time(1), "SUBSET GAP 5 PRIORITY 1", " WHERE size > 1")
        + query("dear", time(7), "SUBSET GAP 9 PRIORITY 1", " WHERE size > 2")
    )
    points = points_of(load.plan, "p")
    dear = next(id_ for id_, p in points.items() if "dear" in p.members)
    assert len(points) == 2
    load = with_windows(load, {dear: 5.0})
    least, most = (plan_rates([load], 5.0, objective=o) for o in ("minimax", "delivered"))
    assert sum(most.missing.values()) < sum(least.missing.values())
    assert max(most.missing.values()) > max(least.missing.values())


def test_a_schedule_is_kept_until_a_watermark_tells_what_has_closed():
    plan = planned(query("q", time(2), "SUBSET GAP 3"))
    schedule = Schedule({"q": QuerySchedule(20 * SECOND, out=((0, 2 * SECOND),))})
    drops = WindowDrops(plan, "p", schedule)
    assert drops.rest({"p": BEFORE_ALL}, {}) == schedule
    assert drops.rest({"p": SECOND}, {}) == schedule
    assert drops.rest({"p": 5 * SECOND}, {}).queries["q"].out == ()
    assert WindowDrops(planned(""), "p", schedule).rest({}, {}).queries == {}


def test_no_row_is_dropped_after_the_time_up_to_which_rows_may_have_been():
    for sql in (
        query("q", "window(ts, '10 seconds', '10 seconds', '5 seconds')", "SUBSET GAP 3"),
        f"CREATE VIEW v AS SELECT COUNT(*) AS n FROM p GROUP BY {time(3)};"
        + query("q", time(2), "SUBSET GAP 3", source="v"),
    ):
        plan = planned(sql)
        ((id_, one),) = points_of(plan, "p").items()
        schedule = extended(Schedule(), [Extent(one, id_, 0, 400 * SECOND, 0.6)], 1)
        needs = Needs(plan, schedule)
        after = np.arange(schedule.dropped_to, schedule.dropped_to + 50 * SECOND, SECOND)
        reader = "v" if "v" in plan.steps else "q"
        assert inside(needs.rows(reader), after).all()
