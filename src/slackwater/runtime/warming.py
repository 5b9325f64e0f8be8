"""Texts run before they are needed: so that a burst does not wait for code, and to see what reading costs.

Spark compiles the code of a statement when it first runs, which takes a second or more: just when there is
none to spare. And while batches are all of one size and none is shed, nothing tells what a row costs that is
read and dropped at once. So the texts that thin a batch out are run over some batches that have been
answered, with thresholds that nothing passes, and what they give is thrown away: all of them after the first
batch of a query set, while a run is slow anyway; later now and then, as many after a batch as it leaves time
for, to take their times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from slackwater.plan.layout import waits_for_python
from slackwater.plan.scope import safe_name
from slackwater.plan.tables import Plan
from slackwater.planners.decision import Decision
from slackwater.planners.ruling import choose_blocks
from slackwater.runtime.governor import Governor
from slackwater.runtime.load_control import LoadControl
from slackwater.runtime.shedding import threshold
from slackwater.spark.execute import DataFrame, Executor, SparkSession
from slackwater.spark.shed import Meter, shed_frame
from slackwater.spark.source import Offsets, StreamSource
from slackwater.spark.statement import Statement

NEXT_TO_NOTHING = 1e-9
TIMED_AFTER = 2
TIMED_EVERY = 300
"""Batches of a query set after which its texts are run, as many after each batch as it leaves time for."""
ROUNDS, TOLD = 4, 3
"""How often each is run, and how many of the last times say something: code just compiled is slow."""
SILENT = 5
"""Intervals after which a stream without a batch takes no time."""
ROOM = 0.7
"""Of an interval, what the batches of all streams and the texts that are run after one may take."""
Frame = Callable[[Sequence[int]], DataFrame | None]
"""The rows of the batch, or of some of its blocks."""


@dataclass(frozen=True)
class Answered:
    """A batch that has been answered, and how to read it again."""

    decision: Decision
    before: Offsets | None
    source: StreamSource
    session: SparkSession
    plan: Plan
    frame: Frame
    seconds: float
    """How long it took."""


class Warming:
    """Which query sets have had their texts run, by stream, and for how many batches they have been there."""

    def __init__(
        self,
        load: LoadControl,
        executor: Executor,
        seconds: Callable[[], float],
    ) -> None:
        self._load = load
        self._executor = executor
        self._seconds = seconds
        self._took: dict[str, tuple[float, float]] = {}
        """By stream: when its last batch was done, and how long it took; one waits for the other."""
        self._batches: dict[str, tuple[int, int]] = {}
        """By stream: the version, and its batches so far."""
        self._waiting: dict[str, list[tuple[str, str, bool]]] = {}
        """By stream: ways and texts that are to be run, and whether their time is to be told."""

    def after(self, batch: Answered) -> None:
        """Run texts over a batch, where it is time to; nothing of it is kept."""
        decision, ruler = batch.decision, self._load.ruler
        stream = decision.stream.lower()
        self._took[stream] = self._seconds(), batch.seconds
        if not isinstance(ruler, Governor) or not self._may_shed(batch, ruler):
            return
        version, count = self._batches.get(stream, (-1, 0))
        if version != decision.version:
            ran = [self._run(batch, way) for way in (*self._ways(batch).values(),) * 2]
            if all(times is not None for times in ran):
                self._batches[stream], self._waiting[stream] = (decision.version, 0), []
            return
        self._batches[stream] = (version, count + 1)
        if count + 1 == TIMED_AFTER or (count + 1) % TIMED_EVERY == 0:
            compiled = self._load.compiled(decision)[stream]
            tables = [*dict.fromkeys(s.table for s in compiled.statements), *compiled.emits]
            # the last are taken first
            self._waiting[stream] = [
                (way, table, number < TOLD)
                for number in range(ROUNDS)
                for way in self._ways(batch)
                for table in tables
            ]
        if decision.thresholds:
            return
        room, last = self.room(ruler.pace.interval), 0.0
        while self._waiting[stream] and room >= last:
            began = self._seconds()
            self._time(batch, ruler, *self._waiting[stream].pop())
            last = self._seconds() - began
            room -= last

    def room(self, interval: float) -> float:
        """Seconds that the last batches of all streams leave of an interval; of those that go on."""
        since = self._seconds() - SILENT * interval
        return ROOM * interval - sum(took for at, took in self._took.values() if at >= since)

    def end(self, stream: str) -> None:
        """A stream has no batches any more: the others need leave no time for them."""
        self._took.pop(stream.lower(), None)

    def _time(self, batch: Answered, ruler: Governor, name: str, table: str, told: bool) -> None:
        """Run the texts of one table; the governor is told how long they took where it says something."""
        decision, way = batch.decision, self._ways(batch).get(name)
        size = batch.source.size(decision.offsets, batch.before)
        times = self._run(batch, way, table) if way is not None and size is not None else None
        if told and way is not None and size is not None and times is not None:
            slots = self._load.slots(decision.stream, decision.version)
            # nobody has got a row, not even those who get all of them otherwise
            nothing = dict.fromkeys((slot.id for slot in slots.all), NEXT_TO_NOTHING)
            ruler.probed(decision.stream, batch.plan, slots, nothing, size, way.share, times)

    def _may_shed(self, batch: Answered, ruler: Governor) -> bool:
        source, decision = batch.source, batch.decision
        return (
            ruler.paced
            and source.identifies_rows
            and not source.as_fast_as_it_goes
            and bool(self._load.slots(decision.stream, decision.version).sheddable)
        )

    def _ways(self, batch: Answered) -> dict[str, Decision]:
        """The batch thinned out to nothing, read wholly and, where parts can be skipped, in one block."""
        decision = batch.decision
        slots = self._load.slots(decision.stream, decision.version)
        rates = dict.fromkeys((slot.id for slot in slots.sheddable), NEXT_TO_NOTHING)
        whole = replace(decision, thresholds=rates, blocks=(), share=1.0, sizes={}, frequent={})
        ways = {"whole": whole}
        if batch.source.skips and len(slots.sheddable) == len(slots.all):
            parts = batch.source.blocks(decision.offsets, batch.before)
            blocks, share = choose_blocks(parts, 0.0, str(decision.turn))
            there = [block for part in parts for block in part]
            rows = sum(size for _, size in there)
            if not blocks and rows:
                # too few to choose from
                blocks, share = (there[0][0],), max(there[0][1], 1) / rows
            if blocks:
                ways["part"] = replace(whole, blocks=blocks, share=share)
        return ways

    def _run(self, batch: Answered, way: Decision, table: str | None = None) -> Mapping[str, float] | None:
        """Run the texts of a decision, all or one table's; executor seconds by table, None without rows."""
        rows = batch.frame(way.blocks)
        if rows is None:
            return None
        drops = self._load.drops(way)
        shed, meter = self._load.shed(way, batch.before, drops)
        assert shed is not None
        assert isinstance(meter, Meter)
        compiled = self._load.compiled(way)[way.stream.lower()]
        self._executor.prepare(batch.session, batch.plan.catalog, compiled.views)
        view = f"{safe_name(way.stream)}__batch"
        thin = shed_frame(rows, way.salt, threshold(NEXT_TO_NOTHING))
        numbers = (*shed.parameters(way.watermark, 0), *drops.numbers(way.stream))
        texts = [*compiled.statements, *(Statement(n, sql) for n, sql in compiled.emits.items())]
        texts = [text for text in texts if table in (None, text.table)]
        keep = len(texts) > 1 and not batch.source.cheap_to_read
        with self._executor.batch_view(batch.session, thin, view, keep=keep):
            for text in texts:
                with meter.measuring(text.table, python=waits_for_python(batch.plan, text.table)):
                    self._executor.collect(batch.session, text.bind(view, numbers))
        return meter.read()
