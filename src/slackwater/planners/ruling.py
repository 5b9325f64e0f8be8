"""What is decided about load for one batch, and who decides it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from slackwater.plan.slots import Slots
from slackwater.plan.tables import Plan


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


BLOCKS_AT_LEAST = 8
"""Fewer blocks would not tell how much one differs from another."""


def choose_blocks(
    partitions: Sequence[Sequence[tuple[int, int]]], share: float, salt: str
) -> tuple[tuple[int, ...], float]:
    """Blocks drawn at random for about a share of the rows, and the share that they have.

    Guarantee: every block has the same chance. None is chosen where that would be all of them: the batch is
    then read whole.

    >>> choose_blocks([[(n, 10) for n in range(100)]], 0.1, "1")[1], choose_blocks([[(1, 10)]], 0.1, "1")
    (0.1, ((), 1.0))
    """
    counts = [max(BLOCKS_AT_LEAST, round(share * len(blocks))) for blocks in partitions]
    if share >= 1.0 or any(n >= len(blocks) for n, blocks in zip(counts, partitions, strict=True) if blocks):
        return (), 1.0
    random = Random(salt)
    chosen: list[tuple[int, int]] = []
    for count, blocks in zip(counts, partitions, strict=True):
        # one from each stretch: blocks are in order of time, and windows end within a batch
        stretch = len(blocks) / count
        places = {int((i + random.random()) * stretch) for i in range(count)} if blocks else set()
        chosen += [blocks[i] for i in sorted(places)]
    rows = sum(size for blocks in partitions for _, size in blocks)
    return tuple(number for number, _ in chosen), sum(size for _, size in chosen) / max(rows, 1)


class Ruler(Protocol):
    """Decides how much of each batch is kept."""

    @property
    def paced(self) -> bool:
        """It keeps batches to an interval; where they follow each other at once it has no say."""

    def rule(self, stream: str, plan: Plan, slots: Slots, size: int | None, *, skips: bool) -> Ruling:
        """The ruling for the next batch of a stream; ``size`` is how many rows it has, where that is known.

        ``skips`` says whether the source can be read in part.
        """


@dataclass(frozen=True)
class FixedRates:
    """The same rates for every batch, by query: for experiments and tests.

    >>> from slackwater.plan.slots import Slot
    >>> slots = Slots((Slot(((), "", None), ("a", "b"), True),))
    >>> list(FixedRates({"a": 0.1, "b": 0.5}).rule("s", Plan(), slots, None, skips=False).thresholds.values())
    [0.5]
    """

    rates: Mapping[str, float]
    share: float = 1.0
    calibrated: bool = True
    paced: bool = False

    def rule(self, stream: str, plan: Plan, slots: Slots, size: int | None, *, skips: bool) -> Ruling:
        """Rates as given; the queries of a slot share the largest."""
        rates = {slot.id: max(self.rates.get(name, 1.0) for name in slot.steps) for slot in slots.sheddable}
        below = {slot: rate for slot, rate in rates.items() if rate < 1.0}
        share = self.share if skips else 1.0
        return Ruling(below, 1.0, share=share, calibrated=self.calibrated)
