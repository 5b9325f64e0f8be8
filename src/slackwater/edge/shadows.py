"""Shadow filters: what an object would send at other widths, and under other ways to place its bound.

An agent can afford to try: for each object it runs a filter at every width of a geometric ladder, at the cost
of a comparison, and counts what each would have sent. These counts are the object's *response curve*, the
thing that an allocation of widths needs to know and that the paper has to assume (appendix C).

Counts fade with time, at two paces: what has been lately says what the object does now, what has been for
long keeps a few chance events from being taken for it.

Nothing here decides whether a value is sent, so single precision will do. Objects have slots, given by
`Tracks`; what they see is relative to a base that is never far, in units of their lowest width above 0.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slackwater.edge.arrays import with_room
from slackwater.edge.curves import rounded
from slackwater.edge.widths import Bools, Floats, Ints

RUNGS = 10
"""Widths on the ladder of an object, each twice the one below; beside them, width 0."""
BELOW = 4
"""How many of them are narrower than the width in use."""
LATELY, FOR_LONG = 10.0, 500.0
"""Periods after which what was counted weighs half."""
TRUST = 12.0
"""Updates lately that weigh as much as all before: fewer may be chance, whatever time they took."""

POINTS = RUNGS + 1
Small = NDArray[np.float32]
_HALF: Small = np.array([0.0, *(2.0 ** (rung - 1) for rung in range(RUNGS))], np.float32)
"""Half of the widths, in units of the lowest above 0."""
LOWEST, HIGHEST = -900, 900
"""Powers of two that a double can hold, with room for the ladder."""


class Shadows:
    """The ladders of objects; arrays by slot and rung."""

    def __init__(self, period: float) -> None:
        self.fit(period)
        self.lowest: NDArray[np.int16] = np.empty(0, np.int16)
        """A ladder's first width above 0 is 2 to this power."""
        self._centre: Small = np.empty((0, POINTS), np.float32)
        self._counts: Small = np.empty((0, 2, POINTS), np.float32)
        """What was counted lately and for long, by rung."""
        self._seconds: Small = np.empty((0, 2), np.float32)

    def fit(self, period: float) -> None:
        """Let what is counted fade by periods of so many seconds."""
        self._halved = np.array([LATELY, FOR_LONG]) * period
        self._halved_lately, self._halved_long = self._halved.tolist()

    def start(self, used: int, widths: Floats) -> None:
        """Begin slots after the first ``used``, for objects of these widths that stand at their base."""
        size = used + len(widths)
        for name in ("lowest", "_centre", "_counts", "_seconds"):
            room = with_room(getattr(self, name), used, size)
            room[used:size] = 0
            setattr(self, name, room)
        self.lowest[used:size] = np.where(_positive(widths), _wanted(widths), 0)

    def offer(
        self, slots: Ints, seen: Floats, widths: Floats, levels: Floats, lean: Floats, seconds: Floats
    ) -> None:
        """Let every rung see values; ``seconds`` since each object's last one, ``widths`` in use.

        A rung that its value leaves is centred anew: on the value, or by its lean towards the level.
        """
        self._anchor(slots, widths)
        below = -self.lowest[slots].astype(np.int64)
        value = np.ldexp(seen, below).astype(np.float32)[:, None]
        centre = self._centre[slots]
        left = ~(np.abs(value - centre) <= _HALF)
        placed = value
        if lean.any():
            reach = _HALF * lean.astype(np.float32)[:, None]
            level = np.ldexp(levels, below).astype(np.float32)[:, None]
            placed = np.clip(level, value - reach, value + reach)
        self._centre[slots] = np.where(left, placed, centre)
        kept = np.exp2(-seconds[:, None] / self._halved).astype(np.float32)
        self._counts[slots] = self._counts[slots] * kept[:, :, None] + left[:, None, :]
        self._seconds[slots] = self._seconds[slots] * kept + seconds.astype(np.float32)[:, None]

    def offer_one(
        self, slot: int, seen: float, width: float, level: float, lean: float, seconds: float
    ) -> None:
        """`offer` of one value."""
        low = self.lowest.item(slot)
        if not 0 < width < math.inf or math.frexp(width)[1] - 1 - BELOW != low:
            self._anchor(np.array([slot]), np.array([width]))
            low = self.lowest.item(slot)
        unit = 2.0**-low
        value = np.float32(seen * unit)
        centre = self._centre[slot]
        left: Bools = ~(np.abs(value - centre) <= _HALF)
        counts = self._counts[slot]
        if seconds > 0:
            kept = [2.0 ** (-seconds / self._halved_lately), 2.0 ** (-seconds / self._halved_long)]
            counts *= np.array(kept, np.float32)[:, None]
            total = self._seconds[slot].tolist()
            self._seconds[slot] = [t * k + seconds for t, k in zip(total, kept, strict=True)]
        if left.any():
            counts += left
            if lean:
                reach = _HALF * np.float32(lean)
                reached = reach[left]
                centre[left] = np.clip(np.float32(level * unit), value - reached, value + reached)
            else:
                centre[left] = value

    def _anchor(self, slots: Ints, widths: Floats) -> None:
        """Keep ladders about the widths in use; of width 0, where the response falls from much to little."""
        some = _positive(widths)
        wanted = _wanted(widths)
        now = self.lowest[slots]
        if some.all() and (wanted == now).all():
            return
        long = self._counts[slots, 1]
        changes, settled = long[:, 0], long[:, 0] > 4
        rise = np.where(some, wanted > now, settled & (long[:, -1] > 0.02 * changes) & (now < HIGHEST))
        fall = np.where(some, wanted < now, settled & (long[:, 2] < 0.02 * changes) & (now > -200))
        for moving, step in ((rise, 1), (fall & ~rise, -1)):
            if moving.any():
                self._shift(slots[moving], step)

    def _shift(self, slots: Ints, step: int) -> None:
        """Move ladders a rung up or down; what is new begins from what its neighbour has counted.

        A new widest rung begins with half of that, so that a ladder goes on climbing only on new evidence.
        """
        self.lowest[slots] += np.int16(step)
        rows: tuple[tuple[Any, float], ...] = ((self._centre, 1.0), (self._counts, 0.5))
        for held, share in rows:
            old = held[slots]
            new = np.empty_like(old)
            new[..., 0] = old[..., 0]
            if step > 0:
                new[..., 1:-1], new[..., -1] = old[..., 2:], old[..., -1] * share
            else:
                new[..., 2:], new[..., 1] = old[..., 1:-1], old[..., 1]
            # centres are in units of the lowest width
            held[slots] = np.ldexp(new, -step) if held is self._centre else new

    def move(self, slots: Ints, by: Floats) -> None:
        """What objects see is less by so much from here on."""
        self._centre[slots] -= np.ldexp(by, -self.lowest[slots].astype(np.int64)).astype(np.float32)[:, None]

    def curves(self, slots: Ints) -> Floats:
        """The response curves of objects: lowest rung, seconds watched, updates a second at 0 and by rung."""
        counts, totals = self._counts[slots].astype(np.float64), self._seconds[slots].astype(np.float64)
        lately, long = counts[:, 0], counts[:, 1]
        recent, seconds = totals[:, 0], totals[:, 1]
        usual = long / np.maximum(seconds, 1e-9)[:, None]
        # the mean of a Poisson rate, TRUST events of the usual one known beforehand
        before = np.divide(TRUST, usual, out=np.full(usual.shape, np.inf), where=usual > 0)
        rates = np.where(usual > 0, (lately + TRUST) / (recent[:, None] + before), 0.0)
        return np.column_stack([self.lowest[slots], rounded(np.column_stack([seconds, rates]))])


def _positive(widths: Floats) -> Bools:
    return (widths > 0) & np.isfinite(widths)


def _wanted(widths: Floats) -> Ints:
    """The lowest rungs of ladders about these widths."""
    powers: Ints = np.frexp(np.where(_positive(widths), widths, 1.0))[1] - 1 - BELOW
    return np.clip(powers, LOWEST, HIGHEST)
