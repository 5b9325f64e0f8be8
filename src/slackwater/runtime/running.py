"""One run of a session, from start to stop: sources, Spark's streams and the clock that ticks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from slackwater.errors import RunError
from slackwater.language.statements import CreateStream
from slackwater.plan.catalog import Catalog
from slackwater.runtime.clocks import Clocks
from slackwater.runtime.engine import Engine
from slackwater.runtime.settings import Settings
from slackwater.runtime.sinks import IteratorSink
from slackwater.spark.agents_source import AgentsSource
from slackwater.spark.execute import SparkSession
from slackwater.spark.source import StreamSource
from slackwater.spark.sources import open_source
from slackwater.spark.streaming import Running, start_stream

OpenSource = Callable[[SparkSession, CreateStream], StreamSource]
TICK_S = 0.25
IDLE_S = 10.0
IDLE_INTERVALS = 3
"""A stream is idle after so many seconds without a batch, and no fewer intervals than these."""


class Run:
    """The engine and all that calls it: streams hand it batches, the ticker tells it of silence."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        clocks: Clocks,
        sources: Mapping[str, OpenSource],
        iterator: IteratorSink,
    ) -> None:
        self.engine = engine
        self._settings = settings
        self._clocks = clocks
        self._sources = sources
        self._iterator = iterator
        self._catalog = Catalog()
        self._streams: dict[str, Running] = {}
        self._stopping = threading.Event()
        self._ticker: threading.Thread | None = None

    @property
    def stopped(self) -> bool:
        return self._stopping.is_set()

    def start(self, read: Sequence[str], catalog: Catalog, script: list[str], *, manual: bool) -> None:
        """Open the sources of the streams that are read, finish what a kill left, and let Spark begin."""
        self._catalog = catalog
        engine = self.engine
        try:
            engine.check_sinks()
            for name in read:
                engine.sources[name] = self._open(name)
            engine.open(catalog, script)
            for name in read:
                engine.recover(name)
                if not manual:
                    self._begin(name)
        except BaseException:
            self.stop()
            raise
        if not manual:
            engine.alerts.start()
            self._ticker = threading.Thread(target=self._tick, daemon=True, name="slackwater-ticker")
            self._ticker.start()

    def change(self, catalog: Catalog) -> None:
        """Take a changed query set, and start the streams that it is the first to read."""
        for step in catalog.queries.values():
            name = step.stream.lower()
            if name not in self.engine.sources:
                self.engine.sources[name] = self._open(name)
                self.engine.recover(name)
                if self._ticker is not None:
                    self._begin(name)
        self.engine.change(catalog)
        self._catalog = catalog

    def _open(self, name: str) -> StreamSource:
        spark = self.engine.executor.session
        declared = self._catalog.streams[name]
        if name in self._sources:
            return self._sources[name](spark, declared)
        source = open_source(
            spark,
            declared,
            self.engine.journal.source(name),
            rows_per_batch=self._settings.rows_per_batch,
            clock=self._clocks.seconds,
        )
        state = self.engine.state.streams.get(name)
        if isinstance(source, AgentsSource) and state is not None and state.offsets is not None:
            # before anything is said that rests on another log
            source.go_on(state.offsets)
        return source

    def _begin(self, name: str) -> None:
        engine = self.engine
        if engine.state.streams[name].ended:
            return
        source = engine.sources[name]
        declared = self._catalog.streams[name].name
        engine.load.introduce(declared, self._catalog)
        self._streams[name] = start_stream(
            source.streaming(),
            f"slackwater-{name}",
            engine.journal.checkpoint(name),
            0 if source.as_fast_as_it_goes else self._settings.trigger_ms,
            lambda frame, number: engine.batch(declared, frame, number),
        )

    def spark_seconds(self) -> float:
        """What Spark itself takes for a batch, beside what is done with its rows."""
        times = [stream.durations() for stream in list(self._streams.values())]
        apart = [t.get("triggerExecution", 0) - t.get("addBatch", 0) for t in times]
        return max(apart, default=0) / 1000

    def _tick(self) -> None:
        try:
            while not self._stopping.wait(TICK_S) and not self._over():
                for name, stream in list(self._streams.items()):
                    if stream.starting():
                        # Spark has not looked for rows yet: that is no silence
                        self.engine.hear(name)
                    elif stream.waiting():
                        self._silent(self._catalog.streams[name].name)
        except Exception as error:
            # poll() raises it in the thread that waits
            self.engine.error = self.engine.error or error
        finally:
            # nothing more will come: those who read answers() need not wait for stop()
            self._iterator.close()

    def _silent(self, stream: str) -> None:
        """Spark has looked for rows of a stream and found none."""
        # first: the other one waits for turns of other streams, and what Spark has said may be old by then
        self.engine.rest(stream, max(IDLE_S, IDLE_INTERVALS * self._settings.trigger_ms / 1000))
        self.engine.tick(stream)

    def _over(self) -> bool:
        """Whether the run is broken, or every stream has ended."""
        streams = dict(self._streams)
        for name, stream in streams.items():
            self._broken(name, stream)
        if self.engine.error is not None:
            return True
        return all(self.engine.state.streams[name].ended for name in streams)

    def _broken(self, name: str, stream: Running) -> BaseException | None:
        """What broke the run; that a stream has stopped between batches is told to all who look."""
        problem = None if self.engine.state.streams[name].ended else stream.problem()
        # what Spark says of a batch that was stopped on purpose breaks nothing
        if problem is not None and self.engine.error is None and not self._stopping.is_set():
            self.engine.error = RunError(f"stream {name} stopped: {problem}")
        return self.engine.error

    def wait(self, timeout: float | None) -> bool:
        """Until every stream has ended (True), or the time is over or the run stopped (False)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self.poll():
                return True
            if self.stopped or (deadline is not None and time.monotonic() >= deadline):
                return False
            self._stopping.wait(0.05)

    def poll(self) -> bool:
        """Whether every stream has ended; raises what broke the run."""
        engine = self.engine
        if engine.error is not None:
            raise engine.error
        for name, stream in list(self._streams.items()):
            if engine.state.streams[name].ended:
                stream.stop()
                self._streams.pop(name, None)
            elif (broken := self._broken(name, stream)) is not None:
                raise broken
        # another thread may declare a query that is the first to read a stream
        return not self._streams and all(engine.state.streams[name].ended for name in list(engine.sources))

    def stop(self) -> None:
        """Stop after the batch that runs, once."""
        if self.stopped:
            return
        self._stopping.set()
        # first: a turn that waits for a slow reader of answers() would never come to its end
        self._iterator.close()
        for source in list(self.engine.sources.values()):
            # nor would one that waits for a hub
            if isinstance(source, AgentsSource):
                source.give_up()
        self.engine.finish()
        for stream in list(self._streams.values()):
            stream.stop()
        self._streams.clear()
        if self._ticker is not None:
            self._ticker.join(timeout=10)
        self.engine.alerts.stop()
        self.engine.board.stopped()
        self.engine.close()
