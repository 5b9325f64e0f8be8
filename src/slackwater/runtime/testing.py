"""Running queries over given batches, turn by turn: for tests and for trying things out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from slackwater.language.aggregates import UserAggregate
from slackwater.planners.ruling import Ruler
from slackwater.runtime.answer_batch import AnswerBatch
from slackwater.runtime.answers import Answer
from slackwater.runtime.clocks import Clocks, no_fault
from slackwater.runtime.session import Session, Settings
from slackwater.spark.execute import SparkSession
from slackwater.spark.scripted import ScriptedSource


class ListSink:
    """Keeps every answer in a list, durable as far as a list can be: a mark is its length."""

    def __init__(self, answers: list[Answer] | None = None) -> None:
        self.answers: list[Answer] = [] if answers is None else answers

    def open(self, resume: Mapping[str, object] | None) -> None:
        del self.answers[int(str(resume["length"])) if resume is not None else 0 :]

    def write(self, step: int, batches: Iterable[AnswerBatch]) -> None:
        for batch in batches:
            self.answers += batch.answers()

    def mark(self) -> dict[str, object]:
        return {"length": len(self.answers)}

    def close(self) -> None:
        """Nothing to let go of."""


def scripted_session(
    spark: SparkSession,
    sql: str,
    batches: Mapping[str, Sequence[pa.Table]],
    *,
    functions: Mapping[str, tuple[Callable[..., Any], str]] | None = None,
    aggregates: Mapping[str, UserAggregate] | None = None,
    state: Path | None = None,
    settings: Settings | None = None,
    clocks: Clocks | None = None,
    fault: Callable[[str], None] = no_fault,
    ends: bool = True,
    ruler: Ruler | None = None,
    spans: Mapping[str, Sequence[tuple[int, int]]] | None = None,
) -> Session:
    """A session over given batches, not yet started; ``spans``: from when to when they are, as of a trace."""
    sources = {
        name.lower(): partial(_scripted, batches=tables, ends=ends, spans=(spans or {}).get(name, ()))
        for name, tables in batches.items()
    }
    session = Session(spark, state, settings or Settings(), clocks or Clocks(), fault, sources, ruler)
    for name, (function, returns) in (functions or {}).items():
        session.function(name, function, returns)
    for name, aggregate in (aggregates or {}).items():
        session.aggregate(name, aggregate)
    session.sql(sql)
    return session


def _scripted(
    spark: SparkSession,
    stream: Any,
    *,
    batches: Sequence[pa.Table],
    ends: bool,
    spans: Sequence[tuple[int, int]],
) -> ScriptedSource:
    return ScriptedSource(spark, stream, batches, ends=ends, spans=spans)


def take_turns(session: Session, batches: Mapping[str, Sequence[pa.Table]]) -> None:
    """Hand the batches to a manually started session, those that it has committed already excepted."""
    carrier = session.engine.executor.session.range(0)
    for index in range(max(len(tables) for tables in batches.values())):
        for stream, tables in batches.items():
            if index < len(tables):
                session.engine.batch(stream, carrier, index)


class Killed(BaseException):
    """Stands for kill -9: not an Exception, so that nothing may handle it."""


def killer(point: str, occurrence: int) -> Callable[[str], None]:
    """A fault that kills a run when it reaches a point for the given time."""
    seen = 0

    def fault(reached: str) -> None:
        nonlocal seen
        if reached == point:
            seen += 1
            if seen == occurrence:
                raise Killed(point)

    return fault


def abandon(session: Session) -> None:
    """Leave a session as a kill would: nothing is finished, and the lock goes with the process."""
    session.engine.journal.close()


def run_scripted(
    spark: SparkSession, sql: str, batches: Mapping[str, Sequence[pa.Table]], **options: Any
) -> list[Answer]:
    """All answers of queries over given batches."""
    session = scripted_session(spark, sql, batches, **options)
    sink = ListSink()
    session.start(sink, manual=True)
    try:
        take_turns(session, batches)
    finally:
        session.stop()
    return sink.answers
