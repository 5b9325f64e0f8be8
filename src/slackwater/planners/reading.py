"""How much of a batch is read, where reading itself is what takes the time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from slackwater.planners.sampling import Rates, worst_loss
from slackwater.planners.terms import StreamLoad, reading_seconds

SHARES = (0.5, 0.25, 0.12, 0.06, 0.03, 0.015, 0.007)
"""Parts of a batch that may be read; from one batch to the next it changes by less."""
SKIPPED_FROM = 0.4
"""Of the capacity, what reading takes for it to be asked whether to read less."""
FIRST_PART = 0.12
"""The largest part of a batch to begin with: what it costs to read one is not known before."""
ALIKE = 3.0
"""How much more the blocks of a batch scatter than as many rows from all over it."""
BETTER = 0.9
"""How much less loss another part of a batch must leave for the part that is read to change."""


@dataclass(frozen=True)
class Part:
    """A batch read in part: the loss that is left, its load, its rates, and how much of it is read."""

    loss: float
    load: StreamLoad
    rates: Rates
    share: float


def part_to_read(
    load: StreamLoad,
    whole: Rates,
    capacity: float,
    planned: Callable[[StreamLoad], Rates],
    *,
    least: float,
    before: float | None,
    room: bool,
) -> Part | None:
    """The part of a batch that leaves the least loss; None where it need not be asked: all is read.

    ``whole`` are the rates if all is read, ``planned`` those of a part. ``before`` is the part that was read
    of the last batch, None where that was not asked for; ``room`` whether that left time for more. Blocks
    hold rows that came together and are alike, so a part of the batch says less than as many rows from all
    over it. From one batch to the next the part changes in steps.
    """
    best = Part(worst_loss(load, whole.by_stream[0], ALIKE), load, whole, 1.0)
    read_whole = before is None and not whole.allocation.suspended
    if read_whole and reading_seconds(load) < SKIPPED_FROM * capacity:
        return None
    least = max(least, SHARES[-1])
    last = min(1.0, max(1.0 if before is None else before, least))
    near = [min(1.0, max(least, last * step)) for step in (0.7, 1.2) if step < 1.0 or room]
    all_parts = [*(share for share in SHARES if least < share <= FIRST_PART), least]

    def at(share: float) -> Part:
        part = replace(load, share=share)
        rates = planned(part)
        return Part(worst_loss(part, rates.by_stream[0], ALIKE), part, rates, share)

    if last >= 1.0:
        return _better(map(at, all_parts), best)
    kept = at(last)
    moved = _better(map(at, near), kept)
    best = kept if kept.loss < math.inf and moved.loss > BETTER * kept.loss else moved
    # where all is lost, a step from where it was will not do
    return _better(map(at, all_parts), best) if best.loss == math.inf else best


def _better(parts: Iterable[Part], best: Part) -> Part:
    for part in parts:
        # where all must be given up, as little as possible is read for nothing
        nothing = part.loss == best.loss == math.inf and part.share < best.share
        if part.loss < best.loss or nothing:
            best = part
    return best
