"""The way in: declare streams and queries, run them, read answers, change them while they run."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slackwater.errors import PlanError, RunError, SlackwaterError
from slackwater.language.aggregates import UserAggregate
from slackwater.language.parse import parse
from slackwater.language.parse_source import check_type
from slackwater.language.statements import CreateStream, Drop, Explain, ExplainFormat
from slackwater.plan.calls import is_built_in
from slackwater.plan.catalog import Catalog
from slackwater.plan.explain import explain
from slackwater.plan.functions import Functions
from slackwater.plan.layout import extend
from slackwater.plan.tables import Plan
from slackwater.runtime.answers import Answer
from slackwater.runtime.declarations import Declarations
from slackwater.runtime.engine import Clocks, Engine, no_fault
from slackwater.runtime.journal import Journal, discard_state
from slackwater.runtime.settings import Settings
from slackwater.runtime.sinks import IteratorSink, Sink
from slackwater.runtime.status import Status
from slackwater.runtime.versions import reconcile
from slackwater.spark.check import check_with_spark
from slackwater.spark.execute import Executor, SparkSession
from slackwater.spark.session import build_session
from slackwater.spark.sources import StreamSource, open_source
from slackwater.spark.streaming import Running, start_stream

OpenSource = Callable[[SparkSession, CreateStream], StreamSource]


@dataclass
class Session(Declarations):
    """Streams, tables, views and standing queries over one Spark session.

    ``state`` is the directory that a killed run goes on from; without one it is temporary.
    """

    spark: SparkSession | None = None
    state: str | Path | None = None
    settings: Settings = field(default_factory=Settings)
    clocks: Clocks = field(default_factory=Clocks)
    fault: Callable[[str], None] = field(default=no_fault, repr=False)
    sources: Mapping[str, OpenSource] = field(default_factory=dict, repr=False)
    """Sources by stream that take the place of the declared ones."""

    def __post_init__(self) -> None:
        self.catalog = Catalog()
        self._scalars: dict[str, tuple[Callable[..., Any], str]] = {}
        self._script: list[str] = []
        self._file = ""
        self._script_text = ""
        self._engine: Engine | None = None
        self._running: dict[str, Running] = {}
        self._iterator = IteratorSink()
        self._stopping = threading.Event()
        self._ticker: threading.Thread | None = None
        self._temporary: Path | None = None
        self.not_run: tuple[str, ...] = ()
        """Queries that are checked and that this version does not run."""

    # --- declaring -------------------------------------------------------------------------------

    def sql(self, text: str, *, file: str = "") -> list[str]:
        """Apply statements, all or none; the texts of what EXPLAIN asked for.

        While the session runs, the change takes effect at the next batch, without a restart.
        """
        catalog = self.catalog
        explained = []
        for statement in parse(text, file=file):
            if isinstance(statement, Explain):
                shown = catalog.apply(statement.statement) if statement.statement is not None else catalog
                name = statement.statement.name if statement.statement is not None else statement.name
                explained.append(explain(extend(Plan(), shown), statement.format, name))
                continue
            stream = isinstance(statement, CreateStream) or (
                isinstance(statement, Drop) and statement.kind == "stream"
            )
            if stream and self._engine is not None:
                raise statement.source.error(
                    "streams are declared and dropped before the run starts",
                    hint="stop, change the file, and run again",
                )
            catalog = catalog.apply(statement)
            if self._engine is None:
                self._script.append(statement.sql)
        if self._engine is not None and catalog != self.catalog:
            self._refuse_ended(catalog)
            self._check(catalog)
            self._begin_reading(catalog)
            self._engine.change(catalog)
        self.catalog = catalog
        self._script_text += text.rstrip().rstrip(";") + ";\n" if self._engine is None else ""
        return explained

    def function(self, name: str, function: Callable[..., Any], returns: str) -> None:
        """Register a Python function for use in expressions; ``returns`` is a Spark SQL type."""
        self._before_start("functions")
        check_type(returns, f"function {name}: returns")
        self._scalars[name.lower()] = (function, returns)
        functions = self.catalog.functions
        self._functions(replace(functions, scalars=functions.scalars | {name.lower()}))

    def aggregate(self, name: str, aggregate: UserAggregate) -> None:
        """Register an aggregate of the form (init, incr, final), with an optional merge."""
        self._before_start("aggregates")
        check_type(aggregate.returns, f"aggregate {name}: returns")
        if is_built_in(name):
            raise PlanError(f"aggregate {name}: SQL has one of that name; choose another")
        functions = self.catalog.functions
        self._functions(replace(functions, aggregates={**functions.aggregates, name.lower(): aggregate}))

    def _before_start(self, what: str) -> None:
        if self._engine is not None:
            raise PlanError(f"{what} are registered before the run starts, and it has started")

    def _functions(self, functions: Functions) -> None:
        self.catalog = replace(self.catalog, functions=functions)

    def explain(self, format: ExplainFormat = "text", name: str | None = None) -> str:
        """The shared plan, as text, json, dot or svg."""
        return explain(self.plan, format, name)

    @property
    def plan(self) -> Plan:
        if self._engine is not None:
            return self._engine.versions.plan(self._engine.versions.latest)
        return extend(Plan(), self.catalog)

    # --- running ---------------------------------------------------------------------------------

    def start(self, *sinks: Sink, fresh: bool = False, manual: bool = False) -> None:
        """Start all streams; answers go to the sinks, and to ``answers()``.

        With ``manual`` nothing runs by itself: the caller hands batches and ticks to ``engine``.
        """
        if self._engine is not None:
            raise RunError("this session is running already")
        read = self._read_streams()
        root = self._root(fresh)
        spark = self.spark = self.spark or build_session()
        executor = Executor(spark, self._scalars)
        for name, (function, returns) in self._scalars.items():
            executor.add_scalar(name, function, returns)
        journal = Journal(root)
        engine = Engine(
            executor,
            journal,
            self.catalog.functions,
            [*sinks, self._iterator],
            clocks=self.clocks,
            driver_rows=self.settings.driver_rows,
            fault=self.fault,
        )
        self._engine = engine
        try:
            if engine.versions.latest:
                self.catalog, self._script = reconcile(
                    engine.catalog, engine.versions.script, self._script_text
                )
                read = self._read_streams()
            self._check(self.catalog)
            for name in read:
                engine.sources[name] = self._open_source(spark, journal, name)
            engine.open(self.catalog, self._script)
            for name in read:
                engine.recover(name)
                if not manual:
                    self._start_stream(engine, name)
        except BaseException:
            self.stop()
            # nothing runs: the mistake can be mended and the session started again
            self._engine = None
            self._stopping = threading.Event()
            self._iterator = IteratorSink()
            raise
        if manual:
            return
        self._ticker = threading.Thread(target=self._tick, daemon=True, name="slackwater-ticker")
        self._ticker.start()

    def _refuse_ended(self, catalog: Catalog) -> None:
        """Raise where a new query reads a stream from which nothing more will come."""
        for name, step in catalog.queries.items():
            state = self.engine.state.streams.get(step.stream.lower())
            if name not in self.catalog.queries and state is not None and state.ended:
                raise PlanError(
                    f"{step.name} reads {step.stream}, which has ended: nothing more comes from it"
                )

    def _begin_reading(self, catalog: Catalog) -> None:
        """Start the streams that a change is the first to read."""
        engine = self.engine
        for step in catalog.queries.values():
            name = step.stream.lower()
            if not step.current and name not in engine.sources:
                engine.sources[name] = self._open_source(engine.executor.session, engine.journal, name)
                engine.recover(name)
                if self._ticker is not None:
                    self._start_stream(engine, name)

    def _open_source(self, spark: SparkSession, journal: Journal, name: str) -> StreamSource:
        declared = self.catalog.streams[name]
        if name in self.sources:
            return self.sources[name](spark, declared)
        return open_source(
            spark,
            declared,
            journal.source(name),
            rows_per_batch=self.settings.rows_per_batch,
            clock=self.clocks.seconds,
        )

    def _read_streams(self) -> list[str]:
        """The streams that some query reads; raises where there is nothing that can run."""
        steps = self.catalog.queries.values()
        current = [s.name for s in steps if s.current]
        read = list(dict.fromkeys(s.stream.lower() for s in steps if not s.current))
        self.not_run = tuple(current)
        if not read:
            if current:
                raise PlanError(
                    f"{', '.join(current)} read LATEST(…): such queries are checked, "
                    "and this version does not run them"
                )
            raise PlanError("there is no query to run: write CREATE QUERY name AS SELECT …")
        return read

    def _root(self, fresh: bool) -> Path:
        if self.state is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="slackwater-"))
            return self._temporary
        # absolute: Spark may have been started in another folder
        root = Path(self.state).resolve()
        if root.exists() and fresh:
            discard_state(root)
        return root

    def check(self) -> None:
        """Let Spark analyse every query; raises where it cannot. Nothing is read and nothing runs."""
        self.spark = self.spark or build_session()
        executor = Executor(self.spark, self._scalars)
        for name, (function, returns) in self._scalars.items():
            executor.add_scalar(name, function, returns)
        for table in self.catalog.tables.values():
            executor.pretend_table(table)
        check_with_spark(executor, extend(Plan(), self.catalog))

    def _check(self, catalog: Catalog) -> None:
        """Let Spark analyse every query before it runs, so that a wrong one is refused at once."""
        assert self._engine is not None
        check_with_spark(self._engine.executor, extend(Plan(), catalog))

    def _start_stream(self, engine: Engine, name: str) -> None:
        if engine.state.streams[name].ended:
            return
        source = engine.sources[name]
        interval = 0 if source.as_fast_as_it_goes else self.settings.trigger_ms
        declared = self.catalog.streams[name].name
        self._running[name] = start_stream(
            source.streaming(),
            f"slackwater-{name}",
            engine.journal.checkpoint(name),
            interval,
            lambda frame, number: engine.batch(declared, frame, number),
        )

    def _tick(self) -> None:
        while not self._stopping.wait(0.25):
            engine = self._engine
            if engine is None:
                return
            for name, running in list(self._running.items()):
                if running.starting():
                    # Spark has not looked for rows yet: that is no silence
                    engine.hear(name)
                    continue
                if not running.waiting():
                    continue
                with contextlib.suppress(SlackwaterError):
                    # the engine keeps what broke it, and poll() raises it
                    engine.tick(self.catalog.streams[name].name)
            present = dict(self._running)
            broken = engine.error is not None or any(r.problem() is not None for r in present.values())
            if broken or all(engine.state.streams[name].ended for name in present):
                # nothing more will come: those who read answers() need not wait for stop()
                self._iterator.close()
                return

    def wait(self, timeout: float | None = None) -> bool:
        """Until every stream has ended (True) or the time is over (False); raises what broke the run."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self.poll():
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
            self._stopping.wait(0.05)

    def poll(self) -> bool:
        """Whether every stream has ended; raises what broke the run."""
        engine = self._engine
        if engine is None:
            return True
        if engine.error is not None:
            raise engine.error
        for name, running in list(self._running.items()):
            if engine.state.streams[name].ended:
                running.stop()
                engine.finished(name)
                del self._running[name]
            elif (problem := running.problem()) is not None:
                raise RunError(f"stream {name} stopped: {problem}")
        return not self._running

    def stop(self) -> None:
        """Stop after the batch that runs; a session with a state directory can go on later."""
        self._stopping.set()
        # first: a turn that waits for a slow reader of answers() would never come to its end
        self._iterator.close()
        if self._engine is not None:
            self._engine.finish()
        for running in self._running.values():
            running.stop()
        self._running.clear()
        if self._ticker is not None:
            self._ticker.join(timeout=10)
        if self._engine is not None:
            self._engine.board.stopped()
            self._engine.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def answers(self, query: str | None = None) -> Iterator[Answer]:
        """The answers as they come, of one query or of all; ends when the run does."""
        if self._engine is None:
            raise RunError("there are no answers before start(): call it first")
        if query is None:
            return iter(self._iterator.answers())
        found = self.catalog.queries.get(query.lower())
        if found is None:
            known = ", ".join(s.name for s in self.catalog.queries.values())
            raise PlanError(f"there is no query called {query}; there are {known}")
        return iter(self._iterator.answers(found.name))

    def status(self) -> Status:
        """Streams and queries at this moment."""
        if self._engine is None:
            return Status(at=self.clocks.now())
        return self._engine.board.status(self.clocks.now())

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            raise RunError("this session has not been started")
        return self._engine

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


__all__ = ["Session", "Settings"]
