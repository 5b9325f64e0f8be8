"""What a row costs: times of passes over batches, fitted to what they had to do.

Spark fuses operators into one generated function, so the time of each cannot be seen. It is fitted: the
time of a pass is a sum of terms, each a number of rows times what one of them takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

Floats = npt.NDArray[np.float64]
Costs = Mapping[str, float]
"""Seconds by term: of a pass, of a row read, parsed, tested, …"""

FORGETTING = 0.85
"""The weight of a batch in the next one's fit: about seven batches count."""
FAR_OFF = 2.5
"""Where all times are so many times what the calibration says, or less, it is scaled first."""
RIDGE = 0.05
"""How much a departure from the calibration weighs beside an error in the times, both relative."""
REMEMBERED = 60
"""Batches that are looked back on."""
PYTHON_ROW = 2e-6
"""Seconds of a row in a Python function of which nothing has been measured."""


@dataclass(frozen=True)
class Observation:
    """One pass over a batch: how much of each term it had, and how long it took."""

    batch: int
    terms: Mapping[str, float]
    seconds: float


def fit_costs(
    observations: Sequence[Observation],
    calibration: Costs,
    *,
    forgetting: float = FORGETTING,
    ridge: float = RIDGE,
) -> dict[str, float]:
    """The seconds of every term that explain the times best.

    Guarantee: none is negative; a term that the observations say nothing about keeps its calibrated value,
    and terms that always come together share what they take as the calibration has it. Variant: least squares
    on times relative to their mean, weighted by age, with a ridge on each term's ratio to its calibration.
    Reference: Lawson and Hanson, Solving Least Squares Problems (1974), chapter 23.

    >>> seen = [Observation(i, {"pass": 1, "row": n}, 0.1 + 2e-6 * n) for i, n in enumerate((1e3, 9e4, 3e5))]
    >>> fitted = fit_costs(seen, {"pass": 0.05, "row": 1e-6, "other": 7.0}, ridge=1e-6)
    >>> round(fitted["pass"], 3), round(fitted["row"] * 1e6, 3), fitted["other"]
    (0.1, 2.0, 7.0)
    """
    names = [name for name in calibration if calibration[name] > 0]
    if not observations:
        return dict(calibration)
    latest = max(o.batch for o in observations)
    seconds = np.array([o.seconds for o in observations])
    weight = np.sqrt(forgetting ** np.array([latest - o.batch for o in observations], dtype=float))
    typical = max(float(np.average(seconds, weights=weight)), 1e-9)
    known = np.array([calibration[n] for n in names])
    amounts = np.array([[o.terms.get(n, 0.0) for n in names] for o in observations])
    scale = known * _far_off((amounts * known).sum(axis=1), seconds, weight)
    terms = amounts * scale
    rows = np.vstack([terms / typical * weight[:, None], np.sqrt(ridge) * np.eye(len(names))])
    wanted = np.concatenate([seconds / typical * weight, np.full(len(names), np.sqrt(ridge))])
    ratio, _ = nnls(rows, wanted)
    present = np.abs(terms).sum(axis=0) > 0
    fitted = np.where(present, ratio * scale, known)
    return {**calibration, **dict(zip(names, map(float, fitted), strict=True))}


def _far_off(said: Floats, seconds: Floats, weight: Floats) -> float:
    """By how much a calibration must be scaled to be roughly right; 1 where it is.

    A ridge on ratios would hold it back: a condition can cost a hundred times what one usually does.
    """
    both = float((weight**2 * said**2).sum())
    slope = float((weight**2 * said * seconds).sum()) / both if both > 0 else 1.0
    return slope / FAR_OFF if slope > FAR_OFF else slope * FAR_OFF if 0 < slope < 1 / FAR_OFF else 1.0


def predicted(costs: Costs, terms: Mapping[str, float]) -> float:
    """How long a pass takes.

    >>> predicted({"row": 2.0}, {"row": 3.0, "unknown": 9.0})
    6.0
    """
    return sum(costs.get(name, 0.0) * amount for name, amount in terms.items())
