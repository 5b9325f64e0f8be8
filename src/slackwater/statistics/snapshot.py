"""What is known of a stream at one moment, as the planner and `explain --live` see it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from slackwater.statistics.costs import Costs


@dataclass(frozen=True)
class QueryStatistics:
    """What a query's values are like: decayed sums over the rows that reached it, per row that arrived."""

    share: float
    """Rows of the query (of its worst group) for each row that arrives."""
    second: float = 1.0
    """Mean square over squared mean of what is summed: (σ² + μ²)/μ²; 1 for a count."""
    groups: int = 1
    mean: float | None = None
    """Of what is summed, where none of it is negative."""

    @classmethod
    def unknown(cls, share: float = 0.1) -> QueryStatistics:
        """Where no values are known, maybe a share: values that scatter as much as their mean.

        >>> QueryStatistics.unknown().spread("average", 100)
        0.1
        """
        return cls(share, 2.0)

    def by_size(self, window_rows: float) -> float:
        """r where rows are kept in proportion to their size: 1/(s·N), however the values scatter.

        >>> QueryStatistics(0.5, 9.0).by_size(100)
        0.02
        """
        return 1.0 / max(self.share * window_rows, 1e-9)

    def spread(self, final: str, window_rows: float, batch_rows: float = 0.0) -> float:
        """r: the relative variance of the calibrated estimate at rate P is r·(1 − P)/P.

        ``window_rows`` are the rows that arrive in a window, ``batch_rows`` those of a batch. DESIGN 3.3:
        (κ − s)/(s·N), for a count with κ = 1; of batches that lie in the window in part only, calibration
        takes away less (see `calibrated_part`). An average is a ratio, and what does not vary in it adds
        nothing.

        >>> QueryStatistics(0.9).spread("n", 100), round(QueryStatistics(0.5, 2.0).spread("total", 100), 3)
        (0.001111111111111111, 0.03)
        >>> round(QueryStatistics(0.9).spread("n", 100, batch_rows=100), 5)
        0.00444
        """
        rows = max(self.share * window_rows, 1e-9)
        if final in ("n", "total"):
            known = self.share * calibrated_part(window_rows, batch_rows)
            return max((self.second if final == "total" else 1.0) - known, 1e-6) / rows
        if final == "average":
            return max(self.second - 1.0, 1e-6) / rows
        if final == "percentile":
            # π/2: what a median loses against a mean where values are about normal
            return max(math.pi / 2 * (self.second - 1.0), 1e-6) / rows
        # a variance scatters with the fourth moment, of which three times the square is a normal one's
        return 2.0 / rows

    def constant(self, window_rows: float, confidence: float) -> float:
        """C of Proposition 3.1: sqrt((σ² + μ²)/(2Nμ²) · ln(2/δ)).

        >>> round(QueryStatistics(1.0).constant(10_000, 0.99), 4)
        0.0163
        """
        rows = max(self.share * window_rows, 1e-9)
        return math.sqrt(self.second / (2 * rows) * math.log(2 / (1 - confidence)))


def calibrated_part(window_rows: float, batch_rows: float) -> float:
    """Σf²/Σf, f being the part of each batch that lies in a window: on average over where a window begins.

    A batch tells how many rows it had, not how many of them lie in a window that it is only partly in. So for
    the window it is as if a query's share of the batch were f·s. A window that is r batches long, wherever it
    begins, has Σf = r and on average Σf² = r − 1/3, or r² − r³/3 where it is shorter than a batch.

    >>> calibrated_part(300, 0), round(calibrated_part(300, 100), 3), round(calibrated_part(50, 100), 3)
    (1.0, 0.889, 0.417)
    """
    if batch_rows <= 0:
        return 1.0
    batches = window_rows / batch_rows
    return 1 - 1 / (3 * batches) if batches >= 1 else batches - batches**2 / 3


FREQUENT_TIMES = 4.0
"""So many times the rows of the least group make a group a frequent one."""


@dataclass(frozen=True)
class GroupStrata:
    """Groups of a slot told apart: the frequent ones by their hashes, and all others, which are rare.

    Shares are of the rows that arrive: of all groups of a kind, and of the least of them.
    """

    frequent: tuple[int, ...]
    share: float
    least: float
    rare_share: float
    rare_least: float


def strata_of(counts: Mapping[int, float], of: float, at_most: int) -> GroupStrata | None:
    """Tell frequent groups from rare ones, by how many of so many rows each has; None where it gains nothing.

    >>> strata_of({1: 600.0, 2: 300.0, 3: 9.0, 4: 1.0}, 1000.0, 2)
    GroupStrata(frequent=(1, 2), share=0.9, least=0.3, rare_share=0.01, rare_least=0.001)
    >>> strata_of({1: 60.0, 2: 50.0}, 1000.0, 2) is None
    True
    """
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if len(ordered) < 2 or of <= 0:
        return None
    least = ordered[-1][1]
    chosen = [(h, n) for h, n in ordered[:at_most] if n >= FREQUENT_TIMES * least]
    total = sum(n for _, n in ordered)
    held = sum(n for _, n in chosen)
    if not chosen or held < 0.3 * total:
        # what is kept of the rare ones would be most of the rows
        return None
    return GroupStrata(
        tuple(h for h, _ in chosen), held / of, chosen[-1][1] / of, (total - held) / of, least / of
    )


@dataclass(frozen=True)
class StreamStatistics:
    """One stream after some batches."""

    stream: str
    batches: int = 0
    """Measured so far."""
    size: float = 0.0
    """Rows of the last batch."""
    rate: float = 0.0
    """Rows for each second of event time."""
    passed: Mapping[int, float] = field(default_factory=dict)
    """By operator: rows that leave it, for each row that arrives."""
    queries: Mapping[str, QueryStatistics] = field(default_factory=dict)
    strata: Mapping[str, GroupStrata] = field(default_factory=dict)
    """By slot whose groups differ enough to have two rates."""
    costs: Costs = field(default_factory=dict)
