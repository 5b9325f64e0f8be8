"""A query tried on rows of a run before it is there: what share of them it takes, and of what values."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from slackwater.language.statements import CreateQuery, CreateStream, CreateTable, CreateView
from slackwater.plan.catalog import Catalog
from slackwater.plan.model import Step
from slackwater.runtime.governor import WARMING, Governor
from slackwater.runtime.session import Session, Settings
from slackwater.runtime.watching import Observer
from slackwater.spark.execute import SparkSession
from slackwater.spark.scripted import ScriptedSource
from slackwater.statistics.snapshot import StreamStatistics

BATCHES = WARMING + 2
"""The first ones are passed over, as in a run."""


def tried(
    spark: SparkSession,
    catalog: Catalog,
    stream: str,
    queries: Sequence[str],
    rows: pa.Table,
    prepare: Callable[[Session], None],
) -> StreamStatistics | None:
    """What would be known of a stream after these rows, if it had only these queries; None: nothing.

    The rows are taken in order of their time, in a few batches; answers go nowhere. ``prepare`` registers
    the functions of the run.
    """
    size = max(1, -(-rows.num_rows // BATCHES))
    batches = [rows.slice(start, size) for start in range(0, rows.num_rows, size)]
    with tempfile.TemporaryDirectory(prefix="slackwater-trial-") as folder:
        session = Session(
            spark,
            Path(folder) / "state",
            Settings(),
            sources={stream.lower(): partial(_scripted, batches=batches)},
            governor=Observer,
        )
        prepare(session)
        session.sql(";\n".join(_statements(catalog, stream, queries)))
        session.start(manual=True)
        try:
            carrier = session.engine.executor.session.range(0)
            name = catalog.streams[stream.lower()].name
            for number in range(len(batches)):
                session.engine.batch(name, carrier, number)
            governor = session.engine.load.ruler
            known = governor.snapshot() if isinstance(governor, Governor) else ()
            return next((k for k in known if k.stream.lower() == stream.lower()), None)
        finally:
            session.stop()


def _statements(catalog: Catalog, stream: str, queries: Sequence[str]) -> list[str]:
    """The stream, the tables, and the queries with all that they read."""
    wanted: set[str] = set()
    waiting = [name.lower() for name in queries]
    while waiting:
        name = waiting.pop()
        step = catalog.steps.get(name)
        if step is None or name in wanted:
            continue
        wanted.add(name)
        waiting += [source for source in _sources(step) if source != stream.lower()]
    found = []
    for name, declared in catalog.declared.items():
        if isinstance(declared, CreateStream):
            found += [declared.sql] if name == stream.lower() else []
        elif isinstance(declared, CreateTable) or (
            isinstance(declared, CreateView | CreateQuery) and name in wanted
        ):
            found.append(declared.sql)
    return found


def _sources(step: Step) -> list[str]:
    return [step.path.source.lower()]


def _scripted(spark: SparkSession, declared: CreateStream, *, batches: Sequence[pa.Table]) -> ScriptedSource:
    return ScriptedSource(spark, declared, batches, ends=False)


def registering(
    scalars: Mapping[str, tuple[Callable[..., Any], str]], aggregates: Mapping[str, Any]
) -> Callable[[Session], None]:
    """Registers the functions that another session has."""

    def register(session: Session) -> None:
        for name, (function, returns) in scalars.items():
            session.function(name, function, returns)
        for name, aggregate in aggregates.items():
            session.aggregate(name, aggregate)

    return register
