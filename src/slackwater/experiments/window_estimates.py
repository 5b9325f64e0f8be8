"""What window drop should save: the paper's formulas, and exact counts of the schedule that is carried out.

Reference: Tatbul, Zdonik (VLDB 2006), section 3.6. A stream of one row per time unit passes operators of
``before`` seconds a row, an aggregate of ``within`` a row, and operators of ``after`` seconds a window. Spark
marks no rows, so that fake ones, checks of marks and the drop itself cost nothing here. The formulas count a
batch of B windows as (B-1)δ+ω rows, though it advances by Bδ: exact counts need no such approximation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from slackwater.benchmarks.workload import SECOND
from slackwater.experiments.window_curves import Point, delivered_at
from slackwater.experiments.window_runs import ORIGIN, STREAM
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.model import TimeWindow
from slackwater.plan.tables import Plan
from slackwater.planners.window_needs import Needs, part_needed, points_of, spanned
from slackwater.planners.window_schedule import Extent, Placing, Schedule, extended, joined

DECLARED = f"CREATE STREAM {STREAM} (ts TIMESTAMP, code BIGINT) USING kafka TIMESTAMP BY ts;\n"
WINDOWS = 20_000
"""Windows that are simulated."""
AT_A_TIME = 5_000
SHARES = 40
"""Shares at which exact counts are taken; between them is interpolated."""


@dataclass(frozen=True)
class Costs:
    """Seconds: of a row before the aggregate and in it, and of a window after it."""

    before: float
    within: float
    after: float


@dataclass(frozen=True)
class Shape:
    """Windows of a size and slide in time units, of which a gap may be missing in a row."""

    size: int
    slide: int
    gap: int

    @property
    def most(self) -> float:
        """The largest share that can be left out."""
        return self.gap / (self.gap + 1)


def sel_w1(shape: Shape, share: float) -> float:
    """The paper's estimate of the share of rows that are kept as they are.

    >>> round(sel_w1(Shape(10, 10, 3), 0.5), 3), round(sel_w1(Shape(4, 2, 3), 0.5), 3)
    (0.5, 0.75)
    >>> sel_w1(Shape(100, 1, 10), 0.5)
    1.0
    """
    size, slide, gap = shape.size, shape.slide, shape.gap
    if gap < size // slide:
        return 1.0
    return 1.0 - share * ((gap + 1) * slide - size) / ((gap - 1) * slide + size)


def sel_w2(shape: Shape, share: float) -> float:
    """The paper's estimate of the share of rows that are kept as fake ones, to carry a mark.

    >>> round(sel_w2(Shape(10, 10, 3), 0.5), 3), round(sel_w2(Shape(4, 2, 3), 0.5), 3)
    (0.05, 0.25)
    """
    size, slide, gap = shape.size, shape.slide, shape.gap
    if gap < size // slide:
        return 0.0
    return share * (gap + 1 - size // slide) / ((gap + 1) * slide - size)


def formula_load(shape: Shape, costs: Costs, share: float, copying: float = 0.0) -> float:
    """L_WinDrop for a row of input: what the formulas say that a share of windows left out leaves to do."""
    rows = sel_w1(shape, share) * (costs.before + costs.within) + sel_w2(shape, share) * copying
    return rows + (1.0 - share) * costs.after / shape.slide


def formula_drop(shape: Shape, costs: Costs, load: float) -> float:
    """The share that must be dropped at a load by the formulas; 1 where the gap does not allow as much.

    >>> costs = Costs(before=1.0, within=0.0, after=1.0)
    >>> [round(formula_drop(Shape(100, slide, 10), costs, 1.25), 3) for slide in (1, 10, 50, 100)]
    [0.4, 1.0, 0.243, 0.2]
    """
    whole, most = formula_load(shape, costs, 0.0), formula_load(shape, costs, shape.most)
    # the load falls in proportion to the share
    share = shape.most * (whole - whole / load) / (whole - most)
    return share if share <= shape.most else 1.0


def planned(queries: str) -> Plan:
    """The plan of some queries on the readings; their delays do not matter."""
    return extend(Plan(), Catalog.from_sql(DECLARED + queries, Functions()))


def query_sql(shape: Shape) -> str:
    """A query of a shape, for its windows alone."""
    window = f"window(ts, '{shape.size} seconds', '{shape.slide} seconds')"
    return (
        f"CREATE QUERY q AS SELECT COUNT(*) AS n FROM {STREAM} GROUP BY {window} WITH SUBSET GAP {shape.gap};"
    )


@dataclass(frozen=True)
class Kept:
    """Shares that are kept when windows are left out: of rows, and of the windows of the named query."""

    rows: float
    windows: float
    promised: float
    """Of rows, by the paper's rules: each drop keeps its own window whole, the worst case of all it spans."""


def kept(
    plan: Plan,
    query: str,
    share: float,
    placing: Placing = "needed",
    *,
    salt: int = 1,
    windows: int = WINDOWS,
) -> Kept:
    """Exact counts: the schedule of a plan over many windows of a query, and what it needs.

    Rows come evenly. Windows are decided as the runtime decides them, with the same coins.
    """
    window = plan.steps[query].step.window
    assert window is not None
    points = points_of(plan, STREAM)
    low = ORIGIN * SECOND
    high = low + windows * window.slide
    schedule = Schedule(placing=placing)
    for begin in range(low, high, AT_A_TIME * window.slide):
        end = min(high, begin + AT_A_TIME * window.slide)
        extents = [
            Extent(p, id_, low - p.drop.size, end, min(share, p.drop.gap / (p.drop.gap + 1)))
            for id_, p in points.items()
        ]
        schedule = extended(schedule, extents, salt)
    needs = Needs(plan, schedule)
    needed = joined([r for s in plan.steps_on(STREAM) for r in needs.rows(s.step.name)])
    whole = [
        r
        for point in points.values()
        for r in spanned(TimeWindow(point.drop.size, point.drop.slide), needs.delivered(point.members[0]))
    ]
    # what lies at the ends depends on what is not decided
    low, high = low + 2 * window.size, high - 2 * window.size
    return Kept(
        part_needed(needed, low, high),
        part_needed(needs.delivered(query), low, high),
        part_needed(joined(whole), low, high),
    )


@cache
def kept_curve(shape: Shape) -> tuple[tuple[float, Kept], ...]:
    """Exact counts for one aggregate, by share."""
    plan = planned(query_sql(shape))
    shares = [shape.most * number / SHARES for number in range(1, SHARES + 1)]
    return tuple((share, kept(plan, "q", share)) for share in shares)


def exact_drop(shape: Shape, costs: Costs, load: float, fixed: float = 0.0) -> float:
    """The share that must be dropped at a load by exact counts, ``fixed`` seconds a row never being saved.

    What the aggregate itself takes goes with the rows, as in the formulas.
    """
    per_row, per_window = costs.before + costs.within, costs.after / shape.slide
    points = [Point(0.0, 1.0, fixed + per_row + per_window)]
    for share, left in kept_curve(shape):
        seconds = fixed + left.rows * per_row + left.windows * per_window
        points.append(Point(share, left.windows, seconds))
    return 1.0 - delivered_at(points, load)
