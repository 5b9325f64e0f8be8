"""The window drop experiments: what they work out from measured runs, and one of them at a small size."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from slackwater.benchmarks.report import write
from slackwater.benchmarks.workload import SECOND
from slackwater.experiments import page, window_fanout, window_parameters, window_pipeline, window_plots
from slackwater.experiments.app import reproduce
from slackwater.experiments.runs import Answers
from slackwater.experiments.window_burn import burning, delay, looped
from slackwater.experiments.window_curves import (
    Measurement,
    Point,
    Promise,
    checked,
    delivered_at,
    limit_of,
    missing_runs,
)
from slackwater.experiments.window_estimates import (
    Costs,
    Shape,
    exact_drop,
    formula_drop,
    kept,
    planned,
    query_sql,
    sel_w1,
    sel_w2,
)
from slackwater.experiments.window_measure import Alternative, Bench, Results, Sizes
from slackwater.experiments.window_pipeline import OVERLAPPING, TUMBLING, Nest
from slackwater.experiments.window_runs import EXCLUDED, ORIGIN, STREAM, by_executors, sensor
from slackwater.planners.window_coins import Run, coin, decide
from slackwater.planners.window_needs import points_of

NAMES = ("window-pipeline", "window-fanout", "window-size", "window-slide", "window-overhead")


# --- what is delivered at a load -----------------------------------------------------------------


def test_what_is_delivered_lies_between_the_runs_around_the_capacity():
    curve = [Point(0.0, 1.0, 20.0), Point(0.4, 0.62, 12.0), Point(0.9, 0.1, 4.0)]
    assert delivered_at(curve, 1.0) == 1.0
    # 16 seconds are half of the way from 20 to 12, 8 half of the way from 12 to 4
    assert delivered_at(curve, 1.25) == pytest.approx((1.0 + 0.62) / 2)
    assert delivered_at(curve, 2.5) == pytest.approx((0.62 + 0.1) / 2)
    assert delivered_at(curve, 5.0) == pytest.approx(0.1)
    assert delivered_at(curve, 5.1) == 0.0
    assert limit_of(curve) == 5.0


def test_the_least_drop_counts_that_fits_even_if_a_larger_one_took_longer():
    curve = [Point(0.0, 1.0, 10.0), Point(0.2, 0.8, 10.5), Point(0.4, 0.6, 8.0), Point(0.6, 0.4, 8.5)]
    assert delivered_at(curve, 1.25) == pytest.approx(0.6)
    assert delivered_at(curve, 1.3) == 0.0


def answers(ends: list[int], values: list[float]) -> Answers:
    value = np.array(values)
    return Answers(np.array(ends, dtype=np.int64) * SECOND, value, value, value)


def test_answers_are_held_against_the_run_without_drops():
    truth = {"q": answers([10, 20, 30, 40, 50, 60], [1, 2, 3, 4, 5, 6])}
    promise = [Promise("q", gap=2, slide=10)]
    fine = checked({"q": answers([30, 60], [3, 6])}, truth, promise)
    assert (fine.delivered, fine.wrong, fine.violations) == (pytest.approx(2 / 6), 0, 0)
    late = checked({"q": answers([10, 50, 70], [1, 7, 1])}, truth, promise)
    assert (late.wrong, late.violations) == (2, 1)
    twice = checked({"q": answers([10, 10, 40], [1, 1, 4])}, truth, promise)
    assert twice.wrong == 1


def test_windows_that_nobody_has_do_not_join_runs_of_missing_ones():
    assert missing_runs(np.array([10, 20, 50, 60]), np.array([], dtype=np.int64), 10) == [2, 2]
    assert missing_runs(np.array([10, 20, 30]), np.array([20]), 10) == [1, 1]


def test_figures_are_named_by_alternative_and_load():
    found = Measurement({"rdrop": [Point(0.0, 1.0, 4.0), Point(1.0, 0.1, 3.0)]}, wrong=0, violations=0)
    figures = found.figures([1.25, 2.0])
    assert figures.keys() == {
        "delivered.rdrop.1.25",
        "delivered.rdrop.2",
        "limit.rdrop",
        "wrong_answers",
        "gap_violations",
    }
    assert figures["delivered.rdrop.2"] == 0.0


# --- estimates -----------------------------------------------------------------------------------


def test_the_formulas_of_the_paper_on_numbers_made_by_hand():
    # a batch of 3 windows of 4 every 2: 2·2 + 4 = 8 tuples, 4·2 - 4 = 4 of them in no other window
    overlapping = Shape(size=4, slide=2, gap=3)
    assert sel_w1(overlapping, 1.0) == pytest.approx(1 - 4 / 8)
    # of those 4 tuples 4 - 2 = 2 start a window
    assert sel_w2(overlapping, 1.0) == pytest.approx(2 / 4)
    assert sel_w1(Shape(10, 10, 5), 0.3) == pytest.approx(0.7)
    assert sel_w2(Shape(10, 10, 5), 0.3) == pytest.approx(0.3 * 5 / 50)
    # ten windows in a row are not all that a tuple is in: none can be dropped early
    assert (sel_w1(Shape(100, 1, 10), 0.9), sel_w2(Shape(100, 1, 10), 0.9)) == (1.0, 0.0)


def test_drops_by_the_formulas_are_those_that_the_paper_gives():
    # delays of 5 ms before and behind, an aggregate that costs little: 0.2 tumbling, 0.39 sliding at best
    costs = Costs(before=5.0, within=0.0, after=5.0)
    for size in (20, 60, 100):
        assert formula_drop(Shape(size, size, 10), costs, 1.25) == pytest.approx(0.2)
        assert formula_drop(Shape(size, 1, 10), costs, 1.25) == pytest.approx(0.4)
    assert formula_drop(Shape(100, 1, 10), costs, 2.0) == 1.0


def needed_by_hand(nest: Nest | Shape, share: float, windows: int, salt: int) -> tuple[float, float]:
    """The shares of seconds and of outer windows that are kept, second by second and window by window."""
    single = isinstance(nest, Shape)
    sql = query_sql(nest) if isinstance(nest, Shape) else nest.sql()
    ((id_, point),) = points_of(planned(sql), STREAM).items()
    size, slide = (nest.size, nest.slide) if isinstance(nest, Shape) else nest.outer
    gap, width = point.drop.gap, point.drop.slide
    first = -(-(ORIGIN * SECOND - point.drop.size) // width)
    last = ORIGIN * SECOND // width + windows
    share = min(share, gap / (gap + 1))
    out, _ = decide(Run(first), gap, share, last, lambda batch: coin(salt, id_, batch))
    starts = [unit * slide for unit in range(first, last + 50) if unit not in set(out)]
    needed: set[int] = set()
    for start in starts:
        if single:
            needed.update(range(start, start + size))
            continue
        assert isinstance(nest, Nest)
        inner_size, inner_slide = nest.inner
        for inner in range(-(-start // inner_slide) * inner_slide, start + size, inner_slide):
            needed.update(range(inner, inner + inner_size))
    low, high = ORIGIN + 2 * size, ORIGIN + windows * slide - 2 * size
    units = [unit for unit in range(low // slide, high // slide) if low <= unit * slide < high]
    delivered = sum(unit not in set(out) for unit in units) / len(units)
    return sum(second in needed for second in range(low, high)) / (high - low), delivered


@pytest.mark.parametrize("share", [0.3, 0.7, 1.0])
@pytest.mark.parametrize(
    "form", [Shape(100, 50, 10), Shape(20, 20, 4), Shape(30, 7, 5), TUMBLING, OVERLAPPING]
)
def test_exact_counts_are_those_of_brute_force(form: Nest | Shape, share: float):
    windows = 400
    sql = query_sql(form) if isinstance(form, Shape) else form.sql()
    name = "q" if isinstance(form, Shape) else window_pipeline.QUERY
    found = kept(planned(sql), name, share, salt=5, windows=windows)
    rows, delivered = needed_by_hand(form, share, windows, 5)
    assert found.rows == pytest.approx(rows, abs=1e-9)
    assert found.windows == pytest.approx(delivered, abs=0.01)


def test_exact_needs_are_never_more_than_the_papers_window():
    for nest in (TUMBLING, OVERLAPPING):
        plan = planned(nest.sql())
        for share in (0.2, 0.6, 0.9):
            found = kept(plan, window_pipeline.QUERY, share, windows=2000)
            assert found.windows <= found.rows + 1e-9 <= found.promised + 2e-9
            # what the window drop of the paper keeps, the drop in the middle and the random drop keep all
            assert kept(plan, window_pipeline.QUERY, share, "first", windows=2000).rows == 1.0
            assert kept(plan, window_pipeline.QUERY, share, "last", windows=2000).rows == 1.0
    tumbling = kept(planned(TUMBLING.sql()), window_pipeline.QUERY, 0.9, windows=2000)
    assert tumbling.rows == pytest.approx(tumbling.promised)
    overlapping = kept(planned(OVERLAPPING.sql()), window_pipeline.QUERY, 0.9, windows=2000)
    assert overlapping.rows < 0.9 * overlapping.promised


def test_drops_by_exact_counts():
    costs = Costs(before=1.0, within=0.0, after=1.0)
    # all that is left of tumbling windows goes with them; sliding ones save nothing but what is behind
    assert exact_drop(Shape(100, 100, 10), costs, 1.25) == pytest.approx(0.2, abs=0.01)
    assert exact_drop(Shape(100, 1, 10), costs, 1.25) == pytest.approx(0.4, abs=0.01)
    assert exact_drop(Shape(100, 10, 10), costs, 1.25) == 1.0
    # what is never saved has to be made up for
    assert exact_drop(Shape(100, 100, 10), costs, 1.25, fixed=1.0) == pytest.approx(0.4, abs=0.02)


# --- queries -------------------------------------------------------------------------------------


def test_delays_are_loops_of_short_arrays():
    assert looped(1) == (1, 1)
    for turns in (10, 999, 1000, 73_000):
        outer, inner = looped(turns)
        assert inner <= 200
        assert outer * inner == pytest.approx(turns, rel=0.01)
    assert delay(1e-4, 2e-6).turns == 50
    assert burning("n", 1).startswith("length(aggregate(sequence(1, 1), CAST(n AS STRING)")


def test_the_planner_takes_the_queries_and_sets_the_drops_that_are_meant():
    delays = [delay(1e-4, 2e-6)] * 3
    for nest, size in ((TUMBLING, 100), (OVERLAPPING, 180)):
        (point,) = points_of(planned(nest.sql(delays)), STREAM).values()
        assert (point.drop.size, point.drop.gap) == (size * SECOND, 10)
    named = dict.fromkeys(("before", *window_fanout.WINDOWS), delays[0])
    (both,) = points_of(planned(window_fanout.queries(named, joined=True)), STREAM).values()
    assert (both.drop.slide, both.drop.gap, len(both.members)) == (100 * SECOND, 10, 2)
    apart = points_of(planned(window_fanout.queries(named, joined=False)), STREAM).values()
    assert sorted(point.drop.gap for point in apart) == [11, 20]
    shape = Shape(60, 1, 10)
    assert len(points_of(planned(window_parameters.sql(shape, delays[0], delays[0])), STREAM)) == 1


# --- pages and plots -----------------------------------------------------------------------------


def small_results() -> dict[str, Any]:
    curve = [(0.0, 1.0, 1.0), (0.5, 0.5, 0.6), (1.0, 0.1, 0.2)]
    shares = {way: [(20, 0.2), (100, 0.3)] for way in ("measured", "formula", "exact")}
    rounds = {"wall_s": [3.0, 2.0, 2.1], "executor_s": [3.0, 2.0, 2.1]}
    return {
        "window-pipeline": {
            "tumbling": dict.fromkeys(("rdrop", "nested1", "nested2"), curve),
            "overlapping": {"nested2": curve, "conservative": curve[:2]},
            "loads": [1.25, 5.0, 8.0],
        },
        "window-fanout": {"points": dict.fromkeys(("shared", "split", "rdrop"), curve), "loads": [1.25, 3.0]},
        "window-size": {"tumbling": shares, "sliding": shares},
        "window-slide": {"excess25": shares, "excess50": {**shares, "rdrop": [(1, 0.5)]}},
        "window-overhead": {"25.1": {"exact": rounds, "p=0": rounds, "tested": rounds}},
    }


def test_the_page_and_its_plots_are_made_from_what_the_experiments_wrote(tmp_path: Path):
    for name, series in small_results().items():
        write(f"reproduce {name}", {"wrong_answers": 0}, tmp_path / f"{name}.json", series)
    page.write_page("window-drop.md", tmp_path)
    text = (tmp_path / "window-drop.md").read_text()
    assert "{" not in text
    for name in NAMES:
        assert f"slackwater reproduce {name}" in text
        assert f"({name}.svg)" in text
        assert (tmp_path / f"{name}.svg").stat().st_size > 1000


def test_every_plot_has_a_command():
    shown = CliRunner().invoke(reproduce, ["--help"]).output
    assert all(name in shown for name in NAMES)
    assert set(NAMES) == set(page.PAGES["window-drop.md"][1])
    assert callable(window_plots.plot_pipeline)


def test_exact_needs_are_compared_with_the_papers_window():
    whole = Point(0.0, 1.0, 8.0)
    found = Measurement(
        {"nested2": [whole, Point(1.0, 0.1, 1.0)], "conservative": [whole, Point(1.0, 0.1, 2.0)]}
    )
    results = Results()
    window_pipeline._compare_needs(results, "nested.", found, OVERLAPPING)
    figures = results.figures
    assert figures["needs_gain.nested.2"] == pytest.approx((1 - 0.9 * 4 / 7) / (1 - 0.9 * 4 / 6))
    # beyond load 4 the paper's window delivers nothing to compare with
    assert "needs_gain.nested.5" not in figures
    assert figures["delivered.nested.nested2.5"] > 0
    assert figures["rows.nested.exact"] < figures["rows.nested.paper"]


# --- on Spark ------------------------------------------------------------------------------------


def test_nested_windows_are_dropped_at_all_three_places(spark: Any, tmp_path: Path):
    sizes = Sizes(seconds=3_000, batches=1, part_s=0.15)
    # what a turn takes matters only for how long the runs are
    sql = TUMBLING.sql(window_pipeline.delays_of(TUMBLING, sizes, turn=2e-6))
    ways = [Alternative(n, sql, window_pipeline.PLACED[n]) for n in ("rdrop", "nested1", "nested2")]
    with by_executors(spark):
        bench = Bench(spark, tmp_path, sensor(spark, tmp_path, sizes.seconds, sizes.batches))
        found = bench.measure(ways, [Promise(window_pipeline.QUERY, 10, 100)], [1.0], thorough=False)
    assert spark.conf.get(EXCLUDED, "") == ""
    assert (found.wrong, found.violations) == (0, 0)
    for whole, left in found.curves.values():
        assert (whole.share, whole.delivered) == (0.0, 1.0)
        # three coins decide on thirty windows; one of them may keep ten
        assert 1 / 11 - 0.01 <= left.delivered < 0.5
    figures = found.figures(window_pipeline.LOADS)
    assert all(math.isfinite(value) for value in figures.values())
    assert figures["limit.nested2"] > figures["limit.rdrop"]
