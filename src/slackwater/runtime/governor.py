"""The closed loop: the model sets the shape of the shedding, feedback sets its level.

Every batch is planned for the size that it has. The fitted costs say what it would take; a batch that fits
is taken whole. After a batch its time is compared with what was meant, and the next ones are planned longer
or shorter (``pace``), so that batches keep to their interval even where the fit is off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from slackwater.plan.operators import counted, operators_of
from slackwater.plan.slots import Slots, rare
from slackwater.plan.tables import Plan
from slackwater.planners.level import SplitName
from slackwater.planners.load import Allocation
from slackwater.planners.reading import part_to_read
from slackwater.planners.ruling import Coming, Leaving, Ruling
from slackwater.planners.sampling import Objective, Rates, plan_rates
from slackwater.planners.steady import in_classes, steadied, together
from slackwater.planners.terms import StreamLoad, must_take, reading_seconds, terms_of
from slackwater.planners.window_leaving import Asked, must_take_all_shut, plan_leaving
from slackwater.planners.window_rules import DropPoint
from slackwater.runtime.pace import Aim, Pace
from slackwater.runtime.shedding import Shed, Took
from slackwater.runtime.statistician import Statistician
from slackwater.runtime.window_leaving import SETTLED as SETTLED_WINDOWS
from slackwater.runtime.window_leaving import WindowLeaving
from slackwater.statistics.costs import predicted
from slackwater.statistics.snapshot import StreamStatistics

WARMING = 2
"""The first batches load classes and compile code: they say nothing of those to come."""
MEASURED_FIRST = 5
MEASURED_OF_A_SIZE = 3
MEASURED_EVERY = 32
"""While nothing is shed, only some batches are measured: sums of squares are not free."""
WATCHFUL = 0.6
"""From this share of the capacity on every batch is measured, in case the next one is too much."""
SETTLED = 4
"""Batches before feedback sets in: the first ones are slow for reasons that pass."""
CALIBRATED_AFTER = (3, 8, 20)
"""Batches after which what has been fitted is what later fits are drawn to: code gets faster for a while."""
SETTLING = 3
"""Calibrations until costs follow from what was measured alone, where batches differ in size."""
ONSET = 0.6
"""Of the time there is for rows, what the first batches of a burst are planned for: their code is cold."""
ROOM = 0.05
"""Of an interval, by how much a batch must have been shorter than meant for the next to be read more of."""
REPEATED = 1.1
"""How much larger a batch may be than those that were taken whole before, to be taken whole like them."""
SIMILAR = 1.5
"""By how much batches may differ in size for the rates of one to go on from those of the other."""


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
    objective: Objective = "minimax"
    multiple: float | None = None
    """Plan for a capacity of which the work is so many times as much, whatever the machine: experiments."""
    fitting: bool = True
    """Whether costs are fitted anew after every batch."""
    calibrated: bool = True
    _streams: dict[str, Statistician] = field(default_factory=dict)
    _kept: dict[str, Any] = field(default_factory=dict)
    """By stream: what an earlier run has learnt of it."""
    _aims: dict[str, Aim] = field(default_factory=dict)
    """By stream: what its last batch was meant to take, where something was dropped of it."""
    _last: dict[str, tuple[float, float, dict[str, float]]] = field(default_factory=dict)
    """By stream: how much came in its last batch, how much of it was read, and at which rates."""
    _alike: dict[str, int] = field(default_factory=dict)
    """By stream: how many batches in a row have been like the one before them, and were shed."""
    _whole: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By stream: rows of the last batches that were taken whole, and how long they took."""
    _sizes: dict[str, dict[int, int]] = field(default_factory=dict)
    """By stream: how many batches have been measured, by about how many rows they had."""
    _overran: frozenset[str] = frozenset()
    """Streams whose last batch took longer than it may."""
    _ended: set[str] = field(default_factory=set)
    """Streams that take no time any more."""
    _idle: set[str] = field(default_factory=set)
    """Streams that take none until they have a batch again."""
    _turns: dict[str, int] = field(default_factory=dict)
    _shares: dict[str, float] = field(default_factory=dict)
    """By stream: how much of its batches is read, where that is not all."""
    _leaving: dict[str, WindowLeaving] = field(default_factory=dict)
    """By stream: what is known of its window drops."""
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

    def __post_init__(self) -> None:
        self.pace = Pace(self.budget, self.cores)

    def known(self, stream: str, plan: Plan, slots: Slots) -> Statistician:
        """What is known of a stream; a changed query set starts from what its streams had."""
        name = stream.lower()
        found = self._streams.get(name)
        if found is None or found.plan is not plan:
            nodes = operators_of(plan, stream, slots)
            fresh = Statistician(plan, stream, slots, nodes, counted(nodes), self.parses.get(name, False))
            kept = self._kept.pop(name, None)
            if found is not None:
                fresh.take_over(found)
            elif kept is not None:
                fresh.go_on(kept)
            self._streams[name] = found = fresh
        return found

    def known_of(self, coming: Coming) -> Statistician:
        """What is known of the stream of a batch."""
        return self.known(coming.stream, coming.plan, coming.slots)

    def to_json(self) -> dict[str, Any]:
        """What has been learnt, for a run that goes on from this one."""
        streams = self._kept | {name: known.to_json() for name, known in self._streams.items()}
        return {"streams": streams, "pace": dict(self.pace.fitted)}

    def go_on(self, kept: Mapping[str, Any]) -> None:
        """Start from what an earlier run has learnt."""
        self._kept = dict(kept["streams"])
        self.pace.batch, self.pace.executor = kept["pace"]["batch"], kept["pace"]["executor"]

    def seeded_from(self, other: Governor) -> Self:
        """Start from what another run over the same streams has learnt so far."""
        # under a plan of its own each run takes over what it can use, and leaves these as they are
        self._streams = dict(other._streams)
        return self

    def leave(self, coming: Coming, points: Mapping[str, DropPoint]) -> Leaving:
        """How many windows are left out from now on: those that the least level leaves out on average.

        A window that has begun is finished, whatever comes: only those are decided that are still to begin.
        """
        name = coming.name
        known = self.known_of(coming)
        leaving = self.leaving(name)
        came = known.size if coming.size is None else float(coming.size)
        if self.multiple is None:
            came = leaving.usual(came, self.pace.interval, told=coming.size is not None)
        load = self._load(known, came)
        load = replace(load, windows=leaving.demands(coming.plan, coming.slots, points))
        others = self._others(name)
        whole = sum(predicted(x.statistics.costs, terms_of(x, {})) for x in (load, *others))
        whole += sum(w.after for w in load.windows)
        asked = Asked(self.split, self.margin, self.objective)
        leaving.shares = {}
        if self.multiple is not None:
            capacity = self._part(load, whole)
            if whole <= capacity:
                leaving.lost = {}
                return Leaving()
            found, lost = plan_leaving(load, others, capacity, points, asked)
        else:
            fixed = must_take_all_shut(load) + sum(must_take(x, 1.0) for x in others)
            capacity = self.pace.enough(fixed, 1 + len(others))
            fits = whole <= leaving.factor * capacity or self._fits(name, load, others, fixed)
            if fits or known.batches < SETTLED_WINDOWS:
                leaving.lost = {}
                return Leaving()
            hopeless = leaving.hopeless
            found, lost = plan_leaving(load, others, capacity, points, asked, leaving.factor, hopeless)
        leaving.lost = {id_: leaving.lost.get(id_, 0) + 1 for id_ in lost}
        leaving.shares = dict(found.shares)
        return found

    def rule(self, coming: Coming) -> Ruling:
        """The least level at which the batch keeps to its time."""
        name, slots, least = coming.name, coming.slots, coming.least
        turn = self._turns[name] = self._turns.get(name, -1) + 1
        known = self.known_of(coming)
        load = self._load(known, known.size if coming.size is None else float(coming.size))
        load = replace(load, parts=coming.parts)
        others = self._others(name)
        whole = sum(predicted(x.statistics.costs, terms_of(x, {})) for x in (load, *others))
        mine_fixed = must_take(load, least)
        fixed = mine_fixed + sum(
            must_take(x, self._shares.get(x.statistics.stream.lower(), 1.0)) for x in others
        )
        streams = 1 + len(others)
        capacity = self.pace.capacity(fixed, streams) if self.multiple is None else self._part(load, whole)
        enough = self.pace.enough(fixed, streams) if self.multiple is None else capacity
        watchful = turn < MEASURED_FIRST or turn % MEASURED_EVERY == 0 or whole > WATCHFUL * capacity
        watchful = watchful or name in self._overran or self._of_another_size(name, load.size)
        if whole <= enough or (self.multiple is None and self._fits(name, load, others, fixed)):
            for known_of in (self._aims, self._shares, self._last, self._alike):
                known_of.pop(name, None)
            return Ruling(measured=watchful)
        if self.multiple is None and self._alike.get(name, 0) < WARMING:
            capacity = fixed + ONSET * (capacity - fixed)
        found = plan_rates([load, *others], capacity, split=self.split, margin=self.margin)
        share = 1.0
        if least < 1.0:
            load, found, share = self._skipping(load, others, capacity, found, least)
        self.last = found.allocation
        planned = together({slot.id: 1.0 for slot in slots.sheddable} | dict(found.by_stream[0]))
        if self.multiple is None:
            planned = self._steadied(name, load.size, share, planned)
        settled = self._alike.get(name, 0) > WARMING
        rates = in_classes(planned, slots.counters)
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
        self._aims[name] = self.pace.aim(mine, mine_fixed, fixed, streams, settled=settled)
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

    def _fits(self, name: str, load: StreamLoad, others: list[StreamLoad], fixed: float) -> bool:
        """Whether batches of this size were taken whole before and kept to their time: then they will again.

        What the fit says of rows that have been dropped for a while is a guess beside that.
        """
        rows, wall = self._whole.get(name, (0.0, 0.0))
        floor = min(self.pace.floor(fixed), wall)
        alike = 0 < load.size <= REPEATED * rows and not others
        return alike and floor + (wall - floor) * load.size / rows <= self.budget()

    def _steadied(self, name: str, size: float, share: float, planned: dict[str, float]) -> dict[str, float]:
        """Rates that go on from those of the last batch, if that was like this one."""
        before = self._last.get(name)
        alike = self._like_last(name, size)
        self._alike[name] = self._alike.get(name, 0) + 1 if alike else 0
        if before is not None and alike and share == before[1]:
            planned = steadied(planned, before[2])
        self._last[name] = (size, share, planned)
        return planned

    def _like_last(self, name: str, size: float) -> bool:
        """Whether a batch is of about the size of the stream's last one, and that was shed too."""
        before = self._last.get(name)
        return before is not None and _similar(size, before[0])

    def _of_another_size(self, name: str, size: float) -> bool:
        """Whether few batches of about this size have been measured: they tell what rows take."""
        measured = self._sizes.get(name)
        return measured is not None and measured.get(_class_of(size), 0) < MEASURED_OF_A_SIZE

    def _part(self, load: StreamLoad, whole: float) -> float:
        """A capacity that the work beyond reading the rows exceeds by the given multiple."""
        assert self.multiple is not None
        reading = reading_seconds(load)
        return reading + (whole - reading) / self.multiple

    def _skipping(
        self, load: StreamLoad, others: list[StreamLoad], capacity: float, whole: Rates, least: float
    ) -> tuple[StreamLoad, Rates, float]:
        """Read only a part of the batch where that leaves less loss: reading itself cannot be shed."""
        stream = load.statistics.stream.lower()
        last = self._last.get(stream)
        if last is None or load.size < last[0] / SIMILAR:
            self._shares.pop(stream, None)

        def planned(part: StreamLoad) -> Rates:
            return plan_rates([part, *others], capacity, split=self.split, margin=self.margin)

        # more is read only after a batch that left time for it
        room = bool(self.pace.excess) and self.pace.excess[-1] < -ROOM * self.pace.interval
        before = self._shares.get(stream)
        chosen = part_to_read(load, whole, capacity, planned, least=least, before=before, room=room)
        if chosen is None:
            return load, whole, 1.0
        self._shares[stream] = chosen.share
        return chosen.load, chosen.rates, chosen.share

    def _load(self, known: Statistician, size: float) -> StreamLoad:
        cheap = self.cheap.get(known.stream.lower(), True)
        return StreamLoad(known.plan, known.nodes, known.slots, known.snapshot(), size, cheap)

    def learn(self, stream: str, shed: Shed | None, took: Took) -> None:
        """Take note of how a batch went."""
        name = stream.lower()
        self._idle.discard(name)
        known = self._streams.get(name)
        if known is None:
            return
        known.arrived(took.arrived, took.stretch)
        # a batch that took too long and was not meant to: what it costs must be looked at
        self._overran = self._overran | {name} if took.wall > self.budget() else self._overran - {name}
        leaving = self._leaving.get(name)
        whole = shed is None or not (shed.drawn or any(part < 1.0 for part in shed.parts.values()))
        whole = whole and not (leaving is not None and leaving.leaves_out)
        if whole and self._turns.get(name, 0) >= WARMING and took.arrived:
            rows, wall = self._whole.get(name, (float(took.arrived), took.wall))
            self._whole[name] = ((rows + took.arrived) / 2, (wall + took.wall) / 2)
        if shed is None or self._turns.get(name, 0) < WARMING:
            return
        known.count(shed)
        sizes = self._sizes.setdefault(name, {})
        sizes[_class_of(took.arrived)] = sizes.get(_class_of(took.arrived), 0) + 1
        load = replace(self._load(known, float(took.arrived)), share=shed.share, parts=shed.parts)
        later: dict[str, float] = {}
        for table, seconds in took.times.items():
            terms = terms_of(load, shed.rates, table)
            if terms:
                known.observe(table, terms, seconds)
            else:
                step = known.plan.reader_of(table)
                later[step] = later.get(step, 0.0) + seconds
        if leaving is not None:
            leaving.learn(known.plan, later, took, self.pace)
        if self.fitting:
            known.fit()
            if known.batches in CALIBRATED_AFTER:
                known.calibrate()
            elif shed.drawn:
                known.follow()
        self.pace.learn(sum(took.times.values()), took.wall)
        aim = self._aims.get(name)
        if not shed.drawn:
            self.pace.relax()
        elif known.batches >= SETTLED and aim is not None:
            self.pace.correct(aim, took.wall)

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
        if self.fitting:
            # until now all batches may have been alike, and what their rows take has been a guess
            known.calibrate()
            known.fit()

    def settle(self) -> None:
        """Let costs be what the batches so far say, however far that is from what was taken for granted.

        Of a function that takes a thousand times as long as others, one step leaves most to its pass.
        """
        for known in self._streams.values():
            for _ in range(SETTLING):
                known.calibrate()
            known.fit()

    def end(self, stream: str) -> None:
        """A stream has no batches any more: the others have the time that its batches took."""
        self._ended.add(stream.lower())

    @property
    def ended(self) -> frozenset[str]:
        """Streams that have no batches any more, in lower case."""
        return frozenset(self._ended)

    def rest(self, stream: str) -> None:
        """A stream has no batches for now: meanwhile the others have the time that these took."""
        self._idle.add(stream.lower())

    @property
    def quiet(self) -> frozenset[str]:
        """Streams that are idle or have ended, in lower case."""
        return frozenset(self._ended | self._idle)

    def _others(self, name: str) -> list[StreamLoad]:
        """The streams beside one that have batches, each as large as its last one."""
        away = self._ended | self._idle
        return [self._load(s, s.size) for n, s in self._streams.items() if n != name and n not in away]

    def leaving(self, stream: str) -> WindowLeaving:
        """What is known of a stream's window drops."""
        return self._leaving.setdefault(stream.lower(), WindowLeaving())

    def loads(self) -> tuple[StreamLoad, ...]:
        """All streams as the planner takes them, each with as many rows as its last batch had.

        Those that have ended are among them: what they were like may be asked for still.
        """
        return tuple(self._load(known, known.size) for known in self._streams.values())

    def snapshot(self) -> tuple[StreamStatistics, ...]:
        """What is known of all streams."""
        return tuple(s.snapshot() for s in self._streams.values())


def _similar(size: float, before: float) -> bool:
    """Whether two batches are of about the same size."""
    return 1 / SIMILAR < max(size, 1.0) / max(before, 1.0) < SIMILAR


def _class_of(size: float) -> int:
    """About how many rows: those of a class differ by no more than twofold."""
    return int(max(size, 1.0)).bit_length()
