"""A recorded run once more, with nothing shed: the same batches, watermarks, late rows and changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from slackwater.language.contracts import Drift, Exact
from slackwater.language.parse import parse
from slackwater.language.render import create_table, quoted_name
from slackwater.language.statements import AlterQuery, CreateQuery, CreateStream, CreateTable
from slackwater.plan.catalog import Catalog
from slackwater.runtime.recording import RecordedTurn, Recording, rows_folder, table_folder
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.sinks import Sink
from slackwater.spark.execute import SparkSession
from slackwater.spark.recorded import RecordedSource

Register = Callable[[Session], None]
Progress = Callable[[int, int], None]
"""Called after each turn with how many are done, and of how many."""


def replay(
    recording: Recording,
    spark: SparkSession,
    sink: Sink,
    register: Register = lambda session: None,
    *,
    state: Path | None = None,
    progress: Progress = lambda done, of: None,
) -> Catalog:
    """Run a recording exactly; its answers go to the sink. Returns all that was declared at its end.

    Nothing is shed and nothing put off: what was under DRIFT is EXACT, and has an answer at every tick.
    """
    known = {k: v for k, v in recording.settings.items() if k in Settings.__dataclass_fields__}
    settings = replace(Settings(**known), shedding="off")
    sources = {name: partial(_recorded, recording=recording) for name in _streams(recording)}
    # who was told then is not told again
    began = _first_sql(recording)
    kept = [statement.sql for statement in parse(began)]
    session = Session(spark, state, settings, sources=sources, alerting=False, kept=kept)
    register(session)
    recording.check_functions(session.catalog.functions)
    turns = recording.turns
    session.sql(began)
    session.start(sink, manual=True)
    try:
        carrier = session.engine.executor.session.range(0)
        version = turns[0].version
        catalog = session.catalog
        for done, turn in enumerate(turns, 1):
            if turn.version > version:
                version = turn.version
                catalog = _change(session, recording, version)
            if turn.kind == "batch" and turn.batch is not None:
                session.engine.batch(turn.stream, carrier, turn.batch)
            elif turn.kind == "tick":
                session.engine.move(turn.stream, turn.watermark)
            progress(done, len(turns))
        return catalog
    finally:
        session.stop()


def _first_sql(recording: Recording) -> str:
    """What the run began with, and streams that a later file has added: a session takes them at its start."""
    first = recording.versions[recording.turns[0].version]
    named = {s.name.lower() for s in parse(first) if isinstance(s, CreateStream)}
    later = [s for sql in recording.versions.values() for s in parse(sql) if isinstance(s, CreateStream)]
    added = {s.name.lower(): s.sql for s in later if s.name.lower() not in named}
    return ";\n".join([exact_sql(recording.root, first), *added.values()])


def exact_sql(root: Path, sql: str) -> str:
    """SQL whose stored tables are those that were recorded, and in which EXACT stands for DRIFT.

    The ALTER comes right after what has set the DRIFT, so that a contract that is set later holds.

    >>> print(exact_sql(Path("."), "ALTER QUERY q WITH DRIFT 5; ALTER QUERY q WITH EXACT WEIGHT 2"))
    ALTER QUERY `q` WITH EXACT;
    ALTER QUERY q WITH EXACT WEIGHT 2
    """
    texts = []
    for statement in parse(sql):
        if isinstance(statement, CreateTable):
            columns = {c.name: c.type for c in statement.columns}
            path = str(table_folder(root, statement.name).resolve())
            texts.append(create_table(statement.name, columns, "parquet", {"path": path}))
        elif isinstance(statement, CreateQuery | AlterQuery) and isinstance(statement.contract, Drift):
            texts += [statement.sql] if isinstance(statement, CreateQuery) else []
            texts.append(f"ALTER QUERY {quoted_name(statement.name)} WITH {Exact()}")
        else:
            texts.append(statement.sql)
    return ";\n".join(texts)


def _change(session: Session, recording: Recording, version: int) -> Catalog:
    """Let the query set be what it was from some turn on."""
    sql = exact_sql(recording.root, recording.versions[version])
    catalog = Catalog.from_sql(sql, session.catalog.functions, kept=True)
    engine = session.engine
    for step in catalog.queries.values():
        name = step.stream.lower()
        declared = catalog.streams[name]
        # what agents send is not run
        if declared.format.lower() != "agents" and name not in engine.sources:
            engine.sources[name] = _recorded(engine.executor.session, declared, recording=recording)
    engine.change(catalog)
    return catalog


def _streams(recording: Recording) -> dict[str, None]:
    declared = [s for sql in recording.versions.values() for s in parse(sql) if isinstance(s, CreateStream)]
    return dict.fromkeys(s.name.lower() for s in declared)


def _recorded(spark: SparkSession, stream: CreateStream, *, recording: Recording) -> RecordedSource:
    """The source of a stream: its batches with the watermarks that they led to."""
    turns = [t for t in recording.turns if t.stream.lower() == stream.name.lower()]
    batches = {t.batch: _offsets(t) for t in turns if t.kind == "batch" and t.batch is not None}
    folders = {
        t.batch: rows_folder(recording.root, stream.name, t.batch)
        for t in turns
        if t.batch is not None and t.has_rows
    }
    ended = any(t.kind == "end" for t in turns)
    return RecordedSource(spark, stream, batches, folders, max(batches) if ended and batches else None)


def _offsets(turn: RecordedTurn) -> Mapping[str, object]:
    """What the engine goes by in place of what it would find out: a sample has seen less than there was."""
    return {"closed": turn.closed, "latest": turn.latest, "since": dict(turn.since)}
