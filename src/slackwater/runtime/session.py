"""The way in: declare streams and queries, run them, read answers, change them while they run."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from slackwater.errors import PlanError, RunError
from slackwater.language.aggregates import UserAggregate
from slackwater.language.parse import parse
from slackwater.language.statements import CreateStream, Drop, Explain, ExplainFormat
from slackwater.plan.catalog import Catalog
from slackwater.plan.explain import explain
from slackwater.plan.layout import extend
from slackwater.plan.tables import Plan
from slackwater.planners.manner import Manner
from slackwater.planners.ruling import Ruler
from slackwater.runtime.alerts.desk import AlertStatus
from slackwater.runtime.answers import Answer
from slackwater.runtime.clocks import Clocks, no_fault
from slackwater.runtime.current.keeper import Keeping
from slackwater.runtime.current.pulse import Pace
from slackwater.runtime.declarations import Declarations
from slackwater.runtime.engine import Engine
from slackwater.runtime.governor import Governor
from slackwater.runtime.journal import Journal, kept_script
from slackwater.runtime.pace import seconds_for_batch
from slackwater.runtime.recorder import Recorder
from slackwater.runtime.running import OpenSource, Run
from slackwater.runtime.settings import Settings
from slackwater.runtime.sinks import IteratorSink, Sink
from slackwater.runtime.status import Status
from slackwater.runtime.versions import changed_live, reconcile
from slackwater.spark.check import check_with_spark
from slackwater.spark.execute import Executor, SparkSession
from slackwater.spark.session import build_session, own_session
from slackwater.spark.sources import check_source


@dataclass
class Session(Declarations):
    """Streams, tables, views and standing queries over one Spark session.

    ``state`` is the directory that a killed run goes on from; without one it is temporary. A session runs
    once: after ``stop`` another one with the same state goes on.
    """

    spark: SparkSession | None = None
    state: str | Path | None = None
    settings: Settings = field(default_factory=Settings)
    clocks: Clocks = field(default_factory=Clocks)
    fault: Callable[[str], None] = field(default=no_fault, repr=False)
    sources: Mapping[str, OpenSource] = field(default_factory=dict, repr=False)
    """Sources by stream that take the place of the declared ones."""
    ruler: Ruler | None = field(default=None, repr=False)
    """Decides how much of each batch is kept, in place of the closed loop."""
    governor: Callable[[Callable[[], float], int, Any], Governor] = field(default=Governor, repr=False)
    """Makes the closed loop."""
    kept: Collection[str] = field(default=(), repr=False)
    """Statements that an earlier run took, beside those of its state: they are not held to new bounds."""
    alerting: bool = True
    """Whether alerts are looked at, and webhooks told; a run that is only tried out tells nobody."""
    watchers: list[Callable[[Engine], None]] = field(default_factory=list, repr=False)
    """Called with the engine before it takes its first turn: those who watch the run from its beginning."""

    def __post_init__(self) -> None:
        self.catalog = Catalog()
        self.scalars: dict[str, tuple[Callable[..., Any], str]] = {}
        """Registered functions by name in lower case, each with what it returns."""
        self._script: list[str] = []
        self._script_text = ""
        self._run: Run | None = None
        self._iterator = IteratorSink()
        self._changing = threading.RLock()
        self._temporary: Path | None = None
        self.changed_live: list[str] = []
        """What the state has that the statements before the start do not say: an earlier run was changed."""

    # --- declaring -------------------------------------------------------------------------------

    def sql(self, text: str, *, file: str = "") -> list[str]:
        """Apply statements, all or none; the texts of what EXPLAIN asked for.

        While the session runs, the change takes effect at the next batch, without a restart.
        """
        with self._changing:
            run = self._run
            if run is not None and run.stopped:
                raise RunError("this session has been stopped: nothing can be changed any more")
            catalog = self.catalog
            explained = []
            applied = []
            kept = self._kept_script if run is None else frozenset()
            for statement in parse(text, file=file):
                if isinstance(statement, Explain):
                    catalog.apply(statement)
                    shown = catalog.apply(statement.statement) if statement.statement is not None else catalog
                    name = statement.statement.name if statement.statement is not None else statement.name
                    text_of = explain(extend(Plan(), shown), statement.format, name)
                    explained.append(text_of + self._bounds(statement.format, name))
                    continue
                stream = isinstance(statement, CreateStream) or (
                    isinstance(statement, Drop) and statement.kind == "stream"
                )
                if stream and run is not None:
                    raise statement.source.error(
                        "streams are declared and dropped before the run starts",
                        hint="stop, change the file, and run again",
                    )
                catalog = catalog.apply(statement, kept=statement.sql in kept)
                applied.append(statement.sql)
            if run is None:
                self._script += applied
                self._script_text += text.rstrip().rstrip(";") + ";\n"
            elif catalog != self.catalog:
                self._refuse_ended(run.engine, catalog)
                check_with_spark(run.engine.executor, extend(Plan(), catalog))
                run.change(catalog)
            self.catalog = catalog
            return explained

    @cached_property
    def _kept_script(self) -> frozenset[str]:
        """The statements of earlier runs that the one to come may go on with."""
        return frozenset(self.kept).union(kept_script(self._root()) if self.state is not None else ())

    def function(self, name: str, function: Callable[..., Any], returns: str) -> None:
        """Register a Python function for use in expressions; ``returns`` is a Spark SQL type."""
        self._before_start("functions")
        self.catalog = replace(self.catalog, functions=self.catalog.functions.with_scalar(name, returns))
        self.scalars[name.lower()] = (function, returns)

    def aggregate(self, name: str, aggregate: UserAggregate) -> None:
        """Register an aggregate of the form (init, incr, final), with an optional merge."""
        self._before_start("aggregates")
        self.catalog = replace(self.catalog, functions=self.catalog.functions.with_aggregate(name, aggregate))

    def _before_start(self, what: str) -> None:
        if self._run is not None:
            raise PlanError(f"{what} are registered before the run starts, and it has started")

    def _refuse_ended(self, engine: Engine, catalog: Catalog) -> None:
        """Raise where a new query reads a stream from which nothing more will come."""
        for name, step in catalog.queries.items():
            state = engine.state.streams.get(step.stream.lower())
            if name not in self.catalog.queries and state is not None and state.ended:
                raise PlanError(
                    f"{step.name} reads {step.stream}, which has ended: nothing more comes from it"
                )

    def explain(self, format: ExplainFormat = "text", name: str | None = None) -> str:
        """The shared plan, as text, json, dot or svg; as text, of a run also what agents send."""
        return explain(self.plan, format, name) + self._bounds(format, name)

    def _bounds(self, format: ExplainFormat, name: str | None) -> str:
        if self._run is None or format != "text":
            return ""
        engine = self._run.engine
        with engine.lock:
            lines = [line for keeper in engine.bounds.values() for line in keeper.described(name)]
        return "".join(f"\n{line}" for line in lines)

    @property
    def plan(self) -> Plan:
        if self._run is not None:
            versions = self._run.engine.versions
            return versions.plan(versions.latest)
        return extend(Plan(), self.catalog)

    def check(self) -> None:
        """Let Spark analyse every query; raises where it cannot. Nothing is read and nothing runs."""
        for stream in self.catalog.streams.values():
            check_source(stream)
        executor = self.new_executor()
        for table in self.catalog.tables.values():
            executor.pretend_table(table)
        check_with_spark(executor, extend(Plan(), self.catalog))

    # --- running ---------------------------------------------------------------------------------

    def start(
        self, *sinks: Sink, fresh: bool = False, manual: bool = False, record: str | Path | None = None
    ) -> None:
        """Start all streams; answers go to the sinks, and to ``answers()``.

        With ``manual`` nothing runs by itself: the caller hands batches and ticks to ``engine``. ``record``
        is a folder for all that an audit needs; it costs a full read of every batch.
        """
        if self._run is not None:
            done = "has been stopped; make another one with its state" if self._run.stopped else "is running"
            raise RunError(f"this session {done}")
        read = self._read_streams()
        if not read:
            raise PlanError("there is no query to run: write CREATE QUERY name AS SELECT …")
        executor = self.new_executor()
        journal = Journal(self._root(), fresh=fresh and self.state is not None)
        try:
            engine = Engine(
                executor,
                journal,
                self.catalog.functions,
                [*sinks, self._iterator],
                clocks=self.clocks,
                driver_rows=self.settings.driver_rows,
                keeping=self._keeping(),
                salt=self.settings.salt,
                ruler=self.ruler or self._governor(),
                recorder=self._recorder(record, journal.root, fresh),
                tick_budget=None if self.settings.shedding == "off" else self._batch_seconds,
                alerting=self.alerting,
                fault=self.fault,
            )
            if engine.versions.latest:
                declared = self.catalog
                self.catalog, self._script = reconcile(
                    engine.catalog, engine.versions.script, self._script_text
                )
                self.changed_live = changed_live(declared, self.catalog)
            # where all queries were dropped while it ran it goes on as it was, and others may be created
            read = self._read_streams() or read
            check_with_spark(engine.executor, extend(Plan(), self.catalog))
            for watch in self.watchers:
                watch(engine)
            run = Run(engine, self.settings, self.clocks, self.sources, self._iterator)
            run.start(read, self.catalog, self._script, manual=manual)
        except BaseException:
            # nothing runs: the mistake can be mended and the session started again
            journal.close()
            self._remove_temporary()
            self._iterator = IteratorSink()
            raise
        self._run = run

    def _recorder(self, folder: str | Path | None, state: Path, fresh: bool) -> Recorder | None:
        if folder is None:
            return None
        return Recorder(Path(folder).resolve(), state, self.settings, fresh=fresh)

    def _keeping(self) -> Keeping:
        settings = self.settings
        pace = Pace(
            settings.deferral_items, settings.deferral_estimate_ticks, settings.deferral_resting_ticks
        )
        return Keeping(pace, settings.driver_entries, Manner.of(settings.deferral))

    def _batch_seconds(self) -> float:
        """What a batch may take, beside what Spark itself does for it."""
        settings, run = self.settings, self._run
        around = run.spark_seconds() + run.engine.after if run is not None else 0.0
        return seconds_for_batch(settings.trigger_ms / 1000, settings.utilisation / 100, around)

    def _governor(self) -> Governor | None:
        """What keeps batches to their interval; None where nothing is to be shed."""
        settings = self.settings
        if settings.shedding == "off":
            return None
        assert self.spark is not None
        cores = self.spark.sparkContext.defaultParallelism
        split: Any = settings.shedding

        made = self.governor(self._batch_seconds, cores, split)
        made.margin = settings.margin
        made.objective = "delivered" if settings.objective == "delivered" else "minimax"
        made.pace.utilisation = settings.utilisation / 100
        return made

    def new_executor(self) -> Executor:
        """Spark as we need it, with the functions that have been registered."""
        self.spark = self.spark or build_session()
        executor = Executor(own_session(self.spark), self.scalars)
        for name, (function, returns) in self.scalars.items():
            executor.add_scalar(name, function, returns)
        return executor

    def _read_streams(self) -> list[str]:
        """The streams that some query reads."""
        return list(dict.fromkeys(step.stream.lower() for step in self.catalog.queries.values()))

    def _root(self) -> Path:
        if self.state is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="slackwater-"))
            return self._temporary
        # absolute: Spark may have been started in another folder
        return Path(self.state).resolve()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def wait(self, timeout: float | None = None) -> bool:
        """Until every stream has ended (True) or the time is over (False); raises what broke the run."""
        return True if self._run is None else self._run.wait(timeout)

    def poll(self) -> bool:
        """Whether every stream has ended; raises what broke the run."""
        return True if self._run is None else self._run.poll()

    def stop(self) -> None:
        """Stop after the batch that runs; a session with a state directory can go on later."""
        if self._run is not None:
            self._run.stop()
        self._remove_temporary()

    def answers(self, query: str | None = None) -> Iterator[Answer]:
        """The answers as they come, of one query or of all; ends when the run does."""
        if self._run is None:
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
        if self._run is None:
            return Status(at=self.clocks.now())
        return self._run.engine.board.status(self.clocks.now())

    def alerts(self) -> tuple[AlertStatus, ...]:
        """Alerts at this moment; none before the run has started."""
        return () if self._run is None else self._run.engine.alerts.status()

    @property
    def engine(self) -> Engine:
        if self._run is None:
            raise RunError("this session has not been started")
        return self._run.engine

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


__all__ = ["Session", "Settings"]
