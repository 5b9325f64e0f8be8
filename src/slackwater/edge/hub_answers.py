"""What a hub answers to a coordinator, and how much is asked of it at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MEMBERS_PER_REQUEST = 500_000

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Welcome:
    """What the hub says to a coordinator that connects."""

    generation: int
    position: int
    """The end of the log: what a coordinator reads before it grants anything."""
    begin: int
    """The oldest position that can be read."""
    log: str
    """A random name of the log: another one means that it was begun anew."""
    time: int


@dataclass(frozen=True)
class End:
    """The end of the log at a time of the hub: everything received before ``time`` is below ``position``."""

    position: int
    time: int


@dataclass(frozen=True)
class Granted:
    """What became of grants, in their order: their positions in the log, and when each begins."""

    position: Ints
    start: Ints


def pieces(members: list[list[int]]) -> list[tuple[int, int]]:
    """Stretches of sums that fit a request each."""
    found, first, held = [], 0, 0
    for place, some in enumerate(members):
        if place > first and held + len(some) > MEMBERS_PER_REQUEST:
            found.append((first, place))
            first, held = place, 0
        held += len(some)
    return [*found, (first, len(members))]
