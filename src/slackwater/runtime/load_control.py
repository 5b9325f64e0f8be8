"""What the engine asks about load: how much of a batch is kept, by which texts, and what it cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from slackwater.plan.catalog import Catalog
from slackwater.plan.operators import counted, operators_of
from slackwater.plan.slots import Slots, slots_of
from slackwater.plan.tables import Plan
from slackwater.planners.decision import Decision
from slackwater.planners.ruling import Ruler, choose_blocks, least_share
from slackwater.runtime.governor import Governor
from slackwater.runtime.shedding import Shed, Took
from slackwater.runtime.turn import compile_stream
from slackwater.runtime.work import Work
from slackwater.spark.execute import Executor
from slackwater.spark.shed import Meter
from slackwater.spark.source import Offsets, StreamSource
from slackwater.spark.statement import Compiled, Shedding


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
            self._slots[key] = slots_of(self._plan_of(version), stream, self._executor.unsampled)
        return self._slots[key]

    def ruled(self, decision: Decision, before: Offsets | None) -> Decision:
        """The decision with the rates that the load asks for, given the offsets of the last batch."""
        source = self._sources[decision.stream.lower()]
        slots = self.slots(decision.stream, decision.version)
        ruler = self.ruler
        watched = isinstance(ruler, Governor) and ruler.measures_all
        if ruler is None or not (slots.sheddable or watched) or not source.identifies_rows:
            return decision
        if ruler.paced and source.as_fast_as_it_goes:
            return decision
        size = source.size(decision.offsets, before)
        whole = len(slots.sheddable) == len(slots.all)
        plan = self._plan_of(decision.version)
        there = source.blocks(decision.offsets, before) if source.skips and whole else []
        ruling = ruler.rule(decision.stream, plan, slots, size, least=least_share(there))
        blocks, share = choose_blocks(there, ruling.share, f"{self._salt}/{decision.turn}")
        return replace(
            decision,
            thresholds=dict(ruling.thresholds),
            level=ruling.level,
            suspended=ruling.suspended,
            measured=ruling.measured,
            blocks=blocks,
            share=share,
            frequent=dict(ruling.frequent),
            sizes=dict(ruling.sizes),
            calibrated=ruling.calibrated,
            salt=self._salt,
        )

    def compiled(self, decision: Decision) -> dict[str, Compiled]:
        """The texts that carry a decision out: plain ones where nothing is tested and nothing measured."""
        stream, plan = decision.stream, self._plan_of(decision.version)
        mode = "exact" if not decision.sheds else "measured" if not decision.thresholds else "shed"
        mode = "blocks" if decision.blocks else mode
        key = (stream.lower(), decision.version, mode)
        if key not in self._compiled:
            self._compiled = {k: v for k, v in self._compiled.items() if k[0] != key[0] or k[1] == key[1]}
            slots = self.slots(stream, decision.version) if mode != "exact" else Slots()
            nodes = operators_of(plan, stream, slots) if mode != "exact" else ()
            prefixes = tuple(nodes[i].prefix for i in counted(nodes))
            self._compiled[key] = compile_stream(
                plan, stream, Shedding(slots, mode == "blocks", mode != "measured", prefixes)
            )
        return self._compiled[key]

    def shed(self, decision: Decision, before: Offsets | None) -> tuple[Shed | None, Meter | None]:
        """How a batch is thinned out or measured, and what measures it; nothing where it is taken whole."""
        if not decision.sheds:
            return None, None
        source = self._sources[decision.stream.lower()]
        # elsewhere Spark counts the rows that it reads, since offsets may have gaps
        exact = source.knows_size or bool(decision.blocks)
        size = source.size(decision.offsets, before) if exact else None
        plan, slots = self._plan_of(decision.version), self.slots(decision.stream, decision.version)
        return Shed(plan, slots, decision, size), self._meter

    def learn(self, decision: Decision, work: Work, latest: int | None, seconds: float) -> None:
        """Tell the governor how a batch went; ``latest`` is the largest time before it."""
        times = self._meter.read() if work.meter is not None else {}
        if not isinstance(self.ruler, Governor) or decision.kind != "batch":
            return
        low, high = decision.offsets.get("from"), decision.offsets.get("to")
        if low is None or high is None:
            low, high = latest or work.state.latest or 0, work.state.latest or 0
        stretch = (int(high) - int(low)) / 1e6
        self.ruler.learn(decision.stream, work.shed, Took(work.counts.arrived, stretch, seconds, times))
