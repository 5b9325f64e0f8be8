"""The loop: a batch arrives, is decided, recorded, run and committed; one turn at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from slackwater.errors import RunError
from slackwater.language.contracts import Contract
from slackwater.plan.catalog import Catalog
from slackwater.plan.functions import Functions
from slackwater.plan.model import TimeWindow
from slackwater.plan.panes import AFTER_ALL, last_closed
from slackwater.planners.decision import Decision, TurnKind, exact
from slackwater.planners.ruling import Ruler
from slackwater.runtime.alerts.desk import Alerts
from slackwater.runtime.board import Board
from slackwater.runtime.bounds.keeper import BoundsKeeper
from slackwater.runtime.clocks import Clocks, no_fault
from slackwater.runtime.current.keeper import Keeper, Keeping
from slackwater.runtime.governor import Governor
from slackwater.runtime.journal import Journal, remove
from slackwater.runtime.load_control import LoadControl
from slackwater.runtime.log import PaneLog
from slackwater.runtime.outlets import Outlets
from slackwater.runtime.recorder import Recorder
from slackwater.runtime.reporting import Reporter
from slackwater.runtime.samples import SampleLog
from slackwater.runtime.sinks import Sink
from slackwater.runtime.state import RunState, StreamState
from slackwater.runtime.tasting import Tasting
from slackwater.runtime.turn import Turn
from slackwater.runtime.versions import Versions, adopt
from slackwater.runtime.warming import Answered, Warming
from slackwater.spark.agents_source import AgentsSource
from slackwater.spark.execute import DataFrame, Executor, SparkSession
from slackwater.spark.source import StreamSource

logger = logging.getLogger(__name__)
IDLE_MICROS = 10_000_000
"""How long a stream may be silent before the clock moves its watermark, where IDLE does not say."""

LEARNT_EVERY = 50
"""Turns after which what is known of the load is kept on disk."""


class Engine:
    """All streams of a run. Turns are taken under one lock, since they share Spark and the sinks."""

    def __init__(
        self,
        executor: Executor,
        journal: Journal,
        functions: Functions,
        sinks: Sequence[Sink],
        *,
        clocks: Clocks | None = None,
        driver_rows: int = 100_000,
        keeping: Keeping | None = None,
        salt: int = 0,
        ruler: Ruler | None = None,
        recorder: Recorder | None = None,
        tick_budget: Callable[[], float] | None = None,
        alerting: bool = True,
        fault: Callable[[str], None] = no_fault,
    ) -> None:
        self.tick_budget = tick_budget
        """Seconds that a batch may take before evaluations are missed; None: as long as they take."""
        self.executor = executor
        self.journal = journal
        self.versions = Versions(journal, functions)
        self.board = Board()
        self.error: BaseException | None = None
        self.lock = threading.RLock()
        self._outlets = Outlets([*sinks, *([recorder] if recorder is not None else [])])
        self._clocks = clocks or Clocks()
        self._driver_rows = driver_rows
        self._keeping = keeping or Keeping()
        self._salt = salt
        self._recorder = recorder
        self.decided: dict[str, Decision] = {}
        """By stream: the decision of the last batch."""
        self.after = 0.0
        """Seconds that the last batch took after its time was taken."""
        self.version = 0
        """Of the query set: the one that the last turn obeyed."""
        self._learnt = 0.0
        self._fault = fault
        kept = journal.last_commit()
        self.resumed = kept is not None
        self.state = RunState.from_json(kept) if kept is not None else RunState()
        self.sources: dict[str, StreamSource] = {}
        learnt = journal.statistics()
        if isinstance(ruler, Governor) and learnt is not None:
            ruler.go_on(learnt)
        self.load = LoadControl(executor, self.versions.plan, self.sources, ruler, salt)
        self._warming = Warming(self.load, executor, self._clocks.seconds)
        self._logs: dict[str, PaneLog] = {}
        self._samples: dict[str, SampleLog] = {}
        self._current: dict[str, Keeper] = {}
        self.bounds: dict[str, BoundsKeeper] = {}
        """By stream that agents send."""
        self._heard: dict[str, float] = {}
        self._waiting: set[str] = set()
        self._finished = False
        self._reporter = Reporter(self.board, self._clocks)
        self.tasting = Tasting(self._clocks)
        self.alerts = Alerts(journal.root / "alerts", self._clocks, sends=alerting)
        self.observers: list[Callable[[Engine], None]] = []
        """Called at the end of each turn, under the lock: those who watch copy what they need. One that fails
    does so in the log alone."""

    @property
    def catalog(self) -> Catalog:
        return self.versions.plan(self.versions.latest).catalog

    def check_sinks(self) -> None:
        """Raise where answers could not be written, before anything is begun: a stream may be taken over."""
        self._outlets.check(self.state.marks)

    def open(self, catalog: Catalog, script: list[str]) -> None:
        """Make a catalog the latest version where it is not, and go on from the last commit."""
        if catalog != self.catalog or script != self.versions.script or self.versions.latest == 0:
            self.versions.propose(catalog, script)
        for stream in catalog.streams.values():
            state = self.state.streams.setdefault(stream.name.lower(), StreamState())
            self._logs[stream.name.lower()] = PaneLog(self.journal, state)
            self._samples[stream.name.lower()] = SampleLog(self.journal, state, stream.name)
            self._current[stream.name.lower()] = Keeper(
                self.journal, state, stream.name, self.versions.plan, self._keeping, self._clocks.seconds
            )
        self.journal.sweep({path for log in self._logs.values() for path in log.live()})
        if self._recorder is not None:
            self._recorder.prepare(self.state.step, catalog)
        self._outlets.open(self.state.marks)
        self.alerts.open(self.state.alerts, self.state.step, catalog)
        self._commit_marks()
        self._fault("opened")
        self.journal.write_commit(self.state.step, self.state.to_json())
        self.board.queries(self._contracts(catalog))
        for state in self.state.streams.values():
            others = self.versions.others(state.version, self.versions.latest)
            self.board.resumed({name: n for name, n in state.answers.items() if name not in others})

    def _contracts(self, catalog: Catalog) -> dict[str, Contract]:
        return {s.name: catalog.contracts[n] for n, s in catalog.queries.items()}

    def change(self, catalog: Catalog) -> int:
        """Take a changed query set; it takes effect at each stream's next turn."""
        # without the engine's lock: a turn may wait for a reader of answers, and that reader may be here
        number = self.versions.propose(catalog)
        self.alerts.declare(catalog)
        self.board.queries(self._contracts(catalog), self.versions.others(number - 1, number))
        return number

    def recover(self, stream: str) -> None:
        """Finish a tick or an end that was decided and not committed; a batch comes again by itself."""
        with self.lock:
            state = self.state.streams[stream.lower()]
            # a stream that never speaks again must close its windows too
            self.hear(stream)
            pending = self.journal.record(stream, state.turn + 1)
            if pending is not None and pending.kind != "batch":
                self._unbidden(pending)

    def hear(self, stream: str) -> None:
        """The stream is not silent: the time of silence counts from now."""
        self._heard[stream.lower()] = self._clocks.seconds()

    def batch(self, stream: str, batch: DataFrame, number: int) -> None:
        """Spark's call for each micro-batch of a stream."""
        self._waiting.add(stream.lower())
        with self.lock:
            self._waiting.discard(stream.lower())
            began = self._clocks.seconds()
            state = self.state.streams[stream.lower()]
            done = state.ended or number <= state.batch
            if self.error is not None or (self._finished and not done):
                # to return would tell Spark that the batch is done, and a restart would pass over its rows
                raise RunError("the run has stopped") from self.error
            if done:
                return
            with self.board.running(stream, self._clocks.now()):
                self._taken(stream, state, batch, number, began)

    def _taken(self, stream: str, state: StreamState, batch: DataFrame, number: int, began: float) -> None:
        """A batch that is taken: decided, recorded, run and committed."""
        try:
            source = self.sources[stream.lower()]
            decision = self.journal.record(stream, state.turn + 1)
            if decision is None or decision.batch != number:
                decision = self._decide(stream, state, number)
                self.journal.write_record(decision)
            session, before = batch.sparkSession, state.offsets
            # a run that goes on has the names of agents' keys from its bounds
            self._bounds(stream, self.versions.plan(decision.version).catalog)
            frame = partial(source.frame, session, batch, decision.offsets, before)
            if self._recorder is not None:
                self._recorder.take(decision, frame())
            turn = self._turn(decision, session, partial(frame, blocks=decision.blocks), began)
            self.after = self._clocks.seconds() - self._learnt
            plan, seconds = self.versions.plan(decision.version), self._learnt - began
            self._warming.after(Answered(decision, before, source, session, plan, frame, seconds))
            self.tasting.after(plan.catalog.streams[stream.lower()], frame, turn.counts.arrived)
            source.release(decision.offsets)
            if source.ended(decision.offsets):
                self._end(stream)
        except BaseException as error:
            self.error = error
            raise

    def _decide(self, stream: str, state: StreamState, number: int) -> Decision:
        offsets = self.sources[stream.lower()].offsets(number, state.offsets)
        offsets = offsets or self.journal.spark_offsets(stream, number)
        version = self.versions.latest
        plan = self.versions.plan(version)
        grouped = [
            id_
            for step in plan.steps_of_stream(stream)
            for id_ in step.tables
            if plan.tables[id_].grouped and plan.tables[id_].kind == "partials"
        ]
        sizes = {id_: state.sizes.get(id_) for id_ in dict.fromkeys(grouped)}
        watermark = state.watermark(stream)
        decision = exact(
            stream, state.turn + 1, number, version, watermark, offsets, sizes, self._driver_rows
        )
        # a stream that is read as fast as it goes has all the time that its evaluations take
        paced = self.tick_budget is not None and not self.sources[stream.lower()].as_fast_as_it_goes
        seconds = self.tick_budget() if paced and self.tick_budget is not None else None
        decision = replace(decision, deferral=self._current[stream.lower()].rules(seconds))
        return self.load.ruled(decision, state)

    def _unfed(self, stream: str, kind: TurnKind, watermark: int) -> Decision:
        """The decision of a turn without rows; windows are left out as was decided."""
        state = self.state.streams[stream.lower()]
        version, schedule = self.versions.latest, dict(state.schedule)
        deferral = self._current[stream.lower()].rules(None, fed=False)
        turn = state.turn + 1
        return Decision(stream, turn, kind, version, watermark, schedule=schedule, deferral=deferral)

    def _end(self, stream: str) -> None:
        decision = self._unfed(stream, "end", AFTER_ALL)
        self.journal.write_record(decision)
        self._turn(decision, self.executor.session)
        self._warming.end(stream)

    def rest(self, stream: str, after: float) -> None:
        """A stream is idle where its source has nothing, and no batch of it has come for some seconds."""
        # a batch that waits for its turn is not silence
        if stream.lower() in self._waiting or not self._reporter.rest(stream, after):
            return
        if isinstance(self.load.ruler, Governor):
            self.load.ruler.rest(stream)

    def tick(self, stream: str) -> bool:
        """Close windows of a stream that has fallen silent; whether there were any to close."""
        with self.lock:
            state = self.state.streams[stream.lower()]
            declared = self.catalog.streams[stream.lower()]
            heard = self._heard.get(stream.lower())
            if state.ended or state.latest is None or heard is None or self.error is not None:
                return False
            # a batch that waits for its turn is not silence
            if self.sources[stream.lower()].tells_time or stream.lower() in self._waiting:
                return False
            silent = int((self._clocks.seconds() - heard) * 1_000_000)
            target = state.latest + silent - declared.lateness
            if silent < (declared.idle or IDLE_MICROS) or target <= state.watermark(stream):
                return False
            # an alert may wait for a window without rows, though none is open that has some
            awaited = () if any(state.files.values()) else self.alerts.awaited(stream, self.catalog)
            if not (any(state.files.values()) or awaited):
                return False
            waits = self._current[stream.lower()].wakes(target)
            if not waits and not self._closes_some(stream, state, target, awaited):
                return False
            self._unbidden(self._unfed(stream, "tick", target), recorded=False)
            return True

    def move(self, stream: str, watermark: int) -> None:
        """Move the watermark of a stream, as the clock once did in a run that is now replayed."""
        with self.lock:
            self._unbidden(self._unfed(stream, "tick", watermark), recorded=False)

    def _closes_some(
        self, stream: str, state: StreamState, target: int, awaited: Sequence[TimeWindow]
    ) -> bool:
        """Whether a window over time would close if the watermark moved to a target."""
        closed = state.watermark(stream)
        steps = self.versions.plan(self.versions.latest).steps_of_stream(stream)
        windows = [s.step.window for s in steps] if any(state.files.values()) else awaited
        return any(
            isinstance(w, TimeWindow) and last_closed(w, target) > last_closed(w, max(closed, -target))
            for w in windows
        )

    def _unbidden(self, decision: Decision, *, recorded: bool = True) -> None:
        """A turn that no batch has called for; what breaks it stops the run, as in a batch."""
        try:
            if not recorded:
                self.journal.write_record(decision)
            self._turn(decision, self.executor.session)
        except BaseException as error:
            self.error = error
            raise

    def _turn(
        self,
        decision: Decision,
        session: SparkSession,
        frame: Callable[..., DataFrame | None] = lambda times: None,
        began: float | None = None,
    ) -> Turn:
        self._fault("recorded")
        began = self._clocks.seconds() if began is None else began
        stream = decision.stream
        state = self.state.streams[stream.lower()]
        plan = self.versions.plan(decision.version)
        self.version = decision.version
        log = self._logs[stream.lower()]
        dropped = self.versions.alerts_dropped(state.version, decision.version)
        if state.version != decision.version:
            for name in self.versions.others(state.version, decision.version):
                # another query of the same name has answers of its own
                state.answers.pop(name, None)
            adopt(state, stream, self.versions.plan(state.version), plan, decision.version)
            # a run that is repeated: where a query could begin depended on what had been dropped
            state.since.update(decision.offsets.get("since", {}))
        log.adopt(plan, stream)
        compiled = self.load.compiled(decision)
        drops = self.load.drops(decision)
        parts = self.load.parts(decision, state, drops.schedule)
        shed, meter = self.load.shed(decision, state.offsets, drops, parts)
        for source in compiled.values():
            self.executor.prepare(session, plan.catalog, source.views)
        step = self.state.step + 1
        lateness = plan.catalog.streams[stream.lower()].lateness
        turn = Turn(
            plan,
            compiled,
            decision,
            step,
            state,
            log,
            self.journal,
            self.executor,
            session,
            self._clocks.now,
            lateness,
            self.sources[stream.lower()].cheap_to_read,
            self.load.slots(stream, decision.version),
            self._samples[stream.lower()],
            drops,
            shed,
            meter,
        )
        latest = state.latest
        bounds = self._bounds(stream, plan.catalog)
        if bounds is not None:
            # what agents have filtered until now is known before any window is closed over it
            bounds.turn(turn)
        turn.run(frame(times=shed.times if shed is not None else None))
        self._current[stream.lower()].turn(turn, turn.latest)
        self._fault("partials")
        if self._recorder is not None:
            arrived, now = turn.counts.arrived, self._clocks.now()
            self._recorder.note(decision, step, state, arrived, now, plan.catalog, self.executor)
        counts: dict[str, int] = {}
        delivering = self._clocks.seconds()
        others = partial(self._others_than_of, decision.version)
        watched = self.board.watching(turn.delivered(), counts, others)
        self._outlets.write(step, watched, turn.delivered, partial(self._fault, "answers"))
        delivering = self._clocks.seconds() - delivering
        self.alerts.turn(step, stream, plan.catalog, turn.delivered, dropped, turn.stretches)
        self._fault("alerts")
        self._commit(decision, state, turn, step, counts)
        if decision.kind == "end":
            self._reporter.finished(stream)
            if isinstance(self.load.ruler, Governor):
                # before those who watch look at it, and of an end that a kill had left too
                self.load.ruler.end(stream)
        else:
            self._reporter.note(turn, self.sources[stream.lower()], began, bounds.told if bounds else None)
            self._learnt = self._clocks.seconds()
            self.load.learn(decision, turn, latest, self._learnt - began)
            keeper = self._current[stream.lower()]
            keeper.learn(self._learnt - began, delivering, sum(counts.values()))
            self.board.missed(keeper.missed)
        self._fault("committed")
        self.alerts.committed()
        log.bury()
        self._samples[stream.lower()].bury()
        self._current[stream.lower()].bury()
        if bounds is not None:
            bounds.committed()
        for leftover in self.journal.outputs.iterdir():
            remove(leftover)
        if step % LEARNT_EVERY == 0:
            self._keep_learnt()
        self._observed()
        return turn

    def _observed(self) -> None:
        for observe in self.observers:
            try:
                observe(self)
            except Exception:
                # the turn is committed: that it cannot be looked at must not end the run
                logger.exception("a turn could not be looked at")

    def _bounds(self, stream: str, catalog: Catalog) -> BoundsKeeper | None:
        """The bounds of a stream that agents send, as they were left; None for other streams."""
        name, source = stream.lower(), self.sources[stream.lower()]
        if name not in self.bounds and isinstance(source, AgentsSource):
            state = self.state.streams[name]
            self.bounds[name] = BoundsKeeper(self.journal, state, catalog.streams[name], source, self._salt)
        return self.bounds.get(name)

    def _others_than_of(self, version: int) -> Collection[str]:
        """Queries that have been dropped and created as others since a version."""
        return self.versions.others(version, self.versions.latest)

    def _keep_learnt(self) -> None:
        """Keep what is known of the load for a run that goes on from this one."""
        if isinstance(self.load.ruler, Governor):
            self.journal.write_statistics(self.load.ruler.to_json())

    def _commit(
        self, decision: Decision, state: StreamState, turn: Turn, step: int, answers: dict[str, int]
    ) -> None:
        counts = turn.counts
        state.turn = decision.turn
        if decision.batch is not None:
            state.batch = decision.batch
            state.offsets = dict(decision.offsets)
            self.decided[decision.stream.lower()] = decision
        state.arrived += counts.arrived
        state.late += counts.late
        state.unreadable += counts.unreadable
        state.ended = state.ended or decision.kind == "end"
        for query, number in answers.items():
            state.answers[query] = state.answers.get(query, 0) + number
        self.state.step = step
        self._commit_marks()
        self.journal.write_commit(step, self.state.to_json())
        self.journal.forget_records(decision.stream, decision.turn)
        if counts.arrived:
            self._heard[decision.stream.lower()] = self._clocks.seconds()

    def _commit_marks(self) -> None:
        self.state.marks = self._outlets.marks()
        self.state.alerts = self.alerts.mark()

    def finish(self) -> None:
        """Let the turn that runs come to its end, and take no more."""
        with self.lock:
            self._finished = True

    def close(self) -> None:
        self._outlets.close()
        self._keep_learnt()
        self.journal.close()
