"""Shadow filters: what an object would send at other widths, and under other ways to place its bound.

An agent can afford to try: for each object it runs a filter at every width of a geometric ladder, at the cost
of a comparison, and counts what each would have sent. These counts are the object's *response curve*, the
thing that an allocation of widths needs to know and that the paper has to assume (appendix C).

Counts fade with time, at two paces: what has been lately says what the object does now, what has been for
long keeps a few chance events from being taken for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slackwater.edge.widths import Floats, Ints

RUNGS = 10
"""Widths on the ladder of an object, each twice the one below; beside them, width 0."""
BELOW = 4
"""How many of them are narrower than the width in use."""
LATELY, FOR_LONG = 10.0, 200.0
"""Periods after which what was counted weighs half."""
TRUST = 6.0
"""Updates lately that weigh as much as all before: fewer may be chance, whatever time they took."""

POINTS = RUNGS + 1
Small = NDArray[np.float32]


@dataclass(frozen=True)
class Response:
    """The response curve of one object as it is told: rates of updates at the widths of its ladder."""

    lowest: int
    """The ladder's first width above 0 is 2 to this power."""
    seconds: float
    """How long the object was watched; what is long ago weighs less."""
    rates: tuple[float, ...]
    """Updates a second: at width 0, then by rung."""


class Shadows:
    """The ladders of all objects of an agent; arrays by object and rung."""

    def __init__(self, period: float) -> None:
        self._period = period
        self.size = 0
        self.lowest: NDArray[np.int16] = np.empty(0, np.int16)
        self._centre: Floats = np.empty((0, POINTS))
        self._lately: Small = np.empty((0, POINTS), np.float32)
        self._long: Small = np.empty((0, POINTS), np.float32)
        self._lately_seconds: Small = np.empty(0, np.float32)
        self._long_seconds: Small = np.empty(0, np.float32)

    def grow(self, size: int) -> None:
        """Make places for more objects."""
        more = size - self.size
        rows = {"_centre": np.nan, "_lately": 0, "_long": 0}
        for name, fill in rows.items():
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.full((more, POINTS), fill, old.dtype)]))
        for name in ("lowest", "_lately_seconds", "_long_seconds"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros(more, old.dtype)]))
        self.size = size

    def offer(
        self, objects: Ints, values: Floats, widths: Floats, levels: Floats, lean: Floats, seconds: Floats
    ) -> None:
        """Let every rung see the values; ``seconds`` since each object's last one, ``widths`` in use.

        A rung that its value leaves is centred anew: on the value, or by its lean towards the level.
        """
        self._anchor(objects, widths)
        half = np.zeros((len(objects), POINTS))
        half[:, 1:] = np.ldexp(0.5, self.lowest[objects, None] + np.arange(RUNGS))
        centre = self._centre[objects]
        value = values[:, None]
        known = ~np.isnan(centre)
        left = ~(np.abs(value - centre) <= half)
        reach = half * lean[:, None]
        placed = np.clip(levels[:, None], value - reach, value + reach)
        self._centre[objects] = np.where(left, placed, centre)
        counted = (left & known).astype(np.float32)
        for counts, total, halved in (
            (self._lately, self._lately_seconds, LATELY),
            (self._long, self._long_seconds, FOR_LONG),
        ):
            kept = np.exp2(-seconds / (halved * self._period)).astype(np.float32)
            counts[objects] = counts[objects] * kept[:, None] + counted
            total[objects] = total[objects] * kept + seconds.astype(np.float32)

    def _anchor(self, objects: Ints, widths: Floats) -> None:
        """Keep ladders about the widths in use; of width 0, where the response falls from much to little."""
        some = (widths > 0) & np.isfinite(widths)
        wanted = np.frexp(np.where(some, widths, 1.0))[1] - 1 - BELOW
        now = self.lowest[objects]
        fresh = self._long_seconds[objects] == 0
        self.lowest[objects[fresh & some]] = wanted[fresh & some]
        long = self._long[objects]
        changes, settled = long[:, 0], long[:, 0] > 4
        rise = np.where(some, wanted > now, settled & (long[:, -1] > 0.02 * changes))
        fall = np.where(some, wanted < now, settled & (long[:, 2] < 0.02 * changes) & (now > -200))
        for moving, step in ((rise & ~fresh, 1), (fall & ~rise & ~fresh, -1)):
            if moving.any():
                self._shift(objects[moving], step)

    def _shift(self, objects: Ints, step: int) -> None:
        """Move ladders a rung up or down; what is new begins from what its neighbour has counted.

        A new widest rung begins with half of that, so that a ladder goes on climbing only on new evidence.
        """
        self.lowest[objects] += np.int16(step)
        for rows, share in ((self._centre, 1.0), (self._lately, 0.5), (self._long, 0.5)):
            old = rows[objects]
            new = np.empty_like(old)
            new[:, 0] = old[:, 0]
            if step > 0:
                new[:, 1:-1], new[:, -1] = old[:, 2:], old[:, -1] * share
            else:
                new[:, 2:], new[:, 1] = old[:, 1:-1], old[:, 1]
            rows[objects] = new

    def responses(self, objects: Ints) -> list[Response]:
        """The response curves of some objects."""
        lately, long = self._lately[objects].astype(np.float64), self._long[objects].astype(np.float64)
        seconds = self._long_seconds[objects].astype(np.float64)
        recent = self._lately_seconds[objects].astype(np.float64)
        usual = long / np.maximum(seconds, 1e-9)[:, None]
        # the mean of a Poisson rate, TRUST events of the usual one known beforehand
        before = np.divide(TRUST, usual, out=np.full(usual.shape, np.inf), where=usual > 0)
        rates = np.where(usual > 0, (lately + TRUST) / (recent[:, None] + before), 0.0)
        return [
            Response(int(low), float(f"{s:.4g}"), tuple(float(f"{r:.4g}") for r in row))
            for low, s, row in zip(self.lowest[objects], seconds, rates.tolist(), strict=True)
        ]
