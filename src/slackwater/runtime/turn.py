"""One turn of one stream: rows to partials, partials to panes, closed windows to answers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from slackwater.plan.tables import Plan
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.finishing import Finish
from slackwater.runtime.scanning import Scan
from slackwater.runtime.versions import handed_watermark
from slackwater.runtime.work import Work
from slackwater.spark.compile import compile_source
from slackwater.spark.execute import DataFrame
from slackwater.spark.statement import EXACT, Compiled, Shedding


class Turn(Work):
    """Executes a decision. All that it changes is in ``state`` and ``log``, for the commit to keep."""

    def run(self, frame: DataFrame | None) -> None:
        """Do the turn; ``delivered`` gives its answers."""
        stream = self.decision.stream
        if frame is not None:
            Scan(self).rows(stream, frame, self.decision.watermark, cheap=self.cheap)
            self._note_sample()
        if self.counts.latest is not None:
            self.state.latest = max(self.counts.latest, self.state.latest or self.counts.latest)
        recorded = self.decision.offsets.get("latest")
        if recorded is not None:
            # a run that is repeated: what it had seen of a sample is what new queries went by
            self.state.latest = int(recorded)
        Finish(self).windows(stream, self._watermark())
        for plan in self.plan.steps_of_stream(stream):
            name = plan.step.name
            if not plan.step.aggregates or not self.plan.steps_on(name):
                continue
            rows = self.handed.pop(name.lower(), None)
            if rows is not None:
                Scan(self).handed(plan, rows)
            Finish(self).windows(name, handed_watermark(self.state, stream, self.plan, name))

    def _note_sample(self) -> None:
        """Keep what a sampled batch has let through: its rows weigh what these counts say."""
        shed, counts = self.shed, self.counts
        if shed is None or not shed.drawn:
            return
        # a trace knows from when to when the batch is, whatever was kept of it
        low, high = self.decision.offsets.get("from"), self.decision.offsets.get("to")
        if low is None or high is None:
            if shed.earliest is None or counts.latest is None:
                return
            low, high = shed.earliest, counts.latest + 1
        self.samples.add_batches(
            self.step, shed.batches(self.step, int(low), int(high) - 1, self.decision.share)
        )

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
        if step.step.aggregates and plan.steps_on(step.step.name):
            compiled[step.step.name.lower()] = compile_source(plan, step.step.name, stream=False)
    return compiled
