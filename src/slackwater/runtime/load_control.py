"""What the engine asks about load: how much of a batch is kept, by which texts, and what it cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from slackwater.plan.catalog import Catalog
from slackwater.plan.operators import counted, operators_of
from slackwater.plan.panes import AFTER_ALL
from slackwater.plan.slots import Slots, slots_of
from slackwater.plan.tables import Plan
from slackwater.planners.decision import Decision
from slackwater.planners.ruling import NO_PARTS, Coming, Leaving, Ruler, Ruling, choose_blocks, least_share
from slackwater.planners.window_needs import need_bits, points_of
from slackwater.planners.window_rules import DropPoint
from slackwater.planners.window_schedule import Extent, Schedule, extended
from slackwater.runtime.governor import Governor
from slackwater.runtime.shedding import WORTH_A_LOOK, Shed, Took, tests_thresholds
from slackwater.runtime.state import StreamState
from slackwater.runtime.turn import compile_stream
from slackwater.runtime.window_drops import WindowDrops
from slackwater.runtime.work import Work
from slackwater.spark.execute import Executor
from slackwater.spark.shed import Meter
from slackwater.spark.source import Offsets, StreamSource
from slackwater.spark.statement import Compiled, Shedding

AHEAD = 1.5
"""How much further than the last one a batch may reach for its windows to be decided before it comes."""
ROWS_AHEAD = 4096
"""The same for windows over rows of which nobody knows how many come."""


def _tested(schedule: Schedule, droppable: bool, ruling: Ruling) -> Schedule:
    """A schedule whose texts test rows for being needed, also in batches that are only measured.

    So there is one text for all batches that are not plain, its cost is what is fitted, and its code is warm
    when a burst comes.
    """
    return replace(
        schedule, always=schedule.always or (droppable and (ruling.measured or bool(ruling.thresholds)))
    )


class LoadControl:
    """Between the engine and whoever rules on load; without a ruler every batch is taken whole."""

    def __init__(
        self,
        executor: Executor,
        plan_of: Callable[[int], Plan],
        sources: Mapping[str, StreamSource],
        ruler: Ruler | None,
        salt: int,
    ) -> None:
        self.ruler = ruler
        self._executor = executor
        self._plan_of = plan_of
        self._sources = sources
        self._salt = salt
        self._meter = Meter(executor.session)
        self._slots: dict[tuple[str, int], Slots] = {}
        self._points: dict[tuple[str, int], dict[str, DropPoint]] = {}
        self._ahead: dict[str, int] = {}
        """By stream: how far the next batch may reach in time, judged by those before it."""
        self._compiled: dict[tuple[str, int, str], dict[str, Compiled]] = {}

    def introduce(self, stream: str, catalog: Catalog) -> None:
        """Tell the governor what kind of source a stream has."""
        if isinstance(self.ruler, Governor):
            name = stream.lower()
            self.ruler.cheap[name] = self._sources[name].cheap_to_read
            self.ruler.parses[name] = catalog.streams[name].payload is not None
            self.ruler.unpaced[name] = self._sources[name].as_fast_as_it_goes

    def slots(self, stream: str, version: int) -> Slots:
        """Where a version of the query set can shed load on a stream."""
        key = (stream.lower(), version)
        if key not in self._slots:
            self._slots = {k: v for k, v in self._slots.items() if k[0] != key[0]}
            plan, exactly = self._plan_of(version), set(self._executor.unsampled)
            if not self._sources[key[0]].identifies_rows:
                # a sample of rows that have no number of their own would be another one on a replay
                exactly |= plan.steps.keys()
            self._slots[key] = slots_of(plan, stream, exactly)
        return self._slots[key]

    def points(self, stream: str, version: int) -> dict[str, DropPoint]:
        """The window drops of a version of the query set on a stream."""
        key = (stream.lower(), version)
        if key not in self._points:
            self._points = {k: v for k, v in self._points.items() if k[0] != key[0]}
            self._points[key] = points_of(self._plan_of(version), stream)
        return self._points[key]

    def ruled(self, decision: Decision, state: StreamState) -> Decision:
        """The decision with the rates and the windows that the load asks for, given how the stream stands."""
        source, before = self._sources[decision.stream.lower()], state.offsets
        slots = self.slots(decision.stream, decision.version)
        points = self.points(decision.stream, decision.version)
        ruler = self.ruler
        watched = isinstance(ruler, Governor) and ruler.measures_all
        unruled = ruler is None or not (slots.sheddable or points or watched)
        if unruled or (ruler is not None and ruler.paced and source.as_fast_as_it_goes):
            return replace(decision, schedule=self._scheduled(decision, state, Leaving(), None).to_json())
        assert ruler is not None
        size = source.size(decision.offsets, before)
        plan = self._plan_of(decision.version)
        coming = Coming(decision.stream, plan, slots, size)
        leaving = ruler.leave(coming, points) if points else Leaving()
        schedule = self._scheduled(decision, state, leaving, size)
        parts = self.parts(decision, state, schedule)
        parses = plan.catalog.streams[decision.stream.lower()].payload is not None
        worth = not parses or max(parts.values(), default=1.0) <= WORTH_A_LOOK
        schedule = replace(schedule, looks_first=worth)
        # of a batch in blocks nobody gets all rows; where its times are guessed, some may be needed after all
        timed = decision.offsets.get("from") is not None and decision.offsets.get("to") is not None
        whole = all(slot.sheddable or (timed and parts.get(slot.id) == 0.0) for slot in slots.all)
        there = source.blocks(decision.offsets, before) if source.skips and whole and slots.sheddable else []
        ruling = ruler.rule(replace(coming, least=least_share(there), parts=parts))
        blocks, share = choose_blocks(there, ruling.share, f"{self._salt}/{decision.turn}")
        return replace(
            decision,
            thresholds=dict(ruling.thresholds),
            level=max(ruling.level, leaving.level),
            suspended=ruling.suspended,
            measured=ruling.measured,
            blocks=blocks,
            share=share,
            frequent=dict(ruling.frequent),
            sizes=dict(ruling.sizes),
            calibrated=ruling.calibrated,
            salt=self._salt,
            schedule=_tested(schedule, bool(points), ruling).to_json() if points or state.schedule else {},
        )

    def _scheduled(
        self, decision: Decision, state: StreamState, leaving: Leaving, size: int | None
    ) -> Schedule:
        """The schedule of windows, decided as far as the rows of a batch may reach."""
        plan, stream = self._plan_of(decision.version), decision.stream
        schedule = replace(Schedule.from_json(state.schedule), placing=leaving.placing, always=leaving.always)
        extents = []
        for id_, point in self.points(stream, decision.version).items():
            if point.kind == "rows":
                low = state.counted.get(plan.steps[point.members[0]].tables[0], 0)
                high = low + (size if size is not None and point.source == stream.lower() else ROWS_AHEAD)
            else:
                reach = self._reach(decision, state, point.drop.size)
                if reach is None:
                    continue
                low, high = reach
            share, shut = leaving.shares.get(id_, 0.0), leaving.shut & set(point.members)
            extents.append(Extent(point, id_, low, high, share, shut, leaving.runs.get(id_)))
        return extended(schedule, extents, self._salt)

    def _reach(self, decision: Decision, state: StreamState, size: int) -> tuple[int, int] | None:
        """Where windows may start that are not decided yet and that rows of the batch may be in."""
        low, high = decision.offsets.get("from"), decision.offsets.get("to")
        if low is not None and high is not None:
            return (int(low) - size if state.latest is None else state.latest + 1), int(high)
        if state.latest is None:
            return None
        return state.latest + 1, state.latest + 1 + self._ahead.get(decision.stream.lower(), 0)

    def parts(self, decision: Decision, state: StreamState, schedule: Schedule) -> Mapping[str, float]:
        """By slot whose windows may be left out: how much of the batch it needs, rows coming evenly."""
        low, high = decision.offsets.get("from"), decision.offsets.get("to")
        reach = self._reach(decision, state, 0) if low is None or high is None else (int(low), int(high))
        if reach is None or not schedule.queries or decision.kind != "batch":
            return NO_PARTS
        slots = self.slots(decision.stream, decision.version)
        return WindowDrops(self._plan_of(decision.version), decision.stream, schedule).parts(slots, *reach)

    def drops(self, decision: Decision) -> WindowDrops:
        """The windows that a decision leaves out."""
        schedule = Schedule.from_json(decision.schedule)
        low = decision.watermark if decision.kind == "batch" else -AFTER_ALL
        plan = self._plan_of(decision.version)
        return WindowDrops(plan, decision.stream, schedule, decision.leaves_out, low)

    def compiled(self, decision: Decision) -> dict[str, Compiled]:
        """The texts that carry a decision out: plain ones where nothing is tested and nothing measured."""
        stream, plan = decision.stream, self._plan_of(decision.version)
        mode = "exact"
        if decision.sheds:
            mode = "shed" if tests_thresholds(decision, self.slots(stream, decision.version)) else "measured"
        mode = "blocks" if decision.blocks else mode
        mode += "/windows" if decision.leaves_out else ""
        mode += "/counted" if decision.measured else ""
        key = (stream.lower(), decision.version, mode)
        if key not in self._compiled:
            self._compiled = {k: v for k, v in self._compiled.items() if k[0] != key[0] or k[1] == key[1]}
            slots = self.slots(stream, decision.version) if mode != "exact" else Slots()
            nodes = operators_of(plan, stream, slots) if mode != "exact" else ()
            shedding = Shedding(
                slots,
                blocks=bool(decision.blocks),
                tested=tests_thresholds(decision, slots),
                counted=tuple(nodes[i].prefix for i in counted(nodes)) if decision.measured else (),
                bits=need_bits(plan, slots) if decision.leaves_out else {},
                leaves_out=decision.leaves_out,
            )
            self._compiled[key] = compile_stream(plan, stream, shedding)
        return self._compiled[key]

    def shed(
        self,
        decision: Decision,
        before: Offsets | None,
        drops: WindowDrops,
        parts: Mapping[str, float] = NO_PARTS,
    ) -> tuple[Shed | None, Meter | None]:
        """How a batch is thinned out or measured, and what measures it; nothing where it is taken whole."""
        if not decision.sheds or decision.kind != "batch":
            return None, None
        source = self._sources[decision.stream.lower()]
        # elsewhere Spark counts the rows that it reads, since offsets may have gaps
        exact = source.knows_size or bool(decision.blocks)
        size = source.size(decision.offsets, before) if exact else None
        plan, slots = self._plan_of(decision.version), self.slots(decision.stream, decision.version)
        # what a batch costs is of use to a governor only
        meter = self._meter if isinstance(self.ruler, Governor) else None
        return Shed(plan, slots, decision, size, drops=drops, parts=parts), meter

    def learn(self, decision: Decision, work: Work, latest: int | None, seconds: float) -> None:
        """Tell the governor how a batch went; ``latest`` is the largest time before it."""
        times = self._meter.read() if work.meter is not None else {}
        if latest is not None and work.state.latest is not None:
            name = decision.stream.lower()
            came = round(AHEAD * (work.state.latest - latest))
            self._ahead[name] = max(came, self._ahead.get(name, 0) * 3 // 4)
        if not isinstance(self.ruler, Governor) or decision.kind != "batch":
            return
        low, high = decision.offsets.get("from"), decision.offsets.get("to")
        if low is None or high is None:
            low, high = latest or work.state.latest or 0, work.state.latest or 0
        stretch = (int(high) - int(low)) / 1e6
        self.ruler.learn(decision.stream, work.shed, Took(work.counts.arrived, stretch, seconds, times))
