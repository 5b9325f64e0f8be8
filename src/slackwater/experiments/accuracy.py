"""How wrong answers are, as section 5.2 of the paper measures it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from slackwater.benchmarks.workload import SECOND
from slackwater.experiments.packets import Landed
from slackwater.experiments.runs import Answers, Floats, Ints
from slackwater.experiments.workload import Workload


def compared_ends(landed: Landed, workload: Workload) -> Ints:
    """Ends of the one-second intervals that are compared: from when the longest window is full."""
    first = -(-(landed.begins + workload.longest * SECOND) // SECOND)
    return np.arange(first, landed.ends // SECOND + 1, dtype=np.int64) * SECOND


def relative_errors(found: Floats, truth: Floats) -> Floats:
    """By answer: how far it is from the truth, as a share of it; of a truth of zero, 1 where it is off.

    >>> relative_errors(np.array([9.0, 0.0, 2.0]), np.array([10.0, 0.0, 0.0])).tolist()
    [0.1, 0.0, 1.0]
    """
    off = np.abs(found - truth)
    return np.where(truth != 0, off / np.where(truth != 0, np.abs(truth), 1.0), (off > 0).astype(float))


@dataclass(frozen=True)
class Accuracy:
    """The largest relative error of all queries, second by second."""

    largest: Floats

    @property
    def average(self) -> float:
        return float(self.largest.mean())

    @property
    def worst(self) -> float:
        return float(self.largest.max())


def accuracy(found: Mapping[str, Answers], truth: Mapping[str, Answers], ends: Ints) -> Accuracy:
    """Section 5.2: the largest of the queries' errors in each one-second interval."""
    errors = [relative_errors(found[name].at(ends).value, truth[name].at(ends).value) for name in truth]
    return Accuracy(np.max(errors, axis=0))
