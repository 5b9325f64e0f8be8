"""The evaluator: SQL text and recorded streams to all the answers that are true of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from slackwater.language.aggregates import UserAggregate
from slackwater.language.statements import CreateQuery
from slackwater.reference.answers import ReferenceAnswer
from slackwater.reference.grouping import Registry
from slackwater.reference.recording import Recording
from slackwater.reference.sources import Intake, Row
from slackwater.reference.steps import answers_of

__all__ = ["ReferenceAnswer", "Row", "UserAggregate", "evaluate", "late_rows", "unreadable_rows"]

Streams = Mapping[str, Sequence[Sequence[Row]]]
T = TypeVar("T")


def evaluate(
    sql: str,
    streams: Streams,
    tables: Mapping[str, Sequence[Row]] = {},
    functions: Mapping[str, Callable[..., object]] = {},
    aggregates: Mapping[str, UserAggregate] = {},
    end: bool = True,
) -> list[ReferenceAnswer]:
    """Every answer of every query, by query and then time and keys.

    ``streams`` holds the batches of each stream, ``tables`` the rows of each table; ``end`` says that
    nothing more will come, so that all windows close and all ticks are complete. Answers of windows come by
    window end, window start and keys; those over LATEST come by tick, and then by keys or, of a set-valued
    query, by the keys of the stream. Contracts are passed over: every answer is the exact one.
    """
    registry = Registry(_lower(functions), _lower(aggregates))
    recording = Recording(sql, _lower(streams), _lower(tables), registry, end)
    queries = [step for step in recording.steps.values() if isinstance(step, CreateQuery)]
    answers: list[ReferenceAnswer] = []
    for query, found in zip(queries, answers_of(recording, queries), strict=True):
        named = [replace(answer, query=query.name) for answer in found]
        answers.extend(sorted(named, key=lambda answer: answer.order))
    return answers


def late_rows(
    sql: str, streams: Streams, functions: Mapping[str, Callable[..., object]] = {}
) -> dict[str, int]:
    """How many rows of each stream came too late for any query but those over LATEST."""
    return {name: intake.late for name, intake in _intakes(sql, streams, functions).items()}


def unreadable_rows(
    sql: str, streams: Streams, functions: Mapping[str, Callable[..., object]] = {}
) -> dict[str, int]:
    """How many rows of each stream have no event time."""
    return {name: intake.unreadable for name, intake in _intakes(sql, streams, functions).items()}


def _intakes(sql: str, streams: Streams, functions: Mapping[str, Callable[..., object]]) -> dict[str, Intake]:
    recording = Recording(sql, _lower(streams), {}, Registry(_lower(functions), {}), True)
    given = [stream for name, stream in recording.streams.items() if name in recording.batches]
    return {stream.name: recording.intake(stream) for stream in given}


def _lower(named: Mapping[str, T]) -> dict[str, T]:
    return {name.lower(): value for name, value in named.items()}
