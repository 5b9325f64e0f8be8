"""How many windows are left out: the drops' part of the load equation, for the windows still to begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from slackwater.planners.level import SplitName
from slackwater.planners.ruling import Leaving
from slackwater.planners.sampling import Objective, plan_rates
from slackwater.planners.terms import StreamLoad, must_take
from slackwater.planners.window_level import least_run
from slackwater.planners.window_rules import DropPoint


@dataclass(frozen=True)
class Asked:
    """What a planner is asked for: how loss is shared, what is kept free, and what is to be best."""

    split: SplitName = "minimax"
    margin: float = 0.0
    objective: Objective = "minimax"


def must_take_all_shut(load: StreamLoad) -> float:
    """Executor seconds of a batch that no window needs a row of, and all of whose samples are empty."""
    return must_take(replace(load, parts=dict.fromkeys(load.left_out, 0.0)), 1.0)


def plan_leaving(
    load: StreamLoad,
    others: Sequence[StreamLoad],
    capacity: float,
    points: Mapping[str, DropPoint],
    asked: Asked,
    factor: float = 1.0,
    hopeless: frozenset[str] | None = None,
) -> tuple[Leaving, frozenset[str]]:
    """The least level at which the average batch fits ``factor`` of the capacity, and what it leaves out.

    The drops that cannot be had even so are told too, and their queries are shut: for what is known of their
    load, not because the last batches took longer, and only if plans before had given them up too
    (``hopeless``, where that is asked for). Otherwise the most is left out that their gap allows.
    """

    def planned(within: float) -> tuple[Mapping[str, float], frozenset[str], float]:
        found = plan_rates(
            [load, *others], within, split=asked.split, margin=asked.margin, objective=asked.objective
        )
        lost = frozenset(id_ for id_, share in found.missing.items() if share >= 1.0)
        return found.missing, lost, found.allocation.level

    missing, lost, level = planned(factor * capacity)
    if lost and factor < 1.0:
        missing, lost, _ = planned(capacity)
        missing = {**missing} | {w.point: w.most for w in load.windows if w.point not in lost}
    shut = lost if hopeless is None else lost & hopeless
    most = {w.point: w.most for w in load.windows}
    shares = {id_: min(share, most[id_]) for id_, share in missing.items() if id_ not in shut}
    names = frozenset(name for id_ in shut for name in points[id_].members)
    runs = {id_: least_run(points[id_].drop) for id_ in shares}
    return Leaving(shares, names, level=level, runs=runs), lost
