"""What is decided about load for one batch, and who decides it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Protocol

from slackwater.plan.slots import Slots
from slackwater.plan.tables import Plan
from slackwater.planners.window_rules import DropPoint
from slackwater.planners.window_schedule import Placing


@dataclass(frozen=True)
class Ruling:
    """How a batch is thinned out: rates below 1 by slot. The empty one takes it whole."""

    thresholds: Mapping[str, float] = field(default_factory=dict)
    level: float = 0.0
    suspended: tuple[str, ...] = ()
    measured: bool = False
    share: float = 1.0
    """How much of the batch is read at all."""
    frequent: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By slot: hashes of the groups that its rate is for; all others have the rate of its rare ones."""
    sizes: Mapping[str, float] = field(default_factory=dict)
    """By slot: the τ of rows that are kept in proportion to their size, with the chance |v|/τ."""
    calibrated: bool = True
    """A kept row weighs arrived over kept; otherwise one over its rate, as the paper has it."""


@dataclass(frozen=True)
class Leaving:
    """Which share of windows each drop leaves out from now on, and which queries are given up meanwhile."""

    shares: Mapping[str, float] = field(default_factory=dict)
    """By drop (`window_needs.points_of`)."""
    shut: frozenset[str] = frozenset()
    placing: Placing = "needed"
    always: bool = False
    level: float = 0.0
    """The loss level that the shares come from."""
    runs: Mapping[str, int] = field(default_factory=dict)
    """By drop: how many windows in a row are left out at least, where they are spread evenly."""


NO_PARTS: Mapping[str, float] = MappingProxyType({})
"""Of a stream none of whose windows may be left out."""
BLOCKS_AT_LEAST = 8
"""Fewer blocks would not tell how much one differs from another."""


def drawn_evenly(size: int, count: int, random: Random) -> list[int]:
    """So many of the numbers below a size, about one from each of as many equal stretches.

    Guarantee: every number has the chance count/size, exactly, also where stretches begin within one.
    Variant: ordered pivotal sampling, in whole numbers. Of two neighbours one takes over the other's chance;
    when that makes it certain it is drawn, and the rest goes on to the next.
    Reference: Chauvet, On a characterization of ordered pivotal sampling, Bernoulli 18 (2012).

    >>> drawn_evenly(12, 4, Random(1)), [len(drawn_evenly(10, 8, Random(seed))) for seed in range(3)]
    ([1, 5, 6, 11], [8, 8, 8])
    """
    chosen: list[int] = []
    holder, chance = 0, count
    for number in range(1, size):
        both = chance + count
        if both < size:
            if random.randrange(both) < count:
                holder = number
            chance = both
        else:
            stays = random.randrange(2 * size - both) < size - chance
            chosen.append(number if stays else holder)
            holder = holder if stays else number
            chance = both - size
    return sorted([*chosen, holder] if chance else chosen)


def choose_blocks(
    partitions: Sequence[Sequence[tuple[int, int]]], share: float, salt: str
) -> tuple[tuple[int, ...], float]:
    """Blocks drawn at random for about a share of the rows, and the share that they have.

    Guarantee: every block has the same chance, whatever partition it is of, large or small: estimates rest on
    that. The blocks of a partition are in order of time, so drawing evenly gives each partition and each
    window its part. At least eight are chosen, more where sizes differ so much that a few blocks hold most of
    the rows. None is chosen where that would be all of them: the batch is then read whole.

    >>> choose_blocks([[(n, 10) for n in range(100)]], 0.1, "1")[1], choose_blocks([[(1, 10)]], 0.1, "1")
    (0.1, ((), 1.0))
    """
    blocks = [block for partition in partitions for block in partition]
    rows = sum(size for _, size in blocks)
    count = max(round(share * len(blocks)), _count_at_least([size for _, size in blocks]))
    if share >= 1.0 or count >= len(blocks):
        return (), 1.0
    chosen = [blocks[place] for place in drawn_evenly(len(blocks), count, Random(salt))]
    return tuple(number for number, _ in chosen), sum(size for _, size in chosen) / rows


def least_share(partitions: Sequence[Sequence[tuple[int, int]]]) -> float:
    """The least part of a batch that can be read, given its blocks; 1 where they are too few to choose.

    >>> least_share([[(n, 10) for n in range(100)]]), least_share([[(1, 10), (2, 10)]])
    (0.08, 1.0)
    """
    sizes = [size for partition in partitions for _, size in partition]
    count = _count_at_least(sizes)
    return count / len(sizes) if count < len(sizes) else 1.0


def _count_at_least(sizes: Sequence[int]) -> int:
    # what the blocks are worth if all were of one size: their effective number (Kish)
    rows = sum(sizes)
    worth = rows**2 / sum(size**2 for size in sizes) if rows else 0.0
    return math.ceil(BLOCKS_AT_LEAST * len(sizes) / worth) if worth else len(sizes)


@dataclass(frozen=True)
class Coming:
    """A batch that is about to be taken, as far as it is known."""

    stream: str
    plan: Plan
    slots: Slots
    size: int | None
    """How many rows it has, where that is known."""
    least: float = 1.0
    """The least part of it that can be read; 1 where the source is read whole or not."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Of slots whose windows may be left out: how much of the batch they need."""

    @property
    def name(self) -> str:
        return self.stream.lower()


class Ruler(Protocol):
    """Decides how much of each batch is kept."""

    @property
    def paced(self) -> bool:
        """It keeps batches to an interval; where they follow each other at once it has no say."""

    def leave(self, coming: Coming, points: Mapping[str, DropPoint]) -> Leaving:
        """How many of the windows are left out that are still to be decided."""

    def rule(self, coming: Coming) -> Ruling:
        """The ruling for the next batch of a stream."""


@dataclass(frozen=True)
class FixedRates:
    """The same rates for every batch, by query: for experiments and tests.

    >>> from slackwater.plan.slots import Slot
    >>> slots = Slots((Slot(((), "", None), ("a", "b"), True),))
    >>> ruling = FixedRates({"a": 0.1, "b": 0.5}).rule(Coming("s", Plan(), slots, None))
    >>> list(ruling.thresholds.values())
    [0.5]
    """

    rates: Mapping[str, float] = field(default_factory=dict)
    share: float = 1.0
    calibrated: bool = True
    paced: bool = False
    drops: Mapping[str, float] = field(default_factory=dict)
    """By query: the share of its windows that is left out; of those that are decided together the least."""
    shut: frozenset[str] = frozenset()
    placing: Placing = "needed"
    always: bool = False

    def leave(self, coming: Coming, points: Mapping[str, DropPoint]) -> Leaving:
        """Shares as given, as far as the gap allows."""
        shares = {
            id_: min(min(self.drops.get(n, 0.0) for n in p.members), p.drop.gap / (p.drop.gap + 1))
            for id_, p in points.items()
        }
        return Leaving(shares, self.shut, self.placing, self.always)

    def rule(self, coming: Coming) -> Ruling:
        """Rates as given; the queries of a slot share the largest."""
        sheddable = coming.slots.sheddable
        rates = {slot.id: max(self.rates.get(name, 1.0) for name in slot.steps) for slot in sheddable}
        below = {slot: rate for slot, rate in rates.items() if rate < 1.0}
        share = self.share if coming.least < 1.0 else 1.0
        return Ruling(below, 1.0, share=share, calibrated=self.calibrated)
