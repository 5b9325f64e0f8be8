"""Which evaluations run in a tick: by deadline while all can be had, by what waiting costs while not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEAST_SLACK = 1e-3
"""Seconds below which slack counts as this: at a deadline the metric would be infinite for all."""


WAITING = 0.25
"""Of a budget that is too small, the part for those that have waited longest."""


def penalty(lateness: Floats, drift: Floats, variance: Floats) -> Floats:
    """How much further an answer is expected to be off that is evaluated late, by so many seconds.

    Reference: equation 18 of Zhu and Ravishankar.

    >>> penalty(np.array([-1.0, 4.0]), np.array([0.5, -0.5]), np.array([1.0, 1.0]))
    array([0., 4.])
    """
    late = np.maximum(lateness, 0.0)
    found: Floats = np.abs(drift) * late + np.sqrt(np.nan_to_num(variance) * late)
    return found


def urgency(slack: Floats, drift: Floats, variance: Floats, cost: Floats) -> Floats:
    """What waiting costs an evaluation that is late or about to be, for each unit of its own cost.

    Guarantee: late evaluations in falling order of it have a sum of penalties within a ratio of the least.
    Variant: the size of drift and slack, as what is late has a slack below 0. An evaluation of which
    nothing is known yet comes first. Reference: section 5 of Zhu and Ravishankar.

    >>> urgency(np.array([-1.0, -4.0]), np.zeros(2), np.ones(2), np.array([1.0, 1.0]))
    array([1. , 0.5])
    """
    apart = np.maximum(np.abs(slack), LEAST_SLACK)
    found: Floats = (np.abs(drift) + np.sqrt(variance / apart)) / np.maximum(cost, 1e-12)
    return np.where(np.isnan(found), np.inf, found)


def affordable(deadline: Floats, drift: Floats, variance: Floats, cost: Floats, budget: float | None) -> Ints:
    """The evaluations of a tick that run, in their order; deadlines are in seconds from now.

    While their costs fit the budget all run, the earliest deadline first, which is optimal. Otherwise those
    run that are most urgent, as far as most of the budget goes. What is late becomes less urgent the later it
    is, so a part is for those that have waited longest: nobody waits for ever. At least one runs, so that one
    which is larger than any budget does too.

    >>> late = np.array([0.5, -1.0, 0.1])
    >>> affordable(late, np.zeros(3), np.array([1.0, 1.0, 100.0]), np.ones(3), None).tolist()
    [1, 2, 0]
    >>> affordable(late, np.zeros(3), np.array([1.0, 1.0, 100.0]), np.ones(3), 1.5).tolist()
    [2]
    """
    by_deadline = np.argsort(deadline, kind="stable")
    if budget is None or float(cost.sum()) <= budget:
        return by_deadline
    pressing = urgency(deadline - cost, drift, variance, cost)[by_deadline]
    urgent = by_deadline[np.argsort(-pressing, kind="stable")]
    first = urgent[: max(1, int((np.cumsum(cost[urgent]) <= (1 - WAITING) * budget).sum()))]
    taken = np.zeros(len(cost), bool)
    taken[first] = True
    left = by_deadline[~taken[by_deadline]]
    spent = float(cost[first].sum())
    return np.concatenate([first, left[: int((np.cumsum(cost[left]) <= budget - spent).sum())]])
