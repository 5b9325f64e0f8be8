"""A run, to be looked at: one frame each second, made beside the pipeline and not by it."""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from slackwater.errors import SlackwaterError
from slackwater.language.statements import ExplainFormat
from slackwater.plan.catalog import Catalog
from slackwater.plan.explain import explain
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import Answer
from slackwater.runtime.batch_times import BatchTimes
from slackwater.runtime.insight import Insight
from slackwater.runtime.json_values import to_micros
from slackwater.runtime.session import Session
from slackwater.runtime.status import Status
from slackwater.service.alerting import alert_frames
from slackwater.service.api_models import Statistics
from slackwater.service.capture import Capture
from slackwater.service.control import LiveControl
from slackwater.service.folding import moment_of
from slackwater.service.frame_log import FrameLog
from slackwater.service.framing import Framer, Moving
from slackwater.service.keeping import AnswerKeeper
from slackwater.service.models import Frame, Knobs, Mode, Moment, Phase
from slackwater.service.statistics_log import StatisticsLog
from slackwater.service.statistics_out import statistics_of
from slackwater.service.watched import Asked, Dials, Newest
from slackwater.spark.execute import first_line

EVERY_S = 1.0
MOMENTS = 3_600
FRAME_BYTES = 16 * 2**20
"""Of frames that are kept for readers who come back: the newest that fit."""
UNFRAMED = 1_000
"""Batches of answers that wait for the next frame where one cannot be made: the newest."""
SPARING = 20.0
"""What is known of the load is worked out every so many times as long as that takes."""
logger = logging.getLogger(__name__)


class Live:
    """A session that runs, as `Watched`. Make it before `Session.start`, and `start` it after."""

    mode: Mode = "live"

    def __init__(
        self,
        session: Session,
        *,
        dials: Dials | None = None,
        record: Path | None = None,
        name: str = "",
        every: float = EVERY_S,
    ) -> None:
        self.session = session
        self.dials = dials
        # no part of a run has a number that an earlier part of it had, however many come in a second
        self.keeper = AnswerKeeper(number=to_micros(session.clocks.now()))
        self._every = every
        self._record = record
        self._log: FrameLog | None = None
        self._statistics_log: StatisticsLog | None = None
        self._capture = Capture(session.clocks)
        session.watchers.append(self._capture.watch)
        # so that no frame of a run has a number that an earlier part of it had: readers come back with it
        self._framer = Framer(number=int(session.clocks.now().timestamp()), name=name)
        self._lock = threading.Lock()
        self._unframed: list[tuple[int, AnswerBatch]] = []
        """Answers that a frame was to have that could not be made, with the versions of their turns."""
        self._moving: Moving | None = None
        self._whole: tuple[Frame, bytes] | None = None
        self._frames: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._moments: deque[Moment] = deque(maxlen=MOMENTS)
        self._insight = Insight()
        self._insight_next = 0.0
        self._explained: dict[tuple[int, ExplainFormat, str | None], str] = {}
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.control = LiveControl(session, lambda: self._capture.glimpse, dials)
        self.listeners: list[Callable[[], None]] = []
        """Called after each frame, in the thread that makes them."""
        self.advance()

    # making frames

    def start(self) -> None:
        """Make frames from now on, in a thread of its own; of a recorded run they are kept beside it."""
        # the frame of before the start knows neither the run nor what its state has in place of the file
        self._try_advance()
        # not before: the folder of a recording is made when the session starts
        if self._record is not None:
            self._log = FrameLog(self._record)
            self._statistics_log = StatisticsLog(self._record)
            # what follows says only what has changed
            self._log.append(self.whole())
        self._thread = threading.Thread(target=self._run, daemon=True, name="slackwater-frames")
        self._thread.start()

    def stop(self) -> None:
        """Make the last frame, and no more."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        self.advance()
        if self._log is not None:
            self._log.flush()

    def _run(self) -> None:
        while not self._stopping.wait(self._every):
            self._try_advance()

    def _try_advance(self) -> None:
        try:
            self.advance()
        except Exception:
            # a picture that cannot be made must not end a run; the next one may be
            logger.exception("a frame could not be made")

    def advance(self) -> None:
        """Make the next frame."""
        # answers first: the newest version has the queries of all that were made until then
        captured = self._capture.take()
        version, catalog = self._newest()
        with self._lock:
            gone = self._framer.declare(catalog)
        self.keeper.forget(gone)
        for batch in self._own(captured):
            self.keeper.take(batch)
        self.keeper.publish()
        waiting = [*self._unframed, *captured]
        # the next frame has them where this one cannot be made
        self._unframed = waiting[-UNFRAMED:]
        # may take a while, and readers need not wait for it
        moving = self._look(version, catalog)
        batches = list(self._own(waiting))
        self._unframed = []
        with self._lock:
            frame = self._framer.frame(moving, batches)
            self._moving, self._whole = moving, None
        try:
            data = frame.model_dump_json().encode()
        except Exception:
            self._framer.tear()
            raise
        with self._lock:
            self._frames.append((frame.number, data))
            self._bytes += len(data)
            while self._bytes > FRAME_BYTES and len(self._frames) > 1:
                self._bytes -= len(self._frames.popleft()[1])
            self._moments.append(moment_of(frame))
        if self._log is not None:
            self._log.append(data)
        if (log := self._statistics_log) is not None and self._insight.streams and log.due(moving.at):
            log.append(moving.at, self.statistics())
        for listen in self.listeners:
            listen()

    def _newest(self) -> tuple[int, Catalog]:
        """The newest version of the query set, and what it declares."""
        engine = self._capture.engine
        version = engine.versions.latest if engine is not None else 0
        if engine is None or not version:
            return 0, self.session.catalog
        return version, engine.versions.plan(version).catalog

    def _own(self, captured: Iterable[tuple[int, AnswerBatch]]) -> Iterator[AnswerBatch]:
        """The answers that have come, but for those of queries that are others by now: turns may end late."""
        engine = self._capture.engine
        for version, batches in groupby(captured, itemgetter(0)):
            assert engine is not None
            made_under = engine.versions.plan(version).catalog
            yield from self._framer.definitions.own(made_under, map(itemgetter(1), batches))

    def _look(self, version: int, catalog: Catalog) -> Moving:
        session, engine = self.session, self._capture.engine
        status = session.status()
        quiet = status.quiet
        decided = dict(engine.decided) if engine is not None else {}
        broke = engine.error if engine is not None else None
        return Moving(
            at=session.clocks.now(),
            phase=_phase(status, broke),
            run=engine.alerts.run if engine is not None else "",
            version=version,
            catalog=catalog,
            status=status,
            insight=self._look_at_load(),
            # one that ended or fell silent while it shed sheds no more
            level=max((d.level for name, d in decided.items() if name.lower() not in quiet), default=0.0),
            agents=self._capture.agents,
            alerts=alert_frames(engine),
            knobs=self.knobs(),
            message=_why(broke) or self.trouble,
        )

    @property
    def trouble(self) -> str:
        """What cannot be recorded at present, in words; empty where all of it is."""
        logs = [log for log in (self._log, self._statistics_log) if log is not None]
        return next((log.trouble for log in logs if log.trouble), "")

    def _look_at_load(self) -> Insight:
        now = self.session.clocks.seconds()
        if self._capture.glimpse is not None and now >= self._insight_next:
            self._insight = self._capture.glimpse.insight()
            self._insight_next = now + SPARING * (self.session.clocks.seconds() - now)
        return self._insight

    # being watched

    def whole(self) -> bytes:
        """The newest frame, whole, as JSON; made once for all who ask."""
        return self._made_whole()[1]

    def frame(self) -> Frame:
        return self._made_whole()[0]

    def _made_whole(self) -> tuple[Frame, bytes]:
        with self._lock:
            if self._whole is None:
                assert self._moving is not None
                frame = self._framer.whole(self._moving)
                self._whole = (frame, frame.model_dump_json().encode())
            return self._whole

    @property
    def number(self) -> int:
        return self._framer.number

    def frames(self, after: int, limit: int) -> Sequence[bytes]:
        with self._lock:
            # one that could not be written as JSON has a number too
            start = bisect_right(self._frames, after, key=itemgetter(0))
            return [data for _, data in islice(self._frames, start, start + limit)]

    def kept_from(self) -> int:
        """The number of the oldest frame that is kept."""
        with self._lock:
            return self._frames[0][0] if self._frames else 0

    def moments(self, limit: int) -> Sequence[Moment]:
        with self._lock:
            return list(self._moments)[-limit:]

    def catalog(self) -> Catalog:
        return self.session.catalog

    def declaring(self, query: str, version: int | None = None) -> Catalog:
        return self.session.catalog

    def answers(self, query: str, asked: Asked) -> Sequence[Answer]:
        return self.keeper.answers(query, asked)

    def latest(self, query: str, limit: int, search: str = "", until: datetime | None = None) -> Newest:
        return self.keeper.latest(query, limit, search, until)

    def explain(self, format: ExplainFormat, name: str | None) -> str:
        version = self._moving.version if self._moving is not None else 0
        key = (version, format, None if name is None else name.lower())
        found = self._explained.get(key)
        if found is None:
            found = explain(self.session.plan, format, name)
            self._explained = {k: v for k, v in self._explained.items() if k[0] == key[0]} | {key: found}
        return found

    def statistics(self, at: datetime | None = None) -> Statistics:
        status = self.session.status()
        return statistics_of(self._insight, status.ended, status.quiet)

    def decisions(self, stream: str | None, limit: int) -> Sequence[Mapping[str, Any]]:
        return self._capture.newest(stream, limit)

    def batch_times(self) -> Mapping[str, BatchTimes]:
        engine = self._capture.engine
        return engine.board.batch_times() if engine is not None else {}

    def knobs(self) -> Knobs | None:
        return self.dials.knobs() if self.dials is not None else None


def _phase(status: Status, broke: BaseException | None) -> Phase:
    if broke is not None:
        return "failed"
    states = {stream.state for stream in status.streams}
    if not states:
        return "starting"
    if states == {"ended"}:
        return "ended"
    return "stopped" if states <= {"ended", "stopped"} else "running"


def _why(broke: BaseException | None) -> str:
    """What broke a run, as the command line says it; empty where nothing has."""
    if broke is None or isinstance(broke, SlackwaterError):
        return "" if broke is None else str(broke)
    said = first_line(broke)
    return f"{type(broke).__name__}: {said}" if said else type(broke).__name__
