"""The closed loop: the model sets the shape of the shedding, feedback sets its level.

Every batch is planned for the size that it has. The fitted costs say what it would take; a batch that fits
is taken whole. After a batch its time is compared with what was meant, and the capacity that the planner may
spend is trimmed, so that batches keep to their interval even where the fit is off.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from slackwater.plan.operators import counted, operators_of
from slackwater.plan.slots import COUNTERS_AT_MOST, Slots, rare
from slackwater.plan.tables import Plan
from slackwater.planners.level import SplitName
from slackwater.planners.load import Allocation
from slackwater.planners.ruling import Ruling
from slackwater.planners.sampling import Rates, StreamLoad, plan_rates, terms_of, worst_loss
from slackwater.runtime.shedding import Shed, Took
from slackwater.runtime.statistician import Statistician
from slackwater.statistics.costs import Observation, fit_costs, predicted
from slackwater.statistics.snapshot import StreamStatistics

WARMING = 2
"""The first batches load classes and compile code: they say nothing of those to come."""
MEASURED_FIRST = 5
MEASURED_EVERY = 32
"""While nothing is shed, only some batches are measured: sums of squares are not free."""
WATCHFUL = 0.6
"""From this share of the capacity on every batch is measured, in case the next one is too much."""
CALIBRATED_AFTER = (3, 8, 20)
"""Batches after which what has been fitted is what later fits are drawn to: code gets faster for a while."""
SETTLED = 4
"""Batches before feedback sets in: the first ones are slow for reasons that pass."""
TRIM = (0.3, 1.15)
STEPS = (0.75, 1.04)
"""By how much the capacity is trimmed from one batch to the next: down fast, up slowly."""
GAIN = 0.35
ROOM = 0.95
"""Of the time that it was meant to take, what a batch may have taken for the next to be read more of."""
LATE = 0.98
"""Of the batches that are shed, so many are to end within their interval, as far as their times scatter."""
SPARE = 1.05
SCATTERED = 15
"""Batches that tell how much times scatter."""
REMEMBERED = 60
SHARES = (0.5, 0.25, 0.12, 0.06, 0.03, 0.015, 0.007)
"""Parts of a batch that may be read; from one batch to the next it changes by less."""
ALIKE = 3.0
"""How much more the blocks of a batch scatter than as many rows from all over it."""
_Part = tuple[float, StreamLoad, Rates, float]
"""The loss that is left, the stream read in part, its rates, and how much of it is read."""


@dataclass
class Governor:
    """Rules on the batches of all streams of a run, and learns from each.

    ``budget`` gives the seconds that a batch may take, Spark's own part in it left out; ``cores`` how many
    work at a time. ``split`` is the planner's way to share the loss.
    """

    budget: Callable[[], float]
    cores: int
    split: SplitName = "minimax"
    margin: float = 0.0
    multiple: float | None = None
    """Plan for a capacity of which the work is so many times as much, whatever the machine: experiments."""
    fitting: bool = True
    """Whether costs are fitted anew after every batch."""
    calibrated: bool = True
    utilisation: float = 0.8
    """Of an interval, what ``budget`` leaves for a batch: the rest is for batches that take longer."""
    trim: float = 1.0
    _ratios: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """Of the last batches that were shed: the time they took over the time they were meant to take."""
    _streams: dict[str, Statistician] = field(default_factory=dict)
    _walls: deque[Observation] = field(default_factory=lambda: deque(maxlen=40))
    _wall: dict[str, float] = field(default_factory=dict)
    _meant: dict[str, float] = field(default_factory=dict)
    """By stream: the seconds that its last batch was meant to take, where something was dropped of it."""
    _learnt: int = 0
    """Batches of all streams that the times of batches are fitted to."""
    _turns: dict[str, int] = field(default_factory=dict)
    _shares: dict[str, float] = field(default_factory=dict)
    """By stream: how much of its batches is read, where that is not all."""
    cheap: dict[str, bool] = field(default_factory=dict)
    parses: dict[str, bool] = field(default_factory=dict)
    unpaced: dict[str, bool] = field(default_factory=dict)
    """By stream: whether it is read as fast as it goes."""
    last: Allocation | None = None

    everywhere: bool = False
    """Rule on streams too whose batches follow each other as fast as they go."""

    @property
    def paced(self) -> bool:
        return self.multiple is None and not self.everywhere

    @property
    def measures_all(self) -> bool:
        """Whether streams are measured of which nothing can be shed."""
        return False

    @property
    def wall(self) -> Mapping[str, float]:
        """Seconds of a batch whatever its rows, and seconds for each one of executor time, as fitted."""
        return dict(self._wall)

    def __post_init__(self) -> None:
        self._wall = {"batch": 0.15, "executor": 1.0 / self.cores}

    def known(self, stream: str, plan: Plan, slots: Slots) -> Statistician:
        """What is known of a stream; a changed query set starts from what its streams had."""
        name = stream.lower()
        found = self._streams.get(name)
        if found is None or found.plan is not plan:
            nodes = operators_of(plan, stream, slots)
            fresh = Statistician(plan, stream, slots, nodes, counted(nodes), self.parses.get(name, False))
            if found is not None:
                fresh.take_over(found)
            self._streams[name] = found = fresh
        return found

    def seeded_from(self, other: Governor) -> Self:
        """Start from what another run over the same streams has learnt so far."""
        # under a plan of its own each run takes over what it can use, and leaves these as they are
        self._streams = dict(other._streams)
        return self

    def capacity(self, fixed: float = 0.0, streams: int = 1, *, whole: bool = False) -> float:
        """Executor seconds that the batches of all streams may take; ``fixed`` are those whatever their size.

        ``whole``: if nothing is dropped; then all of the budget may be used.

        An interval too short for even an empty batch is not kept by dropping rows: batches then take what
        they must, and half of that again for their rows.
        """
        per_second = 1 / max(self._wall["executor"], 1e-6)
        around = streams * self._wall["batch"]
        left = ((self.budget() if whole else self.target()) - around) * per_second * self.trim
        least = fixed + 0.5 * (fixed + max(around, 0.05) * per_second)
        return max(left, least)

    def target(self) -> float:
        """Seconds that a batch is planned for: less than the budget where times scatter much.

        So much less that all but a few of the batches end within the interval, going by the last ones.
        """
        budget = self.budget()
        if len(self._ratios) < SCATTERED:
            return budget
        longest = sorted(self._ratios)[int(LATE * len(self._ratios))]
        return min(budget, max(0.5 * budget, budget / self.utilisation / longest / SPARE))

    def rule(self, stream: str, plan: Plan, slots: Slots, size: int | None, *, skips: bool) -> Ruling:
        """The least level at which the batch keeps to its time."""
        name = stream.lower()
        turn = self._turns[name] = self._turns.get(name, -1) + 1
        known = self.known(stream, plan, slots)
        load = self._load(known, float(size) if size is not None else known.size)
        others = [self._load(s, s.size) for n, s in self._streams.items() if n != name]
        whole = sum(predicted(x.statistics.costs, terms_of(x, {})) for x in (load, *others))
        fixed = sum(
            x.statistics.costs.get("pass", 0.0) * terms_of(x, {}).get("pass", 0.0) for x in (load, *others)
        )
        streams = 1 + len(others)
        capacity = self.capacity(fixed, streams) if self.multiple is None else self._part(load, whole)
        enough = self.capacity(fixed, streams, whole=True) if self.multiple is None else capacity
        watchful = turn < MEASURED_FIRST or turn % MEASURED_EVERY == 0 or whole > WATCHFUL * capacity
        if whole <= enough:
            self._meant.pop(name, None)
            self._shares.pop(name, None)
            return Ruling(measured=watchful)
        found = plan_rates([load, *others], capacity, split=self.split, margin=self.margin)
        share = 1.0
        if skips:
            load, found, share = self._skipping(load, others, capacity, found)
        self.last = found.allocation
        rates = in_classes(
            _together({slot.id: 1.0 for slot in slots.sheddable} | dict(found.by_stream[0])), slots.counters
        )
        told = {
            s: t.frequent
            for s, t in load.statistics.strata.items()
            if rare(s) in rates and min(rates[s], rates[rare(s)]) < 1.0
        }
        thresholds = {
            slot: rate
            for slot, rate in rates.items()
            # of two rates both are said, though one of them be 1
            if rate < 1.0 or slot.removesuffix("/rare") in told
        }
        mine = predicted(load.statistics.costs, terms_of(load, thresholds))
        self._meant[name] = self.target() * self._part_of_time(mine, found.allocation.load, streams)
        lost = [
            q.removeprefix("0/").removesuffix("/rare")
            for q in found.allocation.suspended
            if q.startswith("0/")
        ]
        return Ruling(
            thresholds,
            found.allocation.level,
            tuple(dict.fromkeys(lost)),
            True,
            share,
            told,
            dict(found.sizes[0]) if found.sizes else {},
            self.calibrated,
        )

    def _part_of_time(self, mine: float, whole: float, streams: int) -> float:
        """Of the time of all streams' batches, what that of one is meant to take, given executor seconds."""
        around, each = self._wall["batch"], self._wall["executor"]
        return min(1.0, (around + mine * each) / max(streams * around + whole * each, 1e-9))

    def _part(self, load: StreamLoad, whole: float) -> float:
        """A capacity that the work beyond reading the rows exceeds by the given multiple."""
        assert self.multiple is not None
        terms, costs = terms_of(load, {}), load.statistics.costs
        reading = sum(costs.get(t, 0.0) * terms.get(t, 0.0) for t in ("pass", "read"))
        return reading + (whole - reading) / self.multiple

    def _skipping(
        self, load: StreamLoad, others: list[StreamLoad], capacity: float, whole: Rates
    ) -> tuple[StreamLoad, Rates, float]:
        """Read only a part of the batch where that leaves less loss: reading itself cannot be shed.

        Blocks hold rows that came together and are alike, so a part of the batch says less than as many rows
        from all over it.
        """
        terms = terms_of(load, {})
        costs = load.statistics.costs
        reading = sum(costs.get(t, 0.0) * terms.get(t, 0.0) for t in ("pass", "read"))
        best: _Part = (worst_loss(load, whole.by_stream[0], ALIKE), load, whole, 1.0)
        if reading < 0.4 * capacity and not whole.allocation.suspended:
            self._shares.pop(load.statistics.stream.lower(), None)
            return best[1:]
        stream = load.statistics.stream.lower()
        before = self._shares.get(stream, 1.0)
        # more is read only after a batch that left time for it
        more = (1.2,) if self._ratios and self._ratios[-1] < ROOM else ()
        near = tuple(min(1.0, max(SHARES[-1], before * step)) for step in (0.7, 1.0, *more))

        def better(shares: tuple[float, ...], best: _Part) -> _Part:
            for share in shares:
                part = replace(load, share=share)
                found = plan_rates([part, *others], capacity, split=self.split, margin=self.margin)
                loss = worst_loss(part, found.by_stream[0], ALIKE)
                # where all must be given up, as little as possible is read for nothing
                if loss < best[0] or (loss == best[0] == math.inf and share < best[3]):
                    best = (loss, part, found, share)
            return best

        best = better(SHARES if before >= 1.0 else near, best)
        if best[0] == math.inf and before < 1.0:
            # a step from where it was will not do
            best = better(SHARES, best)
        self._shares[stream] = best[3]
        return best[1:]

    def _load(self, known: Statistician, size: float) -> StreamLoad:
        cheap = self.cheap.get(known.stream.lower(), True)
        return StreamLoad(known.plan, known.nodes, known.slots, known.snapshot(), size, cheap)

    def learn(self, stream: str, shed: Shed | None, took: Took) -> None:
        """Take note of how a batch went."""
        name = stream.lower()
        known = self._streams.get(name)
        if known is None:
            return
        known.arrived(took.arrived, took.stretch)
        if shed is None or self._turns.get(name, 0) < WARMING:
            return
        known.count(shed)
        load = replace(self._load(known, float(took.arrived)), share=shed.share)
        for table, seconds in took.times.items():
            terms = terms_of(load, shed.rates, table)
            if terms:
                known.observe(table, terms, seconds)
        if self.fitting:
            known.fit()
            if known.batches in CALIBRATED_AFTER:
                known.calibrate()
        spent = sum(took.times.values())
        self._learnt += 1
        self._walls.append(Observation(self._learnt, {"batch": 1.0, "executor": spent}, took.wall))
        base = {"batch": 0.12, "executor": 1.0 / self.cores}
        self._wall = fit_costs(list(self._walls), base, ridge=0.02)
        meant = self._meant.get(name, 0.0)
        if known.batches >= SETTLED and shed.drawn and meant > 0:
            # a part of the way towards what would have been right: the fit goes the rest
            step = min(STEPS[1], max(STEPS[0], (meant / max(took.wall, 1e-6)) ** GAIN))
            self._ratios.append(took.wall / meant)
            self.trim = min(TRIM[1], max(TRIM[0], self.trim * step))
        elif not shed.drawn:
            self.trim += 0.2 * (1.0 - self.trim)

    def probed(
        self,
        stream: str,
        plan: Plan,
        slots: Slots,
        rates: Mapping[str, float],
        size: int,
        share: float,
        times: Mapping[str, float],
    ) -> None:
        """Take note of what a batch costs that is read, wholly or in part, and dropped."""
        known = self.known(stream, plan, slots)
        load = replace(self._load(known, float(size)), share=share)
        for table, seconds in times.items():
            terms = terms_of(load, rates, table)
            if terms:
                known.probe(table, "whole" if share >= 1.0 else "part", terms, seconds)

    def snapshot(self) -> tuple[StreamStatistics, ...]:
        """What is known of all streams."""
        return tuple(s.snapshot() for s in self._streams.values())


def _together(rates: Mapping[str, float]) -> dict[str, float]:
    """Rates under which the rare groups of a slot are not given up while its frequent ones are kept.

    >>> _together({"a": 0.5, "a/rare": 0.0, "b": 0.0})
    {'a': 0.5, 'a/rare': 0.5, 'b': 0.0}
    """
    found = dict(rates)
    for slot in rates:
        if (other := rare(slot)) in rates and 0.0 in (rates[slot], rates[other]):
            found[slot] = found[other] = max(rates[slot], rates[other])
    return found


def in_classes(rates: Mapping[str, float], classes: int = COUNTERS_AT_MOST) -> dict[str, float]:
    """Rates made at most so many different ones, each raised to the largest of its class.

    >>> in_classes({"a": 0.1, "b": 0.11, "c": 0.5}, 2)
    {'a': 0.11, 'b': 0.11, 'c': 0.5}
    """
    distinct = sorted(set(rates.values()))
    if len(distinct) <= classes:
        return dict(rates)
    gaps = sorted(
        range(1, len(distinct)), key=lambda i: distinct[i - 1] / distinct[i] if distinct[i] else 1.0
    )
    cuts = [*sorted(gaps[: classes - 1]), len(distinct)]
    upper: dict[float, float] = {}
    first = 0
    for cut in cuts:
        upper.update(dict.fromkeys(distinct[first:cut], distinct[cut - 1]))
        first = cut
    return {slot: upper[rate] for slot, rate in rates.items()}
