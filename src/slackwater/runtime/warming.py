"""Texts run once before they are needed, so that the first batch of a burst does not wait for code.

Spark compiles the code of a statement when it first runs, which takes a second or more: just when there is
none to spare. So after the first batch of a query set, while a run is slow anyway, the texts that thin a
batch out are run over that batch with thresholds that nothing passes, and what they give is thrown away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from slackwater.plan.catalog import Catalog
from slackwater.plan.scope import safe_name
from slackwater.planners.decision import Decision
from slackwater.runtime.governor import Governor
from slackwater.runtime.load_control import LoadControl
from slackwater.runtime.shedding import threshold
from slackwater.spark.execute import DataFrame, Executor, SparkSession
from slackwater.spark.shed import shed_frame
from slackwater.spark.source import Offsets, StreamSource
from slackwater.spark.statement import Statement

NEXT_TO_NOTHING = 1e-9
Frame = Callable[[Sequence[int]], DataFrame | None]
"""The rows of the batch, or of some of its blocks."""


class Warming:
    """Which query sets have had their texts run, by stream."""

    def __init__(self, load: LoadControl, executor: Executor) -> None:
        self._load = load
        self._executor = executor
        self._warm: dict[str, int] = {}

    def wanted(self, decision: Decision, source: StreamSource) -> bool:
        """Whether batches like this one may be shed, by texts that have not been run yet."""
        ruler = self._load.ruler
        return (
            isinstance(ruler, Governor)
            and ruler.paced
            and source.identifies_rows
            and not source.as_fast_as_it_goes
            and self._warm.get(decision.stream.lower()) != decision.version
            and bool(self._load.slots(decision.stream, decision.version).sheddable)
        )

    def run(
        self,
        decision: Decision,
        before: Offsets | None,
        source: StreamSource,
        session: SparkSession,
        catalog: Catalog,
        frame: Frame,
    ) -> None:
        """Run the texts over a batch that has been answered; nothing of it is kept."""
        slots = self._load.slots(decision.stream, decision.version)
        rates = dict.fromkeys((slot.id for slot in slots.sheddable), NEXT_TO_NOTHING)
        thinned = replace(decision, thresholds=rates, blocks=(), share=1.0, sizes={}, frequent={})
        ways = [thinned]
        if source.skips and len(slots.sheddable) == len(slots.all):
            blocks = [number for part in source.blocks(decision.offsets, before) for number, _ in part]
            ways += [replace(thinned, blocks=tuple(blocks[:1]))] if blocks else []
        for way in ways:
            rows = frame(way.blocks)
            if rows is None:
                return
            self._texts(way, before, session, catalog, rows, cheap=source.cheap_to_read)
        self._warm[decision.stream.lower()] = decision.version

    def _texts(
        self,
        way: Decision,
        before: Offsets | None,
        session: SparkSession,
        catalog: Catalog,
        rows: DataFrame,
        *,
        cheap: bool,
    ) -> None:
        shed, _ = self._load.shed(way, before)
        assert shed is not None
        compiled = self._load.compiled(way)[way.stream.lower()]
        self._executor.prepare(session, catalog, compiled.views)
        view = f"{safe_name(way.stream)}__batch"
        thin = shed_frame(rows, way.salt, threshold(NEXT_TO_NOTHING))
        numbers = shed.parameters(way.watermark, 0)
        texts = [*compiled.statements, *(Statement(n, sql) for n, sql in compiled.emits.items())]
        with self._executor.batch_view(session, thin, view, keep=len(texts) > 1 and not cheap):
            for text in texts:
                self._executor.collect(session, text.bind(view, numbers))
