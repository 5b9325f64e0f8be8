"""One turn of one stream: rows to partials, partials to panes, closed windows to answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from slackwater.language.contracts import Subset
from slackwater.plan.panes import AFTER_ALL, BEFORE_ALL
from slackwater.plan.slots import slots_of
from slackwater.plan.tables import Plan
from slackwater.planners.ruling import BLOCKS_AT_LEAST
from slackwater.planners.window_needs import need_bits
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.estimating import suspended_answers
from slackwater.runtime.filling import Filling
from slackwater.runtime.finishing import Finish
from slackwater.runtime.samples import Span
from slackwater.runtime.scanning import Scan
from slackwater.runtime.shedding import Shed
from slackwater.runtime.versions import handed_watermark
from slackwater.runtime.work import Work
from slackwater.spark.compile import compile_source
from slackwater.spark.execute import DataFrame
from slackwater.spark.statement import EXACT, Compiled, Shedding

GAPS = 20
"""Mean gaps between kept rows after which rows that were dropped are given up: a chance of e⁻²⁰."""
OVERSHOOT_AT_LEAST = 1_000_000
"""Microseconds: where hardly a row was kept, gaps tell nothing."""


class Turn(Work):
    """Executes a decision. All that it changes is in ``state`` and ``log``, for the commit to keep."""

    def run(self, frame: DataFrame | None) -> None:
        """Do the turn; ``delivered`` gives its answers."""
        stream = self.decision.stream
        if frame is not None:
            Scan(self).rows(stream, frame, self.decision.watermark, cheap=self.cheap)
            self._note_sample()
        elif self.shed is not None and self.shed.times is not None and self.shed.size:
            # nobody needed a row of it, and none was read
            self.counts.arrived = self.shed.arrived = self.shed.size
        if self.counts.latest is not None:
            if self.state.begun is None:
                self.state.begun = self._begun(self.counts.latest)
            self.state.latest = max(self.counts.latest, self.state.latest or self.counts.latest)
        recorded = self.decision.offsets.get("latest")
        if recorded is not None:
            # a run that is repeated: what it had seen of a sample is what new queries went by
            self.state.latest = int(recorded)
        if self.decision.kind == "end":
            self.samples.end()
        Finish(self).windows(stream, self._watermark())
        for plan in self.plan.steps_of_stream(stream):
            name = plan.step.name
            if not plan.step.aggregates or not self.plan.steps_on(name):
                continue
            rows = self.handed.pop(name.lower(), None)
            if rows is not None:
                Scan(self).handed(plan, rows)
            Finish(self).windows(name, handed_watermark(self.state, stream, self.plan, name))
        self._fill()
        if not self.drops.idle:
            self.state.schedule = self.drops.rest(self.state.watermarks, self.state.counted).to_json()

    def _fill(self) -> None:
        """Model the windows that were left out, for the queries that ask for it."""
        for name in [n for n in self.state.filling if n not in self.plan.steps]:
            del self.state.filling[name]
        for plan in self.plan.steps_of_stream(self.decision.stream):
            name = plan.step.name.lower()
            contract = self.plan.catalog.contracts.get(name)
            if not isinstance(contract, Subset) or contract.fill is None:
                self.state.filling.pop(name, None)
                continue
            closed = self.closed.get(plan.step.path.source.lower())
            left_out = self.drops.out(plan, *closed) if closed is not None and not self.drops.idle else ()
            filling = Filling.from_json(plan.step, contract.fill, self.state.filling.get(name))
            delivered = (answer for batch in self.to_fill.get(name, ()) for answer in batch.answers())
            since = self.state.since.get(name, BEFORE_ALL)
            starts = [int(start) for start in left_out if start >= since]
            ended = self.decision.kind == "end"
            made = list(filling.turn(delivered, starts, self.now(), ended=ended))
            if made:
                self.answers.append(partial(iter, made))
            self.state.filling[name] = filling.to_json()

    def _begun(self, latest: int) -> int:
        """Where the stream begins: its first time, or a later one where that is not known."""
        if self.state.latest is not None:
            # an earlier version, which took no note of it, has read it for some time
            return BEFORE_ALL
        if self.decision.offsets.get("from") is not None:
            return int(self.decision.offsets["from"])
        known = self.shed.earliest if self.shed is not None and self.shed.sees_all else None
        return latest if known is None else known

    def _note_sample(self) -> None:
        """Keep what a sampled batch has let through: its rows weigh what these counts say."""
        shed = self.shed
        if shed is None or not shed.drawn or shed.empty:
            return
        span = self._span(shed)
        if span is not None:
            self.samples.add_batches(self.step, shed.batches(self.step, span, self.decision.share))
        self._say_suspended(shed, span)

    def _span(self, shed: Shed) -> Span | None:
        """Where in time the batch lies, whatever was kept of it; None where no time is known yet.

        A trace knows, and so does a batch whose rows are all looked at. Otherwise rows may have been dropped
        before the first and after the last that was kept:

        - None that counts lies below the watermark. Where that is before all that is in the log, the stream
          has just begun, and nothing is taken to lie before its first row.
        - The gap between the last row kept and the end of the batch is as long as other gaps between kept
          rows: longer than twenty mean ones with a chance of e⁻²⁰, if rows come evenly. Where blocks are
          read there are only as many gaps as blocks. As rows need not come evenly, nor in order, it is taken
          to be at least the lateness of the stream, and a second.
        - A batch that kept nothing lies about the latest time that was known before it.
        """
        offsets, latest, before = self.decision.offsets, self.counts.latest, self.state.latest
        if offsets.get("from") is not None and offsets.get("to") is not None:
            return Span(int(offsets["from"]), int(offsets["to"]) - 1, int(offsets["to"]) - 1)
        earliest = shed.earliest
        if earliest is not None and latest is not None and shed.sees_all:
            return Span(earliest, latest, latest)
        low = self._low(earliest)
        overshoot = max(OVERSHOOT_AT_LEAST, self.lateness)
        if earliest is None or latest is None:
            if low is None or before is None:
                return None
            reached = max(before, low) + overshoot
            return Span(low, reached, reached)
        # a row alone has come some time after those before it
        drawn = shed.drawn_rows
        since = min(earliest, before) if drawn <= 1 and before is not None else earliest
        gaps = min(drawn, BLOCKS_AT_LEAST) if self.decision.blocks else drawn
        overshoot = max(overshoot, GAPS * (latest - since) // max(gaps, 1))
        return Span(low if low is not None else earliest, min(latest + overshoot, AFTER_ALL), latest)

    def _low(self, earliest: int | None) -> int | None:
        """The least time of a row of the batch that is not late; None where there is no telling."""
        watermark = self.decision.watermark
        if watermark <= BEFORE_ALL:
            return earliest
        tables = self.plan.tables
        lows = [
            file.low
            for name, files in self.state.files.items()
            # panes of windows over rows are no times
            if name not in tables or not tables[name].tuples
            for file in files
        ]
        lows += [earliest] if earliest is not None else []
        return max(watermark, min(lows, default=watermark))

    def _say_suspended(self, shed: Shed, span: Span | None) -> None:
        """Tell the readers of rows that they get none of this batch; windows say it when they close."""
        for name in self.compiled[self.decision.stream.lower()].emits:
            if not shed.suspended(self.slots.by_step[name.lower()]):
                continue
            start, end = (span.low, span.high + 1) if span is not None else (0, 0)
            step = self.plan.steps[name.lower()].step
            made = list(suspended_answers(step, np.array([start]), np.array([end]), self.now()))
            if span is None:
                made = [replace(batch, window_start=None, window_end=None) for batch in made]
            self.answers.append(partial(iter, made))

    def delivered(self) -> Iterator[AnswerBatch]:
        """The answers of the turn, from the first, each time it is called."""
        return chain.from_iterable(read() for read in self.answers)

    def _watermark(self) -> int:
        """Up to where the stream is complete after this turn; it never goes back."""
        before = self.state.watermark(self.decision.stream)
        if self.decision.kind != "batch":
            return max(before, self.decision.watermark)
        recorded = self.decision.offsets.get("closed")
        if recorded is not None:
            # a run that is repeated closes windows where it did, so that the same rows are late
            return max(before, int(recorded))
        reached = before if self.state.latest is None else self.state.latest - self.lateness
        promised = self.decision.offsets.get("to")
        if promised is not None and self.state.latest is not None:
            # a trace is read in order: nothing before the end of its slice is still to come
            reached = max(reached, int(promised) - self.lateness)
        return max(before, reached)


def compile_stream(plan: Plan, stream: str, shedding: Shedding = EXACT) -> dict[str, Compiled]:
    """The statements of a stream and of every step over it that others read."""
    compiled = {stream.lower(): compile_source(plan, stream, stream=True, shedding=shedding)}
    for step in plan.steps_of_stream(stream):
        name = step.step.name
        if step.step.aggregates and plan.steps_on(name):
            nested = EXACT
            if shedding.leaves_out:
                slots = slots_of(plan, name)
                nested = Shedding(slots, tested=False, bits=need_bits(plan, slots), leaves_out=True)
            compiled[name.lower()] = compile_source(plan, name, stream=False, shedding=nested)
    return compiled
